//! What a client remembers of where regions are.
//!
//! A memory, not a truth: region leaders refuse what is out of date, and the caller corrects it.

use std::collections::BTreeMap;

use types::{NodeId, Region, RegionId, RegionKind, key};

use crate::api::Route;
use crate::state::is_newer;

/// Routes by first key; ranges never overlap.
#[derive(Default)]
pub struct Routes {
    by_start: BTreeMap<Vec<u8>, Route>,
    starts: BTreeMap<RegionId, Vec<u8>>,
}

impl Routes {
    /// The remembered route of a key.
    pub fn locate(&self, key: &[u8]) -> Option<&Route> {
        let (_, route) = self
            .by_start
            .range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(key)))
            .next_back()?;
        route.region.contains(key).then_some(route)
    }

    /// The remembered regions that hold keys of a kind, if they cover it wholly.
    pub fn regions(&self, kind: RegionKind) -> Option<Vec<Route>> {
        let (start, end) = key::range(kind)?;
        let mut found = vec![self.locate(&start)?.clone()];
        for (first, route) in self.by_start.range(start..end.clone()) {
            match found.last() {
                Some(last) if last.region.start == *first => {}
                Some(last) if last.region.end == *first => found.push(route.clone()),
                _ => return None,
            }
        }
        found.last().is_some_and(|last| last.region.end >= end).then_some(found)
    }

    /// Remembers a route as placement returned it.
    pub fn insert(&mut self, route: Route) {
        self.remove(route.region.id);
        let overlapping: Vec<RegionId> = self
            .by_start
            .range(..route.region.end.clone())
            .rev()
            .take_while(|(_, known)| known.region.end > route.region.start)
            .map(|(_, known)| known.region.id)
            .collect();
        overlapping.into_iter().for_each(|region| self.remove(region));
        self.starts.insert(route.region.id, route.region.start.clone());
        self.by_start.insert(route.region.start.clone(), route);
    }

    /// Takes in a descriptor that a peer sent, such as those of `StaleEpoch`. What is known to be
    /// younger stays; the leader of a new half is guessed to be its parent's.
    pub fn learn(&mut self, region: &Region, leader: Option<NodeId>) {
        let known = self.route(region.id);
        if known.is_some_and(|known| !is_newer(region, &known.region)) {
            return;
        }
        let (known_leader, learners, rows, bytes) = known
            .or_else(|| self.locate(&region.start))
            .map(|route| (route.leader, route.ready_learners.clone(), route.rows, route.bytes))
            .unwrap_or_default();
        let leader = leader.or(known_leader).filter(|node| region.peer_on(*node).is_some());
        let ready_learners = learners
            .into_iter()
            .filter(|node| region.learners().any(|peer| peer.node == *node))
            .collect();
        self.insert(Route { region: region.clone(), leader, ready_learners, rows, bytes });
    }

    /// Takes note of where a region's leader is, or that it is not known.
    pub fn learn_leader(&mut self, region: RegionId, leader: Option<NodeId>) {
        if let Some(start) = self.starts.get(&region)
            && let Some(route) = self.by_start.get_mut(start)
        {
            route.leader = leader;
        }
    }

    /// The remembered route of a region.
    pub fn route(&self, region: RegionId) -> Option<&Route> {
        self.starts.get(&region).and_then(|start| self.by_start.get(start))
    }

    /// Forgets the regions that are not to be kept.
    pub fn retain(&mut self, keep: impl Fn(&Region) -> bool) {
        let gone: Vec<RegionId> = self
            .by_start
            .values()
            .filter(|route| !keep(&route.region))
            .map(|route| route.region.id)
            .collect();
        gone.into_iter().for_each(|region| self.remove(region));
    }

    /// Forgets a region.
    pub fn remove(&mut self, region: RegionId) {
        if let Some(start) = self.starts.remove(&region) {
            self.by_start.remove(&start);
        }
    }
}
