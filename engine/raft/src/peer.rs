//! One member of one group on this node: raft-rs, the machine, and who waits for what.
//!
//! It does no I/O of its own: what is to be sent and written it hands to the store, which writes
//! for all groups at once.

mod members;
mod messages;
mod queue;
mod rounds;
mod sleep;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use raft_rs::eraftpb::{Message, MessageType};
use raft_rs::{RawNode, SnapshotStatus, StateRole};
use types::{Error, PeerId, PeerRole, Region, Result};

use crate::config::StoreConfig;
use crate::groups::PeerStatus;
use crate::log::RaftLog;
use crate::machine::{Machine, Position};
use crate::membership::Followers as _;
use crate::proposals::Proposals;
use crate::reads::Reads;
use crate::reply::{Answers, Reply, Wait};
use crate::snapshot::Spooled;
use crate::storage::{GroupStorage, PendingSpool};
use crate::transport::{Envelope, Session};
use members::Change;
pub(crate) use messages::is_vote_request;
use queue::Queue;
pub(crate) use queue::Work;
use rounds::Unwritten;
use sleep::Sleep;

/// Bytes of one proposal.
const MAX_PROPOSAL: usize = 32 << 20;
/// Bytes proposed and not committed per group, above which proposals are refused.
const MAX_UNCOMMITTED: u64 = 128 << 20;
/// Bytes of entries in one message.
const MAX_MESSAGE: u64 = 1 << 20;
/// Bytes of entries applied per group and round, so that one group cannot hold up the others.
const MAX_APPLY: u64 = 4 << 20;
/// Messages in flight to one member.
const MAX_INFLIGHT: usize = 256;
/// Ticks for which entries may wait for the disk before no more of them are taken.
pub(crate) const BUSY_TICKS: u64 = 40;
/// Ticks after which a snapshot is tried again that could not be taken over.
pub(crate) const RESTORE_AGAIN_TICKS: u64 = 20;
/// Ticks without a leader after which a peer asks whether it is still a member, and between asks.
const LONELY_TICKS: u64 = 60;

/// Where the machine is.
pub(crate) enum Slot {
    /// With the peer.
    Here(Box<dyn Machine>),
    /// Applying entries, where it may wait for the disk.
    Applying,
    /// Being persisted. Entries are appended meanwhile, and wait to be applied.
    Persisting,
    /// Taking over a snapshot. Entries after it are appended meanwhile, and wait.
    Restoring,
}

/// What a peer wants to be sent.
#[derive(Default)]
pub(crate) struct Outbox {
    pub envelopes: Vec<Envelope>,
    /// Snapshots to send, by the message that announces each.
    pub snapshots: Vec<(types::RegionId, Message)>,
}

/// One member of one group on this node.
pub(crate) struct Peer {
    pub me: types::Peer,
    session: Session,
    /// As applied; of a peer that holds nothing, as it was sent.
    pub region: Arc<Region>,
    pub applied: Position,
    pub raw: RawNode<GroupStorage>,
    pub slot: Slot,
    pub work: Queue,
    /// Since when the machine applies where it may wait for the disk, in ticks.
    pub applying_since: Option<u64>,
    pub proposals: Proposals,
    pub reads: Reads,
    pub change: Option<Change>,
    pub fault: Option<String>,
    /// Ticks until a snapshot that could not be taken over is tried again, and why it could not.
    pub delayed: Option<(u64, String)>,
    /// Whether it has to be replaced.
    lost: bool,
    /// Applied its own removal, or learned of it.
    pub removed: bool,
    /// Members to whom a snapshot is under way.
    pub sending: BTreeSet<PeerId>,
    /// A snapshot offered to Raft and not yet accepted.
    offered: Option<PendingSpool>,
    unwritten: Unwritten,
    /// Addresses of peers, members or not.
    known: BTreeMap<PeerId, types::Peer>,
    lonely: u64,
    sleep: Sleep,
}

