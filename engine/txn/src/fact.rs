//! The log's vocabulary: what a leader has decided, for everyone to apply without deciding again.
//!
//! The row machine and the columnar learner read the same facts. A fact is never interpreted
//! differently by the two, and never depends on anything but the facts before it.

use raft::Position;
use serde::{Deserialize, Serialize};
use types::{Epoch, Error, Peer, PeerId, Region, RegionId, Result, Table, Timestamp, version};

/// What a committed lock does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WriteKind {
    /// A new version with a row.
    Put,
    /// The end of the current version.
    Delete,
    /// Nothing: the key was only held against others.
    Lock,
    /// Nothing: a key was held beside others. The lock's own key is that of [`crate::share`].
    Share,
}

impl WriteKind {
    /// Whether there is another version of the key afterwards.
    pub fn changes(self) -> bool {
        matches!(self, WriteKind::Put | WriteKind::Delete)
    }
}

/// One decided fact. The log numbers variants by their place: a new one goes to the end, and none
/// is ever taken out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fact {
    /// A transaction holds a key and has said what it will do to it. It may come again for the
    /// same key and transaction, with a longer life and otherwise unchanged.
    Lock {
        /// Key.
        key: Vec<u8>,
        /// Identity of the transaction.
        start_ts: Timestamp,
        /// Key whose fate decides the transaction.
        primary: Vec<u8>,
        /// What commit will do.
        kind: WriteKind,
        /// The row, for `Put`.
        row: Option<Vec<u8>>,
        /// Commit timestamp of the version that this one supersedes, or none if the key has no
        /// live version.
        replaces: Option<Timestamp>,
        /// Milliseconds after `start_ts` from which others may roll back.
        ttl: u64,
        /// For pessimistic locks: the timestamp they were taken at.
        for_update_ts: Option<Timestamp>,
    },
    /// The lock of `start_ts` on `key` becomes a version at `commit_ts`.
    Commit {
        /// Key.
        key: Vec<u8>,
        /// Identity of the transaction.
        start_ts: Timestamp,
        /// When it becomes visible.
        commit_ts: Timestamp,
    },
    /// The lock of `start_ts` on `key`, if any, is gone, and that transaction can never lock or
    /// commit the key again.
    Rollback {
        /// Key.
        key: Vec<u8>,
        /// Identity of the transaction.
        start_ts: Timestamp,
    },
    /// A version without a lock before it: bulk import.
    Write {
        /// Key.
        key: Vec<u8>,
        /// When it becomes visible.
        commit_ts: Timestamp,
        /// `Put` or `Delete`.
        kind: WriteKind,
        /// The row, for `Put`.
        row: Option<Vec<u8>>,
        /// Commit timestamp of the superseded version.
        replaces: Option<Timestamp>,
    },
    /// The region is cut: the parent keeps the keys below the first cut. The last fact of its
    /// entry.
    Split {
        /// Children, ascending by their first key; see [`split_region`].
        children: Vec<SplitChild>,
    },
    /// No fact: it keeps number 5 from being given again, and the numbers behind it where they are.
    /// Nobody decides it, and both machines refuse it like a fact that they do not know.
    Reserved,
    /// The table's description from here on; precedes the first row of its version.
    Schema(Box<Table>),
    /// Nobody may ask the region for less than these points any more, so versions and fates below
    /// them may go, everywhere in its own time. Alone in its entry, which is dropped if the region
    /// holds an older lock.
    /// Learners take no note: what they may drop, their own reads decide. One that is copied from a
    /// voter keeps the voter's floor, below which it was sent nothing.
    Collect(Floors),
    /// Of the locks behind it in its entry, all of one transaction: that is committed once all of its keys are locked, at
    /// the greatest `min_commit_ts` of them. Columns take no note: whoever meets a lock asks about its transaction.
    Async(AsyncCommit),
}

/// What the locks of a transaction that commits asynchronously say of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsyncCommit {
    /// The transaction commits at this timestamp or later, so whoever reads before it need not mind the lock.
    pub min_commit_ts: Timestamp,
    /// Every key of the transaction but the primary, where that is locked; empty elsewhere.
    pub secondaries: Vec<Vec<u8>>,
}

impl Fact {
    /// The key that it is about, if it is about one.
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Fact::Lock { key, .. }
            | Fact::Commit { key, .. }
            | Fact::Rollback { key, .. }
            | Fact::Write { key, .. } => Some(key),
            Fact::Split { .. }
            | Fact::Reserved
            | Fact::Schema(_)
            | Fact::Collect(_)
            | Fact::Async(_) => None,
        }
    }
}

