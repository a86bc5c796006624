//! Which columns of a plan determine which others.
//!
//! DataFusion derives that for every node, and its rules leave out ORDER BY keys, group keys, DISTINCT and joins by it.
//! What it derives for an aggregate over a join is wrong: it extends what one table's key determines to the columns of
//! all tables, and takes for unique a key that the join repeats. So the dependencies are derived again here, for
//! each rule that relies on them. It must never claim a dependency that any row of any input could break.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    DFSchema, DFSchemaRef, Dependency, FunctionalDependence, FunctionalDependencies, Result,
};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection, Window};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use functions::trees::PlanTree;

use crate::distinct::Rule;

/// A rule that sees plans with the right dependencies.
#[derive(Debug)]
pub(crate) struct Informed(pub(crate) Rule);

impl OptimizerRule for Informed {
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
        // A rule that is handed node after node needs dependencies at these alone.
        let needs_them = self.0.apply_order().is_none()
            || matches!(plan, LogicalPlan::Distinct(_) | LogicalPlan::Sort(_));
        self.0.rewrite(if needs_them { rederived(plan)? } else { plan }, config)
    }
}

/// A plan in which every node has the dependencies that follow from those of its inputs.
fn rederived(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut node = |node: LogicalPlan| match dependencies(&node) {
        Some(found) if *node.schema().functional_dependencies() != found => {
            with_dependencies(node, found).map(Transformed::yes)
        }
        _ => Ok(Transformed::no(node)),
    };
    Ok(plan.map_all_up(&mut node)?.data)
}

/// What a node's columns determine; `None` if its schema is its input's, or a table's.
fn dependencies(node: &LogicalPlan) -> Option<FunctionalDependencies> {
    let of = |plan: &LogicalPlan| plan.schema().functional_dependencies().clone();
    Some(match node {
        LogicalPlan::Projection(projection) => projected(projection),
        LogicalPlan::SubqueryAlias(alias) => of(&alias.input),
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate),
        LogicalPlan::Window(window) => windowed(window),
        LogicalPlan::Join(join) => {
            let columns = join.left.schema().fields().len();
            of(&join.left).join(&of(&join.right), &join.join_type, columns)
        }
        // Rows of several inputs, or several rows of one.
        LogicalPlan::Union(_)
        | LogicalPlan::RecursiveQuery(_)
        | LogicalPlan::Unnest(_)
        | LogicalPlan::Distinct(Distinct::On(_)) => FunctionalDependencies::empty(),
        _ => return None,
    })
}

fn with_dependencies(node: LogicalPlan, found: FunctionalDependencies) -> Result<LogicalPlan> {
    let with = |schema: &DFSchemaRef| -> Result<DFSchemaRef> {
        Ok(Arc::new(schema.as_ref().clone().with_functional_dependencies(found)?))
    };
    let mut node = node;
    match &mut node {
        LogicalPlan::Projection(projection) => projection.schema = with(&projection.schema)?,
        LogicalPlan::SubqueryAlias(alias) => alias.schema = with(&alias.schema)?,
        LogicalPlan::Aggregate(aggregate) => aggregate.schema = with(&aggregate.schema)?,
        LogicalPlan::Window(window) => window.schema = with(&window.schema)?,
        LogicalPlan::Join(join) => join.schema = with(&join.schema)?,
        LogicalPlan::Union(union) => union.schema = with(&union.schema)?,
        LogicalPlan::RecursiveQuery(query) => query.schema = with(&query.schema)?,
        LogicalPlan::Unnest(unnest) => unnest.schema = with(&unnest.schema)?,
        LogicalPlan::Distinct(Distinct::On(on)) => on.schema = with(&on.schema)?,
        _ => {}
    }
    Ok(node)
}

/// The input's column that an expression is.
fn column(expr: &Expr, input: &DFSchema) -> Option<usize> {
    match expr {
        Expr::Column(column) => input.maybe_index_of_column(column),
        Expr::Alias(alias) => column(&alias.expr, input),
        _ => None,
    }
}

/// Where each of some columns of an input comes out, the first time; `None` if one does not.
fn outputs(columns: &[usize], exprs: &[Option<usize>]) -> Option<Vec<usize>> {
    let output = |column: &usize| exprs.iter().position(|expr| expr.as_ref() == Some(column));
    columns.iter().map(output).collect()
}

fn projected(projection: &Projection) -> FunctionalDependencies {
    let (input, width) = (projection.input.schema(), projection.schema.fields().len());
    if projection.expr.len() != width {
        return FunctionalDependencies::empty();
    }
    let exprs: Vec<_> = projection.expr.iter().map(|expr| column(expr, input)).collect();
    let kept = |dependence: &FunctionalDependence| {
        let sources = outputs(&dependence.source_indices, &exprs)?;
        let determined = |at: &usize| {
            dependence.mode == Dependency::Single
                || exprs[*at].is_some_and(|column| dependence.target_indices.contains(&column))
        };
        let targets = (0..width).filter(determined).collect();
        let nullable = dependence.nullable;
        Some(FunctionalDependence::new(sources, targets, nullable).with_mode(dependence.mode))
    };
    let known = input.functional_dependencies().iter();
    FunctionalDependencies::new(known.filter_map(kept).collect())
}

/// A row for each group: what determines all of its columns is unique, and so are these together.
fn grouped(aggregate: &Aggregate) -> FunctionalDependencies {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    let count = aggregate.group_expr.len();
    // ROLLUP has NULL for a column that a row is of several values of.
    if count == 0 || aggregate.group_expr.iter().any(is_set) {
        return FunctionalDependencies::empty();
    }
    let input = aggregate.input.schema();
    let groups: Vec<_> = aggregate.group_expr.iter().map(|expr| column(expr, input)).collect();
    let whole: Vec<usize> = (0..aggregate.schema.fields().len()).collect();
    let kept = |dependence: &FunctionalDependence| {
        let sources = outputs(&dependence.source_indices, &groups)?;
        let determined = |at: &usize| {
            sources.contains(at)
                || groups[*at].is_some_and(|column| dependence.target_indices.contains(&column))
        };
        let targets: Vec<usize> = (0..count).filter(determined).collect();
        let unique = dependence.mode == Dependency::Single || targets.len() == count;
        let (targets, mode) = match unique {
            true => (whole.clone(), Dependency::Single),
            false => (targets, Dependency::Multi),
        };
        Some(FunctionalDependence::new(sources, targets, dependence.nullable).with_mode(mode))
    };
    let known = input.functional_dependencies().iter();
    let mut found: Vec<FunctionalDependence> = known.filter_map(kept).collect();
    let nullable = aggregate.schema.fields().iter().take(count).any(|field| field.is_nullable());
    let all = FunctionalDependence::new((0..count).collect(), whole.clone(), nullable);
    found.push(all.with_mode(Dependency::Single));
    FunctionalDependencies::new(found)
}

/// A row for each of the input's, with more columns; a number of rows is unique, as DataFusion finds out.
fn windowed(window: &Window) -> FunctionalDependencies {
    let columns = window.input.schema().fields().len();
    let mut found = window.input.schema().functional_dependencies().clone();
    found.extend_target_indices(window.schema.fields().len());
    let numbers = window.schema.functional_dependencies().iter();
    let numbers = numbers.filter(|number| number.source_indices.iter().all(|at| *at >= columns));
    found.extend(FunctionalDependencies::new(numbers.cloned().collect()));
    found
}
