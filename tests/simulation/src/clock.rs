//! A node's clocks: the simulation's time, and a Unix clock that somebody sets.
//!
//! It must never read the machine's: time passes only where everything waits for it.

use std::sync::atomic::{AtomicI64, Ordering};

use env::{Clock, Instant};

/// When every history begins: 2026-01-01 00:00:00 UTC, in microseconds.
const BEGIN: i64 = 1_767_225_600_000_000;

/// The clocks of one host.
pub(crate) struct HostClock {
    origin: tokio::time::Instant,
    /// By how many microseconds the Unix clock is ahead.
    ahead: AtomicI64,
}

impl HostClock {
    pub(crate) fn new(ahead: i64) -> Self {
        HostClock { origin: tokio::time::Instant::now(), ahead: AtomicI64::new(ahead) }
    }

    /// Sets the Unix clock; the monotonic one goes on as before.
    pub(crate) fn set_ahead(&self, micros: i64) {
        self.ahead.store(micros, Ordering::Relaxed);
    }
}

impl Clock for HostClock {
    fn now(&self) -> Instant {
        Instant::from_micros(self.origin.elapsed().as_micros() as u64)
    }

    fn unix_micros(&self) -> u64 {
        let shown = BEGIN + self.now().micros() as i64 + self.ahead.load(Ordering::Relaxed);
        u64::try_from(shown).unwrap_or_default()
    }
}
