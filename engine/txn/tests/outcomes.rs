//! What a client gets when its commit goes unanswered: the truth, or that it is not known.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use placement::api::{Catalog, Route};
use placement::client::{PlacementClient, PlacementTransport};
use support::{Faults, Known, Link, World, record, table};
use txn::api::{Mutation, Op, Request, Response};
use txn::{Directory, RowTransport, TxnClient};
use types::error::LockInfo;
use types::{
    Error, NodeId, RegionId, RegionKind, Result, SchemaVersion, Table, TableId, Timestamp,
};

/// What becomes of the messages of the second phase.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    /// They never arrive.
    Lost,
    /// They arrive; their answers do not.
    Unanswered,
    /// From the first of them on, nothing gets through.
    Severed,
}

struct Bad {
    link: Arc<Link>,
    second: Second,
    severed: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl RowTransport for Bad {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        use std::sync::atomic::Ordering::SeqCst;
        let gone = || Err(Error::Unavailable("the line is cut".into()));
        if self.severed.load(SeqCst) {
            return gone();
        }
        if !matches!(request, Request::Commit { .. }) {
            return self.link.call(node, request).await;
        }
        match self.second {
            Second::Lost => gone(),
            Second::Unanswered => {
                let _ = self.link.call(node, request).await;
                gone()
            }
            Second::Severed => {
                self.severed.store(true, SeqCst);
                gone()
            }
        }
    }
}

async fn commit(second: Second) -> (Arc<World>, Result<types::Timestamp>) {
    let world = World::new(1, 2, &["m"], Faults::default());
    world.tick.store(100, std::sync::atomic::Ordering::Relaxed);
    let severed = std::sync::atomic::AtomicBool::new(false);
    let bad = Arc::new(Bad { link: world.link(), second, severed });
    let bound = Duration::from_millis(50);
    let client = TxnClient::new(bad, Arc::new(Known(world.clone()))).with_bounds(bound, bound);
    let mut transaction = client.begin().await.unwrap();
    for key in ["a", "z"] {
        transaction.put(&table(1), record(key), vec![1]).unwrap();
    }
    let outcome = transaction.commit().await;
    (world, outcome)
}

async fn visible(world: &Arc<World>) -> usize {
    let client = world.client();
    let ts = client.timestamp().await.unwrap();
    client.snapshot(ts).batch_get(vec![record("a"), record("z")]).await.unwrap().len()
}

#[tokio::test]
async fn a_commit_that_never_arrives_is_rolled_back_and_said_to_be() {
    let (world, outcome) = commit(Second::Lost).await;
    assert!(matches!(outcome, Err(Error::RolledBack(_))), "{outcome:?}");
    assert_eq!(visible(&world).await, 0);
}

