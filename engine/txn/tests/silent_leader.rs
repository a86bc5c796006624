//! A region's leader whose process is stopped takes requests and answers none, whether it carries them out or not,
//! while its group elects another one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use placement::api::Route;
use support::{Faults, Known, Link, World, record, table};
use tokio::time::Instant;
use txn::api::{Request, Response};
use txn::{Directory, RowTransport, TxnClient};
use types::{Error, NodeId, Peer, PeerRole, RegionId, RegionKind, Result, Timestamp};

/// Three voters in front of one store: what one of them has carried out, its successors have.
struct Group {
    link: Arc<Link>,
    leader: AtomicU64,
    /// Node 1 falls silent when the first such request comes.
    stops_at: fn(&Request) -> bool,
    /// Whether it carries out what comes then.
    carries_out: bool,
    stopped: AtomicBool,
    /// Its successor leads, and does nothing.
    in_vain: bool,
    /// Who leads once it has stopped, after a while.
    successor: NodeId,
    /// Milliseconds that an answer takes.
    slow: AtomicU64,
    log: Mutex<Vec<(NodeId, Request)>>,
}

impl Group {
    fn new(link: Arc<Link>, carries_out: bool, stops_at: fn(&Request) -> bool) -> Arc<Self> {
        Arc::new(Group {
            link,
            leader: AtomicU64::new(1),
            stops_at,
            carries_out,
            stopped: AtomicBool::new(false),
            in_vain: false,
            successor: 2,
            slow: AtomicU64::new(0),
            log: Mutex::default(),
        })
    }

    /// Requests to a node, without looks.
    fn requests_to(&self, node: NodeId) -> usize {
        let log = self.log.lock();
        let real = |(at, request): &&(NodeId, Request)| {
            *at == node && !matches!(request, Request::Leader { .. })
        };
        log.iter().filter(real).count()
    }
}

struct To(Arc<Group>);

#[async_trait]
impl RowTransport for To {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        let group = &self.0;
        group.log.lock().push((node, request.clone()));
        let stops = (group.stops_at)(&request);
        if node == 1 && stops && !group.stopped.swap(true, SeqCst) {
            let group = group.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(600)).await;
                group.leader.store(group.successor, SeqCst);
            });
        }
        if group.stopped.load(SeqCst) && node == 1 {
            if group.carries_out {
                let _ = group.link.call(1, request).await;
            }
            return std::future::pending().await;
        }
        let leader = group.leader.load(SeqCst);
        if let Request::Leader { .. } = request {
            return Ok(Response::Leader { leader: Some(leader), term: leader });
        }
        if node != leader {
            let region = 100;
            return Ok(Response::Failed(Error::NotLeader { region, leader: Some(leader) }));
        }
        if group.in_vain && group.stopped.load(SeqCst) {
            return Err(Error::Unavailable("it has no majority".into()));
        }
        tokio::time::sleep(Duration::from_millis(group.slow.load(SeqCst))).await;
        group.link.call(1, request).await
    }
}

/// A directory that names three voters, of which node 1 leads.
struct Voters(Known);

#[async_trait]
impl Directory for Voters {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.0.timestamp().await
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        let mut route = self.0.locate(key).await?;
        let peer = |node| Peer { id: 1_000 + node, node, role: PeerRole::Voter };
        route.region.peers = (1..=3).map(peer).collect();
        Ok(route)
    }

    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.0.regions(kind).await
    }

    fn forget(&self, _: RegionId) {}
}

fn cluster() -> (Arc<World>, Voters) {
    let world = World::new(1, 1, &["m"], Faults::default());
    world.tick.store(100, SeqCst);
    (world.clone(), Voters(Known(world)))
}

fn is_get(request: &Request) -> bool {
    matches!(request, Request::Get { .. })
}

fn is_prewrite(request: &Request) -> bool {
    matches!(request, Request::Prewrite { .. })
}

fn is_commit(request: &Request) -> bool {
    matches!(request, Request::Commit { .. })
}

fn never(_: &Request) -> bool {
    false
}

#[tokio::test]
async fn reads_leave_a_silent_leader_once_another_one_leads_and_do_not_ask_it_again() {
    let (world, voters) = cluster();
    let group = Group::new(world.link(), false, is_get);
    let client = TxnClient::new(Arc::new(To(group.clone())), Arc::new(voters));
    let ts = client.timestamp().await.unwrap();
    let begun = Instant::now();
    assert_eq!(client.snapshot(ts).get(&record("a")).await, Ok(None));
    let first = begun.elapsed();
    assert!(first < Duration::from_secs(5), "the first answer took {first:?}");
    assert_eq!(group.requests_to(1), 1);
    // Neither again nor for the other region, which nobody was asked of yet.
    for key in ["a", "z", "a", "z"] {
        assert_eq!(client.snapshot(ts).get(&record(key)).await, Ok(None));
    }
    assert_eq!(group.requests_to(1), 1, "the silent node is asked again");
}