impl Peer {
    /// A peer over what the log and the machine hold.
    pub fn open(
        config: &StoreConfig,
        log: Arc<RaftLog>,
        me: types::Peer,
        machine: Box<dyn Machine>,
        boot: u64,
    ) -> Result<Self> {
        let region = machine.region().clone();
        let applied = machine.applied();
        let storage = GroupStorage::open(log, &region, applied)?;
        let timeout = config.election_timeout(me.id);
        let raft_config = raft_rs::Config {
            id: me.id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            min_election_tick: timeout,
            max_election_tick: timeout + 1,
            applied: applied.index,
            max_size_per_msg: MAX_MESSAGE,
            max_inflight_msgs: MAX_INFLIGHT,
            max_uncommitted_size: MAX_UNCOMMITTED,
            max_committed_size_per_ready: MAX_APPLY,
            check_quorum: true,
            pre_vote: true,
            // raft-rs 0.7.0 batches entries into an earlier *empty* append without comparing their
            // indexes (`util::is_continuous_ents`); after a rejected probe the follower then
            // acknowledges an index that it does not hold, and an acknowledged write is lost. Our
            // simulation found it.
            batch_append: false,
            ..raft_rs::Config::default()
        };
        let logger = crate::logging::logger(region.id, me.id);
        let raw = catch_unwind(AssertUnwindSafe(|| RawNode::new(&raft_config, storage, &logger)))
            .map_err(|panic| Error::Corrupt(describe_panic(&panic)))?
            .map_err(|error| Error::Corrupt(format!("region {}: {error}", region.id)))?;
        Ok(Peer {
            known: region.peers.iter().map(|peer| (peer.id, *peer)).collect(),
            me,
            session: config.session,
            region: Arc::new(region),
            applied,
            raw,
            slot: Slot::Here(machine),
            work: Queue::default(),
            applying_since: None,
            proposals: Proposals::default(),
            reads: Reads::new(me.id, boot),
            change: None,
            fault: None,
            delayed: None,
            lost: false,
            removed: false,
            sending: BTreeSet::new(),
            offered: None,
            unwritten: Unwritten::default(),
            lonely: 0,
            sleep: Sleep::new(config.sleep_ticks),
        })
    }

    /// Whether Raft may be touched.
    pub fn runs(&self) -> bool {
        self.fault.is_none() && !self.removed
    }

    /// Whether the machine still lacks a snapshot that the log has accepted.
    pub fn restoring(&self) -> bool {
        self.work.begins_with_restore()
            || matches!(self.slot, Slot::Restoring)
            || self.unwritten.has_snapshot()
    }

