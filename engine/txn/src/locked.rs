//! What a transaction knows of the rows that it has locked: their newest versions. While a row is
//! locked it is as it was seen, so a statement that writes asks nobody twice.
//!
//! Pure: asks nobody. Should a lock have been lost with its leader, what is known here may be old;
//! the first phase finds that out, and a transaction without one confirms its locks instead.

use std::collections::BTreeMap;

use types::{Error, Result, Timestamp};

use crate::api::{Current, Expect, Mode};

/// Bytes of rows that are kept, about.
const ROW_BYTES: usize = 4 << 20;

/// A locked row.
struct Row {
    /// The newest version that was seen of it, or later. Never raised: what was seen at first may
    /// be what a write was made of.
    seen: Timestamp,
    /// When the key was last written; zero if never.
    newest: Timestamp,
    /// Whether it had a row.
    live: bool,
    /// How it is locked.
    mode: Mode,
    /// The row, or none if there is none; unknown if it was read elsewhere.
    row: Option<Option<Vec<u8>>>,
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

    /// The locked keys, and how they are locked.
    pub fn keys(&self) -> impl Iterator<Item = (&Vec<u8>, Mode)> {
        self.rows.iter().map(|(key, row)| (key, row.mode))
    }

    /// How a key is locked, if it is.
    pub fn mode(&self, key: &[u8]) -> Option<Mode> {
        self.rows.get(key).map(|row| row.mode)
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

    /// A key that is locked so as it was seen, if it is as expected: that is what may be returned without asking.
    /// `own` is what the transaction has made of it: a row, or none.
    pub fn recall(
        &self,
        key: &[u8],
        own: Option<&Option<Vec<u8>>>,
        (mode, expect): (Mode, Expect),
    ) -> Option<Current> {
        let known = self.rows.get(key).filter(|known| known.mode >= mode)?;
        let row = own.or(known.row.as_ref())?;
        if !expect.is_met(row.is_some()) {
            return None;
        }
        let (newest, floor, row) = (known.newest, known.seen, row.clone());
        Some(Current { key: key.to_vec(), newest, floor, live: row.is_some(), row })
    }

    /// Takes note of a key that was given, as it was seen then or had been read at a timestamp; a
    /// later version than that is reported, and the key not noted.
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
        (mode, expect): (Mode, Expect),
    ) -> Result<Option<Timestamp>> {
        let sure = read_at.is_some() || !expect.is_met(one.live);
        let kept = read_at.is_none() && !(sure && self.is_full());
        let row = kept.then(|| one.row.clone());
        if let Some(known) = self.rows.get_mut(&one.key) {
            if mode > known.mode {
                // It was shared until now, by others as well, and has been confirmed since.
                (known.mode, known.seen) = (mode, known.seen.max(one.newest));
            }
            if one.newest > known.seen {
                let (key, committed) = (one.key.clone(), one.newest);
                return Err(Error::Conflict { key, start, committed });
            }
            if known.row.is_none() {
                self.row_bytes += weigh(&row);
                known.row = row;
            }
            return Ok(None);
        }
        if read_at.is_some_and(|read_at| one.newest > read_at) {
            return Ok(Some(one.newest));
        }
        self.key_bytes += one.key.len();
        self.row_bytes += weigh(&row);
        let seen = read_at.unwrap_or(one.newest.max(one.floor));
        let row = Row { seen, newest: one.newest, live: one.live, mode, row };
        self.rows.insert(one.key.clone(), row);
        Ok(None)
    }

    /// Whether a locked key is still as it was seen, by what its leader says with a quorum behind
    /// it. A row that was deleted may be collected since, and leave no version at all.
    ///
    /// # Errors
    ///
    /// `Conflict` if another transaction has changed it: the lock was lost.
    pub fn confirm(&self, start: Timestamp, now: &Current) -> Result<()> {
        let Some(known) = self.rows.get(&now.key) else { return Ok(()) };
        if now.newest <= known.seen && now.live == known.live {
            return Ok(());
        }
        let committed = now.newest.max(now.floor);
        Err(Error::Conflict { key: now.key.clone(), start, committed })
    }
}

fn weigh(row: &Option<Option<Vec<u8>>>) -> usize {
    row.as_ref().and_then(Option::as_ref).map_or(0, Vec::len)
}
