//! Queries over one table that need no plan: rows that conditions on columns keep, some of them, in an order, or totals of
//! them.
//!
//! It only says which queries are such and which rows meet the conditions; it reads no table. A condition whose operands
//! are not compared as they are stored, integers with integers and texts with texts, makes a query none of these.

use std::cmp::Ordering;

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, binary_expr};
use serde::{Deserialize, Serialize};
use syntax::names::TableName;
use types::{ColumnType, Table, Value};

use super::literal;
use super::lower::operator_of;
use super::tree::{
    AggregateCall, BoundQuery, ColumnId, Comparison, Connective, Node, Relation, Scalar, Scan,
};

/// A query that needs no plan. Columns are places among the table's, hidden ones counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowQuery {
    /// The table.
    pub table: TableName,
    /// What all holds of its rows.
    conditions: Vec<Condition>,
    /// What is answered.
    pub answer: Answer,
    /// The order of the rows: columns, each with whether the greatest comes first. NULL is less than everything.
    pub order: Vec<(usize, bool)>,
    /// Rows that are left out before the first.
    pub skip: u64,
    /// Rows at most.
    pub fetch: Option<u64>,
}

/// What such a query answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Columns of the rows.
    Columns(Vec<usize>),
    /// The same, equal ones once.
    Distinct(Vec<usize>),
    /// One row about all of them.
    Totals(Vec<Total>),
}

/// Something about all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Total {
    /// How many there are.
    Rows,
    /// How many have a value in a column.
    Count(usize),
    /// The sum of a column of integers.
    Sum(usize),
    /// The least value of a column.
    Least(usize),
    /// The greatest value of a column.
    Greatest(usize),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Condition {
    column: usize,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Test {
    Compare(Comparison, Scalar),
    In(Vec<Scalar>),
}

impl BoundQuery {
    /// The query as one that needs no plan; `None` if it needs one.
    pub fn row_query(&self, table: &Table) -> Option<RowQuery> {
        let mut relation = &self.relation;
        let (mut skip, mut fetch) = (0, None);
        if let Relation::Limit { input, skip: before, fetch: most } = relation {
            (relation, skip, fetch) = (input, *before, *most);
        }
        let mut by = &[][..];
        if let Relation::Sort { input, by: keys } = relation {
            (relation, by) = (input, keys);
        }
        let distinct = matches!(relation, Relation::Distinct { .. });
        if let Relation::Distinct { input } = relation {
            relation = input;
        }
        let Relation::Map { input, columns } = relation else { return None };
        let is_total = matches!(&**input, Relation::Group { .. });
        if is_total && (distinct || !by.is_empty() || skip > 0 || fetch == Some(0)) {
            return None;
        }
        let (mut rows, mut aggregates) = (&**input, &[][..]);
        if let Relation::Group { input, keys, aggregates: calls, rollup: false } = rows
            && keys.is_empty()
        {
            (rows, aggregates) = (input, calls);
        }
        let mut tests = Vec::new();
        while let Relation::Filter { input, condition } = rows {
            tests.push(condition);
            rows = input;
        }
        let Relation::Scan(scan) = rows else { return None };
        let reading = Reading { scan, table };
        let mut conditions = Vec::new();
        tests.into_iter().try_for_each(|test| reading.condition(test, &mut conditions))?;
        let shown = columns.get(..self.output.len())?;
        let answer = match is_total {
            true => {
                let total = |(_, scalar): &(ColumnId, Scalar)| reading.total(scalar, aggregates);
                Answer::Totals(shown.iter().map(total).collect::<Option<_>>()?)
            }
            false => {
                let place = |(_, scalar): &(ColumnId, Scalar)| reading.place(scalar);
                let places: Vec<usize> = shown.iter().map(place).collect::<Option<_>>()?;
                match distinct {
                    false => Answer::Columns(places),
                    true if places.iter().all(|at| reading.is_ordered(*at)) => {
                        Answer::Distinct(places)
                    }
                    true => return None,
                }
            }
        };
        let mut order = Vec::with_capacity(by.len());
        for key in by {
            let (_, scalar) = columns.iter().find(|(id, _)| *id == key.column)?;
            let place = reading.place(scalar).filter(|at| reading.is_ordered(*at))?;
            order.push((place, key.descending));
        }
        Some(RowQuery { table: scan.table.clone(), conditions, answer, order, skip, fetch })
    }
}

/// What a query reads.
struct Reading<'q> {
    scan: &'q Scan,
    table: &'q Table,
}

