//! How versions, fates, locks and region records lie in the key-value store.
//!
//! ```text
//! Data  key                     1 | kind | commit_ts | start_ts | held_ts | shared_ts, if the kind says so | row
//! Hist  escape(key) !commit_ts  1 | kind | start_ts | row
//! Fate  escape(key) start_ts    1 | commit_ts, zero for a rollback
//! Lock  key                     1 | postcard Lock | postcard AsyncCommit, if it is of one
//! Meta  row/region/<id>         1 | postcard RegionRecord
//!       row/applied/<id>        1 | postcard AppliedRecord
//!       row/schema/<id><table><version>  1 | postcard Table
//! ```
//!
//! Every value opens with a format byte. Keys that get a suffix are escaped (`00` becomes `00 FF`,
//! the end is `00 01`), so that the versions of a key never lie among those of a longer one. This
//! file only encodes: it reads no store and decides nothing.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use types::{Error, Region, RegionId, RegionKind, Result, Table, Timestamp, key, version};

use crate::api::Mode;
use crate::fact::{Floors, WriteKind};

const FORMAT: u8 = 1;
const TOMBSTONE: u8 = 0;
const ROW: u8 = 1;
/// Added to the kind of a record with a `shared_ts`.
const SHARED: u8 = 2;
const DATA_HEADER: usize = 26;
const HIST_HEADER: usize = 10;

/// What the store holds for a key: its newest version and when it was last held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataRecord {
    /// When the newest version became visible; zero if the key was only ever held.
    pub commit_ts: Timestamp,
    /// Transaction that wrote it; zero for imports.
    pub start_ts: Timestamp,
    /// Greatest commit timestamp of a transaction that held the key without changing it. Writers
    /// that began before it conflict, as with a version.
    pub held_ts: Timestamp,
    /// The same of transactions that held it beside others, with which these do not conflict.
    pub shared_ts: Timestamp,
    /// The row, or none for a tombstone.
    pub row: Option<Vec<u8>>,
}

impl DataRecord {
    /// When it was last written or held by a transaction that keeps another one from holding it so.
    pub fn newest(&self, mode: Mode) -> Timestamp {
        let alone = self.commit_ts.max(self.held_ts);
        if mode.shares() { alone } else { alone.max(self.shared_ts) }
    }

    /// Commit timestamp of the live version, if there is one.
    pub fn live(&self) -> Option<Timestamp> {
        self.row.as_ref().map(|_| self.commit_ts)
    }

    /// `Put` or `Delete`.
    pub fn kind(&self) -> WriteKind {
        if self.row.is_some() { WriteKind::Put } else { WriteKind::Delete }
    }

    /// As a value of [`kv::Keyspace::Data`].
    pub fn encode(&self) -> Vec<u8> {
        let row = self.row.as_deref();
        let mut out = Vec::with_capacity(DATA_HEADER + 8 + row.map_or(0, <[u8]>::len));
        let shared = (self.shared_ts > Timestamp::ZERO).then_some(self.shared_ts);
        let kind = if row.is_some() { ROW } else { TOMBSTONE };
        out.extend_from_slice(&[FORMAT, kind | if shared.is_some() { SHARED } else { 0 }]);
        for ts in [self.commit_ts, self.start_ts, self.held_ts].into_iter().chain(shared) {
            out.extend_from_slice(&ts.0.to_be_bytes());
        }
        out.extend_from_slice(row.unwrap_or_default());
        out
    }

    /// From a value of [`kv::Keyspace::Data`].
    pub fn decode(value: Vec<u8>) -> Result<Self> {
        let mut input = value.as_slice();
        let kind = header(&mut input, "version")?;
        let (commit_ts, start_ts) = (take_ts(&mut input)?, take_ts(&mut input)?);
        let held_ts = take_ts(&mut input)?;
        let (shared_ts, header) = match kind & SHARED {
            0 => (Timestamp::ZERO, DATA_HEADER),
            _ => (take_ts(&mut input)?, DATA_HEADER + 8),
        };
        let row = row(kind & !SHARED, value, header)?;
        Ok(DataRecord { commit_ts, start_ts, held_ts, shared_ts, row })
    }
}

