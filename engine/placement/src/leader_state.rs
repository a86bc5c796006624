//! What one leader of placement knows during its term: what nodes reported, which moves are under
//! way, and its timestamps.
//!
//! Nothing here is replicated; a new leader starts with an empty state and gets everything again
//! within a heartbeat. Times are passed in, nothing waits here.

mod under_way;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use env::Instant;
use types::{
    ClusterVersion, Epoch, NodeId, Peer, PeerId, PeerRole, Region, RegionId, RegionKind, Timestamp,
};

use crate::affinity::Affinity;
use crate::api::{
    Garbage, NodeReport, NodeRole, NodeStatus, Order, PeerReport, Route, SafePoint, TimeStatus,
};
use crate::oracle::{CLOCK_WAIT, Oracle, Reading, latest_median_ms, median_ms};
use crate::safe_point;
use crate::scheduler::{ClusterView, Health, Move, NodeView, RegionView};
use crate::state::{INITIAL_EPOCH, RegionRecord, State, VOTERS, is_newer};
use under_way::Plan;

/// A node whose last heartbeat is no older than this counts as live.
pub const LIVE_FOR: Duration = Duration::from_secs(10);

/// A node may be handed leaders whose last heartbeat is no older than this; one comes at least every
/// [`crate::service::HOLD`]. One that has just died leads least, and counts as live for a while.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// After this long without a sign, a node's peers (or a live node's lost peer) are replaced.
pub const GONE_AFTER: Duration = Duration::from_secs(300);

/// How long a change of membership may take before it is thought over again.
const MEMBERSHIP_TAKES: Duration = Duration::from_secs(30);
/// The same for handing over leadership.
const TRANSFER_TAKES: Duration = Duration::from_secs(10);
/// The same for a split.
const SPLIT_TAKES: Duration = Duration::from_secs(60);

struct LastHeartbeat {
    at: Instant,
    report: NodeReport,
    peers: BTreeMap<RegionId, PeerReport>,
}

/// Whether a node was heard of so lately that it may be handed a leader.
fn may_lead(nodes: &BTreeMap<NodeId, LastHeartbeat>, node: NodeId, now: Instant) -> bool {
    nodes.get(&node).is_some_and(|last| now.since(last.at) <= HEARD_WITHIN)
}

/// A leader's volatile state.
pub struct LeaderState {
    /// Timestamps of this term.
    pub oracle: Oracle,
    /// When the safe point was last looked at.
    pub collected: Option<Instant>,
    /// Why nothing is done in this term any more: placement's log is not what it was.
    pub damage: Option<String>,
    /// Which nodes ask regions most.
    pub(crate) affinity: Affinity,
    since: Instant,
    nodes: BTreeMap<NodeId, LastHeartbeat>,
    /// What nodes have said that their programs speak.
    pub(crate) versions: BTreeMap<NodeId, ClusterVersion>,
    leaders: BTreeMap<RegionId, (NodeId, u64)>,
    plans: BTreeMap<RegionId, Plan>,
    absent: BTreeMap<(RegionId, NodeId), Instant>,
    absent_members: BTreeMap<PeerId, Instant>,
    reserved: BTreeMap<(RegionId, NodeId), (Epoch, PeerId)>,
}

impl LeaderState {
    /// An empty state. `high_water_ms` is the persisted mark as of an entry of `term`.
    pub fn new(term: u64, high_water_ms: u64, now: Instant) -> Self {
        LeaderState {
            oracle: Oracle::begin(term, high_water_ms, now),
            collected: None,
            damage: None,
            affinity: Affinity::default(),
            since: now,
            nodes: BTreeMap::new(),
            versions: BTreeMap::new(),
            leaders: BTreeMap::new(),
            plans: BTreeMap::new(),
            absent: BTreeMap::new(),
            absent_members: BTreeMap::new(),
            reserved: BTreeMap::new(),
        }
    }

    /// Takes in a heartbeat; true if some region's leader is another one now.
    pub fn record_heartbeat(
        &mut self,
        node: NodeId,
        report: NodeReport,
        peers: Vec<PeerReport>,
        now: Instant,
    ) -> bool {
        let mut changed = false;
        let mut by_region = BTreeMap::new();
        for peer in peers {
            let id = peer.region.id;
            let known = self.leaders.get(&id).copied();
            if peer.leader && known.is_none_or(|(_, term)| peer.term >= term) {
                changed |= known.is_none_or(|(leader, _)| leader != node);
                self.leaders.insert(id, (node, peer.term));
            } else if !peer.leader && known.is_some_and(|(leader, _)| leader == node) {
                self.leaders.remove(&id);
                changed = true;
            }
            by_region.insert(id, peer);
        }
        self.nodes.insert(node, LastHeartbeat { at: now, report, peers: by_region });
        changed
    }

