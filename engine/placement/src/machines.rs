//! Which machine a region of this node gets: placement's own, or one of the row store's.
//!
//! Nothing but that choice is made here.

use std::sync::Arc;

use kv::KvEngine;
use raft::{INITIAL_POSITION, Machine, Machines, Position, Room};
use types::{Error, Region, RegionKind, Result};

use crate::machine::PlacementMachine;
use crate::view::View;

/// Machines of a row node: placement's, and those of `rows`.
pub struct PlacementMachines {
    store: Arc<dyn KvEngine>,
    view: Arc<View>,
    rows: Option<Box<dyn Machines>>,
}

impl PlacementMachines {
    /// Placement's machine lives in `store` and shows its state in `view`; every other region's
    /// comes from `rows`.
    pub fn new(store: Arc<dyn KvEngine>, view: Arc<View>, rows: Option<Box<dyn Machines>>) -> Self {
        PlacementMachines { store, view, rows }
    }

    fn rows(&self, region: &Region) -> Result<&dyn Machines> {
        self.rows.as_deref().ok_or_else(|| {
            Error::Invalid(format!(
                "region {} cannot live here: this node holds no rows",
                region.id
            ))
        })
    }
}

impl Machines for PlacementMachines {
    /// Placement's own machine applies in memory.
    fn room(&self) -> Option<Room> {
        self.rows.as_ref().map_or_else(|| Some(Box::new(()) as Room), |rows| rows.room())
    }

    fn recover(&self) -> Result<Vec<Box<dyn Machine>>> {
        let mut machines = match &self.rows {
            Some(rows) => rows.recover()?,
            None => Vec::new(),
        };
        if let Some(own) = PlacementMachine::recover(self.store.clone(), self.view.clone())? {
            machines.push(Box::new(own));
        }
        Ok(machines)
    }

    fn create(&self, region: &Region, initial: bool) -> Result<Box<dyn Machine>> {
        if region.kind != RegionKind::Placement {
            return self.rows(region)?.create(region, initial);
        }
        let at = if initial { INITIAL_POSITION } else { Position::default() };
        let machine = PlacementMachine::create(self.store.clone(), self.view.clone(), region, at)?;
        Ok(Box::new(machine))
    }

    fn destroy(&self, region: &Region) -> Result<()> {
        if region.kind != RegionKind::Placement {
            return self.rows(region)?.destroy(region);
        }
        match PlacementMachine::recover(self.store.clone(), self.view.clone())? {
            Some(own) => own.destroy(),
            None => Ok(()),
        }
    }
}
