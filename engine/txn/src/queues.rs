//! Row locks of pessimistic transactions, as a region's leader keeps them in memory: who holds a
//! key, and who waits for it, in order of arrival.
//!
//! A promise of order, not of correctness: that is the conflict check of the first phase. What is
//! lost with a leader costs a transaction its commit, never anybody an update. Pure: time is passed
//! in, in milliseconds since some fixed time, and nobody is woken here.

use std::collections::{BTreeMap, VecDeque};

use types::{RegionId, Timestamp};

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
    until: u64,
}

struct Queue {
    tenure: Tenure,
    holder: Option<Claim>,
    waiting: VecDeque<Claim>,
}

/// The queues of one node.
#[derive(Default)]
pub struct Queues {
    keys: BTreeMap<Vec<u8>, Queue>,
    granted: Vec<Grant>,
}

impl Queues {
    /// Claims a key, or repeats a claim. A holder keeps it until `hold_until`; who has to wait
    /// keeps a place in the queue until `place_until`, or takes none without it.
    pub fn claim(
        &mut self,
        now: u64,
        tenure: Tenure,
        key: &[u8],
        owner: Timestamp,
        (hold_until, place_until): (u64, Option<u64>),
    ) -> Standing {
        let fresh = || Queue { tenure, holder: None, waiting: VecDeque::new() };
        let queue = self.keys.entry(key.to_vec()).or_insert_with(fresh);
        // A region that has another number here was cut off from the one that the claims name.
        if queue.tenure.region == tenure.region && queue.tenure.term != tenure.term {
            *queue = fresh();
        }
        queue.tenure = tenure;
        self.granted.extend(queue.advance(now).map(|owner| (key.to_vec(), owner)));
        match &mut queue.holder {
            Some(holder) if holder.owner == owner => {
                holder.until = holder.until.max(hold_until);
                Standing::Holds
            }
            Some(holder) => {
                let behind = Standing::Behind(holder.owner);
                let Some(until) = place_until else { return behind };
                queue.waiting.retain(|claim| claim.until > now);
                match queue.waiting.iter_mut().find(|claim| claim.owner == owner) {
                    Some(claim) => claim.until = claim.until.max(until),
                    None => queue.waiting.push_back(Claim { owner, until }),
                }
                behind
            }
            None => {
                queue.holder = Some(Claim { owner, until: hold_until });
                Standing::Holds
            }
        }
    }

    /// Gives a key back, or a place in its queue.
    pub fn release(&mut self, now: u64, key: &[u8], owner: Timestamp) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.waiting.retain(|claim| claim.owner != owner);
        if queue.holder.is_some_and(|holder| holder.owner == owner) {
            queue.holder = None;
        }
        self.granted.extend(queue.advance(now).map(|owner| (key.to_vec(), owner)));
        if queue.holder.is_none() {
            self.keys.remove(key);
        }
    }

    /// Gives back a place in a key's queue, but not the key.
    pub fn leave(&mut self, key: &[u8], owner: Timestamp) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.waiting.retain(|claim| claim.owner != owner);
        }
    }

    /// Who holds a key.
    pub fn holder(&self, now: u64, key: &[u8]) -> Option<Timestamp> {
        let holder = self.keys.get(key)?.holder.filter(|holder| holder.until > now)?;
        Some(holder.owner)
    }

    /// Voids what has run out.
    pub fn sweep(&mut self, now: u64) {
        let granted = &mut self.granted;
        self.keys.retain(|key, queue| {
            granted.extend(queue.advance(now).map(|owner| (key.clone(), owner)));
            queue.holder.is_some()
        });
    }

    /// Who was given a key while waiting for it, since this was last asked.
    pub fn take_granted(&mut self) -> Vec<Grant> {
        std::mem::take(&mut self.granted)
    }

    /// What is held of a region: keys and their owners.
    pub fn of_region(&self, now: u64, region: RegionId) -> Vec<Grant> {
        let of_region = self.keys.iter().filter(|(_, queue)| queue.tenure.region == region);
        of_region
            .filter_map(|(key, queue)| {
                let holder = queue.holder.filter(|holder| holder.until > now)?;
                Some((key.clone(), holder.owner))
            })
            .collect()
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
    /// Passes the key on if nobody holds it any more; who was given it.
    fn advance(&mut self, now: u64) -> Option<Timestamp> {
        if self.holder.is_some_and(|holder| holder.until > now) {
            return None;
        }
        self.holder = None;
        while let Some(next) = self.waiting.pop_front() {
            if next.until > now {
                self.holder = Some(next);
                return Some(next.owner);
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "queues_tests.rs"]
mod tests;
