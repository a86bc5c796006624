//! Plans and runs queries as their coordinator.
//!
//! A failure before the first row is planned again, elsewhere if it can be; after the first row it
//! is the client's to see. No plan runs unverified.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use binder::{BoundQuery, PlannedSelect, QueryContext, TableResolver};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use datafusion_distributed::{DistributedExec, Worker, display_plan_ascii};
use datafusion_distributed::{DistributedMetricsFormat, rewrite_distributed_plan_with_metrics};
use env::Clock;
use execution::threads;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use placement::client::PlacementClient;
use resources::Ledger;
use rpc::{Channels, Pulse};
use tonic::service::Routes;
use types::columns::{NOT_NULL, client_field};
use types::{ClusterVersion, ColumnType, LeaseId, NodeId, SnapshotToken, Table, Timestamp};
use values::column::ResultColumn;
use values::error::SqlError;

use crate::attempts::attempts;
use crate::channel::WorkerChannels;
use crate::error::{MppCode, MppError, MppResult, refused};
use crate::guard::Guarded;
use crate::handlers::QueryNodes;
use crate::layout::Owners;
use crate::payer::{Payer, Payers};
use crate::reader::Reader;
use crate::session::Sessions;
use crate::table::{ColumnarTables, Expected};
use crate::ticket::Asked;
use crate::worker::OnQueryThreads;
use crate::{rules, session, verifier};

/// A node whose last heartbeat is this old is avoided, if another holds the data.
const SILENT_MS: u64 = 3_000;
/// How long EXPLAIN ANALYZE waits for the workers' metrics, some of which may never come.
const METRICS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a lease is believed to live without asking placement, in milliseconds.
const LEASE_MEMORY_MS: u64 = 500;

/// What a columnar node needs to coordinate queries.
pub struct Engine {
    pub(crate) placement: PlacementClient,
    nodes: Channels,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) sessions: Sessions,
    worker: Worker,
    channels: WorkerChannels,
    pub(crate) pulse: Pulse,
    pub(crate) payers: Payers,
    leases: Mutex<KnownLeases>,
}

/// Leases that lived when they were last fetched from placement.
#[derive(Default)]
struct KnownLeases {
    /// When they were fetched, in Unix milliseconds.
    fetched_ms: u64,
    /// Unix milliseconds of the end, by lease.
    ends: HashMap<LeaseId, u64>,
}

/// A running query.
pub struct Answer {
    /// Schema of the batches.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: BoxStream<'static, MppResult<RecordBatch>>,
}

/// A query whose plan was made and verified.
struct Prepared {
    plan: Arc<dyn ExecutionPlan>,
    context: SessionContext,
    /// The answer's columns, as clients see them.
    schema: SchemaRef,
    tables: Arc<ColumnarTables>,
}

/// A query whose plan is not placed on nodes yet.
struct Logical {
    bound: Arc<BoundQuery>,
    planned: PlannedSelect,
    tables: Arc<ColumnarTables>,
}

impl Engine {
    /// A coordinator, and the worker of its node.
    ///
    /// # Errors
    ///
    /// If a setting of the planner's is not one that is known.
    pub fn new(
        placement: PlacementClient,
        nodes: Channels,
        clock: Arc<dyn Clock>,
        reader: Arc<Reader>,
        runtime: Arc<RuntimeEnv>,
        ledger: Arc<Ledger>,
    ) -> MppResult<Arc<Self>> {
        let channels = WorkerChannels::default();
        let sessions = Sessions::new(reader.clone(), runtime.clone(), channels.clone())?;
        let payers = Payers::new(ledger, placement.clone());
        let worker = session::worker(reader.clone(), runtime, channels.clone(), payers.clone());
        let (leases, pulse) = (Mutex::default(), Pulse::new(nodes.clone()));
        Ok(Arc::new(Engine {
            placement,
            nodes,
            clock,
            reader,
            sessions,
            worker,
            channels,
            pulse,
            payers,
            leases,
        }))
    }

