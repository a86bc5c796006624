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
                    let standing = queues.claim(now, TENURE, &key, owner, until);
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
                    queues.leave(&key, owner);
                    one.waiting.retain(|(other, _)| *other != owner);
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
                assert_eq!(queues.holder(now, key), holder, "seed {seed}");
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
    let (a, b) = (Timestamp(1), Timestamp(2));
    let until = (HOLD, Some(PLACE));
    assert_eq!(queues.claim(0, TENURE, b"k", a, until), Standing::Holds);
    let cut = Tenure { region: 2, term: 9 };
    assert_eq!(queues.claim(0, cut, b"k", b, until), Standing::Behind(a));
    let later = Tenure { region: 2, term: 10 };
    assert_eq!(queues.claim(0, later, b"k", b, until), Standing::Holds);
}
