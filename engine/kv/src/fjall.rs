//! The key-value store on disk: fjall, held to the contract of [`KvEngine`].
//!
//! fjall gives atomic batches over keyspaces through one journal, which is its write-ahead log. Two
//! of its habits would break "a prefix of the batches, across keyspaces", and a third "all of a batch
//! or nothing"; they are kept away here:
//!
//! - *A keyspace's table must never hold a batch that the journal can still lose.* fjall syncs the
//!   journal before it flushes, but then flushes every memtable sealed by that time, so one sealed
//!   in between goes to disk ahead of the other keyspaces' share of its batches; an ingest flushes
//!   without any sync. So fjall is configured never to seal by itself, and all keyspaces are sealed
//!   together, and ingests made, behind a gate: no write, sync the journal, mark how far it is
//!   synced, then act: see [`crate::sealing`]. (This also keeps its workers from waiting for room
//!   in their own queue, which they alone empty.)
//! - *A snapshot must never be opened within a batch.* What is visible is one number for the whole
//!   database, and the end of a flush or a compaction raises it beyond the number of a batch that is
//!   still on its way into the memtables. So snapshots and what puts changes in exclude each other.
//! - *A torn tail must not keep the store closed*: see [`crate::journal`].
//!
//! Nothing may write to the database except through [`FjallKv`].

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use env::{Disk, Format, RealDisk, atomic_write, parent_of, read_whole};
use fjall::{AbstractTree, Database, KeyspaceCreateOptions, PersistMode, Readable};
use parking_lot::RwLock;
use types::{Error, Result};

use crate::damage::{self, Damage, explain, of_shape};
use crate::engine::{
    Change, Keyspace, KvEngine, KvRead, Pair, PairIter, Room, WriteBatch, check_key, check_value,
};
use crate::journal;
use crate::sealing::{Handles, Sealing};
use crate::versions;

/// The file that makes a directory a store.
const MARKER_FORMAT: Format = Format::new(*b"ISOBARKV", 1);
const MARKER: &str = "ISOBAR";
const DATABASE: &str = "fjall";

/// Bytes written, over all keyspaces, after which memtables are sealed and flushed. A memtable holds every version of a key
/// that was written over, and a scan passes them all: at 64 MiB, ranges of often written rows took twice as long.
const SEAL_BYTES: u64 = 8 << 20;
/// The part of these bytes by which stores differ, each by a number drawn when it is opened. Replicas take the same writes:
/// they would write tables and merge them at the same time, when no majority is left that does not.
const SEAL_SPREAD: u64 = SEAL_BYTES / 4;
/// Bytes that fjall's memtable holds for each change beside key and value.
const CHANGE_OVERHEAD: u64 = 64;
/// Changes of a range deletion that are written together.
const DELETE_STEP: usize = 1_024;

/// Free bytes of a disk below which a store that cannot be opened is not thought to be damaged.
const ROOM_TO_OPEN: u64 = 64 << 20;
/// Bytes of a table that are read together to see whether it is whole.
const SCRUB_STEP: usize = 256 << 10;

/// A store in a directory. One process has it open at a time.
pub struct FjallKv {
    pub(crate) sealing: Arc<Sealing>,
    /// Alone while changes are put in, shared to open snapshots. Taken behind the gate, and never held
    /// while the journal is synced: reads would wait for the disk.
    putting: RwLock<()>,
    sealer: Option<JoinHandle<()>>,
}

impl Drop for FjallKv {
    fn drop(&mut self) {
        self.sealing.stop();
        // It is gone whether it ended well or not.
        self.sealer.take().map(JoinHandle::join);
    }
}

struct FjallRead {
    snapshot: fjall::Snapshot,
    spaces: Handles,
    damage: Arc<Damage>,
}

impl FjallKv {
    /// Opens the store in a directory, or creates it if the directory is empty or absent.
    /// `cache_bytes` bounds the memory for blocks of tables.
    ///
    /// # Errors
    ///
    /// `Corrupt` if what was synced is damaged, `Invalid` if the directory holds something else,
    /// `Unavailable` if another process has it open, `Io`.
    pub fn open(path: &Path, cache_bytes: u64) -> Result<Self> {
        let seal_bytes = SEAL_BYTES + env::Random::from_os().below(SEAL_SPREAD);
        Self::open_with(path, cache_bytes, seal_bytes)
    }

