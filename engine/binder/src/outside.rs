//! What plans read outside of them, and joins with what comes of it. It changes no plan's meaning by itself.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use functions::trees::{PlanTree, Tree};

use crate::nullsafe;
use crate::predicates::subquery;

/// Names that no column has.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) count: usize,
    prefix: String,
}

impl Names {
    /// Names that begin so.
    pub(crate) fn of(prefix: String) -> Names {
        Names { count: 0, prefix }
    }

    pub(crate) fn next(&mut self, what: &str) -> String {
        self.count += 1;
        format!("__{}{what}_{}", self.prefix, self.count)
    }
}

/// The columns outside of it that a plan reads, also in its own subqueries.
pub(crate) fn read_outside(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found = read_by_others(plan)?;
    plan.visit_each(&mut |node| {
        node.visit_expressions(&mut |expr| {
            expr.visit_each(&mut |expr| {
                if let Expr::OuterReferenceColumn(_, column) = expr
                    && !found.contains(column)
                {
                    found.push(column.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// The columns outside of a plan that its own subqueries read.
pub(crate) fn read_by_others(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found: Vec<Column> = Vec::new();
    plan.visit_each(&mut |node| {
        node.visit_expressions(&mut |expr| {
            expr.visit_each(&mut |expr| {
                let Some(query) = subquery(expr) else { return Ok(TreeNodeRecursion::Continue) };
                for column in read_outside(&query.subquery)? {
                    if !has(node, &column) && !found.contains(&column) {
                        found.push(column);
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Whether a node's expressions may name a column: the nearest query that has it is meant.
fn has(node: &LogicalPlan, column: &Column) -> bool {
    node.inputs().iter().any(|input| input.schema().has_column(column))
}

/// A plan with what another has for its values, NULL among them; NULL where that has nothing.
pub(crate) fn left_joined(
    left: LogicalPlan,
    values: Vec<Expr>,
    right: LogicalPlan,
    keys: Vec<Expr>,
) -> Result<LogicalPlan> {
    let mut on = (Vec::new(), Vec::new());
    for (value, key) in values.iter().zip(&keys) {
        on.extend(nullsafe::equal((value, left.schema()), (key, right.schema()))?);
    }
    LogicalPlanBuilder::from(left).join_with_expr_keys(right, JoinType::Left, on, None)?.build()
}

/// Whether a plan has the same rows however often it is run: it is run once more for its distinct
/// values, and a row without its own would have no value.
pub(crate) fn repeats(plan: &LogicalPlan) -> Result<bool> {
    let mut repeats = true;
    plan.visit_all(&mut |node| {
        repeats &= !matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Window(_));
        node.visit_expressions(&mut |expr| {
            repeats &= !expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if repeats { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(repeats)
}

/// A subquery within an expression that reads columns that are passed down now: by their new names.
pub(crate) fn renamed(
    query: Subquery,
    within: &DFSchema,
    name: &dyn Fn(&Column) -> Option<Column>,
) -> Result<Subquery> {
    let mut inner = |expr: Expr| {
        let Expr::OuterReferenceColumn(field, column) = &expr else {
            return Ok(Transformed::no(expr));
        };
        match name(column) {
            Some(to) if !within.has_column(column) => {
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field.clone(), to)))
            }
            _ => Ok(Transformed::no(expr)),
        }
    };
    let plan = query.subquery.as_ref().clone();
    let plan = plan
        .map_all_down(&mut |node| node.map_each_expression(&mut |expr| expr.map_up(&mut inner)))?
        .data;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, ..query })
}
