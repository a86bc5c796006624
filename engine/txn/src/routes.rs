//! The client's cache of where regions live. It may be stale: leaders say so, and it is updated.
//!
//! It sends no requests itself.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use parking_lot::RwLock;
use placement::api::Route;
use types::{NodeId, Region, RegionId};

use crate::api::RegionRef;

/// Where to send a request for a key.
#[derive(Clone, Debug)]
pub struct Target {
    /// The region, as last seen.
    pub region: Arc<Region>,
    /// Node to ask.
    pub node: NodeId,
}

impl Target {
    /// The region as requests name it.
    pub fn reference(&self) -> RegionRef {
        RegionRef { id: self.region.id, epoch: self.region.epoch }
    }
}

#[derive(Clone, Debug)]
struct Known {
    region: Arc<Region>,
    leader: Option<NodeId>,
    /// Answers that led nowhere: whom to try next when no leader is known.
    misses: usize,
}

impl Known {
    fn target(&self) -> Option<Target> {
        let voters: Vec<NodeId> = self.region.voters().map(|peer| peer.node).collect();
        let guess = voters.get(self.misses % voters.len().max(1)).copied();
        Some(Target { region: self.region.clone(), node: self.leader.or(guess)? })
    }
}

/// Regions by their first key; ranges never overlap.
#[derive(Default)]
pub struct Routes {
    known: RwLock<BTreeMap<Vec<u8>, Known>>,
}

impl Routes {
    /// The region that holds a key.
    pub fn of(&self, key: &[u8]) -> Option<Target> {
        let known = self.known.read();
        let (_, route) = known.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        if route.region.contains(key) { route.target() } else { None }
    }

    /// The region that holds the keys right below `end`.
    pub fn below(&self, end: &[u8]) -> Option<Target> {
        let known = self.known.read();
        let (_, route) = known.range::<[u8], _>((Unbounded, Excluded(end))).next_back()?;
        if route.region.end.as_slice() >= end { route.target() } else { None }
    }

    /// Takes a region in, unless a newer shape of it is known; what it overlaps goes.
    pub fn learn(&self, region: &Region, leader: Option<NodeId>) {
        if region.start >= region.end {
            return;
        }
        let mut known = self.known.write();
        let overlapping: Vec<Vec<u8>> = known
            .range::<Vec<u8>, _>(..&region.end)
            .rev()
            .take_while(|(_, route)| route.region.end > region.start)
            .map(|(start, _)| start.clone())
            .collect();
        let newer = overlapping.iter().filter_map(|start| known.get(start)).any(|route| {
            let (old, new) = (route.region.epoch, region.epoch);
            old.version > new.version || (route.region.id == region.id && old > new)
        });
        if newer {
            return;
        }
        let mut leader = leader;
        for start in overlapping {
            if let Some(old) = known.remove(&start)
                && old.region.id == region.id
            {
                leader = leader.or(old.leader);
            }
        }
        let route = Known { region: Arc::new(region.clone()), leader, misses: 0 };
        known.insert(region.start.clone(), route);
    }

    /// Takes placement's routes in.
    pub fn learn_all(&self, routes: &[Route]) {
        routes.iter().for_each(|route| self.learn(&route.region, route.leader));
    }

    /// The node that leads a region, as somebody else said.
    pub fn led_by(&self, region: &Region, leader: NodeId) {
        self.change(region, |route| route.leader = Some(leader));
    }

    /// The node asked did not help: try another member next. Whether as many were asked in vain as the
    /// region had voters: it may have others by now.
    pub fn missed(&self, region: &Region) -> bool {
        let mut all = false;
        self.change(region, |route| {
            route.leader = None;
            route.misses += 1;
            all = route.misses >= route.region.voters().count();
        });
        all
    }

    /// Forgets a region.
    pub fn forget(&self, region: RegionId, start: &[u8]) {
        let mut known = self.known.write();
        if known.get(start).is_some_and(|route| route.region.id == region) {
            known.remove(start);
        }
    }

    fn change(&self, region: &Region, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.write();
        if let Some(route) = known.get_mut(&region.start)
            && route.region.id == region.id
        {
            change(route);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Peer, PeerRole, RegionKind};

    use super::*;

    fn region(id: RegionId, version: u64, start: &str, end: &str) -> Region {
        let peer = |node| Peer { id: id * 10 + node, node, role: PeerRole::Voter };
        Region {
            id,
            epoch: Epoch { version, conf: 1 },
            kind: RegionKind::Records(1),
            start: start.into(),
            end: end.into(),
            peers: vec![peer(1), peer(2), peer(3)],
        }
    }

    #[test]
    fn newer_shapes_replace_older_ones_and_never_the_other_way_round() {
        let routes = Routes::default();
        routes.learn(&region(1, 1, "a", "z"), Some(2));
        assert_eq!(routes.of(b"m").unwrap().node, 2);
        routes.learn(&region(1, 2, "a", "m"), None);
        assert_eq!(routes.of(b"b").unwrap().node, 2, "the leader stays known");
        assert!(routes.of(b"m").is_none());
        routes.learn(&region(2, 2, "m", "z"), None);
        routes.learn(&region(1, 1, "a", "z"), Some(3));
        assert_eq!(routes.of(b"m").unwrap().region.id, 2);
        assert_eq!(routes.below(b"m").unwrap().region.id, 1);
        assert_eq!(routes.below(b"z").unwrap().region.id, 2);
        assert!(routes.of(b"z").is_none());
    }

    #[test]
    fn members_are_tried_in_turn_while_no_leader_is_known() {
        let routes = Routes::default();
        let whole = region(1, 1, "a", "z");
        routes.learn(&whole, None);
        let mut chosen = Vec::new();
        let mut all = Vec::new();
        for _ in 0..3 {
            chosen.push(routes.of(b"b").unwrap().node);
            all.push(routes.missed(&whole));
        }
        assert_eq!(chosen, [1, 2, 3]);
        assert_eq!(all, [false, false, true], "then placement is to be queried");
        routes.led_by(&whole, 3);
        assert_eq!(routes.of(b"b").unwrap().node, 3);
    }
}
