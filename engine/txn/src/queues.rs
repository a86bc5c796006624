//! Row locks of pessimistic transactions, as a region's leader keeps them in memory: who holds a
//! key, alone or beside others, and who waits for it, in order of arrival.
//!
//! A promise of order, not of correctness: that is the conflict check of the first phase. What is
//! lost with a leader costs a transaction its commit, never anybody an update. Pure: time is passed
//! in, in milliseconds since some fixed time, and nobody is woken here.

use std::collections::{BTreeMap, VecDeque};

use types::{RegionId, Timestamp};

use crate::api::Mode;

/// Who leads the keys. Claims made under another term of the same region are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Region.
    pub region: RegionId,
    /// Term in which it is led from here.
    pub term: u64,
}

/// How a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The key is the claimant's.
    Holds,
    /// It is this transaction's.
    Behind(Timestamp),
}

/// A transaction and the key it was given.
pub type Grant = (Vec<u8>, Timestamp);

/// A transaction's wish for a key, void from some time on unless it is repeated.
#[derive(Clone, Copy, Debug)]
struct Claim {
    owner: Timestamp,
    mode: Mode,
    until: u64,
}

struct Queue {
    tenure: Tenure,
    /// One who holds the key alone, or all who share it.
    holders: Vec<Claim>,
    waiting: VecDeque<Claim>,
}

/// The queues of one node.
#[derive(Default)]
pub struct Queues {
    keys: BTreeMap<Vec<u8>, Queue>,
    granted: Vec<Grant>,
}

impl Queues {
    /// Claims a key, or repeats a claim; who shares it may claim it for itself. A holder keeps it until `hold_until`; who
    /// has to wait keeps a place in the queue until `place_until`, or takes none without it.
    pub fn claim(
        &mut self,
        now: u64,
        tenure: Tenure,
        key: &[u8],
        (owner, mode): (Timestamp, Mode),
        (hold_until, place_until): (u64, Option<u64>),
    ) -> Standing {
        let fresh = || Queue { tenure, holders: Vec::new(), waiting: VecDeque::new() };
        let queue = self.keys.entry(key.to_vec()).or_insert_with(fresh);
        // A region that has another number here was cut off from the one that the claims name.
        if queue.tenure.region == tenure.region && queue.tenure.term != tenure.term {
            *queue = fresh();
        }
        queue.tenure = tenure;
        self.granted.extend(queue.advance(now).into_iter().map(|owner| (key.to_vec(), owner)));
        let Some(blocker) = queue.blocker(now, owner, mode) else {
            queue.hold(Claim { owner, mode, until: hold_until });
            self.granted.extend(queue.advance(now).into_iter().map(|owner| (key.to_vec(), owner)));
            return Standing::Holds;
        };
        if let Some(until) = place_until {
            queue.wait(now, Claim { owner, mode, until });
        }
        Standing::Behind(blocker)
    }

