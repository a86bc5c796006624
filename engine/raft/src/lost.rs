//! A log that is damaged is set aside, and the node goes on with an empty one.
//!
//! That it is so is noted first, durably: without the note, groups whose log is gone could be created
//! anew, and their peers would vote although they have forgotten what they acknowledged. The damaged
//! files are kept until every peer concerned is replaced.

use std::io;
use std::path::{Path, PathBuf};

use env::{Disk, Format, atomic_write, read_whole};
use types::{Error, Result};

use crate::synced::{LogFileId, Synced};

const NAME: &str = "LOST";
const FORMAT: Format = Format::new(*b"ISBRLOST", 1);
/// Added to the names of files that are set aside.
const ASIDE: &str = "damaged";

/// First byte of the note: whether all files have been set aside yet.
const BEGUN: u8 = 0;
const DONE: u8 = 1;

/// Why the log was begun anew, if it was and not all of its peers are replaced yet. Completes what a
/// crash has interrupted.
pub(crate) fn reason(disk: &dyn Disk, dir: &Path) -> Result<Option<String>> {
    let note = match read_whole(disk, &dir.join(NAME), FORMAT) {
        Ok(None) => return Ok(None),
        Ok(Some(note)) => note,
        // How far it had come is not known, so all is set aside once more.
        Err(Error::Corrupt(what)) => [&[BEGUN], what.as_bytes()].concat(),
        Err(error) => return Err(error),
    };
    let (state, why) = note.split_first().unwrap_or((&BEGUN, &[]));
    let why = String::from_utf8_lossy(why).into_owned();
    if *state != DONE {
        set_aside(disk, dir, &why)?;
    }
    Ok(Some(why))
}

/// Sets the log's files aside.
pub(crate) fn set_aside(disk: &dyn Disk, dir: &Path, why: &str) -> Result<()> {
    let note = |state| [&[state], why.as_bytes()].concat();
    atomic_write(disk, &dir.join(NAME), FORMAT, &note(BEGUN))?;
    for path in disk.list(dir)?.into_iter().filter(|path| LogFileId::of(path).is_some()) {
        let mut name = path.clone().into_os_string();
        name.push(format!(".{ASIDE}"));
        disk.rename(&path, &PathBuf::from(name))?;
    }
    Synced::remove(disk, dir)?;
    disk.sync_dir(dir)?;
    atomic_write(disk, &dir.join(NAME), FORMAT, &note(DONE))
}

/// Nothing is missed any more: removes the note and what was set aside.
pub(crate) fn forget(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for path in disk.list(dir)? {
        if path.extension().is_some_and(|extension| extension == ASIDE) {
            disk.remove(&path)?;
        }
    }
    match disk.remove(&dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => Ok(done?),
    }
}
