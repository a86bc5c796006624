//! Time as the other crates see it: a monotonic clock for waits, and Unix time for timestamps.
//!
//! It never promises that Unix time moves forward; only [`Clock::now`] does.

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// A point on a monotonic clock: microseconds since an origin that only this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `micros` microseconds after the clock's origin.
    pub const fn from_micros(micros: u64) -> Self {
        Instant(micros)
    }

    /// Microseconds since the clock's origin.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Milliseconds since the clock's origin, rounded down.
    pub const fn millis(self) -> u64 {
        self.0 / 1_000
    }

    /// Time from `earlier` to this point, zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, length: Duration) -> Instant {
        Instant(self.0.saturating_add(micros_of(length)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, length: Duration) -> Instant {
        Instant(self.0.saturating_sub(micros_of(length)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// As [`Instant::since`].
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

fn micros_of(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic now; never goes back within one process.
    fn now(&self) -> Instant;

    /// Microseconds since 1970-01-01 UTC. May jump either way when the machine's clock is set.
    fn unix_micros(&self) -> u64;

    /// Milliseconds since 1970-01-01 UTC.
    fn unix_millis(&self) -> u64 {
        self.unix_micros() / 1_000
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    origin: std::time::Instant,
}

impl RealClock {
    /// A clock whose monotonic origin is this call.
    #[allow(clippy::disallowed_methods)] // the one place that may read the machine's clock
    pub fn new() -> Self {
        RealClock { origin: std::time::Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant(micros_of(self.origin.elapsed()))
    }

    #[allow(clippy::disallowed_methods)] // the one place that may read the machine's clock
    fn unix_micros(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, micros_of)
    }
}

/// A clock that moves only when it is advanced. Clones share one time.
#[derive(Clone, Debug)]
pub struct SimClock {
    time: Arc<Mutex<SimTime>>,
}

#[derive(Debug)]
struct SimTime {
    monotonic: u64,
    unix: u64,
}

impl SimClock {
    /// A clock that stands at monotonic zero and at the given Unix time in microseconds.
    pub fn new(unix_micros: u64) -> Self {
        SimClock { time: Arc::new(Mutex::new(SimTime { monotonic: 0, unix: unix_micros })) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, length: Duration) {
        let mut time = self.time.lock();
        time.monotonic = time.monotonic.saturating_add(micros_of(length));
        time.unix = time.unix.saturating_add(micros_of(length));
    }

    /// Sets Unix time alone, as an operator or NTP does; monotonic time stays.
    pub fn set_unix_micros(&self, unix_micros: u64) {
        self.time.lock().unix = unix_micros;
    }
}

impl Default for SimClock {
    /// Stands at 2026-01-01 00:00:00 UTC.
    fn default() -> Self {
        SimClock::new(1_767_225_600_000_000)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Instant {
        Instant(self.time.lock().monotonic)
    }

    fn unix_micros(&self) -> u64 {
        self.time.lock().unix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_moves_by_hand_only() {
        let clock = SimClock::new(5_000_000);
        let start = clock.now();
        assert_eq!(clock.now(), start);
        let shared = clock.clone();
        shared.advance(Duration::from_millis(3));
        assert_eq!(clock.now() - start, Duration::from_millis(3));
        assert_eq!(clock.unix_micros(), 5_003_000);
        clock.set_unix_micros(1_000);
        assert_eq!(clock.unix_millis(), 1);
        assert_eq!(clock.now().millis(), 3);
    }

    #[test]
    fn real_time_goes_on_and_is_after_2025() {
        let clock = RealClock::new();
        let first = clock.now();
        while clock.now() == first {
            std::hint::spin_loop();
        }
        assert!(clock.now() > first);
        assert!(clock.unix_millis() > 1_735_689_600_000);
    }

    #[test]
    fn instants_saturate() {
        let zero = Instant::from_micros(0);
        assert_eq!(zero - Duration::from_secs(1), zero);
        assert_eq!(zero.since(zero + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((zero + Duration::MAX).micros(), u64::MAX);
    }
}
