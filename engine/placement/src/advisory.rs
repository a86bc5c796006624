//! Advisory locks (MySQL's GET_LOCK): names that sessions hold, one at a time over the whole cluster.
//!
//! Who holds a name is replicated. Who waits for it in which order, and which sessions are alive, is in
//! the memory of placement's leader alone, and is repeated by whom it is about. Pure: times are passed
//! in, and nobody is woken here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use env::Instant;
use types::{Error, Result};

use crate::api::{Freed, Hold};
use crate::state::State;

/// How long a session that sends no heartbeat keeps its locks.
pub const KEPT_FOR: Duration = Duration::from_secs(15);

/// How long a place in a queue is kept without being repeated.
const PLACE_FOR: Duration = Duration::from_secs(3);

/// Most locks at a time; one is about 100 bytes of replicated state.
pub const MAX_LOCKS: usize = 100_000;

/// Gives a name to a session, or returns who else holds it.
pub fn take(state: &mut State, name: String, by: Hold) -> Result<Option<Hold>> {
    let full = state.locks.len() >= MAX_LOCKS;
    match state.locks.get_mut(&name) {
        Some(held) if held.owner != by.owner => Ok(Some(*held)),
        Some(held) => {
            held.call = held.call.max(by.call);
            Ok(None)
        }
        None if full => Err(Error::Invalid(format!(
            "there are {MAX_LOCKS} advisory locks already: release some"
        ))),
        None => {
            state.locks.insert(name, by);
            Ok(None)
        }
    }
}

/// Frees names.
pub fn free(state: &mut State, freed: &[Freed]) {
    for Freed { name, owner, call } in freed {
        if state.locks.get(name).is_some_and(|held| held.owner == *owner && held.call <= *call) {
            state.locks.remove(name);
        }
    }
}

/// What a session believes to hold beside what it holds: names that it has lost, and names that are its
/// own without its knowing.
pub fn compare(
    locks: &BTreeMap<String, Hold>,
    owner: u64,
    believed: Vec<String>,
    ended: u64,
) -> (Vec<String>, Vec<Freed>) {
    let believed: BTreeSet<String> = believed.into_iter().collect();
    let unknown = locks.iter().filter(|(name, held)| {
        held.owner == owner && held.call <= ended && !believed.contains(*name)
    });
    let unknown = unknown.map(|(name, held)| Freed { name: name.clone(), owner, call: held.call });
    let unknown = unknown.collect();
    let held = |name: &String| locks.get(name).is_some_and(|held| held.owner == owner);
    (believed.into_iter().filter(|name| !held(name)).collect(), unknown)
}

/// How a call that asks for a name goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The name may be taken now.
    Take,
    /// It may not, as yet.
    Wait,
    /// Waiting would close a circle.
    Deadlock,
    /// The session has given the call up.
    Over,
}

/// Sessions that one leader of placement knows.
#[derive(Default)]
pub struct Waits {
    queues: BTreeMap<String, VecDeque<u64>>,
    /// The one name that a session waits for, and until when its place is kept.
    places: BTreeMap<u64, (String, Instant)>,
    last_seen: BTreeMap<u64, Instant>,
    /// Calls up to these were given up.
    over: BTreeMap<u64, u64>,
}

impl Waits {
    /// A call asks for a name, or repeats that; it has a place in the queue from then on if it waits.
    pub fn step(
        &mut self,
        locks: &BTreeMap<String, Hold>,
        (name, by): (&str, &Hold),
        waits: bool,
        now: Instant,
    ) -> Step {
        self.expire(now);
        self.touch(by.owner, now);
        if self.over.get(&by.owner).is_some_and(|over| by.call <= *over) {
            return Step::Over;
        }
        let first = self.queues.get(name).and_then(VecDeque::front);
        let first = first.is_none_or(|first| *first == by.owner);
        match locks.get(name) {
            Some(held) if held.owner == by.owner => Step::Take,
            None if first => Step::Take,
            _ if !waits => Step::Wait,
            _ if self.closes_circle(locks, name, by.owner) => {
                self.leave(by.owner);
                Step::Deadlock
            }
            _ => {
                self.enter(name, by.owner, now);
                Step::Wait
            }
        }
    }

    /// A session waits no longer.
    pub fn leave(&mut self, owner: u64) {
        let Some((name, _)) = self.places.remove(&owner) else { return };
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.retain(|waiting| *waiting != owner);
            if queue.is_empty() {
                self.queues.remove(&name);
            }
        }
    }

    /// A session has given up what its calls up to one asked for.
    pub fn give_up(&mut self, owner: u64, call: u64, now: Instant) {
        self.touch(owner, now);
        self.leave(owner);
        let over = self.over.entry(owner).or_default();
        *over = call.max(*over);
    }

    /// A session is alive.
    pub fn touch(&mut self, owner: u64, now: Instant) {
        self.last_seen.insert(owner, now);
    }

    /// Locks of sessions whose last heartbeat is too old; without one, since this memory first saw them.
    pub fn silent(&mut self, locks: &BTreeMap<String, Hold>, now: Instant) -> Vec<Freed> {
        let owners: BTreeSet<u64> = locks.values().map(|held| held.owner).collect();
        self.last_seen.retain(|owner, at| owners.contains(owner) || now.since(*at) < KEPT_FOR);
        self.over.retain(|owner, _| self.last_seen.contains_key(owner));
        for owner in owners {
            self.last_seen.entry(owner).or_insert(now);
        }
        let silent = |held: &Hold| {
            self.last_seen.get(&held.owner).is_some_and(|at| now.since(*at) >= KEPT_FOR)
        };
        let freed = locks.iter().filter(|(_, held)| silent(held));
        let freed = freed.map(|(name, held)| Freed {
            name: name.clone(),
            owner: held.owner,
            call: held.call,
        });
        freed.collect()
    }

    fn enter(&mut self, name: &str, owner: u64, now: Instant) {
        if self.places.get(&owner).is_some_and(|(other, _)| other != name) {
            self.leave(owner);
        }
        if self.places.insert(owner, (name.to_owned(), now + PLACE_FOR)).is_none() {
            self.queues.entry(name.to_owned()).or_default().push_back(owner);
        }
    }

    fn expire(&mut self, now: Instant) {
        let gone = self.places.iter().filter(|(_, (_, until))| *until <= now);
        let gone: Vec<u64> = gone.map(|(owner, _)| *owner).collect();
        gone.into_iter().for_each(|owner| self.leave(owner));
    }

    /// Whether who holds a name waits, over others or not, for a name of the session.
    fn closes_circle(&self, locks: &BTreeMap<String, Hold>, name: &str, owner: u64) -> bool {
        let mut seen = BTreeSet::new();
        let mut wanted = name;
        while let Some(held) = locks.get(wanted) {
            if held.owner == owner {
                return true;
            }
            if !seen.insert(held.owner) {
                return false;
            }
            match self.places.get(&held.owner) {
                Some((next, _)) => wanted = next,
                None => return false,
            }
        }
        false
    }
}
