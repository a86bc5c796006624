//! Throughput of the columnar store on this machine, printed: `cargo test -p isobar-columnar throughput -- \
//! --ignored --nocapture`. No promise is tested here.
#![allow(clippy::disallowed_methods)] // it measures real time

use std::sync::Arc;
use std::time::Instant;

use env::{RealClock, RealDisk};
use raft::{Command, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks};
use txn::{Fact, Facts, SnapshotItem, WriteKind, encode_chunk};
use types::{Epoch, Peer, PeerRole, Region, RegionKind, Timestamp, Value, key, row};

use super::harness::{REGION, TABLE, key_of, table};
use crate::scan::ScanRequest;
use crate::shared::Config;
use crate::store::ColumnarStore;
use crate::{ColumnarMachines, Compare, Comparison, Predicate};

const ROWS: i64 = 1_000_000;
const PER_ENTRY: i64 = 256;

struct OneChunk(Option<Vec<u8>>);

impl SnapshotChunks for OneChunk {
    fn next_chunk(&mut self) -> types::Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}

struct Node {
    store: ColumnarStore,
    machine: Box<dyn Machine>,
    index: u64,
}

impl Node {
    fn apply(&mut self, facts: Vec<Fact>) {
        self.index += 1;
        let epoch = Epoch { version: 1, conf: 1 };
        let entry = Facts { term: 5, epoch, facts }.encode().unwrap();
        let at = Position { index: self.index, term: 5 };
        self.machine.apply(at, Command::Data(&entry)).unwrap();
    }

    fn scan(&self, what: &str, request: ScanRequest) {
        let handle = self.store.tablet(REGION).unwrap();
        let snapshot = handle.snapshot_at(Timestamp::MAX, handle.region().epoch).unwrap();
        let start = Instant::now();
        let batches = snapshot.scan(request).unwrap().into_iter();
        let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
        let taken = start.elapsed();
        let rate = ROWS as f64 / taken.as_secs_f64() / 1e6;
        eprintln!("{what}: {rows} rows in {taken:?}, {rate:.1} M stored rows/s, one thread");
    }
}

fn node(dir: &std::path::Path) -> Node {
    let disk = Arc::new(RealDisk);
    let clock = Arc::new(RealClock::new());
    let store = ColumnarStore::open(disk, clock, dir, Config::default()).unwrap();
    let peer = |id, node, role| Peer { id, node, role };
    let region = Region {
        id: REGION,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(TABLE),
        start: key::records_start(TABLE),
        end: key::records_end(TABLE),
        peers: vec![peer(1, 1, PeerRole::Voter), peer(2, 2, PeerRole::Learner)],
    };
    let machines = ColumnarMachines::new(&store);
    let mut machine = machines.create(&region, false).unwrap();
    let items = [SnapshotItem::Schema(Box::new(table()))];
    let chunk = encode_chunk(&items).unwrap();
    machine.restore(&region, INITIAL_POSITION, &mut OneChunk(Some(chunk))).unwrap();
    Node { store, machine, index: INITIAL_POSITION.index }
}

#[test]
#[ignore = "prints measurements"]
fn throughput() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = node(dir.path());
    let table = table();
    let start = Instant::now();
    let mut maintained = 0.0;
    for from in (0..ROWS).step_by(PER_ENTRY as usize) {
        let ids: Vec<i64> = (from..(from + PER_ENTRY).min(ROWS)).collect();
        let ts = 100 + from as u64;
        let lock = |id: &i64| {
            let values =
                [Value::Int(*id), Value::Int(id * 7), Value::String(format!("name {}", id % 999))];
            Fact::Lock {
                key: key_of(*id),
                start_ts: Timestamp(ts),
                primary: key_of(from),
                kind: WriteKind::Put,
                row: Some(row::encode(&table, &values)),
                replaces: None,
                ttl: 3_000,
                for_update_ts: None,
            }
        };
        let commit = |id: &i64| Fact::Commit {
            key: key_of(*id),
            start_ts: Timestamp(ts),
            commit_ts: Timestamp(ts + 1),
        };
        node.apply(ids.iter().map(lock).collect());
        node.apply(ids.iter().map(commit).collect());
        node.machine.finish_batch().unwrap();
        let before = Instant::now();
        while node.store.maintain(Timestamp::ZERO).unwrap() {}
        maintained += before.elapsed().as_secs_f64();
    }
    let taken = start.elapsed().as_secs_f64();
    eprintln!(
        "applied {ROWS} inserts in {:.2} s ({:.0} rows/s), flushes and merges {maintained:.2} s",
        taken - maintained,
        ROWS as f64 / (taken - maintained)
    );
    let start = Instant::now();
    node.machine.persist().unwrap();
    eprintln!("last flush: {:?}", start.elapsed());
    let bytes: u64 = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    eprintln!(
        "on disk: {:.1} MB, {:.1} bytes a row",
        bytes as f64 / 1e6,
        bytes as f64 / ROWS as f64
    );
    let all = || ScanRequest { columns: table.columns.clone(), ..ScanRequest::default() };
    let one = || ScanRequest { columns: vec![table.columns[1].clone()], ..ScanRequest::default() };
    node.scan("count", ScanRequest::default());
    node.scan("all columns, cold", all());
    node.scan("all columns, hot", all());
    node.scan("one column, hot", one());
    let comparison =
        |op, n| Comparison { column: table.columns[0].clone(), op, value: Value::Int(n) };
    let point = Predicate { all: vec![comparison(Compare::Eq, 777_777)] };
    node.scan("one key", ScanRequest { predicate: point, ..all() });

    // Updates of a tenth of the rows: look-ups of what they replace, then scans with deletions.
    let start = Instant::now();
    let mut updates = 0;
    for from in (0..ROWS).step_by(10 * PER_ENTRY as usize) {
        let ids = (from..(from + 10 * PER_ENTRY).min(ROWS)).step_by(10);
        let facts: Vec<Fact> = ids
            .map(|id| {
                let values = [Value::Int(id), Value::Int(-id), Value::Null];
                let began = 100 + (id / PER_ENTRY * PER_ENTRY) as u64 + 1;
                Fact::Write {
                    key: key_of(id),
                    commit_ts: Timestamp(10_000_000),
                    kind: WriteKind::Put,
                    row: Some(row::encode(&table, &values)),
                    replaces: Some(Timestamp(began)),
                }
            })
            .collect();
        updates += facts.len();
        node.apply(facts);
        node.machine.finish_batch().unwrap();
    }
    let rate = updates as f64 / start.elapsed().as_secs_f64();
    eprintln!("applied {updates} updates in {:?} ({rate:.0} rows/s)", start.elapsed());
    node.scan("all columns, with 10 % dead and in the delta", all());
    node.machine.persist().unwrap();
    node.scan("all columns, with 10 % dead, flushed", all());
    let start = Instant::now();
    while node.store.maintain(Timestamp(20_000_000)).unwrap() {}
    eprintln!("maintenance with everything dead collectable: {:?}", start.elapsed());
}
