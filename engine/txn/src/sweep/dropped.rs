//! Removes what a dropped index leaves in regions that hold its table's records, too: such a region does not go with it.
//!
//! Nobody may need an entry any more, and none may be on its way. Regions take rows of the newest two descriptions: once
//! neither has the index, no more entries of it are locked. When this node had applied the second, the oracle was asked for
//! a timestamp; once the region's floor has reached it, whoever had locked one, or may read one, has ended.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use kv::{Keyspace, WriteBatch};
use types::{IndexId, RegionId, RegionKind, Result, SchemaVersion, TableId, Timestamp, key};

use super::{Phase, Sweep};
use crate::layout::{self, DataRecord};
use crate::locks::LockChanges;
use crate::store::{RegionView, RowStore};

/// Version of the description that a region of indexes and records goes by.
fn version(view: &RegionView) -> Option<SchemaVersion> {
    let RegionKind::Table(table) = view.region.kind else { return None };
    Some(view.newest_schema(table)?.version)
}

impl RowStore {
    /// Regions whose table has a description here since which no timestamp is known.
    pub fn undescribed(&self) -> Vec<(RegionId, SchemaVersion)> {
        self.described.retain(|region| self.region(region).is_some());
        let regions = self.regions().into_iter().filter(|view| view.whole);
        regions
            .filter_map(|view| Some((view.region.id, version(&view)?)))
            .filter(|(region, version)| self.described.since(*region, *version).is_none())
            .collect()
    }

    /// Takes note of a timestamp that the oracle was asked for after [`Self::undescribed`] had said this.
    pub fn note_described(&self, region: RegionId, version: SchemaVersion, ts: Timestamp) {
        self.described.note(region, version, ts);
    }

    /// Whether nobody needs what the region's table has no index for.
    pub(super) fn can_drop_entries(&self, view: &RegionView) -> bool {
        let since = version(view).and_then(|version| self.described.since(view.region.id, version));
        since.is_some_and(|since| since <= view.floors.read)
    }

    /// Goes on with the entries of dropped indexes; false if the region is not what it was.
    pub(super) fn sweep_dropped(&self, sweep: &mut Sweep) -> Result<bool> {
        let view = sweep.view.clone();
        let RegionKind::Table(table) = view.region.kind else { return Ok(false) };
        let described = view.accepted_schemas(table).flat_map(|table| &table.indexes);
        let indexes: BTreeSet<IndexId> = described.map(|index| index.id).collect();
        let Found { batch, next, bytes } = self.entries_without(sweep, table, &indexes)?;
        let stands = {
            let _alone = view.gate.lock();
            let same = self.stands(sweep)
                && self.region(view.region.id).is_some_and(|now| version(&now) == version(&view));
            if same && !batch.is_empty() {
                sweep.removed += batch.changes.len() as u64;
                self.write(batch, LockChanges::new())?;
                view.swept.fetch_add(bytes, Ordering::Relaxed);
            }
            same
        };
        (sweep.phase, sweep.cursor) = match next {
            Some(next) => (Phase::Dropped, next),
            None => (Phase::Versions, layout::escaped_bound(&view.region.start)),
        };
        Ok(stands)
    }

    /// One step's entries of indexes that are not among these, with their older versions. How a transaction ended that
    /// had its primary key there may still be asked: fates stay until they are settled.
    fn entries_without(
        &self,
        sweep: &Sweep,
        table: TableId,
        indexes: &BTreeSet<IndexId>,
    ) -> Result<Found> {
        let kv = self.snapshot();
        let end = key::records_start(table).min(sweep.view.region.end.clone());
        let mut found = Found { batch: WriteBatch::default(), next: None, bytes: 0 };
        let mut seen = 0;
        for pair in kv.scan(Keyspace::Data, &sweep.cursor, &end) {
            let (mut entry, stored) = pair?;
            let Some(RegionKind::Index(_, id)) = key::region_kind(&entry) else { break };
            if indexes.contains(&id) {
                found.next = Some(key::index_end(table, id));
                break;
            }
            let versions = layout::hist_key(&entry, Timestamp::MAX);
            for older in kv.scan(Keyspace::Hist, &versions, &layout::hist_end(&entry)) {
                found.batch.delete(Keyspace::Hist, older?.0);
            }
            let row = DataRecord::decode(stored)?.row;
            found.bytes += row.map_or(0, |row| (entry.len() + row.len()) as u64);
            found.batch.delete(Keyspace::Data, entry.clone());
            seen += 1;
            if seen >= sweep.step {
                entry.push(0);
                found.next = Some(entry);
                break;
            }
        }
        Ok(found)
    }
}

/// What a step removes, and where the next one goes on.
struct Found {
    batch: WriteBatch,
    next: Option<Vec<u8>>,
    /// Of live entries, as a region's size counts them.
    bytes: u64,
}
