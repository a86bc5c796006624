//! Mends fjall's journals before fjall opens them.
//!
//! A power cut may leave the newest journal's tail half written. fjall drops an unfinished batch by
//! itself but refuses to open a store over a finished one with a wrong checksum; here the tail is
//! cut at the first bad batch instead, Raft's log having the rest. A bad batch is *damage*, not a
//! torn tail, if it was synced: tables may then hold later batches, without their predecessors. So
//! that the two can be distinguished, a [`Mark`] of how far the journal is synced is written before
//! any table is. Damage is reported, never cut away, so it stays reported at every later opening.
//! This never changes a good batch.
//!
//! Layout of fjall 3.1 (`journal/entry.rs`), little-endian: a batch is Start (tag 1, count 4,
//! sequence number 8), `count` entries, End (tag 3, xxh3 of the entries 8, `FJL\x03`); an entry is
//! Item (tag 2, kind 1, compression 1, keyspace 8, key length 2, value length 4, stored length 4,
//! key, value) or Clear (tag 4, keyspace 8). A journal is created 64 MiB long, full of zeros.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Access, Disk, DiskFile, Format, atomic_write, read_whole};
use types::{Error, Result};
use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";

const START_LENGTH: u64 = 13;
const ITEM_HEADER: u64 = 21;
const CLEAR_LENGTH: u64 = 9;
const END_LENGTH: u64 = 13;

/// How much is read at a time.
const WINDOW: usize = 256 << 10;
/// How many zeros are skipped at a time.
const STRIDE: usize = WINDOW / 4;
static ZEROS: [u8; STRIDE] = [0; STRIDE];

const MARK_FORMAT: Format = Format::new(*b"ISOBRMRK", 1);
pub(crate) const MARK_FILE: &str = "SYNCED";

/// How far the journals are known to be synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the journal that ends with `sequence` or holds it. Once fjall has deleted it, all
    /// of it is in tables and there is nothing left to check.
    journal: u64,
    /// Sequence number of the last synced batch.
    sequence: u64,
}

impl Mark {
    /// Records that the journals are synced up to and with a batch. No write may run meanwhile.
    pub(crate) fn store(
        disk: &dyn Disk,
        store: &Path,
        database: &Path,
        sequence: u64,
    ) -> Result<()> {
        for (journal, path) in journals(disk, database)?.into_iter().rev() {
            let mut first = [0];
            // One that was begun since has no batch yet.
            if disk.open(&path, Access::Read)?.read_at(&mut first, 0)? == 1 && first == [START] {
                let bytes = [journal.to_le_bytes(), sequence.to_le_bytes()].concat();
                return atomic_write(disk, &store.join(MARK_FILE), MARK_FORMAT, &bytes);
            }
        }
        Ok(())
    }

    fn load(disk: &dyn Disk, store: &Path) -> Result<Option<Mark>> {
        let path = store.join(MARK_FILE);
        let Some(bytes) = read_whole(disk, &path, MARK_FORMAT)? else { return Ok(None) };
        let number =
            |at| bytes.get(at..at + 8).and_then(|b| Some(u64::from_le_bytes(b.try_into().ok()?)));
        match (number(0), number(8), bytes.len()) {
            (Some(journal), Some(sequence), 16) => Ok(Some(Mark { journal, sequence })),
            _ => Err(Error::Corrupt(format!("{}: not a mark; {REBUILD}", path.display()))),
        }
    }
}

const REBUILD: &str = "remove this node's data directory and let its replicas be sent again";

/// fjall's journals, oldest first.
fn journals(disk: &dyn Disk, database: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found: Vec<(u64, PathBuf)> = disk
        .list(database)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .collect();
    found.sort();
    Ok(found)
}

/// Cuts the torn tail of the newest journal in `database`, whose mark is in `store`.
///
/// # Errors
///
/// `Corrupt` if a batch that was synced is bad or missing, `Io`.
pub(crate) fn mend(disk: &dyn Disk, store: &Path, database: &Path) -> Result<()> {
    let mark = Mark::load(disk, store)?;
    let journals = journals(disk, database)?;
    let newest = journals.last().map(|(journal, _)| *journal);
    let mut last = None;
    for (journal, path) in journals {
        let scan = Scan::run(disk, &path, last)?;
        last = scan.last;
        let synced = newest != Some(journal) && !scan.clean
            || mark.is_some_and(|mark| mark.journal == journal && last < Some(mark.sequence));
        if synced {
            return Err(Error::Corrupt(format!(
                "{}: damaged at offset {} though it was synced beyond that; {REBUILD}",
                path.display(),
                scan.good
            )));
        }
        if !scan.clean {
            tracing::warn!(journal = %path.display(), offset = scan.good, "cutting a torn tail");
            let file = disk.open(&path, Access::Write)?;
            file.truncate(scan.good)?;
            file.sync()?;
        }
    }
    Ok(())
}

/// What is in one journal.
struct Scan {
    /// End of the last batch of the good prefix.
    good: u64,
    /// Sequence number of that batch, or of the last one of the journals before.
    last: Option<u64>,
    /// Whether only zeros follow.
    clean: bool,
}

