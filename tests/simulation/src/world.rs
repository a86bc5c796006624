//! The cluster: its hosts, and their processes as they come and go.
//!
//! It starts, kills and mends; when and what is the business of the faults. What a disk had not synced and an engine had not
//! made durable is lost with every process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::columnar::ColumnarStore;
use env::{Random, SimDisk};
use kv::MemoryKv;
use parking_lot::Mutex;
use placement::PlacementClient;
use raft::{Groups, PeerStatus};
use tokio::time::sleep;
use txn::{RowStore, TxnClient};
use types::{NodeId, RegionId, Timestamp};

use crate::clock::HostClock;
use crate::history::History;
use crate::ledger::Ledger;
use crate::network::{Caller, Host, Network};
use crate::nodes::{Life, Machine, client, columnar, row};
use crate::process::Process;
use crate::store::{Pace, RaftNode};
use crate::table::Schemas;

/// Hosts of row nodes are numbered from 1, those of the others from here.
pub(crate) const FIRST_COLUMNS: Host = 11;
pub(crate) const FIRST_CLIENT: Host = 21;
/// Who sets the cluster up and looks at it in the end; no fault meets it.
pub(crate) const OPERATOR: Host = 99;

/// What a host runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows,
    Columns,
    Client,
}

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub rows: u64,
    pub columns: u64,
    pub clients: u64,
}

enum Running {
    Rows(row::Started),
    Columns(columnar::Started),
    Client(client::Started),
}

struct Slot {
    machine: Machine,
    kind: Kind,
    kv: MemoryKv,
    /// A client's number; other nodes keep theirs with their data.
    node: Option<NodeId>,
    running: Option<Running>,
    /// Somebody is about to start it.
    starting: bool,
}

/// The cluster.
pub(crate) struct World {
    pub history: History,
    pub network: Network,
    pub random: Random,
    pub ledger: Ledger,
    pub schemas: Mutex<Schemas>,
    /// The greatest timestamp that any region was seen to be collected to.
    floor: Mutex<Timestamp>,
    /// What is going on, to say in which states faults came.
    doing: Mutex<BTreeMap<&'static str, u64>>,
    hosts: Mutex<BTreeMap<Host, Slot>>,
    operator: Mutex<Option<client::Started>>,
    _root: tempfile::TempDir,
}

/// Something goes on until this is dropped.
pub(crate) struct Doing {
    world: Arc<World>,
    what: &'static str,
}

impl Drop for Doing {
    fn drop(&mut self) {
        if let Some(count) = self.world.doing.lock().get_mut(self.what) {
            *count -= 1;
        }
    }
}

impl Running {
    fn life(&self) -> &Life {
        match self {
            Running::Rows(started) => &started.life,
            Running::Columns(started) => &started.life,
            Running::Client(started) => &started.life,
        }
    }

