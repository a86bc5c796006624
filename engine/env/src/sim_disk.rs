//! A disk in memory that forgets what was not synced, and fails when a test says so.
//!
//! It is stricter than any one file system, as POSIX allows: bytes are durable only after the
//! file's sync, names only after the directory's, and what was not synced comes back in part, in
//! any order of sectors. A handle of before a crash never works again, so a task left over from the
//! crashed process cannot write into the next one's files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::disk::{Access, Disk, DiskFile, explain, parent_of};
use crate::random::Random;

/// Unit in which unsynced bytes survive a crash or not.
const SECTOR: usize = 512;

/// An operation that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Any read of bytes.
    Read,
    /// Any write, append or truncation.
    Write,
    /// A sync of a file or directory.
    Sync,
    /// A creation, removal or rename.
    Name,
}

/// A simulated disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

type FileId = u64;

#[derive(Default)]
struct State {
    files: HashMap<FileId, Content>,
    next_file: FileId,
    /// Names as the running process sees them.
    names: BTreeMap<PathBuf, FileId>,
    /// Names that survive a crash for certain.
    durable_names: BTreeMap<PathBuf, FileId>,
    /// Changes of names since, oldest first.
    pending_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    /// Number of crashes; a handle of another generation is dead.
    generation: u64,
    down: bool,
    syncs: u64,
    crash_at_sync: Option<u64>,
    /// Writes until the power is cut within one.
    crash_at_write: Option<u64>,
    /// Countdown to an injected error.
    faults: HashMap<Operation, u64>,
    capacity: Option<u64>,
}

#[derive(Default)]
struct Content {
    /// Bytes as the running process sees them.
    current: Vec<u8>,
    /// Bytes that survive a crash for certain.
    durable: Vec<u8>,
    /// Changes since, oldest first.
    pending: Vec<ByteChange>,
}

enum ByteChange {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

enum NameChange {
    Link { path: PathBuf, file: FileId },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, file: FileId },
}

struct SimFile {
    state: Arc<Mutex<State>>,
    file: FileId,
    path: PathBuf,
    generation: u64,
    access: Access,
}

impl SimDisk {
    /// An empty disk without a limit of size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power and restores it: synced state survives, the rest survives in a part that
    /// the seed chooses. Every open handle dies; the disk works again at once, without faults.
    pub fn crash(&self, seed: u64) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let random = Random::seeded(seed);
        // A journalling file system keeps a prefix of the changes of names.
        let kept = random.below(state.pending_names.len() as u64 + 1) as usize;
        let changes = std::mem::take(&mut state.pending_names);
        for change in changes.iter().take(kept) {
            change.apply(&mut state.durable_names);
        }
        state.names = state.durable_names.clone();
        let live: BTreeSet<FileId> = state.names.values().copied().collect();
        state.files.retain(|id, _| live.contains(id));
        for id in live {
            if let Some(content) = state.files.get_mut(&id) {
                content.crash(&random);
            }
        }
        state.generation += 1;
        state.down = false;
        state.crash_at_sync = None;
        state.crash_at_write = None;
        state.faults.clear();
    }

    /// Lets the `nth` sync from now (1 = the next one) fail without effect, and everything after
    /// it, until [`SimDisk::crash`] restarts the disk.
    pub fn crash_at_sync(&self, nth: u64) {
        let mut state = self.state.lock();
        state.crash_at_sync = Some(state.syncs + nth.max(1));
    }

    /// Cuts the power within the `nth` write from now (1 = the next one): a part of it may survive.
    /// Everything after it fails until [`SimDisk::crash`] restarts the disk.
    pub fn crash_at_write(&self, nth: u64) {
        self.state.lock().crash_at_write = Some(nth.max(1));
    }

    /// Whether a planned crash has happened and the disk waits for [`SimDisk::crash`].
    pub fn is_down(&self) -> bool {
        self.state.lock().down
    }

    /// Syncs of files and directories so far, since the disk was made.
    pub fn syncs(&self) -> u64 {
        self.state.lock().syncs
    }

    /// Lets the `nth` operation of a kind from now (1 = the next one) fail once with an I/O error.
    /// A write fails before it has an effect. A failed sync loses, at the next crash, what it was
    /// to save, even if a later sync succeeds, as on Linux.
    pub fn fail_nth(&self, operation: Operation, nth: u64) {
        self.state.lock().faults.insert(operation, nth.max(1));
    }

    /// Forgets planned failures and crashes that have not come yet.
    pub fn forget_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.crash_at_sync = None;
        state.crash_at_write = None;
    }

    /// Limits the sum of all files' bytes; a write beyond it fails as a full disk does, after as
    /// many bytes as fit. `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity = bytes;
    }

    /// Inverts one bit (0 to 7) of a byte of a file, durably, as a decaying medium does.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let file = state.lookup(path)?;
        let content = state.content(file)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let mask = 1u8 << (bit & 7);
        let byte = content.current.get_mut(offset).ok_or(io::ErrorKind::InvalidInput)?;
        *byte ^= mask;
        if let Some(byte) = content.durable.get_mut(offset) {
            *byte ^= mask;
        }
        Ok(())
    }
}

