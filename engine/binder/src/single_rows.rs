//! Subqueries in the place of a value, which must have one row: more are an error, also where DataFusion runs them as
//! joins, which would take several rows for several matches.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::logical_plan::Subquery;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use functions::trees::{PlanTree, Tree};

use crate::correlated::with_columns;
use crate::outside::Names;
use crate::udf::call;

/// Names of the one row's value, and of how many rows there were.
const VALUE: &str = "__value";
const ROWS: &str = "__rows";

/// A plan whose subqueries in the place of a value fail where they have more than one row (1242), also
/// where they are run as joins, which take several rows for several matches, and where DataFusion can
/// join them. Those that read columns outside of them are never planned unless they have one.
pub(crate) fn single_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut names = Names::default();
    let mut node = |node: LogicalPlan| {
        let node = below_node(node, &mut names)?;
        node.transform_data(|node| {
            node.map_each_expression(&mut |expr| expr.map_up(&mut single_row))
        })
    };
    Ok(plan.map_all_down(&mut node)?.data)
}

/// DataFusion joins what a SELECT shows or filters by; subqueries of aggregates, windows and orders become
/// columns of what those are of. So do those of conditions over columns outside, which may become a join's.
fn below_node(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let computes = match &node {
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_) => true,
        LogicalPlan::Filter(filter) => {
            split_conjunction(&filter.predicate).into_iter().any(Expr::contains_outer)
        }
        _ => false,
    };
    let inputs = node.inputs();
    let (true, [input]) = (computes, &inputs[..]) else { return Ok(Transformed::no(node)) };
    let mut columns: Vec<(Expr, Expr)> = Vec::new();
    let mut shown: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    node.visit_expressions(&mut |expr| {
        expr.visit_each(&mut |expr| {
            let known = columns.iter().any(|(subquery, _)| subquery == expr);
            if matches!(expr, Expr::ScalarSubquery(_)) && !known {
                let name = names.next("single");
                shown.push(expr.clone().alias(&name));
                columns.push((expr.clone(), Expr::Column(Column::new_unqualified(name))));
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if columns.is_empty() {
        return Ok(Transformed::no(node));
    }
    let plan = LogicalPlanBuilder::from((*input).clone()).project(shown)?.build()?;
    with_columns(&node, plan, &columns).map(Transformed::yes)
}

fn single_row(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::ScalarSubquery(query) = expr else { return Ok(Transformed::no(expr)) };
    let one = query.subquery.max_rows().is_some_and(|rows| rows <= 1);
    if one || !query.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(Expr::ScalarSubquery(query)));
    }
    let (qualifier, field) = query.subquery.schema().qualified_field(0);
    let (name, column) = (field.name().clone(), Expr::Column(Column::from((qualifier, field))));
    let aggregates =
        vec![first_value(column, Vec::new()).alias(VALUE), count(lit(1i64)).alias(ROWS)];
    let named = |name: &str| Expr::Column(Column::new_unqualified(name));
    let only = call("isobar_only_row", vec![named(VALUE), named(ROWS)])?.alias(name);
    let plan = LogicalPlanBuilder::from(query.subquery.as_ref().clone())
        .aggregate(Vec::<Expr>::new(), aggregates)?
        .project(vec![only])?
        .build()?;
    let query = Subquery { subquery: Arc::new(plan), ..query };
    Ok(Transformed::yes(Expr::ScalarSubquery(query)))
}
