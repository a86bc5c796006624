//! Plans and runs queries as their coordinator.
//!
//! A failure before the first row is planned again, elsewhere if it can be; after the first row it
//! is the client's to see. No plan runs unverified.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{DistributedExec, Worker, display_plan_ascii};
use datafusion_distributed::{DistributedMetricsFormat, rewrite_distributed_plan_with_metrics};
use env::Clock;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use placement::client::PlacementClient;
use sql::lane;
use sql::planner::{PlannedSelect, QueryContext, TableResolver};
use sql::result::ResultColumn;
use tonic::service::Routes;
use types::columns::told_field;
use types::{LeaseId, NodeId, SnapshotToken, Table, Timestamp};

use crate::channel::{self, WorkerChannels};
use crate::error::{DoorCode, DoorError, DoorResult};
use crate::handlers::QueryNodes;
use crate::picture::Owners;
use crate::reader::Reader;
use crate::request::SqlContext;
use crate::scan::{ColumnarScanExec, ScanSpec};
use crate::table::{ColumnarTables, Expected};
use crate::ticket::ScanTicket;
use crate::worker::OnLane;
use crate::{pruning, rules, session, verifier};

/// How often a query is planned before its failure is the client's.
const ATTEMPTS: usize = 3;
/// No attempt begins later than this after the first, so that a mute cluster is an error soon.
const ATTEMPT_WINDOW: Duration = Duration::from_secs(4);
/// Pause before another attempt, so that a moving region can arrive.
const PAUSE: Duration = Duration::from_millis(100);
/// A node not heard of for this long is avoided, if another holds the data.
const SILENT_MS: u64 = 3_000;
/// How long EXPLAIN ANALYZE waits for the workers' metrics, some of which may never come.
const METRICS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a lease is believed to live without asking placement, in milliseconds.
const LEASE_MEMORY_MS: u64 = 500;

/// What a columnar node needs to coordinate queries.
pub struct Engine {
    pub(crate) placement: PlacementClient,
    pub(crate) clock: Arc<dyn Clock>,
    reader: Arc<Reader>,
    runtime: Arc<RuntimeEnv>,
    worker: Worker,
    channels: WorkerChannels,
    leases: Mutex<KnownLeases>,
}

/// Leases that lived when placement was last asked.
#[derive(Default)]
struct KnownLeases {
    /// Unix milliseconds of the asking.
    asked_ms: u64,
    /// Unix milliseconds of the end, by lease.
    ends: HashMap<LeaseId, u64>,
}

/// A running query.
pub struct Answer {
    /// Schema of the batches.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: BoxStream<'static, DoorResult<RecordBatch>>,
}

/// A query whose plan was made and verified.
struct Prepared {
    plan: Arc<dyn ExecutionPlan>,
    context: SessionContext,
    /// The answer's columns, as clients are told them.
    schema: SchemaRef,
}

impl Engine {
    /// A coordinator, and the worker of its node.
    pub fn new(
        placement: PlacementClient,
        clock: Arc<dyn Clock>,
        reader: Arc<Reader>,
        runtime: Arc<RuntimeEnv>,
    ) -> Arc<Self> {
        let channels = WorkerChannels::default();
        let worker = session::worker(reader.clone(), runtime.clone(), channels.clone());
        let leases = Mutex::default();
        Arc::new(Engine { placement, clock, reader, runtime, worker, channels, leases })
    }

    /// The worker as a service for the node's internal port.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there are no threads for queries.
    pub fn worker_routes(&self) -> types::Result<Routes> {
        Ok(Routes::new(OnLane::new(self.worker.clone().into_worker_server(), lane::handle()?)))
    }

    /// Unix milliseconds now.
    pub fn now_ms(&self) -> u64 {
        self.clock.unix_millis()
    }

    /// Columnar nodes, as far as known.
    pub fn owners(&self) -> DoorResult<Owners> {
        Owners::of(&self.placement.known_nodes())
    }

