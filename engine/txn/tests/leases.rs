//! Leaders' leases, as a service grants and heeds them: which reads need no round, and which writes wait. The oracle's time
//! moves by hand alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use env::Random;
use kv::MemoryKv;
use placement::api::Route;
use raft::Machines;
use support::groups::SimGroups;
use support::{Faults, TABLE, record, reference, table};
use tokio::task::JoinHandle;
use txn::api::{Mutation, Op, Request, Response};
use txn::{Directory, RowMachines, RowStore, TxnService};
use types::{
    Epoch, Error, NodeId, Peer, PeerRole, Region, RegionId, RegionKind, Result, Timestamp, key,
};

const REGION: RegionId = 100;
/// Milliseconds of the oracle at which a test begins.
const BEGIN: u64 = 1_000;
/// How long a lease lasts.
const LEASE: u64 = 200;
/// How long a test waits for what must come.
const BOUND: Duration = Duration::from_secs(30);

/// Timestamps of a time that is set.
struct Oracle {
    millis: AtomicU64,
    given: AtomicU64,
}

impl Oracle {
    fn now(&self) -> Timestamp {
        let given = self.given.fetch_add(1, Ordering::SeqCst);
        Timestamp::pack(self.millis.load(Ordering::SeqCst), given)
    }
}

struct Known(Arc<Oracle>);

#[async_trait]
impl Directory for Known {
    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.0.now())
    }

    async fn locate(&self, _: &[u8]) -> Result<Route> {
        Err(Error::Unavailable("this test has no routes".into()))
    }

    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        Ok(Vec::new())
    }

    fn forget(&self, _: RegionId) {}
}

/// The leader of a region with two more voters, which are never seen.
struct Leader {
    store: Arc<RowStore>,
    groups: Arc<SimGroups>,
    service: TxnService,
    oracle: Arc<Oracle>,
}

impl Leader {
    async fn new() -> Self {
        let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
        let groups = SimGroups::new(1, Random::seeded(1), Faults::default());
        let oracle = Arc::new(Oracle { millis: BEGIN.into(), given: AtomicU64::default() });
        let voter = |node: NodeId| Peer { id: 1_000 + node, node, role: PeerRole::Voter };
        let region = Region {
            id: REGION,
            epoch: Epoch { version: 1, conf: 1 },
            kind: RegionKind::Records(TABLE),
            start: key::records_start(TABLE),
            end: key::records_end(TABLE),
            peers: vec![voter(1), voter(2), voter(3)],
        };
        groups.lead(RowMachines::new(store.clone()).create(&region, true).unwrap());
        let service = TxnService::new(groups.clone(), store.clone());
        let service = service.with_leases(Arc::new(Known(oracle.clone())), || true);
        let leader = Leader { store, groups, service, oracle };
        let request =
            Request::Schema { region: leader.region(), table: Box::new((*table(1)).clone()) };
        assert_eq!(leader.service.handle(request).await, Response::Done);
        leader
    }

    fn region(&self) -> txn::api::RegionRef {
        reference(&self.store.region(REGION).unwrap().region)
    }

    fn set(&self, millis: u64) {
        self.oracle.millis.store(millis, Ordering::SeqCst);
    }

    fn get(&self, millis: u64) -> JoinHandle<Response> {
        let (region, keys) = (self.region(), vec![record("a")]);
        self.send(Request::Get { region, keys, ts: Timestamp::pack(millis, 0) })
    }

    fn send(&self, request: Request) -> JoinHandle<Response> {
        let service = self.service.clone();
        tokio::spawn(async move { service.handle(request).await })
    }

    /// Whether a read is answered while no quorum answers.
    async fn reads_alone(&self, millis: u64) -> bool {
        self.groups.alone.store(true, Ordering::Relaxed);
        let response = self.get(millis).await.unwrap();
        // What the read began behind its back has failed by then.
        settled().await;
        self.groups.alone.store(false, Ordering::Relaxed);
        matches!(response, Response::Pairs { .. })
    }

    /// Runs until the oracle was asked some more times, or a write is answered; it must not be.
    async fn waits(&self, write: &JoinHandle<Response>) {
        let asked = || self.oracle.given.load(Ordering::SeqCst);
        let before = asked();
        until(|| asked() >= before + 3 || write.is_finished()).await;
        assert!(!write.is_finished(), "it does not wait for the leases before its term");
    }

