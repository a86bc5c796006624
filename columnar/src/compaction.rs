//! Merging segments, so that files and dead rows stay few.
//!
//! A merge reads pinned parts without the tablet's lock. Deletions that arrive meanwhile are carried
//! over to the merged segment in the same manifest edit, or a row deleted meanwhile would come
//! back. A row is dropped only if its deletion is in the manifest already and no reader may ask for it any
//! more; the floor rises with it, in the same edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use types::{Column, ColumnId, Result, SchemaVersion, Table, Timestamp};

use crate::deletions::{Deletion, DeletionLog, within};
use crate::index::KeyBlock;
use crate::reader::Segment;
use crate::record::{Edit, PartRecord};
use crate::schemas::{arrow_error, missing_array, record_batch, stored_schema, widened};
use crate::segment;
use crate::tablet::{Part, State, Tablet};

/// Parts of one size class that are merged at once, at least.
const FAN_IN: usize = 4;
/// Smallest size class, in rows; each next one is [`FAN_IN`] times as large.
const SMALLEST: u32 = 4_096;
/// Rows that a merged segment has at most.
const MAX_ROWS: u32 = 1 << 20;
/// Bytes of Parquet that go into one merge at most.
const MAX_BYTES: u64 = 64 << 20;
/// A part is rewritten alone once one in this many of its rows may go …
const DEAD_SHARE: u32 = 4;
/// … or once it uses less than one in this many rows of its segment.
const MASKED_SHARE: u32 = 2;
/// Mark of a row that was dropped.
const DROPPED: u32 = u32::MAX;

/// Parts chosen to be merged.
pub(crate) struct Merge {
    table: Arc<Table>,
    inputs: Vec<Input>,
    /// The latest end of a dropped row.
    floor: Timestamp,
}

struct Input {
    part: Part,
    /// Ascending positions of rows that may go.
    doomed: Vec<u32>,
}

/// A merged segment, and where the inputs' rows went.
pub(crate) struct Merged {
    segment: Option<Arc<Segment>>,
    /// For each input, new positions from its part's first row on.
    moved: Vec<Vec<u32>>,
}

impl Tablet {
    /// Merges some parts if that pays; whether it did.
    pub(crate) fn compact(&self, safe_point: Timestamp) -> Result<bool> {
        let Some(merge) = self.plan_merge(safe_point) else { return Ok(false) };
        let merged = self.merge(&merge).inspect_err(|error| self.quarantine(error))?;
        self.install_merge(&merge, &merged)?;
        Ok(true)
    }

    pub(crate) fn plan_merge(&self, safe_point: Timestamp) -> Option<Merge> {
        let state = self.lock();
        state.sound().ok()?;
        if state.applied.index == 0 {
            return None;
        }
        let (chosen, table) = state.choose(safe_point)?;
        let mut floor = Timestamp::ZERO;
        let inputs = chosen
            .into_iter()
            .map(|part| {
                let gone: Vec<Deletion> = doomed(&part, safe_point);
                floor = gone.iter().map(|deletion| deletion.end_ts).fold(floor, Timestamp::max);
                let mut doomed: Vec<u32> = gone.iter().map(|deletion| deletion.row).collect();
                doomed.sort_unstable();
                Input { part, doomed }
            })
            .collect();
        Some(Merge { table, inputs, floor })
    }

    /// Writes the merged segment, without any lock.
    pub(crate) fn merge(&self, merge: &Merge) -> Result<Merged> {
        let order = Order::new(&merge.inputs)?;
        if order.rows.is_empty() {
            return Ok(Merged { segment: None, moved: order.moved });
        }
        let arrays = merge
            .table
            .columns
            .iter()
            .map(|column| order.gather(&merge.inputs, column))
            .collect::<Result<Vec<_>>>()?;
        let columns = record_batch(stored_schema(&merge.table), arrays, order.rows.len())?;
        let files = &self.shared.files;
        let id = self.shared.next_id();
        let keys = order.keys();
        let record =
            segment::write(files.disk.as_ref(), &files.dir, id, &merge.table, &columns, keys)?;
        Ok(Merged { segment: Some(self.shared.segment(record)), moved: order.moved })
    }

