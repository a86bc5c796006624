//! raft-engine's files on `env`'s disk, so that a simulated disk can forget what was not synced.
//!
//! It holds no policy but two: raft-engine may not cut off what was synced (see [`crate::synced`]), and files are filled with
//! zeros ahead of what is written. raft-engine lists its directory and syncs it through the operating system, past any file
//! system it is given; over a simulated disk a *shadow* directory therefore mirrors the file names, empty.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Access, Disk, DiskFile};
use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};

use crate::synced::{LogFileId, Synced};

/// What the files of a log share.
pub(crate) struct Health {
    synced: Synced,
    /// Set before the log is closed: raft-engine then syncs once more and panics if that fails,
    /// although everything that was acknowledged is synced already.
    pub closing: AtomicBool,
    failed: AtomicBool,
}

impl Health {
    /// What is damaged, as far as opening has found.
    pub fn damage(&self) -> Option<&str> {
        self.synced.damage()
    }

    /// Whether nothing is known of how far the files were synced, although it was noted.
    pub fn unread(&self) -> bool {
        self.synced.unread()
    }

    /// Whether the disk refused anything: what the files hold is then not to blame.
    pub fn disk_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    fn watch<T>(&self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|_| self.failed.store(true, Ordering::Release))
    }
}

/// The file system that raft-engine is given.
pub(crate) struct LogFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shadow: Option<PathBuf>,
    health: Arc<Health>,
    /// What is written ahead.
    zeros: Arc<[u8]>,
}

impl LogFiles {
    /// Files in `dir` of `disk`, filled `ahead` bytes beyond what is written. For a simulated disk `shadow` is an existing
    /// directory of the operating system that nothing else uses.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        shadow: Option<&Path>,
        ahead: u64,
    ) -> io::Result<Self> {
        disk.create_dir_all(dir)?;
        if let Some(shadow) = shadow {
            let real = env::RealDisk;
            for file in real.list(shadow)? {
                real.remove(&file)?;
            }
            for file in disk.list(dir)? {
                if let Some(name) = file.file_name() {
                    real.create(&shadow.join(name))?;
                }
            }
        }
        let synced = Synced::open(disk.as_ref(), dir)?;
        let (closing, failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(LogFiles {
            disk,
            dir: dir.to_owned(),
            shadow: shadow.map(Path::to_owned),
            health: Arc::new(Health { synced, closing, failed }),
            zeros: vec![0; ahead as usize].into(),
        })
    }

    /// What is known of these files.
    pub fn health(&self) -> Arc<Health> {
        self.health.clone()
    }

    fn file(&self, path: &Path, file: io::Result<Arc<dyn DiskFile>>) -> io::Result<LogFile> {
        let file = self.health.watch(file)?;
        let (id, written) = (LogFileId::of(path), Arc::default());
        Ok(LogFile { file, id, written, health: self.health.clone() })
    }

    /// The directory to name to raft-engine.
    pub fn engine_dir(&self) -> &Path {
        self.shadow.as_deref().unwrap_or(&self.dir)
    }

    fn cursor(&self, file: Arc<LogFile>) -> Cursor {
        Cursor { file, at: 0, zeros: self.zeros.clone(), allocated: 0, filled: 0 }
    }

    /// Where a file that raft-engine names is on the disk.
    fn place(&self, path: &Path) -> PathBuf {
        match path.file_name() {
            Some(name) => self.dir.join(name),
            None => path.to_owned(),
        }
    }

    fn mirror(&self, change: impl FnOnce(&env::RealDisk) -> io::Result<()>) -> io::Result<()> {
        match self.shadow {
            Some(_) => change(&env::RealDisk),
            None => Ok(()),
        }
    }
}

impl FileSystem for LogFiles {
    type Handle = LogFile;
    type Reader = Cursor;
    type Writer = Cursor;

    fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<LogFile> {
        let file = self.disk.create(&self.place(path.as_ref()));
        let file = self.file(path.as_ref(), file)?;
        self.health.watch(self.disk.sync_dir(&self.dir))?;
        self.mirror(|real| real.create(path.as_ref()).map(drop))?;
        Ok(file)
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<LogFile> {
        let access = match permission {
            Permission::ReadOnly => Access::Read,
            Permission::ReadWrite => Access::Write,
        };
        self.file(path.as_ref(), self.disk.open(&self.place(path.as_ref()), access))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.health.watch(self.disk.remove(&self.place(path.as_ref())))?;
        self.mirror(|real| real.remove(path.as_ref()))
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        let renamed = self.disk.rename(&self.place(from.as_ref()), &self.place(to.as_ref()));
        self.health.watch(renamed)?;
        self.health.watch(self.disk.sync_dir(&self.dir))?;
        self.mirror(|real| real.rename(from.as_ref(), to.as_ref()))
    }

    fn new_reader(&self, handle: Arc<LogFile>) -> io::Result<Cursor> {
        Ok(self.cursor(handle))
    }

    fn new_writer(&self, handle: Arc<LogFile>) -> io::Result<Cursor> {
        Ok(self.cursor(handle))
    }
}

/// An open file of the log.
pub(crate) struct LogFile {
    file: Arc<dyn DiskFile>,
    id: Option<LogFileId>,
    /// Where what was written through this handle ends.
    written: Arc<AtomicU64>,
    health: Arc<Health>,
}

impl LogFile {
    fn cut(&self, to: u64) -> io::Result<()> {
        if let Some(id) = self.id {
            self.health.synced.check_cut(id, to)?;
        }
        self.health.watch(self.file.truncate(to))?;
        self.written.fetch_min(to, Ordering::AcqRel);
        Ok(())
    }
}

impl Handle for LogFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.cut(offset as u64)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.health.watch(self.file.len()).map(|length| length as usize)
    }

    fn sync(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        match self.file.sync() {
            Err(error) if self.health.closing.load(Ordering::Acquire) => {
                tracing::warn!(%error, "a Raft log file was closed without its last sync");
                return Ok(());
            }
            result => self.health.watch(result)?,
        }
        // The note is a help, not a promise: without it the next one says the same and more.
        if let Some(id) = self.id
            && let Err(error) = self.health.synced.note(id, written)
        {
            tracing::warn!(%error, "how far the Raft log is synced could not be noted");
        }
        Ok(())
    }
}

/// A position in a file, to read from or write to.
pub(crate) struct Cursor {
    file: Arc<LogFile>,
    at: u64,
    zeros: Arc<[u8]>,
    /// How far zeros may be written, and how far they were.
    allocated: u64,
    filled: u64,
}

impl Cursor {
    /// Writes zeros ahead, once those of before are written over.
    fn fill(&mut self) {
        if self.filled > self.at {
            return;
        }
        let room = self.allocated.saturating_sub(self.at) as usize;
        let zeros = self.zeros.get(..room).unwrap_or(&self.zeros);
        // A disk that is full shows in what is written.
        let filled = self.file.file.write_at(zeros, self.at).is_ok();
        self.filled = self.at + if filled { zeros.len() as u64 } else { 0 };
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(delta) => self.file.file.len()?.checked_add_signed(delta),
            SeekFrom::Current(delta) => self.at.checked_add_signed(delta),
        };
        self.at = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of a log file")
        })?;
        Ok(self.at)
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.health.watch(self.file.file.read_at(buffer, self.at))?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Write for Cursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.health.watch(self.file.file.write_at(bytes, self.at))?;
        self.at += bytes.len() as u64;
        self.file.written.fetch_max(self.at, Ordering::AcqRel);
        self.fill();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteExt for Cursor {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.file.cut(offset as u64)?;
        self.at = offset as u64;
        (self.allocated, self.filled) = (self.at, self.at);
        Ok(())
    }

    /// Takes note: raft-engine cuts off what of this is not written before it begins another file.
    fn allocate(&mut self, offset: usize, size: usize) -> io::Result<()> {
        self.allocated = (offset + size) as u64;
        Ok(())
    }
}