    /// As [`FjallKv::open`], but a store that is damaged is set aside and an empty one begun: why, in
    /// that case. Whoever held state in it has lost it.
    ///
    /// # Errors
    ///
    /// As of [`FjallKv::open`], but never `Corrupt` for what is in the directory.
    pub fn open_or_begin_anew(path: &Path, cache_bytes: u64) -> Result<(Self, Option<String>)> {
        let disk = RealDisk;
        let opened = match damage::noted(&disk, path)? {
            Some(what) => Err(Error::Corrupt(what)),
            None => Self::open(path, cache_bytes),
        };
        let why = match opened {
            Err(Error::Corrupt(why)) => why,
            opened => return Ok((opened?, None)),
        };
        damage::set_aside(&disk, path, &[DATABASE, MARKER, journal::MARK_FILE], &why)?;
        atomic_write(&disk, &path.join(MARKER), MARKER_FORMAT, b"")?;
        let store = Self::open(path, cache_bytes)?;
        damage::forget(&disk, path)?;
        Ok((store, Some(why)))
    }

    /// As [`FjallKv::open`], sealing memtables after another number of bytes; for tests, which
    /// have not the time to write many megabytes.
    #[doc(hidden)]
    pub fn open_with(path: &Path, cache_bytes: u64, seal_bytes: u64) -> Result<Self> {
        let disk = RealDisk;
        claim(&disk, path)?;
        let home = path.join(DATABASE);
        if !disk.exists(&home)? {
            create(&disk, &home, cache_bytes)?;
        }
        versions::check(&disk, &home)?;
        journal::mend(&disk, path, &home)?;
        let opened = open_database(&home, cache_bytes)?;
        let damage = Arc::new(Damage::none_yet(path));
        let sealing = Arc::new(Sealing::new(opened, (path, &home), seal_bytes, damage));
        let sealer = Some(sealing.start()?);
        Ok(FjallKv { sealing, putting: RwLock::new(()), sealer })
    }

    /// The first damage that was met since the store was opened. It stays damaged: end the process, and
    /// open the store by [`FjallKv::open_or_begin_anew`].
    pub fn damage(&self) -> Option<String> {
        self.sealing.damage.met().map(str::to_owned)
    }

    /// Whether a write or a sync failed: who made it stands still, and fjall may take no more of them. It
    /// stays so: end the process once the disk takes writes again, and open the store anew.
    pub fn refuses_writes(&self) -> bool {
        self.sealing.damage.refused()
    }

    /// Reads the file of every table whole and compares its checksum; what is wrong shows in
    /// [`FjallKv::damage`]. `pause` is called with the bytes that were read, some 256 KiB at a time, and ends
    /// the walk by `false`.
    ///
    /// # Errors
    ///
    /// `Corrupt` at the first damage, `Io`.
    pub fn scrub(&self, mut pause: impl FnMut(usize) -> bool) -> Result<()> {
        for space in &self.sealing.spaces {
            // The version holds its tables: they are not removed while they are read.
            let version = space.tree.current_version();
            for table in version.iter_tables() {
                let expected = table.checksum().into_u128();
                match checksum_of(&table.path, &mut pause) {
                    Ok(Some(sum)) if sum == expected => {}
                    Ok(None) => return Ok(()),
                    Ok(Some(_)) => {
                        let what = format!("{}: its checksum does not match", table.path.display());
                        return Err(self.sealing.damage.note(Error::Corrupt(what)));
                    }
                    Err(error) => {
                        let what = format!("{}: {error}", table.path.display());
                        return Err(self.sealing.damage.note(of_shape(error.kind(), what)));
                    }
                }
            }
        }
        Ok(())
    }

    fn space(&self, space: Keyspace) -> Result<&fjall::Keyspace> {
        handle(&self.sealing.spaces, space)
    }

    fn failed(&self, doing: &str) -> impl Fn(fjall::Error) -> Error {
        move |error| self.sealing.damage.note(explain(doing, &self.sealing.path, error))
    }

