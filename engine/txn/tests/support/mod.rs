//! A cluster in one process with a clock of its own: row nodes whose groups lose, delay and repeat as
//! a seed says, a directory with stale routes, links that break.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod groups;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use env::Random;
use kv::MemoryKv;
use parking_lot::Mutex;
use placement::api::Route;
use raft::Machines;
use txn::api::{Current, Expect, RegionRef, Request, Response};
use txn::{Directory, RowMachines, RowStore, RowTransport, TxnClient, TxnService, WaitGraph};
use types::{
    Column, ColumnType, Epoch, Error, IntWidth, NodeId, Peer, PeerRole, Region, RegionId,
    RegionKind, Result, Table, TableId, Timestamp, key,
};

use groups::SimGroups;

pub const TABLE: TableId = 7;

/// What goes wrong, and how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Longest delay of a message or an apply, in milliseconds.
    pub delay_ms: u64,
    /// A request is lost.
    pub lose_request: f64,
    /// An answer is lost.
    pub lose_answer: f64,
    /// A request arrives a second time, later.
    pub repeat: f64,
    /// A proposal is refused.
    pub drop: f64,
    /// A proposal's outcome is not reported.
    pub unknown: f64,
    /// A leader that was deposed some time ago answers of row locks, on its own word.
    pub deposed: f64,
}

pub struct Node {
    pub id: NodeId,
    pub store: Arc<RowStore>,
    pub groups: Arc<SimGroups>,
    pub service: TxnService,
}

/// The cluster.
pub struct World {
    pub random: Random,
    pub faults: Mutex<Faults>,
    pub nodes: BTreeMap<NodeId, Node>,
    started: Instant,
    /// How much faster the cluster's clock runs than the machine's.
    pub speed: AtomicU64,
    /// Milliseconds that the clock was put forward.
    pub advanced: AtomicU64,
    /// Milliseconds that each of the directory's timestamps puts it forward.
    pub tick: AtomicU64,
    /// Whether clients' transactions of one region commit in one entry.
    pub one_entry: AtomicBool,
    /// Whether those of several regions commit asynchronously.
    pub async_commits: AtomicBool,
    last: Mutex<Timestamp>,
    ids: AtomicU64,
    routes: Mutex<Vec<Route>>,
}

pub fn table(version: u32) -> Arc<Table> {
    Arc::new(Table {
        id: TABLE,
        version,
        database: "d".into(),
        name: "t".into(),
        columns: vec![Column {
            id: 1,
            name: "k".into(),
            ty: ColumnType::Int { width: IntWidth::Big, unsigned: false },
            nullable: false,
            default: None,
            original: None,
            auto_increment: false,
            on_update_now: false,
            hidden: false,
            comment: String::new(),
        }],
        primary_key: vec![1],
        indexes: vec![],
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    })
}

/// A record key from a short name.
pub fn record(name: &str) -> Vec<u8> {
    let mut key = key::records_start(TABLE);
    key.extend_from_slice(name.as_bytes());
    key
}

/// The short name of a record key.
pub fn name(key: &[u8]) -> String {
    let prefix = key::records_start(TABLE);
    let end = key::records_end(TABLE);
    match key.strip_prefix(prefix.as_slice()) {
        _ if key == end => "end".into(),
        Some([]) => "start".into(),
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => "?".into(),
    }
}

impl World {
    /// Nodes, and regions cut at the given names, spread over the nodes in turn.
    pub fn new(seed: u64, nodes: u64, cuts: &[&str], faults: Faults) -> Arc<Self> {
        let world = Arc::new_cyclic(|world| Self::build(world, (seed, nodes), cuts, faults));
        world.refresh();
        world
    }

    fn build(
        world: &Weak<World>,
        (seed, nodes): (u64, u64),
        cuts: &[&str],
        faults: Faults,
    ) -> World {
        let random = Random::seeded(seed);
        let waits = Arc::new(Waits::default());
        let nodes: BTreeMap<NodeId, Node> = (1..=nodes)
            .map(|id| {
                let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
                let groups = SimGroups::new(id, random.fork(), faults);
                let service = TxnService::new(groups.clone(), store.clone());
                let service = service.with_wait_graph(waits.clone());
                let service = service.with_leases(Arc::new(Oracle(world.clone())), || false);
                (id, Node { id, store, groups, service })
            })
            .collect();
        let mut starts = vec![key::records_start(TABLE)];
        starts.extend(cuts.iter().map(|cut| record(cut)));
        let mut ends: Vec<_> = starts[1..].to_vec();
        ends.push(key::records_end(TABLE));
        for (at, (start, end)) in starts.into_iter().zip(ends).enumerate() {
            let node = at as u64 % nodes.len() as u64 + 1;
            let id = 100 + at as u64;
            let region = Region {
                id,
                epoch: Epoch { version: 1, conf: 1 },
                kind: RegionKind::Records(TABLE),
                start,
                end,
                peers: vec![Peer { id: 1000 + at as u64, node, role: PeerRole::Voter }],
            };
            let home = &nodes[&node];
            let machine = RowMachines::new(home.store.clone()).create(&region, true).unwrap();
            home.groups.lead(machine);
        }
        World {
            random,
            faults: Mutex::new(faults),
            nodes,
            #[allow(clippy::disallowed_methods, reason = "a bound on the test itself")]
            started: Instant::now(),
            speed: AtomicU64::new(0),
            advanced: AtomicU64::new(1),
            tick: AtomicU64::new(0),
            one_entry: AtomicBool::new(false),
            async_commits: AtomicBool::new(false),
            last: Mutex::default(),
            ids: AtomicU64::new(10_000),
            routes: Mutex::default(),
        }
    }

