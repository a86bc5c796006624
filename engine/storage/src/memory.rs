//! A store in memory with the same promises, for tests of the layer above.
//!
//! Nothing is durable, and nothing of it is meant to be: timestamps count, conflicts are found at
//! commit, the catalog is placement's own state machine.

mod advisory;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use placement::ClusterStatus;
use placement::api::{Catalog, CatalogChange, Garbage, Lease};
use placement::api::{LockAnswer, LockRequest};
use placement::catalog::EligibleNodes;
use placement::command::{Command, Outcome};
use placement::deadlock::WaitGraph;
use placement::state::State;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use txn::queues::{Queues, Standing, Tenure};
use types::{Error, LeaseId, RegionKind, Result, Table, TableId, Timestamp, key, version};

use crate::{
    Acquired, Current, Mode, Pair, Savepoint, Scan, Snapshot, Storage, Taking, Transaction, Waiting,
};

/// Pairs of a page, unless asked for fewer.
const PAGE: usize = 1024;
/// A present that advances by one millisecond with every timestamp.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// What a key held from when on, oldest first; nothing where it was deleted.
type History = Vec<(Timestamp, Option<Vec<u8>>)>;

#[derive(Default)]
struct Data {
    versions: BTreeMap<Vec<u8>, History>,
    clock: u64,
    state: Option<State>,
}

impl Data {
    fn tick(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp::pack(EPOCH_MS + self.clock, 0)
    }
}

/// Row locks. Nothing here fails, so nothing runs out.
#[derive(Default)]
struct Locks {
    queues: Mutex<(Queues, WaitGraph)>,
    changed: Notify,
}

/// All keys are led from here for ever.
const TENURE: Tenure = Tenure { region: 0, term: 0 };

impl Locks {
    /// Takes one key; false if it is to be skipped.
    async fn take(&self, key: &[u8], owner: Timestamp, taking: Taking) -> Result<bool> {
        let Taking { mode, waiting, .. } = taking;
        let began = Instant::now();
        let until = match waiting {
            Waiting::For(ms) => began + Duration::from_millis(ms),
            Waiting::No | Waiting::Skip => began,
        };
        loop {
            let changed = self.changed.notified();
            let holder = {
                let (queues, waits) = &mut *self.queues.lock();
                let queue = matches!(waiting, Waiting::For(_)).then_some(u64::MAX);
                let holder = match queues.claim(0, TENURE, key, (owner, mode), (u64::MAX, queue)) {
                    Standing::Holds => {
                        waits.ended(owner, key);
                        return Ok(true);
                    }
                    Standing::Behind(holder) => holder,
                };
                let now = env::Instant::from_micros(0);
                if queue.is_some() && waits.wait(now, owner, holder, key).is_some() {
                    queues.leave(0, key, owner);
                    self.changed.notify_waiters();
                    return Err(Error::Deadlock(owner));
                }
                holder
            };
            match waiting {
                Waiting::No => return Err(Error::LockBusy(holder)),
                Waiting::Skip => return Ok(false),
                Waiting::For(millis) => {
                    if timeout_at(until, changed).await.is_err() {
                        let (queues, waits) = &mut *self.queues.lock();
                        queues.leave(0, key, owner);
                        self.changed.notify_waiters();
                        waits.ended(owner, key);
                        return Err(Error::LockWait { holder, millis });
                    }
                }
            }
        }
    }

    fn release(&self, keys: &BTreeSet<Vec<u8>>, owner: Timestamp) {
        let queues = &mut self.queues.lock().0;
        keys.iter().for_each(|key| queues.release(0, key, owner));
        self.changed.notify_waiters();
    }
}

/// The store. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStorage {
    data: Arc<Mutex<Data>>,
    locks: Arc<Locks>,
    advisory: Arc<advisory::LockQueue>,
}

impl MemoryStorage {
    /// An empty store.
    pub fn new() -> Self {
        let storage = MemoryStorage::default();
        let state = State { version: version::CURRENT, ..State::new() };
        storage.data.lock().state = Some(state);
        storage
    }

