//! Pins scan tasks to the nodes that own the regions: task *i* of every leaf stage runs on the
//! query's node *i*, in one canonical order.
//!
//! The distributed planner asks these handlers; where no scan is concerned they leave the answer
//! to its defaults.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedLeafExec, RouteTasksEvent,
    RouteTasksEventResponse, ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse,
};
use functions::trees::Tree;
use url::Url;

use crate::layout::Owner;
use crate::scan::ColumnarScanExec;

/// The nodes of one query, in the order of its tasks; at least two, the last repeated if need be.
#[derive(Clone, Debug)]
pub struct QueryNodes(Vec<Owner>);

impl QueryNodes {
    /// Pads a lone node: with a single task the planner would run the scan at the coordinator.
    pub fn new(mut nodes: Vec<Owner>) -> Self {
        if let [only] = nodes.as_slice() {
            nodes.push(only.clone());
        }
        QueryNodes(nodes)
    }

    /// Where tasks run.
    pub fn urls(&self) -> Vec<Url> {
        self.0.iter().map(|owner| owner.worker.clone()).collect()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// The node of a task, unless it only repeats the one before.
    fn distinct(&self, task: usize) -> Option<&Owner> {
        let owner = self.0.get(task)?;
        let repeated = self.0.iter().take(task).any(|other| other.node == owner.node);
        (!repeated).then_some(owner)
    }
}

/// Leaves that carry rows of their own (VALUES) and can run anywhere, once.
fn is_foreign_leaf(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.children().is_empty()
        && plan.downcast_ref::<ColumnarScanExec>().is_none()
        && plan.downcast_ref::<DistributedLeafExec>().is_none()
}

/// Every leaf wants one task for each node of the query.
pub fn desired(event: DesiredTaskCountEvent<'_>) -> Option<Result<DesiredTaskCountEventResponse>> {
    let nodes = event.session_config.get_extension::<QueryNodes>()?;
    let scan = event.plan.downcast_ref::<ColumnarScanExec>().is_some();
    (scan || is_foreign_leaf(event.plan))
        .then(|| Ok(DesiredTaskCountEventResponse::desired(nodes.len())))
}

/// Splits a leaf into its tasks' variants.
pub fn scale_up(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let nodes = event.session_config.get_extension::<QueryNodes>()?;
    let respond = |variants: Result<Vec<Arc<dyn ExecutionPlan>>>| {
        let leaf = variants.and_then(|all| DistributedLeafExec::try_new(event.plan.clone(), all));
        Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
    };
    if let Some(scan) = event.plan.downcast_ref::<ColumnarScanExec>() {
        if event.task_count < nodes.len() {
            return Some(exec_err!(
                "a stage was capped to {} tasks but its scan of {} needs {}",
                event.task_count,
                scan.spec().table.name,
                nodes.len()
            ));
        }
        return respond((0..event.task_count).map(|task| variant(scan, &nodes, task)).collect());
    }
    if is_foreign_leaf(event.plan) {
        let empty = Arc::new(
            EmptyExec::new(event.plan.schema())
                .with_partitions(event.plan.properties().partitioning.partition_count()),
        );
        return respond(Ok((0..event.task_count)
            .map(|task| if task == 0 { event.plan.clone() } else { empty.clone() as _ })
            .collect()));
    }
    None
}

/// Task `task`'s share of a scan: the regions of its node, or none for a padded task.
fn variant(
    scan: &ColumnarScanExec,
    nodes: &QueryNodes,
    task: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let scan = match nodes.distinct(task) {
        Some(owner) => scan.on_node(owner.node)?,
        None => {
            let node = nodes.0.get(task.min(nodes.len() - 1)).map(|owner| owner.node);
            let mut spec = scan.spec().clone();
            (spec.regions, spec.rows, spec.bytes, spec.node) = (vec![], 0, 0, node);
            ColumnarScanExec::try_new(spec)?
        }
    };
    Ok(Arc::new(scan))
}

/// Stages that hold a scan run where its regions are; others run where the planner likes.
pub fn route(event: RouteTasksEvent<'_>) -> Option<Result<RouteTasksEventResponse>> {
    let nodes = event.task_ctx.session_config().get_extension::<QueryNodes>()?;
    let mut tasks = None;
    let walk = event.plan.visit_each(&mut |node| {
        if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>()
            && leaf.original().downcast_ref::<ColumnarScanExec>().is_some()
        {
            let count = leaf.variants().len();
            if tasks.is_some_and(|other| other != count) {
                return exec_err!("two scans of one stage disagree on their tasks");
            }
            tasks = Some(count);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    if let Err(error) = walk {
        return Some(Err(error));
    }
    let urls = nodes.urls();
    tasks.map(|count| {
        let last = urls.len().saturating_sub(1);
        let routed = (0..count).filter_map(|task| urls.get(task.min(last)).cloned()).collect();
        Ok(RouteTasksEventResponse::new(routed))
    })
}
