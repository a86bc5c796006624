//! LOAD DATA LOCAL INFILE: the whole file is read and checked before its first row is written.
//!
//! What is larger than one transaction is committed in several, and a warning says how many.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field as ArrowField, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use sqlparser::ast::{Expr, Ident, VisitorMut};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use types::{Error, Table, Value};

use super::fitting::Fitting;
use super::insert::{position, visible};
use super::tables::writable;
use super::{ATTEMPTS, Open, Session, pause};
use crate::coerce::value_at;
use crate::delimited::{Field, Format, Records};
use crate::error::{SqlResult, interrupted, table_changed, unknown};
use crate::planner::{self, table_name};
use crate::result::{Done, Reply, SqlError};
use crate::rows;
use crate::statement::{LoadData, LoadTarget};
use crate::storage::Savepoint;
use crate::walk::walk_mut;

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
}

impl Session {
    /// Whether the statement can run at all; told before the file is asked for.
    pub(super) async fn check_load(&mut self, load: &LoadData) -> SqlResult<()> {
        if self.snapshot.is_some() {
            let text = "Cannot execute statement in a READ ONLY transaction: SET isobar_snapshot = '' first";
            return Err(SqlError::new(1792, b"25006", text));
        }
        self.load_plan(load).await.map(|_| ())
    }

    /// Takes the file that the last statement asked for.
    pub async fn load_data(
        &mut self,
        file: Infile,
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let Some(load) = self.loading.take() else {
            return Err(SqlError::new(1148, b"42000", "no statement asked for a file"));
        };
        let before = match &self.open {
            Some(open) => open.shared.lock().await.as_mut().map(|open| open.savepoint()),
            None => None,
        };
        let (shield, committed) = (self.shield.clone(), AtomicU64::new(0));
        let run = self.load(load, file, &committed);
        let mut answer = tokio::select! {
            biased;
            () = shield.interruption(cancel) => Err(interrupted()),
            answer = run => answer,
        };
        if let Err(error) = &mut answer {
            self.take_back(before).await;
            let rows = committed.load(Ordering::Acquire);
            if rows > 0 {
                let text = format!(" ({rows} rows were loaded by earlier transactions)");
                error.message.push_str(&text);
            }
        }
        match answer {
            Ok(Reply::Done(mut done)) => {
                self.row_count = i64::try_from(done.affected_rows).unwrap_or(i64::MAX);
                done.warnings = u16::try_from(self.warnings.len()).unwrap_or(u16::MAX);
                Ok(Reply::Done(done))
            }
            Ok(other) => Ok(other),
            Err(error) => {
                let (code, message) = (error.code, error.message.clone());
                self.warnings.push(super::Warning { level: "Error", code, message });
                Err(error)
            }
        }
    }

