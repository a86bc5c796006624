//! Watched queries, as this process knows them.

use std::sync::Arc;

use parking_lot::RwLock;
use types::query_watch::QueryWatch;

/// Watched queries as of a version of placement's. What is known is at most a moment old.
#[derive(Default)]
pub struct Watches(RwLock<(u64, Arc<Vec<QueryWatch>>)>);

impl Watches {
    /// As of which version they are known.
    pub fn version(&self) -> u64 {
        self.0.read().0
    }

    /// All of them, those that are over included.
    pub fn all(&self) -> Arc<Vec<QueryWatch>> {
        self.0.read().1.clone()
    }

    /// Takes in what placement says.
    pub fn take(&self, version: u64, watches: Vec<QueryWatch>) {
        *self.0.write() = (version, Arc::new(watches));
    }

    /// Counts one from now on, until placement says otherwise.
    pub fn add(&self, watch: QueryWatch) {
        let mut known = self.0.write();
        let mut all = known.1.to_vec();
        all.retain(|other| !other.is_like(&watch));
        all.push(watch);
        known.1 = Arc::new(all);
    }
}