/// An older version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistRecord {
    /// Transaction that wrote it; zero for imports.
    pub start_ts: Timestamp,
    /// The row, or none for a tombstone.
    pub row: Option<Vec<u8>>,
}

impl HistRecord {
    /// `Put` or `Delete`.
    pub fn kind(&self) -> WriteKind {
        if self.row.is_some() { WriteKind::Put } else { WriteKind::Delete }
    }

    /// As a value of [`kv::Keyspace::Hist`].
    pub fn encode(&self) -> Vec<u8> {
        let row = self.row.as_deref();
        let mut out = Vec::with_capacity(HIST_HEADER + row.map_or(0, <[u8]>::len));
        out.extend_from_slice(&[FORMAT, if row.is_some() { ROW } else { TOMBSTONE }]);
        out.extend_from_slice(&self.start_ts.0.to_be_bytes());
        out.extend_from_slice(row.unwrap_or_default());
        out
    }

    /// From a value of [`kv::Keyspace::Hist`].
    pub fn decode(value: Vec<u8>) -> Result<Self> {
        let mut input = value.as_slice();
        let kind = header(&mut input, "older version")?;
        let start_ts = take_ts(&mut input)?;
        Ok(HistRecord { start_ts, row: row(kind, value, HIST_HEADER)? })
    }
}

/// How a transaction ended at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It committed then.
    Committed(Timestamp),
    /// It was rolled back.
    RolledBack,
}

impl Fate {
    /// Commit timestamp, or none for a rollback.
    pub fn commit_ts(self) -> Option<Timestamp> {
        match self {
            Fate::Committed(ts) => Some(ts),
            Fate::RolledBack => None,
        }
    }

    /// As a value of [`kv::Keyspace::Fate`].
    pub fn encode(self) -> Vec<u8> {
        let ts = self.commit_ts().unwrap_or(Timestamp::ZERO);
        let mut out = vec![FORMAT];
        out.extend_from_slice(&ts.0.to_be_bytes());
        out
    }

    /// From a value of [`kv::Keyspace::Fate`].
    pub fn decode(value: &[u8]) -> Result<Self> {
        match take_ts(&mut content(value, "fate")?)? {
            Timestamp::ZERO => Ok(Fate::RolledBack),
            ts => Ok(Fate::Committed(ts)),
        }
    }
}

/// Where a region stands on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// Descriptor.
    pub region: Region,
    /// Whether its data is whole. It is not while it waits for a snapshot or applies one.
    pub whole: bool,
}

/// How far a region's log is applied, about how much it holds, and how far back it can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedRecord {
    /// Index.
    pub index: u64,
    /// Term.
    pub term: u64,
    /// Size of live keys and rows, about.
    pub size: Size,
    /// What was collected, or is being.
    pub floors: Floors,
}

/// Live data, about: exact counts drift when a region splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Bytes of keys and rows.
    pub bytes: u64,
    /// Rows: records, or entries where the region is of one index alone.
    pub rows: u64,
}

impl Size {
    /// What one pair adds to a region.
    pub fn of(region: &Region, key: &[u8], row: &[u8]) -> Self {
        let entry = matches!(region.kind, RegionKind::Table(_)) && !key::is_record(key);
        Size { bytes: (key.len() + row.len()) as u64, rows: u64::from(!entry) }
    }

    /// With what was added, and without what went.
    pub fn changed(self, added: Self, gone: Self) -> Self {
        Size {
            bytes: (self.bytes + added.bytes).saturating_sub(gone.bytes),
            rows: (self.rows + added.rows).saturating_sub(gone.rows),
        }
    }
}

