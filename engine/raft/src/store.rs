//! All groups of a node: takes messages, requests and ticks in, and drives them round by round.
//!
//! Deterministic: no clock, no thread, no randomness. In one round ([`Store::drive`]) what rests on
//! nothing that is written now goes out first: the leaders' messages, those of followers who have
//! nothing to write, and confirmed read indexes. One write and one sync of the log serve every group
//! that has something to write, and the other messages go out once that is done, in a later round;
//! committed entries are applied, and only then are those who wait for them answered.

mod changes;
mod participation;
pub(crate) mod recovery;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use env::Disk;
use protobuf::Message as _;
use raft_rs::eraftpb::{Message, MessageType};
use types::{Error, NodeId, PeerId, Region, RegionId, Result};

use crate::board::Board;
use crate::config::StoreConfig;
use crate::groups::PeerStatus;
use crate::held::Held;
use crate::log::{LogSizes, LogWrite, RaftLog};
use crate::machine::{Machine, Machines, Position};
use crate::peer::{Outbox, Peer};
use crate::provision::Change;
use crate::reply::{Answers, Reply, Wait};
use crate::snapshot::{SpoolDir, SpoolWriter, Spooled};
use crate::transport::{Envelope, SnapshotOutcome, Transport};
use crate::work::{Job, JobKind, Returned, Worker};
use writer::Writer;

/// Where a store keeps its log and spools.
pub struct StoreDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Directory of the log, which nothing else uses.
    pub log_dir: PathBuf,
    /// Directory of snapshots being received, which nothing else uses.
    pub spool_dir: PathBuf,
    /// For a simulated disk: an existing directory of the operating system that mirrors names.
    pub shadow: Option<PathBuf>,
    /// Sizes of log files.
    pub sizes: LogSizes,
}

/// A peer before it applied a batch.
struct Before {
    region: Arc<Region>,
    leads: bool,
}

impl Before {
    fn of(peer: &Peer) -> Self {
        Before { region: peer.region.clone(), leads: peer.leads() }
    }
}

/// A peer that could not be opened.
pub(crate) struct Broken {
    pub status: PeerStatus,
    pub machine: Option<Box<dyn Machine>>,
}

/// All groups of a node.
pub struct Store {
    pub(crate) config: StoreConfig,
    pub(crate) log: Arc<RaftLog>,
    pub(crate) spools: Arc<SpoolDir>,
    pub(crate) machines: Arc<dyn Machines>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) worker: Box<dyn Worker>,
    pub(crate) peers: BTreeMap<RegionId, Peer>,
    pub(crate) broken: BTreeMap<RegionId, Broken>,
    /// Peers that were destroyed here; they never come back.
    pub(crate) dead: BTreeSet<PeerId>,
    pub(crate) boot: u64,
    /// Ticks since start.
    pub(crate) now: u64,
    pub(crate) dirty: BTreeSet<RegionId>,
    /// When each node was last heard of, by ticks.
    heard: BTreeMap<NodeId, u64>,
    /// Peers whose status may have changed.
    pub(crate) touched: BTreeSet<RegionId>,
    /// Peers to be destroyed, with the callers that wait for it.
    pub(crate) removals: BTreeMap<RegionId, Vec<Reply<()>>>,
    /// Regions without a peer, for one is being made, or what is stored of one removed.
    pub(crate) changing: BTreeMap<RegionId, Change>,
    /// Children of splits that have no group yet, and whether each should campaign.
    pub(crate) new_children: Vec<(Box<dyn Machine>, bool)>,
    /// Messages for peers that may come to exist soon.
    pub(crate) held: Held,
    /// To be written next.
    pub(crate) later: LogWrite,
    pub(crate) writer: Writer,
    pub(crate) answers: Answers,
    pub(crate) outcomes: (Sender<SnapshotOutcome>, Receiver<SnapshotOutcome>),
    pub(crate) board: Arc<Board>,
}

impl Store {
    /// Opens the log, recovers the machines and every peer.
    pub fn open(
        config: StoreConfig,
        disk: StoreDisk,
        machines: Box<dyn Machines>,
        transport: Arc<dyn Transport>,
        worker: Box<dyn Worker>,
    ) -> Result<Self> {
        let (files, shadow) = (disk.disk.clone(), disk.shadow.as_deref());
        let log = Arc::new(RaftLog::open(files, &disk.log_dir, shadow, disk.sizes)?);
        recovery::check_whole(&log)?;
        Self::open_over(log, config, disk, machines, transport, worker)
    }

