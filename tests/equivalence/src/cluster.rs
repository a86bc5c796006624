//! The same promise over real Raft: three nodes with rows and a learner with columns, messages that
//! get lost, nodes that crash, disks and engines that forget what was not synced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use columnar::{ColumnarMachines, ColumnarStore};
use env::{Random, SimDisk};
use futures::FutureExt;
use kv::MemoryKv;
use parking_lot::Mutex;
use raft::testing::{SimCluster, SimOptions};
use raft::{Groups, Machines, Pending, Position, StoreConfig};
use txn::{Fact, Facts, RowMachines, RowStore, WriteKind};
use types::{NodeId, Region, Timestamp};

use crate::columns;
use crate::rows;
use crate::table::{self, REGION, key_of};

const LEARNER: NodeId = 4;
const TICKS: u64 = 300;
const IDS: u64 = 12;

/// What survives a node's process.
#[derive(Default)]
struct Nodes {
    engines: BTreeMap<NodeId, MemoryKv>,
    stores: BTreeMap<NodeId, Arc<RowStore>>,
    disk: SimDisk,
    columns: Option<ColumnarStore>,
}

impl Nodes {
    fn start(&mut self, node: NodeId) -> Box<dyn Machines> {
        if node == LEARNER {
            let store = columns::open(&self.disk).unwrap_or_else(|error| {
                assert!(self.disk.is_down(), "an error without a crash: {error}");
                self.disk.crash(0);
                columns::open(&self.disk).unwrap()
            });
            let machines = ColumnarMachines::new(&store);
            self.columns = Some(store);
            return Box::new(machines);
        }
        let engine = self.engines.entry(node).or_default().clone();
        let store = RowStore::open(Arc::new(engine)).unwrap();
        self.stores.insert(node, store.clone());
        Box::new(RowMachines::new(store))
    }

    fn crash(&mut self, node: NodeId, seed: u64) {
        if node == LEARNER {
            self.disk.crash(seed);
            return;
        }
        let engine = self.engines.get_mut(&node).unwrap();
        *engine = engine.crash(seed);
    }
}

struct Run {
    cluster: SimCluster,
    nodes: Arc<Mutex<Nodes>>,
    random: Random,
    region: Region,
    /// Imports on their way: when they commit, whose row, and the answer.
    proposed: Vec<(u64, i64, Pending<Position>)>,
    acknowledged: BTreeSet<(u64, i64)>,
    now: u64,
    /// Nodes that crashed at a sync of their Raft log.
    crashes: usize,
    _root: tempfile::TempDir,
}

impl Run {
    fn new(seed: u64) -> Self {
        let nodes = Arc::new(Mutex::new(Nodes::default()));
        let config = StoreConfig {
            keep_entries: 10,
            keep_entries_for_slow: 40,
            persist_entries: 20,
            compact_ticks: 15,
            ..StoreConfig::new(0)
        };
        let options = SimOptions {
            nodes: LEARNER,
            seed,
            loss: 0.02,
            max_delay: 4,
            config,
            ..SimOptions::default()
        };
        let (root, made) = (tempfile::tempdir().unwrap(), nodes.clone());
        let maker = Box::new(move |node| made.lock().start(node));
        let mut cluster = SimCluster::start(options, root.path(), maker).unwrap();
        let region = table::region(&[1, 2, 3], &[LEARNER]);
        cluster.create(&region).unwrap();
        Run {
            cluster,
            nodes,
            random: Random::seeded(seed ^ 0xc1),
            region,
            proposed: Vec::new(),
            acknowledged: BTreeSet::new(),
            now: 10,
            crashes: 0,
            _root: root,
        }
    }

    /// Decides an import at the leader, as its applied state says, and proposes it.
    fn write(&mut self) {
        // A leader that decides must have applied what it proposed: one at a time, as latches do.
        if !self.proposed.is_empty() {
            return;
        }
        let Some(leader) = self.cluster.leader(REGION) else { return };
        let groups = self.cluster.groups(leader).unwrap();
        let Some(status) = groups.status(REGION) else { return };
        let store = self.nodes.lock().stores[&leader].clone();
        let Some(view) = store.region(REGION) else { return };
        if view.applied != status.applied {
            return;
        }
        let id = self.random.below(IDS) as i64;
        let key = key_of(id);
        let replaces = txn::mvcc::data(store.snapshot().as_ref(), &key).unwrap().live();
        self.now += 1;
        let commit_ts = Timestamp(self.now);
        let row = Some(table::encode(&table::first(), id, self.now as i64));
        let write = Fact::Write { key, commit_ts, kind: WriteKind::Put, row, replaces };
        let mut facts = vec![write];
        if view.schemas.is_empty() {
            facts.insert(0, Fact::Schema(Box::new(table::first())));
        }
        let facts = Facts { term: status.term, epoch: status.region.epoch, facts };
        let pending = groups.propose(REGION, status.term, facts.encode().unwrap());
        self.proposed.push((self.now, id, pending));
    }

    fn listen(&mut self) {
        let mut open = Vec::new();
        for (ts, id, mut pending) in self.proposed.drain(..) {
            match (&mut pending).now_or_never() {
                None => open.push((ts, id, pending)),
                Some(Ok(_)) => {
                    self.acknowledged.insert((ts, id));
                }
                Some(Err(_)) => {}
            }
        }
        self.proposed = open;
    }

    fn crash(&mut self, node: NodeId) {
        let seed = self.random.u64();
        self.nodes.lock().crash(node, seed);
        self.cluster.crash(node).unwrap();
    }