    /// Calls into raft-rs, which panics on what it takes to be corruption: that stops this peer
    /// and no other.
    pub fn guarded<R>(&mut self, call: impl FnOnce(&mut RawNode<GroupStorage>) -> R) -> Option<R> {
        if !self.runs() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| call(&mut self.raw))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.lose(&format!("Raft stopped: {}", describe_panic(&panic)));
                None
            }
        }
    }

    /// Stops the peer until the next start; the store reports it and answers nothing on its behalf.
    pub fn fail(&mut self, why: &str) {
        if self.fault.is_none() {
            tracing::error!(region = self.region.id, peer = self.me.id, why, "peer stopped");
            self.fault = Some(why.to_owned());
        }
    }

    /// Stops the peer for good: what it holds is not what it should be.
    pub fn lose(&mut self, why: &str) {
        self.lost = true;
        self.fail(why);
    }

    /// Stops the peer because of an error, for good if what it holds is damaged.
    pub fn fail_by(&mut self, error: &Error, what: &str) {
        self.lost |= matches!(error, Error::Corrupt(_));
        self.fail(&format!("{what}{error}"));
    }

    /// Informs waiters that the peer stopped.
    pub fn abandon(&mut self, why: &str, answers: &mut Answers) {
        let error = Error::Unavailable(format!("region {} on this node: {why}", self.region.id));
        self.proposals.abandon(self.region.id, why, answers);
        self.reads.abandon(&error, answers);
        if let Some(change) = self.change.take() {
            answers.push(change.reply, Err(error));
        }
    }

    pub fn leads(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub fn leader(&self) -> Option<types::Peer> {
        self.known.get(&self.raw.raft.leader_id).copied()
    }

    /// What others on this node may know.
    pub fn status(&self, stalled: Option<&str>) -> PeerStatus {
        let term = self.raw.raft.term;
        let whole = self.applied.index > 0 && !self.restoring();
        let delayed = self.delayed.as_ref().map(|(_, why)| why.as_str());
        let fault = self.fault.as_deref().or(stalled).or(delayed).map(str::to_owned);
        let decides = self.leads() && self.applied.term == term && whole && fault.is_none();
        PeerStatus {
            region: self.region.clone(),
            peer: self.me,
            leader: if fault.is_none() { self.leader() } else { None },
            term,
            decides,
            alone: decides && self.may_answer_alone(),
            applied: self.applied,
            committed: self.raw.raft.raft_log.committed,
            ready: whole && fault.is_none(),
            stopped: self.fault.is_some(),
            lost: self.lost,
            fault,
        }
    }

    /// Whether what it has applied is all that anybody may know: it leads a group without another voter, its log holds no
    /// change of that, and no learner has heard of more.
    pub fn may_answer_alone(&self) -> bool {
        let raft = &self.raw.raft;
        let only = self.leads() && raft.prs().is_singleton() && !raft.has_pending_conf();
        only && (self.applied.index >= raft.raft_log.committed || raft.prs().iter().len() == 1)
    }

    /// Remembers where peers are.
    pub fn learn_address(&mut self, peer: types::Peer) {
        let known = self.known.entry(peer.id).or_insert(peer);
        if known.node != peer.node {
            *known = peer;
        }
    }

    /// Takes over what the machine now holds.
    pub fn region_changed(&mut self, region: Region) {
        for peer in &region.peers {
            self.known.insert(peer.id, *peer);
        }
        if let Some(me) = region.peer(self.me.id) {
            self.me = *me;
        }
        self.region = Arc::new(region);
    }

    /// A message from another member.
    pub fn step(&mut self, mut message: Message) {
        let kind = message.get_msg_type();
        let foreign = matches!(
            kind,
            // Decisions and transfers are made where the leader is, snapshots come spooled.
            MessageType::MsgPropose | MessageType::MsgTransferLeader | MessageType::MsgSnapshot
        );
        if foreign || message.to != self.me.id {
            return;
        }
        // Who campaigns alone leads at once, and must have written what it leads with.
        if kind == MessageType::MsgTimeoutNow && !self.all_written() {
            return;
        }
        if let Some(why) = self.has_lost(&message) {
            return self.lose(&why);
        }
        let sleeps = self.hear(&mut message);
        // raft-rs refuses what is stale; there is nobody to inform.
        self.guarded(|raw| raw.step(message).ok());
        if sleeps {
            self.fall_asleep();
        }
    }

    /// Why a leader's message shows that this peer has lost what it acknowledged, if it does. raft-rs
    /// would take it for a bug of its own and panic. An append names what it follows, and is refused
    /// where that is not here.
    fn has_lost(&self, message: &Message) -> Option<String> {
        let raft = &self.raw.raft;
        let last = raft.raft_log.last_index();
        // A leader's heartbeat names no more than what this peer has acknowledged to it.
        let lost = message.get_msg_type() == MessageType::MsgHeartbeat
            && message.term >= raft.term
            && message.commit > last;
        lost.then(|| {
            format!(
                "its log ends at {last}, and it has acknowledged {} to its leader: what it held is \
                 lost; replace this replica",
                message.commit
            )
        })
    }

    /// A spooled snapshot: offered to Raft. Returns the file if it is not wanted.
    pub fn offer(&mut self, spooled: Spooled) -> Option<String> {
        let Spooled { header, message, spool } = spooled;
        let file = spool.file.clone();
        let busy = self.offered.is_some() || self.raw.snap().is_some() || !self.runs();
        if busy || message.to != self.me.id {
            return Some(file);
        }
        self.learn_address(header.from);
        self.wake();
        self.guarded(|raw| raw.step(message).ok());
        let index = spool.at.0;
        let taken = self.raw.snap().is_some_and(|snapshot| snapshot.get_metadata().index == index);
        if !taken {
            return Some(file);
        }
        self.offered = Some(spool);
        None
    }

    /// Appends a proposal, if this peer leads in exactly that term.
    pub fn propose(
        &mut self,
        term: u64,
        data: Vec<u8>,
        wait: Wait,
        reply: Reply<Position>,
        answers: &mut Answers,
    ) {
        if let Err(error) = self.check_proposal(term, &data, wait.since) {
            return answers.push(reply, Err(error));
        }
        let before = self.raw.raft.raft_log.last_index();
        let proposed = self.guarded(|raw| raw.propose(Vec::new(), data));
        let index = self.raw.raft.raft_log.last_index();
        match proposed {
            Some(Ok(())) if index == before + 1 => {
                self.proposals.appended(Position { index, term }, wait, reply);
            }
            Some(Ok(())) | None => {
                let what = format!("a proposal to region {}", self.region.id);
                answers.push(reply, Err(Error::Timeout { what, millis: 0 }));
            }
            Some(Err(error)) => {
                let why = format!("region {} takes no proposal now: {error}", self.region.id);
                answers.push(reply, Err(Error::Dropped(why)));
            }
        }
    }

    fn check_proposal(&self, term: u64, data: &[u8], now: u64) -> Result<()> {
        if data.is_empty() || data.len() > MAX_PROPOSAL {
            return Err(Error::Invalid(format!(
                "a proposal to region {} has {} bytes; 1 to {MAX_PROPOSAL} are taken",
                self.region.id,
                data.len()
            )));
        }
        self.check_running()?;
        if !self.leads() || self.raw.raft.term != term {
            return Err(self.not_leader());
        }
        let waited = now - self.applying_since.unwrap_or(now);
        if waited >= BUSY_TICKS {
            return Err(Error::Unavailable(format!(
                "server busy: region {} has waited {} ms for the disk of this node's row store",
                self.region.id,
                Wait::millis(0, waited)
            )));
        }
        Ok(())
    }

    /// An error unless the peer takes part in its group.
    pub fn check_running(&self) -> Result<()> {
        match &self.fault {
            Some(fault) => Err(Error::Unavailable(format!(
                "region {} on this node stopped: {fault}",
                self.region.id
            ))),
            None if self.removed => Err(Error::RegionNotFound(self.region.id)),
            None => Ok(()),
        }
    }

    pub fn not_leader(&self) -> Error {
        let leader = self.leader().filter(|leader| leader.id != self.me.id || self.leads());
        Error::NotLeader { region: self.region.id, leader: leader.map(|leader| leader.node) }
    }

    /// Hands leadership to another voter that answers and holds everything, or nearly. While that is under way nothing
    /// can be proposed: to a voter that is dead or far behind it would end by a time-out only.
    pub fn transfer(&mut self, to: PeerId) {
        if self.active(to) && self.has_caught_up(to) {
            self.hand_over(to);
        }
    }

    /// Hands leadership to another voter, as far as Raft is willing.
    pub fn hand_over(&mut self, to: PeerId) {
        let voter = self.region.peer(to).is_some_and(|peer| peer.role == PeerRole::Voter);
        if self.leads() && voter && to != self.me.id {
            // So that it ends by time if not otherwise.
            self.wake();
            self.guarded(|raw| raw.transfer_leader(to));
        }
    }

    /// Hands leadership to whichever voter answers and holds most, if one is near enough.
    pub fn hand_over_to_any(&mut self) {
        let others = self.region.voters().map(|peer| peer.id).filter(|id| *id != self.me.id);
        let near = others.filter(|id| self.active(*id) && self.has_caught_up(*id));
        let matched = |id: &PeerId| self.raw.raft.prs().get(*id).map(|progress| progress.matched);
        if let Some(to) = near.max_by_key(matched).filter(|_| self.leads()) {
            self.hand_over(to);
        }
    }

    /// Gives up on what waited too long.
    pub fn expire(&mut self, now: u64, answers: &mut Answers) {
        let region = self.region.id;
        if !self.proposals.is_empty() {
            self.proposals.expire(region, now, answers);
        }
        if !self.reads.is_empty() {
            self.reads.expire(region, now, answers);
        }
    }

    /// Time passes. Returns whether there may be work.
    pub fn tick(&mut self, now: u64, config: &StoreConfig) -> bool {
        if !self.runs() || self.sleeps_on() {
            return false;
        }
        let asks = self.grow_tired(now.is_multiple_of(config.heartbeat_ticks as u64));
        // Nor does who cannot write want to lead.
        if self.leads() || self.all_written() {
            self.guarded(RawNode::tick);
        }
        for context in self.reads.repeat(now, config.read_retry_ticks) {
            self.guarded(|raw| raw.read_index(context));
        }
        self.lonely =
            if self.raw.raft.leader_id == raft_rs::INVALID_ID { self.lonely + 1 } else { 0 };
        let again = self.delayed.as_mut().is_some_and(|(left, _)| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        if again {
            self.delayed = None;
        }
        again
            || asks
            || self.change.is_some()
            || self.lonely >= LONELY_TICKS
            || self.raw.has_ready()
    }

    /// Whether there is something to do in the next round.
    pub fn has_work(&self) -> bool {
        self.runs() && (self.raw.has_ready() || self.can_apply())
    }

    /// Whether there is something for the machine to do.
    pub fn can_apply(&self) -> bool {
        let here = matches!(self.slot, Slot::Here(_));
        self.runs() && here && self.delayed.is_none() && !self.work.is_empty()
    }

    /// The outcome of a snapshot that was sent.
    pub fn snapshot_sent(&mut self, to: PeerId, arrived: bool) {
        self.sending.remove(&to);
        let status = if arrived { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
        self.guarded(|raw| raw.report_snapshot(to, status));
    }

    /// Indexes that members have acknowledged, for a leader.
    pub fn slowest_member(&self) -> Option<u64> {
        if !self.leads() {
            return None;
        }
        self.raw.raft.prs().iter().map(|(_, progress)| progress.matched).min()
    }

    /// Whether a member has everything, or nearly everything and is being sent the rest.
    pub fn has_caught_up(&self, id: PeerId) -> bool {
        const NEAR: u64 = 64;
        let last = self.raw.raft.raft_log.last_index();
        self.raw.raft.prs().get(id).is_some_and(|progress| {
            // Raft goes on probing a member that acknowledged its snapshot before the snapshot's
            // sender knew of it, until the next entry; an idle region has none for a long time.
            progress.matched >= last
                || progress.state == raft_rs::ProgressState::Replicate
                    && progress.matched + NEAR >= last
        })
    }
}

/// The text of a panic.
pub(crate) fn describe_panic(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "panicked".to_owned())
}
