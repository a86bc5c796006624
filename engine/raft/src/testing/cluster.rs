//! A cluster in one thread. One seed gives one history.
//!
//! Time goes in steps of a tenth of a tick; messages take one step or more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::{Random, SimDisk};
use parking_lot::Mutex;
use types::{Error, NodeId, Peer, PeerId, Region, RegionId, Result};

use crate::config::{Participation, StoreConfig};
use crate::groups::{Groups, PeerStatus, Pending};
use crate::log::{LogSizes, RaftLog};
use crate::machine::{Machines, Position};
use crate::reply::{at_once, reply_channel};
use crate::store::{Store, StoreDisk};
use crate::testing::wire::{Parcel, Wire};
use crate::work::{Inline, Job, Returned, Worker, Writing};

/// Steps in a tick.
const STEPS: u64 = 10;
/// Rounds that one step has work for at most: a store that goes on has nothing to wait for, and waits for it.
const MAX_ROUNDS: u64 = 1_000;

/// Makes the machines of a node, at its first start and after each crash.
pub type MachineMaker = Box<dyn Fn(NodeId) -> Box<dyn Machines> + Send>;

/// How a simulated cluster behaves.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// Nodes, numbered from 1.
    pub nodes: u64,
    /// Decides everything that is random.
    pub seed: u64,
    /// Share of messages that get lost, 0 to 1.
    pub loss: f64,
    /// Tenths of a tick that a message takes at most.
    pub max_delay: u64,
    /// Tenths of a tick that taking over a snapshot or persisting takes at most; 0 does it at once.
    pub max_work: u64,
    /// Tenths of a tick that a write of the log takes at most; 0 does it at once.
    pub max_write: u64,
    /// Bytes that files of the log are filled ahead.
    pub ahead: u64,
    /// Settings of every store; `node` and `seed` are filled in.
    pub config: StoreConfig,
}

impl Default for SimOptions {
    fn default() -> Self {
        let config = StoreConfig::new(0);
        SimOptions {
            nodes: 3,
            seed: 0,
            loss: 0.0,
            max_delay: 1,
            max_work: 0,
            max_write: 0,
            ahead: 0,
            config,
        }
    }
}

struct Node {
    disk: SimDisk,
    store: Arc<Mutex<Option<Store>>>,
    bench: Bench,
}

/// Jobs that take their time.
#[derive(Clone)]
struct Bench(Arc<Mutex<Jobs>>);

struct Jobs {
    random: Random,
    max_work: u64,
    max_write: u64,
    /// What a write of the log takes exactly, instead.
    exact_write: Option<u64>,
    /// What other work takes exactly, instead.
    exact_work: Option<u64>,
    /// With the steps left until each is done.
    jobs: Vec<(u64, Job)>,
    /// The write of the log that is under way.
    writing: Option<(u64, Writing)>,
}

impl Bench {
    fn new(random: Random, options: &SimOptions) -> Self {
        let (max_work, max_write) = (options.max_work, options.max_write);
        let (exact_write, exact_work) = (None, None);
        let (jobs, writing) = (Vec::new(), None);
        let jobs = Jobs { random, max_work, max_write, exact_write, exact_work, jobs, writing };
        Bench(Arc::new(Mutex::new(jobs)))
    }

    /// A step passes: writes the log if that is due.
    fn step_writing(&self) -> Option<Writing> {
        let mut bench = self.0.lock();
        if let Some((left, _)) = &mut bench.writing {
            *left = left.saturating_sub(1);
        }
        bench.writing.take_if(|(left, _)| *left == 0).map(|(_, writing)| writing.run())
    }

    /// The node is gone.
    fn forget(&self) {
        let mut bench = self.0.lock();
        bench.jobs.clear();
        bench.writing = None;
    }

    /// A step passes: does what is due.
    fn step(&self) -> Vec<Returned> {
        let mut bench = self.0.lock();
        for (left, _) in &mut bench.jobs {
            *left = left.saturating_sub(1);
        }
        let due: Vec<_> = bench.jobs.extract_if(.., |(left, _)| *left == 0).collect();
        drop(bench);
        due.into_iter().map(|(_, job)| job.run()).collect()
    }
}

