//! Rows that a plan finds for a statement that changes or locks them.
//!
//! What is held of them counts against the memory of all queries: a statement that finds too many
//! fails, not the process.

use std::sync::Arc;

use async_trait::async_trait;
use binder::{ResolvedTable, TableResolver};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use functions::value::value_at;
use functions::warnings::ExprWarnings;
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::Query;
use types::Value;
use values::error::SqlResult;

use crate::session::Session;
use crate::session::query::tables::Tables;
use storage::reader::Reader;

/// What rows that a statement holds take of the queries' memory, until this is dropped.
pub(in crate::session) struct Weight(MemoryReservation);

impl Weight {
    /// Counts a row that will be held; error 8175 if there is no room for it.
    pub(in crate::session) fn add(&self, row: &[Value]) -> SqlResult<()> {
        let behind = |value: &Value| match value {
            Value::String(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let bytes = size_of::<Vec<Value>>() + size_of_val(row);
        self.add_bytes(bytes + row.iter().map(behind).sum::<usize>())
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

/// Tables with their hidden columns: whoever changes a row has all of it.
struct Whole(Tables);

#[async_trait]
impl TableResolver for Whole {
    async fn resolve(&self, database: &str, table: &str) -> SqlResult<ResolvedTable> {
        self.0.resolve(database, table).await
    }

    fn shows_hidden(&self) -> bool {
        true
    }
}

impl Session {
    /// Nothing yet.
    pub(in crate::session) fn weight(&self) -> Weight {
        let pool = &self.engine.state.runtime_env().memory_pool;
        Weight(MemoryConsumer::new("rows of a statement").register(pool))
    }

    /// Hands on the rows that a plan finds, one by one, with the values computed beside them.
    pub(super) async fn each_by_plan(
        &self,
        query: Query,
        (catalog, reader): (&Arc<Catalog>, &Reader),
        width: usize,
        listening: Option<&Arc<ExprWarnings>>,
        mut each: impl FnMut(Vec<Value>, Vec<Value>) -> SqlResult<()> + Send,
    ) -> SqlResult<()> {
        let tables = Whole(Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: reader.clone(),
            rights: self.identity.known_rights(),
        });
        let (_, mut batches) = self.batches_from_rows(query, &tables, listening).await?;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                let values: SqlResult<Vec<Value>> =
                    batch.columns().iter().map(|column| value_at(column, at)).collect();
                let mut old = values?;
                let computed = old.split_off(width.min(old.len()));
                each(old, computed)?;
            }
        }
        Ok(())
    }

    /// Rows found by a plan, and the values computed beside them.
    pub(in crate::session) async fn computed_by_plan(
        &self,
        query: Query,
        catalog: &Arc<Catalog>,
        reader: &Reader,
        width: usize,
        weight: &Weight,
        listening: Option<&Arc<ExprWarnings>>,
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let mut found = Vec::new();
        let each = |old: Vec<Value>, computed: Vec<Value>| -> SqlResult<()> {
            weight.add(&old)?;
            weight.add(&computed)?;
            found.push((old, computed));
            Ok(())
        };
        self.each_by_plan(query, (catalog, reader), width, listening, each).await?;
        Ok(found)
    }
}
