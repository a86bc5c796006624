//! A meter of the machine's own hiccups, after Gil Tene's jHiccup: a thread does the same small work again and again, and times
//! it by its own processor time.
//!
//! A virtual machine may be slowed tenfold for some hundredths of a second by what it shares its hardware with, or by a
//! power limit, and its kernel need not show that. It must not take a busy processor for a slow one: waiting for the
//! processor is not counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::system;

/// Pause between two times the work is done.
const PAUSE: Duration = Duration::from_millis(2);
/// Steps of the work: some ten microseconds.
const STEPS: u32 = 6_000;
/// The machine is slow where the work takes so many times its median. Another thread on the same core may double it.
const SLOW: u32 = 3;
/// The latest times, of which the median is taken.
const LATEST: usize = 2_048;
/// How long after the machine was slow there may still be a queue of what waited meanwhile.
const REST: Duration = Duration::from_millis(15);

/// A transaction is left out by what the machine did from its intended start until so much later, however long it took. Were it
/// left out by its whole life, an arm whose transactions are slow by themselves would lose the slowest.
const NEAR: Duration = Duration::from_millis(20);

/// A stretch of time.
pub type Span = [Instant; 2];

/// Watches the machine until it is dropped.
#[derive(Debug)]
pub struct Meter {
    stop: Arc<AtomicBool>,
    slow: Arc<Mutex<Vec<Span>>>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    /// Starts a thread on the processors of the one that calls.
    pub fn start() -> Result<Self> {
        let (stop, slow) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Span>>>::default());
        let (until, seen) = (stop.clone(), slow.clone());
        let thread = std::thread::Builder::new()
            .name("hiccups".into())
            .spawn(move || watch(&until, &seen))
            .context("cannot start the meter of hiccups")?;
        Ok(Meter { stop, slow, thread: Some(thread) })
    }

    /// A meter that has seen these, in a machine that is never slow.
    #[cfg(test)]
    pub(crate) fn that_saw(slow: Vec<Span>) -> Self {
        Meter { stop: Arc::default(), slow: Arc::new(Mutex::new(slow)), thread: None }
    }

    /// When the machine was slow, and shortly after, between two times: in order, none overlapping another.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<Span> {
        let within = |[begin, end]: &Span| [(*begin).max(from), (*end).min(to)];
        self.slow.lock().iter().map(within).filter(|[begin, end]| begin < end).collect()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A meter that has panicked has measured until then.
            _ = thread.join();
        }
    }
}

/// Whether something that was meant to start then began in one of these, or close to one.
pub fn meets(spans: &[Span], intended: Instant) -> bool {
    let first = spans.partition_point(|[_, end]| *end <= intended);
    spans.get(first).is_some_and(|[begin, _]| *begin <= intended + NEAR)
}

fn watch(stop: &AtomicBool, slow: &Mutex<Vec<Span>>) {
    let mut latest = Latest::default();
    let mut before = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PAUSE);
        let spent = system::thread_time();
        std::hint::black_box((0..STEPS).fold(1_u32, |x, step| {
            std::hint::black_box(x.wrapping_mul(1_664_525).wrapping_add(step))
        }));
        let spent = system::thread_time().saturating_sub(spent);
        let now = Instant::now();
        if latest.is_slow(spent) {
            note(&mut slow.lock(), before, now + REST);
        }
        before = now;
    }
}

fn note(slow: &mut Vec<Span>, from: Instant, to: Instant) {
    match slow.last_mut() {
        Some([_, end]) if *end >= from => *end = to,
        _ => slow.push([from, to]),
    }
}

/// How long the work took lately.
#[derive(Default)]
struct Latest {
    times: Vec<Duration>,
    next: usize,
    median: Duration,
}

impl Latest {
    /// Adds a time; whether it is one of a slow machine.
    fn is_slow(&mut self, spent: Duration) -> bool {
        if self.times.len() < LATEST {
            self.times.push(spent);
        } else if let Some(oldest) = self.times.get_mut(self.next % LATEST) {
            *oldest = spent;
        }
        self.next += 1;
        if self.next % 64 == 1 {
            let mut sorted = self.times.clone();
            sorted.sort_unstable();
            self.median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        }
        spent > self.median * SLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_slow_beside_the_median_of_the_latest() {
        let mut latest = Latest::default();
        let us = Duration::from_micros;
        assert!((0..1_000).all(|n| !latest.is_slow(us(10 + n % 5))));
        assert!(!latest.is_slow(us(25)), "another thread on the core");
        assert!((0..100).all(|_| latest.is_slow(us(120))));
        assert!(!latest.is_slow(us(11)));
        // A machine that stays slow is a slow machine.
        let slow = (0..5_000).filter(|_| latest.is_slow(us(120))).count();
        assert!(slow < 3_000, "{slow}");
    }

    #[test]
    fn spans_are_joined_and_met() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut slow = Vec::new();
        note(&mut slow, at(10), at(30));
        note(&mut slow, at(25), at(40));
        note(&mut slow, at(60), at(70));
        assert_eq!(slow, [[at(10), at(40)], [at(60), at(70)]]);
        let met = |ms: &u64| meets(&slow, at(*ms));
        let near: Vec<u64> = (0..120).filter(met).collect();
        assert_eq!(
            near,
            (0..70).collect::<Vec<u64>>(),
            "from 20 ms before each, which is all the time between"
        );
        note(&mut slow, at(200), at(210));
        assert!(meets(&slow, at(180)) && !meets(&slow, at(179)) && !meets(&slow, at(210)));
        let meter = Meter::that_saw(slow);
        assert_eq!(meter.between(at(20), at(65)), [[at(20), at(40)], [at(60), at(65)]]);
        assert!(meter.between(at(41), at(59)).is_empty());
    }

    #[test]
    fn a_busy_processor_is_no_slow_one() {
        let meter = Meter::start().unwrap();
        let begin = Instant::now();
        let stop = Arc::<AtomicBool>::default();
        let busy: Vec<_> = (0..8)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        while begin.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|thread| thread.join().unwrap());
        let spans = meter.between(begin, Instant::now());
        let slow: Duration = spans.iter().map(|[from, to]| *to - *from).sum();
        // A machine may have hiccups while it is tested.
        assert!(slow < Duration::from_millis(1_200), "{slow:?}");
    }
}