    /// Recovers the machines and every peer.
    pub(crate) fn open_over(
        log: Arc<RaftLog>,
        config: StoreConfig,
        disk: StoreDisk,
        machines: Box<dyn Machines>,
        transport: Arc<dyn Transport>,
        worker: Box<dyn Worker>,
    ) -> Result<Self> {
        let boot = recovery::next_boot(&log, config.session.boot)?;
        let dead = recovery::dead_peers(&log)?;
        let waiting = recovery::pending_spools(&log)?;
        let keep = |name: &str| waiting.iter().any(|spool| spool == name);
        let spools = Arc::new(SpoolDir::open(disk.disk, &disk.spool_dir, boot, keep)?);
        let board = Board::new(&config, boot, transport.clone());
        let mut store = Store {
            config,
            log,
            spools,
            machines: machines.into(),
            transport,
            worker,
            peers: BTreeMap::new(),
            broken: BTreeMap::new(),
            dead,
            boot,
            now: 0,
            dirty: BTreeSet::new(),
            heard: BTreeMap::new(),
            touched: BTreeSet::new(),
            removals: BTreeMap::new(),
            changing: BTreeMap::new(),
            new_children: Vec::new(),
            held: Held::default(),
            later: LogWrite::default(),
            writer: Writer::default(),
            answers: Answers::default(),
            outcomes: crossbeam_channel::unbounded(),
            board,
        };
        store.recover()?;
        store.publish();
        Ok(store)
    }

    pub(crate) fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    pub(crate) fn spool_dir(&self) -> Arc<SpoolDir> {
        self.spools.clone()
    }

    /// The peer of a region on this node.
    pub fn status(&self, region: RegionId) -> Option<PeerStatus> {
        self.board.status(region)
    }

    /// Every peer on this node.
    pub fn statuses(&self) -> Vec<PeerStatus> {
        self.board.statuses()
    }

    /// Begins to receive a snapshot.
    pub fn spool(&self, header: Envelope) -> Result<SpoolWriter> {
        self.spools.begin(header)
    }

    /// Messages from other nodes.
    pub fn receive(&mut self, envelopes: Vec<Envelope>) {
        let envelopes = self.board.take_confirmations(envelopes);
        self.step(envelopes);
    }

    /// Messages for Raft.
    pub(crate) fn step(&mut self, envelopes: Vec<Envelope>) {
        if self.writer.stalled().is_some() {
            return;
        }
        for envelope in envelopes {
            self.receive_one(envelope);
        }
    }

