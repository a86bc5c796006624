//! A limit of rows per second for everything a run reads.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Counts rows, and says how long to wait.
pub struct Throttle {
    per_second: Option<u64>,
    state: Mutex<(Instant, u64)>,
}

impl Throttle {
    /// No limit, or one.
    pub fn new(per_second: Option<u64>) -> Throttle {
        Throttle { per_second, state: Mutex::new((Instant::now(), 0)) }
    }

    /// How long to wait after so many more rows.
    pub fn due(&self, rows: u64) -> Duration {
        let Some(limit) = self.per_second else { return Duration::ZERO };
        let Ok(mut state) = self.state.lock() else { return Duration::ZERO };
        let (start, done) = *state;
        let done = done + rows;
        let (elapsed, wanted) =
            (start.elapsed(), Duration::from_secs_f64(done as f64 / limit.max(1) as f64));
        // What was not used in time is not saved up for later.
        *state = if elapsed > wanted { (Instant::now(), 0) } else { (start, done) };
        wanted.saturating_sub(elapsed)
    }

    /// Waits after so many more rows.
    pub async fn wait(&self, rows: u64) {
        let due = self.due(rows);
        if !due.is_zero() {
            tokio::time::sleep(due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_take_their_time() {
        let throttle = Throttle::new(Some(1000));
        let first = throttle.due(500);
        assert!(
            first > Duration::from_millis(400) && first <= Duration::from_millis(500),
            "{first:?}"
        );
        let second = throttle.due(500);
        assert!(
            second > Duration::from_millis(900) && second <= Duration::from_millis(1000),
            "{second:?}"
        );
        assert_eq!(Throttle::new(None).due(u64::MAX), Duration::ZERO);
    }
}