    /// The worker as a service for the node's internal port.
    ///
    /// # Errors
    ///
    /// `Unavailable` if there are no threads for queries.
    pub fn worker_routes(&self) -> types::Result<Routes> {
        let worker = Guarded(self.worker.clone().into_worker_server());
        Ok(Routes::new(OnQueryThreads::new(worker, threads::handle()?, self.payers.clone())))
    }

    /// The cluster's version, as far as this node knows.
    pub fn version(&self) -> ClusterVersion {
        self.nodes.version()
    }

    /// Unix milliseconds now.
    pub fn now_ms(&self) -> u64 {
        self.clock.unix_millis()
    }

    /// Columnar nodes, as far as known.
    pub fn owners(&self) -> MppResult<Owners> {
        Owners::of(&self.placement.known_nodes())
    }

    /// Asks placement for the nodes and their addresses, which otherwise come with heartbeats.
    pub async fn refresh_nodes(&self) -> MppResult<()> {
        self.placement.status().await?;
        Ok(())
    }

    /// Fails if a table is younger than the snapshot that is to be read.
    pub async fn check_age(&self, table: &Table, ts: Timestamp) -> MppResult<()> {
        let catalog = self.placement.catalog().await?;
        catalog.check_not_importing(table.id)?;
        match catalog.existed_at(table.id, ts) {
            true => Ok(()),
            false => Err(MppError::new(
                MppCode::TableChanged,
                format!(
                    "table {}.{} was created or renamed after the snapshot that is read, or a \
                     column's type was changed: take a new snapshot",
                    table.database, table.name
                ),
            )),
        }
    }

    /// A table of the current catalog.
    pub async fn table(&self, database: &str, name: &str) -> MppResult<Arc<Table>> {
        let catalog = self.placement.catalog().await?;
        catalog.table_named(database, name).cloned().ok_or_else(|| {
            MppError::new(MppCode::NotFound, format!("table {database}.{name} does not exist"))
        })
    }

    /// Fails unless the lease lives, as placement knew at most [`LEASE_MEMORY_MS`] ago. Number 0
    /// stands for no lease: a snapshot that its own SQL node protects.
    pub async fn check_lease(&self, lease: LeaseId) -> MppResult<()> {
        let now = self.now_ms();
        let lives = |known: &KnownLeases| known.ends.get(&lease).is_some_and(|end| now <= *end);
        let current = |known: &KnownLeases| now.saturating_sub(known.fetched_ms) <= LEASE_MEMORY_MS;
        let remembered = {
            let known = self.leases.lock();
            current(&known) && lives(&known)
        };
        if lease == 0 || remembered {
            return Ok(());
        }
        let alive = self.placement.leases().await?;
        let mut known = self.leases.lock();
        known.fetched_ms = now;
        known.ends = alive.iter().map(|lease| (lease.id, lease.expires_ms)).collect();
        match lives(&known) {
            true => Ok(()),
            false => Err(types::Error::LeaseLost(lease).into()),
        }
    }

    /// Binds a query, and says what its columns are; the context then has what it was bound with.
    pub async fn bind(
        &self,
        query: &str,
        context: &mut QueryContext,
        ts: Timestamp,
    ) -> MppResult<(Arc<BoundQuery>, Vec<ResultColumn>)> {
        *context = self.complete(context);
        let asked = Asked::Text(query.to_owned());
        let Logical { bound, planned, tables } =
            self.plan_logical(&asked, context, ts, &[], false).await?;
        (context.catalog_version, context.tables) = tables.planned_with();
        Ok((bound, planned.columns))
    }

    /// A context as a plan needs it: times that a request leaves out are now, and its zone UTC.
    fn complete(&self, context: &QueryContext) -> QueryContext {
        context.complete(i64::try_from(self.clock.unix_micros()).unwrap_or(i64::MAX))
    }

    /// Runs a query; see the file's head for what happens when it fails.
    pub async fn query(
        &self,
        query: &Asked,
        context: &QueryContext,
        token: SnapshotToken,
        group: Option<&str>,
    ) -> MppResult<Answer> {
        let payer = &self.payers.of_group(group, context.catalog_version).await;
        let attempt = |before: Option<MppCode>| {
            self.attempt((query, context), token.ts, before.is_some(), payer)
        };
        attempts("a query", attempt).await
    }

