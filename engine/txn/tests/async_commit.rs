//! Commits that are answered after the first phase: what becomes of one whose client is gone, or whose requests are lost,
//! late or sent twice, at every step; and what whoever meets its locks may conclude.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use support::{Faults, Known, Link, TABLE, World, record, reference, table};
use txn::api::{
    AsyncPrewrite, Expect, Mutation, Op, Request, Response, Secondaries, Taking, Waiting,
};
use txn::locks::Lock;
use txn::{Floors, RowTransport, Sweep, TxnClient};
use types::{Error, NodeId, Result, Timestamp};

/// A row in each of three regions; the first is the primary.
const ROWS: [&str; 3] = ["a", "k", "z"];
const CUTS: [&str; 2] = ["h", "p"];
/// First and second phase of each, and some to spare.
const STEPS: u64 = 8;
/// How long a commit is waited for, past the bounds of its client.
const WHILE: Duration = Duration::from_secs(2);

/// A world of three regions that know the table, on three nodes.
async fn world() -> Arc<World> {
    let world = World::new(1, 3, &CUTS, Faults::default());
    world.async_commits.store(true, Ordering::Relaxed);
    world.tick.store(100, Ordering::Relaxed);
    put_all(&world.client(), 0).await.unwrap();
    world
}

/// Puts the three rows, and waits for the second phase.
async fn put_all(client: &TxnClient, value: u8) -> Result<Timestamp> {
    let committed = put(client, &ROWS, value).await;
    client.settle().await;
    committed
}

async fn put(client: &TxnClient, rows: &[&str], value: u8) -> Result<Timestamp> {
    let mut transaction = client.begin().await.unwrap();
    transaction.wait_for_rows(Duration::ZERO);
    for key in rows {
        transaction.put(&table(1), record(key), vec![value]).unwrap();
    }
    transaction.commit().await
}

/// The rows as of a timestamp.
async fn rows_at(client: &TxnClient, ts: Timestamp) -> Vec<u8> {
    let found = client.snapshot(ts).batch_get(ROWS.map(record).to_vec()).await.unwrap();
    found.into_iter().map(|(_, row)| row[0]).collect()
}

async fn rows(world: &Arc<World>) -> Vec<u8> {
    let client = world.client();
    rows_at(&client, client.timestamp().await.unwrap()).await
}

fn lock(world: &World, key: &str) -> Option<Arc<Lock>> {
    let key = record(key);
    world.home(&key).0.store.locks().get(&key)
}

async fn ask(
    world: &World,
    key: &str,
    request: impl FnOnce(txn::api::RegionRef) -> Request,
) -> Response {
    let (node, region) = world.home(&record(key));
    node.service.handle(request(reference(&region))).await
}

/// What becomes of one request of a transaction, and of all after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The client dies before it.
    Dies,
    /// The client dies once it is carried out.
    DiesBehind,
    /// It is carried out, and what its region is asked from then on, and all answers are lost.
    Unanswered,
    /// It is lost, and what its region is asked from then on, and comes after everything else.
    Late,
    /// It is carried out, and comes once more after everything else.
    Twice,
    /// Its leader is deposed once it is carried out, and its answer lost.
    Deposed,
}

const FAULTS: [Fault; 6] =
    [Fault::Dies, Fault::DiesBehind, Fault::Unanswered, Fault::Late, Fault::Twice, Fault::Deposed];

/// A way to the leaders on which something happens to one request.
struct Bad {
    world: Arc<World>,
    link: Arc<Link>,
    fault: Fault,
    at: u64,
    step: AtomicU64,
    /// The region of the request at which something happens.
    region: AtomicU64,
    late: Mutex<Vec<(NodeId, Request)>>,
}

impl Bad {
    fn client(world: &Arc<World>, fault: Fault, at: u64) -> (Arc<Self>, TxnClient) {
        let (link, late) = (world.link(), Mutex::default());
        let (step, region) = (AtomicU64::default(), AtomicU64::default());
        let bad = Arc::new(Bad { world: world.clone(), link, fault, at, step, region, late });
        let client = TxnClient::new(bad.clone(), Arc::new(Known(world.clone())));
        let bound = Duration::from_millis(50);
        (bad, client.with_bounds(bound, bound).with_async_commits(|| true))
    }
}

