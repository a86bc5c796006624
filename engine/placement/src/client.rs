//! Placement as every node uses it: finds the leader and follows it, asks once for many, remembers
//! what may be remembered.
//!
//! Every call is bounded by [`CALL_LIMIT`] (changes of the catalog by [`CHANGE_LIMIT`]). It never
//! makes up an answer: what is remembered is marked by a version or corrected by region leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

mod resource_control;
mod timestamps;

use async_trait::async_trait;
use futures::FutureExt;
use parking_lot::Mutex;
use types::{
    ClusterVersion, Error, LeaseId, NodeId, Region, RegionId, RegionKind, Result, Table, TableId,
    Timestamp,
};

use crate::api::{
    Catalog, CatalogChange, Garbage, Lease, LockAnswer, LockRequest, Node, NodeReport, NodeStatus,
    Order, PeerReport, Request, Response, Route, SafePoint, Session, TimeStatus,
};
use crate::batch::{Batcher, TIMESTAMP_BATCHES};
use crate::routes::Routes;
use crate::service::{Given, PlacementService};

/// How long a call looks for a leader that answers.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// The same for a change of the catalog, which may have to wait for new regions.
pub const CHANGE_LIMIT: Duration = Duration::from_secs(30);

/// AUTO_INCREMENT numbers fetched at a time.
const NUMBERS: u64 = 1_000;

/// How requests reach a node; `rpc` implements it, tests answer in process.
///
/// `Unavailable` must mean that the node certainly did not act on the request (it could not be
/// reached); a connection that breaks later is `Timeout`, since nobody knows.
#[async_trait]
pub trait PlacementTransport: Send + Sync + 'static {
    /// Asks placement's service on the node at `node_address` (`host:port`).
    async fn call(&self, node_address: &str, request: Request) -> Result<Response>;

    /// Placement's service of this process, if it has one.
    fn here(&self) -> Option<Arc<PlacementService>> {
        None
    }
}

/// The cluster's version, and what nodes speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterVersions {
    /// The cluster's.
    pub cluster: ClusterVersion,
    /// Of each node's program; none before its first heartbeat to placement's leader.
    pub nodes: Vec<(NodeId, Option<ClusterVersion>)>,
}

/// Everything placement knows, for people and for tests.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterStatus {
    /// Every node.
    pub nodes: Vec<NodeStatus>,
    /// Every region.
    pub routes: Vec<Route>,
    /// Newest report of each peer.
    pub peers: Vec<(NodeId, PeerReport)>,
    /// Node that leads placement.
    pub leader: NodeId,
    /// Garbage collection.
    pub garbage: Garbage,
    /// Timestamps and clocks.
    pub time: TimeStatus,
}

/// A handle to placement; clones share what they remember.
#[derive(Clone)]
pub struct PlacementClient {
    pub(crate) caller: Arc<Caller>,
    timestamps: Arc<Batcher<u32, Given>>,
}

/// Finds the leader and holds what all handles share.
pub(crate) struct Caller {
    pub(crate) transport: Arc<dyn PlacementTransport>,
    /// Initial row nodes and their addresses: where to look for the leader.
    pub(crate) members: BTreeMap<NodeId, String>,
    pub(crate) memory: Mutex<Memory>,
    /// Lets one caller fetch a catalog for all who wait for it.
    fetching: tokio::sync::Mutex<()>,
    /// Lets one caller fetch AUTO_INCREMENT numbers for all who wait for them.
    numbering: tokio::sync::Mutex<BTreeMap<TableId, (u64, u64)>>,
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) leader: Option<NodeId>,
    /// Members that did not answer when they were last asked.
    pub(crate) silent: BTreeSet<NodeId>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    catalog: Option<Arc<Catalog>>,
    /// Newest catalog version known.
    newest: u64,
    routes: Routes,
    signing_key: Option<Arc<[u8]>>,
    safe_point: SafePoint,
    /// The largest timestamp that was given, and the term of the leader who gave it.
    given: Option<(Timestamp, u64)>,
    /// Under which this process has registered.
    session: Option<u64>,
    /// Requests for timestamps that went to proxies.
    proxied: usize,
}

