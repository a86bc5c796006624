//! What the distributed planner cannot do by itself: a plan rule that it needs, and the queries
//! that it must not get.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
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
