//! The row machine: turns a region's facts into versions, fates and locks.
//!
//! It decides nothing and reads no clock. The effects of one batch of entries, the applied position
//! and the region's descriptor are one write to the store, so a crash leaves all of them or none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{Keyspace, WriteBatch};
use parking_lot::Mutex;
use raft::{Command, Effect, INITIAL_POSITION, Machine, Position, SnapshotChunks, SnapshotSource};
use types::{Error, Region, RegionKind, Result, Timestamp};

use crate::bulk;
use crate::fact::{AsyncCommit, Fact, Facts, Floors, SplitChild, WriteKind, split_region};
use crate::layout::{self, AppliedRecord, DataRecord, Fate, HistRecord, RegionRecord, Size};
use crate::locks::{Lock, LockChanges};
use crate::mvcc;
use crate::share::shared_key;
use crate::snapshot::{self, Rows};
use crate::store::{RegionView, RowStore, Schemas};

/// The row machine of one region's peer.
pub struct RowMachine {
    store: Arc<RowStore>,
    region: Region,
    whole: bool,
    applied: Position,
    schemas: Arc<Schemas>,
    size: Size,
    floors: Floors,
    /// See [`RegionView`].
    gate: Arc<Mutex<()>>,
    history: Arc<AtomicU64>,
    swept: Arc<AtomicU64>,
    /// Effects of the entries since the last finished batch.
    pending: Pending,
    /// Last finished entry, and the number of the store's batch that holds it.
    finished: (Position, u64),
    durable: u64,
}

#[derive(Default)]
struct Pending {
    batch: WriteBatch,
    data: HashMap<Vec<u8>, DataRecord>,
    locks: LockChanges,
    /// The descriptor changed.
    region: bool,
    /// Regions made by a split.
    children: Vec<RegionView>,
    entries: u64,
}

impl RowMachine {
    /// A machine over what the store holds of a region. What it holds is durable.
    pub(crate) fn open(
        store: Arc<RowStore>,
        record: RegionRecord,
        applied: AppliedRecord,
        schemas: Schemas,
    ) -> Self {
        let position = Position { index: applied.index, term: applied.term };
        let position = if record.whole { position } else { Position::default() };
        let machine = RowMachine {
            store,
            region: record.region,
            whole: record.whole,
            applied: position,
            schemas: Arc::new(schemas),
            size: applied.size,
            floors: applied.floors,
            gate: Arc::default(),
            history: Arc::default(),
            swept: Arc::default(),
            pending: Pending::default(),
            finished: (position, 0),
            durable: position.index,
        };
        machine.store.publish(machine.view());
        machine
    }

    /// A machine for a region that is new on this node, recorded durably: empty and whole for a
    /// initial voter, else waiting for a snapshot.
    pub(crate) fn create(store: Arc<RowStore>, region: &Region, whole: bool) -> Result<Self> {
        let mut batch = WriteBatch::default();
        let record = RegionRecord { region: region.clone(), whole };
        let position = if whole { INITIAL_POSITION } else { Position::default() };
        let applied =
            AppliedRecord { index: position.index, term: position.term, ..Default::default() };
        snapshot::put_region(&mut batch, &record, applied)?;
        store.write(batch, LockChanges::new())?;
        store.sync()?;
        Ok(Self::open(store, record, applied, Schemas::new()))
    }

    fn view(&self) -> RegionView {
        RegionView {
            region: self.region.clone(),
            whole: self.whole,
            applied: self.applied,
            schemas: self.schemas.clone(),
            size: self.size,
            floors: self.floors,
            gate: self.gate.clone(),
            history: self.history.clone(),
            swept: self.swept.clone(),
        }
    }

