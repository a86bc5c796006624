//! A row node: voters of data regions and, on the first ones, of placement. It answers MySQL clients itself if it is
//! given an address for them: they reach the regions that it leads by a function call.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use kv::{FjallKv, KvEngine};
use placement::api::{Node, NodeRole};
use placement::entry::Me;
use placement::participant::Participant;
use placement::{PlacementMachines, PlacementService, View, placement_region};
use raft::{Groups, StoreHandle};
use tokio_util::sync::CancellationToken;
use txn::{RowMachines, RowStore, TxnService};
use types::{NodeId, version};

use crate::Common;
use crate::garbage::{self, Collector};
use crate::handover::Handover;
use crate::heartbeat::{Heartbeat, RowSizes};
use crate::scrub;
use crate::sql::SqlServer;

/// What a row node keeps below its data directory: the row store, and snapshots that it receives.
pub(crate) const CONTENTS: [&str; 2] = ["rows", "spool"];

/// Memory for the key-value store's blocks, in bytes.
const KV_CACHE: u64 = 256 << 20;

/// Opens the row store below a data directory.
pub(crate) fn open_engine(data_dir: &Path) -> Result<Arc<dyn KvEngine>> {
    let path = rows_of(data_dir);
    let engine = FjallKv::open(&path, KV_CACHE)
        .with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Arc::new(engine))
}

fn rows_of(data_dir: &Path) -> PathBuf {
    data_dir.join("rows")
}

pub(crate) async fn run(common: Common, shutdown: BoxFuture<'_, ()>) -> Result<()> {
    let participant = common.participant()?;
    let stop = CancellationToken::new();
    let (port, serving) = serve(&common, &participant, &stop).await?;
    tokio::pin!(shutdown);
    let me = tokio::select! {
        me = common.establish(&participant) => me?,
        () = &mut shutdown => return Ok(()),
    };
    let node = me.node;

    let kv = open_or_begin_anew(&rows_of(&common.config.data_dir))?;
    let engine: Arc<dyn KvEngine> = kv.clone();
    let rows = RowStore::open(engine.clone())?;
    let view = Arc::new(View::default());
    let machines = Box::new(RowMachines::new(rows.clone()));
    let machines = PlacementMachines::new(engine, view.clone(), Some(machines));
    let store = common.raft_store(&me, Box::new(machines))?;
    let groups: Arc<dyn Groups> = Arc::new(store.clone());
    let txn = leaders(&common, &groups, &rows);

    let bootstrapped = bootstrap_placement(&me, &groups).await?;
    let (clock, random) = (common.clock.clone(), env::Random::from_os());
    let placement = PlacementService::start(node, groups.clone(), view, clock, random);
    let proxy = common.placement.clone();
    placement.serve_as_proxy(Box::new(move |count| {
        let proxy = proxy.clone();
        async move { proxy.given(count).await }.boxed()
    }));
    common.rpc.serve_here((node, common.config.rpc_address.to_string()), &txn, &placement);
    let handlers = rpc::Handlers {
        store: store.clone(),
        txn: Some(txn.clone()),
        placement: Some(placement),
        builds: None,
    };
    // Set once, here.
    let _ = port.handlers.set(handlers);
    tracing::info!(node, address = %common.config.rpc_address, "row node is listening");
    let collector = collector(&common, &groups, &txn, &rows);
    let upkeep = Upkeep::start(&rows, (&store, &kv), &stop)?;
    let handover = Handover::new(groups.clone(), Some(txn.clone()), common.rpc.clone());
    let mut settings = common.settings();
    let server = match common.config.mysql_address {
        Some(_) => Some(SqlServer::start(&common, node, &mut settings).await?),
        None => None,
    };
    let sessions = server.as_ref().map(|server| server.transactions().clone());
    let sizes = Box::new(RowSizes { rows, kv });
    let heartbeat = Heartbeat::new(&common, &me, groups, Some(txn), sizes).with_sessions(sessions);
    let described = described(&common, node, server.as_ref());
    let work = async {
        common.take_part(&me, described, &store, bootstrapped).await?;
        if let Some(server) = &server {
            server.open();
        }
        heartbeat.run().await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = collector.run() => Ok(()),
        () = common.report_processors(node) => Ok(()),
        () = common.keep_settings(node, settings) => Ok(()),
        () = &mut shutdown => {
            tracing::info!("stopping");
            hand_over(&handover, &store).await;
            Ok(())
        }
    };
    // What runs no node any more answers nobody any more.
    if outcome.is_ok()
        && let Some(server) = server
    {
        server.stop().await;
    }
    stop.cancel();
    outcome?;
    crate::end("internal port", serving).await;
    upkeep.end(store).await;
    Ok(())
}

