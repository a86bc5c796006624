//! SQL over the store in memory: what statements mean, as scripts and as sessions.
#![allow(clippy::unwrap_used)]

mod harness;
mod indexes;
mod lagging;
mod locking;
mod planner;
mod router;
mod scripts;
mod session;
mod statements;
