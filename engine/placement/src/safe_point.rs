//! How far back anybody can ask: the point below which old versions may go.
//!
//! It is the least of three: what is younger than the life of versions, what a lease holds, what a
//! living transaction reads at. The leader computes it; the command that raises it holds it against
//! the leases once more, in the log's order, so that no lease is granted below it or passed by it.
//! It reads no clock and never falls.

use std::time::Duration;

use types::{Error, Result, Timestamp};

use crate::api::SafePoint;
use crate::leases;
use crate::state::State;

/// The global variable that shows the life of versions.
pub const LIFE_VARIABLE: &str = "tidb_gc_life_time";

/// Shortest and longest life that can be set, in milliseconds. Below a second a reader could be
/// overtaken before its node has said that it lives.
pub const LIVES_MS: (u64, u64) = (1_000, 30 * 24 * 60 * 60 * 1_000);

/// How long a transaction that stays open keeps versions, in milliseconds: a day. After that it
/// reads no more.
pub const MAX_TRANSACTION_MS: u64 = 24 * 60 * 60 * 1_000;

/// Refuses a life that versions cannot have.
pub fn check_life(life_ms: u64) -> Result<()> {
    let (least, most) = LIVES_MS;
    if (least..=most).contains(&life_ms) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "versions live between {} s and {} days, not {life_ms} ms",
        least / 1_000,
        most / (24 * 60 * 60 * 1_000)
    )))
}

/// Sets the life, where everybody can read it too.
pub fn set_life(state: &mut State, life_ms: u64) -> Result<()> {
    check_life(life_ms)?;
    state.life_ms = life_ms;
    state.catalog.globals.insert(LIFE_VARIABLE.into(), shown(life_ms));
    state.catalog.version += 1;
    Ok(())
}

/// A life as the variable shows it, as `1h30m0s`.
pub fn shown(life_ms: u64) -> String {
    let seconds = life_ms / 1_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Pause between two raises of the point: every region notes each in its log.
pub fn pace(life_ms: u64) -> Duration {
    Duration::from_millis((life_ms / 20).clamp(500, 30_000))
}

/// The point as of `now`: leases at `leases` and transactions that began at `starts` are alive.
pub fn compute(
    now: Timestamp,
    life_ms: u64,
    leases: impl IntoIterator<Item = Timestamp>,
    starts: impl IntoIterator<Item = Timestamp>,
) -> Timestamp {
    let ago = |ms| Timestamp::pack(now.physical_ms().saturating_sub(ms), 0);
    let (young, ancient) = (ago(life_ms), ago(MAX_TRANSACTION_MS.max(life_ms)));
    let starts = starts.into_iter().filter(|start| *start >= ancient);
    starts.chain(leases).fold(young, Timestamp::min)
}

/// Raises the state's point towards the one that a leader saw.
pub fn advance(state: &mut State, point: SafePoint, now_ms: u64) {
    let held = leases::live(state, now_ms).map(|lease| lease.ts);
    let floor = held.fold(point.floor, Timestamp::min);
    let known = &mut state.safe_point;
    known.floor = known.floor.max(floor);
    if point.settled > known.settled {
        (known.settled, known.settled_below) = (point.settled, point.settled_below);
    }
}
