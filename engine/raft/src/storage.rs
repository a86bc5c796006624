//! One group's share of the log, as raft-rs reads it: recent entries from memory, older ones from
//! the log, and where a snapshot would be taken.
//!
//! It never writes: the store writes for all groups at once. What is being written is read from here as if it were on disk.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use protobuf::Message as _;
use raft_rs::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft_rs::util::limit_size;
use raft_rs::{GetEntriesContext, RaftState, Storage, StorageError};
use serde::{Deserialize, Serialize};
use types::{Error, Peer, PeerId, Region, RegionId, Result};

use crate::log::{LogWrite, RaftLog};
use crate::machine::Position;

/// Record: which peer of the region this node holds.
pub(crate) const KEY_PEER: &[u8] = b"peer";
/// Record: Raft's term, vote and commit index.
const KEY_HARD: &[u8] = b"hard";
/// Record: the position below the first entry.
const KEY_CUT: &[u8] = b"cut";
/// Record: a snapshot whose data still has to go into the machine.
pub(crate) const KEY_SPOOL: &[u8] = b"spool";
/// What records of destroyed peers begin with, in the node's own group.
pub(crate) const PREFIX_DEAD: &[u8] = b"dead";

/// Bytes of entries kept in memory per group.
const CACHE_BYTES: usize = 4 << 20;
/// Entries kept in memory per group.
const CACHE_ENTRIES: usize = 4096;

/// Under which a destroyed peer is noted.
pub(crate) fn dead_key(peer: PeerId) -> Vec<u8> {
    [PREFIX_DEAD, &peer.to_be_bytes()].concat()
}

/// Which peer of a region a node holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocalPeer {
    /// This node's member.
    pub peer: Peer,
    /// The region when the peer was created.
    pub region: Region,
}

/// A received snapshot that is part of the log's state and not yet of the machine's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingSpool {
    /// Name of the spool file.
    pub file: String,
    /// Position of the snapshot: index, term.
    pub at: (u64, u64),
    /// The region at that position.
    pub region: Region,
}

/// What raft-rs reads of a group.
pub(crate) struct GroupStorage {
    log: Arc<RaftLog>,
    region: RegionId,
    hard: HardState,
    conf: ConfState,
    /// Below the first entry.
    cut: Position,
    last: Position,
    cache: VecDeque<Entry>,
    cache_bytes: usize,
    /// Entries above this are in memory alone.
    written: u64,
    /// Where the machine is, between rounds of applying: what a snapshot would hold.
    machine_at: Position,
}

impl GroupStorage {
    /// Reads a group's state. `machine_at` and `region` are what the machine holds.
    pub fn open(log: Arc<RaftLog>, region: &Region, machine_at: Position) -> Result<Self> {
        let id = region.id;
        let mut hard = HardState::default();
        if let Some(bytes) = log.get(id, KEY_HARD) {
            hard.merge_from_bytes(&bytes)
                .map_err(|error| Error::Corrupt(format!("Raft state of region {id}: {error}")))?;
        }
        let cut = match log.get(id, KEY_CUT) {
            Some(bytes) => decode_position(&bytes)?,
            None => Position::default(),
        };
        let mut storage = GroupStorage {
            conf: if machine_at.index == 0 { ConfState::default() } else { conf_state(region) },
            hard,
            cut,
            last: cut,
            cache: VecDeque::new(),
            cache_bytes: 0,
            written: cut.index,
            machine_at,
            region: id,
            log,
        };
        if let Some(index) = storage.log.last_index(id).filter(|last| *last > cut.index) {
            storage.last = Position { index, term: storage.entry_term(index)? };
            storage.written = index;
        }
        storage.check(machine_at)?;
        // The commit index is not synced with every change, and the machine may be ahead of it.
        storage.hard.commit = storage.hard.commit.max(machine_at.index).min(storage.last.index);
        Ok(storage)
    }

    fn check(&self, machine_at: Position) -> Result<()> {
        if machine_at.index < self.cut.index || machine_at.index > self.last.index {
            return Err(Error::Corrupt(format!(
                "region {}: rows are applied up to {} and the log holds ({}, {}]: replace this \
                 replica",
                self.region, machine_at.index, self.cut.index, self.last.index
            )));
        }
        Ok(())
    }

    fn entry_term(&self, index: u64) -> Result<u64> {
        match self.log.entry(self.region, index)? {
            Some(entry) => Ok(entry.term),
            None => Err(Error::Corrupt(format!(
                "region {}: entry {index} is missing from the Raft log: replace this replica",
                self.region
            ))),
        }
    }

