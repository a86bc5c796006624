//! Scans: record batches of a pinned snapshot, by segment row group and by delta chunk.
//!
//! There is no merge and no sort: each row that is seen is read once, from where it lies. Columns
//! come from the shared cache of decoded row groups; few rows of an uncached column are decoded
//! alone, from their pages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::FilterBuilder;
use arrow::datatypes::{Schema, SchemaRef};
use types::columns::arrow_field;
use types::{Column, Result, Timestamp};

use crate::deletions::within;
use crate::delta::{Chunk, DeltaView};
use crate::predicate::{Predicate, Prepared};
use crate::schemas::{Schemas, arrow_error, missing_array, record_batch, widened};
use crate::segment::Group;
use crate::snapshot::TabletSnapshot;
use crate::tablet::Tablet;
use crate::view::PartView;
use crate::visibility::Selection;

/// An uncached column is decoded alone, and not kept, if fewer than one in this many rows of the
/// row group are wanted.
const SPARSE: usize = 16;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns, as the reader's schema has them, in the order of the batches. None is legal:
    /// batches then carry row counts only.
    pub columns: Vec<Column>,
    /// What may be left out; see [`Predicate`].
    pub predicate: Predicate,
    /// Rows of a batch at most; zero means [`DEFAULT_BATCH_ROWS`].
    pub batch_rows: usize,
}

/// Rows of a batch unless the reader says otherwise.
pub const DEFAULT_BATCH_ROWS: usize = 8_192;

/// What a scan has done so far.
#[derive(Debug, Default)]
pub struct ScanStats {
    /// Rows returned from deltas.
    pub delta_rows: AtomicU64,
    /// Rows returned from segments.
    pub segment_rows: AtomicU64,
    /// Row groups read.
    pub groups_read: AtomicU64,
    /// Row groups left out by begins, deletions, zone maps or Bloom filters.
    pub groups_pruned: AtomicU64,
    /// Rows of other row groups left out by the page index.
    pub rows_pruned: AtomicU64,
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// A prepared scan of one snapshot.
pub struct TabletScan {
    plan: Arc<Plan>,
    work: Vec<Work>,
}

/// What the partitions of a scan share.
struct Plan {
    tablet: Arc<Tablet>,
    generation: u64,
    ts: Timestamp,
    schemas: Arc<Schemas>,
    columns: Vec<Column>,
    schema: SchemaRef,
    predicate: Vec<Prepared>,
    batch_rows: usize,
    stats: Arc<ScanStats>,
}

/// A part of a scan that is read in one go.
#[derive(Clone)]
enum Work {
    Group { source: Arc<PartSource>, number: usize, group: Group },
    Chunk { source: Arc<DeltaSource>, chunk: Arc<Chunk> },
}

struct PartSource {
    part: PartView,
    dead: OnceLock<Vec<u32>>,
}

struct DeltaSource {
    delta: DeltaView,
    dead: OnceLock<Vec<u32>>,
}

impl TabletSnapshot {
    /// Prepares a scan. A column that was dropped or widened since the reader planned is read as it
    /// was, as long as its values are there.
    ///
    /// # Errors
    ///
    /// `SchemaChanged` if they are not.
    pub fn scan(&self, request: ScanRequest) -> Result<TabletScan> {
        TabletScan::new(self, request)
    }
}

impl TabletScan {
    pub(crate) fn new(snapshot: &TabletSnapshot, request: ScanRequest) -> Result<Self> {
        for column in request.columns.iter().chain(request.predicate.all.iter().map(|c| &c.column))
        {
            let schemas = &snapshot.view.schemas;
            if let Some(last) = schemas.dropped_after(column)?
                && !snapshot.still_has(column.id, last)
            {
                return Err(schemas.changed(column));
            }
        }
        let fields: Vec<_> = request.columns.iter().map(arrow_field).collect();
        let plan = Plan {
            tablet: snapshot.tablet.clone(),
            generation: snapshot.view.generation,
            ts: snapshot.ts,
            schemas: snapshot.view.schemas.clone(),
            schema: Arc::new(Schema::new(fields)),
            columns: request.columns,
            predicate: request.predicate.prepare(),
            batch_rows: match request.batch_rows {
                0 => DEFAULT_BATCH_ROWS,
                rows => rows,
            },
            stats: Arc::default(),
        };
        let work = plan.work(snapshot).inspect_err(|error| plan.damaged(error))?;
        Ok(TabletScan { plan: Arc::new(plan), work })
    }

    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema.clone()
    }

