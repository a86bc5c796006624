//! What is asked of a region's leader, and what it answers.
//!
//! Plain data: `rpc` carries it, `service` answers it, `client` asks it.

use serde::{Deserialize, Serialize};
use types::error::LockInfo;
use types::{
    Epoch, Error, NodeId, PeerId, Region, RegionId, Result, SchemaVersion, Table, TableId,
    Timestamp,
};

use crate::share::shared_key;

/// Which region is addressed, as the caller last saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRef {
    /// Region.
    pub id: RegionId,
    /// Epoch; another one at the leader answers [`Error::StaleEpoch`].
    pub epoch: Epoch,
}

/// What a transaction wants done to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// Key.
    pub key: Vec<u8>,
    /// What to do.
    pub op: Op,
    /// In a pessimistic transaction: the newest version that it has seen of the key, or later. Only
    /// what was committed after it is a conflict; without it, what was committed after the start.
    pub for_update_ts: Option<Timestamp>,
}

impl Mutation {
    /// The key that a transaction holds by it, and how.
    ///
    /// # Errors
    /// `Invalid` for a share of another transaction.
    pub fn holds(&self, start_ts: Timestamp) -> Result<(&[u8], Mode)> {
        if self.op != Op::Share {
            return Ok((&self.key, Mode::Exclusive));
        }
        let key = shared_key(&self.key, start_ts).ok_or_else(|| {
            Error::Invalid(format!("a key shared by {start_ts} is another transaction's"))
        })?;
        Ok((key, Mode::Shared))
    }

    /// Bytes of its key and row.
    pub fn bytes(&self) -> usize {
        let row = match &self.op {
            Op::Put(row) | Op::Insert(row) => row.len(),
            Op::Delete | Op::Lock | Op::Share => 0,
        };
        self.key.len() + row
    }
}

/// Kinds of mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Sets the row, whatever was there.
    Put(Vec<u8>),
    /// Sets the row; [`Error::Duplicate`] if the key has a live version.
    Insert(Vec<u8>),
    /// Ends the current version.
    Delete,
    /// Holds the key against others and changes nothing.
    Lock,
    /// Holds a key beside others that do the same, and changes nothing. Its own key is that of [`crate::share`].
    Share,
}

/// How a transaction holds a key; of two, the greater one has what the lesser one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Beside others that do the same.
    Shared,
    /// Alone.
    Exclusive,
}

impl Mode {
    /// Whether others may hold the key so, too.
    pub fn shares(self) -> bool {
        self == Mode::Shared
    }
}

/// How row locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    /// How keys are held.
    pub mode: Mode,
    /// What to do about those that others hold.
    pub waiting: Waiting,
    /// What need not be confirmed.
    pub expect: Expect,
}

impl Taking {
    /// Keys are held alone.
    pub fn alone(waiting: Waiting, expect: Expect) -> Taking {
        Taking { mode: Mode::Exclusive, waiting, expect }
    }
}

/// What to do about a row that another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// Wait for so many milliseconds at most.
    For(u64),
    /// Fail (NOWAIT).
    No,
    /// Go on without the row (SKIP LOCKED).
    Skip,
}

/// What a transaction expects of keys that it locks. Where they are so, the leader answers on its
/// own word, without asking a quorum whether it still leads: should it not, the conflict check of
/// the commit finds out. Anything else is returned before the commit, and is confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Nothing: what is found is an answer by itself.
    Nothing,
    /// Every key has a row, to be changed or ended.
    Rows,
    /// No key has a row: there will be one.
    NoRows,
}

impl Expect {
    /// Whether a key is as expected, and may be returned without confirmation.
    pub fn is_met(self, live: bool) -> bool {
        match self {
            Expect::Nothing => false,
            Expect::Rows => live,
            Expect::NoRows => !live,
        }
    }
}

/// The newest version of a key that a transaction holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Current {
    /// Key.
    pub key: Vec<u8>,
    /// When the key was last written or held by a commit; zero if never.
    pub newest: Timestamp,
    /// Up to when the region may have forgotten writes that left no row.
    pub floor: Timestamp,
    /// Whether it has a row.
    pub live: bool,
    /// The row, if there is one and it was asked for.
    pub row: Option<Vec<u8>>,
}

