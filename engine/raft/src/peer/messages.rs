//! What a peer sends to the others of its group.
//!
//! It only puts messages into the outbox.

use protobuf::Message as _;
use raft_rs::eraftpb::{Message, MessageType};
use types::PeerRole;

use crate::peer::{Outbox, Peer};
use crate::transport::Envelope;

impl Peer {
    /// Puts messages into envelopes.
    pub fn send(&self, messages: Vec<Message>, out: &mut Outbox) {
        for message in messages {
            if message.get_msg_type() == MessageType::MsgSnapshot {
                out.snapshots.push((self.region.id, message));
                continue;
            }
            if let Some(envelope) = self.envelope(&message) {
                out.envelopes.push(envelope);
            }
        }
    }

    /// A message in its envelope; none if the receiver's address is unknown.
    pub fn envelope(&self, message: &Message) -> Option<Envelope> {
        let to = *self.known.get(&message.to)?;
        let bytes = message
            .write_to_bytes()
            .inspect_err(|error| tracing::error!(%error, "a Raft message cannot be encoded"))
            .ok()?;
        // A member that has acknowledged nothing may not exist yet; a candidate cannot know.
        let new = if self.leads() {
            self.raw.raft.prs().get(message.to).is_some_and(|progress| progress.matched == 0)
        } else {
            is_vote_request(message)
        };
        let entries = message.get_msg_type() == MessageType::MsgAppend;
        Some(Envelope {
            region: self.region.id,
            epoch: self.region.epoch,
            from: self.me,
            to,
            session: self.session,
            message: bytes,
            region_bytes: if new { self.descriptor() } else { None },
            may_wait: entries && !new && to.role == PeerRole::Learner,
        })
    }

    fn descriptor(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(&*self.region).ok()
    }

    /// A message to another peer with the region's descriptor.
    pub fn region_envelope(&self, to: types::Peer) -> Envelope {
        Envelope {
            region: self.region.id,
            epoch: self.region.epoch,
            from: self.me,
            to,
            session: self.session,
            message: Vec::new(),
            region_bytes: self.descriptor(),
            may_wait: false,
        }
    }

    pub(super) fn query_membership(&self, out: &mut Outbox) {
        for to in self.known.values().filter(|peer| peer.id != self.me.id) {
            let region_bytes = None;
            out.envelopes.push(Envelope { region_bytes, ..self.region_envelope(*to) });
        }
    }
}

/// Whether a message asks for a vote, or whether one would be given.
pub(crate) fn is_vote_request(message: &Message) -> bool {
    matches!(message.get_msg_type(), MessageType::MsgRequestVote | MessageType::MsgRequestPreVote)
}