impl Memory {
    /// Takes over the nodes that there are. Regions with a peer on one that is gone are looked up
    /// anew: what is remembered of them names it.
    fn take_nodes(&mut self, nodes: impl Iterator<Item = Node>) {
        let nodes: BTreeMap<NodeId, Node> = nodes.map(|node| (node.id, node)).collect();
        let gone: BTreeSet<NodeId> =
            self.nodes.keys().filter(|node| !nodes.contains_key(node)).copied().collect();
        if !gone.is_empty() {
            self.routes.retain(|region| region.peers.iter().all(|peer| !gone.contains(&peer.node)));
        }
        self.nodes = nodes;
    }
}

impl PlacementClient {
    /// A client that looks for the leader among `members`, the initial row nodes and their RPC
    /// addresses. Must be called within a tokio runtime.
    pub fn new(
        transport: Arc<dyn PlacementTransport>,
        members: impl IntoIterator<Item = (NodeId, String)>,
    ) -> Self {
        let caller = Arc::new(Caller {
            transport,
            members: members.into_iter().collect(),
            memory: Mutex::new(Memory::default()),
            fetching: tokio::sync::Mutex::new(()),
            numbering: tokio::sync::Mutex::new(BTreeMap::new()),
        });
        let (weak, settings) = (Arc::downgrade(&caller), Arc::downgrade(&caller));
        let wait = move || settings.upgrade().map_or(Duration::ZERO, |caller| caller.wait());
        let timestamps = Batcher::new(TIMESTAMP_BATCHES, wait, move |counts: Vec<u32>| {
            let weak = weak.clone();
            async move {
                let caller = weak
                    .upgrade()
                    .ok_or_else(|| Error::Unavailable("this node is shutting down".into()))?;
                caller.timestamp_batch(counts).await
            }
            .boxed()
        });
        PlacementClient { caller, timestamps: Arc::new(timestamps) }
    }

    // ---- time and numbers -------------------------------------------------------------------

    /// A timestamp greater than every one handed out before this call, anywhere; and the
    /// catalog's version as of some point within the call, so that [`PlacementClient::catalog`]
    /// afterwards is at least that new.
    pub async fn timestamp(&self) -> Result<(Timestamp, u64)> {
        self.timestamps(1).await
    }

    /// First of `count` consecutive timestamps, as [`PlacementClient::timestamp`].
    pub async fn timestamps(&self, count: u32) -> Result<(Timestamp, u64)> {
        self.given(count).await.map(|(first, catalog, _)| (first, catalog))
    }

    /// As [`PlacementClient::timestamps`], with the term of the leader who gave them.
    pub async fn given(&self, count: u32) -> Result<Given> {
        match self.caller.timestamps_alone(count)? {
            Some(given) => Ok(given),
            None => self.timestamps.call(count).await,
        }
    }

    /// First of `count` consecutive numbers for nodes, regions and peers.
    pub async fn ids(&self, count: u32) -> Result<u64> {
        match self.caller.send(Request::Ids { count }).await? {
            Response::Ids(first) => Ok(first),
            other => Err(unexpected("Ids", &other)),
        }
    }

    /// First of `count` consecutive AUTO_INCREMENT numbers of a table, from a stock that is
    /// fetched in advance: numbers left in it when the process ends are skipped for good.
    pub async fn auto_increment(&self, table: TableId, count: u64) -> Result<u64> {
        let mut stocks = self.caller.numbering.lock().await;
        if let Some((next, end)) = stocks.get_mut(&table)
            && end.saturating_sub(*next) >= count
        {
            let first = *next;
            *next += count;
            return Ok(first);
        }
        let fetched = count.max(NUMBERS);
        let first = match self.caller.numbers(table, fetched, 0).await {
            // Near the end of the number space the stock is left out.
            Err(Error::Invalid(_)) if fetched > count => {
                return self.caller.numbers(table, count, 0).await;
            }
            other => other?,
        };
        let next = first.checked_add(count).ok_or_else(|| too_many(table))?;
        let end = first.checked_add(fetched).ok_or_else(|| too_many(table))?;
        stocks.insert(table, (next, end));
        Ok(first)
    }

