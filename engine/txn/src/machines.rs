//! Makes, finds and removes the row machines of one node.

use std::sync::Arc;

use kv::{Keyspace, WriteBatch};
use raft::{Machine, Machines, Room};
use types::{Error, Region, Result};

use crate::layout::{self, AppliedRecord, RegionRecord};
use crate::locks::LockChanges;
use crate::machine::RowMachine;
use crate::snapshot;
use crate::store::RowStore;

/// The row machines of one node.
pub struct RowMachines {
    store: Arc<RowStore>,
}

impl RowMachines {
    /// Machines over a row store.
    pub fn new(store: Arc<RowStore>) -> Self {
        RowMachines { store }
    }
}

impl Machines for RowMachines {
    fn room(&self) -> Option<Room> {
        self.store.engine().room()
    }

    fn recover(&self) -> Result<Vec<Box<dyn Machine>>> {
        // What was read back may still be in the operating system's memory only.
        self.store.sync()?;
        let kv = self.store.snapshot();
        let end = types::key::prefix_end(layout::REGIONS);
        let mut machines: Vec<Box<dyn Machine>> = Vec::new();
        for pair in kv.scan(Keyspace::Meta, layout::REGIONS, &end) {
            let record: RegionRecord = layout::decode(&pair?.1)?;
            let id = record.region.id;
            let applied = kv.get(Keyspace::Meta, &layout::applied_key(id))?.ok_or_else(|| {
                Error::Corrupt(format!("region {id} has no applied position in the row store"))
            })?;
            let applied: AppliedRecord = layout::decode(&applied)?;
            let schemas = self.store.load_schemas(kv.as_ref(), id)?;
            machines.push(Box::new(RowMachine::open(self.store.clone(), record, applied, schemas)));
        }
        Ok(machines)
    }

    /// `Unavailable` while another region on this node still covers part of the range: a parent
    /// that has not applied its split yet.
    fn create(&self, region: &Region, initial: bool) -> Result<Box<dyn Machine>> {
        if self.store.region(region.id).is_some() {
            return Err(Error::exists("region", region.id.to_string()));
        }
        if let Some(other) = self.store.neighbour_within(region) {
            return Err(Error::Unavailable(format!(
                "region {other} on this node still covers part of region {}",
                region.id
            )));
        }
        Ok(Box::new(RowMachine::create(self.store.clone(), region, initial)?))
    }

    fn destroy(&self, region: &Region) -> Result<()> {
        let whole = self.store.region(region.id).is_some_and(|view| view.whole);
        if let Some(view) = self.store.region(region.id) {
            // Who removes old versions here is done, and finds no region from now on.
            let _alone = view.gate.lock();
            self.store.withdraw(region.id);
        }
        if whole {
            let mut batch = WriteBatch::default();
            let record = RegionRecord { region: region.clone(), whole: false };
            snapshot::put_region(&mut batch, &record, AppliedRecord::default())?;
            self.store.write(batch, LockChanges::new())?;
            self.store.sync()?;
        }
        self.store.wipe(region)?;
        let prefix = layout::schemas_prefix(region.id);
        let mut batch = WriteBatch::default();
        let kv = self.store.snapshot();
        for pair in kv.scan(Keyspace::Meta, &prefix, &types::key::prefix_end(&prefix)) {
            batch.delete(Keyspace::Meta, pair?.0);
        }
        batch.delete(Keyspace::Meta, layout::region_key(region.id));
        batch.delete(Keyspace::Meta, layout::applied_key(region.id));
        self.store.write(batch, LockChanges::new())?;
        // What was destroyed must not be found again.
        self.store.sync()
    }
}
