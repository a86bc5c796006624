//! One log, two state machines: whatever a leader may decide, rows and columns show the same rows
//! at every timestamp, through crashes, snapshots, splits and merges of segments.
//!
//! Every history comes from a seed (`env::seeds`).
#![cfg(test)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod columns;
mod follower;
mod history;
mod leader;
mod model;
mod rows;
mod table;
