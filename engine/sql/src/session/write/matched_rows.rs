//! Rows that a plan finds for a statement that changes or locks them.
//!
//! What is held of them counts against the memory of all queries: a statement that finds too many
//! fails, not the process.

use std::sync::Arc;

use binder::{BoundChange, BoundQuery, ResolvedTables, RowsOf, Target, Targets};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use functions::value::value_at;
use functions::warnings::{self, ExprWarnings};
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::Assignment;
use types::{Table, Value};
use values::error::SqlResult;

use crate::session::query::tables::Tables;
use crate::session::transaction::finding::Finding;
use crate::session::{Session, impossible};
use storage::reader::Reader;

/// What a row takes in memory, about.
pub(in crate::session) fn bytes_of(row: &[Value]) -> usize {
    let behind = |value: &Value| match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    size_of::<Vec<Value>>() + size_of_val(row) + row.iter().map(behind).sum::<usize>()
}

/// What rows that a statement holds take of the queries' memory, until this is dropped.
pub(in crate::session) struct Weight(MemoryReservation);

impl Weight {
    /// Counts a row that will be held; error 8175 if there is no room for it.
    pub(in crate::session) fn add(&self, row: &[Value]) -> SqlResult<()> {
        self.add_bytes(bytes_of(row))
    }

    /// Counts bytes that will be held.
    pub(in crate::session) fn add_bytes(&self, bytes: usize) -> SqlResult<()> {
        Ok(self.0.try_grow(bytes)?)
    }

    /// Counts nothing any more: the rows are read again.
    pub(in crate::session) fn clear(&self) {
        self.0.free();
    }
}

impl Session {
    /// Nothing yet.
    pub(in crate::session) fn weight(&self) -> Weight {
        let pool = &self.engine.state.runtime_env().memory_pool;
        Weight(MemoryConsumer::new("rows of a statement").register(pool))
    }

    /// The tables of a statement that changes or locks rows, for binding it.
    pub(in crate::session) async fn tables_of_change(
        &self,
        rows: &RowsOf<'_>,
        set: &[Assignment],
        (catalog, finding): (&Arc<Catalog>, &Finding),
    ) -> SqlResult<ResolvedTables> {
        let reader = match finding {
            Finding::Read(reader) => reader.clone(),
            // Nothing is read before it is locked, or at another timestamp than that of the locks.
            Finding::Lock(open, ..) => Reader::Transaction(open.shared.clone(), finding.ts()),
        };
        let names = rows.tables(set, self.variables.database())?;
        binder::resolve_tables(names, &self.tables(catalog, &reader)).await
    }

    /// Binds a statement that changes or locks rows.
    pub(in crate::session) fn bound_change(
        &self,
        rows: &RowsOf<'_>,
        targets: Targets<'_>,
        resolved: &ResolvedTables,
    ) -> SqlResult<BoundChange> {
        let context = self.context();
        let binding = || binder::bind_change(rows, targets, &context, resolved);
        match self.diagnostics.listening() {
            Some(expr_warnings) => warnings::listen(expr_warnings, binding),
            None => binding(),
        }
    }

    /// Tables by name, over what a reader reads.
    pub(super) fn tables(&self, catalog: &Arc<Catalog>, reader: &Reader) -> Tables {
        Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: reader.clone(),
            rights: self.identity.known_rights(),
        }
    }

    /// Hands on the rows that a bound query finds, one by one, with the values found beside their first columns.
    pub(super) async fn each_found(
        &self,
        query: &BoundQuery,
        (catalog, reader): (&Arc<Catalog>, &Reader),
        width: usize,
        listening: Option<&Arc<ExprWarnings>>,
        mut each: impl FnMut(Vec<Value>, Vec<Value>) -> SqlResult<()> + Send,
    ) -> SqlResult<()> {
        let resolved = binder::resolve(query, &self.tables(catalog, reader)).await?;
        let (_, mut batches) = self.batches_of(query, &resolved, listening).await?;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                let values: SqlResult<Vec<Value>> =
                    batch.columns().iter().map(|column| value_at(column, at)).collect();
                let mut old = values?;
                let beside = old.split_off(width.min(old.len()));
                each(old, beside)?;
            }
        }
        Ok(())
    }

    /// Rows that a bound query finds, and the values found beside their first columns.
    pub(in crate::session) async fn all_found(
        &self,
        query: &BoundQuery,
        at: (&Arc<Catalog>, &Reader),
        width: usize,
        weight: &Weight,
        listening: Option<&Arc<ExprWarnings>>,
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let mut found = Vec::new();
        let each = |old: Vec<Value>, beside: Vec<Value>| -> SqlResult<()> {
            weight.add(&old)?;
            weight.add(&beside)?;
            found.push((old, beside));
            Ok(())
        };
        self.each_found(query, at, width, listening, each).await?;
        Ok(found)
    }
}

/// The table that a target is.
pub(in crate::session) fn table_of(
    target: &Target,
    resolved: &ResolvedTables,
) -> SqlResult<Arc<Table>> {
    let table = resolved.get(&target.table).and_then(|resolved| resolved.table.clone());
    table.ok_or_else(|| impossible("rows of no table"))
}
