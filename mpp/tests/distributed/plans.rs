//! The verifier: plans in which a region is missing, doubled, foreign or misplaced must not pass.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::DistributedLeafExec;
use mpp::scan::ColumnarScanExec;
use mpp::scan_spec::ScanSpec;
use mpp::verifier::{check, verify, verify_at_home};
use types::{Epoch, NodeId, RegionId, Timestamp};

use crate::data::orders_table;

fn scan(regions: &[(RegionId, NodeId)], node: Option<NodeId>) -> ColumnarScanExec {
    let epoch = Epoch { version: 1, conf: 1 };
    ColumnarScanExec::try_new(ScanSpec {
        table: Arc::new(orders_table()),
        projection: vec![0],
        regions: regions.iter().map(|(id, node)| (*id, epoch, *node)).collect(),
        node,
        ts: Timestamp(300),
        rows: 10,
        bytes: 10,
        prune: Vec::new(),
    })
    .unwrap()
}

type Task<'a> = (NodeId, &'a [(RegionId, NodeId)]);

fn tasks(tasks: &[Task<'_>]) -> Vec<Arc<dyn ExecutionPlan>> {
    tasks.iter().map(|(node, regions)| Arc::new(scan(regions, Some(*node))) as _).collect()
}

#[test]
fn only_plans_that_read_each_region_once_and_at_home_pass() {
    let whole = scan(&[(1, 11), (2, 11), (3, 12)], None);
    check(&whole, &tasks(&[(11, &[(1, 11), (2, 11)]), (12, &[(3, 12)]), (13, &[])])).unwrap();
    let wrong: [(&[Task<'_>], &str); 5] = [
        (&[(11, &[(1, 11)]), (12, &[(3, 12)])], "region 2 of orders is not scanned"),
        (
            &[(11, &[(1, 11), (2, 11), (2, 11)]), (12, &[(3, 12)])],
            "region 2 of orders is scanned twice",
        ),
        (
            &[(11, &[(1, 11), (2, 11)]), (12, &[(3, 12), (2, 12)])],
            "region 2 of orders is scanned twice",
        ),
        (&[(11, &[(1, 11), (2, 11), (3, 12)]), (12, &[])], "away from its node 12"),
        (
            &[(11, &[(1, 11), (2, 11)]), (12, &[(3, 12), (4, 12)])],
            "region 4 is scanned but not part",
        ),
    ];
    for (variants, reason) in wrong {
        let variants = tasks(variants);
        let message = check(&whole, &variants).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
        // And as part of a plan.
        let leaf = DistributedLeafExec::try_new(
            Arc::new(scan(&[(1, 11), (2, 11), (3, 12)], None)),
            variants,
        );
        let plan: Arc<dyn ExecutionPlan> = Arc::new(leaf.unwrap());
        assert!(verify(&plan).unwrap_err().to_string().contains(reason));
    }
}

#[test]
fn a_plan_for_one_node_has_every_region_there() {
    let plan = |regions: &[(RegionId, NodeId)]| -> Arc<dyn ExecutionPlan> {
        Arc::new(scan(regions, None))
    };
    assert_eq!(verify_at_home(&plan(&[(1, 11), (2, 11)]), 11).unwrap(), 1);
    for (regions, home, reason) in [
        (&[(1, 11), (2, 12)], 11, "region 2 of orders is not scanned"),
        (&[(1, 11), (1, 11)], 11, "scanned twice"),
        (&[(1, 11), (2, 11)], 12, "is not scanned"),
    ] {
        let message = verify_at_home(&plan(regions), home).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
    let whole = scan(&[(1, 11)], None);
    let leaf = DistributedLeafExec::try_new(Arc::new(whole), tasks(&[(11, &[(1, 11)])])).unwrap();
    let message = verify_at_home(&(Arc::new(leaf) as _), 11).unwrap_err().to_string();
    assert!(message.contains("cut into tasks"), "{message}");
}

#[test]
fn a_scan_that_was_not_pinned_does_not_pass() {
    let plan: Arc<dyn ExecutionPlan> = Arc::new(scan(&[(1, 11)], None));
    assert!(verify(&plan).unwrap_err().to_string().contains("was not split into tasks"));
}
