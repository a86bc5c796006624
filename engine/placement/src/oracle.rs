//! The timestamp oracle, as one leader holds it in memory: a counter that follows the clock within
//! a persisted window.
//!
//! Pure: the caller brings the clock, persists the window through the log, and confirms its
//! leadership by a quorum *after* each allocation and before handing it out. Both halves are
//! needed. The window alone would let a deposed leader hand out timestamps that are smaller than
//! those of its successor; the confirmation alone would let a successor start below its
//! predecessor. (The persisted window is that of Percolator's oracle, OSDI 2010, section 2.3; the
//! order of confirmation is that of Raft's ReadIndex, Ongaro 2014, section 6.4.)

use types::Timestamp;
use types::time::LOGICAL_BITS;

/// How far the persisted window reaches ahead of the clock, in milliseconds.
pub const WINDOW_MS: u64 = 3_000;

/// With less than this left the window is prolonged ahead of need, in milliseconds.
const LOW_MS: u64 = WINDOW_MS / 2;

/// Most timestamps in one allocation: a millisecond's worth.
pub const MAX_COUNT: u32 = 1 << LOGICAL_BITS;

/// Timestamps of one leader in one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    term: u64,
    /// Last one allocated, or just below everything this leader may allocate.
    last: Timestamp,
    /// Exclusive end of the window that this leader has persisted itself.
    limit_ms: u64,
}

impl Oracle {
    /// A leader's beginning: above everything that any leader before it may have handed out.
    /// `high_water_ms` is the persisted mark once an entry of `term` is applied here.
    pub fn begin(term: u64, high_water_ms: u64) -> Self {
        Oracle { term, last: Timestamp::pack(high_water_ms, 0).prev(), limit_ms: high_water_ms }
    }

    /// The term it is good for.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Where the window should end next, if it is time to prolong it.
    pub fn wanted(&self, now_ms: u64) -> Option<u64> {
        let at = now_ms.max(self.last.next().physical_ms());
        (self.limit_ms < at.saturating_add(LOW_MS)).then(|| at.saturating_add(WINDOW_MS))
    }

    /// Whether timestamps were handed out within the last window: an idle leader writes no log.
    pub fn in_use(&self, now_ms: u64) -> bool {
        self.last.physical_ms().saturating_add(WINDOW_MS) >= now_ms
    }

    /// The window is persisted up to here, by a command of this leader's term.
    pub fn extended(&mut self, until_ms: u64) {
        self.limit_ms = self.limit_ms.max(until_ms);
    }

    /// First of `count` consecutive timestamps, or none if the window does not reach.
    ///
    /// Follows the clock; while the clock stands behind what was handed out (it jumped back), the
    /// counter goes on alone.
    pub fn allocate(&mut self, now_ms: u64, count: u32) -> Option<Timestamp> {
        let first = self.last.next().max(Timestamp::pack(now_ms, 0));
        let last = Timestamp(first.0.checked_add(u64::from(count.max(1)) - 1)?);
        if last.physical_ms() >= self.limit_ms {
            return None;
        }
        self.last = last;
        Some(first)
    }
}
