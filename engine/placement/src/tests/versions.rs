//! When the cluster's version rises, and whom that shuts out.

use std::time::Duration;

use types::{ClusterVersion, Error};

use super::model::{Flaw, group};
use crate::api::{Node, NodeReport, NodeRole, Request, Response, Session};
use crate::service::PlacementService;

fn register(node: u64) -> Request {
    let address = format!("127.0.0.1:{node}");
    let role = if node < 1_000 { NodeRole::Row } else { NodeRole::Sql };
    let node = Node { id: node, role, rpc_address: address, client_address: String::new() };
    Request::Register { node, session: Session::default() }
}

fn heartbeat(node: u64) -> Request {
    Request::Heartbeat { node, report: NodeReport::default(), peers: vec![] }
}

async fn versions(
    service: &PlacementService,
) -> (ClusterVersion, Vec<(u64, Option<ClusterVersion>)>) {
    match service.handle(Request::Versions).await {
        Response::Versions { cluster, nodes } => (cluster, nodes),
        other => panic!("{other:?}"),
    }
}

/// The versions once upkeep has had a round of it.
async fn raised(
    service: &PlacementService,
) -> (ClusterVersion, Vec<(u64, Option<ClusterVersion>)>) {
    service.raise_version(service.lead().unwrap()).await.unwrap();
    versions(service).await
}

#[tokio::test]
async fn the_version_rises_with_the_last_node_and_shuts_out_who_does_not_speak_it() {
    let (model, members) = group(1, 1, Flaw::None, true);
    model.elect(1).unwrap();
    members.iter().for_each(|member| member.report_clock(&members));
    let service = &members[0].service;
    for (node, speaks) in [(1_000, 1), (1, 2)] {
        assert_eq!(service.handle_from(speaks, register(node)).await, Response::Done);
        let answer = service.handle_from(speaks, heartbeat(node)).await;
        assert!(matches!(answer, Response::Orders { .. }), "{answer:?}");
    }
    assert_eq!(raised(service).await, (1, vec![(1, Some(2)), (1_000, Some(1))]));
    assert_eq!(service.handle_from(2, register(1_000)).await, Response::Done);
    let risen = async {
        while service.version() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), risen).await.unwrap();
    assert_eq!(versions(service).await, (2, vec![(1, Some(2)), (1_000, Some(2))]));
    for request in [register(1_000), heartbeat(1_000)] {
        let answer = service.handle_from(1, request).await;
        let Response::Failed(Error::Invalid(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("at version 2") && why.contains("up to 1"), "{why}");
    }
}

#[tokio::test]
async fn members_that_are_silent_and_processes_that_are_refused_do_not_raise_it() {
    let (model, members) = group(3, 1, Flaw::None, true);
    model.elect(1).unwrap();
    members.iter().for_each(|member| member.report_clock(&members));
    let service = &members[0].service;
    let columnar = |session: u64, port: u64| {
        let rpc_address = format!("127.0.0.1:{port}");
        let role = NodeRole::Columnar;
        let node = Node { id: 1_000, role, rpc_address, client_address: String::new() };
        Request::Register { node, session: Session { boot: 1, id: session, ..Session::default() } }
    };
    let report = NodeReport { session: Some(7), ..NodeReport::default() };
    let alive = Request::Heartbeat { node: 1_000, report, peers: vec![] };
    assert_eq!(service.handle_from(1, columnar(7, 1_000)).await, Response::Done);
    let answer = service.handle_from(1, alive.clone()).await;
    assert!(matches!(answer, Response::Orders { .. }), "{answer:?}");
    // A copy of its directories, elsewhere and with the next program.
    let answer = service.handle_from(2, columnar(8, 2_000)).await;
    assert!(matches!(answer, Response::Failed(_)), "{answer:?}");
    assert_eq!(service.handle_from(2, register(1)).await, Response::Done);
    assert_eq!(raised(service).await, (1, vec![(1, Some(2)), (1_000, Some(1))]));
    // All that are registered speak it, and two members of placement's group have not said so.
    assert!(matches!(service.handle_from(2, alive).await, Response::Orders { .. }));
    assert!(matches!(service.handle_from(2, heartbeat(1)).await, Response::Orders { .. }));
    assert_eq!(raised(service).await, (1, vec![(1, Some(2)), (1_000, Some(2))]));
    for node in [2, 3] {
        assert_eq!(service.handle_from(2, register(node)).await, Response::Done);
    }
    let risen = async {
        while service.version() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), risen).await.unwrap();
}
