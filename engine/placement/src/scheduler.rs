//! Who should hold what: a pure function from a view of the cluster to moves.
//!
//! It never proposes two changes for one region at a time, never touches a region without a known
//! leader, and adds before it takes away: no move leaves a region with fewer working members than
//! it has. Carrying moves out, and remembering which are under way, is `leader_state`'s business.

use std::collections::{BTreeMap, BTreeSet};

use types::{NodeId, Peer, PeerId, PeerRole, Region, RegionId, RegionKind, TableId};

use crate::api::NodeRole;
use crate::state::VOTERS;

/// A region of more bytes than this is split.
pub const SPLIT_BYTES: u64 = 96 << 20;

/// Most learners that one node may be filling at a time, so that snapshots do not pile up.
pub const MAX_FILLING: usize = 8;

/// Most regions that may lack a voter at a time because a damaged one made way for its successor on
/// the same node: each of them can lose one voter less meanwhile.
pub const MAX_LACKING: usize = 8;

/// Most regions of one table that go from node to node at a time for the sake of balance.
const MAX_SPREADING: usize = 4;

/// Whether a node can be counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Its last heartbeat is recent.
    Live,
    /// Silent, but perhaps only restarting: it keeps what it holds and is given nothing.
    Silent,
    /// Silent for so long that its peers are replaced where there is another node.
    Gone,
}

/// A node in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Number.
    pub id: NodeId,
    /// What it is for.
    pub role: NodeRole,
    /// Whether it can be counted on.
    pub health: Health,
}

/// A region in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Descriptor as last reported.
    pub region: Region,
    /// Node of the leader, where known.
    pub leader: Option<NodeId>,
    /// Bytes, about.
    pub bytes: u64,
    /// Nodes whose peer holds data.
    pub ready: BTreeSet<NodeId>,
    /// Live nodes whose peer's data is lost, for they have long reported none, or damaged.
    pub missing: BTreeSet<NodeId>,
    /// Whether a move is under way.
    pub busy: bool,
    /// Row node that asks it most.
    pub near: Option<NodeId>,
}

/// The cluster as placement's leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Nodes, ascending by number.
    pub nodes: Vec<NodeView>,
    /// Columnar replicas wanted, by table.
    pub replicas: BTreeMap<TableId, u8>,
    /// Regions, ascending by number.
    pub regions: Vec<RegionView>,
    /// Whether some leadership is being handed over.
    pub transferring: bool,
}

/// One step, of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Add a member on a node.
    Add {
        /// Region.
        region: RegionId,
        /// Where.
        node: NodeId,
        /// As what.
        role: PeerRole,
    },
    /// Make a voter of a member that was left halfway to being one.
    Promote {
        /// Region.
        region: RegionId,
        /// Which.
        peer: PeerId,
    },
    /// Remove a member.
    Remove {
        /// Region.
        region: RegionId,
        /// Which.
        peer: PeerId,
    },
    /// Hand leadership over.
    Transfer {
        /// Region.
        region: RegionId,
        /// New leader.
        to: PeerId,
    },
    /// Cut by size.
    Split {
        /// Region.
        region: RegionId,
    },
}

impl Move {
    /// The region that is moved.
    pub fn region(&self) -> RegionId {
        match self {
            Move::Add { region, .. }
            | Move::Promote { region, .. }
            | Move::Remove { region, .. }
            | Move::Transfer { region, .. }
            | Move::Split { region } => *region,
        }
    }
}

/// Leaderships that go to where they are asked at a time: writes of each wait for a moment.
const GATHERED_AT_ONCE: usize = 8;

/// The moves that are due now, at most one for each region.
pub fn plan(cluster: &ClusterView) -> Vec<Move> {
    let mut plan = Plan { cluster, loads: Loads::count(cluster), lacking: 0, moves: Vec::new() };
    let lacks = |view: &&RegionView| view.region.voters().count() < plan.voters_wanted(view);
    plan.lacking = cluster.regions.iter().filter(lacks).count();
    for view in &cluster.regions {
        if let Some(due) = plan.due(view) {
            plan.push(view, due);
        }
    }
    plan.balance_learners();
    if !cluster.transferring && !plan.gather_leaders() {
        plan.balance_leaders();
    }
    plan.moves
}

struct Plan<'a> {
    cluster: &'a ClusterView,
    loads: Loads,
    /// Regions with fewer voters than they should have, moves of this plan included.
    lacking: usize,
    moves: Vec<Move>,
}