/// A request to the leader of one region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Newest version ≤ ts of each key; keys without one are left out of the answer.
    Get {
        /// Region.
        region: RegionRef,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
        /// Snapshot.
        ts: Timestamp,
    },
    /// Live pairs of a range at ts, in order, up to a limit.
    Scan {
        /// Region.
        region: RegionRef,
        /// First key, inclusive.
        start: Vec<u8>,
        /// Last key, exclusive; the leader stops at the region's end.
        end: Vec<u8>,
        /// Snapshot.
        ts: Timestamp,
        /// Most pairs to return.
        limit: u32,
        /// Most bytes to return, about.
        bytes: u32,
        /// From the end downwards.
        reverse: bool,
    },
    /// First phase: check and lock.
    Prewrite {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Key that decides.
        primary: Vec<u8>,
        /// Changes, keys all of the region.
        mutations: Vec<Mutation>,
        /// Milliseconds after `start_ts` from which others may roll back.
        ttl: u64,
        /// Schema the rows were encoded with; older than the leader's fence is refused.
        schema: (TableId, SchemaVersion),
        /// Milliseconds to wait for rows that other transactions hold.
        wait: u64,
    },
    /// Holds keys for a transaction before it commits, in the leader's memory only, and gives
    /// their newest versions. Keys are taken in the given order; the first that is another's ends
    /// the request unless it is to be skipped.
    Acquire {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
        /// Milliseconds from now for which the keys stay held unless that is prolonged.
        hold: u64,
        /// What to do about keys that others hold.
        waiting: Waiting,
        /// Whether to send rows.
        rows: bool,
        /// What need not be confirmed.
        expect: Expect,
    },
    /// Prolongs what a transaction holds; takes what it held at a leader that is gone, unless
    /// others hold it by now.
    KeepHeld {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
        /// Milliseconds from now.
        hold: u64,
    },
    /// To the node that a region's leadership is to be transferred to: the row locks held in it, if any, so that
    /// the leader of the next term knows them. A node that is stopping refuses.
    Inherit {
        /// Region.
        region: RegionId,
        /// Term of who hands over.
        term: u64,
        /// Keys and their owners.
        held: Vec<(Vec<u8>, Timestamp)>,
    },
    /// Gives back what a transaction holds.
    Release {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
    },
    /// Second phase.
    Commit {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// When it becomes visible.
        commit_ts: Timestamp,
        /// Locked keys, all of the region.
        keys: Vec<Vec<u8>>,
    },
    /// Gives up: the transaction can never lock or commit these keys. Answered by
    /// [`Response::Fate`] if it has committed one of them.
    Rollback {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
    },
    /// What became of a transaction; rolls it back at its primary if its time is over or it never
    /// arrived.
    CheckStatus {
        /// Region of the primary.
        region: RegionRef,
        /// The primary.
        primary: Vec<u8>,
        /// Transaction.
        start_ts: Timestamp,
        /// A current timestamp, to judge the lock's age by.
        now: Timestamp,
        /// Time to live of the lock that was met: a transaction that has not reached its primary
        /// yet may be on its way for that long.
        ttl: u64,
    },
    /// Commits or rolls back the locks of a transaction whose fate is known.
    Resolve {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Commit timestamp, or none to roll back.
        commit_ts: Option<Timestamp>,
        /// Locked keys, all of the region; empty for every lock of the transaction in the region.
        keys: Vec<Vec<u8>>,
    },
    /// Prolongs a primary's lock.
    KeepAlive {
        /// Region of the primary.
        region: RegionRef,
        /// The primary.
        primary: Vec<u8>,
        /// Transaction.
        start_ts: Timestamp,
        /// New time to live, in milliseconds after `start_ts`.
        ttl: u64,
    },
    /// Writes versions without a transaction. The caller alone writes to the table; a version that
    /// is there already is left alone, and any other live one is [`Error::Duplicate`]. Below the
    /// region's floor nothing is written: [`Error::SnapshotTooOld`].
    Import {
        /// Region.
        region: RegionRef,
        /// When the rows become visible.
        commit_ts: Timestamp,
        /// Keys and rows, all of the region.
        rows: Vec<(Vec<u8>, Vec<u8>)>,
        /// Schema the rows were encoded with.
        schema: (TableId, SchemaVersion),
        /// The import has begun anew: what it wrote at an earlier timestamp is replaced.
        anew: bool,
    },
    /// Makes a table's new description known to the region, ahead of rows written with it.
    Schema {
        /// Region.
        region: RegionRef,
        /// The description.
        table: Box<Table>,
    },
    /// Cuts the region.
    Split {
        /// Region.
        region: RegionRef,
        /// Cuts, ascending, within the region: first key, new region, new peers in the order of
        /// the region's peers.
        cuts: Vec<(Vec<u8>, RegionId, Vec<PeerId>)>,
    },
    /// Suggests keys that cut the region into `parts` of about equal size, or the first record if it holds entries of indexes
    /// before it.
    SplitKeys {
        /// Region.
        region: RegionRef,
        /// Number of parts, at least 2.
        parts: u32,
    },
    /// Who leads the region, as the voter that is asked knows it; answered at once.
    Leader {
        /// Region.
        region: RegionId,
    },
    /// Commits a transaction whose primary lies in the region, and all of whose other keys lie there or are locked: what
    /// lies there in one entry. Answered by [`Response::Fate`].
    CommitAtOnce {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// The key that the transaction's fate is asked at.
        primary: Vec<u8>,
        /// Everything that it writes or holds in the region, ascending by key.
        mutations: Vec<Mutation>,
        /// Schema the rows were encoded with.
        schema: (TableId, SchemaVersion),
        /// What else it writes to.
        others: Vec<(TableId, SchemaVersion)>,
        /// Milliseconds to wait for rows that others hold.
        wait: u64,
    },
    /// How far a replica has to have applied the region's log to read at a timestamp; answered by
    /// [`Response::Applied`].
    Reach {
        /// Region, of whatever shape.
        region: RegionId,
        /// The timestamp.
        ts: Timestamp,
    },
    /// A [`Request::Get`] or [`Request::Scan`] that whichever replica of the region is asked answers, by
    /// [`Response::ByReplica`].
    ByReplica(Box<Request>),
    /// First phase of a transaction that is committed once all of its keys are locked. Answered by
    /// [`Response::LockedFrom`], or [`Response::Fate`] if it is committed.
    PrewriteAsync {
        /// Region.
        region: RegionRef,
        /// What is locked.
        first: Box<AsyncPrewrite>,
    },
    /// How secondaries of a transaction that commits asynchronously stand; answered by [`Response::Secondaries`].
    CheckSecondaries {
        /// Region.
        region: RegionRef,
        /// Transaction.
        start_ts: Timestamp,
        /// Keys, all of the region.
        keys: Vec<Vec<u8>>,
        /// Whether one that is not locked can never be locked from then on.
        seal: bool,
    },
    /// A [`Request::Acquire`], [`Request::KeepHeld`] or [`Request::Inherit`] of keys that are held beside others.
    Shared(Box<Request>),
}

