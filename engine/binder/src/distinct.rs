//! ORDER BY behind SELECT DISTINCT, which DataFusion lets name columns of the select list and nothing else; and its rule
//! for aggregates of distinct values.
//!
//! An expression of the list becomes its place there. Without ONLY_FULL_GROUP_BY, anything else may be ordered by:
//! then equal rows are a group, and the order is by any value of it. What neither covers stays as it is, for error 3065.

use std::ops::ControlFlow;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr as PlanExpr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Value, Visitor,
};
use syntax::tree::{call, value};
use syntax::walk::{finds, walk};

use crate::dependencies::Rule;

/// Rewrites the order of a query of that kind.
pub fn ordered(query: &mut Query, full_groups: bool) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|by| &mut by.kind)
    else {
        return;
    };
    if !matches!(select.distinct, Some(Distinct::Distinct)) {
        return;
    }
    for order in orders.iter_mut().filter(|order| !is_plain(&order.expr)) {
        if let Some(place) = place_of(&order.expr, &select.projection) {
            order.expr = number(place);
        }
    }
    if !full_groups {
        by_any_value(select, orders);
    }
}

fn number(n: usize) -> Expr {
    value(Value::Number(n.to_string(), false))
}

/// A name, or a literal, which may be a place.
fn is_plain(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_))
}

/// Where the list has this expression. What is behind a `*` has no place that is known.
fn place_of(expr: &Expr, items: &[SelectItem]) -> Option<usize> {
    let exprs = items.iter().map_while(|item| match item {
        SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } => Some(item),
        _ => None,
    });
    exprs.enumerate().find(|(_, item)| same(expr, item)).map(|(at, _)| at + 1)
}

/// Whether two expressions are the same but for the case of their words.
fn same(one: &Expr, other: &Expr) -> bool {
    let (one_text, other_text) = (one.to_string(), other.to_string());
    one == other || (!one_text.contains(['\'', '"']) && one_text.eq_ignore_ascii_case(&other_text))
}

/// Makes equal rows a group where an order is by what the list does not have.
fn by_any_value(select: &mut Select, orders: &mut [OrderByExpr]) {
    let grouped = !matches!(&select.group_by,
        GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty());
    if grouped || select.having.is_some() || computes_of_rows(select) {
        return;
    }
    let Some(shown) = names(&select.projection) else { return };
    if !orders.iter().any(|order| reads_others(&order.expr, &shown)) {
        return;
    }
    for order in orders.iter_mut().filter(|order| reads_others(&order.expr, &shown)) {
        order.expr = call("any_value", vec![order.expr.clone()]);
    }
    select.distinct = None;
    let places = (1..=select.projection.len()).map(number).collect();
    select.group_by = GroupByExpr::Expressions(places, Vec::new());
}

/// Whether an expression reads columns, and none that are shown.
fn reads_others(expr: &Expr, shown: &[String]) -> bool {
    let read = columns(expr);
    !read.is_empty() && !read.iter().any(|name| shown.contains(name))
}

/// Names of what is shown, in lower case; none where a `*` shows who knows what.
fn names(items: &[SelectItem]) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in items {
        match item {
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                names.extend(columns(expr));
            }
            SelectItem::UnnamedExpr(_) => {}
            SelectItem::ExprWithAlias { expr, alias } => {
                names.push(alias.value.to_lowercase());
                if is_plain(expr) {
                    names.extend(columns(expr));
                }
            }
            _ => return None,
        }
    }
    Some(names)
}

/// Columns that an expression reads, by their names in lower case.
fn columns(expr: &Expr) -> Vec<String> {
    struct Columns(Vec<String>);
    impl Visitor for Columns {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let last: Option<&Ident> = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(names) => names.last(),
                _ => None,
            };
            self.0.extend(last.map(|name| name.value.to_lowercase()));
            ControlFlow::Continue(())
        }
    }
    let mut found = Columns(Vec::new());
    _ = walk(expr, &mut found);
    found.0
}

/// Whether a list has aggregates, functions of windows or subqueries, which no group is made of.
fn computes_of_rows(select: &Select) -> bool {
    struct Search;
    impl Visitor for Search {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if function.over.is_some() => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    crate::groups::aggregates(&select.projection) || finds(&select.projection, &mut Search)
}

/// DataFusion's rule that groups by a distinct argument first, and sums sums: where a sum of sums has another type than
/// the sums, which has more digits, the plan would be of another type, and is refused.
#[derive(Debug)]
pub(crate) struct SameSums(pub(crate) Rule);

impl OptimizerRule for SameSums {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Aggregate(aggregate) = &plan {
            let schema = aggregate.input.schema();
            for expr in &aggregate.aggr_expr {
                if gains_digits(expr, schema)? {
                    return Ok(Transformed::no(plan));
                }
            }
        }
        self.0.rewrite(plan, config)
    }
}

/// Whether an aggregate is a sum whose type has room for more digits: a sum of such sums has another type.
fn gains_digits(expr: &PlanExpr, schema: &DFSchema) -> Result<bool> {
    let PlanExpr::AggregateFunction(call) = expr else { return Ok(false) };
    Ok(call.func.name() == "sum"
        && match expr.get_type(schema)? {
            DataType::Decimal128(digits, _) => digits < DECIMAL128_MAX_PRECISION,
            DataType::Decimal256(digits, _) => digits < DECIMAL256_MAX_PRECISION,
            _ => false,
        })
}
