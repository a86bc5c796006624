//! What is found to be damaged in a store, and how a store begins anew after that.
//!
//! Damage that was met once is noted in the store's directory, so that it is dealt with at the next
//! start even if nothing meets it then. A store that begins anew has forgotten everything: whoever
//! holds state in it has to be replaced. What was there is kept aside, for people to look at.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Disk, Format, RealDisk, atomic_write, read_whole};
use fjall::LsmError;
use types::{Error, Result};

const FORMAT: Format = Format::new(*b"ISOBARKD", 1);
const NOTE: &str = "DAMAGED";

/// The first damage that was met since the store was opened.
pub(crate) struct Damage {
    note: PathBuf,
    met: OnceLock<String>,
    refused: AtomicBool,
}

impl Damage {
    pub fn none_yet(store: &Path) -> Self {
        Damage { note: store.join(NOTE), met: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// What was met.
    pub fn met(&self) -> Option<&str> {
        self.met.get().map(String::as_str)
    }

    /// Whether a write or a sync failed.
    pub fn refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }

    /// Notes that a write or a sync failed.
    pub fn refuse(&self) {
        self.refused.store(true, Ordering::Release);
    }

    /// Notes an error that is damage, and passes it on.
    pub fn note(&self, error: Error) -> Error {
        if let Error::Corrupt(what) = &error
            && self.met.set(what.clone()).is_ok()
        {
            tracing::error!(what, "the key-value store is damaged");
            if let Err(error) = atomic_write(&RealDisk, &self.note, FORMAT, what.as_bytes()) {
                tracing::warn!(%error, "the damage could not be noted");
            }
        }
        error
    }
}

/// What an earlier process met, if it met damage.
pub(crate) fn noted(disk: &dyn Disk, store: &Path) -> Result<Option<String>> {
    match read_whole(disk, &store.join(NOTE), FORMAT) {
        Ok(note) => Ok(note.map(|what| String::from_utf8_lossy(&what).into_owned())),
        Err(Error::Corrupt(what)) => Ok(Some(what)),
        Err(error) => Err(error),
    }
}

/// Sets what is in the store aside. The caller makes a new one and then calls [`forget`]; a crash
/// before that begins again here.
pub(crate) fn set_aside(disk: &dyn Disk, store: &Path, contents: &[&str], why: &str) -> Result<()> {
    atomic_write(disk, &store.join(NOTE), FORMAT, why.as_bytes())?;
    for name in contents {
        let (from, to) = (store.join(name), store.join(format!("{name}.damaged")));
        if !disk.exists(&from)? {
            continue;
        }
        // Of several times that a store was damaged the last one is kept.
        disk.remove_dir_all(&to).or_else(|_| disk.remove(&to))?;
        disk.rename(&from, &to)?;
    }
    Ok(disk.sync_dir(store)?)
}

/// The store has begun anew.
pub(crate) fn forget(disk: &dyn Disk, store: &Path) -> Result<()> {
    match disk.remove(&store.join(NOTE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => done?,
    }
    Ok(disk.sync_dir(store)?)
}

/// An I/O error that says that a file is gone, short or not what it should be is damage: the disk did
/// what it was asked.
pub(crate) fn of_shape(kind: io::ErrorKind, what: String) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    match kind {
        InvalidData | InvalidInput | NotFound | UnexpectedEof => Error::Corrupt(what),
        _ => Error::Io(what),
    }
}

/// Sorts fjall's errors by what to do about them.
pub(crate) fn explain(doing: &str, path: &Path, error: fjall::Error) -> Error {
    let what = format!("cannot {doing} {}", path.display());
    match error {
        fjall::Error::Io(e) | fjall::Error::Storage(LsmError::Io(e)) => {
            of_shape(e.kind(), format!("{what}: {e}"))
        }
        fjall::Error::Poisoned => Error::Io(format!(
            "{what}: an earlier write or sync failed, so it takes no more until it is opened again, as \
             the node does once its disk takes writes: free disk space, or replace the disk"
        )),
        fjall::Error::Locked => {
            Error::Unavailable(format!("{what}: another process has it open; stop that one"))
        }
        fjall::Error::InvalidVersion(Some(version)) => Error::Invalid(format!(
            "{what}: its files have version {version:?}; use the build that wrote them"
        )),
        damage => Error::Corrupt(format!("{what}: {damage}")),
    }
}
