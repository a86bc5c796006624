//! A bound query: names are columns, every expression has its MySQL type, and nothing is text any more.
//!
//! It says what is asked, never how it is computed: lowering makes a plan of it. It can be kept, cached and sent, so
//! nothing in it points into a session, a catalog or a plan.

use serde::{Deserialize, Serialize};
use syntax::names::TableName;
use types::Value;
use values::mysql_type::MysqlType;

/// A column of a query: of a table in its FROM, or computed. Unique within the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ColumnId(pub u32);

/// A bound query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundQuery {
    /// Its rows.
    pub relation: Relation,
    /// Its columns, in order.
    pub output: Vec<OutputColumn>,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputColumn {
    /// Which it is.
    pub id: ColumnId,
    /// What it is called: its alias, or what the client wrote.
    pub name: String,
    /// The table's column that it shows, if it is no more than that.
    pub origin: Option<Origin>,
    /// Its type.
    pub ty: MysqlType,
}

/// The place that a column comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Its table.
    pub table: TableName,
    /// What the query calls the table.
    pub alias: String,
    /// Which of the table's columns it is, hidden ones counted.
    pub position: usize,
}

/// Rows of named columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Relation {
    /// One row without columns.
    OneRow,
    /// The rows of a table.
    Scan(Scan),
    /// Pairs of rows.
    Join {
        /// Which rows are kept that no pair has.
        kind: JoinKind,
        /// The rows on the left.
        left: Box<Relation>,
        /// The rows on the right.
        right: Box<Relation>,
        /// Which pairs; all without.
        on: Option<Scalar>,
    },
    /// The rows for which the condition is true.
    Filter {
        /// Of these rows.
        input: Box<Relation>,
        /// A truth value, or a number that is taken for one.
        condition: Scalar,
    },
    /// For each group of rows a row: what it is grouped by, then what is computed.
    Group {
        /// These rows.
        input: Box<Relation>,
        /// What is equal in a group. Without any, all rows are one group, also where there are none.
        keys: Vec<(ColumnId, Scalar)>,
        /// What is computed over a group's rows.
        aggregates: Vec<(ColumnId, AggregateCall)>,
        /// WITH ROLLUP: also the totals of all groups of the same first keys, in which the others are NULL.
        rollup: bool,
    },
    /// Each row with what window functions have for it.
    Windows {
        /// These rows.
        input: Box<Relation>,
        /// What is computed.
        calls: Vec<(ColumnId, WindowCall)>,
    },
    /// Each row once.
    Distinct {
        /// Of these.
        input: Box<Relation>,
    },
    /// The rows of two queries, by an operation of sets. Both sides' columns are the whole's, in order, and of the same
    /// types as plans have them.
    Set {
        /// Which.
        operation: SetOperation,
        /// Whether equal rows stay several.
        all: bool,
        /// One side.
        left: Box<BoundQuery>,
        /// The other.
        right: Box<BoundQuery>,
        /// The columns of the whole.
        columns: Vec<ColumnId>,
    },
    /// The rows of a query in the place of a table.
    Derived {
        /// The query.
        query: Box<BoundQuery>,
        /// What the query around calls it.
        alias: String,
        /// LATERAL: it stands on the right of a join, and is computed for each row on the left, whose columns it may read.
        lateral: bool,
    },
    /// The rows of a query that is computed from its own rows: of the first one, then again and again of the other one,
    /// over the rows that came last, until none come. Both have the same types.
    Recursive {
        /// Which it is among those of the statement.
        name: String,
        /// Whether equal rows stay several.
        all: bool,
        /// What it begins with.
        first: Box<BoundQuery>,
        /// What follows from the rows that came last.
        next: Box<BoundQuery>,
        /// The columns of the whole.
        columns: Vec<ColumnId>,
    },
    /// The rows of a recursive query that came last, within it.
    Last {
        /// Which it is.
        name: String,
        /// Its columns.
        columns: Vec<ColumnId>,
    },
    /// For each row a row of these columns.
    Map {
        /// Of these rows.
        input: Box<Relation>,
        /// The columns, in order.
        columns: Vec<(ColumnId, Scalar)>,
    },
    /// The rows in an order.
    Sort {
        /// These rows.
        input: Box<Relation>,
        /// What decides first comes first.
        by: Vec<SortKey>,
    },
    /// Some of the rows.
    Limit {
        /// Of these.
        input: Box<Relation>,
        /// Rows that are left out before the first.
        skip: u64,
        /// Rows at most; all with `None`.
        fetch: Option<u64>,
    },
}