    /// Takes what a broken load has written out of the transaction that it ran in.
    async fn take_back(&mut self, before: Option<Savepoint>) {
        let Some(before) = before else { return self.rollback().await };
        if let Some(open) = &self.open
            && let Some(transaction) = open.shared.lock().await.as_mut()
        {
            transaction.rollback_to(before);
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
                let text = format!("the file is larger than {MOST_BYTES} bytes: load it in parts");
                return Err(SqlError::new(1105, b"HY000", text));
            }
            bytes.extend_from_slice(&piece);
        }
        let plan = self.load_plan(&load).await?;
        for chunk in chunks(&load, &bytes) {
            let (lines, records) = chunk?;
            let given = plan.given(&lines, &records)?;
            self.typed_rows(&plan.table, &plan.positions, given, 1, &mut Fitting::Strict)
                .map_err(|error| at_line(error, &lines))?;
            tokio::task::yield_now().await;
        }
        self.write_file(&load, &plan, &bytes, committed).await
    }

    async fn write_file(
        &mut self,
        load: &LoadData,
        plan: &Plan,
        bytes: &[u8],
        committed: &AtomicU64,
    ) -> SqlResult<Reply> {
        let enclosing = self.enclosing().await?;
        let mut loaded = 0;
        let mut transactions = 0;
        let mut first_id = 0;
        let mut waiting: Vec<Vec<Value>> = Vec::new();
        let mut size = 0;
        for chunk in chunks(load, bytes) {
            let (lines, records) = chunk?;
            let given = plan.given(&lines, &records)?;
            let (rows, first) = self
                .complete_rows(&plan.table, &plan.positions, given, 1)
                .await
                .map_err(|error| at_line(error, &lines))?;
            first_id = if first_id == 0 { first } else { first_id };
            size += rows.iter().map(|row| weight(&plan.table, row)).sum::<usize>();
            waiting.extend(rows);
            if enclosing.is_none() && size < TRANSACTION_BYTES {
                continue;
            }
            loaded += self.write_rows(plan, &mut waiting, enclosing.as_ref(), committed).await?;
            transactions += 1;
            size = 0;
        }
        if !waiting.is_empty() {
            loaded += self.write_rows(plan, &mut waiting, enclosing.as_ref(), committed).await?;
            transactions += 1;
        }
        if enclosing.is_none() && transactions > 1 {
            self.warn(1105, format!("the file was larger than one transaction: loaded by {transactions} transactions"));
        }
        if first_id > 0 {
            self.last_insert_id = first_id;
        }
        let warnings = self.warnings.len();
        let info = format!("Records: {loaded}  Deleted: 0  Skipped: 0  Warnings: {warnings}");
        Ok(Reply::Done(Done { affected_rows: loaded, last_insert_id: first_id, warnings: 0, info }))
    }

    /// Inserts rows into the open transaction, or commits them as one.
    async fn write_rows(
        &mut self,
        plan: &Plan,
        waiting: &mut Vec<Vec<Value>>,
        enclosing: Option<&Open>,
        committed: &AtomicU64,
    ) -> SqlResult<u64> {
        let rows = std::mem::take(waiting);
        let table = std::slice::from_ref(&*plan.table);
        let failed = |error| rows::error(error, table);
        if let Some(open) = enclosing {
            let mut guard = open.shared.lock().await;
            let Some(transaction) = guard.as_mut() else { return Err(interrupted()) };
            for row in &rows {
                rows::insert(transaction.as_mut(), &plan.table, row).map_err(failed)?;
            }
            return Ok(rows.len() as u64);
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut transaction = self.engine.storage.begin().await?;
            for row in &rows {
                rows::insert(transaction.as_mut(), &plan.table, row).map_err(failed)?;
            }
            let held = self.shield.hold();
            let outcome = transaction.commit().await;
            drop(held);
            match outcome {
                Ok(_) => {
                    committed.fetch_add(rows.len() as u64, Ordering::AcqRel);
                    return Ok(rows.len() as u64);
                }
                // Its rows are made as the table was described when the load began.
                Err(Error::SchemaChanged { .. }) => {
                    let why = "was changed while rows were loaded: load the others again";
                    return Err(table_changed(&plan.table.database, &plan.table.name, why));
                }
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => pause(attempt).await,
                Err(error) => return Err(failed(error)),
            }
        }
    }

    async fn load_plan(&mut self, load: &LoadData) -> SqlResult<Plan> {
        self.engine.storage.timestamp().await?;
        let catalog = self.engine.storage.catalog().await?;
        let name = table_name(&load.table, &self.database)?;
        let table = writable(&catalog, &name.database, &name.table)?;
        let targets = if load.columns.is_empty() {
            let shown = visible(&table).into_iter().filter_map(|at| table.columns.get(at));
            shown.map(|column| LoadTarget::Column(column.name.clone())).collect()
        } else {
            load.columns.clone()
        };
        let (mut positions, mut direct, mut fields) = (Vec::new(), Vec::new(), Vec::new());
        for (at, target) in targets.iter().enumerate() {
            match target {
                LoadTarget::Column(column) => {
                    positions.push(position(&table, column, &positions)?);
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
            positions.push(position(&table, column, &taken)?);
            let mut expr = expr.clone();
            _ = walk_mut(&mut expr, &mut Variables(&targets));
            self.inline(&mut expr, &[]).await?;
            computed.push(planner::compile(expr, &frame, &self.context(), &self.engine.state)?);
        }
        Ok(Plan { table, targets, positions, direct, computed, schema })
    }
}

impl Plan {
    /// Values for the positions of the plan, record by record.
    fn given(&self, lines: &[usize], records: &[Vec<Field>]) -> SqlResult<Vec<Vec<Option<Value>>>> {
        for (line, record) in lines.iter().zip(records) {
            let (code, text) = match record.len().cmp(&self.targets.len()) {
                std::cmp::Ordering::Less => (1261, "doesn't contain data for all columns"),
                std::cmp::Ordering::Greater => {
                    (1262, "was truncated; it contained more data than there were input columns")
                }
                std::cmp::Ordering::Equal => continue,
            };
            return Err(SqlError::new(code, b"01000", format!("Line {line} {text}")));
        }
        let mut given: Vec<Vec<Option<Value>>> = records
            .iter()
            .map(|record| {
                let field = |at: &usize| match record.get(*at) {
                    Some(Some(text)) => Value::String(text.clone()),
                    _ => Value::Null,
                };
                self.direct.iter().map(|at| Some(field(at))).collect()
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
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|error| unknown(error.to_string()))?;
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
                    let text =
                        format!("Invalid utf8mb4 character string in field {field} at line {line}");
                    return Some(Err(SqlError::new(1300, b"HY000", text)));
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
