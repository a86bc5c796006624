//! A tablet: one region's columns on this node.
//!
//! Facts go in, in the order of the log; what readers pin is an immutable view. A row lives over
//! `[begin, end)`: Commit gives it a begin, and an end to the version that it replaces, so no
//! reader ever merges. A tablet decides nothing and contacts nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use raft::Position;
use types::error::LockInfo;
use types::{ColumnId, Error, Region, RegionId, ReplicaLag, Result, Timestamp};

use crate::deletions::{Deletion, DeletionLog};
use crate::delta::Delta;
use crate::lag::LagLog;
use crate::reader::Segment;
use crate::record::{FileId, PartRecord, PendingRow, TabletRecord, position, stored};
use crate::schemas::Schemas;
use crate::shared::{OVERFULL, Shared};
use crate::view::{PartView, View};

/// How far this node's clock may be behind those that timestamps come from.
const CLOCKS_APART_MS: u64 = 60_000;

/// One region's columns on this node, shared by its machine, its readers and maintenance.
pub struct Tablet {
    pub(crate) id: RegionId,
    pub(crate) shared: Arc<Shared>,
    state: Mutex<State>,
    view: RwLock<Arc<View>>,
    fault: Mutex<Option<String>>,
    gone: AtomicBool,
    lag: Mutex<LagLog>,
}

/// The rows of a segment that belong to a tablet.
#[derive(Clone)]
pub(crate) struct Part {
    pub id: FileId,
    pub segment: Arc<Segment>,
    pub from: u32,
    pub to: u32,
    pub deletions: Arc<DeletionLog>,
    /// How many of the deletions the manifest holds.
    pub durable_deletions: usize,
}

/// The end of a version that is still to be looked up.
pub(crate) struct Ending {
    pub key: Vec<u8>,
    pub begin: Timestamp,
    pub end: Timestamp,
}

/// A tablet's changes since its last edit, frozen at a position of the log.
pub(crate) struct Sealed {
    pub delta: Delta,
    pub region: Region,
    pub applied: Position,
    pub schemas: Arc<Schemas>,
    pub deletions: Vec<(FileId, Vec<Deletion>)>,
    /// Deletions within the delta up to the position.
    pub delta_deletions: usize,
    pub parked: Vec<(Vec<u8>, PendingRow)>,
    pub unparked: Vec<Vec<u8>>,
}

/// What only the holder of the tablet's lock sees.
pub(crate) struct State {
    pub region: Region,
    pub generation: u64,
    pub applied: Position,
    pub durable: u64,
    pub schemas: Arc<Schemas>,
    pub floor: Timestamp,
    pub parts: Vec<Part>,
    pub delta: Delta,
    /// A former delta on its way to disk.
    pub sealed: Option<Arc<Sealed>>,
    pub pending: BTreeMap<Vec<u8>, PendingRow>,
    /// Keys whose pending rows changed since the last seal.
    pub dirty: BTreeSet<Vec<u8>>,
    /// Locks that went since the last view: readers of that view must still meet them.
    pub departed: Vec<LockInfo>,
    pub endings: Vec<Ending>,
    /// An entry was applied in part: nothing may be written from this state any more.
    pub failed: bool,
    /// When columns were dropped since this state was made, in Unix milliseconds.
    pub dropped_ms: BTreeMap<ColumnId, u64>,
    /// When this state was made.
    made_ms: u64,
    /// Earliest commit since the last view that was acknowledged while this process ran.
    pub oldest_commit: Option<Timestamp>,
}

