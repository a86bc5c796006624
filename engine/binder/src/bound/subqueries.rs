//! Queries within expressions: taken out of the text before it is brought into its plain form, bound where the columns
//! around them are known, and placed where there is a join for them.
//!
//! EXISTS and IN stay what they are where NULL and false are the same, but a row in a query is EXISTS of its equals. As a
//! value EXISTS is a count of rows, and IN is three: of the rows that are equal, of the NULLs, of all rows. They decide
//! between true, NULL and false as MySQL does.

use std::ops::ControlFlow;
use std::rc::Rc;

use sqlparser::ast::{BinaryOperator, Expr, Query, SetExpr, Table, Visitor, VisitorMut};
use syntax::walk::{finds, walk_mut};
use types::{ColumnType, Value};
use values::error::{SqlResult, syntax, unknown, unsupported, wrong_width};
use values::mysql_type::MysqlType;

use super::arguments;
use super::groups;
use super::literal;
use super::query::{Binder, Frame};
use super::scalars::{Scalars, truth};
use super::tree::{
    AggregateCall, BoundQuery, Comparison, Connective, Node, OutputColumn, Relation, Scalar,
};
use crate::result_type::TEXT_LENGTH;
use crate::tuples;

/// Takes the queries of an expression out of it. Each leaves its place in the list behind.
pub(super) fn taken_out(expr: &mut Expr) -> Vec<Query> {
    if !finds(expr, &mut IsQuery) {
        return Vec::new();
    }
    let mut queries = Queries { taken: Vec::new() };
    _ = walk_mut(expr, &mut queries);
    queries.taken
}

struct IsQuery;

impl Visitor for IsQuery {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

struct Queries {
    taken: Vec<Query>,
}

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let place = place(self.taken.len().to_string(), None);
        self.taken.push(std::mem::replace(query, place));
        ControlFlow::Continue(())
    }

    /// A query beside a row becomes the row of its columns.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::BinaryOp { left, op, right } = expr
            && tuples::compares(op)
        {
            as_row(left, right);
            as_row(right, left);
        }
        ControlFlow::Continue(())
    }
}

/// The place of a query in the list, or of one of its columns.
fn place(at: String, column: Option<ColumnOf>) -> Query {
    let schema_name = column.map(|ColumnOf { at, width }| format!("{at} of {width}"));
    query_of(SetExpr::Table(Box::new(Table { table_name: Some(at), schema_name })))
}

/// A query of nothing but a body.
fn query_of(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// Which column of a row is meant.
#[derive(Clone, Copy)]
struct ColumnOf {
    at: usize,
    width: usize,
}

/// The column that a place means; `None` of the place of a whole query.
fn column_of(place: &Query) -> Option<ColumnOf> {
    let SetExpr::Table(table) = &*place.body else { return None };
    let (at, width) = table.schema_name.as_ref()?.split_once(" of ")?;
    Some(ColumnOf { at: at.parse().ok()?, width: width.parse().ok()? })
}

fn as_row(query: &mut Expr, row: &Expr) {
    let (Expr::Subquery(whole), Expr::Tuple(items)) = (&*query, bare(row)) else { return };
    let SetExpr::Table(table) = &*whole.body else { return };
    let Some(at) = table.table_name.clone() else { return };
    let width = items.len();
    let column = |column| place(at.clone(), Some(ColumnOf { at: column, width }));
    let columns = (0..width).map(|at| Expr::Subquery(Box::new(column(at))));
    *query = Expr::Tuple(columns.collect());
}

/// An expression without parentheses around it.
pub(super) fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        expr => expr,
    }
}

/// A comparison of the text with what a query has, or with all of it, that its least or greatest value decides.
fn comparison_of(operator: &BinaryOperator) -> Option<Comparison> {
    match operator {
        BinaryOperator::Gt => Some(Comparison::Greater),
        BinaryOperator::GtEq => Some(Comparison::GreaterOrEqual),
        BinaryOperator::Lt => Some(Comparison::Less),
        BinaryOperator::LtEq => Some(Comparison::LessOrEqual),
        _ => None,
    }
}

impl Scalars<'_, '_> {
    /// The query that stood at a place of the text.
    fn taken(&self, place: &Query) -> SqlResult<BoundQuery> {
        let at = match &*place.body {
            SetExpr::Table(table) => table.table_name.as_ref().and_then(|at| at.parse().ok()),
            _ => None,
        };
        let query = at.and_then(|at: usize| self.queries.get(at));
        let query = query.ok_or_else(|| unknown("a query within an expression is missing"))?;
        let frame = Frame { scope: self.scope.clone(), named: self.named.to_vec() };
        let mut outer = self.binder.outer.clone();
        outer.push(Rc::new(frame));
        self.binder.within(outer).query(query)
    }

