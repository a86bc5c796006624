//! EXISTS and IN (SELECT …) where the planner below has no join for them: in a select list, in
//! ORDER BY, in a condition of INNER JOIN, beneath NOT, and with rows.
//!
//! As a value, EXISTS is a count that is not 0, and IN is three counts: of the rows that are equal,
//! of the NULLs, of all rows. They decide between true, NULL and false as MySQL does; the join that
//! the planner has for conditions knows no NULL, so that it is left to those places alone where
//! NULL and false are the same.

use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Distinct, Expr, GroupByExpr, Join, JoinConstraint, JoinOperator, OrderByKind,
    Query, Select, SelectItem, SetExpr, Visitor, VisitorMut,
};
use syntax::tree::{call, null, number};
use syntax::walk::{finds, walk_mut};
use values::error::{SqlError, SqlResult, unsupported};

use crate::groups::aggregates;
use crate::natural_joins::constraint_mut;
use crate::rewrite::{not, op};
use crate::templates::{fill_expr, fill_query, query};

/// Rewrites what a SELECT has of them.
pub fn spread(select: &mut Select) -> SqlResult<()> {
    inner_conditions(select);
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            values(expr, true)?;
        }
    }
    if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
        exprs.iter_mut().try_for_each(|expr| values(expr, true))?;
    }
    let conditions = [&mut select.selection, &mut select.having].into_iter().flatten();
    let joins = select.from.iter_mut().flat_map(|from| &mut from.joins);
    for condition in conditions.chain(joins.filter_map(condition_of_join)) {
        condition_of(condition, Place { top: true, positive: true })?;
    }
    Ok(())
}

fn condition_of_join(join: &mut Join) -> Option<&mut Expr> {
    match constraint_mut(join)? {
        JoinConstraint::On(condition) => Some(condition),
        _ => None,
    }
}

/// Rewrites what a query's ORDER BY has of them.
pub fn spread_order(query: &mut Query) -> SqlResult<()> {
    if let Some(order) = &mut query.order_by
        && let OrderByKind::Expressions(exprs) = &mut order.kind
    {
        exprs.iter_mut().try_for_each(|item| values(&mut item.expr, true))?;
    }
    Ok(())
}

/// A condition of INNER JOIN with such a subquery is one of WHERE, unless a RIGHT JOIN is there.
fn inner_conditions(select: &mut Select) {
    let mut moved = Vec::new();
    for from in &mut select.from {
        let keeps_left = |operator: &JoinOperator| {
            matches!(
                operator,
                JoinOperator::Join(_)
                    | JoinOperator::Inner(_)
                    | JoinOperator::CrossJoin(_)
                    | JoinOperator::StraightJoin(_)
                    | JoinOperator::Left(_)
                    | JoinOperator::LeftOuter(_)
            )
        };
        if !from.joins.iter().all(|join| keeps_left(&join.join_operator)) {
            continue;
        }
        for join in &mut from.joins {
            if let JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::CrossJoin(constraint)
            | JoinOperator::StraightJoin(constraint) = &mut join.join_operator
                && matches!(constraint, JoinConstraint::On(condition) if has_predicate(condition))
                && let JoinConstraint::On(condition) =
                    std::mem::replace(constraint, JoinConstraint::None)
            {
                moved.push(condition);
            }
        }
    }
    for condition in moved {
        select.selection = Some(match select.selection.take() {
            Some(other) => op(other, BinaryOperator::And, condition),
            None => condition,
        });
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

/// A part of a condition.
fn condition_of(expr: &mut Expr, place: Place) -> SqlResult<()> {
    match expr {
        Expr::Nested(inner) => condition_of(inner, place),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            condition_of(left, place)?;
            condition_of(right, place)
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
            let place = Place { top: false, ..place };
            condition_of(left, place)?;
            condition_of(right, place)
        }
        Expr::UnaryOp { op, expr: inner } if syntax::dialect::is_not(*op) => match negated(inner) {
            Some(turned) => {
                *expr = turned;
                condition_of(expr, place)
            }
            None => condition_of(inner, Place { top: false, positive: false }),
        },
        Expr::InSubquery { expr: left, subquery, negated } if is_row(left) => {
            let (items, negated) = (row_of(left), *negated);
            if !place.positive || (negated && !place.top) {
                return Err(unsupported("a row IN (SELECT …) as a value"));
            }
            *expr = Expr::Exists { subquery: Box::new(rows(&items, subquery, negated)?), negated };
            Ok(())
        }
        Expr::InSubquery { expr: left, negated, .. }
            if place.positive
                && (!*negated || place.top && (is_column(left) || aggregates(left.as_ref()))) =>
        {
            values(left, false)
        }
        Expr::Exists { .. } => Ok(()),
        other => values(other, false),
    }
}

/// NOT of a subquery predicate as the opposite predicate.
fn negated(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Nested(inner) => negated(inner),
        Expr::InSubquery { expr, subquery, negated } => Some(Expr::InSubquery {
            expr: expr.clone(),
            subquery: subquery.clone(),
            negated: !negated,
        }),
        Expr::Exists { subquery, negated } => {
            Some(Expr::Exists { subquery: subquery.clone(), negated: !negated })
        }
        _ => None,
    }
}

