//! The scan leaf of distributed plans: some regions of one table, on one node, at one snapshot.
//!
//! It reads only regions that it names, only on the node that it names, and fails otherwise: a
//! scan in the wrong place must never come back empty.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, exec_datafusion_err, exec_err, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, StatisticsArgs,
};
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;
use types::NodeId;

use crate::error::{MppCode, MppError};
use crate::life;
use crate::payer::{self, Payer};
use crate::prepared_scan::PreparedScan;
use crate::reader::Reader;
use crate::scan_spec::ScanSpec;

/// Partitions that every scan advertises. At least two, or the distributed planner would elide
/// the boundary and run the scan where no data is.
pub const PARTITIONS: usize = 2;

/// See the file's head.
pub struct ColumnarScanExec {
    spec: ScanSpec,
    properties: Arc<PlanProperties>,
    /// Regions are pinned and prepared once, for all partitions.
    pinned: Arc<OnceCell<Arc<PreparedScan>>>,
    metrics: ExecutionPlanMetricsSet,
}

impl ColumnarScanExec {
    /// A scan.
    pub fn try_new(spec: ScanSpec) -> Result<Self> {
        let schema = spec.schema()?;
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(PARTITIONS),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(ColumnarScanExec {
            spec,
            properties: Arc::new(properties),
            pinned: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// What it reads.
    pub fn spec(&self) -> &ScanSpec {
        &self.spec
    }

    /// The part of this scan that belongs on a node.
    pub fn on_node(&self, node: NodeId) -> Result<Self> {
        let regions: Vec<_> =
            self.spec.regions.iter().filter(|(_, _, owner)| *owner == node).copied().collect();
        let share = |total: u64| {
            let all = self.spec.regions.len().max(1) as u64;
            total * regions.len() as u64 / all
        };
        let (rows, bytes) = (share(self.spec.rows), share(self.spec.bytes));
        Self::try_new(ScanSpec { regions, node: Some(node), rows, bytes, ..self.spec.clone() })
    }
}

impl fmt::Debug for ColumnarScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ColumnarScanExec").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl DisplayAs for ColumnarScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.spec.table;
        let columns: Vec<&str> = self
            .spec
            .projection
            .iter()
            .filter_map(|at| table.columns.get(*at))
            .map(|column| column.name.as_str())
            .collect();
        let regions: Vec<String> =
            self.spec.regions.iter().map(|(id, _, node)| format!("{id}@{node}")).collect();
        write!(
            f,
            "ColumnarScanExec: table={}.{}, columns=[{}], regions=[{}], ts={}",
            table.database,
            table.name,
            columns.join(", "),
            regions.join(", "),
            self.spec.ts
        )
    }
}

impl ExecutionPlan for ColumnarScanExec {
    fn name(&self) -> &str {
        "ColumnarScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        // Without a row count the optimizer would never broadcast a small table.
        let mut statistics = Statistics::new_unknown(&self.schema());
        statistics.num_rows = Precision::Inexact(self.spec.rows as usize);
        statistics.total_byte_size = Precision::Inexact(self.spec.bytes as usize);
        Ok(Arc::new(statistics))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(reader) = context.session_config().get_extension::<Reader>() else {
            return exec_err!(
                "scan of {} was planned onto a node without columns: this is a planner fault",
                self.spec.table.name
            );
        };
        let here = reader.node();
        if let Some((id, _, node)) = self.spec.regions.iter().find(|(.., node)| *node != here) {
            // The node has lost its disk since, and is another one at the same address.
            let text = format!(
                "region {id} of {} was planned onto node {node}, and node {here} answers at its \
                 address now: plan the query again",
                self.spec.table.name
            );
            return Err(MppError::new(MppCode::StaleRegion, text).into());
        }
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let wait = MetricBuilder::new(&self.metrics).subset_time("snapshot_wait", partition);
        let (spec, pinned) = (self.spec.clone(), self.pinned.clone());
        let (schema, batch_rows) = (self.schema(), context.session_config().batch_size());
        let payer = Payer::of(context.session_config());
        let pays = payer.clone();
        let batches = async move {
            // Reported once, by the partition that pins for all: the others wait for no more than it does.
            let pin = async || {
                let _timer = wait.timer();
                reader.pin(&spec, PARTITIONS, batch_rows).await
            };
            let scan = pinned.get_or_try_init(pin).await?.clone();
            let stream = reader.scan(scan, partition, schema, pays);
            Ok::<_, datafusion::error::DataFusionError>(stream)
        };
        let stream = futures::stream::once(batches).try_flatten().map(move |batch| {
            if let Ok(batch) = &batch {
                rows.add(batch.num_rows());
            }
            batch
        });
        let batches = RecordBatchStreamAdapter::new(self.schema(), stream);
        let batches = payer::while_paid(Box::pin(batches), payer);
        Ok(life::while_wanted(batches, &context))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Carries scans to workers.
#[derive(Debug)]
pub struct ScanCodec;

impl PhysicalExtensionCodec for ScanCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let spec = postcard::from_bytes(bytes)
            .map_err(|error| exec_datafusion_err!("undecodable scan: {error}"))?;
        Ok(Arc::new(ColumnarScanExec::try_new(spec)?))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let node: &dyn Any = node.as_ref();
        let Some(scan) = node.downcast_ref::<ColumnarScanExec>() else {
            return internal_err!("only columnar scans travel to workers");
        };
        let spec = postcard::to_extend(&scan.spec, std::mem::take(bytes))
            .map_err(|error| exec_datafusion_err!("scan cannot be encoded: {error}"))?;
        *bytes = spec;
        Ok(())
    }
}
