//! One small error type, sorted by what its caller should do about it.
//!
//! It never carries row values: messages reach logs.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RegionId, SchemaVersion, TableId};
use crate::region::Region;
use crate::time::Timestamp;

/// The result of nearly everything.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, named by the action that its receiver can take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// The peer asked does not lead the region: ask `leader`, or look the region up again.
    #[error("region {region} is not led here (leader: {leader:?})")]
    NotLeader {
        /// Region that was addressed.
        region: RegionId,
        /// Node that leads it, where known.
        leader: Option<NodeId>,
    },
    /// The caller's copy of the region is stale: replace it by `current` and retry.
    #[error("region {region} has changed shape since it was looked up")]
    StaleEpoch {
        /// Region that was addressed.
        region: RegionId,
        /// The region, and the siblings split from it, as this peer knows them.
        current: Vec<Region>,
    },
    /// The node holds no peer of the region: look it up again.
    #[error("region {0} is not on this node")]
    RegionNotFound(RegionId),
    /// Another transaction committed the key after this one began: run the transaction again.
    #[error(
        "write conflict: a newer version was committed at {committed} (transaction began at {start})"
    )]
    Conflict {
        /// Encoded key, for the caller's own use; never printed.
        key: Vec<u8>,
        /// When the loser began.
        start: Timestamp,
        /// When the winner committed.
        committed: Timestamp,
    },
    /// A lock of an unfinished transaction is in the way: resolve it, then retry.
    #[error("locked by the transaction that began at {}", .0.start_ts)]
    Locked(Box<LockInfo>),
    /// The row exists already.
    #[error("duplicate entry for key '{index}'")]
    Duplicate {
        /// Name of the violated index (`PRIMARY` for the primary key).
        index: String,
        /// Encoded key, for the caller's own use; never printed.
        key: Vec<u8>,
    },
    /// The transaction was rolled back by another reader or writer: run it again.
    #[error("transaction that began at {0} was rolled back")]
    RolledBack(Timestamp),
    /// Waiting for a row would have closed a circle of waiting transactions: this one gives way, and
    /// may be run again.
    #[error("the transaction that began at {0} waits in a circle of transactions, and gives way")]
    Deadlock(Timestamp),
    /// A row is held by a living transaction: for longer than a writer waits that has seen no
    /// value of the row under a lock. Run the transaction again.
    #[error("the transaction that began at {start} needs a row that the one of {holder} holds")]
    Held {
        /// Who would write.
        start: Timestamp,
        /// Who holds.
        holder: Timestamp,
    },
    /// A row stayed locked for as long as the statement would wait: the transaction may go on.
    #[error("waited {millis} ms for a row that the transaction of {holder} holds")]
    LockWait {
        /// Who holds it.
        holder: Timestamp,
        /// How long, in milliseconds.
        millis: u64,
    },
    /// A row is locked, and the statement would not wait (NOWAIT).
    #[error("a row is held by the transaction of {0}, and the statement does not wait")]
    LockBusy(Timestamp),
    /// Rows were encoded with a schema version that their region refuses or has not received:
    /// send it a newer one, or reload the catalog and run the transaction again.
    #[error(
        "table {table} has changed: written with schema version {sent}, its region knows {known:?}"
    )]
    SchemaChanged {
        /// Table.
        table: TableId,
        /// Version that the rows were encoded with.
        sent: SchemaVersion,
        /// Newest version that the region knows, if any.
        known: Option<SchemaVersion>,
    },
    /// The read timestamp is older than what is still kept.
    #[error("snapshot {ts} is older than the oldest one kept ({floor}): take a new snapshot")]
    SnapshotTooOld {
        /// Timestamp that was asked for.
        ts: Timestamp,
        /// Oldest timestamp that can be read.
        floor: Timestamp,
    },
    /// A snapshot lease ran out or was never granted.
    #[error("snapshot lease {0} has expired or is unknown: take a new snapshot")]
    LeaseLost(u64),
    /// A bounded wait ran out. Of a single request it leaves open whether it took effect; of a whole
    /// transaction it says that nothing was committed ([`Error::OutcomeUnknown`] is the other case).
    #[error("timed out after {millis} ms waiting for {what}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// How long, in milliseconds.
        millis: u64,
    },
    /// Something needed is down or not ready: retry later, or elsewhere.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// A proposal was dropped before it reached the log, certainly: retry.
    #[error("dropped: {0}")]
    Dropped(String),
    /// The request cannot be right; the same request fails again.
    #[error("{0}")]
    Invalid(String),
    /// A named thing does not exist.
    #[error("{kind} '{name}' does not exist")]
    NotFound {
        /// What kind of thing: `table`, `database`, `user`, `node` …
        kind: String,
        /// Its name.
        name: String,
    },
    /// A named thing exists already.
    #[error("{kind} '{name}' already exists")]
    Exists {
        /// What kind of thing.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Stored or received bytes contradict their checksum or the invariants.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// The operating system refused I/O (disk full, permission, missing file).
    #[error("i/o: {0}")]
    Io(String),
    /// The work was cancelled by its owner.
    #[error("cancelled: {0}")]
    Cancelled(String),
    /// What was asked may have taken effect or not, and nobody who knows answers: neither a failure
    /// nor a success, so it must not be repeated without a look at what is there.
    #[error(
        "the outcome of {what} could not be learned within {millis} ms: it may have taken effect; \
         check before running it again"
    )]
    OutcomeUnknown {
        /// What was asked.
        what: String,
        /// How long the outcome was asked for, in milliseconds.
        millis: u64,
    },
    /// A node's identity is not valid here (any more): nothing that it says under it is taken. The text
    /// says what to do.
    #[error("identity refused: {0}")]
    Revoked(String),
    /// A resource group was in debt for as long as work waits for it: it may be run again later.
    #[error(
        "resource group {0} has used the request units that it may use: try again later, or raise its RU_PER_SEC"
    )]
    Throttled(String),
}