/// Which rows of two sides are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetOperation {
    /// Those of either.
    Union,
    /// Those of both.
    Intersect,
    /// Those of the left side that the right one does not have.
    Except,
}

/// Which rows of a join are kept that have no partner; the other side's columns are NULL in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinKind {
    /// None.
    Inner,
    /// Those on the left.
    Left,
    /// Those on the right.
    Right,
}

/// A table that is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scan {
    /// Which.
    pub table: TableName,
    /// What the query calls it; its own name if `None`.
    pub alias: Option<String>,
    /// The columns in scope: place among the table's, hidden ones counted, and which it is here.
    pub columns: Vec<(usize, ColumnId)>,
}

/// What rows are sorted by. NULL is less than everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SortKey {
    /// The column.
    pub column: ColumnId,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// An aggregate over the rows of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateCall {
    /// The aggregate's name.
    pub function: String,
    /// Its arguments.
    pub args: Vec<Scalar>,
    /// Whether equal arguments count once.
    pub distinct: bool,
    /// The order in which it takes a group's rows: each with whether the greatest comes first.
    pub order: Vec<(Scalar, bool)>,
}

/// A function over a window of each row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowCall {
    /// The function's name.
    pub function: String,
    /// Its arguments.
    pub args: Vec<Scalar>,
    /// What is equal among a row's partition.
    pub partition: Vec<Scalar>,
    /// The order within a partition: each with whether the greatest comes first.
    pub order: Vec<(Scalar, bool)>,
    /// Which rows of the partition are the row's window.
    pub frame: Frame,
}

/// Which rows of a partition are a row's window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// Whether bounds are counted in rows; else in values of what rows are ordered by.
    pub rows: bool,
    /// The first.
    pub start: Bound,
    /// The last.
    pub end: Bound,
}

/// A bound of a frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    /// So far before the row; from the first of the partition with `None`.
    Preceding(Option<Distance>),
    /// The row itself, or those that tie with it.
    CurrentRow,
    /// So far behind the row; to the last of the partition with `None`.
    Following(Option<Distance>),
}

/// How far a bound is from its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Distance {
    /// So many rows, or as much as this of a number.
    Number(String),
    /// A time of one unit, such as `3 DAY`.
    Interval(String),
}

/// An expression and its type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalar {
    /// What it is.
    pub node: Node,
    /// What its values are.
    pub ty: MysqlType,
}

/// Forms of expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    /// A column.
    Column(ColumnId),
    /// A column of a query around this one.
    Outer(ColumnId),
    /// An aggregate of the row's group, by its column.
    Aggregate(ColumnId),
    /// What a window function has for the row, by its column.
    Window(ColumnId),
    /// A value of the text.
    Literal(Value),
    /// A value that is given later, by its place from 0: the query is one for all values of the type.
    Parameter(u16),
    /// A function of ours, operators of numbers among them.
    Call {
        /// Its name.
        function: String,
        /// Its arguments.
        args: Vec<Scalar>,
    },
    /// Two values compared, at the type that MySQL compares such at.
    Compare {
        /// How.
        comparison: Comparison,
        /// Left operand.
        left: Box<Scalar>,
        /// Right operand.
        right: Box<Scalar>,
    },
    /// Two truth values.
    Logic {
        /// How.
        connective: Connective,
        /// Left operand.
        left: Box<Scalar>,
        /// Right operand.
        right: Box<Scalar>,
    },
    /// The opposite of a truth value.
    Not(Box<Scalar>),
    /// Whether a value is NULL.
    IsNull {
        /// The value.
        value: Box<Scalar>,
        /// IS NOT NULL.
        negated: bool,
    },
    /// Whether a truth value is this one.
    IsTruth {
        /// The value.
        value: Box<Scalar>,
        /// TRUE or FALSE.
        truth: bool,
        /// IS NOT.
        negated: bool,
    },
    /// Whether a value is one of a list.
    In {
        /// The value.
        value: Box<Scalar>,
        /// The list.
        list: Vec<Scalar>,
        /// NOT IN.
        negated: bool,
    },
    /// The value of a query's one column in its one row; NULL if it has no row, error 1242 if it has several.
    Query(Box<BoundQuery>),
    /// Whether a query has a row.
    Exists {
        /// The query.
        query: Box<BoundQuery>,
        /// NOT EXISTS.
        negated: bool,
    },
    /// Whether a value is one of a query's one column, or several are a row of its columns. It stands only where NULL and
    /// false are the same, and of one value in a plan.
    InQuery {
        /// The values.
        values: Vec<Scalar>,
        /// The query.
        query: Box<BoundQuery>,
        /// NOT IN.
        negated: bool,
    },
    /// Whether a text fits a pattern with the escape character `\`.
    Like {
        /// The text.
        text: Box<Scalar>,
        /// The pattern.
        pattern: Box<Scalar>,
        /// NOT LIKE.
        negated: bool,
    },
    /// A value as the same value of this expression's type, which holds it.
    Convert(Box<Scalar>),
    /// The result of the first condition that is true.
    Case {
        /// Conditions, each a truth value, and their results.
        branches: Vec<(Scalar, Scalar)>,
        /// The result where none is true; NULL without.
        otherwise: Option<Box<Scalar>>,
    },
}

