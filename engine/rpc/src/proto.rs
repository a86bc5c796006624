//! What nodes say to one another, as protobuf (proto3). Raft messages, requests and answers travel as opaque bytes: their
//! types live in the crates that own them (postcard), Raft's in rust-protobuf.
//!
//! The numbers of fields are a format: one that goes leaves its number unused.

use prost::Message;
use types::Priority;

pub(crate) use service::{node_client, node_server};

#[allow(missing_docs)] // generated from what build.rs describes
mod service {
    tonic::include_proto!("isobar.node.v1.Node");
}

/// Nothing but that something has arrived.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Ack {}

/// A request or an answer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Payload {
    /// Version of the body's encoding.
    #[prost(uint32, tag = "1")]
    pub(crate) format: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) body: Vec<u8>,
    /// The sender's cluster; 0 if it knows of none yet.
    #[prost(uint64, tag = "3")]
    pub(crate) cluster: u64,
    /// The greatest cluster version that the sender's program speaks; 0 for 1.
    #[prost(uint32, tag = "4")]
    pub(crate) speaks: u32,
    /// The cluster's version, as the sender knows it; 0 if it knows of none yet.
    #[prost(uint32, tag = "5")]
    pub(crate) version: u32,
    /// The priority of the work that asks: 0 medium, 1 low, 2 high. Programs that know of none read past it.
    #[prost(uint32, tag = "6")]
    pub(crate) priority: u32,
    /// Of an answer: microseconds of a processor that the request took, for whoever pays for it.
    #[prost(uint64, tag = "7")]
    pub(crate) processor_us: u64,
}

impl Payload {
    /// The number of a priority.
    pub(crate) fn number(priority: Priority) -> u32 {
        match priority {
            Priority::Medium => 0,
            Priority::Low => 1,
            Priority::High => 2,
        }
    }

    /// The priority that it names; of a number that is none, the usual one.
    pub(crate) fn priority(&self) -> Priority {
        let all = [Priority::Medium, Priority::Low, Priority::High];
        all.into_iter().find(|of| Self::number(*of) == self.priority).unwrap_or_default()
    }
}

/// Raft messages of any groups.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RaftBatch {
    #[prost(message, repeated, tag = "1")]
    pub(crate) envelopes: Vec<Envelope>,
    /// The sender's cluster.
    #[prost(uint64, tag = "2")]
    pub(crate) cluster: u64,
    /// As in a [`Payload`].
    #[prost(uint32, tag = "3")]
    pub(crate) speaks: u32,
}

/// A member of a group.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Peer {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) node: u64,
    #[prost(bool, tag = "3")]
    pub(crate) learner: bool,
}

/// A message of one group.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Envelope {
    #[prost(uint64, tag = "1")]
    pub(crate) region: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) epoch_version: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) epoch_conf: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) from: Option<Peer>,
    #[prost(message, optional, tag = "5")]
    pub(crate) to: Option<Peer>,
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) message: Vec<u8>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) descriptor: Option<Vec<u8>>,
    /// The sender's process: which start of the node.
    #[prost(uint64, tag = "8")]
    pub(crate) boot: u64,
    /// A number drawn for it.
    #[prost(uint64, tag = "9")]
    pub(crate) session: u64,
}

/// A part of a region's snapshot.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotPart {
    /// First part only: whose snapshot it is, as an [`Envelope`].
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) header: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) chunk: Vec<u8>,
    /// First part only: the sender's cluster.
    #[prost(uint64, tag = "3")]
    pub(crate) cluster: u64,
    /// First part only: as in a [`Payload`].
    #[prost(uint32, tag = "4")]
    pub(crate) speaks: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that releases before have written and read.
    #[test]
    fn messages_keep_their_format() {
        let peer = |id| Some(Peer { id, node: 4, learner: id == 9 });
        let envelope = Envelope {
            region: 1,
            epoch_version: 2,
            epoch_conf: 300,
            from: peer(8),
            to: peer(9),
            message: vec![7],
            descriptor: Some(vec![]),
            boot: 5,
            session: 6,
        };
        let batch = RaftBatch { envelopes: vec![envelope], cluster: 3, speaks: 0 };
        let peers = b"\x22\x04\x08\x08\x10\x04\x2a\x06\x08\x09\x10\x04\x18\x01";
        let envelope =
            [b"\x08\x01\x10\x02\x18\xac\x02", &peers[..], b"\x32\x01\x07\x3a\x00\x40\x05\x48\x06"];
        let envelope = envelope.concat();
        let expected = [&[0x0a, envelope.len() as u8], &envelope[..], b"\x10\x03"].concat();
        assert_eq!(batch.encode_to_vec(), expected);
        let payload = Payload { format: 1, body: vec![2, 3], cluster: 4, ..Payload::default() };
        assert_eq!(payload.encode_to_vec(), b"\x08\x01\x12\x02\x02\x03\x18\x04");
        let part = SnapshotPart { header: Some(vec![1]), chunk: vec![], cluster: 4, speaks: 0 };
        assert_eq!(part.encode_to_vec(), b"\x0a\x01\x01\x18\x04");
    }

    /// Versions stand behind what programs of version 1 write, and read past.
    #[test]
    fn versions_are_behind_the_rest() {
        let payload =
            Payload { format: 1, body: vec![2], cluster: 4, speaks: 2, ..Payload::default() };
        let payload = Payload { version: 1, ..payload };
        assert_eq!(payload.encode_to_vec(), b"\x08\x01\x12\x01\x02\x18\x04\x20\x02\x28\x01");
        for priority in [Priority::Low, Priority::Medium, Priority::High] {
            let urgent = Payload { priority: Payload::number(priority), ..Payload::default() };
            assert_eq!(urgent.priority(), priority);
        }
        let unknown = Payload { priority: 9, ..Payload::default() };
        assert_eq!(unknown.priority(), Priority::Medium);
        let batch = RaftBatch { envelopes: vec![], cluster: 3, speaks: 2 };
        assert_eq!(batch.encode_to_vec(), b"\x10\x03\x18\x02");
        let part = SnapshotPart { header: None, chunk: vec![], cluster: 4, speaks: 2 };
        assert_eq!(part.encode_to_vec(), b"\x18\x04\x20\x02");
    }
}