    /// Asks placement for the nodes and their addresses, which otherwise come with heartbeats.
    pub async fn refresh_nodes(&self) -> DoorResult<()> {
        self.placement.status().await?;
        Ok(())
    }

    /// Fails if a table is younger than the snapshot that is to be read.
    pub async fn check_age(&self, table: &Table, ts: Timestamp) -> DoorResult<()> {
        let catalog = self.placement.catalog().await?;
        catalog.check_not_importing(table.id)?;
        match catalog.existed_at(table.id, ts) {
            true => Ok(()),
            false => Err(DoorError::new(
                DoorCode::TableChanged,
                format!(
                    "table {}.{} was created or renamed after the snapshot that is read, or a \
                     column's type was changed: take a new snapshot",
                    table.database, table.name
                ),
            )),
        }
    }

    /// A table of the current catalog.
    pub async fn table(&self, database: &str, name: &str) -> DoorResult<Arc<Table>> {
        let catalog = self.placement.catalog().await?;
        let found = catalog.tables.iter().find(|table| {
            table.database.eq_ignore_ascii_case(database) && table.name.eq_ignore_ascii_case(name)
        });
        found.cloned().map(Arc::new).ok_or_else(|| {
            DoorError::new(DoorCode::NotFound, format!("table {database}.{name} does not exist"))
        })
    }

    /// Fails unless the lease lives, as placement knew at most [`LEASE_MEMORY_MS`] ago. Number 0
    /// stands for no lease: a snapshot that its own SQL node protects.
    pub async fn check_lease(&self, lease: LeaseId) -> DoorResult<()> {
        let now = self.now_ms();
        let lives = |known: &KnownLeases| known.ends.get(&lease).is_some_and(|end| now <= *end);
        let current = |known: &KnownLeases| now.saturating_sub(known.asked_ms) <= LEASE_MEMORY_MS;
        let remembered = {
            let known = self.leases.lock();
            current(&known) && lives(&known)
        };
        if lease == 0 || remembered {
            return Ok(());
        }
        let alive = self.placement.leases().await?;
        let mut known = self.leases.lock();
        known.asked_ms = now;
        known.ends = alive.iter().map(|lease| (lease.id, lease.expires_ms)).collect();
        match lives(&known) {
            true => Ok(()),
            false => Err(types::Error::LeaseLost(lease).into()),
        }
    }

    /// What a query's columns are, without running it; the context then says which tables it was
    /// planned with.
    pub async fn describe(
        &self,
        query: &str,
        context: &mut SqlContext,
        ts: Timestamp,
    ) -> DoorResult<Vec<ResultColumn>> {
        let (planned, tables) = self.plan_logical(query, context, ts, &[], false).await?;
        (context.catalog_version, context.tables) = tables.planned_with();
        Ok(planned.columns)
    }

    /// Hears of the catalog that a query was planned by, if that is news. The number is somebody
    /// else's word, so it is a reason to ask placement and is never remembered.
    async fn catch_up(&self, context: &SqlContext) -> DoorResult<()> {
        if self.placement.newest_catalog() < context.catalog_version {
            self.timestamp().await?;
        }
        Ok(())
    }

