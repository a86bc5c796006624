//! The machine's file system behind [`Disk`].
//!
//! It buffers nothing in the process: what `write_at` accepted survives a killed process, and what
//! `sync` acknowledged survives a power cut.
#![allow(clippy::disallowed_methods)] // the one place that may touch the machine's files

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Access, Disk, DiskFile, explain, parent_of};

/// The machine's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealFile {
    file: File,
    path: PathBuf,
}

impl RealDisk {
    fn handle(
        &self,
        path: &Path,
        operation: &str,
        options: &OpenOptions,
    ) -> io::Result<Arc<dyn DiskFile>> {
        let file = options.open(path).map_err(|e| explain(operation, path, e))?;
        Ok(Arc::new(RealFile { file, path: path.to_path_buf() }))
    }
}

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        self.handle(path, "create", &options)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::Write);
        self.handle(path, "open", &options)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> =
            path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
        fs::create_dir_all(path).map_err(|e| explain("create directory", path, e))?;
        for dir in missing.into_iter().rev() {
            self.sync_dir(parent_of(dir))?;
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|e| explain("remove", path, e))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(|e| explain("remove directory", path, e)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
            .map_err(|e| explain(&format!("rename to {} from", to.display()), from, e))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let read = || -> io::Result<Vec<PathBuf>> {
            let mut paths: Vec<PathBuf> =
                fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
            paths.sort();
            Ok(paths)
        };
        read().map_err(|e| explain("list", dir, e))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)
            .and_then(|file| file.sync_all())
            .map_err(|e| explain("sync directory", dir, e))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists().map_err(|e| explain("look up", path, e))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(path)
            .map_err(|e| explain("measure free space of", path, e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(explain("read", &self.path, e)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| explain("write", &self.path, e))
    }

    fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        let end = self.len()?;
        self.write_at(bytes, end)?;
        Ok(end)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|m| m.len()).map_err(|e| explain("measure", &self.path, e))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length).map_err(|e| explain("truncate", &self.path, e))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|e| explain("sync", &self.path, e))
    }
}
