//! The columnar store of one node: its tablets, their files, and the work behind the scenes.
//!
//! It starts no thread: [`ColumnarStore::maintain`] does one step of pending work, and a thin loop
//! or a simulation calls it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Clock, Disk};
use parking_lot::{Mutex, RwLock};
use types::{Region, RegionId, Result, Timestamp};

use crate::cache::Cache;
use crate::manifest::Manifest;
use crate::reader::{Files, Segment};
use crate::record::{Edit, FileId, SegmentRecord, TabletRecord};
use crate::segment;
use crate::tablet::Tablet;
use crate::view::TabletHandle;

/// Memory budgets and thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of decoded columns kept for scans.
    pub column_cache_bytes: usize,
    /// Bytes of decoded key index blocks kept for looking up replaced versions.
    pub key_cache_bytes: usize,
    /// Segments kept open (two file handles and the zone maps of one file each).
    pub open_segments: usize,
    /// Rows of a delta from which it is flushed.
    pub delta_rows: usize,
    /// Bytes of a delta from which it is flushed.
    pub delta_bytes: usize,
    /// Log entries that only memory holds from which a tablet is flushed, whatever its rows. Less
    /// than what makes the Raft store persist a group by itself, for which it stops applying.
    pub log_entries: u64,
    /// Bytes of all deltas together from which the largest is flushed.
    pub deltas_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            column_cache_bytes: 256 << 20,
            key_cache_bytes: 32 << 20,
            open_segments: 512,
            delta_rows: 128 << 10,
            delta_bytes: 32 << 20,
            log_entries: 2_048,
            deltas_bytes: 128 << 20,
        }
    }
}

/// Typical size of a decoded column of a row group.
const COLUMN_BYTES: usize = 512 << 10;
/// Typical size of a decoded key index block.
const KEY_BLOCK_BYTES: usize = 16 << 10;

/// A delta this many times over its limits is flushed by the thread that applies: maintenance is
/// behind, and memory counts more than lag.
pub(crate) const OVERFULL: usize = 4;

/// What tablets share.
pub(crate) struct Shared {
    pub clock: Arc<dyn Clock>,
    pub config: Config,
    pub files: Arc<Files>,
    pub manifest: Mutex<Manifest>,
    /// Unix milliseconds when the store was opened.
    pub opened_ms: u64,
    tablets: RwLock<BTreeMap<RegionId, Arc<Tablet>>>,
    segments: Mutex<BTreeMap<FileId, Arc<Segment>>>,
    next_id: AtomicU64,
    /// Whether a peer was stopped because the disk refused a write.
    pub refused: AtomicBool,
}

/// The columnar store of one node. Clones are the same store.
#[derive(Clone)]
pub struct ColumnarStore {
    pub(crate) shared: Arc<Shared>,
}

impl ColumnarStore {
    /// Opens a store, or begins one: loads the manifest and removes files that it does not name.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        config: Config,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        let manifest = Manifest::open(disk.clone(), dir)?;
        let state = manifest.state().clone();
        let files = Arc::new(Files {
            disk,
            dir: dir.to_path_buf(),
            columns: Cache::new(config.column_cache_bytes, COLUMN_BYTES),
            keys: Cache::new(config.key_cache_bytes, KEY_BLOCK_BYTES),
            opened: Cache::new(config.open_segments, 1),
        });
        let shared = Arc::new(Shared {
            opened_ms: clock.unix_millis(),
            clock,
            config,
            manifest: Mutex::new(manifest),
            tablets: RwLock::new(BTreeMap::new()),
            segments: Mutex::new(BTreeMap::new()),
            next_id: AtomicU64::new(1),
            refused: AtomicBool::new(false),
            files,
        });
        let mut last = 0;
        for tablet in state.tablets.into_values() {
            last = last.max(tablet.generation);
            let ids = tablet.parts.iter().flat_map(|part| [part.id, part.segment.id]);
            last = ids.fold(last, FileId::max);
            let tablet = Tablet::new(shared.clone(), tablet)?;
            shared.tablets.write().insert(tablet.id, tablet);
        }
        last = last.max(shared.remove_orphans()?);
        shared.next_id.store(last + 1, Ordering::Relaxed);
        Ok(ColumnarStore { shared })
    }

    /// The tablet of a region, if this node holds a replica.
    pub fn tablet(&self, region: RegionId) -> Option<TabletHandle> {
        self.shared.tablet(region).map(TabletHandle::new)
    }

    /// Regions with a replica here.
    pub fn regions(&self) -> Vec<RegionId> {
        self.shared.tablets.read().keys().copied().collect()
    }

    /// Bytes of memory that decoded columns take.
    pub fn column_cache_bytes(&self) -> usize {
        self.shared.files.columns.used()
    }

    /// Regions whose replica is damaged, and why: destroy the peer and add it again.
    pub fn needs_repair(&self) -> Vec<(RegionId, String)> {
        let faulty = |tablet: Arc<Tablet>| Some((tablet.id, tablet.fault()?));
        self.shared.all().into_iter().filter_map(faulty).collect()
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
        if let Some(tablet) = shared.fullest() {
            tablet.persist()?;
            return Ok(true);
        }
        for tablet in shared.all() {
            if tablet.usable().is_ok() && tablet.compact(safe_point)? {
                return Ok(true);
            }
        }
        let mut manifest = shared.manifest.lock();
        if !manifest.is_sound() || manifest.is_bloated() {
            manifest.rewrite()?;
            return Ok(true);
        }
        drop(manifest);
        shared.collect()
    }
}

