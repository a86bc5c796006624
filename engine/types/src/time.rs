//! Transaction timestamps: a hybrid of wall time and a counter, handed out by placement's oracle.
//!
//! Nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Bits of the counter below the milliseconds.
pub const LOGICAL_BITS: u32 = 18;

/// A point in the cluster's transaction order: 46 bits of Unix milliseconds, 18 bits of counter
/// (the layout of TiDB's timestamp oracle, so that tools which unpack one unpack the other).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Before everything.
    pub const ZERO: Timestamp = Timestamp(0);
    /// After everything.
    pub const MAX: Timestamp = Timestamp(u64::MAX);

    /// Packs Unix milliseconds and a counter. Bits that do not fit are cut.
    pub const fn pack(physical_ms: u64, logical: u64) -> Self {
        Timestamp((physical_ms << LOGICAL_BITS) | (logical & ((1 << LOGICAL_BITS) - 1)))
    }

    /// Unix milliseconds.
    pub const fn physical_ms(self) -> u64 {
        self.0 >> LOGICAL_BITS
    }

    /// The counter within the millisecond.
    pub const fn logical(self) -> u64 {
        self.0 & ((1 << LOGICAL_BITS) - 1)
    }

    /// The timestamp right before this one.
    pub const fn prev(self) -> Self {
        Timestamp(self.0.saturating_sub(1))
    }

    /// The timestamp right after this one.
    pub const fn next(self) -> Self {
        Timestamp(self.0.saturating_add(1))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
