//! One node: wires the crates together for its role and runs until it is asked to stop.
//!
//! Nothing is decided here; a crate that needs another gets it as an argument. It knows no command line beyond
//! the arguments of [`recover`], and links nothing that only tools need.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod addresses;
mod backend;
mod columnar;
pub mod config;
mod entry;
mod garbage;
mod handover;
mod heartbeat;
mod orders;
pub mod recover;
mod row;
mod scrub;
mod settings;
mod sql;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use placement::accounts;
use placement::client::PlacementClient;
use resources::ReadyWork;
use rpc::{AddressBook, Channels, RpcClient};
use tokio::runtime::Runtime;
use txn::{Distance, TxnClient};
use types::{NodeId, version};

use crate::config::{Config, Role};
use crate::settings::NodeSettings;

/// Nothing more can be done with a node's store in this process, but in the next.
#[derive(Debug, thiserror::Error)]
pub enum StoreEnded {
    /// It begins anew, and the node's replicas are sent again.
    #[error("the key-value store is damaged, and begins anew: {0}")]
    Damaged(String),
    /// The disk takes writes again.
    #[error(
        "the disk refused a write, and takes writes again: what stands still goes on in a new process"
    )]
    Refused,
}

/// In the environment: how many processes in a row ended soon by [`StoreEnded`] and became the next one.
pub const RESTARTS: &str = "ISOBAR_RESTARTS";
/// A process that lasts so long was no failed restart.
pub const LASTED: Duration = Duration::from_secs(600);

