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
use url::Url;

use crate::channel::WorkerChannels;
use crate::handlers::{QueryNodes, desired, route, scale_up};
use crate::life::{self, Life};
use crate::reader::Reader;
use crate::rules::{IsolateSingleTaskJoins, SortByWholePartitions};
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

/// A state that plans, before it is known which nodes take part.
pub fn planning() -> SessionState {
    sql::planner::session_state_builder(config()).build()
}

/// The coordinator's state for a query on `nodes`.
///
/// Tasks on the coordinator's own node are reached over the network too: two tasks of a stage that
/// run in the coordinator's process without it share one plan, and the second finds the streams of
/// the first consumed.
pub fn coordinator(
    nodes: QueryNodes,
    runtime: Arc<RuntimeEnv>,
    channels: WorkerChannels,
) -> Result<SessionState> {
    let urls = nodes.urls();
    let mut config = config();
    config.set_extension(Arc::new(nodes));
    let builder = sql::planner::session_state_builder(config)
        .with_runtime_env(runtime)
        .with_physical_optimizer_rule(Arc::new(IsolateSingleTaskJoins))
        .with_physical_optimizer_rule(Arc::new(SortByWholePartitions))
        .with_distributed_planner()
        .with_distributed_worker_resolver(FixedWorkers(urls))
        .with_distributed_channel_resolver(channels)
        .with_distributed_user_codec(ScanCodec)
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

/// A session that scans this node's own regions, without distribution.
pub fn local(reader: Arc<Reader>, runtime: Arc<RuntimeEnv>) -> SessionState {
    let mut config = config();
    config.set_extension(reader);
    sql::planner::session_state_builder(config).with_runtime_env(runtime).build()
}

/// This node's worker: runs the tasks that coordinators send.
pub fn worker(reader: Arc<Reader>, runtime: Arc<RuntimeEnv>, channels: WorkerChannels) -> Worker {
    Worker::from_session_builder(move |query: WorkerQueryContext| {
        let (reader, channels) = (reader.clone(), channels.clone());
        let life = Life::of_call();
        async move {
            let functions = sql::planner::session_state_builder(config()).build();
            let mut state = query
                .builder
                .with_scalar_functions(functions.scalar_functions().values().cloned().collect())
                .with_aggregate_functions(
                    functions.aggregate_functions().values().cloned().collect(),
                )
                .with_window_functions(functions.window_functions().values().cloned().collect())
                .with_distributed_user_codec(ScanCodec)
                .with_distributed_channel_resolver(channels)
                .with_distributed_worker_plan_rewrite_handler(life::watch_joins)
                .build();
            let config = state.config_mut();
            config.set_extension(reader);
            config.set_extension(Arc::new(life));
            *config = config.clone().with_batch_size(BATCH_ROWS);
            Ok(state)
        }
    })
    .with_runtime_env(runtime)
}
