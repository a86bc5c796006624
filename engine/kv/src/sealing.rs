//! Makes tables of what is in memory, on a thread of its own, and keeps those apart from it who must not wait for a disk.
//!
//! fjall holds its journal's lock while it syncs the journal: for its own flushes, for a seal, for an ingest, for whoever
//! wants to be durable. Whoever writes then waits for the disk. So each of these closes the store first, to those who write
//! in a [`Room`]: they have left by then, and find none until it is over. Others wait, for as long as is said here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use env::RealDisk;
use fjall::{AbstractTree, Database, PersistMode};
use parking_lot::{Condvar, Mutex};
use types::{Error, Result};

use crate::damage::{self, Damage};
use crate::engine::{Keyspace, Room};
use crate::journal::Mark;

pub(crate) type Handles = [fjall::Keyspace; Keyspace::ALL.len()];

/// fjall stalls its writers, without end, at 4 sealed memtables and from 20 runs; stay below.
const MAX_RUNS: usize = 16;
/// How long a write waits for flushes and compactions before it fails.
const MAX_STALL: Duration = Duration::from_secs(60);
/// Between two looks at whether flushes have caught up.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Memtables are sealed at one times the bytes to seal at; who may wait does so from this many times on.
const WAIT_FROM: u64 = 2;

/// Sealing of one store's memtables.
pub(crate) struct Sealing {
    pub database: Database,
    pub spaces: Handles,
    pub path: PathBuf,
    /// Where fjall keeps its files.
    home: PathBuf,
    pub damage: Arc<Damage>,
    /// Held by a batch that is written, and to make tables of what is in memory.
    pub gate: Mutex<()>,
    /// Bytes written since memtables were sealed.
    unsealed: AtomicU64,
    seal_bytes: u64,
    entrance: Mutex<Entrance>,
    changed: Condvar,
}

/// Who is in, and who keeps others out.
#[derive(Default)]
struct Entrance {
    /// Rooms that are held.
    inside: usize,
    /// Those who sync, or wait to.
    closed: usize,
    stop: bool,
}

impl Entrance {
    /// Whether syncs are under way, rather than waiting for somebody inside.
    fn is_shut(&self) -> bool {
        self.closed > 0 && self.inside == 0
    }
}

/// Somebody is inside until it is dropped.
struct Inside(Arc<Sealing>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.entrance.lock().inside -= 1;
        self.0.changed.notify_all();
    }
}

/// Nobody is inside until it is dropped.
pub(crate) struct Closed<'a>(&'a Sealing);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.entrance.lock().closed -= 1;
        self.0.changed.notify_all();
    }
}

