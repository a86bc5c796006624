//! Which errors pass by themselves, and a retry with backoff that ends in a typed error.
//!
//! It sends nothing: who retries decides what.

use std::time::Duration;

use tokio::time::Instant;
use types::{Error, Result};

/// Pauses between tries.
const PAUSES_MS: [u64; 8] = [2, 5, 10, 20, 50, 100, 200, 300];

/// Whether the same request may be sent again, perhaps elsewhere: everything here bears it.
pub(crate) fn passing(error: &Error) -> bool {
    matches!(
        error,
        Error::NotLeader { .. }
            | Error::StaleEpoch { .. }
            | Error::RegionNotFound(_)
            | Error::Unavailable(_)
            | Error::Dropped(_)
            | Error::Timeout { .. }
            | Error::Io(_)
    )
}

/// A bounded retry with backoff.
pub(crate) struct Retry {
    what: String,
    limit: Duration,
    until: Instant,
    tries: usize,
}

impl Retry {
    pub(crate) fn new(what: impl Into<String>, limit: Duration) -> Self {
        Retry { what: what.into(), limit, until: Instant::now() + limit, tries: 0 }
    }

    /// How long to wait before the next try.
    pub(crate) fn next_pause(&self) -> Duration {
        let pause = PAUSES_MS.get(self.tries).or(PAUSES_MS.last()).copied().unwrap_or(1);
        Duration::from_millis(pause)
    }

    /// The next pause, for who minds the bound itself.
    pub(crate) fn step(&mut self) -> Duration {
        let pause = self.next_pause();
        self.tries += 1;
        pause
    }

    /// Waits before the next try, or gives up: with the last error, or a timeout that names it.
    pub(crate) async fn pause(&mut self, last: Error) -> Result<()> {
        // After the first miss the route has mostly just been updated.
        let pause = match last {
            Error::StaleEpoch { .. } | Error::NotLeader { leader: Some(_), .. }
                if self.tries == 0 =>
            {
                Duration::ZERO
            }
            _ => self.next_pause(),
        };
        self.pause_for(pause, last).await
    }

    /// As [`Retry::pause`], for a given time.
    pub(crate) async fn pause_for(&mut self, pause: Duration, last: Error) -> Result<()> {
        self.tries += 1;
        if Instant::now() + pause >= self.until {
            return Err(match last {
                Error::Locked(_) => last,
                last => Error::timeout(format!("{} (last: {last})", self.what), self.limit),
            });
        }
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }
}
