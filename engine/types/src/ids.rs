//! The numbers by which the cluster knows its parts. None is given twice.

/// A Raft group's number. Never reused.
pub type RegionId = u64;
/// A process's number: row node, SQL node or columnar node. Never reused.
pub type NodeId = u64;
/// A member's number within Raft. Never reused, so a wiped replica comes back as somebody new
/// and the leader cannot believe that it still holds what it once acknowledged.
pub type PeerId = u64;
/// A table's number. Never reused, so a dropped and recreated table is another table.
pub type TableId = u64;
/// A column's number within its table. Never reused: stored rows are keyed by it.
pub type ColumnId = u32;
/// An index's number within its table. Never reused.
pub type IndexId = u32;
/// Version of one table's schema, raised by every change.
pub type SchemaVersion = u32;