    /// Puts a merged segment in the place of its inputs, with the deletions that came meanwhile. Nothing
    /// happens if an input has gone since: split and snapshot make new parts.
    pub(crate) fn install_merge(&self, merge: &Merge, merged: &Merged) -> Result<()> {
        // A sealed delta has captured deletions by part; it must be installed before parts change.
        while self.lock().sealed.is_some() {
            self.persist()?;
        }
        let mut state = self.lock();
        let here = |input: &Input| state.parts.iter().any(|part| part.id == input.part.id);
        let whole = state.applied.index > 0 && state.sealed.is_none() && !self.is_gone();
        if !whole || !merge.inputs.iter().all(here) {
            return Ok(());
        }
        state.sound()?;
        state.settle().inspect_err(|error| self.quarantine(error))?;
        let (durable, later) = carry(&state, merge, merged);
        let part = merged.segment.as_ref().map(|segment| Part {
            id: self.shared.next_id(),
            segment: segment.clone(),
            from: 0,
            to: segment.record().rows,
            durable_deletions: durable.len(),
            deletions: DeletionLog::new([durable.as_slice(), &later].concat()),
        });
        let removed: Vec<u64> = merge.inputs.iter().map(|input| input.part.id).collect();
        let added = part.as_ref().map(|part| PartRecord { deletions: durable, ..part.record() });
        let edit =
            Edit::Compact { region: self.id, removed: removed.clone(), added, floor: merge.floor };
        self.shared.manifest.lock().append(vec![edit])?;
        state.parts.retain(|part| !removed.contains(&part.id));
        state.parts.extend(part);
        state.floor = state.floor.max(merge.floor);
        self.publish(&mut state).inspect_err(|error| self.quarantine(error))
    }
}

impl State {
    /// The parts to merge next, if any, and the columns of what comes of them. A column that was
    /// dropped stays while somebody may read it at an older snapshot, and rows that never had it
    /// are not mixed with those that do: they would read as NULL.
    fn choose(&self, safe_point: Timestamp) -> Option<(Vec<Part>, Arc<Table>)> {
        let dropped = self.schemas.dropped();
        let read: Vec<(ColumnId, SchemaVersion)> = dropped
            .map(|(column, last)| (column.id, last))
            .filter(|(column, _)| safe_point < self.last_use(*column))
            .collect();
        let mut groups: BTreeMap<Vec<bool>, Vec<Part>> = BTreeMap::new();
        for part in &self.parts {
            let has =
                |(column, last): &(ColumnId, SchemaVersion)| part.segment.still_has(*column, *last);
            groups.entry(read.iter().map(has).collect()).or_default().push(part.clone());
        }
        groups.into_iter().find_map(|(has, parts)| {
            let chosen = choose(&parts, safe_point)?;
            let kept: Vec<ColumnId> =
                read.iter().zip(has).filter(|(_, has)| *has).map(|((id, _), _)| *id).collect();
            Some((chosen, self.schemas.layout(|column| kept.contains(&column))?))
        })
    }
}

/// The deletions of a merge's inputs at their new places: those the manifest holds, and the rest.
fn carry(state: &State, merge: &Merge, merged: &Merged) -> (Vec<Deletion>, Vec<Deletion>) {
    let (mut durable, mut later) = (Vec::new(), Vec::new());
    for (input, moved) in merge.inputs.iter().zip(&merged.moved) {
        let Some(part) = state.parts.iter().find(|part| part.id == input.part.id) else {
            continue;
        };
        for (number, deletion) in part.deletions.to_vec().into_iter().enumerate() {
            let at = deletion.row.saturating_sub(part.from) as usize;
            let Some(row) = moved.get(at).copied().filter(|row| *row != DROPPED) else { continue };
            let target = if number < part.durable_deletions { &mut durable } else { &mut later };
            target.push(Deletion { row, ..deletion });
        }
    }
    (durable, later)
}

/// Deletions of rows that may go: in the manifest, and before the safe point.
fn doomed(part: &Part, safe_point: Timestamp) -> Vec<Deletion> {
    let mut deletions = part.deletions.range(0..part.durable_deletions);
    deletions.retain(|deletion| deletion.end_ts <= safe_point);
    deletions
}

/// The parts to merge next, if any.
fn choose(parts: &[Part], safe_point: Timestamp) -> Option<Vec<Part>> {
    let bytes = |part: &Part| part.segment.record().data_len;
    let class =
        |part: &Part| (part.rows() / SMALLEST).checked_ilog(FAN_IN as u32).map_or(0, |n| n + 1);
    for size in 0..=class_of_largest() {
        let mut chosen: Vec<Part> = Vec::new();
        let (mut all_rows, mut all_bytes) = (0u32, 0u64);
        for part in parts.iter().filter(|part| class(part) == size) {
            let (rows, size) = (all_rows.saturating_add(part.rows()), all_bytes + bytes(part));
            if rows <= MAX_ROWS && size <= MAX_BYTES {
                (all_rows, all_bytes) = (rows, size);
                chosen.push(part.clone());
            }
        }
        if chosen.len() >= FAN_IN {
            return Some(chosen);
        }
    }
    let dying = |part: &&Part| {
        part.durable_deletions as u32 >= part.rows() / DEAD_SHARE
            && doomed(part, safe_point).len() as u32 * DEAD_SHARE >= part.rows().max(1)
    };
    let masked = |part: &&Part| part.rows() < part.segment.record().rows / MASKED_SHARE;
    let alone = parts.iter().find(dying).or_else(|| parts.iter().find(masked));
    alone.map(|part| vec![part.clone()])
}

