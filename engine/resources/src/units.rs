//! Request units: what work costs. The prices are TiDB's: one unit is 8 read requests, 2 batches of them, 64 KiB that are
//! read, 3 ms of a processor, one write request, one batch of them, or one KiB that is written; writes cost that on each
//! replica.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Request units, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Units(pub u64);

/// Millionths of a unit.
const WHOLE: u64 = 1_000_000;

impl Units {
    /// None.
    pub const ZERO: Self = Self(0);

    /// So many whole ones.
    pub const fn whole(units: u64) -> Self {
        Self(units.saturating_mul(WHOLE))
    }

    /// One read request to a region, sent by itself, that gives so many bytes.
    pub const fn of_read(bytes: usize) -> Self {
        Self(WHOLE / 2 + WHOLE / 8 + Self::of_bytes(bytes).0)
    }

    /// So many bytes that are read, of columns: there is no request to pay for.
    pub const fn of_bytes(bytes: usize) -> Self {
        Self((bytes as u64).saturating_mul(WHOLE) / (64 << 10))
    }

    /// Bytes that may be read for these.
    pub const fn bytes_read(self) -> u64 {
        (self.0 / (WHOLE / 1_000)).saturating_mul(64 << 10) / 1_000
    }

    /// One write request to a region, sent by itself, of so many bytes, on so many replicas.
    pub const fn of_write(bytes: usize, replicas: usize) -> Self {
        let each = 2 * WHOLE + (bytes as u64).saturating_mul(WHOLE) / 1_024;
        Self(each.saturating_mul(replicas as u64))
    }

    /// Time of a processor.
    pub const fn of_processor(time: Duration) -> Self {
        Self((time.as_nanos() as u64).saturating_mul(WHOLE / 1_000_000) / 3)
    }

    /// In whole ones.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / WHOLE as f64
    }
}

impl Add for Units {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Units {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_tidbs() {
        assert_eq!(Units::of_read(0), Units(625_000));
        assert_eq!(Units::of_read(64 << 10), Units(1_625_000));
        assert_eq!(Units::of_bytes(160 << 10).bytes_read(), 160 << 10);
        assert_eq!(Units::of_write(1_024, 1), Units::whole(3));
        assert_eq!(Units::of_write(0, 3), Units::whole(6));
        assert_eq!(Units::of_processor(Duration::from_millis(3)), Units::whole(1));
        assert_eq!(Units::of_processor(Duration::from_secs(3)), Units::whole(1_000));
        assert_eq!(Units::of_write(usize::MAX, 3) + Units::whole(u64::MAX), Units(u64::MAX));
    }
}
