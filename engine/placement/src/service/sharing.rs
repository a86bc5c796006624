//! Rates of resource groups, shared out among processes by the leader of a term.
//!
//! Not confirmed by a quorum: a deposed leader's grants are those that were true a moment ago, and end with its lease on
//! whoever still asks it.

use parking_lot::{MappedMutexGuard, MutexGuard};
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
        let (mut shares, now) = (self.shares_of_term()?, env::Clock::now(&self.clock));
        let state = self.view.read();
        let groups = &state.catalog.resources.groups;
        shares.retain(|name| groups.contains_key(name));
        let grants = uses.into_iter().filter_map(|of| {
            let rate = groups.get(&of.group)?.limit().map(Units::whole);
            Some(shares.ask(node, of, rate, now))
        });
        Ok(grants.collect())
    }

    /// What each group has used in this leader's term, in millionths of units.
    pub(crate) fn units_used(&self) -> Result<Vec<(String, u64)>> {
        let shares = self.shares_of_term()?;
        let state = self.view.read();
        let names = state.catalog.resources.groups.keys();
        Ok(names.map(|name| (name.clone(), shares.used(name).0)).collect())
    }

    fn shares_of_term(&self) -> Result<MappedMutexGuard<'_, Shares>> {
        let (term, now) = (self.lead()?, env::Clock::now(&self.clock));
        Ok(MutexGuard::map(self.shares.lock(), |held| {
            let known = held.take().filter(|(of, _)| *of == term);
            &mut held.insert(known.unwrap_or_else(|| (term, Shares::new(now)))).1
        }))
    }
}
