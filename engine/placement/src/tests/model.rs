//! A model of one Raft group as its proposers see it: terms, quorums, deposed leaders that do not
//! know it yet, answers that arrive late or never. No messages, no disks; one seed, one history
//! (on a single-threaded runtime).
//!
//! What it takes from Raft: an entry is committed when a majority accepts it in its term; a leader
//! is elected by a majority and holds every committed entry; a member that voted in a later term
//! acknowledges nothing of an earlier one.

use std::collections::BTreeSet;
use std::sync::Arc;

use env::{Clock, Random, SimClock};
use futures::FutureExt;
use kv::MemoryKv;
use parking_lot::Mutex;
use raft::{
    Command as Entry, Groups, INITIAL_POSITION, Machine, Machines, PeerStatus, Pending, Position,
};
use types::region::PLACEMENT_REGION;
use types::{Error, NodeId, Peer, PeerId, Region, RegionId, Result};

use crate::api::NodeReport;
use crate::bootstrap::placement_region;
use crate::machines::PlacementMachines;
use crate::service::PlacementService;
use crate::view::View;

/// Ways to be wrong that a test must notice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    #[default]
    None,
    /// Read indexes are answered without asking anybody.
    Unconfirmed,
    /// A leader's status never shows that it was deposed.
    StaleStatus,
}

struct Member {
    machine: Box<dyn Machine>,
    /// Highest term it voted or accepted in.
    promised: u64,
    /// Term in which it believes itself to lead.
    leads: Option<u64>,
    follows: Option<NodeId>,
    /// Stopped: answers nothing, neither its own process nor others.
    dead: bool,
}

struct World {
    log: Vec<(Position, Vec<u8>)>,
    members: Vec<Member>,
    region: Region,
}

/// The group, shared by its members.
pub struct Model {
    world: Mutex<World>,
    random: Random,
    flaw: Flaw,
}

/// One member and what runs on its node.
pub struct Node {
    pub id: NodeId,
    pub clock: SimClock,
    pub service: Arc<PlacementService>,
}

impl Node {
    /// Its clock reaches everybody who believes to lead, as with a heartbeat.
    pub fn report_clock(&self, nodes: &[Node]) {
        let report =
            NodeReport { clock_ms: Some(self.clock.unix_millis()), ..NodeReport::default() };
        for node in nodes {
            let Ok(term) = node.service.lead() else { continue };
            let Ok(mut leader) = node.service.leader_state(term) else { continue };
            leader.record_heartbeat(self.id, report.clone(), Vec::new(), node.clock.now());
        }
    }
}

/// A group of `count` members, numbered from 1, without a leader.
pub fn group(count: u64, seed: u64, flaw: Flaw, upkeep: bool) -> (Arc<Model>, Vec<Node>) {
    let clocks = (0..count).map(|_| SimClock::default()).collect();
    group_with(clocks, seed, flaw, upkeep)
}

/// A group of members with such clocks, numbered from 1, without a leader.
pub fn group_with(
    clocks: Vec<SimClock>,
    seed: u64,
    flaw: Flaw,
    upkeep: bool,
) -> (Arc<Model>, Vec<Node>) {
    let ids: Vec<NodeId> = (1..=clocks.len() as u64).collect();
    let region = placement_region(&ids).unwrap();
    let random = Random::seeded(seed);
    let mut members = Vec::new();
    let mut views = Vec::new();
    for _ in &ids {
        let view = Arc::new(View::new());
        let machines = PlacementMachines::new(Arc::new(MemoryKv::new()), view.clone(), None);
        let machine = machines.create(&region, true).unwrap();
        let promised = INITIAL_POSITION.term;
        members.push(Member { machine, promised, leads: None, follows: None, dead: false });
        views.push(view);
    }
    let world = Mutex::new(World { log: Vec::new(), members, region });
    let model = Arc::new(Model { world, random: random.clone(), flaw });
    let nodes = ids.into_iter().zip(views).zip(clocks).map(|((id, view), clock)| {
        let groups = Arc::new(ModelGroups { model: model.clone(), node: id });
        let make = if upkeep { PlacementService::start } else { PlacementService::new };
        let shared = Arc::new(clock.clone());
        let service = make(id, groups, view, shared, random.fork());
        Node { id, clock, service }
    });
    (model.clone(), nodes.collect())
}

