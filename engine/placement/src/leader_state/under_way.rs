//! Moves under way: what was ordered of a region's leader, and whether it still holds.
//!
//! It decides nothing of what is to be moved.

use env::Instant;
use types::{NodeId, Peer, PeerId, Region};

use crate::api::Order;

/// A move under way: repeated to the region's leader until its reports show it.
pub(super) struct Plan {
    pub order: Order,
    /// The region that it was made for.
    pub of: Region,
    pub transferee: Option<NodeId>,
    pub until: Instant,
}

impl Plan {
    /// Whether the peer is among the members that were ordered.
    pub fn adds(&self, peer: PeerId) -> bool {
        let Order::Membership { peers, .. } = &self.order else { return false };
        peers.iter().any(|one| one.id == peer)
    }

    /// Whether a region, as it is now, still lacks what was ordered, and nobody else has changed its members
    /// meanwhile: a peer that was removed never comes back. A change of members takes several steps: a
    /// learner on the way to being a voter is no surplus learner.
    pub fn goes_on(&self, region: &Region) -> bool {
        let Order::Membership { peers: wanted, .. } = &self.order else {
            return region.epoch == self.of.epoch;
        };
        let holds = |peers: &[Peer], id| peers.iter().any(|peer| peer.id == id);
        let stays = |peer: &&Peer| holds(wanted, peer.id);
        let lost = self.of.peers.iter().filter(stays).any(|peer| region.peer(peer.id).is_none());
        let own = |peer: &Peer| holds(wanted, peer.id) || self.of.peer(peer.id).is_some();
        let there = wanted.iter().all(|peer| region.peers.contains(peer));
        region.epoch.version == self.of.epoch.version
            && !lost
            && region.peers.iter().all(own)
            && !(there && wanted.len() == region.peers.len())
    }

    /// The order to the region's leader, which rests on the region as it is now.
    pub fn order(&self, region: &Region) -> Order {
        let mut order = self.order.clone();
        if let Order::Membership { conf, .. } = &mut order {
            *conf = region.epoch.conf;
        }
        order
    }
}
