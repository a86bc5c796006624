//! What the manifest says: tablets, their parts of segments, deletions and pending rows, and the
//! edits that change them.
//!
//! Plain data. Applying an edit to a state that it does not fit is corruption.

use std::collections::BTreeMap;

use raft::Position;
use serde::{Deserialize, Serialize};
use txn::WriteKind;
use types::{
    ColumnId, Error, Region, RegionId, RegionKind, Result, SchemaVersion, Table, Timestamp,
};

use crate::deletions::Deletion;

/// Whether regions of a kind may have columns. The half of a table's region that was cut off without records has learners until
/// placement takes them away.
pub(crate) fn may_be_columns(kind: RegionKind) -> bool {
    matches!(kind, RegionKind::Records(_) | RegionKind::Table(_))
}

/// A segment's or part's number; never reused within a store.
pub type FileId = u64;

/// One immutable segment: a Parquet file and its key index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRecord {
    /// Number, from which the file names follow.
    pub id: FileId,
    /// Number of rows.
    pub rows: u32,
    /// Schema version of its columns.
    pub schema: SchemaVersion,
    /// Columns in file order; `_begin_ts` follows them.
    pub columns: Vec<ColumnId>,
    /// Earliest begin of a row.
    pub min_begin: Timestamp,
    /// Latest begin of a row.
    pub max_begin: Timestamp,
    /// Smallest key.
    pub first_key: Vec<u8>,
    /// Largest key.
    pub last_key: Vec<u8>,
    /// Length of the Parquet file.
    pub data_len: u64,
    /// Length of the key index file.
    pub keys_len: u64,
    /// xxh3 of the key index file's footer, which holds the checksums of both files' blocks.
    pub footer_sum: u64,
}

/// The rows of a segment that belong to one tablet, and their deletions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartRecord {
    /// Number.
    pub id: FileId,
    /// The segment; several tablets may share it.
    pub segment: SegmentRecord,
    /// First position that belongs to the tablet.
    pub from: u32,
    /// First position behind.
    pub to: u32,
    /// Deletions.
    pub deletions: Vec<Deletion>,
}

/// A row that waits for its transaction's fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRow {
    /// Identity of the transaction.
    pub start_ts: Timestamp,
    /// Key whose fate decides.
    pub primary: Vec<u8>,
    /// What commit will do.
    pub kind: WriteKind,
    /// The encoded row, for `Put`.
    pub row: Option<Vec<u8>>,
    /// Begin of the version that commit will end.
    pub replaces: Option<Timestamp>,
    /// Milliseconds after `start_ts` from which others may roll back.
    pub ttl: u64,
}

/// One tablet as of its applied position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TabletRecord {
    /// Its region.
    pub region: Region,
    /// Raised whenever the tablet begins anew from a snapshot.
    pub generation: u64,
    /// Index and term of the last entry whose effects are here.
    pub applied: (u64, u64),
    /// Schema versions, oldest first.
    pub schemas: Vec<Table>,
    /// Oldest timestamp that can be read.
    pub floor: Timestamp,
    /// Parts.
    pub parts: Vec<PartRecord>,
    /// Pending rows by key.
    pub pending: BTreeMap<Vec<u8>, PendingRow>,
}

impl TabletRecord {
    /// A tablet that holds nothing and waits for a snapshot.
    pub fn empty(region: Region, generation: u64) -> Self {
        TabletRecord {
            region,
            generation,
            applied: (0, 0),
            schemas: Vec::new(),
            floor: Timestamp::ZERO,
            parts: Vec::new(),
            pending: BTreeMap::new(),
        }
    }
}

/// What a flush adds to a tablet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlushEdit {
    /// The region as of `applied`.
    pub region: Region,
    /// New applied position.
    pub applied: (u64, u64),
    /// All schema versions.
    pub schemas: Vec<Table>,
    /// The former delta, unless it was empty.
    pub added: Option<PartRecord>,
    /// Deletions in older parts, to append.
    pub deletions: Vec<(FileId, Vec<Deletion>)>,
    /// Pending rows that came or changed.
    pub parked: Vec<(Vec<u8>, PendingRow)>,
    /// Keys whose pending rows are gone.
    pub unparked: Vec<Vec<u8>>,
}

