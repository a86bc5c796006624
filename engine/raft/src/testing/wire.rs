//! A network in memory that loses, delays, reorders and separates, as its seed says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use env::Random;
use parking_lot::Mutex;
use protobuf::Message as _;
use raft_rs::eraftpb::{Message, MessageType};
use types::{NodeId, PeerRole};

use crate::transport::{Envelope, SnapshotReport, SnapshotStream, Transport};

/// Something under way.
pub(crate) enum Parcel {
    Message(Envelope),
    Snapshot {
        header: Envelope,
        chunks: Vec<Vec<u8>>,
        report: SnapshotReport,
    },
    /// The answer to a snapshot that arrived. The new member's messages do not wait for it.
    Arrived(SnapshotReport),
}

struct State {
    random: Random,
    now: u64,
    sequence: u64,
    /// By due time and order of sending.
    under_way: BTreeMap<(u64, u64), (NodeId, Parcel)>,
    loss: f64,
    max_delay: u64,
    /// Which side of a partition each node is on; all on one side if absent.
    sides: BTreeMap<NodeId, u64>,
    dropped_links: BTreeSet<(NodeId, NodeId)>,
    sent: u64,
    /// Of these, how many might have waited.
    unhurried: u64,
}

/// The network. Clones are the same.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Mutex<State>>);

impl Wire {
    pub fn new(random: Random, loss: f64, max_delay: u64) -> Self {
        Wire(Arc::new(Mutex::new(State {
            random,
            now: 0,
            sequence: 0,
            under_way: BTreeMap::new(),
            loss,
            max_delay: max_delay.max(1),
            sides: BTreeMap::new(),
            dropped_links: BTreeSet::new(),
            sent: 0,
            unhurried: 0,
        })))
    }

    /// What a node sends through.
    pub fn port(&self, node: NodeId) -> Arc<dyn Transport> {
        Arc::new(Port { wire: self.clone(), node })
    }

    /// What arrives now, by receiver.
    pub fn arrivals(&self, now: u64) -> Vec<(NodeId, Parcel)> {
        let mut state = self.0.lock();
        state.now = now;
        let later = state.under_way.split_off(&(now + 1, 0));
        std::mem::replace(&mut state.under_way, later).into_values().collect()
    }

    pub fn set_loss(&self, loss: f64) {
        self.0.lock().loss = loss;
    }

    pub fn set_sides(&self, sides: BTreeMap<NodeId, u64>) {
        self.0.lock().sides = sides;
    }

    pub fn set_link(&self, from: NodeId, to: NodeId, up: bool) {
        let mut state = self.0.lock();
        if up {
            state.dropped_links.remove(&(from, to));
        } else {
            state.dropped_links.insert((from, to));
        }
    }

    /// Drops what is under way to and from a node, as when its process dies.
    pub fn forget(&self, node: NodeId) {
        self.0.lock().under_way.retain(|_, (to, _)| *to != node);
    }

    pub fn sent(&self) -> u64 {
        self.0.lock().sent
    }

    pub fn unhurried(&self) -> u64 {
        self.0.lock().unhurried
    }

    pub fn post(&self, from: NodeId, to: NodeId, parcel: Parcel) {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        state.sent += 1;
        if let Parcel::Message(envelope) = &parcel
            && envelope.may_wait
        {
            assert!(is_for_a_learner(envelope), "somebody waits for {envelope:?}");
            state.unhurried += 1;
        }
        let side = |node| state.sides.get(&node).copied().unwrap_or(0);
        let cut = side(from) != side(to) || state.dropped_links.contains(&(from, to));
        if cut || (state.loss > 0.0 && state.random.chance(state.loss)) {
            drop(guard);
            drop(parcel);
            return;
        }
        // Two ways lead back from a member: its answer may come after what it says as a member.
        let longest = state.max_delay + u64::from(matches!(parcel, Parcel::Arrived(_)));
        let due = state.now + 1 + state.random.below(longest);
        state.sequence += 1;
        state.under_way.insert((due, state.sequence), (to, parcel));
    }
}

/// Whether a message has entries for a learner, for which no commit waits.
fn is_for_a_learner(envelope: &Envelope) -> bool {
    let message = Message::parse_from_bytes(&envelope.message).unwrap_or_default();
    envelope.to.role == PeerRole::Learner && message.get_msg_type() == MessageType::MsgAppend
}

struct Port {
    wire: Wire,
    node: NodeId,
}

impl Transport for Port {
    fn send(&self, messages: Vec<Envelope>) {
        for message in messages {
            self.wire.post(self.node, message.to.node, Parcel::Message(message));
        }
    }

    fn send_snapshot(&self, stream: SnapshotStream) {
        let SnapshotStream { header, mut source, report } = stream;
        let mut chunks = Vec::new();
        loop {
            match source.next_chunk() {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let to = header.to.node;
        self.wire.post(self.node, to, Parcel::Snapshot { header, chunks, report });
    }
}