    /// Makes later AUTO_INCREMENT numbers of a table greater than `value`, which a row was given
    /// by hand.
    pub async fn raise_auto_increment(&self, table: TableId, value: u64) -> Result<()> {
        let mut stocks = self.caller.numbering.lock().await;
        if let Some((next, end)) = stocks.get_mut(&table) {
            if value < *next {
                return Ok(());
            }
            if value < *end {
                *next = value + 1;
                return Ok(());
            }
        }
        // A client that keeps setting numbers itself reserves a range, too, and need not ask for each.
        let fetched = if stocks.remove(&table).is_some() { NUMBERS } else { 0 };
        let (first, fetched) = match self.caller.numbers(table, fetched, value).await {
            Err(Error::Invalid(_)) if fetched > 0 => {
                (self.caller.numbers(table, 0, value).await?, 0)
            }
            other => (other?, fetched),
        };
        let end = first.checked_add(fetched).ok_or_else(|| too_many(table))?;
        // Also an empty stock says what is taken: everything before it.
        stocks.insert(table, (first, end));
        Ok(())
    }

    /// The AUTO_INCREMENT number that would be given next: of the stock, if there is one.
    pub async fn next_auto_increment(&self, table: TableId) -> Result<u64> {
        let mut stocks = self.caller.numbering.lock().await;
        match stocks.get(&table) {
            Some((next, end)) if next < end => Ok(*next),
            _ => {
                let first = self.caller.numbers(table, 0, 0).await?;
                stocks.insert(table, (first, first));
                Ok(first)
            }
        }
    }

    // ---- nodes ------------------------------------------------------------------------------

    /// Makes a node known, or updates its addresses.
    ///
    /// # Errors
    /// `Revoked` is for good: the node has to be emptied.
    pub async fn register(&self, node: Node, session: Session) -> Result<()> {
        let id = session.id;
        self.caller.done("Register", Request::Register { node, session }).await?;
        self.caller.memory.lock().session = Some(id);
        Ok(())
    }

    /// A node's heartbeat; returns its orders. Held back for a short time while there is nothing to
    /// do. `NotFound` means that the node has to register (again).
    pub async fn heartbeat(
        &self,
        node: NodeId,
        report: NodeReport,
        peers: Vec<PeerReport>,
    ) -> Result<Vec<Order>> {
        let report = {
            let memory = self.caller.memory.lock();
            NodeReport { newest: memory.given, session: memory.session, ..report }
        };
        match self.caller.send(Request::Heartbeat { node, report, peers }).await? {
            Response::Orders { orders, catalog, nodes, safe_point } => {
                let mut memory = self.caller.memory.lock();
                memory.newest = memory.newest.max(catalog);
                memory.take_nodes(nodes.into_iter());
                // A leader that was deposed may know less than is known here already.
                let known = memory.safe_point;
                if safe_point.floor >= known.floor && safe_point.settled >= known.settled {
                    memory.safe_point = safe_point;
                }
                Ok(orders)
            }
            other => Err(unexpected("Heartbeat", &other)),
        }
    }

    /// A node by number; placement is asked if it is not remembered.
    pub async fn node(&self, id: NodeId) -> Result<Node> {
        if let Some(node) = self.caller.memory.lock().nodes.get(&id) {
            return Ok(node.clone());
        }
        self.status().await?;
        let memory = self.caller.memory.lock();
        memory.nodes.get(&id).cloned().ok_or_else(|| Error::not_found("node", id.to_string()))
    }

    /// The nodes as last reported by placement, without asking.
    pub fn known_nodes(&self) -> Vec<Node> {
        self.caller.memory.lock().nodes.values().cloned().collect()
    }

