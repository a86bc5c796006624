//! Queries that rows answer without a plan, by their bound form: some rows of one table, or totals of them.
//!
//! It answers what a plan would, or leaves the query to one: where it would have to look at many rows, or hold much. It never
//! looks at more than some thousand rows.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use binder::{Answer, RowQuery, Total, in_order};
use storage::access::{self, Access, Path};
use storage::provider::Rows;
use storage::reader::Reader;
use syntax::names::Displayed;
use types::columns::{ColumnBuilder, ColumnsBuilder, arrow_type};
use types::{Decimal, Table, Value, Wide, key};
use values::column::ResultColumn;
use values::error::SqlResult;

use super::last_query::AnsweredBy;
use super::prepared::Prepared;
use crate::session::write::matched_rows::bytes_of;
use crate::session::{Session, impossible};
use execution::reply::{Reply, WarningCount};
use execution::router::Route;

/// Most rows that are looked at without a plan.
const MOST_ROWS: usize = 10_000;
/// Most bytes of rows that are held without a plan, which counts what it holds against the memory of all queries.
const MOST_BYTES: usize = 4 << 20;
/// Rows that are asked for at a time where all are wanted.
const ALL: usize = 8_192;

impl Prepared {
    /// Whether the query, as one that needs no plan, reads only a part of its table.
    pub(super) fn is_unplanned_narrow(&self) -> Option<bool> {
        let (query, table) = self.without_plan()?;
        Some(access::choose(table, &query.filters(table), self.reader.ts()).is_narrow())
    }

    fn without_plan(&self) -> Option<(&RowQuery, &Arc<Table>)> {
        let query = self.row_query.as_ref()?;
        Some((query, self.resolved.get(&query.table)?.table.as_ref()?))
    }
}

impl Session {
    /// The answer of a query that needs no plan; `None` if it is to be planned.
    pub(super) async fn unplanned(
        &mut self,
        prepared: &mut Prepared,
        displayed: &[Displayed],
    ) -> SqlResult<Option<Reply>> {
        let Some((query, table)) = prepared.without_plan() else { return Ok(None) };
        let Some(template) = prepared.template.clone() else { return Ok(None) };
        let Some(columns) = template.columns() else { return Ok(None) };
        let mut columns = columns.clone();
        binder::rename(&mut columns, displayed);
        let source = (&prepared.reader, prepared.route.clone());
        let reply = self.by_rows(query, table, source, columns.clone()).await?;
        if reply.is_some()
            && let Some(operands) = prepared.operands.take()
        {
            let aliases = std::mem::take(&mut prepared.aliases);
            self.keep_known((template, operands), columns, aliases, &prepared.catalog);
        }
        Ok(reply)
    }

    /// The answer of a query that needs no plan, as rows give it; `None` if it is to be planned.
    pub(super) async fn by_rows(
        &mut self,
        query: &RowQuery,
        table: &Arc<Table>,
        (reader, route): (&Reader, Route),
        columns: Vec<ResultColumn>,
    ) -> SqlResult<Option<Reply>> {
        let found = rows_of(query, table, reader, &query.reads()).await?;
        let Some(found) = found else { return Ok(None) };
        let batch = match &query.answer {
            Answer::Columns(shown) => shown_of(table, shown, part(query, found))?,
            Answer::Distinct(shown) => {
                shown_of(table, shown, part(query, unique(query, found, shown)))?
            }
            Answer::Totals(totals) => totals_of(totals, &found, &columns)?,
        };
        self.engine.bound_queries.note_unplanned();
        self.note_query(AnsweredBy::Route { route, columns: None }, reader.ts());
        let batches = Box::pin(futures::stream::iter([Ok(batch)]));
        Ok(Some(Reply::Rows { columns, batches, warnings: WarningCount::default() }))
    }
}