#[async_trait]
impl RowTransport for Bad {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        let step = self.step.fetch_add(1, Ordering::SeqCst);
        let lost = || Err(Error::timeout("an answer", Duration::from_millis(1)));
        let dead = std::future::pending::<Result<Response>>;
        let region = region_of(&request);
        if step == self.at {
            self.region.store(region, Ordering::SeqCst);
        }
        let of_region = step >= self.at && self.region.load(Ordering::SeqCst) == region;
        match self.fault {
            Fault::Dies if step >= self.at => dead().await,
            Fault::DiesBehind if step > self.at => dead().await,
            Fault::DiesBehind if step == self.at => {
                self.link.call(node, request).await?;
                dead().await
            }
            Fault::Unanswered if of_region => {
                self.link.call(node, request).await?;
                lost()
            }
            Fault::Deposed if step == self.at => {
                self.link.call(node, request).await?;
                self.world.nodes[&node].groups.elect(region);
                lost()
            }
            Fault::Late if of_region => {
                self.late.lock().push((node, request));
                lost()
            }
            Fault::Twice if step == self.at => {
                self.late.lock().push((node, request.clone()));
                self.link.call(node, request).await
            }
            _ => self.link.call(node, request).await,
        }
    }
}

fn region_of(request: &Request) -> types::RegionId {
    match request {
        Request::PrewriteAsync { region, .. }
        | Request::Commit { region, .. }
        | Request::Rollback { region, .. }
        | Request::Schema { region, .. }
        | Request::KeepAlive { region, .. } => region.id,
        other => panic!("not of a commit: {other:?}"),
    }
}

/// Whatever happens at whatever step: all rows are written or none, for good, and as the client was answered.
#[tokio::test]
async fn at_every_step_it_is_all_or_nothing_and_as_answered() {
    let cases = FAULTS.iter().flat_map(|fault| (0..STEPS).map(|at| happens(*fault, at)));
    let seen: BTreeSet<_> = futures::future::join_all(cases).await.into_iter().collect();
    assert!(seen.contains(&(0, None)) && seen.contains(&(1, None)), "clients died early and late");
    assert!(seen.contains(&(1, Some(true))) && seen.contains(&(0, Some(false))), "{seen:?}");
}

/// What the rows are after that, and whether the client was answered that it has committed, if it was answered.
async fn happens(fault: Fault, at: u64) -> (u8, Option<bool>) {
    let world = world().await;
    let (bad, client) = Bad::client(&world, fault, at);
    let answered = tokio::time::timeout(WHILE, put_all(&client, 1)).await.ok();
    let before = rows(&world).await;
    let late = std::mem::take(&mut *bad.late.lock());
    for (node, request) in late {
        world.nodes[&node].service.handle(request).await;
    }
    let after = rows(&world).await;
    assert_eq!(before, after, "{fault:?} at {at}: seen, and not any more");
    assert!(before == [0; 3] || before == [1; 3], "{fault:?} at {at}: {before:?}");
    match &answered {
        Some(Ok(commit_ts)) => {
            assert_eq!(before, [1; 3], "{fault:?} at {at}: acknowledged");
            let client = world.client();
            assert_eq!(rows_at(&client, commit_ts.prev()).await, [0; 3]);
            assert_eq!(rows_at(&client, *commit_ts).await, [1; 3]);
        }
        Some(Err(Error::OutcomeUnknown { .. })) | None => {}
        Some(Err(error)) => assert_eq!(before, [0; 3], "{fault:?} at {at}: refused by {error}"),
    }
    // Whoever writes next gets past what is left.
    put_all(&world.client(), 2).await.unwrap();
    assert_eq!(rows(&world).await, [2; 3], "{fault:?} at {at}");
    (before[0], answered.map(|answer| answer.is_ok()))
}

