//! One node: wires the rooms together for its role and runs until it is asked to stop.
//!
//! Nothing is decided here; a room that needs another gets it as an argument.

mod beat;
mod columnar;
mod garbage;
mod orders;
mod row;
mod sql;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use placement::api::Node;
use placement::client::PlacementClient;
use rpc::{AddressBook, Channels, RpcClient};
use types::NodeId;

use crate::config::{Config, Role};

/// How long a node waits for placement at its start before it gives up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long each part of a node may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// File that keeps a node's number, and its format.
const IDENTITY_FILE: &str = "node-id";
const IDENTITY_FORMAT: env::Format = env::Format::new(*b"ISBRNODE", 1);

/// Runs a node until `shutdown` resolves.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    std::fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    let _lock = lock(&config)?;
    let common = Common::new(config);
    match common.config.role {
        Role::Row => row::run(common, shutdown).await,
        Role::Sql => sql::run(common, shutdown).await,
        Role::Columnar => columnar::run(common, shutdown).await,
    }
}

/// What every role has.
struct Common {
    config: Config,
    channels: Channels,
    rpc: RpcClient,
    placement: PlacementClient,
    clock: Arc<dyn env::Clock>,
    disk: Arc<dyn env::Disk>,
}

impl Common {
    fn new(config: Config) -> Self {
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
            channels,
            rpc,
            placement,
            clock: Arc::new(env::SteadyClock::new(Arc::new(env::RealClock::new()))),
            disk: Arc::new(env::RealDisk),
        }
    }

    /// This node's number: kept in its directory, given by placement at the first start.
    async fn identity(&self) -> Result<NodeId> {
        let path = self.config.data_dir.join(IDENTITY_FILE);
        if let Some(bytes) = env::read_whole(self.disk.as_ref(), &path, IDENTITY_FORMAT)? {
            let bytes: [u8; 8] = bytes
                .as_slice()
                .try_into()
                .ok()
                .with_context(|| format!("{} does not hold a node's number", path.display()))?;
            return Ok(NodeId::from_le_bytes(bytes));
        }
        let ids = async {
            loop {
                match self.placement.ids(1).await {
                    Ok(id) => return id,
                    Err(error) => tracing::info!(%error, "waiting for placement"),
                }
            }
        };
        let id = tokio::time::timeout(JOIN_TIMEOUT, ids).await.with_context(|| {
            format!(
                "placement did not answer within {} s: are the row nodes up?",
                JOIN_TIMEOUT.as_secs()
            )
        })?;
        env::atomic_write(self.disk.as_ref(), &path, IDENTITY_FORMAT, &id.to_le_bytes())?;
        Ok(id)
    }

    /// Makes this node known; retried, because placement may only be electing.
    async fn register(&self, node: Node) -> Result<()> {
        let register = async {
            while let Err(error) = self.placement.register(node.clone()).await {
                tracing::info!(%error, "waiting for placement");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(JOIN_TIMEOUT, register).await.with_context(|| {
            format!("placement did not register this node within {} s", JOIN_TIMEOUT.as_secs())
        })
    }

    fn raft_log_dir(&self) -> std::path::PathBuf {
        let own = || self.config.data_dir.join("raft-log");
        self.config.raft_log_dir.clone().unwrap_or_else(own)
    }

    /// Opens the Raft store over `machines` and starts its thread.
    fn raft_store(
        &self,
        node: NodeId,
        machines: Box<dyn raft::Machines>,
    ) -> Result<raft::StoreHandle> {
        let transport = rpc::GrpcTransport::new(
            self.rpc.book().clone(),
            self.channels.clone(),
            tokio::runtime::Handle::current(),
        );
        let mut settings = raft::StoreConfig::new(node);
        settings.seed = env::Random::from_os().u64();
        let disk = raft::StoreDisk {
            disk: self.disk.clone(),
            log_dir: self.raft_log_dir(),
            spool_dir: self.config.data_dir.join("spool"),
            shadow: None,
            sizes: raft::LogSizes::default(),
        };
        let handle = raft::StoreHandle::start(self.clock.clone(), move |worker| {
            raft::Store::open(settings, disk, machines, transport, worker)
        })
        .context("cannot open the Raft log")?;
        Ok(handle)
    }
}

/// Registers the node, then beats until something breaks for good.
async fn register_and_beat(common: &Common, me: Node, beat: beat::Beat) -> Result<()> {
    common.register(me).await?;
    beat.run().await;
    Ok(())
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
fn lock(config: &Config) -> Result<std::fs::File> {
    let path = config.data_dir.join("LOCK");
    let file = std::fs::File::create(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    file.try_lock().with_context(|| {
        format!("{} is in use by another isobar process", config.data_dir.display())
    })?;
    Ok(file)
}
