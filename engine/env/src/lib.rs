//! Clock, randomness and disk, real and simulated: the only crate that touches them.
//!
//! Raft, placement, transactions and columns take what they need from here, so that one seed
//! replays one history. [`frame`] and [`whole`] give every file magic, version and checksum.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods))]

pub mod clock;
pub mod disk;
pub mod frame;
mod priority;
pub mod processor;
pub mod random;
pub mod real_disk;
pub mod seeds;
pub mod sim_disk;
pub mod steady;
pub mod whole;

pub use clock::{Clock, Instant, RealClock, SimClock};
pub use disk::{Access, Disk, DiskFile, parent_of};
pub use frame::{Format, FrameReader, FrameWriter, Record};
pub use priority::give_way;
pub use random::Random;
pub use real_disk::RealDisk;
pub use sim_disk::{Operation, SimDisk};
pub use steady::SteadyClock;
pub use whole::{atomic_write, read_whole};
