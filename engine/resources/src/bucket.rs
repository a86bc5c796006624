//! A bucket of request units: it fills at a rate, and what is taken beyond what it holds is a debt that it fills first.
//!
//! So the rate is held over time whatever single costs are, and costs may be noted when they are known.

use std::time::Duration;

use env::Instant;

use crate::units::Units;

/// How much of its rate a bucket holds at most, as the time in which that comes in.
const HOLDS: Duration = Duration::from_millis(500);

/// A bucket of request units.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Units that come in in a second.
    rate: Units,
    /// Millionths of units in it, below zero what is owed.
    level: i64,
    at: Instant,
}

impl Bucket {
    /// An empty bucket.
    pub fn new(rate: Units, now: Instant) -> Self {
        Bucket { rate, level: 0, at: now }
    }

    /// Units that come in in a second.
    pub fn rate(&self) -> Units {
        self.rate
    }

    /// It fills at another rate from now on.
    pub fn set_rate(&mut self, rate: Units, now: Instant) {
        self.fill(now);
        self.rate = rate;
    }

    /// Takes units, there or not.
    pub fn take(&mut self, units: Units, now: Instant) {
        self.fill(now);
        self.level = self.level.saturating_sub_unsigned(units.0);
    }

    /// How long it owes units, if nothing is taken meanwhile; none if it owes none.
    pub fn owes_for(&mut self, now: Instant) -> Option<Duration> {
        self.fill(now);
        if self.level >= 0 {
            return None;
        }
        let micros = u128::from(self.level.unsigned_abs()) * 1_000_000;
        let micros = micros.checked_div(u128::from(self.rate.0)).unwrap_or(u128::MAX);
        Some(
            Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
                + Duration::from_micros(1),
        )
    }

    fn fill(&mut self, now: Instant) {
        let micros = now.since(self.at).as_micros();
        let come_in = u128::from(self.rate.0) * micros / 1_000_000;
        if come_in == 0 {
            // Nothing of a short while is lost.
            return;
        }
        let most = u128::from(self.rate.0) * HOLDS.as_micros() / 1_000_000;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let come_in = u64::try_from(come_in).unwrap_or(u64::MAX);
        self.level = self.level.saturating_add_unsigned(come_in).min(most);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1_000)
    }

    #[test]
    fn whoever_waits_for_its_debt_uses_its_rate() {
        for cost in [Units(7_001), Units::whole(3), Units::whole(900)] {
            let mut bucket = Bucket::new(Units::whole(1_000), at(0));
            let (mut now, mut used) = (at(0), Units::ZERO);
            while now < at(60_000) {
                match bucket.owes_for(now) {
                    Some(wait) => now = now + wait,
                    None => {
                        bucket.take(cost, now);
                        used += cost;
                    }
                }
            }
            let off = used.as_f64() / 60_000.0 - 1.0;
            assert!(off.abs() < 0.016, "{used:?} of 60,000 by {cost:?}");
        }
    }

    #[test]
    fn what_is_not_used_is_kept_for_a_moment() {
        let mut bucket = Bucket::new(Units::whole(1_000), at(0));
        bucket.take(Units::whole(500), at(60_000));
        assert_eq!(bucket.owes_for(at(60_000)), None);
        bucket.take(Units::whole(10), at(60_000));
        assert_eq!(bucket.owes_for(at(60_000)), Some(Duration::from_micros(10_001)));
        assert_eq!(bucket.owes_for(at(60_011)), None);
    }

    #[test]
    fn another_rate_counts_from_now_on() {
        let mut bucket = Bucket::new(Units::whole(1), at(0));
        bucket.take(Units::whole(100), at(0));
        bucket.set_rate(Units::whole(1_000), at(10_000));
        // Ten came in at the first rate.
        assert_eq!(bucket.owes_for(at(10_000)), Some(Duration::from_micros(90_001)));
        bucket.set_rate(Units::ZERO, at(10_000));
        assert!(
            bucket.owes_for(at(10_000)).is_some_and(|wait| wait > Duration::from_secs(1 << 30))
        );
    }
}