    /// Runs a query; see the file's head for what happens when it fails.
    pub async fn query(
        &self,
        query: &str,
        context: &SqlContext,
        token: SnapshotToken,
    ) -> DoorResult<Answer> {
        let mut failure = None;
        let begun = tokio::time::Instant::now();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            match self.attempt(query, context, token.ts, attempt > 0).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.code.is_retryable() && begun.elapsed() < ATTEMPT_WINDOW => {
                    tracing::info!(attempt, %error, "query is planned again");
                    failure = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| DoorError::new(DoorCode::Unavailable, "no attempt was made")))
    }

    async fn attempt(
        &self,
        query: &str,
        context: &SqlContext,
        ts: Timestamp,
        again: bool,
    ) -> DoorResult<Answer> {
        if again {
            // A region may be gone because its table is: that is for the catalog to say.
            self.timestamp().await?;
        }
        self.catch_up(context).await?;
        let avoid = if again { self.doubtful_nodes().await } else { Vec::new() };
        let Prepared { plan, context, schema } =
            self.prepare(query, context, ts, &avoid, again).await?;
        let mut answer = first_batch(lane::run(plan, context.task_ctx())?).await?;
        answer.schema = schema.clone();
        answer.batches = answer.batches.map(move |batch| rename(batch?, &schema)).boxed();
        Ok(answer)
    }

    /// The plan, or after running it the plan with what happened, one line each.
    pub async fn explain(
        &self,
        query: &str,
        context: &SqlContext,
        ts: Timestamp,
        analyze: bool,
    ) -> DoorResult<Vec<String>> {
        self.catch_up(context).await?;
        let Prepared { plan, context, .. } = self.prepare(query, context, ts, &[], false).await?;
        if !analyze {
            return Ok(lines(&display_plan_ascii(plan.as_ref(), false)));
        }
        let mut rows = lane::run(plan.clone(), context.task_ctx())?;
        while rows.try_next().await?.is_some() {}
        if plan.downcast_ref::<DistributedExec>().is_none() {
            return Ok(lines(&display_plan_ascii(plan.as_ref(), true)));
        }
        let format = DistributedMetricsFormat::Aggregated;
        let finished = rewrite_distributed_plan_with_metrics(plan.clone(), format);
        match tokio::time::timeout(METRICS_TIMEOUT, finished).await {
            Ok(plan) => Ok(lines(&display_plan_ascii(plan?.as_ref(), true))),
            Err(_) => {
                let mut all = lines(&display_plan_ascii(plan.as_ref(), true));
                all.push("(some workers' metrics did not arrive)".to_owned());
                Ok(all)
            }
        }
    }

    /// Scans this node's part of a table.
    pub async fn scan(&self, ticket: &ScanTicket, ts: Timestamp) -> DoorResult<Answer> {
        // Brings the catalog up to date: the ticket may be older than a change.
        self.timestamp().await?;
        let table =
            self.table(&ticket.database, &ticket.table).await.map_err(|error| {
                match error.code {
                    DoorCode::NotFound => changed(ticket, "it was dropped"),
                    _ => error,
                }
            })?;
        if table.id != ticket.table_id {
            return Err(changed(ticket, "it was dropped and created again"));
        }
        if table.version != ticket.schema_version {
            return Err(changed(ticket, "it was altered"));
        }
        let position = |name: &String| {
            let found = table.column_named(name);
            found.map(|(at, _)| at).ok_or_else(|| changed(ticket, "a column is gone"))
        };
        let wanted: Vec<usize> = ticket.columns.iter().map(position).collect::<DoorResult<_>>()?;
        let filter = ticket.filter.as_ref().map(|filter| filter.to_expr(&table)).transpose()?;
        // The filter may need columns that are not in the answer.
        let node = self.reader.node();
        let spec = ScanSpec {
            table: table.clone(),
            projection: (0..table.columns.len()).collect(),
            regions: ticket.regions.iter().map(|(id, epoch)| (*id, *epoch, node)).collect(),
            node: Some(node),
            ts,
            rows: 0,
            bytes: 0,
            prune: Vec::new(),
        };
        let provider = Arc::new(LocalScan { spec });
        let context = SessionContext::new_with_state(session::local(
            self.reader.clone(),
            self.runtime.clone(),
        ));
        let mut frame = context.read_table(provider)?;
        if let Some(filter) = filter {
            frame = frame.filter(filter)?;
        }
        let names = sql::planner::planning_schema(&table);
        let columns = wanted
            .iter()
            .filter_map(|at| names.fields().get(*at))
            .map(|field| {
                datafusion::logical_expr::col(datafusion::common::Column::new_unqualified(
                    field.name().clone(),
                ))
            })
            .collect::<Vec<_>>();
        frame = frame.select(columns)?;
        if let Some(limit) = ticket.limit {
            frame = frame.limit(0, Some(limit as usize))?;
        }
        let tasks = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let mut answer = first_batch(lane::run(plan, tasks)?).await?;
        let schema = scan_schema(&table, &wanted)?;
        let renamed = schema.clone();
        answer.batches = answer.batches.map(move |batch| rename(batch?, &renamed)).boxed();
        answer.schema = schema;
        Ok(answer)
    }

    async fn prepare(
        &self,
        query: &str,
        context: &SqlContext,
        ts: Timestamp,
        avoid: &[NodeId],
        fresh: bool,
    ) -> DoorResult<Prepared> {
        let (mut planned, tables) = self.plan_logical(query, context, ts, avoid, fresh).await?;
        let nodes = tables.used();
        if !nodes.is_empty() {
            rules::refuse_recursion(&planned.plan)?;
        }
        let here = self.reader.node();
        let at_home = nodes.iter().all(|owner| owner.node == here);
        if !at_home && sql::functions::random::within(&planned.plan)? {
            let text = "RAND(n) on more than one columnar node";
            return Err(DoorError::new(DoorCode::Unsupported, text));
        }
        if !at_home {
            // There they are run as joins.
            planned.plan = sql::planner::single_rows(planned.plan)?;
        }
        let state = match at_home {
            // A query without tables, or with everything here: nothing would be gained by sending
            // rows through a socket to this same process.
            true => session::local(self.reader.clone(), self.runtime.clone()),
            false => {
                let nodes = QueryNodes::new(nodes);
                session::coordinator(nodes, self.runtime.clone(), self.channels.clone())?
            }
        };
        let plan = state.create_physical_plan(&planned.plan).await?;
        match at_home {
            true => verifier::verify_at_home(&plan, here)?,
            false => verifier::verify(&plan)?,
        };
        let schema = answer_schema(&planned.columns);
        Ok(Prepared { plan, context: SessionContext::new_with_state(state), schema })
    }

    async fn plan_logical(
        &self,
        query: &str,
        context: &SqlContext,
        ts: Timestamp,
        avoid: &[NodeId],
        fresh: bool,
    ) -> DoorResult<(PlannedSelect, Arc<ColumnarTables>)> {
        let expected =
            Expected { catalog: self.placement.catalog().await?, tables: context.tables.clone() };
        let tables = Arc::new(ColumnarTables::new(
            self.placement.clone(),
            self.owners()?,
            expected,
            ts,
            avoid.to_vec(),
            fresh,
        ));
        let now_us = match context.now_us {
            0 => self.clock.unix_micros() as i64,
            now => now,
        };
        let or = |text: &str, default: &str| match text {
            "" => default.to_owned(),
            text => text.to_owned(),
        };
        let context = QueryContext {
            database: context.database.clone(),
            now_us,
            time_zone: or(&context.time_zone, "+00:00"),
            sql_mode: context.sql_mode.clone(),
            user: context.user.clone(),
            connection_id: context.connection_id,
        };
        let resolver: &dyn TableResolver = tables.as_ref();
        let planned = sql::planner::plan_select(query, &context, &session::planning(), resolver)
            .await
            .map_err(|error| DoorError::find(&error.message).unwrap_or_else(|| refused(&error)))?;
        Ok((planned, tables))
    }

    /// Columnar nodes that placement has not heard of lately, or that accept no connection.
    async fn doubtful_nodes(&self) -> Vec<NodeId> {
        let Ok(status) = self.placement.status().await else { return Vec::new() };
        let silent = |node: &NodeId| {
            let of = status.nodes.iter().find(|status| status.node.id == *node);
            of.is_some_and(|of| of.silent_ms.is_none_or(|silent| silent > SILENT_MS))
        };
        let Ok(owners) = self.owners() else { return Vec::new() };
        let probes = owners.0.values().map(|owner| channel::accepts(&owner.worker));
        let accept = futures::future::join_all(probes).await;
        let nodes = owners.0.keys().copied().zip(accept);
        nodes.filter(|(node, accepts)| !accepts || silent(node)).map(|(node, _)| node).collect()
    }
}