#[tokio::test]
async fn it_is_committed_before_its_second_phase() {
    let world = world().await;
    let entries = || {
        let one = |(at, node): (usize, &support::Node)| {
            let log = node.groups.log(100 + at as u64);
            log.iter().filter(|(_, data)| data.is_some()).count()
        };
        world.nodes.values().enumerate().map(one).collect::<Vec<_>>()
    };
    let before = entries();
    // All that comes after the three first phases is lost.
    let (_, client) = Bad::client(&world, Fault::Dies, 3);
    let commit_ts = put(&client, &ROWS, 1).await.unwrap();
    assert_eq!(entries(), before.iter().map(|count| count + 1).collect::<Vec<_>>());
    let least = lock(&world, "k").unwrap().async_commit.clone().unwrap().min_commit_ts;
    assert!(least <= commit_ts);
    // Somebody who knows nothing of it.
    let reader = world.client();
    assert_eq!(rows_at(&reader, least.prev()).await, [0; 3]);
    assert_eq!(rows_at(&reader, commit_ts.prev()).await, [0; 3]);
    assert_eq!(rows_at(&reader, commit_ts).await, [1; 3]);
    assert!(ROWS.iter().all(|key| lock(&world, key).is_none()), "who met the locks has ended them");
}

#[tokio::test]
async fn readers_before_its_time_do_not_mind_its_locks() {
    let world = world().await;
    let begun = world.timestamp();
    let (_, client) = Bad::client(&world, Fault::Dies, 3);
    put(&client, &ROWS, 1).await.unwrap();
    let first = lock(&world, "a").unwrap();
    let ts = first.async_commit.as_ref().unwrap().min_commit_ts.prev();
    assert!(ts > begun && ts > first.start_ts);
    let keys = vec![record("a")];
    let answer = ask(&world, "a", |region| Request::Get { region, keys, ts }).await;
    assert!(matches!(&answer, Response::Pairs { pairs, .. } if pairs[0].1 == [0]), "{answer:?}");
    let (keys, ts) = (vec![record("a")], ts.next());
    let answer = ask(&world, "a", |region| Request::Get { region, keys, ts }).await;
    assert!(matches!(&answer, Response::Failed(Error::Locked(_))), "{answer:?}");
}

#[tokio::test]
async fn a_key_that_is_missing_is_sealed_once_its_time_is_over_and_not_before() {
    let world = world().await;
    let (_, client) = Bad::client(&world, Fault::Dies, 2);
    let commit = put(&client, &ROWS, 1);
    assert!(tokio::time::timeout(Duration::from_millis(300), commit).await.is_err());
    let locked: Vec<_> = ROWS.iter().filter_map(|key| lock(&world, key)).collect();
    assert_eq!(locked.len(), 2);
    let missing = ROWS.iter().find(|key| lock(&world, key).is_none()).unwrap();
    let start_ts = locked[0].start_ts;
    let check = |seal| {
        let keys = vec![record(missing)];
        move |region| Request::CheckSecondaries { region, start_ts, keys, seal }
    };
    let standing = ask(&world, missing, check(false)).await;
    assert_eq!(standing, Response::Secondaries(Secondaries::Missing));
    // Whoever meets it while its time is not over leaves it alone.
    world.tick.store(0, Ordering::Relaxed);
    let (other, locks) = (world.client(), [locked[0].info(), locked[1].info()]);
    let met = other.resolve(&locks, Timestamp::MAX).await.unwrap();
    assert!(met.resolved == 0 && met.alive.is_some(), "{met:?}");
    let standing = ask(&world, missing, check(false)).await;
    assert_eq!(standing, Response::Secondaries(Secondaries::Missing));
    world.advanced.fetch_add(10_000, Ordering::Relaxed);
    assert_eq!(rows(&world).await, [0; 3]);
    let standing = ask(&world, missing, check(false)).await;
    assert_eq!(standing, Response::Secondaries(Secondaries::RolledBack));
    let put = Mutation { key: record(missing), op: Op::Put(vec![1]), for_update_ts: None };
    let first = Box::new(AsyncPrewrite {
        start_ts,
        primary: record("a"),
        secondaries: Vec::new(),
        mutations: vec![put],
        ttl: 3_000,
        schema: (TABLE, 1),
        others: Vec::new(),
        wait: 0,
    });
    let late = ask(&world, missing, |region| Request::PrewriteAsync { region, first });
    assert_eq!(late.await, Response::Failed(Error::RolledBack(start_ts)));
}