impl Shared {
    /// A number that no file, part or generation of this store had before.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub fn tablet(&self, region: RegionId) -> Option<Arc<Tablet>> {
        self.tablets.read().get(&region).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Tablet>> {
        self.tablets.read().values().cloned().collect()
    }

    /// The one object for a segment, shared by all tablets that hold parts of it.
    pub fn segment(&self, record: SegmentRecord) -> Arc<Segment> {
        let mut segments = self.segments.lock();
        let new = || Segment::new(record.clone(), self.files.clone());
        segments.entry(record.id).or_insert_with(new).clone()
    }

    /// Brings a tablet that the manifest holds into being, or fills the one that waits for data.
    pub fn install(self: &Arc<Self>, record: TabletRecord) -> Result<Arc<Tablet>> {
        let known = self.tablet(record.region.id);
        if let Some(tablet) = known {
            tablet.replace(record)?;
            return Ok(tablet);
        }
        let tablet = Tablet::new(self.clone(), record)?;
        self.tablets.write().insert(tablet.id, tablet.clone());
        Ok(tablet)
    }

    /// A tablet that waits for its first snapshot.
    pub fn create(self: &Arc<Self>, region: &Region) -> Result<Arc<Tablet>> {
        let record = TabletRecord::empty(region.clone(), self.next_id());
        self.manifest.lock().append(vec![Edit::Put(Box::new(record.clone()))])?;
        self.install(record)
    }

    /// Forgets a tablet. Readers that hold a snapshot of it finish; its files go after them.
    pub fn destroy(&self, region: RegionId) -> Result<()> {
        let Some(tablet) = self.tablet(region) else { return Ok(()) };
        // Under its lock, so that no flush or merge of it is installed afterwards.
        let state = tablet.lock();
        self.manifest.lock().append(vec![Edit::Drop(region)])?;
        tablet.retire();
        drop(state);
        self.tablets.write().remove(&region);
        Ok(())
    }

    /// The tablet whose delta should be flushed next, if any should.
    fn fullest(&self) -> Option<Arc<Tablet>> {
        let config = &self.config;
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

    /// Removes the files of segments that no tablet and no reader holds.
    fn collect(&self) -> Result<bool> {
        let mut removed = Vec::new();
        {
            let manifest = self.manifest.lock();
            if !manifest.is_sound() {
                return Ok(false);
            }
            let mut segments = self.segments.lock();
            segments.retain(|id, segment| {
                let held = Arc::strong_count(segment) > 1;
                if !held {
                    removed.push(*id);
                }
                held
            });
        }
        if !removed.is_empty() {
            self.files.columns.retain(|(id, ..)| !removed.contains(id));
            self.files.keys.retain(|(id, _)| !removed.contains(id));
        }
        for id in &removed {
            self.files.opened.remove(id);
            self.files.disk.remove(&segment::data_path(&self.files.dir, *id))?;
            self.files.disk.remove(&segment::keys_path(&self.files.dir, *id))?;
        }
        Ok(!removed.is_empty())
    }

    /// Removes files that a crash left behind; the greatest number seen.
    fn remove_orphans(&self) -> Result<FileId> {
        let known: HashSet<FileId> = self.segments.lock().keys().copied().collect();
        let mut last = 0;
        for path in self.files.disk.list(&self.files.dir)? {
            let Some(id) = segment::id_of(&path) else { continue };
            last = last.max(id);
            if !known.contains(&id) {
                self.files.disk.remove(&path)?;
            }
        }
        Ok(last)
    }
}