/// The answer's columns under the names that the catalog shows.
pub fn scan_schema(table: &Table, positions: &[usize]) -> DoorResult<SchemaRef> {
    let told = |at: &usize| {
        let column = table.columns.get(*at).ok_or_else(|| {
            let text = format!("table {} has no column at position {at}", table.name);
            DoorError::new(DoorCode::Invalid, text)
        })?;
        Ok(told_field(&column.name, Some(column.ty), column.nullable))
    };
    Ok(Arc::new(Schema::new(positions.iter().map(told).collect::<DoorResult<Vec<Field>>>()?)))
}

/// Schema of a query's answer, as clients are told it: displayed names, types on the wire. Every
/// column may be NULL, whatever its table says.
pub fn answer_schema(columns: &[ResultColumn]) -> SchemaRef {
    let field = |column: &ResultColumn| told_field(&column.name, column.ty, true);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The batch under the names, and with exactly the types, that clients are told.
fn rename(batch: RecordBatch, schema: &SchemaRef) -> DoorResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let typed = |(column, field): (&ArrayRef, &FieldRef)| match column.data_type() {
        ty if ty == field.data_type() => Ok(column.clone()),
        _ => arrow::compute::cast(column, field.data_type()),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(typed).collect::<Result<_, _>>();
    columns
        .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options))
        .map_err(|error| DoorError::new(DoorCode::Corrupt, error.to_string()))
}