    /// A query of so many columns.
    fn of_width(&self, place: &Query, width: usize) -> SqlResult<BoundQuery> {
        let query = self.taken(place)?;
        match query.output.len() == width {
            true => Ok(query),
            false => Err(wrong_width(width)),
        }
    }

    /// The one column of a query, or that which its place means.
    fn of_one_column(&self, place: &Query) -> SqlResult<BoundQuery> {
        let Some(ColumnOf { at, width }) = column_of(place) else { return self.of_width(place, 1) };
        let BoundQuery { relation, output } = self.of_width(place, width)?;
        let missing = || unknown("a column of a row is missing");
        let column = output.into_iter().nth(at).ok_or_else(missing)?;
        let (id, value) =
            (self.binder.next(), Scalar { node: Node::Column(column.id), ty: column.ty });
        let relation = Relation::Map { input: Box::new(relation), columns: vec![(id, value)] };
        Ok(BoundQuery { relation, output: vec![OutputColumn { id, ..column }] })
    }

    /// The one value of a query.
    pub(super) fn query(&self, place: &Query) -> SqlResult<Scalar> {
        let query = self.of_one_column(place)?;
        let ty = first_of(&query)?.ty;
        // One of ENUM or SET is a text from here on.
        let labelled = ty.column.is_some_and(|column| column.labels().is_some());
        let text = MysqlType::of_column(ColumnType::Varchar(TEXT_LENGTH));
        let ty = if labelled { text } else { ty };
        Ok(Scalar { node: Node::Query(Box::new(query)), ty })
    }

    pub(super) fn exists(&self, place: &Query, negated: bool) -> SqlResult<Scalar> {
        Ok(truth(Node::Exists { query: Box::new(self.taken(place)?), negated }))
    }

    pub(super) fn in_query(
        &self,
        values: Vec<Scalar>,
        place: &Query,
        negated: bool,
    ) -> SqlResult<Scalar> {
        let query = Box::new(self.of_width(place, values.len())?);
        Ok(truth(Node::InQuery { values, query, negated }))
    }

    /// A comparison with ANY or ALL of what a query has.
    pub(super) fn quantified(
        &self,
        mut left: Vec<Scalar>,
        operator: &BinaryOperator,
        right: &Expr,
        all: bool,
    ) -> SqlResult<Scalar> {
        let Expr::Subquery(place) = right else {
            return Err(syntax("ANY and ALL stand before a query"));
        };
        match (operator, all) {
            (BinaryOperator::Eq, false) => return self.in_query(left, place, false),
            (BinaryOperator::NotEq, true) => return self.in_query(left, place, true),
            _ => {}
        }
        let (1, Some(left)) = (left.len(), left.pop()) else { return Err(wrong_width(1)) };
        let odd = || unsupported(format!("{operator} {}", if all { "ALL" } else { "ANY" }));
        let comparison = comparison_of(operator).ok_or_else(odd)?;
        self.binder.compared_with_all(left, comparison, self.of_one_column(place)?, all)
    }
}

/// Where in a condition an expression stands.
#[derive(Clone, Copy)]
struct Place {
    /// The condition holds only if it does.
    top: bool,
    /// That it is NULL is the same as that it is false.
    positive: bool,
}

/// Whether an expression asks if a query has rows, or a value among them.
fn has_predicate(scalar: &Scalar) -> bool {
    scalar.has(&|node| matches!(node, Node::Exists { .. } | Node::InQuery { .. }))
}

