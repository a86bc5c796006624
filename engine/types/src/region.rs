//! Regions: the key ranges that replicate as one Raft group, and who holds them.
//!
//! Descriptors only: who moves what is placement's business.

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, PeerId, RegionId, TableId};
use crate::region_kind::RegionKind;

/// The Raft group of placement itself.
pub const PLACEMENT_REGION: RegionId = 1;

/// The version of a region's shape. A command decided under another epoch does not apply.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Raised by every change of the key range.
    pub version: u64,
    /// Raised by every change of membership.
    pub conf: u64,
}

/// What a member may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PeerRole {
    /// Votes and holds rows.
    Voter,
    /// Follows without a vote and holds columns.
    Learner,
}

/// One member of a region's Raft group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Raft identity.
    pub id: PeerId,
    /// Process that holds it.
    pub node: NodeId,
    /// Voter or learner.
    pub role: PeerRole,
}

/// A key range, its members and its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Number of the Raft group.
    pub id: RegionId,
    /// Version of this descriptor.
    pub epoch: Epoch,
    /// What the keys are.
    pub kind: RegionKind,
    /// First key, inclusive.
    pub start: Vec<u8>,
    /// Last key, exclusive. Never empty for data: a table's range has an end.
    pub end: Vec<u8>,
    /// Members.
    pub peers: Vec<Peer>,
}

/// How long commits took to become visible on a columnar replica: from the commit timestamp to the
/// time a reader can see it, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLag {
    /// Of the newest batch of log entries that held a commit.
    pub last_ms: Option<u64>,
    /// Median over the batches of the last minute or two, each with its slowest commit.
    pub p50_ms: u64,
    /// The same at the 99th percentile.
    pub p99_ms: u64,
    /// How many batches that were.
    pub batches: u64,
}

impl Region {
    /// Whether the region's range holds the key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_slice() <= key && key < self.end.as_slice()
    }

    /// The member on a node.
    pub fn peer_on(&self, node: NodeId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.node == node)
    }

    /// The member with a Raft identity.
    pub fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }

    /// Members that vote.
    pub fn voters(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.role == PeerRole::Voter)
    }

    /// Members that follow without a vote.
    pub fn learners(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.role == PeerRole::Learner)
    }

    /// The table whose keys these are.
    pub fn table(&self) -> Option<TableId> {
        self.kind.table()
    }
}
