//! Columnar replicas beyond the schedule: which tables columns have been complete of.
//!
//! Never counts a replica as complete by itself: nodes report what they hold.

use types::{RegionKind, TableId};

use crate::api::NodeRole;
use crate::leader_state::LeaderState;
use crate::state::State;

/// Notes that columns were complete of these tables, as far as they still want replicas.
pub(crate) fn note_complete(state: &mut State, tables: &[TableId]) {
    let State { catalog, .. } = state;
    let wants =
        |id: &&TableId| catalog.table(**id).is_some_and(|table| table.columnar_replicas > 0);
    let complete: Vec<TableId> = tables.iter().filter(wants).copied().collect();
    let before = catalog.complete_columns.len();
    catalog.complete_columns.extend(complete);
    // SQL nodes route by it: they fetch a catalog by its version alone.
    if catalog.complete_columns.len() > before {
        catalog.version += 1;
    }
}

/// Forgets it of a table that wants no replicas any more: asked for again, they are to be filled
/// first.
pub(crate) fn note_replicas(state: &mut State, table: TableId, replicas: u8) {
    if replicas == 0 {
        state.catalog.complete_columns.remove(&table);
    }
}

impl LeaderState {
    /// Tables whose every region has a learner that holds data, and of which that is news.
    pub(crate) fn newly_complete(&self, state: &State) -> Vec<TableId> {
        if state.nodes.values().all(|node| node.role != NodeRole::Columnar) {
            return Vec::new();
        }
        let complete = |table: TableId| {
            let tiles = state.tiling(RegionKind::Records(table));
            tiles.is_some_and(|tiles| {
                tiles.iter().all(|tile| !self.route(state, &tile.region).ready_learners.is_empty())
            })
        };
        let tables = state.catalog.tables.iter().filter(|table| {
            table.columnar_replicas > 0 && !state.catalog.complete_columns.contains(&table.id)
        });
        tables.map(|table| table.id).filter(|table| complete(*table)).collect()
    }
}
