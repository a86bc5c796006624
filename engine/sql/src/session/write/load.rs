//! LOAD DATA LOCAL INFILE: the whole file is read and checked before its first row is written.
//!
//! As in MySQL, LOCAL means IGNORE: what does not fit is changed until it does, and rows of a key that
//! is taken are left out (or, under REPLACE, take the place of the others), with a warning each. What
//! cannot be mended so is an error before any row is written. What is larger than one transaction is
//! committed in several, and a warning says how many.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use binder::Compiler;
use bytes::Bytes;
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use execution::panics;
use functions::value::value_at;
use futures::future::{BoxFuture, FutureExt};
use sqlparser::ast::{Expr, Ident, VisitorMut};
use syntax::delimited::{Field, Format, Records};
use syntax::names::table_name;
use syntax::statement::{LoadData, LoadTarget, Mode};
use syntax::walk::walk_mut;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use types::{Error, Table, Value};
use values::error::{
    DEADLOCK, DUPLICATE_ENTRY, SqlError, SqlResult, file_too_large, interrupted, no_file_wanted,
    several_transactions, table_changed, too_few_fields, too_many_fields, write_in_the_past,
    wrong_utf8_field,
};

use super::fitting::Fitting;
use crate::session::query::tables::writable;
use crate::session::transaction::state::Open;
use crate::session::{ATTEMPTS, Session, impossible, pause};
use execution::reply::{Done, Reply};
use storage::Transaction;
use storage::rows;

/// Pieces of the file, in order; an error means that the rest will not come.
pub type Infile = mpsc::Receiver<Result<Bytes, SqlError>>;

/// Largest file.
const MOST_BYTES: usize = 1 << 30;
/// Records that are computed together.
const CHUNK: usize = 4_096;
/// Bytes of keys and rows that one transaction of a load writes.
const TRANSACTION_BYTES: usize = 8 << 20;

/// What is done with each record.
struct Plan {
    table: Arc<Table>,
    targets: Vec<LoadTarget>,
    /// Table positions that get a field or an expression, in the order of a computed row.
    positions: Vec<usize>,
    /// Fields, by position within the record, that go straight to a column.
    direct: Vec<usize>,
    /// Expressions of SET, over the fields as texts.
    computed: Vec<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    /// Whether rows of the same key go, rather than the new ones being left out.
    replace: bool,
}

/// How far a load has come.
#[derive(Default)]
struct Loaded {
    records: usize,
    copied: u64,
    deleted: u64,
    transactions: u64,
    first_id: u64,
}

impl Session {
    /// Asks for the file of a statement that can run.
    pub(in crate::session) async fn ask_for_file(
        &mut self,
        load: Box<LoadData>,
    ) -> SqlResult<Reply> {
        if self.transaction.snapshot().is_some() {
            return Err(write_in_the_past());
        }
        self.load_plan(&load).await?;
        let file = load.file.clone();
        self.loading = Some(*load);
        Ok(Reply::LocalInfile { file })
    }

