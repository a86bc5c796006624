//! What clients did and learned: attempts of transactions, and reads of whole snapshots.
//!
//! Written down before an outcome can be known, so that a client that dies leaves what it had begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{Row, Table, Timestamp};

/// How an attempt ended, as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Committed(Timestamp),
    Refused,
    Unknown,
}

/// A row seen under a lock: when it was last written, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub newest: Timestamp,
    pub row: Option<Vec<u8>>,
}

/// One attempt of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// Its number, which is also that of the row that it inserts.
    pub id: i64,
    pub what: &'static str,
    /// Places in the order of events as clients saw them.
    pub begun: u64,
    pub ended: Option<u64>,
    pub start_ts: Timestamp,
    /// Rows read at the start timestamp.
    pub reads: BTreeMap<i64, Option<Vec<u8>>>,
    /// Rows read under locks.
    pub held: BTreeMap<i64, Held>,
    /// Rows written; none for a deletion.
    pub writes: BTreeMap<i64, Option<Vec<u8>>>,
    /// Those of them that must not have been there.
    pub inserts: Vec<i64>,
    pub outcome: Outcome,
}

/// What a read of a snapshot found.
#[derive(Clone)]
pub(crate) enum Seen {
    /// Stored rows by key, of the whole table.
    Rows(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Rows of a range, as the description shows them that the columns had.
    Columns {
        start: Vec<u8>,
        end: Vec<u8>,
        table: Option<Arc<Table>>,
        rows: BTreeMap<Vec<u8>, Row>,
    },
}

/// A read of a snapshot.
#[derive(Clone)]
pub(crate) struct Look {
    pub ts: Timestamp,
    pub whence: String,
    pub seen: Seen,
}

#[derive(Default)]
struct State {
    sequence: u64,
    ended: u64,
    next: i64,
    attempts: BTreeMap<i64, Attempt>,
    looks: Vec<Look>,
}

/// The ledger. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<State>>);

/// Rows that attempts insert have numbers from here on.
pub(crate) const FIRST_MARKER: i64 = 10_000;

impl Ledger {
    /// A new attempt.
    pub(crate) fn begin(&self, what: &'static str) -> Attempt {
        let mut state = self.0.lock();
        state.sequence += 1;
        state.next += 1;
        // Neighbours in time are not neighbours in the table.
        let id = FIRST_MARKER + (state.next * 7_919) % 100_003;
        Attempt {
            id,
            what,
            begun: state.sequence,
            ended: None,
            start_ts: Timestamp::ZERO,
            reads: BTreeMap::new(),
            held: BTreeMap::new(),
            writes: BTreeMap::new(),
            inserts: Vec::new(),
            outcome: Outcome::Unknown,
        }
    }

    /// Writes an attempt down as it stands.
    pub(crate) fn note(&self, attempt: &Attempt) {
        self.0.lock().attempts.insert(attempt.id, attempt.clone());
    }

    /// Its client has its answer.
    pub(crate) fn end(&self, attempt: &mut Attempt, outcome: Outcome) {
        let mut state = self.0.lock();
        state.sequence += 1;
        attempt.ended = Some(state.sequence);
        attempt.outcome = outcome;
        state.ended += 1;
        state.attempts.insert(attempt.id, attempt.clone());
    }

    /// How many attempts have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.0.lock().ended
    }

    pub(crate) fn look(&self, look: Look) {
        self.0.lock().looks.push(look);
    }

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.0.lock().attempts.values().cloned().collect()
    }

    pub(crate) fn looks(&self) -> Vec<Look> {
        self.0.lock().looks.clone()
    }

    /// Timestamps of committed attempts, for readers who look back.
    pub(crate) fn commits(&self) -> Vec<Timestamp> {
        let state = self.0.lock();
        let commits = state.attempts.values().filter_map(|attempt| match attempt.outcome {
            Outcome::Committed(ts) => Some(ts),
            _ => None,
        });
        commits.collect()
    }
}