    /// Its present, in Unix microseconds: timestamps are of its milliseconds.
    pub fn unix_micros(&self) -> u64 {
        self.now_ms() * 1_000
    }

    fn tick(&self) -> Timestamp {
        self.data.lock().tick()
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut data = self.data.lock();
        f(data.state.get_or_insert_with(State::new))
    }

    fn command(&self, command: Command) -> Result<Outcome> {
        self.with_state(|state| state.apply(command))
    }

    fn lease(&self, command: Command) -> Result<Lease> {
        match self.command(command)? {
            Outcome::Lease(lease) => Ok(lease),
            _ => Err(Error::Invalid("placement answered no lease".into())),
        }
    }

    fn now_ms(&self) -> u64 {
        EPOCH_MS + self.data.lock().clock
    }
}

/// Pairs of a range at a timestamp, up to a limit.
fn read(
    data: &Data,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    reverse: bool,
    ts: Timestamp,
    limit: usize,
) -> Vec<Pair> {
    let alive = |(key, versions): (&Vec<u8>, &History)| {
        let version = versions.iter().rev().find(|(at, _)| *at <= ts)?;
        Some((key.clone(), version.1.clone()?))
    };
    let empty = match (&from, &to) {
        (Bound::Included(a) | Bound::Excluded(a), Bound::Excluded(b)) => a >= b,
        _ => false,
    };
    if empty {
        return Vec::new();
    }
    let range = data.versions.range((from, to));
    if reverse {
        range.rev().filter_map(alive).take(limit).collect()
    } else {
        range.filter_map(alive).take(limit).collect()
    }
}

struct MemorySnapshot {
    storage: MemoryStorage,
    ts: Timestamp,
}

#[async_trait]
impl Snapshot for MemorySnapshot {
    fn ts(&self) -> Timestamp {
        self.ts
    }

    async fn get(&self, mut keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        keys.sort();
        keys.dedup();
        let data = self.storage.data.lock();
        let one = |key: Vec<u8>| {
            let (from, to) = (Bound::Included(key.clone()), Bound::Included(key));
            read(&data, from, to, false, self.ts, 1).pop()
        };
        Ok(keys.into_iter().filter_map(one).collect())
    }

    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan> {
        let storage = self.storage.clone();
        let page = few.map_or(PAGE, |few| few.max(1) as usize);
        Box::new(MemoryScan {
            storage,
            ts: self.ts,
            start,
            end,
            reverse,
            page,
            own: BTreeMap::new(),
            done: false,
        })
    }
}

struct MemoryScan {
    storage: MemoryStorage,
    ts: Timestamp,
    start: Vec<u8>,
    end: Vec<u8>,
    reverse: bool,
    page: usize,
    own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    done: bool,
}

#[async_trait]
impl Scan for MemoryScan {
    async fn next_page(&mut self) -> Result<Option<Vec<Pair>>> {
        if self.done {
            return Ok(None);
        }
        let (from, to) = (Bound::Included(self.start.clone()), Bound::Excluded(self.end.clone()));
        let pairs = read(&self.storage.data.lock(), from, to, self.reverse, self.ts, self.page);
        let (mut start, mut end) = (self.start.clone(), self.end.clone());
        match pairs.last() {
            Some((last, _)) if pairs.len() == self.page && self.reverse => {
                start.clone_from(last);
                self.end.clone_from(last);
            }
            Some((last, _)) if pairs.len() == self.page => {
                end.clone_from(last);
                end.push(0);
                self.start.clone_from(&end);
            }
            _ => self.done = true,
        }
        let mut merged: BTreeMap<Vec<u8>, Option<Vec<u8>>> =
            pairs.into_iter().map(|(key, row)| (key, Some(row))).collect();
        if start < end {
            let own = self.own.range::<Vec<u8>, _>(&start..&end);
            merged.extend(own.map(|(key, row)| (key.clone(), row.clone())));
        }
        let pairs = merged.into_iter().filter_map(|(key, row)| Some((key, row?)));
        Ok(Some(if self.reverse { pairs.rev().collect() } else { pairs.collect() }))
    }
}

