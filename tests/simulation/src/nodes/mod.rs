//! The nodes of the cluster, wired together as `isobar`'s own are, over simulated parts.
//!
//! Nothing is decided here that a room decides.

pub(crate) mod beat;
pub(crate) mod client;
pub(crate) mod columnar;
pub(crate) mod orders;
pub(crate) mod row;
pub(crate) mod upkeep;

use std::path::PathBuf;
use std::sync::Arc;

use env::{Random, SimDisk, SteadyClock};
use placement::PlacementClient;
use raft::{LogSizes, Machines, StoreConfig, StoreDisk};
use tokio::task::JoinSet;
use types::{NodeId, Result};

use crate::clock::HostClock;
use crate::network::{Caller, Host, Network};
use crate::process::Process;
use crate::store::{Pace, RaftNode};

/// Row nodes that hold placement.
pub(crate) const FIRST_ROWS: u64 = 3;

/// What a host has whatever runs on it.
#[derive(Clone)]
pub(crate) struct Machine {
    pub host: Host,
    pub clock: Arc<HostClock>,
    pub disk: SimDisk,
    pub pace: Arc<Pace>,
    /// Directory of the operating system for names of the Raft log's files.
    pub shadow: PathBuf,
    pub network: Network,
    pub random: Random,
}

/// One life of a node, with what belongs to it. Its tasks end with it.
pub(crate) struct Life {
    pub process: Arc<Process>,
    pub raft: Option<RaftNode>,
    pub placement: PlacementClient,
    pub tasks: JoinSet<()>,
}

impl Life {
    /// Ends the process: nothing of it reaches anybody any more.
    pub(crate) fn end(mut self, network: &Network) {
        self.process.kill();
        network.detach(self.process.host);
        self.tasks.abort_all();
        if let Some(raft) = &self.raft {
            raft.close();
        }
    }
}

impl Machine {
    pub(crate) fn caller(&self, process: &Arc<Process>) -> Arc<Caller> {
        Arc::new(Caller { network: self.network.clone(), process: process.clone() })
    }

    pub(crate) fn placement_client(&self, process: &Arc<Process>) -> PlacementClient {
        let members = (1..=FIRST_ROWS).map(|row| (row, row.to_string()));
        PlacementClient::new(self.caller(process), members)
    }

    /// A clock that does not leap when the machine's is set.
    pub(crate) fn steady(&self) -> Arc<SteadyClock> {
        Arc::new(SteadyClock::new(self.clock.clone()))
    }

    pub(crate) fn raft_node(
        &self,
        process: &Arc<Process>,
        node: NodeId,
        machines: Box<dyn Machines>,
    ) -> Result<RaftNode> {
        let config = StoreConfig {
            seed: self.random.u64(),
            // Short logs, so that snapshots, cuts and purges are part of every history.
            keep_entries: 20,
            keep_entries_for_slow: 120,
            persist_entries: 60,
            compact_ticks: 30,
            ..StoreConfig::new(node)
        };
        env::Disk::create_dir_all(&env::RealDisk, &self.shadow)?;
        let disk = StoreDisk {
            disk: Arc::new(self.disk.clone()),
            log_dir: PathBuf::from("/raft"),
            spool_dir: PathBuf::from("/spool"),
            shadow: Some(self.shadow.clone()),
            sizes: LogSizes { file: 256 << 10, purge: 1 << 20 },
        };
        let port = self.network.port(process.clone());
        RaftNode::open(self.random.fork(), |worker| {
            raft::Store::open(config, disk, machines, port, worker)
        })
    }
}
