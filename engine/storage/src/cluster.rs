//! The store as it is: regions through the transaction client, names and time through placement.
//!
//! What concerns a whole table, a new description or a split, is carried to each of its regions
//! here, within a bounded time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use placement::api::{Catalog, CatalogChange, Lease, NodeSettings, Route};
use placement::api::{LockAnswer, LockRequest};
use placement::{ClusterStatus, PlacementClient};
use resources::Payer;
use tokio::time::{Instant, sleep};
use txn::api::{RegionRef, Request, Response};
use txn::client::TxnClient;
use types::calibration::Calibration;
use types::query_watch::{QueryWatch, Runaway};
use types::{Error, LeaseId, NodeId, Region, RegionKind, Result, Table, TableId, Timestamp, key};

use crate::{
    Acquired, Pair, ReplicaReads, Savepoint, Scan, Snapshot, Storage, Taking, Transaction,
};

/// How long a table's regions are asked for something before giving up.
const REGION_TIMEOUT: Duration = Duration::from_secs(20);
/// Most cuts of one region at a time.
const MAX_CUTS: usize = 64;
/// Pause before a region is looked up again.
const PAUSE: Duration = Duration::from_millis(50);

/// The cluster. Cheap to clone.
#[derive(Clone)]
pub struct ClusterStorage {
    txn: TxnClient,
    placement: PlacementClient,
    lately: Arc<tokio::sync::Mutex<Option<Lately>>>,
}

/// A timestamp that is read at for a while.
struct Lately {
    ts: Timestamp,
    /// The catalog's version, which was the same before it was given and after.
    catalog: u64,
    given: Instant,
}

impl ClusterStorage {
    /// A store over clients.
    pub fn new(txn: TxnClient, placement: PlacementClient) -> Self {
        ClusterStorage { txn, placement, lately: Arc::default() }
    }

    /// Sends a request to a region's leader; other peers are tried for where it is.
    async fn send(&self, route: &Route, request: Request) -> Result<Response> {
        let mut nodes: Vec<NodeId> = route.leader.into_iter().collect();
        nodes.extend(route.region.voters().map(|peer| peer.node));
        let mut last = Error::RegionNotFound(route.region.id);
        let mut at = 0;
        while let Some(node) = nodes.get(at).copied() {
            at += 1;
            if nodes[..at - 1].contains(&node) {
                continue;
            }
            match self.txn.send_to_node(&route.region, node, request.clone()).await {
                Err(error) => {
                    if let Error::NotLeader { leader: Some(leader), .. } = &error
                        && !nodes[..at].contains(leader)
                    {
                        nodes.insert(at, *leader);
                    }
                    let moved = !matches!(error, Error::NotLeader { .. });
                    last = error;
                    if moved && !last.is_retryable() {
                        break;
                    }
                }
                Ok(response) => return Ok(response),
            }
        }
        Err(last)
    }

