//! The leader's decisions: which facts a request leads to, given what is stored and locked.
//!
//! Pure, and idempotent: a request that has taken effect already leads to no fact. The caller holds
//! the keys' latches and has applied everything that was decided before.

use std::sync::Arc;

use kv::KvRead;
use types::{Error, Result, Timestamp};

use crate::api::{Mode, Mutation, Op, Secondaries};
use crate::fact::{AsyncCommit, Fact, Floors, WriteKind};
use crate::layout::Fate;
use crate::locks::{Lock, LockTable, time_left};
use crate::mvcc;

/// Milliseconds after its start before which a transaction that never reached its primary may
/// still be on its way there.
pub const LOCK_TTL_MS: u64 = 3_000;

/// What is known when deciding.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Versions and fates.
    pub kv: &'a dyn KvRead,
    /// Locks.
    pub locks: &'a LockTable,
    /// How far back the keys' region can be asked.
    pub floors: Floors,
    /// Transactions that began before this come too late to lock: the region is about to be
    /// collected up to it.
    pub oldest: Timestamp,
}

/// A transaction, as a prewrite names it.
#[derive(Clone, Copy, Debug)]
pub struct Prewrite<'a> {
    /// Identity.
    pub start_ts: Timestamp,
    /// Key that decides.
    pub primary: &'a [u8],
    /// Milliseconds after `start_ts` from which others may roll back.
    pub ttl: u64,
}

/// What a first phase finds or leads to on a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Prewritten {
    /// This lock.
    Lock(Fact),
    /// The transaction holds the key.
    Locked,
    /// The transaction has committed the key.
    Committed(Timestamp),
}

/// What the commit of a whole transaction leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Once<T = ()> {
    /// These facts, in one entry, and what goes with them.
    Commits(Vec<Fact>, T),
    /// Nothing: it has committed.
    Committed(Timestamp),
}

/// What a rollback leads to.
#[derive(Clone, Debug, PartialEq)]
pub enum Rollback {
    /// This fact.
    Fact(Fact),
    /// Nothing: it was rolled back before.
    Already,
    /// Nothing: it has committed.
    Committed(Timestamp),
}

/// What is known of a transaction at its primary.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// It ended so.
    Ended(Fate),
    /// It lives for so many more milliseconds.
    Alive(u64),
    /// Its time is over; this fact ends it.
    Expire(Fact),
    /// Its other keys have to be asked, which may be on their way for so many more milliseconds.
    Pending(AsyncCommit, u64),
}

