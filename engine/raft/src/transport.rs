//! How a store's messages leave it. The network and the in-memory one implement this.
//!
//! Sending never blocks and may lose: Raft repeats what matters.

use types::{Epoch, Peer, RegionId};

/// One Raft message between two peers of a region; the message itself is opaque bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Group.
    pub region: RegionId,
    /// Sender's epoch, so that a receiver without the peer knows whether to create it.
    pub epoch: Epoch,
    /// Sender.
    pub from: Peer,
    /// Receiver.
    pub to: Peer,
    /// Encoded `eraftpb::Message`.
    pub message: Vec<u8>,
    /// Descriptor of the region, sent along when the receiver may not hold the peer yet.
    pub region_bytes: Option<Vec<u8>>,
}

/// Sends a store's messages.
pub trait Transport: Send + Sync {
    /// Queues messages for their receivers' nodes; what does not fit is dropped.
    fn send(&self, messages: Vec<Envelope>);
}