    /// Reads until a lease covers it.
    async fn leased(&self, millis: u64) {
        let leased = async {
            while !self.reads_alone(millis).await {
                self.get(millis).await.unwrap();
            }
        };
        tokio::time::timeout(BOUND, leased).await.expect("no lease was granted");
    }

    fn prewrite(&self, start: u64) -> Request {
        let mutation = Mutation { key: record("a"), op: Op::Put(vec![1]), for_update_ts: None };
        Request::Prewrite {
            region: self.region(),
            start_ts: Timestamp::pack(start, 0),
            primary: record("a"),
            mutations: vec![mutation],
            ttl: 3_000,
            schema: (TABLE, 1),
            wait: 0,
        }
    }

    fn commit_at_once(&self, start: u64) -> Request {
        let mutation = Mutation { key: record("b"), op: Op::Put(vec![1]), for_update_ts: None };
        Request::CommitAtOnce {
            region: self.region(),
            start_ts: Timestamp::pack(start, 0),
            primary: record("b"),
            mutations: vec![mutation],
            schema: (TABLE, 1),
            others: Vec::new(),
            wait: 0,
        }
    }

    fn split(&self) -> JoinHandle<Response> {
        let cuts = vec![(record("m"), 200, vec![2_001, 2_002, 2_003])];
        self.send(Request::Split { region: self.region(), cuts })
    }
}

/// Runs all tasks until they wait for time or for another thread: this test's have one.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(BOUND, so).await.expect("what was waited for");
}

#[tokio::test]
async fn reads_are_answered_without_a_round_until_the_lease_ends() {
    let leader = Leader::new().await;
    assert!(!leader.reads_alone(BEGIN).await, "nobody has acknowledged the leader");
    leader.leased(BEGIN).await;
    assert!(leader.reads_alone(BEGIN + LEASE - 1).await);
    assert!(!leader.reads_alone(BEGIN + LEASE + 1).await);
    assert!(!leader.reads_alone(u64::MAX >> 18).await);
}

#[tokio::test]
async fn a_lease_counts_from_before_its_round() {
    let leader = Leader::new().await;
    leader.groups.held.store(true, Ordering::Relaxed);
    let write = leader.send(leader.prewrite(BEGIN - 1));
    // Both rounds, the read's own and that of the lease, wait for what is proposed before.
    let read = leader.get(BEGIN - 2);
    until(|| leader.oracle.given.load(Ordering::SeqCst) > 0).await;
    settled().await;
    leader.set(BEGIN + LEASE - 1);
    leader.groups.held.store(false, Ordering::Relaxed);
    assert_eq!(write.await.unwrap(), Response::Done);
    assert!(matches!(read.await.unwrap(), Response::Pairs { .. }));
    let end = Timestamp::pack(BEGIN - 1, 0);
    let request =
        Request::Rollback { region: leader.region(), start_ts: end, keys: vec![record("a")] };
    assert_eq!(leader.service.handle(request).await, Response::Done);
    assert!(leader.reads_alone(BEGIN + LEASE - 1).await, "the round has granted a lease");
    assert!(!leader.reads_alone(BEGIN + LEASE + 1).await, "from the time after the round");
}

#[tokio::test]
async fn a_lease_counts_from_before_a_cheap_round_too() {
    // Again where this machine takes so long that Raft is asked: that asks the oracle once more.
    for _ in 0..100 {
        let leader = Leader::new().await;
        leader.groups.cheap.store(true, Ordering::Relaxed);
        leader.groups.held.store(true, Ordering::Relaxed);
        let read = leader.get(BEGIN - 2);
        let asked = || leader.oracle.given.load(Ordering::SeqCst);
        until(|| asked() > 0).await;
        leader.set(BEGIN + LEASE - 1);
        leader.groups.held.store(false, Ordering::Relaxed);
        assert!(matches!(read.await.unwrap(), Response::Pairs { .. }));
        let granted = async { while !leader.reads_alone(BEGIN + 1).await {} };
        tokio::time::timeout(BOUND, granted).await.expect("the round has granted a lease");
        if asked() == 1 {
            assert!(!leader.reads_alone(BEGIN + LEASE + 1).await, "from the time after the round");
            return;
        }
    }
    panic!("Raft is asked every time");
}