    /// Takes the file that the last statement asked for.
    pub fn load_data<'a>(
        &'a mut self,
        file: Infile,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        self.loaded(file, cancel).boxed()
    }

    async fn loaded(&mut self, file: Infile, cancel: &CancellationToken) -> SqlResult<Reply> {
        let Some(load) = self.loading.take() else {
            return Err(no_file_wanted());
        };
        let before = self.transaction.place().await;
        let (interrupts, committed) = (self.interrupts.clone(), AtomicU64::new(0));
        let run = self.load(load, file, &committed);
        let mut answer = tokio::select! {
            biased;
            () = interrupts.interruption(cancel) => Err(interrupted()),
            answer = panics::guarded(run) => answer,
        };
        if let Err(error) = &mut answer {
            self.transaction.take_back(before).await;
            let rows = committed.load(Ordering::Acquire);
            if rows > 0 {
                let text = format!(" ({rows} rows were loaded by earlier transactions)");
                error.message.push_str(&text);
            }
        }
        match answer {
            Ok(Reply::Done(done)) => Ok(Reply::Done(self.sum_up(done))),
            Ok(other) => Ok(other),
            Err(error) => {
                self.diagnostics.error(&error);
                Err(error)
            }
        }
    }

    async fn load(
        &mut self,
        load: LoadData,
        mut file: Infile,
        committed: &AtomicU64,
    ) -> SqlResult<Reply> {
        let mut bytes = Vec::new();
        while let Some(piece) = file.recv().await {
            let piece = piece?;
            if bytes.len() + piece.len() > MOST_BYTES {
                return Err(file_too_large(MOST_BYTES));
            }
            bytes.extend_from_slice(&piece);
        }
        let plan = self.load_plan(&load).await?;
        let mut fits = Vec::new();
        for chunk in chunks(&load, &bytes) {
            let (lines, records) = chunk?;
            fits.push(self.fits(&plan, &lines, &records)?);
            tokio::task::yield_now().await;
        }
        self.write_file(&load, &plan, (bytes.as_slice(), fits.as_slice()), committed).await
    }

    /// Whether all records of a chunk fit their columns as they are. Values that may have to be mended
    /// are kept beside, which most files need not pay for.
    fn fits(&self, plan: &Plan, lines: &[usize], records: &[Vec<Field>]) -> SqlResult<bool> {
        let typed = |mut fitting: Fitting| {
            let given = plan.given(lines, records, 1, &mut fitting)?;
            self.typed_rows(&plan.table, &plan.positions, given, 1, &mut fitting)
                .map_err(|error| at_line(error, lines))
        };
        if typed(Fitting::Strict).is_ok() {
            return Ok(true);
        }
        typed(Fitting::ignoring(true)).map(|_| false)
    }

    async fn write_file(
        &mut self,
        load: &LoadData,
        plan: &Plan,
        (bytes, fits): (&[u8], &[bool]),
        committed: &AtomicU64,
    ) -> SqlResult<Reply> {
        let enclosing = self.enclosing().await?;
        let mut loaded = Loaded::default();
        let mut waiting: Vec<Vec<Value>> = Vec::new();
        let mut size = 0;
        for (chunk, fits) in chunks(load, bytes).zip(fits) {
            let (lines, records) = chunk?;
            let mut fitting = Fitting::ignoring(!fits);
            let first_row = loaded.records + 1;
            let given = plan.given(&lines, &records, first_row, &mut fitting)?;
            let numbered = self
                .complete_numbered(&plan.table, &plan.positions, given, first_row, &mut fitting)
                .await?;
            self.warn_of(fitting);
            loaded.records += records.len();
            loaded.first_id =
                if loaded.first_id == 0 { numbered.first_id } else { loaded.first_id };
            let whole = numbered.rows.into_iter().enumerate();
            let whole = whole.filter(|(at, _)| numbered.broken.binary_search(at).is_err());
            let from = waiting.len();
            waiting.extend(whole.map(|(_, row)| row));
            let added = waiting.get(from..).unwrap_or_default();
            size += added.iter().map(|row| weight(&plan.table, row)).sum::<usize>();
            if enclosing.is_none() && size < TRANSACTION_BYTES {
                continue;
            }
            let rows = std::mem::take(&mut waiting);
            self.write_rows(plan, rows, enclosing.as_ref(), &mut loaded, committed).await?;
            size = 0;
        }
        if !waiting.is_empty() {
            self.write_rows(plan, waiting, enclosing.as_ref(), &mut loaded, committed).await?;
        }
        let transactions = loaded.transactions;
        if enclosing.is_none() && transactions > 1 {
            self.diagnostics.warn(several_transactions(transactions));
        }
        Ok(Reply::Done(self.summary_of(&loaded)))
    }

    fn summary_of(&mut self, loaded: &Loaded) -> Done {
        let Loaded { records, copied, deleted, first_id, .. } = *loaded;
        if first_id > 0 {
            self.diagnostics.set_last_insert_id(first_id);
        }
        let (skipped, warnings) = (records as u64 - copied, self.diagnostics.count());
        let info = format!(
            "Records: {records}  Deleted: {deleted}  Skipped: {skipped}  Warnings: {warnings}"
        );
        Done { affected_rows: copied + deleted, last_insert_id: first_id, warnings: 0, info }
    }

    /// Takes over what a part of the file is warned of.
    fn warn_of(&mut self, fitting: Fitting) {
        self.diagnostics.extend(fitting.into_warnings());
        self.diagnostics.bound(self.variables.most_warnings());
    }

    /// Writes rows into the open transaction, or commits them as one.
    async fn write_rows(
        &mut self,
        plan: &Plan,
        rows: Vec<Vec<Value>>,
        enclosing: Option<&Open>,
        loaded: &mut Loaded,
        committed: &AtomicU64,
    ) -> SqlResult<()> {
        loaded.transactions += 1;
        if let Some(open) = enclosing {
            let mut fitting = Fitting::ignoring(true);
            let met = self.meet_rows(&plan.table, &rows, plan.replace, open, &mut fitting).await?;
            loaded.add(met);
            self.warn_of(fitting);
            return Ok(());
        }
        // Most rows meet none of the same key. They are looked up only if the commit says otherwise.
        let (mut attempt, mut meets) = (0, false);
        loop {
            attempt += 1;
            let mut fitting = Fitting::ignoring(true);
            let written = match meets {
                false => self.commit_new(plan, &rows).await,
                true => self.commit_met(plan, &rows, &mut fitting).await,
            };
            match written {
                Ok(met) => {
                    committed.fetch_add(met.0, Ordering::AcqRel);
                    loaded.add(met);
                    self.warn_of(fitting);
                    return Ok(());
                }
                Err(error) if error.code == DUPLICATE_ENTRY && !meets => {
                    (attempt, meets) = (0, true)
                }
                Err(error) if error.code == DEADLOCK && attempt < ATTEMPTS => pause(attempt).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits rows that nobody has looked for: if one meets another of the same key, none is written.
    async fn commit_new(&self, plan: &Plan, rows: &[Vec<Value>]) -> SqlResult<(u64, u64)> {
        let mut transaction = self.engine.storage.begin().await?;
        transaction.commits_async(self.variables.commits_async());
        for row in rows {
            rows::insert(transaction.as_mut(), &plan.table, row)
                .map_err(|error| plan.failed(error))?;
        }
        self.commit_rows(plan, transaction).await?;
        Ok((rows.len() as u64, 0))
    }

    /// Commits rows of which some meet others; how many came, and how many went for them.
    async fn commit_met(
        &mut self,
        plan: &Plan,
        rows: &[Vec<Value>],
        fitting: &mut Fitting,
    ) -> SqlResult<(u64, u64)> {
        let open = self.begin(Mode::Pessimistic).await?;
        if let Some(transaction) = open.shared.lock().await.as_mut() {
            transaction.wait_for_rows(Duration::ZERO);
        }
        let met = self.meet_rows(&plan.table, rows, plan.replace, &open, fitting).await;
        _ = self.transaction.take();
        let met = met?;
        let transaction = open.shared.lock().await.take();
        let transaction =
            transaction.ok_or_else(|| impossible("a transaction ended on its own"))?;
        self.commit_rows(plan, transaction).await?;
        Ok(met)
    }

    async fn commit_rows(&self, plan: &Plan, transaction: Box<dyn Transaction>) -> SqlResult<()> {
        let _held = self.interrupts.hold();
        transaction.commit().await.map(|_| ()).map_err(|error| plan.failed(error))
    }

    async fn load_plan(&mut self, load: &LoadData) -> SqlResult<Plan> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        let name = table_name(&load.table, self.variables.database())?;
        let table = writable(&catalog, &name.database, &name.table)?;
        let targets = if load.columns.is_empty() {
            let shown =
                binder::shown_columns(&table).into_iter().filter_map(|at| table.columns.get(at));
            shown.map(|column| LoadTarget::Column(column.name.clone())).collect()
        } else {
            load.columns.clone()
        };
        let (mut positions, mut direct, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for (at, target) in targets.iter().enumerate() {
            match target {
                LoadTarget::Column(column) => {
                    positions.push(binder::given_column(&table, column, &positions)?);
                    direct.push(at);
                    fields.push(ArrowField::new(column.to_lowercase(), DataType::Utf8, true));
                }
                LoadTarget::Variable(variable) => {
                    fields.push(ArrowField::new(variable_name(variable), DataType::Utf8, true));
                }
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let frame = DFSchema::try_from(schema.clone())?;
        let mut computed = Vec::new();
        for (column, expr) in &load.assignments {
            let taken = positions.clone();
            positions.push(binder::given_column(&table, column, &taken)?);
            let mut expr = expr.clone();
            _ = walk_mut(&mut expr, &mut Variables(&targets));
            self.inline_for_rows(&mut expr, &[]).await?;
            let (context, state) = (self.context(), &self.engine.state);
            let compiler =
                Compiler { schema: &frame, context: &context, state, expr_warnings: None };
            computed.push(compiler.text(&expr)?);
        }
        let replace = load.replace;
        Ok(Plan { table, targets, positions, direct, computed, schema, replace })
    }
}

impl Loaded {
    fn add(&mut self, (copied, deleted): (u64, u64)) {
        self.copied += copied;
        self.deleted += deleted;
    }
}

impl Plan {
    /// What became of writing rows that were made as the table was described when the load began.
    fn failed(&self, error: Error) -> SqlError {
        match error {
            Error::SchemaChanged { .. } => {
                let why = "was changed while rows were loaded: load the others again";
                table_changed(&self.table.database, &self.table.name, why)
            }
            error => rows::error(error, std::slice::from_ref(&self.table)),
        }
    }

    /// Values for the positions of the plan, record by record; what a record lacks is its column's
    /// default, and what it has too much is left out.
    fn given(
        &self,
        lines: &[usize],
        records: &[Vec<Field>],
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<Vec<Option<Value>>>> {
        for (row, record) in (first_row..).zip(records) {
            fitting.leave_out(match record.len().cmp(&self.targets.len()) {
                std::cmp::Ordering::Less => too_few_fields(row),
                std::cmp::Ordering::Greater => too_many_fields(row),
                std::cmp::Ordering::Equal => continue,
            })?;
        }
        let mut given: Vec<Vec<Option<Value>>> = records
            .iter()
            .map(|record| {
                let field = |at: &usize| {
                    let field = record.get(*at)?;
                    Some(field.clone().map_or(Value::Null, Value::String))
                };
                self.direct.iter().map(field).collect()
            })
            .collect();
        if self.computed.is_empty() {
            return Ok(given);
        }
        let column = |at: usize| -> ArrayRef {
            let texts = records.iter().map(|record| record.get(at).and_then(Option::as_deref));
            Arc::new(texts.collect::<StringArray>())
        };
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(records.len()));
        let arrays = (0..self.targets.len()).map(column).collect();
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        for expr in &self.computed {
            let values = expr
                .evaluate(&batch)
                .map_err(|error| at_line(error.into(), lines))?
                .into_array(records.len())?;
            for (at, row) in given.iter_mut().enumerate() {
                row.push(Some(value_at(&values, at)?));
            }
        }
        Ok(given)
    }
}

/// Records in chunks, each with the lines they begin on; the skipped ones left out.
fn chunks<'a>(
    load: &'a LoadData,
    bytes: &'a [u8],
) -> impl Iterator<Item = SqlResult<(Vec<usize>, Vec<Vec<Field>>)>> + 'a {
    let skip = usize::try_from(load.skip).unwrap_or(usize::MAX);
    let mut records = Records::new(bytes, Format::new(load)).skip(skip);
    std::iter::from_fn(move || {
        let (mut lines, mut chunk) = (Vec::new(), Vec::new());
        for record in records.by_ref().take(CHUNK) {
            match record.fields {
                Ok(fields) => {
                    lines.push(record.line);
                    chunk.push(fields);
                }
                Err(field) => {
                    let line = record.line;
                    return Some(Err(wrong_utf8_field(field, line)));
                }
            }
        }
        (!chunk.is_empty()).then_some(Ok((lines, chunk)))
    })
}

/// An error that names a row of the chunk, naming the file's line instead.
fn at_line(mut error: SqlError, lines: &[usize]) -> SqlError {
    match error.message.rsplit_once(" at row ") {
        Some((text, row)) => {
            let line = row.parse::<usize>().ok().and_then(|row| lines.get(row.checked_sub(1)?));
            if let Some(line) = line {
                error.message = format!("{text} at line {line}");
            }
        }
        None => {
            if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
                error.message.push_str(&format!(" (lines {first} to {last})"));
            }
        }
    }
    error
}

fn variable_name(variable: &str) -> String {
    format!("__variable_{variable}")
}

/// Bytes that a row will take in a transaction, about.
fn weight(table: &Table, row: &[Value]) -> usize {
    let values: usize = row
        .iter()
        .map(|value| match value {
            Value::String(text) => text.len() + 4,
            _ => 8,
        })
        .sum();
    values + (1 + table.indexes.len()) * 48
}

/// `@v` of the column list becomes a column of the record.
struct Variables<'a>(&'a [LoadTarget]);

impl VisitorMut for Variables<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr
            && let Some(name) = ident.value.strip_prefix('@')
        {
            let variables: BTreeMap<String, ()> = self
                .0
                .iter()
                .filter_map(|target| match target {
                    LoadTarget::Variable(name) => Some((name.clone(), ())),
                    LoadTarget::Column(_) => None,
                })
                .collect();
            let name = name.to_lowercase();
            if variables.contains_key(&name) {
                *expr = Expr::Identifier(Ident::new(variable_name(&name)));
            }
        }
        ControlFlow::Continue(())
    }
}