impl Worker for Bench {
    fn run(&mut self, job: Job) -> Option<Returned> {
        let mut bench = self.0.lock();
        let left = match (bench.exact_work, bench.max_work) {
            (Some(0), _) | (None, 0) => {
                drop(bench);
                return Some(job.run());
            }
            (Some(exact), _) => exact,
            (None, max) => 1 + bench.random.below(max),
        };
        bench.jobs.push((left, job));
        None
    }

    fn write(&mut self, writing: Writing) -> Option<Writing> {
        let mut bench = self.0.lock();
        let left = match (bench.exact_write, bench.max_write) {
            (Some(0), _) | (None, 0) => {
                drop(bench);
                return Some(writing.run());
            }
            (Some(exact), _) => exact,
            (None, max) => 1 + bench.random.below(max),
        };
        assert!(bench.writing.is_none(), "one write at a time");
        bench.writing = Some((left, writing));
        None
    }

    fn purge(&mut self, log: &Arc<RaftLog>) -> Option<Vec<RegionId>> {
        Inline.purge(log)
    }
}

/// A cluster in one thread.
pub struct SimCluster {
    options: SimOptions,
    root: PathBuf,
    machines: MachineMaker,
    random: Random,
    wire: Wire,
    nodes: BTreeMap<NodeId, Node>,
    steps: u64,
}

impl SimCluster {
    /// Starts a cluster without regions. `root` is an empty directory of the operating system;
    /// only names of log files are kept there.
    pub fn start(options: SimOptions, root: &Path, machines: MachineMaker) -> Result<Self> {
        let random = Random::seeded(options.seed);
        let wire = Wire::new(random.fork(), options.loss, options.max_delay);
        let mut cluster = SimCluster {
            root: root.to_owned(),
            machines,
            random,
            wire,
            nodes: BTreeMap::new(),
            steps: 0,
            options,
        };
        for node in 1..=cluster.options.nodes {
            let store = Arc::new(Mutex::new(None));
            let bench = Bench::new(cluster.random.fork(), &cluster.options);
            cluster.nodes.insert(node, Node { disk: SimDisk::new(), store, bench });
            cluster.restart(node)?;
        }
        Ok(cluster)
    }

    /// Starts a node that is down.
    pub fn restart(&mut self, node: NodeId) -> Result<()> {
        let machines = (self.machines)(node);
        let disk = self.store_disk(node)?;
        let config = StoreConfig { node, seed: self.options.seed, ..self.options.config.clone() };
        let found = self.node(node)?;
        let port = self.wire.port(node);
        let store = Store::open(config, disk, machines, port, Box::new(found.bench.clone()))?;
        *found.store.lock() = Some(store);
        Ok(())
    }

    /// Where a node's store keeps its log, to look at it while the node is down.
    pub fn store_disk(&self, node: NodeId) -> Result<StoreDisk> {
        let shadow = self.root.join(format!("node-{node}"));
        env::Disk::create_dir_all(&env::RealDisk, &shadow)?;
        Ok(StoreDisk {
            disk: Arc::new(self.node(node)?.disk.clone()),
            log_dir: PathBuf::from("/raft"),
            spool_dir: PathBuf::from("/spool"),
            shadow: Some(shadow),
            sizes: LogSizes { file: 256 << 10, purge: 1 << 20, ahead: self.options.ahead },
        })
    }

    /// Lets a node that runs take part in these groups from now on.
    pub fn participate(&mut self, node: NodeId, participation: Participation) -> Result<()> {
        if let Some(store) = self.node(node)?.store.lock().as_mut() {
            store.participate(participation);
        }
        Ok(())
    }

    /// Kills a node: its memory and what its disk had not synced are gone.
    pub fn crash(&mut self, node: NodeId) -> Result<()> {
        let seed = self.random.u64();
        let found = self.node(node)?;
        // The disk goes first, so that nothing is written on the way out.
        found.disk.crash(seed);
        *found.store.lock() = None;
        found.bench.forget();
        self.wire.forget(node);
        Ok(())
    }

