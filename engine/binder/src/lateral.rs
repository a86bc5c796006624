//! Subqueries that DataFusion runs as joins: LATERAL tables of which the first rows are wanted for each
//! row outside, and those in the place of a value, which must have one row.
//!
//! DataFusion joins a LATERAL table by what its WHERE equates with columns outside, and can do no more
//! than that. The first rows by LIMIT are therefore numbered among those of the same values, and the
//! numbers are asked for. What would be computed over other rows than it should be is refused.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, Result};
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::logical_plan::{FetchType, Projection, SkipType, Subquery};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, Filter, Join, Limit, LogicalPlan, LogicalPlanBuilder,
    Operator, SubqueryAlias, lit,
};
use values::error::{external, unsupported};

use crate::correlated::{Names, with_columns};
use crate::typing::call;

/// Names of the one row's value, and of how many rows there were.
const VALUE: &str = "__value";
const ROWS: &str = "__rows";

/// A plan whose LATERAL tables have no LIMIT any more.
pub fn numbered(plan: LogicalPlan) -> Result<LogicalPlan> {
    let node = |node: LogicalPlan| match node {
        LogicalPlan::Join(join) => Ok(match lateral(&join.right)? {
            Some(right) => {
                Transformed::yes(LogicalPlan::Join(Join { right: Arc::new(right), ..join }))
            }
            None => Transformed::no(LogicalPlan::Join(join)),
        }),
        node => Ok(Transformed::no(node)),
    };
    Ok(plan.transform_down_with_subqueries(node)?.data)
}

/// A LATERAL table without its LIMIT; `None` if it has none, or is none.
fn lateral(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = lateral(&alias.input)? else { return Ok(None) };
            let alias = SubqueryAlias::try_new(Arc::new(input), alias.alias.clone())?;
            Ok(Some(LogicalPlan::SubqueryAlias(alias)))
        }
        LogicalPlan::Subquery(lateral) => {
            refuse_windows(&lateral.subquery)?;
            let Some(plan) = top(&lateral.subquery)? else { return Ok(None) };
            let lateral = Subquery { subquery: Arc::new(plan), ..lateral.clone() };
            Ok(Some(LogicalPlan::Subquery(lateral)))
        }
        _ => Ok(None),
    }
}

fn is_free(plan: &LogicalPlan) -> bool {
    plan.all_out_ref_exprs().is_empty()
}

/// A window would be of all rows, not of those that the row outside goes with.
fn refuse_windows(plan: &LogicalPlan) -> Result<()> {
    plan.apply(|node| match node {
        LogicalPlan::Window(window) if !is_free(&window.input) => {
            Err(external(unsupported("a window function over the rows of a LATERAL table")))
        }
        _ => Ok(TreeNodeRecursion::Continue),
    })?;
    Ok(())
}

/// The same without its LIMIT, or without an ORDER BY that has none; `None` if it has neither.
fn top(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let inputs = plan.inputs();
            let Some(input) = inputs.first() else { return Ok(None) };
            let Some(input) = top(input)? else { return Ok(None) };
            Ok(Some(plan.with_new_exprs(plan.expressions(), vec![input])?))
        }
        LogicalPlan::Sort(sort) => {
            Ok(Some(top(&sort.input)?.unwrap_or_else(|| sort.input.as_ref().clone())))
        }
        LogicalPlan::Limit(limit) if !is_free(&limit.input) => first_rows(limit).map(Some),
        _ => Ok(None),
    }
}

/// A SELECT as its parts, from above: what it shows, its order, what it shows before, its WHERE.
struct Parts {
    shown: Vec<Projection>,
    order: Option<Vec<Sort>>,
    computed: Vec<Projection>,
    filter: Filter,
}

impl Parts {
    fn of(plan: &LogicalPlan) -> Option<Self> {
        let (mut shown, mut order, mut computed) = (Vec::new(), None, Vec::new());
        let mut plan = plan;
        loop {
            plan = match plan {
                LogicalPlan::Sort(sort) if order.is_none() => {
                    order = Some(sort.expr.clone());
                    &sort.input
                }
                LogicalPlan::Projection(projection) => {
                    let above = if order.is_some() { &mut computed } else { &mut shown };
                    above.push(projection.clone());
                    &projection.input
                }
                LogicalPlan::Filter(filter) if is_free(&filter.input) => {
                    return Some(Parts { shown, order, computed, filter: filter.clone() });
                }
                _ => return None,
            };
        }
    }

