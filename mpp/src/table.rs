//! Tables as columns: what a query's planner sees of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use binder::{ResolvedTable, TableResolver};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraints, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use placement::api::Catalog;
use placement::client::PlacementClient;
use types::{NodeId, SchemaVersion, TableId, Timestamp};
use values::error::{
    SqlError, changed_since_planned, no_table, regions_unavailable, younger_table,
};

use crate::layout::{self, Owner, Owners, TableLayout};
use crate::pruning;
use crate::scan::ColumnarScanExec;
use crate::scan_spec::ScanSpec;

/// A table at a snapshot, with its regions placed.
#[derive(Debug)]
pub struct ColumnarTable {
    layout: TableLayout,
    ts: Timestamp,
    schema: SchemaRef,
    constraints: Constraints,
}

impl ColumnarTable {
    /// A table to scan at `ts`.
    pub fn new(layout: TableLayout, ts: Timestamp) -> Self {
        let schema = binder::planning_schema(&layout.table);
        let constraints = binder::planning_constraints(&layout.table);
        ColumnarTable { layout, ts, schema, constraints }
    }
}

#[async_trait]
impl TableProvider for ColumnarTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(pruning::support(filters, &self.layout.table))
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let TableLayout { table, regions, rows, bytes } = &self.layout;
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

/// Which tables a query may see: those of one catalog, as they were when it was planned.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The one catalog that an attempt is planned by: two of them could show one table under two
    /// names.
    pub catalog: Arc<Catalog>,
    /// What the query was planned with before; empty if it was not.
    pub tables: Vec<(TableId, SchemaVersion)>,
}

/// Resolves a query's tables to columns, and remembers which they were and which nodes they need.
pub struct ColumnarTables {
    placement: PlacementClient,
    owners: Owners,
    expected: Expected,
    ts: Timestamp,
    avoid: Vec<NodeId>,
    fresh: bool,
    used: Mutex<Vec<NodeId>>,
    /// Of each region: the nodes that could scan it.
    replicas: Mutex<Vec<Vec<NodeId>>>,
    resolved: Mutex<Vec<(TableId, SchemaVersion)>>,
}

impl ColumnarTables {
    /// Tables at `ts`; `fresh` asks placement anew, and nodes to `avoid` are taken last.
    pub fn new(
        placement: PlacementClient,
        owners: Owners,
        expected: Expected,
        ts: Timestamp,
        avoid: Vec<NodeId>,
        fresh: bool,
    ) -> Self {
        let (used, replicas, resolved) = Default::default();
        ColumnarTables { placement, owners, expected, ts, avoid, fresh, used, replicas, resolved }
    }

    /// The catalog's version, and the tables of it that the query names.
    pub fn planned_with(&self) -> (u64, Vec<(TableId, SchemaVersion)>) {
        let mut tables = self.resolved.lock().clone();
        tables.sort_unstable();
        tables.dedup();
        (self.expected.catalog.version, tables)
    }

    /// Whether every region of the resolved tables is held by a node that is not among these.
    pub fn can_do_without(&self, nodes: &BTreeSet<NodeId>) -> bool {
        let elsewhere = |held: &Vec<NodeId>| held.iter().any(|node| !nodes.contains(node));
        self.replicas.lock().iter().all(elsewhere)
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
        let Expected { catalog, tables } = &self.expected;
        let found =
            catalog.table_named(database, table).ok_or_else(|| no_table(database, table))?;
        catalog.check_not_importing(found.id)?;
        if !catalog.existed_at(found.id, self.ts) {
            return Err(younger_table(&found.database, &found.name));
        }
        let described = (found.id, found.version);
        if !tables.is_empty() && !tables.contains(&described) {
            return Err(changed_since_planned(&found.database, &found.name));
        }
        self.resolved.lock().push(described);
        let found = Arc::clone(found);
        let layout =
            layout::fetch(&self.placement, found.clone(), &self.owners, &self.avoid, self.fresh)
                .await
                .map_err(regions_unavailable)?;
        self.used.lock().extend(layout.regions.iter().map(|region| region.node));
        let replicas = layout.regions.iter().map(|region| region.replicas.clone());
        self.replicas.lock().extend(replicas);
        Ok(ResolvedTable {
            provider: Arc::new(ColumnarTable::new(layout, self.ts)),
            table: Some(found),
        })
    }
}
