//! Row machines through crashes: the store may lose any tail of what was not synced, and snapshots
//! stop halfway. Whatever comes back, replaying the log from the recovered
//! position, or taking the snapshot again, must end in the same state. Seeds are chosen by `env::seeds`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use env::Random;
use kv::MemoryKv;
use raft::{
    Command, Effect, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks, SnapshotSource,
};
use support::{TABLE, record, table};
use txn::share::share_key;
use txn::{
    Fact, Facts, RowMachines, RowStore, SnapshotItem, SplitChild, WriteKind, decode_chunk,
    split_region,
};
use types::{Epoch, Error, Peer, PeerRole, Region, RegionId, RegionKind, Result, Timestamp, key};

type Log = Vec<(Position, Option<Vec<u8>>)>;

/// A leader's work: facts of random transactions over a few keys, as a real one would decide them.
struct Leader {
    random: Random,
    region: Region,
    log: Log,
    clock: u64,
    locks: BTreeMap<Vec<u8>, (Timestamp, WriteKind)>,
    live: BTreeMap<Vec<u8>, Timestamp>,
    next_id: u64,
    children: Vec<Region>,
}

impl Leader {
    fn new(random: Random, region: Region) -> Self {
        let mut leader = Leader {
            random,
            region,
            log: Vec::new(),
            clock: 10,
            locks: BTreeMap::new(),
            live: BTreeMap::new(),
            next_id: 500,
            children: Vec::new(),
        };
        leader.push(None);
        leader.facts(vec![Fact::Schema(Box::new(types::Table::clone(&table(1))))]);
        leader
    }

    fn tick(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp(self.clock)
    }

    fn push(&mut self, data: Option<Vec<u8>>) {
        let index = self.log.last().map_or(INITIAL_POSITION.index, |(at, _)| at.index) + 1;
        self.log.push((Position { index, term: 6 }, data));
    }

    fn facts(&mut self, facts: Vec<Fact>) {
        let epoch = self.region.epoch;
        self.push(Some(Facts { term: 6, epoch, facts }.encode().unwrap()));
    }

    fn key(&self) -> Vec<u8> {
        let key = record(&format!("k{:02}", self.random.below(40)));
        if self.region.contains(&key) { key } else { record("k00") }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..45 => {
                let key = self.key();
                if self.locks.contains_key(&key) {
                    return;
                }
                let start_ts = self.tick();
                let kind = [
                    WriteKind::Put,
                    WriteKind::Put,
                    WriteKind::Delete,
                    WriteKind::Lock,
                    WriteKind::Share,
                ][self.random.below(5) as usize];
                let size = self.random.below(60) as usize;
                let row = (kind == WriteKind::Put).then(|| vec![7; size]);
                let replaces = self.live.get(&key).copied().filter(|_| kind.changes());
                let key = if kind == WriteKind::Share { share_key(&key, start_ts) } else { key };
                let primary = if self.random.chance(0.5) { key.clone() } else { record("k00") };
                self.locks.insert(key.clone(), (start_ts, kind));
                self.facts(vec![Fact::Lock {
                    key,
                    start_ts,
                    primary,
                    kind,
                    row,
                    replaces,
                    ttl: 3_000,
                    for_update_ts: None,
                }]);
            }
            45..85 => {
                let nth = self.random.below(self.locks.len().max(1) as u64) as usize;
                let Some((key, (start_ts, kind))) =
                    self.locks.iter().nth(nth).map(|(key, lock)| (key.clone(), *lock))
                else {
                    return;
                };
                self.locks.remove(&key);
                if self.random.chance(0.2) {
                    return self.facts(vec![Fact::Rollback { key, start_ts }]);
                }
                let commit_ts = self.tick();
                match kind {
                    WriteKind::Put => drop(self.live.insert(key.clone(), commit_ts)),
                    WriteKind::Delete => drop(self.live.remove(&key)),
                    WriteKind::Lock | WriteKind::Share => {}
                }
                self.facts(vec![Fact::Commit { key, start_ts, commit_ts }]);
            }
            85..93 => {
                let key = self.key();
                if self.locks.contains_key(&key) {
                    return;
                }
                let (commit_ts, row) = (self.tick(), Some(vec![9; 5]));
                let replaces = self.live.insert(key.clone(), commit_ts);
                let kind = WriteKind::Put;
                self.facts(vec![Fact::Write { key, commit_ts, kind, row, replaces }]);
            }
            93..95 => {
                // Decided before a change of shape or term: it must leave no trace.
                let stale = Facts {
                    term: if self.random.chance(0.5) { 5 } else { 6 },
                    epoch: Epoch { version: 0, conf: 0 },
                    facts: vec![Fact::Rollback { key: self.key(), start_ts: Timestamp(1) }],
                };
                self.push(Some(stale.encode().unwrap()));
            }
            95..97 if self.children.len() < 3 => {
                let start = self.key();
                if start <= record("k00") || start >= self.region.end {
                    return;
                }
                self.next_id += 1;
                let id = self.next_id;
                let children =
                    vec![SplitChild { start: start.clone(), region: id, peers: vec![id + 1] }];
                let (parent, made) = split_region(&self.region, &children).unwrap();
                self.facts(vec![Fact::Split { children }]);
                self.region = parent;
                self.children.extend(made);
                self.locks.retain(|key, _| *key < start);
                self.live.retain(|key, _| *key < start);
            }
            _ => self.push(None),
        }
    }
}

