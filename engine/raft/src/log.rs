//! The Raft log of every group of a node: raft-engine in a directory of its own.
//!
//! The only write-ahead log on the row side, and the only file here that fsyncs it. What is
//! written in one [`LogWrite`] is atomic. After a failed *sync* nothing is known about what is on
//! disk, so the log refuses everything until the process starts again; a failed *write* (disk
//! full) changes nothing and may be repeated.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::Disk;
use parking_lot::RwLock;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize, RecoveryMode};
use raft_rs::eraftpb::Entry;
use types::{Error, RegionId, Result};

use crate::files::{Health, LogFiles};
use crate::lost;

/// Bytes of entries that are read together to see whether they are whole.
const VERIFY_BYTES: u64 = 1 << 20;

/// Under which a node's own records are kept; no region has this number.
pub(crate) const NODE_GROUP: RegionId = u64::MAX;

/// Sizes of the log's files.
#[derive(Clone, Copy, Debug)]
pub struct LogSizes {
    /// Bytes of one file.
    pub file: u64,
    /// Bytes above which old files are emptied and removed.
    pub purge: u64,
    /// Bytes that are filled with zeros ahead of what is written: a sync of bytes that the file had already changes nothing of
    /// where it lies, and takes the disk one write instead of two. They are synced, too, so they are not many.
    pub ahead: u64,
}

impl Default for LogSizes {
    fn default() -> Self {
        LogSizes { file: 64 << 20, purge: 256 << 20, ahead: 128 << 10 }
    }
}

struct EntryCodec;

impl MessageExt for EntryCodec {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// Changes to the log that become durable together.
#[derive(Default)]
pub(crate) struct LogWrite {
    items: Vec<(RegionId, LogItem)>,
    must_sync: bool,
}

enum LogItem {
    Entries(Vec<Entry>),
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Entries below the index go.
    CutBelow(u64),
    /// Everything of the group goes.
    Forget,
}

impl LogWrite {
    /// Appends entries; those at the same index and above are replaced. The write is synced.
    pub fn entries(&mut self, region: RegionId, entries: Vec<Entry>) {
        if !entries.is_empty() {
            self.items.push((region, LogItem::Entries(entries)));
            self.must_sync = true;
        }
    }

    /// Sets a record of the group.
    pub fn put(&mut self, region: RegionId, key: &[u8], value: Vec<u8>) {
        self.items.push((region, LogItem::Put(key.to_vec(), value)));
    }

    /// Removes a record of the group.
    pub fn delete(&mut self, region: RegionId, key: &[u8]) {
        self.items.push((region, LogItem::Delete(key.to_vec())));
    }

    /// Removes entries below an index.
    pub fn cut_below(&mut self, region: RegionId, index: u64) {
        self.items.push((region, LogItem::CutBelow(index)));
    }

    /// Removes entries and records of a group; what follows in the same write stays.
    pub fn forget(&mut self, region: RegionId) {
        self.items.push((region, LogItem::Forget));
    }

    /// Asks for the write to be synced.
    pub fn sync(&mut self) {
        self.must_sync = true;
    }