impl Known<'_> {
    /// First phase of one key: the lock, unless it is there or has become a version.
    pub fn prewrite(&self, of: Prewrite<'_>, mutation: &Mutation) -> Result<Prewritten> {
        self.check_fresh(of.start_ts)?;
        let key = &mutation.key;
        if self.own_lock(key, of.start_ts).is_some() {
            return Ok(Prewritten::Locked);
        }
        let (about, mode) = mutation.holds(of.start_ts)?;
        if let Some(lock) = self.locks.of_other(about, of.start_ts, mode) {
            return Err(Error::Locked(Box::new(lock.info())));
        }
        let newest = mvcc::data(self.kv, about)?;
        let fate = match mode {
            Mode::Exclusive => mvcc::fate_among(self.kv, key, &newest, of.start_ts)?,
            Mode::Shared => mvcc::fate(self.kv, key, of.start_ts)?,
        };
        match fate {
            Some(Fate::Committed(at)) => return Ok(Prewritten::Committed(at)),
            Some(Fate::RolledBack) => return Err(Error::RolledBack(of.start_ts)),
            None => {}
        }
        let committed = newest.newest(mode);
        if committed > mutation.for_update_ts.unwrap_or(of.start_ts) {
            return Err(Error::Conflict { key: about.to_vec(), start: of.start_ts, committed });
        }
        let live = newest.live();
        if live.is_some() && matches!(mutation.op, Op::Insert(_)) {
            return Err(Error::Duplicate { index: String::new(), key: key.clone() });
        }
        let (kind, row) = match &mutation.op {
            Op::Put(row) | Op::Insert(row) => (WriteKind::Put, Some(row.clone())),
            Op::Delete => (WriteKind::Delete, None),
            Op::Lock => (WriteKind::Lock, None),
            Op::Share => (WriteKind::Share, None),
        };
        Ok(Prewritten::Lock(Fact::Lock {
            key: key.clone(),
            start_ts: of.start_ts,
            primary: of.primary.to_vec(),
            kind,
            row,
            replaces: live.filter(|_| kind.changes()),
            ttl: of.ttl,
            for_update_ts: mutation.for_update_ts,
        }))
    }

    /// Both phases of a transaction all of whose keys lie here: each lock and its end, in one entry. Nobody ever meets
    /// these locks.
    pub fn commit_at_once(
        &self,
        of: Prewrite<'_>,
        commit_ts: Timestamp,
        mutations: &[Mutation],
    ) -> Result<Once> {
        let start_ts = of.start_ts;
        let mut facts = Vec::with_capacity(2 * mutations.len());
        for mutation in mutations {
            match self.prewrite(of, mutation)? {
                Prewritten::Lock(lock) => facts.push(lock),
                Prewritten::Committed(at) => return Ok(Once::Committed(at)),
                Prewritten::Locked => {
                    return Err(Error::Invalid(format!(
                        "transaction {start_ts} has begun its first phase and cannot commit at once"
                    )));
                }
            }
            let key = mutation.key.clone();
            facts.push(Fact::Commit { key, start_ts, commit_ts });
        }
        Ok(Once::Commits(facts, ()))
    }

    /// First phase of a transaction that is committed once all of its keys are locked: the locks that are missing, and the
    /// timestamp from which on it may commit, which is `min_commit_ts` for new ones; or when it has committed.
    pub fn prewrite_async(
        &self,
        of: Prewrite<'_>,
        (min_commit_ts, secondaries): (Timestamp, &[Vec<u8>]),
        mutations: &[Mutation],
    ) -> Result<Once<Timestamp>> {
        let (mut facts, mut from) = (Vec::with_capacity(mutations.len() + 1), Timestamp::ZERO);
        let mut secondaries_of = Vec::new();
        for mutation in mutations {
            match self.prewrite(of, mutation)? {
                Prewritten::Lock(lock) => {
                    if mutation.key == of.primary {
                        secondaries_of = secondaries.to_vec();
                    }
                    facts.push(lock);
                }
                Prewritten::Committed(at) => return Ok(Once::Committed(at)),
                Prewritten::Locked => {
                    let locked = self.locked_from(&mutation.key, of.start_ts)?;
                    from = from.max(locked.unwrap_or_default());
                }
            }
        }
        if !facts.is_empty() {
            from = from.max(min_commit_ts);
            let commit = AsyncCommit { min_commit_ts, secondaries: secondaries_of };
            facts.insert(0, Fact::Async(commit));
        }
        Ok(Once::Commits(facts, from))
    }

    /// From when on a transaction that commits asynchronously may do so, by its lock on a key; none without a lock.
    fn locked_from(&self, key: &[u8], start_ts: Timestamp) -> Result<Option<Timestamp>> {
        let Some(lock) = self.own_lock(key, start_ts) else { return Ok(None) };
        match &lock.async_commit {
            Some(commit) => Ok(Some(commit.min_commit_ts)),
            None => Err(Error::Invalid(format!(
                "transaction {start_ts} has a lock that is not of an asynchronous commit"
            ))),
        }
    }

    /// How secondaries of a transaction stand whose primary is locked. One that is not locked is sealed by a fact, if that
    /// is asked for.
    pub fn secondaries(
        &self,
        keys: &[Vec<u8>],
        start_ts: Timestamp,
        seal: bool,
    ) -> Result<(Option<Fact>, Secondaries)> {
        let mut from = Timestamp::ZERO;
        for key in keys {
            if let Some(locked) = self.locked_from(key, start_ts)? {
                from = from.max(locked);
                continue;
            }
            // Fates of all its keys stay while it holds one.
            let fact = match self.rollback(key, start_ts)? {
                Rollback::Committed(at) => return Ok((None, Secondaries::Committed(at))),
                Rollback::Already => return Ok((None, Secondaries::RolledBack)),
                Rollback::Fact(fact) => fact,
            };
            return Ok(match seal {
                true => (Some(fact), Secondaries::RolledBack),
                false => (None, Secondaries::Missing),
            });
        }
        Ok((None, Secondaries::Locked(from)))
    }

    /// Fails below the floor, where nothing is written any more. An import's repetition that comes
    /// after its table was opened could find that a row was deleted, and its tombstone collected:
    /// it would bring the row back.
    pub fn check_fresh(&self, ts: Timestamp) -> Result<()> {
        let read = self.floors.read.max(self.oldest);
        Floors { read, ..self.floors }.check(ts)
    }

    /// An imported version, or nothing if it is there. A key that was written later is not the
    /// import's any more: it must have ended, and this is a late repetition. One that begins `anew`
    /// replaces what it wrote before; no transaction has written to its table meanwhile.
    pub fn import(
        &self,
        key: Vec<u8>,
        row: Vec<u8>,
        commit_ts: Timestamp,
        anew: bool,
    ) -> Result<Option<Fact>> {
        if let Some(lock) = self.locks.of_other(&key, Timestamp::ZERO, Mode::Exclusive) {
            return Err(Error::Locked(Box::new(lock.info())));
        }
        let newest = mvcc::data(self.kv, &key)?;
        if newest.commit_ts == commit_ts && newest.start_ts == Timestamp::ZERO {
            return Ok(None);
        }
        let committed = newest.newest(Mode::Exclusive);
        if committed >= commit_ts {
            return Err(Error::Conflict { key, start: commit_ts, committed });
        }
        let replaces = newest.live();
        if replaces.is_some() && !(anew && newest.start_ts == Timestamp::ZERO) {
            return Err(Error::Duplicate { index: String::new(), key });
        }
        let (kind, row) = (WriteKind::Put, Some(row));
        Ok(Some(Fact::Write { key, commit_ts, kind, row, replaces }))
    }

    /// Second phase of one key. A transaction without a lock or a version here has lost it.
    pub fn commit(
        &self,
        key: &[u8],
        start_ts: Timestamp,
        commit_ts: Timestamp,
    ) -> Result<Option<Fact>> {
        if commit_ts <= start_ts {
            return Err(Error::Invalid(format!(
                "commit at {commit_ts} of a transaction that began at {start_ts}"
            )));
        }
        if let Some(lock) = self.own_lock(key, start_ts) {
            if let Some(least) = &lock.async_commit
                && commit_ts < least.min_commit_ts
            {
                return Err(Error::Invalid(format!(
                    "transaction {start_ts} commits at {} or later, and is asked to commit at {commit_ts}",
                    least.min_commit_ts
                )));
            }
            return Ok(Some(Fact::Commit { key: key.to_vec(), start_ts, commit_ts }));
        }
        match mvcc::fate(self.kv, key, start_ts)? {
            Some(Fate::Committed(at)) if at == commit_ts => Ok(None),
            Some(Fate::Committed(at)) => Err(Error::Corrupt(format!(
                "transaction {start_ts} committed at {at} and is asked to commit at {commit_ts}"
            ))),
            Some(Fate::RolledBack) => Err(Error::RolledBack(start_ts)),
            // It may have committed, and its version been superseded and collected.
            None => self.floors.check(start_ts).and(Err(Error::RolledBack(start_ts))),
        }
    }

    /// Gives a key up for good: also without a lock, so that a late prewrite finds its end.
    pub fn rollback(&self, key: &[u8], start_ts: Timestamp) -> Result<Rollback> {
        let fact = Fact::Rollback { key: key.to_vec(), start_ts };
        if self.own_lock(key, start_ts).is_some() {
            return Ok(Rollback::Fact(fact));
        }
        Ok(match mvcc::fate(self.kv, key, start_ts)? {
            Some(Fate::Committed(at)) => Rollback::Committed(at),
            Some(Fate::RolledBack) => Rollback::Already,
            None if start_ts < self.floors.settled => {
                return Err(Error::SnapshotTooOld { ts: start_ts, floor: self.floors.settled });
            }
            // It comes too late to lock the key anyway.
            None if start_ts < self.floors.read => Rollback::Already,
            None => Rollback::Fact(fact),
        })
    }

    /// What became of a transaction, asked at its primary by who met a lock with this time to
    /// live.
    pub fn status(
        &self,
        primary: &[u8],
        start_ts: Timestamp,
        now: Timestamp,
        met_ttl: u64,
    ) -> Result<Status> {
        let ttl = match self.own_lock(primary, start_ts) {
            Some(lock) if lock.primary != primary => {
                return Err(Error::Invalid(format!(
                    "transaction {start_ts} has another primary than the one asked about"
                )));
            }
            Some(lock) => match &lock.async_commit {
                Some(commit) => return Ok(Status::Pending(commit.clone(), lock.time_left(now))),
                None => lock.ttl,
            },
            None => match mvcc::fate(self.kv, primary, start_ts)? {
                Some(fate) => return Ok(Status::Ended(fate)),
                // Below what is settled, no region held a lock of it when its fate was forgotten:
                // who asks has met one that was taken since, and that can only come to nothing.
                None if start_ts < self.floors.read => return Ok(Status::Ended(Fate::RolledBack)),
                None => met_ttl.max(LOCK_TTL_MS),
            },
        };
        Ok(match time_left(start_ts, ttl, now) {
            0 => Status::Expire(Fact::Rollback { key: primary.to_vec(), start_ts }),
            left => Status::Alive(left),
        })
    }

    /// Ends a lock of a transaction whose fate is known; nothing if it is gone.
    pub fn resolve(
        &self,
        key: &[u8],
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
    ) -> Option<Fact> {
        self.own_lock(key, start_ts)?;
        let key = key.to_vec();
        Some(match commit_ts {
            Some(commit_ts) => Fact::Commit { key, start_ts, commit_ts },
            None => Fact::Rollback { key, start_ts },
        })
    }

    /// The same lock with a longer life, or nothing if it has that already.
    pub fn keep_alive(
        &self,
        primary: &[u8],
        start_ts: Timestamp,
        ttl: u64,
    ) -> Result<Option<Fact>> {
        match self.own_lock(primary, start_ts) {
            Some(lock) if lock.ttl >= ttl => Ok(None),
            Some(lock) => Ok(Some(Lock { ttl, ..Lock::clone(&lock) }.into_fact())),
            None => match mvcc::fate(self.kv, primary, start_ts)? {
                Some(Fate::Committed(_)) => Ok(None),
                Some(Fate::RolledBack) | None => Err(Error::RolledBack(start_ts)),
            },
        }
    }

    fn own_lock(&self, key: &[u8], start_ts: Timestamp) -> Option<Arc<Lock>> {
        self.locks.get(key).filter(|lock| lock.start_ts == start_ts)
    }
}
