//! A region's state as a stream of [`SnapshotItem`] chunks, and the way back.
//!
//! The stream reads one unchanging view of the store. Taking one in is repeatable: the region is
//! marked as not whole, durably, before its old data goes, and as whole with its last batch, so a
//! crash within leaves a replica that asks again. Rows and columns restore from the same chunks.

use std::collections::HashMap;
use std::sync::Arc;

use kv::{Keyspace, KvRead, WriteBatch};
use raft::{SnapshotChunks, SnapshotSource};
use types::{Error, Region, Result, Table, Timestamp, version};

use crate::api::Mode;
use crate::fact::{Floors, SnapshotItem};
use crate::layout::{self, AppliedRecord, DataRecord, Fate, HistRecord, RegionRecord, Size};
use crate::locks::{Lock, LockChanges};
use crate::mvcc;
use crate::share::shared_key;
use crate::store::{RowStore, Schemas};

const FORMAT: u8 = 1;
/// Bytes of keys and rows that a chunk holds, about; a larger row is a chunk of its own.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes that an item takes beside its keys and rows, about.
const ITEM_BYTES: usize = 32;

/// A chunk's bytes.
pub fn encode_chunk(items: &[SnapshotItem]) -> Result<Vec<u8>> {
    postcard::to_extend(items, vec![FORMAT])
        .map_err(|error| Error::Invalid(format!("snapshot chunk cannot be encoded: {error}")))
}

/// The items of a chunk.
pub fn decode_chunk(bytes: &[u8]) -> Result<Vec<SnapshotItem>> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => Ok(postcard::from_bytes(rest)?),
        Some((format, _)) => Err(version::unknown_format("a snapshot's chunk", *format, FORMAT)),
        None => Err(Error::Corrupt("a snapshot's chunk is empty".into())),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Schemas,
    Newest,
    Older,
    Locks,
    Fates,
    Done,
}

impl Phase {
    fn next(self) -> Self {
        match self {
            Phase::Schemas => Phase::Newest,
            Phase::Newest => Phase::Older,
            Phase::Older => Phase::Locks,
            Phase::Locks => Phase::Fates,
            Phase::Fates | Phase::Done => Phase::Done,
        }
    }
}

/// A region's state, being sent: schemas, newest versions, older ones, locks, fates.
pub struct Rows {
    kv: Box<dyn KvRead>,
    region: Region,
    schemas: Arc<Schemas>,
    floors: Floors,
    phase: Phase,
    /// Where the phase goes on.
    cursor: Option<Vec<u8>>,
    /// The older version sent last: it ends the next one of its key.
    later: Option<(Vec<u8>, Timestamp)>,
}

impl Rows {
    pub(crate) fn new(
        kv: Box<dyn KvRead>,
        region: Region,
        schemas: Arc<Schemas>,
        floors: Floors,
    ) -> Self {
        Rows { kv, region, schemas, floors, phase: Phase::Schemas, cursor: None, later: None }
    }

    /// Keyspace and range of the present phase.
    fn range(&self) -> (Keyspace, Vec<u8>, Vec<u8>) {
        let Region { start, end, .. } = &self.region;
        let escaped = || (layout::escaped_bound(start), layout::escaped_bound(end));
        let (space, (start, end)) = match self.phase {
            Phase::Locks => (Keyspace::Lock, (start.clone(), end.clone())),
            Phase::Older => (Keyspace::Hist, escaped()),
            Phase::Fates => (Keyspace::Fate, escaped()),
            Phase::Schemas | Phase::Newest | Phase::Done => {
                (Keyspace::Data, (start.clone(), end.clone()))
            }
        };
        (space, self.cursor.clone().unwrap_or(start), end)
    }

