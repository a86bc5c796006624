//! The timestamp oracle, as one leader holds it in memory: a counter that follows the clocks of a
//! majority within a persisted window.
//!
//! Pure: the caller brings the clocks, persists the window through the log, and confirms its
//! leadership by a quorum *after* each allocation and before handing it out. Both halves are
//! needed. The window alone would let a deposed leader hand out timestamps that are smaller than
//! those of its successor; the confirmation alone would let a successor start below its
//! predecessor. (The persisted window is that of Percolator's oracle, OSDI 2010, section 2.3; the
//! order of confirmation is that of Raft's ReadIndex, Ongaro 2014, section 6.4.)
//!
//! Physical time never goes back and never stands still. It is the median of the clocks of a
//! majority of placement's voters, so one clock that is wrong moves nothing. Where the persisted
//! mark lies ahead of that, or no majority is known yet, it goes on from the mark at half the
//! speed of monotonic time until the clocks have caught up: the age of a lock can be measured by it
//! at any time.

use std::time::Duration;

use env::Instant;
use types::Timestamp;
use types::time::LOGICAL_BITS;

/// How far the persisted window reaches ahead, in milliseconds.
pub const WINDOW_MS: u64 = 3_000;

/// No window is extended to more than this past the clocks of a majority, in milliseconds, unless
/// the mark lies beyond that already: then by [`SHORT_WINDOW_MS`] at a time.
pub const AHEAD_MS: u64 = 5_000;

/// How far the window reaches where it should not reach far, in milliseconds.
pub const SHORT_WINDOW_MS: u64 = 500;

/// How long a leader whose own clock is far ahead of the mark waits for the clocks of a majority: the
/// cluster is new or was down, or that clock is wrong.
pub const CLOCK_WAIT: Duration = Duration::from_secs(3);

/// Most timestamps in one allocation: a millisecond's worth.
pub const MAX_COUNT: u32 = 1 << LOGICAL_BITS;

/// What a leader's clocks say at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Monotonic time.
    pub at: Instant,
    /// Unix milliseconds by the clocks of a majority of the voters; none while it knows fewer
    /// clocks than that.
    pub clock_ms: Option<u64>,
    /// What that may turn out to be at most, once every voter's clock is known; its own clock where no
    /// majority is.
    pub latest_ms: u64,
    /// Unix milliseconds by its own.
    pub own_ms: u64,
}

/// Timestamps of one leader in one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oracle {
    term: u64,
    /// The mark at which the term began: everything that earlier leaders handed out lies below it.
    begun_ms: u64,
    /// Last one allocated, or just below everything this leader may allocate.
    last: Timestamp,
    /// Exclusive end of the window that this leader has persisted itself.
    limit_ms: u64,
    /// Physical time at a point of monotonic time, from which it goes on where the clocks do not
    /// lead.
    from: (Instant, u64),
    /// When it last handed out timestamps.
    used: Option<Instant>,
}

impl Oracle {
    /// A leader's beginning, `at` a point of its monotonic time: above everything that any leader
    /// before it may have handed out. `high_water_ms` is the persisted mark once an entry of `term`
    /// is applied here.
    pub fn begin(term: u64, high_water_ms: u64, at: Instant) -> Self {
        Oracle {
            term,
            begun_ms: high_water_ms,
            last: Timestamp::pack(high_water_ms, 0).prev(),
            limit_ms: high_water_ms,
            from: (at, high_water_ms),
            used: None,
        }
    }

    /// The term it is good for.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether nothing should be handed out yet. Right after a leader that was lost, the mark is as
    /// good as a clock; a mark that is old is not, and the clocks of a majority come with the next
    /// heartbeats.
    pub fn waits_for_clocks(&self, now: Reading) -> bool {
        now.clock_ms.is_none()
            && now.at.since(self.from.0) < CLOCK_WAIT
            && self.time_ms(now).saturating_add(AHEAD_MS) < now.own_ms
    }

    /// Physical time.
    pub fn time_ms(&self, now: Reading) -> u64 {
        let (at, from_ms) = self.from;
        let passed = now.at.since(at).as_millis() as u64;
        from_ms.saturating_add(passed / 2).max(now.clock_ms.unwrap_or(0))
    }

    /// How far physical time lies ahead of the clocks of a majority.
    pub fn ahead_ms(&self, now: Reading) -> Option<u64> {
        Some(self.time_ms(now).max(self.last.physical_ms()).saturating_sub(now.clock_ms?))
    }

    /// Where the window should end next, if it is time to prolong it.
    pub fn wanted(&self, now: Reading) -> Option<u64> {
        if self.waits_for_clocks(now) {
            return None;
        }
        let at = self.time_ms(now).max(self.last.next().physical_ms());
        let bound = now.clock_ms.map_or(0, |clock| clock.saturating_add(AHEAD_MS));
        let length = bound.saturating_sub(at).clamp(SHORT_WINDOW_MS, WINDOW_MS);
        (self.limit_ms < at.saturating_add(length / 2)).then(|| at.saturating_add(length))
    }

    /// Whether timestamps were handed out lately: an idle leader writes no log.
    pub fn in_use(&self, now: Reading) -> bool {
        self.used.is_some_and(|used| now.at.since(used) <= Duration::from_millis(WINDOW_MS))
    }

    /// The window is persisted up to here, by a command of this leader's term.
    pub fn extended(&mut self, until_ms: u64) {
        self.limit_ms = self.limit_ms.max(until_ms);
    }

    /// First of `count` consecutive timestamps, or none if the window does not reach.
    pub fn allocate(&mut self, now: Reading, count: u32) -> Option<Timestamp> {
        let time_ms = self.time_ms(now);
        let first = self.last.next().max(Timestamp::pack(time_ms, 0));
        let last = Timestamp(first.0.checked_add(u64::from(count.max(1)) - 1)?);
        if last.physical_ms() >= self.limit_ms {
            return None;
        }
        if now.clock_ms == Some(time_ms) {
            self.from = (now.at, time_ms);
        }
        self.last = last;
        self.used = Some(now.at);
        Some(first)
    }

    /// Whether a timestamp that somebody has seen cannot be, if the log that this leader goes by is
    /// whole: `given_in` is the term of the leader who gave it, where that is known.
    ///
    /// The leader must have been confirmed by a quorum after the timestamp was reported: a deposed
    /// one may know of its successor's.
    pub fn is_contradicted_by(&self, seen: Timestamp, given_in: Option<u64>) -> bool {
        let earlier = seen.physical_ms() >= self.begun_ms;
        match given_in {
            Some(term) if term < self.term => earlier,
            Some(term) if term > self.term => true,
            Some(_) => seen > self.last,
            None => earlier && seen > self.last,
        }
    }

    /// The mark at which the term began, in Unix milliseconds.
    pub fn begun_ms(&self) -> u64 {
        self.begun_ms
    }
}

/// What the clocks of a majority say: the median of those that are known, the lower one of two in
/// the middle; none if they are not of so many as a majority of `voters`.
pub fn median_ms(mut clocks: Vec<u64>, voters: usize) -> Option<u64> {
    if clocks.len() < voters / 2 + 1 {
        return None;
    }
    clocks.sort_unstable();
    clocks.get((clocks.len() - 1) / 2).copied()
}

/// The median of all voters' clocks if those that are not known are later than all that are; none
/// where [`median_ms`] has none.
pub fn latest_median_ms(mut clocks: Vec<u64>, voters: usize) -> Option<u64> {
    clocks.sort_unstable();
    clocks.get(voters.saturating_sub(1) / 2).copied().filter(|_| clocks.len() > voters / 2)
}
