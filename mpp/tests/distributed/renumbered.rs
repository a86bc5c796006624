//! A columnar node that came back without its disk, under a new number at its old address.

use datafusion::error::DataFusionError;
use mpp::error::MppError;

use crate::cluster::{Cluster, query, refusal};
use crate::data::cluster;

const COUNT: &str = "SELECT COUNT(*) FROM customers";

/// Gives a node another number, in what placement knows alone.
fn renumber(cluster: &Cluster, from: u64, to: u64) {
    let known = &mut *cluster.placement.0.lock();
    for node in known.nodes.iter_mut().filter(|node| node.id == from) {
        node.id = to;
    }
    for learner in known.routes.iter_mut().flat_map(|route| route.ready_learners.iter_mut()) {
        if *learner == from {
            *learner = to;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_names_a_number_that_is_gone_is_made_anew() {
    let cluster = cluster().await;
    let right = query(&cluster, 11, COUNT).await.unwrap();
    // The coordinator comes to know of a node 99, which is not who answers there.
    renumber(&cluster, 12, 99);
    cluster.node(11).engine.refresh_nodes().await.unwrap();
    let (_, message) = refusal(query(&cluster, 11, COUNT).await);
    assert!(message.starts_with("ISOBAR-STALE_REGION"), "{message}");
    assert!(message.contains("node 99"), "{message}");
    // Placement knows better now; the coordinator finds out by the plan that fails.
    renumber(&cluster, 99, 12);
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), right);
}

/// Seen when a columnar node was emptied under queries: the client got 1105, and nobody tried again.
#[test]
fn a_worker_whose_coordinator_is_gone_is_a_reason_to_plan_anew() {
    let words = "Worker::execute_task timed-out while waiting for the plan to be set by the coordinator. \
                 (timed out waiting for value)";
    let error = MppError::from(DataFusionError::Execution(words.to_owned()));
    assert!(error.code.is_retryable(), "{error}");
}
