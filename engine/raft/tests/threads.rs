//! The store on its threads and on a real disk: three nodes in one process.
// Real threads and real time are what this file is about.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{put, region};
use env::{Disk, RealClock, RealDisk, SimDisk};
use futures::FutureExt;
use futures::executor::block_on;
use parking_lot::RwLock;
use raft::testing::EchoMachines;
use raft::{
    Envelope, Groups, LogSizes, SnapshotStream, Store, StoreConfig, StoreDisk, StoreHandle,
    Transport,
};
use types::{NodeId, Peer, PeerRole, RegionId};

/// Carries messages straight into the receivers' mailboxes, snapshots on threads.
#[derive(Clone, Default)]
struct Router(Arc<RwLock<BTreeMap<NodeId, StoreHandle>>>);

impl Transport for Router {
    fn send(&self, messages: Vec<Envelope>) {
        let nodes = self.0.read();
        for message in messages {
            if let Some(node) = nodes.get(&message.to.node) {
                node.receive(vec![message]);
            }
        }
    }

    fn send_snapshot(&self, stream: SnapshotStream) {
        let Some(to) = self.0.read().get(&stream.header.to.node).cloned() else { return };
        std::thread::spawn(move || {
            let SnapshotStream { header, mut source, report } = stream;
            let mut spool = to.spool(header).unwrap();
            while let Some(chunk) = source.next_chunk().unwrap() {
                spool.push(chunk).unwrap();
            }
            to.spooled(spool).unwrap();
            report.arrived();
        });
    }
}

struct Nodes {
    root: tempfile::TempDir,
    router: Router,
    machines: BTreeMap<NodeId, EchoMachines>,
}

impl Nodes {
    fn start(nodes: &[NodeId]) -> Self {
        let mut all = Nodes {
            root: tempfile::tempdir().unwrap(),
            router: Router::default(),
            machines: BTreeMap::new(),
        };
        for node in nodes {
            all.start_one(*node);
        }
        all
    }

    fn start_one(&mut self, node: NodeId) {
        let dir = self.root.path().join(node.to_string());
        self.start_on(node, store_disk(&dir));
    }

    fn start_on(&mut self, node: NodeId, disk: StoreDisk) {
        let machines = self.machines.entry(node).or_default().clone();
        let router = Arc::new(self.router.clone());
        let handle = StoreHandle::start(Arc::new(RealClock::new()), |worker| {
            let config = StoreConfig::new(node);
            Store::open(config, disk, Box::new(machines), router, worker)
        });
        self.router.0.write().insert(node, handle.unwrap());
    }

    fn stop(&mut self, node: NodeId) {
        let handle = self.router.0.write().remove(&node).unwrap();
        handle.shutdown();
        self.machines[&node].crash(false);
    }

    fn handle(&self, node: NodeId) -> StoreHandle {
        self.router.0.read()[&node].clone()
    }

    fn leader(&self, region: RegionId) -> StoreHandle {
        wait_for("a leader", || {
            let nodes = self.router.0.read();
            let decides =
                |handle: &&StoreHandle| handle.status(region).is_some_and(|status| status.decides);
            nodes.values().find(decides).cloned()
        })
    }
}

fn store_disk(dir: &Path) -> StoreDisk {
    RealDisk.create_dir_all(dir).unwrap();
    StoreDisk {
        disk: Arc::new(RealDisk),
        log_dir: dir.join("log"),
        spool_dir: dir.join("spool"),
        shadow: None,
        sizes: LogSizes::default(),
    }
}

/// Waits, bounded, for a condition that other threads bring about.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("{what} did not come within 20 s");
}

#[test]
fn three_nodes_replicate_survive_restarts_and_feed_a_learner() {
    let mut nodes = Nodes::start(&[1, 2, 3, 4]);
    let initial = region(1, &[1, 2, 3]);
    for node in [1, 2, 3] {
        block_on(nodes.handle(node).create(initial.clone())).unwrap();
    }
    let leader = nodes.leader(1);
    let term = leader.status(1).unwrap().term;
    let pending: Vec<_> =
        (0..500).map(|value| leader.propose(1, term, put(&format!("k{value}"), value))).collect();
    for answer in pending {
        block_on(answer).unwrap();
    }
    let mut peers = initial.peers.clone();
    peers.push(Peer { id: 1004, node: 4, role: PeerRole::Learner });
    let changed = block_on(leader.change_membership(1, peers.clone())).unwrap();
    assert_eq!(changed.peers, peers);
    block_on(wait_for("the learner", || {
        nodes.handle(4).status(1).map(|_| nodes.handle(4).read_index(1))
    }))
    .unwrap();
    assert_eq!(nodes.machines[&4].state(1).unwrap().history.len(), 500);
    for node in [1, 2, 3] {
        nodes.stop(node);
        nodes.start_one(node);
    }
    let leader = nodes.leader(1);
    let index = block_on(leader.read_index(1)).unwrap();
    assert!(index >= 506);
    let node = leader.status(1).unwrap().peer.node;
    assert_eq!(nodes.machines[&node].state(1).unwrap().history.len(), 500);
    for node in [1, 2, 3, 4] {
        nodes.stop(node);
    }
}

