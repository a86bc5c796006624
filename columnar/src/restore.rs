//! A region's snapshot into segments: a new life of the tablet, beside readers of the old one.
//!
//! The items arrive in any order, schemas before what they describe; rows are collected, sorted by
//! key and written in segments of bounded size. The manifest says "holds nothing" first and the
//! whole tablet last, so a crash within asks for the snapshot again.

use raft::{Position, SnapshotChunks};
use txn::{Fact, SnapshotItem, WriteKind, decode_chunk};
use types::{Error, Region, Result, key};

use crate::delta::Delta;
use crate::flush;
use crate::record::{Edit, PendingRow, TabletRecord, may_be_columns, stored};
use crate::schemas::Schemas;
use crate::shared::Shared;
use crate::tablet::{Part, Tablet};

impl Tablet {
    /// Replaces the tablet by a snapshot's state.
    pub(crate) fn restore(
        &self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()> {
        if !may_be_columns(region.kind) || region.id != self.id {
            return Err(Error::Invalid(format!(
                "a snapshot of region {} cannot become the columns of region {}",
                region.id, self.id
            )));
        }
        let shared = &self.shared;
        let generation = shared.next_id();
        {
            // Published views stay readable; whatever is flushed or merged from now on is not
            // installed any more.
            let mut state = self.lock();
            let empty = TabletRecord::empty(region.clone(), generation);
            shared.manifest.lock().append(vec![Edit::Put(Box::new(empty))])?;
            state.applied = Position::default();
            state.durable = 0;
            state.sealed = None;
        }
        let mut restore = Restore {
            shared,
            region,
            schemas: Schemas::default(),
            delta: Delta::default(),
            parts: Vec::new(),
            record: TabletRecord::empty(region.clone(), generation),
        };
        while let Some(chunk) = chunks.next_chunk()? {
            for item in decode_chunk(&chunk)? {
                restore.item(item)?;
            }
        }
        restore.spill()?;
        let Restore { schemas, parts, mut record, .. } = restore;
        record.applied = stored(at);
        record.schemas = schemas.to_vec();
        record.parts = parts.iter().map(Part::record).collect();
        let mut manifest = shared.manifest.lock();
        manifest.append(vec![Edit::Put(Box::new(record.clone()))])?;
        drop(manifest);
        self.replace(record)
    }
}

struct Restore<'a> {
    shared: &'a Shared,
    region: &'a Region,
    schemas: Schemas,
    delta: Delta,
    parts: Vec<Part>,
    record: TabletRecord,
}

impl Restore<'_> {
    fn item(&mut self, item: SnapshotItem) -> Result<()> {
        match item {
            SnapshotItem::Schema(table) => {
                self.schemas.add(*table);
            }
            SnapshotItem::Version { key, commit_ts, kind, row, ended_by, .. } => {
                self.check(&key)?;
                let (WriteKind::Put, Some(bytes), true) = (kind, row, key::is_record(&key)) else {
                    return Ok(());
                };
                let values = self.schemas.decode(&bytes)?;
                let Some(table) = self.schemas.newest() else {
                    return Err(self.corrupt("a row comes before any schema"));
                };
                let position = self.delta.rows() as u32;
                self.delta.push(table, &key, commit_ts, &values, bytes.len())?;
                if let Some(end) = ended_by {
                    self.delta.delete(position, end);
                }
                let config = &self.shared.config;
                if self.delta.rows() >= config.delta_rows
                    || self.delta.bytes() >= config.delta_bytes
                {
                    self.spill()?;
                }
            }
            SnapshotItem::Lock(fact) | SnapshotItem::AsyncLock(fact, _) => {
                let Fact::Lock { key, start_ts, primary, kind, row, replaces, ttl, .. } = fact
                else {
                    return Err(self.corrupt("a lock is another fact"));
                };
                self.check(&key)?;
                if key::is_record(&key) {
                    let row = PendingRow { start_ts, primary, kind, row, replaces, ttl };
                    self.record.pending.insert(key, row);
                }
            }
            // The sender has removed versions below its floor: nobody may ask this replica for them.
            SnapshotItem::Collected(floors) => {
                self.record.floor = self.record.floor.max(floors.read);
            }
            // A learner decides nothing, so it need not know who lost.
            SnapshotItem::Fate { .. } => {}
        }
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.delta.freeze()?;
        let delta = std::mem::take(&mut self.delta);
        self.parts.extend(flush::part_of(self.shared, &delta, &self.schemas)?);
        Ok(())
    }

    fn check(&self, key: &[u8]) -> Result<()> {
        if self.region.contains(key) { Ok(()) } else { Err(self.corrupt("a key is outside of it")) }
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt(format!("snapshot of region {}: {what}", self.region.id))
    }
}
