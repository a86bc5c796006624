//! Queries: planned, routed to rows or columns, run; and the functions that a session carries out itself.
//!
//! Nothing here writes rows; what a query reads, and as of when, is `transaction`'s to say.

mod columns;
pub(super) mod constants;
mod inline;
pub(in crate::session) mod known;
pub(super) mod last_insert_id;
pub(super) mod last_query;
pub(super) mod limits;
mod lock_calls;
pub(super) mod one_row;
pub(super) mod plain;
pub(super) mod point;
mod prepare;
mod prepared;
pub(super) mod select;
mod sleeping;
pub(super) mod snapshots;
pub(super) mod tables;
pub(super) mod unfolding;
pub(super) mod unplanned;
mod user_variables;
