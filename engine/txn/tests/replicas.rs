//! Reads by a replica that does not lead: it answers nothing that is older than what its leader would, meets locks as the
//! leader does, and where it cannot answer in time the leader does. It applies the leader's log when a test says so.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use env::Random;
use futures::FutureExt;
use kv::MemoryKv;
use parking_lot::Mutex;
use placement::api::Route;
use raft::{Command, Groups, Machine, Machines, PeerStatus, Pending, Position};
use support::groups::SimGroups;
use support::{Faults, TABLE, record, reference, table};
use tokio::sync::watch;
use txn::api::{Mutation, Op, RegionRef, Request, Response};
use txn::{
    Directory, ReadFrom, ReplicaReads, RowMachines, RowStore, RowTransport, TxnClient, TxnService,
};
use types::{
    Epoch, Error, NodeId, Peer, PeerId, PeerRole, Region, RegionId, RegionKind, Result, Timestamp,
    key,
};

const REGION: RegionId = 100;
const LEADER: NodeId = 1;
const FOLLOWER: NodeId = 2;

fn region() -> Region {
    let voter = |node: NodeId| Peer { id: 1_000 + node, node, role: PeerRole::Voter };
    Region {
        id: REGION,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(TABLE),
        start: key::records_start(TABLE),
        end: key::records_end(TABLE),
        peers: vec![voter(LEADER), voter(FOLLOWER)],
    }
}

/// The groups of a node that follows in the one region that there is.
struct Following {
    machine: Mutex<Box<dyn Machine>>,
    applied: watch::Sender<u64>,
    /// How many elections it has heard of without their entries.
    elections: AtomicU64,
}

impl Following {
    /// Applies what a leader's log holds and this node has not applied yet.
    fn apply(&self, log: &[(Position, Option<Vec<u8>>)]) {
        let mut machine = self.machine.lock();
        for (at, data) in log {
            if at.index > machine.applied().index {
                machine.apply(*at, data.as_deref().map_or(Command::Empty, Command::Data)).unwrap();
                machine.finish_batch().unwrap();
            }
        }
        self.applied.send_replace(machine.applied().index);
    }
}

fn not_simulated<T: Send + 'static>() -> Pending<T> {
    async { Err(Error::Invalid("not simulated".into())) }.boxed()
}

impl Groups for Following {
    fn status(&self, wanted: RegionId) -> Option<PeerStatus> {
        let machine = self.machine.lock();
        let region = machine.region().clone();
        let applied = machine.applied();
        (wanted == REGION).then(|| PeerStatus {
            peer: *region.peer_on(FOLLOWER).unwrap(),
            leader: region.peer_on(LEADER).copied(),
            region: Arc::new(region),
            term: applied.term + self.elections.load(Ordering::SeqCst),
            decides: false,
            alone: false,
            applied,
            committed: applied.index,
            ready: true,
            fault: None,
            stopped: false,
            lost: false,
        })
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.status(REGION).into_iter().collect()
    }

    fn propose(&self, region: RegionId, _: u64, _: Vec<u8>) -> Pending<Position> {
        async move { Err(Error::NotLeader { region, leader: Some(LEADER) }) }.boxed()
    }

    fn read_index(&self, _: RegionId) -> Pending<u64> {
        not_simulated()
    }

    fn reached(&self, _: RegionId, index: u64) -> Pending<()> {
        let mut applied = self.applied.subscribe();
        async move {
            applied.wait_for(|applied| *applied >= index).await.unwrap();
            Ok(())
        }
        .boxed()
    }

    fn change_membership(&self, _: RegionId, _: Vec<Peer>) -> Pending<Region> {
        not_simulated()
    }

    fn transfer(&self, _: RegionId, _: PeerId) {}

    fn create(&self, _: Region) -> Pending<()> {
        not_simulated()
    }

    fn destroy(&self, _: RegionId) -> Pending<()> {
        not_simulated()
    }
}

/// Time, and where the region is.
#[derive(Clone, Default)]
struct Known(Arc<AtomicU64>);

impl Known {
    fn now(&self) -> Timestamp {
        Timestamp::pack(1_000 + self.0.fetch_add(1, Ordering::SeqCst), 0)
    }
}

#[async_trait]
impl Directory for Known {
    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.now())
    }

    async fn locate(&self, _: &[u8]) -> Result<Route> {
        let (leader, ready_learners) = (Some(LEADER), Vec::new());
        Ok(Route { region: region(), leader, ready_learners, rows: 0, bytes: 0 })
    }

    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        Ok(vec![self.locate(&[]).await?])
    }

    fn forget(&self, _: RegionId) {}
}

/// The way to both nodes; the leader's can be cut.
#[derive(Clone, Default)]
struct Link {
    services: Arc<Mutex<Vec<(NodeId, TxnService)>>>,
    cut: Arc<AtomicBool>,
}

