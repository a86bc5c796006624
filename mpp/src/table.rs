//! Tables as columns: what a query's planner sees of them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use placement::client::PlacementClient;
use sql::planner::{ResolvedTable, TableResolver};
use sql::result::SqlError;
use types::{NodeId, Timestamp};

use crate::picture::{self, Owner, Owners, TablePicture};
use crate::pruning;
use crate::scan::{ColumnarScanExec, ScanSpec};

/// A table at a snapshot, with its regions placed.
#[derive(Debug)]
pub struct ColumnarTable {
    picture: TablePicture,
    ts: Timestamp,
    schema: SchemaRef,
}

impl ColumnarTable {
    /// A table to scan at `ts`.
    pub fn new(picture: TablePicture, ts: Timestamp) -> Self {
        let schema = sql::planner::planning_schema(&picture.table);
        ColumnarTable { picture, ts, schema }
    }
}

#[async_trait]
impl TableProvider for ColumnarTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(pruning::support(filters, &self.picture.table))
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let TablePicture { table, regions, rows, bytes } = &self.picture;
        let all = || (0..table.columns.len()).collect();
        Ok(Arc::new(ColumnarScanExec::try_new(ScanSpec {
            table: table.clone(),
            projection: projection.cloned().unwrap_or_else(all),
            regions: regions.iter().map(|region| (region.id, region.epoch, region.node)).collect(),
            node: None,
            ts: self.ts,
            rows: *rows,
            bytes: *bytes,
            prune: pruning::bounds(filters, table),
        })?))
    }
}

/// Resolves a query's tables to columns, and remembers which nodes they need.
pub struct ColumnarTables {
    placement: PlacementClient,
    owners: Owners,
    ts: Timestamp,
    avoid: Vec<NodeId>,
    fresh: bool,
    used: Mutex<Vec<NodeId>>,
}

impl ColumnarTables {
    /// Tables at `ts`; `fresh` asks placement anew, and nodes to `avoid` are taken last.
    pub fn new(
        placement: PlacementClient,
        owners: Owners,
        ts: Timestamp,
        avoid: Vec<NodeId>,
        fresh: bool,
    ) -> Self {
        ColumnarTables { placement, owners, ts, avoid, fresh, used: Mutex::default() }
    }

    /// The nodes that the resolved tables need, in a canonical order.
    pub fn used(&self) -> Vec<Owner> {
        let mut nodes = self.used.lock().clone();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.iter().filter_map(|node| self.owners.0.get(node).cloned()).collect()
    }
}

#[async_trait]
impl TableResolver for ColumnarTables {
    async fn resolve(&self, database: &str, table: &str) -> Result<ResolvedTable, SqlError> {
        let missing =
            || SqlError::new(1146, b"42S02", format!("Table '{database}.{table}' doesn't exist"));
        let unavailable = |error: String| SqlError::new(9005, b"HY000", error);
        let catalog =
            self.placement.catalog().await.map_err(|error| unavailable(error.to_string()))?;
        let found = catalog.tables.iter().find(|candidate| {
            candidate.database.eq_ignore_ascii_case(database)
                && candidate.name.eq_ignore_ascii_case(table)
        });
        let found = found.ok_or_else(missing)?;
        catalog.check_not_importing(found.id)?;
        if !catalog.existed_at(found.id, self.ts) {
            return Err(sql::error::younger_table(&found.database, &found.name));
        }
        let found = Arc::new(found.clone());
        let picture =
            picture::take(&self.placement, found.clone(), &self.owners, &self.avoid, self.fresh)
                .await
                .map_err(|error| unavailable(error.to_string()))?;
        self.used.lock().extend(picture.regions.iter().map(|region| region.node));
        Ok(ResolvedTable {
            provider: Arc::new(ColumnarTable::new(picture, self.ts)),
            table: Some(found),
        })
    }
}