    /// Whether a node's process with another session sent a heartbeat not long ago, or may have: by
    /// then a new leader has heartbeats of everybody.
    pub fn may_live(&self, node: NodeId, other_than: u64, now: Instant) -> bool {
        match self.nodes.get(&node) {
            Some(last) => last.report.session != Some(other_than) && now.since(last.at) <= LIVE_FOR,
            None => now.since(self.since) <= LIVE_FOR,
        }
    }

    /// Forgets nodes that are gone for good.
    pub fn forget_gone(&mut self, state: &State) {
        self.nodes.retain(|node, _| !state.gone.contains_key(node));
        self.leaders.retain(|_, (node, _)| !state.gone.contains_key(node));
        self.versions.retain(|node, _| !state.gone.contains_key(node));
    }

    /// What the clocks say. `own` is this node, one of the `voters`, and its clock; the others' go on
    /// from what they last reported, by this node's monotonic time.
    pub fn reading(&self, voters: &[NodeId], own: (NodeId, u64), at: Instant) -> Reading {
        let clocks: Vec<_> =
            self.clocks(voters, own, at).into_iter().map(|(_, clock)| clock).collect();
        let latest_ms = latest_median_ms(clocks.clone(), voters.len()).unwrap_or(own.1);
        // A new cluster has no mark to go on from.
        let first = self.oracle.begun_ms() == 0 && at.since(self.since) >= CLOCK_WAIT;
        let alone = first.then_some(own.1);
        let clock_ms = median_ms(clocks, voters.len()).or(alone);
        Reading { at, clock_ms, latest_ms, own_ms: own.1 }
    }

    /// Clocks of voters as of now, where known.
    fn clocks(&self, voters: &[NodeId], own: (NodeId, u64), at: Instant) -> Vec<(NodeId, u64)> {
        let clock = |node: &NodeId| {
            if *node == own.0 {
                return Some(own);
            }
            let last = self.nodes.get(node)?;
            let passed = at.since(last.at).as_millis() as u64;
            Some((*node, last.report.clock_ms?.saturating_add(passed)))
        };
        voters.iter().filter_map(clock).collect()
    }

    /// Timestamps and clocks as status shows them.
    pub fn time(
        &self,
        state: &State,
        voters: &[NodeId],
        own: (NodeId, u64),
        at: Instant,
    ) -> TimeStatus {
        let now = self.reading(voters, own, at);
        let off = |(node, clock): (NodeId, u64)| {
            let median = now.clock_ms?;
            Some((node, i64::try_from(clock).ok()?.saturating_sub_unsigned(median)))
        };
        TimeStatus {
            high_water_ms: state.high_water_ms,
            ahead_ms: self.oracle.ahead_ms(now),
            clocks: self.clocks(voters, own, at).into_iter().filter_map(off).collect(),
            damage: self.damage.clone(),
        }
    }

    /// A timestamp of those that a node reports which cannot be, if the log that this leader goes by
    /// is whole. Says nothing of a leader that may be deposed.
    pub fn contradiction(&self, report: &NodeReport, peers: &[PeerReport]) -> Option<Timestamp> {
        let given = report.newest.map(|(seen, term)| (seen, Some(term)));
        let stored = peers.iter().map(|peer| (peer.floor, None));
        let stored = stored.chain(report.newest_applied.map(|seen| (seen, None)));
        let seen = given.into_iter().chain(stored);
        let contradicts = |(seen, term): &(Timestamp, Option<u64>)| {
            *seen > Timestamp::ZERO && self.oracle.is_contradicted_by(*seen, *term)
        };
        seen.filter(contradicts).map(|(seen, _)| seen).max()
    }

    /// Node of a region's leader, where known.
    pub fn leader(&self, region: RegionId) -> Option<NodeId> {
        self.leaders.get(&region).map(|(node, _)| *node)
    }

