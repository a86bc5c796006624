//! The columnar store of one node: its tablets, their files, and the work behind the scenes.
//!
//! It starts no thread: [`ColumnarStore::maintain`] does one step of pending work, and a thin loop
//! or a simulation calls it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use env::{Clock, Disk};
use types::{RegionId, Result, Timestamp};

use crate::record::FileId;
use crate::shared::{Config, Shared};
use crate::snapshot::TabletHandle;
use crate::tablet::Tablet;
use crate::tablets::Tablets;

/// The columnar store of one node. Clones are the same store.
#[derive(Clone)]
pub struct ColumnarStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) tablets: Arc<Tablets>,
}

impl ColumnarStore {
    /// Opens a store, or begins one: loads the manifest and removes files that it does not name.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        config: Config,
    ) -> Result<Self> {
        let shared = Arc::new(Shared::open(disk, clock, dir, config)?);
        let tablets = Arc::new(Tablets::default());
        let records = shared.manifest.lock().state().tablets.clone();
        let mut last = 0;
        for record in records.into_values() {
            last = last.max(record.generation);
            let ids = record.parts.iter().flat_map(|part| [part.id, part.segment.id]);
            last = ids.fold(last, FileId::max);
            tablets.install(&shared, record)?;
        }
        last = last.max(shared.remove_orphans()?);
        shared.skip_ids(last);
        Ok(ColumnarStore { shared, tablets })
    }

    /// The tablet of a region, if this node holds a replica.
    pub fn tablet(&self, region: RegionId) -> Option<TabletHandle> {
        self.tablets.get(region).map(TabletHandle::new)
    }

    /// Regions with a replica here.
    pub fn regions(&self) -> Vec<RegionId> {
        self.tablets.all().iter().map(|tablet| tablet.id).collect()
    }

    /// Bytes of memory that decoded columns take.
    pub fn column_cache_bytes(&self) -> usize {
        self.shared.files.columns.used()
    }

    /// Keeps so many bytes of decoded columns at most from now on.
    pub fn set_column_cache(&self, bytes: usize) {
        self.shared.files.columns.resize(bytes);
    }

    /// Regions whose replica is damaged, and why: destroy the peer and add it again.
    pub fn needs_repair(&self) -> Vec<(RegionId, String)> {
        let faulty = |tablet: Arc<Tablet>| Some((tablet.id, tablet.fault()?));
        self.tablets.all().into_iter().filter_map(faulty).collect()
    }

    /// Whether a peer stands still because the disk refused a write, or was full. It does so until the store
    /// is opened anew: end the process once the disk takes writes again.
    pub fn refuses_writes(&self) -> bool {
        self.shared.refused.load(Ordering::Acquire)
    }

    /// Does one step of pending work: a flush, a merge, a rewrite of the manifest, the removal of
    /// files that nobody reads. `safe_point` is the oldest timestamp that readers may still ask
    /// for; rows deleted before it may go. Returns whether there was anything to do.
    pub fn maintain(&self, safe_point: Timestamp) -> Result<bool> {
        let shared = &self.shared;
        // First, and whatever becomes of the rest: on a full disk this is what makes room.
        let removed = shared.collect();
        if let Some(tablet) = self.tablets.fullest(&shared.config) {
            tablet.persist()?;
            return Ok(true);
        }
        let mut failed = None;
        for tablet in self.tablets.all().iter().filter(|tablet| tablet.usable().is_ok()) {
            match tablet.compact(safe_point) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // One that cannot be merged keeps no other from it.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let mut manifest = shared.manifest.lock();
        if !manifest.is_sound() || manifest.is_bloated() {
            manifest.rewrite()?;
            return Ok(true);
        }
        drop(manifest);
        removed
    }
}
