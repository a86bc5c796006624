//! Files and directories behind one object-safe trait, so that a simulated disk can stand in.
//!
//! Nothing is durable before a sync: of the file for its bytes, of the directory for its names.
//! Errors are `std::io::Error`s whose text names the operation and the path; the kind is kept.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a handle is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; writing through the handle fails.
    Read,
    /// Reads and writes.
    Write,
}

/// A file system.
pub trait Disk: Send + Sync + 'static {
    /// Creates an empty file, or empties the one that is there, and opens it for writing.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file that exists.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// Creates a directory with its missing parents, durably.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything below it; one that is absent is no error.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Renames a file, replacing `to` atomically if it is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Full paths of the files and directories in a directory, sorted.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Makes creations, removals and renames in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Whether a file or directory of that name exists.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Bytes that can still be written on the file system that holds the path.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// An open file. Positional I/O only, so a handle can be shared between threads.
#[allow(clippy::len_without_is_empty)] // nobody asks
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills the buffer from `offset`; an `UnexpectedEof` error if the file is too short.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let wanted = buffer.len();
        let read = self.read_at(buffer, offset)?;
        if read == wanted {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("file ends after {read} of {wanted} bytes at offset {offset}"),
            ))
        }
    }

    /// Writes all bytes at `offset`, extending the file with zeros up to there if need be.
    /// After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes at the end of the file and returns where they begin. One writer at a time
    /// per file: the end is looked up, then written to.
    fn append(&self, bytes: &[u8]) -> io::Result<u64>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it with zeros, to a length in bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes the bytes, and the length, durable. After a failed sync nothing is known about what
    /// was written since the last good one, and a later sync does not bring it back: give up the file.
    fn sync(&self) -> io::Result<()>;
}

/// The directory that holds a path: `.` for a bare name.
pub fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Adds the operation and the path to an error's text; the kind stays.
pub(crate) fn explain(operation: &str, path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {operation} {}: {error}", path.display()))
}