    /// Of what a node reported, what the replicated state does not know yet: descriptors, and
    /// initial voters seen for the first time.
    pub fn news(&self, state: &State, node: NodeId) -> (Vec<Region>, Vec<(RegionId, NodeId)>) {
        let (mut regions, mut created) = (Vec::new(), Vec::new());
        for peer in self.nodes.get(&node).into_iter().flat_map(|last| last.peers.values()) {
            let region = &peer.region;
            if region.kind == RegionKind::Placement {
                continue;
            }
            let record = state.regions.get(&region.id);
            if record.is_some_and(|record| record.uncreated.contains(&node)) {
                created.push((region.id, node));
            }
            let known = record
                .map(|record| &record.region)
                .or(state.tombstones.get(&region.id).map(|tombstone| &tombstone.region));
            let new = match known {
                Some(known) => peer.leader && is_newer(region, known),
                // A follower's word is enough for a region that nobody needs: it may be all that
                // is left of the group.
                None => peer.leader || !state.is_live(region.kind),
            };
            if new {
                regions.push(region.clone());
            }
        }
        (regions, created)
    }

    /// What a node is to do now.
    pub fn orders(&self, state: &State, node: NodeId) -> Vec<Order> {
        let Some(last) = self.nodes.get(&node) else { return Vec::new() };
        let mut orders = Vec::new();
        for record in state.regions.values() {
            let id = record.region.id;
            // A region that has changed since was created without this node: its leader brings it.
            if record.region.epoch == INITIAL_EPOCH
                && record.uncreated.contains(&node)
                && !last.peers.contains_key(&id)
            {
                orders.push(Order::Create(record.region.clone()));
            }
        }
        for (id, plan) in &self.plans {
            if self.leader(*id) == Some(node)
                && let Some(record) = state.regions.get(id)
            {
                orders.push(plan.order(&record.region));
            }
        }
        for (id, peer) in &last.peers {
            if self.is_over(state, node, *id, peer) {
                let conf = peer.region.epoch.conf;
                orders.push(Order::Destroy { region: *id, conf });
            }
        }
        orders
    }

    /// Whether a node's peer is of no use any more.
    fn is_over(&self, state: &State, node: NodeId, id: RegionId, peer: &PeerReport) -> bool {
        if let Some(tombstone) = state.tombstones.get(&id) {
            let votes = tombstone.region.voters().any(|voter| voter.node == node);
            // Learners serve readers only; the fates of transactions are for voters to know.
            let unread = !votes && !state.is_readable(tombstone.dropped);
            return unread || is_done_with(state, tombstone.dropped);
        }
        let Some(record) = state.regions.get(&id) else {
            // A half that was split off by a leader who is lost. Columns are made anew; a voter's peer
            // may be of a split that its leader has yet to report.
            let columnar = state.nodes.get(&node).is_some_and(|n| n.role == NodeRole::Columnar);
            return columnar && !peer.leader && state.is_lost(id);
        };
        // Removed: the leader's descriptor is younger than the peer's and does not list it. One that is
        // being added may be on the list by now.
        record.region.peer(peer.peer).is_none()
            && record.region.epoch.conf > peer.region.epoch.conf
            && !self.plans.get(&id).is_some_and(|plan| plan.adds(peer.peer))
    }

    /// Dropped regions that no member holds any more.
    pub fn purgeable(&self, state: &State) -> Vec<RegionId> {
        // Of a learner whose node's number is gone, no report will come.
        let lost =
            |peer: &Peer| peer.role == PeerRole::Learner && !state.nodes.contains_key(&peer.node);
        let gone = |region: &Region| {
            region.peers.iter().filter(|peer| !lost(peer)).all(|peer| {
                let last = self.nodes.get(&peer.node);
                state.gone.contains_key(&peer.node)
                    || last.is_some_and(|last| !last.peers.contains_key(&region.id))
            })
        };
        let held = |id: RegionId| self.nodes.values().any(|last| last.peers.contains_key(&id));
        state
            .tombstones
            .values()
            .filter(|tombstone| is_done_with(state, tombstone.dropped))
            .filter(|tombstone| gone(&tombstone.region) && !held(tombstone.region.id))
            .map(|tombstone| tombstone.region.id)
            .collect()
    }

    /// How far back anybody can ask as of `now`; none while some node that runs transactions may
    /// only not have sent a heartbeat *yet*. One that has fallen silent holds nothing back: what its
    /// transactions can no longer read is an error to them.
    pub fn safe_point(&self, state: &State, now: Timestamp, at: Instant) -> Option<SafePoint> {
        let mut starts = Vec::new();
        for node in state.nodes.values().filter(|node| node.has_clients()) {
            match self.nodes.get(&node.id) {
                Some(last) if at.since(last.at) <= LIVE_FOR => {
                    starts.extend(last.report.oldest_start);
                }
                None if at.since(self.since) <= LIVE_FOR => return None,
                _ => {}
            }
        }
        let now_ms = now.physical_ms();
        let leases = crate::leases::live(state, now_ms).map(|lease| lease.ts);
        let floor = safe_point::compute(now, state.life_ms, leases, starts);
        Some(SafePoint { floor, settled: self.settled(state, floor), settled_below: state.next_id })
    }