fn initial_region() -> Region {
    Region {
        id: 100,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(TABLE),
        start: key::records_start(TABLE),
        end: key::records_end(TABLE),
        peers: vec![Peer { id: 1, node: 1, role: PeerRole::Voter }],
    }
}

/// A node: its store and the machines over it.
struct Node {
    kv: MemoryKv,
    machines: RowMachines,
    open: BTreeMap<RegionId, Box<dyn Machine>>,
}

impl Node {
    fn open(kv: MemoryKv) -> Self {
        let store = RowStore::open(Arc::new(kv.clone())).unwrap();
        let machines = RowMachines::new(store);
        let found = machines.recover().unwrap();
        let open = found.into_iter().map(|machine| (machine.region().id, machine)).collect();
        Node { kv, machines, open }
    }

    fn create(&mut self) {
        let machine = self.machines.create(&initial_region(), true).unwrap();
        self.open.insert(100, machine);
    }

    /// Applies what is missing of the log, up to `until` entries, in random batches.
    fn apply(&mut self, log: &Log, random: &Random, until: usize) {
        let machine = self.open.get_mut(&100).unwrap();
        let applied = machine.applied().index;
        let mut made = Vec::new();
        for (at, data) in log.iter().take(until).filter(|(at, _)| at.index > applied) {
            let command = data.as_deref().map_or(Command::Empty, Command::Data);
            let effect = machine.apply(*at, command).unwrap();
            let split = matches!(effect, Effect::Split(_));
            if let Effect::Split(children) = effect {
                made.extend(children);
            }
            if split || random.chance(0.3) {
                machine.finish_batch().unwrap();
            }
            if random.chance(0.02) {
                machine.finish_batch().unwrap();
                machine.persist().unwrap();
            }
        }
        machine.finish_batch().unwrap();
        for child in made {
            self.open.insert(child.region().id, child);
        }
    }

    fn state(&self) -> BTreeMap<RegionId, (Region, Vec<SnapshotItem>)> {
        self.open.iter().map(|(id, machine)| (*id, items(machine.as_ref()))).collect()
    }
}

fn chunks(machine: &dyn Machine) -> VecDeque<Vec<u8>> {
    let mut source: Box<dyn SnapshotSource> = machine.snapshot().unwrap();
    std::iter::from_fn(|| source.next_chunk().unwrap()).collect()
}

fn items(machine: &dyn Machine) -> (Region, Vec<SnapshotItem>) {
    let items = chunks(machine).iter().flat_map(|chunk| decode_chunk(chunk).unwrap()).collect();
    (machine.region().clone(), items)
}

#[test]
fn a_log_replayed_after_crashes_ends_in_the_same_state() {
    let (mut crashes, mut splits) = (0, 0);
    for seed in env::seeds::range(200) {
        let random = Random::seeded(seed);
        let mut leader = Leader::new(random.fork(), initial_region());
        (0..400).for_each(|_| leader.step());
        let mut whole = Node::open(MemoryKv::new());
        whole.create();
        whole.apply(&leader.log, &random, usize::MAX);

        let mut node = Node::open(MemoryKv::new());
        node.create();
        for _ in 0..4 {
            let until = random.below(leader.log.len() as u64) as usize;
            node.apply(&leader.log, &random, until);
            let durable = node.open[&100].durable_index();
            node = Node::open(node.kv.crash(random.u64()));
            let back = &node.open[&100];
            assert!(back.applied().index >= durable, "seed {seed}: durable entries are gone");
            assert_eq!(back.durable_index(), back.applied().index, "seed {seed}");
            crashes += 1;
        }
        node.apply(&leader.log, &random, usize::MAX);
        splits += leader.children.len();
        assert_eq!(node.open.len(), 1 + leader.children.len(), "seed {seed}");
        assert_eq!(node.state(), whole.state(), "seed {seed}");
        for child in &leader.children {
            assert_eq!(node.open[&child.id].region(), child, "seed {seed}");
        }
    }
    assert!(crashes > 0 && splits > 0);
}

/// Chunks of a snapshot, of which the receiver dies at some point.
struct Received {
    chunks: VecDeque<Vec<u8>>,
    left: u64,
}

impl SnapshotChunks for Received {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if self.left == 0 {
            return Err(Error::Io("the receiver crashes here".into()));
        }
        self.left -= 1;
        Ok(self.chunks.pop_front())
    }
}

/// The same items in many small chunks, so that a crash can come between any of them.
fn small(chunks: &VecDeque<Vec<u8>>, size: usize) -> VecDeque<Vec<u8>> {
    let items: Vec<_> = chunks.iter().flat_map(|chunk| decode_chunk(chunk).unwrap()).collect();
    items.chunks(size).map(|items| txn::encode_chunk(items).unwrap()).collect()
}

