//! The tablets of a node, by region: those that the manifest holds, made and destroyed with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use types::{Region, RegionId, Result};

use crate::record::{Edit, TabletRecord};
use crate::shared::{Config, Shared};
use crate::tablet::Tablet;

/// The tablets of one store.
#[derive(Default)]
pub(crate) struct Tablets {
    by_region: RwLock<BTreeMap<RegionId, Arc<Tablet>>>,
}

impl Tablets {
    /// The tablet of a region.
    pub fn get(&self, region: RegionId) -> Option<Arc<Tablet>> {
        self.by_region.read().get(&region).cloned()
    }

    /// All of them, by their regions' numbers.
    pub fn all(&self) -> Vec<Arc<Tablet>> {
        self.by_region.read().values().cloned().collect()
    }

    /// Brings a tablet that the manifest holds into being, or fills the one that waits for data.
    pub fn install(&self, shared: &Arc<Shared>, record: TabletRecord) -> Result<Arc<Tablet>> {
        let known = self.get(record.region.id);
        if let Some(tablet) = known {
            tablet.replace(record)?;
            return Ok(tablet);
        }
        let tablet = Tablet::new(shared.clone(), record)?;
        self.by_region.write().insert(tablet.id, tablet.clone());
        Ok(tablet)
    }

    /// A tablet that waits for its first snapshot.
    pub fn create(&self, shared: &Arc<Shared>, region: &Region) -> Result<Arc<Tablet>> {
        let record = TabletRecord::empty(region.clone(), shared.next_id());
        shared.manifest.lock().append(vec![Edit::Put(Box::new(record.clone()))])?;
        self.install(shared, record)
    }

    /// Forgets a tablet. Readers that hold a snapshot of it finish; its files go after them.
    pub fn destroy(&self, shared: &Shared, region: RegionId) -> Result<()> {
        let Some(tablet) = self.get(region) else { return Ok(()) };
        // Under its lock, so that no flush or merge of it is installed afterwards.
        let state = tablet.lock();
        shared.manifest.lock().append(vec![Edit::Drop(region)])?;
        tablet.retire();
        drop(state);
        self.by_region.write().remove(&region);
        Ok(())
    }

    /// The tablet whose delta should be flushed next, if any should.
    pub fn fullest(&self, config: &Config) -> Option<Arc<Tablet>> {
        let mut all = 0;
        let mut largest = None;
        for tablet in self.all() {
            let Some((rows, bytes, entries)) = tablet.backlog() else { continue };
            if rows >= config.delta_rows
                || bytes >= config.delta_bytes
                || entries >= config.log_entries
            {
                return Some(tablet);
            }
            all += bytes;
            if largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, tablet));
            }
        }
        largest.filter(|_| all >= config.deltas_bytes).map(|(_, tablet)| tablet)
    }
}