impl Plan<'_> {
    fn push(&mut self, view: &RegionView, due: Move) {
        if let Move::Remove { peer, .. } = due
            && view.region.voters().any(|voter| voter.id == peer)
            && view.region.voters().count() <= self.voters_wanted(view)
        {
            self.lacking += 1;
        }
        self.loads.expect(view, &due);
        self.moves.push(due);
    }

    fn due(&self, view: &RegionView) -> Option<Move> {
        if view.busy || view.leader.is_none() {
            return None;
        }
        self.adjust(view, PeerRole::Learner, self.learners_wanted(view))
            .or_else(|| self.finish(view))
            .or_else(|| self.adjust(view, PeerRole::Voter, self.voters_wanted(view)))
            .or_else(|| {
                (view.bytes > SPLIT_BYTES).then_some(Move::Split { region: view.region.id })
            })
    }

    fn learners_wanted(&self, view: &RegionView) -> usize {
        let table = view.region.table().filter(|_| view.region.records().is_some());
        let wanted = table.and_then(|table| self.cluster.replicas.get(&table));
        wanted.map_or(0, |count| usize::from(*count))
    }

    /// Three, or as created while the cluster has fewer row nodes: two would be worse than one.
    fn voters_wanted(&self, view: &RegionView) -> usize {
        let rows = self.cluster.nodes.iter().filter(|node| node.role == NodeRole::Row).count();
        if rows >= VOTERS { VOTERS } else { view.region.voters().count() }
    }

    fn health(&self, node: NodeId) -> Health {
        self.cluster
            .nodes
            .iter()
            .find(|view| view.id == node)
            .map_or(Health::Gone, |view| view.health)
    }

    fn live(&self, role: NodeRole) -> impl Iterator<Item = NodeId> {
        self.cluster
            .nodes
            .iter()
            .filter(move |node| node.role == role && node.health == Health::Live)
            .map(|node| node.id)
    }

    /// A role of a node, where its number is known.
    fn role(&self, node: NodeId) -> Option<NodeRole> {
        self.cluster.nodes.iter().find(|view| view.id == node).map(|view| view.role)
    }

    /// Learners that row nodes hold: on the way to being voters, and no columns.
    fn halfway<'v>(&self, view: &'v RegionView) -> impl Iterator<Item = &'v Peer> {
        view.region.learners().filter(|peer| self.role(peer.node) == Some(NodeRole::Row))
    }

    /// Members of a role: voters, or learners that are columnar replicas.
    fn members<'v>(&self, view: &'v RegionView, role: PeerRole) -> impl Iterator<Item = &'v Peer> {
        let of_role = view.region.peers.iter().filter(move |peer| peer.role == role);
        of_role.filter(move |peer| {
            role == PeerRole::Voter || self.role(peer.node) != Some(NodeRole::Row)
        })
    }

    fn works(&self, view: &RegionView, peer: &Peer) -> bool {
        self.health(peer.node) != Health::Gone && !view.missing.contains(&peer.node)
    }

    /// Ends what an earlier leader of placement began, or this one and gave up: a member that was left halfway
    /// becomes a voter where one is lacking, and goes where none is. It is in the way otherwise: its node
    /// can take no other peer.
    fn finish(&self, view: &RegionView) -> Option<Move> {
        let region = view.region.id;
        let voters = self.members(view, PeerRole::Voter);
        let lacking =
            voters.filter(|peer| self.works(view, peer)).count() < self.voters_wanted(view);
        let live = |peer: &&Peer| {
            self.health(peer.node) == Health::Live && !view.missing.contains(&peer.node)
        };
        let readiest = self
            .halfway(view)
            .filter(live)
            .max_by_key(|peer| (view.ready.contains(&peer.node), std::cmp::Reverse(peer.id)));
        if let Some(peer) = readiest.filter(|_| lacking) {
            return Some(Move::Promote { region, peer: peer.id });
        }
        let useless = |peer: &&Peer| !lacking || !self.works(view, peer);
        self.halfway(view).find(useless).map(|peer| Move::Remove { region, peer: peer.id })
    }

    /// One step towards `wanted` working members of a role.
    fn adjust(&self, view: &RegionView, role: PeerRole, wanted: usize) -> Option<Move> {
        let region = view.region.id;
        let (working, lost): (Vec<&Peer>, Vec<&Peer>) =
            self.members(view, role).partition(|peer| self.works(view, peer));
        if working.len() < wanted
            && let Some(node) = self.free_node(view, role)
        {
            return Some(Move::Add { region, node, role });
        }
        // A lost peer on a live node blocks that node for its own replacement.
        let blocks = |peer: &&&Peer| view.missing.contains(&peer.node);
        let useless = lost.iter().find(blocks).or(lost.first());
        let makes_way = |peer: &Peer| {
            let bounded = role == PeerRole::Learner || self.lacking < MAX_LACKING;
            view.missing.contains(&peer.node) && bounded
        };
        // A learner on a number that is gone for good never comes back, and counts in no majority.
        let over = |peer: &Peer| role == PeerRole::Learner && self.role(peer.node).is_none();
        if let Some(peer) = useless
            && (working.len() >= wanted || makes_way(peer) || over(peer))
            && view.leader != Some(peer.node)
        {
            return Some(Move::Remove { region, peer: peer.id });
        }
        if working.len() > wanted {
            return self.surplus(view, &working, wanted);
        }
        None
    }

    /// The least loaded live node that has no peer of the region yet.
    fn free_node(&self, view: &RegionView, role: PeerRole) -> Option<NodeId> {
        let on = match role {
            PeerRole::Learner => NodeRole::Columnar,
            PeerRole::Voter => NodeRole::Row,
        };
        self.live(on)
            .filter(|node| view.region.peer_on(*node).is_none())
            .filter(|node| self.loads.filling(*node) < MAX_FILLING)
            .min_by_key(|node| (self.loads.order(view, role, *node), *node))
    }

    /// The member on the most loaded node, unless that would leave too few that hold data.
    fn surplus(&self, view: &RegionView, working: &[&Peer], wanted: usize) -> Option<Move> {
        let worst = working
            .iter()
            .filter(|peer| view.leader != Some(peer.node))
            .max_by_key(|peer| (self.loads.order(view, peer.role, peer.node), peer.node))?;
        let left = working
            .iter()
            .filter(|peer| peer.id != worst.id && view.ready.contains(&peer.node))
            .count();
        if view.ready.contains(&worst.node) && left < wanted {
            return None;
        }
        Some(Move::Remove { region: view.region.id, peer: worst.id })
    }

    /// Spreads each table's learners evenly: a few regions at a time go from the fullest node to
    /// the emptiest, once every region of the table has the learners it should have.
    fn balance_learners(&mut self) {
        let cluster = self.cluster;
        for table in cluster.replicas.keys() {
            let mut resting: Vec<&RegionView> = cluster
                .regions
                .iter()
                .filter(|view| view.region.holds(RegionKind::Records(*table)))
                .collect();
            let rests = |view: &&RegionView| {
                view.leader.is_some()
                    && self.members(view, PeerRole::Learner).count() == self.learners_wanted(view)
                    && self.rests(view)
            };
            if !resting.iter().all(rests) {
                continue;
            }
            for _ in 0..MAX_SPREADING {
                let Some((at, full, empty)) = self.uneven(*table, &resting) else { break };
                let view = resting.remove(at);
                let role = PeerRole::Learner;
                self.push(view, Move::Add { region: view.region.id, node: empty, role });
                // Once it holds data, the other one goes.
                self.loads.leave(view, full, role);
            }
        }
    }

    fn rests(&self, view: &RegionView) -> bool {
        !view.busy && self.moves.iter().all(|due| due.region() != view.region.id)
    }

    /// A region whose learner should go from the fullest node to the emptiest, if they differ
    /// enough: its place in `resting`, and both nodes.
    fn uneven(&self, table: TableId, resting: &[&RegionView]) -> Option<(usize, NodeId, NodeId)> {
        let load = |node: &NodeId| (self.loads.learners_of(table, *node), *node);
        let full = self.live(NodeRole::Columnar).max_by_key(load)?;
        let empty = self.live(NodeRole::Columnar).min_by_key(load)?;
        let differ = load(&full).0 >= load(&empty).0 + 2;
        if !differ || self.loads.filling(empty) >= MAX_FILLING {
            return None;
        }
        let movable = |view: &&RegionView| {
            view.region.learners().any(|peer| peer.node == full)
                && view.region.peer_on(empty).is_none()
        };
        Some((resting.iter().position(movable)?, full, empty))
    }

    /// Hands a few leaderships to the nodes that ask the regions most, where they may be: a call within a process costs less
    /// than one between two. Whether there was one.
    fn gather_leaders(&mut self) -> bool {
        let far = |view: &&RegionView| view.leader.is_some() && view.leader != view.near;
        let regions = self.cluster.regions.iter().filter(far);
        let found: Vec<_> = regions
            .filter_map(|view| Some((view, self.transferee(view, view.near?)?)))
            .take(GATHERED_AT_ONCE)
            .collect();
        for (view, to) in &found {
            self.push(view, Move::Transfer { region: view.region.id, to: *to });
        }
        !found.is_empty()
    }

    /// A region's voter on a node, if it can lead and nothing else is done with the region.
    fn transferee(&self, view: &RegionView, node: NodeId) -> Option<PeerId> {
        let voter = view.region.voters().find(|peer| peer.node == node)?;
        let fit = view.ready.contains(&node) && self.health(node) == Health::Live;
        (fit && self.rests(view)).then_some(voter.id)
    }

    /// Hands one leadership from the row node that leads most to the one that leads least, if the
    /// difference is worth it. Those that are where they are asked stay there, and count on neither side.
    fn balance_leaders(&mut self) {
        let gathered = |view: &RegionView| view.near.is_some() && view.near == view.leader;
        let led = |node: NodeId| {
            let regions = self.cluster.regions.iter();
            regions.filter(|view| view.leader == Some(node) && !gathered(view)).count()
        };
        let live = || self.live(NodeRole::Row);
        let Some(most) = live().max_by_key(|node| (led(*node), *node)) else { return };
        let Some(least) = live().min_by_key(|node| (led(*node), *node)) else { return };
        if led(most) < led(least) + 2 + led(most) / 10 {
            return;
        }
        let found = self.cluster.regions.iter().find_map(|view| {
            let movable = view.leader == Some(most) && !gathered(view);
            Some((view, self.transferee(view, least).filter(|_| movable)?))
        });
        if let Some((view, to)) = found {
            self.push(view, Move::Transfer { region: view.region.id, to });
        }
    }
}

