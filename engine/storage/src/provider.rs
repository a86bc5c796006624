//! A stored table as DataFusion scans it: from rows, at one snapshot, page by page.
//!
//! A page is read when the consumer asks for it, so memory does not grow with the table, and
//! dropping the stream ends the reading.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use binder::{planning_constraints, planning_schema};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Constraints, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use types::{Table, Value, key, row};
use values::error::{SqlError, external};

use crate::access::{self, Access, Path};
use crate::reader::Reader;

/// Rows of a batch.
const BATCH: usize = 8192;
/// Records fetched at a time by their keys.
const FETCH: usize = 1024;

/// A table at a snapshot.
#[derive(Clone)]
pub struct RowTable {
    table: Arc<Table>,
    reader: Reader,
    schema: SchemaRef,
    constraints: Constraints,
}

impl RowTable {
    /// The table as the reader sees it.
    pub fn new(table: Arc<Table>, reader: Reader) -> Self {
        let schema = planning_schema(&table);
        let constraints = planning_constraints(&table);
        RowTable { table, reader, schema, constraints }
    }

    /// Its description.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl fmt::Debug for RowTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowTable({}.{})", self.table.database, self.table.name)
    }
}

#[async_trait]
impl TableProvider for RowTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let access = access::choose(&self.table, filters, self.reader.ts());
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&projection)?);
        Ok(Arc::new(RowScan::new(self.clone(), access, projection, schema, limit)))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}

/// The leaf of a physical plan.
#[derive(Clone)]
struct RowScan {
    source: RowTable,
    access: Access,
    projection: Vec<usize>,
    schema: SchemaRef,
    limit: Option<usize>,
    properties: Arc<PlanProperties>,
}

impl RowScan {
    fn new(
        source: RowTable,
        access: Access,
        projection: Vec<usize>,
        schema: SchemaRef,
        limit: Option<usize>,
    ) -> Self {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        RowScan { source, access, projection, schema, limit, properties }
    }
}

impl fmt::Debug for RowScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowScan({:?})", self.source)
    }
}

impl DisplayAs for RowScan {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.source.table;
        write!(f, "RowScan: {}.{}, {}", table.database, table.name, self.access.describe())?;
        match self.limit {
            Some(limit) => write!(f, ", limit {limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for RowScan {
    fn name(&self) -> &str {
        "RowScan"
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("RowScan is a leaf") }
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("RowScan has one partition, not {partition}");
        }
        let RowTable { table, reader, .. } = &self.source;
        let access = self.access.clone();
        let rows = Rows::new(table.clone(), reader.clone(), access, &self.projection);
        let (projection, schema) = (self.projection.clone(), self.schema.clone());
        let state = Batches { rows, projection, schema: schema.clone(), left: self.limit };
        let batches = futures::stream::try_unfold(state, |mut state| async move {
            Ok(state.next().await.map_err(external)?.map(|batch| (batch, state)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

struct Batches {
    rows: Rows,
    projection: Vec<usize>,
    schema: SchemaRef,
    left: Option<usize>,
}

impl Batches {
    async fn next(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        let want = self.left.unwrap_or(BATCH).min(BATCH);
        let mut builder = types::columns::ColumnsBuilder::new(&self.rows.table, &self.projection)?;
        while builder.len() < want {
            match self.rows.next(want - builder.len()).await? {
                Some((_, row)) => builder.push(&row)?,
                None => break,
            }
        }
        if builder.is_empty() {
            return Ok(None);
        }
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(builder.len());
        }
        let batch = builder.finish()?;
        // The same columns under the names that plans know them by.
        let options =
            arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(
            self.schema.clone(),
            batch.columns().to_vec(),
            &options,
        );
        batch.map(Some).map_err(Into::into)
    }
}

/// The rows that an access path leads to, one by one, each with its record key.
pub struct Rows {
    table: Arc<Table>,
    reader: Reader,
    path: Path,
    ranges: std::vec::IntoIter<access::Range>,
    scan: Option<Box<dyn crate::Scan>>,
    ready: std::collections::VecDeque<(Vec<u8>, Vec<u8>)>,
    /// For each column whether it is read; NULL stands for the others.
    wanted: Vec<bool>,
}

impl Rows {
    /// Nothing is read before the first row is asked for. `columns` are the places of those that are wanted: NULL stands for
    /// all others.
    pub fn new(table: Arc<Table>, reader: Reader, access: Access, columns: &[usize]) -> Self {
        let Access { path, ranges } = access;
        let (ranges, scan) = (ranges.into_iter(), None);
        let wanted = (0..table.columns.len()).map(|at| columns.contains(&at)).collect();
        let ready = std::collections::VecDeque::new();
        Rows { table, reader, path, ranges, scan, ready, wanted }
    }

    /// The next row and its record key. `hint` is how many more the caller may want.
    pub async fn next(&mut self, hint: usize) -> Result<Option<(Vec<u8>, Vec<Value>)>, SqlError> {
        loop {
            if let Some((key, stored)) = self.ready.pop_front() {
                let wanted = |at: usize| self.wanted.get(at).copied().unwrap_or(false);
                let row = row::decode_wanted(&self.table, &stored, wanted)?;
                return Ok(Some((key, row)));
            }
            if !self.fill(hint).await? {
                return Ok(None);
            }
        }
    }

    async fn fill(&mut self, hint: usize) -> Result<bool, SqlError> {
        if self.path == Path::Points {
            let keys: Vec<Vec<u8>> = self.ranges.by_ref().take(FETCH).map(|(key, _)| key).collect();
            if keys.is_empty() {
                return Ok(false);
            }
            self.ready.extend(self.reader.get(keys).await?);
            return Ok(true);
        }
        let scan = match &mut self.scan {
            Some(scan) => scan,
            None => {
                let Some((start, end)) = self.ranges.next() else { return Ok(false) };
                let few = (hint < FETCH).then_some(hint as u32);
                self.scan.insert(self.reader.scan(start, end, false, few).await)
            }
        };
        let Some(page) = scan.next_page().await? else {
            self.scan = None;
            return Ok(true);
        };
        match &self.path {
            Path::Index(index) => {
                let keys = page
                    .iter()
                    .map(|(key, value)| key::record_of_index_entry(&self.table, index, key, value))
                    .collect::<types::Result<Vec<_>>>()?;
                for chunk in keys.chunks(FETCH) {
                    self.ready.extend(self.reader.get(chunk.to_vec()).await?);
                }
            }
            _ => self.ready.extend(page),
        }
        Ok(true)
    }
}