/// Before anything stops that it takes: clients find the next leaders by what this node still answers.
async fn hand_over(handover: &Handover, store: &StoreHandle) {
    if handover.all().await {
        // What ends in a moment must not be elected, nor be handed anything.
        store.participate(raft::Participation::None);
    }
}

fn collector(
    common: &Common,
    groups: &Arc<dyn Groups>,
    txn: &Arc<TxnService>,
    rows: &Arc<RowStore>,
) -> Collector {
    let (placement, client) = (common.placement.clone(), common.transactions());
    Collector::new(placement, groups.clone(), txn.clone(), rows.clone(), client)
}

/// What answers for the regions that this node leads.
fn leaders(common: &Common, groups: &Arc<dyn Groups>, rows: &Arc<RowStore>) -> Arc<TxnService> {
    let placement = Arc::new(common.placement.clone());
    let channels = common.channels.clone();
    let leased = move || channels.version() >= version::LEASES;
    let service = TxnService::new(groups.clone(), rows.clone());
    let service = service.with_wait_graph(placement.clone()).with_leases(placement, leased);
    Arc::new(service.with_followers(common.transactions()))
}

/// Threads that look after the stores: one removes old versions, one reads what is stored.
struct Upkeep(Vec<JoinHandle<()>>);

impl Upkeep {
    /// Starts them, until `stop`.
    fn start(
        rows: &Arc<RowStore>,
        (store, kv): (&raft::StoreHandle, &Arc<FjallKv>),
        stop: &CancellationToken,
    ) -> std::io::Result<Self> {
        let (swept, until) = (rows.clone(), stop.clone());
        let sweeper = thread("sweeper", move || {
            env::give_way();
            garbage::sweep(&swept, &until)
        })?;
        let (store, kv, until) = (store.clone(), kv.clone(), stop.clone());
        let scrubber = thread("scrubber", move || {
            env::give_way();
            scrub::rows(&store, &kv, &until)
        })?;
        Ok(Upkeep(vec![sweeper, scrubber]))
    }

    /// Stops the Raft store, and waits a bounded time for it and them. A panic of theirs is in the log.
    async fn end(self, store: raft::StoreHandle) {
        let ended = tokio::task::spawn_blocking(move || {
            store.shutdown();
            for thread in self.0 {
                let _ = thread.join();
            }
        });
        crate::end("raft store", ended).await;
    }
}

/// The port for other nodes, which is served before there is anything behind it: the other members ask who this is.
async fn serve(
    common: &Common,
    participant: &Arc<Participant>,
    stop: &CancellationToken,
) -> Result<(rpc::Port, tokio::task::JoinHandle<types::Result<()>>)> {
    let listener = rpc::listen(common.config.rpc_address, "rpc_address").await?;
    let port = rpc::Port {
        participant: participant.clone(),
        channels: common.channels.clone(),
        handlers: Arc::default(),
        ready: common.ready.clone(),
    };
    let ended = stop.clone().cancelled_owned();
    let serving = tokio::spawn(rpc::serve(listener, port.clone(), None, ended));
    Ok((port, serving))
}

fn described(common: &Common, id: NodeId, server: Option<&SqlServer>) -> Node {
    let rpc_address = common.config.rpc_address.to_string();
    let client_address = server.map(SqlServer::address).unwrap_or_default();
    Node { id, role: NodeRole::Row, rpc_address, client_address }
}

/// The node's key-value store; an empty one in the place of one that is damaged.
fn open_or_begin_anew(path: &Path) -> Result<Arc<FjallKv>> {
    let (kv, lost) = FjallKv::open_or_begin_anew(path, KV_CACHE)
        .with_context(|| format!("cannot open {}", path.display()))?;
    if let Some(why) = lost {
        tracing::error!(
            why,
            "the key-value store is damaged and has begun anew: this node's replicas are replaced"
        );
    }
    Ok(Arc::new(kv))
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Creates this node's peer of placement's group if the cluster was just formed; whether it was.
async fn bootstrap_placement(me: &Me, groups: &Arc<dyn Groups>) -> Result<bool> {
    let Some(plan) = me.identity.committed_plan() else { return Ok(false) };
    let members: Vec<NodeId> = plan.members.iter().map(|member| member.node).collect();
    groups.create(placement_region(&members)?).await.context("cannot create placement's group")?;
    me.identity.bootstrapped()?;
    Ok(true)
}