    /// Puts the last change of every key in, at once.
    fn commit(&self, batch: WriteBatch) -> Result<()> {
        self.sealing.await_turn()?;
        // Within a batch fjall orders nothing: only the last change of a key may go in.
        let mut seen = HashSet::with_capacity(batch.changes.len());
        let last: Vec<bool> = batch
            .changes
            .iter()
            .rev()
            .map(|(space, key, _)| seen.insert((*space, key.as_slice())))
            .collect();
        drop(seen);
        let mut bytes = 0;
        let mut out =
            fjall::OwnedWriteBatch::with_capacity(self.sealing.database.clone(), last.len());
        for ((space, key, change), last) in batch.changes.into_iter().zip(last.into_iter().rev()) {
            if !last {
                continue;
            }
            bytes += key.len() as u64 + CHANGE_OVERHEAD;
            match change {
                Change::Put(value) => {
                    bytes += value.len() as u64;
                    out.insert(self.space(space)?, key, value);
                }
                Change::Delete => out.remove(self.space(space)?, key),
            }
        }
        let _gate = self.sealing.gate.lock();
        let _alone = self.putting.write();
        out.commit().map_err(self.failed("write to"))?;
        self.sealing.wrote(bytes);
        Ok(())
    }
}

fn handle(spaces: &Handles, space: Keyspace) -> Result<&fjall::Keyspace> {
    spaces.get(space.index()).ok_or_else(|| Error::not_found("keyspace", space.name()))
}

/// Makes an empty directory a store, and refuses any other that is not one.
fn claim(disk: &dyn Disk, path: &Path) -> Result<()> {
    disk.create_dir_all(path)?;
    let marker = path.join(MARKER);
    if read_whole(disk, &marker, MARKER_FORMAT)?.is_some() {
        return Ok(());
    }
    let leftover = path.join(format!("{MARKER}.tmp"));
    if disk.list(path)?.iter().any(|entry| *entry != leftover) {
        return Err(Error::Invalid(format!(
            "{} has files but no {MARKER} marker, so it is not a row store: name another \
             directory, or empty this one",
            path.display()
        )));
    }
    atomic_write(disk, &marker, MARKER_FORMAT, b"")
}

/// Creates a database with all its keyspaces, or nothing.
fn create(disk: &dyn Disk, home: &Path, cache_bytes: u64) -> Result<()> {
    let unfinished = home.with_extension("new");
    disk.remove_dir_all(&unfinished)?;
    drop(open_database(&unfinished, cache_bytes)?);
    disk.rename(&unfinished, home)?;
    disk.sync_dir(parent_of(home))?;
    Ok(())
}

fn open_database(home: &Path, cache_bytes: u64) -> Result<(Database, Handles)> {
    let open = || -> fjall::Result<(Database, Handles)> {
        let database = Database::builder(home)
            .cache_size(cache_bytes)
            .manual_journal_persist(true)
            .journal_compression(fjall::CompressionType::None)
            // Else it seals the memtables of idle keyspaces; all are sealed together here.
            .max_journaling_size(u64::MAX)
            // Of several, fjall keeps the first for flushing: while another compacts, it takes each request to compact
            // and puts it back, without a pause, and a processor is gone.
            .worker_threads(1)
            .open()?;
        let space = |space: Keyspace| {
            database.keyspace(space.name(), || {
                KeyspaceCreateOptions::default()
                    .manual_journal_persist(true)
                    .max_memtable_size(u64::MAX)
            })
        };
        let [data, hist, fate, lock, meta] = Keyspace::ALL.map(space);
        Ok((database, [data?, hist?, fate?, lock?, meta?]))
    };
    // fjall's threads, which write and merge tables, have the priority of the one that starts them.
    let opened = thread::scope(|scope| {
        let opener = scope.spawn(|| {
            env::give_way();
            open()
        });
        opener.join()
    });
    match opened {
        Ok(opened) => opened.map_err(|error| explain("open", home, error)),
        // Damaged tables and manifests make fjall panic in places; so may a disk that is full.
        Err(_) if RealDisk.free_bytes(home)? < ROOM_TO_OPEN => Err(Error::Io(format!(
            "cannot open {}: fewer than {} MiB are free on its disk",
            home.display(),
            ROOM_TO_OPEN >> 20
        ))),
        Err(_) => Err(explain("open", home, fjall::Error::Unrecoverable)),
    }
}

