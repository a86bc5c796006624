//! DataFusion sessions: the coordinator's, for one query, and the workers'.
//!
//! Both know MySQL's functions; only workers know a reader.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    CompressionType, DistributedExt, SessionStateBuilderExt, Worker, WorkerQueryContext,
    WorkerResolver,
};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use crate::channel::{PLANS, PLANS_HEADER, WorkerChannels, check_header};
use crate::handlers::{QueryNodes, desired, route, scale_up};
use crate::life::{self, Life};
use crate::payer::{Payer, Payers};
use crate::reader::Reader;
use crate::rules;
use crate::scan::{PARTITIONS, ScanCodec};

/// Rows in a batch.
pub const BATCH_ROWS: usize = 8192;
/// Bytes buffered for one worker connection before the producer waits.
const CONNECTION_BUDGET: usize = 16 << 20;
/// More tasks than any stage of ours has; left out, stages would be capped by the worker list.
const MAX_TASKS: usize = 64;

struct FixedWorkers(Vec<Url>);

impl WorkerResolver for FixedWorkers {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.clone())
    }
}

fn config() -> SessionConfig {
    SessionConfig::new().with_target_partitions(PARTITIONS).with_batch_size(BATCH_ROWS)
}

/// The states that queries' states are copied from, with all functions in them: to register those anew cost a short
/// query more than its plan.
pub struct Sessions {
    planning: SessionState,
    local: SessionState,
    coordinator: SessionState,
}

impl Sessions {
    /// States for the queries of a node that reads its own regions by `reader`.
    ///
    /// # Errors
    ///
    /// If a setting is not one that is known.
    pub fn new(
        reader: Arc<Reader>,
        runtime: Arc<RuntimeEnv>,
        channels: WorkerChannels,
    ) -> Result<Self> {
        Ok(Self {
            planning: binder::session_state_builder(config()).build(),
            local: local(reader, runtime.clone()),
            coordinator: coordinator(runtime, channels)?,
        })
    }

    /// A state that plans, before it is known which nodes take part.
    pub fn planning(&self) -> &SessionState {
        &self.planning
    }

    /// A state that scans this node's own regions, without distribution.
    pub(crate) fn local(&self, payer: Payer) -> SessionState {
        let mut state = self.local.clone();
        state.config_mut().set_extension(Arc::new(payer));
        state
    }

    /// The coordinator's state for a query on `nodes`.
    ///
    /// # Errors
    ///
    /// If the group's name cannot be sent.
    pub(crate) fn coordinator(&self, nodes: QueryNodes, payer: &Payer) -> Result<SessionState> {
        let mut state = self.coordinator.clone();
        let mut with_plans = headers();
        payer.name_in(&mut with_plans);
        state.set_distributed_passthrough_headers(with_plans)?;
        state.set_distributed_worker_resolver(FixedWorkers(nodes.urls()));
        state.config_mut().set_extension(Arc::new(nodes));
        Ok(state)
    }
}

fn local(reader: Arc<Reader>, runtime: Arc<RuntimeEnv>) -> SessionState {
    let mut config = config();
    config.set_extension(reader);
    binder::session_state_builder(config).with_runtime_env(runtime).build()
}

/// Tasks on the coordinator's own node are reached over the network too: two tasks of a stage that
/// run in the coordinator's process without it share one plan, and the second finds the streams of
/// the first consumed.
fn coordinator(runtime: Arc<RuntimeEnv>, channels: WorkerChannels) -> Result<SessionState> {
    let builder = binder::session_state_builder(config()).with_runtime_env(runtime);
    let builder = rules::all()
        .into_iter()
        .fold(builder, |builder, rule| builder.with_physical_optimizer_rule(rule));
    let builder = builder
        .with_distributed_planner()
        .with_distributed_channel_resolver(channels)
        .with_distributed_user_codec(ScanCodec)
        .with_distributed_passthrough_headers(headers())?
        .with_distributed_compression(Some(CompressionType::LZ4_FRAME))?
        .with_distributed_max_tasks_per_stage(MAX_TASKS)?
        // This node renumbers tasks, so that they could not be pinned.
        .with_distributed_children_isolator_unions(false)?
        .with_distributed_worker_connection_buffer_budget_bytes(CONNECTION_BUDGET)?
        .with_distributed_desired_task_count_handler(desired)
        .with_distributed_scale_up_leaf_node_handler(scale_up)
        .with_distributed_route_tasks_handler(route);
    Ok(builder.build())
}

/// What goes with every plan.
fn headers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static(PLANS_HEADER), HeaderValue::from_static(PLANS))])
}

/// This node's worker: runs the tasks that coordinators send.
pub(crate) fn worker(
    reader: Arc<Reader>,
    runtime: Arc<RuntimeEnv>,
    channels: WorkerChannels,
    payers: Payers,
) -> Worker {
    let functions = local(reader.clone(), runtime.clone());
    Worker::from_session_builder(move |mut query: WorkerQueryContext| {
        let (reader, channels, payers) = (reader.clone(), channels.clone(), payers.clone());
        let mut state = functions.clone();
        let life = Life::of_call();
        async move {
            check_header(&query.headers)?;
            // Of what the library prepares, the settings are the task's own; its functions are not MySQL's.
            let mut config = query.builder.config().take().unwrap_or_default();
            config.set_extension(reader);
            config.set_extension(Arc::new(life));
            let payer = payers.of_headers(&query.headers).await;
            // This task asks others of the query in its turn.
            let mut named = headers();
            payer.name_in(&mut named);
            config.set_distributed_passthrough_headers(named)?;
            config.set_extension(Arc::new(payer));
            *state.config_mut() = config.with_batch_size(BATCH_ROWS);
            Ok(state
                .with_distributed_user_codec(ScanCodec)
                .with_distributed_channel_resolver(channels)
                .with_distributed_worker_plan_rewrite_handler(life::watch_joins))
        }
    })
    .with_runtime_env(runtime)
    .with_version(PLANS)
}
