//! The locks of unfinished transactions, in memory: rebuilt from the store at open, kept in step
//! by the row machine.
//!
//! Scans look here instead of walking deleted locks in the store. Nothing here decides what a lock
//! means for anybody.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use kv::{Keyspace, KvRead};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use types::error::LockInfo;
use types::{Error, Result, Timestamp};

use crate::api::Mode;
use crate::fact::{AsyncCommit, Fact, WriteKind};
use crate::layout;
use crate::share::shares_of;

/// The lock of an unfinished transaction on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Key.
    pub key: Vec<u8>,
    /// Identity of the transaction.
    pub start_ts: Timestamp,
    /// Key whose fate decides the transaction.
    pub primary: Vec<u8>,
    /// What commit will do.
    pub kind: WriteKind,
    /// The row, for `Put`.
    pub row: Option<Vec<u8>>,
    /// Commit timestamp of the version that will be superseded.
    pub replaces: Option<Timestamp>,
    /// Milliseconds after `start_ts` from which others may roll back.
    pub ttl: u64,
    /// For pessimistic locks: the timestamp they were taken at.
    pub for_update_ts: Option<Timestamp>,
    /// Of a transaction that commits asynchronously. Behind the other fields where it is stored.
    #[serde(skip)]
    pub async_commit: Option<AsyncCommit>,
}

impl Lock {
    /// The lock that a [`Fact::Lock`] makes, of a transaction that commits asynchronously or not.
    pub fn from_fact(fact: Fact, async_commit: Option<AsyncCommit>) -> Option<Self> {
        let Fact::Lock { key, start_ts, primary, kind, row, replaces, ttl, for_update_ts } = fact
        else {
            return None;
        };
        Some(Lock { key, start_ts, primary, kind, row, replaces, ttl, for_update_ts, async_commit })
    }

    /// The fact that makes this lock, but for what a [`Fact::Async`] before it said.
    pub fn into_fact(self) -> Fact {
        let Lock { key, start_ts, primary, kind, row, replaces, ttl, for_update_ts, .. } = self;
        Fact::Lock { key, start_ts, primary, kind, row, replaces, ttl, for_update_ts }
    }

    /// As a record of [`Keyspace::Lock`].
    pub fn encode(&self) -> Result<Vec<u8>> {
        let record = layout::encode(self)?;
        match &self.async_commit {
            Some(commit) => Ok(postcard::to_extend(commit, record)?),
            None => Ok(record),
        }
    }

    /// From a record of [`Keyspace::Lock`].
    pub fn decode(record: &[u8]) -> Result<Self> {
        let (lock, rest): (Lock, _) = layout::decode_front(record)?;
        let async_commit = if rest.is_empty() { None } else { Some(postcard::from_bytes(rest)?) };
        Ok(Lock { async_commit, ..lock })
    }

    /// The newest timestamp in it.
    pub fn newest(&self) -> Timestamp {
        let commit = self.async_commit.as_ref().map(|commit| commit.min_commit_ts);
        commit.map_or(self.start_ts, |commit_ts| commit_ts.max(self.start_ts))
    }

    /// What somebody who meets the lock needs to know.
    pub fn info(&self) -> LockInfo {
        LockInfo {
            key: self.key.clone(),
            primary: self.primary.clone(),
            start_ts: self.start_ts,
            ttl: self.ttl,
        }
    }

    /// Milliseconds left at `now` until others may roll back.
    pub fn time_left(&self, now: Timestamp) -> u64 {
        time_left(self.start_ts, self.ttl, now)
    }

    /// Whether a reader at `ts` cannot know what it would see: the transaction may have taken its
    /// commit timestamp before `ts`.
    pub fn blocks_reader(&self, ts: Timestamp) -> bool {
        let earliest = self.async_commit.as_ref().map_or(self.start_ts, |c| c.min_commit_ts);
        self.kind.changes() && earliest <= ts
    }
}

/// Milliseconds left at `now` of a transaction that began at `start_ts` and lives for `ttl`.
pub fn time_left(start_ts: Timestamp, ttl: u64, now: Timestamp) -> u64 {
    start_ts.physical_ms().saturating_add(ttl).saturating_sub(now.physical_ms())
}

/// Changes of locks, by key: the lock from now on, or none.
pub type LockChanges = BTreeMap<Vec<u8>, Option<Arc<Lock>>>;

/// Every lock on this node, ordered by key.
#[derive(Default)]
pub struct LockTable {
    locks: RwLock<BTreeMap<Vec<u8>, Arc<Lock>>>,
}