#[test]
fn a_snapshot_taken_in_again_after_crashes_gives_the_senders_state() {
    for seed in env::seeds::range(200) {
        let random = Random::seeded(seed);
        let mut leader = Leader::new(random.fork(), initial_region());
        (0..300).for_each(|_| leader.step());
        let mut sender = Node::open(MemoryKv::new());
        sender.create();
        sender.apply(&leader.log, &random, usize::MAX);
        let at = sender.open[&100].applied();
        let region = sender.open[&100].region().clone();
        let sent = small(&chunks(sender.open[&100].as_ref()), 1 + random.below(9) as usize);

        // The receiver is new, or has fallen behind.
        let mut node = Node::open(MemoryKv::new());
        if random.chance(0.5) {
            node.create();
            let until = random.below(leader.log.len() as u64 / 4) as usize;
            node.apply(&leader.log, &random, until);
        } else {
            let machine = node.machines.create(&initial_region(), false).unwrap();
            assert_eq!(machine.applied().index, 0);
            node.open.insert(100, machine);
        }
        let held = node.open[&100].region() == &initial_region();
        if !held {
            // A split came first: its children hold the rest, and the receiver follows the log.
            continue;
        }
        let mut restored = false;
        for _ in 0..3 {
            let left = random.below(sent.len() as u64 * 2 + 2);
            let mut received = Received { chunks: sent.clone(), left };
            let machine = node.open.get_mut(&100).unwrap();
            restored = machine.restore(&region, at, &mut received).is_ok();
            if restored && random.chance(0.5) {
                break;
            }
            node = Node::open(node.kv.crash(random.u64()));
            let applied = node.open[&100].applied();
            let expected = if restored { at } else { Position::default() };
            let untouched = left > 0 || restored;
            assert!(!untouched || applied == expected, "seed {seed}: {applied:?}");
            if restored {
                break;
            }
        }
        if !restored {
            let mut received = Received { chunks: sent.clone(), left: u64::MAX };
            let machine = node.open.get_mut(&100).unwrap();
            machine.restore(&region, at, &mut received).unwrap();
        }
        assert_eq!(
            items(node.open[&100].as_ref()),
            items(sender.open[&100].as_ref()),
            "seed {seed}"
        );
        let locks = |node: &Node| {
            let kv: &dyn kv::KvEngine = &node.kv;
            let kv = kv.snapshot();
            let locks = kv.scan(kv::Keyspace::Lock, &region.start, &region.end);
            locks.count()
        };
        assert_eq!(locks(&node), locks(&sender), "seed {seed}");

        // It follows the log from there.
        (0..50).for_each(|_| leader.step());
        node.apply(&leader.log, &random, usize::MAX);
        sender.apply(&leader.log, &random, usize::MAX);
        assert_eq!(
            items(node.open[&100].as_ref()),
            items(sender.open[&100].as_ref()),
            "seed {seed}"
        );
    }
}

#[test]
fn the_reserved_fact_is_refused() {
    let mut leader = Leader::new(Random::seeded(1), initial_region());
    let mut node = Node::open(MemoryKv::new());
    node.create();
    node.apply(&leader.log, &Random::seeded(1), usize::MAX);
    leader.facts(vec![Fact::Reserved]);
    let (at, entry) = leader.log.last().unwrap();
    let machine = node.open.get_mut(&100).unwrap();
    let refused = machine.apply(*at, Command::Data(entry.as_deref().unwrap()));
    assert!(matches!(refused, Err(Error::Corrupt(what)) if what.contains("an unknown fact")));
}

#[test]
fn neighbours_on_a_node_keep_their_data() {
    let random = Random::seeded(1);
    let mut leader = Leader::new(random.fork(), initial_region());
    while leader.children.is_empty() {
        leader.step();
    }
    let mut node = Node::open(MemoryKv::new());
    node.create();
    node.apply(&leader.log, &random, usize::MAX);
    let child = leader.children[0].clone();
    let before = items(node.open[&child.id].as_ref());

    // What covers a part of its range cannot be created beside it.
    let intruder = Region { id: 900, ..initial_region() };
    assert!(matches!(node.machines.create(&intruder, false), Err(Error::Unavailable(_))));

    let parent = node.open.remove(&100).unwrap();
    let region = parent.region().clone();
    drop(parent);
    node.machines.destroy(&region).unwrap();
    assert_eq!(items(node.open[&child.id].as_ref()), before);
    let back = Node::open(node.kv.crash(3));
    assert_eq!(back.open.keys().copied().collect::<Vec<_>>(), [child.id]);
    assert_eq!(items(back.open[&child.id].as_ref()), before);
    let kv: &dyn kv::KvEngine = &back.kv;
    let snapshot = kv.snapshot();
    let start = key::records_start(TABLE);
    assert_eq!(snapshot.scan(kv::Keyspace::Data, &start, &child.start).count(), 0);
}
