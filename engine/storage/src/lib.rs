//! What statements need of the store below: snapshots, transactions, the catalog, leases, advisory locks; and rows as
//! they are stored, as tables that plans scan.
//!
//! Narrow on purpose: [`cluster`] is the real one over regions, [`memory`] the one of the tests. It knows no session.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod access;
pub mod cluster;
pub mod memory;
pub mod provider;
pub mod reader;
pub mod rows;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use placement::ClusterStatus;
use placement::api::{Catalog, CatalogChange, Lease, NodeSettings};
use placement::api::{LockAnswer, LockRequest};
use resources::Payer;
pub use txn::Acquired;
pub use txn::api::{Current, Expect, Mode, Taking, Waiting};
pub use txn::{ReadFrom, ReplicaReads};
use types::calibration::Calibration;
use types::query_watch::{QueryWatch, Runaway};
use types::{Error, LeaseId, Result, Table, TableId, Timestamp};

/// A key and its row.
pub type Pair = (Vec<u8>, Vec<u8>);

/// A place within a transaction; greater ones are later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(usize);

/// A range being read, page by page; dropping it ends the reading.
#[async_trait]
pub trait Scan: Send {
    /// The next pairs in order, or none at the end. May be empty before the end.
    async fn next_page(&mut self) -> Result<Option<Vec<Pair>>>;
}

/// Reads at one timestamp.
#[async_trait]
pub trait Snapshot: Send + Sync {
    /// When it reads.
    fn ts(&self) -> Timestamp;

    /// Pairs of those keys that have a row, ascending.
    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>>;

    /// The rows with `start ≤ key < end`, descending if `reverse`. `few` asks for small pages.
    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan>;

    /// Whether it shows rows or index entries of a table that a transaction has written and not
    /// committed.
    fn has_written(&self, _table: TableId) -> bool {
        false
    }

    /// The same snapshot, read from replicas; none where there are none to choose from.
    fn of_replicas(&self, _reads: Arc<ReplicaReads>) -> Option<Arc<dyn Snapshot>> {
        None
    }
}

/// A transaction: it reads its own writes. Conflicts show at commit, but not on rows that it has
/// locked.
#[async_trait]
pub trait Transaction: Snapshot {
    /// As [`Snapshot::get`], of another snapshot and with its own writes.
    async fn get_at(&self, keys: Vec<Vec<u8>>, ts: Timestamp) -> Result<Vec<Pair>>;

    /// As [`Snapshot::scan`], of another snapshot and with its own writes.
    fn scan_at(
        &self,
        range: (Vec<u8>, Vec<u8>),
        reverse: bool,
        few: Option<u32>,
        ts: Timestamp,
    ) -> Box<dyn Scan>;

    /// Locks keys until the transaction ends, and gives their rows as they are now. `read_at` says
    /// when rows were read: what is newer is reported, and has to be read again. What is as expected is
    /// certain only once the transaction has committed.
    async fn acquire(
        &mut self,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        taking: Taking,
        read_at: Option<Timestamp>,
    ) -> Result<Acquired>;

    /// How long the commit waits for rows that others hold and this one has not locked.
    fn wait_for_rows(&mut self, wait: Duration);

    /// Whether the commit may be answered after its first phase.
    fn commits_async(&mut self, may_be_async: bool);

    /// Bytes of keys and rows buffered.
    fn bytes(&self) -> usize;

    /// What it shows at a timestamp, its own writes so far included, whatever it writes later.
    fn frozen(&self, ts: Timestamp) -> Arc<dyn Snapshot>;

