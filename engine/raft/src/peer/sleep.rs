//! Groups in which nothing happens sleep: their leaders send no heartbeats, and their members count no time.
//!
//! A leader asks all members, with the context of a heartbeat, to sleep at the end of its log; it sleeps itself once all have
//! agreed, for a while, and asks again. Any message but a heartbeat of the term wakes a member, and so does a request. A sleeping
//! member rests on its leader's node, a sleeping leader on all of its members' nodes: whose silence wakes it. For that, of the
//! groups that a node leads, one that has a member on each other node stays awake. (CockroachDB's quiescence and TiKV's
//! hibernating regions are this; there liveness is kept apart.) It must never put to sleep who lacks an entry, or would miss
//! that its leader is gone.

use std::collections::BTreeSet;

use raft_rs::eraftpb::{Message, MessageType};
use raft_rs::{ProgressState, RawNode, StateRole};
use types::region::PLACEMENT_REGION;
use types::{NodeId, PeerId};

use super::{Outbox, Peer, Slot};

/// What contexts begin with that ask to sleep, and those that agree. The number of the last entry follows.
const ASKS: &[u8; 7] = b"sleep-1";
const AGREES: &[u8; 7] = b"slept-1";

/// Ticks for which a leader sleeps before it asks its members again.
const LEADER_TICKS: u64 = 400;
/// Ticks for which a member sleeps at most without being asked again.
const MEMBER_TICKS: u64 = 800;
/// Ticks without a message of a node after which nobody who rests on it sleeps on.
const SILENT_TICKS: u64 = 4;

/// How a peer sleeps.
pub(crate) struct Sleep {
    /// Ticks in which nothing happens before its group sleeps.
    after: u64,
    /// Ticks since something happened.
    idle: u64,
    /// Ticks for which it sleeps on; 0 if it is awake.
    left: u64,
    /// Members that have agreed to sleep.
    agreed: BTreeSet<PeerId>,
    /// Whether members are to be asked in the next round.
    asks: bool,
    /// Whether other groups' members on this node rest on it.
    keeps_awake: bool,
}

impl Sleep {
    /// Of a peer that is awake.
    pub fn new(after: u64) -> Self {
        Sleep { after, idle: 0, left: 0, agreed: BTreeSet::new(), asks: false, keeps_awake: false }
    }
}

impl Peer {
    /// Something happens.
    pub fn wake(&mut self) {
        let Sleep { after, keeps_awake, .. } = self.sleep;
        self.sleep = Sleep { keeps_awake, ..Sleep::new(after) };
    }

    /// A tick of a sleeping peer. Returns whether it sleeps on.
    pub(super) fn sleeps_on(&mut self) -> bool {
        self.sleep.left = self.sleep.left.saturating_sub(1);
        self.sleep.left > 0
    }

    /// A tick of a peer that is awake. Returns whether it has members to ask.
    pub(super) fn grow_tired(&mut self, is_time: bool) -> bool {
        self.sleep.idle += 1;
        if !is_time || !self.may_sleep() {
            return false;
        }
        if self.others().next().is_none() {
            self.sleep.left = LEADER_TICKS;
            return false;
        }
        self.sleep.asks = true;
        true
    }

    /// Nodes whose other members this leader keeps awake for. Wakes it if it is the first to do so for one of them.
    pub fn keep_awake_for(&mut self, kept: &mut BTreeSet<NodeId>) {
        let mut keeps = self.region.id == PLACEMENT_REGION;
        if self.leads() && self.runs() {
            for peer in self.region.peers.iter().filter(|peer| peer.id != self.me.id) {
                keeps |= kept.insert(peer.node);
            }
        }
        if keeps && self.sleep.left > 0 {
            self.wake();
        }
        self.sleep.keeps_awake = keeps;
    }

    /// Wakes it if a node is silent on which its sleep rests; `silent` gives the ticks since a node's last message. A member then
    /// counts the ticks of that silence, as if it had been awake.
    pub fn wake_by_silence(&mut self, silent: impl Fn(NodeId) -> u64) {
        if self.sleep.left == 0 {
            return;
        }
        if self.leads() {
            if self.others().any(|peer| silent(peer.node) > SILENT_TICKS) {
                self.wake();
            }
            return;
        }
        let missed = self.leader().map_or(u64::MAX, |leader| silent(leader.node));
        if missed > SILENT_TICKS {
            self.wake();
            for _ in 0..missed.min(2 * SILENT_TICKS) {
                self.guarded(RawNode::tick);
            }
        }
    }

