//! Raft's stand-in: one log per region on one node, applied in order after a while. Proposals may
//! be refused, their outcome withheld, and a change of term loses the end of what is not applied.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use env::Random;
use futures::FutureExt;
use parking_lot::Mutex;
use raft::{Command, Effect, Groups, INITIAL_POSITION, Machine, PeerStatus, Pending, Position};
use tokio::sync::oneshot;
use types::{Error, NodeId, Peer, PeerId, Region, RegionId, Result};

use super::Faults;

type Reply = oneshot::Sender<Result<Position>>;

struct Entry {
    term: u64,
    /// None is a leader's first entry.
    data: Option<Vec<u8>>,
    reply: Option<Reply>,
}

struct SimPeer {
    machine: Box<dyn Machine>,
    term: u64,
    decides: bool,
    queue: VecDeque<Entry>,
    applying: bool,
    log: Vec<(Position, Option<Vec<u8>>)>,
    applied: tokio::sync::watch::Sender<u64>,
}

/// What a region's log held, from its first entry on.
pub type Log = Vec<(Position, Option<Vec<u8>>)>;

struct State {
    faults: Faults,
    /// Why a machine stopped.
    fault: Option<Error>,
    initial_regions: BTreeMap<RegionId, Region>,
    peers: BTreeMap<RegionId, SimPeer>,
}

/// The groups of one node; it leads them all.
pub struct SimGroups {
    node: NodeId,
    random: Random,
    /// No quorum answers: nothing is confirmed.
    pub alone: AtomicBool,
    /// There are rounds that are cheaper than read indexes.
    pub cheap: AtomicBool,
    /// Nothing is applied for now, and no cheap round ends.
    pub held: AtomicBool,
    /// What is not applied is not committed either: rounds do not wait for it.
    pub uncommitted: AtomicBool,
    /// The log cannot be written for now: a fault is shown, and nothing is taken in.
    pub full: AtomicBool,
    /// How often what may wait was sent at once.
    pub hurried: AtomicUsize,
    state: Mutex<State>,
    this: std::sync::Weak<SimGroups>,
}

impl SimGroups {
    pub fn new(node: NodeId, random: Random, faults: Faults) -> Arc<Self> {
        let state = Mutex::new(State {
            faults,
            fault: None,
            initial_regions: BTreeMap::new(),
            peers: BTreeMap::new(),
        });
        let [alone, cheap, held, uncommitted, full] = [false; 5].map(AtomicBool::new);
        Arc::new_cyclic(|this| SimGroups {
            node,
            random,
            alone,
            cheap,
            held,
            uncommitted,
            full,
            hurried: AtomicUsize::new(0),
            state,
            this: this.clone(),
        })
    }