    /// What the scan, in all its partitions, has done so far.
    pub fn stats(&self) -> Arc<ScanStats> {
        self.plan.stats.clone()
    }

    /// The scan in at most `n` partitions of about equal size that can be read at the same time;
    /// at least one, possibly empty.
    pub fn partitions(self, n: usize) -> Vec<PartitionScan> {
        let mut work = self.work;
        work.sort_by_key(|work| std::cmp::Reverse(work.rows()));
        let n = n.clamp(1, work.len().max(1));
        let mut lots: Vec<(usize, VecDeque<Work>)> = vec![(0, VecDeque::new()); n];
        for item in work {
            if let Some(lot) = lots.iter_mut().min_by_key(|lot| lot.0) {
                lot.0 += item.rows();
                lot.1.push_back(item);
            }
        }
        let scan =
            |(_, work)| PartitionScan { plan: self.plan.clone(), work, ready: VecDeque::new() };
        lots.into_iter().map(scan).collect()
    }
}

impl IntoIterator for TabletScan {
    type Item = Result<RecordBatch>;
    type IntoIter = PartitionScan;

    fn into_iter(self) -> PartitionScan {
        PartitionScan { plan: self.plan, work: self.work.into(), ready: VecDeque::new() }
    }
}

/// One partition of a scan: an iterator that reads from disk as it goes. It ends after an error.
pub struct PartitionScan {
    plan: Arc<Plan>,
    work: VecDeque<Work>,
    ready: VecDeque<RecordBatch>,
}

impl PartitionScan {
    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.plan.schema.clone()
    }
}

