//! Statements that write rows: INSERT, UPDATE, DELETE and LOAD DATA, and rows of an import.
//!
//! Changes are computed first and written then, a statement all or nothing; no description of a table
//! changes here.

mod assigning;
mod cascades;
mod change;
mod changes;
mod clauses;
mod column_values;
pub(super) mod derived;
mod fitting;
mod guard;
pub(super) mod ingest;
pub(super) mod insert;
pub(super) mod joined;
pub(super) mod load;
pub(super) mod matched_rows;
mod net;
mod new_values;
pub(super) mod parents;
mod pending_changes;
pub(super) mod row_values;
pub(super) mod statement;
mod upsert;