    /// Takes out what concerns a group.
    pub fn leave_out(&mut self, region: RegionId) {
        self.items.retain(|(of, _)| *of != region);
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// The log of all groups.
pub struct RaftLog {
    engine: Engine<LogFiles>,
    /// Reading entries while files are purged fails in raft-engine 0.4.2 ("file seqno out of
    /// range", fixed after it in tikv/raft-engine#370): readers and purge exclude each other.
    purging: RwLock<()>,
    broken: AtomicBool,
    health: Arc<Health>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Why it was begun anew.
    lost: Option<String>,
    /// Over a simulated disk: other logs live in this process, and earlier lives of this one.
    simulated: bool,
}

impl Drop for RaftLog {
    fn drop(&mut self) {
        self.health.closing.store(true, Ordering::Release);
    }
}

impl RaftLog {
    /// Opens the log in `dir`, or creates it. A torn tail, which a crash leaves, is cut off; where
    /// what was synced is damaged, the log is set aside and an empty one begun: see [`RaftLog::lost`].
    /// `shadow`: see [`crate::files`]; none on a real disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shadow: Option<&Path>,
        sizes: LogSizes,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        let lost = lost::reason(disk.as_ref(), dir)?;
        match Self::open_files(disk.clone(), dir, shadow, sizes, lost) {
            Err(Error::Corrupt(why)) => {
                tracing::error!(why, "the Raft log is set aside: peers of this node are replaced");
                lost::set_aside(disk.as_ref(), dir, &why)?;
                Self::open_files(disk, dir, shadow, sizes, Some(why))
            }
            opened => opened,
        }
    }

    /// As [`RaftLog::open`], but of a log that may be all that is left: one that is damaged is `Corrupt`
    /// and stays as it is.
    pub(crate) fn open_whole(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shadow: Option<&Path>,
        sizes: LogSizes,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        let lost = lost::reason(disk.as_ref(), dir)?;
        Self::open_files(disk, dir, shadow, sizes, lost)
    }

    fn open_files(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shadow: Option<&Path>,
        sizes: LogSizes,
        lost: Option<String>,
    ) -> Result<Self> {
        let files = LogFiles::open(disk.clone(), dir, shadow, sizes.ahead)?;
        let health = files.health();
        let damaged = |what: &str| {
            Error::Corrupt(format!("the Raft log in {} is damaged: {what}", dir.display()))
        };
        if let Some(what) = health.damage() {
            return Err(damaged(what));
        }
        let engine_dir = files.engine_dir().to_str().ok_or_else(|| {
            Error::Invalid(format!("raft log directory {} is not UTF-8", dir.display()))
        })?;
        let config = Config {
            dir: engine_dir.to_owned(),
            recovery_mode: RecoveryMode::TolerateTailCorruption,
            recovery_threads: 2,
            target_file_size: ReadableSize(sizes.file),
            purge_threshold: ReadableSize(sizes.purge),
            ..Config::default()
        };
        let opened = guarded(|| Engine::open_with_file_system(config, Arc::new(files)));
        let engine = opened.map_err(|error| match health.damage() {
            Some(what) => damaged(what),
            None if health.disk_failed() => {
                Error::Io(format!("the Raft log in {} cannot be opened: {error}", dir.display()))
            }
            None => explain(dir, "opened", &error),
        })?;
        let broken = AtomicBool::new(false);
        let simulated = shadow.is_some();
        let (purging, dir) = (RwLock::new(()), dir.to_owned());
        Ok(RaftLog { engine, purging, broken, health, disk, dir, lost, simulated })
    }

    /// Why an earlier log was set aside, until [`RaftLog::forget_lost`]: groups that are not in this
    /// one may have acknowledged what nobody here remembers.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Whether peers may be missing of which nothing here remembers anything.
    pub fn begun_anew(&self) -> bool {
        self.lost.is_some() || self.health.unread()
    }

    /// No peer of the log that was set aside is left.
    pub(crate) fn forget_lost(&self) -> Result<()> {
        lost::forget(self.disk.as_ref(), &self.dir)
    }

    /// Reads every entry of a group that there is: `Corrupt` if one is damaged or missing.
    pub(crate) fn verify(&self, region: RegionId) -> Result<()> {
        let Some((mut next, last)) = self.bounds(region) else { return Ok(()) };
        while next <= last {
            let read = self.entries(region, next, last + 1, Some(VERIFY_BYTES));
            let read = read.map_err(|error| match error {
                Error::Corrupt(what) => {
                    Error::Corrupt(format!("its log is damaged: {what}: replace this replica"))
                }
                other => other,
            })?;
            next = match read.last() {
                Some(entry) => entry.index + 1,
                None => return Ok(()),
            };
        }
        Ok(())
    }

    /// Indexes of a group's first and last entry.
    fn bounds(&self, region: RegionId) -> Option<(u64, u64)> {
        Some((self.engine.first_index(region)?, self.engine.last_index(region)?))
    }

    /// Writes a batch, and syncs it if it holds anything that is acknowledged to others.
    pub(crate) fn write(&self, write: &LogWrite) -> Result<()> {
        if self.broken.load(Ordering::Acquire) {
            return Err(Error::Io(
                "the raft log failed to sync earlier, so its content is unknown: check the disk \
                 and restart the node"
                    .to_owned(),
            ));
        }
        let mut batch = LogBatch::default();
        self.fill(&mut batch, write).map_err(|error| self.failed("written", &error))?;
        let written =
            catch_unwind(AssertUnwindSafe(|| self.engine.write(&mut batch, write.must_sync)));
        match written {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.failed("written", &error)),
            // raft-engine panics when a sync fails.
            Err(_) => {
                self.broken.store(true, Ordering::Release);
                Err(Error::Io(format!("the raft log in {} failed to sync", self.engine.path())))
            }
        }
    }

    fn fill(&self, batch: &mut LogBatch, write: &LogWrite) -> raft_engine::Result<()> {
        for (region, item) in &write.items {
            let region = *region;
            match item {
                LogItem::Entries(entries) => batch.add_entries::<EntryCodec>(region, entries)?,
                LogItem::Put(key, value) => batch.put(region, key.clone(), value.clone())?,
                LogItem::Delete(key) => batch.delete(region, key.clone()),
                LogItem::CutBelow(index) => {
                    batch.add_command(region, Command::Compact { index: *index });
                }
                LogItem::Forget => batch.add_command(region, Command::Clean),
            }
        }
        Ok(())
    }

    /// Every group with a record or an entry, ascending.
    pub fn groups(&self) -> Vec<RegionId> {
        let mut groups = self.engine.raft_groups();
        groups.sort_unstable();
        groups
    }