fn class_of_largest() -> u32 {
    (MAX_ROWS / SMALLEST).ilog(FAN_IN as u32) + 1
}

/// The rows of a merge in key order.
struct Order {
    /// Input and position of each row.
    rows: Vec<(usize, u32)>,
    moved: Vec<Vec<u32>>,
    keys: Vec<u8>,
    ends: Vec<usize>,
    begins: Vec<Timestamp>,
}

/// Where a merge stands in one input.
struct Cursor<'a> {
    input: &'a Input,
    row: u32,
    block: Arc<KeyBlock>,
}

impl Order {
    fn new(inputs: &[Input]) -> Result<Self> {
        let unmoved = |input: &Input| vec![DROPPED; input.part.rows() as usize];
        let mut order = Order {
            rows: Vec::new(),
            moved: inputs.iter().map(unmoved).collect(),
            keys: Vec::new(),
            ends: Vec::new(),
            begins: Vec::new(),
        };
        let mut cursors = Vec::with_capacity(inputs.len());
        for (number, input) in inputs.iter().enumerate() {
            let row = input.part.from;
            let block = input.part.segment.key_block(row)?;
            let mut cursor = Cursor { input, row, block };
            if cursor.skip_doomed()? {
                cursors.push((number, cursor));
            }
        }
        while let Some(at) = least(&cursors) {
            let Some((number, cursor)) = cursors.get_mut(at) else { break };
            let Some((key, begin)) = cursor.block.row(cursor.row) else { break };
            order.keys.extend_from_slice(key);
            order.ends.push(order.keys.len());
            order.begins.push(begin);
            let from = cursor.input.part.from;
            if let Some(slot) = order
                .moved
                .get_mut(*number)
                .and_then(|moved| moved.get_mut((cursor.row - from) as usize))
            {
                *slot = order.rows.len() as u32;
            }
            order.rows.push((*number, cursor.row));
            cursor.row += 1;
            if !cursor.skip_doomed()? {
                cursors.remove(at);
            }
        }
        Ok(order)
    }

    fn keys(&self) -> impl Iterator<Item = (&[u8], Timestamp)> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let keys = starts.zip(&self.ends).map(|(from, to)| self.keys.get(from..*to));
        keys.map(Option::unwrap_or_default).zip(self.begins.iter().copied())
    }

    /// One column of the merged rows.
    fn gather(&self, inputs: &[Input], column: &Column) -> Result<ArrayRef> {
        let mut sources: Vec<ArrayRef> = Vec::new();
        // For each input, the number of its first source and the first rows of its groups.
        let mut groups: Vec<(usize, Vec<u32>)> = Vec::new();
        for input in inputs {
            let segment = &input.part.segment;
            let mut starts = Vec::new();
            let first = sources.len();
            for (number, group) in segment.groups()?.into_iter().enumerate() {
                starts.push(group.first);
                let used =
                    group.first < input.part.to && group.first + group.rows > input.part.from;
                sources.push(match segment.position(column.id) {
                    Some(at) if used => widened(segment.column(number, at, false)?, column)?,
                    Some(_) => missing_array(column, 0)?,
                    None => missing_array(column, group.rows as usize)?,
                });
            }
            groups.push((first, starts));
        }
        let place = |(input, row): &(usize, u32)| {
            let (first, starts) = groups.get(*input)?;
            let group = starts.partition_point(|start| start <= row).checked_sub(1)?;
            Some((first + group, (row - starts.get(group)?) as usize))
        };
        let places: Vec<(usize, usize)> = self.rows.iter().filter_map(place).collect();
        let sources: Vec<&dyn Array> = sources.iter().map(AsRef::as_ref).collect();
        interleave(&sources, &places).map_err(arrow_error)
    }
}

impl Cursor<'_> {
    /// Goes to the next row that stays; whether there is one.
    fn skip_doomed(&mut self) -> Result<bool> {
        let part = &self.input.part;
        while self.row < part.to && !within(&self.input.doomed, self.row..self.row + 1).is_empty() {
            self.row += 1;
        }
        if self.row >= part.to {
            return Ok(false);
        }
        if self.block.row(self.row).is_none() {
            self.block = part.segment.key_block(self.row)?;
        }
        Ok(true)
    }
}

/// The cursor with the smallest (key, begin).
fn least(cursors: &[(usize, Cursor<'_>)]) -> Option<usize> {
    let key = |at: usize| cursors.get(at).and_then(|(_, cursor)| cursor.block.row(cursor.row));
    (0..cursors.len()).min_by(|a, b| key(*a).cmp(&key(*b)))
}