#[tokio::test]
async fn what_keeps_it_alive_keeps_its_promise() {
    let world = world().await;
    let (_, client) = Bad::client(&world, Fault::Dies, 3);
    let commit_ts = put(&client, &ROWS, 1).await.unwrap();
    let before = lock(&world, "a").unwrap();
    let (primary, start_ts) = (record("a"), before.start_ts);
    let ttl = before.ttl + 60_000;
    let kept = |region| Request::KeepAlive { region, primary, start_ts, ttl };
    assert_eq!(ask(&world, "a", kept).await, Response::Done);
    let after = lock(&world, "a").unwrap();
    assert_eq!((after.ttl, &after.async_commit), (ttl, &before.async_commit));
    assert_eq!(rows_at(&world.client(), commit_ts).await, [1; 3]);
}

/// The second phase reaches all but the primary; what it wrote is overwritten and removed before anybody looks.
#[tokio::test]
async fn a_secondary_that_has_committed_says_so_until_nobody_asks() {
    let world = world().await;
    let (_, client) = Bad::client(&world, Fault::Dies, 3);
    let commit_ts = put(&client, &ROWS, 1).await.unwrap();
    let start_ts = lock(&world, "a").unwrap().start_ts;
    for key in ["k", "z"] {
        let keys = vec![record(key)];
        let commit = move |region| Request::Commit { region, start_ts, commit_ts, keys };
        assert_eq!(ask(&world, key, commit).await, Response::Done);
    }
    let writer = world.client();
    for value in [7, 8] {
        put(&writer, &["k"], value).await.unwrap();
        put(&writer, &["z"], value).await.unwrap();
    }
    writer.settle().await;
    let floors = Floors { read: world.timestamp(), settled: Timestamp::ZERO };
    for key in ["k", "z"] {
        let (node, region) = world.home(&record(key));
        node.service.collect(region.id, floors).await.unwrap();
        let mut sweep = Sweep::new(&node.store, region.id).unwrap();
        while node.store.sweep(&mut sweep).unwrap() {}
    }
    assert!(lock(&world, "a").is_some());
    assert_eq!(rows(&world).await, [1, 8, 8]);
}

#[tokio::test]
async fn who_may_not_read_such_locks_is_sent_none() {
    let world = world().await;
    world.async_commits.store(false, Ordering::Relaxed);
    let watched = Watched::of(&world);
    let client = TxnClient::new(watched.clone(), Arc::new(Known(world.clone())));
    put_all(&client, 1).await.unwrap();
    assert_eq!((rows(&world).await, watched.asynchronous.load(Ordering::SeqCst)), (vec![1; 3], 0));
    put_all(&client.with_async_commits(|| true), 2).await.unwrap();
    assert_eq!((rows(&world).await, watched.asynchronous.load(Ordering::SeqCst)), (vec![2; 3], 3));
}

/// So that leaders in this process write it as one.
#[tokio::test]
async fn both_phases_ask_all_regions_together() {
    let world = world().await;
    let watched = Watched::of(&world);
    let client = TxnClient::new(watched.clone(), Arc::new(Known(world.clone())));
    put_all(&client.with_async_commits(|| true), 1).await.unwrap();
    assert_eq!(rows(&world).await, [1; 3]);
    assert_eq!(*watched.together.lock(), [true; 6], "a request of each phase for each region");
}

/// Counts first phases of asynchronous commits, and notes of both phases whether they were asked together.
struct Watched {
    link: Arc<Link>,
    asynchronous: AtomicU64,
    together: Mutex<Vec<bool>>,
}

impl Watched {
    fn of(world: &Arc<World>) -> Arc<Self> {
        let (asynchronous, together) = (AtomicU64::default(), Mutex::default());
        Arc::new(Watched { link: world.link(), asynchronous, together })
    }
}

#[async_trait]
impl RowTransport for Watched {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if matches!(request, Request::PrewriteAsync { .. }) {
            self.asynchronous.fetch_add(1, Ordering::SeqCst);
        }
        if matches!(request, Request::PrewriteAsync { .. } | Request::Commit { .. }) {
            self.together.lock().push(raft::is_together());
        }
        self.link.call(node, request).await
    }
}

