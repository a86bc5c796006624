//! KILL and clients that disconnect: a statement is dropped where it waits. What must be finished, such as
//! a commit, holds interrupts off: a statement is reported as interrupted only if it was.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Holds interrupts off while a statement decides something, say commits.
#[derive(Clone)]
pub struct Interrupts(Arc<watch::Sender<usize>>);

/// Interrupts are held off until this is dropped.
pub struct Held(Arc<watch::Sender<usize>>);

impl Default for Interrupts {
    fn default() -> Self {
        Interrupts(Arc::new(watch::Sender::new(0)))
    }
}

impl Interrupts {
    /// Holds interrupts off.
    pub fn hold(&self) -> Held {
        self.0.send_modify(|holders| *holders += 1);
        Held(self.0.clone())
    }

    /// Ends once the statement is cancelled and nothing is held.
    pub async fn interruption(&self, cancel: &CancellationToken) {
        self.interruption_but(cancel, 0).await;
    }

    /// The same for a caller that itself holds `own` times: it can end by undoing what it has begun.
    pub async fn interruption_but(&self, cancel: &CancellationToken, own: usize) {
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
