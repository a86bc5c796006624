//! Subqueries that read columns outside of them in a way that DataFusion has no join for: in the place
//! of a value by `x.id <= t.id`, `OR`, the first row of an order, in a select list; anywhere from
//! within another subquery.
//!
//! The distinct values of those columns are joined with the subquery's tables, every operator above
//! carries them along, and the rows outside are joined with what comes out by them (Neumann and
//! Kemper, Unnesting Arbitrary Queries, 2015). What DataFusion can plan is left to it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::logical_plan::{Subquery, check_subquery_expr};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, lit,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;
use functions::trees::{PlanTree, Tree};
use values::error::{external, unsupported};

use crate::dependent_join::DependentJoin;
use crate::outside::{Names, left_joined, read_by_others, read_outside, repeats};
use crate::predicates::{self, subquery};
use crate::udf::call;

/// A plan without such subqueries. Names and types of its columns stay.
pub fn joined(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !has_subquery(&plan)? {
        return Ok(plan);
    }
    let (mut plan, mut names) = (plan, Names::default());
    loop {
        let before = names.count;
        // From above: a subquery within another that reads columns outside of both is of one level
        // once the outer one carries those columns.
        let joined = plan.map_all_down(&mut |node| in_node(node, &mut names))?;
        if names.count == before {
            return Ok(joined.data);
        }
        let mut anew = |node: LogicalPlan| node.recompute_schema().map(Transformed::yes);
        // Once more: what is known of a subquery may have got lost with one that was within it.
        plan = joined.data.map_all_up(&mut anew)?.data;
    }
}

/// Whether there is any subquery: most statements have none.
fn has_subquery(plan: &LogicalPlan) -> Result<bool> {
    has_part(plan, &|part| Ok(subquery(part).is_some()))
}