impl State {
    /// Counts an operation and fails it if a test said so.
    fn enter(&mut self, operation: Operation) -> io::Result<()> {
        if self.down {
            return Err(io::Error::other("the simulated disk is down until its restart"));
        }
        match self.faults.get_mut(&operation) {
            Some(1) => {
                self.faults.remove(&operation);
                Err(io::Error::other(format!("injected {operation:?} fault")))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a sync; an error is either the planned crash or an injected fault.
    fn enter_sync(&mut self) -> io::Result<()> {
        self.enter(Operation::Sync)?;
        self.syncs += 1;
        if self.crash_at_sync.is_some_and(|at| self.syncs >= at) {
            self.down = true;
            return Err(io::Error::other("the simulated disk crashed at this sync"));
        }
        Ok(())
    }

    /// Counts a write; whether the power is cut within it.
    fn is_cut_by_write(&mut self) -> bool {
        match self.crash_at_write {
            Some(1) => self.down = true,
            Some(left) => self.crash_at_write = Some(left - 1),
            None => {}
        }
        self.down
    }

    fn lookup(&self, path: &Path) -> io::Result<FileId> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn content(&mut self, file: FileId) -> io::Result<&mut Content> {
        self.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn is_dir(&self, path: &Path) -> bool {
        path == Path::new(".") || path.parent().is_none() || self.dirs.contains(path)
    }

    fn used(&self) -> u64 {
        self.names
            .values()
            .filter_map(|id| self.files.get(id))
            .map(|content| content.current.len() as u64)
            .sum()
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn create(&mut self, path: &Path) -> io::Result<FileId> {
        self.enter(Operation::Name)?;
        if self.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !self.is_dir(parent_of(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if let Some(file) = self.names.get(path).copied() {
            self.content(file)?.truncate(0);
            return Ok(file);
        }
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, Content::default());
        self.change_names(NameChange::Link { path: path.to_path_buf(), file });
        Ok(file)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter(Operation::Name)?;
        let file = self.lookup(from)?;
        if !self.is_dir(parent_of(to)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.is_dir(to) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.change_names(NameChange::Rename {
            from: from.to_path_buf(),
            to: to.to_path_buf(),
            file,
        });
        Ok(())
    }

    fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        self.enter_sync()?;
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let changes = std::mem::take(&mut self.pending_names);
        for change in changes {
            if change.touches(dir) {
                change.apply(&mut self.durable_names);
            } else {
                self.pending_names.push(change);
            }
        }
        Ok(())
    }

    fn write(&mut self, file: FileId, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.enter(Operation::Write)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let end = offset.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
        let used = self.used();
        let capacity = self.capacity.unwrap_or(u64::MAX);
        let content = self.content(file)?;
        let grown = end.saturating_sub(content.current.len()) as u64;
        let missing = used.saturating_add(grown).saturating_sub(capacity).min(grown);
        let fitting = bytes.len().saturating_sub(usize::try_from(missing).unwrap_or(usize::MAX));
        let (head, _) = bytes.split_at(fitting);
        if !head.is_empty() || missing == 0 {
            content.write(head, offset);
        }
        if self.is_cut_by_write() {
            return Err(io::Error::other("the simulated disk crashed within this write"));
        }
        if missing == 0 { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        write_into(&mut self.current, bytes, offset);
        self.pending.push(ByteChange::Write { offset, bytes: bytes.to_vec() });
    }

    fn truncate(&mut self, length: usize) {
        self.current.resize(length, 0);
        self.pending.push(ByteChange::Truncate { length });
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..) {
            match change {
                ByteChange::Write { offset, bytes } => {
                    write_into(&mut self.durable, &bytes, offset);
                }
                ByteChange::Truncate { length } => self.durable.resize(length, 0),
            }
        }
    }

    /// Forgets unsynced changes: all of them, all after some point (which may tear a write), or
    /// any choice of sectors, with truncations kept in their order.
    fn crash(&mut self, random: &Random) {
        let pending = std::mem::take(&mut self.pending);
        let mode = random.below(3);
        let prefix = random.below(pending.len() as u64 + 1);
        for (number, change) in (0u64..).zip(pending) {
            match change {
                _ if mode == 0 || (mode == 1 && number > prefix) => {}
                ByteChange::Truncate { length } => {
                    if mode == 1 || random.chance(0.5) {
                        self.durable.resize(length, 0);
                    }
                }
                ByteChange::Write { offset, bytes } if mode == 1 => {
                    let torn = random.below(bytes.len() as u64 + 1) as usize;
                    let kept = if number < prefix { bytes.len() } else { torn };
                    if let Some(head) = bytes.get(..kept).filter(|head| !head.is_empty()) {
                        write_into(&mut self.durable, head, offset);
                    }
                }
                ByteChange::Write { offset, bytes } => {
                    // Pieces end at sector boundaries of the file, not of the write.
                    let mut at = offset;
                    let mut rest = bytes.as_slice();
                    while !rest.is_empty() {
                        let (piece, next) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                        if random.chance(0.5) {
                            write_into(&mut self.durable, piece, at);
                        }
                        at += piece.len();
                        rest = next;
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }
}

fn write_into(target: &mut Vec<u8>, bytes: &[u8], offset: usize) {
    let end = offset + bytes.len();
    if target.len() < end {
        target.resize(end, 0);
    }
    if let Some(place) = target.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, FileId>) {
        match self {
            NameChange::Link { path, file } => {
                names.insert(path.clone(), *file);
            }
            NameChange::Unlink { path } => {
                names.remove(path);
            }
            NameChange::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }

    fn touches(&self, dir: &Path) -> bool {
        match self {
            NameChange::Link { path, .. } | NameChange::Unlink { path } => parent_of(path) == dir,
            NameChange::Rename { from, to, .. } => parent_of(from) == dir || parent_of(to) == dir,
        }
    }
}

impl SimDisk {
    fn handle(&self, state: &State, path: &Path, file: FileId, access: Access) -> Arc<SimFile> {
        Arc::new(SimFile {
            state: self.state.clone(),
            file,
            path: path.to_path_buf(),
            generation: state.generation,
            access,
        })
    }

    fn with<T>(
        &self,
        operation: &str,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        work(&mut self.state.lock()).map_err(|e| explain(operation, path, e))
    }
}

impl Disk for SimDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.with("create", path, |state| {
            let file = state.create(path)?;
            Ok(self.handle(state, path, file, Access::Write) as Arc<dyn DiskFile>)
        })
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.with("open", path, |state| {
            state.enter(Operation::Read)?;
            let file = state.lookup(path)?;
            Ok(self.handle(state, path, file, access) as Arc<dyn DiskFile>)
        })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with("create directory", path, |state| {
            state.enter(Operation::Name)?;
            if path.ancestors().any(|p| state.names.contains_key(p)) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.dirs.extend(path.ancestors().map(Path::to_path_buf));
            Ok(())
        })
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.with("remove", path, |state| {
            state.enter(Operation::Name)?;
            state.lookup(path)?;
            state.change_names(NameChange::Unlink { path: path.to_path_buf() });
            Ok(())
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.with("remove directory", path, |state| {
            state.enter(Operation::Name)?;
            let doomed: Vec<PathBuf> =
                state.names.keys().filter(|name| name.starts_with(path)).cloned().collect();
            for path in doomed {
                state.change_names(NameChange::Unlink { path });
            }
            state.dirs.retain(|dir| !dir.starts_with(path));
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let operation = format!("rename to {} from", to.display());
        self.with(&operation, from, |state| state.rename(from, to))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        self.with("list", dir, |state| {
            state.enter(Operation::Read)?;
            if !state.is_dir(dir) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let inside = |path: &&PathBuf| path.as_path() != dir && parent_of(path) == dir;
            let mut paths: Vec<PathBuf> =
                state.names.keys().chain(&state.dirs).filter(inside).cloned().collect();
            paths.sort();
            Ok(paths)
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with("sync directory", dir, |state| state.sync_dir(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.with("look up", path, |state| {
            state.enter(Operation::Read)?;
            Ok(state.names.contains_key(path) || state.is_dir(path))
        })
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.with("measure free space of", path, |state| {
            state.enter(Operation::Read)?;
            Ok(state.capacity.unwrap_or(u64::MAX).saturating_sub(state.used()))
        })
    }
}

impl SimFile {
    fn with<T>(
        &self,
        operation: &str,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        let result = if state.generation == self.generation {
            work(&mut state)
        } else {
            Err(io::Error::other("the handle was opened before a crash of the simulated disk"))
        };
        result.map_err(|e| explain(operation, &self.path, e))
    }

    fn writable(&self) -> io::Result<()> {
        match self.access {
            Access::Write => Ok(()),
            Access::Read => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with("read", |state| {
            state.enter(Operation::Read)?;
            let content = state.content(self.file)?;
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.current.len());
            let bytes = content.current.get(start..).unwrap_or_default();
            let length = bytes.len().min(buffer.len());
            if let (Some(to), Some(from)) = (buffer.get_mut(..length), bytes.get(..length)) {
                to.copy_from_slice(from);
            }
            Ok(length)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with("write", |state| {
            self.writable()?;
            state.write(self.file, bytes, offset)
        })
    }

    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        self.with("append to", |state| {
            self.writable()?;
            let end = state.content(self.file)?.current.len() as u64;
            state.write(self.file, bytes, end)?;
            Ok(end)
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with("measure", |state| {
            state.enter(Operation::Read)?;
            Ok(state.content(self.file)?.current.len() as u64)
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.with("truncate", |state| {
            self.writable()?;
            state.enter(Operation::Write)?;
            let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
            state.content(self.file)?.truncate(length);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with("sync", |state| {
            if let Err(error) = state.enter_sync() {
                // The kernel marks the pages clean though they were not written.
                if !state.down {
                    state.content(self.file)?.pending.clear();
                }
                return Err(error);
            }
            state.content(self.file)?.sync();
            Ok(())
        })
    }
}
