//! The queues against what they promise: one holder at a time, first come first served, and nobody
//! waits for a key that is free.

use std::collections::{BTreeMap, VecDeque};

use env::Random;
use types::Timestamp;

use super::*;

const TENURE: Tenure = Tenure { region: 1, term: 1 };
const HOLD: u64 = 100;
const PLACE: u64 = 30;

/// Who ought to hold a key until when, and who ought to be next.
#[derive(Default)]
struct Ought {
    holder: Option<(Timestamp, u64)>,
    waiting: VecDeque<(Timestamp, u64)>,
}

impl Ought {
    fn pass_on(&mut self, now: u64) {
        if self.holder.is_some_and(|(_, until)| until > now) {
            return;
        }
        self.waiting.retain(|(_, until)| *until > now);
        self.holder = self.waiting.pop_front();
    }
}

fn held_by(queues: &Queues, now: u64, key: &[u8]) -> Option<Timestamp> {
    queues.held_by_other(now, key, Timestamp::ZERO, Mode::Exclusive)
}

#[test]
fn keys_are_given_to_one_at_a_time_in_order_of_arrival() {
    let mut waited = 0;
    for seed in 1..=300 {
        let random = Random::seeded(seed);
        let mut queues = Queues::default();
        let mut ought: BTreeMap<Vec<u8>, Ought> = BTreeMap::new();
        let mut now = 0;
        for _ in 0..500 {
            now += random.below(8);
            let key = vec![random.below(3) as u8];
            let owner = Timestamp(1 + random.below(6));
            let one = ought.entry(key.clone()).or_default();
            match random.below(10) {
                0..=5 => {
                    let queue = random.chance(0.8);
                    let until = (now + HOLD, queue.then_some(now + PLACE));
                    let by = (owner, Mode::Exclusive);
                    let standing = queues.claim(now, TENURE, &key, by, until);
                    one.pass_on(now);
                    match one.holder {
                        Some((holder, _)) if holder != owner => {
                            assert_eq!(standing, Standing::Behind(holder), "seed {seed}");
                            if queue {
                                one.waiting.retain(|(_, until)| *until > now);
                            }
                            match one.waiting.iter_mut().find(|(other, _)| *other == owner) {
                                Some(place) if queue => place.1 = now + PLACE,
                                None if queue => one.waiting.push_back((owner, now + PLACE)),
                                _ => {}
                            }
                            waited += 1;
                        }
                        held => {
                            assert_eq!(standing, Standing::Holds, "seed {seed}");
                            let before = held.map_or(0, |(_, until)| until);
                            one.holder = Some((owner, before.max(now + HOLD)));
                        }
                    }
                }
                6..=7 => {
                    queues.release(now, &key, owner);
                    one.waiting.retain(|(other, _)| *other != owner);
                    if one.holder.is_some_and(|(holder, _)| holder == owner) {
                        one.holder = None;
                    }
                    one.pass_on(now);
                }
                8 => {
                    queues.leave(now, &key, owner);
                    one.waiting.retain(|(other, _)| *other != owner);
                    one.pass_on(now);
                }
                _ => {
                    queues.sweep(now);
                    ought.values_mut().for_each(|one| one.pass_on(now));
                }
            }
            for (key, granted) in queues.take_granted() {
                assert_eq!(
                    ought[&key].holder.map(|(holder, _)| holder),
                    Some(granted),
                    "seed {seed}"
                );
            }
            for (key, one) in &ought {
                let holder = one.holder.filter(|(_, until)| *until > now).map(|(holder, _)| holder);
                assert_eq!(held_by(&queues, now, key), holder, "seed {seed}");
            }
        }
        queues.sweep(now + 10 * HOLD);
        queues.sweep(now + 20 * HOLD);
        assert!(queues.is_empty());
    }
    assert!(waited > 10_000, "{waited} waits");
}

#[test]
fn another_term_knows_nothing_and_a_cut_keeps_what_is_held() {
    let mut queues = Queues::default();
    let [a, b] = [Timestamp(1), Timestamp(2)];
    let alone = |owner| (owner, Mode::Exclusive);
    let until = (HOLD, Some(PLACE));
    assert_eq!(queues.claim(0, TENURE, b"k", alone(a), until), Standing::Holds);
    let cut = Tenure { region: 2, term: 9 };
    assert_eq!(queues.claim(0, cut, b"k", alone(b), until), Standing::Behind(a));
    let later = Tenure { region: 2, term: 10 };
    assert_eq!(queues.claim(0, later, b"k", alone(b), until), Standing::Holds);
}

