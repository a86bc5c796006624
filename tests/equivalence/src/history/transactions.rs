//! The transactions of a history: each advances by one step in one region at a time, and may give up at any of them.

use std::collections::BTreeMap;

use txn::api::{Mutation, Op};
use txn::decide::{Once, Prewrite, Prewritten, Rollback, Status};
use txn::layout::Fate;
use txn::share::share_key;
use txn::{AsyncCommit, Fact};
use types::{Error, RegionId, Timestamp};

use super::History;
use crate::table::key_of;

/// A transaction: what it writes, and how far it has come.
pub struct Txn {
    pub start: Timestamp,
    primary: Vec<u8>,
    writes: Vec<Mutation>,
    /// Keys without a lock yet.
    unlocked: Vec<Vec<u8>>,
    /// Once it has ended: keys to be informed, and when it committed.
    pub ending: Option<(Vec<Vec<u8>>, Option<Timestamp>)>,
}

impl History {
    pub(super) fn begin(&mut self) {
        let start = self.tick();
        let mut writes: BTreeMap<Vec<u8>, Mutation> = BTreeMap::new();
        for _ in 0..1 + self.random.below(4) {
            let id = self.some_id();
            let key = key_of(id);
            let row = self.row(self.leader.region_of(&key), id);
            let op = match self.random.below(10) {
                0..4 => Op::Put(row),
                4..6 => Op::Insert(row),
                6..8 => Op::Delete,
                8 => Op::Share,
                _ => Op::Lock,
            };
            // A share is nobody's primary.
            let share = op == Op::Share && !writes.is_empty();
            let (key, op) = match share {
                true => (share_key(&key, start), Op::Share),
                false if op == Op::Share => (key, Op::Lock),
                false => (key, op),
            };
            writes.insert(key.clone(), Mutation { key, op, for_update_ts: None });
        }
        let keys: Vec<Vec<u8>> = writes.keys().cloned().collect();
        let may_decide = writes.values().filter(|mutation| mutation.op != Op::Share);
        let may_decide: Vec<_> = may_decide.map(|mutation| mutation.key.clone()).collect();
        let primary = may_decide[self.random.below(may_decide.len() as u64) as usize].clone();
        let writes = writes.into_values().collect();
        self.txns.push(Txn { start, primary, writes, unlocked: keys, ending: None });
    }

    /// One transaction makes one step, in one region.
    pub(super) fn advance(&mut self) {
        if self.txns.is_empty() {
            return;
        }
        let at = self.random.below(self.txns.len() as u64) as usize;
        let mut txn = self.txns.swap_remove(at);
        if txn.ending.is_some() {
            self.end(&mut txn);
        } else if self.random.chance(0.08) {
            self.give_up(&mut txn);
        } else if txn.unlocked.is_empty() {
            self.commit(&mut txn);
        } else if self.random.chance(0.5) && self.commits_at_once(&mut txn) {
            // Both phases of all of it, in one entry.
        } else {
            self.prewrite(&mut txn);
        }
        if txn.ending.as_ref().is_none_or(|(keys, _)| !keys.is_empty()) {
            self.txns.push(txn);
        }
    }

    pub(super) fn give_up(&mut self, txn: &mut Txn) {
        self.tally.rollbacks += 1;
        txn.ending = Some((txn.writes.iter().map(|write| write.key.clone()).collect(), None));
    }

    /// Some of the keys in the region of one of them.
    fn together(&self, keys: &[Vec<u8>]) -> (RegionId, Vec<Vec<u8>>) {
        let first = &keys[self.random.below(keys.len() as u64) as usize];
        let region = self.leader.region(self.leader.region_of(first));
        let near = keys.iter().filter(|key| region.contains(key));
        let some = near.filter(|key| *key == first || self.random.chance(0.7));
        (region.id, some.cloned().collect())
    }