impl Reading<'_> {
    /// The place of the column that an expression is.
    fn place(&self, scalar: &Scalar) -> Option<usize> {
        let Node::Column(id) = scalar.node else { return None };
        let found = self.scan.columns.iter().find(|(_, column)| *column == id);
        found.map(|(place, _)| *place)
    }

    fn column_type(&self, place: usize) -> Option<ColumnType> {
        self.table.columns.get(place).map(|column| column.ty)
    }

    /// Whether a column's values are equal, and in order, as they are stored.
    fn is_ordered(&self, place: usize) -> bool {
        let Some(ty) = self.column_type(place) else { return false };
        let is_text = ty.is_text() && ty.labels().is_none();
        let of_time = |ty| {
            matches!(ty, ColumnType::Date | ColumnType::DateTime(_) | ColumnType::Timestamp(_))
        };
        is_text || of_time(ty) || matches!(ty, ColumnType::Int { .. })
    }

    /// Adds what a condition says of columns; `None` if it says anything else.
    fn condition(&self, condition: &Scalar, into: &mut Vec<Condition>) -> Option<()> {
        match &condition.node {
            Node::Logic { connective: Connective::And | Connective::Both, left, right } => {
                self.condition(left, into)?;
                self.condition(right, into)
            }
            Node::Compare { comparison, left, right } => {
                let (column, comparison, other) = match self.place(left) {
                    Some(column) => (column, *comparison, right),
                    None => (self.place(right)?, swapped(*comparison), left),
                };
                self.is_compared_as_stored(column, other)?;
                let test = Test::Compare(comparison, (**other).clone());
                into.push(Condition { column, test });
                Some(())
            }
            Node::In { value, list, negated: false } => {
                let column = self.place(value)?;
                list.iter().try_for_each(|item| self.is_compared_as_stored(column, item))?;
                into.push(Condition { column, test: Test::In(list.clone()) });
                Some(())
            }
            _ => None,
        }
    }

    fn is_compared_as_stored(&self, column: usize, other: &Scalar) -> Option<()> {
        if !matches!(other.node, Node::Literal(_) | Node::Parameter(_)) {
            return None;
        }
        let of_column = self.column_type(column)?;
        let ty = other.ty.column?;
        let ints = |ty| matches!(ty, ColumnType::Int { .. });
        let texts = |ty: ColumnType| ty.is_text() && ty.labels().is_none();
        (ints(of_column) && ints(ty) || texts(of_column) && texts(ty)).then_some(())
    }

    fn total(&self, scalar: &Scalar, aggregates: &[(ColumnId, AggregateCall)]) -> Option<Total> {
        let (summed, scalar) = match &scalar.node {
            Node::Call { function, args } if function == "sum_result" => (true, args.first()?),
            _ => (false, scalar),
        };
        let (Node::Column(id) | Node::Aggregate(id)) = scalar.node else { return None };
        let (_, call) = aggregates.iter().find(|(own, _)| *own == id)?;
        let [argument] = &call.args[..] else { return None };
        if call.distinct || !call.order.is_empty() {
            return None;
        }
        Some(match (call.function.as_str(), &argument.node) {
            ("count", Node::Literal(value)) if !value.is_null() => Total::Rows,
            ("count", Node::Column(_)) => Total::Count(self.place(argument)?),
            ("sum", Node::Call { function, args }) if summed && function == "sum_arg" => {
                let place = self.place(args.first()?)?;
                let ty = self.column_type(place)?;
                matches!(ty, ColumnType::Int { .. }).then_some(Total::Sum(place))?
            }
            ("min", Node::Column(_)) if !summed => Total::Least(self.ordered(argument)?),
            ("max", Node::Column(_)) if !summed => Total::Greatest(self.ordered(argument)?),
            _ => return None,
        })
    }

    fn ordered(&self, scalar: &Scalar) -> Option<usize> {
        self.place(scalar).filter(|place| self.is_ordered(*place))
    }
}

impl RowQuery {
    /// The same query with these in the place of its parameters.
    pub fn with_values(&self, values: &[Scalar]) -> RowQuery {
        let given = |scalar: &Scalar| match scalar.node {
            Node::Parameter(place) => values.get(usize::from(place)).unwrap_or(scalar).clone(),
            _ => scalar.clone(),
        };
        let conditions = self.conditions.iter().map(|Condition { column, test }| {
            let test = match test {
                Test::Compare(comparison, other) => Test::Compare(*comparison, given(other)),
                Test::In(list) => Test::In(list.iter().map(given).collect()),
            };
            Condition { column: *column, test }
        });
        RowQuery { conditions: conditions.collect(), ..self.clone() }
    }

