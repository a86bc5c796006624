//! A tablet: one region's columns on this node.
//!
//! Facts go in, in the order of the log; what readers pin is an immutable view. A row lives over
//! `[begin, end)`: Commit gives it a begin, and an end to the version that it replaces, so no
//! reader ever merges. A tablet decides nothing and contacts nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use raft::{Command, Position};
use txn::{Fact, Facts, WriteKind};
use types::error::LockInfo;
use types::{ColumnId, Error, Region, RegionId, ReplicaLag, Result, Table, Timestamp};

use crate::deletions::{Deletion, DeletionLog};
use crate::delta::Delta;
use crate::flush::Sealed;
use crate::lag::LagLog;
use crate::reader::Segment;
use crate::record::{FileId, PartRecord, PendingRow, TabletRecord, position, stored};
use crate::schemas::Schemas;
use crate::store::{OVERFULL, Shared};
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
struct Ending {
    key: Vec<u8>,
    begin: Timestamp,
    end: Timestamp,
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
    departed: Vec<LockInfo>,
    endings: Vec<Ending>,
    /// An entry was applied in part: nothing may be written from this state any more.
    failed: bool,
    /// When columns were dropped since this state was made, in Unix milliseconds.
    dropped_ms: BTreeMap<ColumnId, u64>,
    /// When this state was made.
    made_ms: u64,
    /// Earliest commit since the last view that was acknowledged while this process ran.
    oldest_commit: Option<Timestamp>,
}

/// What applying an entry did.
pub(crate) enum Outcome {
    Applied,
    Dropped,
    Split(Vec<Arc<Tablet>>),
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
            .filter(|(_, row)| row.kind != WriteKind::Lock)
            .map(|(key, row)| info(key, row));
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

    /// Applies the next entry; entries that are in already change nothing.
    pub(crate) fn apply(&self, at: Position, command: Command<'_>) -> Result<Outcome> {
        self.usable()?;
        let mut state = self.lock();
        state.sound()?;
        if state.applied.index == 0 {
            return Err(state.corrupt("an entry came before the snapshot"));
        }
        if at.index <= state.applied.index {
            return Ok(Outcome::Applied);
        }
        state.applied = at;
        let applied = match command {
            Command::Empty => Ok(Outcome::Applied),
            Command::Membership(region) => {
                state.region = region.clone();
                Ok(Outcome::Applied)
            }
            Command::Data(bytes) => Facts::decode(bytes).and_then(|facts| {
                if facts.stands(at, state.region.epoch) {
                    self.apply_facts(&mut state, facts.facts)
                } else {
                    Ok(Outcome::Dropped)
                }
            }),
        };
        applied.inspect_err(|error| {
            state.failed = true;
            self.quarantine(error);
        })
    }

    fn apply_facts(&self, state: &mut State, facts: Vec<Fact>) -> Result<Outcome> {
        let mut applied = Outcome::Applied;
        let mut cut = false;
        for fact in facts {
            if matches!(applied, Outcome::Split(_)) {
                return Err(state.corrupt("a fact follows a split in its entry"));
            }
            match fact {
                Fact::Split { children } => {
                    applied = Outcome::Split(self.split(state, &children)?);
                }
                Fact::DeleteRange { start, end } => {
                    self.delete_range(state, &start, &end)?;
                    cut = true;
                }
                Fact::Schema(table) => cut |= self.adopt_schema(state, *table)?,
                fact => state.apply_fact(fact, self.shared.opened_ms)?,
            }
        }
        if cut && !matches!(applied, Outcome::Split(_)) {
            self.rewrite(state)?;
        }
        Ok(applied)
    }

