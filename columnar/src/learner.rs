//! The learner's side of a Raft group: facts into tablets.
//!
//! Only regions that hold records have columnar learners, and a learner never creates a group nor serves
//! snapshots.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use raft::{Command, Effect, Machine, Machines, Position, SnapshotChunks, SnapshotSource};
use types::{Error, Region, Result};

use crate::apply::Outcome;
use crate::record::may_be_columns;
use crate::store::ColumnarStore;
use crate::tablet::Tablet;
use crate::tablets::Tablets;

/// Makes and finds the columnar machines of a node.
pub struct ColumnarMachines {
    store: ColumnarStore,
}

impl ColumnarMachines {
    /// Machines over a store.
    pub fn new(store: &ColumnarStore) -> Self {
        ColumnarMachines { store: store.clone() }
    }
}

impl Machines for ColumnarMachines {
    fn recover(&self) -> Result<Vec<Box<dyn Machine>>> {
        let tablets = &self.store.tablets;
        Ok(tablets.all().into_iter().map(|tablet| machine(tablet, tablets)).collect())
    }

    fn create(&self, region: &Region, initial: bool) -> Result<Box<dyn Machine>> {
        if initial || !may_be_columns(region.kind) {
            return Err(Error::Invalid(format!(
                "region {} cannot begin on a columnar node: columns follow regions with records as \
                 learners",
                region.id
            )));
        }
        if self.store.tablets.get(region.id).is_some() {
            return Err(Error::exists("region", region.id.to_string()));
        }
        let tablets = &self.store.tablets;
        Ok(machine(tablets.create(&self.store.shared, region)?, tablets))
    }

    fn destroy(&self, region: &Region) -> Result<()> {
        self.store.tablets.destroy(&self.store.shared, region.id)
    }
}

fn machine(tablet: Arc<Tablet>, tablets: &Arc<Tablets>) -> Box<dyn Machine> {
    Box::new(ColumnarMachine::new(tablet, tablets.clone()))
}

/// The columnar machine of one region's learner.
pub struct ColumnarMachine {
    tablet: Arc<Tablet>,
    /// Where the tablets of a split go.
    tablets: Arc<Tablets>,
    region: Region,
    applied: Position,
    /// Entries applied since the last published view.
    unseen: bool,
}

impl ColumnarMachine {
    fn new(tablet: Arc<Tablet>, tablets: Arc<Tablets>) -> Self {
        let (region, applied) = {
            let state = tablet.lock();
            (state.region.clone(), state.applied)
        };
        ColumnarMachine { tablet, tablets, region, applied, unseen: false }
    }

    /// Takes note of a disk that refuses writes: the peer is stopped by that.
    fn watched<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Io(_)) = result {
            self.tablet.shared.refused.store(true, Ordering::Release);
        }
        result
    }

    fn refresh(&mut self) {
        let state = self.tablet.lock();
        if self.region != state.region {
            self.region = state.region.clone();
        }
        self.applied = state.applied;
    }
}

impl Machine for ColumnarMachine {
    fn region(&self) -> &Region {
        &self.region
    }

    fn applied(&self) -> Position {
        self.applied
    }

    fn apply(&mut self, at: Position, command: Command<'_>) -> Result<Effect> {
        let applied = self.watched(self.tablet.apply(at, command, &self.tablets))?;
        self.unseen = true;
        self.refresh();
        Ok(match applied {
            Outcome::Applied => Effect::Applied,
            Outcome::Dropped => Effect::Dropped,
            Outcome::Split(children) => {
                let made = children.into_iter().map(|tablet| machine(tablet, &self.tablets));
                Effect::Split(made.collect())
            }
        })
    }

    fn finish_batch(&mut self) -> Result<()> {
        if std::mem::take(&mut self.unseen) {
            self.watched(self.tablet.finish_batch())?;
        }
        Ok(())
    }

    fn durable_index(&self) -> u64 {
        self.tablet.lock().durable
    }

    fn persist(&mut self) -> Result<()> {
        self.watched(self.tablet.persist())
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>> {
        Err(Error::Unavailable(format!(
            "the columnar replica of region {} does not serve snapshots: ask a voter",
            self.region.id
        )))
    }

    fn restore(
        &mut self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()> {
        self.tablet.restore(region, at, chunks)?;
        self.refresh();
        Ok(())
    }
}
