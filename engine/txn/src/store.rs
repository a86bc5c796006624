//! The row store of one node: the key-value engine, the lock table, and what is known of each
//! region's range, shared by the regions' machines (which write) and the service (which reads).
//!
//! Readers and writers are kept apart by order alone: new locks are published before a batch is
//! written, and settled ones forgotten after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Keyspace, KvEngine, KvRead, WriteBatch};
use parking_lot::{Mutex, RwLock};
use raft::Position;
use types::{Error, Region, RegionId, Result, SchemaVersion, Table, TableId, Timestamp};

use crate::described::Described;
use crate::fact::Floors;
use crate::layout::{self, Size};
use crate::locks::{LockChanges, LockTable};

/// Schema versions that a region has received.
pub type Schemas = BTreeMap<(TableId, SchemaVersion), Arc<Table>>;

/// A region on this node, as of its last finished batch.
#[derive(Clone, Debug)]
pub struct RegionView {
    /// Descriptor.
    pub region: Region,
    /// Whether its data is whole; if not, it waits for a snapshot or applies one.
    pub whole: bool,
    /// Last applied entry.
    pub applied: Position,
    /// Schema versions it has received.
    pub schemas: Arc<Schemas>,
    /// About how much it holds.
    pub size: Size,
    /// How far back it can be asked.
    pub floors: Floors,
    /// Held by its machine while it writes, and by who removes what is not needed any more.
    pub(crate) gate: Arc<Mutex<()>>,
    /// Bytes of superseded versions, about: exact after each walk over them.
    pub(crate) history: Arc<AtomicU64>,
    /// Bytes of live entries that walks have removed and that are not taken off the size yet.
    pub(crate) swept: Arc<AtomicU64>,
}

impl RegionView {
    /// Bytes of superseded versions, about.
    pub fn history_bytes(&self) -> u64 {
        self.history.load(Ordering::Relaxed)
    }

    /// About how much it holds, without what walks have removed since its last entry.
    pub fn live_size(&self) -> Size {
        let swept = Size { bytes: self.swept.load(Ordering::Relaxed), rows: 0 };
        self.size.changed(Size::default(), swept)
    }

    /// The descriptions of a table by which the region takes rows: the newest one, and the one before it.
    pub fn accepted_schemas(&self, table: TableId) -> impl Iterator<Item = &Arc<Table>> {
        let newest = self.newest_schema(table).map_or(0, |newest| newest.version);
        let accepted = (table, newest.saturating_sub(1))..=(table, SchemaVersion::MAX);
        self.schemas.range(accepted).map(|(_, table)| table)
    }

    /// Newest schema version of a table that the region knows.
    pub fn newest_schema(&self, table: TableId) -> Option<&Arc<Table>> {
        self.schemas.range((table, 0)..=(table, SchemaVersion::MAX)).next_back().map(|(_, t)| t)
    }
}

/// A half-open key range.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// The row store of one node.
pub struct RowStore {
    engine: Arc<dyn KvEngine>,
    locks: LockTable,
    regions: RwLock<BTreeMap<RegionId, Arc<RegionView>>>,
    /// Batches written; machines remember the number of their last one.
    written: AtomicU64,
    /// Batches that survive a crash.
    synced: Mutex<u64>,
    /// Largest timestamp in what was applied here since the start.
    newest: AtomicU64,
    /// What its regions' tables are, and since when.
    pub(crate) described: Described,
    /// Small writes applied here and rows read by key: what the online path has asked for.
    pub(crate) online: Arc<AtomicU64>,
}

impl RowStore {
    /// Opens the row store in an engine, and reads its locks. Its regions become known through
    /// [`crate::machines::RowMachines`].
    pub fn open(engine: Arc<dyn KvEngine>) -> Result<Arc<Self>> {
        let locks = LockTable::load(engine.snapshot().as_ref())?;
        Ok(Arc::new(RowStore {
            engine,
            locks,
            regions: RwLock::default(),
            written: AtomicU64::new(0),
            synced: Mutex::new(0),
            newest: AtomicU64::new(0),
            described: Described::default(),
            online: Arc::default(),
        }))
    }

    /// Locks of unfinished transactions.
    pub fn locks(&self) -> &LockTable {
        &self.locks
    }

    /// A view of everything written so far.
    pub fn snapshot(&self) -> Box<dyn KvRead> {
        self.engine.snapshot()
    }

    /// A region on this node.
    pub fn region(&self, region: RegionId) -> Option<Arc<RegionView>> {
        self.regions.read().get(&region).cloned()
    }