    async fn attempt(
        &self,
        (query, context): (&Asked, &QueryContext),
        ts: Timestamp,
        again: bool,
        payer: &Payer,
    ) -> MppResult<Answer> {
        if again {
            // A region may be gone because its table is: that is for the catalog to say.
            self.timestamp().await?;
        }
        self.check_readable(ts)?;
        self.placement.catch_up(context.catalog_version).await?;
        let avoid = self.nodes_to_avoid(&context.avoid, again).await;
        let Prepared { plan, context, schema, tables } =
            self.prepare((query, context), ts, &avoid, again, payer).await?;
        let first = first_batch(payer.work().begin(|| threads::run(plan, context.task_ctx()))?);
        let without = |silent: &BTreeSet<NodeId>| tables.can_do_without(silent);
        let mut answer = self.while_answered(tables.used(), without, first).await?;
        answer.schema = schema.clone();
        answer.batches = answer.batches.map(move |batch| rename(batch?, &schema)).boxed();
        Ok(answer)
    }

    /// The plan, or after running it the plan with what happened, one line each.
    pub async fn explain(
        &self,
        query: &Asked,
        context: &QueryContext,
        ts: Timestamp,
        analyze: bool,
        group: Option<&str>,
    ) -> MppResult<Vec<String>> {
        let payer = &self.payers.of_group(group, context.catalog_version).await;
        // As a query itself is planned again.
        let attempt = |before: Option<MppCode>| {
            self.explain_once((query, context), ts, analyze, before.is_some(), payer)
        };
        attempts("a plan", attempt).await
    }