impl Binder<'_> {
    /// A condition of which the rows count for which it is true.
    pub(super) fn condition(&self, condition: Scalar) -> SqlResult<Scalar> {
        match has_predicate(&condition) {
            true => self.placed(condition, Place { top: true, positive: true }),
            false => Ok(condition),
        }
    }

    fn placed(&self, scalar: Scalar, place: Place) -> SqlResult<Scalar> {
        let Scalar { node, ty } = scalar;
        let node = match node {
            Node::Logic { connective, left, right }
                if matches!(connective, Connective::And | Connective::Or) =>
            {
                let place = Place { top: place.top && connective == Connective::And, ..place };
                let left = Box::new(self.placed(*left, place)?);
                let right = Box::new(self.placed(*right, place)?);
                Node::Logic { connective, left, right }
            }
            Node::Not(inner) => match inner.node {
                Node::Exists { query, negated } => Node::Exists { query, negated: !negated },
                Node::InQuery { values, query, negated } => {
                    let turned = truth(Node::InQuery { values, query, negated: !negated });
                    return self.placed(turned, place);
                }
                _ => {
                    let within = Place { top: false, positive: false };
                    Node::Not(Box::new(self.placed(*inner, within)?))
                }
            },
            Node::InQuery { values, query, negated } => {
                // The join for NOT IN knows NULL by its keys alone, and what may become a constant is none.
                let keyed = |value: &Scalar| {
                    matches!(value.node, Node::Column(_)) || value.has_aggregates()
                };
                let keyed = values.len() > 1 || values.iter().all(keyed);
                let joins = place.positive && (!negated || place.top && keyed);
                let values = values.into_iter().map(|value| self.values(value, false));
                let values = values.collect::<SqlResult<Vec<_>>>()?;
                match (joins, values.len()) {
                    (true, 1) => Node::InQuery { values, query, negated },
                    (true, _) => return equals_exist(values, *query, negated),
                    (false, _) => return self.member(values, *query, negated),
                }
            }
            node => return self.values(Scalar { node, ty }, false),
        };
        Ok(Scalar { node, ty })
    }

    /// An expression whose value counts, NULL and false apart; with `exists_too`, where there is no join for EXISTS.
    pub(super) fn values(&self, scalar: Scalar, exists_too: bool) -> SqlResult<Scalar> {
        let scalar = scalar.try_map(&mut |part| self.values(part, exists_too))?;
        match scalar.node {
            Node::Exists { query, negated } if exists_too => self.has_rows(*query, negated),
            Node::InQuery { values, query, negated } => self.member(values, *query, negated),
            node => Ok(Scalar { node, ty: scalar.ty }),
        }
    }

    /// EXISTS as a value.
    fn has_rows(&self, query: BoundQuery, negated: bool) -> SqlResult<Scalar> {
        let comparison = if negated { Comparison::Equal } else { Comparison::Greater };
        let left = Box::new(self.count(as_many_rows(query.relation))?);
        Ok(truth(Node::Compare { comparison, left, right: Box::new(literal::of(Value::Int(0))) }))
    }

    /// IN as a value: true if a row is equal; else NULL if a row is NULL, or if there are rows and the left side is NULL;
    /// else false.
    fn member(&self, values: Vec<Scalar>, query: BoundQuery, negated: bool) -> SqlResult<Scalar> {
        let equal = equal(&values, &query)?;
        let found = self.any(filtered(query.relation.clone(), equal.clone()))?;
        let (left, item) = match &values[..] {
            [left] => (left.clone(), first_of(&query)?),
            _ => {
                let unknown = self.any(filtered(query.relation, is_null(equal)))?;
                return member_of(found, unknown, negated);
            }
        };
        let nulls = self.any(filtered(query.relation.clone(), is_null(item)))?;
        let some = self.any(as_many_rows(query.relation))?;
        let unknown =
            connected(nulls, Connective::Or, connected(is_null(left), Connective::And, some));
        member_of(found, unknown, negated)
    }

    /// `> ALL` and `> ANY` as values: of no rows the one is true and the other false; else the greatest or the least value
    /// decides, but a NULL among the rows leaves open what it does not refuse, or does not allow.
    fn compared_with_all(
        &self,
        left: Scalar,
        comparison: Comparison,
        query: BoundQuery,
        all: bool,
    ) -> SqlResult<Scalar> {
        let item = first_of(&query)?;
        let greater = matches!(comparison, Comparison::Greater | Comparison::GreaterOrEqual);
        let end = if greater == all { "max" } else { "min" };
        let end = Box::new(self.aggregated(query.relation.clone(), end, item.clone())?);
        let decided = truth(Node::Compare { comparison, left: Box::new(left), right: end });
        let nulls = self.any(filtered(query.relation.clone(), is_null(item)))?;
        let last = number(i64::from(all));
        let open = if_(nulls, literal::of(Value::Null), last.clone())?;
        let count = Box::new(self.count(as_many_rows(query.relation))?);
        let zero = Box::new(number(0));
        let none = Node::Compare { comparison: Comparison::Equal, left: count, right: zero };
        let value = if all {
            if_(decided.clone(), open, decided)?
        } else {
            let unless = if_(is_null(decided.clone()), literal::of(Value::Null), open)?;
            if_(decided, number(1), unless)?
        };
        as_truth(if_(truth(none), last, value)?)
    }

    /// Whether there is a row.
    fn any(&self, rows: Relation) -> SqlResult<Scalar> {
        let (left, right) = (Box::new(self.count(rows)?), Box::new(number(0)));
        Ok(truth(Node::Compare { comparison: Comparison::Greater, left, right }))
    }

    fn count(&self, rows: Relation) -> SqlResult<Scalar> {
        self.aggregated(rows, "count", number(1))
    }

    /// The value of an aggregate over all rows.
    fn aggregated(&self, rows: Relation, name: &str, arg: Scalar) -> SqlResult<Scalar> {
        let missing = || unknown(format!("there is no aggregate {name}"));
        let function = groups::aggregate(name).ok_or_else(missing)?;
        let args = vec![arg];
        let ty = groups::type_of(name, &function, &args)?;
        let (function, order) = (name.to_owned(), Vec::new());
        let call = AggregateCall { function, args, distinct: false, order };
        let (computed, shown) = (self.next(), self.next());
        let aggregates = vec![(computed, call)];
        let input = Box::new(Relation::Group {
            input: Box::new(rows),
            keys: Vec::new(),
            aggregates,
            rollup: false,
        });
        let columns = vec![(shown, Scalar { node: Node::Aggregate(computed), ty })];
        let output = vec![OutputColumn { id: shown, name: name.to_owned(), origin: None, ty }];
        let query = BoundQuery { relation: Relation::Map { input, columns }, output };
        Ok(Scalar { node: Node::Query(Box::new(query)), ty })
    }
}