    /// The point up to which every region has said that no older transaction holds a key of it;
    /// `floor` where there is no region.
    fn settled(&self, state: &State, floor: Timestamp) -> Timestamp {
        // While a split is being reported, what its other half has to say is not known.
        if !state.is_tiled() {
            return Timestamp::ZERO;
        }
        let live = state.regions.values().map(|record| &record.region);
        // Locks of dropped regions that nobody can read any more ask for nothing, and a dropped
        // region waits for this very point: were it counted, it would wait for itself.
        let tombstones =
            state.tombstones.values().filter(|tombstone| state.is_readable(tombstone.dropped));
        let all = live.chain(tombstones.map(|tombstone| &tombstone.region));
        all.map(|region| self.floor_of(region)).min().unwrap_or(floor)
    }

    /// What a region's voters say of it, in the shape in which it is known.
    fn floor_of(&self, region: &Region) -> Timestamp {
        let reports = region.voters().filter_map(|peer| {
            let report = self.nodes.get(&peer.node)?.peers.get(&region.id)?;
            (report.region.epoch.version == region.epoch.version).then_some(report.floor)
        });
        reports.max().unwrap_or(Timestamp::ZERO)
    }

    /// Garbage collection as shown to people.
    pub fn garbage(&self, state: &State) -> Garbage {
        let history = state.regions.values().filter_map(|record| {
            let leader = self.leader(record.region.id)?;
            Some(self.nodes.get(&leader)?.peers.get(&record.region.id)?.history_bytes)
        });
        Garbage {
            safe_point: state.safe_point,
            life_ms: state.life_ms,
            history_bytes: history.sum(),
        }
    }

    /// Forgets moves that the reports show, those that took too long, and what nodes said whose
    /// numbers are gone.
    pub fn settle(&mut self, state: &State, now: Instant) {
        self.forget_gone(state);
        let (leaders, nodes) = (&self.leaders, &self.nodes);
        self.plans.retain(|id, plan| {
            let leader = leaders.get(id).map(|(node, _)| *node);
            state.regions.get(id).is_some_and(|record| plan.goes_on(&record.region))
                && now < plan.until
                && plan
                    .transferee
                    .is_none_or(|node| leader != Some(node) && may_lead(nodes, node, now))
        });
        self.reserved.retain(|(id, _), (epoch, _)| {
            state.regions.get(id).is_some_and(|record| record.region.epoch == *epoch)
        });
    }

    /// The cluster as the scheduler sees it.
    pub fn cluster_view(&mut self, state: &State, now: Instant) -> ClusterView {
        self.note_absences(state, now);
        let nodes = state
            .nodes
            .values()
            .map(|node| NodeView {
                id: node.id,
                role: node.role,
                health: self.health(node.id, now),
            })
            .collect();
        let tables = state.catalog.tables.iter();
        ClusterView {
            nodes,
            replicas: tables.map(|table| (table.id, table.columnar_replicas)).collect(),
            regions: state.regions.values().map(|record| self.view(state, record, now)).collect(),
            transferring: self.plans.values().any(|plan| plan.transferee.is_some()),
        }
    }

    /// Whether a node has said nothing for so long that it counts as gone.
    pub(crate) fn is_gone(&self, node: NodeId, now: Instant) -> bool {
        self.health(node, now) == Health::Gone
    }

    fn health(&self, node: NodeId, now: Instant) -> Health {
        let silent = now.since(self.nodes.get(&node).map_or(self.since, |last| last.at));
        match self.nodes.contains_key(&node) {
            true if silent <= LIVE_FOR => Health::Live,
            _ if silent <= GONE_AFTER => Health::Silent,
            _ => Health::Gone,
        }
    }