/// The checksum of a file, as a table's is made; none if `pause` ended it.
fn checksum_of(path: &Path, pause: &mut impl FnMut(usize) -> bool) -> io::Result<Option<u128>> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = xxhash_rust::xxh3::Xxh3Default::new();
    let mut buffer = vec![0; SCRUB_STEP];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(Some(hash.digest128())),
            read => hash.update(buffer.get(..read).unwrap_or_default()),
        }
        if !pause(SCRUB_STEP) {
            return Ok(None);
        }
    }
}

impl FjallRead {
    fn failed(&self, space: Keyspace) -> impl Fn(fjall::Error) -> Error + use<> {
        let damage = self.damage.clone();
        move |error| damage.note(explain("read keyspace", Path::new(space.name()), error))
    }

    fn pairs<'a>(
        &self,
        iter: impl Iterator<Item = fjall::Guard> + Send + 'a,
        space: Keyspace,
    ) -> PairIter<'a> {
        let failed = self.failed(space);
        Box::new(iter.map(move |guard| {
            let (key, value) = guard.into_inner().map_err(&failed)?;
            Ok((key.to_vec(), value.to_vec()))
        }))
    }

    fn range(&self, space: Keyspace, start: &[u8], end: &[u8]) -> Result<Option<fjall::Iter>> {
        if start >= end {
            return Ok(None);
        }
        Ok(Some(self.snapshot.range(handle(&self.spaces, space)?, start..end)))
    }
}

impl KvRead for FjallRead {
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value =
            self.snapshot.get(handle(&self.spaces, space)?, key).map_err(self.failed(space))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_> {
        match self.range(space, start, end) {
            Ok(range) => self.pairs(range.into_iter().flatten(), space),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }

    fn scan_reverse(&self, space: Keyspace, start: &[u8], end: &[u8]) -> PairIter<'_> {
        match self.range(space, start, end) {
            Ok(range) => self.pairs(range.into_iter().flat_map(Iterator::rev), space),
            Err(error) => Box::new(std::iter::once(Err(error))),
        }
    }
}

impl KvEngine for FjallKv {
    fn room(&self) -> Option<Room> {
        self.sealing.enter()
    }

    fn snapshot(&self) -> Box<dyn KvRead> {
        let _together = self.putting.read();
        Box::new(FjallRead {
            snapshot: self.sealing.database.snapshot(),
            spaces: self.sealing.spaces.clone(),
            damage: self.sealing.damage.clone(),
        })
    }

    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.space(space)?.get(key).map_err(self.failed("read"))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn write(&self, batch: WriteBatch) -> Result<()> {
        batch.check()?;
        self.commit(batch).inspect_err(|_| self.sealing.damage.refuse())
    }

    fn delete_range(&self, space: Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        let snapshot = self.snapshot();
        let mut batch = WriteBatch::default();
        for pair in snapshot.scan(space, start, end) {
            batch.delete(space, pair?.0);
            if batch.changes.len() >= DELETE_STEP {
                self.write(std::mem::take(&mut batch))?;
            }
        }
        self.write(batch)
    }

    fn ingest(&self, space: Keyspace, pairs: &mut dyn Iterator<Item = Result<Pair>>) -> Result<()> {
        self.sealing.await_tables()?;
        let space = self.space(space)?;
        let mut tables = space.start_ingestion().map_err(self.failed("begin an ingest into"))?;
        let mut last: Vec<u8> = Vec::new();
        for pair in pairs {
            let (key, value) = pair?;
            check_key(&key)?;
            check_value(&value)?;
            if last >= key {
                return Err(Error::Invalid("ingested keys do not ascend".into()));
            }
            last.clone_from(&key);
            tables.write(key, value).map_err(self.failed("ingest into"))?;
        }
        let _closed = self.sealing.close();
        let _gate = self.sealing.gate.lock();
        self.sealing.sync_and_mark()?;
        let _alone = self.putting.write();
        tables.finish().map_err(self.failed("finish an ingest into"))
    }

    fn sync(&self) -> Result<()> {
        let _closed = self.sealing.close();
        let database = &self.sealing.database;
        let synced = database.persist(PersistMode::SyncData).map_err(self.failed("sync"));
        synced.inspect_err(|_| self.sealing.damage.refuse())
    }

    fn disk_bytes(&self) -> u64 {
        self.sealing.database.disk_space().unwrap_or(0)
    }
}
