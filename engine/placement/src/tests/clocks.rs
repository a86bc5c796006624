//! Clocks that are wrong, marks that lie ahead of them, and a log that has gone back: the service over
//! the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use env::SimClock;
use parking_lot::Mutex;
use types::{Error, Result, Timestamp};

use super::model::{Flaw, Model, Node, group_with};
use crate::api::{self, Catalog, NodeReport, NodeRole, Request, Response};
use crate::client::{PlacementClient, PlacementTransport};
use crate::command::Command;
use crate::oracle::{AHEAD_MS, CLOCK_WAIT};

/// When the machines were started, in Unix milliseconds.
const START_MS: u64 = 1_767_225_600_000;
const WRONG_MS: u64 = 600_000;

/// Three members, of which these have clocks that are ten minutes ahead.
fn members(ahead: &[u64]) -> (Arc<Model>, Vec<Node>) {
    let clock = |node: u64| {
        let wrong = if ahead.contains(&node) { WRONG_MS } else { 0 };
        SimClock::new(1_000 * (START_MS + wrong))
    };
    group_with((1..=3).map(clock).collect(), 1, Flaw::None, false)
}

/// An answer; the model loses some, and every request here may be repeated.
async fn call(node: &Node, request: Request) -> Response {
    for _ in 0..20 {
        let answer = node.service.handle(request.clone()).await;
        if !matches!(answer, Response::Failed(Error::Timeout { .. })) {
            return answer;
        }
    }
    panic!("every answer was lost: {request:?}");
}