    /// Everything placement knows.
    pub async fn status(&self) -> Result<ClusterStatus> {
        match self.caller.send(Request::Status).await? {
            Response::Status { nodes, routes, peers, leader, garbage, time } => {
                let mut memory = self.caller.memory.lock();
                memory.take_nodes(nodes.iter().map(|status| status.node.clone()));
                Ok(ClusterStatus { nodes, routes, peers, leader, garbage, time })
            }
            other => Err(unexpected("Status", &other)),
        }
    }

    // ---- catalog ----------------------------------------------------------------------------

    /// The catalog, at least as new as any version that this client knows of: take a timestamp
    /// first, and it holds every change that was acknowledged before.
    pub async fn catalog(&self) -> Result<Arc<Catalog>> {
        if let Some(catalog) = self.caller.current_catalog() {
            return Ok(catalog);
        }
        let _alone = self.caller.fetching.lock().await;
        match self.caller.current_catalog() {
            Some(catalog) => Ok(catalog),
            None => self.caller.fetch_catalog().await,
        }
    }

    /// Has [`PlacementClient::catalog`] show a version that somebody else knows of, if there is one. The number is only
    /// their word, so it is a reason to ask placement and is never remembered.
    ///
    /// # Errors
    /// Those of [`PlacementClient::timestamp`].
    pub async fn catch_up(&self, version: u64) -> Result<()> {
        if self.newest_catalog() < version {
            self.timestamp().await?;
        }
        Ok(())
    }

    /// Newest catalog version that this client knows of, without asking.
    pub fn newest_catalog(&self) -> u64 {
        self.caller.memory.lock().newest
    }

    /// Changes the catalog; the table as changed, where one was. Once it returns, new regions are
    /// led and [`PlacementClient::catalog`] shows the change.
    ///
    /// # Errors
    /// `OutcomeUnknown` leaves open whether the change took place; every other error means that it
    /// did not.
    pub async fn change(&self, change: CatalogChange) -> Result<Option<Table>> {
        let answer = self.caller.send(Request::Change(change)).await;
        let answer = answer.map_err(|error| match error {
            Error::Timeout { what, millis } => {
                Error::OutcomeUnknown { what: format!("a change of the catalog ({what})"), millis }
            }
            error => error,
        });
        match answer? {
            Response::Changed { catalog, table } => {
                let mut memory = self.caller.memory.lock();
                memory.newest = memory.newest.max(catalog);
                Ok(table.map(|table| *table))
            }
            other => Err(unexpected("Change", &other)),
        }
    }

    // ---- routes -----------------------------------------------------------------------------

    /// The region of a key, as remembered or as placement knows it.
    pub async fn locate(&self, key: &[u8]) -> Result<Route> {
        if let Some(route) = self.caller.memory.lock().routes.locate(key) {
            return Ok(route.clone());
        }
        let routes = self.caller.routes(Request::Locate { key: key.to_vec() }).await?;
        routes
            .into_iter()
            .find(|route| route.region.contains(key))
            .ok_or_else(|| Error::Corrupt("placement located a key in another region".into()))
    }

