//! The nodes of the cluster, wired together as `isobar`'s own are, over simulated parts.
//!
//! Nothing is decided here that a crate decides.

pub(crate) mod client;
pub(crate) mod columnar;
pub(crate) mod heartbeat;
pub(crate) mod orders;
pub(crate) mod row;
pub(crate) mod upkeep;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use env::{Random, SimDisk, SteadyClock};
use placement::PlacementClient;
use placement::api::{Node, NodeRole};
use placement::entry::{Entry, Me};
use placement::identity::Directories;
use placement::participant::Participant;
use raft::{LogSizes, Machines, Participation, StoreConfig, StoreDisk};
use tokio::task::JoinSet;
use types::Result;

use crate::clock::HostClock;
use crate::history::History;
use crate::network::{Caller, Host, Network};
use crate::process::{Handlers, Process};
use crate::store::{Pace, RaftNode};

/// Row nodes that hold placement.
pub(crate) const FIRST_ROWS: u64 = 3;

/// Directories of a node on its host's disk.
const DATA: &str = "/data";
const LOG: &str = "/raft";
/// Names below the data directory.
const ROWS: &str = "rows";
const COLUMNS: &str = "columns";
const SPOOL: &str = "spool";

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
    pub history: History,
}

/// One life of a node, with what belongs to it. Its tasks end with it.
pub(crate) struct Life {
    pub process: Arc<Process>,
    pub placement: PlacementClient,
    pub tasks: JoinSet<()>,
}

/// A node that knows who it is.
pub(crate) struct Member {
    pub entry: Entry,
    pub me: Me,
    pub participant: Arc<Participant>,
}

impl Life {
    /// Ends the process: nothing of it reaches anybody any more.
    pub(crate) fn end(mut self, network: &Network) {
        let raft = self.process.handlers().raft;
        self.process.kill();
        network.detach(self.process.host);
        self.tasks.abort_all();
        if let Some(raft) = raft {
            raft.close();
        }
    }
}

impl Member {
    /// As it is reported to placement.
    pub(crate) fn described(&self, host: Host) -> Node {
        let address = host.to_string();
        let client_address = match self.entry.role {
            NodeRole::Row => String::new(),
            _ => address.clone(),
        };
        let role = self.entry.role;
        Node { id: self.me.node, role, rpc_address: address, client_address }
    }
}

impl Machine {
    /// Who a process is: as its host's disk says, or as a new node.
    pub(crate) async fn establish(
        &self,
        role: NodeRole,
        process: &Arc<Process>,
        placement: &PlacementClient,
    ) -> Result<Member> {
        let participant = Arc::new(self.participant(role)?);
        process.serve(Handlers { participant: Some(participant.clone()), ..Handlers::default() });
        self.network.attach(process.clone());
        let entry = Entry {
            role,
            label: (role == NodeRole::Row).then_some(self.host),
            listed: (1..=FIRST_ROWS).map(|row| (row, row.to_string())).collect(),
            members: self.caller(process),
            placement: placement.clone(),
            random: self.random.fork(),
        };
        let me = entry.establish(&participant).await?;
        self.network.locate(me.node, self.host);
        self.history.event("stands for", &[self.host, me.node, me.session.boot]);
        // Set once, here.
        let _ = process.node.set(me.node);
        Ok(Member { entry, me, participant })
    }

    fn participant(&self, role: NodeRole) -> Result<Participant> {
        let (log, contents): (Option<&Path>, &[&str]) = match role {
            NodeRole::Row => (Some(Path::new(LOG)), &[ROWS, SPOOL]),
            NodeRole::Columnar => (Some(Path::new(LOG)), &[COLUMNS, SPOOL]),
            NodeRole::Sql => (None, &[]),
        };
        let disk = Arc::new(self.disk.clone());
        let directories = Directories::new(disk, Path::new(DATA), log, contents);
        let label = if role == NodeRole::Row { self.host } else { 0 };
        Participant::open(directories, label, (1..=FIRST_ROWS).collect(), self.random.u64())
    }

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
        me: &Me,
        machines: Box<dyn Machines>,
    ) -> Result<RaftNode> {
        let config = StoreConfig {
            seed: self.random.u64(),
            session: raft::Session { boot: me.session.boot, id: me.session.id },
            participation: match me.identity.committed_plan() {
                // There is nobody yet to register with.
                Some(_) => Participation::Placement,
                None => Participation::None,
            },
            // Short logs, so that snapshots, cuts and purges are part of every history.
            keep_entries: 20,
            keep_entries_for_slow: 120,
            persist_entries: 60,
            compact_ticks: 30,
            // So that groups are often asleep when something happens to them.
            sleep_ticks: 6,
            ..StoreConfig::new(me.node)
        };
        env::Disk::create_dir_all(&env::RealDisk, &self.shadow)?;
        let disk = StoreDisk {
            disk: Arc::new(self.disk.clone()),
            log_dir: PathBuf::from(LOG),
            spool_dir: Path::new(DATA).join(SPOOL),
            shadow: Some(self.shadow.clone()),
            sizes: LogSizes { file: 256 << 10, purge: 1 << 20, ahead: 8 << 10 },
        };
        let port = self.network.port(process.clone());
        RaftNode::open(self.random.fork(), self.pace.clone(), |worker| {
            raft::Store::open(config, disk, machines, port, worker)
        })
    }
}