#[derive(Clone)]
enum Write {
    Put(Vec<u8>),
    Insert(Vec<u8>),
    Delete,
    Lock,
}

impl Write {
    fn row(&self) -> Option<Option<Vec<u8>>> {
        match self {
            Write::Put(row) | Write::Insert(row) => Some(Some(row.clone())),
            Write::Delete => Some(None),
            Write::Lock => None,
        }
    }
}

struct MemoryTransaction {
    snapshot: MemorySnapshot,
    writes: BTreeMap<Vec<u8>, Write>,
    saved: Vec<BTreeMap<Vec<u8>, Write>>,
    tables: BTreeMap<TableId, Arc<Table>>,
    /// What it may hold.
    held: BTreeSet<Vec<u8>>,
    /// Keys that it has locked, and the newest version that it has seen of each, or later.
    locked: BTreeMap<Vec<u8>, Timestamp>,
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        self.snapshot.storage.locks.release(&self.held, self.snapshot.ts);
    }
}

#[async_trait]
impl Snapshot for MemoryTransaction {
    fn ts(&self) -> Timestamp {
        self.snapshot.ts
    }

    async fn get(&self, keys: Vec<Vec<u8>>) -> Result<Vec<Pair>> {
        self.get_at(keys, self.snapshot.ts).await
    }

    fn scan(&self, start: Vec<u8>, end: Vec<u8>, reverse: bool, few: Option<u32>) -> Box<dyn Scan> {
        self.scan_at((start, end), reverse, few, self.snapshot.ts)
    }

    fn has_written(&self, table: TableId) -> bool {
        self.tables.contains_key(&table)
    }
}

impl MemoryTransaction {
    fn write(&mut self, table: &Arc<Table>, key: Vec<u8>, write: Write) {
        self.tables.insert(table.id, table.clone());
        self.writes.insert(key, write);
    }

    /// Since when another version of a key is a conflict.
    fn seen(&self, key: &[u8]) -> Timestamp {
        let entry = matches!(key::region_kind(key), Some(RegionKind::Index(..)));
        let newest = self.locked.values().max().copied().filter(|_| entry);
        self.locked.get(key).copied().or(newest).unwrap_or(self.snapshot.ts)
    }
}