    /// Has the region of a key get a new leader, to which the one of before hands its row locks over or not.
    pub async fn elect(&self, key: &[u8], handed_over: bool) {
        let (node, region) = self.home(key);
        if handed_over {
            for handover in node.service.handover(region.id) {
                node.service.handle(handover).await;
            }
        }
        node.groups.elect(region.id);
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        *self.faults.lock() = Faults::default();
        self.nodes.values().for_each(|node| node.groups.heal());
    }

    /// The directory learns where regions are.
    pub fn refresh(&self) {
        let mut routes = Vec::new();
        for node in self.nodes.values() {
            for view in node.store.regions() {
                routes.push(Route {
                    region: view.region.clone(),
                    leader: Some(node.id),
                    ready_learners: vec![],
                    rows: 0,
                    bytes: 0,
                });
            }
        }
        routes.sort_by(|a, b| a.region.start.cmp(&b.region.start));
        *self.routes.lock() = routes;
    }

    /// The node that holds the region of a key, and the region.
    pub fn home(&self, key: &[u8]) -> (&Node, Region) {
        for node in self.nodes.values() {
            for view in node.store.regions() {
                if view.region.contains(key) {
                    return (node, view.region.clone());
                }
            }
        }
        panic!("no region holds the key");
    }

    /// Cuts the region of a key there.
    pub async fn split(&self, at: &[u8]) -> Result<RegionId> {
        let (node, region) = self.home(at);
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let cuts = vec![(at.to_vec(), id, vec![id + 100_000])];
        let request = Request::Split { region: reference(&region), cuts };
        match node.service.handle(request).await {
            Response::Regions(_) => Ok(id),
            Response::Failed(error) => Err(error),
            other => panic!("a split is answered by {other:?}"),
        }
    }

    pub fn link(self: &Arc<Self>) -> Arc<Link> {
        Arc::new(Link {
            world: self.clone(),
            dead: AtomicBool::new(false),
            calls: AtomicU64::new(u64::MAX),
            died: tokio::sync::Notify::new(),
            past: Mutex::default(),
        })
    }

    pub fn client(self: &Arc<Self>) -> TxnClient {
        self.client_over(self.link())
    }

    pub fn client_over(self: &Arc<Self>, link: Arc<Link>) -> TxnClient {
        let (world, other) = (self.clone(), self.clone());
        TxnClient::new(link, Arc::new(Known(self.clone())))
            .with_one_entry(move || world.one_entry.load(Ordering::Relaxed))
            .with_async_commits(move || other.async_commits.load(Ordering::Relaxed))
            .with_shared_locks(|| true)
    }

    /// Now.
    pub fn timestamp(&self) -> Timestamp {
        let mut last = self.last.lock();
        let elapsed = self.started.elapsed().as_millis() as u64;
        let ms =
            elapsed * self.speed.load(Ordering::Relaxed) + self.advanced.load(Ordering::Relaxed);
        *last = Timestamp::pack(ms, 0).max(last.next());
        *last
    }

    async fn delay(&self) {
        let most = self.faults.lock().delay_ms;
        if most > 0 {
            tokio::time::sleep(Duration::from_millis(self.random.below(most + 1))).await;
        }
    }
}

pub fn reference(region: &Region) -> RegionRef {
    RegionRef { id: region.id, epoch: region.epoch }
}

/// The detector of deadlocks of a world.
#[derive(Default)]
pub struct Waits(Mutex<placement::deadlock::WaitGraph>, env::RealClock);

#[async_trait]
impl WaitGraph for Waits {
    async fn waits(&self, waiter: Timestamp, holder: Timestamp, key: Vec<u8>) -> Result<bool> {
        Ok(self.0.lock().wait(env::Clock::now(&self.1), waiter, holder, &key).is_some())
    }

    async fn ended(&self, waiter: Timestamp, key: Vec<u8>) -> Result<()> {
        self.0.lock().ended(waiter, &key);
        Ok(())
    }
}