impl Iterator for PartitionScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            let work = self.work.pop_front()?;
            match self.plan.read(&work) {
                Ok(batches) => self.ready = batches,
                Err(error) => {
                    self.work.clear();
                    self.plan.damaged(&error);
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Work {
    fn rows(&self) -> usize {
        match self {
            Work::Group { group, .. } => group.rows as usize,
            Work::Chunk { chunk, .. } => chunk.rows(),
        }
    }
}

impl Plan {
    /// What must be read: row groups and chunks that hold any row begun by the timestamp.
    fn work(&self, snapshot: &TabletSnapshot) -> Result<Vec<Work>> {
        let mut work = Vec::new();
        for part in &snapshot.view.parts {
            let source = Arc::new(PartSource { part: part.clone(), dead: OnceLock::new() });
            if part.segment.record().min_begin > self.ts {
                add(&self.stats.groups_pruned, 1);
                continue;
            }
            for (number, group) in part.segment.groups()?.into_iter().enumerate() {
                if group.first + group.rows <= part.from || group.first >= part.to {
                    continue;
                }
                if group.min_begin > self.ts {
                    add(&self.stats.groups_pruned, 1);
                    continue;
                }
                work.push(Work::Group { source: source.clone(), number, group });
            }
        }
        for delta in &snapshot.view.deltas {
            let source = Arc::new(DeltaSource { delta: delta.clone(), dead: OnceLock::new() });
            for chunk in &delta.chunks {
                work.push(Work::Chunk { source: source.clone(), chunk: chunk.clone() });
            }
        }
        Ok(work)
    }

    fn read(&self, work: &Work) -> Result<VecDeque<RecordBatch>> {
        match work {
            Work::Group { source, number, group } => self.read_group(source, *number, group),
            Work::Chunk { source, chunk } => self.read_chunk(source, chunk),
        }
    }

    fn read_group(
        &self,
        source: &PartSource,
        number: usize,
        group: &Group,
    ) -> Result<VecDeque<RecordBatch>> {
        let PartView { segment, from, to, deletions } = &source.part;
        let opened = segment.open()?;
        let rows = group.rows as usize;
        for comparison in &self.predicate {
            if comparison.excludes(segment, &opened, number)? {
                add(&self.stats.groups_pruned, 1);
                return Ok(VecDeque::new());
            }
        }
        let dead = source.dead.get_or_init(|| deletions.dead_at(self.ts));
        let dead = within(dead, group.first..group.first + group.rows);
        let begins = match group.max_begin > self.ts {
            true => Some(segment.begins(number)?),
            false => None,
        };
        let begins = begins.as_ref().map(|begins| (begins.values().as_ref(), self.ts));
        let mine = from.saturating_sub(group.first) as usize
            ..(to.saturating_sub(group.first) as usize).min(rows);
        let mut selection = Selection::visible(mine, rows, group.first, dead, begins);
        let before = selection.count();
        for comparison in &self.predicate {
            let excluded = comparison.excluded_rows(segment, &opened, number)?;
            selection = selection.without(&excluded, rows);
        }
        add(&self.stats.rows_pruned, before - selection.count());
        let column = |column: &Column, selection: &Selection| -> Result<ArrayRef> {
            let Some(at) = segment.position(column.id) else {
                return missing_array(column, selection.count());
            };
            if segment.cached(number, at).is_none() && selection.count() * SPARSE < rows {
                let array = segment.column_at(number, at, selection.to_parquet(rows))?;
                return self.as_read(array, column);
            }
            self.as_read(select(&segment.column(number, at, true)?, selection)?, column)
        };
        let batches = self.assemble(selection, rows, column)?;
        let read = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let counter = if read == 0 { &self.stats.groups_pruned } else { &self.stats.groups_read };
        add(counter, 1);
        add(&self.stats.segment_rows, read);
        Ok(batches)
    }

    fn read_chunk(&self, source: &DeltaSource, chunk: &Chunk) -> Result<VecDeque<RecordBatch>> {
        let rows = chunk.rows();
        let dead = source.dead.get_or_init(|| source.delta.deletions.dead_at(self.ts));
        let dead = within(dead, chunk.first..chunk.first + rows as u32);
        let begins: Option<Vec<u64>> =
            (chunk.max_begin > self.ts).then(|| chunk.begins.iter().map(|begin| begin.0).collect());
        let begins = begins.as_ref().map(|begins| (begins.as_slice(), self.ts));
        let selection = Selection::visible(0..rows, rows, chunk.first, dead, begins);
        let column = |column: &Column, selection: &Selection| -> Result<ArrayRef> {
            let at = chunk.table.position(column.id);
            match at.and_then(|at| chunk.columns.columns().get(at)) {
                Some(array) => self.as_read(select(array, selection)?, column),
                None => missing_array(column, selection.count()),
            }
        };
        let batches = self.assemble(selection, rows, column)?;
        add(&self.stats.delta_rows, batches.iter().map(RecordBatch::num_rows).sum());
        Ok(batches)
    }

    fn damaged(&self, error: &types::Error) {
        self.tablet.quarantine_generation(self.generation, error);
    }

    /// Values in the reader's type. Where the column was widened since, those of the reader's
    /// snapshot still fit; a reader that sees others has planned with too old a schema.
    fn as_read(&self, array: ArrayRef, column: &Column) -> Result<ArrayRef> {
        let array = widened(array, column).map_err(|_| self.schemas.changed(column))?;
        // The column may hold NULL since: nothing is damaged.
        if !column.nullable && array.null_count() > 0 {
            return Err(self.schemas.changed(column));
        }
        Ok(array)
    }

    /// Batches of the rows that are selected and that the predicate does not rule out. Columns
    /// are asked for only once it is known which rows are wanted.
    fn assemble(
        &self,
        mut selection: Selection,
        rows: usize,
        column: impl Fn(&Column, &Selection) -> Result<ArrayRef>,
    ) -> Result<VecDeque<RecordBatch>> {
        for comparison in &self.predicate {
            if selection.count() == 0 {
                break;
            }
            let keep = comparison.evaluate(&column(&comparison.column, &selection)?)?;
            selection = selection.narrow(&keep, rows);
        }
        let count = selection.count();
        if count == 0 {
            return Ok(VecDeque::new());
        }
        let arrays = self
            .columns
            .iter()
            .map(|wanted| column(wanted, &selection))
            .collect::<Result<Vec<_>>>()?;
        let whole = record_batch(self.schema.clone(), arrays, count)?;
        let starts = (0..count).step_by(self.batch_rows);
        Ok(starts.map(|at| whole.slice(at, self.batch_rows.min(count - at))).collect())
    }
}

/// The selected rows of an array.
fn select(array: &ArrayRef, selection: &Selection) -> Result<ArrayRef> {
    match selection {
        Selection::Range(range) => Ok(array.slice(range.start, range.len())),
        Selection::Mask(mask) => {
            let mask = arrow::array::BooleanArray::new(mask.clone(), None);
            FilterBuilder::new(&mask).build().filter(array).map_err(arrow_error)
        }
    }
}