/// How many peers each node holds, moves of this plan included.
#[derive(Default)]
struct Loads {
    learners: BTreeMap<(TableId, NodeId), usize>,
    members: BTreeMap<NodeId, usize>,
    filling: BTreeMap<NodeId, usize>,
}

impl Loads {
    fn count(cluster: &ClusterView) -> Self {
        let mut loads = Loads::default();
        for view in &cluster.regions {
            for peer in &view.region.peers {
                loads.add(view, peer.node, peer.role);
                if view.ready.contains(&peer.node) {
                    continue;
                }
                if peer.role == PeerRole::Learner {
                    *loads.filling.entry(peer.node).or_default() += 1;
                }
            }
        }
        loads
    }

    fn add(&mut self, view: &RegionView, node: NodeId, role: PeerRole) {
        *self.members.entry(node).or_default() += 1;
        if let (PeerRole::Learner, Some(table)) = (role, view.region.table()) {
            *self.learners.entry((table, node)).or_default() += 1;
        }
    }

    /// Counts a move as if it were done, so that one plan spreads what it adds.
    fn expect(&mut self, view: &RegionView, due: &Move) {
        if let Move::Add { node, role, .. } = due {
            self.add(view, *node, *role);
            *self.filling.entry(*node).or_default() += 1;
        }
        // One that is promoted stays where it is.
        if let Move::Remove { peer, .. } = due
            && let Some(peer) = view.region.peer(*peer)
        {
            self.leave(view, peer.node, peer.role);
        }
    }

    fn leave(&mut self, view: &RegionView, node: NodeId, role: PeerRole) {
        let less = |count: &mut usize| *count = count.saturating_sub(1);
        self.members.entry(node).and_modify(less);
        if let (PeerRole::Learner, Some(table)) = (role, view.region.table()) {
            self.learners.entry((table, node)).and_modify(less);
        }
    }

    fn learners_of(&self, table: TableId, node: NodeId) -> usize {
        self.learners.get(&(table, node)).copied().unwrap_or(0)
    }

    fn filling(&self, node: NodeId) -> usize {
        self.filling.get(&node).copied().unwrap_or(0)
    }

    /// Fewer is better: a table's own learners first, then everything the node holds.
    fn order(&self, view: &RegionView, role: PeerRole, node: NodeId) -> (usize, usize) {
        let table = match (role, view.region.table()) {
            (PeerRole::Learner, Some(table)) => self.learners_of(table, node),
            _ => 0,
        };
        (table, self.members.get(&node).copied().unwrap_or(0))
    }
}