    /// Every region on this node.
    pub fn regions(&self) -> Vec<Arc<RegionView>> {
        self.regions.read().values().cloned().collect()
    }

    /// Takes note of a timestamp in what is applied: placement has given it to somebody.
    pub(crate) fn note_timestamp(&self, ts: Timestamp) {
        self.newest.fetch_max(ts.0, Ordering::Relaxed);
    }

    /// The largest timestamp in what was applied here since the start, if there was one.
    pub fn newest_timestamp(&self) -> Option<Timestamp> {
        Some(Timestamp(self.newest.load(Ordering::Relaxed))).filter(|ts| *ts > Timestamp::ZERO)
    }

    /// Bytes on disk, about.
    pub fn disk_bytes(&self) -> u64 {
        self.engine.disk_bytes()
    }

    pub(crate) fn engine(&self) -> &dyn KvEngine {
        self.engine.as_ref()
    }

    pub(crate) fn publish(&self, view: RegionView) {
        self.regions.write().insert(view.region.id, Arc::new(view));
    }

    pub(crate) fn withdraw(&self, region: RegionId) {
        self.regions.write().remove(&region);
    }

    /// Writes a batch and gives its number. Locks appear before it and vanish after it.
    pub(crate) fn write(&self, batch: WriteBatch, locks: LockChanges) -> Result<u64> {
        self.locks.add_new(&locks);
        self.engine.write(batch)?;
        self.locks.settle(locks);
        Ok(self.written.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Makes the batch of a number durable, and all before it. Regions that ask for what another
    /// one's sync has covered cost nothing.
    pub(crate) fn sync_to(&self, number: u64) -> Result<()> {
        let mut synced = self.synced.lock();
        if *synced >= number && number > 0 {
            return Ok(());
        }
        let written = self.written.load(Ordering::Acquire);
        self.engine.sync()?;
        *synced = written;
        Ok(())
    }

    /// Makes everything durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.sync_to(0)
    }

    /// A whole region on this node, other than `except`, whose range meets this one.
    pub(crate) fn neighbour_within(&self, region: &Region) -> Option<RegionId> {
        self.others(region.id)
            .into_iter()
            .find(|other| other.start < region.end && region.start < other.end)
            .map(|other| other.id)
    }

    /// Removes every version, fate and lock of a range, save where another whole region of this
    /// node lies. Not atomic: the caller has recorded that the range is not whole, and synced that.
    pub(crate) fn wipe(&self, region: &Region) -> Result<()> {
        for (start, end) in self.uncovered(region) {
            self.engine.delete_range(Keyspace::Data, &start, &end)?;
            self.engine.delete_range(Keyspace::Lock, &start, &end)?;
            let (low, high) = (layout::escaped_bound(&start), layout::escaped_bound(&end));
            self.engine.delete_range(Keyspace::Hist, &low, &high)?;
            self.engine.delete_range(Keyspace::Fate, &low, &high)?;
            self.locks.clear(&start, &end);
        }
        Ok(())
    }

    /// Parts of a region's range that no other whole region of this node covers.
    fn uncovered(&self, region: &Region) -> Vec<KeyRange> {
        let mut others = self.others(region.id);
        others.sort_by(|a, b| a.start.cmp(&b.start));
        let mut parts = Vec::new();
        let mut from = region.start.clone();
        for other in others {
            if other.end <= from || other.start >= region.end {
                continue;
            }
            if other.start > from {
                parts.push((from, other.start));
            }
            from = other.end;
        }
        if from < region.end {
            parts.push((from, region.end.clone()));
        }
        parts
    }

    fn others(&self, region: RegionId) -> Vec<Region> {
        let regions = self.regions.read();
        let others = regions.values().filter(|view| view.whole && view.region.id != region);
        others.map(|view| view.region.clone()).collect()
    }

    /// Schemas that the store holds for a region.
    pub(crate) fn load_schemas(&self, kv: &dyn KvRead, region: RegionId) -> Result<Schemas> {
        let prefix = layout::schemas_prefix(region);
        let end = types::key::prefix_end(&prefix);
        let mut schemas = Schemas::new();
        for pair in kv.scan(Keyspace::Meta, &prefix, &end) {
            let table: Table = layout::decode(&pair?.1)?;
            schemas.insert((table.id, table.version), Arc::new(table));
        }
        Ok(schemas)
    }

    /// What is missing when a region that must be on this node is not.
    pub(crate) fn expect_region(&self, region: RegionId) -> Result<Arc<RegionView>> {
        self.region(region).ok_or(Error::RegionNotFound(region))
    }
}
