//! Placement: where regions live, what things are called, what time it is.
//!
//! One Raft group on the row nodes. Its [`machine`] applies [`command`]s to one small [`state`];
//! the leader's [`service`] answers requests, hands out timestamps ([`oracle`]) and turns its
//! view of the cluster into orders ([`scheduler`]); every node asks through [`client`]. It never
//! reads or writes a table's rows.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod accounts;
pub mod advisory;
mod affinity;
pub mod alone;
pub mod api;
pub mod batch;
pub mod bootstrap;
mod calling;
pub mod catalog;
pub mod client;
pub mod command;
pub mod deadlock;
pub mod entry;
pub mod formation;
pub mod identity;
pub mod leader_state;
pub mod leases;
pub mod machine;
pub mod machines;
pub mod oracle;
mod own_group;
pub mod participant;
mod replicas;
pub mod routes;
mod runaways;
pub mod safe_point;
pub mod scheduler;
pub mod service;
pub mod sessions;
pub mod state;
pub mod testing;
#[cfg(test)]
mod tests;
mod versions;
pub mod view;

pub use bootstrap::placement_region;
pub use client::{ClusterStatus, PlacementClient, PlacementTransport};
pub use machines::PlacementMachines;
pub use service::PlacementService;
pub use view::View;