impl Tablet {
    /// A tablet as the manifest describes it.
    pub(crate) fn new(shared: Arc<Shared>, record: TabletRecord) -> Result<Arc<Self>> {
        let state = State::new(&shared, record);
        let lag = Mutex::new(LagLog::new(shared.clock.now())?);
        Ok(Arc::new(Tablet {
            id: state.region.id,
            view: RwLock::new(Arc::new(state.view())),
            state: Mutex::new(state),
            fault: Mutex::new(None),
            gone: AtomicBool::new(false),
            lag,
            shared,
        }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The newest published view.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// Lets readers see everything applied so far.
    pub(crate) fn publish(&self, state: &mut State) -> Result<()> {
        state.settle()?;
        state.delta.freeze()?;
        state.departed.clear();
        let oldest = state.oldest_commit.take();
        *self.view.write() = Arc::new(state.view());
        if let Some(commit) = oldest {
            let clock = &self.shared.clock;
            let lag_ms = clock.unix_millis().saturating_sub(commit.physical_ms());
            self.lag.lock().add(clock.now(), lag_ms);
        }
        Ok(())
    }

    /// Ends a batch of entries: readers see them. A delta far over its limits is flushed here.
    pub(crate) fn finish_batch(&self) -> Result<()> {
        let mut state = self.lock();
        self.publish(&mut state).inspect_err(|error| self.quarantine(error))?;
        let config = &self.shared.config;
        let overfull = state.delta.rows() / OVERFULL >= config.delta_rows
            || state.delta.bytes() / OVERFULL >= config.delta_bytes;
        drop(state);
        if overfull { self.persist() } else { Ok(()) }
    }

    /// Rows, bytes and log entries that wait in memory; none if maintenance must leave the tablet alone.
    pub(crate) fn backlog(&self) -> Option<(usize, usize, u64)> {
        self.usable().ok()?;
        let state = self.lock();
        state.sound().ok()?;
        // While it is restored, nothing of it can be flushed.
        if state.applied.index == 0 {
            return None;
        }
        let sealed = state.sealed.as_ref().map_or((0, 0), |s| (s.delta.rows(), s.delta.bytes()));
        let entries = state.applied.index.saturating_sub(state.durable);
        Some((state.delta.rows() + sealed.0, state.delta.bytes() + sealed.1, entries))
    }

    /// Goes on from a record that the manifest holds; pinned readers keep what they had.
    pub(crate) fn replace(&self, record: TabletRecord) -> Result<()> {
        let mut state = self.lock();
        *state = State::new(&self.shared, record);
        *self.fault.lock() = None;
        self.publish(&mut state)
    }

    /// How long commits took to become visible here, lately.
    pub(crate) fn lag(&self) -> ReplicaLag {
        self.lag.lock().report(self.shared.clock.now())
    }

    /// Locks that a reader at `ts` must resolve before it may trust the published view.
    pub(crate) fn pending_locks(&self, ts: Timestamp) -> Vec<LockInfo> {
        let state = self.lock();
        let held = state
            .pending
            .iter()
            .filter(|(_, row)| row.kind.changes())
            .map(|(key, row)| lock_info(key, row));
        held.chain(state.departed.iter().cloned()).filter(|lock| lock.start_ts <= ts).collect()
    }

    /// Stops reads and applies after damage; the replica is to be made anew.
    pub(crate) fn quarantine(&self, error: &Error) {
        if let Error::Corrupt(what) = error {
            let mut fault = self.fault.lock();
            if fault.is_none() {
                tracing::error!(region = self.id, %what, "columnar tablet is quarantined");
                *fault = Some(what.clone());
            }
        }
    }

    /// The same, after damage that a reader of a generation has met: data that was restored since is other data.
    pub(crate) fn quarantine_generation(&self, generation: u64, error: &Error) {
        let state = self.lock();
        if state.generation == generation {
            self.quarantine(error);
        }
    }

    /// Why the tablet is quarantined, if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().clone()
    }

    pub(crate) fn retire(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Fails if the tablet is quarantined or was destroyed.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.is_gone() {
            return Err(Error::RegionNotFound(self.id));
        }
        match self.fault() {
            Some(what) => Err(Error::Corrupt(format!(
                "columnar replica of region {} is quarantined ({what}): use another replica or \
                 rows until it is copied anew",
                self.id
            ))),
            None => Ok(()),
        }
    }
}

impl State {
    pub(crate) fn new(shared: &Shared, record: TabletRecord) -> Self {
        let parts = record.parts.into_iter().map(|part| Part::new(shared, part)).collect();
        State {
            region: record.region,
            generation: record.generation,
            applied: position(record.applied),
            durable: record.applied.0,
            schemas: Arc::new(Schemas::new(record.schemas)),
            floor: record.floor,
            parts,
            delta: Delta::default(),
            sealed: None,
            pending: record.pending,
            dirty: BTreeSet::new(),
            departed: Vec::new(),
            endings: Vec::new(),
            failed: false,
            dropped_ms: BTreeMap::new(),
            made_ms: shared.clock.unix_millis(),
            oldest_commit: None,
        }
    }

    /// The whole tablet, were `region` its region, `parts` its parts, and its deltas empty.
    pub(crate) fn record(&self, region: &Region, parts: &[Part]) -> TabletRecord {
        let inside = |key: &[u8]| region.contains(key);
        let pending = self.pending.iter().filter(|(key, _)| inside(key));
        TabletRecord {
            region: region.clone(),
            generation: self.generation,
            applied: stored(self.applied),
            schemas: self.schemas.to_vec(),
            floor: self.floor,
            parts: parts.iter().map(Part::record).collect(),
            pending: pending.map(|(key, row)| (key.clone(), row.clone())).collect(),
        }
    }

    /// Fails once an entry was applied in part.
    pub(crate) fn sound(&self) -> Result<()> {
        if self.failed {
            return Err(Error::Unavailable(format!(
                "columns of region {} stopped after a failed entry: restart the node, or remove \
                 this replica and let it be copied anew",
                self.region.id
            )));
        }
        Ok(())
    }

    fn view(&self) -> View {
        let sealed = self.sealed.iter().map(|sealed| sealed.delta.view());
        View {
            region: self.region.clone(),
            generation: self.generation,
            applied: self.applied,
            floor: self.floor,
            schemas: self.schemas.clone(),
            parts: self.parts.iter().map(Part::view).collect(),
            deltas: sealed.chain([self.delta.view()]).collect(),
        }
    }

    /// Snapshots from before this may still be read with a dropped column.
    pub(crate) fn last_use(&self, column: ColumnId) -> Timestamp {
        let since_ms = self.dropped_ms.get(&column).copied().unwrap_or(self.made_ms);
        Timestamp::pack(since_ms.saturating_add(CLOCKS_APART_MS), 0)
    }

    pub(crate) fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt(format!(
            "columns of region {} at log index {}: {what}; remove this replica and let it be \
             copied anew",
            self.region.id, self.applied.index
        ))
    }
}

impl Part {
    pub(crate) fn new(shared: &Shared, record: PartRecord) -> Self {
        Part {
            id: record.id,
            segment: shared.segment(record.segment),
            from: record.from,
            to: record.to,
            durable_deletions: record.deletions.len(),
            deletions: DeletionLog::new(record.deletions),
        }
    }

    /// The part with every deletion so far.
    pub(crate) fn record(&self) -> PartRecord {
        PartRecord {
            id: self.id,
            segment: self.segment.record().clone(),
            from: self.from,
            to: self.to,
            deletions: self.deletions.to_vec(),
        }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.to - self.from
    }

    fn view(&self) -> PartView {
        PartView {
            segment: self.segment.clone(),
            from: self.from,
            to: self.to,
            deletions: self.deletions.pin(),
        }
    }

    pub(crate) fn find(&self, key: &[u8], begin: Timestamp) -> Result<Option<u32>> {
        let row = self.segment.find(key, begin)?;
        Ok(row.filter(|row| (self.from..self.to).contains(row)))
    }
}

/// A pending row as the lock that readers meet.
pub(crate) fn lock_info(key: &[u8], row: &PendingRow) -> LockInfo {
    LockInfo {
        key: key.to_vec(),
        primary: row.primary.clone(),
        start_ts: row.start_ts,
        ttl: row.ttl,
    }
}