#[tokio::test]
async fn a_commit_whose_answers_are_lost_is_found_out() {
    let (world, outcome) = commit(Second::Unanswered).await;
    let commit_ts = outcome.unwrap();
    assert_eq!(visible(&world).await, 2);
    let before = world.client().snapshot(commit_ts.prev());
    assert_eq!(before.get(&record("a")).await.unwrap(), None);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_learned_is_not_guessed() {
    let (world, outcome) = commit(Second::Severed).await;
    let Err(error @ Error::OutcomeUnknown { .. }) = outcome else { panic!("{outcome:?}") };
    assert!(!error.is_conflict() && !error.is_retryable(), "nobody may run it again unseen");
    // The others find out in their own time.
    assert_eq!(visible(&world).await, 0);
}

#[tokio::test]
async fn a_living_lock_ends_the_wait_of_others_in_a_typed_error() {
    let world = World::new(1, 1, &[], Faults::default());
    let client = world.client().with_bounds(Duration::from_secs(5), Duration::from_millis(40));
    let start_ts = client.timestamp().await.unwrap();
    let (node, region) = world.home(&record("a"));
    let schema = Request::Schema {
        region: support::reference(&region),
        table: Box::new(types::Table::clone(&table(1))),
    };
    assert_eq!(node.service.handle(schema).await, Response::Done);
    let prewrite = Request::Prewrite {
        region: support::reference(&region),
        start_ts,
        primary: record("a"),
        mutations: vec![txn::api::Mutation {
            key: record("a"),
            op: txn::api::Op::Put(vec![1]),
            for_update_ts: None,
        }],
        ttl: 3_000,
        wait: 0,
        schema: (support::TABLE, 1),
    };
    assert_eq!(node.service.handle(prewrite).await, Response::Done);
    let now = client.timestamp().await.unwrap();
    let read = client.snapshot(now).get(&record("a")).await;
    assert!(matches!(read, Err(Error::Locked(_))), "{read:?}");
    let mut other = client.begin().await.unwrap();
    other.put(&table(1), record("a"), vec![2]).unwrap();
    let write = other.commit().await;
    assert!(matches!(write, Err(Error::Locked(_))), "{write:?}");
    // A learner that met the lock learns how it stands, and a later one is not its business.
    let lock = LockInfo { key: record("a"), primary: record("a"), start_ts, ttl: 3_000 };
    let resolution = client.resolve(std::slice::from_ref(&lock), now).await.unwrap();
    assert_eq!(
        (resolution.resolved, resolution.alive.map(|alive| alive.0)),
        (0, Some(lock.clone()))
    );
    let resolution = client.resolve(&[lock], start_ts.prev()).await.unwrap();
    assert_eq!(resolution, txn::Resolution::default());
}

#[tokio::test]
async fn transactions_have_a_size_limit() {
    let world = World::new(1, 1, &[], Faults::default());
    let mut transaction = world.client().begin().await.unwrap();
    let row = vec![0; 40 << 20];
    transaction.put(&table(1), record("a"), row.clone()).unwrap();
    transaction.put(&table(1), record("b"), row.clone()).unwrap();
    let savepoint = transaction.savepoint();
    let refused = transaction.put(&table(1), record("c"), row);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    transaction.put(&table(1), record("a"), vec![1]).unwrap();
    transaction.rollback_to(savepoint);
    assert_eq!((transaction.len(), transaction.bytes() >> 20), (2, 80));
}

/// Inserts rows of 500 bytes, all in one transaction.
async fn fill(client: &TxnClient, rows: u32) {
    let mut transaction = client.begin().await.unwrap();
    for number in 0..rows {
        let key = record(&format!("k{number:05}"));
        transaction.insert(&table(1), key, vec![0; 500]).unwrap();
    }
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn large_transactions_go_in_batches() {
    let world = World::new(1, 2, &["k05000"], Faults::default());
    let client = world.client();
    fill(&client, 10_000).await;
    client.settle().await;
    let ts = client.timestamp().await.unwrap();
    let (start, end) = (record(""), types::key::records_end(support::TABLE));
    let pairs = client.snapshot(ts).scan(start, end, false).collect().await.unwrap();
    assert_eq!(pairs.len(), 10_000);
    let sizes: Vec<_> = world
        .nodes
        .values()
        .flat_map(|node| node.store.regions())
        .map(|view| (view.size.rows, view.size.bytes))
        .collect();
    let weight = (record("k00000").len() + 500) as u64;
    assert_eq!(sizes, [(5_000, 5_000 * weight), (5_000, 5_000 * weight)]);
    let longest = world.nodes.values().flat_map(|node| {
        let regions = node.groups.regions();
        regions.into_iter().flat_map(|region| node.groups.log(region)).filter_map(|(_, data)| data)
    });
    assert!(longest.map(|data| data.len()).max().unwrap() < 2 << 20);
}

#[tokio::test]
async fn who_keeps_to_a_rate_reads_small_pages() {
    let world = World::new(1, 1, &[], Faults::default());
    let client = world.client();
    fill(&client, 2_000).await;
    let ts = client.timestamp().await.unwrap();
    let ledger = resources::Ledger::new(Arc::new(env::RealClock::new()));
    for (rate, longest) in [(None, 2_000), (Some(10_000), 2_000), (Some(200), 550)] {
        let group = types::ResourceGroup {
            ru_per_sec: rate,
            ..types::ResourceGroup::new(&format!("g{rate:?}")).unwrap()
        };
        let client = client.charged_to(resources::Payer::new(ledger.account(&group)));
        let range = (record(""), types::key::records_end(support::TABLE));
        let mut scan = client.snapshot(ts).scan(range.0, range.1, false);
        let mut pages = Vec::new();
        while let Some(page) = scan.next_page().await.unwrap() {
            pages.push(page.len());
        }
        assert_eq!(pages.iter().sum::<usize>(), 2_000, "{rate:?}");
        let most = *pages.iter().max().unwrap();
        assert!((longest / 2..=longest).contains(&most), "pages of {pages:?} rows at {rate:?}");
    }
}

#[tokio::test]
async fn latches_of_an_unknown_outcome_come_back_though_the_region_was_split() {
    let world = World::new(1, 1, &[], Faults::default());
    let client = world.client();
    let mut first = client.begin().await.unwrap();
    first.put(&table(1), record("a"), vec![1]).unwrap();
    first.commit().await.unwrap();
    let (node, region) = world.home(&record("a"));
    // The outcome is withheld, and so are those of the first attempts to find out.
    node.groups.plague(Faults { unknown: 1.0, ..Faults::default() });
    let request = Request::Rollback {
        region: support::reference(&region),
        start_ts: client.timestamp().await.unwrap(),
        keys: vec![record("a")],
    };
    let response = node.service.handle(request).await;
    assert!(matches!(response, Response::Failed(Error::Timeout { .. })), "{response:?}");
    assert!(matches!(world.split(&record("m")).await, Err(Error::Timeout { .. })));
    node.groups.heal();
    let mut second = client.begin().await.unwrap();
    second.put(&table(1), record("a"), vec![2]).unwrap();
    let bound = Duration::from_secs(4);
    tokio::time::timeout(bound, second.commit()).await.expect("the latch is back").unwrap();
}

#[tokio::test]
async fn latches_of_an_unknown_outcome_are_kept_while_the_disk_is_full() {
    // How much is applied at a time is the seed's; what is decided twice shows within one batch.
    futures::future::join_all((0..8).map(commit_over_a_full_disk)).await;
}

/// A commit that is in the log when the disk gets full, and is asked for again when it has room.
async fn commit_over_a_full_disk(seed: u64) {
    use std::sync::atomic::Ordering::Relaxed;
    let world = World::new(seed, 1, &[], Faults::default());
    let (node, region) = world.home(&record("a"));
    let region = support::reference(&region);
    let schema = Request::Schema { region, table: Box::new(Table::clone(&table(1))) };
    assert_eq!(node.service.handle(schema).await, Response::Done);
    let start_ts = world.timestamp();
    let prewrite = Request::Prewrite {
        region,
        start_ts,
        primary: record("a"),
        mutations: vec![Mutation { key: record("a"), op: Op::Put(vec![1]), for_update_ts: None }],
        ttl: 60_000,
        schema: (support::TABLE, 1),
        wait: 0,
    };
    assert_eq!(node.service.handle(prewrite).await, Response::Done);
    let (commit_ts, keys) = (world.timestamp(), vec![record("a")]);
    let commit = Request::Commit { region, start_ts, commit_ts, keys };
    node.groups.held.store(true, Relaxed);
    node.groups.plague(Faults { unknown: 1.0, ..Faults::default() });
    let response = node.service.handle(commit.clone()).await;
    assert!(matches!(response, Response::Failed(Error::Timeout { .. })), "{response:?}");
    node.groups.full.store(true, Relaxed);
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.groups.full.store(false, Relaxed);
    node.groups.heal();
    let service = node.service.clone();
    let again = tokio::spawn(async move { service.handle(commit).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    node.groups.held.store(false, Relaxed);
    assert_eq!(again.await.unwrap(), Response::Done, "seed {seed}");
    assert!(node.groups.fault().is_none(), "seed {seed}: {:?}", node.groups.fault());
}

#[tokio::test]
async fn nothing_is_refused_for_good_by_a_leader_that_nobody_confirms() {
    let world = World::new(1, 1, &[], Faults::default());
    let mut first = world.client().begin().await.unwrap();
    first.put(&table(1), record("a"), vec![1]).unwrap();
    first.commit().await.unwrap();
    let (node, region) = world.home(&record("a"));
    let region = support::reference(&region);
    let (start_ts, commit_ts) = (world.timestamp(), world.timestamp());
    let key = record("a");
    let mutation = Mutation { key: key.clone(), op: Op::Insert(vec![2]), for_update_ts: None };
    let requests = [
        Request::Commit { region, start_ts, commit_ts, keys: vec![key.clone()] },
        Request::KeepAlive { region, primary: key.clone(), start_ts, ttl: 60_000 },
        Request::Prewrite {
            region,
            start_ts,
            primary: key,
            mutations: vec![mutation],
            ttl: 60_000,
            schema: (support::TABLE, 1),
            wait: 0,
        },
    ];
    for alone in [true, false] {
        node.groups.alone.store(alone, std::sync::atomic::Ordering::Relaxed);
        for request in &requests {
            let response = node.service.handle(request.clone()).await;
            let Response::Failed(error) = response else { panic!("{response:?}") };
            let final_word = matches!(error, Error::RolledBack(_) | Error::Duplicate { .. });
            assert_eq!(final_word, !alone, "{request:?}: {error}");
        }
    }
}

/// A directory that repeats an old answer until it learns that it was wrong, as placement's client
/// does.
struct Remembering {
    known: Known,
    old: Mutex<Option<Route>>,
}

#[async_trait]
impl Directory for Remembering {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.known.timestamp().await
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        let old = self.old.lock().clone();
        match old.filter(|old| old.region.contains(key)) {
            Some(old) => Ok(old),
            None => self.known.locate(key).await,
        }
    }

    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.known.regions(kind).await
    }

    fn forget(&self, region: RegionId) {
        let mut old = self.old.lock();
        if old.as_ref().is_some_and(|old| old.region.id == region) {
            *old = None;
        }
    }
}

/// A node that once denies a region that it leads, as one does that has not created it yet.
struct Denying {
    link: Arc<Link>,
    denied: Mutex<Option<RegionId>>,
}

#[async_trait]
impl RowTransport for Denying {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        let denied = *self.denied.lock();
        if let (Some(denied), Request::Get { region, .. }) = (denied, &request)
            && region.id == denied
        {
            *self.denied.lock() = None;
            return Err(Error::RegionNotFound(denied));
        }
        self.link.call(node, request).await
    }
}

async fn read_a_half_that_was_lost_from_sight() -> Result<Option<Vec<u8>>> {
    let world = World::new(1, 1, &[], Faults::default());
    let directory = Arc::new(Remembering { known: Known(world.clone()), old: Mutex::default() });
    let transport = Arc::new(Denying { link: world.link(), denied: Mutex::default() });
    let client = TxnClient::new(transport.clone(), directory.clone());
    let mut first = client.begin().await?;
    first.put(&table(1), record("x"), vec![1])?;
    first.commit().await?;
    client.settle().await;
    let whole = directory.known.locate(&record("x")).await?;
    let half = world.split(&record("m")).await?;
    let now = client.timestamp().await?;
    // The leader returns both halves. Then the right one is denied and forgotten, and meanwhile
    // the directory was given the old routes again.
    client.snapshot(now).get(&record("a")).await?;
    *directory.old.lock() = Some(whole);
    *transport.denied.lock() = Some(half);
    client.snapshot(now).get(&record("x")).await
}

#[test]
fn a_half_that_was_lost_from_sight_is_found_though_the_directory_remembers_the_whole() {
    // On a thread of its own: a search without a pause cannot be ended from inside its runtime.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        sender.send(runtime.unwrap().block_on(read_a_half_that_was_lost_from_sight()))
    });
    let read = receiver.recv_timeout(Duration::from_secs(30)).expect("found within the bound");
    assert_eq!(read.unwrap(), Some(vec![1]));
}

