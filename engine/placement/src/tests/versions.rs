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
    // Upkeep has had its rounds by the time that a heartbeat was held back.
    assert_eq!(versions(service).await, (1, vec![(1, Some(2)), (1_000, Some(1))]));
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
