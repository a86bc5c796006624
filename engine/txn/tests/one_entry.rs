//! Commits in one entry: what readers and replicas wait for, what a repetition finds, and what becomes of an attempt whose
//! region is split or whose answer is lost. The oracle answers, and entries are applied, when a test says so.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use placement::api::Route;
use support::groups::SimGroups;
use support::{Faults, Known, Link, TABLE, World, record, reference, table};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use txn::api::{Expect, Mutation, Op, Request, Response, Taking, Waiting};
use txn::{Directory, RowTransport, TxnClient, TxnService};
use types::{Error, NodeId, RegionId, RegionKind, Result, SchemaVersion, TableId, Timestamp};

const REGION: RegionId = 100;
const BOUND: Duration = Duration::from_secs(30);

/// Chooses commit timestamps at once, and answers when it is let.
struct Oracle {
    world: Arc<World>,
    asked: AtomicU64,
    answers: Semaphore,
    gone: AtomicBool,
}

#[async_trait]
impl Directory for Oracle {
    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.world.timestamp())
    }

    async fn commit_timestamp(&self, tables: &[(TableId, SchemaVersion)]) -> Result<Timestamp> {
        let chosen = self.world.timestamp();
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.answers.acquire().await.unwrap().forget();
        match (self.gone.load(Ordering::SeqCst), tables) {
            (true, [(table, sent)]) => {
                Err(Error::SchemaChanged { table: *table, sent: *sent, known: None })
            }
            _ => Ok(chosen),
        }
    }

    async fn locate(&self, _: &[u8]) -> Result<Route> {
        Err(Error::Unavailable("this test has no routes".into()))
    }

    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        Ok(Vec::new())
    }

    fn forget(&self, _: RegionId) {}
}

/// The leader of the one region that there is.
struct Leader {
    world: Arc<World>,
    service: TxnService,
    oracle: Arc<Oracle>,
}

impl Leader {
    async fn new() -> Self {
        let world = World::new(1, 1, &[], Faults::default());
        let oracle = Arc::new(Oracle {
            world: world.clone(),
            asked: AtomicU64::default(),
            answers: Semaphore::new(0),
            gone: AtomicBool::default(),
        });
        let service = world.nodes[&1].service.clone().with_leases(oracle.clone(), || false);
        let leader = Leader { world, service, oracle };
        let request =
            Request::Schema { region: leader.region(), table: Box::new((*table(1)).clone()) };
        assert_eq!(leader.service.handle(request).await, Response::Done);
        leader
    }

    fn groups(&self) -> &SimGroups {
        &self.world.nodes[&1].groups
    }

    fn region(&self) -> txn::api::RegionRef {
        reference(&self.world.nodes[&1].store.region(REGION).unwrap().region)
    }

    fn send(&self, request: Request) -> JoinHandle<Response> {
        let service = self.service.clone();
        tokio::spawn(async move { service.handle(request).await })
    }

    fn get(&self, key: &str, ts: Timestamp) -> JoinHandle<Response> {
        self.send(Request::Get { region: self.region(), keys: vec![record(key)], ts })
    }

    fn scan(&self, ts: Timestamp) -> JoinHandle<Response> {
        let (start, end) = (record("a"), record("z"));
        let (limit, bytes, reverse) = (100, 1 << 20, false);
        self.send(Request::Scan { region: self.region(), start, end, ts, limit, bytes, reverse })
    }

    fn reach(&self, ts: Timestamp) -> JoinHandle<Response> {
        self.send(Request::Reach { region: REGION, ts })
    }

    /// A transaction that puts two rows.
    fn commit(&self, start_ts: Timestamp) -> Request {
        let put =
            |key: &str| Mutation { key: record(key), op: Op::Put(vec![1]), for_update_ts: None };
        Request::CommitAtOnce {
            region: self.region(),
            start_ts,
            primary: record("c"),
            mutations: vec![put("b"), put("c")],
            schema: (TABLE, 1),
            others: Vec::new(),
            wait: 0,
        }
    }

    fn answer(&self) {
        self.oracle.answers.add_permits(1);
    }

