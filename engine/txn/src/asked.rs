//! How often this client has asked each region lately: placement brings leaders to where they are asked.

use std::collections::HashMap;

use parking_lot::Mutex;
use types::RegionId;

/// Regions of one report, at most: those that were asked most.
const MOST: usize = 1_024;

/// Requests by region since they were last taken.
#[derive(Default)]
pub(crate) struct Asked(Mutex<HashMap<RegionId, u64>>);

impl Asked {
    /// Counts a request.
    pub(crate) fn count(&self, region: RegionId) {
        *self.0.lock().entry(region).or_default() += 1;
    }

    /// Takes the counts.
    pub(crate) fn take(&self) -> Vec<(RegionId, u64)> {
        let mut asked: Vec<_> = std::mem::take(&mut *self.0.lock()).into_iter().collect();
        asked.sort_unstable_by_key(|(region, count)| (std::cmp::Reverse(*count), *region));
        asked.truncate(MOST);
        asked
    }
}
