//! The one binary's library: wiring of nodes, the command line.
//!
//! Crates below know nothing of processes, files of settings or terminals; this one knows little
//! else.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod backend;
pub mod cli;
pub mod config;
pub mod ctl;
pub mod dbgen;
pub mod health;
pub mod import;
pub mod node;
pub mod playground;
pub mod recover;
pub mod signals;
pub mod users;