    /// Writes the state of a new group whose log begins after `cut`.
    pub fn write_new(write: &mut LogWrite, local: &LocalPeer, cut: Position) -> Result<()> {
        let region = local.region.id;
        let mut hard = HardState::default();
        hard.set_term(cut.term);
        hard.set_commit(cut.index);
        write.put(region, KEY_PEER, postcard::to_stdvec(local)?);
        write_hard(write, region, &hard)?;
        write_cut(write, region, cut)?;
        write.sync();
        Ok(())
    }

    /// Position of the last entry, or of the cut.
    pub fn last(&self) -> Position {
        self.last
    }

    /// Position below the first entry.
    pub fn cut(&self) -> Position {
        self.cut
    }

    /// Entries that are being written.
    pub fn appended(&mut self, entries: Vec<Entry>) {
        let Some((first, last)) = entries.first().zip(entries.last()) else { return };
        let first = first.index;
        self.written = self.written.min(first.saturating_sub(1));
        self.last = Position { index: last.index, term: last.term };
        while self.cache.back().is_some_and(|entry| entry.index >= first) {
            if let Some(entry) = self.cache.pop_back() {
                self.cache_bytes -= weight(&entry);
            }
        }
        if self.cache.back().is_some_and(|entry| entry.index + 1 != first) {
            self.cache.clear();
            self.cache_bytes = 0;
        }
        for entry in entries {
            self.cache_bytes += weight(&entry);
            self.cache.push_back(entry);
        }
        self.evict();
    }

    /// Entries up to an index are on disk.
    pub fn written_to(&mut self, index: u64) {
        self.written = index;
        self.evict();
    }

    /// Frees memory, of entries that can be read from disk.
    fn evict(&mut self) {
        while self.cache.len() > CACHE_ENTRIES || self.cache_bytes > CACHE_BYTES {
            match self.cache.pop_front_if(|entry| entry.index <= self.written) {
                Some(entry) => self.cache_bytes -= weight(&entry),
                None => break,
            }
        }
    }

    /// Raft state that is being written.
    pub fn set_hard(&mut self, hard: HardState) {
        self.hard = hard;
    }

    /// Raft state, on disk or being written.
    pub fn hard(&self) -> &HardState {
        &self.hard
    }

    /// The log was replaced by a snapshot at `cut`.
    pub fn replaced(&mut self, cut: Position, conf: ConfState) {
        self.cut = cut;
        self.last = cut;
        self.conf = conf;
        self.cache.clear();
        self.cache_bytes = 0;
        self.written = cut.index;
    }

    /// The log was cut up to `cut`.
    pub fn cut_to(&mut self, cut: Position) {
        self.cut = cut;
        while self.cache.front().is_some_and(|entry| entry.index <= cut.index) {
            if let Some(entry) = self.cache.pop_front() {
                self.cache_bytes -= weight(&entry);
            }
        }
    }

    /// Drops entries from memory that the machine has applied, once a group is idle.
    pub fn shrink_cache(&mut self, applied: u64) {
        while self.cache.front().is_some_and(|entry| entry.index < applied) {
            if let Some(entry) = self.cache.pop_front() {
                self.cache_bytes -= weight(&entry);
            }
        }
        self.cache.shrink_to_fit();
    }

    /// The machine has come to a position, under a membership.
    pub fn set_machine(&mut self, at: Position, conf: ConfState) {
        self.machine_at = at;
        self.conf = conf;
    }

    /// Entries of a range of indexes, some `max` bytes of them at most, but one at least.
    pub fn logged(&self, range: Range<u64>, max: u64) -> Result<Vec<Entry>> {
        let (low, region) = (range.start, self.region);
        let entries = self.read(range.start, range.end, Some(max)).map_err(|error| {
            Error::Corrupt(format!("region {region}: entries from {low} on: {error}"))
        })?;
        match entries.first() {
            Some(first) if first.index == low => Ok(entries),
            _ => Err(Error::Corrupt(format!("region {region}: entry {low} is not in the log"))),
        }
    }

    fn read(&self, low: u64, high: u64, max: Option<u64>) -> raft_rs::Result<Vec<Entry>> {
        let cached_from = self.cache.front().map_or(high, |entry| entry.index).min(high);
        let mut entries = if low < cached_from {
            self.log.entries(self.region, low, cached_from, max).map_err(unreadable)?
        } else {
            Vec::new()
        };
        let next = low + entries.len() as u64;
        if next >= cached_from {
            let skip = self.cache.front().map_or(0, |entry| next.saturating_sub(entry.index));
            let wanted = high.saturating_sub(next);
            entries.extend(self.cache.iter().skip(skip as usize).take(wanted as usize).cloned());
        }
        limit_size(&mut entries, max);
        Ok(entries)
    }
}