/// What a reader needs to know of a lock that it met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    /// Locked key.
    pub key: Vec<u8>,
    /// Key whose fate is the transaction's fate.
    pub primary: Vec<u8>,
    /// Identity of the locking transaction.
    pub start_ts: Timestamp,
    /// Milliseconds after `start_ts` from which others may roll the transaction back.
    pub ttl: u64,
}

impl Error {
    /// Whether the same request may be sent again, later or to another node: what stood in its way passes by itself.
    ///
    /// Requests between nodes bear being sent twice, but for changes of the catalog. Of a request that timed out nobody
    /// knows whether it was done.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::NotLeader { .. }
                | Error::StaleEpoch { .. }
                | Error::RegionNotFound(_)
                | Error::Unavailable(_)
                | Error::Dropped(_)
                | Error::Timeout { .. }
                | Error::Io(_)
        )
    }

    /// Whether running the whole transaction again, at a new start timestamp, may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            Error::Conflict { .. }
                | Error::RolledBack(_)
                | Error::SchemaChanged { .. }
                | Error::Deadlock(_)
                | Error::Held { .. }
        )
    }

    /// A bounded wait that ran out.
    pub fn timeout(what: impl Into<String>, after: std::time::Duration) -> Self {
        Error::Timeout { what: what.into(), millis: after.as_millis() as u64 }
    }

    /// An outcome that could not be learned.
    pub fn outcome_unknown(what: impl Into<String>, after: std::time::Duration) -> Self {
        Error::OutcomeUnknown { what: what.into(), millis: after.as_millis() as u64 }
    }

    /// A named thing that does not exist.
    pub fn not_found(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Error::NotFound { kind: kind.into(), name: name.into() }
    }

    /// A named thing that exists already.
    pub fn exists(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Error::Exists { kind: kind.into(), name: name.into() }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Io(error.to_string())
    }
}

impl From<postcard::Error> for Error {
    fn from(error: postcard::Error) -> Self {
        Error::Corrupt(format!("undecodable record: {error}"))
    }
}
