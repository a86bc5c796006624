//! Attempts at what failed for a reason that passes: a region that moves, a node that is gone.
//!
//! It knows nothing of queries: what another attempt does differently is for whoever makes it.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use types::retry::Pauses;

use crate::error::{MppCode, MppResult};

/// No attempt begins later than this after the first, so that a mute cluster is an error soon.
const WINDOW: Duration = Duration::from_secs(4);
/// The first pause before another attempt, and the longest: nodes report four times a second, and placement needs some
/// of their reports to know of a split.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1_600));

/// Makes attempts until one succeeds, fails for a reason that stays, or time is up. Each is given the code of the
/// failure before it.
///
/// # Errors
///
/// The last attempt's.
pub(crate) async fn attempts<T, F: Future<Output = MppResult<T>>>(
    what: &str,
    mut attempt: impl FnMut(Option<MppCode>) -> F,
) -> MppResult<T> {
    let begun = Instant::now();
    let mut pauses = Pauses::doubling(PAUSES.0, PAUSES.1);
    let mut before = None;
    loop {
        let outcome = attempt(before).await;
        let pause = pauses.take();
        match outcome {
            Err(error) if error.code.is_retryable() && begun.elapsed() + pause < WINDOW => {
                tracing::info!(%error, "another attempt at {what}");
                before = Some(error.code);
                sleep(pause).await;
            }
            done => return done,
        }
    }
}