    async fn asked(&self, times: u64) {
        until(|| self.oracle.asked.load(Ordering::SeqCst) >= times).await;
    }

    fn entries(&self) -> usize {
        self.groups().log(REGION).iter().filter(|(_, data)| data.is_some()).count()
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

/// Runs all tasks until they wait for time or for another thread: this test's have one.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

fn rows(response: Response) -> usize {
    match response {
        Response::Pairs { pairs, .. } => pairs.len(),
        other => panic!("a read is answered by {other:?}"),
    }
}

fn fate(response: Response) -> Timestamp {
    match response {
        Response::Fate(Some(commit_ts)) => commit_ts,
        other => panic!("a commit is answered by {other:?}"),
    }
}

#[tokio::test]
async fn readers_wait_for_a_commit_whose_timestamp_may_be_before_theirs() {
    let leader = Leader::new().await;
    let before = leader.world.timestamp();
    let commit = leader.send(leader.commit(leader.world.timestamp()));
    // It is chosen and not known to the leader.
    leader.asked(1).await;
    let after = leader.world.timestamp();
    let waiting = [leader.get("b", after), leader.scan(after), leader.reach(after)];
    assert_eq!(rows(leader.get("b", before).await.unwrap()), 0);
    assert_eq!(rows(leader.get("x", after).await.unwrap()), 0, "another row");
    settled().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "it passed what it has to see");
    leader.answer();
    let commit_ts = fate(commit.await.unwrap());
    assert!(before < commit_ts && commit_ts < after);
    let [get, scan, reach] = waiting;
    assert_eq!((rows(get.await.unwrap()), rows(scan.await.unwrap())), (1, 2));
    let applied = leader.world.nodes[&1].store.region(REGION).unwrap().applied.index;
    assert_eq!(reach.await.unwrap(), Response::Applied(applied));
    assert_eq!(rows(leader.scan(commit_ts.prev()).await.unwrap()), 0);
}

#[tokio::test]
async fn readers_wait_until_the_entry_is_applied() {
    let leader = Leader::new().await;
    // Rounds confirm what is committed, and nothing is.
    leader.groups().held.store(true, Ordering::Relaxed);
    leader.groups().uncommitted.store(true, Ordering::Relaxed);
    leader.answer();
    let start = leader.world.timestamp();
    let commit = leader.send(leader.commit(start));
    until(|| leader.groups().waiting(REGION) > 0).await;
    let after = leader.world.timestamp();
    let waiting = [leader.get("b", after), leader.scan(after), leader.reach(after)];
    // Its timestamp is known: who reads before it need not wait.
    assert_eq!(rows(leader.scan(start).await.unwrap()), 0);
    settled().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "it passed what it has to see");
    leader.groups().held.store(false, Ordering::Relaxed);
    fate(commit.await.unwrap());
    let [get, scan, _] = waiting;
    assert_eq!((rows(get.await.unwrap()), rows(scan.await.unwrap())), (1, 2));
}

