//! Keeps the leases of a run's snapshots while it lasts, and ends them afterwards, however it ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::expr::quoted;
use crate::server::{Engine, Server, SnapshotMode};
use crate::sides::Place;

/// The longest time between two renewals.
const OFTEN: Duration = Duration::from_secs(60);

/// How long a server may take to end a lease; it ends by itself, later.
const RELEASE: Duration = Duration::from_secs(2);

/// The leases of a run.
#[derive(Default)]
pub struct Leases {
    kept: Mutex<Vec<Keeper>>,
    /// Whether a side is being opened: its server may have given a lease that is not yet kept.
    opening: watch::Sender<bool>,
}

impl Leases {
    /// Opens a side, and keeps the lease of its snapshot, if it has one.
    pub async fn open(
        &self,
        place: impl Future<Output = Result<Place>>,
        lease: &str,
    ) -> Result<Place> {
        self.opening.send_replace(true);
        let place = place.await;
        if let Ok(Place { server: Some(server), .. }) = &place {
            let keeper = Keeper::start(server, lease);
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(keeper);
        }
        self.opening.send_replace(false);
        place
    }

    /// Waits until no side is being opened, as long as a server may take to end a lease: only its
    /// answer names the lease that it gave.
    pub async fn settled(&self) {
        let mut opening = self.opening.subscribe();
        _ = tokio::time::timeout(RELEASE, opening.wait_for(|opening| !opening)).await;
    }

    /// Ends them: nobody will read there any more.
    pub async fn release(&self) {
        let keepers =
            std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        for keeper in keepers {
            _ = tokio::time::timeout(RELEASE, keeper.release()).await;
        }
    }
}

/// A lease that is renewed until this is dropped.
struct Keeper {
    server: Arc<Server>,
    task: JoinHandle<()>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How long `90s`, `10m`, `2h` or a number of seconds is.
pub fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return None,
    };
    let seconds = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

impl Keeper {
    /// Keeps the lease of a server's token; nothing where there is none.
    fn start(server: &Arc<Server>, lease: &str) -> Option<Keeper> {
        let SnapshotMode::Token(token) = server.snapshot_mode() else { return None };
        let often = duration(lease)?.div_f64(3.0).min(OFTEN);
        let sql = format!("SELECT isobar_renew({}, {})", quoted(token), quoted(lease));
        let of = Arc::clone(server);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(often).await;
                // A lease that is lost is reported by the reads that need it; a server that is gone, too.
                // One that cannot renew is not asked again.
                if let Err(Error::Refused { .. }) =
                    of.query("renew the snapshot", &sql, Engine::Any).await
                {
                    return;
                }
            }
        });
        Some(Keeper { server: Arc::clone(server), task })
    }

    async fn release(self) {
        let SnapshotMode::Token(token) = self.server.snapshot_mode() else { return };
        let sql = format!("SELECT isobar_release({})", quoted(token));
        // A lease that is not released ends by itself.
        _ = self.server.query("release the snapshot", &sql, Engine::Any).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_read() {
        let seconds = |text| duration(text).map(|length| length.as_secs());
        assert_eq!(
            ["90s", "10m", "2h", "7"].map(seconds),
            [Some(90), Some(600), Some(7200), Some(7)]
        );
        assert_eq!(["", "x", "0s", "1d", "m"].map(seconds), [None; 5]);
    }
}
