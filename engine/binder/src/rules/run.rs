//! Runs the rules of nodes and expressions over a plan, in the order of their lists.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use functions::trees::{PlanTree, Tree};
use tracing::{Level, enabled, trace};

use super::parts::{OF_EXPRESSIONS, OF_NODES, UNION_TYPES};
use super::{PlanRule, Walk};
use crate::operators::MysqlOperators;
use crate::quotients::{self, Sums};

/// Runs a rule of a whole plan.
pub(super) fn whole(rule: &PlanRule, plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = (rule.apply)(plan)?;
    trace!("{}\n{}", rule.name, plan.display_indent());
    Ok(plan)
}

/// Runs the rules of nodes and expressions.
pub(super) fn operand_types(plan: LogicalPlan, operators: &MysqlOperators) -> Result<LogicalPlan> {
    // What lies above a changed type has another one, too.
    let mut retyped = false;
    let mut walk = Walk { operators, sums: Sums::default() };
    let typed = plan.map_all_up(&mut |node| {
        if let Some(union) = (UNION_TYPES.apply)(&walk, &node, node.schema())? {
            trace!("{}", UNION_TYPES.name);
            retyped = true;
            return Ok(Transformed::yes(union));
        }
        let mut schema = merge_schema(&node.inputs());
        if let LogicalPlan::TableScan(scan) = &node {
            let source = scan.source.schema();
            schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &source)?);
        }
        let names = NamePreserver::new(&node);
        let keeps_digits = quotients::are_summed(&node);
        let node = node.map_each_expression(&mut |expr| {
            each_named(expr, &names, |expr| {
                let name = expr.schema_name().to_string();
                let typed = expr.map_up(&mut |part| part_of_expression(&walk, part, &schema))?;
                match keeps_digits {
                    true => typed.transform_data(|expr| walk.sums.collect(expr, name, &schema)),
                    false => Ok(typed),
                }
            })
        })?;
        let node = arranged(&walk, node, &schema)?;
        retyped |= node.transformed;
        if !retyped {
            return Ok(node);
        }
        node.map_data(LogicalPlan::recompute_schema)
    })?;
    Ok(typed.data)
}

/// An expression with MySQL's meaning over the columns of a schema.
pub(crate) fn expression(
    expr: Expr,
    schema: &DFSchema,
    operators: &MysqlOperators,
) -> Result<Expr> {
    let walk = Walk { operators, sums: Sums::default() };
    Ok(expr.map_up(&mut |part| part_of_expression(&walk, part, schema))?.data)
}

/// A part of an expression whose own parts are done.
fn part_of_expression(walk: &Walk, mut part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let shows = enabled!(Level::TRACE);
    let mut transformed = false;
    for rule in OF_EXPRESSIONS {
        let before = shows.then(|| part.to_string());
        let done = (rule.apply)(walk, part, schema)?;
        if let Some(before) = before
            && before != done.data.to_string()
        {
            trace!("{}: {before} becomes {}", rule.name, done.data);
        }
        (part, transformed) = (done.data, transformed || done.transformed);
    }
    Ok(Transformed::new_transformed(part, transformed))
}

/// A node whose expressions are done.
fn arranged(
    walk: &Walk,
    mut node: Transformed<LogicalPlan>,
    schema: &DFSchema,
) -> Result<Transformed<LogicalPlan>> {
    for rule in OF_NODES {
        if let Some(other) = (rule.apply)(walk, &node.data, schema)? {
            trace!("{}: {} becomes {}", rule.name, node.data.display(), other.display());
            node = Transformed::yes(other);
        }
    }
    Ok(node)
}

/// An expression typed, under the name that it had; of ROLLUP's, each.
fn each_named(
    expr: Expr,
    names: &NamePreserver,
    mut typed: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    let mut named = |expr: Expr| -> Result<Transformed<Expr>> {
        let name = names.save(&expr);
        Ok(typed(expr)?.update_data(|expr| name.restore(expr)))
    };
    match expr {
        Expr::GroupingSet(_) => expr.map_parts(&mut named),
        expr => named(expr),
    }
}