    fn apply_facts(&mut self, facts: Vec<Fact>) -> Result<Effect> {
        let mut effect = Effect::Applied;
        let mut async_commit = None;
        let mut facts = facts.into_iter().peekable();
        while let Some(fact) = facts.next() {
            if matches!(effect, Effect::Split(_)) {
                return Err(self.corrupt("a fact follows a split in its entry"));
            }
            match fact {
                Fact::Lock { .. } => match facts.next_if(|next| ends(next, &fact)) {
                    Some(Fact::Commit { commit_ts, .. }) => {
                        self.lock_and_commit(fact, commit_ts)?
                    }
                    _ => self.lock(fact, async_commit.clone())?,
                },
                Fact::Commit { key, start_ts, commit_ts } => {
                    self.commit(key, start_ts, commit_ts)?;
                }
                Fact::Rollback { key, start_ts } => self.rollback(key, start_ts)?,
                Fact::Write { key, commit_ts, kind: _, row, replaces } => {
                    self.check_key(&key)?;
                    self.store.note_timestamp(commit_ts);
                    self.version(key, commit_ts, Timestamp::ZERO, row, replaces)?;
                }
                Fact::Split { children } => effect = Effect::Split(self.split(&children)?),
                Fact::Async(commit) => async_commit = Some(commit),
                Fact::Reserved => return Err(self.corrupt("an unknown fact")),
                Fact::Collect(floors) => {
                    if self.holds_older(floors.read) {
                        return Ok(Effect::Dropped);
                    }
                    self.floors = self.floors.max(floors);
                }
                Fact::Schema(table) => {
                    let key = layout::schema_key(self.region.id, &table);
                    self.pending.batch.put(Keyspace::Meta, key, layout::encode(&table)?);
                    let schemas = Arc::make_mut(&mut self.schemas);
                    schemas.insert((table.id, table.version), Arc::new(*table));
                }
            }
        }
        Ok(effect)
    }

    fn lock(&mut self, fact: Fact, async_commit: Option<AsyncCommit>) -> Result<()> {
        let Some(mut lock) = Lock::from_fact(fact, async_commit) else { return Ok(()) };
        self.check_key(&lock.key)?;
        self.store.note_timestamp(lock.newest());
        match self.locked(&lock.key) {
            Some(held) if held.start_ts != lock.start_ts => {
                return Err(self.corrupt("a lock meets another transaction's lock"));
            }
            // Its life alone is another.
            Some(held) => lock.async_commit.clone_from(&held.async_commit),
            None => {}
        }
        if let Some(commit) = &mut lock.async_commit
            && lock.key != lock.primary
        {
            commit.secondaries.clear();
        }
        self.pending.batch.put(Keyspace::Lock, lock.key.clone(), lock.encode()?);
        self.pending.locks.insert(lock.key.clone(), Some(Arc::new(lock)));
        Ok(())
    }

    fn commit(&mut self, key: Vec<u8>, start_ts: Timestamp, commit_ts: Timestamp) -> Result<()> {
        self.check_key(&key)?;
        self.store.note_timestamp(commit_ts);
        let Some(lock) = self.locked(&key).filter(|lock| lock.start_ts == start_ts) else {
            return match mvcc::fate(self.store.snapshot().as_ref(), &key, start_ts)? {
                Some(Fate::Committed(at)) if at == commit_ts => Ok(()),
                _ => Err(self.corrupt("a commit finds neither its lock nor its version")),
            };
        };
        self.unlock(&key);
        self.committed(&lock, commit_ts)
    }

    /// A lock that ends in its own entry: nobody can meet it, and it is not stored.
    fn lock_and_commit(&mut self, fact: Fact, commit_ts: Timestamp) -> Result<()> {
        let Some(lock) = Lock::from_fact(fact, None) else { return Ok(()) };
        self.check_key(&lock.key)?;
        if self.locked(&lock.key).is_some() {
            return Err(self.corrupt("a commit in one entry meets a lock"));
        }
        self.store.note_timestamp(commit_ts);
        self.committed(&lock, commit_ts)
    }

