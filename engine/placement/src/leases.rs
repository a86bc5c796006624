//! Snapshot leases: who may still read at which timestamp, and for how long.
//!
//! Expiry is decided by commands that carry the leader's clock, never by a clock read here.

use types::{Error, LeaseId, Result, Timestamp};

use crate::api::Lease;
use crate::state::State;

/// Longest time that a lease may ask for at once, in milliseconds: a day. Renewing goes on.
pub const MAX_TTL_MS: u64 = 24 * 60 * 60 * 1_000;

/// Longest time that a lease may live in all, however often it is renewed, in milliseconds: a week.
/// A job that renews and is forgotten must not keep every version for ever.
pub const MAX_LIFE_MS: u64 = 7 * 24 * 60 * 60 * 1_000;

/// Most leases at a time; one is about 100 bytes of replicated state.
pub const MAX_LEASES: usize = 100_000;

/// Longest owner that is kept, in bytes.
const MAX_OWNER_BYTES: usize = 256;

/// Refuses a time to live that no lease may have.
pub fn check_ttl(ttl_ms: u64) -> Result<()> {
    if (1..=MAX_TTL_MS).contains(&ttl_ms) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "a snapshot lease lasts between 1 ms and {MAX_TTL_MS} ms, not {ttl_ms} ms: ask for less \
         and renew it"
    )))
}

/// Gives a lease at `ts`, or refuses one whose versions may be collected already.
pub fn take(
    state: &mut State,
    ts: Timestamp,
    owner: String,
    now_ms: u64,
    ttl_ms: u64,
) -> Result<Lease> {
    check_ttl(ttl_ms)?;
    let floor = state.safe_point.floor;
    if ts < floor {
        return Err(Error::SnapshotTooOld { ts, floor });
    }
    if state.leases.len() >= MAX_LEASES {
        return Err(Error::Unavailable(format!(
            "there are {MAX_LEASES} snapshot leases already: release some or wait until they expire"
        )));
    }
    if owner.len() > MAX_OWNER_BYTES {
        return Err(Error::Invalid(format!(
            "the owner of a snapshot lease is at most {MAX_OWNER_BYTES} bytes long"
        )));
    }
    let expires_ms = now_ms.saturating_add(ttl_ms);
    let lease = Lease { id: state.next_lease, ts, owner, taken_ms: now_ms, expires_ms };
    state.next_lease += 1;
    state.leases.insert(lease.id, lease.clone());
    Ok(lease)
}

/// Prolongs a live lease; its end never moves back. A renewal may be overtaken in the log by the
/// collection that saw the lease end: then it has ended.
pub fn renew(
    state: &mut State,
    id: LeaseId,
    now_ms: u64,
    from_ms: u64,
    ttl_ms: u64,
) -> Result<Lease> {
    check_ttl(ttl_ms)?;
    let floor = state.safe_point.floor;
    let lease = state
        .leases
        .get_mut(&id)
        .filter(|lease| lease.expires_ms > now_ms && lease.ts >= floor)
        .ok_or(Error::LeaseLost(id))?;
    let last = lease.taken_ms.saturating_add(MAX_LIFE_MS);
    if lease.expires_ms >= last {
        return Err(Error::Invalid(format!(
            "snapshot lease {id} has been renewed for {} days, the most that is possible: finish \
             before it ends, or take a new snapshot",
            MAX_LIFE_MS / (24 * 60 * 60 * 1_000)
        )));
    }
    lease.expires_ms = lease.expires_ms.max(from_ms.saturating_add(ttl_ms).min(last));
    Ok(lease.clone())
}

/// Removes leases that ended.
pub fn expire(state: &mut State, now_ms: u64) {
    state.leases.retain(|_, lease| lease.expires_ms > now_ms);
}

/// Leases that live.
pub fn live(state: &State, now_ms: u64) -> impl Iterator<Item = &Lease> {
    state.leases.values().filter(move |lease| lease.expires_ms > now_ms)
}
