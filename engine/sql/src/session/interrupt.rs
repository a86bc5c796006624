//! KILL and clients that leave: a statement is dropped where it waits. What must not be broken off
//! stands behind a shield: who is told that a statement was interrupted may rely on it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Session, done};
use crate::error::SqlResult;
use crate::result::{Reply, SqlError};

/// Holds interruptions back while a statement decides something, say commits.
#[derive(Clone)]
pub(super) struct Shield(Arc<watch::Sender<usize>>);

/// A part of a statement that is not broken off, until this is dropped.
pub(super) struct Held(Arc<watch::Sender<usize>>);

impl Default for Shield {
    fn default() -> Self {
        Shield(Arc::new(watch::Sender::new(0)))
    }
}

impl Shield {
    /// Begins such a part.
    pub(super) fn hold(&self) -> Held {
        self.0.send_modify(|holders| *holders += 1);
        Held(self.0.clone())
    }

    /// Ends once the statement is cancelled and nothing is held.
    pub(super) async fn interruption(&self, cancel: &CancellationToken) {
        self.interruption_but(cancel, 0).await;
    }

    /// The same for who holds as many parts itself: it can end by taking back what it has begun.
    pub(super) async fn interruption_but(&self, cancel: &CancellationToken, own: usize) {
        cancel.cancelled().await;
        // The sender lives as long as the shield, so waiting cannot fail.
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
        Err(SqlError::new(1094, b"HY000", format!("Unknown thread id: {id}")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_interruption_waits_for_what_is_held() {
        let (shield, cancel) = (Shield::default(), CancellationToken::new());
        let (one, two) = (shield.hold(), shield.hold());
        cancel.cancel();
        let soon = Duration::from_millis(50);
        for held in [one, two] {
            assert!(tokio::time::timeout(soon, shield.interruption(&cancel)).await.is_err());
            drop(held);
        }
        tokio::time::timeout(soon, shield.interruption(&cancel)).await.unwrap();
    }
}
