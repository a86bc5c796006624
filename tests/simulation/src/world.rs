//! The cluster: its hosts, and their processes as they come and go.
//!
//! It starts, kills and mends; when and what is the business of the faults. What a disk had not synced and an engine had not
//! made durable is lost with every process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::columnar::ColumnarStore;
use env::{Random, SimDisk};
use kv::MemoryKv;
use parking_lot::Mutex;
use placement::PlacementClient;
use placement::state::VOTERS;
use raft::{Groups, PeerStatus};
use tokio::task::JoinSet;
use tokio::time::sleep;
use txn::{RowStore, TxnClient};
use types::{Error, NodeId, Peer, RegionId};

use crate::clock::HostClock;
use crate::history::History;
use crate::ledger::Ledger;
use crate::network::{Caller, Host, Network};
use crate::nodes::client::{self, Ways};
use crate::nodes::{Life, Machine, columnar, row};
use crate::process::{Handlers, Process};
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

struct Running {
    life: Life,
    /// Of clients.
    ways: Option<Ways>,
}

struct Slot {
    machine: Machine,
    kind: Kind,
    kv: MemoryKv,
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
    /// What is going on, to say in which states faults came.
    doing: Mutex<BTreeMap<&'static str, u64>>,
    hosts: Mutex<BTreeMap<Host, Slot>>,
    operator: Mutex<Option<Running>>,
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

/// A row store that has nothing, and whose disk would now and then be waited for.
fn empty_store(random: &Random) -> MemoryKv {
    MemoryKv::often_busy(random.fork(), 0.05)
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
                    history: history.clone(),
                };
                let (kv, running) = (empty_store(&random), None);
                hosts.insert(host, Slot { machine, kind, kv, running, starting: false });
            }
        }
        let world = World {
            history,
            network,
            random,
            ledger: Ledger::default(),
            schemas: Mutex::default(),
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
            // It registers as no node.
            let process = Process::new(machine.host);
            let placement = machine.placement_client(&process);
            let ways = Some(Ways::new(&machine, &process, &placement));
            let life = Life { process, placement, tasks: JoinSet::new() };
            *self.operator.lock() = Some(Running { life, ways });
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
        let Ways { txn, caller } =
            operator.as_ref().and_then(|it| it.ways.clone()).expect("an operator");
        (txn, caller)
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
        Some(hosts.get(&host)?.running.as_ref()?.life.process.clone())
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
        let Running { life, ways } = hosts.get(&host)?.running.as_ref()?;
        let Ways { txn, caller } = ways.clone()?;
        Some((txn, life.placement.clone(), caller, life.process.clone()))
    }

    /// What the processes that run consist of.
    fn parts<T>(&self, part: impl Fn(Handlers) -> Option<T>) -> Vec<(Host, T)> {
        let hosts = self.hosts.lock();
        let parts = hosts.iter().filter_map(|(host, slot)| {
            let handlers = slot.running.as_ref()?.life.process.handlers();
            Some((*host, part(handlers)?))
        });
        parts.collect()
    }

    /// Row stores and columnar stores that are there now.
    pub(crate) fn row_stores(&self) -> Vec<(Host, Arc<RowStore>)> {
        self.parts(|handlers| handlers.rows)
    }

    pub(crate) fn column_stores(&self) -> Vec<(Host, ColumnarStore)> {
        self.parts(|handlers| handlers.tablets)
    }

    /// Raft stores that are there now.
    pub(crate) fn rafts(&self) -> Vec<(Host, RaftNode)> {
        self.parts(|handlers| handlers.raft)
    }

    /// Row nodes that know who they are.
    pub(crate) fn row_nodes(&self) -> Vec<NodeId> {
        let rows = self.hosts(Kind::Rows).into_iter();
        rows.filter_map(|host| self.process(host)?.node.get().copied()).collect()
    }

    /// Whether every region would go on without what a host has, and without any other disk's help: all
    /// that its other voters should hold is there.
    pub(crate) fn can_spare(&self, host: Host) -> bool {
        let statuses = self.statuses();
        let others = || self.hosts(Kind::Rows).into_iter().filter(|other| *other != host);
        let regions: BTreeSet<RegionId> = statuses.iter().map(|(_, it)| it.region.id).collect();
        let whole = |region: RegionId| {
            let Some((_, leader)) = self.leader(region) else { return false };
            let holds = |peer: &Peer| {
                let mut held = statuses.iter().filter(|(_, it)| it.region.id == region);
                held.any(|(at, it)| it.peer.id == peer.id && (it.ready || *at == host))
            };
            leader.region.voters().count() >= VOTERS && leader.region.voters().all(holds)
        };
        others().all(|other| self.is_up(other)) && regions.into_iter().all(whole)
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
            let down = |(host, slot): (&Host, &Slot)| *host != OPERATOR && slot.running.is_none();
            if hosts.iter().any(down) {
                state.push("node down");
            }
            if hosts.values().flat_map(|slot| &slot.running).any(|r| r.life.process.is_paused()) {
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
        gone.life.end(&self.network);
    }

    /// Takes a dead host's disk away: what starts there next has nothing.
    pub(crate) fn empty(&self, host: Host) {
        let mut hosts = self.hosts.lock();
        if let Some(slot) = hosts.get_mut(&host)
            && slot.running.is_none()
        {
            slot.machine.disk = SimDisk::new();
            slot.kv = empty_store(&self.random);
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
            world.start(host);
        });
    }

    fn start(self: &Arc<Self>, host: Host) {
        let found = {
            let hosts = self.hosts.lock();
            hosts.get(&host).map(|slot| (slot.machine.clone(), slot.kind, slot.kv.clone()))
        };
        let Some((machine, kind, kv)) = found else { return };
        let process = Process::new(host);
        let placement = machine.placement_client(&process);
        let ways = (kind == Kind::Client).then(|| Ways::new(&machine, &process, &placement));
        let mut tasks = JoinSet::new();
        let (world, life, ways_of_it) =
            (self.clone(), (process.clone(), placement.clone()), ways.clone());
        tasks.spawn(async move {
            let (process, placement) = life;
            let mine = process.clone();
            let ended = match (kind, ways_of_it) {
                (Kind::Rows, _) => row::run(machine, kv, process, placement).await,
                (_, Some(ways)) => client::run(machine, process, placement, ways.txn).await,
                _ => columnar::run(machine, process, placement).await,
            };
            if let Err(error) = ended {
                world.ended(&mine, &error);
            }
        });
        self.history.event("started", &[host]);
        if let Some(slot) = self.hosts.lock().get_mut(&host) {
            slot.running = Some(Running { life: Life { process, placement, tasks }, ways });
            slot.starting = false;
        }
    }

    /// A process has come to its end by itself: somebody starts it again.
    fn ended(self: &Arc<Self>, process: &Arc<Process>, error: &Error) {
        let host = process.host;
        if !self.process(host).is_some_and(|now| Arc::ptr_eq(&now, process)) {
            return;
        }
        self.history.event(&format!("ended {error}"), &[host]);
        let down = self.machine(host).is_some_and(|machine| machine.disk.is_down());
        // A full or failing disk, or that nobody answers, is in its way for a while; anything else is for good.
        let for_good = matches!(error, Error::Revoked(_) | Error::Invalid(_) | Error::Corrupt(_));
        if for_good && !down {
            self.history.fail(format!("host {host} ended: {error}"));
        }
        self.kill(host);
        self.start_later(host, Duration::from_millis(20 + self.random.below(1_000)));
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