impl World {
    fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    fn member(&mut self, node: NodeId) -> &mut Member {
        &mut self.members[node as usize - 1]
    }

    /// Applies what is committed on one member.
    fn catch_up(&mut self, node: NodeId) {
        let at = node as usize - 1;
        let applied = self.members[at].machine.applied().index;
        let missing = self.log.iter().filter(|(position, _)| position.index > applied);
        for (position, data) in missing {
            let entry = if data.is_empty() { Entry::Empty } else { Entry::Data(data) };
            self.members[at].machine.apply(*position, entry).unwrap();
            self.members[at].machine.finish_batch().unwrap();
        }
    }

    fn commit(&mut self, term: u64, data: Vec<u8>) -> Position {
        let index = self.log.last().map_or(INITIAL_POSITION.index, |(at, _)| at.index) + 1;
        let position = Position { index, term };
        self.log.push((position, data));
        position
    }
}

impl Model {
    fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Lets others run for a while, of random length.
    pub async fn pause(&self, most: u64) {
        for _ in 0..self.below(most + 1) {
            tokio::task::yield_now().await;
        }
    }

    /// An answer is on its way: mostly not for long, but some arrive when all has changed.
    async fn delay(&self) {
        let most = if self.below(8) == 0 { 300 } else { 5 };
        self.pause(most).await;
    }

    /// Makes a node the leader, with the votes of a random majority. Whoever did not vote goes on
    /// believing what it believed.
    pub fn elect(&self, node: NodeId) -> Result<u64> {
        let mut world = self.world.lock();
        let mut voters = BTreeSet::from([node]);
        let living: Vec<NodeId> = (1..=world.members.len() as u64)
            .filter(|id| !world.members[*id as usize - 1].dead)
            .collect();
        if living.len() < world.majority() || !living.contains(&node) {
            return Err(Error::Unavailable("no majority".into()));
        }
        while voters.len() < world.majority() {
            voters.insert(living[self.below(living.len() as u64) as usize]);
        }
        let term = world.members.iter().map(|member| member.promised).max().unwrap() + 1;
        for voter in voters {
            let member = world.member(voter);
            member.promised = term;
            member.leads = None;
            member.follows = Some(node);
        }
        world.commit(term, Vec::new());
        world.catch_up(node);
        world.member(node).leads = Some(term);
        Ok(term)
    }

    /// Stops or revives a node.
    pub fn set_dead(&self, node: NodeId, dead: bool) {
        let mut world = self.world.lock();
        let member = world.member(node);
        member.dead = dead;
        member.leads = None;
        member.follows = None;
    }

    /// How many entries were committed.
    pub fn committed(&self) -> usize {
        self.world.lock().log.len()
    }

    /// Asks everybody, each at another time, whether they still accept `term`.
    async fn quorum(&self, term: u64) -> bool {
        let (count, majority) = {
            let world = self.world.lock();
            (world.members.len(), world.majority())
        };
        let mut order: Vec<usize> = (0..count).collect();
        for at in 0..count {
            order.swap(at, at + self.below((count - at) as u64) as usize);
        }
        let mut accepted = 0;
        for at in order {
            self.pause(3).await;
            let mut world = self.world.lock();
            let member = &mut world.members[at];
            if !member.dead && member.promised <= term {
                member.promised = term;
                accepted += 1;
            }
            if accepted == majority {
                return true;
            }
        }
        false
    }

    async fn read_index(&self, node: NodeId) -> Result<u64> {
        let leads = {
            let mut world = self.world.lock();
            world.catch_up(node);
            world.member(node).leads
        };
        if self.flaw == Flaw::Unconfirmed {
            return Ok(0);
        }
        let Some(term) = leads else { return self.forwarded(node).await };
        let index = self.committed() as u64;
        let confirmed = self.quorum(term).await;
        self.delay().await;
        if confirmed {
            return Ok(index);
        }
        // It learns that it was deposed, and asks its successor as any follower does.
        if self.flaw != Flaw::StaleStatus {
            self.world.lock().member(node).leads = None;
        }
        self.forwarded(node).await
    }

