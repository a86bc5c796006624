//! What happened, as a hash: two runs of one seed must agree in every message, answer and fault.
//!
//! With tracing on, every event is also a line, so that two runs that differ can be compared.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The history of one run. Clones are the same.
#[derive(Clone)]
pub(crate) struct History(Arc<Mutex<State>>);

struct State {
    origin: Instant,
    hash: Xxh3,
    events: u64,
    /// Directory of this run, which is another one each time and stands in messages of errors.
    root: Vec<u8>,
    trace: Option<Box<dyn Write + Send>>,
    /// What was found wrong, in the order it was found.
    failures: Vec<String>,
    counts: BTreeMap<(&'static str, &'static str), u64>,
    faults: u64,
}

impl History {
    pub(crate) fn new(trace: Option<Box<dyn Write + Send>>) -> Self {
        History(Arc::new(Mutex::new(State {
            origin: Instant::now(),
            hash: Xxh3::new(),
            events: 0,
            root: Vec::new(),
            trace,
            failures: Vec::new(),
            counts: BTreeMap::new(),
            faults: 0,
        })))
    }

    /// Leaves a directory out of what is hashed.
    pub(crate) fn leave_out(&self, root: &std::path::Path) {
        self.0.lock().root = root.to_string_lossy().into_owned().into_bytes();
    }

    /// Something happened.
    pub(crate) fn event(&self, what: &str, numbers: &[u64]) {
        let mut state = self.0.lock();
        let at = state.origin.elapsed().as_micros() as u64;
        state.events += 1;
        state.hash.update(&at.to_le_bytes());
        let what = without(what.as_bytes(), &state.root);
        state.hash.update(&what);
        let what = String::from_utf8_lossy(&what);
        numbers.iter().for_each(|number| state.hash.update(&number.to_le_bytes()));
        if let Some(trace) = &mut state.trace {
            // A trace that cannot be written is only a trace.
            let _ = writeln!(trace, "{at:>10} {what} {numbers:?}");
        }
    }

    /// As [`History::event`], with bytes.
    pub(crate) fn bytes(&self, what: &str, numbers: &[u64], bytes: &[u8]) {
        let bytes = without(bytes, &self.0.lock().root);
        let all: Vec<u64> = numbers.iter().copied().chain([xxh3_64(&bytes)]).collect();
        self.event(what, &all);
    }

    /// Something is wrong: the run has found what it is for.
    pub(crate) fn fail(&self, what: String) {
        self.event(&what, &[]);
        self.0.lock().failures.push(what);
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.0.lock().failures.clone()
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.0.lock().failures.is_empty()
    }

    /// A fault, and all that the system was doing.
    pub(crate) fn fault(&self, fault: &'static str, states: Vec<&'static str>) {
        self.event(fault, &[]);
        let mut history = self.0.lock();
        history.faults += 1;
        for state in states {
            *history.counts.entry((fault, state)).or_default() += 1;
        }
    }

    /// Faults by what the system was doing, and how many there were.
    pub(crate) fn counts(&self) -> (BTreeMap<(&'static str, &'static str), u64>, u64) {
        let state = self.0.lock();
        (state.counts.clone(), state.faults)
    }

    /// Hash and number of events so far.
    pub(crate) fn digest(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.hash.digest(), state.events)
    }
}

/// Bytes without a part, wherever that occurs in them.
fn without<'a>(bytes: &'a [u8], part: &[u8]) -> Cow<'a, [u8]> {
    let found = |bytes: &[u8]| match part.len() {
        0 => None,
        length => bytes.windows(length).position(|window| window == part),
    };
    let mut left = Cow::Borrowed(bytes);
    while let Some(at) = found(&left) {
        left.to_mut().drain(at..at + part.len());
    }
    left
}