/// Whether a part of a plan's expressions is one that is looked for.
fn has_part(plan: &LogicalPlan, is: &dyn Fn(&Expr) -> Result<bool>) -> Result<bool> {
    let mut found = false;
    plan.visit_each(&mut |node| {
        node.visit_expressions(&mut |expr| {
            found |= expr.has(is)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
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
    let unplanned = unplanned(&node)?;
    if unplanned.is_empty() {
        return Ok(Transformed::no(node));
    }
    let (node, input) = fewest_rows(&node, input)?;
    if let Some(operand) = unplanned.iter().find_map(queried_operand) {
        return with_operand(&node, &input, operand, names).map(Transformed::yes);
    }
    let mut plan = input.clone();
    let mut values = Vec::new();
    for expr in unplanned {
        let joined = match predicates::value(&expr, input.schema())? {
            Some(query) if read_outside(&query.subquery)?.is_empty() => {
                Some((plan.clone(), Expr::ScalarSubquery(query)))
            }
            Some(query) => with_value(plan.clone(), &input, &query, names)?,
            None => None,
        };
        let Some((joined, value)) = joined else {
            return Err(external(unsupported("a correlated subquery of this form")));
        };
        plan = joined;
        values.push((expr, value));
    }
    with_columns(&node, plan, &values).map(Transformed::yes)
}

/// What is looked up by IN, if that asks a query itself.
fn queried_operand(expr: &Expr) -> Option<&Expr> {
    let Expr::InSubquery(InSubquery { expr: operand, .. }) = expr else { return None };
    let asks = operand.exists(|part| Ok(subquery(part).is_some()));
    asks.unwrap_or(false).then_some(operand)
}

/// A node over rows that have the operand of one of its INs as a column.
fn with_operand(
    node: &LogicalPlan,
    input: &LogicalPlan,
    operand: &Expr,
    names: &mut Names,
) -> Result<LogicalPlan> {
    let name = names.next("operand");
    let column = Expr::Column(Column::new_unqualified(name.clone()));
    let shown = input.schema().columns().into_iter().map(Expr::Column);
    let shown = shown.chain([operand.clone().alias(name)]);
    let rows = LogicalPlanBuilder::from(input.clone()).project(shown)?.build()?;
    with_columns(node, rows, &[(operand.clone(), column)])
}

/// A filter whose conditions without subqueries stand below it, and its input: the values that a subquery is computed for are
/// those of the rows that are left, and tables that conditions join are no product of all their rows.
fn fewest_rows(node: &LogicalPlan, input: &LogicalPlan) -> Result<(LogicalPlan, LogicalPlan)> {
    let LogicalPlan::Filter(filter) = node else { return Ok((node.clone(), input.clone())) };
    let (mut below, mut above) = (Vec::new(), Vec::new());
    for condition in split_conjunction(&filter.predicate) {
        // What reads columns outside of all this is joined by them where it stands.
        let apart = condition.exists(|part| Ok(subquery(part).is_some()))?
            || condition.contains_outer()
            || condition.is_volatile();
        if apart { above.push(condition.clone()) } else { below.push(condition.clone()) }
    }
    let input = match conjunction(below) {
        Some(below) => LogicalPlan::Filter(Filter::try_new(below, Arc::new(input.clone()))?),
        None => input.clone(),
    };
    let above = conjunction(above).unwrap_or_else(|| lit(true));
    let node = LogicalPlan::Filter(Filter::try_new(above, Arc::new(input.clone()))?);
    Ok((node, input))
}

/// A node over a plan that has columns for some of its subqueries. Names and types of its own stay.
pub(crate) fn with_columns(
    node: &LogicalPlan,
    plan: LogicalPlan,
    columns: &[(Expr, Expr)],
) -> Result<LogicalPlan> {
    let mut column = |expr: Expr| match columns.iter().find(|(replaced, _)| *replaced == expr) {
        Some((_, column)) => Ok(Transformed::new(column.clone(), true, TreeNodeRecursion::Jump)),
        None => Ok(Transformed::no(expr)),
    };
    let names = NamePreserver::new_for_projection();
    let window = matches!(node, LogicalPlan::Window(_));
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        let expr = expr.map_down(&mut column)?.data;
        // Else it would be found by its place, which is behind the new columns.
        Ok(if window { name.restore(expr) } else { expr })
    });
    let written = node.with_new_exprs(exprs.collect::<Result<Vec<_>>>()?, vec![plan])?;
    as_named(written, node.schema())
}

/// A plan with the columns of a schema alone: those of the same name, else those of the same place.
fn as_named(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let mut exprs = Vec::with_capacity(schema.fields().len());
    for (at, (qualifier, field)) in schema.iter().enumerate() {
        // Gone as soon as GROUPING has its value, and read by nothing else.
        if field.name() == Aggregate::INTERNAL_GROUPING_ID {
            continue;
        }
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
fn unplanned(node: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found: Vec<Expr> = Vec::new();
    node.visit_expressions(&mut |expr| {
        expr.visit_each(&mut |expr| {
            if let Some(query) = subquery(expr)
                && !found.contains(expr)
                && !is_planned(node, expr, query)?
            {
                found.push(expr.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

/// Whether a subquery reads nothing outside, or only in a way that DataFusion makes a join of.
fn is_planned(node: &LogicalPlan, expr: &Expr, query: &Subquery) -> Result<bool> {
    if is_not_in_without_column(expr)? {
        return Ok(false);
    }
    if read_outside(&query.subquery)?.is_empty() {
        return Ok(true);
    }
    let joins = match expr {
        Expr::ScalarSubquery(_) => {
            matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_))
        }
        // DataFusion's join for NOT IN has one key alone.
        Expr::InSubquery(predicate) if predicate.negated => false,
        _ => matches!(node, LogicalPlan::Filter(_)),
    };
    if !joins
        || check_subquery_expr(node, &query.subquery, expr).is_err()
        || !read_by_others(&query.subquery)?.is_empty()
        || is_renamed(&query.subquery)?
        || !matches!(expr, Expr::ScalarSubquery(_)) && is_of_all_rows(&query.subquery)?
        || has_subquery_beside_outer(&query.subquery)?
        || equates_outer_with_itself(&query.subquery)?
    {
        return Ok(false);
    }
    let pull = PullUpCorrelatedExpr::new();
    let mut pull = match expr {
        Expr::ScalarSubquery(_) => pull.with_need_handle_count_bug(true),
        Expr::InSubquery(predicate) => {
            let found = Expr::Column(Column::from(query.subquery.schema().qualified_field(0)));
            pull.with_in_predicate_opt(Some(predicate.expr.as_ref().clone().eq(found)))
        }
        _ => pull.with_exists_sub_query(true),
    };
    let pulled = query.subquery.as_ref().clone().rewrite(&mut pull);
    Ok(pulled.is_ok() && pull.can_pull_up)
}

/// Whether the operand of NOT IN reads no column, such as a constant that HAVING names: DataFusion's join for NOT IN
/// knows NULL by its keys alone, and this is none.
fn is_not_in_without_column(expr: &Expr) -> Result<bool> {
    let Expr::InSubquery(predicate) = expr else { return Ok(false) };
    let reads = |part: &Expr| Ok(matches!(part, Expr::Column(_) | Expr::OuterReferenceColumn(..)));
    Ok(predicate.negated && !predicate.expr.has(&reads)?)
}

/// Whether what reads columns outside stands below a derived table: DataFusion would take the
/// columns of its condition for the derived table's.
fn is_renamed(plan: &LogicalPlan) -> Result<bool> {
    let mut renamed = false;
    plan.visit_each(&mut |node| {
        if matches!(node, LogicalPlan::SubqueryAlias(_)) && !read_outside(node)?.is_empty() {
            renamed = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(renamed)
}

/// Whether an aggregate of all rows reads columns outside: it has a row also where it has none to compute of, of which
/// DataFusion's joins for EXISTS and IN know nothing.
fn is_of_all_rows(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.visit_each(&mut |node| {
        if let LogicalPlan::Aggregate(aggregate) = node
            && aggregate.group_expr.is_empty()
            && !read_outside(&aggregate.input)?.is_empty()
        {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether a condition has a subquery beside a column outside, as in `t.a < (SELECT …)` or `t.a IN (SELECT …)`: DataFusion
/// would make a condition of a join of it, where it has no join for a subquery.
fn has_subquery_beside_outer(plan: &LogicalPlan) -> Result<bool> {
    let beside = |part: &Expr| -> Result<bool> {
        Ok(part.contains_outer() && part.exists(|part| Ok(subquery(part).is_some()))?)
    };
    let mut found = false;
    plan.visit_each(&mut |node| {
        for expr in node.expressions() {
            for condition in split_conjunction(&expr) {
                found |= beside(condition)?;
            }
        }
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a condition is `x = x` of a column outside: DataFusion's joins leave it out, though it is not true of NULL.
fn equates_outer_with_itself(plan: &LogicalPlan) -> Result<bool> {
    has_part(plan, &|part| match part {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            Ok(left == right && left.contains_outer())
        }
        _ => Ok(false),
    })
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
    let mut join = DependentJoin::new(outside, columns.clone(), names);
    let Some(pushed) = join.push_down(&query.subquery, false)? else { return Ok(None) };
    let value = Expr::Column(Column::from(query.subquery.schema().qualified_field(0)));
    let keys: Vec<Expr> = pushed.keys.iter().cloned().map(Expr::Column).collect();
    let renamed: Vec<String> = keys.iter().map(|_| names.next("key")).collect();
    let (valued, counted) = (names.next("value"), names.next("rows"));
    let one = query.subquery.max_rows().is_some_and(|rows| rows <= 1);
    let mut builder = LogicalPlanBuilder::from(pushed.plan);
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
    let columns: Vec<Expr> = columns.into_iter().map(Expr::Column).collect();
    let keys: Vec<Expr> = renamed.iter().map(column).collect();
    let joined = left_joined(rows, columns, values, keys)?;
    Ok(Some((joined, found)))
}