    fn receive_one(&mut self, envelope: Envelope) {
        if !self.participates(envelope.region) || !self.heeds(&envelope) {
            return;
        }
        self.heard.insert(envelope.from.node, self.now);
        if !self.admit(&envelope) {
            self.hold_for_new(envelope);
            return;
        }
        if envelope.message.is_empty() {
            return;
        }
        let Ok(message) = Message::parse_from_bytes(&envelope.message) else {
            tracing::warn!(region = envelope.region, "undecodable Raft message dropped");
            return;
        };
        let region = envelope.region;
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.learn_address(envelope.from);
            peer.step(message);
            self.dirty.insert(region);
        }
    }

    /// A snapshot that was received whole.
    pub fn receive_snapshot(&mut self, spooled: Spooled) {
        let region = spooled.header.region;
        let free = !self.overlaps(&spooled.spool.region);
        let taken = self.participates(region) && self.heeds(&spooled.header);
        let unwanted = if self.writer.stalled().is_some() || !free || !taken {
            Some(spooled.spool.file)
        } else if self.admit(&spooled.header) {
            self.dirty.insert(region);
            match self.peers.get_mut(&region) {
                Some(peer) => peer.offer(spooled),
                None => Some(spooled.spool.file),
            }
        } else {
            self.keep_for_new(spooled)
        };
        if let Some(file) = unwanted {
            self.remove_spool(&file);
        }
    }

    pub(crate) fn remove_spool(&self, file: &str) {
        if let Err(error) = self.spools.remove(file) {
            tracing::warn!(%error, "an unwanted snapshot spool stays until the next start");
        }
    }

    /// Proposes an entry, in `term` only.
    pub(crate) fn propose(
        &mut self,
        region: RegionId,
        term: u64,
        data: Vec<u8>,
        reply: Reply<Position>,
    ) {
        let wait = self.wait(self.config.proposal_ticks);
        match self.running(region) {
            Ok(_) => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.wake();
                    peer.propose(term, data, wait, reply, &mut self.answers);
                }
            }
            Err(error) => self.answers.push(reply, Err(error)),
        }
    }

    /// Asks for a confirmed read index.
    pub(crate) fn read_index(&mut self, region: RegionId, reply: Reply<u64>) {
        let wait = self.wait(self.config.read_ticks);
        match self.running(region) {
            Ok(peer) => {
                peer.wake();
                peer.reads.request(wait, reply);
            }
            Err(error) => self.answers.push(reply, Err(error)),
        }
    }

    /// Answers once a region's peer has applied `index`.
    pub(crate) fn reached(&mut self, region: RegionId, index: u64, reply: Reply<()>) {
        let wait = self.wait(self.config.read_ticks);
        match self.running(region) {
            Ok(peer) if peer.applied.index >= index => self.answers.push(reply, Ok(())),
            Ok(peer) => peer.reads.reach(index, wait, reply),
            Err(error) => self.answers.push(reply, Err(error)),
        }
    }

    /// Changes a region's members.
    pub(crate) fn change_membership(
        &mut self,
        region: RegionId,
        target: Vec<types::Peer>,
        reply: Reply<Region>,
    ) {
        let wait = self.wait(self.config.membership_ticks);
        match self.running(region) {
            Ok(_) => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    peer.wake();
                    peer.change_membership(target, wait, reply, &mut self.answers);
                }
            }
            Err(error) => self.answers.push(reply, Err(error)),
        }
    }

    /// Hands over leadership.
    pub(crate) fn transfer(&mut self, region: RegionId, to: PeerId) {
        if let Ok(peer) = self.running(region) {
            peer.transfer(to);
        }
    }

    fn wait(&self, ticks: u64) -> Wait {
        Wait { since: self.now, deadline: self.now + ticks }
    }

    /// A peer was found to have lost what it holds: it takes part no more, and is shown to be so.
    pub(crate) fn lose_peer(&mut self, region: RegionId, why: &str) {
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.lose(why);
            self.touched.insert(region);
            self.dirty.insert(region);
        }
    }

    /// A peer that takes part in its group; it will be looked at in the next round.
    pub(crate) fn running(&mut self, region: RegionId) -> Result<&mut Peer> {
        self.check_writable()?;
        if let Some(broken) = self.broken.get(&region) {
            let why = broken.status.fault.clone().unwrap_or_default();
            return Err(Error::Unavailable(format!("region {region} on this node: {why}")));
        }
        let peer = self.peers.get_mut(&region).ok_or(Error::RegionNotFound(region))?;
        peer.check_running()?;
        self.dirty.insert(region);
        Ok(peer)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.writer.check()
    }

    /// A job is done.
    pub fn returned(&mut self, returned: Returned) {
        let Returned { region, kind, result } = returned;
        match kind {
            JobKind::Machine(job) => {
                if let Some(peer) = self.peers.get_mut(&region) {
                    let before = Before::of(peer);
                    let (spools, later) = (&self.spools, &mut self.later);
                    let children = peer.take_back(job, result, spools, later, &mut self.answers);
                    self.after_batch(region, &before, children);
                }
            }
            JobKind::Making(making) => self.made(making, result),
            JobKind::Removal(removal) => self.removed(region, removal, result),
        }
        self.dirty.insert(region);
        self.touched.insert(region);
    }

    /// Time passes.
    pub fn tick(&mut self) {
        self.now += 1;
        self.board.confirmations.lock().tick(self.now);
        self.held.expire(self.now);
        for peer in self.peers.values_mut() {
            peer.expire(self.now, &mut self.answers);
        }
        self.show_pace();
        if self.tick_stalled() {
            self.settle();
            return;
        }
        self.tick_writing();
        self.wake_sleepers();
        let participation = self.config.participation;
        for (region, peer) in &mut self.peers {
            if participation.includes(*region) && peer.tick(self.now, &self.config) {
                self.dirty.insert(*region);
            }
        }
        self.create_children();
        self.remove_again();
        if self.now.is_multiple_of(self.config.compact_ticks) {
            self.compact();
        }
        self.settle();
    }

    /// Wakes who rests on a node that is silent, and who has to be awake for those that rest on this one.
    fn wake_sleepers(&mut self) {
        let (now, heard) = (self.now, &self.heard);
        let silent = |node| now.saturating_sub(heard.get(&node).copied().unwrap_or(0));
        let mut kept = BTreeSet::new();
        for peer in self.peers.values_mut() {
            peer.wake_by_silence(silent);
            peer.keep_awake_for(&mut kept);
        }
    }

    /// One round. Returns whether there is more to do at once.
    pub fn drive(&mut self) -> bool {
        self.note_outcomes();
        if self.writer.stalled().is_none() {
            self.destroy_removed();
            self.round();
        }
        self.settle();
        self.writer.stalled().is_none() && !self.dirty.is_empty()
    }

    fn round(&mut self) {
        let mut out = Outbox::default();
        let mut confirmed = Answers::default();
        for region in std::mem::take(&mut self.dirty) {
            self.touched.insert(region);
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            peer.step_membership(self.now, &mut self.answers);
            // Before a message leaves by which another node could vote or lead.
            self.board.withdraw(peer);
            match peer.begin_round(self.now, &mut out, &mut self.later, &mut confirmed) {
                Ok(Some(number)) => self.writer.parts.push((region, peer.me.id, number)),
                Ok(None) => {}
                Err(error) => peer.fail_by(&error, ""),
            }
        }
        self.send(out);
        confirmed.send();
        self.write();
        self.apply();
    }

    fn apply(&mut self) {
        let ready: Vec<RegionId> = self
            .dirty
            .iter()
            .chain(&self.touched)
            .copied()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for region in ready {
            let Some(peer) = self.peers.get_mut(&region) else { continue };
            if peer.can_apply() {
                let before = Before::of(peer);
                let room = self.machines.room();
                let (job, children) = peer.apply(self.now, room, &self.spools, &mut self.answers);
                self.after_batch(region, &before, children);
                if let Some(job) = job {
                    self.begin(job);
                }
            }
            self.after_apply(region);
        }
    }

    /// Who was dismissed is informed, and children get groups in the next round.
    fn after_batch(&mut self, region: RegionId, before: &Before, children: Vec<Box<dyn Machine>>) {
        let Some(peer) = self.peers.get(&region) else { return };
        let mut out = Outbox::default();
        if before.region.epoch != peer.region.epoch {
            peer.dismiss(&before.region, &mut out);
        }
        if !children.is_empty() {
            self.dirty.insert(region);
        }
        self.new_children.extend(children.into_iter().map(|child| (child, before.leads)));
        self.send(out);
        self.create_children();
    }

    /// Has a job done.
    pub(crate) fn begin(&mut self, job: Job) {
        if let Some(returned) = self.worker.run(job) {
            self.returned(returned);
        }
    }

    fn after_apply(&mut self, region: RegionId) {
        let Some(peer) = self.peers.get_mut(&region) else { return };
        self.touched.insert(region);
        if let Some(why) = peer.fault.clone() {
            peer.abandon(&why, &mut self.answers);
        }
        // Once: what cannot be destroyed now, because its machine is away or the log takes nothing, is destroyed when
        // the machine is back, or at the next tick.
        let leaves = peer.removed && !self.removals.contains_key(&region);
        if leaves {
            self.removals.insert(region, Vec::new());
        }
        if leaves || peer.has_work() {
            self.dirty.insert(region);
        }
    }

    fn send(&mut self, out: Outbox) {
        if !out.envelopes.is_empty() {
            debug_assert!(out.envelopes.iter().all(|envelope| self.shows_no_less(envelope)));
            self.transport.send(out.envelopes);
        }
        for (region, message) in out.snapshots {
            self.send_snapshot(region, message);
        }
    }

    /// Whether readers are shown nothing of a peer that does not hold any more once this message of it has left. Whoever asks
    /// for a pre-vote, or gives one, names a term that it has not begun.
    fn shows_no_less(&self, envelope: &Envelope) -> bool {
        let Some(shown) = self.board.status(envelope.region) else { return true };
        let message = Message::parse_from_bytes(&envelope.message).unwrap_or_default();
        let pre_votes = [MessageType::MsgRequestPreVote, MessageType::MsgRequestPreVoteResponse];
        let peer = self.peers.get(&envelope.region);
        let alone_rightly = !shown.alone || peer.is_some_and(Peer::may_answer_alone);
        let reached = message.term <= shown.term || pre_votes.contains(&message.get_msg_type());
        alone_rightly && reached
    }

    fn note_outcomes(&mut self) {
        if self.writer.stalled().is_some() {
            return;
        }
        while let Ok(outcome) = self.outcomes.1.try_recv() {
            if let Some(peer) = self.peers.get_mut(&outcome.region) {
                peer.snapshot_sent(outcome.to, outcome.arrived);
                self.dirty.insert(outcome.region);
            }
        }
    }

    /// Answers, but never before the board shows what the answers rest on.
    fn settle(&mut self) {
        self.publish();
        self.answers.send();
    }

    /// Shows what changed to readers.
    pub(crate) fn publish(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        let stalled = self.writer.stalled();
        let mut board = self.board.peers.write();
        for region in std::mem::take(&mut self.touched) {
            let status = match (self.peers.get(&region), self.broken.get(&region)) {
                (Some(peer), _) if !peer.removed => Some(peer.status(stalled)),
                (None, Some(broken)) => Some(broken.status.clone()),
                _ => None,
            };
            match status {
                Some(status) => board.insert(region, status),
                None => board.remove(&region),
            };
        }
    }
}