#[test]
fn regions_go_on_while_peers_of_others_are_made_and_removed() {
    let nodes = Nodes::start(&[1]);
    let store = nodes.handle(1);
    let create = |id: RegionId| {
        let (start, end) = (vec![id as u8, 0], vec![id as u8, 1]);
        store.create(types::Region { start, end, ..region(id, &[1]) })
    };
    block_on(create(1)).unwrap();
    block_on(create(2)).unwrap();
    let term = nodes.leader(1).status(1).unwrap().term;
    let waits = nodes.machines[&1].stop_answering();
    let (mut removed, mut made) = (store.destroy(2), create(3));
    let command = raft::testing::EchoCommand::Put { key: vec![1, 0, 1], value: 1 };
    let mut written = store.propose(1, term, command.encode().unwrap());
    wait_for("an answer", || (&mut written).now_or_never()).unwrap();
    assert!((&mut removed).now_or_never().is_none() && (&mut made).now_or_never().is_none());
    drop(waits);
    block_on(removed).unwrap();
    block_on(made).unwrap();
    let there: Vec<_> = store.statuses().iter().map(|status| status.region.id).collect();
    assert_eq!(there, [1, 3]);
}

#[test]
fn a_stopped_store_answers_with_an_error() {
    let nodes = Nodes::start(&[1]);
    block_on(nodes.handle(1).create(region(1, &[1]))).unwrap();
    let leader = nodes.leader(1);
    let term = leader.status(1).unwrap().term;
    leader.shutdown();
    assert!(block_on(leader.propose(1, term, put("a", 1))).is_err());
    assert!(block_on(leader.read_index(1)).is_err());
}

#[test]
fn proposals_to_many_groups_made_together_are_one_write() {
    const GROUPS: u64 = 8;
    let (mut nodes, disk) = (Nodes::start(&[]), SimDisk::new());
    let (counted, shadow) = (Arc::new(disk.clone()), Some(nodes.root.path().to_owned()));
    nodes.start_on(1, StoreDisk { disk: counted, shadow, ..store_disk(nodes.root.path()) });
    let store = nodes.handle(1);
    for id in 1..=GROUPS {
        let (start, end) = (vec![id as u8, 0], vec![id as u8, 1]);
        block_on(store.create(types::Region { start, end, ..region(id, &[1]) })).unwrap();
    }
    let terms: Vec<_> = (1..=GROUPS).map(|id| nodes.leader(id).status(id).unwrap().term).collect();
    let propose = |value| {
        let each = (1..).zip(&terms).map(|(id, term)| {
            let command = raft::testing::EchoCommand::Put { key: vec![id as u8, 0, 1], value };
            // As a decision takes its time: long enough for Raft's thread to begin a write of what has reached it.
            std::thread::sleep(Duration::from_millis(1));
            store.propose(id, *term, command.encode().unwrap())
        });
        each.collect::<Vec<_>>()
    };
    for round in 0..20 {
        let before = disk.syncs();
        let pending = raft::together(|| propose(round));
        assert!(!raft::is_together());
        for answer in pending {
            block_on(answer).unwrap();
        }
        assert_eq!(disk.syncs() - before, 1, "round {round}");
    }
    store.shutdown();
    let after = raft::together(|| propose(20));
    assert!(after.into_iter().all(|answer| block_on(answer).is_err()));
}

/// Not a check: prints what one machine does. `cargo test -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    let nodes = Nodes::start(&[1, 2, 3]);
    let groups = 1000;
    for id in 1..=groups {
        let initial = types::Region {
            start: vec![(id >> 8) as u8, id as u8, 0],
            end: vec![(id >> 8) as u8, id as u8, 1],
            ..region(id, &[1, 2, 3])
        };
        for node in [1, 2, 3] {
            block_on(nodes.handle(node).create(initial.clone())).unwrap();
        }
    }
    for id in 1..=groups {
        nodes.leader(id);
    }
    let cpu = cpu_ticks();
    std::thread::sleep(Duration::from_secs(3));
    println!("{groups} idle groups on 3 nodes: {:.0} % of a core", (cpu_ticks() - cpu) / 3.0);
    let leader = nodes.leader(1);
    let term = leader.status(1).unwrap().term;
    let key = vec![0, 1, 0];
    let command =
        |value| raft::testing::EchoCommand::Put { key: key.clone(), value }.encode().unwrap();
    let mut times: Vec<_> = (0..300)
        .map(|value| {
            let start = Instant::now();
            block_on(leader.propose(1, term, command(value))).unwrap();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("one at a time: p50 {:?}, p99 {:?}", times[150], times[297]);
    let start = Instant::now();
    let pending: Vec<_> =
        (0..10_000).map(|value| leader.propose(1, term, command(value))).collect();
    for answer in pending {
        block_on(answer).unwrap();
    }
    println!("all at once: {:.0} proposals/s", 10_000.0 / start.elapsed().as_secs_f64());
}

/// CPU time of this process in hundredths of a second.
fn cpu_ticks() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}
