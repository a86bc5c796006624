//! What Raft's thread is asked to do.
//!
//! Its mailbox is bounded: who finds it full is answered so, and never waits.

use types::{Error, Peer, PeerId, Region, RegionId};

use crate::config::Participation;
use crate::machine::Position;
use crate::reply::Reply;
use crate::snapshot::Spooled;
use crate::transport::Envelope;
use crate::work::{Returned, Writing};

/// An entry to be appended in a term, and who waits for it.
pub(crate) struct Proposal {
    pub region: RegionId,
    pub term: u64,
    pub data: Vec<u8>,
    pub reply: Reply<Position>,
}

/// What is taken between two rounds, in the order it came.
pub(crate) enum Mail {
    Messages(Vec<Envelope>),
    Snapshot(Box<Spooled>),
    Propose(Vec<Proposal>),
    ReadIndex(RegionId, Reply<u64>),
    Reached(RegionId, u64, Reply<()>),
    Membership(RegionId, Vec<Peer>, Reply<Region>),
    Transfer(RegionId, PeerId),
    Create(Box<Region>, Reply<()>),
    Destroy(RegionId, Reply<()>),
    Returned(Box<Returned>),
    Written(Box<Writing>),
    Purged(Vec<RegionId>),
    Participate(Participation),
    Lose(RegionId, String),
    Stop,
}

/// Of a mailbox that takes no more for now.
pub(crate) fn full() -> Error {
    Error::Unavailable("the Raft store has too many requests waiting: retry later".to_owned())
}

/// Of a mailbox that nobody empties any more.
pub(crate) fn stopped() -> Error {
    Error::Unavailable("the Raft store of this node has stopped".to_owned())
}
