//! What the distributed planner cannot do by itself: plan rules that it needs, and the queries that
//! it must not get.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::error::{DoorCode, DoorError, DoorResult};

/// Joins that the distributed planner runs as one task (`NOT IN`, FULL nested loops) would drag
/// the scans below them into that task, away from their regions. A coalesce below such a join is
/// where the planner cuts a stage, so the scans keep theirs.
#[derive(Debug)]
pub struct IsolateSingleTaskJoins;

impl PhysicalOptimizerRule for IsolateSingleTaskJoins {
    fn name(&self) -> &str {
        "IsolateSingleTaskJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let null_aware =
                node.downcast_ref::<HashJoinExec>().is_some_and(|join| join.null_aware);
            let full_loop = node
                .downcast_ref::<NestedLoopJoinExec>()
                .is_some_and(|join| *join.join_type() == JoinType::Full);
            if !null_aware && !full_loop {
                return Ok(Transformed::no(node));
            }
            let children = node
                .children()
                .into_iter()
                .map(|child| match child.output_partitioning().partition_count() {
                    0 | 1 => child.clone(),
                    _ => Arc::new(CoalescePartitionsExec::new(child.clone())) as _,
                })
                .collect();
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(node.replace_children(children, options)?))
        })
        .data()
    }
}

/// A window's input is not sorted by a key of PARTITION BY that equals another one, by a join, say.
/// Nobody knows that any more where the input comes from another node, and the window fails there:
/// so sorts name all of the keys.
#[derive(Debug)]
pub struct SortByWholePartitions;

impl PhysicalOptimizerRule for SortByWholePartitions {
    fn name(&self) -> &str {
        "SortByWholePartitions"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let bounded = node.downcast_ref::<BoundedWindowAggExec>().map(|w| w.window_expr());
            let windows = bounded.or_else(|| {
                node.downcast_ref::<WindowAggExec>().map(|window| window.window_expr())
            });
            let keys = windows.and_then(|all| all.first()).map_or(&[][..], |w| w.partition_by());
            let children = node.children();
            let sort = children.first().and_then(|child| child.downcast_ref::<SortExec>());
            let Some(sorted) = sort.and_then(|sort| sorted_by(sort, keys)) else {
                return Ok(Transformed::no(node));
            };
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Ok(Transformed::yes(node.replace_children(vec![Arc::new(sorted)], options)?))
        })
        .data()
    }
}

/// A sort by keys that it lacks, too, which are constant among rows of the same other keys.
fn sorted_by(sort: &SortExec, keys: &[Arc<dyn PhysicalExpr>]) -> Option<SortExec> {
    let is_known = |key: &&Arc<dyn PhysicalExpr>| sort.expr().iter().any(|by| by.expr.eq(*key));
    let (known, lacking): (Vec<_>, Vec<_>) = keys.iter().partition(is_known);
    if lacking.is_empty() {
        return None;
    }
    let mut order: Vec<PhysicalSortExpr> = sort.expr().iter().cloned().collect();
    let rest = order.split_off(known.len().min(order.len()));
    order.extend(lacking.into_iter().cloned().map(PhysicalSortExpr::new_default));
    order.extend(rest);
    let sorted = SortExec::new(LexOrdering::new(order)?, sort.input().clone());
    Some(sorted.with_preserve_partitioning(sort.preserve_partitioning()).with_fetch(sort.fetch()))
}

/// Refuses WITH RECURSIVE over tables: each round would have to run the other nodes' tasks again,
/// which streams that are read once cannot do.
pub fn refuse_recursion(plan: &LogicalPlan) -> DoorResult<()> {
    let mut name = None;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::RecursiveQuery(query) = node {
            name = Some(query.name.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match name {
        Some(name) => Err(DoorError::new(
            DoorCode::Unsupported,
            format!("WITH RECURSIVE {name} over tables is not run on columns: read rows"),
        )),
        None => Ok(()),
    }
}
