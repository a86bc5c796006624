//! What a transaction knows of the rows that it has locked: their newest versions, and how sure that
//! is. While a row is locked it is as it was seen, so a statement that writes asks nobody twice.
//!
//! Pure: asks nobody. Should a lock have been lost with its leader, what is known here may be old;
//! the first phase finds that out, and a transaction without one verifies it.

use std::collections::BTreeMap;

use kv::Pair;
use types::{Error, Result, Timestamp};

use crate::api::{Current, Expect};

/// Bytes of rows that are kept, about.
const ROW_BYTES: usize = 4 << 20;

/// A locked row.
struct Row {
    /// The newest version that was seen of it, or later. Never raised: what was seen at first may
    /// be what a write was made of.
    seen: Timestamp,
    /// When the key was last written; zero if never.
    newest: Timestamp,
    /// The row, or none if there is none; unknown if it was read elsewhere.
    row: Option<Option<Vec<u8>>>,
    /// Whether a quorum stood behind everything that was told of it.
    sure: bool,
}

/// The rows that a transaction has locked.
#[derive(Default)]
pub(crate) struct Locked {
    rows: BTreeMap<Vec<u8>, Row>,
    key_bytes: usize,
    row_bytes: usize,
}

impl Locked {
    /// Bytes of keys.
    pub fn bytes(&self) -> usize {
        self.key_bytes
    }

    /// The locked keys.
    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.rows.keys()
    }

    /// What was seen of a key, if it is locked.
    pub fn seen(&self, key: &[u8]) -> Option<Timestamp> {
        self.rows.get(key).map(|row| row.seen)
    }

    /// The latest of what was seen.
    pub fn newest_seen(&self) -> Option<Timestamp> {
        self.rows.values().map(|row| row.seen).max()
    }

    /// Whether so many rows are kept that the next ones had better be confirmed.
    pub fn is_full(&self) -> bool {
        self.row_bytes > ROW_BYTES
    }

    /// A locked key as it was seen, if it is as expected: that is what may be told without asking.
    /// `own` is what the transaction has made of it: a row, or none.
    pub fn recall(
        &mut self,
        key: &[u8],
        own: Option<&Option<Vec<u8>>>,
        expect: Expect,
    ) -> Option<Current> {
        let known = self.rows.get_mut(key)?;
        let row = own.or(known.row.as_ref())?;
        if !expect.is_met(row.is_some()) {
            return None;
        }
        let (newest, floor, row) = (known.newest, known.seen, row.clone());
        // Its lock may have been lost meanwhile.
        known.sure &= known.row.is_none();
        Some(Current { key: key.to_vec(), newest, floor, live: row.is_some(), row })
    }

    /// Takes note of a key that was given, as it was seen then or had been read at a timestamp; a
    /// later version than that is told, and the key not noted.
    ///
    /// # Errors
    ///
    /// `Conflict` if the key is noted and has changed since: its lock was lost, and another
    /// transaction was faster.
    pub fn note(
        &mut self,
        start: Timestamp,
        one: &Current,
        read_at: Option<Timestamp>,
        expect: Expect,
    ) -> Result<Option<Timestamp>> {
        let sure = read_at.is_some() || !expect.is_met(one.live);
        let kept = read_at.is_none() && !(sure && self.is_full());
        let row = kept.then(|| one.row.clone());
        if let Some(known) = self.rows.get_mut(&one.key) {
            if one.newest > known.seen {
                let (key, committed) = (one.key.clone(), one.newest);
                return Err(Error::Conflict { key, start, committed });
            }
            if known.row.is_none() {
                self.row_bytes += weigh(&row);
                known.row = row;
            }
            known.sure &= sure;
            return Ok(None);
        }
        if read_at.is_some_and(|read_at| one.newest > read_at) {
            return Ok(Some(one.newest));
        }
        self.key_bytes += one.key.len();
        self.row_bytes += weigh(&row);
        let seen = read_at.unwrap_or(one.newest.max(one.floor));
        self.rows.insert(one.key.clone(), Row { seen, newest: one.newest, row, sure });
        Ok(None)
    }

    /// Keys of which more was told than a quorum stood behind.
    pub fn unsure(&self) -> Vec<Vec<u8>> {
        let unsure = self.rows.iter().filter(|(_, row)| !row.sure);
        unsure.map(|(key, _)| key.clone()).collect()
    }

    /// Whether those keys are in a strong read at `ts` what they were told to be.
    ///
    /// # Errors
    ///
    /// `Conflict` that names a key which is another.
    pub fn verify(&self, start: Timestamp, ts: Timestamp, found: &[Pair]) -> Result<()> {
        for (key, known) in self.rows.iter().filter(|(_, row)| !row.sure) {
            let now = found.iter().find(|(other, _)| other == key).map(|(_, row)| row);
            if now != known.row.as_ref().and_then(Option::as_ref) {
                return Err(Error::Conflict { key: key.clone(), start, committed: ts });
            }
        }
        Ok(())
    }
}

fn weigh(row: &Option<Option<Vec<u8>>>) -> usize {
    row.as_ref().and_then(Option::as_ref).map_or(0, Vec::len)
}
