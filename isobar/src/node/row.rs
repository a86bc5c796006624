//! A row node: voters of data regions and, on the first ones, of placement.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use kv::{FjallKv, KvEngine};
use placement::api::{Node, NodeRole};
use placement::{PlacementMachines, PlacementService, View, placement_region};
use raft::Groups;
use txn::{RowMachines, RowStore, TxnClient, TxnService};
use types::NodeId;

use super::Common;
use super::beat::{Beat, RowSizes};
use super::garbage::{self, Collector};

/// Memory for the key-value store's blocks, in bytes.
const KV_CACHE: u64 = 256 << 20;

pub(super) async fn run(common: Common, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let node = common.config.node_id.context("role = \"row\" needs `node_id`")?;
    let members: Vec<NodeId> = common.config.placement.iter().map(|member| member.id).collect();
    let listener = rpc::listen(common.config.rpc_address, "rpc_address").await?;

    let path = common.config.data_dir.join("rows");
    let engine: Arc<dyn KvEngine> = Arc::new(
        FjallKv::open(&path, KV_CACHE)
            .with_context(|| format!("cannot open {}", path.display()))?,
    );
    let rows = RowStore::open(engine.clone())?;
    let view = Arc::new(View::default());
    let machines = PlacementMachines::new(
        engine,
        view.clone(),
        Some(Box::new(RowMachines::new(rows.clone()))),
    );
    let store = common.raft_store(node, Box::new(machines))?;
    let groups: Arc<dyn Groups> = Arc::new(store.clone());
    let txn = TxnService::new(groups.clone(), rows.clone());
    let txn = Arc::new(txn.with_wait_graph(Arc::new(common.placement.clone())));

    let placement = if members.contains(&node) {
        let region = placement_region(&members)?;
        if groups.status(region.id).is_none() {
            groups.create(region).await.context("cannot found placement")?;
        }
        let random = env::Random::from_os();
        let clock = common.clock.clone();
        Some(PlacementService::start(node, groups.clone(), view, clock, random))
    } else {
        None
    };
    let handlers =
        rpc::Handlers { store: store.clone(), txn: Some(txn.clone()), placement, worker: None };

    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(rpc::serve(listener, handlers, stop.clone().cancelled_owned()));
    tracing::info!(node, address = %common.config.rpc_address, "row node is listening");
    let me = Node {
        id: node,
        role: NodeRole::Row,
        rpc_address: common.config.rpc_address.to_string(),
        client_address: String::new(),
    };
    let client = TxnClient::new(Arc::new(common.rpc.clone()), Arc::new(common.placement.clone()));
    let collector = Collector::new(common.placement.clone(), groups.clone(), txn.clone(), client);
    let sweeper = std::thread::Builder::new().name("sweeper".to_owned()).spawn({
        let (rows, stop) = (rows.clone(), stop.clone());
        move || garbage::sweep(&rows, &stop)
    })?;
    let beat = Beat::new(&common, node, groups, Some(txn), Box::new(RowSizes(rows)));
    tokio::select! {
        outcome = super::register_and_beat(&common, me, beat) => outcome?,
        () = collector.run() => {}
        () = shutdown => tracing::info!("stopping"),
    }
    stop.cancel();
    super::end("internal port", serving).await;
    let ended = tokio::task::spawn_blocking(move || {
        store.shutdown();
        sweeper.join()
    });
    super::end("raft store", ended).await;
    Ok(())
}