impl Sealing {
    pub fn new(
        (database, spaces): (Database, Handles),
        (path, home): (&Path, &Path),
        seal_bytes: u64,
        damage: Arc<Damage>,
    ) -> Self {
        Sealing {
            database,
            spaces,
            path: path.to_path_buf(),
            home: home.to_path_buf(),
            damage,
            gate: Mutex::new(()),
            unsealed: AtomicU64::new(0),
            seal_bytes,
            entrance: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Starts the thread that seals; [`Sealing::stop`] ends it.
    pub fn start(self: &Arc<Self>) -> Result<JoinHandle<()>> {
        let sealing = self.clone();
        Ok(thread::Builder::new().name("kv-seal".to_owned()).spawn(move || sealing.run())?)
    }

    pub fn stop(&self) {
        self.entrance.lock().stop = true;
        self.changed.notify_all();
    }

    /// What [`crate::KvEngine::room`] says.
    pub fn enter(self: &Arc<Self>) -> Option<Room> {
        let mut entrance = self.entrance.lock();
        if entrance.closed > 0 || self.is_due() {
            return None;
        }
        entrance.inside += 1;
        drop(entrance);
        Some(Box::new(Inside(self.clone())))
    }

    /// Waits until nobody is inside, and lets nobody in.
    pub fn close(&self) -> Closed<'_> {
        let mut entrance = self.entrance.lock();
        entrance.closed += 1;
        while entrance.inside > 0 {
            self.changed.wait(&mut entrance);
        }
        Closed(self)
    }

    /// What comes before a batch is put in: whoever is not inside waits for the syncs that are under way, so that no reader
    /// has to wait for them behind the batch; and for memory, if much is unsealed.
    pub fn await_turn(&self) -> Result<()> {
        let mut entrance = self.entrance.lock();
        if !entrance.is_shut() {
            return Ok(());
        }
        let until = Instant::now() + MAX_STALL;
        while entrance.is_shut() && self.unsealed() >= self.seal_bytes.saturating_mul(WAIT_FROM) {
            if self.changed.wait_until(&mut entrance, until).timed_out() {
                return Err(self.stalled());
            }
        }
        drop(entrance);
        // Syncs nothing, but comes after a sync that has begun.
        self.database.persist(PersistMode::Buffer).map_err(self.failed("write to"))
    }

    /// A batch of so many bytes was put in.
    pub fn wrote(&self, bytes: u64) {
        let before = self.unsealed.fetch_add(bytes, Ordering::Relaxed);
        if before < self.seal_bytes && before + bytes >= self.seal_bytes {
            // The lock is taken so that the thread is not between its look and its sleep.
            drop(self.entrance.lock());
            self.changed.notify_all();
        }
    }

    fn unsealed(&self) -> u64 {
        self.unsealed.load(Ordering::Relaxed)
    }

    fn is_due(&self) -> bool {
        self.unsealed() >= self.seal_bytes
    }

    fn failed(&self, doing: &str) -> impl Fn(fjall::Error) -> Error {
        move |error| self.damage.note(damage::explain(doing, &self.path, error))
    }

    fn stalled(&self) -> Error {
        Error::Unavailable(format!(
            "{}: flushes are behind for {} s; its disk is too slow or stuck",
            self.path.display(),
            MAX_STALL.as_secs()
        ))
    }

    fn run(&self) {
        loop {
            let mut entrance = self.entrance.lock();
            while !entrance.stop && !self.is_due() {
                self.changed.wait(&mut entrance);
            }
            if entrance.stop {
                return;
            }
            drop(entrance);
            let _closed = self.close();
            // fjall syncs for each flush, and flushes whatever is sealed by then: see `fjall.rs`.
            if let Err(error) = self.seal().and_then(|()| self.catch_up(None)) {
                // fjall takes nothing more, and says so to whoever writes.
                tracing::error!(%error, "memory cannot be written to tables");
                self.damage.refuse();
                return;
            }
        }
    }

    /// Hands what is in memory to fjall's thread that writes tables.
    fn seal(&self) -> Result<()> {
        self.catch_up(None)?;
        let _gate = self.gate.lock();
        self.sync_and_mark()?;
        for space in &self.spaces {
            space.rotate_memtable().map_err(self.failed("seal a memtable of"))?;
        }
        self.unsealed.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// What must come before any table that holds what is in memory. The caller holds the gate.
    pub fn sync_and_mark(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncAll).map_err(self.failed("sync the journal of"))?;
        let in_memory = |space: &fjall::Keyspace| space.tree.get_highest_memtable_seqno();
        match self.spaces.iter().filter_map(in_memory).max() {
            Some(last) => Mark::store(&RealDisk, &self.path, &self.home, last),
            None => Ok(()),
        }
    }

    /// Waits until there is room in tables, within the time that a write waits.
    pub fn await_tables(&self) -> Result<()> {
        self.catch_up(Some(Instant::now() + MAX_STALL))
    }

    /// Waits until all that is sealed is in tables and compactions have caught up, so that fjall does not stall whoever holds
    /// the gate.
    fn catch_up(&self, until: Option<Instant>) -> Result<()> {
        let behind = |space: &fjall::Keyspace| {
            space.tree.sealed_memtable_count() > 0 || space.tree.l0_run_count() >= MAX_RUNS
        };
        while self.spaces.iter().any(behind) && !self.entrance.lock().stop {
            // Writes nothing new; returns whether fjall's thread has failed.
            self.database.persist(PersistMode::Buffer).map_err(self.failed("flush"))?;
            if until.is_some_and(|until| Instant::now() > until) {
                return Err(self.stalled());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FjallKv, KvEngine, WriteBatch};

    fn batch(bytes: usize) -> WriteBatch {
        let mut batch = WriteBatch::default();
        batch.put(Keyspace::Data, b"key", vec![7; bytes]);
        batch
    }

    fn until(mut holds: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < until, "it does not come about");
            thread::yield_now();
        }
    }

    #[test]
    fn a_sync_waits_for_who_is_in_a_room_and_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let kv = FjallKv::open(directory.path(), 1 << 20).unwrap();
        let room = kv.room().unwrap();
        thread::scope(|scope| {
            let sync = scope.spawn(|| kv.sync());
            until(|| kv.room().is_none());
            kv.write(batch(10)).unwrap();
            assert!(!sync.is_finished(), "whoever is in a room would have waited for the disk");
            drop(room);
            sync.join().unwrap().unwrap();
        });
        assert!(kv.room().is_some());
    }

    #[test]
    fn memory_is_sealed_once_nobody_is_in_a_room() {
        let directory = tempfile::tempdir().unwrap();
        let kv = FjallKv::open_with(directory.path(), 1 << 20, 1_000).unwrap();
        let room = kv.room().unwrap();
        // Many times what others wait from: whoever is inside never waits.
        for _ in 0..10 {
            kv.write(batch(1_000)).unwrap();
        }
        assert!(kv.room().is_none(), "there is too much to seal");
        let tables =
            || kv.sealing.spaces.iter().map(|space| space.tree.table_count()).sum::<usize>();
        assert_eq!(tables(), 0);
        drop(room);
        until(|| kv.room().is_some());
        assert_eq!(tables(), 1);
    }
}
