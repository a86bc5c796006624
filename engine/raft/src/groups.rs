//! A node's Raft groups, as seen by those who propose to them and read from them.
//!
//! The store's handle implements this; so does a one-node stand-in for tests of the crates above.

use std::sync::Arc;

use futures::future::BoxFuture;
use types::{Peer, PeerId, Region, RegionId, Result};

use crate::machine::Position;

/// A reply that arrives later; every implementation bounds the wait, but for [`Groups::confirm`].
pub type Pending<T> = BoxFuture<'static, Result<T>>;

/// What a node's peer of a region knows of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The region, as applied.
    pub region: Arc<Region>,
    /// This node's member.
    pub peer: Peer,
    /// The leader, where known.
    pub leader: Option<Peer>,
    /// Current term.
    pub term: u64,
    /// Whether this peer leads and has applied an entry of its own term: only then may it decide
    /// facts.
    pub decides: bool,
    /// Whether it decides and no other node could: by the latest configuration in its log, applied or not, it is the one
    /// voter, and no learner has heard of more than it has applied. A read of that is current without a round.
    pub alone: bool,
    /// Last applied entry.
    pub applied: Position,
    /// Commit index as far as it knows.
    pub committed: u64,
    /// Whether it holds data, that is, does not wait for a snapshot.
    pub ready: bool,
    /// Why the peer does nothing, if it does nothing.
    pub fault: Option<String>,
    /// Whether that lasts until the next start. While a disk is full, what was proposed may still be
    /// applied once there is room.
    pub stopped: bool,
    /// Whether it cannot go on after a restart either: it has to be replaced.
    pub lost: bool,
}

/// Access to a node's groups.
pub trait Groups: Send + Sync + 'static {
    /// The peer of a region on this node.
    fn status(&self, region: RegionId) -> Option<PeerStatus>;

    /// Every peer on this node.
    fn statuses(&self) -> Vec<PeerStatus>;

    /// Whether the log of an earlier process was set aside as damaged, and what it held is not all replaced
    /// yet as far as this process has seen at its start; or may have been cut where nobody can know.
    fn begun_anew(&self) -> bool {
        false
    }

    /// Whether writing the log, or applying what is in it, has lately taken so long that others had better lead.
    fn has_slow_disk(&self) -> bool {
        false
    }

    /// Proposes an entry, to be appended only in `term`. Resolves once this node has applied it;
    /// `Dropped` means that it certainly never takes effect, `NotLeader` likewise, `Timeout` that
    /// nobody knows.
    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position>;

    /// Resolves to the group's commit index, confirmed by a quorum after the call, once this node
    /// has applied it. Followers and learners ask their leader. Requests are batched. The one voter of a group is its
    /// quorum: it answers at once, by what it has applied.
    fn read_index(&self, region: RegionId) -> Pending<u64>;

    /// Resolves once it is known that nobody led a group in a term later than `term` when this was called, by a round that is
    /// cheaper than that of a read index; none where this node does not lead in `term`, or nothing is cheaper. It
    /// may wait for ever: bound it, and take a read index then.
    fn confirm(&self, _region: RegionId, _term: u64) -> Option<Pending<()>> {
        None
    }

    /// As [`Groups::confirm`], of many groups at once; what is asked of a node is asked together.
    fn confirm_all(&self, groups: &[(RegionId, u64)]) -> Vec<Option<Pending<()>>> {
        groups.iter().map(|(region, term)| self.confirm(*region, *term)).collect()
    }

    /// Sends at once what may wait: a learner has been informed how far to read, and waits for its entries.
    fn hurry(&self) {}

    /// Resolves once this node has applied what the log of a group holds up to `index`.
    fn reached(&self, region: RegionId, index: u64) -> Pending<()>;

    /// Leader: changes the membership to `peers`, one member at a time, and resolves to the new
    /// descriptor once applied. A new voter follows as a learner until it has caught up. A leader
    /// that is not among `peers` hands over and answers `NotLeader`: ask the one it names again.
    /// After any other error the members may be on the way between old and new.
    fn change_membership(&self, region: RegionId, peers: Vec<Peer>) -> Pending<Region>;

    /// Leader: hands over to another voter, if that one was heard of lately and is not far behind; best effort.
    fn transfer(&self, region: RegionId, to: PeerId);

    /// Creates an initial voter on this node, unless the region is there or was destroyed.
    fn create(&self, region: Region) -> Pending<()>;

    /// Removes this node's peer and its data.
    fn destroy(&self, region: RegionId) -> Pending<()>;
}