impl Scan {
    /// Follows the batches of a journal; `last` is the last number of the journals before.
    fn run(disk: &dyn Disk, path: &Path, last: Option<u64>) -> Result<Scan> {
        let file = disk.open(path, Access::Read)?;
        let length = file.len()?;
        let mut bytes = Window { file, length, at: 0, buffer: Vec::new() };
        let mut before = (0, last);
        let mut here = before;
        while let Some((end, number)) = batch(&mut bytes, here.0)? {
            // No checksum covers a batch's number, but numbers ascend: this one's is wrong, or,
            // if it would fit in the place of the one before it, that one's.
            if here.1.is_some_and(|last| number <= last) {
                let fits = before.1.is_none_or(|earlier| number > earlier);
                let (good, last) = if fits { before } else { here };
                return Ok(Scan { good, last, clean: false });
            }
            before = here;
            here = (end, Some(number));
        }
        let (good, last) = here;
        Ok(Scan { good, last, clean: bytes.next_nonzero(good)? >= length })
    }
}

/// Count and sequence number of the batch that starts at an offset.
fn start(bytes: &mut Window, at: u64) -> Result<Option<(u32, u64)>> {
    let Some([START, fields @ ..]) = bytes.get(at, START_LENGTH)? else { return Ok(None) };
    let count = fields.first_chunk().copied().map(u32::from_le_bytes);
    let sequence = fields.last_chunk().copied().map(u64::from_le_bytes);
    Ok(count.zip(sequence).filter(|(count, _)| *count > 0))
}

/// End and sequence number of the whole and sound batch at an offset.
fn batch(bytes: &mut Window, at: u64) -> Result<Option<(u64, u64)>> {
    let Some((count, sequence)) = start(bytes, at)? else { return Ok(None) };
    let mut at = at + START_LENGTH;
    let mut hash = Xxh3::new();
    for _ in 0..count {
        let Some(end) = entry(bytes, at, &mut hash)? else { return Ok(None) };
        at = end;
    }
    let Some([END, fields @ ..]) = bytes.get(at, END_LENGTH)? else { return Ok(None) };
    let sound = fields.first_chunk() == Some(&hash.digest().to_le_bytes())
        && fields.last_chunk() == Some(&TRAILER);
    Ok(sound.then_some((at + END_LENGTH, sequence)))
}

/// Adds the entry at an offset to the checksum and returns its end.
fn entry(bytes: &mut Window, at: u64, hash: &mut Xxh3) -> Result<Option<u64>> {
    let header = match bytes.get(at, 1)? {
        Some([ITEM]) => ITEM_HEADER,
        Some([CLEAR]) => CLEAR_LENGTH,
        _ => return Ok(None),
    };
    let Some(fields) = bytes.get(at, header)? else { return Ok(None) };
    hash.update(fields);
    let end = at + header;
    if header == CLEAR_LENGTH {
        return Ok(Some(end));
    }
    let key = fields.get(11..13).and_then(|b| b.first_chunk().copied()).map(u16::from_le_bytes);
    let value = fields.last_chunk().copied().map(u32::from_le_bytes);
    let Some((key, value)) = key.zip(value) else { return Ok(None) };
    let end_of_entry = end + u64::from(key) + u64::from(value);
    if end_of_entry > bytes.length {
        return Ok(None);
    }
    let mut at = end;
    while at < end_of_entry {
        let step = (end_of_entry - at).min(WINDOW as u64);
        let Some(piece) = bytes.get(at, step)? else { return Ok(None) };
        hash.update(piece);
        at += step;
    }
    Ok(Some(end_of_entry))
}

/// A read-ahead window over a file.
struct Window {
    file: Arc<dyn DiskFile>,
    length: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl Window {
    /// Exactly `length` bytes, which must be at most [`WINDOW`]; none beyond the end of the file.
    fn get(&mut self, at: u64, length: u64) -> Result<Option<&[u8]>> {
        let end = at + length;
        if end > self.length {
            return Ok(None);
        }
        if at < self.at || end > self.at + self.buffer.len() as u64 {
            self.buffer.resize(WINDOW, 0);
            let read = self.file.read_at(&mut self.buffer, at)?;
            self.buffer.truncate(read);
            self.at = at;
        }
        let from = (at - self.at) as usize;
        Ok(self.buffer.get(from..from + length as usize))
    }

    /// Offset of the first byte at or after `at` that is not zero, or the file's length.
    fn next_nonzero(&mut self, mut at: u64) -> Result<u64> {
        while at < self.length {
            let step = (self.length - at).min(STRIDE as u64);
            let Some(piece) = self.get(at, step)? else { break };
            // Whole pieces are compared first: this walks over megabytes of zeros.
            if Some(piece) != ZEROS.get(..piece.len()) {
                let zeros = piece.iter().take_while(|byte| **byte == 0).count();
                return Ok(at + zeros as u64);
            }
            at += step;
        }
        Ok(self.length)
    }
}