    fn view(&self, state: &State, record: &RegionRecord, now: Instant) -> RegionView {
        let region = &record.region;
        let report = |node| self.nodes.get(&node).and_then(|last| last.peers.get(&region.id));
        let ready = |peer: &&Peer| self.report(region.id, peer).is_some_and(|report| report.ready);
        let missing = |peer: &&Peer| {
            // One that is only on the way to being a voter holds nothing that is counted on.
            let halfway = peer.role == PeerRole::Learner && state.is_row(peer.node);
            let limit = if halfway { MEMBERSHIP_TAKES } else { self.absence_limit(peer.node) };
            let absent = self.absent.get(&(region.id, peer.node));
            absent.is_some_and(|since| now.since(*since) > limit)
                || self.is_damaged(region.id, peer)
        };
        let leader = self.leader(region.id).filter(|node| region.peer_on(*node).is_some());
        RegionView {
            region: region.clone(),
            leader,
            bytes: leader.and_then(report).map_or(0, |report| report.bytes),
            ready: region.peers.iter().filter(ready).map(|peer| peer.node).collect(),
            missing: region.peers.iter().filter(missing).map(|peer| peer.node).collect(),
            busy: self.plans.contains_key(&region.id),
            near: self.affinity.near(region.id),
        }
    }

    /// What a member last said of itself; nothing while another peer is in its place.
    fn report(&self, region: RegionId, member: &Peer) -> Option<&PeerReport> {
        let report = self.nodes.get(&member.node)?.peers.get(&region)?;
        (report.peer == member.id).then_some(report)
    }

    /// For how long a live node may report no peer that it should hold, until that peer counts as lost.
    fn absence_limit(&self, node: NodeId) -> Duration {
        match self.nodes.get(&node) {
            Some(last) if last.report.begun_anew => LIVE_FOR,
            _ => GONE_AFTER,
        }
    }

    /// Members of placement's own group that say that they cannot go on, or that are not there any more on
    /// nodes whose log was set aside.
    pub fn lost_members(&mut self, own: &Region, now: Instant) -> BTreeSet<PeerId> {
        let gone = own.peers.iter().filter(|member| {
            let anew = self.nodes.get(&member.node).is_some_and(|last| last.report.begun_anew);
            anew && self.report(own.id, member).is_none()
        });
        let since = |peer: &Peer| self.absent_members.get(&peer.id).copied().unwrap_or(now);
        self.absent_members = gone.map(|peer| (peer.id, since(peer))).collect();
        let absent = |peer: &Peer| {
            let since = self.absent_members.get(&peer.id);
            since.is_some_and(|since| now.since(*since) > self.absence_limit(peer.node))
        };
        let lost = |peer: &&Peer| self.is_damaged(own.id, peer) || absent(peer);
        own.peers.iter().filter(lost).map(|peer| peer.id).collect()
    }

    /// The voter of placement's own group whose node asks most, if it is another one and can lead. A leader stays for a
    /// while: each one begins with nothing but the log.
    pub fn nearest_voter(&self, own: &Region, leader: NodeId, now: Instant) -> Option<PeerId> {
        if now.since(self.since) < LIVE_FOR {
            return None;
        }
        let node = self.affinity.busiest().filter(|node| *node != leader)?;
        let voter = own.voters().find(|peer| peer.node == node)?;
        let ready = self.report(own.id, voter).is_some_and(|report| report.ready);
        (ready && self.health(node, now) == Health::Live).then_some(voter.id)
    }

    /// Whether a member says that it cannot go on.
    fn is_damaged(&self, region: RegionId, member: &Peer) -> bool {
        self.report(region, member).is_some_and(|report| report.damaged)
    }

    /// Since when live nodes report no peer of a region that they should hold.
    fn note_absences(&mut self, state: &State, now: Instant) {
        let mut absent = BTreeMap::new();
        for record in state.regions.values() {
            for peer in &record.region.peers {
                let at = (record.region.id, peer.node);
                let lost = self.nodes.contains_key(&peer.node)
                    && self.report(at.0, peer).is_none()
                    && !record.uncreated.contains(&peer.node);
                if lost {
                    absent.insert(at, self.absent.get(&at).copied().unwrap_or(now));
                }
            }
        }
        self.absent = absent;
    }

    /// How many new peer numbers it takes to carry out the moves.
    pub fn numbers_needed(&self, moves: &[Move]) -> u32 {
        let adds = moves.iter().filter(|due| match due {
            Move::Add { region, node, .. } => !self.reserved.contains_key(&(*region, *node)),
            _ => false,
        });
        adds.count() as u32
    }

