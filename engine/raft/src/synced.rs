//! How far the log's files are known to be synced, noted beside them: so a torn tail is distinguished from damage.
//!
//! A crash may leave anything beyond what was synced, and raft-engine cuts it off. What it would cut
//! below that is damage, for it was acknowledged to others: it must never go in silence. The note itself is not
//! synced: after a power cut it may be older than the files, never newer. It is written to two places in
//! turn, so that damage to one costs what one sync added; where neither can be read it claims nothing.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use env::{Access, Disk, DiskFile};
use parking_lot::Mutex;

const NAME: &str = "SYNCED";
/// Number and end for each queue, and a checksum.
const LENGTH: usize = 36;
/// Where the note is written in turn, in bytes: two sectors.
const PLACES: [u64; 2] = [0, 512];

/// raft-engine's two queues, by the names of their files.
const QUEUES: [&str; 2] = ["raftlog", "rewrite"];

/// A file of the log: which queue it belongs to, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFileId {
    queue: usize,
    number: u64,
}

impl LogFileId {
    /// From a file's name; none if it is no file of the log.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        let queue = QUEUES.iter().position(|queue| *queue == extension)?;
        Some(LogFileId { queue, number: path.file_stem()?.to_str()?.parse().ok()? })
    }
}

/// Of each queue, its newest file that was synced: number, and how many of its bytes are.
type Ends = [(u64, u64); QUEUES.len()];

/// The note, and what was found to contradict it.
pub(crate) struct Synced {
    file: Arc<dyn DiskFile>,
    ends: Mutex<Ends>,
    /// How often it was written.
    written: AtomicUsize,
    damage: OnceLock<String>,
    /// Whether there was a note that cannot be read.
    unread: bool,
}

impl Synced {
    /// Reads the note in a directory, or begins one, and looks whether the newest files are there.
    pub fn open(disk: &dyn Disk, dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        let file = match disk.open(&path, Access::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => disk.create(&path)?,
            opened => opened?,
        };
        let (mut ends, mut unread) = (Ends::default(), file.len()? > 0);
        for place in PLACES {
            let mut bytes = [0; LENGTH];
            if file.read_at(&mut bytes, place)? == LENGTH
                && let Some(noted) = decode(&bytes)
            {
                unread = false;
                for (known, noted) in ends.iter_mut().zip(noted) {
                    *known = noted.max(*known);
                }
            }
        }
        let written = AtomicUsize::default();
        let (known, ends, damage) = (ends, Mutex::new(ends), OnceLock::new());
        let synced = Synced { file, ends, written, damage, unread };
        let files = disk.list(dir)?;
        for (queue, (number, end)) in known.into_iter().enumerate().filter(|(_, (_, end))| *end > 0)
        {
            let path =
                files.iter().find(|path| LogFileId::of(path) == Some(LogFileId { queue, number }));
            let length = match path {
                Some(path) => disk.open(path, Access::Read)?.len()?,
                None => 0,
            };
            if length < end {
                let name = name(queue);
                let what =
                    format!("file {number:016}.{name} ends at {length} and was synced to {end}");
                let _ = synced.damage.set(what);
            }
        }
        Ok(synced)
    }

    /// Removes the note; for a log that begins anew.
    pub fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        match disk.remove(&dir.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Notes that so many bytes of a file are synced.
    pub fn note(&self, file: LogFileId, end: u64) -> io::Result<()> {
        let mut ends = self.ends.lock();
        match ends.get_mut(file.queue) {
            Some(known) if *known < (file.number, end) => *known = (file.number, end),
            _ => return Ok(()),
        }
        let turn = self.written.fetch_add(1, Ordering::Relaxed) % PLACES.len();
        self.file.write_at(&encode(&ends), PLACES.get(turn).copied().unwrap_or_default())
    }

    /// Refuses to cut a file below what is synced, and remembers why it would have been.
    pub fn check_cut(&self, file: LogFileId, to: u64) -> io::Result<()> {
        let (number, end) = self.ends.lock().get(file.queue).copied().unwrap_or_default();
        if (file.number, to) >= (number, end) {
            return Ok(());
        }
        let what = format!(
            "file {:016}.{} is damaged at offset {to}, though it was synced beyond that",
            file.number,
            name(file.queue)
        );
        let _ = self.damage.set(what.clone());
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Whether there was a note that cannot be read: the log may have been cut below what was synced.
    pub fn unread(&self) -> bool {
        self.unread
    }

    /// What was damaged, if anything was.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }
}

fn name(queue: usize) -> &'static str {
    QUEUES.get(queue).copied().unwrap_or_default()
}

fn encode(ends: &Ends) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH);
    for (number, end) in ends {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&end.to_le_bytes());
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; LENGTH]) -> Option<Ends> {
    let (fields, crc) = bytes.split_last_chunk::<4>()?;
    if crc32c::crc32c(fields).to_le_bytes() != *crc {
        return None;
    }
    let mut numbers =
        fields.chunks_exact(8).filter_map(|b| b.try_into().ok().map(u64::from_le_bytes));
    let mut next = || Some((numbers.next()?, numbers.next()?));
    Some([next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::RealDisk;

    fn id(name: &str) -> LogFileId {
        LogFileId::of(Path::new(name)).unwrap()
    }

    #[test]
    fn only_what_was_not_synced_may_be_cut() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["0000000000000007.raftlog", "0000000000000003.rewrite"];
        for name in names {
            let file = RealDisk.create(&dir.path().join(name)).unwrap();
            file.truncate(200).unwrap();
        }
        let open = || Synced::open(&RealDisk, dir.path()).unwrap();
        let synced = open();
        assert!(!synced.unread(), "there was none");
        synced.check_cut(id(names[0]), 0).unwrap();
        synced.note(id(names[0]), 100).unwrap();
        synced.note(id(names[0]), 90).unwrap();
        synced.note(id(names[1]), 20).unwrap();
        let synced = open();
        synced.check_cut(id(names[0]), 100).unwrap();
        synced.check_cut(id("0000000000000008.raftlog"), 0).unwrap();
        assert_eq!(synced.damage(), None);
        assert!(synced.check_cut(id(names[0]), 99).is_err());
        assert!(synced.damage().unwrap().contains("offset 99"));
        let file = RealDisk.open(&dir.path().join(names[0]), Access::Write).unwrap();
        file.truncate(99).unwrap();
        assert!(open().damage().unwrap().contains("ends at 99"), "cut from outside");
        file.truncate(200).unwrap();
        let synced = open();
        assert!(
            synced.check_cut(id("0000000000000006.raftlog"), 1_000).is_err(),
            "an older file is synced whole"
        );
        RealDisk.remove(&dir.path().join(names[1])).unwrap();
        assert!(open().damage().unwrap().contains("0003.rewrite ends at 0"));
        // One copy is enough; two that are damaged claim nothing.
        let note = RealDisk.open(&dir.path().join(NAME), Access::Write).unwrap();
        note.write_at(b"?", PLACES[0] + 3).unwrap();
        assert!(open().check_cut(id(names[0]), 0).is_err());
        note.write_at(b"?", PLACES[1] + 3).unwrap();
        assert!(open().unread());
        open().check_cut(id(names[0]), 0).unwrap();
    }

    #[test]
    fn other_files_are_none_of_the_log() {
        for name in ["identity", "SYNCED", "7.raftlog.damaged", "x.raftlog", "raftlog"] {
            assert_eq!(LogFileId::of(Path::new(name)), None, "{name}");
        }
    }
}
