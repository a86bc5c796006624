//! raft-engine's files on `env`'s disk, so that a simulated disk can forget what was not synced.
//!
//! It holds no policy. raft-engine lists its directory and syncs it through the operating system,
//! past any file system it is given; over a simulated disk a *shadow* directory therefore mirrors
//! the file names, empty.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Access, Disk, DiskFile};
use raft_engine::env::{FileSystem, Handle, Permission, WriteExt};

/// The file system that raft-engine is given.
pub(crate) struct LogFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    shadow: Option<PathBuf>,
    closing: Arc<AtomicBool>,
}

impl LogFiles {
    /// Files in `dir` of `disk`. For a simulated disk `shadow` is an existing directory of the
    /// operating system that nothing else uses.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path, shadow: Option<&Path>) -> io::Result<Self> {
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
        Ok(LogFiles {
            disk,
            dir: dir.to_owned(),
            shadow: shadow.map(Path::to_owned),
            closing: Arc::default(),
        })
    }

    /// Set before the log is closed: raft-engine then syncs once more and panics if that fails,
    /// although everything that anyone was told of is synced already.
    pub fn closing(&self) -> Arc<AtomicBool> {
        self.closing.clone()
    }

    fn file(&self, file: Arc<dyn DiskFile>) -> LogFile {
        LogFile { file, closing: self.closing.clone() }
    }

    /// The directory to name to raft-engine.
    pub fn engine_dir(&self) -> &Path {
        self.shadow.as_deref().unwrap_or(&self.dir)
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
        let file = self.disk.create(&self.place(path.as_ref()))?;
        self.disk.sync_dir(&self.dir)?;
        self.mirror(|real| real.create(path.as_ref()).map(drop))?;
        Ok(self.file(file))
    }

    fn open<P: AsRef<Path>>(&self, path: P, permission: Permission) -> io::Result<LogFile> {
        let access = match permission {
            Permission::ReadOnly => Access::Read,
            Permission::ReadWrite => Access::Write,
        };
        Ok(self.file(self.disk.open(&self.place(path.as_ref()), access)?))
    }

    fn delete<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.disk.remove(&self.place(path.as_ref()))?;
        self.mirror(|real| real.remove(path.as_ref()))
    }

    fn rename<P: AsRef<Path>>(&self, from: P, to: P) -> io::Result<()> {
        self.disk.rename(&self.place(from.as_ref()), &self.place(to.as_ref()))?;
        self.disk.sync_dir(&self.dir)?;
        self.mirror(|real| real.rename(from.as_ref(), to.as_ref()))
    }

    fn new_reader(&self, handle: Arc<LogFile>) -> io::Result<Cursor> {
        Ok(Cursor { file: handle.file.clone(), at: 0 })
    }

    fn new_writer(&self, handle: Arc<LogFile>) -> io::Result<Cursor> {
        Ok(Cursor { file: handle.file.clone(), at: 0 })
    }
}

/// An open file of the log.
pub(crate) struct LogFile {
    file: Arc<dyn DiskFile>,
    closing: Arc<AtomicBool>,
}

impl Handle for LogFile {
    fn truncate(&self, offset: usize) -> io::Result<()> {
        self.file.truncate(offset as u64)
    }

    fn file_size(&self) -> io::Result<usize> {
        self.file.len().map(|length| length as usize)
    }

    fn sync(&self) -> io::Result<()> {
        match self.file.sync() {
            Err(error) if self.closing.load(Ordering::Acquire) => {
                tracing::warn!(%error, "a Raft log file was closed without its last sync");
                Ok(())
            }
            result => result,
        }
    }
}

/// A position in a file, to read from or write to.
pub(crate) struct Cursor {
    file: Arc<dyn DiskFile>,
    at: u64,
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(delta) => self.file.len()?.checked_add_signed(delta),
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
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Write for Cursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteExt for Cursor {
    fn truncate(&mut self, offset: usize) -> io::Result<()> {
        self.file.truncate(offset as u64)?;
        self.at = offset as u64;
        Ok(())
    }

    /// Does nothing: space is taken as it is written, and a full disk shows in the write.
    fn allocate(&mut self, _offset: usize, _size: usize) -> io::Result<()> {
        Ok(())
    }
}