    /// From now on these things go wrong.
    pub fn plague(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Why a machine of this node stopped, if one did.
    pub fn fault(&self) -> Option<Error> {
        self.state.lock().fault.clone()
    }

    /// A region as it was created.
    pub fn initial_region(&self, region: RegionId) -> Region {
        self.state.lock().initial_regions[&region].clone()
    }

    pub fn heal(&self) {
        self.state.lock().faults = Faults::default();
    }

    /// Takes a machine in and leads its region.
    pub fn lead(&self, machine: Box<dyn Machine>) {
        self.state.lock().lead(machine);
    }

    pub fn regions(&self) -> Vec<RegionId> {
        self.state.lock().peers.keys().copied().collect()
    }

    /// Entries of a region that are proposed and not applied.
    pub fn waiting(&self, region: RegionId) -> usize {
        self.state.lock().peers[&region].queue.len()
    }

    pub fn log(&self, region: RegionId) -> Log {
        self.state.lock().peers[&region].log.clone()
    }

    pub fn with_machine<R>(&self, region: RegionId, call: impl FnOnce(&mut dyn Machine) -> R) -> R {
        call(self.state.lock().peers.get_mut(&region).unwrap().machine.as_mut())
    }

    /// Leadership goes and comes back. What was not applied yet survives up to some point; nobody
    /// learns of the rest.
    pub fn elect(&self, region: RegionId) {
        let mut state = self.state.lock();
        let Some(peer) = state.peers.get_mut(&region) else { return };
        let kept = self.random.below(peer.queue.len() as u64 + 1) as usize;
        for lost in peer.queue.split_off(kept) {
            let lost = lost.reply.map(|reply| reply.send(Err(unknown())));
            drop(lost);
        }
        for entry in &mut peer.queue {
            if let Some(reply) = entry.reply.take() {
                let _ = reply.send(Err(unknown()));
            }
        }
        peer.term += 1;
        peer.decides = false;
        peer.queue.push_back(Entry { term: peer.term, data: None, reply: None });
        self.start(region, peer);
    }

    fn start(&self, region: RegionId, peer: &mut SimPeer) {
        if !std::mem::replace(&mut peer.applying, true) {
            let this = self.this.upgrade().unwrap();
            tokio::spawn(async move { this.apply_all(region).await });
        }
    }

    async fn apply_all(self: Arc<Self>, region: RegionId) {
        loop {
            while self.held.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let most = self.state.lock().faults.delay_ms;
            if most > 0 {
                tokio::time::sleep(Duration::from_millis(self.random.below(most + 1))).await;
            }
            let mut state = self.state.lock();
            let batch = 1 + self.random.below(3) as usize;
            let Some(peer) = state.peers.get_mut(&region) else { return };
            let mut replies = Vec::new();
            let mut children = Vec::new();
            for _ in 0..batch {
                let Some(entry) = peer.queue.pop_front() else { break };
                let index = peer.machine.applied().index + 1;
                let at = Position { index, term: entry.term };
                let command = entry.data.as_deref().map_or(Command::Empty, Command::Data);
                let effect = match peer.machine.apply(at, command) {
                    Ok(effect) => effect,
                    Err(error) => {
                        state.fault = Some(error);
                        return;
                    }
                };
                peer.log.push((at, entry.data));
                let mut result = Ok(at);
                let mut last = false;
                match effect {
                    Effect::Applied => {}
                    Effect::Dropped => result = Err(Error::Dropped("stale".into())),
                    Effect::Split(split) => {
                        children.extend(split);
                        last = true;
                    }
                }
                replies.extend(entry.reply.map(|reply| (reply, result)));
                peer.decides |= entry.term == peer.term;
                if last {
                    break;
                }
            }
            peer.machine.finish_batch().unwrap();
            peer.applied.send_replace(peer.machine.applied().index);
            let done = peer.queue.is_empty();
            if done {
                peer.applying = false;
            }
            children.into_iter().for_each(|child| state.lead(child));
            for (reply, result) in replies {
                let _ = reply.send(result);
            }
            if done {
                return;
            }
        }
    }
}

impl State {
    fn lead(&mut self, mut machine: Box<dyn Machine>) {
        let region = machine.region().id;
        self.initial_regions.insert(region, machine.region().clone());
        let term = INITIAL_POSITION.term + 1;
        let at = Position { index: machine.applied().index + 1, term };
        machine.apply(at, Command::Empty).unwrap();
        machine.finish_batch().unwrap();
        let applied = tokio::sync::watch::Sender::new(at.index);
        let log = vec![(at, None)];
        let queue = VecDeque::new();
        let peer = SimPeer { machine, term, decides: true, queue, applying: false, log, applied };
        self.peers.insert(region, peer);
    }
}

fn unknown() -> Error {
    Error::timeout("a proposal whose outcome is withheld", Duration::from_millis(1))
}

impl Groups for SimGroups {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        let state = self.state.lock();
        let peer = state.peers.get(&region)?;
        let region = peer.machine.region().clone();
        let me = *region.peer_on(self.node)?;
        let applied = peer.machine.applied();
        let full = self.full.load(Ordering::Relaxed);
        Some(PeerStatus {
            region: Arc::new(region),
            peer: me,
            leader: (!full).then_some(me),
            term: peer.term,
            decides: peer.decides && !full,
            alone: false,
            applied,
            committed: applied.index,
            ready: true,
            fault: full.then(|| "the disk is full".to_owned()),
            stopped: false,
            lost: false,
        })
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.regions().into_iter().filter_map(|region| self.status(region)).collect()
    }

    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.state.lock();
        let faults = state.faults;
        let Some(peer) = state.peers.get_mut(&region) else {
            return async move { Err(Error::RegionNotFound(region)) }.boxed();
        };
        if peer.term != term {
            let leader = Some(self.node);
            return async move { Err(Error::NotLeader { region, leader }) }.boxed();
        }
        if self.full.load(Ordering::Relaxed) {
            return async { Err(Error::Unavailable("the disk is full".into())) }.boxed();
        }
        if self.random.chance(faults.drop) {
            return async { Err(Error::Dropped("refused".into())) }.boxed();
        }
        let withheld = self.random.chance(faults.unknown);
        let reply = (!withheld).then_some(reply);
        peer.queue.push_back(Entry { term, data: Some(data), reply });
        self.start(region, peer);
        async move {
            match answer.await {
                Ok(result) => result,
                Err(_) => Err(unknown()),
            }
        }
        .boxed()
    }

    fn read_index(&self, region: RegionId) -> Pending<u64> {
        let state = self.state.lock();
        let Some(peer) = state.peers.get(&region) else {
            return async move { Err(Error::RegionNotFound(region)) }.boxed();
        };
        if self.alone.load(Ordering::Relaxed) {
            return async { Err(Error::Unavailable("nobody confirms".into())) }.boxed();
        }
        let committed = !self.uncommitted.load(Ordering::Relaxed);
        let waiting = if committed { peer.queue.len() } else { 0 };
        let index = peer.machine.applied().index + waiting as u64;
        let mut applied = peer.applied.subscribe();
        async move {
            let wait = applied.wait_for(|applied| *applied >= index);
            match tokio::time::timeout(Duration::from_secs(2), wait).await {
                Ok(Ok(_)) => Ok(index),
                _ => Err(unknown()),
            }
        }
        .boxed()
    }

    fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::SeqCst);
    }

    fn confirm(&self, region: RegionId, term: u64) -> Option<Pending<()>> {
        let leads = self.status(region).is_some_and(|peer| peer.decides && peer.term == term);
        if !self.cheap.load(Ordering::Relaxed) || !leads {
            return None;
        }
        let groups = self.this.upgrade()?;
        let waits =
            move || groups.alone.load(Ordering::Relaxed) || groups.held.load(Ordering::Relaxed);
        let round = async move {
            while waits() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(())
        };
        Some(round.boxed())
    }

    fn reached(&self, _: RegionId, _: u64) -> Pending<()> {
        async { Err(Error::Invalid("not simulated".into())) }.boxed()
    }

    fn change_membership(&self, _: RegionId, _: Vec<Peer>) -> Pending<Region> {
        async { Err(Error::Invalid("not simulated".into())) }.boxed()
    }

    fn transfer(&self, _: RegionId, _: PeerId) {}

    fn create(&self, _: Region) -> Pending<()> {
        async { Err(Error::Invalid("not simulated".into())) }.boxed()
    }

    fn destroy(&self, _: RegionId) -> Pending<()> {
        async { Err(Error::Invalid("not simulated".into())) }.boxed()
    }
}