    async fn explain_once(
        &self,
        (query, context): (&Asked, &QueryContext),
        ts: Timestamp,
        analyze: bool,
        again: bool,
        payer: &Payer,
    ) -> MppResult<Vec<String>> {
        self.check_readable(ts)?;
        self.placement.catch_up(context.catalog_version).await?;
        let avoid = self.nodes_to_avoid(&context.avoid, again).await;
        let Prepared { plan, context, .. } =
            self.prepare((query, context), ts, &avoid, again, payer).await?;
        if !analyze {
            return Ok(lines(&display_plan_ascii(plan.as_ref(), false)));
        }
        let run = || threads::run(plan.clone(), context.task_ctx());
        let mut rows = payer.work().begin(run)?;
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

    async fn prepare(
        &self,
        (query, context): (&Asked, &QueryContext),
        ts: Timestamp,
        avoid: &[NodeId],
        fresh: bool,
        payer: &Payer,
    ) -> MppResult<Prepared> {
        let Logical { mut planned, tables, .. } =
            self.plan_logical(query, context, ts, avoid, fresh).await?;
        let nodes = tables.used();
        if !nodes.is_empty() {
            rules::refuse_recursion(&planned.plan)?;
        }
        let here = self.reader.node();
        let at_home = nodes.iter().all(|owner| owner.node == here);
        if !at_home && functions::random::within(&planned.plan)? {
            let text = "RAND(n) on more than one columnar node";
            return Err(MppError::new(MppCode::Unsupported, text));
        }
        if !at_home {
            // There they are run as joins.
            planned.plan = binder::rules::distributed(planned.plan)?;
        }
        let state = match at_home {
            // A query without tables, or with everything here: nothing would be gained by sending
            // rows through a socket to this same process.
            true => self.sessions.local(payer.clone()),
            false => self.sessions.coordinator(QueryNodes::new(nodes), payer)?,
        };
        let plan = state.create_physical_plan(&planned.plan).await?;
        match at_home {
            true => verifier::verify_at_home(&plan, here)?,
            false => verifier::verify(&plan)?,
        };
        let schema = answer_schema(&planned.columns);
        Ok(Prepared { plan, context: SessionContext::new_with_state(state), schema, tables })
    }

    async fn plan_logical(
        &self,
        query: &Asked,
        context: &QueryContext,
        ts: Timestamp,
        avoid: &[NodeId],
        fresh: bool,
    ) -> MppResult<Logical> {
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
        let context = self.complete(context);
        let resolver: &dyn TableResolver = tables.as_ref();
        let planning = async {
            let (bound, resolved) = match query {
                Asked::Text(text) => {
                    let query = binder::query_of(text)?;
                    let (bound, resolved) = binder::bind(&query, &context, resolver).await?;
                    (Arc::new(bound), resolved)
                }
                Asked::Bound { bound } => (bound.clone(), binder::resolve(bound, resolver).await?),
            };
            let planned = binder::plan(&bound, &context, self.sessions.planning(), &resolved)?;
            Ok::<_, SqlError>((bound, planned))
        };
        let (bound, planned) = planning
            .await
            .map_err(|error| MppError::find(&error.message).unwrap_or_else(|| refused(&error)))?;
        Ok(Logical { bound, planned, tables })
    }

    /// Columnar nodes with no recent heartbeat, or that accept no connection, or no plan of this release.
    pub(crate) async fn doubtful_nodes(&self) -> Vec<NodeId> {
        let Ok(status) = self.placement.status().await else { return Vec::new() };
        let silent = |node: &NodeId| {
            let of = status.nodes.iter().find(|status| status.node.id == *node);
            of.is_some_and(|of| of.silent_ms.is_none_or(|silent| silent > SILENT_MS))
        };
        let Ok(owners) = self.owners() else { return Vec::new() };
        let probes = owners.0.values().map(|owner| self.channels.answers(&owner.worker));
        let answer = futures::future::join_all(probes).await;
        let nodes = owners.0.keys().copied().zip(answer);
        nodes.filter(|(node, answers)| !answers || silent(node)).map(|(node, _)| node).collect()
    }
}

/// The answer's columns under the names that the catalog shows.
pub fn scan_schema(table: &Table, positions: &[usize]) -> MppResult<SchemaRef> {
    let field = |at: &usize| {
        let column = table.columns.get(*at).ok_or_else(|| {
            let text = format!("table {} has no column at position {at}", table.name);
            MppError::new(MppCode::Invalid, text)
        })?;
        Ok(client_field(&column.name, Some(column.ty), column.nullable))
    };
    Ok(Arc::new(Schema::new(positions.iter().map(field).collect::<MppResult<Vec<Field>>>()?)))
}

/// Schema of a query's answer, as clients see it: displayed names, types on the wire. Every
/// column may be NULL to Arrow, whatever its table says; which have none is metadata.
pub fn answer_schema(columns: &[ResultColumn]) -> SchemaRef {
    let field = |column: &ResultColumn| answer_field(&column.name, column.ty, column.nullable);
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// The field of a column of an answer.
pub(crate) fn answer_field(name: &str, ty: Option<ColumnType>, nullable: bool) -> Field {
    let mut field = client_field(name, ty, true);
    if !nullable {
        field.metadata_mut().insert(NOT_NULL.to_owned(), String::new());
    }
    field
}

/// The batch under the names, and with exactly the types, that clients see.
pub(crate) fn rename(batch: RecordBatch, schema: &SchemaRef) -> MppResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let typed = |(column, field): (&ArrayRef, &FieldRef)| match column.data_type() {
        ty if ty == field.data_type() => Ok(column.clone()),
        _ => arrow::compute::cast(column, field.data_type()),
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(typed).collect::<Result<_, _>>();
    columns
        .and_then(|columns| RecordBatch::try_new_with_options(schema.clone(), columns, &options))
        .map_err(|error| MppError::new(MppCode::Corrupt, SqlError::from(error).message))
}

/// Runs a stream up to its first batch, so that an early failure can still be planned again.
pub(crate) async fn first_batch(mut stream: SendableRecordBatchStream) -> MppResult<Answer> {
    let schema = stream.schema();
    let first = stream.next().await.transpose()?;
    let rest = stream.map_err(MppError::from);
    let batches = futures::stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok(Answer { schema, batches })
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