    /// The item of one stored pair, if it makes one.
    fn item(
        phase: Phase,
        kv: &dyn KvRead,
        later: &mut Option<(Vec<u8>, Timestamp)>,
        stored: &[u8],
        value: Vec<u8>,
    ) -> Result<Option<SnapshotItem>> {
        Ok(match phase {
            Phase::Schemas | Phase::Done => None,
            Phase::Newest => {
                let record = DataRecord::decode(value)?;
                let kind = record.kind();
                (record.commit_ts > Timestamp::ZERO).then(|| SnapshotItem::Version {
                    key: stored.to_vec(),
                    commit_ts: record.commit_ts,
                    start_ts: record.start_ts,
                    kind,
                    row: record.row,
                    ended_by: None,
                })
            }
            Phase::Older => {
                let (key, commit_ts) = layout::split_hist_key(stored)?;
                let ended_by = match later.take() {
                    Some((of, ts)) if of == key => ts,
                    _ => mvcc::data(kv, &key)?.commit_ts,
                };
                *later = Some((key.clone(), commit_ts));
                let record = HistRecord::decode(value)?;
                Some(SnapshotItem::Version {
                    key,
                    commit_ts,
                    start_ts: record.start_ts,
                    kind: record.kind(),
                    row: record.row,
                    ended_by: Some(ended_by),
                })
            }
            Phase::Locks => {
                let mut lock = Lock::decode(&value)?;
                Some(match lock.async_commit.take() {
                    Some(commit) => SnapshotItem::AsyncLock(lock.into_fact(), commit),
                    None => SnapshotItem::Lock(lock.into_fact()),
                })
            }
            Phase::Fates => {
                let (key, start_ts) = layout::split_fate_key(stored)?;
                let commit_ts = Fate::decode(&value)?.commit_ts();
                Some(SnapshotItem::Fate { key, start_ts, commit_ts })
            }
        })
    }
}

impl SnapshotSource for Rows {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while self.phase != Phase::Done && bytes < CHUNK_BYTES {
            if self.phase == Phase::Schemas {
                for table in self.schemas.values() {
                    items.push(SnapshotItem::Schema(Box::new(Table::clone(table))));
                }
                items.push(SnapshotItem::Collected(self.floors));
                self.phase = self.phase.next();
                continue;
            }
            let (space, start, end) = self.range();
            let mut cursor = None;
            for pair in self.kv.scan(space, &start, &end) {
                let (mut stored, value) = pair?;
                bytes += stored.len() + value.len() + ITEM_BYTES;
                let kv = self.kv.as_ref();
                items.extend(Self::item(self.phase, kv, &mut self.later, &stored, value)?);
                if bytes >= CHUNK_BYTES {
                    stored.push(0);
                    cursor = Some(stored);
                    break;
                }
            }
            if cursor.is_none() {
                self.phase = self.phase.next();
            }
            self.cursor = cursor;
        }
        if items.is_empty() && self.phase == Phase::Done {
            return Ok(None);
        }
        encode_chunk(&items).map(Some)
    }
}

/// Records that a region's data is not whole, and removes its old data.
pub(crate) fn clear(store: &RowStore, old: &Region, region: &Region) -> Result<()> {
    let mut batch = WriteBatch::default();
    let record = RegionRecord { region: region.clone(), whole: false };
    put_region(&mut batch, &record, AppliedRecord::default())?;
    let prefix = layout::schemas_prefix(region.id);
    for pair in store.snapshot().scan(Keyspace::Meta, &prefix, &types::key::prefix_end(&prefix)) {
        batch.delete(Keyspace::Meta, pair?.0);
    }
    store.write(batch, LockChanges::new())?;
    // Range deletion may reach the disk before batches that were written earlier.
    store.sync()?;
    store.wipe(old)?;
    store.wipe(region)
}

/// Writes a snapshot's items; the caller marks the region as whole afterwards.
pub(crate) fn install(
    store: &RowStore,
    region: &Region,
    chunks: &mut dyn SnapshotChunks,
) -> Result<(Schemas, Size, Floors)> {
    let mut install = Install {
        region,
        schemas: Schemas::new(),
        size: Size::default(),
        floors: Floors::default(),
        fates: false,
    };
    while let Some(chunk) = chunks.next_chunk()? {
        let mut writes = Writes { store, batch: WriteBatch::default(), data: HashMap::new() };
        let mut locks = LockChanges::new();
        for item in decode_chunk(&chunk)? {
            install.item(item, &mut writes, &mut locks)?;
        }
        store.write(writes.batch, locks)?;
    }
    Ok((install.schemas, install.size, install.floors))
}

struct Install<'a> {
    region: &'a Region,
    schemas: Schemas,
    size: Size,
    floors: Floors,
    /// A fate was seen: from now on, a key may have a record before its newest version comes.
    fates: bool,
}

struct Writes<'a> {
    store: &'a RowStore,
    batch: WriteBatch,
    data: HashMap<Vec<u8>, DataRecord>,
}

