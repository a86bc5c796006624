//! What threads other than Raft's see of a node's peers, and what they may do with it alone: read where nobody else
//! could lead, and confirm that a leader still leads.
//!
//! It must never show a term that a peer has left once a message of a later one is under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};
use types::{NodeId, RegionId};

use crate::config::{Participation, StoreConfig};
use crate::confirmations::Confirmations;
use crate::fence::Fence;
use crate::groups::PeerStatus;
use crate::peer::Peer;
use crate::transport::{Session, Transport};

/// What a store shows.
pub(crate) struct Board {
    pub peers: RwLock<BTreeMap<RegionId, PeerStatus>>,
    /// Whose messages are taken.
    pub fence: Mutex<Fence>,
    pub participation: Mutex<Participation>,
    pub confirmations: Mutex<Confirmations>,
    /// Whether writing the log has lately taken longer than an election.
    pub slow_disk: AtomicBool,
    pub session: Session,
    pub transport: Arc<dyn Transport>,
}

impl Board {
    /// A board without peers of a store that was started `boot` times.
    pub fn new(config: &StoreConfig, boot: u64, transport: Arc<dyn Transport>) -> Arc<Self> {
        Arc::new(Board {
            peers: RwLock::default(),
            fence: Mutex::default(),
            participation: Mutex::new(config.participation),
            confirmations: Mutex::new(Confirmations::new(boot)),
            slow_disk: AtomicBool::default(),
            session: config.session,
            transport,
        })
    }

    /// The peer of a region on this node.
    pub fn status(&self, region: RegionId) -> Option<PeerStatus> {
        self.peers.read().get(&region).cloned()
    }

    /// Every peer on this node.
    pub fn statuses(&self) -> Vec<PeerStatus> {
        self.peers.read().values().cloned().collect()
    }

    /// What is applied here of a group whose one voter is here: everything that was acknowledged.
    pub fn applied_alone(&self, region: RegionId) -> Option<u64> {
        let peers = self.peers.read();
        peers.get(&region).filter(|status| status.alone).map(|status| status.applied.index)
    }

    /// Whether the process takes part in a group.
    pub fn participates(&self, region: RegionId) -> bool {
        self.participation.lock().includes(region)
    }

    /// Whether a message comes from the node's last start, as far as this node knows.
    pub fn heeds(&self, node: NodeId, session: Session) -> bool {
        self.fence.lock().heeds(node, session)
    }

    /// Shows of a peer no more than what holds by now. Before a message of it leaves: by that another node could vote or
    /// lead, or hear of what is committed.
    pub fn withdraw(&self, peer: &Peer) {
        if self.shows_truly(peer) {
            return;
        }
        if let Some(status) = self.peers.write().get_mut(&peer.region.id) {
            status.alone &= peer.may_answer_alone();
            if status.term != peer.raw.raft.term {
                status.term = peer.raw.raft.term;
                status.leader = None;
                status.decides = false;
            }
        }
    }

    /// Whether nothing is shown of a peer that may not hold any more.
    pub fn shows_truly(&self, peer: &Peer) -> bool {
        self.peers.read().get(&peer.region.id).is_none_or(|status| {
            status.term == peer.raw.raft.term && (!status.alone || peer.may_answer_alone())
        })
    }
}
