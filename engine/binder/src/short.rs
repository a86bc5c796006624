//! A planner for short reads: one table, a part of it, one partition.
//!
//! DataFusion's own list of rules is made for queries that run for seconds: over a look-up of a
//! hundred rows it takes several times as long as the look-up. These are the rules without which
//! such a plan could not run or would read more than it must. What they leave out may only ever
//! cost time, never change an answer.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerRule;
use datafusion::optimizer::eliminate_limit::EliminateLimit;
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::push_down_limit::PushDownLimit;
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_coop::EnsureCooperative;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use functions::trees::PlanTree;

use crate::memberships::Guarded;

/// A state that plans only what [`is_chain`] accepts, in one partition.
pub fn short_state(full: &SessionState) -> SessionState {
    let mut config = full.config().clone().with_target_partitions(1);
    // Each rule finds its work done by those before it: they are in that order.
    config.options_mut().optimizer.max_passes = 1;
    let logical: Vec<Arc<dyn OptimizerRule + Send + Sync>> = vec![
        Arc::new(Guarded(Arc::new(SimplifyExpressions::new()))),
        Arc::new(ReplaceDistinctWithAggregate::new()),
        Arc::new(PushDownLimit::new()),
        // A sort that keeps no row panics. Two limits may be one of no row only once they are one.
        Arc::new(EliminateLimit::new()),
        Arc::new(PushDownFilter::new()),
        Arc::new(OptimizeProjections::new()),
    ];
    let physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = vec![
        Arc::new(OutputRequirements::new_add_mode()),
        Arc::new(EnsureRequirements::new()),
        Arc::new(CombinePartialFinalAggregate::new()),
        Arc::new(OutputRequirements::new_remove_mode()),
        Arc::new(EnsureCooperative::new()),
        Arc::new(SanityCheckPlan::new()),
    ];
    SessionStateBuilder::new_from_existing(full.clone())
        .with_config(config)
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .build()
}

/// Whether a plan is one table, or none, read by a chain of operators with nothing beside it: no
/// join, no union, no subquery.
pub fn is_chain(plan: &LogicalPlan) -> Result<bool> {
    let mut chain = true;
    plan.visit_all(&mut |node| {
        chain &= matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::EmptyRelation(_)
        );
        Ok(if chain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(chain)
}
