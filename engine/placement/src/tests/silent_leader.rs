//! A leader whose process is stopped takes requests and answers none, while its group elects another one.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use types::Error;

use super::model::{Flaw, Model, group};
use crate::api::{CatalogChange, Request};
use crate::client::PlacementClient;
use crate::testing::InProcess;

fn address(node: u64) -> String {
    format!("127.0.0.1:{node}")
}

/// Three members, the first of which leads, and a client that has found it.
async fn cluster() -> (Arc<Model>, Arc<InProcess>, PlacementClient) {
    let (model, members) = group(3, 1, Flaw::None, true);
    let network = InProcess::new();
    for member in &members {
        network.attach(address(member.id), member.service.clone());
    }
    model.elect(1).unwrap();
    members.iter().for_each(|member| member.report_clock(&members));
    let client = PlacementClient::new(network.clone(), (1..=3).map(|n| (n, address(n))));
    client.timestamp().await.unwrap();
    // Upkeep of the next leader needs the clocks as well.
    tokio::spawn(async move {
        loop {
            members.iter().for_each(|member| member.report_clock(&members));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    (model, network, client)
}

#[tokio::test]
async fn a_silent_leader_is_left_once_another_one_leads_and_not_asked_again() {
    let (model, network, client) = cluster().await;
    network.hang(address(1));
    model.elect(2).unwrap();
    let begun = Instant::now();
    client.timestamp().await.unwrap();
    let first = begun.elapsed();
    assert!(first < Duration::from_millis(1_900), "the first answer took {first:?}");
    let received = network.received(&address(1)).len();
    for _ in 0..20 {
        client.timestamp().await.unwrap();
    }
    assert_eq!(network.received(&address(1)).len(), received, "the silent member is asked again");
}

#[tokio::test]
async fn a_silent_leader_is_waited_for_until_another_one_leads() {
    let (model, network, client) = cluster().await;
    network.hang(address(1));
    let waiting = tokio::spawn(async move { client.timestamp().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished(), "nobody else leads");
    model.elect(3).unwrap();
    let bound = tokio::time::timeout(Duration::from_secs(5), waiting);
    bound.await.expect("the new leader is found").unwrap().unwrap();
}

#[tokio::test]
async fn a_change_that_a_silent_leader_took_is_sent_once_and_its_outcome_is_unknown() {
    let (model, network, client) = cluster().await;
    network.hang(address(1));
    model.elect(2).unwrap();
    let begun = Instant::now();
    let change = CatalogChange::CreateDatabase("d".into());
    let outcome = client.change(change.clone()).await;
    let took = begun.elapsed();
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
    assert!(took < Duration::from_secs(10), "the leader that is gone was waited for: {took:?}");
    let sent = (1..=3).flat_map(|node| network.received(&address(node)));
    assert_eq!(sent.filter(|request| *request == Request::Change(change.clone())).count(), 1);
}

#[tokio::test]
async fn a_leader_that_is_only_slow_keeps_its_call() {
    let (_, network, client) = cluster().await;
    network.delay(address(1), Duration::from_millis(1_200));
    client.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
    let change = |request: &Request| matches!(request, Request::Change(_));
    let sent = (1..=3).flat_map(|node| network.received(&address(node)));
    assert_eq!(sent.filter(change).count(), 1);
}
