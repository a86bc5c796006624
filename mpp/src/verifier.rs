//! Proves of a final plan that it reads every region exactly once, where its data is.
//!
//! A distributed plan that forgets or doubles a region gives a wrong answer without any error, so
//! no plan runs before this has walked it.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::{DistributedLeafExec, NetworkBoundaryExt};
use functions::trees::Tree;
use types::{NodeId, RegionId};

use crate::error::{MppCode, MppError};
use crate::scan::ColumnarScanExec;

fn fault(text: String) -> DataFusionError {
    MppError::new(MppCode::Invalid, format!("the planner made a wrong plan: {text}")).into()
}

/// Walks a plan, through its stages, and checks each scan that was split into tasks.
pub fn verify(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut scans = 0;
    walk(plan, &mut scans)?;
    Ok(scans)
}

/// Walks a plan that runs on one node alone: its scans are whole, and every region is there.
pub fn verify_at_home(plan: &Arc<dyn ExecutionPlan>, home: NodeId) -> Result<usize> {
    let mut scans = 0;
    plan.visit_each(&mut |node| {
        if node.downcast_ref::<DistributedLeafExec>().is_some()
            || node.as_network_boundary().is_some()
        {
            return Err(fault("a plan for one node was cut into tasks for several".to_owned()));
        }
        if let Some(scan) = node.downcast_ref::<ColumnarScanExec>() {
            // As the one task of a distributed scan would be.
            check(scan, &[Arc::new(scan.on_node(home)?)])?;
            scans += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(scans)
}

fn walk(plan: &Arc<dyn ExecutionPlan>, scans: &mut usize) -> Result<()> {
    plan.visit_each(&mut |node| {
        if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
            if let Some(original) = leaf.original().downcast_ref::<ColumnarScanExec>() {
                check(original, leaf.variants())?;
                *scans += 1;
            }
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(scan) = node.downcast_ref::<ColumnarScanExec>() {
            return Err(fault(format!(
                "the scan of {} was not split into tasks for its regions' nodes",
                scan.spec().table.name
            )));
        }
        if let Some(boundary) = node.as_network_boundary()
            && let Some(input) = boundary.input_stage().local_plan()
        {
            walk(input, scans)?;
            return Ok(TreeNodeRecursion::Jump);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Each region of `original` in exactly one variant, on its own node, in the node's own task.
pub fn check(original: &ColumnarScanExec, variants: &[Arc<dyn ExecutionPlan>]) -> Result<()> {
    let spec = original.spec();
    let mut seen: BTreeMap<RegionId, NodeId> = BTreeMap::new();
    for variant in variants {
        let Some(scan) = variant.downcast_ref::<ColumnarScanExec>() else {
            return Err(fault(format!("a task of the scan of {} is no scan", spec.table.name)));
        };
        for (region, _, node) in &scan.spec().regions {
            if scan.spec().node != Some(*node) {
                return Err(fault(format!("region {region} is scanned away from its node {node}")));
            }
            if let Some(other) = seen.insert(*region, *node) {
                return Err(fault(format!(
                    "region {region} of {} is scanned twice, on nodes {other} and {node}",
                    spec.table.name
                )));
            }
        }
    }
    for (region, ..) in &spec.regions {
        if seen.remove(region).is_none() {
            return Err(fault(format!("region {region} of {} is not scanned", spec.table.name)));
        }
    }
    match seen.pop_first() {
        Some((region, _)) => {
            Err(fault(format!("region {region} is scanned but not part of {}", spec.table.name)))
        }
        None => Ok(()),
    }
}