    /// The conditions as those of a plan, for who looks for a way to the rows.
    pub fn filters(&self, table: &Table) -> Vec<Expr> {
        let value = |scalar: &Scalar| match &scalar.node {
            Node::Literal(value) => Some(literal::expr(value)),
            _ => None,
        };
        let filter = |Condition { column, test }: &Condition| {
            let name = table.columns.get(*column)?.name.to_lowercase();
            let column = Expr::Column(Column::new_unqualified(name));
            match test {
                Test::Compare(comparison, other) => {
                    Some(binary_expr(column, operator_of(*comparison), value(other)?))
                }
                Test::In(list) => {
                    let list = list.iter().map(value).collect::<Option<_>>()?;
                    Some(column.in_list(list, false))
                }
            }
        };
        self.conditions.iter().filter_map(filter).collect()
    }

    /// Whether a row meets the conditions.
    pub fn keeps(&self, row: &[Value]) -> bool {
        self.conditions.iter().all(|Condition { column, test }| {
            let Some(value) = row.get(*column) else { return false };
            match test {
                Test::Compare(comparison, other) => holds(value, *comparison, other),
                Test::In(list) => list.iter().any(|item| holds(value, Comparison::Equal, item)),
            }
        })
    }

    /// The columns that it looks at, in no order and some more than once.
    pub fn reads(&self) -> Vec<usize> {
        let totals = |total: &Total| match total {
            Total::Rows => None,
            Total::Count(at) | Total::Sum(at) | Total::Least(at) | Total::Greatest(at) => Some(*at),
        };
        let mut reads: Vec<usize> = match &self.answer {
            Answer::Columns(shown) | Answer::Distinct(shown) => shown.clone(),
            Answer::Totals(all) => all.iter().filter_map(totals).collect(),
        };
        reads.extend(self.conditions.iter().map(|condition| condition.column));
        reads.extend(self.order.iter().map(|(at, _)| at));
        reads
    }

    /// Whether rows in its order have those next to each other that show the same.
    pub fn orders_all_of(&self, shown: &[usize]) -> bool {
        let Some(first) = self.order.get(..shown.len()) else { return false };
        let is_ordered = |at: &usize| first.iter().any(|(by, _)| by == at);
        shown.iter().all(is_ordered) && first.iter().all(|(at, _)| shown.contains(at))
    }

    /// Which of two rows comes first.
    pub fn compare(&self, left: &[Value], right: &[Value]) -> Ordering {
        let by = |(column, descending): &(usize, bool)| {
            let (left, right) = (left.get(*column)?, right.get(*column)?);
            let order = in_order(left, right)?;
            Some(if *descending { order.reverse() } else { order })
        };
        self.order.iter().filter_map(by).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

fn holds(value: &Value, comparison: Comparison, other: &Scalar) -> bool {
    let Node::Literal(other) = &other.node else { return false };
    if comparison == Comparison::NullSafeEqual && (value.is_null() || other.is_null()) {
        return value.is_null() && other.is_null();
    }
    if value.is_null() || other.is_null() {
        return false;
    }
    let Some(order) = in_order(value, other) else { return false };
    match comparison {
        Comparison::Equal | Comparison::NullSafeEqual => order.is_eq(),
        Comparison::NotEqual => order.is_ne(),
        Comparison::Less => order.is_lt(),
        Comparison::LessOrEqual => order.is_le(),
        Comparison::Greater => order.is_gt(),
        Comparison::GreaterOrEqual => order.is_ge(),
    }
}

/// Which of two values comes first, NULL before all others; `None` of values that are not stored alike.
pub fn in_order(left: &Value, right: &Value) -> Option<Ordering> {
    let whole = |value: &Value| match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::UInt(n) => Some(i128::from(*n)),
        Value::Date(n) => Some(i128::from(*n)),
        Value::DateTime(n) | Value::Timestamp(n) => Some(i128::from(*n)),
        _ => None,
    };
    match (left, right) {
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        (Value::Null, _) => Some(Ordering::Less),
        (_, Value::Null) => Some(Ordering::Greater),
        (Value::String(left), Value::String(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
        (left, right) => Some(whole(left)?.cmp(&whole(right)?)),
    }
}

fn swapped(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
        alike => alike,
    }
}
