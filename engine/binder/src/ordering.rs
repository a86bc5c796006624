//! ORDER BY where DataFusion's differs: behind a UNION it names columns of the first SELECT, and nothing
//! else; and it may be by a subquery that reads columns outside of it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::logical_plan::{Projection, Sort};
use datafusion::logical_expr::{Expr as PlanExpr, LogicalPlan, LogicalPlanBuilder};
use sqlparser::ast::{Expr, OrderByKind, Query, SelectItem, SetExpr};
use syntax::names::outermost;
use values::error::{SqlResult, no_column};

use crate::lateral::below;

/// A plan in which such subqueries are computed beside what is shown, and sorted by as columns.
pub fn by_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let node = |node: LogicalPlan| match node {
        LogicalPlan::Sort(sort) if sort.expr.iter().any(|by| reads_outside(&by.expr)) => {
            sorted(sort).map(Transformed::yes)
        }
        node => Ok(Transformed::no(node)),
    };
    Ok(plan.transform_up_with_subqueries(node)?.data)
}

fn reads_outside(expr: &PlanExpr) -> bool {
    let reads = |expr: &PlanExpr| match expr {
        PlanExpr::ScalarSubquery(query) => Ok(!query.outer_ref_columns.is_empty()),
        _ => Ok(false),
    };
    expr.exists(reads).unwrap_or(false)
}

fn sorted(mut sort: Sort) -> Result<LogicalPlan> {
    let LogicalPlan::Projection(shown) = sort.input.as_ref() else {
        return Ok(LogicalPlan::Sort(sort));
    };
    let columns = shown.schema.columns().into_iter().map(PlanExpr::Column).collect::<Vec<_>>();
    let mut exprs = shown.expr.clone();
    for (at, by) in sort.expr.iter_mut().enumerate() {
        if reads_outside(&by.expr) {
            let name = format!("__order_{at}");
            exprs.push(below(std::mem::take(&mut by.expr), shown)?.alias(&name));
            by.expr = PlanExpr::Column(Column::new_unqualified(name));
        }
    }
    let computed = Projection::try_new(exprs, shown.input.clone())?;
    sort.input = Arc::new(LogicalPlan::Projection(computed));
    LogicalPlanBuilder::from(LogicalPlan::Sort(sort)).project(columns)?.build()
}

/// Error 1054 for a name that no column of a UNION has.
pub fn of_set(query: &Query) -> SqlResult<()> {
    let SetExpr::SetOperation { .. } = &*query.body else { return Ok(()) };
    let Some(OrderByKind::Expressions(orders)) = query.order_by.as_ref().map(|order| &order.kind)
    else {
        return Ok(());
    };
    let Some(names) = outermost(&query.body).and_then(|first| names(&first.projection)) else {
        return Ok(());
    };
    for order in orders {
        if let Expr::Identifier(name) = &order.expr
            && !names.iter().any(|known| known.eq_ignore_ascii_case(&name.value))
        {
            return Err(no_column(&name.value, "order clause"));
        }
    }
    Ok(())
}

/// What the columns are called, where every one of them has a name.
fn names(projection: &[SelectItem]) -> Option<Vec<&str>> {
    projection.iter().map(name).collect()
}

fn name(item: &SelectItem) -> Option<&str> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(&alias.value),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(&name.value),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
            path.last().map(|name| name.value.as_str())
        }
        _ => None,
    }
}
