//! Subqueries in the place of a value that read columns outside of them in a way that DataFusion has no
//! join for: `x.id <= t.id`, `OR`, the first row of an order, columns outside in a select list.
//!
//! The distinct values of those columns are joined with the subquery's tables, every operator above
//! carries them along, and the rows outside are joined with what comes out by them (Neumann and
//! Kemper, Unnesting Arbitrary Queries, 2015). What DataFusion can plan is left to it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, Result};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::logical_plan::{Subquery, check_subquery_expr};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::carried::Carried;
use super::typing::call;
use crate::error::{external, unsupported};

/// A plan without such subqueries. Names and types of its columns stay.
pub fn joined(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_subquery(&plan)? {
        return Ok(plan);
    }
    let mut names = Names(0);
    // From above: a subquery within another that reads columns outside of both is of one level once
    // the outer one carries those columns.
    let joined = plan.transform_down_with_subqueries(|node| in_node(node, &mut names))?;
    if names.0 == 0 {
        return Ok(joined.data);
    }
    let anew = |node: LogicalPlan| node.recompute_schema().map(Transformed::yes);
    Ok(joined.data.transform_up_with_subqueries(anew)?.data)
}

/// Whether there is a subquery in the place of a value: most statements have none.
fn has_subquery(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(matches!(expr, Expr::ScalarSubquery(_))))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Names that no column has.
pub(super) struct Names(usize);

impl Names {
    pub(super) fn next(&mut self, what: &str) -> String {
        self.0 += 1;
        format!("__{what}_{}", self.0)
    }
}

fn in_node(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let known = matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
    );
    let inputs = node.inputs();
    let (true, [input]) = (known, &inputs[..]) else { return Ok(Transformed::no(node)) };
    let mut plan = (*input).clone();
    let mut values = Vec::new();
    for query in unplanned(&node)? {
        let Some((joined, value)) = with_value(plan.clone(), input, &query, names)? else {
            return Err(external(unsupported("a correlated subquery of this form")));
        };
        plan = joined;
        values.push((query, value));
    }
    if values.is_empty() {
        return Ok(Transformed::no(node));
    }
    let value = |expr: Expr| {
        let Expr::ScalarSubquery(query) = &expr else { return Ok(Transformed::no(expr)) };
        match values.iter().find(|(known, _)| known == query) {
            Some((_, value)) => Ok(Transformed::yes(value.clone())),
            None => Ok(Transformed::no(expr)),
        }
    };
    let exprs = node.expressions().into_iter();
    let exprs = exprs.map(|expr| expr.transform_up(value).map(|expr| expr.data));
    let written = node.with_new_exprs(exprs.collect::<Result<Vec<_>>>()?, vec![plan])?;
    as_named(written, node.schema()).map(Transformed::yes)
}

/// A plan with the columns of a schema alone: those of the same name, else those of the same place.
fn as_named(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (at, (qualifier, field)) in schema.iter().enumerate() {
        let column = Column::from((qualifier, field));
        if plan.schema().has_column(&column) {
            exprs.push(Expr::Column(column));
        } else {
            let placed = Expr::Column(Column::from(plan.schema().qualified_field(at)));
            exprs.push(placed.alias_qualified(qualifier.cloned(), field.name()));
        }
    }
    LogicalPlanBuilder::from(plan).project(exprs)?.build()
}