/// Rows that are as many: what is shown of them, and their order, do not count.
fn as_many_rows(relation: Relation) -> Relation {
    match relation {
        Relation::Map { input, .. } | Relation::Sort { input, .. } => as_many_rows(*input),
        relation => relation,
    }
}

fn first_of(query: &BoundQuery) -> SqlResult<Scalar> {
    let column = query.output.first().ok_or_else(|| unknown("a query has no column"))?;
    Ok(Scalar { node: Node::Column(column.id), ty: column.ty })
}

/// Whether a row of a query is equal to these values; NULL where that is not known.
fn equal(values: &[Scalar], query: &BoundQuery) -> SqlResult<Scalar> {
    let pairs = query.output.iter().zip(values).map(|(column, value)| {
        let left = Box::new(Scalar { node: Node::Column(column.id), ty: column.ty });
        let right = Box::new(value.clone().seen_within());
        truth(Node::Compare { comparison: Comparison::Equal, left, right })
    });
    let all = pairs.reduce(|one, other| connected(one, Connective::And, other));
    all.ok_or_else(|| wrong_width(1))
}

/// Whether a query has a row that is equal to these values; for NOT IN: none of which it is not known that it is not.
fn equals_exist(values: Vec<Scalar>, query: BoundQuery, negated: bool) -> SqlResult<Scalar> {
    let equal = equal(&values, &query)?;
    let condition = match negated {
        true => truth(Node::IsTruth { value: Box::new(equal), truth: false, negated: true }),
        false => equal,
    };
    let relation = filtered(query.relation, condition);
    let query = Box::new(BoundQuery { relation, output: query.output });
    Ok(truth(Node::Exists { query, negated }))
}

/// IN as a value: true where an equal row is found, else NULL where there may be one, else false.
fn member_of(found: Scalar, unknown: Scalar, negated: bool) -> SqlResult<Scalar> {
    let otherwise = if_(unknown, literal::of(Value::Null), number(0))?;
    let value = as_truth(if_(found, number(1), otherwise)?)?;
    Ok(if negated { truth(Node::Not(Box::new(value))) } else { value })
}

fn filtered(input: Relation, condition: Scalar) -> Relation {
    Relation::Filter { input: Box::new(input), condition }
}

fn is_null(value: Scalar) -> Scalar {
    truth(Node::IsNull { value: Box::new(value), negated: false })
}

pub(super) fn connected(left: Scalar, connective: Connective, right: Scalar) -> Scalar {
    truth(Node::Logic { connective, left: Box::new(left), right: Box::new(right) })
}

fn number(n: i64) -> Scalar {
    literal::of(Value::Int(n))
}

fn if_(condition: Scalar, then: Scalar, otherwise: Scalar) -> SqlResult<Scalar> {
    arguments::call("mysql_if", vec![condition, then, otherwise])
}

fn as_truth(value: Scalar) -> SqlResult<Scalar> {
    arguments::call("mysql_truth", vec![value])
}