    /// The regions of a kind, in key order, without gaps; as remembered or as placement knows them.
    pub async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        if let Some(routes) = self.caller.memory.lock().routes.regions(kind) {
            return Ok(routes);
        }
        self.caller.routes(Request::Regions { kind }).await
    }

    /// As [`PlacementClient::regions`], but always asks placement.
    pub async fn fresh_regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        self.caller.routes(Request::Regions { kind }).await
    }

    /// The regions of a table that was dropped, for who reads it at an older timestamp. They are
    /// not remembered: whoever plans now must not find them.
    pub async fn dropped_regions(&self, kind: RegionKind) -> Result<Vec<Route>> {
        match self.caller.send(Request::DroppedRegions { kind }).await? {
            Response::Routes(routes) => Ok(routes),
            other => Err(unexpected("Routes", &other)),
        }
    }

    /// Forgets a region: the next look-up asks placement.
    pub fn invalidate(&self, region: RegionId) {
        self.caller.memory.lock().routes.remove(region);
    }

    /// Takes in descriptors that a peer sent (`StaleEpoch`, splits).
    pub fn learn(&self, regions: &[Region]) {
        let mut memory = self.caller.memory.lock();
        regions.iter().for_each(|region| memory.routes.learn(region, None));
    }

    /// Takes note of where a region's leader is said to be (`NotLeader`).
    pub fn learn_leader(&self, region: RegionId, leader: Option<NodeId>) {
        self.caller.memory.lock().routes.learn_leader(region, leader);
    }

    /// The cluster's version, and what each node speaks, where that is known.
    ///
    /// # Errors
    /// `Invalid` where placement's leader knows of no versions.
    pub async fn versions(&self) -> Result<ClusterVersions> {
        match self.caller.send(Request::Versions).await? {
            Response::Versions { cluster, nodes } => Ok(ClusterVersions { cluster, nodes }),
            other => Err(unexpected("Versions", &other)),
        }
    }

    // ---- waits ------------------------------------------------------------------------------

    /// Reports that a transaction waits for another one to give up a key, and asks whether that
    /// closes a circle: the transactions in it, or nothing.
    pub async fn wait(
        &self,
        waiter: Timestamp,
        holder: Timestamp,
        key: Vec<u8>,
    ) -> Result<Vec<Timestamp>> {
        match self.caller.send(Request::Wait { waiter, holder, key }).await? {
            Response::Circle(circle) => Ok(circle),
            other => Err(unexpected("Wait", &other)),
        }
    }

    /// Reports that a transaction no longer waits for a key.
    pub async fn wait_ended(&self, waiter: Timestamp, key: Vec<u8>) -> Result<()> {
        self.caller.done("WaitEnded", Request::WaitEnded { waiter, key }).await
    }

    /// Reports how often this node's own clients have asked regions since the last report.
    pub async fn asked(&self, node: NodeId, regions: Vec<(RegionId, u64)>) -> Result<()> {
        self.caller.done("Asked", Request::Asked { node, regions }).await
    }

    /// Asks for an advisory lock, frees some, or asks about one. A wait is held back for a short time
    /// only: who goes on waiting asks again.
    pub async fn advisory_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        match self.caller.send(Request::Advisory(request)).await? {
            Response::Advisory(answer) => Ok(answer),
            other => Err(unexpected("Advisory", &other)),
        }
    }

    // ---- leases and keys --------------------------------------------------------------------

    /// Takes a lease at a snapshot, or at the present timestamp.
    pub async fn take_lease(
        &self,
        ts: Option<Timestamp>,
        ttl: Duration,
        owner: impl Into<String>,
    ) -> Result<Lease> {
        let ttl_ms = ttl.as_millis() as u64;
        self.caller.lease(Request::TakeLease { ts, ttl_ms, owner: owner.into() }).await
    }

    /// Prolongs a lease from now on. `LeaseLost` if it ended.
    pub async fn renew_lease(&self, lease: LeaseId, ttl: Duration) -> Result<Lease> {
        let ttl_ms = ttl.as_millis() as u64;
        self.caller.lease(Request::RenewLease { lease, ttl_ms }).await
    }

    /// Ends a lease; one that ended already is no error.
    pub async fn release_lease(&self, lease: LeaseId) -> Result<()> {
        self.caller.done("ReleaseLease", Request::ReleaseLease { lease }).await
    }

    /// Sets how long versions stay readable without a lease.
    pub async fn set_life(&self, life: Duration) -> Result<()> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        self.caller.done("SetLife", Request::SetLife(life_ms)).await
    }

    /// The largest timestamp that this client was given, if there was one: nothing up to it lies in the future.
    pub fn newest_given(&self) -> Option<Timestamp> {
        self.caller.memory.lock().given.map(|(given, _)| given)
    }

    /// What may be collected, as the last heartbeat returned; it never falls.
    pub fn safe_point(&self) -> SafePoint {
        self.caller.memory.lock().safe_point
    }

    /// Leases that live.
    pub async fn leases(&self) -> Result<Vec<Lease>> {
        match self.caller.send(Request::Leases).await? {
            Response::Leases(leases) => Ok(leases),
            other => Err(unexpected("Leases", &other)),
        }
    }

    /// The key that signs tokens and tickets; never to be logged.
    pub async fn signing_key(&self) -> Result<Arc<[u8]>> {
        if let Some(key) = self.caller.memory.lock().signing_key.clone() {
            return Ok(key);
        }
        match self.caller.send(Request::SigningKey).await? {
            Response::SigningKey(key) => {
                let key: Arc<[u8]> = key.into();
                self.caller.memory.lock().signing_key = Some(key.clone());
                Ok(key)
            }
            // Not `unexpected`: the answer must not be printed.
            _ => Err(Error::Corrupt("placement answered something else than a key".into())),
        }
    }
}

