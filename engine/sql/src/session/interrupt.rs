//! KILL and clients that disconnect: a statement is dropped where it waits. What must be finished, such as
//! a commit, holds interrupts off: a statement is reported as interrupted only if it was.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use values::error::{SqlResult, no_thread};

use super::{Session, done};
use execution::reply::Reply;

/// Holds interrupts off while a statement decides something, say commits.
#[derive(Clone)]
pub(super) struct Interrupts(Arc<watch::Sender<usize>>);

/// Interrupts are held off until this is dropped.
pub(super) struct Held(Arc<watch::Sender<usize>>);

impl Default for Interrupts {
    fn default() -> Self {
        Interrupts(Arc::new(watch::Sender::new(0)))
    }
}

impl Interrupts {
    /// Holds interrupts off.
    pub(super) fn hold(&self) -> Held {
        self.0.send_modify(|holders| *holders += 1);
        Held(self.0.clone())
    }

    /// Ends once the statement is cancelled and nothing is held.
    pub(super) async fn interruption(&self, cancel: &CancellationToken) {
        self.interruption_but(cancel, 0).await;
    }

    /// The same for a caller that itself holds `own` times: it can end by undoing what it has begun.
    pub(super) async fn interruption_but(&self, cancel: &CancellationToken, own: usize) {
        cancel.cancelled().await;
        // The sender lives as long as `self`, so waiting cannot fail.
        _ = self.0.subscribe().wait_for(|holders| *holders <= own).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.send_modify(|holders| *holders = holders.saturating_sub(1));
    }
}

impl Session {
    /// KILL.
    pub(super) fn kill(&self, id: u64, query: bool) -> SqlResult<Reply> {
        self.check_kill(id)?;
        let host = self.engine.host.as_ref();
        if host.is_some_and(|host| host.kill(id, query)) {
            return Ok(done());
        }
        Err(no_thread(id))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_interruption_waits_for_what_is_held() {
        let (interrupts, cancel) = (Interrupts::default(), CancellationToken::new());
        let (one, two) = (interrupts.hold(), interrupts.hold());
        cancel.cancel();
        let soon = Duration::from_millis(50);
        for held in [one, two] {
            assert!(tokio::time::timeout(soon, interrupts.interruption(&cancel)).await.is_err());
            drop(held);
        }
        tokio::time::timeout(soon, interrupts.interruption(&cancel)).await.unwrap();
    }
}