    /// Takes in a schema version; whether the whole tablet must be written at the end of the entry.
    /// Rows in memory are laid out with the columns that go, apart from rows that never have them.
    fn adopt_schema(&self, state: &mut State, table: Table) -> Result<bool> {
        if state.region.table() != Some(table.id) {
            return Err(state.corrupt("a schema of another table"));
        }
        let before = state.schemas.newest().filter(|known| known.version < table.version);
        let before = before.map_or(&[][..], |known| known.columns.as_slice());
        let gone: Vec<ColumnId> = before
            .iter()
            .map(|column| column.id)
            .filter(|id| table.column(*id).is_none())
            .collect();
        if !gone.is_empty() {
            let parts = state.fold(&self.shared)?;
            state.adopt(parts);
            let now_ms = self.shared.clock.unix_millis();
            state.dropped_ms.extend(gone.iter().map(|column| (*column, now_ms)));
        }
        Arc::make_mut(&mut state.schemas).add(table);
        Ok(!gone.is_empty())
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

    fn apply_fact(&mut self, fact: Fact, opened_ms: u64) -> Result<()> {
        match fact {
            Fact::Lock { key, start_ts, primary, kind, row, replaces, ttl, .. } => {
                self.check_key(&key)?;
                if self.pending.get(&key).is_some_and(|held| held.start_ts != start_ts) {
                    return Err(self.corrupt("a lock meets another transaction's lock"));
                }
                if (kind == WriteKind::Put) != row.is_some() {
                    return Err(self.corrupt("a lock's row does not fit its kind"));
                }
                let row = PendingRow { start_ts, primary, kind, row, replaces, ttl };
                self.dirty.insert(key.clone());
                self.pending.insert(key, row);
            }
            Fact::Commit { key, start_ts, commit_ts } => {
                self.commit(key, start_ts, commit_ts, opened_ms)?;
            }
            Fact::Rollback { key, start_ts } => {
                self.check_key(&key)?;
                if self.pending.get(&key).is_some_and(|row| row.start_ts == start_ts) {
                    self.unpark(&key);
                }
            }
            Fact::Write { key, commit_ts, kind: _, row, replaces } => {
                self.check_key(&key)?;
                if row.is_none() || !self.has_version(&key, commit_ts)? {
                    self.version(key, commit_ts, row, replaces, opened_ms)?;
                }
            }
            // What columns drop follows the safe point and their own deletions; a snapshot's floor says
            // what its sender has dropped.
            Fact::Collect(_) => {}
            Fact::Schema(_) | Fact::Split { .. } | Fact::DeleteRange { .. } => {
                return Err(self.corrupt("a change of shape out of place"));
            }
        }
        Ok(())
    }

    /// Snapshots from before this may still be read with a dropped column.
    pub(crate) fn last_use(&self, column: ColumnId) -> Timestamp {
        let since_ms = self.dropped_ms.get(&column).copied().unwrap_or(self.made_ms);
        Timestamp::pack(since_ms.saturating_add(CLOCKS_APART_MS), 0)
    }

    fn commit(
        &mut self,
        key: Vec<u8>,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        opened_ms: u64,
    ) -> Result<()> {
        self.check_key(&key)?;
        if self.pending.get(&key).is_none_or(|row| row.start_ts != start_ts) {
            return if self.has_version(&key, commit_ts)? {
                Ok(())
            } else {
                Err(self.corrupt("a commit finds neither its lock nor its version"))
            };
        }
        match self.unpark(&key) {
            Some(row) if row.kind != WriteKind::Lock => {
                self.version(key, commit_ts, row.row, row.replaces, opened_ms)
            }
            _ => Ok(()),
        }
    }

    /// Begins a version, if there is a row, and ends the one it replaces.
    fn version(
        &mut self,
        key: Vec<u8>,
        commit_ts: Timestamp,
        row: Option<Vec<u8>>,
        replaces: Option<Timestamp>,
        opened_ms: u64,
    ) -> Result<()> {
        if let Some(bytes) = row {
            let values = self.schemas.decode(&bytes)?;
            let Some(table) = self.schemas.newest() else {
                return Err(self.corrupt("a row came before any schema"));
            };
            self.delta.push(table, &key, commit_ts, &values, bytes.len())?;
        }
        if let Some(begin) = replaces {
            self.endings.push(Ending { key, begin, end: commit_ts });
        }
        // A commit from before this process ran was late by the downtime, not by replication.
        if commit_ts.physical_ms() >= opened_ms {
            let oldest = self.oldest_commit.get_or_insert(commit_ts);
            *oldest = commit_ts.min(*oldest);
        }
        Ok(())
    }

    /// Looks up the versions that ended, together and in key order.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.endings.sort_by(|a, b| b.key.cmp(&a.key));
        while let Some(ending) = self.endings.last() {
            self.end(ending)?;
            self.endings.pop();
        }
        Ok(())
    }

    fn end(&self, ending: &Ending) -> Result<()> {
        let Ending { key, begin, end } = ending;
        let sealed = self.sealed.iter().map(|sealed| &sealed.delta);
        for delta in [&self.delta].into_iter().chain(sealed) {
            if let Some(row) = delta.find(key, *begin) {
                delta.delete(row, *end);
                return Ok(());
            }
        }
        for part in self.parts.iter().rev() {
            if let Some(row) = part.find(key, *begin)? {
                part.deletions.push(Deletion { row, end_ts: *end });
                return Ok(());
            }
        }
        Err(self.corrupt(&format!("the version of {begin} that one of {end} replaces is missing")))
    }

    fn has_version(&self, key: &[u8], begin: Timestamp) -> Result<bool> {
        let sealed = self.sealed.as_ref().and_then(|sealed| sealed.delta.find(key, begin));
        if self.delta.find(key, begin).or(sealed).is_some() {
            return Ok(true);
        }
        for part in &self.parts {
            if part.find(key, begin)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unpark(&mut self, key: &[u8]) -> Option<PendingRow> {
        let (key, row) = self.pending.remove_entry(key)?;
        if row.kind != WriteKind::Lock {
            self.departed.push(info(&key, &row));
        }
        self.dirty.insert(key);
        Some(row)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if self.region.contains(key) {
            return Ok(());
        }
        Err(self.corrupt("a fact names a key outside of its region"))
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

    fn find(&self, key: &[u8], begin: Timestamp) -> Result<Option<u32>> {
        let row = self.segment.find(key, begin)?;
        Ok(row.filter(|row| (self.from..self.to).contains(row)))
    }
}

fn info(key: &[u8], row: &PendingRow) -> LockInfo {
    LockInfo {
        key: key.to_vec(),
        primary: row.primary.clone(),
        start_ts: row.start_ts,
        ttl: row.ttl,
    }
}
