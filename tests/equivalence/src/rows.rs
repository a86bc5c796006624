//! A follower with rows, on an engine that forgets what was not synced.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::MemoryKv;
use raft::{Machine, Machines, Position};
use txn::mvcc::{self, Page};
use txn::{RowMachines, RowStore};
use types::{Region, RegionId, Result, Row, Table, Timestamp};

use crate::follower::Replica;
use crate::table;

pub struct Rows {
    kv: MemoryKv,
    pub store: Arc<RowStore>,
    machines: RowMachines,
    peers: BTreeMap<RegionId, Box<dyn Machine>>,
}

impl Rows {
    pub fn new() -> Self {
        let kv = MemoryKv::new();
        let store = RowStore::open(Arc::new(kv.clone())).unwrap();
        let machines = RowMachines::new(store.clone());
        Rows { kv, store, machines, peers: BTreeMap::new() }
    }
}

impl Replica for Rows {
    fn peers(&mut self) -> &mut BTreeMap<RegionId, Box<dyn Machine>> {
        &mut self.peers
    }

    fn machines(&self) -> &dyn Machines {
        &self.machines
    }

    fn crash(&mut self, seed: u64) {
        self.peers.clear();
        self.kv = self.kv.crash(seed);
        self.store = RowStore::open(Arc::new(self.kv.clone())).unwrap();
        self.machines = RowMachines::new(self.store.clone());
        for machine in self.machines.recover().unwrap() {
            self.peers.insert(machine.region().id, machine);
        }
    }

    fn is_down(&self) -> bool {
        false
    }
}

/// The live rows of a region at a timestamp, by key, and the entry up to which they are applied.
pub fn visible(
    store: &RowStore,
    region: RegionId,
    schemas: &[Table],
    ts: Timestamp,
) -> Result<(Position, Region, BTreeMap<Vec<u8>, Row>)> {
    let view = store.region(region).ok_or(types::Error::RegionNotFound(region))?;
    let (start, end) = (&view.region.start, &view.region.end);
    let page = Page { start, end, reverse: false, limit: usize::MAX, bytes: usize::MAX };
    let (pairs, more) = mvcc::scan(store.snapshot().as_ref(), page, ts)?;
    assert!(more.is_none(), "a small region fills no page");
    let newest = view.newest_schema(table::TABLE);
    let rows = newest.map_or_else(BTreeMap::new, |newest| {
        let rows = pairs.into_iter();
        rows.map(|(key, row)| (key, table::decode(schemas, newest, &row))).collect()
    });
    Ok((view.applied, view.region.clone(), rows))
}
