//! Which replica of a region is to answer a read, and what came of it. It asks none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use types::{NodeId, Region};

/// For so long a node is not asked again that could not answer.
const AVOIDED: Duration = Duration::from_secs(3);

/// Which replicas answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// Those that do not lead, in turn.
    Followers,
    /// All of them, in turn.
    All,
    /// The one in this process, or else one of this host; the leader where there is neither.
    Closest,
}

/// How far away a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// It is this process.
    Here,
    /// Another process of this host.
    SameHost,
    /// Anything else.
    Elsewhere,
}

/// Which replicas answer a query's reads, and what came of it.
#[derive(Debug)]
pub struct ReplicaReads {
    pub(crate) from: ReadFrom,
    pub(crate) leaders: AtomicU64,
    pub(crate) followers: AtomicU64,
    pub(crate) read_indexes: AtomicU64,
}

impl ReplicaReads {
    /// Nothing was read yet.
    pub fn new(from: ReadFrom) -> Self {
        let [leaders, followers, read_indexes] = [0; 3].map(AtomicU64::new);
        ReplicaReads { from, leaders, followers, read_indexes }
    }

    /// Requests that leaders answered.
    pub fn leaders(&self) -> u64 {
        self.leaders.load(Ordering::Relaxed)
    }

    /// Requests that other replicas answered.
    pub fn followers(&self) -> u64 {
        self.followers.load(Ordering::Relaxed)
    }

    /// How often one of these asked its leader how far to read.
    pub fn read_indexes(&self) -> u64 {
        self.read_indexes.load(Ordering::Relaxed)
    }
}

/// What a client knows of replicas.
#[derive(Default)]
pub(crate) struct Choices {
    /// Whose turn it is.
    turn: AtomicUsize,
    /// Nodes that could not answer, and since when.
    avoided: Mutex<HashMap<NodeId, Instant>>,
}

impl Choices {
    /// The replica that is to answer in the leader's place.
    pub(crate) fn choose(
        &self,
        region: &Region,
        leader: NodeId,
        from: ReadFrom,
        distance: &(dyn Fn(NodeId) -> Distance + Send + Sync),
    ) -> Option<NodeId> {
        let is_avoided = {
            let mut avoided = self.avoided.lock();
            avoided.retain(|_, since| since.elapsed() < AVOIDED);
            move |node: NodeId| avoided.contains_key(&node)
        };
        let mut nodes: Vec<NodeId> = region.voters().map(|peer| peer.node).collect();
        nodes.retain(|node| *node == leader || !is_avoided(*node));
        let chosen = match from {
            ReadFrom::Closest => {
                let near = nodes.into_iter().map(|node| (distance(node), node != leader, node));
                near.min().filter(|(away, ..)| *away < Distance::Elsewhere).map(|(.., node)| node)
            }
            ReadFrom::Followers | ReadFrom::All => {
                if from == ReadFrom::Followers {
                    nodes.retain(|node| *node != leader);
                }
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                turn.checked_rem(nodes.len()).and_then(|at| nodes.get(at).copied())
            }
        };
        chosen.filter(|node| *node != leader)
    }

    /// Lets others answer for a while in the place of a node that could not.
    pub(crate) fn avoid(&self, node: NodeId) {
        self.avoided.lock().insert(node, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Peer, PeerRole, RegionKind};

    use super::*;

    fn region(nodes: &[NodeId]) -> Region {
        let peer = |node: &NodeId| Peer { id: 10 + node, node: *node, role: PeerRole::Voter };
        Region {
            id: 1,
            epoch: Epoch { version: 1, conf: 1 },
            kind: RegionKind::Records(1),
            start: b"a".to_vec(),
            end: b"z".to_vec(),
            peers: nodes.iter().map(peer).collect(),
        }
    }

    fn chosen(choices: &Choices, from: ReadFrom, times: usize) -> Vec<Option<NodeId>> {
        let distance = |node| match node {
            3 => Distance::SameHost,
            4 => Distance::Here,
            _ => Distance::Elsewhere,
        };
        let region = region(&[1, 2, 3]);
        (0..times).map(|_| choices.choose(&region, 1, from, &distance)).collect()
    }

    #[tokio::test]
    async fn replicas_are_asked_as_the_session_says() {
        let choices = Choices::default();
        assert_eq!(chosen(&choices, ReadFrom::Followers, 3), [Some(2), Some(3), Some(2)]);
        let choices = Choices::default();
        assert_eq!(chosen(&choices, ReadFrom::All, 4), [None, Some(2), Some(3), None]);
        assert_eq!(chosen(&choices, ReadFrom::Closest, 1), [Some(3)]);
        choices.avoid(3);
        assert_eq!(chosen(&choices, ReadFrom::Closest, 1), [None], "nobody else is near");
        assert_eq!(chosen(&choices, ReadFrom::Followers, 2), [Some(2), Some(2)]);
        let alone = choices.choose(&region(&[1]), 1, ReadFrom::Followers, &|_| Distance::Here);
        assert_eq!(alone, None);
    }
}