    /// Sends a table's description to every region of a kind.
    async fn publish_to(&self, kind: RegionKind, table: &Table, deadline: Instant) -> Result<()> {
        loop {
            let mut failed = None;
            for route in self.placement.fresh_regions(kind).await? {
                let region = RegionRef { id: route.region.id, epoch: route.region.epoch };
                let request = Request::Schema { region, table: Box::new(table.clone()) };
                match self.send(&route, request).await {
                    Ok(_) => {}
                    // It knows a newer one already.
                    Err(Error::SchemaChanged { known: Some(known), .. })
                        if known >= table.version => {}
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                None => return Ok(()),
                Some(error) if Instant::now() >= deadline => return Err(error),
                Some(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Cuts one region into parts, or between its table's indexes and records; where it was cut.
    async fn split_region(&self, route: &Route, parts: u32) -> Result<Vec<Vec<u8>>> {
        let region = RegionRef { id: route.region.id, epoch: route.region.epoch };
        let keys = match self.send(route, Request::SplitKeys { region, parts }).await? {
            Response::Keys(keys) => keys,
            other => {
                return Err(Error::Invalid(format!("a region answered SplitKeys with {other:?}")));
            }
        };
        self.cut(route, keys.clone()).await?;
        Ok(keys)
    }

    /// Cuts regions with keys of a kind at these keys, ascending, as far as they are not cut there already.
    ///
    /// # Errors
    ///
    /// What a region answers that cannot be cut within a bounded time.
    pub async fn split_at(&self, kind: RegionKind, keys: &[Vec<u8>]) -> Result<()> {
        let deadline = Instant::now() + REGION_TIMEOUT;
        loop {
            let mut failed = None;
            let mut left = false;
            for route in self.placement.fresh_regions(kind).await? {
                let Region { start, end, .. } = &route.region;
                let within = keys.iter().filter(|key| *key > start && *key < end);
                let within: Vec<Vec<u8>> = within.take(MAX_CUTS).cloned().collect();
                if within.is_empty() {
                    continue;
                }
                left = true;
                if let Err(error) = self.cut(&route, within).await {
                    failed = Some(error);
                }
            }
            match failed {
                _ if !left => return Ok(()),
                Some(error) if !error.is_retryable() || Instant::now() >= deadline => {
                    return Err(error);
                }
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Cuts one region at keys within it.
    async fn cut(&self, route: &Route, keys: Vec<Vec<u8>>) -> Result<()> {
        let region = RegionRef { id: route.region.id, epoch: route.region.epoch };
        if keys.is_empty() {
            return Ok(());
        }
        let peers = route.region.peers.len() as u64;
        let count = keys.len() as u64 * (peers + 1);
        let count = u32::try_from(count).map_err(|_| Error::Invalid("too many regions".into()))?;
        let mut ids = self.placement.ids(count).await?..;
        let cuts = keys
            .into_iter()
            .filter_map(|key| {
                let id = ids.next()?;
                Some((key, id, ids.by_ref().take(peers as usize).collect()))
            })
            .collect();
        match self.send(route, Request::Split { region, cuts }).await? {
            Response::Regions(regions) => {
                self.placement.learn(&regions);
                Ok(())
            }
            other => Err(Error::Invalid(format!("a region answered Split with {other:?}"))),
        }
    }
}

struct ClusterScan(txn::transaction::Scan);

#[async_trait]
impl Scan for ClusterScan {
    async fn next_page(&mut self) -> Result<Option<Vec<Pair>>> {
        self.0.next_page().await
    }
}

fn paged(scan: txn::transaction::Scan, few: Option<u32>) -> Box<dyn Scan> {
    Box::new(ClusterScan(match few {
        Some(few) => scan.page_pairs(few.max(1)),
        None => scan,
    }))
}

struct ClusterSnapshot(txn::transaction::Snapshot);

#[async_trait]
impl Snapshot for ClusterSnapshot {
    fn ts(&self) -> Timestamp {
        self.0.ts()
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        self.0.batch_get(keys).await
    }

    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan> {
        paged(self.0.scan(start, end, reverse), few)
    }

    fn of_replicas(&self, reads: Arc<ReplicaReads>) -> Option<Arc<dyn Snapshot>> {
        Some(Arc::new(ClusterSnapshot(self.0.of_replicas(reads))))
    }
}

struct ClusterTransaction {
    inner: txn::transaction::Transaction,
    savepoints: Vec<txn::transaction::Savepoint>,
}

#[async_trait]
impl Snapshot for ClusterTransaction {
    fn ts(&self) -> Timestamp {
        self.inner.start_ts()
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        self.inner.batch_get(keys).await
    }

    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan> {
        paged(self.inner.scan(start, end, reverse), few)
    }

    fn has_written(&self, table: TableId) -> bool {
        self.inner.has_written(table)
    }
}

#[async_trait]
impl Transaction for ClusterTransaction {
    async fn get_at(&self, keys: Vec<Vec<u8>>, ts: Timestamp) -> Result<Vec<Pair>> {
        self.inner.batch_get_at(keys, ts).await
    }

    fn scan_at(
        &self,
        (start, end): (Vec<u8>, Vec<u8>),
        reverse: bool,
        few: Option<u32>,
        ts: Timestamp,
    ) -> Box<dyn Scan> {
        paged(self.inner.scan_at(start, end, reverse, ts), few)
    }

    async fn acquire(
        &mut self,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        taking: Taking,
        read_at: Option<Timestamp>,
    ) -> Result<Acquired> {
        self.inner.acquire(table, keys, taking, read_at).await
    }

    fn wait_for_rows(&mut self, wait: Duration) {
        self.inner.wait_for_rows(wait);
    }

    fn commits_async(&mut self, may_be_async: bool) {
        self.inner.commits_async(may_be_async);
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }

    fn frozen(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        Arc::new(ClusterTransaction { inner: self.inner.frozen(ts), savepoints: Vec::new() })
    }

    fn put(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        self.inner.put(table, key, row)
    }

    fn insert(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        self.inner.insert(table, key, row)
    }

    fn delete(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        self.inner.delete(table, key)
    }

    fn lock(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        self.inner.lock(table, key)
    }

    fn savepoint(&mut self) -> Savepoint {
        self.savepoints.push(self.inner.savepoint());
        Savepoint(self.savepoints.len() - 1)
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        if let Some(place) = self.savepoints.get(savepoint.0) {
            self.inner.rollback_to(*place);
            self.savepoints.truncate(savepoint.0 + 1);
        }
    }

    async fn commit(self: Box<Self>) -> Result<Timestamp> {
        self.inner.commit().await
    }

    async fn rollback(self: Box<Self>) {
        self.inner.rollback().await;
    }
}

#[async_trait]
impl Storage for ClusterStorage {
    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        let inner = self.txn.begin().await?;
        Ok(Box::new(ClusterTransaction { inner, savepoints: Vec::new() }))
    }

    fn snapshot(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        Arc::new(ClusterSnapshot(self.txn.snapshot(ts)))
    }

    fn past(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        Arc::new(ClusterSnapshot(self.txn.past(ts)))
    }

    async fn present(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(ClusterSnapshot(self.txn.present().await?)))
    }

    async fn lately(&self) -> Result<(Arc<dyn Snapshot>, Arc<Catalog>)> {
        // Whoever comes meanwhile reads at the same.
        let mut lately = self.lately.lock().await;
        let catalog = self.placement.catalog().await?;
        let within = catalog.low_resolution_interval();
        let same =
            |known: &&Lately| known.catalog == catalog.version && known.given.elapsed() < within;
        if let Some(known) = lately.as_ref().filter(same) {
            return Ok((self.past(known.ts), catalog));
        }
        *lately = None;
        let (given, ts) = (Instant::now(), self.txn.timestamp().await?);
        let now = self.placement.catalog().await?;
        if now.version == catalog.version {
            *lately = Some(Lately { ts, catalog: now.version, given });
        }
        Ok((self.past(ts), now))
    }

    fn charged_to(&self, payer: Arc<Payer>) -> Option<Arc<dyn Storage>> {
        Some(Arc::new(ClusterStorage { txn: self.txn.charged_to(payer), ..self.clone() }))
    }

    async fn timestamp(&self) -> Result<Timestamp> {
        self.txn.timestamp().await
    }

    async fn timestamp_from(&self, ts: Timestamp) -> Result<Timestamp> {
        match self.placement.newest_given() {
            Some(given) if given >= ts => Ok(given),
            _ => self.timestamp().await,
        }
    }

    async fn catalog(&self) -> Result<Arc<Catalog>> {
        self.placement.catalog().await
    }

    async fn change(&self, change: CatalogChange) -> Result<Option<Table>> {
        self.placement.change(change).await
    }

    async fn publish_schema(&self, table: &Table) -> Result<()> {
        let deadline = Instant::now() + REGION_TIMEOUT;
        let records = RegionKind::Records(table.id);
        let whole = RegionKind::Table(table.id);
        let routes = self.placement.fresh_regions(records).await?;
        if routes.iter().any(|route| route.region.kind == whole) {
            // Those, too, in which only a dropped index has left entries.
            return self.publish_to(whole, table, deadline).await;
        }
        self.publish_to(records, table, deadline).await?;
        for index in &table.indexes {
            self.publish_to(RegionKind::Index(table.id, index.id), table, deadline).await?;
        }
        Ok(())
    }

    async fn auto_increment(&self, table: TableId, count: u64) -> Result<u64> {
        self.placement.auto_increment(table, count).await
    }

    async fn raise_auto_increment(&self, table: TableId, value: u64) -> Result<()> {
        self.placement.raise_auto_increment(table, value).await
    }

    async fn next_auto_increment(&self, table: TableId) -> Result<u64> {
        self.placement.next_auto_increment(table).await
    }

    async fn split_table(&self, table: &Table, regions: u32) -> Result<usize> {
        let deadline = Instant::now() + REGION_TIMEOUT;
        let (records, first) = (RegionKind::Records(table.id), key::records_start(table.id));
        if regions > 1 && !table.indexes.is_empty() {
            self.split_at(records, std::slice::from_ref(&first)).await?;
        }
        loop {
            let routes = self.placement.fresh_regions(records).await?;
            let wanted = regions as usize;
            if routes.len() >= wanted {
                return Ok(routes.len());
            }
            let (share, rest) = (wanted / routes.len().max(1), wanted % routes.len().max(1));
            let (mut now, mut failed, mut apart) = (0, None, false);
            for (at, route) in routes.iter().enumerate() {
                let parts = share + usize::from(at < rest);
                if parts < 2 {
                    now += 1;
                    continue;
                }
                match self.split_region(route, parts as u32).await {
                    // Of what a dropped index has left; the records are to be cut still.
                    Ok(cuts) if cuts == [first.clone()] => apart = true,
                    Ok(cuts) => now += cuts.len() + 1,
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                None if apart => {}
                None => return Ok(now),
                Some(error) if !error.is_retryable() || Instant::now() >= deadline => {
                    return Err(error);
                }
                Some(_) => sleep(PAUSE).await,
            }
        }
    }

    async fn take_lease(&self, ts: Option<Timestamp>, ttl: Duration, owner: &str) -> Result<Lease> {
        self.placement.take_lease(ts, ttl, owner).await
    }

    async fn renew_lease(&self, lease: LeaseId, ttl: Duration) -> Result<Lease> {
        self.placement.renew_lease(lease, ttl).await
    }

    async fn release_lease(&self, lease: LeaseId) -> Result<()> {
        self.placement.release_lease(lease).await
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        self.placement.leases().await
    }

    async fn advisory_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        self.placement.advisory_lock(request).await
    }

    async fn set_life(&self, life: Duration) -> Result<()> {
        self.placement.set_life(life).await
    }

    async fn signing_key(&self) -> Result<Arc<[u8]>> {
        self.placement.signing_key().await
    }

    async fn units_used(&self) -> Result<Vec<(String, u64)>> {
        let used = self.placement.units_used().await?;
        Ok(used.into_iter().map(|(group, units)| (group, units.as_f64() as u64)).collect())
    }

    async fn calibrate(&self, by: Calibration) -> Result<u64> {
        self.placement.calibrate(by).await
    }

    async fn node_settings(&self) -> Result<NodeSettings> {
        self.placement.node_settings().await
    }

    async fn watch(&self, watch: QueryWatch) -> Result<u64> {
        self.placement.watch(watch).await
    }

    async fn unwatch(&self, id: u64) -> Result<()> {
        self.placement.unwatch(id).await
    }

    async fn watches(&self) -> Result<Vec<QueryWatch>> {
        // No version is that of a change to come.
        let watches = self.placement.watches(u64::MAX).await?;
        Ok(watches.map(|(_, watches)| watches).unwrap_or_default())
    }

    async fn runaways(&self) -> Result<Vec<Runaway>> {
        self.placement.runaways().await
    }

    async fn status(&self) -> Result<ClusterStatus> {
        self.placement.status().await
    }
}
