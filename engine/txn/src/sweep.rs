//! Removes what a region's floors allow to go: superseded versions, tombstones, fates, entries of dropped indexes.
//!
//! A little at a time, in the background, on each replica for itself: what is garbage for one is
//! garbage for all, so any part of it may be missing or left anywhere. Nothing is recorded; after a
//! restart it starts over. Reads need no care: they check the floors after taking their view. The
//! machine does: what this file decides on is looked at again behind the region's gate.
//!
//! Order is what keeps it right at every prefix of its batches: of one key, versions go before the
//! tombstone that hides them.

mod dropped;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kv::{Keyspace, KvRead, WriteBatch};
use types::{Region, RegionId, Result, Timestamp};

use crate::api::Mode;
use crate::fact::Floors;
use crate::layout::{self, DataRecord, Fate, HistRecord};
use crate::locks::LockChanges;
use crate::mvcc;
use crate::store::{RegionView, RowStore};

/// Stored pairs that one step looks at, at most.
const STEP_KEYS: usize = 1_024;

/// One walk over a region's garbage.
#[derive(Debug)]
pub struct Sweep {
    view: Arc<RegionView>,
    phase: Phase,
    /// Where the phase goes on.
    cursor: Vec<u8>,
    /// The key whose versions are being walked, newest first.
    open: Option<OpenKey>,
    /// Bytes of older versions that stay, as far as they were seen.
    kept: u64,
    /// What was thought to be there when the walk began.
    thought: u64,
    removed: u64,
    step: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Dropped,
    Versions,
    Fates,
    Done,
}

#[derive(Debug)]
struct OpenKey {
    key: Vec<u8>,
    /// The newest version as it was looked up: not before a version is met that it may have ended below the floor, for most
    /// of what is walked over is younger.
    newest: Option<DataRecord>,
    /// When the older version seen last was committed: it ends the next one. None before the first.
    later: Option<Timestamp>,
    /// Tombstone that readers at the floor see; of no use once nothing older is left.
    tombstone: Option<Vec<u8>>,
    /// A version stays.
    stays: bool,
}

/// What a step removes.
#[derive(Default)]
struct Garbage {
    batch: WriteBatch,
    /// Keys that end with a tombstone, as they were seen: gone unless they have changed.
    dead: Vec<(Vec<u8>, DataRecord)>,
}

impl Sweep {
    /// A walk over a region as it is now; none if it is not whole on this node.
    pub fn new(store: &RowStore, region: RegionId) -> Option<Self> {
        let view = store.region(region).filter(|view| view.whole)?;
        let (phase, cursor) = match store.can_drop_entries(&view) {
            true => (Phase::Dropped, view.region.start.clone()),
            false => (Phase::Versions, layout::escaped_bound(&view.region.start)),
        };
        let thought = view.history_bytes();
        Some(Sweep {
            view,
            phase,
            cursor,
            open: None,
            kept: 0,
            thought,
            removed: 0,
            step: STEP_KEYS,
        })
    }

    /// Makes shorter steps; for tests, whose regions one step would walk over.
    #[doc(hidden)]
    pub fn step_keys(mut self, keys: usize) -> Self {
        self.step = keys;
        self
    }

    /// What the walk removes up to.
    pub fn floors(&self) -> Floors {
        self.view.floors
    }