    /// What a lock becomes when it is committed.
    fn committed(&mut self, lock: &Lock, commit_ts: Timestamp) -> Result<()> {
        let (key, start_ts) = (lock.key.clone(), lock.start_ts);
        // The end of nothing leaves no history to be found by: its fate shows where it is.
        let of_nothing = lock.kind == WriteKind::Delete && lock.replaces.is_none();
        // Of one that commits asynchronously every key is asked about, in any order, until none is locked.
        let is_asked = lock.primary == key || lock.async_commit.is_some();
        if is_asked || !lock.kind.changes() || of_nothing {
            self.fate(&key, start_ts, Fate::Committed(commit_ts));
        }
        if lock.kind == WriteKind::Lock {
            let mut record = self.data(&key)?;
            record.held_ts = record.held_ts.max(commit_ts);
            self.put_data(key, record);
            return Ok(());
        }
        if lock.kind == WriteKind::Share {
            let Some(shared) = shared_key(&key, start_ts) else {
                return Err(self.corrupt("a share of a key is another transaction's"));
            };
            let mut record = self.data(shared)?;
            record.shared_ts = record.shared_ts.max(commit_ts);
            self.put_data(shared.to_vec(), record);
            return Ok(());
        }
        self.version(key, commit_ts, start_ts, lock.row.clone(), lock.replaces)
    }

    fn rollback(&mut self, key: Vec<u8>, start_ts: Timestamp) -> Result<()> {
        self.check_key(&key)?;
        if self.locked(&key).is_some_and(|lock| lock.start_ts == start_ts) {
            self.unlock(&key);
        }
        self.fate(&key, start_ts, Fate::RolledBack);
        Ok(())
    }

    /// Adds a version: the same one again changes nothing, an older one becomes history.
    fn version(
        &mut self,
        key: Vec<u8>,
        commit_ts: Timestamp,
        start_ts: Timestamp,
        row: Option<Vec<u8>>,
        replaces: Option<Timestamp>,
    ) -> Result<()> {
        let old = self.data(&key)?;
        if commit_ts == old.commit_ts {
            return if start_ts == old.start_ts {
                Ok(())
            } else {
                Err(self.corrupt("two transactions have one commit timestamp on a key"))
            };
        }
        if commit_ts < old.commit_ts {
            self.history(&key, commit_ts, HistRecord { start_ts, row });
            return Ok(());
        }
        if old.live() != replaces {
            return Err(self.corrupt("a version names another predecessor than the stored one"));
        }
        self.recount(&key, old.row.as_deref(), row.as_deref());
        let DataRecord { held_ts, shared_ts, .. } = old;
        if old.commit_ts > Timestamp::ZERO {
            let record = HistRecord { start_ts: old.start_ts, row: old.row };
            self.history(&key, old.commit_ts, record);
        }
        self.put_data(key, DataRecord { commit_ts, start_ts, held_ts, shared_ts, row });
        Ok(())
    }

    fn split(&mut self, children: &[SplitChild]) -> Result<Vec<Box<dyn Machine>>> {
        let (parent, regions) = split_region(&self.region, children)?;
        let parts: Vec<&Region> = std::iter::once(&parent).chain(&regions).collect();
        let shares: Vec<Size> = parts.iter().map(|part| share(self.size, &parts, part)).collect();
        let mut machines: Vec<Box<dyn Machine>> = Vec::with_capacity(regions.len());
        for (region, size) in regions.into_iter().zip(shares.iter().skip(1).copied()) {
            if self.store.region(region.id).is_some_and(|known| known.whole) {
                return Err(self.corrupt("a split makes a region that is on this node already"));
            }
            let record = RegionRecord { region, whole: true };
            let Position { index, term } = INITIAL_POSITION;
            let applied = AppliedRecord { index, term, size, floors: self.floors };
            snapshot::put_region(&mut self.pending.batch, &record, applied)?;
            for table in self.schemas.values() {
                let key = layout::schema_key(record.region.id, table);
                self.pending.batch.put(Keyspace::Meta, key, layout::encode(table.as_ref())?);
            }
            let child = RowMachine {
                store: self.store.clone(),
                region: record.region,
                whole: true,
                applied: INITIAL_POSITION,
                schemas: self.schemas.clone(),
                size,
                floors: self.floors,
                gate: Arc::default(),
                history: Arc::default(),
                swept: Arc::default(),
                pending: Pending::default(),
                finished: (INITIAL_POSITION, 0),
                durable: INITIAL_POSITION.index,
            };
            self.pending.children.push(child.view());
            machines.push(Box::new(child));
        }
        self.region = parent;
        self.size = shares.first().copied().unwrap_or_default();
        self.pending.region = true;
        Ok(machines)
    }

