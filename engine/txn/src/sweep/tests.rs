//! Entries of dropped indexes go once nobody is left who knows the index, and not before.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{Keyspace, MemoryKv};
use raft::{Command, Machine, Machines, Position};
use types::{
    Column, ColumnType, Epoch, Index, IndexState, IntWidth, Peer, PeerRole, Region, RegionKind,
    Table, Timestamp, Value, key,
};

use super::Sweep;
use crate::fact::{Fact, Facts, Floors, WriteKind};
use crate::machines::RowMachines;
use crate::store::RowStore;

const TABLE: u64 = 7;
const REGION: u64 = 10;

struct Node {
    store: Arc<RowStore>,
    machine: Box<dyn Machine>,
}

fn table(version: u32, indexes: &[u32]) -> Table {
    let column = Column {
        id: 1,
        name: "id".into(),
        ty: ColumnType::Int { width: IntWidth::Big, unsigned: false },
        nullable: false,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let index = |id: &u32| Index {
        id: *id,
        name: format!("i{id}"),
        columns: vec![1],
        parts: BTreeMap::new(),
        unique: false,
        visible: true,
        state: IndexState::Public { since: Timestamp::ZERO },
    };
    Table {
        id: TABLE,
        version,
        database: "d".into(),
        name: "t".into(),
        columns: vec![column],
        primary_key: vec![1],
        indexes: indexes.iter().map(index).collect(),
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

fn entry(index: u32, value: i64) -> Vec<u8> {
    key::index_prefix(TABLE, index, &[Value::Int(value)])
}

impl Node {
    fn new() -> Self {
        let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
        let kind = RegionKind::Table(TABLE);
        let (start, end) = key::range(kind).unwrap();
        let peers = vec![Peer { id: 1, node: 1, role: PeerRole::Voter }];
        let epoch = Epoch { version: 1, conf: 1 };
        let region = Region { id: REGION, epoch, kind, start, end, peers };
        let machine = RowMachines::new(store.clone()).create(&region, true).unwrap();
        Node { store, machine }
    }

    fn decide(&mut self, facts: Vec<Fact>) {
        let applied = self.machine.applied();
        let at = Position { index: applied.index + 1, term: applied.term };
        let epoch = self.machine.region().epoch;
        let bytes = Facts { term: at.term, epoch, facts }.encode().unwrap();
        self.machine.apply(at, Command::Data(&bytes)).unwrap();
        self.machine.finish_batch().unwrap();
    }

    fn write(&mut self, key: Vec<u8>, at: u64) {
        let (commit_ts, kind) = (Timestamp(at), WriteKind::Put);
        self.decide(vec![Fact::Write { key, commit_ts, kind, row: Some(vec![]), replaces: None }]);
    }

    fn collect(&mut self, to: u64) {
        let floors = Floors { read: Timestamp(to), settled: Timestamp(to) };
        self.decide(vec![Fact::Collect(floors)]);
    }

    fn describe(&self, at: u64) {
        for (region, version) in self.store.undescribed() {
            self.store.note_described(region, version, Timestamp(at));
        }
    }

    fn sweep(&self) {
        let mut sweep = Sweep::new(&self.store, REGION).unwrap().step_keys(2);
        while self.store.sweep(&mut sweep).unwrap() {}
    }

    fn stored(&self) -> Vec<Vec<u8>> {
        let Region { start, end, .. } = self.machine.region();
        let kv = self.store.snapshot();
        kv.scan(Keyspace::Data, start, end).map(|pair| pair.unwrap().0).collect()
    }
}

/// A table with two indexes and five rows that has lost the first of them, and what is stored of it.
fn dropped() -> (Node, Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut node = Node::new();
    node.decide(vec![Fact::Schema(Box::new(table(1, &[1, 2])))]);
    let first: Vec<_> = (0..5).map(|value| entry(1, value)).collect();
    let mut left: Vec<_> = (0..5).map(|value| entry(2, value)).collect();
    left.extend((0..5).map(|value| key::record(TABLE, &[Value::Int(value)])));
    for key in first.iter().chain(&left) {
        node.write(key.clone(), 10);
    }
    node.decide(vec![Fact::Schema(Box::new(table(2, &[2])))]);
    node.decide(vec![Fact::Schema(Box::new(table(3, &[2])))]);
    let all = first.iter().chain(&left).cloned().collect();
    (node, all, left)
}

#[test]
fn entries_of_a_dropped_index_go_when_nobody_is_left_from_before() {
    let (mut node, all, left) = dropped();
    node.collect(50);
    node.sweep();
    assert_eq!(node.stored(), all, "since when is not known");
    assert_eq!(node.store.undescribed(), [(REGION, 3)]);
    node.describe(60);
    assert!(node.store.undescribed().is_empty());
    node.sweep();
    assert_eq!(node.stored(), all, "a transaction of 55 may read them");
    node.collect(60);
    node.sweep();
    assert_eq!(node.stored(), left);
}

#[test]
fn a_newer_description_begins_the_wait_anew() {
    let (mut node, all, left) = dropped();
    node.describe(60);
    node.decide(vec![Fact::Schema(Box::new(table(4, &[2, 3])))]);
    node.collect(70);
    node.sweep();
    assert_eq!(node.stored(), all);
    assert_eq!(node.store.undescribed(), [(REGION, 4)]);
    node.describe(80);
    node.collect(80);
    node.sweep();
    assert_eq!(node.stored(), left);
}

#[test]
fn a_walk_ends_when_an_index_is_added_meanwhile() {
    let (mut node, _, left) = dropped();
    node.describe(60);
    node.collect(60);
    let mut sweep = Sweep::new(&node.store, REGION).unwrap().step_keys(2);
    assert!(node.store.sweep(&mut sweep).unwrap());
    node.decide(vec![Fact::Schema(Box::new(table(4, &[2, 3])))]);
    node.write(entry(3, 1), 65);
    assert!(!node.store.sweep(&mut sweep).unwrap(), "it would take the new entries away");
    assert!(node.stored().contains(&entry(3, 1)));
    node.describe(70);
    node.collect(70);
    node.sweep();
    assert_eq!(node.stored().len(), left.len() + 1);
}

#[test]
fn entries_stay_while_writers_by_the_description_before_are_taken() {
    let mut node = Node::new();
    node.decide(vec![Fact::Schema(Box::new(table(1, &[1])))]);
    node.write(entry(1, 1), 10);
    node.decide(vec![Fact::Schema(Box::new(table(2, &[])))]);
    node.describe(60);
    node.collect(60);
    node.sweep();
    assert_eq!(node.stored(), [entry(1, 1)]);
    node.decide(vec![Fact::Schema(Box::new(table(3, &[])))]);
    node.describe(70);
    node.collect(70);
    node.sweep();
    assert!(node.stored().is_empty());
}

#[test]
fn a_region_counts_records_as_rows_and_what_was_removed_no_more() {
    let (mut node, all, left) = dropped();
    let size = |node: &Node| node.store.region(REGION).unwrap().live_size();
    let bytes = |keys: &[Vec<u8>]| keys.iter().map(|key| key.len() as u64).sum::<u64>();
    assert_eq!((size(&node).rows, size(&node).bytes), (5, bytes(&all)));
    node.describe(60);
    node.collect(60);
    node.sweep();
    assert_eq!((size(&node).rows, size(&node).bytes), (5, bytes(&left)));
    // Also by the machine, once it has written again.
    node.collect(61);
    assert_eq!(size(&node).bytes, bytes(&left));
}