    /// Sets a row, whatever was there.
    fn put(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()>;

    /// Sets a row that must not be there: an own one is an error at once, a stored one at commit.
    fn insert(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()>;

    /// Ends a row.
    fn delete(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()>;

    /// Holds a key: others that write it meanwhile conflict.
    fn lock(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()>;

    /// A place to come back to.
    fn savepoint(&mut self) -> Savepoint;

    /// Forgets the changes since a savepoint, and later savepoints.
    fn rollback_to(&mut self, savepoint: Savepoint);

    /// Commits, and says when.
    async fn commit(self: Box<Self>) -> Result<Timestamp>;

    /// Gives up, and row locks back. So does dropping it, but then nobody knows when.
    async fn rollback(self: Box<Self>);
}

/// The store.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// Begins a transaction now.
    async fn begin(&self) -> Result<Box<dyn Transaction>>;

    /// Reads at a timestamp that a lease or a transaction keeps readable.
    fn snapshot(&self, ts: Timestamp) -> Arc<dyn Snapshot>;

    /// Reads the present, which stays readable for as long as the snapshot is held.
    async fn present(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(self.snapshot(self.timestamp().await?))
    }

    /// Reads at a timestamp that was given lately, as long ago as the cluster's setting allows, and the catalog of then.
    async fn lately(&self) -> Result<(Arc<dyn Snapshot>, Arc<Catalog>)> {
        Ok((self.present().await?, self.catalog().await?))
    }

    /// Reads at a timestamp of the past. It stays readable for as long as the snapshot is held, but only some
    /// heartbeats from now on: who cannot be sure until then takes a lease for that time.
    fn past(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        self.snapshot(ts)
    }

    /// The same store, whose reads and writes somebody pays for; none where nobody pays.
    fn charged_to(&self, _payer: Arc<Payer>) -> Option<Arc<dyn Storage>> {
        None
    }

    /// A timestamp greater than all given before.
    async fn timestamp(&self) -> Result<Timestamp>;

    /// One that was given before and is not less than `ts`, or else a new one.
    async fn timestamp_from(&self, _ts: Timestamp) -> Result<Timestamp> {
        self.timestamp().await
    }

    /// The catalog, at least as new as every timestamp given before.
    async fn catalog(&self) -> Result<Arc<Catalog>>;

    /// Changes the catalog; the table as changed, where one was.
    async fn change(&self, change: CatalogChange) -> Result<Option<Table>>;

    /// Makes a table's description known to every region that holds its keys.
    async fn publish_schema(&self, table: &Table) -> Result<()>;

    /// First of `count` consecutive AUTO_INCREMENT numbers.
    async fn auto_increment(&self, table: TableId, count: u64) -> Result<u64>;

    /// Makes later AUTO_INCREMENT numbers greater than a number given by hand.
    async fn raise_auto_increment(&self, table: TableId, value: u64) -> Result<()>;

    /// The AUTO_INCREMENT number that would be given next here; none is taken.
    async fn next_auto_increment(&self, table: TableId) -> Result<u64>;

    /// Cuts a table's records into about so many regions; how many there are afterwards.
    async fn split_table(&self, table: &Table, regions: u32) -> Result<usize>;

    /// Takes a lease at a snapshot, or at the present timestamp.
    async fn take_lease(&self, ts: Option<Timestamp>, ttl: Duration, owner: &str) -> Result<Lease>;

    /// Prolongs a lease from now on.
    async fn renew_lease(&self, lease: LeaseId, ttl: Duration) -> Result<Lease>;

    /// Ends a lease.
    async fn release_lease(&self, lease: LeaseId) -> Result<()>;

    /// Leases that live.
    async fn leases(&self) -> Result<Vec<Lease>>;

    /// Asks for an advisory lock, frees some, or asks about one. Who waits may have to ask again.
    async fn advisory_lock(&self, request: LockRequest) -> Result<LockAnswer>;

    /// Sets how long old versions stay readable without a lease.
    async fn set_life(&self, life: Duration) -> Result<()>;

    /// The key that signs tokens; never to be logged.
    async fn signing_key(&self) -> Result<Arc<[u8]>>;

    /// Request units that each resource group has used since placement's leader began to lead.
    async fn units_used(&self) -> Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }

    /// How many request units a second the cluster carries.
    async fn calibrate(&self, _by: Calibration) -> Result<u64> {
        Err(Error::Unavailable("no placement knows of processors here".into()))
    }

    /// By what settings nodes go, by their numbers.
    async fn node_settings(&self) -> Result<NodeSettings> {
        Ok(Vec::new())
    }

    /// Watches queries from now on; the watch's number.
    async fn watch(&self, _watch: QueryWatch) -> Result<u64> {
        Err(Error::Unavailable("no placement keeps watches here".into()))
    }

    /// Ends a watch.
    async fn unwatch(&self, id: u64) -> Result<()> {
        Err(Error::not_found("query watch", id.to_string()))
    }

    /// Watched queries.
    async fn watches(&self) -> Result<Vec<QueryWatch>> {
        Ok(Vec::new())
    }

    /// The last runaways, oldest first.
    async fn runaways(&self) -> Result<Vec<Runaway>> {
        Ok(Vec::new())
    }

    /// Nodes, regions and replicas, for information_schema.
    async fn status(&self) -> Result<ClusterStatus>;
}