async fn all_refused(readers: [JoinHandle<Response>; 3]) {
    for reader in readers {
        let answer = reader.await.unwrap();
        assert!(matches!(answer, Response::Failed(Error::NotLeader { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn a_timestamp_of_one_term_is_not_committed_at_in_the_next() {
    let leader = Leader::new().await;
    let entries = leader.entries();
    let commit = leader.send(leader.commit(leader.world.timestamp()));
    leader.asked(1).await;
    let after = leader.world.timestamp();
    let waiting = [leader.get("b", after), leader.scan(after), leader.reach(after)];
    settled().await;
    // Another leader may have answered at `after` by the time that this one leads again.
    leader.groups().elect(REGION);
    leader.answer();
    let refused = commit.await.unwrap();
    assert!(matches!(refused, Response::Failed(Error::Unavailable(_))), "{refused:?}");
    assert_eq!(leader.entries(), entries);
    all_refused(waiting).await;
}

#[tokio::test]
async fn who_waited_for_a_commit_reads_nothing_where_the_leader_has_changed() {
    let leader = Leader::new().await;
    leader.groups().held.store(true, Ordering::Relaxed);
    leader.groups().uncommitted.store(true, Ordering::Relaxed);
    leader.answer();
    let commit = leader.send(leader.commit(leader.world.timestamp()));
    until(|| leader.groups().waiting(REGION) > 0).await;
    let after = leader.world.timestamp();
    let waiting = [leader.get("b", after), leader.scan(after), leader.reach(after)];
    settled().await;
    assert!(!waiting.iter().any(JoinHandle::is_finished), "it passed what it has to see");
    // The entry may be committed all the same, and is not applied here.
    leader.groups().elect(REGION);
    all_refused(waiting).await;
    leader.groups().held.store(false, Ordering::Relaxed);
    assert!(matches!(commit.await.unwrap(), Response::Failed(Error::Timeout { .. })));
}

#[tokio::test]
async fn a_refused_commit_lets_readers_go_on() {
    let leader = Leader::new().await;
    let late = leader.commit(leader.world.timestamp());
    leader.answer();
    fate(leader.send(leader.commit(leader.world.timestamp())).await.unwrap());
    let late = leader.send(late);
    leader.asked(2).await;
    let read = leader.scan(leader.world.timestamp());
    settled().await;
    assert!(!read.is_finished());
    leader.answer();
    let refused = late.await.unwrap();
    assert!(matches!(refused, Response::Failed(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(rows(read.await.unwrap()), 2);
}

#[tokio::test]
async fn it_is_one_entry_and_a_repetition_finds_it() {
    let leader = Leader::new().await;
    let entries = leader.entries();
    let request = leader.commit(leader.world.timestamp());
    leader.oracle.answers.add_permits(10);
    let commit_ts = fate(leader.send(request.clone()).await.unwrap());
    assert_eq!(leader.entries(), entries + 1);
    assert!(leader.world.nodes[&1].store.locks().summary(&[], &[255; 9]) == (0, None));
    assert_eq!(fate(leader.send(request.clone()).await.unwrap()), commit_ts);
    leader.groups().elect(REGION);
    leader.scan(commit_ts).await.unwrap();
    assert_eq!(fate(leader.send(request).await.unwrap()), commit_ts);
    assert_eq!(leader.entries(), entries + 1);
}

#[tokio::test]
async fn nothing_is_written_to_a_table_that_is_gone() {
    let leader = Leader::new().await;
    let entries = leader.entries();
    leader.oracle.gone.store(true, Ordering::SeqCst);
    leader.answer();
    let answer = leader.send(leader.commit(leader.world.timestamp())).await.unwrap();
    assert_eq!((answer, leader.entries()), (Response::TableGone(TABLE), entries));
    assert_eq!(rows(leader.scan(leader.world.timestamp()).await.unwrap()), 0);
}

/// What becomes of the first attempt to commit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// It is carried out, its answer is lost, and the region is split.
    SplitBehind,
    /// It arrives after everything else.
    Late,
    /// It is carried out, and arrives once more after everything else.
    Twice,
    /// It is carried out, its answer is lost, and the table is dropped.
    DropBehind,
    /// It is carried out, and nothing about it is answered any more but the way a transaction ended.
    Unanswered,
}

struct Bad {
    world: Arc<World>,
    link: Arc<Link>,
    first: First,
    late: Mutex<Vec<(NodeId, Request)>>,
    attempts: AtomicU64,
}

#[async_trait]
impl RowTransport for Bad {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if !matches!(request, Request::CommitAtOnce { .. }) {
            return self.link.call(node, request).await;
        }
        let lost = || Err(Error::timeout("an answer", Duration::from_millis(1)));
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        match self.first {
            First::SplitBehind if attempt == 0 => {
                fate(self.link.call(node, request).await?);
                self.world.split(&record("b")).await?;
                lost()
            }
            First::SplitBehind => self.link.call(node, request).await,
            First::Late => {
                self.late.lock().push((node, request));
                lost()
            }
            First::DropBehind if attempt == 0 => {
                fate(self.link.call(node, request).await?);
                lost()
            }
            First::DropBehind => Ok(Response::TableGone(TABLE)),
            First::Twice => {
                self.late.lock().push((node, request.clone()));
                self.link.call(node, request).await
            }
            First::Unanswered => {
                self.link.call(node, request).await?;
                lost()
            }
        }
    }
}

/// Three rows, in one region, and with the third in another one.
const ROWS: [&str; 3] = ["a", "c", "z"];
const CUTS: [&[&str]; 2] = [&[], &["m"]];

/// A world whose regions know the table. Time goes on with each timestamp: a child's leader waits for the leases of its
/// parent's.
async fn world(cuts: &[&str]) -> Arc<World> {
    let world = World::new(1, 1, cuts, Faults::default());
    world.tick.store(100, Ordering::Relaxed);
    let client = world.client();
    let mut transaction = client.begin().await.unwrap();
    for key in ["k", "y"] {
        transaction.put(&table(1), record(key), vec![1]).unwrap();
    }
    transaction.commit().await.unwrap();
    client.settle().await;
    world
}

async fn put_all(client: &TxnClient) -> Result<Timestamp> {
    let mut transaction = client.begin().await.unwrap();
    transaction.wait_for_rows(Duration::ZERO);
    for key in ROWS {
        transaction.put(&table(1), record(key), vec![1]).unwrap();
    }
    transaction.commit().await
}

async fn commit_over(first: First, cuts: &[&str]) -> (Arc<World>, Arc<Bad>, Result<Timestamp>) {
    let world = world(cuts).await;
    let (bad, outcome) = commit_in(&world, first).await;
    (world, bad, outcome)
}

async fn commit_in(world: &Arc<World>, first: First) -> (Arc<Bad>, Result<Timestamp>) {
    let (link, late, attempts) = (world.link(), Mutex::default(), AtomicU64::default());
    let bad = Arc::new(Bad { world: world.clone(), link, first, late, attempts });
    let bound = Duration::from_millis(200);
    let client = TxnClient::new(bad.clone(), Arc::new(Known(world.clone())));
    let client = client.with_bounds(bound, bound).with_one_entry(|| true);
    let outcome = put_all(&client).await;
    client.settle().await;
    (bad, outcome)
}

/// What was kept back arrives, and finds its transaction ended.
async fn comes_too_late(world: &Arc<World>, bad: &Bad) {
    let late = std::mem::take(&mut *bad.late.lock());
    assert!(!late.is_empty());
    for (node, request) in late {
        let answer = world.nodes[&node].service.handle(request).await;
        assert!(matches!(answer, Response::Failed(Error::RolledBack(_))), "{answer:?}");
    }
    assert_eq!(visible(world).await, 0, "the client was answered that it has failed");
}

async fn visible(world: &Arc<World>) -> usize {
    let client = world.client();
    let snapshot = client.snapshot(client.timestamp().await.unwrap());
    snapshot.batch_get(ROWS.map(record).to_vec()).await.unwrap().len()
}

#[tokio::test]
async fn an_attempt_whose_region_was_split_behind_it_is_committed_once() {
    for cuts in CUTS {
        let (world, _, outcome) = commit_over(First::SplitBehind, cuts).await;
        let commit_ts = outcome.unwrap();
        assert_eq!(visible(&world).await, 3);
        let before = world.client().snapshot(commit_ts.prev());
        let at = world.client().snapshot(commit_ts);
        for key in ROWS {
            assert_eq!(before.get(&record(key)).await.unwrap(), None);
            assert_eq!(at.get(&record(key)).await.unwrap(), Some(vec![1]));
        }
    }
}

#[tokio::test]
async fn an_attempt_that_comes_late_finds_its_transaction_ended() {
    for cuts in CUTS {
        let (world, bad, outcome) = commit_over(First::Late, cuts).await;
        assert!(matches!(outcome, Err(Error::Timeout { .. })), "{outcome:?}");
        comes_too_late(&world, &bad).await;
    }
}

#[tokio::test]
async fn an_attempt_that_was_refused_and_comes_again_finds_its_transaction_ended() {
    for cuts in CUTS {
        let world = world(cuts).await;
        let mut holder = world.client().begin().await.unwrap();
        let keys = vec![record("a")];
        let acquired = holder
            .acquire(&table(1), keys, Taking::alone(Waiting::No, Expect::Nothing), None)
            .await;
        acquired.unwrap();
        let (bad, outcome) = commit_in(&world, First::Twice).await;
        assert!(matches!(outcome, Err(Error::Held { .. })), "{outcome:?}");
        holder.rollback().await;
        comes_too_late(&world, &bad).await;
    }
}

#[tokio::test]
async fn an_attempt_that_goes_unanswered_is_learned_of_at_its_primary() {
    for cuts in CUTS {
        let (world, _, outcome) = commit_over(First::Unanswered, cuts).await;
        outcome.unwrap();
        assert_eq!(visible(&world).await, 3);
    }
}

#[tokio::test]
async fn what_was_committed_before_its_table_was_dropped_is_not_answered_as_failed() {
    for cuts in CUTS {
        let (world, _, outcome) = commit_over(First::DropBehind, cuts).await;
        outcome.unwrap();
        assert_eq!(visible(&world).await, 3);
    }
}

#[tokio::test]
async fn all_but_the_primarys_region_is_locked() {
    let world = world(&["m"]).await;
    world.one_entry.store(true, Ordering::Relaxed);
    let entries = |region| {
        let log = world.nodes[&1].groups.log(region);
        log.iter().filter(|(_, data)| data.is_some()).count()
    };
    let before = (entries(REGION), entries(REGION + 1));
    let client = world.client();
    put_all(&client).await.unwrap();
    client.settle().await;
    assert_eq!(entries(REGION), before.0 + 1, "the primary's");
    assert_eq!(entries(REGION + 1), before.1 + 2, "a lock, and its commit");
    assert_eq!(visible(&world).await, 3);
}

#[tokio::test]
async fn a_conflict_elsewhere_refuses_all_of_it() {
    let world = world(&["m"]).await;
    world.one_entry.store(true, Ordering::Relaxed);
    let client = world.client();
    let mut transaction = client.begin().await.unwrap();
    for key in ["a", "y"] {
        transaction.put(&table(1), record(key), vec![2]).unwrap();
    }
    let mut other = client.begin().await.unwrap();
    other.put(&table(1), record("y"), vec![3]).unwrap();
    other.commit().await.unwrap();
    let refused = transaction.commit().await.unwrap_err();
    assert!(matches!(refused, Error::Conflict { .. }), "{refused}");
    client.settle().await;
    let now = client.snapshot(client.timestamp().await.unwrap());
    assert_eq!(now.get(&record("a")).await.unwrap(), None);
    assert_eq!(now.get(&record("y")).await.unwrap(), Some(vec![3]));
}

/// Row nodes whose first phases of one row take long.
struct Slow {
    link: Arc<Link>,
    asked: Mutex<Vec<&'static str>>,
}

#[async_trait]
impl RowTransport for Slow {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        let (what, slow) = match &request {
            Request::Prewrite { mutations, .. } => {
                let of_last = mutations.iter().any(|mutation| mutation.key == record("z"));
                (if of_last { "lock z" } else { "lock a" }, of_last)
            }
            Request::CommitAtOnce { .. } => ("commit at once", false),
            Request::KeepAlive { .. } => ("keep alive", false),
            _ => ("", false),
        };
        self.asked.lock().push(what);
        if slow {
            // Until the primary's lock is kept alive.
            until(|| self.asked.lock().contains(&"keep alive")).await;
        }
        self.link.call(node, request).await
    }
}

#[tokio::test]
async fn a_transaction_that_locks_slowly_is_kept_alive_at_its_primary() {
    let world = world(&["m"]).await;
    let slow = Arc::new(Slow { link: world.link(), asked: Mutex::default() });
    let client = TxnClient::new(slow.clone(), Arc::new(Known(world.clone())));
    let client = client.with_one_entry(|| true);
    put_all(&client).await.unwrap();
    client.settle().await;
    let asked = slow.asked.lock().clone();
    assert!(asked.contains(&"lock a") && !asked.contains(&"commit at once"), "{asked:?}");
    assert_eq!(visible(&world).await, 3);
}