/// Whether an expression is a column. The join that the planner below has for NOT IN knows NULL by its keys alone: what
/// is a constant, or becomes one when the plan is optimised, is no key, and lets every row pass.
fn is_column(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_column(inner),
        expr => matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)),
    }
}

fn is_row(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_row(inner),
        Expr::Tuple(_) => true,
        _ => false,
    }
}

fn row_of(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::Nested(inner) => row_of(inner),
        Expr::Tuple(items) => items.clone(),
        other => vec![other.clone()],
    }
}

/// Names of a derived table's columns, which no client's table has.
fn names(count: usize) -> Vec<String> {
    (1..=count).map(|at| format!("isobar_v{at}")).collect()
}

/// `SELECT 1 FROM (…) WHERE` the row is equal, or for NOT IN: is not known to be unequal.
fn rows(items: &[Expr], subquery: &Query, negated: bool) -> SqlResult<Query> {
    let names = names(items.len());
    let equal = names.iter().enumerate().map(|(at, name)| format!("{name} = isobar_item{at}"));
    let equal = equal.collect::<Vec<_>>().join(" AND ");
    let test = if negated { format!("({equal}) IS NOT FALSE") } else { equal };
    let columns = names.join(", ");
    let mut whole =
        query(&format!("SELECT 1 FROM (SELECT 1) AS isobar_in ({columns}) WHERE {test}"))?;
    fill_query(&mut whole, "isobar_in", subquery);
    for (at, item) in items.iter().enumerate() {
        fill_expr(&mut whole, &format!("isobar_item{at}"), item);
    }
    Ok(whole)
}

/// One of the columns of a query.
pub fn column_of(subquery: &Query, at: usize, count: usize) -> SqlResult<Query> {
    let names = names(count);
    let name = names.get(at).cloned().unwrap_or_default();
    let columns = names.join(", ");
    let mut whole = query(&format!("SELECT {name} FROM (SELECT 1) AS isobar_row ({columns})"))?;
    fill_query(&mut whole, "isobar_row", subquery);
    Ok(whole)
}

/// Rewrites all of them in an expression whose value counts, outside of its subqueries.
fn values(expr: &mut Expr, exists_too: bool) -> SqlResult<()> {
    let mut values = Values { depth: 0, exists_too };
    walk_mut(expr, &mut values)
}

struct Values {
    depth: usize,
    exists_too: bool,
}

