//! Mends fjall's journals before fjall opens them.
//!
//! A power cut may leave the newest journal's tail half written. fjall drops an unfinished batch by
//! itself but refuses to open a store over a finished one with a wrong checksum; here the tail is
//! cut at the first bad batch instead, Raft's log having the rest. A bad batch is *damage*, not a
//! torn tail, if a keyspace's tables already hold later batches: they would be there without their
//! predecessors. Damage is reported, never cut away unseen, and it stays reported at every later
//! opening. This never changes a good batch.
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

/// Numbers further above the last good batch's are taken for garbage.
const PLAUSIBLE_GAP: u64 = 1 << 32;

/// How much is read at a time.
const WINDOW: usize = 256 << 10;
/// How many zeros are skipped at a time.
const STRIDE: usize = WINDOW / 4;
static ZEROS: [u8; STRIDE] = [0; STRIDE];

/// Records that a journal was cut, until the opened store has shown that nothing synced was lost.
const CUT_FORMAT: Format = Format::new(*b"ISOBRCUT", 1);
const CUT_FILE: &str = "CUT";

/// Cuts the torn tail of the newest journal in `database`. What it saw of the tail is kept in
/// `store` for [`check_cut`].
pub(crate) fn mend(disk: &dyn Disk, store: &Path, database: &Path) -> Result<()> {
    let mut journals: Vec<(u64, PathBuf)> = disk
        .list(database)?
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "jnl"))
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .collect();
    journals.sort();
    let Some((_, newest)) = journals.pop() else { return Ok(()) };
    let mut last = None;
    for (_, sealed) in journals {
        let scan = Scan::run(disk, &sealed, last)?;
        last = scan.last;
        if !scan.clean {
            return Err(Error::Corrupt(format!(
                "{}: damaged at offset {} though it was synced when it was sealed; {REBUILD}",
                sealed.display(),
                scan.good
            )));
        }
    }
    let scan = Scan::run(disk, &newest, last)?;
    if scan.clean {
        return Ok(());
    }
    tracing::warn!(journal = %newest.display(), offset = scan.good, "cutting a torn tail");
    if let Some(lost) = scan.lost {
        let earlier = read_cut(disk, store)?.unwrap_or(u64::MAX);
        atomic_write(disk, &store.join(CUT_FILE), CUT_FORMAT, &lost.min(earlier).to_le_bytes())?;
    }
    let file = disk.open(&newest, Access::Write)?;
    file.truncate(scan.good)?;
    file.sync()?;
    Ok(())
}

/// Compares the oldest batch that was cut away with the newest one in any keyspace's tables, now
/// that the store is open: tables are written only of synced batches.
pub(crate) fn check_cut(disk: &dyn Disk, store: &Path, in_tables: Option<u64>) -> Result<()> {
    let Some(lost) = read_cut(disk, store)? else { return Ok(()) };
    if in_tables.is_some_and(|newest| newest >= lost) {
        return Err(Error::Corrupt(format!(
            "{}: the journal was damaged at batch {lost}, which had been synced; {REBUILD}",
            store.display()
        )));
    }
    let path = store.join(CUT_FILE);
    disk.remove(&path)?;
    disk.sync_dir(store)?;
    Ok(())
}

const REBUILD: &str = "remove this node's data directory and let its replicas be sent again";

fn read_cut(disk: &dyn Disk, store: &Path) -> Result<Option<u64>> {
    let content = read_whole(disk, &store.join(CUT_FILE), CUT_FORMAT)?;
    Ok(content.and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes))
}

/// What is in one journal.
struct Scan {
    /// End of the last batch of the good prefix.
    good: u64,
    /// Sequence number of that batch, or of the last one of the journals before.
    last: Option<u64>,
    /// Whether only zeros follow.
    clean: bool,
    /// Sequence number of the first recognisable batch after the good ones.
    lost: Option<u64>,
}

impl Scan {
    fn run(disk: &dyn Disk, path: &Path, mut last: Option<u64>) -> Result<Scan> {
        let file = disk.open(path, Access::Read)?;
        let length = file.len()?;
        let mut bytes = Window { file, length, at: 0, buffer: Vec::new() };
        let mut good = 0;
        // No checksum covers a batch's number, but numbers ascend.
        while let Some((end, number)) =
            batch(&mut bytes, good)?.filter(|(_, number)| last.is_none_or(|last| *number > last))
        {
            good = end;
            last = Some(number);
        }
        if bytes.next_nonzero(good)? >= length {
            return Ok(Scan { good, last, clean: true, lost: None });
        }
        // The bad batch's own start may be readable; else any whole batch behind it tells as much.
        let least = last.map_or(0, |last| last + 1);
        let plausible = |number: &u64| (least..least + PLAUSIBLE_GAP).contains(number);
        let mut lost = start(&mut bytes, good)?.map(|(_, number)| number).filter(plausible);
        let mut at = good + 1;
        while lost.is_none() && at + START_LENGTH + END_LENGTH <= length {
            at = bytes.next_nonzero(at)?;
            lost = batch(&mut bytes, at)?.map(|(_, number)| number);
            at += 1;
        }
        Ok(Scan { good, last, clean: false, lost })
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