/// One change of the store's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Edit {
    /// A tablet, as a whole.
    Put(Box<TabletRecord>),
    /// A tablet's state moved to a later applied position.
    Flush(Box<FlushEdit>),
    /// Parts were merged; the applied position stays.
    Compact {
        /// Tablet.
        region: RegionId,
        /// Parts that are replaced.
        removed: Vec<FileId>,
        /// What replaces them, unless no row was left.
        added: Option<PartRecord>,
        /// New floor, never lower than before.
        floor: Timestamp,
    },
    /// A tablet is gone.
    Drop(RegionId),
}

/// Every tablet of the store, as the manifest says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManifestState {
    /// Tablets by region.
    pub tablets: BTreeMap<RegionId, TabletRecord>,
}

impl ManifestState {
    /// Applies an edit.
    pub fn apply(&mut self, edit: Edit) -> Result<()> {
        match edit {
            Edit::Put(tablet) => {
                self.tablets.insert(tablet.region.id, *tablet);
            }
            Edit::Flush(flush) => {
                let tablet = self.tablet(flush.region.id)?;
                tablet.region = flush.region;
                tablet.applied = flush.applied;
                tablet.schemas = flush.schemas;
                for (id, deletions) in flush.deletions {
                    let part = tablet.parts.iter_mut().find(|part| part.id == id);
                    part.ok_or_else(|| misfit("deletions in a part that is not there"))?
                        .deletions
                        .extend(deletions);
                }
                tablet.parts.extend(flush.added);
                for key in flush.unparked {
                    tablet.pending.remove(&key);
                }
                tablet.pending.extend(flush.parked);
            }
            Edit::Compact { region, removed, added, floor } => {
                let tablet = self.tablet(region)?;
                let before = tablet.parts.len();
                tablet.parts.retain(|part| !removed.contains(&part.id));
                if before - tablet.parts.len() != removed.len() {
                    return Err(misfit("a merge of a part that is not there"));
                }
                tablet.parts.extend(added);
                tablet.floor = tablet.floor.max(floor);
            }
            Edit::Drop(region) => {
                self.tablets.remove(&region);
            }
        }
        Ok(())
    }

    /// Fails if an edit does not fit, before anything of it is written or applied.
    pub fn check(&self, edits: &[Edit]) -> Result<()> {
        let known = |region: &RegionId| {
            self.tablets.get(region).ok_or_else(|| misfit("a tablet that is not there"))
        };
        let has = |tablet: &TabletRecord, id: &FileId| {
            let found = tablet.parts.iter().any(|part| part.id == *id);
            if found { Ok(()) } else { Err(misfit("a part that is not there")) }
        };
        edits.iter().try_for_each(|edit| match edit {
            Edit::Put(_) | Edit::Drop(_) => Ok(()),
            Edit::Flush(flush) => {
                let tablet = known(&flush.region.id)?;
                flush.deletions.iter().try_for_each(|(id, _)| has(tablet, id))
            }
            Edit::Compact { region, removed, .. } => {
                let tablet = known(region)?;
                removed.iter().try_for_each(|id| has(tablet, id))
            }
        })
    }

    fn tablet(&mut self, region: RegionId) -> Result<&mut TabletRecord> {
        self.tablets.get_mut(&region).ok_or_else(|| misfit("a tablet that is not there"))
    }
}

/// An applied position as the manifest keeps it.
pub fn stored(at: Position) -> (u64, u64) {
    (at.index, at.term)
}

/// An applied position from the manifest.
pub fn position((index, term): (u64, u64)) -> Position {
    Position { index, term }
}

fn misfit(what: &str) -> Error {
    Error::Corrupt(format!("the columnar manifest names {what}"))
}
