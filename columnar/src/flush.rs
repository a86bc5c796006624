//! From delta to segment: seal under the tablet's lock, write without it, install under it.
//!
//! The manifest never says more than what the sealed position held: deletions and pending rows of
//! later entries wait for the next edit, so a replay of the log's tail meets exactly the state it
//! met the first time. Files are synced before the edit that names them.

use std::sync::Arc;

use types::Result;

use crate::deletions::{Deletion, DeletionLog};
use crate::delta::Delta;
use crate::reader::Segment;
use crate::record::{Edit, FlushEdit, PartRecord, stored};
use crate::schemas::Schemas;
use crate::segment;
use crate::shared::Shared;
use crate::tablet::{Part, Sealed, State, Tablet};

/// A delta that was written as a segment, and where its rows went.
pub(crate) struct Written {
    segment: Arc<Segment>,
    moved: Vec<u32>,
}

impl Tablet {
    /// Makes everything applied so far durable.
    pub(crate) fn persist(&self) -> Result<()> {
        let target = self.lock().applied.index;
        while let Some(sealed) = self.seal_below(target)? {
            let written = self.write_sealed(&sealed)?;
            self.install(&sealed, written)?;
        }
        Ok(())
    }

    /// Freezes the changes since the last edit, unless everything up to `target` is durable; what
    /// is frozen already comes first.
    pub(crate) fn seal_below(&self, target: u64) -> Result<Option<Arc<Sealed>>> {
        self.usable()?;
        let mut state = self.lock();
        state.sound()?;
        let enough = state.durable >= target && state.sealed.is_none();
        if enough || state.applied.index == 0 {
            return Ok(None);
        }
        state.seal().map(Some).inspect_err(|error| self.quarantine(error))
    }

    /// Writes a sealed delta, without the tablet's lock.
    pub(crate) fn write_sealed(&self, sealed: &Sealed) -> Result<Option<Written>> {
        write(&self.shared, &sealed.delta, &sealed.schemas)
    }

    /// Puts a written delta in the place of the sealed one. Nothing happens if somebody else was
    /// faster or the tablet changed its shape meanwhile.
    pub(crate) fn install(&self, sealed: &Arc<Sealed>, written: Option<Written>) -> Result<()> {
        let mut state = self.lock();
        let current = state.sealed.as_ref().is_some_and(|now| Arc::ptr_eq(now, sealed));
        if !current || self.is_gone() {
            return Ok(());
        }
        state.sound()?;
        let part = written.map(|written| written.part(&self.shared, &sealed.delta));
        let added = part.as_ref().map(|part| PartRecord {
            deletions: part.deletions.range(0..sealed.delta_deletions),
            ..part.record()
        });
        let edit = Edit::Flush(Box::new(FlushEdit {
            region: sealed.region.clone(),
            applied: stored(sealed.applied),
            schemas: sealed.schemas.to_vec(),
            added,
            deletions: sealed.deletions.clone(),
            parked: sealed.parked.clone(),
            unparked: sealed.unparked.clone(),
        }));
        self.shared.manifest.lock().append(vec![edit])?;
        for (id, deletions) in &sealed.deletions {
            if let Some(part) = state.parts.iter_mut().find(|part| part.id == *id) {
                part.durable_deletions += deletions.len();
            }
        }
        if let Some(mut part) = part {
            part.durable_deletions = sealed.delta_deletions;
            state.parts.push(part);
        }
        state.sealed = None;
        state.durable = sealed.applied.index;
        self.publish(&mut state).inspect_err(|error| self.quarantine(error))
    }
}

impl State {
    /// Freezes the changes since the last edit; the ones frozen already, if there are any.
    fn seal(&mut self) -> Result<Arc<Sealed>> {
        if let Some(sealed) = &self.sealed {
            return Ok(sealed.clone());
        }
        self.settle()?;
        self.delta.freeze()?;
        let delta = std::mem::take(&mut self.delta);
        let dirty = std::mem::take(&mut self.dirty);
        let (mut parked, mut unparked) = (Vec::new(), Vec::new());
        for key in dirty {
            match self.pending.get(&key) {
                Some(row) => parked.push((key, row.clone())),
                None => unparked.push(key),
            }
        }
        let fresh =
            |part: &Part| (part.id, part.deletions.range(part.durable_deletions..usize::MAX));
        let sealed = Arc::new(Sealed {
            region: self.region.clone(),
            applied: self.applied,
            schemas: self.schemas.clone(),
            deletions: self.parts.iter().map(fresh).filter(|(_, new)| !new.is_empty()).collect(),
            delta_deletions: delta.deletions().len(),
            delta,
            parked,
            unparked,
        });
        self.sealed = Some(sealed.clone());
        Ok(sealed)
    }

    /// Writes every delta as a part at once, under the lock, and returns all parts. The state
    /// stays as it is: the caller writes the whole tablet, then calls [`State::adopt`].
    pub(crate) fn fold(&mut self, shared: &Shared) -> Result<Vec<Part>> {
        self.settle()?;
        self.delta.freeze()?;
        let mut parts = self.parts.clone();
        let sealed = self.sealed.iter().map(|sealed| &sealed.delta);
        for delta in sealed.chain([&self.delta]) {
            parts.extend(part_of(shared, delta, &self.schemas)?);
        }
        Ok(parts)
    }

    /// Goes on with these parts, and with empty deltas.
    pub(crate) fn adopt(&mut self, parts: Vec<Part>) {
        self.delta = Delta::default();
        self.sealed = None;
        self.dirty.clear();
        self.parts = parts;
        for part in &mut self.parts {
            part.durable_deletions = part.deletions.len();
        }
    }
}

/// Writes a delta as a segment, durably; none if it has no rows.
fn write(shared: &Shared, delta: &Delta, schemas: &Schemas) -> Result<Option<Written>> {
    let (false, Some(table)) = (delta.is_empty(), schemas.newest()) else { return Ok(None) };
    let sorted = delta.sorted(table)?;
    let files = &shared.files;
    let id = shared.next_id();
    let keys = sorted.keys.iter().copied();
    let record = segment::write(files.disk.as_ref(), &files.dir, id, table, &sorted.columns, keys)?;
    Ok(Some(Written { segment: shared.segment(record), moved: sorted.moved }))
}

/// Writes a frozen delta as a part with all of its deletions, durably; none if it has no rows.
pub(crate) fn part_of(shared: &Shared, delta: &Delta, schemas: &Schemas) -> Result<Option<Part>> {
    let written = write(shared, delta, schemas)?;
    Ok(written.map(|written| written.part(shared, delta)))
}

impl Written {
    /// The part that takes the delta's place, with all of its deletions.
    fn part(self, shared: &Shared, delta: &Delta) -> Part {
        let deletions: Vec<Deletion> = delta
            .deletions()
            .to_vec()
            .into_iter()
            .filter_map(|deletion| {
                let row = *self.moved.get(deletion.row as usize)?;
                Some(Deletion { row, ..deletion })
            })
            .collect();
        Part {
            id: shared.next_id(),
            from: 0,
            to: self.segment.record().rows,
            segment: self.segment,
            durable_deletions: deletions.len(),
            deletions: DeletionLog::new(deletions),
        }
    }
}
