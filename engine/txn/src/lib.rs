//! Transactions over regions: facts, versions, two-phase commit.
//!
//! Nothing here knows SQL, columns or the network.

pub mod api;
pub mod fact;

pub use fact::{Fact, Facts, SnapshotItem, SplitChild, WriteKind};
