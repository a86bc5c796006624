//! What the leader of a term knows of resources: rates of groups, shared out among processes, and what nodes do with their
//! processors.
//!
//! Not confirmed by a quorum: a deposed leader's grants are those that were true a moment ago, and end with its lease on
//! whoever still asks it.

use env::Clock;
use parking_lot::{MappedMutexGuard, MutexGuard};
use resources::{Capacity, Grant, Place, Processors, Shares, Units, Use};
use types::calibration::Calibration;
use types::{Error, NodeId, Result};

use crate::api::{Node, NodeRole};
use crate::service::PlacementService;

/// Most groups that a process reports at a time.
const MOST_USES: usize = 4_096;

/// What is known in a term.
pub(crate) struct TermResources {
    term: u64,
    shares: Shares,
    capacity: Capacity,
}

impl PlacementService {
    /// Takes note of what a process has used, and grants it what it may use from now on of groups that are there.
    pub(crate) fn share(&self, node: NodeId, uses: Vec<Use>) -> Result<Vec<Grant>> {
        if uses.len() > MOST_USES {
            return Err(Error::Invalid(format!("one request reports at most {MOST_USES} groups")));
        }
        let (mut held, now) = (self.resources_of_term()?, self.clock.now());
        let shares = &mut held.shares;
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
        let held = self.resources_of_term()?;
        let state = self.view.read();
        let names = state.catalog.resources.groups.keys();
        Ok(names.map(|name| (name.clone(), held.shares.used(name).0)).collect())
    }

    /// Takes note of what a process has used of its processors.
    pub(crate) fn note_processors(&self, node: NodeId, processors: Processors) -> Result<()> {
        let known = self.view.read().nodes.get(&node).cloned();
        let known = known.ok_or_else(|| Error::not_found("node", node.to_string()))?;
        let (mut held, now) = (self.resources_of_term()?, self.clock.now());
        let used = held.shares.used_by_all();
        held.capacity.note(node, place(&known), processors, used, now, self.clock.unix_millis());
        Ok(())
    }

    /// How many units a second the cluster carries.
    pub(crate) fn calibrate(&self, by: Calibration) -> Result<u64> {
        self.resources_of_term()?.capacity.quota(by)
    }

    fn resources_of_term(&self) -> Result<MappedMutexGuard<'_, TermResources>> {
        let (term, now) = (self.lead()?, self.clock.now());
        Ok(MutexGuard::map(self.resources.lock(), |held| {
            let known = held.take().filter(|known| known.term == term);
            held.insert(known.unwrap_or_else(|| TermResources {
                term,
                shares: Shares::new(now),
                capacity: Capacity::new(now),
            }))
        }))
    }
}

fn place(node: &Node) -> Place {
    let host =
        node.rpc_address.rsplit_once(':').map_or(node.rpc_address.as_str(), |(host, _)| host);
    let rows = node.role == NodeRole::Row;
    let sql = node.role == NodeRole::Sql || (rows && !node.client_address.is_empty());
    Place { host: host.to_owned(), sql, rows }
}