/// Everything that happens to one key that some share and others want alone: who holds it does so beside nobody whom it
/// excludes, who waits does so for somebody, and in the end everybody has had it.
#[test]
fn keys_are_shared_by_those_who_share_them_alone() {
    let (mut shared, mut upgraded) = (0, 0);
    for seed in 1..=300 {
        let random = Random::seeded(seed);
        let mut queues = Queues::default();
        let mut held: BTreeMap<Timestamp, Mode> = BTreeMap::new();
        let mut waiting: BTreeMap<Timestamp, Mode> = BTreeMap::new();
        let forever = (u64::MAX, Some(u64::MAX));
        for _ in 0..400 {
            let owner = Timestamp(1 + random.below(6));
            let wanted = if random.chance(0.6) { Mode::Shared } else { Mode::Exclusive };
            if random.chance(0.6) {
                match queues.claim(0, TENURE, b"k", (owner, wanted), forever) {
                    Standing::Holds => {
                        let had =
                            held.insert(owner, wanted.max(*held.get(&owner).unwrap_or(&wanted)));
                        upgraded += usize::from(had == Some(Mode::Shared) && !wanted.shares());
                        if waiting.get(&owner).is_some_and(|wish| *wish <= wanted) {
                            waiting.remove(&owner);
                        }
                    }
                    Standing::Behind(other) => {
                        assert!(other != owner, "seed {seed}");
                        let before = held.get(&other).max(waiting.get(&other)).copied();
                        let excludes = before.is_some_and(|b| !(b.shares() && wanted.shares()));
                        assert!(excludes, "seed {seed}: {owner} waits for {other}");
                        let wish = waiting.entry(owner).or_insert(wanted);
                        *wish = wanted.max(*wish);
                    }
                }
            } else {
                queues.release(0, b"k", owner);
                held.remove(&owner);
                waiting.remove(&owner);
            }
            for (_, owner) in queues.take_granted() {
                let Some(mode) = waiting.remove(&owner) else {
                    panic!("seed {seed}: {owner} was given what it did not wait for");
                };
                held.insert(owner, mode);
            }
            let alone = held.values().any(|mode| !mode.shares());
            assert!(!alone || held.len() == 1, "seed {seed}: {held:?}");
            assert!(!held.is_empty() || waiting.is_empty(), "seed {seed}: nobody holds it");
            shared += usize::from(held.len() > 1);
        }
        while let Some(owner) = held.keys().next().copied() {
            queues.release(0, b"k", owner);
            held.remove(&owner);
            waiting.remove(&owner);
            for (_, owner) in queues.take_granted() {
                held.extend(waiting.remove(&owner).map(|mode| (owner, mode)));
            }
        }
        assert!(waiting.is_empty() && queues.is_empty(), "seed {seed}: {waiting:?} wait for ever");
    }
    assert!(shared > 10_000 && upgraded > 100, "{shared} times shared, {upgraded} upgraded");
}

#[test]
fn who_wants_a_key_alone_is_not_kept_waiting_by_ever_more_who_share_it() {
    let mut queues = Queues::default();
    let [one, alone, late] = [1, 2, 3].map(Timestamp);
    let mut claim = |owner, mode| queues.claim(0, TENURE, b"k", (owner, mode), (HOLD, Some(PLACE)));
    assert_eq!(claim(one, Mode::Shared), Standing::Holds);
    assert_eq!(claim(alone, Mode::Exclusive), Standing::Behind(one));
    assert_eq!(claim(late, Mode::Shared), Standing::Behind(alone));
    // Who has it already goes on.
    assert_eq!(claim(one, Mode::Shared), Standing::Holds);
    queues.release(0, b"k", one);
    queues.release(0, b"k", alone);
    let granted = queues.take_granted().into_iter().map(|(_, owner)| owner);
    assert_eq!(granted.collect::<Vec<_>>(), [alone, late]);
}