/// A write of two regions whose leader falls silent at some request: it succeeds, once.
async fn write(carries_out: bool, stops_at: fn(&Request) -> bool) {
    let (world, voters) = cluster();
    let group = Group::new(world.link(), carries_out, stops_at);
    let client = TxnClient::new(Arc::new(To(group.clone())), Arc::new(voters));
    let mut transaction = client.begin().await.unwrap();
    let start = transaction.start_ts();
    for key in ["a", "z"] {
        transaction.insert(&table(1), record(key), vec![1]).unwrap();
    }
    let begun = Instant::now();
    let committed = transaction.commit().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
    client.settle().await;
    for key in ["a", "z"] {
        let node = world.nodes.values().next().unwrap();
        let kv = node.store.snapshot();
        let stored = txn::mvcc::data(kv.as_ref(), &record(key)).unwrap();
        assert_eq!((stored.start_ts, stored.commit_ts), (start, committed), "{key}");
        let before = txn::mvcc::get(kv.as_ref(), &record(key), Timestamp(committed.0 - 1)).unwrap();
        assert_eq!(before, None, "{key} was written twice");
    }
}

#[tokio::test]
async fn a_write_whose_leader_fell_silent_is_resolved_at_the_next_one_and_never_doubled() {
    for carries_out in [false, true] {
        write(carries_out, is_prewrite).await;
        write(carries_out, is_commit).await;
    }
}

#[tokio::test]
async fn a_commit_point_that_nobody_answers_for_is_unknown_and_not_refused() {
    let (world, voters) = cluster();
    let mut group = Group::new(world.link(), true, is_commit);
    Arc::get_mut(&mut group).unwrap().in_vain = true;
    let bound = Duration::from_millis(500);
    let client = TxnClient::new(Arc::new(To(group)), Arc::new(voters)).with_bounds(bound, bound);
    let mut transaction = client.begin().await.unwrap();
    transaction.put(&table(1), record("a"), vec![1]).unwrap();
    let outcome = tokio::time::timeout(Duration::from_secs(8), transaction.commit()).await;
    let outcome = outcome.expect("the silent node is not waited for");
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
}

#[tokio::test]
async fn a_leader_that_is_only_slow_keeps_its_calls() {
    let (world, voters) = cluster();
    let group = Group::new(world.link(), false, never);
    group.slow.store(1_500, SeqCst);
    let client = TxnClient::new(Arc::new(To(group.clone())), Arc::new(voters));
    let ts = client.timestamp().await.unwrap();
    assert_eq!(client.snapshot(ts).get(&record("a")).await, Ok(None));
    assert_eq!(group.log.lock().iter().filter(|(_, request)| is_get(request)).count(), 1);
}

/// A region whose only voter is lost once another one has come in its place.
struct Replaced {
    known: Known,
    lost: Arc<AtomicBool>,
}

#[async_trait]
impl Directory for Replaced {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.known.timestamp().await
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        let mut route = self.known.locate(key).await?;
        let node = if self.lost.load(SeqCst) { 2 } else { 1 };
        route.region.peers = vec![Peer { id: 1_000 + node, node, role: PeerRole::Voter }];
        route.leader = Some(node);
        Ok(route)
    }

    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.known.regions(kind).await
    }

    fn forget(&self, _: RegionId) {}
}

struct Unless(Arc<Link>, Arc<AtomicBool>);

#[async_trait]
impl RowTransport for Unless {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if node == 1 && self.1.load(SeqCst) {
            return Err(Error::Unavailable("nobody listens there".into()));
        }
        self.0.call(1, request).await
    }
}

#[tokio::test]
async fn where_every_member_that_is_remembered_is_lost_placement_is_asked_again() {
    let (world, Voters(known)) = cluster();
    let lost = Arc::new(AtomicBool::new(false));
    let transport = Unless(world.link(), lost.clone());
    let directory = Replaced { known, lost: lost.clone() };
    let client = TxnClient::new(Arc::new(transport), Arc::new(directory));
    let ts = client.timestamp().await.unwrap();
    assert_eq!(client.snapshot(ts).get(&record("a")).await, Ok(None));
    lost.store(true, SeqCst);
    let begun = Instant::now();
    assert_eq!(client.snapshot(ts).get(&record("a")).await, Ok(None));
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
}
