//! Leases of leaders, in the oracle's time: when a read is answered without asking a quorum, and from when on a new
//! leader lets writes succeed.
//!
//! While a leader may answer a read at a timestamp below the end of its lease, every version with such a commit
//! timestamp that is ever committed in its range is applied there, or covered there by a lock. For:
//!
//! - A lease ends [`LEASE_MS`] after a timestamp `b` that was taken **before** a round began in which a quorum
//!   acknowledged the leader's term. Whoever leads next was voted for by a quorum that meets this one, so later.
//! - A new leader takes a timestamp `r` once it leads, so `b < r`, and answers no prewrite and no import with success
//!   before the oracle has passed `r` + [`LEASE_MS`]. Commit timestamps are taken after all prewrites were answered: they
//!   lie behind the lease of every leader before it.
//! - A split that is proposed may be applied, and its child be led, elsewhere first. From the proposal until it is applied
//!   here no lease is prolonged.
//!
//! No clock of a node enters: not a tick, not a time-out, not the arrival of a message. (Leases of leaders are those of
//! Ongaro 2014, section 6.4.1, and of Spanner, OSDI 2012, section 4.1; that both ends are measured by one oracle's
//! timestamps instead of bounded clocks is ours.)
//!
//! Pure: the caller asks the oracle, begins rounds and waits.

use std::collections::HashMap;

use types::time::LOGICAL_BITS;
use types::{RegionId, Timestamp};

/// How long a lease lasts, in milliseconds of the oracle. All nodes must go by the same number: another one takes another
/// cluster version.
pub(crate) const LEASE_MS: u64 = 200;

/// So long before a lease ends a read asks for the next one.
const RENEW_MS: u64 = LEASE_MS / 2;

/// A timestamp so many milliseconds later.
pub(crate) fn later(ts: Timestamp, millis: u64) -> Timestamp {
    Timestamp(ts.0.saturating_add(millis << LOGICAL_BITS))
}

/// What a leader does with a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether it may answer without a round.
    pub covered: bool,
    /// Whether to renew the lease; said once, until [`Leases::granted`] or [`Leases::not_granted`].
    pub renew: bool,
}

/// What a leader does with a write that could be answered with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Lets it succeed.
    Passed,
    /// Asks the oracle for [`Leases::fenced`], then waits; said once.
    Ask,
    /// Waits: somebody asks already.
    Wait,
}

#[derive(Default)]
enum Fencing {
    #[default]
    Unknown,
    Asked,
    Until(Timestamp),
    Passed,
}

/// What one region's leader knows in one term.
#[derive(Default)]
struct Lease {
    term: u64,
    end: Timestamp,
    renewing: bool,
    /// Version of the shape of which splits were proposed, and how many may be applied yet.
    splitting: Option<(u64, usize)>,
    fencing: Fencing,
}

/// The leases of one node's leaders.
#[derive(Default)]
pub(crate) struct Leases(HashMap<RegionId, Lease>);

impl Leases {
    /// The lease of a term; none if a later one has begun.
    fn of(&mut self, region: RegionId, term: u64) -> Option<&mut Lease> {
        let lease = self.0.entry(region).or_default();
        if lease.term < term {
            *lease = Lease { term, ..Lease::default() };
        }
        (lease.term == term).then_some(lease)
    }

    /// Whether a read at `ts` is covered. The leader has applied an entry of `term`.
    pub(crate) fn look(&mut self, region: RegionId, term: u64, ts: Timestamp) -> Verdict {
        let Some(lease) = self.of(region, term) else {
            return Verdict { covered: false, renew: false };
        };
        let covered = ts < lease.end;
        let renew = !lease.renewing && later(ts, RENEW_MS) >= lease.end;
        lease.renewing |= renew;
        Verdict { covered, renew }
    }

    /// A quorum acknowledged `term` in a round that began after the oracle gave `before`. `version` is that of the
    /// region's shape as it is applied here.
    pub(crate) fn granted(&mut self, region: RegionId, term: u64, before: Timestamp, version: u64) {
        let Some(lease) = self.of(region, term) else { return };
        lease.renewing = false;
        if lease.splitting.is_none_or(|(of, count)| of < version || count == 0) {
            lease.splitting = None;
            lease.end = lease.end.max(later(before, LEASE_MS));
        }
    }

    /// No quorum acknowledged it.
    pub(crate) fn not_granted(&mut self, region: RegionId, term: u64) {
        if let Some(lease) = self.of(region, term) {
            lease.renewing = false;
        }
    }

    /// A split of the shape of `version` is about to be proposed.
    pub(crate) fn splits(&mut self, region: RegionId, term: u64, version: u64) {
        if let Some(lease) = self.of(region, term) {
            let others =
                lease.splitting.filter(|(of, _)| *of == version).map_or(0, |(_, count)| count);
            lease.splitting = Some((version, others + 1));
        }
    }

    /// It will certainly not be applied.
    pub(crate) fn does_not_split(&mut self, region: RegionId, term: u64, version: u64) {
        if let Some(lease) = self.of(region, term)
            && let Some((of, count)) = &mut lease.splitting
            && *of == version
        {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether a write may succeed in `term`. `first`: nobody else can have led the region's range before.
    pub(crate) fn fence(&mut self, region: RegionId, term: u64, first: bool) -> Fence {
        // Of a term that is over, the log refuses what is proposed.
        let Some(lease) = self.of(region, term) else { return Fence::Passed };
        match lease.fencing {
            Fencing::Passed => Fence::Passed,
            _ if first => {
                lease.fencing = Fencing::Passed;
                Fence::Passed
            }
            Fencing::Unknown => {
                lease.fencing = Fencing::Asked;
                Fence::Ask
            }
            Fencing::Asked | Fencing::Until(_) => Fence::Wait,
        }
    }

    /// The oracle gave `now` after the term had begun. How many milliseconds of its time are left until writes may
    /// succeed; none where they may. The first one counts.
    pub(crate) fn fenced(&mut self, region: RegionId, term: u64, now: Timestamp) -> Option<u64> {
        let lease = self.of(region, term)?;
        let until = match lease.fencing {
            Fencing::Passed => return None,
            Fencing::Until(until) => until,
            Fencing::Unknown | Fencing::Asked => later(now, LEASE_MS),
        };
        if now > until {
            lease.fencing = Fencing::Passed;
            return None;
        }
        lease.fencing = Fencing::Until(until);
        Some(until.physical_ms().saturating_sub(now.physical_ms()) + 1)
    }

    /// The oracle could not be asked; the next write asks again.
    pub(crate) fn not_fenced(&mut self, region: RegionId, term: u64) {
        if let Some(lease) = self.of(region, term)
            && !matches!(lease.fencing, Fencing::Passed)
        {
            lease.fencing = Fencing::Unknown;
        }
    }

    /// Forgets regions that are not on this node any more. A leader that cannot decide for a moment remembers its splits.
    pub(crate) fn keep(&mut self, here: impl Fn(RegionId) -> bool) {
        self.0.retain(|region, lease| here(*region) || lease.splitting.is_some());
    }
}

#[cfg(test)]
mod tests;
