//! The detector against a search over everything: every circle is found by the wait that closes it,
//! and nobody gives way without one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use env::{Instant, Random};
use types::Timestamp;

use crate::deadlock::{BELIEVED_FOR, WaitGraph};

/// Transactions, keys that they hold, and the one that each waits for.
struct World {
    random: Random,
    graph: WaitGraph,
    now: Instant,
    holders: BTreeMap<u64, Timestamp>,
    waits: BTreeMap<Timestamp, Wait>,
    next: u64,
    live: Vec<Timestamp>,
    circles: usize,
}

/// What a transaction waits for; and for whom, as last reported, and when.
#[derive(Clone, Copy)]
struct Wait {
    key: u64,
    reported: Option<Timestamp>,
    at: Instant,
}

const KEYS: u64 = 12;
const LIVE: usize = 8;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

impl World {
    fn new(seed: u64) -> Self {
        World {
            random: Random::seeded(seed),
            graph: WaitGraph::default(),
            now: Instant::from_micros(1),
            holders: BTreeMap::new(),
            waits: BTreeMap::new(),
            next: 0,
            live: Vec::new(),
            circles: 0,
        }
    }

    /// Whether waiting for `holder` leads back to the waiter: by what was reported, or by what is.
    fn closes(&self, waiter: Timestamp, holder: Timestamp, reported: bool) -> bool {
        let mut at = holder;
        let mut seen = BTreeSet::new();
        while at != waiter {
            if !seen.insert(at) {
                return false;
            }
            let next = self.waits.get(&at).and_then(|wait| match reported {
                true => wait.reported,
                false => Some(self.holders[&wait.key]),
            });
            match next {
                Some(next) => at = next,
                None => return false,
            }
        }
        true
    }

    fn stop_waiting(&mut self, waiter: Timestamp) {
        if let Some(wait) = self.waits.remove(&waiter) {
            self.graph.ended(waiter, &key(wait.key));
        }
    }

    /// It ends: its keys go to who waits for them, in some order.
    fn end(&mut self, ended: Timestamp) {
        self.live.retain(|other| *other != ended);
        self.stop_waiting(ended);
        let freed: Vec<u64> =
            self.holders.iter().filter(|(_, by)| **by == ended).map(|(key, _)| *key).collect();
        let mut moved = Vec::new();
        for free in freed {
            self.holders.remove(&free);
            let waiters = self.waits.iter().filter(|(_, wait)| wait.key == free);
            let mut waiters: Vec<_> = waiters.map(|(by, _)| *by).collect();
            if !waiters.is_empty() {
                let next_holder =
                    waiters.swap_remove(self.random.below(waiters.len() as u64) as usize);
                self.holders.insert(free, next_holder);
                self.stop_waiting(next_holder);
                moved.extend(waiters);
            }
        }
        moved.into_iter().for_each(|waiter| _ = self.report(waiter));
    }

    /// Says who waits for whom, as leaders do: and that must be answered with a circle exactly if
    /// there is one.
    fn report(&mut self, waiter: Timestamp) -> bool {
        let Some(Wait { key: wanted, .. }) = self.waits.get(&waiter).copied() else { return false };
        let holder = self.holders[&wanted];
        let circle = self.graph.wait(self.now, waiter, holder, &key(wanted));
        assert_eq!(circle.is_some(), self.closes(waiter, holder, true), "at {:?}", self.now);
        self.waits.insert(waiter, Wait { key: wanted, reported: Some(holder), at: self.now });
        if let Some(circle) = circle {
            assert_eq!(circle[0], waiter);
            for pair in circle.windows(2) {
                assert_eq!(self.waits[&pair[0]].reported, Some(pair[1]), "{circle:?}");
            }
            self.circles += 1;
            self.end(waiter);
            return true;
        }
        false
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_millis(self.random.below(400));
        // Waits that last are reported again before they are forgotten.
        let due = self.now - BELIEVED_FOR / 2;
        let late: Vec<_> =
            self.waits.iter().filter(|(_, wait)| wait.at < due).map(|(by, _)| *by).collect();
        late.into_iter().for_each(|waiter| _ = self.report(waiter));
        while self.live.len() < LIVE {
            self.next += 1;
            self.live.push(Timestamp(self.next));
        }
        let one = self.live[self.random.below(self.live.len() as u64) as usize];
        let waiting = self.waits.contains_key(&one);
        if self.random.chance(if waiting { 0.05 } else { 0.15 }) {
            // A commit, or a client that is gone.
            return self.end(one);
        }
        if waiting {
            // Its wait takes too long: it goes on without the key, and keeps what it holds.
            if self.random.chance(0.1) {
                self.stop_waiting(one);
            }
            return;
        }
        let wanted = self.random.below(KEYS);
        match self.holders.get(&wanted) {
            Some(holder) if *holder == one => {}
            Some(_) => {
                self.waits.insert(one, Wait { key: wanted, reported: None, at: self.now });
                self.report(one);
            }
            None => {
                self.holders.insert(wanted, one);
            }
        }
    }
}

#[test]
fn every_circle_is_found_and_nobody_gives_way_without_one() {
    let mut circles = 0;
    for seed in 1..=200 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
            for (waiter, wait) in &world.waits {
                let holder = world.holders[&wait.key];
                assert!(!world.closes(*waiter, holder, false), "seed {seed}: a circle is left");
            }
        }
        circles += world.circles;
    }
    assert!(circles > 1_000, "{circles} circles in all");
}

#[test]
fn a_new_leader_hears_of_a_circle_from_repeated_waits() {
    let now = Instant::from_micros(1);
    let [a, b, c] = [1, 2, 3].map(Timestamp);
    let mut graph = WaitGraph::default();
    assert_eq!(graph.wait(now, a, b, b"x"), None);
    assert_eq!(graph.wait(now, b, c, b"y"), None);
    let mut graph = WaitGraph::default();
    assert_eq!(graph.wait(now, c, a, b"z"), None);
    assert_eq!(graph.wait(now, a, b, b"x"), None);
    assert_eq!(graph.wait(now, b, c, b"y"), Some(vec![b, c, a]));
    // The victim's answer may have been lost; it stays the victim, and nobody else becomes one.
    assert_eq!(graph.wait(now, b, c, b"y"), Some(vec![b]));
    assert_eq!(graph.wait(now, c, a, b"z"), None);
}

#[test]
fn what_is_not_repeated_is_forgotten() {
    let now = Instant::from_micros(1);
    let [a, b] = [1, 2].map(Timestamp);
    let mut graph = WaitGraph::default();
    assert_eq!(graph.wait(now, a, b, b"x"), None);
    assert_eq!(graph.wait(now + BELIEVED_FOR, b, a, b"y"), None);
    assert_eq!(graph.len(), 1);
}

#[test]
fn a_circle_is_found_through_every_wait_of_a_transaction() {
    let now = Instant::from_micros(1);
    let [a, b, c] = [1, 2, 3].map(Timestamp);
    // A first phase waits in several regions at once.
    for (first, last) in [(b, c), (c, b)] {
        let mut graph = WaitGraph::default();
        assert_eq!(graph.wait(now, a, b, b"x"), None);
        assert_eq!(graph.wait(now, a, c, b"y"), None);
        assert_eq!(graph.wait(now, first, a, b"z"), Some(vec![first, a]));
        assert_eq!(graph.wait(now, last, a, b"z"), Some(vec![last, a]));
    }
}