/// A first phase is refused, the transaction is answered as failed, and the same request comes once more when nothing is in
/// its way.
#[tokio::test]
async fn a_first_phase_that_was_refused_and_comes_again_commits_nothing() {
    let world = world().await;
    let mut holder = world.client().begin().await.unwrap();
    let keys = vec![record("z")];
    let held =
        holder.acquire(&table(1), keys, Taking::alone(Waiting::No, Expect::Nothing), None).await;
    held.unwrap();
    let (requests, dead) = (Mutex::default(), AtomicBool::new(false));
    let repeats = Arc::new(Repeats { link: world.link(), requests, dead });
    let client = TxnClient::new(repeats.clone(), Arc::new(Known(world.clone())));
    let refused = put(&client.with_async_commits(|| true), &ROWS, 1).await;
    repeats.dead.store(true, Ordering::SeqCst);
    assert!(matches!(refused, Err(Error::Held { .. })), "{refused:?}");
    holder.rollback().await;
    let repeated = std::mem::take(&mut *repeats.requests.lock());
    for (node, request) in repeated {
        world.nodes[&node].service.handle(request).await;
    }
    assert_eq!(rows(&world).await, [0; 3]);
}

/// Keeps first phases, to repeat them; what a dead client still asks is lost.
struct Repeats {
    link: Arc<Link>,
    requests: Mutex<Vec<(NodeId, Request)>>,
    dead: AtomicBool,
}

#[async_trait]
impl RowTransport for Repeats {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if self.dead.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        if matches!(request, Request::PrewriteAsync { .. }) {
            self.requests.lock().push((node, request.clone()));
        }
        self.link.call(node, request).await
    }
}

/// Of two that wait for each other in two regions, one gives way at once.
#[tokio::test]
async fn two_that_lock_the_same_rows_do_not_wait_for_each_other() {
    let world = world().await;
    world.tick.store(0, Ordering::Relaxed);
    let crossed = Arc::new(Crossed { link: world.link(), began: tokio::sync::Barrier::new(2) });
    let client = TxnClient::new(crossed, Arc::new(Known(world.clone())));
    let client = client.with_async_commits(|| true);
    let both = async { tokio::join!(put(&client, &["a", "k"], 1), put(&client, &["a", "k"], 2)) };
    let (one, other) = tokio::time::timeout(WHILE, both).await.expect("they wait for each other");
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let refused = one.err().or(other.err()).unwrap();
    assert!(refused.is_conflict(), "{refused}");
}

/// First phases of the first value go to the first region first, of the second to the second.
struct Crossed {
    link: Arc<Link>,
    began: tokio::sync::Barrier,
}

#[async_trait]
impl RowTransport for Crossed {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if let Request::PrewriteAsync { first, .. } = &request {
            let mutations = &first.mutations;
            let one = matches!(&mutations[0].op, Op::Put(value) if value[0] == 1);
            let first = (mutations[0].key == record("a")) == one;
            if first {
                let answer = self.link.call(node, request).await;
                self.began.wait().await;
                return answer;
            }
            // Once the other has its lock.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.link.call(node, request).await
    }
}

/// All keys are locked, no answer comes, and somebody who meets the locks finishes the transaction.
#[tokio::test]
async fn whoever_does_not_know_whether_it_is_committed_asks() {
    let mut committed = 0;
    for at in 0..3 {
        let world = world().await;
        let (bad, client) = Bad::client(&world, Fault::Unanswered, at);
        let commit = tokio::spawn(async move { put(&client, &ROWS, 1).await });
        let all_locked = async {
            while !ROWS.iter().all(|key| lock(&world, key).is_some()) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(WHILE, all_locked).await.expect("the locks");
        assert_eq!(rows(&world).await, [1; 3]);
        match commit.await.unwrap() {
            Ok(_) => committed += 1,
            // Nothing is learned of the primary.
            Err(Error::OutcomeUnknown { .. }) => {
                let (_, primary) = world.home(&record("a"));
                assert_eq!(bad.region.load(Ordering::SeqCst), primary.id);
            }
            Err(error) => panic!("{at}: it is committed, and refused by {error}"),
        }
        assert_eq!(rows(&world).await, [1; 3]);
    }
    assert_eq!(committed, 2);
}

#[tokio::test]
async fn time_does_not_end_what_is_committed() {
    let world = world().await;
    let (_, client) = Bad::client(&world, Fault::Dies, 3);
    put(&client, &ROWS, 1).await.unwrap();
    world.advanced.fetch_add(3_600_000, Ordering::Relaxed);
    assert_eq!(rows(&world).await, [1; 3]);
}
