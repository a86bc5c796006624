//! Placement: where regions live, what things are called, what time it is.
//!
//! One Raft group on the row nodes. It never reads or writes a table's rows.

pub mod api;