    /// Writes what is pending, with the applied position.
    fn flush(&mut self) -> Result<()> {
        let Pending { mut batch, locks, region, children, .. } = std::mem::take(&mut self.pending);
        let swept = Size { bytes: self.swept.swap(0, Ordering::Relaxed), rows: 0 };
        self.size = self.size.changed(Size::default(), swept);
        let (Position { index, term }, size, floors) = (self.applied, self.size, self.floors);
        let applied = layout::encode(&AppliedRecord { index, term, size, floors })?;
        batch.put(Keyspace::Meta, layout::applied_key(self.region.id), applied);
        if region {
            let record = RegionRecord { region: self.region.clone(), whole: self.whole };
            let key = layout::region_key(self.region.id);
            batch.put(Keyspace::Meta, key, layout::encode(&record)?);
        }
        let alone = self.gate.lock();
        let number = self.store.write(batch, locks)?;
        // The parent shrinks before its children appear: no key is ever in two regions.
        self.store.publish(self.view());
        children.into_iter().for_each(|child| self.store.publish(child));
        drop(alone);
        self.finished = (self.applied, number);
        Ok(())
    }

    fn data(&self, key: &[u8]) -> Result<DataRecord> {
        if let Some(record) = self.pending.data.get(key) {
            return Ok(record.clone());
        }
        let stored = self.store.engine().get(Keyspace::Data, key)?;
        stored.map_or_else(|| Ok(DataRecord::default()), DataRecord::decode)
    }

    fn put_data(&mut self, key: Vec<u8>, record: DataRecord) {
        self.pending.batch.put(Keyspace::Data, key.clone(), record.encode());
        self.pending.data.insert(key, record);
    }

    fn history(&mut self, key: &[u8], commit_ts: Timestamp, record: HistRecord) {
        let (stored, value) = (layout::hist_key(key, commit_ts), record.encode());
        self.history.fetch_add((stored.len() + value.len()) as u64, Ordering::Relaxed);
        self.pending.batch.put(Keyspace::Hist, stored, value);
    }

    fn fate(&mut self, key: &[u8], start_ts: Timestamp, fate: Fate) {
        let stored = layout::fate_key(key, start_ts);
        self.pending.batch.put(Keyspace::Fate, stored, fate.encode());
    }

    fn locked(&self, key: &[u8]) -> Option<Arc<Lock>> {
        match self.pending.locks.get(key) {
            Some(change) => change.clone(),
            None => self.store.locks().get(key),
        }
    }

    fn unlock(&mut self, key: &[u8]) {
        self.pending.batch.delete(Keyspace::Lock, key);
        self.pending.locks.insert(key.to_vec(), None);
    }

    /// Whether a transaction that began before `ts` holds a key of the region.
    fn holds_older(&self, ts: Timestamp) -> bool {
        let changed = &self.pending.locks;
        let Region { start, end, .. } = &self.region;
        let stored = self
            .store
            .locks()
            .first(start, end, |lock| lock.start_ts < ts && !changed.contains_key(&lock.key));
        stored.is_some() || changed.values().flatten().any(|lock| lock.start_ts < ts)
    }

    fn recount(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let size = |row: Option<&[u8]>| {
            row.map_or_else(Size::default, |row| Size::of(&self.region, key, row))
        };
        self.size = self.size.changed(size(new), size(old));
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if self.region.contains(key) {
            return Ok(());
        }
        Err(self.corrupt("a fact names a key outside of its region"))
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt(format!(
            "region {} at log index {}: {what}; remove this replica and let it be copied anew",
            self.region.id, self.applied.index
        ))
    }
}