#[tokio::test]
async fn where_a_cheap_round_does_not_end_raft_is_asked() {
    let leader = Leader::new().await;
    leader.groups.cheap.store(true, Ordering::Relaxed);
    leader.groups.held.store(true, Ordering::Relaxed);
    assert!(matches!(leader.get(BEGIN).await.unwrap(), Response::Pairs { .. }));
    leader.leased(BEGIN).await;
}

#[tokio::test]
async fn a_new_leader_reads_by_rounds_and_writes_after_the_leases_before_it() {
    let leader = Leader::new().await;
    leader.leased(BEGIN).await;
    leader.groups.elect(REGION);
    let first = leader.get(BEGIN).await.unwrap();
    assert!(matches!(first, Response::Pairs { .. }), "reads by rounds go on: {first:?}");
    let write = leader.send(leader.prewrite(BEGIN));
    let commit = leader.send(leader.commit_at_once(BEGIN));
    leader.waits(&write).await;
    leader.set(BEGIN + LEASE - 1);
    leader.waits(&write).await;
    assert!(!commit.is_finished(), "nor does a commit in one entry succeed");
    leader.set(BEGIN + LEASE + 1);
    assert_eq!(write.await.unwrap(), Response::Done);
    let commit = commit.await.unwrap();
    assert!(matches!(commit, Response::Fate(Some(at)) if at > Timestamp::pack(BEGIN + LEASE, 0)));
}

#[tokio::test]
async fn a_repeated_first_phase_waits_as_well_and_a_second_phase_does_not() {
    let leader = Leader::new().await;
    assert_eq!(leader.send(leader.prewrite(BEGIN)).await.unwrap(), Response::Done);
    leader.groups.elect(REGION);
    leader.get(BEGIN - 1).await.unwrap();
    let repeated = leader.send(leader.prewrite(BEGIN));
    leader.waits(&repeated).await;
    let (region, keys) = (leader.region(), vec![record("a")]);
    let (start_ts, commit_ts) = (Timestamp::pack(BEGIN, 0), Timestamp::pack(BEGIN, 9));
    let commit = Request::Commit { region, start_ts, commit_ts, keys };
    assert_eq!(leader.service.handle(commit).await, Response::Done);
    leader.set(BEGIN + LEASE + 1);
    assert_eq!(repeated.await.unwrap(), Response::Fate(Some(commit_ts)), "it is committed");
}

#[tokio::test]
async fn every_term_waits_anew() {
    let leader = Leader::new().await;
    for round in 0..3 {
        let begin = BEGIN + round * 1_000;
        leader.set(begin);
        leader.groups.elect(REGION);
        leader.get(BEGIN).await.unwrap();
        // Before the first write.
        leader.service.note_led(&raft::Groups::statuses(leader.groups.as_ref()));
        let write = leader.send(leader.prewrite(BEGIN));
        leader.waits(&write).await;
        leader.set(begin + LEASE + 1);
        assert_eq!(write.await.unwrap(), Response::Done);
    }
}

#[tokio::test]
async fn a_lease_is_not_prolonged_while_a_split_is_under_way() {
    let leader = Leader::new().await;
    leader.leased(BEGIN).await;
    leader.groups.held.store(true, Ordering::Relaxed);
    leader.groups.uncommitted.store(true, Ordering::Relaxed);
    let split = leader.split();
    until(|| leader.groups.waiting(REGION) > 0).await;
    leader.set(BEGIN + LEASE - 1);
    for _ in 0..10 {
        assert!(matches!(leader.get(BEGIN + LEASE - 1).await.unwrap(), Response::Pairs { .. }));
        settled().await;
    }
    assert!(!leader.reads_alone(BEGIN + LEASE + 1).await, "a child may be led elsewhere");
    leader.groups.held.store(false, Ordering::Relaxed);
    assert!(matches!(split.await.unwrap(), Response::Regions(_)));
    leader.leased(BEGIN + LEASE + 1).await;
}

#[tokio::test]
async fn no_lease_is_granted_while_some_program_would_not_wait_for_it() {
    let leader = Leader::new().await;
    let known = Arc::new(Known(leader.oracle.clone()));
    let service = leader.service.clone().with_leases(known, || false);
    let leader = Leader { service, ..leader };
    leader.get(BEGIN).await.unwrap();
    settled().await;
    assert!(!leader.reads_alone(BEGIN).await);
}
