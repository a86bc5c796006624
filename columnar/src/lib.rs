//! Learners that turn the log into columns, and scans of them.
//!
//! A tablet is one region's columns on this node: rows that live over `[begin, end)`, in a delta
//! in memory and in immutable Parquet segments, with append-only lists of deletions. There is no
//! merge on read. Never contacts a leader to apply, and never depends on a query engine.

mod apply;
mod cache;
mod compaction;
mod deletions;
mod delta;
mod flush;
mod index;
mod lag;
mod learner;
mod manifest;
mod predicate;
mod reader;
mod record;
mod reshape;
mod restore;
mod scan;
mod schemas;
mod segment;
mod shared;
mod snapshot;
mod store;
mod tablet;
mod tablets;
#[cfg(test)]
mod tests;
mod verify;
mod view;
mod visibility;

pub use learner::{ColumnarMachine, ColumnarMachines};
pub use predicate::{Compare, Comparison, Predicate};
pub use scan::{DEFAULT_BATCH_ROWS, PartitionScan, ScanRequest, ScanStats, TabletScan};
pub use shared::Config;
pub use snapshot::{TabletHandle, TabletSnapshot};
pub use store::ColumnarStore;
