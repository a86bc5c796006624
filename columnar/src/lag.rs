//! How long commits took, lately, to become visible here.
//!
//! Times count from the commit timestamp, which is taken before the commit is acknowledged: they
//! are never too small. Nothing is added while nothing is written. Must never hold up applying.

use std::time::Duration;

use env::Instant;
use hdrhistogram::Histogram;
use types::{Error, ReplicaLag, Result};

/// How long a window lasts; quantiles are over the current one and the one before it.
const WINDOW: Duration = Duration::from_secs(60);
/// Longer lags count as this one.
const LONGEST_MS: u64 = 3_600_000;
/// Quantiles are right to within one part in a hundred.
const DIGITS: u8 = 2;

/// The lags of one tablet.
pub(crate) struct LagLog {
    last_ms: Option<u64>,
    began: Instant,
    current: Histogram<u32>,
    before: Histogram<u32>,
}

impl LagLog {
    pub fn new(now: Instant) -> Result<Self> {
        let empty = Histogram::new_with_max(LONGEST_MS, DIGITS)
            .map_err(|error| Error::Invalid(format!("a histogram of lags: {error}")))?;
        Ok(LagLog { last_ms: None, began: now, current: empty.clone(), before: empty })
    }

    /// Adds the lag of the slowest commit of a batch.
    pub fn add(&mut self, now: Instant, lag_ms: u64) {
        self.turn(now);
        self.last_ms = Some(lag_ms);
        self.current.saturating_record(lag_ms);
    }

    /// The lags of the last one to two windows.
    pub fn report(&mut self, now: Instant) -> ReplicaLag {
        self.turn(now);
        let mut recent = self.current.clone();
        // Both have the same bounds, so nothing can fail to fit.
        let _ = recent.add(&self.before);
        ReplicaLag {
            last_ms: self.last_ms,
            p50_ms: recent.value_at_quantile(0.5),
            p99_ms: recent.value_at_quantile(0.99),
            batches: recent.len(),
        }
    }

    fn turn(&mut self, now: Instant) {
        let age = now.since(self.began);
        if age < WINDOW {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        self.current.reset();
        if age >= 2 * WINDOW {
            self.before.reset();
        }
        self.began = now;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn quantiles_are_of_the_last_two_windows() {
        let second = |second: u64| Instant::from_micros(second * 1_000_000);
        let mut log = LagLog::new(second(0)).unwrap();
        assert_eq!(log.report(second(1)), ReplicaLag::default());
        (0..98).for_each(|_| log.add(second(2), 5));
        (0..2).for_each(|_| log.add(second(3), 90));
        let lag = |last, p50_ms, p99_ms, batches| ReplicaLag {
            last_ms: Some(last),
            p50_ms,
            p99_ms,
            batches,
        };
        assert_eq!(log.report(second(4)), lag(90, 5, 90, 100));
        log.add(second(70), 7);
        assert_eq!(log.report(second(71)), lag(7, 5, 90, 101));
        assert_eq!(log.report(second(131)), lag(7, 7, 7, 1), "the first window is over");
        assert_eq!(log.report(second(300)), lag(7, 0, 0, 0), "nothing lately");
        log.add(second(301), u64::MAX);
        assert!(log.report(second(301)).p99_ms >= LONGEST_MS);
    }
}
