//! How a store's messages leave it. The network and the in-memory one implement this.
//!
//! Sending never blocks and may lose: Raft repeats what matters.

use types::{Epoch, Peer, PeerId, RegionId};

use crate::machine::SnapshotSource;

/// The process that sends for a node. Of two processes of one node only the later start's messages are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Which start of the node; 0 where nobody counts.
    pub boot: u64,
    /// Drawn for it.
    pub id: u64,
}

/// One Raft message between two peers of a region; the message itself is opaque bytes.
///
/// An empty `message` carries no Raft message. With `region_bytes` it shows the receiver what the
/// region looks like, from which a peer learns that it was removed; without, it asks for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Group.
    pub region: RegionId,
    /// Sender's epoch, so that a receiver can see whether the sender is behind.
    pub epoch: Epoch,
    /// Sender.
    pub from: Peer,
    /// Receiver.
    pub to: Peer,
    /// The sender's process.
    pub session: Session,
    /// Encoded `eraftpb::Message`, or empty.
    pub message: Vec<u8>,
    /// Descriptor of the region, sent along when the receiver may not hold the peer yet.
    pub region_bytes: Option<Vec<u8>>,
    /// Entries for a learner that follows, for which no commit waits: they may be sent some milliseconds later, with more
    /// of them. The receiver is not shown this.
    pub may_wait: bool,
}

/// A snapshot on its way to one peer.
///
/// Its carrier delivers `header` to the receiving node's [`crate::StoreHandle::spool`], then the
/// chunks of `source` in order, then the end; and calls `report` once. It reads `source` at the
/// pace of the receiver and of its own rate limit, on a thread that may block.
pub struct SnapshotStream {
    /// Whom it is from and for, with the Raft message that announces it.
    pub header: Envelope,
    /// The data.
    pub source: Box<dyn SnapshotSource>,
    /// Receives how it ended.
    pub report: SnapshotReport,
}

/// Reports to the sending store how a snapshot ended; dropped unused, it means failure.
pub struct SnapshotReport {
    region: RegionId,
    to: PeerId,
    sink: Option<crossbeam_channel::Sender<SnapshotOutcome>>,
}

/// What became of a snapshot that a store sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotOutcome {
    pub region: RegionId,
    pub to: PeerId,
    pub arrived: bool,
}

impl SnapshotReport {
    pub(crate) fn new(
        region: RegionId,
        to: PeerId,
        sink: crossbeam_channel::Sender<SnapshotOutcome>,
    ) -> Self {
        SnapshotReport { region, to, sink: Some(sink) }
    }

    /// The receiver has taken the whole snapshot and synced its spool.
    pub fn arrived(mut self) {
        self.report(true);
    }

    fn report(&mut self, arrived: bool) {
        if let Some(sink) = self.sink.take() {
            // A store that is gone has no use for the outcome.
            let _ = sink.send(SnapshotOutcome { region: self.region, to: self.to, arrived });
        }
    }
}

impl Drop for SnapshotReport {
    fn drop(&mut self) {
        self.report(false);
    }
}

/// Carries what a store sends.
pub trait Transport: Send + Sync {
    /// Queues messages for their receivers' nodes; what does not fit is dropped.
    fn send(&self, messages: Vec<Envelope>);

    /// Sends at once what may wait and still does.
    fn hurry(&self) {}

    /// Starts to carry a snapshot, on a connection of its own so that messages do not wait behind
    /// it. The store has a few under way at a time, never two to one peer.
    fn send_snapshot(&self, stream: SnapshotStream);
}