impl Storage for GroupStorage {
    fn initial_state(&self) -> raft_rs::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft_rs::Result<Vec<Entry>> {
        if low <= self.cut.index {
            return Err(raft_rs::Error::Store(StorageError::Compacted));
        }
        if high > self.last.index + 1 {
            return Err(raft_rs::Error::Store(StorageError::Unavailable));
        }
        self.read(low, high, max_size.into())
    }

    fn term(&self, index: u64) -> raft_rs::Result<u64> {
        if index == self.cut.index {
            return Ok(self.cut.term);
        }
        if index == self.last.index {
            return Ok(self.last.term);
        }
        if index < self.cut.index {
            return Err(raft_rs::Error::Store(StorageError::Compacted));
        }
        if index > self.last.index {
            return Err(raft_rs::Error::Store(StorageError::Unavailable));
        }
        let cached = self.cache.front().and_then(|first| {
            self.cache.get(usize::try_from(index.checked_sub(first.index)?).ok()?)
        });
        match cached {
            Some(entry) => Ok(entry.term),
            None => self.entry_term(index).map_err(unreadable),
        }
    }

    fn first_index(&self) -> raft_rs::Result<u64> {
        Ok(self.cut.index + 1)
    }

    fn last_index(&self) -> raft_rs::Result<u64> {
        Ok(self.last.index)
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft_rs::Result<Snapshot> {
        if self.machine_at.index == 0 || self.machine_at.index < request_index {
            return Err(raft_rs::Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(snapshot_at(self.machine_at, self.conf.clone()))
    }
}

/// A snapshot message's content: where it was taken, and the members then. The data travels apart.
pub(crate) fn snapshot_at(at: Position, conf: ConfState) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    metadata.index = at.index;
    metadata.term = at.term;
    metadata.set_conf_state(conf);
    snapshot
}

/// A region's members as raft-rs counts them.
pub(crate) fn conf_state(region: &Region) -> ConfState {
    let voters: Vec<u64> = region.voters().map(|peer| peer.id).collect();
    let learners: Vec<u64> = region.learners().map(|peer| peer.id).collect();
    ConfState::from((voters, learners))
}

/// Adds Raft's state to a write.
pub(crate) fn write_hard(write: &mut LogWrite, region: RegionId, hard: &HardState) -> Result<()> {
    let bytes = hard
        .write_to_bytes()
        .map_err(|error| Error::Invalid(format!("Raft state of region {region}: {error}")))?;
    write.put(region, KEY_HARD, bytes);
    Ok(())
}

/// Adds the position below the first entry to a write.
pub(crate) fn write_cut(write: &mut LogWrite, region: RegionId, cut: Position) -> Result<()> {
    write.put(region, KEY_CUT, postcard::to_stdvec(&(cut.index, cut.term))?);
    Ok(())
}

fn decode_position(bytes: &[u8]) -> Result<Position> {
    let (index, term) = postcard::from_bytes(bytes)?;
    Ok(Position { index, term })
}

/// Bytes that an entry takes in memory, about.
pub(crate) fn weight(entry: &Entry) -> usize {
    entry.data.len() + entry.context.len() + 32
}

/// raft-rs stops the peer on any storage error that it does not know; the store reports it.
fn unreadable(error: Error) -> raft_rs::Error {
    raft_rs::Error::Store(StorageError::Other(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogSizes;
    use env::RealDisk;

    #[test]
    fn entries_are_read_from_memory_until_they_are_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let log = RaftLog::open(Arc::new(RealDisk), dir.path(), None, LogSizes::default());
        let log = Arc::new(log.unwrap());
        let kind = types::RegionKind::Placement;
        let (epoch, start, end) = (types::Epoch { conf: 1, version: 1 }, vec![1], vec![2]);
        let region = Region { id: 7, epoch, kind, start, end, peers: Vec::new() };
        let mut storage = GroupStorage::open(log.clone(), &region, Position::default()).unwrap();
        let last = 2 * CACHE_ENTRIES as u64;
        let entry = |index| Entry { index, term: 1, ..Entry::default() };
        let entries: Vec<Entry> = (1..=last).map(entry).collect();
        let all = |storage: &GroupStorage| {
            storage.entries(1, last + 1, None, GetEntriesContext::empty(false)).unwrap()
        };
        storage.appended(entries.clone());
        assert_eq!(all(&storage), entries);
        let mut write = LogWrite::default();
        write.entries(region.id, entries.clone());
        log.write(&write).unwrap();
        storage.written_to(last);
        assert_eq!(storage.cache.len(), CACHE_ENTRIES);
        assert_eq!(all(&storage), entries);
    }
}