async fn timestamp(node: &Node) -> Result<Timestamp> {
    match call(node, Request::Timestamps { count: 1 }).await {
        Response::Timestamps { first, .. } => Ok(first),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn report_all(nodes: &[Node]) {
    nodes.iter().for_each(|node| node.report_clock(nodes));
}

fn pass(nodes: &[Node], time: Duration) {
    nodes.iter().for_each(|node| node.clock.advance(time));
}

/// Makes the nodes known.
async fn register(leader: &Node, nodes: &[Node]) {
    for node in nodes {
        let (rpc_address, client_address) = (String::new(), String::new());
        let node = api::Node { id: node.id, role: NodeRole::Row, rpc_address, client_address };
        let register = Request::Register { node, session: api::Session::default() };
        assert_eq!(call(leader, register).await, Response::Done);
    }
}

async fn heartbeat(to: &Node, node: u64, report: NodeReport) -> Response {
    to.service.handle(Request::Heartbeat { node, report, peers: Vec::new() }).await
}

#[tokio::test]
async fn a_leader_whose_clock_is_ahead_takes_nobody_along() {
    let (model, nodes) = members(&[1]);
    model.elect(1).unwrap();
    // Its own clock is no majority.
    let unknown = timestamp(&nodes[0]).await;
    assert!(matches!(unknown, Err(Error::Unavailable(_))), "{unknown:?}");
    nodes[1].report_clock(&nodes);
    let first = timestamp(&nodes[0]).await.unwrap();
    assert_eq!(first.physical_ms(), START_MS);
    report_all(&nodes);
    pass(&nodes, Duration::from_secs(60));
    let later = timestamp(&nodes[0]).await.unwrap();
    assert_eq!(later.physical_ms(), START_MS + 60_000);
    let high = nodes[0].service.view.read().high_water_ms;
    assert!(high <= START_MS + 60_000 + AHEAD_MS, "the window ends at {high}");
    // Its successor goes on, and so does time.
    model.elect(2).unwrap();
    let next = timestamp(&nodes[1]).await.unwrap();
    assert!(next > later);
    pass(&nodes, Duration::from_secs(1));
    assert!(timestamp(&nodes[1]).await.unwrap().physical_ms() >= next.physical_ms() + 500);
}

#[tokio::test]
async fn a_mark_far_ahead_neither_stops_time_nor_grows() {
    // Two of three are wrong, so they are right; then they are set.
    let (model, nodes) = members(&[1, 2]);
    model.elect(1).unwrap();
    report_all(&nodes);
    let far = timestamp(&nodes[0]).await.unwrap();
    assert_eq!(far.physical_ms(), START_MS + WRONG_MS);
    let (model, nodes) = {
        // The same log under machines whose clocks were set meanwhile.
        let high = nodes[0].service.view.read().high_water_ms;
        drop(model);
        let (model, fresh) = members(&[]);
        model.elect(1).unwrap();
        let extend = Command::ExtendWindow { until_ms: high };
        let term = fresh[0].service.lead().unwrap();
        // Committed, even if the answer is lost.
        _ = fresh[0].service.propose_in(term, extend).await;
        assert_eq!(fresh[0].service.view.read().high_water_ms, high);
        (model, fresh)
    };
    let ahead = |ts: Timestamp, passed: u64| ts.physical_ms() - (START_MS + passed);
    let mut lead = u64::MAX;
    let mut last = far;
    for round in 0..20 {
        // One leader after the other, some before they have any heartbeat.
        model.elect(1 + round % 3).unwrap();
        let node = &nodes[round as usize % 3];
        if round % 2 == 0 {
            report_all(&nodes);
        }
        let before = timestamp(node).await.unwrap();
        assert!(before > last);
        pass(&nodes, Duration::from_secs(6));
        last = timestamp(node).await.unwrap();
        // What a lock's age is measured by: it goes on, within a second and all the time.
        assert!(last.physical_ms() >= before.physical_ms() + 3_000, "{before} {last}");
        let now = ahead(last, 6_000 * (round + 1));
        assert!(now < lead, "round {round}: {now} ms ahead after {lead}");
        lead = now;
    }
    let status = nodes[1].service.handle(Request::Status).await;
    let Response::Status { time, .. } = status else { panic!("{status:?}") };
    // The last leader has no heartbeat of anybody.
    assert_eq!(time.ahead_ms, None);
    report_all(&nodes);
    let status = nodes[1].service.handle(Request::Status).await;
    let Response::Status { time, .. } = status else { panic!("{status:?}") };
    assert!(time.ahead_ms.unwrap() > 400_000, "{time:?}");
    assert_eq!(time.clocks, [(1, 0), (2, 0), (3, 0)]);
}

#[tokio::test]
async fn a_new_cluster_that_hears_nobody_goes_by_its_own_clock_after_a_while() {
    let (model, nodes) = members(&[]);
    model.elect(1).unwrap();
    assert!(timestamp(&nodes[0]).await.is_err());
    pass(&nodes, CLOCK_WAIT);
    let first = timestamp(&nodes[0]).await.unwrap();
    assert_eq!(first.physical_ms(), START_MS + CLOCK_WAIT.as_millis() as u64);
}

#[tokio::test]
async fn leases_last_as_long_as_they_said_under_a_leader_whose_clock_is_ahead() {
    let (model, nodes) = members(&[2]);
    model.elect(1).unwrap();
    report_all(&nodes);
    let take = Request::TakeLease { ts: None, ttl_ms: 120_000, owner: "a job".into() };
    let taken = call(&nodes[0], take).await;
    let Response::Lease(lease) = taken else { panic!("{taken:?}") };
    model.elect(2).unwrap();
    report_all(&nodes);
    let held = async || match call(&nodes[1], Request::Leases).await {
        Response::Leases(leases) => leases.len(),
        other => panic!("{other:?}"),
    };
    pass(&nodes, Duration::from_secs(119));
    assert_eq!(held().await, 1);
    let renew = Request::RenewLease { lease: lease.id, ttl_ms: 120_000 };
    assert!(matches!(call(&nodes[1], renew).await, Response::Lease(_)));
    pass(&nodes, Duration::from_secs(121));
    assert_eq!(held().await, 0);
}

#[tokio::test]
async fn a_lease_stands_when_the_third_clock_shows_that_the_second_was_behind() {
    // The third clock is ten minutes behind those of the others.
    let (model, nodes) = members(&[1, 2]);
    model.elect(1).unwrap();
    report_all(&nodes);
    let take = |owner: &str| Request::TakeLease { ts: None, ttl_ms: 120_000, owner: owner.into() };
    let taken = call(&nodes[0], take("before")).await;
    let Response::Lease(before) = taken else { panic!("{taken:?}") };
    model.elect(2).unwrap();
    nodes[2].report_clock(&nodes);
    let taken = call(&nodes[1], take("meanwhile")).await;
    let Response::Lease(meanwhile) = taken else { panic!("{taken:?}") };
    pass(&nodes, Duration::from_secs(100));
    for id in [before.id, meanwhile.id] {
        let renewed = call(&nodes[1], Request::RenewLease { lease: id, ttl_ms: 120_000 }).await;
        assert!(matches!(renewed, Response::Lease(_)), "{renewed:?}");
    }
    pass(&nodes, Duration::from_secs(30));
    report_all(&nodes);
    let Response::Leases(held) = call(&nodes[1], Request::Leases).await else { panic!() };
    let held: Vec<_> = held.iter().map(|lease| lease.id).collect();
    assert_eq!(held, [before.id, meanwhile.id]);
}

#[tokio::test]
async fn a_lease_lasts_though_it_was_taken_after_a_standstill_by_a_clock_that_is_behind() {
    let (model, nodes) = members(&[1, 2]);
    model.elect(1).unwrap();
    report_all(&nodes);
    timestamp(&nodes[0]).await.unwrap();
    // Nobody leads for some minutes; then the third clock is reported, which is ten minutes behind.
    pass(&nodes, Duration::from_secs(300));
    model.elect(2).unwrap();
    nodes[2].report_clock(&nodes);
    let take = Request::TakeLease { ts: None, ttl_ms: 120_000, owner: "a job".into() };
    let taken = call(&nodes[1], take).await;
    assert!(matches!(taken, Response::Lease(_)), "{taken:?}");
    pass(&nodes, Duration::from_secs(100));
    report_all(&nodes);
    let held = async || match call(&nodes[1], Request::Leases).await {
        Response::Leases(leases) => leases.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(held().await, 1, "it ended early");
    pass(&nodes, Duration::from_secs(21));
    assert_eq!(held().await, 0);
}

#[tokio::test]
async fn a_leader_below_a_timestamp_that_a_node_has_seen_stops_as_damaged() {
    for newest_applied in [false, true] {
        let (model, nodes) = members(&[]);
        model.elect(1).unwrap();
        report_all(&nodes);
        register(&nodes[0], &nodes).await;
        let given = timestamp(&nodes[0]).await.unwrap();
        let given_in = nodes[0].service.lead().unwrap();
        let term = model.elect(2).unwrap();
        report_all(&nodes);
        // What an earlier leader gave is no surprise, nor what this one gives.
        let newest = Some((given, given_in));
        let well = NodeReport { newest, newest_applied: Some(given), ..NodeReport::default() };
        assert!(matches!(heartbeat(&nodes[1], 3, well).await, Response::Orders { .. }));
        let own = timestamp(&nodes[1]).await.unwrap();
        let well = NodeReport { newest: Some((own, term)), ..NodeReport::default() };
        assert!(matches!(heartbeat(&nodes[1], 3, well).await, Response::Orders { .. }));
        // An hour of the log is gone.
        let seen = Timestamp::pack(given.physical_ms() + 3_600_000, 5);
        let report = match newest_applied {
            true => NodeReport { newest_applied: Some(seen), ..NodeReport::default() },
            false => NodeReport { newest: Some((seen, given_in)), ..NodeReport::default() },
        };
        assert!(matches!(heartbeat(&nodes[1], 3, report).await, Response::Orders { .. }));
        let refused = timestamp(&nodes[1]).await;
        let Err(Error::Corrupt(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("node 3 has seen") && text.contains(&seen.to_string()), "{text}");
        for request in [Request::Ids { count: 1 }, Request::Catalog { known: 0 }] {
            let refused = nodes[1].service.handle(request).await;
            assert!(matches!(refused, Response::Failed(Error::Corrupt(_))), "{refused:?}");
        }
        let status = nodes[1].service.handle(Request::Status).await;
        let Response::Status { time, .. } = status else { panic!("{status:?}") };
        assert_eq!(time.damage, Some(text));
    }
}

#[tokio::test]
async fn a_deposed_leader_that_hears_of_its_successors_timestamps_is_not_damaged() {
    let (model, nodes) = members(&[]);
    model.elect(1).unwrap();
    report_all(&nodes);
    register(&nodes[0], &nodes).await;
    timestamp(&nodes[0]).await.unwrap();
    // Until a majority without the first leader has voted: it does not know yet.
    loop {
        model.elect(1).unwrap();
        report_all(&nodes);
        model.elect(2).unwrap();
        if nodes[0].service.lead().is_ok() {
            break;
        }
    }
    let newest = Some((Timestamp::pack(START_MS + 3_600_000, 0), 99));
    let report = NodeReport { newest, ..NodeReport::default() };
    let answer = heartbeat(&nodes[0], 3, report).await;
    assert!(matches!(answer, Response::Failed(Error::NotLeader { .. } | Error::Timeout { .. })));
    model.elect(1).unwrap();
    report_all(&nodes);
    timestamp(&nodes[0]).await.unwrap();
}

/// A placement that gives one timestamp after the other, from a list.
struct Listed(Mutex<Vec<u64>>);

#[async_trait]
impl PlacementTransport for Listed {
    async fn call(&self, _: &str, _: Request) -> Result<Response> {
        let first = Timestamp(self.0.lock().remove(0));
        Ok(Response::Timestamps { first, catalog: 1, term: 7 })
    }
}

#[tokio::test]
async fn a_client_takes_no_timestamp_that_is_not_greater_than_those_before() {
    let listed = Arc::new(Listed(Mutex::new(vec![100, 101, 101, 50, 103])));
    let client = PlacementClient::new(listed, [(1, "127.0.0.1:1".to_owned())]);
    assert_eq!(client.timestamp().await, Ok((Timestamp(100), 1)));
    assert_eq!(client.timestamps(2).await, Ok((Timestamp(101), 1)));
    for _ in 0..2 {
        let refused = client.timestamp().await;
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
    assert_eq!(client.timestamp().await, Ok((Timestamp(103), 1)));
}

/// A placement whose first answer is held back until there is a permit.
struct Overtaken {
    listed: Listed,
    held: tokio::sync::Semaphore,
}

#[async_trait]
impl PlacementTransport for Overtaken {
    async fn call(&self, address: &str, request: Request) -> Result<Response> {
        let answer = self.listed.call(address, request).await;
        if matches!(&answer, Ok(Response::Timestamps { first: Timestamp(100), .. })) {
            self.held.acquire().await.unwrap().forget();
        }
        answer
    }
}

/// A timestamp, past those who wait for the batch before.
async fn one(client: &PlacementClient) -> Result<(Timestamp, u64)> {
    client.caller.timestamp_batch(vec![1]).await.map(|batch| (batch[0].0, batch[0].1))
}

#[tokio::test]
async fn an_answer_that_was_overtaken_counts_and_the_greatest_is_remembered() {
    let listed = Listed(Mutex::new(vec![100, 200, 150]));
    let placement = Arc::new(Overtaken { listed, held: tokio::sync::Semaphore::new(0) });
    let client = PlacementClient::new(placement.clone(), [(1, "127.0.0.1:1".to_owned())]);
    let first = tokio::spawn({
        let client = client.clone();
        async move { one(&client).await }
    });
    while !placement.listed.0.lock().starts_with(&[200]) {
        tokio::task::yield_now().await;
    }
    assert_eq!(one(&client).await, Ok((Timestamp(200), 1)));
    placement.held.add_permits(1);
    assert_eq!(first.await.unwrap(), Ok((Timestamp(100), 1)));
    let refused = client.timestamp().await;
    assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
}

/// Members that write down who was asked for timestamps by whom: of the second one, which leads, and of the first one,
/// which does not and may be lame.
struct Members {
    catalog: Catalog,
    lame: AtomicBool,
    given: AtomicU64,
    asked: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl PlacementTransport for Members {
    async fn call(&self, address: &str, request: Request) -> Result<Response> {
        let leads = address.ends_with('2');
        let what = match (request, leads) {
            (Request::Catalog { .. }, true) => {
                return Ok(Response::Catalog(Some(Box::new(self.catalog.clone()))));
            }
            (Request::TimestampsByProxy { .. }, false) => "proxy",
            (Request::TimestampsByProxy { .. }, true) => "leader as proxy",
            (Request::Timestamps { .. }, true) => "leader",
            _ => return Ok(Response::Failed(Error::NotLeader { region: 1, leader: Some(2) })),
        };
        self.asked.lock().push(what);
        if what == "proxy" && self.lame.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("it is stopping".into()));
        }
        let first = Timestamp(self.given.fetch_add(1, Ordering::Relaxed));
        Ok(Response::Timestamps { first, catalog: self.catalog.version, term: 7 })
    }
}

#[tokio::test]
async fn timestamps_come_by_a_proxy_where_that_is_set_and_works() {
    for (set, lame, expected) in [
        ("OFF", false, vec!["leader", "leader"]),
        ("ON", false, vec!["leader", "proxy"]),
        ("ON", true, vec!["leader", "proxy", "leader"]),
    ] {
        let name = "tidb_enable_tso_follower_proxy".to_owned();
        let globals = [(name, set.to_owned())].into_iter().collect();
        let catalog = Catalog { version: 3, globals, ..Catalog::default() };
        let (lame, given) = (AtomicBool::new(lame), AtomicU64::new(1));
        let members = Arc::new(Members { catalog, lame, given, asked: Mutex::default() });
        let addresses = [(1, "127.0.0.1:1".to_owned()), (2, "127.0.0.1:2".to_owned())];
        let client = PlacementClient::new(members.clone(), addresses);
        // Before it knows the catalog it knows of no setting.
        client.timestamp().await.unwrap();
        client.catalog().await.unwrap();
        client.timestamp().await.unwrap();
        assert_eq!(*members.asked.lock(), expected, "{set}");
    }
}