impl LockTable {
    /// The locks that the store holds.
    pub fn load(kv: &dyn KvRead) -> Result<Self> {
        let mut locks = BTreeMap::new();
        for pair in kv.scan(Keyspace::Lock, &[], &[u8::MAX; 16]) {
            let (key, value) = pair?;
            let lock = Lock::decode(&value)?;
            if lock.key != key {
                return Err(Error::Corrupt("a stored lock names another key".into()));
            }
            locks.insert(key, Arc::new(lock));
        }
        Ok(LockTable { locks: RwLock::new(locks) })
    }

    /// The lock on a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Lock>> {
        self.locks.read().get(key).cloned()
    }

    /// A lock of another transaction on a key that keeps this one from holding it so.
    pub fn of_other(&self, key: &[u8], start_ts: Timestamp, mode: Mode) -> Option<Arc<Lock>> {
        let alone = self.get(key).filter(|lock| lock.start_ts != start_ts);
        if alone.is_some() || mode.shares() {
            return alone;
        }
        let (start, end) = shares_of(key);
        self.first(&start, &end, |lock| lock.kind == WriteKind::Share && lock.start_ts != start_ts)
    }

    /// The first lock with `start ≤ key < end` that a reader at `ts` must resolve.
    pub fn blocking(&self, start: &[u8], end: &[u8], ts: Timestamp) -> Option<Arc<Lock>> {
        self.first(start, end, |lock| lock.blocks_reader(ts))
    }

    /// Keys of a transaction's locks with `start ≤ key < end`, at most `limit`.
    pub fn of_transaction(
        &self,
        start: &[u8],
        end: &[u8],
        start_ts: Timestamp,
        limit: usize,
    ) -> Vec<Vec<u8>> {
        let locks = self.locks.read();
        range(&locks, start, end)
            .filter(|lock| lock.start_ts == start_ts)
            .take(limit)
            .map(|lock| lock.key.clone())
            .collect()
    }

    /// Locks with `start ≤ key < end` of transactions that began before `ts`, at most `limit`.
    pub fn older(&self, start: &[u8], end: &[u8], ts: Timestamp, limit: usize) -> Vec<Arc<Lock>> {
        let locks = self.locks.read();
        range(&locks, start, end).filter(|lock| lock.start_ts < ts).take(limit).cloned().collect()
    }

    /// Number of locks with `start ≤ key < end`, and the oldest of their start timestamps.
    pub fn summary(&self, start: &[u8], end: &[u8]) -> (usize, Option<Timestamp>) {
        let locks = self.locks.read();
        let mut oldest = None;
        let count = range(&locks, start, end)
            .inspect(|lock| {
                oldest = Some(oldest.unwrap_or(Timestamp::MAX).min(lock.start_ts));
            })
            .count();
        (count, oldest)
    }

    /// Publishes locks of keys that hold none yet: done before their batch is written.
    pub(crate) fn add_new(&self, changes: &LockChanges) {
        let mut locks = self.locks.write();
        for (key, lock) in changes {
            if let Some(lock) = lock {
                locks.entry(key.clone()).or_insert_with(|| lock.clone());
            }
        }
    }

    /// Publishes everything else: done after their batch is written, so that a reader who no
    /// longer meets a lock finds the version it became.
    pub(crate) fn settle(&self, changes: LockChanges) {
        let mut locks = self.locks.write();
        for (key, lock) in changes {
            match lock {
                Some(lock) => locks.insert(key, lock),
                None => locks.remove(&key),
            };
        }
    }

    /// Forgets the locks with `start ≤ key < end`.
    pub(crate) fn clear(&self, start: &[u8], end: &[u8]) {
        let mut locks = self.locks.write();
        let keys: Vec<_> = range(&locks, start, end).map(|lock| lock.key.clone()).collect();
        for key in keys {
            locks.remove(&key);
        }
    }

    pub(crate) fn first(
        &self,
        start: &[u8],
        end: &[u8],
        mut wanted: impl FnMut(&Lock) -> bool,
    ) -> Option<Arc<Lock>> {
        let locks = self.locks.read();
        range(&locks, start, end).find(|lock| wanted(lock)).cloned()
    }
}

fn range<'a>(
    locks: &'a BTreeMap<Vec<u8>, Arc<Lock>>,
    start: &[u8],
    end: &[u8],
) -> impl Iterator<Item = &'a Arc<Lock>> {
    // BTreeMap refuses ranges that end before they start.
    let end = end.max(start);
    locks.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end))).map(|(_, lock)| lock)
}