/// Runs a stream up to its first batch, so that an early failure can still be planned again.
async fn first_batch(mut stream: SendableRecordBatchStream) -> DoorResult<Answer> {
    let schema = stream.schema();
    let first = stream.next().await.transpose()?;
    let rest = stream.map_err(DoorError::from);
    let batches = futures::stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok(Answer { schema, batches })
}

fn changed(ticket: &ScanTicket, what: &str) -> DoorError {
    DoorError::new(
        DoorCode::TableChanged,
        format!(
            "table {}.{} changed since this read was planned ({what}): plan the read again",
            ticket.database, ticket.table
        ),
    )
}

pub(crate) fn refused(error: &sql::result::SqlError) -> DoorError {
    let code = match error.code {
        1049 | 1051 | 1054 | 1146 => DoorCode::NotFound,
        1235 => DoorCode::Unsupported,
        1412 => DoorCode::TableChanged,
        9005 => DoorCode::Unavailable,
        _ => DoorCode::Invalid,
    };
    DoorError::new(code, error.to_string())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// One node's part of a table, as a table.
#[derive(Debug)]
struct LocalScan {
    spec: ScanSpec,
}

#[async_trait::async_trait]
impl datafusion::catalog::TableProvider for LocalScan {
    fn schema(&self) -> SchemaRef {
        sql::planner::planning_schema(&self.spec.table)
    }

    fn table_type(&self) -> datafusion::logical_expr::TableType {
        datafusion::logical_expr::TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&datafusion::logical_expr::Expr],
    ) -> datafusion::common::Result<Vec<datafusion::logical_expr::TableProviderFilterPushDown>>
    {
        Ok(pruning::support(filters, &self.spec.table))
    }

    async fn scan(
        &self,
        _: &dyn datafusion::catalog::Session,
        projection: Option<&Vec<usize>>,
        filters: &[datafusion::logical_expr::Expr],
        _: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let mut spec = self.spec.clone();
        spec.prune = pruning::bounds(filters, &spec.table);
        if let Some(projection) = projection {
            spec.projection.clone_from(projection);
        }
        Ok(Arc::new(ColumnarScanExec::try_new(spec)?))
    }
}
