//! A columnar node: learners of data regions, the Flight server, and a worker for distributed plans.

use std::sync::Arc;
use std::time::Duration;

use ::columnar::{ColumnarMachines, ColumnarStore, Config as ColumnarConfig};
use anyhow::{Context as _, Result};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use futures::future::BoxFuture;
use mpp::exec::Engine;
use mpp::reader::Reader;
use placement::PlacementClient;
use placement::accounts;
use placement::api::{Node, NodeRole};
use raft::Groups;
use resources::Ledger;
use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use types::NodeId;

use crate::Common;
use crate::heartbeat::{ColumnSizes, Heartbeat};
use crate::scrub;
use crate::users;

/// Pause between rounds of flushing and compaction when there was nothing to do.
const MAINTENANCE_PAUSE: Duration = Duration::from_millis(200);

pub(crate) async fn run(common: Common, shutdown: BoxFuture<'_, ()>) -> Result<()> {
    let flight =
        common.config.flight_address.context("role = \"columnar\" needs `flight_address`")?;
    let rpc_listener = rpc::listen(common.config.rpc_address, "rpc_address").await?;
    let flight_listener = rpc::listen(flight, "flight_address").await?;
    let participant = common.participant()?;
    let me = common.establish(&participant).await?;
    let node = me.node;

    let path = common.config.data_dir.join("columns");
    let mut settings = common.settings();
    settings.begin(node, &common.placement).await;
    let [query_memory, column_cache] = ["query_memory_mib", "column_cache_mib"]
        .map(|name| settings.number(name).unwrap_or_default() << 20);
    let config = ColumnarConfig { column_cache_bytes: column_cache, ..ColumnarConfig::default() };
    let columns = ColumnarStore::open(common.disk.clone(), common.clock.clone(), &path, config)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let cached = columns.clone();
    settings.turn_by("column_cache_mib", move |mib| {
        mib.parse::<usize>().into_iter().for_each(|mib| cached.set_column_cache(mib << 20));
    });
    let store = common.raft_store(&me, Box::new(ColumnarMachines::new(&columns)))?;
    let groups: Arc<dyn Groups> = Arc::new(store.clone());
    let ledger = Arc::new(Ledger::beside(common.clock.clone(), common.ready.clone()));
    let builds = rpc::Builds { ledger: ledger.clone(), placement: common.placement.clone() };
    let (parts, paid) = ((&columns, &groups), ledger.clone());
    let engine = query_engine(&common, node, parts, paid, query_memory)?;
    let channels = common.channels.clone();
    let accounting =
        accounts::keep(ledger, common.placement.clone(), node, move || channels.version());
    let accounting = AbortOnDropHandle::new(tokio::spawn(accounting));

    let stop = CancellationToken::new();
    let handlers =
        rpc::Handlers { store: store.clone(), txn: None, placement: None, builds: Some(builds) };
    let handlers = Arc::new(SetOnce::new_with(Some(handlers)));
    let (channels, ready) = (common.channels.clone(), common.ready.clone());
    let port = rpc::Port { participant, channels, handlers, ready };
    let worker = Some(engine.worker_routes()?);
    let serving =
        tokio::spawn(rpc::serve(rpc_listener, port, worker, stop.clone().cancelled_owned()));
    let check = users::password_check(common.placement.clone());
    let server = mpp::flight::service(engine, check, flight);
    let incoming = TcpIncoming::from(flight_listener).with_nodelay(Some(true));
    let stopped = stop.clone().cancelled_owned();
    let server = builder().add_service(server).serve_with_incoming_shutdown(incoming, stopped);
    let server = tokio::spawn(server);
    let upkeep = std::thread::Builder::new().name("columnar".to_owned()).spawn({
        let (columns, stop) = (columns.clone(), stop.clone());
        let placement = common.placement.clone();
        move || maintain(&columns, &stop, &placement)
    })?;
    tracing::info!(node, address = %flight, "columnar node is listening");
    let described = Node {
        id: node,
        role: NodeRole::Columnar,
        rpc_address: common.config.rpc_address.to_string(),
        client_address: flight.to_string(),
    };
    let scrubber = std::thread::Builder::new().name("scrubber".to_owned()).spawn({
        let (store, columns, stop) = (store.clone(), columns.clone(), stop.clone());
        move || {
            env::give_way();
            scrub::columns(&store, &columns, &stop)
        }
    })?;
    let heartbeat = Heartbeat::new(&common, &me, groups, None, Box::new(ColumnSizes(columns)));
    let work = async {
        common.take_part(&me, described, &store, false).await?;
        heartbeat.run().await
    };
    tokio::select! {
        outcome = work => outcome?,
        () = common.keep_settings(node, settings) => {}
        () = shutdown => tracing::info!("stopping"),
    }
    stop.cancel();
    drop(accounting);
    crate::end("internal port", serving).await;
    crate::end("Flight server", server).await;
    let ended = tokio::task::spawn_blocking(move || {
        store.shutdown();
        upkeep.join().and(scrubber.join())
    });
    crate::end("raft store", ended).await;
    Ok(())
}

/// How the Flight server serves. As for the internal port: its setting of no delay does not reach sockets that it did not
/// bind.
fn builder() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
}

fn query_engine(
    common: &Common,
    node: NodeId,
    (columns, groups): (&ColumnarStore, &Arc<dyn Groups>),
    ledger: Arc<Ledger>,
    memory: usize,
) -> Result<Arc<Engine>> {
    let rows = common.transactions();
    let reader = Arc::new(Reader::new(node, columns.clone(), groups.clone(), rows));
    let runtime: Arc<RuntimeEnv> = Arc::new(
        RuntimeEnvBuilder::new().with_memory_pool(Arc::new(FairSpillPool::new(memory))).build()?,
    );
    let (placement, channels) = (common.placement.clone(), common.channels.clone());
    Ok(Engine::new(placement, channels, common.clock.clone(), reader, runtime, ledger)?)
}

/// Flushes and compacts until asked to stop; heartbeats say what may go.
fn maintain(columns: &ColumnarStore, stop: &CancellationToken, placement: &PlacementClient) {
    while !stop.is_cancelled() {
        match columns.maintain(placement.safe_point().floor) {
            Ok(true) => {}
            Ok(false) => std::thread::sleep(MAINTENANCE_PAUSE),
            Err(error) => {
                tracing::error!(%error, "columnar maintenance failed and is tried again");
                std::thread::sleep(10 * MAINTENANCE_PAUSE);
            }
        }
    }
}
