//! Reads in the background what lies on disk, so that damage is found while other replicas are whole.
//!
//! It mends nothing: what is found shows in the node's heartbeats, and placement has it replaced. It
//! reads at a bounded rate, for clients come first.

use std::time::Duration;

use columnar::ColumnarStore;
use kv::FjallKv;
use raft::StoreHandle;
use tokio_util::sync::CancellationToken;

/// Pause before the first round and between rounds.
const FIRST: Duration = Duration::from_secs(2);
const BETWEEN: Duration = Duration::from_secs(600);
/// Least pause after each step.
const STEP: Duration = Duration::from_millis(1);
/// Bytes read a second, at most.
const RATE: u64 = 64 << 20;

/// Scrubs a row node's log and rows until asked to stop.
pub(crate) fn rows(store: &StoreHandle, rows: &FjallKv, stop: &CancellationToken) {
    let mut pause = FIRST;
    while rest(stop, pause) {
        store.scrub(|| rest(stop, STEP));
        if let Err(error) = rows.scrub(|bytes| rest(stop, time_for(bytes as u64))) {
            tracing::error!(%error, "scrubbing found damage or could not read");
        }
        pause = BETWEEN;
    }
}

/// Scrubs a columnar node's log and columns until asked to stop.
pub(crate) fn columns(store: &StoreHandle, columns: &ColumnarStore, stop: &CancellationToken) {
    let mut pause = FIRST;
    while rest(stop, pause) {
        store.scrub(|| rest(stop, STEP));
        for region in columns.regions() {
            // A replica that went away meanwhile is none of its business.
            match columns.verify(region) {
                Ok(bytes) if rest(stop, time_for(bytes)) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::error!(region, %error, "scrubbing found damage or could not read")
                }
            }
        }
        pause = BETWEEN;
    }
}

fn time_for(bytes: u64) -> Duration {
    Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE)
}

/// Sleeps, in short steps, unless asked to stop; whether to go on.
fn rest(stop: &CancellationToken, pause: Duration) -> bool {
    let until = std::time::Instant::now() + pause;
    while !stop.is_cancelled() {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    false
}
