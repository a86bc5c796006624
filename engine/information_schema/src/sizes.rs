//! How large tables are, about: what the leaders of their regions last reported, added up. No row is read for it, and
//! nothing is guessed: of a table with a region that no leader is known of, nothing is said, and index entries count as data
//! while they share a region with records.

use std::collections::BTreeMap;

use placement::api::Route;
use types::{TableId, Value};

use super::int;

/// Sizes of tables.
pub struct Sizes(BTreeMap<TableId, Option<Size>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    rows: u64,
    record_bytes: u64,
    index_bytes: u64,
}

impl Sizes {
    /// Those of all tables that have regions.
    pub fn of(routes: &[Route]) -> Sizes {
        let mut sizes = BTreeMap::new();
        for route in routes {
            let Some(table) = route.region.table() else { continue };
            let known = sizes.entry(table).or_insert(Some(Size::default()));
            let Some(size) = known else { continue };
            if route.leader.is_none() {
                *known = None;
            } else if route.region.records().is_some() {
                size.rows += route.rows;
                size.record_bytes += route.bytes;
            } else {
                size.index_bytes += route.bytes;
            }
        }
        Sizes(sizes)
    }

    /// TABLE_ROWS, AVG_ROW_LENGTH, DATA_LENGTH, MAX_DATA_LENGTH, INDEX_LENGTH and DATA_FREE of a table.
    pub fn of_table(&self, table: TableId) -> [Value; 6] {
        let Some(Some(size)) = self.0.get(&table) else { return [const { Value::Null }; 6] };
        let average = size.record_bytes.checked_div(size.rows).unwrap_or(0);
        [
            int(size.rows),
            int(average),
            int(size.record_bytes),
            Value::Null,
            int(size.index_bytes),
            Value::Null,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Epoch, Region, RegionKind, key};

    fn route(kind: RegionKind, leader: Option<u64>, rows: u64, bytes: u64) -> Route {
        let ((start, end), peers) = (key::range(kind).unwrap_or_default(), Vec::new());
        let region = Region { id: 1, epoch: Epoch::default(), kind, start, end, peers };
        Route { region, leader, ready_learners: Vec::new(), rows, bytes }
    }

    #[test]
    fn regions_add_up_and_one_without_a_leader_hides_its_table() {
        let sizes = Sizes::of(&[
            route(RegionKind::Placement, Some(1), 9, 9),
            route(RegionKind::Records(1), Some(1), 3, 100),
            route(RegionKind::Records(1), Some(2), 4, 50),
            route(RegionKind::Index(1, 1), Some(1), 7, 70),
            route(RegionKind::Index(1, 2), Some(3), 7, 7),
            route(RegionKind::Records(2), Some(1), 3, 100),
            route(RegionKind::Records(2), None, 0, 0),
            route(RegionKind::Records(2), Some(1), 3, 100),
            route(RegionKind::Records(3), Some(1), 0, 0),
            route(RegionKind::Table(5), Some(1), 3, 100),
        ]);
        let shown = |table| sizes.of_table(table).map(|value| value.to_string()).join(" ");
        assert_eq!(shown(1), "7 21 150 NULL 77 NULL");
        assert_eq!(shown(2), "NULL NULL NULL NULL NULL NULL");
        assert_eq!(shown(3), "0 0 0 NULL 0 NULL");
        assert_eq!(shown(4), "NULL NULL NULL NULL NULL NULL");
        assert_eq!(shown(5), "3 33 100 NULL 0 NULL");
    }
}
