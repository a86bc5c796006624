//! What a scan reads, as it travels to the node that reads it. It must name every region itself.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, exec_datafusion_err};
use serde::{Deserialize, Serialize};
use types::{Epoch, NodeId, RegionId, Table, Timestamp};

use crate::pruning::Bound;

/// What a scan reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanSpec {
    /// The table as planned.
    pub table: Arc<Table>,
    /// Positions of the columns, in the order of the answer.
    pub projection: Vec<usize>,
    /// Regions and their nodes.
    pub regions: Vec<(RegionId, Epoch, NodeId)>,
    /// The node to run on; none before tasks are pinned.
    pub node: Option<NodeId>,
    /// Snapshot.
    pub ts: Timestamp,
    /// Rows, about, of all the regions.
    pub rows: u64,
    /// Bytes, about, of all the regions.
    pub bytes: u64,
    /// Rows that need not be read: those for which one of these is not true.
    pub prune: Vec<Bound>,
}

impl ScanSpec {
    /// The columns, in the order of the answer.
    pub fn columns(&self) -> Result<Vec<types::Column>> {
        self.projection
            .iter()
            .map(|at| self.table.columns.get(*at).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| exec_datafusion_err!("a scan of {} beyond its columns", self.table.name))
    }

    /// Schema of the answer, named as plans name columns.
    pub fn schema(&self) -> Result<SchemaRef> {
        let full = binder::planning_schema(&self.table);
        Ok(Arc::new(full.project(&self.projection)?))
    }
}
