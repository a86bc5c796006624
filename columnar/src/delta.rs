//! The newest rows of a tablet, in memory: Arrow chunks in the order of the log.
//!
//! Rows are only appended. Positions count from the delta's beginning and never change; what is
//! frozen into a chunk is shared with readers and never touched again.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use types::columns::ColumnsBuilder;
use types::{ColumnId, Error, Result, SchemaVersion, Table, Timestamp, Value};

use crate::deletions::{Deletion, DeletionLog, PinnedDeletions};
use crate::schemas::{arrow_error, record_batch, relayout, stored_schema};

/// Rows from which a chunk is not merged with its neighbour any more.
pub const CHUNK_ROWS: usize = 8_192;
/// Memory that a row costs beside its encoded bytes and key: index entry, validity, slack.
const ROW_OVERHEAD: usize = 96;

/// Consecutive frozen rows of a delta.
#[derive(Debug)]
pub struct Chunk {
    /// Position of the first row.
    pub first: u32,
    /// Schema version whose columns these are, in declared order.
    pub table: Arc<Table>,
    /// The columns.
    pub columns: RecordBatch,
    /// When each row became visible.
    pub begins: Vec<Timestamp>,
    /// The latest of them.
    pub max_begin: Timestamp,
}

impl Chunk {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.begins.len()
    }

    /// Whether its rows were stored with a column that `last` had as the last version, or before
    /// it was added: then they read as its default.
    pub fn still_has(&self, column: ColumnId, last: SchemaVersion) -> bool {
        self.table.version <= last || self.table.position(column).is_some()
    }
}

/// What a reader sees of a delta.
#[derive(Clone, Debug)]
pub struct DeltaView {
    /// Frozen rows.
    pub chunks: Vec<Arc<Chunk>>,
    /// Deletions among them.
    pub deletions: PinnedDeletions,
}

impl DeltaView {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows()).sum()
    }
}

/// Rows that are not chunked yet.
struct Open {
    table: Arc<Table>,
    builder: ColumnsBuilder,
    begins: Vec<Timestamp>,
}

/// A growing delta.
#[derive(Default)]
pub struct Delta {
    open: Option<Open>,
    chunks: Vec<Arc<Chunk>>,
    rows: u32,
    bytes: usize,
    /// Versions by key: when each became visible, and where it is.
    index: BTreeMap<Box<[u8]>, Vec<(Timestamp, u32)>>,
    deletions: Arc<DeletionLog>,
}

/// A delta's rows in the order of (key, begin), ready to be a segment.
pub struct Sorted<'a> {
    /// Columns in the stored layout of the table.
    pub columns: RecordBatch,
    /// Key and begin of each row, in the same order.
    pub keys: Vec<(&'a [u8], Timestamp)>,
    /// New position of each row, by its position in the delta.
    pub moved: Vec<u32>,
}

impl Delta {
    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Memory held, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it holds no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The list of deletions among its rows.
    pub fn deletions(&self) -> &Arc<DeletionLog> {
        &self.deletions
    }

    /// Appends a version; `row` is in the layout of `table`, `size` its encoded length.
    pub fn push(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        begin: Timestamp,
        row: &[Value],
        size: usize,
    ) -> Result<()> {
        if self.open.as_ref().is_some_and(|open| !Arc::ptr_eq(&open.table, table)) {
            self.freeze()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(Open::new(table)?),
        };
        open.builder.push(row)?;
        open.begins.push(begin);
        match self.index.get_mut(key) {
            Some(versions) => versions.push((begin, self.rows)),
            None => {
                self.index.insert(key.into(), vec![(begin, self.rows)]);
            }
        }
        self.rows = self
            .rows
            .checked_add(1)
            .ok_or_else(|| Error::Unavailable("delta is full: it was never flushed".into()))?;
        self.bytes += size * 2 + key.len() + ROW_OVERHEAD;
        Ok(())
    }

    /// Position of the version of a key that became visible at `begin`.
    pub fn find(&self, key: &[u8], begin: Timestamp) -> Option<u32> {
        self.index.get(key)?.iter().find(|(ts, _)| *ts == begin).map(|(_, row)| *row)
    }

    /// Marks a row as deleted from `end_ts` on.
    pub fn delete(&self, row: u32, end_ts: Timestamp) {
        self.deletions.push(Deletion { row, end_ts });
    }

    /// Freezes what is open, so that readers can share it. Small neighbours are merged such that
    /// each row is copied a logarithmic number of times.
    pub fn freeze(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let columns = open.builder.finish()?;
        let columns = record_batch(
            stored_schema(&open.table),
            columns.columns().to_vec(),
            open.begins.len(),
        )?;
        let first = self.rows.saturating_sub(open.begins.len() as u32);
        self.chunks.push(Arc::new(Chunk::new(first, open.table, columns, open.begins)));
        while let [.., before, last] = self.chunks.as_slice() {
            let together = before.rows() + last.rows();
            if before.rows() > last.rows()
                || together > CHUNK_ROWS
                || !Arc::ptr_eq(&before.table, &last.table)
            {
                break;
            }
            let merged = Chunk::merge(before, last)?;
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push(Arc::new(merged));
        }
        Ok(())
    }

    /// What readers may see from now on. Rows not frozen yet are not part of it.
    pub fn view(&self) -> DeltaView {
        DeltaView { chunks: self.chunks.clone(), deletions: self.deletions.pin() }
    }

    /// The frozen rows in key order, in the stored layout of `table`.
    pub fn sorted(&self, table: &Table) -> Result<Sorted<'_>> {
        let batches = self
            .chunks
            .iter()
            .map(|chunk| relayout(&chunk.columns, &chunk.table, table))
            .collect::<Result<Vec<_>>>()?;
        let columns = concat_batches(&stored_schema(table), &batches).map_err(arrow_error)?;
        let mut keys = Vec::with_capacity(self.rows());
        let mut order = Vec::with_capacity(self.rows());
        for (key, versions) in &self.index {
            let mut versions = versions.clone();
            versions.sort_unstable();
            for (begin, row) in versions {
                keys.push((key.as_ref(), begin));
                order.push(row);
            }
        }
        let mut moved = vec![0; order.len()];
        for (to, from) in order.iter().enumerate() {
            if let Some(slot) = moved.get_mut(*from as usize) {
                *slot = to as u32;
            }
        }
        let columns =
            take_record_batch(&columns, &UInt32Array::from(order)).map_err(arrow_error)?;
        Ok(Sorted { columns, keys, moved })
    }
}

impl Open {
    fn new(table: &Arc<Table>) -> Result<Self> {
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let builder = ColumnsBuilder::new(table, &all)?;
        Ok(Open { table: table.clone(), builder, begins: Vec::new() })
    }
}

impl Chunk {
    fn new(first: u32, table: Arc<Table>, columns: RecordBatch, begins: Vec<Timestamp>) -> Self {
        let max_begin = begins.iter().copied().max().unwrap_or_default();
        Chunk { first, table, columns, begins, max_begin }
    }

    fn merge(before: &Chunk, after: &Chunk) -> Result<Chunk> {
        let columns = concat_batches(&before.columns.schema(), [&before.columns, &after.columns])
            .map_err(arrow_error)?;
        let begins = [before.begins.as_slice(), after.begins.as_slice()].concat();
        Ok(Chunk::new(before.first, before.table.clone(), columns, begins))
    }
}