    /// The order by what WHERE leaves, not by what is shown of it.
    fn order(&self) -> Result<Vec<Sort>> {
        let mut order = self.order.clone().unwrap_or_default();
        for projection in &self.computed {
            for by in &mut order {
                by.expr = below(std::mem::take(&mut by.expr), projection)?;
            }
        }
        Ok(order)
    }
}

/// An expression over a projection as one over what the projection is of.
pub(crate) fn below(expr: Expr, projection: &Projection) -> Result<Expr> {
    let written = expr.transform_up(|expr| {
        let Expr::Column(column) = &expr else { return Ok(Transformed::no(expr)) };
        let at = projection.schema.index_of_column(column)?;
        match projection.expr.get(at) {
            Some(computed) => Ok(Transformed::yes(computed.clone().unalias())),
            None => Ok(Transformed::no(expr)),
        }
    })?;
    Ok(written.data)
}

fn refused() -> DataFusionError {
    external(unsupported(
        "LATERAL with LIMIT, but of one SELECT whose WHERE has 'its column = column outside'",
    ))
}

fn first_rows(limit: &Limit) -> Result<LogicalPlan> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Err(refused());
    };
    let parts = Parts::of(&limit.input).ok_or_else(refused)?;
    let outer = split_conjunction(&parts.filter.predicate).into_iter();
    let outer = outer.filter(|condition| condition.contains_outer());
    let keys = outer.map(|condition| key(condition).ok_or_else(refused));
    let keys = keys.collect::<Result<Vec<Expr>>>()?;
    let number = row_number().partition_by(keys).order_by(parts.order()?).build()?;
    let name = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
    let first = (skip > 0).then(|| name.clone().gt(lit(skip as u64)));
    let last = fetch.map(|fetch| name.lt_eq(lit(skip.saturating_add(fetch) as u64)));
    let mut plan = LogicalPlanBuilder::from(LogicalPlan::Filter(parts.filter)).window([number])?;
    if let Some(within) = conjunction(first.into_iter().chain(last)) {
        plan = plan.filter(within)?;
    }
    let mut plan = plan.build()?;
    for projection in parts.computed.into_iter().rev().chain(parts.shown.into_iter().rev()) {
        plan = LogicalPlan::Projection(Projection::try_new(projection.expr, Arc::new(plan))?);
    }
    Ok(plan)
}

/// The side of an equation that is the table's own, if the other is not.
fn key(condition: &Expr) -> Option<Expr> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else {
        return None;
    };
    let own = |expr: &Expr| !expr.contains_outer() && !expr.column_refs().is_empty();
    let outside = |expr: &Expr| expr.contains_outer() && expr.column_refs().is_empty();
    match (own(left) && outside(right), own(right) && outside(left)) {
        (true, _) => Some((**left).clone()),
        (_, true) => Some((**right).clone()),
        _ => None,
    }
}

/// A plan whose subqueries in the place of a value fail where they have more than one row (1242), also
/// where they are run as joins, which take several rows for several matches, and where DataFusion can
/// join them. Those that read columns outside of them are never planned unless they have one.
pub fn single_rows(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut names = Names::default();
    let node = |node: LogicalPlan| {
        let node = below_node(node, &mut names)?;
        node.transform_data(|node| node.map_expressions(|expr| expr.transform_up(single_row)))
    };
    Ok(plan.transform_down_with_subqueries(node)?.data)
}

/// DataFusion joins what a SELECT shows or filters by; subqueries of aggregates, windows and orders become
/// columns of what those are of.
fn below_node(node: LogicalPlan, names: &mut Names) -> Result<Transformed<LogicalPlan>> {
    let computes =
        matches!(node, LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_));
    let inputs = node.inputs();
    let (true, [input]) = (computes, &inputs[..]) else { return Ok(Transformed::no(node)) };
    let mut columns: Vec<(Expr, Expr)> = Vec::new();
    let mut shown: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
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