    /// Whether a node runs.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.store.lock().is_some())
    }

    /// A node's disk, to fail or fill it.
    pub fn disk(&self, node: NodeId) -> Result<SimDisk> {
        Ok(self.node(node)?.disk.clone())
    }

    /// From now on a node's writes of the log take so many ticks each.
    pub fn set_write_time(&self, node: NodeId, ticks: u64) -> Result<()> {
        self.node(node)?.bench.0.lock().exact_write = Some(ticks * STEPS);
        Ok(())
    }

    /// From now on what a node does apart takes so many ticks each.
    pub fn set_work_time(&self, node: NodeId, ticks: u64) -> Result<()> {
        self.node(node)?.bench.0.lock().exact_work = Some(ticks * STEPS);
        Ok(())
    }

    /// A node's groups.
    pub fn groups(&self, node: NodeId) -> Result<SimGroups> {
        Ok(SimGroups { store: self.node(node)?.store.clone() })
    }

    /// Nodes, ascending.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// Ticks since the start.
    pub fn ticks(&self) -> u64 {
        self.steps / STEPS
    }

    /// Messages sent since the start.
    pub fn messages_sent(&self) -> u64 {
        self.wire.sent()
    }

    /// Messages sent since the start that might have waited.
    pub fn messages_that_may_wait(&self) -> u64 {
        self.wire.unhurried()
    }

    /// Separates the nodes named from all others, or joins all with none named.
    pub fn partition(&self, away: &[NodeId]) {
        self.wire.set_sides(away.iter().map(|node| (*node, 1)).collect());
    }

    /// Drops or restores messages of one direction.
    pub fn set_link(&self, from: NodeId, to: NodeId, up: bool) {
        self.wire.set_link(from, to, up);
    }

    /// Sets the share of messages that get lost.
    pub fn set_loss(&self, loss: f64) {
        self.wire.set_loss(loss);
    }

    /// A tenth of a tick passes.
    pub fn step(&mut self) {
        self.steps += 1;
        for (to, parcel) in self.wire.arrivals(self.steps) {
            if let Some(node) = self.nodes.get(&to)
                && let Some(store) = node.store.lock().as_mut()
            {
                deliver(&self.wire, store, parcel);
            }
        }
        for (id, node) in &self.nodes {
            if let Some(store) = node.store.lock().as_mut() {
                // Clocks of different nodes are not in step.
                if (self.steps + id * 3).is_multiple_of(STEPS) {
                    store.tick();
                }
                for returned in node.bench.step() {
                    store.returned(returned);
                }
                if let Some(writing) = node.bench.step_writing() {
                    store.written(writing);
                }
                let mut rounds = 0;
                while store.drive() {
                    rounds += 1;
                    assert!(rounds < MAX_ROUNDS, "the store of node {id} goes round without end");
                }
            }
        }
    }

    /// Ticks pass.
    pub fn run(&mut self, ticks: u64) {
        for _ in 0..ticks * STEPS {
            self.step();
        }
    }

    /// Time passes until `done`, for `ticks` at most. Returns whether it came to that.
    pub fn run_until(&mut self, ticks: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        for _ in 0..ticks * STEPS {
            if done(self) {
                return true;
            }
            self.step();
        }
        done(self)
    }

    /// The node whose peer leads a region and may decide, in the highest term.
    pub fn leader(&self, region: RegionId) -> Option<NodeId> {
        let status = |id: &NodeId| Some((*id, self.groups(*id).ok()?.status(region)?));
        self.nodes
            .keys()
            .filter_map(status)
            .filter(|(_, status)| status.decides)
            .max_by_key(|(_, status)| status.term)
            .map(|(id, _)| id)
    }

    /// Creates a region on each of its voters that is up.
    pub fn create(&mut self, region: &Region) -> Result<()> {
        for voter in region.voters() {
            drop(self.groups(voter.node)?.create(region.clone()));
        }
        Ok(())
    }

    fn node(&self, node: NodeId) -> Result<&Node> {
        self.nodes.get(&node).ok_or_else(|| Error::not_found("node", node.to_string()))
    }
}