#[async_trait]
impl RowTransport for Link {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if node == LEADER && self.cut.load(Ordering::SeqCst) {
            return Err(Error::Unavailable("the leader is cut off".into()));
        }
        let found = self.services.lock().iter().find(|(id, _)| *id == node).cloned();
        let (_, service) = found.ok_or_else(|| Error::Unavailable("no such node".into()))?;
        Ok(service.handle(request).await)
    }
}

/// A read under way.
type Reading = tokio::task::JoinHandle<Result<Option<Vec<u8>>>>;

/// A leader, one that follows it, and a client.
struct Cluster {
    link: Link,
    time: Known,
    leading: Arc<SimGroups>,
    leader: TxnService,
    following: Arc<Following>,
    follower: TxnService,
    client: TxnClient,
}

impl Cluster {
    async fn new() -> Self {
        let (link, time) = (Link::default(), Known::default());
        let client = || TxnClient::new(Arc::new(link.clone()), Arc::new(time.clone()));
        let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
        let leading = SimGroups::new(LEADER, Random::seeded(1), Faults::default());
        leading.lead(RowMachines::new(store.clone()).create(&region(), true).unwrap());
        let leader = TxnService::new(leading.clone(), store);
        let leader = leader.with_leases(Arc::new(time.clone()), || false);
        let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
        let machine = RowMachines::new(store.clone()).create(&region(), true).unwrap();
        let applied = watch::Sender::new(machine.applied().index);
        let following = Arc::new(Following {
            machine: Mutex::new(machine),
            applied,
            elections: AtomicU64::default(),
        });
        let follower = TxnService::new(following.clone(), store).with_followers(client());
        link.services.lock().extend([(LEADER, leader.clone()), (FOLLOWER, follower.clone())]);
        let client = client();
        let cluster = Cluster { link, time, leading, leader, following, follower, client };
        let table = Box::new((*table(1)).clone());
        let request = Request::Schema { region: cluster.region(), table };
        assert_eq!(cluster.leader.handle(request).await, Response::Done);
        cluster.replicate();
        cluster
    }

    fn region(&self) -> RegionRef {
        reference(&region())
    }

    /// The follower applies all that the leader has.
    fn replicate(&self) {
        self.following.apply(&self.leading.log(REGION));
    }

    async fn put(&self, name: &str, row: u8) {
        let mut transaction = self.client.begin().await.unwrap();
        transaction.put(&table(1), record(name), vec![row]).unwrap();
        transaction.commit().await.unwrap();
        self.client.settle().await;
    }

    /// Reads a row from followers at a timestamp, behind the test's back.
    fn read(&self, name: &str, ts: Timestamp) -> (Arc<ReplicaReads>, Reading) {
        let reads = Arc::new(ReplicaReads::new(ReadFrom::Followers));
        let snapshot = self.client.snapshot(ts).of_replicas(reads.clone());
        let key = record(name);
        (reads, tokio::spawn(async move { snapshot.get(&key).await }))
    }

    /// What the follower answers by itself.
    async fn at_follower(&self, name: &str, ts: Timestamp) -> Response {
        let read = Request::Get { region: self.region(), keys: vec![record(name)], ts };
        self.follower.handle(Request::ByReplica(Box::new(read))).await
    }
}

/// Runs all tasks until they wait for time or for another thread: this test's have one.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn counts(reads: &ReplicaReads) -> (u64, u64, u64) {
    (reads.leaders(), reads.followers(), reads.read_indexes())
}

#[tokio::test]
async fn a_follower_that_lags_answers_nothing_old() {
    let cluster = Cluster::new().await;
    cluster.put("a", 1).await;
    cluster.replicate();
    let before = cluster.time.now();
    cluster.put("a", 2).await;
    let now = cluster.time.now();
    let (reads, read) = cluster.read("a", now);
    settled().await;
    assert!(!read.is_finished(), "it answered by what it had applied");
    cluster.replicate();
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![2]));
    assert_eq!(counts(&reads), (0, 1, 1));
    let (reads, read) = cluster.read("a", before);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]), "the past stays what it was");
    assert_eq!(counts(&reads), (0, 1, 0), "what it has applied for a later time is enough");
}

#[tokio::test]
async fn the_leader_answers_for_a_follower_that_does_not_catch_up() {
    let cluster = Cluster::new().await;
    cluster.put("a", 1).await;
    let now = cluster.time.now();
    let (reads, read) = cluster.read("a", now);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]));
    assert_eq!(counts(&reads), (1, 0, 0));
    let Response::Failed(error) = cluster.at_follower("a", now).await else {
        panic!("it answered without the row");
    };
    assert!(matches!(error, Error::Unavailable(_)) && error.is_retryable(), "{error}");
    // It is not asked again at once.
    cluster.replicate();
    let (reads, read) = cluster.read("a", now);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]));
    assert_eq!(counts(&reads), (1, 0, 0));
}

