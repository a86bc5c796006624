//! In which groups this process takes part, and whose messages it takes.
//!
//! A voter must not take part before it is known that no other process stands for its node. Within
//! placement's group nobody could inform it: there messages of a node's later start are accepted, and those of
//! the earlier one are dropped.

use std::collections::{BTreeMap, BTreeSet};

use types::{NodeId, RegionId};

use crate::config::Participation;
use crate::peer::Peer;
use crate::transport::{Envelope, Session};

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

/// The last start of each node that is known.
#[derive(Default)]
pub(crate) struct Fence {
    last: BTreeMap<NodeId, Session>,
    /// Nodes of which messages of an earlier start came, too.
    fenced: BTreeSet<NodeId>,
}

impl Fence {
    /// Whether a node's process is its last start.
    pub(crate) fn heeds(&mut self, node: NodeId, session: Session) -> bool {
        if session.boot == 0 {
            return true;
        }
        let last = self.last.entry(node).or_insert(session);
        if session.boot > last.boot {
            *last = session;
        }
        let accepted = *last == session;
        if !accepted && self.fenced.insert(node) {
            tracing::warn!(
                node,
                boot = session.boot,
                "an earlier process of the node, or a copy of it, still sends: its messages are dropped"
            );
        }
        accepted
    }
}

/// Whether a peer is its group's only voter.
pub(crate) fn is_alone(peer: &Peer) -> bool {
    peer.region.voters().map(|voter| voter.id).eq([peer.me.id])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_start_is_accepted_and_of_two_copies_the_first() {
        let mut fence = Fence::default();
        let session = |boot, id| Session { boot, id };
        assert!(fence.heeds(2, session(5, 50)));
        assert!(fence.heeds(3, session(1, 10)), "nodes are distinguished");
        assert!(fence.heeds(2, session(6, 60)));
        assert!(!fence.heeds(2, session(5, 50)), "an earlier start is accepted");
        assert!(!fence.heeds(2, session(6, 61)), "a second copy of the same start");
        assert!(fence.heeds(2, session(6, 60)));
        assert!(fence.heeds(2, Session::default()), "who does not count is not fenced");
    }
}