fn deliver(wire: &Wire, store: &mut Store, parcel: Parcel) {
    match parcel {
        Parcel::Message(envelope) => store.receive(vec![envelope]),
        Parcel::Arrived(report) => report.arrived(),
        Parcel::Snapshot { header, chunks, report } => {
            let (from, to) = (header.from.node, header.to.node);
            let spooled = store.spool(header).and_then(|mut spool| {
                chunks.into_iter().try_for_each(|chunk| spool.push(chunk))?;
                spool.finish()
            });
            // What cannot be spooled fails at the sender, who tries again.
            if let Ok(spooled) = spooled {
                wire.post(to, from, Parcel::Arrived(report));
                store.receive_snapshot(spooled);
            }
        }
    }
}

/// The groups of a simulated node; requests are taken at once and answered as time passes.
#[derive(Clone)]
pub struct SimGroups {
    store: Arc<Mutex<Option<Store>>>,
}

impl SimGroups {
    /// The groups of a store that somebody else drives; requests fail while there is none.
    pub fn over(store: Arc<Mutex<Option<Store>>>) -> Self {
        SimGroups { store }
    }

    fn with<T: Send + 'static>(&self, call: impl FnOnce(&mut Store) -> Pending<T>) -> Pending<T> {
        match self.store.lock().as_mut() {
            Some(store) => call(store),
            None => at_once(Err(Error::Unavailable("the node is down".to_owned()))),
        }
    }
}

impl Groups for SimGroups {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        self.store.lock().as_ref()?.status(region)
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.store.lock().as_ref().map(Store::statuses).unwrap_or_default()
    }

    fn has_slow_disk(&self) -> bool {
        let board = self.store.lock().as_ref().map(Store::board);
        board.is_some_and(|board| board.slow_disk.load(Ordering::Relaxed))
    }

    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        let (reply, pending) = reply_channel("a proposal");
        self.with(|store| {
            store.propose(region, term, data, reply);
            pending
        })
    }

    fn read_index(&self, region: RegionId) -> Pending<u64> {
        let (reply, pending) = reply_channel("a read index");
        self.with(|store| match store.board().applied_alone(region) {
            Some(applied) => at_once(Ok(applied)),
            None => {
                store.read_index(region, reply);
                pending
            }
        })
    }

    fn confirm(&self, region: RegionId, term: u64) -> Option<Pending<()>> {
        let board = self.store.lock().as_ref().map(Store::board)?;
        board.confirm(region, term)
    }

    fn confirm_all(&self, groups: &[(RegionId, u64)]) -> Vec<Option<Pending<()>>> {
        match self.store.lock().as_ref().map(Store::board) {
            Some(board) => board.confirm_all(groups),
            None => groups.iter().map(|_| None).collect(),
        }
    }

    fn reached(&self, region: RegionId, index: u64) -> Pending<()> {
        let (reply, pending) = reply_channel("a log entry to be applied");
        self.with(|store| {
            store.reached(region, index, reply);
            pending
        })
    }

    fn change_membership(&self, region: RegionId, peers: Vec<Peer>) -> Pending<Region> {
        let (reply, pending) = reply_channel("a membership change");
        self.with(|store| {
            store.change_membership(region, peers, reply);
            pending
        })
    }

    fn transfer(&self, region: RegionId, to: PeerId) {
        if let Some(store) = self.store.lock().as_mut() {
            store.transfer(region, to);
        }
    }

    fn create(&self, region: Region) -> Pending<()> {
        let (reply, pending) = reply_channel("a region's creation");
        self.with(|store| {
            store.create(region, reply);
            pending
        })
    }

    fn destroy(&self, region: RegionId) -> Pending<()> {
        let (reply, pending) = reply_channel("a peer's removal");
        self.with(|store| {
            store.destroy(region, reply);
            pending
        })
    }
}
