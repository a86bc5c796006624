//! Flight servers, workers and columnar stores of three nodes in one process, against answers computed from
//! the plain rows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(missing_docs)]

mod cluster;
mod data;
mod explain;
mod faults;
mod formats;
mod outlive;
mod partitions;
mod plans;
mod queries;
mod renumbered;
mod scans;
mod tickets;
mod windows;
