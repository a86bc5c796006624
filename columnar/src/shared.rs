//! What the tablets of a node share: its clock and budgets, the manifest, open segments, and numbers for new files.
//!
//! It knows no tablet, so that a store that is let go of takes its tablets along.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use env::{Clock, Disk};
use parking_lot::Mutex;
use types::Result;

use crate::cache::Cache;
use crate::manifest::Manifest;
use crate::reader::{Files, Segment};
use crate::record::{FileId, SegmentRecord};
use crate::segment;

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
    segments: Mutex<BTreeMap<FileId, Arc<Segment>>>,
    next_id: AtomicU64,
    /// Whether a peer was stopped because the disk refused a write.
    pub refused: AtomicBool,
}

impl Shared {
    /// Opens the manifest, or begins one.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        config: Config,
    ) -> Result<Self> {
        disk.create_dir_all(dir)?;
        let manifest = Manifest::open(disk.clone(), dir)?;
        let files = Arc::new(Files {
            disk,
            dir: dir.to_path_buf(),
            columns: Cache::new(config.column_cache_bytes, COLUMN_BYTES),
            keys: Cache::new(config.key_cache_bytes, KEY_BLOCK_BYTES),
            opened: Cache::new(config.open_segments, 1),
        });
        Ok(Shared {
            opened_ms: clock.unix_millis(),
            clock,
            config,
            manifest: Mutex::new(manifest),
            segments: Mutex::new(BTreeMap::new()),
            next_id: AtomicU64::new(1),
            refused: AtomicBool::new(false),
            files,
        })
    }

    /// A number that no file, part or generation of this store had before.
    pub fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Numbers up to this one are taken.
    pub fn skip_ids(&self, last: u64) {
        self.next_id.store(last + 1, Ordering::Relaxed);
    }

    /// The one object for a segment, shared by all tablets that hold parts of it.
    pub fn segment(&self, record: SegmentRecord) -> Arc<Segment> {
        let mut segments = self.segments.lock();
        let new = || Segment::new(record.clone(), self.files.clone());
        segments.entry(record.id).or_insert_with(new).clone()
    }

    /// Removes the files of segments that no tablet and no reader holds.
    pub fn collect(&self) -> Result<bool> {
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
    pub fn remove_orphans(&self) -> Result<FileId> {
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