    /// A record of a group.
    pub(crate) fn get(&self, region: RegionId, key: &[u8]) -> Option<Vec<u8>> {
        self.engine.get(region, key)
    }

    /// Keys of a group's records.
    pub(crate) fn keys(&self, region: RegionId) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        self.engine
            .scan_raw_messages(region, None, None, false, |key, _| {
                keys.push(key.to_vec());
                true
            })
            .map_err(|error| self.failed("read", &error))?;
        Ok(keys)
    }

    /// Index of a group's last entry.
    pub(crate) fn last_index(&self, region: RegionId) -> Option<u64> {
        self.engine.last_index(region)
    }

    /// Entries `low..high`, at least one and else at most `max` bytes of them.
    pub(crate) fn entries(
        &self,
        region: RegionId,
        low: u64,
        high: u64,
        max: Option<u64>,
    ) -> Result<Vec<Entry>> {
        let _reading = self.purging.read();
        let mut entries = Vec::new();
        let max = max.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        self.read(|| {
            self.engine.fetch_entries_to::<EntryCodec>(region, low, high, max, &mut entries)
        })?;
        Ok(entries)
    }

    /// raft-engine keeps the last block it read per thread, under a key that does not distinguish one log
    /// from another; where there are several, each read gets a thread of its own.
    fn read<T: Send>(&self, read: impl FnOnce() -> raft_engine::Result<T> + Send) -> Result<T> {
        let result = if self.simulated {
            std::thread::scope(|scope| scope.spawn(read).join()).unwrap_or_else(|_| {
                Err(raft_engine::Error::Corruption("an entry is not where it should be".to_owned()))
            })
        } else {
            read()
        };
        result.map_err(|error| self.failed("read", &error))
    }

    /// One entry.
    pub(crate) fn entry(&self, region: RegionId, index: u64) -> Result<Option<Entry>> {
        let _reading = self.purging.read();
        self.read(|| self.engine.get_entry::<EntryCodec>(region, index))
    }

    /// Removes files that hold nothing needed, and returns the groups whose old entries stand in
    /// the way of more.
    pub(crate) fn purge(&self) -> Result<Vec<RegionId>> {
        let _alone = self.purging.write();
        match catch_unwind(AssertUnwindSafe(|| self.engine.purge_expired_files())) {
            Ok(Ok(behind)) => Ok(behind),
            Ok(Err(error)) => Err(self.failed("purged", &error)),
            Err(_) => {
                self.broken.store(true, Ordering::Release);
                Err(Error::Io(format!("the raft log in {} failed to sync", self.engine.path())))
            }
        }
    }

    fn failed(&self, verb: &str, error: &raft_engine::Error) -> Error {
        explain(Path::new(self.engine.path()), verb, error)
    }
}

/// Turns raft-engine's panics on I/O errors at opening into errors.
fn guarded<T>(open: impl FnOnce() -> raft_engine::Result<T>) -> raft_engine::Result<T> {
    catch_unwind(AssertUnwindSafe(open)).unwrap_or_else(|_| {
        Err(raft_engine::Error::Corruption("the log's files cannot be opened or synced".to_owned()))
    })
}

fn explain(dir: &Path, verb: &str, error: &raft_engine::Error) -> Error {
    let text = format!("the raft log in {} cannot be {verb}: {error}", dir.display());
    match error {
        raft_engine::Error::Corruption(_) | raft_engine::Error::Codec(_) => Error::Corrupt(text),
        _ => Error::Io(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::SimDisk;

    #[test]
    fn what_was_synced_is_found_behind_files_that_were_filled_ahead() {
        let (shadow, disk) = (tempfile::tempdir().unwrap(), SimDisk::new());
        let sizes = LogSizes { file: 64 << 10, purge: 128 << 10, ahead: 8 << 10 };
        let open = |disk: &SimDisk| {
            let dir = Path::new("/raft");
            RaftLog::open(Arc::new(disk.clone()), dir, Some(shadow.path()), sizes).unwrap()
        };
        let log = open(&disk);
        // Of sizes by which files end anywhere.
        let entry = |index: u64| Entry {
            index,
            term: 1,
            data: vec![7; (index * 37 % 3_000) as usize].into(),
            ..Entry::default()
        };
        for index in 1..=200 {
            let mut write = LogWrite::default();
            write.entries(7, vec![entry(index)]);
            write.sync();
            log.write(&write).unwrap();
            // Files of what is written anew are ended before they are full.
            if index % 20 == 0 {
                log.purge().unwrap();
            }
        }
        let files = disk.list(Path::new("/raft")).unwrap().len();
        assert!(files > 2, "{files} files");
        disk.crash(7);
        drop(log);
        let log = open(&disk);
        let expected: Vec<Entry> = (1..=200).map(entry).collect();
        assert_eq!(log.entries(7, 1, 201, None).unwrap(), expected);
    }
}
