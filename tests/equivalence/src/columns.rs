//! A learner with columns, on a disk that forgets what was not synced.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use columnar::{ColumnarMachines, ColumnarStore, Config};
use env::{SimClock, SimDisk};
use raft::{Machine, Machines};
use types::RegionId;

use crate::follower::Replica;

/// Budgets under which deltas are flushed and segments merged all the time.
pub fn small() -> Config {
    Config {
        column_cache_bytes: 64 << 10,
        key_cache_bytes: 16 << 10,
        open_segments: 4,
        delta_rows: 8,
        delta_bytes: 64 << 10,
        deltas_bytes: 256 << 10,
        log_entries: 30,
    }
}

/// Opens, or opens again, the store on a disk.
pub fn open(disk: &SimDisk) -> types::Result<ColumnarStore> {
    let clock = Arc::new(SimClock::default());
    ColumnarStore::open(Arc::new(disk.clone()), clock, Path::new("/columns"), small())
}

pub struct Columns {
    pub disk: SimDisk,
    pub store: ColumnarStore,
    machines: ColumnarMachines,
    peers: BTreeMap<RegionId, Box<dyn Machine>>,
}

impl Columns {
    pub fn new() -> Self {
        let disk = SimDisk::new();
        let store = open(&disk).unwrap();
        let machines = ColumnarMachines::new(&store);
        Columns { disk, store, machines, peers: BTreeMap::new() }
    }
}

impl Replica for Columns {
    fn peers(&mut self) -> &mut BTreeMap<RegionId, Box<dyn Machine>> {
        &mut self.peers
    }

    fn machines(&self) -> &dyn Machines {
        &self.machines
    }

    fn crash(&mut self, seed: u64) {
        self.peers.clear();
        self.disk.crash(seed);
        self.store = open(&self.disk).unwrap();
        self.machines = ColumnarMachines::new(&self.store);
        for machine in self.machines.recover().unwrap() {
            self.peers.insert(machine.region().id, machine);
        }
    }

    fn is_down(&self) -> bool {
        self.disk.is_down()
    }
}
