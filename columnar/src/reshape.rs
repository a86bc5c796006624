//! Changes of a tablet's shape: it is split, or written as a whole.
//!
//! Each is one edit of the manifest. Segment files are shared, never rewritten: a part is a range
//! of positions, for a segment's rows stand in key order. Both flush the delta first, so what
//! comes of a split is durable as a whole.

use std::sync::Arc;

use raft::INITIAL_POSITION;
use txn::{SplitChild, split_region};
use types::{Region, Result, Timestamp};

use crate::deletions::DeletionLog;
use crate::record::{Edit, TabletRecord, stored};
use crate::shared::Shared;
use crate::tablet::{Part, State, Tablet};
use crate::tablets::Tablets;

impl Tablet {
    /// Cuts the tablet; the new ones are registered and returned. A child that this node holds
    /// already, with data, came by another way and is newer: it stays as it is.
    pub(crate) fn split(
        &self,
        state: &mut State,
        children: &[SplitChild],
        tablets: &Tablets,
    ) -> Result<Vec<Arc<Tablet>>> {
        let (parent, regions) = split_region(&state.region, children)?;
        let parts = state.fold(&self.shared)?;
        let kept = cut(&self.shared, &parts, &parent)?;
        let mut edits = vec![Edit::Put(Box::new(state.record(&parent, &kept)))];
        let mut records = Vec::with_capacity(regions.len());
        for region in regions {
            if tablets.get(region.id).is_some_and(|known| known.lock().applied.index > 0) {
                tracing::info!(region = region.id, "a split meets a newer child and leaves it");
                continue;
            }
            let parts = cut(&self.shared, &parts, &region)?;
            let record = TabletRecord {
                applied: stored(INITIAL_POSITION),
                generation: self.shared.next_id(),
                ..state.record(&region, &parts)
            };
            edits.push(Edit::Put(Box::new(record.clone())));
            records.push(record);
        }
        self.shared.manifest.lock().append(edits)?;
        // The children can be read before the parent forgets them; a reader's epoch shows it.
        let children =
            records.into_iter().map(|record| tablets.install(&self.shared, record)).collect();
        state.pending.retain(|key, _| parent.contains(key));
        state.region = parent;
        state.adopt(kept);
        state.durable = state.applied.index;
        self.publish(state)?;
        children
    }

    /// Writes the tablet as a whole, with everything applied.
    pub(crate) fn rewrite(&self, state: &mut State) -> Result<()> {
        let parts = state.fold(&self.shared)?;
        let record = state.record(&state.region, &parts);
        self.shared.manifest.lock().append(vec![Edit::Put(Box::new(record))])?;
        state.adopt(parts);
        state.durable = state.applied.index;
        Ok(())
    }
}

/// The rows of parts that fall into a region, as new parts of the same segments.
fn cut(shared: &Shared, parts: &[Part], region: &Region) -> Result<Vec<Part>> {
    let mut kept = Vec::with_capacity(parts.len());
    for part in parts {
        let bound = |key: &[u8]| part.segment.lower_bound(key, Timestamp::ZERO);
        let (from, to) = (bound(&region.start)?.max(part.from), bound(&region.end)?.min(part.to));
        if from >= to {
            continue;
        }
        let mut deletions = part.deletions.to_vec();
        deletions.retain(|deletion| (from..to).contains(&deletion.row));
        kept.push(Part {
            id: shared.next_id(),
            segment: part.segment.clone(),
            from,
            to,
            durable_deletions: deletions.len(),
            deletions: DeletionLog::new(deletions),
        });
    }
    Ok(kept)
}