impl Writes<'_> {
    fn data(&self, key: &[u8]) -> Result<DataRecord> {
        if let Some(record) = self.data.get(key) {
            return Ok(record.clone());
        }
        let stored = self.store.engine().get(Keyspace::Data, key)?;
        stored.map_or_else(|| Ok(DataRecord::default()), DataRecord::decode)
    }

    fn put_data(&mut self, key: Vec<u8>, record: DataRecord) {
        self.batch.put(Keyspace::Data, key.clone(), record.encode());
        self.data.insert(key, record);
    }
}

impl Install<'_> {
    fn lock(
        &self,
        lock: Option<Lock>,
        writes: &mut Writes<'_>,
        locks: &mut LockChanges,
    ) -> Result<()> {
        let lock =
            lock.ok_or_else(|| Error::Corrupt("a snapshot's lock is another fact".into()))?;
        self.check(&lock.key)?;
        writes.batch.put(Keyspace::Lock, lock.key.clone(), lock.encode()?);
        locks.insert(lock.key.clone(), Some(Arc::new(lock)));
        Ok(())
    }

    fn item(
        &mut self,
        item: SnapshotItem,
        writes: &mut Writes<'_>,
        locks: &mut LockChanges,
    ) -> Result<()> {
        match item {
            SnapshotItem::Schema(table) => {
                let key = layout::schema_key(self.region.id, &table);
                writes.batch.put(Keyspace::Meta, key, layout::encode(&table)?);
                self.schemas.insert((table.id, table.version), Arc::new(*table));
            }
            SnapshotItem::Version { key, commit_ts, start_ts, row, ended_by: None, .. } => {
                self.check(&key)?;
                if let Some(row) = &row {
                    let added = Size::of(self.region, &key, row);
                    self.size = self.size.changed(added, Size::default());
                }
                let known = if self.fates { writes.data(&key)? } else { DataRecord::default() };
                writes.put_data(key, DataRecord { commit_ts, start_ts, row, ..known });
            }
            SnapshotItem::Version { key, commit_ts, start_ts, row, ended_by: Some(_), .. } => {
                self.check(&key)?;
                let record = HistRecord { start_ts, row };
                let stored = layout::hist_key(&key, commit_ts);
                writes.batch.put(Keyspace::Hist, stored, record.encode());
            }
            SnapshotItem::Lock(fact) => self.lock(Lock::from_fact(fact, None), writes, locks)?,
            SnapshotItem::AsyncLock(fact, commit) => {
                self.lock(Lock::from_fact(fact, Some(commit)), writes, locks)?;
            }
            SnapshotItem::Collected(floors) => self.floors = floors,
            SnapshotItem::Fate { key, start_ts, commit_ts } => {
                self.check(&key)?;
                self.fates = true;
                let fate = commit_ts.map_or(Fate::RolledBack, Fate::Committed);
                let stored = layout::fate_key(&key, start_ts);
                writes.batch.put(Keyspace::Fate, stored, fate.encode());
                // A transaction that only held the key shows in its fate alone.
                let Some(held_ts) = commit_ts else { return Ok(()) };
                let record = writes.data(&key)?;
                // Nothing is stored under the key of a share.
                if let (Some(shared), Timestamp::ZERO) =
                    (shared_key(&key, start_ts), record.commit_ts)
                {
                    let record = writes.data(shared)?;
                    if held_ts > record.newest(Mode::Exclusive) {
                        writes
                            .put_data(shared.to_vec(), DataRecord { shared_ts: held_ts, ..record });
                    }
                    return Ok(());
                }
                if held_ts > record.commit_ts.max(record.held_ts) {
                    writes.put_data(key, DataRecord { held_ts, ..record });
                }
            }
        }
        Ok(())
    }

    fn check(&self, key: &[u8]) -> Result<()> {
        if self.region.contains(key) {
            return Ok(());
        }
        Err(Error::Corrupt(format!("a snapshot of region {} holds a foreign key", self.region.id)))
    }
}

/// Adds a region's records to a batch.
pub(crate) fn put_region(
    batch: &mut WriteBatch,
    record: &RegionRecord,
    applied: AppliedRecord,
) -> Result<()> {
    let id = record.region.id;
    batch.put(Keyspace::Meta, layout::region_key(id), layout::encode(record)?);
    batch.put(Keyspace::Meta, layout::applied_key(id), layout::encode(&applied)?);
    Ok(())
}
