//! What keys regions are made for. Knows no key: where the ranges begin and end is said in [`key`](crate::key).

use serde::{Deserialize, Serialize};

use crate::ids::{IndexId, TableId};

/// What a region's keys are. Nodes exchange and store the variants by their place: a new one goes to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RegionKind {
    /// Placement's own group; it has no key range.
    Placement,
    /// Records of one table.
    Records(TableId),
    /// Entries of one index of one table.
    Index(TableId, IndexId),
    /// Everything of one table: entries of its indexes, then its records. From cluster version
    /// [`SHARED_REGIONS`](crate::version::SHARED_REGIONS) on a table begins as one such region. Of keys, this is said by
    /// nobody: a key is of records, or of an index.
    Table(TableId),
}

impl RegionKind {
    /// The table whose keys these are.
    pub fn table(self) -> Option<TableId> {
        match self {
            RegionKind::Placement => None,
            RegionKind::Records(table) | RegionKind::Index(table, _) | RegionKind::Table(table) => {
                Some(table)
            }
        }
    }
}