/// Placement with a catalog, in process.
struct MemoryPlacement {
    known: Known,
    catalog: Mutex<Catalog>,
}

#[async_trait]
impl PlacementTransport for MemoryPlacement {
    async fn call(
        &self,
        _: &str,
        request: placement::api::Request,
    ) -> Result<placement::api::Response> {
        use placement::api::{Request, Response};
        Ok(match request {
            Request::Timestamps { .. } => {
                let catalog = self.catalog.lock().version;
                Response::Timestamps { first: self.known.timestamp().await?, catalog, term: 1 }
            }
            Request::Catalog { .. } => {
                Response::Catalog(Some(Box::new(self.catalog.lock().clone())))
            }
            other => Response::Failed(Error::Invalid(format!("not asked here: {other:?}"))),
        })
    }
}

/// A directory whose tables are those of placement's catalog.
struct Catalogued {
    known: Known,
    placement: PlacementClient,
}

#[async_trait]
impl Directory for Catalogued {
    async fn timestamp(&self) -> Result<Timestamp> {
        Directory::timestamp(&self.placement).await
    }

    async fn commit_timestamp(&self, tables: &[(TableId, SchemaVersion)]) -> Result<Timestamp> {
        Directory::commit_timestamp(&self.placement, tables).await
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        self.known.locate(key).await
    }

    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.known.regions(kind).await
    }

    fn forget(&self, _: RegionId) {}
}

