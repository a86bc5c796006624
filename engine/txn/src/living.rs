//! Which timestamps this client's transactions read at: placement keeps their versions.
//!
//! A count for each, no more; what is counted is reported with the node's heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use types::Timestamp;

/// Timestamps of living transactions.
#[derive(Default)]
pub(crate) struct Living(Mutex<BTreeMap<Timestamp, usize>>);

/// One living transaction, until dropped.
pub(crate) struct Alive {
    among: Arc<Living>,
    ts: Timestamp,
}

impl Living {
    /// Counts a transaction in.
    pub(crate) fn enter(self: &Arc<Self>, ts: Timestamp) -> Arc<Alive> {
        *self.0.lock().entry(ts).or_default() += 1;
        Arc::new(Alive { among: self.clone(), ts })
    }

    /// The oldest one.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.0.lock().keys().next().copied()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let mut counts = self.among.0.lock();
        if let Some(count) = counts.get_mut(&self.ts) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.ts);
            }
        }
    }
}