/// What a part of a region that is cut is thought to hold: nobody knows it without reading. About equal shares, for that is
/// the aim, and rows only where records may be.
fn share(size: Size, parts: &[&Region], part: &Region) -> Size {
    let rows =
        |part: &Region| !matches!(part.kind, RegionKind::Table(_)) || part.records().is_some();
    let with_rows = parts.iter().filter(|part| rows(part)).count();
    let rows = if rows(part) { size.rows / with_rows.max(1) as u64 } else { 0 };
    Size { bytes: size.bytes / parts.len().max(1) as u64, rows }
}

/// Whether a fact commits the lock of another.
fn ends(fact: &Fact, lock: &Fact) -> bool {
    match (fact, lock) {
        (Fact::Commit { key, start_ts, .. }, Fact::Lock { key: locked, start_ts: by, .. }) => {
            key == locked && start_ts == by
        }
        _ => false,
    }
}

impl Machine for RowMachine {
    fn region(&self) -> &Region {
        &self.region
    }

    fn applied(&self) -> Position {
        self.applied
    }

    fn apply(&mut self, at: Position, command: Command<'_>) -> Result<Effect> {
        if !self.whole || at.index <= self.applied.index {
            return Err(self.corrupt(&format!("entry {} cannot be applied here", at.index)));
        }
        self.applied = at;
        self.pending.entries += 1;
        match command {
            Command::Empty => Ok(Effect::Applied),
            Command::Membership(region) => {
                self.region = region.clone();
                self.pending.region = true;
                Ok(Effect::Applied)
            }
            Command::Data(bytes) => {
                let facts = Facts::decode(bytes)?;
                if !facts.stands(at, self.region.epoch) {
                    return Ok(Effect::Dropped);
                }
                let locks = facts
                    .facts
                    .first()
                    .is_some_and(|fact| matches!(fact, Fact::Lock { .. } | Fact::Async(_)));
                if locks && bytes.len() < bulk::BYTES {
                    self.store.online.fetch_add(1, Ordering::Relaxed);
                }
                self.apply_facts(facts.facts)
            }
        }
    }

    fn finish_batch(&mut self) -> Result<()> {
        if self.pending.entries == 0 { Ok(()) } else { self.flush() }
    }

    fn durable_index(&self) -> u64 {
        self.durable
    }

    fn persist(&mut self) -> Result<()> {
        let (position, number) = self.finished;
        if position.index > self.durable {
            self.store.sync_to(number)?;
            self.durable = position.index;
        }
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>> {
        if self.pending.entries > 0 || !self.whole {
            return Err(Error::Unavailable(format!(
                "region {} has no whole state to copy now",
                self.region.id
            )));
        }
        let kv = self.store.snapshot();
        Ok(Box::new(Rows::new(kv, self.region.clone(), self.schemas.clone(), self.floors)))
    }

    fn restore(
        &mut self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()> {
        if let Some(other) = self.store.neighbour_within(region) {
            return Err(Error::Unavailable(format!(
                "region {} cannot take a snapshot while region {other} holds part of its range",
                region.id
            )));
        }
        self.pending = Pending::default();
        let old = std::mem::replace(&mut self.region, region.clone());
        (self.whole, self.applied, self.durable) = (false, Position::default(), 0);
        (self.finished, self.size) = ((Position::default(), 0), Size::default());
        self.swept.store(0, Ordering::Relaxed);
        (self.schemas, self.floors) = (Arc::default(), Floors::default());
        {
            let _alone = self.gate.lock();
            self.store.publish(self.view());
        }
        snapshot::clear(&self.store, &old, region)?;
        let (schemas, size, floors) = snapshot::install(&self.store, region, chunks)?;
        let mut batch = WriteBatch::default();
        let applied = AppliedRecord { index: at.index, term: at.term, size, floors };
        snapshot::put_region(
            &mut batch,
            &RegionRecord { region: region.clone(), whole: true },
            applied,
        )?;
        let number = self.store.write(batch, LockChanges::new())?;
        self.store.sync_to(number)?;
        (self.whole, self.applied, self.durable) = (true, at, at.index);
        (self.finished, self.size) = ((at, number), size);
        (self.schemas, self.floors) = (Arc::new(schemas), floors);
        self.store.publish(self.view());
        Ok(())
    }
}