/// How far back a region can be asked. Only ever rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floors {
    /// Oldest timestamp that can be read. No transaction that began before it holds a key of the
    /// region, or will ever take one.
    pub read: Timestamp,
    /// No transaction that began before it holds a key of *any* region: nobody will ask how it
    /// ended. Never above `read`.
    pub settled: Timestamp,
}

impl Floors {
    /// The higher of each.
    pub fn max(self, other: Self) -> Self {
        Floors { read: self.read.max(other.read), settled: self.settled.max(other.settled) }
    }

    /// Fails if a reader, or a transaction that began then, comes too late.
    pub fn check(&self, ts: Timestamp) -> Result<()> {
        if ts < self.read {
            return Err(Error::SnapshotTooOld { ts, floor: self.read });
        }
        Ok(())
    }
}

/// One new region made by a split.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitChild {
    /// First key.
    pub start: Vec<u8>,
    /// Number of the new group.
    pub region: RegionId,
    /// New Raft identities, in the order of the parent's peers.
    pub peers: Vec<PeerId>,
}

/// One log entry: facts, and the term and epoch under which they were decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Raft term of the decision.
    pub term: u64,
    /// Region epoch of the decision.
    pub epoch: Epoch,
    /// What was decided, in order.
    pub facts: Vec<Fact>,
}

const FORMAT: u8 = 1;

impl Facts {
    /// As log bytes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        postcard::to_extend(self, vec![FORMAT])
            .map_err(|error| Error::Invalid(format!("facts cannot be encoded: {error}")))
    }

    /// From log bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((&FORMAT, rest)) => Ok(postcard::from_bytes(rest)?),
            Some((format, _)) => Err(version::unknown_format("a log entry", *format, FORMAT)),
            None => Err(Error::Corrupt("a log entry is empty".into())),
        }
    }

    /// Whether the entry still stands when applied at `at` in a region of `epoch`. Both machines
    /// drop the whole entry otherwise.
    pub fn stands(&self, at: Position, epoch: Epoch) -> bool {
        self.term == at.term && self.epoch == epoch
    }
}

/// The regions after a split: the parent, which keeps its number and the keys below the first cut,
/// and its children. Every machine of a group cuts alike, through this function.
pub fn split_region(parent: &Region, children: &[SplitChild]) -> Result<(Region, Vec<Region>)> {
    let starts: Vec<&[u8]> = children.iter().map(|child| child.start.as_slice()).collect();
    let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let within = starts
        .iter()
        .all(|start| *start > parent.start.as_slice() && *start < parent.end.as_slice());
    let peers = children.iter().all(|child| child.peers.len() == parent.peers.len());
    if children.is_empty() || !ascending || !within || !peers {
        return Err(Error::Invalid(format!(
            "region {} cannot be cut so: cuts must ascend within it and name one peer for each of \
             its {} peers",
            parent.id,
            parent.peers.len()
        )));
    }
    let version = parent.epoch.version + children.len() as u64;
    let epoch = Epoch { version, conf: parent.epoch.conf };
    let ends = starts.iter().skip(1).map(|start| start.to_vec()).chain([parent.end.clone()]);
    let regions = children.iter().zip(ends).map(|(child, end)| Region {
        id: child.region,
        epoch,
        kind: parent.kind,
        start: child.start.clone(),
        end,
        peers: parent
            .peers
            .iter()
            .zip(&child.peers)
            .map(|(peer, id)| Peer { id: *id, ..*peer })
            .collect(),
    });
    let regions = regions.collect();
    let end = children.first().map_or_else(|| parent.end.clone(), |child| child.start.clone());
    Ok((Region { epoch, end, ..parent.clone() }, regions))
}

/// One item of a region snapshot's stream, in any order, each kind once per key and version.
/// Rows and columns restore from the same items.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SnapshotItem {
    /// The schema versions that rows in the snapshot are written with, oldest first.
    Schema(Box<Table>),
    /// A committed version.
    Version {
        /// Key.
        key: Vec<u8>,
        /// When it became visible.
        commit_ts: Timestamp,
        /// Transaction that wrote it; zero for imports.
        start_ts: Timestamp,
        /// `Put` or `Delete`.
        kind: WriteKind,
        /// The row, for `Put`.
        row: Option<Vec<u8>>,
        /// When the next version of the key superseded it, or none if it is the newest.
        ended_by: Option<Timestamp>,
    },
    /// An unfinished transaction's lock, always a [`Fact::Lock`]; not of one that commits asynchronously.
    Lock(Fact),
    /// The fate of a transaction at a key: its commit timestamp, or none if rolled back.
    Fate {
        /// Key.
        key: Vec<u8>,
        /// Identity of the transaction.
        start_ts: Timestamp,
        /// Commit timestamp, or none for a rollback.
        commit_ts: Option<Timestamp>,
    },
    /// How far back the region can be asked.
    Collected(Floors),
    /// The lock of a transaction that commits asynchronously, always a [`Fact::Lock`].
    AsyncLock(Fact, AsyncCommit),
}

