//! A retry with backoff that ends in a typed error.
//!
//! It sends nothing: who retries decides what.

use std::time::Duration;

use tokio::time::Instant;
use types::retry::Pauses;
use types::{Error, Result};

/// The first pause between attempts …
const FIRST: Duration = Duration::from_millis(2);
/// … the longest while a region is not led, which is what everybody waits for nothing once it is …
const LONGEST: Duration = Duration::from_millis(50);
/// … and the longest while another transaction's lock is in the way.
const LONGEST_OF_LOCKS: Duration = Duration::from_millis(300);

/// The pauses of who waits for locks.
pub(crate) const fn pauses_of_locks() -> Pauses {
    Pauses::doubling(FIRST, LONGEST_OF_LOCKS)
}

/// A bounded retry with backoff.
pub(crate) struct Retry {
    what: String,
    limit: Duration,
    until: Instant,
    pauses: Pauses,
    first: bool,
}

impl Retry {
    pub(crate) fn new(what: impl Into<String>, limit: Duration) -> Self {
        let (until, pauses) = (Instant::now() + limit, Pauses::doubling(FIRST, LONGEST));
        Retry { what: what.into(), limit, until, pauses, first: true }
    }

    /// One that waits for other transactions' locks.
    pub(crate) fn of_locks(limit: Duration) -> Self {
        Retry { pauses: pauses_of_locks(), ..Retry::new("a lock", limit) }
    }

    /// The next pause, for who shortens it.
    pub(crate) fn next_pause(&mut self) -> Duration {
        self.pauses.take()
    }

    /// Waits before the next try, or gives up: with the last error, or a timeout that names it.
    pub(crate) async fn pause(&mut self, last: Error) -> Result<()> {
        // After the first miss the route has mostly just been updated.
        let pause = match last {
            Error::StaleEpoch { .. } | Error::NotLeader { leader: Some(_), .. } if self.first => {
                Duration::ZERO
            }
            _ => self.pauses.take(),
        };
        self.pause_for(pause, last).await
    }

    /// As [`Retry::pause`], for a given time.
    pub(crate) async fn pause_for(&mut self, pause: Duration, last: Error) -> Result<()> {
        self.first = false;
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
