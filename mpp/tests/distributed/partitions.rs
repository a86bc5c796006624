//! Scans executed by partition: in any order, again, at the same time, and given up.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use mpp::scan::{ColumnarScanExec, PARTITIONS};
use mpp::scan_spec::ScanSpec;
use types::{Epoch, Timestamp};

use crate::cluster::shown;
use crate::data::{cluster, orders_table};

/// The regions of `orders` that node 11 holds: 0 to 99, and 400 to 449.
fn plan() -> ColumnarScanExec {
    let epoch = Epoch { version: 1, conf: 1 };
    ColumnarScanExec::try_new(ScanSpec {
        table: Arc::new(orders_table()),
        projection: vec![0],
        regions: [700, 701, 703].map(|id| (id, epoch, 11)).to_vec(),
        node: Some(11),
        ts: Timestamp(300),
        rows: 150,
        bytes: 150,
        prune: Vec::new(),
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_reads_the_same_rows_however_often_it_is_executed() {
    let cluster = cluster().await;
    let config = SessionConfig::new().with_extension(cluster.node(11).reader.clone());
    let context = Arc::new(TaskContext::default().with_session_config(config));
    let read = async |plan: &ColumnarScanExec, partition: usize| {
        let batches = plan.execute(partition, context.clone()).unwrap();
        shown(&batches.try_collect::<Vec<_>>().await.unwrap())
    };
    let mut expected: Vec<String> = (0..100).chain(400..450).map(|id| id.to_string()).collect();
    expected.sort();

    let first = plan();
    let (zero, one) = (read(&first, 0).await, read(&first, 1).await);
    assert!(!zero.is_empty() && !one.is_empty(), "{} and {} rows", zero.len(), one.len());
    let mut both = [zero.clone(), one.clone()].concat();
    both.sort();
    assert_eq!(both, expected);
    // One of them more often than the other.
    for partition in [1, 1, 0, 1, 0, 0] {
        assert_eq!(read(&first, partition).await, [&zero, &one][partition].clone());
    }

    // The last one comes first; one is given up, before and after its first batch.
    let second = plan();
    assert_eq!(read(&second, 1).await, one);
    drop(second.execute(0, context.clone()).unwrap());
    let mut begun = second.execute(0, context.clone()).unwrap();
    assert!(begun.try_next().await.unwrap().is_some());
    drop(begun);
    assert_eq!(read(&second, 0).await, zero);

    // All at the same time, some twice.
    let third = plan();
    let (a, b, c, d) =
        tokio::join!(read(&third, 0), read(&third, 1), read(&third, 1), read(&third, 0));
    assert_eq!([a, b, c, d], [zero.clone(), one.clone(), one, zero]);

    let beyond = third.execute(PARTITIONS, context.clone()).unwrap();
    let error = beyond.try_collect::<Vec<_>>().await.unwrap_err().to_string();
    assert!(error.contains("partition 2 of a scan in 2"), "{error}");
}
