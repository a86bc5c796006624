//! Deletions of row versions: which rows of a delta or segment were deleted or replaced, and when.
//!
//! A list only grows; readers pin a length of it. It does not say whether a row was deleted or replaced, and its
//! bytes never change.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use types::Timestamp;

/// The deletion of one row version, by a DELETE or by the version that replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// Position of the row in its delta or segment.
    pub row: u32,
    /// First timestamp at which the version is not seen any more.
    pub end_ts: Timestamp,
}

/// The deletions of one delta or of one tablet's part of a segment, in the order of the log.
#[derive(Debug, Default)]
pub struct DeletionLog {
    entries: RwLock<Vec<Deletion>>,
}

impl DeletionLog {
    /// A list that begins with these deletions.
    pub fn new(entries: Vec<Deletion>) -> Arc<Self> {
        Arc::new(DeletionLog { entries: RwLock::new(entries) })
    }

    /// Appends a deletion.
    pub fn push(&self, deletion: Deletion) {
        self.entries.write().push(deletion);
    }

    /// Number of deletions so far.
    pub fn len(&self) -> usize {
        self.entries.read().len()
    }

    /// The deletions with numbers in a range, as far as they exist.
    pub fn range(&self, range: Range<usize>) -> Vec<Deletion> {
        let entries = self.entries.read();
        let end = range.end.min(entries.len());
        entries.get(range.start.min(end)..end).map(<[Deletion]>::to_vec).unwrap_or_default()
    }

    /// All deletions.
    pub fn to_vec(&self) -> Vec<Deletion> {
        self.entries.read().clone()
    }

    /// The list as it is now, whatever is added later.
    pub fn pin(self: &Arc<Self>) -> PinnedDeletions {
        PinnedDeletions { log: self.clone(), len: self.len() }
    }
}

/// A list of deletions, pinned at a length.
#[derive(Clone, Debug)]
pub struct PinnedDeletions {
    log: Arc<DeletionLog>,
    len: usize,
}

impl PinnedDeletions {
    /// Number of deletions pinned.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Ascending positions of the rows that a reader at `ts` does not see any more.
    pub fn dead_at(&self, ts: Timestamp) -> Vec<u32> {
        let entries = self.log.entries.read();
        let mut rows: Vec<u32> = entries
            .iter()
            .take(self.len)
            .filter(|deletion| deletion.end_ts <= ts)
            .map(|deletion| deletion.row)
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
    fn a_pin_sees_neither_later_deletions_nor_later_ends() {
        let log = DeletionLog::new(vec![Deletion { row: 9, end_ts: Timestamp(5) }]);
        log.push(Deletion { row: 3, end_ts: Timestamp(7) });
        let pin = log.pin();
        log.push(Deletion { row: 1, end_ts: Timestamp(2) });
        assert_eq!(pin.dead_at(Timestamp(4)), Vec::<u32>::new());
        assert_eq!(pin.dead_at(Timestamp(5)), vec![9]);
        assert_eq!(pin.dead_at(Timestamp(7)), vec![3, 9]);
        assert_eq!(log.pin().dead_at(Timestamp(7)), vec![1, 3, 9]);
        assert_eq!(within(&[1, 3, 9], 3..9), &[3]);
    }
}
