//! What the leader of a term knows of nodes and resources: rates of groups, shared out among processes, what nodes do with
//! their processors, and by what settings they go.
//!
//! Not confirmed by a quorum: a deposed leader's grants are those that were true a moment ago, and end with its lease on
//! whoever still asks it.

use std::collections::BTreeMap;

use env::Clock;
use parking_lot::{MappedMutexGuard, MutexGuard};
use resources::{Capacity, Grant, Place, Processors, Shares, Units, Use};
use types::calibration::Calibration;
use types::{Error, NodeId, Result};

use crate::api::{Node, NodeRole, NodeSettings};
use crate::service::PlacementService;

/// Most groups that a process reports at a time.
const MOST_USES: usize = 4_096;

/// Most settings of a node, and bytes of one.
const MOST_SETTINGS: (usize, usize) = (64, 4_096);

/// What is known in a term.
pub(crate) struct TermResources {
    term: u64,
    shares: Shares,
    capacity: Capacity,
    settings: BTreeMap<NodeId, Vec<(String, String)>>,
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

    /// Takes note of the settings that a node goes by.
    pub(crate) fn note_settings(
        &self,
        node: NodeId,
        settings: Vec<(String, String)>,
    ) -> Result<()> {
        let (most, longest) = MOST_SETTINGS;
        let too_long = |(name, value): &(String, String)| name.len() + value.len() > longest;
        if settings.len() > most || settings.iter().any(too_long) {
            return Err(Error::Invalid(format!(
                "a node reports at most {most} settings, each of at most {longest} bytes"
            )));
        }
        if !self.view.read().nodes.contains_key(&node) {
            return Err(Error::not_found("node", node.to_string()));
        }
        self.resources_of_term()?.settings.insert(node, settings);
        Ok(())
    }

    /// The settings that nodes go by, as they have said.
    pub(crate) fn node_settings(&self) -> Result<NodeSettings> {
        let mut held = self.resources_of_term()?;
        let state = self.view.read();
        held.settings.retain(|node, _| state.nodes.contains_key(node));
        Ok(held.settings.iter().map(|(node, settings)| (*node, settings.clone())).collect())
    }

    fn resources_of_term(&self) -> Result<MappedMutexGuard<'_, TermResources>> {
        let (term, now) = (self.lead()?, self.clock.now());
        Ok(MutexGuard::map(self.resources.lock(), |held| {
            let known = held.take().filter(|known| known.term == term);
            held.insert(known.unwrap_or_else(|| TermResources {
                term,
                shares: Shares::new(now),
                capacity: Capacity::new(now),
                settings: BTreeMap::new(),
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
