//! Whose messages are taken, of several processes that stand for one node.
//!
//! Of two starts the later one is accepted, once it is known.

use std::collections::{BTreeMap, BTreeSet};

use types::NodeId;

use crate::transport::Session;

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