#[tokio::test]
async fn locks_are_met_at_a_follower_as_at_the_leader() {
    let cluster = Cluster::new().await;
    cluster.put("a", 1).await;
    // A transaction whose client died behind its first phase.
    let start_ts = cluster.time.now();
    let mutation = Mutation { key: record("a"), op: Op::Put(vec![2]), for_update_ts: None };
    let request = Request::Prewrite {
        region: cluster.region(),
        start_ts,
        primary: record("a"),
        mutations: vec![mutation],
        ttl: 0,
        schema: (TABLE, 1),
        wait: 0,
    };
    assert_eq!(cluster.leader.handle(request).await, Response::Done);
    let now = cluster.time.now();
    cluster.replicate();
    let Response::Failed(Error::Locked(lock)) = cluster.at_follower("a", now).await else {
        panic!("the follower read past a lock");
    };
    assert_eq!(lock.start_ts, start_ts);
    // Below the lock it is no concern.
    let read = cluster.at_follower("a", start_ts.prev()).await;
    assert!(matches!(&read, Response::ByReplica { pairs, .. } if pairs.len() == 1), "{read:?}");
    // The client finishes it through the leader, which answers then.
    let (reads, read) = cluster.read("a", now);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]));
    assert_eq!(reads.leaders(), 1);
}

#[tokio::test]
async fn who_has_applied_a_timestamp_need_not_ask_for_it_again() {
    let cluster = Cluster::new().await;
    cluster.put("a", 1).await;
    cluster.replicate();
    let (then, later) = (cluster.time.now(), cluster.time.now());
    let (reads, read) = cluster.read("a", then);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]));
    assert_eq!(counts(&reads), (0, 1, 1));
    assert_eq!(cluster.leading.hurried.load(Ordering::SeqCst), 1, "its entries are not waited for");
    cluster.link.cut.store(true, Ordering::SeqCst);
    let (reads, read) = cluster.read("a", then);
    assert_eq!(read.await.unwrap().unwrap(), Some(vec![1]));
    assert_eq!(counts(&reads), (0, 1, 0));
    // Of anything later nobody but the leader knows.
    let answer =
        tokio::time::timeout(Duration::from_secs(30), cluster.at_follower("a", later)).await;
    assert!(matches!(answer.unwrap(), Response::Failed(error) if error.is_retryable()));
}

#[tokio::test]
async fn who_may_have_led_meanwhile_does_not_answer() {
    let cluster = Arc::new(Cluster::new().await);
    cluster.put("a", 1).await;
    let now = cluster.time.now();
    let asked = cluster.clone();
    let read = tokio::spawn(async move { asked.at_follower("a", now).await });
    settled().await;
    // It may have led, and commits of its own may be under way.
    cluster.following.elections.store(2, Ordering::SeqCst);
    cluster.replicate();
    let answer = read.await.unwrap();
    assert!(matches!(&answer, Response::Failed(error) if error.is_retryable()), "{answer:?}");
    let answer = cluster.at_follower("a", now).await;
    assert!(matches!(&answer, Response::ByReplica { asked: true, .. }), "{answer:?}");
}

#[tokio::test]
async fn a_time_of_the_past_is_in_use_for_as_long_as_it_is_held() {
    let cluster = Cluster::new().await;
    cluster.put("a", 1).await;
    let then = cluster.time.now();
    cluster.put("a", 2).await;
    assert_eq!(cluster.client.oldest_start(), None);
    let past = cluster.client.past(then);
    let scan = past.scan(record("a"), record("b"), false);
    assert_eq!(cluster.client.oldest_start(), Some(then), "nobody is asked to keep it");
    assert_eq!(past.get(&record("a")).await.unwrap(), Some(vec![1]));
    drop(past);
    assert_eq!(cluster.client.oldest_start(), Some(then), "rows are still being read");
    assert_eq!(scan.collect().await.unwrap().len(), 1);
    assert_eq!(cluster.client.oldest_start(), None);
}

#[tokio::test]
async fn ranges_are_read_from_followers() {
    let cluster = Cluster::new().await;
    for (name, row) in [("a", 1), ("b", 2), ("c", 3)] {
        cluster.put(name, row).await;
    }
    cluster.replicate();
    for reverse in [false, true] {
        let reads = Arc::new(ReplicaReads::new(ReadFrom::Followers));
        let snapshot = cluster.client.snapshot(cluster.time.now()).of_replicas(reads.clone());
        let scan = snapshot.scan(record("a"), record("c"), reverse).page_pairs(1);
        let mut rows: Vec<u8> =
            scan.collect().await.unwrap().iter().map(|(_, row)| row[0]).collect();
        if reverse {
            rows.reverse();
        }
        assert_eq!(rows, [1, 2]);
        let (leaders, followers, read_indexes) = counts(&reads);
        assert!(leaders == 0 && followers >= 2 && read_indexes == 1, "{reads:?}");
    }
}
