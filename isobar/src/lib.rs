//! The one binary's library: the command line, and whole clusters as processes.
//!
//! Crates below know nothing of processes or terminals; this one knows little else.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod cli;
pub mod ctl;
pub mod dbgen;
pub mod health;
pub mod playground;
pub mod signals;