impl VisitorMut for Values {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        let value = match expr {
            Expr::Exists { subquery, negated } if self.exists_too => exists(subquery, *negated),
            Expr::InSubquery { expr, subquery, negated } => member(expr, subquery, *negated),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => {
                let Expr::Subquery(subquery) = &**right else {
                    return ControlFlow::Continue(());
                };
                member(left, subquery, false)
            }
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => {
                let Expr::Subquery(subquery) = &**right else {
                    return ControlFlow::Continue(());
                };
                member(left, subquery, true)
            }
            Expr::AnyOp { left, compare_op, right, .. } if bound(compare_op, false).is_some() => {
                let Expr::Subquery(subquery) = &**right else {
                    return ControlFlow::Continue(());
                };
                quantified(left, compare_op, subquery, false)
            }
            Expr::AllOp { left, compare_op, right } if bound(compare_op, true).is_some() => {
                let Expr::Subquery(subquery) = &**right else {
                    return ControlFlow::Continue(());
                };
                quantified(left, compare_op, subquery, true)
            }
            _ => return ControlFlow::Continue(()),
        };
        match value {
            Ok(value) => *expr = Expr::Nested(Box::new(value)),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Whether an expression has such a predicate itself, not within a subquery.
fn has_predicate(expr: &Expr) -> bool {
    struct Depth(usize);
    impl Visitor for Depth {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Exists { .. } | Expr::InSubquery { .. } if self.0 == 0 => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    finds(expr, &mut Depth(0))
}

/// How many rows a query has.
fn count_of(subquery: &Query) -> SqlResult<Expr> {
    let mut counted = subquery.clone();
    if let SetExpr::Select(select) = &mut *counted.body
        && subquery.limit_clause.is_none()
        && subquery.fetch.is_none()
        && is_plain(select)
    {
        select.projection = vec![SelectItem::UnnamedExpr(call("count", vec![number(1)]))];
        counted.order_by = None;
        return Ok(Expr::Subquery(Box::new(counted)));
    }
    let mut whole = query("SELECT COUNT(1) FROM (SELECT 1) AS isobar_exists")?;
    fill_query(&mut whole, "isobar_exists", subquery);
    Ok(Expr::Subquery(Box::new(whole)))
}

/// Whether a SELECT has one row for each row of its tables that meets its condition.
fn is_plain(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(exprs, _) => !exprs.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let distinct = matches!(&select.distinct, Some(Distinct::Distinct | Distinct::On(_)));
    !grouped
        && !distinct
        && select.having.is_none()
        && select.named_window.is_empty()
        && !aggregates(&select.projection)
}

fn exists(subquery: &Query, negated: bool) -> SqlResult<Expr> {
    let operator = if negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
    Ok(op(count_of(subquery)?, operator, number(0)))
}

/// The value of a query that decides for all of its values, or for any: the greatest or the least.
fn bound(operator: &BinaryOperator, all: bool) -> Option<&'static str> {
    match operator {
        BinaryOperator::Gt | BinaryOperator::GtEq => Some(if all { "max" } else { "min" }),
        BinaryOperator::Lt | BinaryOperator::LtEq => Some(if all { "min" } else { "max" }),
        _ => None,
    }
}

/// `> ALL` and `> ANY` as values: of no rows the one is true and the other false; else the bound
/// decides, but a NULL among the rows leaves open what it does not refuse, or does not allow.
fn quantified(
    left: &Expr,
    operator: &BinaryOperator,
    subquery: &Query,
    all: bool,
) -> SqlResult<Expr> {
    let filled = |text: &str| -> SqlResult<Expr> {
        let mut whole = query(text)?;
        fill_query(&mut whole, "isobar_in", subquery);
        Ok(Expr::Subquery(Box::new(whole)))
    };
    let bound = bound(operator, all).unwrap_or("max");
    let bound =
        filled(&format!("SELECT {bound}(isobar_v1) FROM (SELECT 1) AS isobar_in (isobar_v1)"))?;
    let decided = op(left.clone(), operator.clone(), bound);
    let nulls =
        filled("SELECT COUNT(1) FROM (SELECT 1) AS isobar_in (isobar_v1) WHERE isobar_v1 IS NULL")?;
    let open = call("if", vec![nulls, null(), number(u8::from(all))]);
    let none = op(
        filled("SELECT COUNT(1) FROM (SELECT 1) AS isobar_in (isobar_v1)")?,
        BinaryOperator::Eq,
        number(0),
    );
    // What the NULLs leave open: that all are, or that none is.
    let value = if all {
        call("if", vec![decided.clone(), open, decided])
    } else {
        let unless = call("if", vec![Expr::IsNull(Box::new(decided.clone())), null(), open]);
        call("if", vec![decided, number(1), unless])
    };
    Ok(call("if", vec![none, number(u8::from(all)), value]))
}

/// IN as a value: true if a row is equal; else NULL if a row is NULL, or if there are rows and the
/// left side is NULL; else false.
fn member(left: &Expr, subquery: &Query, negated: bool) -> SqlResult<Expr> {
    if is_row(left) {
        return Err(unsupported("a row IN (SELECT …) as a value"));
    }
    let counted = |test: &str| -> SqlResult<Expr> {
        let mut whole = query(&format!(
            "SELECT COUNT(1) FROM (SELECT 1) AS isobar_in (isobar_v1) WHERE {test}"
        ))?;
        fill_query(&mut whole, "isobar_in", subquery);
        fill_expr(&mut whole, "isobar_item", left);
        Ok(op(Expr::Subquery(Box::new(whole)), BinaryOperator::Gt, number(0)))
    };
    let found = counted("isobar_v1 = isobar_item")?;
    let nulls = counted("isobar_v1 IS NULL")?;
    let some = counted("1 = 1")?;
    let unknown = Expr::IsNull(Box::new(Expr::Nested(Box::new(left.clone()))));
    let unknown = op(nulls, BinaryOperator::Or, op(unknown, BinaryOperator::And, some));
    let value = call("if", vec![found, number(1), call("if", vec![unknown, null(), number(0)])]);
    Ok(if negated { not(value) } else { value })
}
