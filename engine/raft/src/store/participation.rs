//! In which groups this process takes part, and whose messages it takes.
//!
//! A voter must not take part before it is known that no other process stands for its node. Within
//! placement's group nobody could inform it: there messages of a node's later start are accepted, and those of
//! the earlier one are dropped.

use types::RegionId;

use crate::config::Participation;
use crate::peer::Peer;
use crate::transport::Envelope;

use super::Store;

impl Store {
    /// Takes part in these groups from now on.
    pub fn participate(&mut self, participation: Participation) {
        self.config.participation = participation;
        *self.board.participation.lock() = participation;
        for peer in self.peers.values_mut().filter(|peer| participation.includes(peer.region.id)) {
            if is_alone(peer) && !peer.leads() {
                // Nobody else could lead, so there is nothing to wait for.
                peer.guarded(|raw| raw.campaign().ok());
            }
            self.dirty.insert(peer.region.id);
        }
    }

    /// Whether this process takes part in a group.
    pub(crate) fn participates(&self, region: RegionId) -> bool {
        self.config.participation.includes(region)
    }

    /// Whether a message comes from the node's last start, as far as this node knows.
    pub(crate) fn heeds(&self, envelope: &Envelope) -> bool {
        self.board.heeds(envelope.from.node, envelope.session)
    }
}

/// Whether a peer is its group's only voter.
pub(crate) fn is_alone(peer: &Peer) -> bool {
    peer.region.voters().map(|voter| voter.id).eq([peer.me.id])
}