    /// Gives a key back, or a place in its queue.
    pub fn release(&mut self, now: u64, key: &[u8], owner: Timestamp) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.waiting.retain(|claim| claim.owner != owner);
        queue.holders.retain(|claim| claim.owner != owner);
        self.granted.extend(queue.advance(now).into_iter().map(|owner| (key.to_vec(), owner)));
        if queue.holders.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Gives back a place in a key's queue, but not the key.
    pub fn leave(&mut self, now: u64, key: &[u8], owner: Timestamp) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.waiting.retain(|claim| claim.owner != owner);
            // Who shares the key may have waited for that one alone.
            self.granted.extend(queue.advance(now).into_iter().map(|owner| (key.to_vec(), owner)));
        }
    }

    /// Another transaction whose hold on a key keeps this one from holding it so.
    pub fn held_by_other(
        &self,
        now: u64,
        key: &[u8],
        owner: Timestamp,
        mode: Mode,
    ) -> Option<Timestamp> {
        self.keys.get(key)?.excluded_by(now, owner, mode)
    }

    /// Voids what has run out.
    pub fn sweep(&mut self, now: u64) {
        let granted = &mut self.granted;
        self.keys.retain(|key, queue| {
            granted.extend(queue.advance(now).into_iter().map(|owner| (key.clone(), owner)));
            !queue.holders.is_empty()
        });
    }

    /// Who was given a key while waiting for it, since this was last asked.
    pub fn take_granted(&mut self) -> Vec<Grant> {
        std::mem::take(&mut self.granted)
    }

    /// What is held so of a region: keys and their owners.
    pub fn of_region(&self, now: u64, region: RegionId, mode: Mode) -> Vec<Grant> {
        let of_region = self.keys.iter().filter(|(_, queue)| queue.tenure.region == region);
        let grants = |(key, queue): (&Vec<u8>, &Queue)| {
            let held = queue.holders.iter().filter(|claim| claim.until > now && claim.mode == mode);
            held.map(|claim| (key.clone(), claim.owner)).collect::<Vec<_>>()
        };
        of_region.flat_map(grants).collect()
    }

    /// Keys that are held.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Queue {
    /// Another holder beside whom this one cannot hold the key so.
    fn excluded_by(&self, now: u64, owner: Timestamp, mode: Mode) -> Option<Timestamp> {
        let others = self.holders.iter().filter(|held| held.until > now && held.owner != owner);
        let mut excluding = others.filter(|held| !(held.mode.shares() && mode.shares()));
        excluding.next().map(|held| held.owner)
    }

    /// Who has to go before this one holds the key so: a holder, or somebody who waits to hold it alone, whom one after
    /// the other of those who share it would keep waiting for ever.
    fn blocker(&self, now: u64, owner: Timestamp, mode: Mode) -> Option<Timestamp> {
        let excluded = self.excluded_by(now, owner, mode);
        if excluded.is_some() || self.holders.iter().any(|held| held.owner == owner) {
            return excluded;
        }
        let before = self.waiting.iter().take_while(|claim| claim.owner != owner);
        let mut alone = before.filter(|claim| claim.until > now && !claim.mode.shares());
        alone.next().map(|claim| claim.owner)
    }

    /// Holds the key, or for longer, or alone from now on. Who waits to hold it alone still does.
    fn hold(&mut self, claim: Claim) {
        self.waiting.retain(|waiting| waiting.owner != claim.owner || waiting.mode > claim.mode);
        match self.holders.iter_mut().find(|held| held.owner == claim.owner) {
            Some(held) => {
                held.until = held.until.max(claim.until);
                held.mode = held.mode.max(claim.mode);
            }
            None => self.holders.push(claim),
        }
    }

    /// Takes a place in the queue, or keeps it. Who holds the key already comes first: nobody behind can go on before.
    fn wait(&mut self, now: u64, claim: Claim) {
        self.waiting.retain(|claim| claim.until > now);
        let holds = self.holders.iter().any(|held| held.owner == claim.owner);
        match self.waiting.iter_mut().find(|waiting| waiting.owner == claim.owner) {
            Some(waiting) => {
                waiting.until = waiting.until.max(claim.until);
                waiting.mode = waiting.mode.max(claim.mode);
            }
            None if holds => self.waiting.push_front(claim),
            None => self.waiting.push_back(claim),
        }
    }

    /// Passes the key on to those whose turn it is, if its holders let them; who was given it.
    fn advance(&mut self, now: u64) -> Vec<Timestamp> {
        self.holders.retain(|held| held.until > now);
        let mut granted = Vec::new();
        while let Some(next) = self.waiting.front().copied() {
            if next.until <= now {
                self.waiting.pop_front();
            } else if self.excluded_by(now, next.owner, next.mode).is_none() {
                self.hold(next);
                granted.push(next.owner);
            } else {
                break;
            }
        }
        granted
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
