//! Definitions: databases, tables, columns, indexes, views, replicas, regions.
//!
//! A new description is published before rows of its version are written; nothing here answers rows.

pub(super) mod abandoned;
mod alter;
mod checks;
mod converting;
mod creating;
mod define;
mod filling;
mod generating;
mod indexing;
mod numbers;
mod plan;
mod publish;
mod referring;
mod renewal;
pub(super) mod views;