/// A record of [`kv::Keyspace::Lock`] or [`kv::Keyspace::Meta`] as bytes.
pub fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>> {
    postcard::to_extend(record, vec![FORMAT])
        .map_err(|error| Error::Invalid(format!("record cannot be encoded: {error}")))
}

/// A record of [`kv::Keyspace::Lock`] or [`kv::Keyspace::Meta`] from bytes.
pub fn decode<T: DeserializeOwned>(value: &[u8]) -> Result<T> {
    Ok(postcard::from_bytes(content(value, "record")?)?)
}

/// What a record begins with, and what follows that.
pub fn decode_front<T: DeserializeOwned>(value: &[u8]) -> Result<(T, &[u8])> {
    Ok(postcard::take_from_bytes(content(value, "record")?)?)
}

/// Memcomparable form of a key that a suffix follows.
pub fn escape(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 12);
    for byte in key {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0x00, 0x01]);
    out
}

/// Takes an escaped key apart: the key, and what follows it.
pub fn unescape(input: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let mut key = Vec::with_capacity(input.len());
    let mut rest = input;
    loop {
        match rest {
            [0x00, 0x01, tail @ ..] => return Ok((key, tail)),
            [0x00, 0xFF, tail @ ..] => {
                key.push(0);
                rest = tail;
            }
            [byte, tail @ ..] if *byte != 0 => {
                key.push(*byte);
                rest = tail;
            }
            _ => return Err(bad("escaped key")),
        }
    }
}

/// Smallest escaped form of any key ≥ `key`: a bound for ranges of Hist and Fate.
pub fn escaped_bound(key: &[u8]) -> Vec<u8> {
    let mut bound = escape(key);
    bound.truncate(bound.len() - 2);
    bound
}

/// Key in [`kv::Keyspace::Hist`]. Newer versions come first.
pub fn hist_key(key: &[u8], commit_ts: Timestamp) -> Vec<u8> {
    let mut out = escape(key);
    out.extend_from_slice(&(!commit_ts.0).to_be_bytes());
    out
}

/// First key behind all older versions of a key.
pub fn hist_end(key: &[u8]) -> Vec<u8> {
    let mut out = escape(key);
    if let Some(last) = out.last_mut() {
        *last += 1;
    }
    out
}

/// Key and commit timestamp of a key in [`kv::Keyspace::Hist`].
pub fn split_hist_key(stored: &[u8]) -> Result<(Vec<u8>, Timestamp)> {
    let (key, mut tail) = unescape(stored)?;
    Ok((key, Timestamp(!take_ts(&mut tail)?.0)))
}

/// Key in [`kv::Keyspace::Fate`].
pub fn fate_key(key: &[u8], start_ts: Timestamp) -> Vec<u8> {
    let mut out = escape(key);
    out.extend_from_slice(&start_ts.0.to_be_bytes());
    out
}

/// Key and start timestamp of a key in [`kv::Keyspace::Fate`].
pub fn split_fate_key(stored: &[u8]) -> Result<(Vec<u8>, Timestamp)> {
    let (key, mut tail) = unescape(stored)?;
    Ok((key, take_ts(&mut tail)?))
}

/// Prefix of every region's descriptor in [`kv::Keyspace::Meta`].
pub const REGIONS: &[u8] = b"row/region/";

/// Key of a region's descriptor in [`kv::Keyspace::Meta`].
pub fn region_key(region: RegionId) -> Vec<u8> {
    numbered(REGIONS, region)
}

/// Key of a region's applied position in [`kv::Keyspace::Meta`].
pub fn applied_key(region: RegionId) -> Vec<u8> {
    numbered(b"row/applied/", region)
}

/// Prefix of a region's schemas in [`kv::Keyspace::Meta`].
pub fn schemas_prefix(region: RegionId) -> Vec<u8> {
    numbered(b"row/schema/", region)
}

