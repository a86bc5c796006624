//! Since when a node goes by the newest description of each region's table, in the oracle's time.
//!
//! A memory: it begins anew with the process, and what waits for it waits a little longer.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use types::{RegionId, SchemaVersion, Timestamp};

/// The newest description of each region's table, and a timestamp from after it was applied here.
#[derive(Default)]
pub(crate) struct Described(Mutex<BTreeMap<RegionId, (SchemaVersion, Timestamp)>>);

impl Described {
    /// The timestamp of a region's description, if it is this one.
    pub(crate) fn since(&self, region: RegionId, version: SchemaVersion) -> Option<Timestamp> {
        let known = self.0.lock().get(&region).copied();
        known.filter(|known| known.0 == version).map(|(_, ts)| ts)
    }

    pub(crate) fn note(&self, region: RegionId, version: SchemaVersion, ts: Timestamp) {
        self.0.lock().insert(region, (version, ts));
    }

    /// Forgets regions that are not to be kept.
    pub(crate) fn retain(&self, keep: impl Fn(RegionId) -> bool) {
        self.0.lock().retain(|region, _| keep(*region));
    }
}