#[cfg(test)]
mod tests {
    use types::{Column, ColumnType};

    use super::*;

    fn table() -> Table {
        Table {
            id: 7,
            version: 2,
            database: "d".into(),
            name: "t".into(),
            columns: vec![Column {
                id: 1,
                name: "k".into(),
                ty: ColumnType::Date,
                nullable: false,
                default: None,
                original: None,
                auto_increment: false,
                on_update_now: false,
                hidden: false,
                comment: String::new(),
            }],
            primary_key: vec![1],
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: String::new(),
            dropped: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Every variant, and the bytes that it begins with in the log.
    fn golden() -> Vec<(Fact, Vec<u8>)> {
        let (key, start_ts, commit_ts) = (b"k".to_vec(), Timestamp(2), Timestamp(3));
        let lock = Fact::Lock {
            key: key.clone(),
            start_ts,
            primary: b"p".to_vec(),
            kind: WriteKind::Put,
            row: Some(b"r".to_vec()),
            replaces: Some(Timestamp(1)),
            ttl: 4,
            for_update_ts: None,
        };
        let write = Fact::Write {
            key: key.clone(),
            commit_ts,
            kind: WriteKind::Delete,
            row: None,
            replaces: None,
        };
        let child = SplitChild { start: b"s".to_vec(), region: 8, peers: vec![9] };
        let floors = Floors { read: Timestamp(6), settled: Timestamp(5) };
        let secondaries = vec![b"s".to_vec()];
        vec![
            (lock, vec![0, 1, b'k', 2, 1, b'p', 0, 1, 1, b'r', 1, 1, 4, 0]),
            (Fact::Commit { key: key.clone(), start_ts, commit_ts }, vec![1, 1, b'k', 2, 3]),
            (Fact::Rollback { key, start_ts }, vec![2, 1, b'k', 2]),
            (write, vec![3, 1, b'k', 3, 1, 0, 0]),
            (Fact::Split { children: vec![child] }, vec![4, 1, 1, b's', 8, 1, 9]),
            (Fact::Reserved, vec![5]),
            (Fact::Schema(Box::new(table())), vec![6, 7, 2, 1, b'd', 1, b't']),
            (Fact::Collect(floors), vec![7, 6, 5]),
            (
                Fact::Async(AsyncCommit { min_commit_ts: commit_ts, secondaries }),
                vec![8, 3, 1, 1, b's'],
            ),
        ]
    }

    /// A variant that is new needs its bytes in `golden`, under the next number.
    fn number(fact: &Fact) -> u8 {
        match fact {
            Fact::Lock { .. } => 0,
            Fact::Commit { .. } => 1,
            Fact::Rollback { .. } => 2,
            Fact::Write { .. } => 3,
            Fact::Split { .. } => 4,
            Fact::Reserved => 5,
            Fact::Schema(_) => 6,
            Fact::Collect(_) => 7,
            Fact::Async(_) => 8,
        }
    }

    #[test]
    fn facts_keep_their_bytes_in_the_log() {
        let golden = golden();
        let numbers: Vec<u8> = golden.iter().map(|(fact, _)| number(fact)).collect();
        assert_eq!(numbers, [0_u8, 1, 2, 3, 4, 5, 6, 7, 8]);
        for (fact, begin) in golden {
            let facts = Facts { term: 1, epoch: Epoch { version: 2, conf: 3 }, facts: vec![fact] };
            let bytes = facts.encode().unwrap();
            // The format, the term, the epoch, and how many facts there are.
            let expected = [vec![FORMAT, 1, 2, 3, 1], begin].concat();
            assert!(bytes.starts_with(&expected), "{facts:?}: {bytes:?}");
            assert_eq!(Facts::decode(&bytes).unwrap(), facts);
        }
        let unknown = [FORMAT, 1, 2, 3, 1, 9];
        assert!(matches!(Facts::decode(&unknown), Err(Error::Corrupt(_))));
    }
}