    fn into_life(self) -> Life {
        match self {
            Running::Rows(started) => started.life,
            Running::Columns(started) => started.life,
            Running::Client(started) => started.life,
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, shape: Shape, history: History) -> std::io::Result<Arc<Self>> {
        let root = tempfile::tempdir()?;
        history.leave_out(root.path());
        let random = Random::seeded(seed);
        let network = Network::new(random.fork(), history.clone());
        let mut hosts = BTreeMap::new();
        let kinds = [
            (Kind::Rows, 1, shape.rows),
            (Kind::Columns, FIRST_COLUMNS, shape.columns),
            (Kind::Client, FIRST_CLIENT, shape.clients),
            (Kind::Client, OPERATOR, 1),
        ];
        for (kind, first, count) in kinds {
            for host in first..first + count {
                let machine = Machine {
                    host,
                    clock: Arc::new(HostClock::new(random.below(20_000) as i64 - 10_000)),
                    disk: SimDisk::new(),
                    pace: Arc::new(Pace::default()),
                    shadow: root.path().join(format!("host-{host}")),
                    network: network.clone(),
                    random: random.fork(),
                };
                let (kv, node, running) = (MemoryKv::new(), None, None);
                hosts.insert(host, Slot { machine, kind, kv, node, running, starting: false });
            }
        }
        let world = World {
            history,
            network,
            random,
            ledger: Ledger::default(),
            schemas: Mutex::default(),
            floor: Mutex::default(),
            doing: Mutex::default(),
            hosts: Mutex::new(hosts),
            operator: Mutex::default(),
            _root: root,
        };
        world.start_operator();
        Ok(Arc::new(world))
    }

    fn start_operator(&self) {
        let machine = self.hosts.lock().get(&OPERATOR).map(|slot| slot.machine.clone());
        if let Some(machine) = machine {
            // It registers as no node that anybody counts on.
            *self.operator.lock() = Some(client::start(&machine, None));
        }
    }

    /// Placement, as the operator asks it.
    pub(crate) fn placement(&self) -> PlacementClient {
        let operator = self.operator.lock();
        #[allow(clippy::expect_used, reason = "it starts with the world")]
        operator.as_ref().expect("an operator").life.placement.clone()
    }

    /// Transactions and row nodes, as the operator asks them.
    pub(crate) fn operator(&self) -> (TxnClient, Arc<Caller>) {
        let operator = self.operator.lock();
        #[allow(clippy::expect_used, reason = "it starts with the world")]
        let started = operator.as_ref().expect("an operator");
        (started.txn.clone(), started.caller.clone())
    }

    /// Something begins.
    pub(crate) fn doing(self: &Arc<Self>, what: &'static str) -> Doing {
        *self.doing.lock().entry(what).or_default() += 1;
        Doing { world: self.clone(), what }
    }

    pub(crate) fn hosts(&self, kind: Kind) -> Vec<Host> {
        let hosts = self.hosts.lock();
        let of_kind = hosts.iter().filter(|(host, slot)| slot.kind == kind && **host != OPERATOR);
        of_kind.map(|(host, _)| *host).collect()
    }

    pub(crate) fn machine(&self, host: Host) -> Option<Machine> {
        self.hosts.lock().get(&host).map(|slot| slot.machine.clone())
    }

    pub(crate) fn process(&self, host: Host) -> Option<Arc<Process>> {
        let hosts = self.hosts.lock();
        Some(hosts.get(&host)?.running.as_ref()?.life().process.clone())
    }

    pub(crate) fn is_up(&self, host: Host) -> bool {
        self.process(host).is_some()
    }

    /// A client's way into the cluster, while it lives.
    pub(crate) fn client(
        &self,
        host: Host,
    ) -> Option<(TxnClient, PlacementClient, Arc<Caller>, Arc<Process>)> {
        let hosts = self.hosts.lock();
        match hosts.get(&host)?.running.as_ref()? {
            Running::Client(started) => Some((
                started.txn.clone(),
                started.life.placement.clone(),
                started.caller.clone(),
                started.life.process.clone(),
            )),
            _ => None,
        }
    }

    /// Row stores and columnar stores that are there now.
    pub(crate) fn row_stores(&self) -> Vec<(Host, Arc<RowStore>)> {
        let hosts = self.hosts.lock();
        let stores = hosts.iter().filter_map(|(host, slot)| match slot.running.as_ref()? {
            Running::Rows(started) => Some((*host, started.rows.clone())),
            _ => None,
        });
        stores.collect()
    }

    pub(crate) fn column_stores(&self) -> Vec<(Host, ColumnarStore)> {
        let hosts = self.hosts.lock();
        let stores = hosts.iter().filter_map(|(host, slot)| match slot.running.as_ref()? {
            Running::Columns(started) => Some((*host, started.columns.clone())),
            _ => None,
        });
        stores.collect()
    }

    /// How far old versions were collected in any region, as far as was seen.
    pub(crate) fn floor(&self) -> Timestamp {
        let stores = self.row_stores().into_iter();
        let views = stores.flat_map(|(_, store)| store.regions());
        let now = views.map(|view| view.floors.read).max().unwrap_or_default();
        let mut floor = self.floor.lock();
        *floor = now.max(*floor);
        *floor
    }

    /// Raft stores that are there now.
    pub(crate) fn rafts(&self) -> Vec<(Host, RaftNode)> {
        let hosts = self.hosts.lock();
        let rafts = hosts
            .iter()
            .filter_map(|(host, slot)| Some((*host, slot.running.as_ref()?.life().raft.clone()?)));
        rafts.collect()
    }

    pub(crate) fn statuses(&self) -> Vec<(Host, PeerStatus)> {
        let all = self
            .rafts()
            .into_iter()
            .flat_map(|(host, raft)| raft.statuses().into_iter().map(move |status| (host, status)));
        all.collect()
    }

    /// The peer that leads a region and may decide, in the highest term.
    pub(crate) fn leader(&self, region: RegionId) -> Option<(RaftNode, PeerStatus)> {
        let led = self.rafts().into_iter().filter_map(|(_, raft)| {
            let status = raft.status(region).filter(|status| status.decides)?;
            Some((raft, status))
        });
        led.max_by_key(|(_, status)| status.term)
    }

    /// What the system is doing right now.
    pub(crate) fn state(&self) -> Vec<&'static str> {
        let mut state = Vec::new();
        {
            let hosts = self.hosts.lock();
            if hosts.values().any(|slot| slot.running.is_none()) {
                state.push("node down");
            }
            if hosts.values().flat_map(|slot| &slot.running).any(|r| r.life().process.is_paused()) {
                state.push("node hung");
            }
        }
        if !self.network.is_whole() {
            state.push("links cut");
        }
        if self.network.snapshots_under_way() > 0 {
            state.push("snapshot sent");
        }
        let statuses = self.statuses();
        let led = |id| statuses.iter().any(|(_, it)| it.region.id == id && it.decides);
        if statuses.iter().any(|(_, status)| !led(status.region.id)) {
            state.push("no leader");
        }
        if statuses.iter().any(|(_, status)| !status.ready) {
            state.push("replica filling");
        }
        let doing = self.doing.lock();
        state.extend(doing.iter().filter(|(_, count)| **count > 0).map(|(what, _)| *what));
        if state.is_empty() {
            state.push("calm");
        }
        state
    }