    /// A follower's read index: the leader's, if there is one.
    async fn forwarded(&self, node: NodeId) -> Result<u64> {
        let leader = {
            let world = self.world.lock();
            let newest = world.members.iter().filter_map(|member| member.leads).max();
            world.members.iter().position(|member| member.leads.is_some() && member.leads == newest)
        };
        let none = || Error::timeout("a read index", std::time::Duration::from_secs(1));
        let Some(at) = leader else { return Err(none()) };
        let term = self.world.lock().members[at].leads.ok_or_else(none)?;
        if at as u64 + 1 == node || !self.quorum(term).await {
            return Err(none());
        }
        let mut world = self.world.lock();
        world.catch_up(node);
        Ok(world.log.len() as u64)
    }

    async fn propose(&self, node: NodeId, term: u64, data: Vec<u8>) -> Result<Position> {
        let refused = || Error::NotLeader { region: PLACEMENT_REGION, leader: None };
        if self.world.lock().member(node).leads != Some(term) {
            return Err(refused());
        }
        if !self.quorum(term).await {
            self.world.lock().member(node).leads = None;
            return Err(Error::timeout("a proposal", std::time::Duration::from_secs(1)));
        }
        let position = {
            let mut world = self.world.lock();
            // Accepted by a majority one after the other; committed only if it still is one, so
            // that every later leader holds it.
            let accept = world.members.iter().filter(|m| m.promised <= term && !m.dead).count();
            if accept < world.majority() {
                world.member(node).leads = None;
                return Err(Error::Dropped("deposed meanwhile".into()));
            }
            let position = world.commit(term, data);
            if world.member(node).leads != Some(term) {
                return Err(refused());
            }
            world.catch_up(node);
            position
        };
        self.delay().await;
        if self.below(20) == 0 {
            return Err(Error::timeout("a proposal", std::time::Duration::from_secs(1)));
        }
        Ok(position)
    }
}

/// The group as one member sees it.
struct ModelGroups {
    model: Arc<Model>,
    node: NodeId,
}

impl Groups for ModelGroups {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        if region != PLACEMENT_REGION {
            return None;
        }
        let mut world = self.model.world.lock();
        let descriptor = world.region.clone();
        let peer = *descriptor.peer_on(self.node)?;
        let member = world.member(self.node);
        let leader = if member.leads.is_some() { Some(self.node) } else { member.follows };
        Some(PeerStatus {
            peer,
            leader: leader.and_then(|node| descriptor.peer_on(node).copied()),
            term: member.leads.unwrap_or(member.promised),
            decides: member.leads.is_some(),
            alone: false,
            applied: member.machine.applied(),
            committed: 0,
            ready: true,
            fault: None,
            stopped: false,
            lost: false,
            region: Arc::new(descriptor),
        })
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.status(PLACEMENT_REGION).into_iter().collect()
    }

    fn propose(&self, _: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        let (model, node) = (self.model.clone(), self.node);
        async move { model.propose(node, term, data).await }.boxed()
    }

    fn read_index(&self, _: RegionId) -> Pending<u64> {
        let (model, node) = (self.model.clone(), self.node);
        async move { model.read_index(node).await }.boxed()
    }

    fn confirm(&self, _: RegionId, term: u64) -> Option<Pending<()>> {
        let (model, node) = (self.model.clone(), self.node);
        let leads = move |model: &Model| model.world.lock().member(node).leads == Some(term);
        if !leads(&model) {
            return None;
        }
        let round = async move {
            let refused = || Error::NotLeader { region: PLACEMENT_REGION, leader: None };
            if model.flaw == Flaw::Unconfirmed {
                return Ok(());
            }
            let confirmed = model.quorum(term).await;
            model.delay().await;
            (confirmed && leads(&model)).then_some(()).ok_or_else(refused)
        };
        Some(round.boxed())
    }

    fn reached(&self, _: RegionId, _: u64) -> Pending<()> {
        unimplemented_here()
    }

    fn change_membership(&self, _: RegionId, _: Vec<Peer>) -> Pending<Region> {
        unimplemented_here()
    }

    fn transfer(&self, _: RegionId, _: PeerId) {}

    fn create(&self, _: Region) -> Pending<()> {
        unimplemented_here()
    }

    fn destroy(&self, _: RegionId) -> Pending<()> {
        unimplemented_here()
    }
}

fn unimplemented_here<T: Send + 'static>() -> Pending<T> {
    async { Err(Error::Invalid("the model has one region only".into())) }.boxed()
}