    fn prewrite(&mut self, txn: &mut Txn) {
        let (region, keys) = self.together(&txn.unlocked);
        let mut facts = Vec::new();
        for key in &keys {
            let write = txn.writes.iter().find(|write| write.key == *key).unwrap();
            let of = Prewrite { start_ts: txn.start, primary: &txn.primary, ttl: 3_000 };
            match self.leader.known(region, |known| known.prewrite(of, write)) {
                Ok(Prewritten::Lock(fact)) => facts.push(fact),
                Ok(_) => {}
                Err(error) => return self.conflict(txn, &error),
            }
        }
        if self.random.chance(0.2) {
            // The same lock again, as a keep-alive gives.
            facts.extend(facts.first().cloned());
        }
        if txn.start.0.is_multiple_of(2) && !facts.is_empty() {
            // It commits later than this.
            let (min_commit_ts, secondaries) = (self.tick(), txn.unlocked.clone());
            facts.insert(0, Fact::Async(AsyncCommit { min_commit_ts, secondaries }));
            self.tally.asynchronous += 1;
        }
        if self.submit(region, facts) {
            txn.unlocked.retain(|key| !keys.contains(key));
        }
    }

    /// Commits a transaction that has not begun its first phase, if all its keys lie in one region.
    fn commits_at_once(&mut self, txn: &mut Txn) -> bool {
        let region = self.leader.region_of(&txn.primary);
        let here = |write: &Mutation| self.leader.region_of(&write.key) == region;
        if txn.unlocked.len() < txn.writes.len() || !txn.writes.iter().all(here) {
            return false;
        }
        let commit_ts = self.tick();
        let of = Prewrite { start_ts: txn.start, primary: &txn.primary, ttl: 0 };
        let decide =
            |known: txn::decide::Known<'_>| known.commit_at_once(of, commit_ts, &txn.writes);
        match self.leader.known(region, decide) {
            Ok(Once::Commits(facts, ())) => {
                if self.submit(region, facts) {
                    self.tally.commits += 1;
                    self.tally.at_once += 1;
                    txn.ending = Some((Vec::new(), Some(commit_ts)));
                }
            }
            Ok(Once::Committed(at)) => panic!("it has not committed before, and not at {at}"),
            Err(error) => self.conflict(txn, &error),
        }
        true
    }

    fn conflict(&mut self, txn: &mut Txn, error: &Error) {
        let expected = matches!(
            error,
            Error::Locked(_)
                | Error::Conflict { .. }
                | Error::Duplicate { .. }
                | Error::RolledBack(_)
                | Error::SnapshotTooOld { .. }
        );
        assert!(expected, "{error}");
        self.tally.conflicts += 1;
        self.give_up(txn);
    }

    fn commit(&mut self, txn: &mut Txn) {
        let commit_ts = self.tick();
        let region = self.leader.region_of(&txn.primary);
        let decided =
            self.leader.known(region, |known| known.commit(&txn.primary, txn.start, commit_ts));
        // Nobody else ends it, so its lock is there.
        if self.submit(region, decided.unwrap().into_iter().collect()) {
            self.tally.commits += 1;
            let others = txn.writes.iter().map(|write| write.key.clone());
            let others = others.filter(|key| *key != txn.primary).collect();
            txn.ending = Some((others, Some(commit_ts)));
        }
    }

    fn end(&mut self, txn: &mut Txn) {
        self.look_up_fate(txn);
        let Some((keys, commit_ts)) = &mut txn.ending else { return };
        let (region, some) = self.together(keys);
        let mut facts = Vec::new();
        for key in &some {
            match *commit_ts {
                Some(ts) => {
                    let fact =
                        self.leader.known(region, |known| known.resolve(key, txn.start, Some(ts)));
                    facts.extend(fact);
                }
                None => {
                    match self.leader.known(region, |known| known.rollback(key, txn.start)) {
                        Ok(Rollback::Fact(fact)) => facts.push(fact),
                        Ok(_) => {}
                        // Nobody can know how it ended, and nobody needs to.
                        Err(Error::SnapshotTooOld { .. }) => self.tally.late += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        if self.submit(region, facts) {
            keys.retain(|key| !some.contains(key));
        }
    }

    /// While a transaction holds a key, its primary says how it ended.
    pub(super) fn look_up_fate(&mut self, txn: &Txn) {
        let Some((_, Some(commit_ts))) = &txn.ending else { return };
        if !self.leader.holds(txn.start) {
            return;
        }
        let region = self.leader.region_of(&txn.primary);
        let now = Timestamp::MAX;
        let status = |known: txn::decide::Known<'_>| known.status(&txn.primary, txn.start, now, 0);
        let status = self.leader.known(region, status).unwrap();
        assert_eq!(status, Status::Ended(Fate::Committed(*commit_ts)), "of {}", txn.start);
        self.tally.looked_up += 1;
    }
}