/// The time of a world, as its nodes ask for it.
struct Oracle(Weak<World>);

#[async_trait]
impl Directory for Oracle {
    async fn timestamp(&self) -> Result<Timestamp> {
        let world = self.0.upgrade();
        Known(world.ok_or_else(|| Error::Unavailable("it is over".into()))?).timestamp().await
    }

    async fn locate(&self, _: &[u8]) -> Result<Route> {
        Err(Error::Unavailable("nodes look nothing up".into()))
    }

    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        Ok(Vec::new())
    }

    fn forget(&self, _: RegionId) {}
}

/// The directory of a world.
pub struct Known(pub Arc<World>);

#[async_trait]
impl Directory for Known {
    async fn timestamp(&self) -> Result<Timestamp> {
        self.0.delay().await;
        self.0.advanced.fetch_add(self.0.tick.load(Ordering::Relaxed), Ordering::Relaxed);
        let ts = self.0.timestamp();
        self.0.delay().await;
        Ok(ts)
    }

    async fn locate(&self, key: &[u8]) -> Result<Route> {
        self.0.delay().await;
        // Sometimes it has the newest routes, sometimes not.
        if self.0.random.chance(0.3) {
            self.0.refresh();
        }
        let routes = self.0.routes.lock();
        routes
            .iter()
            .find(|route| route.region.contains(key))
            .cloned()
            .ok_or_else(|| Error::Unavailable("no route".into()))
    }

    async fn regions(&self, _: RegionKind) -> Result<Vec<Route>> {
        self.0.delay().await;
        self.0.refresh();
        Ok(self.0.routes.lock().clone())
    }

    fn forget(&self, _: RegionId) {}
}

/// A client's way to the row nodes. When it is dead, nothing gets through in either direction.
pub struct Link {
    world: Arc<World>,
    dead: AtomicBool,
    /// Calls until it dies.
    calls: AtomicU64,
    died: tokio::sync::Notify,
    /// What leaders once said of rows, which were to be shared or not.
    past: Mutex<BTreeMap<Locking, Vec<Current>>>,
}

/// Keys whose rows are locked, and whether they are shared.
type Locking = (Vec<Vec<u8>>, bool);

/// What a request locks whose answer has rows, and what it expects of them.
fn locking(request: &Request) -> Option<(Locking, Expect)> {
    match request {
        Request::Acquire { keys, rows: true, expect, .. } => Some(((keys.clone(), false), *expect)),
        Request::Shared(request) => {
            locking(request).map(|((keys, _), expect)| ((keys, true), expect))
        }
        _ => None,
    }
}

impl Link {
    /// What a leader says that does not know it is deposed: what was so when it last led. It says
    /// so only where it need not ask anybody.
    fn deposed(&self, chance: f64, request: &Request) -> Option<Response> {
        let (locking, expect) = locking(request)?;
        let found = self.past.lock().get(&locking).cloned()?;
        let met = found.iter().all(|one| expect.is_met(one.live));
        let (locked, behind) = (Vec::new(), None);
        (met && self.world.random.chance(chance)).then_some(Response::Acquired {
            found,
            locked,
            behind,
        })
    }

    /// Takes note of what a leader says of rows; the first is kept for a while.
    fn remember(&self, locking: Option<Locking>, response: &Response) {
        let (Some(locking), Response::Acquired { found, .. }) = (locking, response) else { return };
        if found.len() == locking.0.len() && self.world.random.chance(0.3) {
            self.past.lock().insert(locking, found.clone());
        }
    }

    /// The client crashes before its call number `calls` from now.
    pub fn die_after(&self, calls: u64) {
        self.calls.store(calls, Ordering::SeqCst);
    }

    /// Resolves when the client crashes.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl RowTransport for Link {
    async fn call(&self, node: NodeId, request: Request) -> Result<Response> {
        if self.calls.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.dead.store(true, Ordering::SeqCst);
            self.died.notify_one();
        }
        self.alive().await;
        let world = &self.world;
        let faults = *world.faults.lock();
        world.delay().await;
        let service = world.nodes[&node].service.clone();
        if world.random.chance(faults.lose_request) {
            return Err(Error::Unavailable("request lost".into()));
        }
        if world.random.chance(faults.repeat) {
            let (service, request) = (service.clone(), request.clone());
            let later = world.random.below(2_000);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(later)).await;
                service.handle(request).await;
            });
        }
        let locked = locking(&request).map(|(locking, _)| locking);
        let response = match self.deposed(faults.deposed, &request) {
            Some(response) => response,
            None => service.handle(request).await,
        };
        self.remember(locked, &response);
        world.delay().await;
        self.alive().await;
        if world.random.chance(faults.lose_answer) {
            return Err(Error::timeout("lost answer", Duration::from_millis(1)));
        }
        Ok(response)
    }
}
