//! Keeps a snapshot's lease while a run lasts, and ends it afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::error::Error;
use crate::expr::quoted;
use crate::server::{Engine, Moment, Server};

/// The longest time between two renewals.
const OFTEN: Duration = Duration::from_secs(60);

/// A lease that is renewed until this is dropped.
pub struct Keeper {
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
    pub fn start(server: &Arc<Server>, lease: &str) -> Option<Keeper> {
        let Moment::Token(token) = server.moment() else { return None };
        let often = duration(lease)?.div_f64(3.0).min(OFTEN);
        let sql = format!("SELECT isobar_renew({}, {})", quoted(token), quoted(lease));
        let of = Arc::clone(server);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(often).await;
                // A lease that is lost is told by the reads that need it; a server that is gone, too.
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

    /// Ends the lease: nobody will read at it any more.
    pub async fn release(self) {
        let Moment::Token(token) = self.server.moment() else { return };
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