    /// Takes moves on, with new peer numbers from `numbers`. A move that is repeated after it took
    /// too long keeps its number, so that a late success is not done twice.
    pub fn undertake(
        &mut self,
        state: &State,
        moves: Vec<Move>,
        mut numbers: std::ops::Range<PeerId>,
        now: Instant,
    ) {
        for due in moves {
            let id = due.region();
            let Some(record) = state.regions.get(&id) else { continue };
            let region = &record.region;
            let mut peers = region.peers.clone();
            let conf = region.epoch.conf;
            let (order, takes, transferee) = match due {
                Move::Add { node, role, .. } => {
                    let kept = self.reserved.get(&(id, node)).map(|(_, peer)| *peer);
                    let Some(peer) = kept.or_else(|| numbers.next()) else { continue };
                    self.reserved.insert((id, node), (region.epoch, peer));
                    peers.push(Peer { id: peer, node, role });
                    (Order::Membership { region: id, conf, peers }, MEMBERSHIP_TAKES, None)
                }
                Move::Promote { peer, .. } => {
                    let promoted = peers.iter_mut().filter(|member| member.id == peer);
                    promoted.for_each(|member| member.role = PeerRole::Voter);
                    (Order::Membership { region: id, conf, peers }, MEMBERSHIP_TAKES, None)
                }
                Move::Remove { peer, .. } => {
                    peers.retain(|member| member.id != peer);
                    (Order::Membership { region: id, conf, peers }, MEMBERSHIP_TAKES, None)
                }
                Move::Transfer { to, .. } => {
                    let transferee = region.peer(to).map(|peer| peer.node);
                    if transferee.is_none_or(|node| !may_lead(&self.nodes, node, now)) {
                        continue;
                    }
                    (Order::Transfer(id, to), TRANSFER_TAKES, transferee)
                }
                Move::Split { .. } => (Order::Split(id), SPLIT_TAKES, None),
            };
            let plan = Plan { order, of: region.clone(), transferee, until: now + takes };
            self.plans.insert(id, plan);
        }
    }

    /// A region as clients see it.
    pub fn route(&self, state: &State, region: &Region) -> Route {
        let region = region.clone();
        let report = |node| self.nodes.get(&node).and_then(|last| last.peers.get(&region.id));
        let leader = self.leader(region.id);
        let size = leader.and_then(report);
        let (rows, bytes) = size.map_or((0, 0), |report| (report.rows, report.bytes));
        // Those that row nodes hold are on the way to being voters: they have no columns.
        let ready_learners = region
            .learners()
            .map(|peer| peer.node)
            .filter(|node| !state.is_row(*node) && report(*node).is_some_and(|report| report.ready))
            .collect();
        Route { leader, ready_learners, rows, bytes, region }
    }

    /// Every node and the time since its last heartbeat.
    pub fn node_statuses(&self, state: &State, now: Instant) -> Vec<NodeStatus> {
        let status = |node: &crate::api::Node| {
            let last = self.nodes.get(&node.id);
            NodeStatus {
                node: node.clone(),
                silent_ms: last.map(|last| now.since(last.at).as_millis() as u64),
                report: last.map(|last| last.report.clone()).unwrap_or_default(),
            }
        };
        state.nodes.values().map(status).collect()
    }

    /// Newest report of every peer.
    pub fn peer_reports(&self) -> Vec<(NodeId, PeerReport)> {
        self.nodes
            .iter()
            .flat_map(|(node, last)| last.peers.values().map(|peer| (*node, peer.clone())))
            .collect()
    }

    /// Row nodes that may hold voters of new regions: the first ones, which hold placement, and those that
    /// registered. With more than enough, silent ones are left out.
    pub fn eligible(&self, state: &State, placement: &Region, now: Instant) -> Vec<NodeId> {
        let mut nodes: BTreeSet<NodeId> = placement.voters().map(|peer| peer.node).collect();
        nodes.extend(state.voter_loads().keys());
        nodes.retain(|node| !state.gone.contains_key(node));
        let spare = |live: &BTreeSet<NodeId>| live.len() >= VOTERS;
        let live: BTreeSet<NodeId> =
            nodes.iter().copied().filter(|node| self.health(*node, now) == Health::Live).collect();
        if spare(&live) { live.into_iter().collect() } else { nodes.into_iter().collect() }
    }
}

/// Whether nothing is asked any more of what was dropped then. It is not read, and the fates that
/// are decided there are known everywhere: a lock elsewhere of a dead transaction, in a region that
/// is slow to be collected, needs its primary for longer than any reader does.
fn is_done_with(state: &State, dropped: Timestamp) -> bool {
    state.safe_point.settled > dropped && !state.is_readable(dropped)
}
