//! Queries within expressions: taken out of the text before it is brought into its plain form, bound where the columns
//! around them are known, and placed where there is a join for them.
//!
//! EXISTS and IN stay what they are where NULL and false are the same. As a value EXISTS is a count of rows, and IN is
//! three: of the rows that are equal, of the NULLs, of all rows. They decide between true, NULL and false as MySQL does.

use std::ops::ControlFlow;
use std::rc::Rc;

use sqlparser::ast::{BinaryOperator, Expr, Query, SetExpr, Table, Visitor, VisitorMut};
use syntax::walk::{finds, walk_mut};
use types::{ColumnType, Value};
use values::error::wrong_width;
use values::mysql_type::MysqlType;

use super::arguments;
use super::groups;
use super::literal;
use super::query::{Binder, Frame};
use super::scalars::{Result, Scalars, Unbound, truth};
use super::tree::{
    AggregateCall, BoundQuery, Comparison, Connective, Node, OutputColumn, Relation, Scalar,
};
use crate::columns::TEXT_LENGTH;
use crate::templates::query_of;

/// Takes the queries of an expression out of it. Each leaves its place in the list behind.
pub(super) fn taken_out(expr: &mut Expr) -> Result<Vec<Query>> {
    if !finds(expr, &mut IsQuery) {
        return Ok(Vec::new());
    }
    let mut queries = Queries { taken: Vec::new(), rows: false };
    _ = walk_mut(expr, &mut queries);
    // Rows beside queries are compared column by column before either is read.
    if queries.rows { Err(Unbound::NotYet) } else { Ok(queries.taken) }
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
    rows: bool,
}

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let place = Table { table_name: Some(self.taken.len().to_string()), schema_name: None };
        let place = query_of(SetExpr::Table(Box::new(place)));
        self.taken.push(std::mem::replace(query, place));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        self.rows |= matches!(expr, Expr::Tuple(_));
        ControlFlow::Continue(())
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
    fn taken(&self, place: &Query) -> Result<BoundQuery> {
        let SetExpr::Table(table) = &*place.body else { return Err(Unbound::NotYet) };
        let at = table.table_name.as_ref().and_then(|at| at.parse::<usize>().ok());
        let query = at.and_then(|at| self.queries.get(at)).ok_or(Unbound::NotYet)?;
        let frame = Frame { scope: self.scope.clone(), named: self.named.to_vec() };
        let mut outer = self.binder.outer.clone();
        outer.push(Rc::new(frame));
        self.binder.within(outer).query(query)
    }

    fn of_one_column(&self, place: &Query) -> Result<BoundQuery> {
        let query = self.taken(place)?;
        match query.output.len() {
            1 => Ok(query),
            _ => Err(wrong_width(1).into()),
        }
    }

    /// The one value of a query.
    pub(super) fn query(&self, place: &Query) -> Result<Scalar> {
        let query = self.of_one_column(place)?;
        let ty = query.output.first().ok_or(Unbound::NotYet)?.ty;
        // One of ENUM or SET is a text from here on.
        let labelled = ty.column.is_some_and(|column| column.labels().is_some());
        let text = MysqlType::of_column(ColumnType::Varchar(TEXT_LENGTH));
        let ty = if labelled { text } else { ty };
        Ok(Scalar { node: Node::Query(Box::new(query)), ty })
    }

    pub(super) fn exists(&self, place: &Query, negated: bool) -> Result<Scalar> {
        Ok(truth(Node::Exists { query: Box::new(self.taken(place)?), negated }))
    }

    pub(super) fn in_query(&self, value: Scalar, place: &Query, negated: bool) -> Result<Scalar> {
        let (value, query) = (Box::new(value), Box::new(self.of_one_column(place)?));
        Ok(truth(Node::InQuery { value, query, negated }))
    }

    /// A comparison with ANY or ALL of what a query has.
    pub(super) fn quantified(
        &self,
        left: Scalar,
        operator: &BinaryOperator,
        right: &Expr,
        all: bool,
    ) -> Result<Scalar> {
        let Expr::Subquery(place) = right else { return Err(Unbound::NotYet) };
        match (operator, all) {
            (BinaryOperator::Eq, false) => return self.in_query(left, place, false),
            (BinaryOperator::NotEq, true) => return self.in_query(left, place, true),
            _ => {}
        }
        let comparison = comparison_of(operator).ok_or(Unbound::NotYet)?;
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
pub(super) fn has_predicate(scalar: &Scalar) -> bool {
    scalar.has(&|node| matches!(node, Node::Exists { .. } | Node::InQuery { .. }))
}

impl Binder<'_> {
    /// A condition of which the rows count for which it is true.
    pub(super) fn condition(&self, condition: Scalar) -> Result<Scalar> {
        match has_predicate(&condition) {
            true => self.placed(condition, Place { top: true, positive: true }),
            false => Ok(condition),
        }
    }

    fn placed(&self, scalar: Scalar, place: Place) -> Result<Scalar> {
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
                Node::InQuery { value, query, negated } => {
                    let turned = truth(Node::InQuery { value, query, negated: !negated });
                    return self.placed(turned, place);
                }
                _ => {
                    let within = Place { top: false, positive: false };
                    Node::Not(Box::new(self.placed(*inner, within)?))
                }
            },
            Node::InQuery { value, query, negated } => {
                // The join for NOT IN knows NULL by its keys alone, and what may become a constant is none.
                let keyed = matches!(value.node, Node::Column(_)) || value.has_aggregates();
                if place.positive && (!negated || place.top && keyed) {
                    let value = Box::new(self.values(*value, false)?);
                    Node::InQuery { value, query, negated }
                } else {
                    let value = Box::new(self.values(*value, false)?);
                    return self.member(*value, *query, negated);
                }
            }
            node => return self.values(Scalar { node, ty }, false),
        };
        Ok(Scalar { node, ty })
    }

    /// An expression whose value counts, NULL and false apart; with `exists_too`, where there is no join for EXISTS.
    pub(super) fn values(&self, scalar: Scalar, exists_too: bool) -> Result<Scalar> {
        let scalar = scalar.try_map(&mut |part| self.values(part, exists_too))?;
        match scalar.node {
            Node::Exists { query, negated } if exists_too => self.has_rows(*query, negated),
            Node::InQuery { value, query, negated } => self.member(*value, *query, negated),
            node => Ok(Scalar { node, ty: scalar.ty }),
        }
    }

    /// EXISTS as a value.
    fn has_rows(&self, query: BoundQuery, negated: bool) -> Result<Scalar> {
        let comparison = if negated { Comparison::Equal } else { Comparison::Greater };
        let left = Box::new(self.count(as_many_rows(query.relation))?);
        Ok(truth(Node::Compare { comparison, left, right: Box::new(literal::of(Value::Int(0))) }))
    }

    /// IN as a value: true if a row is equal; else NULL if a row is NULL, or if there are rows and the left side is NULL;
    /// else false.
    fn member(&self, left: Scalar, query: BoundQuery, negated: bool) -> Result<Scalar> {
        let item = first_of(&query)?;
        let (value, right) = (Box::new(item.clone()), Box::new(left.clone().seen_within()));
        let equal = Node::Compare { comparison: Comparison::Equal, left: value, right };
        let found = self.any(filtered(query.relation.clone(), truth(equal)))?;
        let nulls = self.any(filtered(query.relation.clone(), is_null(item)))?;
        let some = self.any(as_many_rows(query.relation))?;
        let unknown =
            connected(nulls, Connective::Or, connected(is_null(left), Connective::And, some));
        let otherwise = if_(unknown, literal::of(Value::Null), number(0))?;
        let value = as_truth(if_(found, number(1), otherwise)?)?;
        Ok(if negated { truth(Node::Not(Box::new(value))) } else { value })
    }

    /// `> ALL` and `> ANY` as values: of no rows the one is true and the other false; else the greatest or the least value
    /// decides, but a NULL among the rows leaves open what it does not refuse, or does not allow.
    fn compared_with_all(
        &self,
        left: Scalar,
        comparison: Comparison,
        query: BoundQuery,
        all: bool,
    ) -> Result<Scalar> {
        let item = first_of(&query)?;
        if item.ty.column == Some(ColumnType::Json) {
            return Err(Unbound::NotYet);
        }
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
    fn any(&self, rows: Relation) -> Result<Scalar> {
        let (left, right) = (Box::new(self.count(rows)?), Box::new(number(0)));
        Ok(truth(Node::Compare { comparison: Comparison::Greater, left, right }))
    }

    fn count(&self, rows: Relation) -> Result<Scalar> {
        self.aggregated(rows, "count", number(1))
    }

    /// The value of an aggregate over all rows.
    fn aggregated(&self, rows: Relation, name: &str, arg: Scalar) -> Result<Scalar> {
        let function = groups::aggregate(name).ok_or(Unbound::NotYet)?;
        let args = vec![arg];
        let ty = groups::type_of(name, &function, &args)?;
        let (function, order) = (name.to_owned(), Vec::new());
        let call = AggregateCall { function, args, distinct: false, order };
        let (computed, shown) = (self.next(), self.next());
        let aggregates = vec![(computed, call)];
        let input =
            Box::new(Relation::Group { input: Box::new(rows), keys: Vec::new(), aggregates });
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

fn first_of(query: &BoundQuery) -> Result<Scalar> {
    let column = query.output.first().ok_or(Unbound::NotYet)?;
    Ok(Scalar { node: Node::Column(column.id), ty: column.ty })
}

fn filtered(input: Relation, condition: Scalar) -> Relation {
    Relation::Filter { input: Box::new(input), condition }
}

fn is_null(value: Scalar) -> Scalar {
    truth(Node::IsNull { value: Box::new(value), negated: false })
}

fn connected(left: Scalar, connective: Connective, right: Scalar) -> Scalar {
    truth(Node::Logic { connective, left: Box::new(left), right: Box::new(right) })
}

fn number(n: i64) -> Scalar {
    literal::of(Value::Int(n))
}

fn if_(condition: Scalar, then: Scalar, otherwise: Scalar) -> Result<Scalar> {
    Ok(arguments::call("mysql_if", vec![condition, then, otherwise])?)
}

fn as_truth(value: Scalar) -> Result<Scalar> {
    Ok(arguments::call("mysql_truth", vec![value])?)
}
