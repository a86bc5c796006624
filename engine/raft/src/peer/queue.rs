//! What waits for a peer's machine: entries in their order, and snapshots.
//!
//! Entries that wait long, because the machine does, are not kept in memory: they are read from the log again. It must never
//! lose or reorder what is committed.

use std::collections::VecDeque;
use std::ops::Range;

use raft_rs::eraftpb::Entry;
use types::Result;

use super::MAX_APPLY;
use crate::storage::{GroupStorage, PendingSpool, weight};

/// Bytes of entries that wait in memory.
const MAX_WAITING: usize = 16 << 20;

/// What the machine shall do next.
pub(crate) enum Work {
    /// Take over a snapshot.
    Restore(PendingSpool),
    /// Apply entries.
    Entries(VecDeque<Entry>),
}

enum Waiting {
    Restore(PendingSpool),
    Entries(VecDeque<Entry>),
    /// Entries that are read when it is their turn, by their indexes.
    Logged(Range<u64>),
}

/// What waits.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Of the entries in memory.
    bytes: usize,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Queue::default();
    }

    /// Whether a snapshot comes next.
    pub fn begins_with_restore(&self) -> bool {
        matches!(self.waiting.front(), Some(Waiting::Restore(_)))
    }

    /// After all that waits.
    pub fn add_restore(&mut self, spool: PendingSpool) {
        self.waiting.push_back(Waiting::Restore(spool));
    }

    /// Before all that waits.
    pub fn put_back_restore(&mut self, spool: PendingSpool) {
        self.waiting.push_front(Waiting::Restore(spool));
    }

    /// After all that waits: committed entries, in their order.
    pub fn add(&mut self, entries: Vec<Entry>) {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return };
        let range = first.index..last.index + 1;
        match self.waiting.back_mut() {
            Some(Waiting::Logged(known)) => known.end = range.end,
            _ if self.bytes >= MAX_WAITING => self.waiting.push_back(Waiting::Logged(range)),
            _ => {
                self.bytes += bytes(&entries);
                self.waiting.push_back(Waiting::Entries(entries.into()));
            }
        }
    }

    /// Before all that waits: entries that were taken and not applied.
    pub fn put_back(&mut self, entries: VecDeque<Entry>) {
        if !entries.is_empty() {
            self.bytes += bytes(&entries);
            self.waiting.push_front(Waiting::Entries(entries));
        }
    }

    /// Takes what comes next.
    ///
    /// # Errors
    ///
    /// If entries cannot be read from the log.
    pub fn take(&mut self, storage: &GroupStorage) -> Result<Option<Work>> {
        match self.waiting.pop_front() {
            None => Ok(None),
            Some(Waiting::Restore(spool)) => Ok(Some(Work::Restore(spool))),
            Some(Waiting::Entries(entries)) => {
                self.bytes -= bytes(&entries);
                Ok(Some(Work::Entries(entries)))
            }
            Some(Waiting::Logged(range)) => {
                let entries = storage.logged(range.clone(), MAX_APPLY)?;
                let next = entries.last().map_or(range.start, |entry| entry.index + 1);
                if next < range.end {
                    self.waiting.push_front(Waiting::Logged(next..range.end));
                }
                Ok(Some(Work::Entries(entries.into())))
            }
        }
    }
}

fn bytes<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> usize {
    entries.into_iter().map(weight).sum()
}