    /// Kills a process: its memory is gone, and what its disk and engine had not made durable.
    pub(crate) fn kill(&self, host: Host) {
        let seed = self.random.u64();
        let gone = {
            let mut hosts = self.hosts.lock();
            let Some(slot) = hosts.get_mut(&host) else { return };
            let Some(running) = slot.running.take() else { return };
            // The disk goes first, so that nothing is written on the way out.
            slot.machine.disk.crash(seed);
            slot.kv = slot.kv.crash(seed);
            running
        };
        self.history.event("killed", &[host]);
        gone.into_life().end(&self.network);
    }

    /// Takes a dead host's disk away: what starts there next has nothing.
    pub(crate) fn empty(&self, host: Host) {
        let mut hosts = self.hosts.lock();
        if let Some(slot) = hosts.get_mut(&host)
            && slot.running.is_none()
        {
            slot.machine.disk = SimDisk::new();
            slot.kv = MemoryKv::new();
            self.history.event("emptied", &[host]);
        }
    }

    /// Starts a host's process unless it runs, after a while.
    pub(crate) fn start_later(self: &Arc<Self>, host: Host, after: Duration) {
        {
            let mut hosts = self.hosts.lock();
            let Some(slot) = hosts.get_mut(&host) else { return };
            if slot.running.is_some() || std::mem::replace(&mut slot.starting, true) {
                return;
            }
        }
        let world = self.clone();
        tokio::spawn(async move {
            sleep(after).await;
            while !world.try_start(host).await {
                sleep(Duration::from_millis(20)).await;
            }
            if let Some(slot) = world.hosts.lock().get_mut(&host) {
                slot.starting = false;
            }
        });
    }

    async fn number(&self, host: Host, machine: &Machine, kind: Kind) -> Option<NodeId> {
        let known = match kind {
            Kind::Rows => return Some(host),
            Kind::Columns => columnar::identity(machine),
            Kind::Client => Ok(self.hosts.lock().get(&host).and_then(|slot| slot.node)),
        };
        if let Some(node) = known.ok()? {
            return Some(node);
        }
        let node = self.placement().ids(1).await.ok()?;
        match kind {
            Kind::Columns => columnar::identify(machine, node).ok()?,
            _ => {
                let mut hosts = self.hosts.lock();
                hosts.get_mut(&host)?.node = Some(node);
            }
        }
        Some(node)
    }

    /// One try to start; a disk that goes down meanwhile is a crash within recovery.
    async fn try_start(&self, host: Host) -> bool {
        let found = {
            let hosts = self.hosts.lock();
            hosts.get(&host).map(|slot| (slot.machine.clone(), slot.kind, slot.kv.clone()))
        };
        let Some((machine, kind, kv)) = found else { return true };
        let Some(node) = self.number(host, &machine, kind).await else {
            self.recover_disk(host);
            return false;
        };
        let started = match kind {
            Kind::Rows => row::start(&machine, kv).map(Running::Rows),
            Kind::Columns => columnar::start(&machine, node).map(Running::Columns),
            Kind::Client => Ok(Running::Client(client::start(&machine, Some(node)))),
        };
        match started {
            Ok(running) => {
                self.history.event("started", &[host, node]);
                if let Some(slot) = self.hosts.lock().get_mut(&host) {
                    slot.running = Some(running);
                }
                true
            }
            Err(error) => {
                self.network.detach(host);
                // A full or failing disk is in its way for a while; anything else is for good.
                if !machine.disk.is_down() && !matches!(error, types::Error::Io(_)) {
                    self.history.fail(format!("host {host} does not start: {error}"));
                }
                self.recover_disk(host);
                false
            }
        }
    }

    fn recover_disk(&self, host: Host) {
        let seed = self.random.u64();
        let mut hosts = self.hosts.lock();
        if let Some(slot) = hosts.get_mut(&host)
            && slot.machine.disk.is_down()
        {
            slot.machine.disk.crash(seed);
            slot.kv = slot.kv.crash(seed);
        }
    }

    /// Ends processes whose disk has gone down, and has them started again.
    pub(crate) async fn watch_disks(self: Arc<Self>) {
        loop {
            sleep(Duration::from_millis(5)).await;
            let down: Vec<Host> = {
                let hosts = self.hosts.lock();
                let down = hosts
                    .iter()
                    .filter(|(_, slot)| slot.running.is_some() && slot.machine.disk.is_down());
                down.map(|(host, _)| *host).collect()
            };
            for host in down {
                self.kill(host);
                self.start_later(host, Duration::from_millis(20 + self.random.below(3_000)));
            }
        }
    }

    /// Ends everything, so that nothing keeps anything alive.
    pub(crate) fn end(&self) {
        let hosts: Vec<Host> = self.hosts.lock().keys().copied().collect();
        hosts.into_iter().for_each(|host| self.kill(host));
        if let Some(operator) = self.operator.lock().take() {
            operator.life.end(&self.network);
        }
        self.network.clear();
    }
}