    fn restart(&mut self, node: NodeId) {
        while let Err(error) = self.cluster.restart(node) {
            let down =
                self.cluster.disk(node).unwrap().is_down() || self.nodes.lock().disk.is_down();
            assert!(down, "an error without a crash: {error}");
            self.crash(node);
        }
    }

    fn disturb(&mut self) {
        let node = 1 + self.random.below(LEARNER);
        match self.random.below(1_000) {
            0..4 if self.cluster.is_up(node) => self.crash(node),
            4..20 if !self.cluster.is_up(node) => self.restart(node),
            20..24 => self.cluster.partition(&[node]),
            24..34 => self.cluster.partition(&[]),
            34..37 => {
                let nth = 1 + self.random.below(5);
                self.cluster.disk(node).unwrap().crash_at_sync(nth);
            }
            37..40 => self.nodes.lock().disk.crash_at_sync(1 + self.random.below(5)),
            40..140 => {
                let store = self.nodes.lock().columns.clone().unwrap();
                if self.cluster.is_up(LEARNER) {
                    // A disk that is down shows itself at the next write of the machine, too.
                    let _ = store.maintain(Timestamp(0));
                }
            }
            _ => {}
        }
    }

    /// All nodes start again and catch up with each other.
    fn heal(&mut self) {
        self.cluster.partition(&[]);
        self.cluster.set_loss(0.0);
        for node in self.cluster.nodes() {
            self.crash(node);
            self.restart(node);
        }
        let level = self.cluster.run_until(2_000, |cluster| {
            let at = |node| Some(cluster.groups(node).ok()?.status(REGION)?.applied);
            let first = at(1);
            let applied = first.is_some_and(|at| at.index > 0) && cluster.leader(REGION).is_some();
            applied && (2..=LEARNER).all(|node| at(node) == first)
        });
        let status = |node| self.cluster.groups(node).unwrap().status(REGION);
        assert!(level, "not level: {:?}", (1..=LEARNER).map(status).collect::<Vec<_>>());
        self.cluster.run(5);
        self.listen();
    }

    fn check(&self) {
        let nodes = self.nodes.lock();
        let columns = nodes.columns.as_ref().unwrap();
        for ts in (0..=self.now).map(Timestamp) {
            let seen = columns.visible_rows(self.region.id, ts).unwrap();
            for (node, store) in &nodes.stores {
                let rows = rows::visible(store, REGION, &[table::first()], ts).unwrap().2;
                assert_eq!(rows, seen, "rows of node {node} (left) and columns at {ts}");
            }
            for (_, id) in self.acknowledged.iter().filter(|(at, _)| *at == ts.0) {
                let row = seen.get(&key_of(*id)).expect("an acknowledged row is missing");
                assert_eq!(row[1], types::Value::Int(ts.0 as i64), "row {id} at {ts}");
            }
        }
    }
}

/// Steps of the histories that are repeated for every sync in them.
const SHORT: u64 = 250;

impl Run {
    /// A history that is the same for a seed up to the first crash, which is that of a node whose
    /// disk failed a sync; it starts again at once, without what it had not synced.
    fn run_calmly(&mut self) {
        for _ in 0..SHORT {
            self.cluster.step();
            self.listen();
            if self.random.chance(0.3) {
                self.write();
            }
            if self.cluster.is_up(LEARNER) && self.random.chance(0.1) {
                let store = self.nodes.lock().columns.clone().unwrap();
                let _ = store.maintain(Timestamp(0));
            }
            for node in self.cluster.nodes() {
                if self.cluster.disk(node).unwrap().is_down() {
                    self.crash(node);
                    self.restart(node);
                    self.crashes += 1;
                }
            }
        }
    }
}

#[test]
fn a_cluster_survives_a_crash_at_each_sync_of_its_raft_logs() {
    let (mut crashes, mut acknowledged) = (0, 0);
    let test = "-p isobar-equivalence a_cluster_survives_a_crash_at_each_sync_of_its_raft_logs";
    env::seeds::each(test, 2, |seed| {
        let mut calm = Run::new(seed);
        let syncs = |run: &Run, node| run.cluster.disk(node).unwrap().syncs();
        let before: Vec<u64> = calm.cluster.nodes().into_iter().map(|n| syncs(&calm, n)).collect();
        calm.run_calmly();
        assert_eq!(calm.crashes, 0);
        for (node, before) in calm.cluster.nodes().into_iter().zip(before) {
            for sync in 1..=syncs(&calm, node) - before {
                let mut run = Run::new(seed);
                run.cluster.disk(node).unwrap().crash_at_sync(sync);
                run.run_calmly();
                assert!(run.crashes > 0, "sync {sync} of node {node} was never reached");
                run.heal();
                run.check();
                crashes += run.crashes;
                acknowledged += run.acknowledged.len();
            }
        }
    });
    eprintln!("{crashes} crashes, {acknowledged} acknowledged writes");
}

#[test]
fn acknowledged_writes_are_in_rows_and_columns_of_a_cluster() {
    let mut acknowledged = 0;
    let test = "-p isobar-equivalence acknowledged_writes_are_in_rows_and_columns_of_a_cluster";
    env::seeds::each(test, 20, |seed| {
        let mut run = Run::new(seed);
        for _ in 0..TICKS * 10 {
            run.cluster.step();
            run.listen();
            if run.random.chance(0.3) {
                run.write();
            }
            run.disturb();
        }
        run.heal();
        run.check();
        acknowledged += run.acknowledged.len();
    });
    eprintln!("{acknowledged} acknowledged writes");
    assert!(acknowledged > 0, "nothing was ever acknowledged");
}