impl Scalar {
    /// The same expression over other parts; queries in it stay as they are.
    ///
    /// # Errors
    ///
    /// The first that a part has.
    pub fn try_map<E>(
        self,
        map: &mut impl FnMut(Scalar) -> Result<Scalar, E>,
    ) -> Result<Scalar, E> {
        fn boxed<E>(
            part: Scalar,
            map: &mut impl FnMut(Scalar) -> Result<Scalar, E>,
        ) -> Result<Box<Scalar>, E> {
            map(part).map(Box::new)
        }
        let node = match self.node {
            node @ (Node::Column(_)
            | Node::Outer(_)
            | Node::Aggregate(_)
            | Node::Window(_)
            | Node::Literal(_)
            | Node::Parameter(_)
            | Node::Query(_)
            | Node::Exists { .. }) => node,
            Node::InQuery { values, query, negated } => {
                let values = values.into_iter().map(&mut *map).collect::<Result<_, E>>()?;
                Node::InQuery { values, query, negated }
            }
            Node::Call { function, args } => {
                let args = args.into_iter().map(&mut *map).collect::<Result<_, E>>()?;
                Node::Call { function, args }
            }
            Node::Compare { comparison, left, right } => {
                Node::Compare { comparison, left: boxed(*left, map)?, right: boxed(*right, map)? }
            }
            Node::Logic { connective, left, right } => {
                Node::Logic { connective, left: boxed(*left, map)?, right: boxed(*right, map)? }
            }
            Node::Not(value) => Node::Not(boxed(*value, map)?),
            Node::Convert(value) => Node::Convert(boxed(*value, map)?),
            Node::IsNull { value, negated } => Node::IsNull { value: boxed(*value, map)?, negated },
            Node::IsTruth { value, truth, negated } => {
                Node::IsTruth { value: boxed(*value, map)?, truth, negated }
            }
            Node::In { value, list, negated } => {
                let value = boxed(*value, map)?;
                let list = list.into_iter().map(&mut *map).collect::<Result<_, E>>()?;
                Node::In { value, list, negated }
            }
            Node::Like { text, pattern, negated } => {
                Node::Like { text: boxed(*text, map)?, pattern: boxed(*pattern, map)?, negated }
            }
            Node::Case { branches, otherwise } => {
                let mut mapped = Vec::with_capacity(branches.len());
                for (when, then) in branches {
                    mapped.push((map(when)?, map(then)?));
                }
                let otherwise = otherwise.map(|last| boxed(*last, map)).transpose()?;
                Node::Case { branches: mapped, otherwise }
            }
        };
        Ok(Scalar { node, ty: self.ty })
    }
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<=>`
    NullSafeEqual,
}

/// How two truth values are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connective {
    /// AND
    And,
    /// OR
    Or,
    /// XOR
    Xor,
    /// The AND of a BETWEEN's comparisons: both are computed, or none.
    Both,
    /// The OR of a NOT BETWEEN's.
    Either,
}