    /// Records removed.
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// One version of a key, newest first.
    fn version(
        &mut self,
        kv: &dyn KvRead,
        stored: Vec<u8>,
        value: Vec<u8>,
        garbage: &mut Garbage,
    ) -> Result<()> {
        let floor = self.view.floors.read;
        let (key, commit_ts) = layout::split_hist_key(&stored)?;
        if self.open.as_ref().is_none_or(|open| open.key != key) {
            self.close(garbage);
            self.open =
                Some(OpenKey { key, newest: None, later: None, tombstone: None, stays: false });
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let bytes = (stored.len() + value.len()) as u64;
        let later = open.later.replace(commit_ts);
        if commit_ts > floor {
            open.stays = true;
            self.kept += bytes;
            return Ok(());
        }
        let ended = match later {
            Some(later) => later,
            None => open.newest.insert(mvcc::data(kv, &open.key)?).commit_ts,
        };
        if ended <= floor && ended > commit_ts {
            garbage.batch.delete(Keyspace::Hist, stored);
        } else if HistRecord::decode(value)?.row.is_none() {
            open.tombstone = Some(stored);
        } else {
            open.stays = true;
            self.kept += bytes;
        }
        Ok(())
    }

    /// The versions of a key have been walked.
    fn close(&mut self, garbage: &mut Garbage) {
        let Some(OpenKey { key, newest, tombstone, stays, .. }) = self.open.take() else { return };
        if let Some(stored) = tombstone {
            // Everything older has gone, in this batch or an earlier one.
            garbage.batch.delete(Keyspace::Hist, stored);
        }
        // Where nothing stays, the first version was old enough for the newest to be looked up.
        if let Some(newest) =
            newest.filter(|newest| !stays && is_dead(newest, self.view.floors.read))
        {
            garbage.dead.push((key, newest));
        }
    }

    /// What was written meanwhile comes on top of what was seen.
    fn recount(&self) {
        let Sweep { view, kept, thought, .. } = self;
        let since = |now: u64| Some(now.saturating_sub(*thought) + kept);
        _ = view.history.fetch_update(Ordering::Relaxed, Ordering::Relaxed, since);
    }

    fn fate(
        &mut self,
        kv: &dyn KvRead,
        stored: Vec<u8>,
        value: &[u8],
        garbage: &mut Garbage,
    ) -> Result<()> {
        let Floors { read, settled } = self.view.floors;
        let (key, start_ts) = layout::split_fate_key(&stored)?;
        let commit_ts = Fate::decode(value)?.commit_ts().unwrap_or(Timestamp::ZERO);
        // Who held a key without changing it shows a new replica until when, by its fate alone.
        if start_ts >= settled || commit_ts > read {
            return Ok(());
        }
        garbage.batch.delete(Keyspace::Fate, stored);
        let newest = mvcc::data(kv, &key)?;
        let (from, to) = (layout::hist_key(&key, Timestamp::MAX), layout::hist_end(&key));
        if is_dead(&newest, read) && kv.scan(Keyspace::Hist, &from, &to).next().is_none() {
            garbage.dead.push((key, newest));
        }
        Ok(())
    }
}

/// Whether a key's record says no more than its absence would: readers from the floor on see no
/// row, and no writer from the floor on conflicts with it.
fn is_dead(record: &DataRecord, floor: Timestamp) -> bool {
    let last = record.newest(Mode::Exclusive);
    record.row.is_none() && last > Timestamp::ZERO && last <= floor
}

impl RowStore {
    /// Goes on with a walk; false once it has ended, or the region is not what it was.
    pub fn sweep(&self, sweep: &mut Sweep) -> Result<bool> {
        let (space, next) = match sweep.phase {
            Phase::Versions => (Keyspace::Hist, Phase::Fates),
            Phase::Fates => (Keyspace::Fate, Phase::Done),
            Phase::Dropped => {
                if !self.sweep_dropped(sweep)? {
                    sweep.phase = Phase::Done;
                }
                return Ok(sweep.phase != Phase::Done);
            }
            Phase::Done => return Ok(false),
        };
        let kv = self.snapshot();
        let Region { start, end, .. } = sweep.view.region.clone();
        let mut garbage = Garbage::default();
        let (mut seen, mut last) = (0, None);
        for pair in kv.scan(space, &sweep.cursor, &layout::escaped_bound(&end)).take(sweep.step) {
            let (stored, value) = pair?;
            seen += 1;
            last = Some(stored.clone());
            match sweep.phase {
                Phase::Versions => sweep.version(kv.as_ref(), stored, value, &mut garbage)?,
                _ => sweep.fate(kv.as_ref(), stored, &value, &mut garbage)?,
            }
        }
        match last {
            Some(mut last) if seen == sweep.step => {
                last.push(0);
                sweep.cursor = last;
            }
            _ => {
                if sweep.phase == Phase::Versions {
                    sweep.close(&mut garbage);
                    sweep.recount();
                }
                (sweep.phase, sweep.cursor) = (next, layout::escaped_bound(&start));
            }
        }
        drop(kv);
        let stands = self.remove(sweep, garbage)?;
        if !stands {
            sweep.phase = Phase::Done;
        }
        Ok(sweep.phase != Phase::Done)
    }

    /// Whether a region has the shape in which the walk began.
    fn stands(&self, sweep: &Sweep) -> bool {
        self.region(sweep.view.region.id).is_some_and(|now| {
            let (now, then) = (&now, &sweep.view);
            let range = |view: &RegionView| (view.region.start.clone(), view.region.end.clone());
            now.whole && Arc::ptr_eq(&now.gate, &then.gate) && range(now) == range(then)
        })
    }

    /// Writes what a step found, unless the region has changed shape or left.
    fn remove(&self, sweep: &mut Sweep, garbage: Garbage) -> Result<bool> {
        let Garbage { mut batch, dead } = garbage;
        let _alone = sweep.view.gate.lock();
        if !self.stands(sweep) {
            return Ok(false);
        }
        for (key, seen) in dead {
            // A version that was written since the view was taken must not go with the tombstone.
            let now = self.engine().get(Keyspace::Data, &key)?.map(DataRecord::decode);
            if now.transpose()?.is_some_and(|now| now == seen) {
                batch.delete(Keyspace::Data, key);
            }
        }
        if !batch.is_empty() {
            sweep.removed += batch.changes.len() as u64;
            self.write(batch, LockChanges::new())?;
        }
        Ok(true)
    }
}
