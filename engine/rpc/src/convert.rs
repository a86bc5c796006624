//! Between protobuf messages and the crates' types. Everything from outside is checked here.

use raft::{Envelope, Session};
use types::{Epoch, Error, Peer, PeerRole, Result};

use crate::proto;

impl From<Peer> for proto::Peer {
    fn from(peer: Peer) -> Self {
        proto::Peer { id: peer.id, node: peer.node, learner: peer.role == PeerRole::Learner }
    }
}

impl From<proto::Peer> for Peer {
    fn from(peer: proto::Peer) -> Self {
        let role = if peer.learner { PeerRole::Learner } else { PeerRole::Voter };
        Peer { id: peer.id, node: peer.node, role }
    }
}

impl From<Envelope> for proto::Envelope {
    fn from(envelope: Envelope) -> Self {
        proto::Envelope {
            region: envelope.region,
            epoch_version: envelope.epoch.version,
            epoch_conf: envelope.epoch.conf,
            from: Some(envelope.from.into()),
            to: Some(envelope.to.into()),
            message: envelope.message,
            descriptor: envelope.region_bytes,
            boot: envelope.session.boot,
            session: envelope.session.id,
        }
    }
}

impl TryFrom<proto::Envelope> for Envelope {
    type Error = Error;

    fn try_from(envelope: proto::Envelope) -> Result<Self> {
        let peer = |peer: Option<proto::Peer>| {
            peer.map(Peer::from)
                .ok_or_else(|| Error::Invalid("raft envelope without sender or receiver".into()))
        };
        Ok(Envelope {
            region: envelope.region,
            epoch: Epoch { version: envelope.epoch_version, conf: envelope.epoch_conf },
            from: peer(envelope.from)?,
            to: peer(envelope.to)?,
            session: Session { boot: envelope.boot, id: envelope.session },
            message: envelope.message,
            region_bytes: envelope.descriptor,
            may_wait: false,
        })
    }
}