/// A first phase, in one region, of a transaction that commits asynchronously.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsyncPrewrite {
    /// Transaction.
    pub start_ts: Timestamp,
    /// Key at which its end is written.
    pub primary: Vec<u8>,
    /// All of its other keys, where the primary is among the mutations; empty elsewhere.
    pub secondaries: Vec<Vec<u8>>,
    /// Changes, keys all of the region.
    pub mutations: Vec<Mutation>,
    /// Milliseconds after `start_ts` from which others may end it.
    pub ttl: u64,
    /// Schema the rows were encoded with.
    pub schema: (TableId, SchemaVersion),
    /// What else it writes to.
    pub others: Vec<(TableId, SchemaVersion)>,
    /// Milliseconds to wait for rows that others hold.
    pub wait: u64,
}

/// How secondaries of a transaction that commits asynchronously stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Secondaries {
    /// All are locked, and the transaction commits at this timestamp or later.
    Locked(Timestamp),
    /// It has committed.
    Committed(Timestamp),
    /// One of them is not locked yet.
    Missing,
    /// One of them can never be locked.
    RolledBack,
}

/// A leader's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Pairs found, in key order (descending if asked so); `resume` is where the next request
    /// of this scan goes on, or none if the range within the region is done.
    Pairs {
        /// Keys and rows.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Where to go on.
        resume: Option<Vec<u8>>,
    },
    /// Keys that the transaction holds now.
    Acquired {
        /// Their newest versions.
        found: Vec<Current>,
        /// Locks of unfinished commits on others of them: resolve these, then ask again.
        locked: Vec<LockInfo>,
        /// Who holds the first key that could not be had, if one could not.
        behind: Option<Timestamp>,
    },
    /// Done.
    Done,
    /// The transaction committed then, or was rolled back (none).
    Fate(Option<Timestamp>),
    /// The transaction is alive for so many more milliseconds.
    Alive(u64),
    /// Keys.
    Keys(Vec<Vec<u8>>),
    /// The region and its new siblings.
    Regions(Vec<Region>),
    /// It did not work. [`Error::Locked`] names one lock in the way.
    Failed(Error),
    /// Who leads the region, as far as this voter knows: a hint, confirmed by nobody.
    Leader {
        /// The leader's node.
        leader: Option<NodeId>,
        /// In which term.
        term: u64,
    },
    /// Everything that the replica needs has this index at most in the region's log.
    Applied(u64),
    /// A table that a transaction writes to is gone.
    TableGone(TableId),
    /// As [`Response::Pairs`], of a replica.
    ByReplica {
        /// Keys and rows.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
        /// Where to go on.
        resume: Option<Vec<u8>>,
        /// Whether it leads.
        leads: bool,
        /// Whether it asked its leader how far to read.
        asked: bool,
    },
    /// All keys are locked for a transaction that commits asynchronously, at this timestamp or later.
    LockedFrom(Timestamp),
    /// The primary is locked by a transaction that commits asynchronously: it is committed if all of these are locked, too.
    Pending {
        /// Its other keys.
        secondaries: Vec<Vec<u8>>,
        /// It commits at this timestamp or later.
        min_commit_ts: Timestamp,
        /// For so many more milliseconds its other keys may be on their way.
        left: u64,
    },
    /// How the secondaries of a transaction stand.
    Secondaries(Secondaries),
}