impl Caller {
    fn current_catalog(&self) -> Option<Arc<Catalog>> {
        let memory = self.memory.lock();
        memory.catalog.clone().filter(|catalog| catalog.version >= memory.newest)
    }

    async fn fetch_catalog(&self) -> Result<Arc<Catalog>> {
        let held = self.memory.lock().catalog.clone();
        let known = held.as_ref().map_or(0, |catalog| catalog.version);
        let catalog = match (self.send(Request::Catalog { known }).await?, held) {
            (Response::CatalogWithKeys(catalog, behind), _) => {
                let (resources, foreign_keys) = *behind;
                Arc::new(Catalog { resources, foreign_keys, ..*catalog })
            }
            (Response::CatalogWithGroups(catalog, resources), _) => {
                Arc::new(Catalog { resources: *resources, ..*catalog })
            }
            (Response::Catalog(Some(catalog)), _) => Arc::new(*catalog),
            (Response::Catalog(None), Some(held)) => held,
            (other, _) => return Err(unexpected("Catalog", &other)),
        };
        let mut memory = self.memory.lock();
        let tables: BTreeSet<TableId> = catalog.tables.iter().map(|table| table.id).collect();
        memory.routes.retain(|region| region.table().is_some_and(|id| tables.contains(&id)));
        memory.newest = memory.newest.max(catalog.version);
        memory.catalog = Some(catalog.clone());
        Ok(catalog)
    }

    async fn routes(&self, request: Request) -> Result<Vec<Route>> {
        match self.send(request).await? {
            Response::Routes(routes) => {
                let mut memory = self.memory.lock();
                routes.iter().for_each(|route| memory.routes.insert(route.clone()));
                Ok(routes)
            }
            other => Err(unexpected("Routes", &other)),
        }
    }

    async fn numbers(&self, table: TableId, count: u64, above: u64) -> Result<u64> {
        match self.send(Request::AutoIncrement { table, count, above }).await? {
            Response::AutoIncrement(first) => Ok(first),
            other => Err(unexpected("AutoIncrement", &other)),
        }
    }

    async fn lease(&self, request: Request) -> Result<Lease> {
        match self.send(request).await? {
            Response::Lease(lease) => Ok(lease),
            other => Err(unexpected("Lease", &other)),
        }
    }

    async fn done(&self, what: &str, request: Request) -> Result<()> {
        match self.send(request).await? {
            Response::Done => Ok(()),
            other => Err(unexpected(what, &other)),
        }
    }
}

fn too_many(table: TableId) -> Error {
    Error::Invalid(format!("AUTO_INCREMENT of table number {table} has run out of numbers"))
}

fn unexpected(what: &str, response: &Response) -> Error {
    // The answer's kind only: it may carry credentials.
    let text = format!("{response:?}");
    let kind = text.split([' ', '(', '{']).next().unwrap_or_default();
    Error::Corrupt(format!("placement answered {kind} to {what}"))
}