/// The subqueries of a node's own expressions that DataFusion has no join for.
fn unplanned(node: &LogicalPlan) -> Result<Vec<Subquery>> {
    let mut found: Vec<Subquery> = Vec::new();
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            if let Expr::ScalarSubquery(query) = expr
                && !found.contains(query)
                && !is_planned(node, query)?
            {
                found.push(query.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether a subquery reads nothing outside, or only in a way that DataFusion makes a join of.
fn is_planned(node: &LogicalPlan, query: &Subquery) -> Result<bool> {
    let outside = read_outside(&query.subquery)?;
    if outside.is_empty() {
        return Ok(true);
    }
    let expr = Expr::ScalarSubquery(query.clone());
    let direct = query.subquery.all_out_ref_exprs();
    let is_direct = |column: &Column| {
        direct.iter().any(|e| matches!(e, Expr::OuterReferenceColumn(_, c) if c == column))
    };
    if !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_))
        || check_subquery_expr(node, &query.subquery, &expr).is_err()
        || !outside.iter().all(is_direct)
        || is_renamed(&query.subquery)?
    {
        return Ok(false);
    }
    let mut pull = PullUpCorrelatedExpr::new().with_need_handle_count_bug(true);
    let pulled = query.subquery.as_ref().clone().rewrite(&mut pull);
    Ok(pulled.is_ok() && pull.can_pull_up)
}

/// Whether what reads columns outside stands below a derived table: DataFusion would take the
/// columns of its condition for the derived table's.
fn is_renamed(plan: &LogicalPlan) -> Result<bool> {
    let mut renamed = false;
    plan.apply(|node| {
        if matches!(node, LogicalPlan::SubqueryAlias(_)) && !read_outside(node)?.is_empty() {
            renamed = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(renamed)
}

/// The columns outside of it that a plan reads, also in its own subqueries.
pub(super) fn read_outside(plan: &LogicalPlan) -> Result<Vec<Column>> {
    let mut found: Vec<Column> = Vec::new();
    let add = |found: &mut Vec<Column>, column: Column| {
        if !found.contains(&column) {
            found.push(column);
        }
    };
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                let query = match expr {
                    Expr::OuterReferenceColumn(_, column) => {
                        add(&mut found, column.clone());
                        return Ok(TreeNodeRecursion::Continue);
                    }
                    Expr::ScalarSubquery(query)
                    | Expr::Exists(Exists { subquery: query, .. })
                    | Expr::InSubquery(InSubquery { subquery: query, .. }) => query,
                    _ => return Ok(TreeNodeRecursion::Continue),
                };
                for column in read_outside(&query.subquery)? {
                    if !has(node, &column) {
                        add(&mut found, column);
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

/// Rows with the value that a subquery has for each of them, and where that stands; `None` if the
/// subquery cannot be joined.
fn with_value(
    rows: LogicalPlan,
    outside: &LogicalPlan,
    query: &Subquery,
    names: &mut Names,
) -> Result<Option<(LogicalPlan, Expr)>> {
    let columns = read_outside(&query.subquery)?;
    if !columns.iter().all(|column| outside.schema().has_column(column)) || !repeats(outside)? {
        return Ok(None);
    }
    let mut carried = Carried::new(outside, columns.clone(), names);
    let Some(through) = carried.through(&query.subquery, false)? else { return Ok(None) };
    let value = Expr::Column(Column::from(query.subquery.schema().qualified_field(0)));
    let keys: Vec<Expr> = through.keys.iter().cloned().map(Expr::Column).collect();
    let renamed: Vec<String> = keys.iter().map(|_| names.next("key")).collect();
    let (valued, counted) = (names.next("value"), names.next("rows"));
    let one = query.subquery.max_rows().is_some_and(|rows| rows <= 1);
    let mut builder = LogicalPlanBuilder::from(through.plan);
    let column = |name: &String| Expr::Column(Column::new_unqualified(name.clone()));
    let mut shown: Vec<Expr> =
        keys.iter().zip(&renamed).map(|(key, name)| key.clone().alias(name)).collect();
    let found = if one {
        shown.push(value.alias(&valued));
        column(&valued)
    } else {
        let first = first_value(value, Vec::new()).alias(&valued);
        let all = count(lit(1i64)).alias(&counted);
        builder = builder.aggregate(keys, vec![first, all])?;
        shown.extend([column(&valued), column(&counted)]);
        // In the place of the subquery: a CASE that passes it over must not fail.
        call("isobar_only_row", vec![column(&valued), column(&counted)])?
    };
    let values = builder.project(shown)?.build()?;
    let keys = renamed.into_iter().map(Column::new_unqualified).collect::<Vec<_>>();
    let joined = LogicalPlanBuilder::from(rows)
        .join_detailed(values, JoinType::Left, (columns, keys), None, NullEquality::NullEqualsNull)?
        .build()?;
    Ok(Some((joined, found)))
}

/// Whether a plan has the same rows however often it is run: it is run once more for its distinct
/// values, and a row without its own would have no value.
fn repeats(plan: &LogicalPlan) -> Result<bool> {
    let mut repeats = true;
    plan.apply_with_subqueries(|node| {
        repeats &= !matches!(node, LogicalPlan::Limit(_) | LogicalPlan::Window(_));
        node.apply_expressions(|expr| {
            repeats &= !expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if repeats { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(repeats)
}

/// A subquery within an expression that reads columns which are carried now: by their new names.
pub(super) fn renamed(
    query: Subquery,
    within: &DFSchema,
    name: &dyn Fn(&Column) -> Option<Column>,
) -> Result<Subquery> {
    let inner = |expr: Expr| {
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
        .transform_down_with_subqueries(|node| {
            node.map_expressions(|expr| expr.transform_up(inner))
        })?
        .data;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Subquery { subquery: Arc::new(plan), outer_ref_columns, ..query })
}
