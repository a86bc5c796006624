//! What readers hold: a handle on a tablet, and pinned snapshots of it.
//!
//! Pinning comes first, checks after, so that what was checked is what is read.

use std::sync::Arc;

use raft::Position;
use types::error::LockInfo;
use types::{
    ColumnId, Epoch, Error, Region, RegionId, ReplicaLag, Result, SchemaVersion, Table, Timestamp,
};

use crate::delta::Chunk;
use crate::tablet::Tablet;
use crate::view::{PartView, View};

/// A tablet on this node, for readers. Cheap to clone; it follows the tablet as it changes.
#[derive(Clone)]
pub struct TabletHandle {
    tablet: Arc<Tablet>,
}

impl TabletHandle {
    pub(crate) fn new(tablet: Arc<Tablet>) -> Self {
        TabletHandle { tablet }
    }

    /// The region, as of what readers see.
    pub fn region(&self) -> Region {
        self.tablet.view().region.clone()
    }

    /// Last entry whose effects readers see; index 0 while the tablet waits for a snapshot.
    pub fn applied(&self) -> Position {
        self.tablet.view().applied
    }

    /// Whether the tablet holds data and is not quarantined.
    pub fn is_ready(&self) -> bool {
        self.applied().index > 0 && self.tablet.usable().is_ok()
    }

    /// Locks with `start_ts ≤ ts` that may yet commit below `ts`: they must be resolved, and the
    /// log awaited again, before [`TabletHandle::snapshot_at`] sees all of `ts`.
    pub fn pending_locks(&self, ts: Timestamp) -> Vec<LockInfo> {
        self.tablet.pending_locks(ts)
    }

    /// How long commits took to become visible here, lately. It stays as it is while nothing is
    /// written.
    pub fn lag(&self) -> ReplicaLag {
        self.tablet.lag()
    }

    /// Pins what a reader at `ts` sees. The epoch is the one the reader planned with; membership
    /// may have changed since, the key range may not.
    ///
    /// Errors: `StaleEpoch`, `SnapshotTooOld`, `Unavailable` before the first snapshot has come,
    /// `Corrupt` while quarantined, `RegionNotFound` after the replica has gone.
    pub fn snapshot_at(&self, ts: Timestamp, epoch: Epoch) -> Result<TabletSnapshot> {
        let view = self.tablet.view();
        self.tablet.usable()?;
        if view.applied.index == 0 {
            return Err(Error::Unavailable(format!(
                "columnar replica of region {} waits for its first snapshot: use another replica \
                 or rows",
                view.region.id
            )));
        }
        if view.region.epoch.version != epoch.version {
            let current = vec![view.region.clone()];
            return Err(Error::StaleEpoch { region: view.region.id, current });
        }
        if ts < view.floor {
            return Err(Error::SnapshotTooOld { ts, floor: view.floor });
        }
        Ok(TabletSnapshot { tablet: self.tablet.clone(), view, ts })
    }
}

/// One region's columns at one timestamp, pinned: later writes, flushes, merges, splits and
/// snapshots do not change what it reads.
#[derive(Clone)]
pub struct TabletSnapshot {
    pub(crate) tablet: Arc<Tablet>,
    pub(crate) view: Arc<View>,
    pub(crate) ts: Timestamp,
}

impl TabletSnapshot {
    /// The region.
    pub fn region(&self) -> &Region {
        &self.view.region
    }

    /// The region's number.
    pub fn region_id(&self) -> RegionId {
        self.view.region.id
    }

    /// What is read.
    pub fn ts(&self) -> Timestamp {
        self.ts
    }

    /// Last entry whose effects are in.
    pub fn applied(&self) -> Position {
        self.view.applied
    }

    /// Which life of the tablet this is: another one after each restored snapshot.
    pub fn generation(&self) -> u64 {
        self.view.generation
    }

    /// The newest schema that the tablet was given; none before its first row.
    pub fn table(&self) -> Option<Arc<Table>> {
        self.view.schemas.newest().cloned()
    }

    /// Rows, about: versions without a deletion.
    pub fn row_count_estimate(&self) -> u64 {
        let parts =
            self.view.parts.iter().map(|part| {
                u64::from(part.to - part.from).saturating_sub(part.deletions.len() as u64)
            });
        let deltas = self
            .view
            .deltas
            .iter()
            .map(|delta| (delta.rows() as u64).saturating_sub(delta.deletions.len() as u64));
        parts.chain(deltas).sum()
    }

    /// Bytes on disk, about: this tablet's share of its segments.
    pub fn bytes_estimate(&self) -> u64 {
        let share = |part: &PartView| {
            let record = part.segment.record();
            record.data_len * u64::from(part.to - part.from) / u64::from(record.rows.max(1))
        };
        self.view.parts.iter().map(share).sum()
    }

    /// Whether every row that can be seen was stored with a column that `last` had as the last
    /// version, or before it was added.
    pub(crate) fn still_has(&self, column: ColumnId, last: SchemaVersion) -> bool {
        let part = |part: &PartView| {
            part.segment.record().min_begin > self.ts || part.segment.still_has(column, last)
        };
        let chunk = |chunk: &Arc<Chunk>| {
            chunk.still_has(column, last) || chunk.begins.iter().all(|begin| *begin > self.ts)
        };
        self.view.parts.iter().all(part)
            && self.view.deltas.iter().flat_map(|delta| &delta.chunks).all(chunk)
    }
}
