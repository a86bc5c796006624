//! What becomes of each group, from what all survivors report. Pure, and the same on each of them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use placement::alone::Survivors;
use raft::{Outcome, Replica, decide};
use types::region::PLACEMENT_REGION;
use types::{NodeId, Region, RegionId, RegionKind, Table};

use super::report::Report;

/// A group as survivors know it, and what becomes of it.
pub(super) struct Group {
    /// By the newest membership that any of them has applied.
    pub region: Region,
    pub outcome: Outcome,
    /// Nodes of voters that are not among the survivors.
    pub lost: BTreeSet<NodeId>,
    /// What the one who goes on holds.
    pub held: Option<Replica>,
}

/// What becomes of everything.
pub(super) struct Plan {
    pub nodes: BTreeSet<NodeId>,
    pub outcomes: BTreeMap<RegionId, Outcome>,
    pub groups: Vec<Group>,
}

impl Plan {
    /// Decides, or says why there is nothing to decide.
    pub fn make(own: &Report, others: &BTreeMap<NodeId, Report>) -> Result<Self> {
        let all = || others.values().chain([own]);
        let replicas: BTreeMap<NodeId, Vec<Replica>> =
            all().map(|report| (report.node, report.replicas.clone())).collect();
        let outcomes = decide(&replicas);
        let nodes = replicas.keys().copied().collect();
        let plan = Plan { groups: groups(&outcomes, all(), &nodes), nodes, outcomes };
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<()> {
        if !self.outcomes.values().any(|outcome| matches!(outcome, Outcome::Alone { .. })) {
            bail!(
                "a quorum is left of every group that these nodes hold: start them, and row nodes with \
                 empty directories in place of the lost ones"
            );
        }
        match self.outcomes.get(&PLACEMENT_REGION) {
            Some(Outcome::Quorum | Outcome::Alone { .. }) => Ok(()),
            _ => bail!(
                "none of these nodes holds placement's group, so nobody knows what tables there are: \
                 name the reports of all survivors by --with; one of the first row nodes must be \
                 among them"
            ),
        }
    }

    /// The survivor that goes on with placement alone, if placement has no quorum.
    pub fn home(&self) -> Option<NodeId> {
        match self.outcomes.get(&PLACEMENT_REGION) {
            Some(Outcome::Alone { node, .. }) => Some(*node),
            _ => None,
        }
    }
}

fn groups<'a>(
    outcomes: &BTreeMap<RegionId, Outcome>,
    reports: impl Iterator<Item = &'a Report>,
    nodes: &BTreeSet<NodeId>,
) -> Vec<Group> {
    let mut held: BTreeMap<RegionId, Vec<(NodeId, &Replica)>> = BTreeMap::new();
    for report in reports {
        for replica in &report.replicas {
            held.entry(replica.region.id).or_default().push((report.node, replica));
        }
    }
    let group = |(id, outcome): (&RegionId, &Outcome)| {
        let replicas = held.get(id)?;
        let newest = |(_, one): &&(NodeId, &Replica)| (one.region.epoch.conf, one.applied.index);
        let region = replicas.iter().max_by_key(newest)?.1.region.clone();
        let lost = region.voters().map(|voter| voter.node).filter(|node| !nodes.contains(node));
        let lost = lost.collect();
        let goes_on =
            |node: &NodeId| matches!(outcome, Outcome::Alone { node: one, .. } if one == node);
        let held = replicas.iter().find(|(node, _)| goes_on(node)).map(|(_, one)| (*one).clone());
        Some(Group { region, outcome: *outcome, lost, held })
    };
    outcomes.iter().filter_map(group).collect()
}

/// What is reported to placement. `own` may know more by now than when the plan was made.
pub(super) fn survivors(plan: &Plan, own: &Report, others: &BTreeMap<NodeId, Report>) -> Survivors {
    let all = || others.values().chain([own]);
    let replicas = || all().flat_map(|report| &report.replicas);
    let numbers = replicas().flat_map(|replica| {
        let peers = replica.region.peers.iter().flat_map(|peer| [peer.id, peer.node]);
        peers.chain([replica.region.id, replica.peer.id])
    });
    let voters = plan.groups.iter().filter(|group| group.region.id == PLACEMENT_REGION);
    let mut tables: BTreeMap<u64, Table> = BTreeMap::new();
    for table in all().flat_map(|report| &report.tables) {
        if tables.get(&table.id).is_none_or(|known| known.version < table.version) {
            tables.insert(table.id, table.clone());
        }
    }
    Survivors {
        nodes: plan.nodes.clone(),
        home: plan.home().unwrap_or(own.node),
        voters: voters.flat_map(|group| group.region.voters()).map(|voter| voter.node).collect(),
        regions: regions(plan, own, others),
        tables: tables.into_values().collect(),
        numbers_below: numbers.max().unwrap_or(0).saturating_add(1),
        time_ms: all()
            .map(|report| report.clock_ms.max(report.newest.physical_ms()))
            .max()
            .unwrap_or(0)
            .saturating_add(1),
    }
}

/// Every region but placement's own, as it goes on.
fn regions(plan: &Plan, own: &Report, others: &BTreeMap<NodeId, Report>) -> Vec<Region> {
    let mut regions = Vec::new();
    for group in plan.groups.iter().filter(|group| group.region.kind != RegionKind::Placement) {
        let id = group.region.id;
        match group.outcome {
            Outcome::Quorum => regions.push(group.region.clone()),
            Outcome::Alone { node, conf, .. } => {
                let report = if node == own.node { Some(own) } else { others.get(&node) };
                let replicas = report.into_iter().flat_map(|report| &report.replicas);
                regions
                    .extend(replicas.filter(|one| one.region.id == id).map(|one| one.alone(conf)));
            }
            Outcome::Lost => {}
        }
    }
    let new = own.replicas.iter().filter(|one| !plan.outcomes.contains_key(&one.region.id));
    regions.extend(new.map(|one| one.alone(one.region.epoch.conf + raft::FAR)));
    regions
}