    /// Takes note of a message before Raft does. Returns whether to sleep once Raft has taken it.
    pub(super) fn hear(&mut self, message: &mut Message) -> bool {
        let same_term = message.term == self.raw.raft.term;
        match message.get_msg_type() {
            MessageType::MsgHeartbeat if same_term => {
                let Some(index) = index_in(ASKS, &message.context) else { return false };
                if !self.agrees(message, index) {
                    return false;
                }
                // Raft sends the context back.
                message.context = context(AGREES, index).into();
                true
            }
            MessageType::MsgHeartbeatResponse if same_term => {
                if let Some(index) = index_in(AGREES, &message.context) {
                    self.agreed(message.from, index);
                }
                false
            }
            _ => {
                self.wake();
                false
            }
        }
    }

    /// Sleeps, as its leader has asked.
    pub(super) fn fall_asleep(&mut self) {
        self.sleep.left = MEMBER_TICKS;
    }

    /// Asks the members to sleep, if it is time.
    pub(super) fn ask_to_sleep(&mut self, out: &mut Outbox) {
        if !std::mem::take(&mut self.sleep.asks) || !self.may_sleep() {
            return;
        }
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        let question = |to: &types::Peer| {
            let mut message = Message::default();
            message.set_msg_type(MessageType::MsgHeartbeat);
            (message.from, message.to, message.term) = (self.me.id, to.id, raft.term);
            message.commit = last;
            message.context = context(ASKS, last).into();
            message
        };
        let questions: Vec<Message> = self.others().map(question).collect();
        self.send(questions, out);
    }

    /// A member has agreed to sleep at an entry. Once all have, this leader sleeps.
    fn agreed(&mut self, from: PeerId, index: u64) {
        if !self.may_sleep() || index != self.raw.raft.raft_log.last_index() {
            return;
        }
        self.sleep.agreed.insert(from);
        if self.others().all(|peer| self.sleep.agreed.contains(&peer.id)) {
            self.sleep.agreed.clear();
            self.sleep.left = LEADER_TICKS;
        }
    }

    /// Whether it follows who asks, and holds and knows committed exactly what that one does.
    fn agrees(&self, message: &Message, index: u64) -> bool {
        let raft = &self.raw.raft;
        let follows = raft.state == StateRole::Follower && raft.leader_id == message.from;
        let log = &raft.raft_log;
        follows && self.runs() && log.last_index() == index && message.commit == index
    }

    /// Whether it leads a group of whose members each holds everything, and in which nothing has happened for a while.
    fn may_sleep(&self) -> bool {
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        let still = self.sleep.idle >= self.sleep.after
            && !self.sleep.keeps_awake
            && self.proposals.is_empty()
            && self.reads.is_empty()
            && self.change.is_none()
            && self.sending.is_empty()
            && self.work.is_empty()
            && self.delayed.is_none()
            && matches!(self.slot, Slot::Here(_));
        still
            && self.runs()
            && self.leads()
            && raft.lead_transferee.is_none()
            && raft.raft_log.committed == last
            && self.applied.index == last
            && !raft.has_pending_conf()
            && raft.prs().iter().all(|(id, progress)| {
                let holds = progress.matched == last && progress.state == ProgressState::Replicate;
                *id == self.me.id || holds && progress.recent_active
            })
            && raft.prs().iter().len() == self.region.peers.len()
    }

    fn others(&self) -> impl Iterator<Item = &types::Peer> {
        self.region.peers.iter().filter(|peer| peer.id != self.me.id)
    }
}

fn context(mark: &[u8; 7], index: u64) -> Vec<u8> {
    [mark.as_slice(), &index.to_be_bytes()].concat()
}

fn index_in(mark: &[u8; 7], context: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(context.strip_prefix(mark.as_slice())?.try_into().ok()?))
}
