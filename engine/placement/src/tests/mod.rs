//! Tests of placement: scenario scripts of its pure parts, and histories of its concurrent ones.

mod advisory;
mod alone;
mod clocks;
mod collection;
mod deadlock;
mod identity;
mod leader_state;
mod model;
mod oracle_scripts;
mod real_raft;
mod scheduler_scripts;
mod scripts;
mod service;
mod silent_leader;
pub(crate) mod state_scripts;
mod store;
mod timestamps;
mod versions;
