//! The schema versions a tablet was given by its log, and what rows and columns mean under them.
//!
//! Decoding is a look-up by the version in a row's header: it never guesses and asks nobody.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use types::columns::{ColumnBuilder, arrow_field, arrow_type};
use types::{Column, ColumnId, ColumnType, Error, Result, Row, SchemaVersion, Table, Value, row};

/// Schema versions by number.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    versions: BTreeMap<SchemaVersion, Arc<Table>>,
}

impl Schemas {
    /// The given versions.
    pub fn new(tables: impl IntoIterator<Item = Table>) -> Self {
        let versions = tables.into_iter().map(|table| (table.version, Arc::new(table))).collect();
        Schemas { versions }
    }

    /// Adds a version; whether it is the newest now. A version that is there stays as it is.
    pub fn add(&mut self, table: Table) -> bool {
        let version = table.version;
        let newest = self.versions.keys().next_back().is_none_or(|last| *last < version);
        self.versions.entry(version).or_insert_with(|| Arc::new(table));
        newest
    }

    /// The newest version.
    pub fn newest(&self) -> Option<&Arc<Table>> {
        self.versions.values().next_back()
    }

    /// All versions, oldest first.
    pub fn to_vec(&self) -> Vec<Table> {
        self.versions.values().map(|table| table.as_ref().clone()).collect()
    }

    /// How a reader's column stands to the newest version: none if that has it, or if the reader
    /// knows more than the log has delivered; the last version that had it if it was dropped since.
    ///
    /// # Errors
    ///
    /// `SchemaChanged`: the reader's plan is older than what it reads, and its column is not to be
    /// had from what is stored now.
    pub fn dropped_after(&self, column: &Column) -> Result<Option<SchemaVersion>> {
        let Some(newest) = self.newest() else { return Ok(None) };
        let known = |table: &&Arc<Table>| table.column(column.id).is_some();
        let last = self.versions.values().rev().find(known);
        let Some(last) = last else {
            let never = newest.dropped.iter().all(|dropped| dropped.id != column.id);
            return if never { Ok(None) } else { Err(self.changed(column)) };
        };
        let stored = last.column(column.id).map(|stored| stored.ty);
        if !stored.is_some_and(|stored| is_convertible(stored, column.ty)) {
            return Err(self.changed(column));
        }
        Ok((last.version < newest.version).then_some(last.version))
    }

    /// The error of a reader whose plan is too old.
    pub fn changed(&self, column: &Column) -> Error {
        let readable = |table: &&Arc<Table>| {
            table.column(column.id).is_some_and(|stored| {
                let holds = arrow_type(stored.ty) == arrow_type(column.ty);
                (holds || column.ty.holds_all(stored.ty)) && (column.nullable || !stored.nullable)
            })
        };
        let (table, known) = self.newest().map_or((0, 0), |newest| (newest.id, newest.version));
        let sent = match self.versions.values().rev().find(readable) {
            Some(last) => last.version,
            None => known.saturating_sub(1),
        };
        Error::SchemaChanged { table, sent, known: Some(known) }
    }

    /// Columns that the newest version does not have any more, and the last version that had each.
    pub fn dropped(&self) -> impl Iterator<Item = (&Column, SchemaVersion)> {
        let last = |column: &Column| {
            let mut versions = self.versions.values().rev();
            versions.find(|table| table.column(column.id).is_some()).map(|table| table.version)
        };
        let all = self.newest().map_or(&[][..], |newest| newest.dropped.as_slice()).iter();
        all.filter_map(move |column| Some((column, last(column)?)))
    }

    /// The newest version, with those columns at its end that were dropped and are to be `kept`.
    pub fn layout(&self, kept: impl Fn(ColumnId) -> bool) -> Option<Arc<Table>> {
        let newest = self.newest()?;
        let dropped: Vec<Column> =
            newest.dropped.iter().filter(|column| kept(column.id)).cloned().collect();
        if dropped.is_empty() {
            return Some(newest.clone());
        }
        let mut table = Table::clone(newest);
        table.columns.extend(dropped);
        Some(Arc::new(table))
    }

    /// A stored row in the layout of the newest version: columns added since hold their default
    /// of then, dropped ones are gone.
    pub fn decode(&self, bytes: &[u8]) -> Result<Row> {
        let version = row::version(bytes)?;
        let (Some(written), Some(newest)) = (self.versions.get(&version), self.newest()) else {
            return Err(Error::Corrupt(format!(
                "a row names schema version {version}, which the log has not given before it"
            )));
        };
        let mut values = row::decode(written, bytes)?;
        if Arc::ptr_eq(written, newest) {
            return Ok(values);
        }
        let mut of = |column: &Column| match written.position(column.id) {
            Some(at) => {
                values.get_mut(at).map_or(Value::Null, |v| std::mem::replace(v, Value::Null))
            }
            None => column.missing(),
        };
        Ok(newest.columns.iter().map(&mut of).collect())
    }
}

/// An array that repeats what rows without the column read as.
pub fn missing_array(column: &Column, rows: usize) -> Result<ArrayRef> {
    let value = column.missing();
    let mut builder = ColumnBuilder::new(column.ty);
    for _ in 0..rows {
        builder.push(&value)?;
    }
    Ok(builder.finish())
}

/// Whether values of a stored type can be those of a reader's: it is as wide, or wider, or was
/// narrower when the reader's snapshot was written.
fn is_convertible(stored: ColumnType, read: ColumnType) -> bool {
    arrow_type(stored) == arrow_type(read) || read.holds_all(stored) || stored.holds_all(read)
}

/// Values of a column as it is now; those that were stored when it was narrower are widened.
pub fn widened(array: ArrayRef, column: &Column) -> Result<ArrayRef> {
    let wanted = arrow_type(column.ty);
    if *array.data_type() == wanted {
        return Ok(array);
    }
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, &wanted, &exactly).map_err(arrow_error)
}

/// The Arrow schema in which a table is stored: as declared, but every column may be NULL, so
/// that a later loosening of NOT NULL does not part old files from new ones.
pub fn stored_schema(table: &Table) -> SchemaRef {
    let field = |column: &Column| -> Field { arrow_field(column).with_nullable(true) };
    Arc::new(Schema::new(table.columns.iter().map(field).collect::<Vec<_>>()))
}

/// A batch of one version's columns in the stored layout of another version.
pub fn relayout(batch: &RecordBatch, from: &Table, to: &Table) -> Result<RecordBatch> {
    let arrays = to
        .columns
        .iter()
        .map(|column| match from.position(column.id).and_then(|at| batch.columns().get(at)) {
            Some(array) => widened(array.clone(), column),
            None => missing_array(column, batch.num_rows()),
        })
        .collect::<Result<Vec<_>>>()?;
    record_batch(stored_schema(to), arrays, batch.num_rows())
}

/// A batch that may have no columns.
pub fn record_batch(schema: SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|error| Error::Corrupt(format!("columns do not fit their schema: {error}")))
}

/// An Arrow kernel's failure, which only damaged data or a wrong schema can cause.
pub fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::Corrupt(format!("columns cannot be computed: {error}"))
}
