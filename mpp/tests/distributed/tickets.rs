//! Log-in, tickets and leases: what is taken and what is refused.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{ProstMessageExt as _, TicketStatementQuery};
use arrow_flight::{Action, Ticket as FlightTicket};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use env::{Clock, RealClock};
use futures::TryStreamExt;
use mpp::auth::{BEARER_TTL_MS, bearer};
use mpp::ticket::Ticket;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::{Code, Request};

use crate::cluster::{Cluster, KEY, ROOT, channel, client_of, get, info, query, refusal, shown};
use crate::data::{CUSTOMERS, ORDERS, cluster, cluster_at};

fn customers() -> Value {
    json!({ "scan": { "database": "d", "table": "customers", "columns": ["cid"] } })
}

/// A ticket for `customers`, and its snapshot.
async fn ticket(cluster: &Cluster) -> (FlightTicket, String) {
    let found = info(&mut cluster.client(11).await, customers()).await.unwrap();
    let metadata: Value = serde_json::from_slice(&found.app_metadata).unwrap();
    let ticket = found.endpoint[0].ticket.clone().unwrap();
    (ticket, metadata["snapshot"].as_str().unwrap().to_owned())
}

fn location(cluster: &Cluster, node: u64) -> String {
    format!("grpc://{}", cluster.node(node).flight)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_gives_a_bearer_that_every_node_takes() {
    let cluster = cluster().await;
    let mut raw = FlightServiceClient::new(channel(&location(&cluster, 11)).await);
    let mut request = Request::new(futures::stream::empty());
    request.metadata_mut().insert("authorization", ROOT.parse().unwrap());
    let response = raw.handshake(request).await.unwrap();
    let header = response.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
    assert!(header.starts_with("Bearer "));
    let mut other = client_of(&location(&cluster, 13), &header).await;
    info(&mut other, customers()).await.unwrap();

    for wrong in ["Basic cm9vdDp4", "Basic !", "Bearer a.b", "Digest x"] {
        let mut client = client_of(&location(&cluster, 13), wrong).await;
        let (code, message) = refusal(info(&mut client, customers()).await);
        assert_eq!(code, Code::Unauthenticated, "{wrong}");
        assert!(message.starts_with("ISOBAR-UNAUTHENTICATED"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_outlives_the_log_in_that_fetched_it() {
    let cluster = cluster().await;
    let (ticket, _) = ticket(&cluster).await;
    let long_ago = RealClock::new().unix_millis() - 2 * BEARER_TTL_MS;
    let ended = format!("Bearer {}", bearer("root", &KEY, long_ago).unwrap());
    let forged = format!("Bearer {}", bearer("root", &[1; 32], long_ago).unwrap());
    let location = location(&cluster, 12);
    let mut client = client_of(&location, &ended).await;
    assert_eq!(refusal(info(&mut client, customers()).await).0, Code::Unauthenticated);
    assert_eq!(shown(&get(&mut client, ticket.clone()).await.unwrap().1).len(), 25);
    let mut client = client_of(&location, &forged).await;
    assert_eq!(refusal(get(&mut client, ticket).await).0, Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_replayed_but_not_forged_nor_late() {
    let cluster = cluster().await;
    let (ticket, _) = ticket(&cluster).await;
    let mut client = cluster.client(12).await;
    for _ in 0..2 {
        assert_eq!(shown(&get(&mut client, ticket.clone()).await.unwrap().1).len(), 25);
    }
    for at in 0..ticket.ticket.len() {
        let mut bytes = ticket.ticket.to_vec();
        bytes[at] ^= 1;
        let (code, message) = refusal(get(&mut client, FlightTicket::new(bytes)).await);
        assert_eq!(code, Code::PermissionDenied);
        assert!(message.starts_with("ISOBAR-TICKET_FORGED"), "{message}");
    }
    let mut late = Ticket::open(&ticket.ticket, &KEY, 0).unwrap();
    late.expires_ms = RealClock::new().unix_millis() - 1;
    let late = FlightTicket::new(late.seal(&KEY).unwrap());
    let (code, message) = refusal(get(&mut client, late).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.starts_with("ISOBAR-TICKET_EXPIRED"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_of_another_version_is_refused_by_name() {
    let cluster = cluster().await;
    let (ticket, _) = ticket(&cluster).await;
    let mut client = cluster.client(12).await;
    let body = ticket.ticket.len() - 16;
    let mut old = ticket.ticket[..body].to_vec();
    old[0] = 1;
    let tag = types::token::sign(&KEY, &old);
    old.extend_from_slice(&tag);
    let (code, message) = refusal(get(&mut client, FlightTicket::new(old)).await);
    assert_eq!(code, Code::InvalidArgument);
    let named = "ISOBAR-INVALID: this ticket is of format 1, and this node reads formats 2 and 3";
    assert!(message.starts_with(named), "{message}");
    let long = FlightTicket::new(vec![2; (16 << 20) + 1]);
    assert!(get(&mut client, long).await.is_err());
}

/// Nodes of cluster version 1 read format 2, in which a query is its text.
#[tokio::test(flavor = "multi_thread")]
async fn tickets_are_of_the_format_that_every_node_of_the_cluster_reads() {
    let count = json!({ "sql": { "query": "SELECT COUNT(*) FROM customers", "database": "d" } });
    for (version, of_scans, of_queries) in [(1, 2, 2), (2, 2, 3)] {
        let cluster = cluster_at(version).await;
        let mut client = cluster.client(11).await;
        for (command, format, rows) in [(customers(), of_scans, 25), (count.clone(), of_queries, 1)]
        {
            let found = info(&mut client, command).await.unwrap();
            let ticket = found.endpoint[0].ticket.clone().unwrap();
            assert_eq!(ticket.ticket[0], format, "version {version}");
            let mut other = cluster.client(12).await;
            assert_eq!(shown(&get(&mut other, ticket).await.unwrap().1).len(), rows);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_a_query_is_explained_by_its_ticket() {
    let cluster = cluster().await;
    let explained = async |ticket: &[u8]| {
        let body = json!({ "ticket": BASE64_STANDARD.encode(ticket) }).to_string();
        let mut client = cluster.client(12).await;
        let lines = client.do_action(Action::new("explain.ticket", body)).await?;
        let lines: Vec<_> = lines.try_collect().await?;
        Ok(serde_json::from_slice::<Vec<String>>(&lines.concat()).unwrap().join("\n"))
    };
    let command = json!({ "sql": { "query": "SELECT SUM(cid) FROM customers", "database": "d" } });
    let found = info(&mut cluster.client(11).await, command).await.unwrap();
    let mut of_query = found.endpoint[0].ticket.clone().unwrap().ticket.to_vec();
    let plan = explained(&of_query).await.unwrap();
    assert!(plan.contains("ColumnarScan"), "{plan}");
    let wrapped = TicketStatementQuery { statement_handle: of_query.clone().into() };
    assert_eq!(explained(&wrapped.as_any().encode_to_vec()).await.unwrap(), plan);
    of_query[9] ^= 1;
    assert_eq!(refusal(explained(&of_query).await).0, Code::PermissionDenied);
    let (of_scan, _) = ticket(&cluster).await;
    let (code, message) = refusal(explained(&of_scan.ticket).await);
    assert!(code == Code::InvalidArgument && message.contains("a scan's"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_ends_with_its_lease() {
    let cluster = cluster().await;
    let (ticket, snapshot) = ticket(&cluster).await;
    let mut client = cluster.client(12).await;
    get(&mut client, ticket.clone()).await.unwrap();
    let body = json!({ "snapshot": snapshot }).to_string();
    // Through another node, so that this one has to find out.
    let mut other = cluster.client(13).await;
    let released = other.do_action(Action::new("snapshot.release", body)).await.unwrap();
    released.try_collect::<Vec<_>>().await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (code, message) = refusal(get(&mut client, ticket).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.starts_with("ISOBAR-LEASE_LOST"), "{message}");
    let renew = json!({ "snapshot": snapshot, "ttl": "1m" }).to_string();
    let (_, message) =
        refusal(client.do_action(Action::new("snapshot.renew", renew)).await.map(drop));
    assert!(message.starts_with("ISOBAR-LEASE_LOST"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_exchange_their_names_are_never_taken_for_each_other() {
    let cluster = cluster().await;
    let command = json!({ "sql": { "query": "SELECT COUNT(*) FROM customers", "database": "d" } });
    for node in [11, 12, 13] {
        // Every node remembers a catalog from before.
        query(&cluster, node, "SELECT COUNT(*) FROM customers").await.unwrap();
    }
    let mut before = None;
    for round in 0..20 {
        cluster.alter(|tables| {
            for table in tables.iter_mut().filter(|t| ["orders", "customers"].contains(&&*t.name)) {
                let table = Arc::make_mut(table);
                table.version += 1;
                table.name = if table.name == "orders" { "customers" } else { "orders" }.into();
            }
        });
        let of = if round % 2 == 0 { ORDERS } else { CUSTOMERS };
        let found = info(&mut cluster.client(11).await, command.clone()).await.unwrap();
        let ticket = found.endpoint[0].ticket.clone().unwrap();
        // The other nodes know nothing of it yet.
        for node in [12, 13] {
            let mut client = cluster.client(node).await;
            let answer = get(&mut client, ticket.clone()).await.unwrap().1;
            assert_eq!(shown(&answer), [of.to_string()], "round {round}, node {node}");
            if let Some(before) = before.clone() {
                let (_, message) = refusal(get(&mut client, before).await);
                assert!(message.starts_with("ISOBAR-TABLE_CHANGED"), "{message}");
                assert!(message.contains("d.customers"), "{message}");
            }
        }
        before = Some(ticket);
    }
}
