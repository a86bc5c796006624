//! Rates of resource groups, shared out among processes by the leader of a term.
//!
//! Not confirmed by a quorum: a deposed leader's grants are those that were true a moment ago, and end with its lease on
//! whoever still asks it.

use resources::{Grant, Shares, Units, Use};
use types::{Error, NodeId, Result};

use crate::service::PlacementService;

/// Most groups that a process reports at a time.
const MOST_USES: usize = 4_096;

impl PlacementService {
    /// Takes note of what a process has used, and grants it what it may use from now on of groups that are there.
    pub(crate) fn share(&self, node: NodeId, uses: Vec<Use>) -> Result<Vec<Grant>> {
        if uses.len() > MOST_USES {
            return Err(Error::Invalid(format!("one request reports at most {MOST_USES} groups")));
        }
        let (term, now) = (self.lead()?, env::Clock::now(&self.clock));
        let state = self.view.read();
        let groups = &state.catalog.resources.groups;
        let mut held = self.shares.lock();
        let known = held.take().filter(|(of, _)| *of == term);
        let (_, shares) = held.insert(known.unwrap_or_else(|| (term, Shares::new(now))));
        shares.retain(|name| groups.contains_key(name));
        let grants = uses.into_iter().filter_map(|of| {
            let rate = groups.get(&of.group)?.limit().map(Units::whole);
            Some(shares.ask(node, of, rate, now))
        });
        Ok(grants.collect())
    }
}
