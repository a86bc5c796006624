//! How long to wait before trying again.
//!
//! Which errors pass by themselves, [`crate::Error::is_retryable`] says; how often and for how long to try is for whoever
//! retries. Nothing here waits.

use std::time::Duration;

/// Pauses between attempts: each twice the one before, up to the longest. They never end.
#[derive(Clone, Debug)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// The pauses that begin with `first`.
    pub const fn doubling(first: Duration, longest: Duration) -> Self {
        Pauses { next: first, longest }
    }

    /// The next pause.
    pub fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = self.longest.min(2 * pause);
        pause
    }
}
