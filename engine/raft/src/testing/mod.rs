//! Stand-ins for tests of this crate and of those above: a cluster in one thread whose network,
//! disks and time obey a seed, and a single node without Raft.
//!
//! Nothing here is used in production.

mod cluster;
mod echo;
mod solo;
mod wire;

pub use cluster::{MachineMaker, SimCluster, SimGroups, SimOptions};
pub use echo::{EchoCommand, EchoMachines, EchoState};
pub use solo::SoloGroups;
