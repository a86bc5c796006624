//! A plan rule that makes joins give way.
//!
//! A join makes many batches of one that it reads, and what sits above it, say a count, takes them
//! all without ever waiting. Such a task cannot be cancelled: its client leaves and it goes on for
//! minutes. Only where work is multiplied is the rule needed; scans and exchanges give way anyhow.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use functions::trees::Tree;

/// Puts every join under tokio's budget, after which a task yields.
#[derive(Debug)]
pub(crate) struct YieldingJoins;

impl PhysicalOptimizerRule for YieldingJoins {
    fn name(&self) -> &str {
        "YieldingJoins"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.map_up(&mut |node| match multiplies(node.as_ref()) {
            true => Ok(Transformed::yes(Arc::new(CooperativeExec::new(node)) as _)),
            false => Ok(Transformed::no(node)),
        })
        .data()
    }
}

/// Whether a batch read may become any number of batches.
fn multiplies(node: &dyn ExecutionPlan) -> bool {
    node.downcast_ref::<NestedLoopJoinExec>().is_some()
        || node.downcast_ref::<CrossJoinExec>().is_some()
        || node.downcast_ref::<HashJoinExec>().is_some()
        || node.downcast_ref::<SortMergeJoinExec>().is_some()
}