/// Key of one of a region's schemas in [`kv::Keyspace::Meta`].
pub fn schema_key(region: RegionId, table: &Table) -> Vec<u8> {
    let mut out = schemas_prefix(region);
    out.extend_from_slice(&table.id.to_be_bytes());
    out.extend_from_slice(&table.version.to_be_bytes());
    out
}

fn numbered(prefix: &[u8], region: RegionId) -> Vec<u8> {
    let mut out = prefix.to_vec();
    out.extend_from_slice(&region.to_be_bytes());
    out
}

/// What stands behind the format byte.
fn content<'a>(value: &'a [u8], what: &str) -> Result<&'a [u8]> {
    match value.split_first() {
        Some((&FORMAT, rest)) => Ok(rest),
        Some((format, _)) => Err(version::unknown_format(what, *format, FORMAT)),
        None => Err(bad(what)),
    }
}

fn header(input: &mut &[u8], what: &str) -> Result<u8> {
    match content(input, what)? {
        [kind, rest @ ..] if kind & !SHARED <= ROW => {
            *input = rest;
            Ok(*kind)
        }
        _ => Err(bad(what)),
    }
}

fn row(kind: u8, mut value: Vec<u8>, header: usize) -> Result<Option<Vec<u8>>> {
    match kind {
        ROW => Ok(Some(value.split_off(header))),
        TOMBSTONE if value.len() == header => Ok(None),
        _ => Err(bad("tombstone")),
    }
}

fn take_ts(input: &mut &[u8]) -> Result<Timestamp> {
    let (head, rest) = input.split_first_chunk::<8>().ok_or_else(|| bad("timestamp"))?;
    *input = rest;
    Ok(Timestamp(u64::from_be_bytes(*head)))
}

fn bad(what: &str) -> Error {
    Error::Corrupt(format!("malformed {what} in the row store"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_key_never_lie_among_those_of_a_longer_one() {
        let keys: [&[u8]; 5] = [b"a", b"a\0", b"a\0\x01", b"ab", b"b"];
        for pair in keys.windows(2) {
            for (low, high) in [(Timestamp::ZERO, Timestamp::MAX), (Timestamp::MAX, Timestamp(7))] {
                assert!(hist_key(pair[0], low) < hist_key(pair[1], high));
                assert!(fate_key(pair[0], low) < fate_key(pair[1], high));
            }
            assert!(hist_end(pair[0]) > hist_key(pair[0], Timestamp::ZERO));
            assert!(hist_end(pair[0]) <= hist_key(pair[1], Timestamp::MAX));
            assert!(escaped_bound(pair[1]) > hist_key(pair[0], Timestamp::ZERO));
            assert!(escaped_bound(pair[1]) <= hist_key(pair[1], Timestamp::MAX));
        }
        for key in keys {
            let (found, ts) = split_hist_key(&hist_key(key, Timestamp(9))).unwrap();
            assert_eq!((found.as_slice(), ts), (key, Timestamp(9)));
        }
    }

    #[test]
    fn records_survive_the_round_trip_and_damage_is_an_error() {
        for row in [None, Some(vec![]), Some(vec![1, 2, 3])] {
            for (shared_ts, header) in [(0, DATA_HEADER), (7, DATA_HEADER + 8)] {
                let data = DataRecord {
                    commit_ts: Timestamp(3),
                    start_ts: Timestamp(2),
                    held_ts: Timestamp(9),
                    shared_ts: Timestamp(shared_ts),
                    row: row.clone(),
                };
                assert_eq!(DataRecord::decode(data.encode()).unwrap(), data);
                for cut in 0..header {
                    assert!(DataRecord::decode(data.encode()[..cut].to_vec()).is_err());
                }
            }
            let hist = HistRecord { start_ts: Timestamp(2), row };
            assert_eq!(HistRecord::decode(hist.encode()).unwrap(), hist);
        }
        assert!(DataRecord::decode(vec![9; 40]).is_err());
        assert!(Fate::decode(&[1, 2]).is_err());
    }
}