#[async_trait]
impl Transaction for MemoryTransaction {
    async fn get_at(&self, keys: Vec<Vec<u8>>, ts: Timestamp) -> Result<Vec<Pair>> {
        let snapshot = self.snapshot.storage.snapshot(ts);
        let mut found: BTreeMap<Vec<u8>, Vec<u8>> =
            snapshot.get(keys.clone()).await?.into_iter().collect();
        for key in keys {
            match self.writes.get(&key).and_then(Write::row) {
                Some(Some(row)) => {
                    found.insert(key, row);
                }
                Some(None) => {
                    found.remove(&key);
                }
                None => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    fn scan_at(
        &self,
        (start, end): (Vec<u8>, Vec<u8>),
        reverse: bool,
        few: Option<u32>,
        ts: Timestamp,
    ) -> Box<dyn Scan> {
        let own = self
            .writes
            .iter()
            .filter_map(|(key, write)| Some((key.clone(), write.row()?)))
            .collect();
        let page = few.map_or(PAGE, |few| few.max(1) as usize);
        let storage = self.snapshot.storage.clone();
        Box::new(MemoryScan { storage, ts, start, end, reverse, page, own, done: false })
    }

    async fn acquire(
        &mut self,
        table: &Arc<Table>,
        mut keys: Vec<Vec<u8>>,
        taking: Taking,
        read_at: Option<Timestamp>,
    ) -> Result<Acquired> {
        keys.sort();
        keys.dedup();
        self.tables.insert(table.id, table.clone());
        let (start, storage) = (self.snapshot.ts, self.snapshot.storage.clone());
        let mut acquired = Acquired::default();
        for key in keys {
            self.held.insert(key.clone());
            if !storage.locks.take(&key, start, taking).await? {
                continue;
            }
            let data = storage.data.lock();
            let newest = data.versions.get(&key).and_then(|versions| versions.last());
            let (newest, row) = newest.cloned().unwrap_or_default();
            let row = self.writes.get(&key).and_then(Write::row).unwrap_or(row);
            if !self.locked.contains_key(&key) {
                if read_at.is_some_and(|read_at| newest > read_at) {
                    acquired.newer = acquired.newer.max(Some(newest));
                } else {
                    self.locked.insert(key.clone(), read_at.unwrap_or(newest.max(start)));
                }
            }
            let floor = Timestamp::ZERO;
            acquired.rows.push(Current { key, newest, floor, live: row.is_some(), row });
        }
        Ok(acquired)
    }

    fn wait_for_rows(&mut self, _: Duration) {}

    fn commits_async(&mut self, _: bool) {}

    fn bytes(&self) -> usize {
        let row = |write: &Write| write.row().flatten().map_or(0, |row| row.len());
        self.writes.iter().map(|(key, write)| key.len() + row(write)).sum()
    }

    fn frozen(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        Arc::new(MemoryTransaction {
            snapshot: MemorySnapshot { storage: self.snapshot.storage.clone(), ts },
            writes: self.writes.clone(),
            saved: Vec::new(),
            tables: self.tables.clone(),
            held: BTreeSet::new(),
            locked: BTreeMap::new(),
        })
    }

    fn put(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        let write = match self.writes.get(&key) {
            Some(Write::Insert(_)) => Write::Insert(row),
            _ => Write::Put(row),
        };
        self.write(table, key, write);
        Ok(())
    }

    fn insert(&mut self, table: &Arc<Table>, key: Vec<u8>, row: Vec<u8>) -> Result<()> {
        let write = match self.writes.get(&key) {
            Some(Write::Put(_) | Write::Insert(_)) => {
                return Err(Error::Duplicate { index: String::new(), key });
            }
            Some(Write::Delete) => Write::Put(row),
            _ => Write::Insert(row),
        };
        self.write(table, key, write);
        Ok(())
    }

    fn delete(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        self.write(table, key, Write::Delete);
        Ok(())
    }

    fn lock(&mut self, table: &Arc<Table>, key: Vec<u8>) -> Result<()> {
        if !self.writes.contains_key(&key) {
            self.write(table, key, Write::Lock);
        }
        Ok(())
    }

    fn savepoint(&mut self) -> Savepoint {
        self.saved.push(self.writes.clone());
        Savepoint(self.saved.len() - 1)
    }

    fn rollback_to(&mut self, savepoint: Savepoint) {
        if let Some(saved) = self.saved.get(savepoint.0) {
            self.writes.clone_from(saved);
            self.saved.truncate(savepoint.0 + 1);
        }
    }

    async fn rollback(self: Box<Self>) {}

    async fn commit(mut self: Box<Self>) -> Result<Timestamp> {
        let start = self.snapshot.ts;
        if self.writes.is_empty() {
            return Ok(start);
        }
        let storage = self.snapshot.storage.clone();
        for key in self.writes.keys() {
            let queues = &storage.locks.queues.lock().0;
            if let Some(holder) = queues.held_by_other(0, key, start, Mode::Exclusive) {
                return Err(Error::Held { start, holder });
            }
        }
        let mut data = storage.data.lock();
        // As regions do: rows of the newest two versions of a table's description, no older ones.
        for (id, table) in &self.tables {
            let catalog = data.state.as_ref().map(|state| &state.catalog);
            let known = catalog.and_then(|catalog| catalog.table(*id)).map(|table| table.version);
            if known.is_none_or(|known| table.version + 1 < known) {
                return Err(Error::SchemaChanged { table: *id, sent: table.version, known });
            }
        }
        for (key, write) in &self.writes {
            let newest = data.versions.get(key).and_then(|versions| versions.last());
            if let Some((committed, _)) = newest.filter(|(at, _)| *at > self.seen(key)) {
                return Err(Error::Conflict { key: key.clone(), start, committed: *committed });
            }
            if matches!(write, Write::Insert(_)) && newest.is_some_and(|(_, row)| row.is_some()) {
                return Err(Error::Duplicate { index: String::new(), key: key.clone() });
            }
        }
        let commit_ts = data.tick();
        for (key, write) in std::mem::take(&mut self.writes) {
            if let Some(row) = write.row() {
                data.versions.entry(key).or_default().push((commit_ts, row));
            }
        }
        Ok(commit_ts)
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        let snapshot = MemorySnapshot { storage: self.clone(), ts: self.tick() };
        Ok(Box::new(MemoryTransaction {
            snapshot,
            writes: BTreeMap::new(),
            saved: Vec::new(),
            tables: BTreeMap::new(),
            held: BTreeSet::new(),
            locked: BTreeMap::new(),
        }))
    }

    fn snapshot(&self, ts: Timestamp) -> Arc<dyn Snapshot> {
        Arc::new(MemorySnapshot { storage: self.clone(), ts })
    }

    async fn timestamp(&self) -> Result<Timestamp> {
        Ok(self.tick())
    }

    async fn catalog(&self) -> Result<Arc<Catalog>> {
        self.with_state(|state| Ok(Arc::new(state.catalog.clone())))
    }

    async fn change(&self, change: CatalogChange) -> Result<Option<Table>> {
        let now = self.tick();
        let eligible = EligibleNodes(vec![1, 2, 3]);
        match self.command(Command::Change { change, eligible, now })? {
            Outcome::Changed { table, .. } => Ok(table.map(|table| *table)),
            _ => Ok(None),
        }
    }

    async fn publish_schema(&self, _: &Table) -> Result<()> {
        Ok(())
    }

    async fn auto_increment(&self, table: TableId, count: u64) -> Result<u64> {
        match self.command(Command::AutoIncrement { table, count, above: 0 })? {
            Outcome::First(first) => Ok(first),
            _ => Err(Error::Invalid("placement answered no number".into())),
        }
    }

    async fn raise_auto_increment(&self, table: TableId, value: u64) -> Result<()> {
        self.command(Command::AutoIncrement { table, count: 0, above: value }).map(|_| ())
    }

    async fn next_auto_increment(&self, table: TableId) -> Result<u64> {
        match self.command(Command::AutoIncrement { table, count: 0, above: 0 })? {
            Outcome::First(first) => Ok(first),
            _ => Err(Error::Invalid("placement answered no number".into())),
        }
    }

    async fn split_table(&self, _: &Table, _: u32) -> Result<usize> {
        Ok(1)
    }

    async fn take_lease(&self, ts: Option<Timestamp>, ttl: Duration, owner: &str) -> Result<Lease> {
        let ts = ts.unwrap_or_else(|| self.tick());
        let (now_ms, ttl_ms) = (self.now_ms(), ttl.as_millis() as u64);
        self.lease(Command::TakeLease { ts, owner: owner.to_owned(), now_ms, ttl_ms })
    }

    async fn renew_lease(&self, lease: LeaseId, ttl: Duration) -> Result<Lease> {
        let (now_ms, ttl_ms) = (self.now_ms(), ttl.as_millis() as u64);
        self.lease(Command::RenewLease { lease, now_ms, from_ms: now_ms, ttl_ms })
    }

    async fn release_lease(&self, lease: LeaseId) -> Result<()> {
        self.command(Command::ReleaseLease(lease)).map(|_| ())
    }

    async fn leases(&self) -> Result<Vec<Lease>> {
        self.with_state(|state| Ok(state.leases.values().cloned().collect()))
    }

    async fn advisory_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        self.answer_lock(request).await
    }

    async fn set_life(&self, life: Duration) -> Result<()> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        self.command(Command::SetLife(life_ms)).map(|_| ())
    }

    async fn signing_key(&self) -> Result<Arc<[u8]>> {
        Ok(Arc::from(&b"a key for tests, not a secret"[..]))
    }

    async fn status(&self) -> Result<ClusterStatus> {
        let life_ms = self.with_state(|state| Ok(state.life_ms))?;
        let garbage = Garbage { life_ms, ..Garbage::default() };
        let (nodes, routes, peers) = (Vec::new(), Vec::new(), Vec::new());
        let time = Default::default();
        Ok(ClusterStatus { nodes, routes, peers, leader: 0, garbage, time })
    }
}