/// The rows that meet a query's conditions, in its order and as many as its answer is made of, with NULL in the place of
/// columns that are not wanted; `None` if they are too many to be found so.
pub(in crate::session) async fn rows_of(
    query: &RowQuery,
    table: &Arc<Table>,
    reader: &Reader,
    wanted_columns: &[usize],
) -> SqlResult<Option<Vec<Vec<Value>>>> {
    let access = access::choose(table, &query.filters(table), reader.ts());
    let sorted = query.order.is_empty() || is_in_order(query, table, &access);
    let is_plain = matches!(query.answer, Answer::Columns(_));
    let wanted = query.fetch.filter(|_| sorted && is_plain);
    let wanted = wanted.map(|n| usize::try_from(n.saturating_add(query.skip)));
    let wanted = wanted.map(|n| n.unwrap_or(usize::MAX));
    if wanted.is_none_or(|n| n > MOST_ROWS) && !access.is_narrow() {
        return Ok(None);
    }
    let (mut found, mut read, mut bytes) = (Vec::new(), 0, 0);
    let mut rows = Rows::new(table.clone(), reader.clone(), access, wanted_columns);
    while wanted.is_none_or(|n| found.len() < n) {
        let hint = wanted.map_or(ALL, |n| n - found.len());
        let Some((_, row)) = rows.next(hint).await? else { break };
        read += 1;
        if read > MOST_ROWS || bytes > MOST_BYTES {
            return Ok(None);
        }
        if query.keeps(&row) {
            bytes += bytes_of(&row);
            found.push(row);
        }
    }
    if !sorted {
        found.sort_by(|left, right| query.compare(left, right));
    }
    Ok(Some(found))
}

/// Whether rows come in a query's order as they are read: by the primary key, from its first column on.
fn is_in_order(query: &RowQuery, table: &Table, access: &Access) -> bool {
    let by_key = !matches!(access.path, Path::Index(_));
    let keys = table.key_positions();
    let ordered = query.order.iter().zip(keys.iter());
    by_key
        && query.order.len() <= keys.len()
        && ordered.into_iter().all(|((column, descending), key)| column == key && !descending)
}

/// Each row once, by what is shown of it.
fn unique(query: &RowQuery, found: Vec<Vec<Value>>, shown: &[usize]) -> Vec<Vec<Value>> {
    let mut found = found;
    if query.orders_all_of(shown) {
        found.dedup_by(|next, row| shown.iter().all(|at| next.get(*at) == row.get(*at)));
        return found;
    }
    let mut seen = HashSet::new();
    let is_first = |row: &Vec<Value>| {
        let mut shows = Vec::new();
        for value in shown.iter().filter_map(|at| row.get(*at)) {
            key::encode(&mut shows, value);
        }
        seen.insert(shows)
    };
    found.retain(is_first);
    found
}

/// The rows that a query's limit leaves.
pub(in crate::session) fn part(
    query: &RowQuery,
    found: Vec<Vec<Value>>,
) -> impl Iterator<Item = Vec<Value>> {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    found.into_iter().skip(count(query.skip)).take(query.fetch.map_or(usize::MAX, count))
}

fn shown_of(
    table: &Table,
    shown: &[usize],
    rows: impl Iterator<Item = Vec<Value>>,
) -> SqlResult<RecordBatch> {
    let mut builder = ColumnsBuilder::new(table, shown)?;
    for row in rows {
        builder.push(&row)?;
    }
    Ok(builder.finish()?)
}

fn totals_of(
    totals: &[Total],
    found: &[Vec<Value>],
    columns: &[ResultColumn],
) -> SqlResult<RecordBatch> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (total, column) in totals.iter().zip(columns) {
        let ty = column.ty.ok_or_else(|| impossible("a total without a type"))?;
        let mut builder = ColumnBuilder::new(ty);
        builder.push(&total_of(*total, found, ty.is_wide()))?;
        fields.push(Field::new(&column.name, arrow_type(ty), true));
        arrays.push(builder.finish());
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn total_of(total: Total, found: &[Vec<Value>], is_wide: bool) -> Value {
    let values =
        |at: usize| found.iter().filter_map(move |row| row.get(at)).filter(|v| !v.is_null());
    let count = |n: usize| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let first = |at: usize, wanted: std::cmp::Ordering| {
        let better = |best: &Value, value: &Value| in_order(value, best) == Some(wanted);
        let best = values(at).reduce(|best, value| if better(best, value) { value } else { best });
        best.cloned().unwrap_or(Value::Null)
    };
    match total {
        Total::Rows => count(found.len()),
        Total::Count(at) => count(values(at).count()),
        Total::Least(at) => first(at, std::cmp::Ordering::Less),
        Total::Greatest(at) => first(at, std::cmp::Ordering::Greater),
        Total::Sum(at) => {
            let whole = |value: &Value| match value {
                Value::Int(n) => i128::from(*n),
                Value::UInt(n) => i128::from(*n),
                _ => 0,
            };
            let sum = values(at).map(whole).reduce(|left, right| left + right);
            match sum.map(|unscaled| Decimal { unscaled, scale: 0 }) {
                None => Value::Null,
                Some(sum) if is_wide => Value::Wide(Box::new(Wide::from(sum))),
                Some(sum) => Value::Decimal(sum),
            }
        }
    }
}
