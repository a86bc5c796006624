//! Watched queries, as this process knows them, and runaways that placement is to know of.
//!
//! What was met is kept until it is reported, and no more of it than is worth that: a limit may be so low that every statement
//! is a runaway.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use types::query_watch::{QueryWatch, Runaway};

/// Most runaways, and watches because of them, that wait to be reported.
const MOST_MET: usize = 1_000;

/// Watched queries as of a version of placement's. What is known is at most a moment old.
#[derive(Default)]
pub struct Watches {
    known: RwLock<(u64, Arc<Vec<QueryWatch>>)>,
    met: Mutex<(Vec<Runaway>, Vec<QueryWatch>)>,
}

impl Watches {
    /// As of which version they are known.
    pub fn version(&self) -> u64 {
        self.known.read().0
    }

    /// All of them, those that are over included.
    pub fn all(&self) -> Arc<Vec<QueryWatch>> {
        self.known.read().1.clone()
    }

    /// Takes in what placement says.
    pub fn take(&self, version: u64, watches: Vec<QueryWatch>) {
        *self.known.write() = (version, Arc::new(watches));
    }

    /// Counts one from now on, until placement says otherwise.
    pub fn add(&self, watch: QueryWatch) {
        let mut known = self.known.write();
        let mut all = known.1.to_vec();
        all.retain(|other| !other.is_like(&watch));
        all.push(watch);
        known.1 = Arc::new(all);
    }

    /// Has a runaway reported, and what is like it watched, here at once.
    pub fn note(&self, runaway: Runaway, watch: Option<QueryWatch>) {
        let mut met = self.met.lock();
        if met.0.len() < MOST_MET {
            met.0.push(runaway);
        }
        let Some(watch) = watch else { return };
        if met.1.len() < MOST_MET && !met.1.iter().any(|other| other.is_like(&watch)) {
            met.1.push(watch.clone());
        }
        drop(met);
        self.add(watch);
    }

    /// What is to be reported, from which on nobody else has it.
    pub fn take_met(&self) -> (Vec<Runaway>, Vec<QueryWatch>) {
        std::mem::take(&mut *self.met.lock())
    }
}

#[cfg(test)]
mod tests {
    use types::resource_group::{Action, Likeness};

    use super::*;

    #[test]
    fn what_waits_to_be_reported_is_bounded_and_watched_once() {
        let (watches, group, action) = (Watches::default(), "g".to_owned(), Action::Kill);
        let met = Runaway {
            at_ms: 1,
            group: group.clone(),
            watched: false,
            action: action.clone(),
            text: "SELECT 1".into(),
            digest: "d".into(),
            node: 7,
        };
        let watch = QueryWatch {
            id: 0,
            group,
            by: Likeness::Exact,
            text: "SELECT 1".into(),
            action,
            since_ms: 1,
            until_ms: None,
            source: "7".into(),
        };
        for _ in 0..2 * MOST_MET {
            watches.note(met.clone(), Some(watch.clone()));
        }
        assert_eq!(watches.all().len(), 1, "it counts at once");
        let (reported, watched) = watches.take_met();
        assert_eq!((reported.len(), watched.len()), (MOST_MET, 1));
        assert_eq!(watches.take_met(), (Vec::new(), Vec::new()));
    }
}
