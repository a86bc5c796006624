//! Unix time that never leaps: what a node measures leases and timestamps by.
//!
//! Somebody sets a machine's clock, and it jumps by minutes. What lasts a minute must then neither
//! end at once nor go on for long. So this clock goes with the monotonic one, and nears the machine's
//! Unix time by a hundredth of what has passed. It never goes back.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, Instant};

/// What has passed, divided by this, is the most that the clock is put right by.
const PULL: u64 = 100;
/// Shortest time after which it is put right, in microseconds.
const STEP_MICROS: u64 = 1_000;

/// A clock beside another one, from which it takes what it shows at first.
pub struct SteadyClock {
    source: Arc<dyn Clock>,
    shown: Mutex<Shown>,
}

struct Shown {
    /// When `unix` was right, on the monotonic clock.
    at: Instant,
    unix: u64,
    /// The latest time that was shown.
    latest: u64,
}

impl SteadyClock {
    /// Shows the source's Unix time now.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        let (at, unix) = (source.now(), source.unix_micros());
        SteadyClock { source, shown: Mutex::new(Shown { at, unix, latest: unix }) }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Instant {
        self.source.now()
    }

    fn unix_micros(&self) -> u64 {
        let mut shown = self.shown.lock();
        let (now, wall) = (self.source.now(), self.source.unix_micros());
        let passed = now.micros().saturating_sub(shown.at.micros());
        let even = shown.unix.saturating_add(passed);
        let mut unix = even;
        if passed >= STEP_MICROS {
            let most = passed / PULL;
            unix = wall.clamp(even.saturating_sub(most), even.saturating_add(most));
            (shown.at, shown.unix) = (now, unix);
        }
        shown.latest = shown.latest.max(unix);
        shown.latest
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SimClock;

    const START: u64 = 1_000_000_000_000;
    const MINUTE: u64 = 60_000_000;

    #[test]
    fn a_leap_either_way_changes_a_length_by_a_hundredth_at_most() {
        for wall in [START + 10 * MINUTE, START - 10 * MINUTE] {
            let source = SimClock::new(START);
            let steady = SteadyClock::new(Arc::new(source.clone()));
            source.set_unix_micros(wall);
            let mut last = steady.unix_micros();
            for _ in 0..60_000 {
                source.advance(Duration::from_micros(1_000));
                let now = steady.unix_micros();
                assert!(now >= last);
                last = now;
            }
            let shown = last - START;
            assert!(shown.abs_diff(MINUTE) <= MINUTE / PULL, "{shown}");
            assert_ne!(shown, MINUTE, "it nears the machine's time");
        }
    }

    #[test]
    fn it_follows_the_machine_where_that_goes_evenly() {
        let source = SimClock::new(START);
        let steady = SteadyClock::new(Arc::new(source.clone()));
        source.advance(Duration::from_secs(5));
        assert_eq!(steady.unix_micros(), source.unix_micros());
    }
}