#[tokio::test]
async fn a_commit_into_a_table_that_is_gone_is_refused_whole() {
    let world = World::new(1, 2, &["m"], Faults::default());
    world.tick.store(100, std::sync::atomic::Ordering::Relaxed);
    let tables = vec![types::Table::clone(&table(1))];
    let catalog = Mutex::new(Catalog {
        version: 1,
        tables: tables.into_iter().map(Arc::new).collect(),
        ..Catalog::default()
    });
    let in_memory = Arc::new(MemoryPlacement { known: Known(world.clone()), catalog });
    let placement = PlacementClient::new(in_memory.clone(), [(1, "placement".to_owned())]);
    let directory = Arc::new(Catalogued { known: Known(world.clone()), placement });
    let client = TxnClient::new(world.link(), directory);
    let mut first = client.begin().await.unwrap();
    first.put(&table(1), record("a"), vec![1]).unwrap();
    first.commit().await.unwrap();
    let mut late = client.begin().await.unwrap();
    for key in ["b", "z"] {
        late.put(&table(1), record(key), vec![1]).unwrap();
    }
    // The regions go on taking locks: they get to know of it later.
    *in_memory.catalog.lock() = Catalog { version: 2, ..Catalog::default() };
    let outcome = late.commit().await;
    let gone = Error::SchemaChanged { table: support::TABLE, sent: 1, known: None };
    assert_eq!(outcome, Err(gone));
    let ts = client.timestamp().await.unwrap();
    let left = client.snapshot(ts).batch_get(vec![record("b"), record("z")]).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}