/// How many restarts in a row led to this process.
pub fn restarts() -> u32 {
    std::env::var(RESTARTS).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// How long each part of a node may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What is logged by this process, and what changes that, by a level or a filter.
pub struct LogLevel {
    /// As it is without SET CONFIG.
    pub own: String,
    /// Logs by this from now on.
    pub turn: Box<dyn Fn(&str) + Send + Sync>,
}

/// Runs a node until `shutdown` resolves. Futures are compiled where they are run: here, not in every program.
///
/// # Errors
///
/// What keeps it from starting, or ends it.
pub fn run(
    runtime: &Runtime,
    config: Config,
    log: LogLevel,
    shutdown: BoxFuture<'_, ()>,
) -> Result<()> {
    runtime.block_on(run_role(config, log, shutdown))
}

async fn run_role(config: Config, log: LogLevel, shutdown: BoxFuture<'_, ()>) -> Result<()> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    let _lock = lock(&config.data_dir)?;
    let common = Common::new(config, log);
    mpp::tasks::inherit();
    match common.config.role {
        Role::Row => row::run(common, shutdown).await,
        Role::Sql => sql::run(common, shutdown).await,
        Role::Columnar => columnar::run(common, shutdown).await,
    }
}

/// What every role has.
struct Common {
    config: Config,
    log: Arc<LogLevel>,
    channels: Channels,
    rpc: RpcClient,
    placement: PlacementClient,
    clock: Arc<dyn env::Clock>,
    disk: Arc<dyn env::Disk>,
    /// What waits for a thread of this process.
    ready: Arc<ReadyWork>,
}

impl Common {
    /// The settings that this node begins with.
    fn settings(&self) -> NodeSettings {
        let mut settings = NodeSettings::new(&self.config, &self.log.own);
        let log = self.log.clone();
        settings.turn_by("log_level", move |level| (log.turn)(level));
        settings
    }

    /// Keeps a node to what SET CONFIG sets for as long as it is awaited.
    async fn keep_settings(&self, node: NodeId, settings: NodeSettings) {
        let channels = self.channels.clone();
        settings.keep(node, self.placement.clone(), move || channels.version()).await;
    }

    /// Reports what this process uses of its processors for as long as it is awaited.
    async fn report_processors(&self, node: NodeId) {
        let channels = self.channels.clone();
        accounts::report_processors(self.placement.clone(), node, move || channels.version()).await;
    }

    /// A client of the cluster's transactions.
    fn transactions(&self) -> TxnClient {
        let (rpc, placement) = (Arc::new(self.rpc.clone()), Arc::new(self.placement.clone()));
        let channels = self.channels.clone();
        let since = |least| {
            let channels = channels.clone();
            move || channels.version() >= least
        };
        let (book, own) = (self.rpc.book().clone(), self.config.rpc_address);
        let distance = move |node| match book.get(node) {
            Ok(address) if address == own.to_string() => Distance::Here,
            Ok(address)
                if address
                    .rsplit_once(':')
                    .is_some_and(|(host, _)| host == own.ip().to_string()) =>
            {
                Distance::SameHost
            }
            _ => Distance::Elsewhere,
        };
        TxnClient::new(rpc, placement)
            .with_one_entry(since(version::ONE_ENTRY))
            .with_async_commits(since(version::ASYNC_COMMITS))
            .with_shared_locks(since(version::SHARED_LOCKS))
            .with_distances(distance)
    }

    fn new(config: Config, log: LogLevel) -> Self {
        let book = AddressBook::default();
        let members: Vec<(NodeId, String)> =
            config.placement.iter().map(|member| (member.id, member.address.to_string())).collect();
        for (id, address) in &members {
            book.insert(*id, address.clone());
        }
        let channels = Channels::default();
        let rpc = RpcClient::new(book, channels.clone());
        let placement = PlacementClient::new(Arc::new(rpc.clone()), members);
        Common {
            config,
            log: Arc::new(log),
            channels,
            rpc,
            placement,
            clock: Arc::new(env::SteadyClock::new(Arc::new(env::RealClock::new()))),
            disk: Arc::new(env::RealDisk),
            ready: Arc::default(),
        }
    }

    /// Opens the Raft store over `machines` and starts its thread. It takes part in no group before
    /// the process is registered.
    fn raft_store(
        &self,
        me: &placement::entry::Me,
        machines: Box<dyn raft::Machines>,
    ) -> Result<raft::StoreHandle> {
        let transport = rpc::NodeTransport::new(
            self.rpc.book().clone(),
            self.channels.clone(),
            tokio::runtime::Handle::current(),
        );
        let mut settings = raft::StoreConfig::new(me.node);
        settings.session = raft::Session { boot: me.session.boot, id: me.session.id };
        settings.participation = match me.identity.committed_plan() {
            // There is nobody yet to register with.
            Some(_) => raft::Participation::Placement,
            None => raft::Participation::None,
        };
        settings.seed = env::Random::from_os().u64();
        let disk = store_disk(self.disk.clone(), &self.config.data_dir, self.config.log_dir());
        let handle = raft::StoreHandle::start(self.clock.clone(), move |worker| {
            raft::Store::open(settings, disk, machines, transport, worker)
        })
        .context("cannot open the Raft log")?;
        Ok(handle)
    }
}

/// Where a node's Raft store is.
pub(crate) fn store_disk(
    disk: Arc<dyn env::Disk>,
    data_dir: &Path,
    log_dir: PathBuf,
) -> raft::StoreDisk {
    let (spool_dir, sizes) = (data_dir.join("spool"), raft::LogSizes::default());
    raft::StoreDisk { disk, log_dir, spool_dir, shadow: None, sizes }
}

/// Waits a bounded time for a part of the node to end, then ends it: other nodes hold streams
/// open that would never end by themselves.
async fn end<T>(what: &str, mut task: tokio::task::JoinHandle<T>) {
    if tokio::time::timeout(STOP_TIMEOUT, &mut task).await.is_err() {
        tracing::debug!(what, "is cut off");
        task.abort();
    }
}

/// Two processes on one directory would destroy it.
pub(crate) fn lock(data_dir: &Path) -> Result<std::fs::File> {
    let path = data_dir.join("LOCK");
    let file = std::fs::File::create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    file.try_lock()
        .with_context(|| format!("{} is in use by another isobar process", data_dir.display()))?;
    Ok(file)
}
