//! Ends of row versions: which rows of a delta or segment died, and when.
//!
//! A list only grows; readers pin a length of it. It never says why a row died, and a row's own
//! bytes never change when it does.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use types::Timestamp;

/// The end of one row version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Position of the row in its delta or segment.
    pub row: u32,
    /// First timestamp at which the version is not seen any more.
    pub end_ts: Timestamp,
}

/// The deaths of one delta or of one tablet's part of a segment, in the order of the log.
#[derive(Debug, Default)]
pub struct DeathLog {
    entries: RwLock<Vec<Death>>,
}

impl DeathLog {
    /// A list that begins with known deaths.
    pub fn new(entries: Vec<Death>) -> Arc<Self> {
        Arc::new(DeathLog { entries: RwLock::new(entries) })
    }

    /// Adds a death.
    pub fn push(&self, death: Death) {
        self.entries.write().push(death);
    }

    /// Deaths so far.
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// The deaths with numbers in a range; those that exist.
    pub fn range(&self, range: Range<usize>) -> Vec<Death> {
        let entries = self.entries.read();
        let end = range.end.min(entries.len());
        entries.get(range.start.min(end)..end).map(<[Death]>::to_vec).unwrap_or_default()
    }

    /// All deaths.
    pub fn to_vec(&self) -> Vec<Death> {
        self.entries.read().clone()
    }

    /// The list as it is now, whatever is added later.
    pub fn pin(self: &Arc<Self>) -> DeathsAt {
        DeathsAt { log: self.clone(), len: self.len() }
    }
}

/// A list of deaths, pinned at a length.
#[derive(Clone, Debug)]
pub struct DeathsAt {
    log: Arc<DeathLog>,
    len: usize,
}

impl DeathsAt {
    /// Number of deaths pinned.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Ascending positions of the rows that a reader at `ts` does not see any more.
    pub fn dead_at(&self, ts: Timestamp) -> Vec<u32> {
        let entries = self.log.entries.read();
        let mut rows: Vec<u32> = entries
            .iter()
            .take(self.len)
            .filter(|death| death.end_ts <= ts)
            .map(|death| death.row)
            .collect();
        drop(entries);
        rows.sort_unstable();
        rows
    }
}

/// The part of ascending positions that falls into a range.
pub fn within(sorted: &[u32], range: Range<u32>) -> &[u32] {
    let from = sorted.partition_point(|row| *row < range.start);
    let to = sorted.partition_point(|row| *row < range.end);
    sorted.get(from..to).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_sees_neither_later_deaths_nor_later_ends() {
        let log = DeathLog::new(vec![Death { row: 9, end_ts: Timestamp(5) }]);
        log.push(Death { row: 3, end_ts: Timestamp(7) });
        let pin = log.pin();
        log.push(Death { row: 1, end_ts: Timestamp(2) });
        assert_eq!(pin.dead_at(Timestamp(4)), Vec::<u32>::new());
        assert_eq!(pin.dead_at(Timestamp(5)), vec![9]);
        assert_eq!(pin.dead_at(Timestamp(7)), vec![3, 9]);
        assert_eq!(log.pin().dead_at(Timestamp(7)), vec![1, 3, 9]);
        assert_eq!(within(&[1, 3, 9], 3..9), &[3]);
    }
}
