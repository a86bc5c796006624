//! The transaction that statements belong to: its beginning and end, its savepoints, what it reads and
//! what it locks.
//!
//! What is read or written is not decided here.

mod boundaries;
pub(super) mod finding;
pub(super) mod locking;
pub(super) mod past;
mod reading;
pub(super) mod state;
