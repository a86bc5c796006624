//! Regions that move, nodes that die or fall mute, clients that leave.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use arrow_flight::FlightClient;
use binder::QueryContext;
use futures::TryStreamExt;
use mpp::error::MppCode;
use mpp::ticket::Asked;
use placement::api::NodeReport;
use serde_json::json;
use types::{SnapshotToken, Timestamp};

use crate::cluster::{info, query, refusal, shown};
use crate::data::{cluster, wide_cluster};

const COUNT: &str = "SELECT COUNT(*), MIN(id), MAX(id) FROM orders";

#[tokio::test(flavor = "multi_thread")]
async fn a_split_region_is_planned_again() {
    let cluster = cluster().await;
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
    let requests = cluster.placement.0.lock().requests;
    cluster.split(12, 702, 250, 790);
    // The coordinator still believes in one region, learns otherwise, and asks placement.
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
    assert!(cluster.placement.0.lock().requests > requests, "it did not request them again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_an_error_or_another_replica() {
    let mut cluster = cluster().await;
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
    // Node 13's only region is on node 12 too.
    cluster.nodes.get_mut(&13).unwrap().kill();
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
    // Node 12 alone has the customers.
    cluster.nodes.get_mut(&12).unwrap().kill();
    let begun = Instant::now();
    let (code, message) = refusal(query(&cluster, 11, "SELECT COUNT(*) FROM customers").await);
    assert_eq!(code, tonic::Code::Unavailable, "{message}");
    assert!(message.starts_with("ISOBAR-UNAVAILABLE"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mute_node_is_an_error_soon() {
    let cluster = cluster().await;
    // It accepts connections, in the kernel, and never says anything.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    for node in &mut cluster.placement.0.lock().nodes {
        if node.id == 12 {
            node.rpc_address = mute.local_addr().unwrap().to_string();
        }
    }
    let engine = cluster.node(11).engine.clone();
    engine.refresh_nodes().await.unwrap();
    let begun = Instant::now();
    let (code, message) = refusal(query(&cluster, 11, "SELECT COUNT(*) FROM customers").await);
    println!("a mute node was an error after {:?}", begun.elapsed());
    assert_eq!(code, tonic::Code::Unavailable, "{message}");
    assert!(message.starts_with("ISOBAR-UNAVAILABLE"), "{message}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mute_node_is_left_out_where_another_one_holds_its_regions() {
    let cluster = cluster().await;
    assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
    // Node 13's only region is on node 12 too.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    for node in &mut cluster.placement.0.lock().nodes {
        if node.id == 13 {
            node.rpc_address = mute.local_addr().unwrap().to_string();
        }
    }
    cluster.node(11).engine.refresh_nodes().await.unwrap();
    let mut took = Vec::new();
    for _ in 0..4 {
        let begun = Instant::now();
        assert_eq!(query(&cluster, 11, COUNT).await.unwrap(), ["600|0|599"]);
        took.push(begun.elapsed());
    }
    println!("with a mute node: {took:?}");
    assert!(took[0] < Duration::from_millis(2_700), "{took:?}");
    assert!(took[1..].iter().all(|took| *took < Duration::from_millis(1_000)), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_below_the_safe_point_is_refused() {
    let cluster = cluster().await;
    let node = cluster.node(11);
    let context = QueryContext { database: "d".into(), ..QueryContext::default() };
    let read = async |ts| {
        let token = SnapshotToken { ts: Timestamp(ts), lease: 0 };
        let answer = node.engine.query(&Asked::Text(COUNT.into()), &context, token, None).await?;
        answer.batches.try_collect::<Vec<_>>().await
    };
    assert_eq!(shown(&read(1_000).await.unwrap()), ["600|0|599"]);
    cluster.placement.0.lock().floor = Timestamp(1_001);
    node.placement.heartbeat(11, NodeReport::default(), Vec::new()).await.unwrap();
    let refused = read(1_000).await.unwrap_err();
    assert_eq!(refused.code, MppCode::SnapshotTooOld, "{refused}");
    assert_eq!(shown(&read(1_001).await.unwrap()), ["600|0|599"]);
}

/// Waits until the count of batches stands still, and returns it.
async fn settled(read: impl Fn() -> u64) -> u64 {
    let mut last = read();
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = read();
        if now == last {
            return now;
        }
        last = now;
    }
    panic!("the scan does not end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_stops_the_scan() {
    let rows = 400_000;
    let cluster = wide_cluster(rows).await;
    let reader = cluster.node(11).reader.clone();
    let commands =
        [json!({ "scan": { "database": "d", "table": "wide", "columns": ["id", "pad"] } })];
    for command in commands {
        let mut client: FlightClient = cluster.client(11).await;
        let found = info(&mut client, command.clone()).await.unwrap();
        let before = reader.batches_read();
        let mut stream = client.do_get(found.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        assert!(stream.try_next().await.unwrap().is_some());
        // A client that does not read holds the scan back …
        let held = settled(|| reader.batches_read()).await - before;
        drop((stream, client));
        // … and one that is gone ends it.
        let read = settled(|| reader.batches_read()).await - before;
        let all = rows as u64 / 8_192;
        println!("{held} batches read ahead, {read} when left, of {all}");
        assert!(read < all * 3 / 4, "{command}: {read} of {all} batches were read");
    }
}
