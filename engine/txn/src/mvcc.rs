//! Versions: what a reader sees at a timestamp.
//!
//! Pure functions of an unchanging view of the store. Locks are the caller's to check *before* it
//! takes the view: a lock that is gone has left its version in the store by then.

use kv::{Keyspace, KvRead};
use types::{Result, Timestamp};

use crate::layout::{self, DataRecord, Fate, HistRecord};

/// Keys that one page of a scan looks at, at most: dead keys cost time without returning pairs.
const PAGE_KEYS: usize = 65_536;

/// A page of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// First key, inclusive.
    pub start: &'a [u8],
    /// Last key, exclusive.
    pub end: &'a [u8],
    /// From the end downwards.
    pub reverse: bool,
    /// Most pairs.
    pub limit: usize,
    /// Most bytes, about.
    pub bytes: usize,
}

/// Pairs, and where the next page starts (ascending) or ends (descending), if there is one.
pub type PageRead = (Vec<kv::Pair>, Option<Vec<u8>>);

/// The record of a key.
pub fn data(kv: &dyn KvRead, key: &[u8]) -> Result<DataRecord> {
    kv.get(Keyspace::Data, key)?.map_or_else(|| Ok(DataRecord::default()), DataRecord::decode)
}

/// The row of a key at a timestamp.
pub fn get(kv: &dyn KvRead, key: &[u8], ts: Timestamp) -> Result<Option<Vec<u8>>> {
    let newest = data(kv, key)?;
    visible(kv, key, newest, ts)
}

/// The live rows of a range at a timestamp.
pub fn scan(kv: &dyn KvRead, page: Page<'_>, ts: Timestamp) -> Result<PageRead> {
    let (start, end) = (page.start, page.end);
    let records = if page.reverse {
        kv.scan_reverse(Keyspace::Data, start, end)
    } else {
        kv.scan(Keyspace::Data, start, end)
    };
    let (mut pairs, mut bytes) = (Vec::new(), 0);
    for (seen, record) in records.enumerate() {
        let (key, value) = record?;
        if let Some(row) = visible(kv, &key, DataRecord::decode(value)?, ts)? {
            bytes += key.len() + row.len();
            pairs.push((key.clone(), row));
        }
        if pairs.len() >= page.limit || bytes >= page.bytes || seen + 1 >= PAGE_KEYS {
            return Ok((pairs, Some(resume(key, page.reverse))));
        }
    }
    Ok((pairs, None))
}

/// The row among a key's versions that a reader at `ts` sees.
fn visible(
    kv: &dyn KvRead,
    key: &[u8],
    newest: DataRecord,
    ts: Timestamp,
) -> Result<Option<Vec<u8>>> {
    if newest.commit_ts <= ts {
        return Ok(newest.row);
    }
    let (from, to) = (layout::hist_key(key, ts), layout::hist_end(key));
    match kv.scan(Keyspace::Hist, &from, &to).next() {
        Some(pair) => Ok(HistRecord::decode(pair?.1)?.row),
        None => Ok(None),
    }
}

/// How a transaction ended at a key, if it did.
///
/// Primaries, held keys and rollbacks have a record of their fate. A secondary's commit shows in
/// the version itself, which is newer than the transaction's start.
pub fn fate(kv: &dyn KvRead, key: &[u8], start_ts: Timestamp) -> Result<Option<Fate>> {
    fate_among(kv, key, &data(kv, key)?, start_ts)
}

/// As [`fate`], with the key's record at hand.
pub fn fate_among(
    kv: &dyn KvRead,
    key: &[u8],
    newest: &DataRecord,
    start_ts: Timestamp,
) -> Result<Option<Fate>> {
    if let Some(value) = kv.get(Keyspace::Fate, &layout::fate_key(key, start_ts))? {
        return Ok(Some(Fate::decode(&value)?));
    }
    if newest.commit_ts <= start_ts {
        return Ok(None);
    }
    if newest.start_ts == start_ts {
        return Ok(Some(Fate::Committed(newest.commit_ts)));
    }
    let (from, to) = (layout::hist_key(key, Timestamp::MAX), layout::hist_key(key, start_ts));
    for pair in kv.scan(Keyspace::Hist, &from, &to) {
        let (stored, value) = pair?;
        if HistRecord::decode(value)?.start_ts == start_ts {
            return Ok(Some(Fate::Committed(layout::split_hist_key(&stored)?.1)));
        }
    }
    Ok(None)
}

fn resume(mut last: Vec<u8>, reverse: bool) -> Vec<u8> {
    if !reverse {
        last.push(0);
    }
    last
}
