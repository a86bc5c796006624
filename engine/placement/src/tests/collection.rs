//! Random histories of collection: leases, transactions and their clients' crashes, slow regions,
//! dropped tables, commands that overtake one another, new leaders.
//!
//! What a lease or a living transaction reads at must not be passed; no fate may be forgotten, and
//! no region destroyed, while a lock somewhere may still ask for it. Regions and clients are stood
//! in for by numbers; the leader's state and the replicated one are real. One seed, one history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use env::{Instant, Random};
use types::{NodeId, Region, RegionId, Timestamp};

use super::state_scripts::table;
use crate::api::{
    CatalogChange, Node, NodeReport, NodeRole, Order, PeerReport, SafePoint, Session,
};
use crate::catalog::EligibleNodes;
use crate::command::Command;
use crate::leader_state::{LIVE_FOR, LeaderState};
use crate::state::State;

const ROWS: [NodeId; 3] = [1, 2, 3];
const SQL: [NodeId; 2] = [4, 5];
const START_MS: u64 = 1_000_000;
/// A node that is well sends heartbeats this often.
const HEARTBEAT_MS: u64 = 500;

/// A transaction whose client lives.
struct Living {
    node: NodeId,
    /// Its node's heartbeats have always come in time: it may rely on its versions.
    kept: bool,
    locks: Vec<RegionId>,
}

/// A region, with all its voters in one.
#[derive(Default)]
struct Held {
    on: BTreeSet<NodeId>,
    floor: Timestamp,
    settled: Timestamp,
    /// By start, where the fate is decided.
    locks: BTreeMap<Timestamp, RegionId>,
    /// Transactions that were decided here.
    fates: BTreeSet<Timestamp>,
}

struct World {
    random: Random,
    state: State,
    leader_state: LeaderState,
    now_ms: u64,
    tick: u64,
    term: u64,
    heartbeat_ms: BTreeMap<NodeId, u64>,
    /// Silent until then.
    silent: BTreeMap<NodeId, u64>,
    living: BTreeMap<Timestamp, Living>,
    regions: BTreeMap<RegionId, Held>,
    under_way: Vec<Command>,
    tables: u64,
    /// How often something of note happened, for the check that it does.
    seen: BTreeMap<&'static str, u64>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = World {
            random: Random::seeded(seed),
            state: State::new(),
            leader_state: LeaderState::new(1, 0, Instant::from_micros(0)),
            now_ms: START_MS,
            tick: 0,
            term: 1,
            heartbeat_ms: BTreeMap::new(),
            silent: BTreeMap::new(),
            living: BTreeMap::new(),
            regions: BTreeMap::new(),
            under_way: Vec::new(),
            tables: 0,
            seen: BTreeMap::new(),
        };
        world.state.life_ms = [1_000, 4_000, 20_000][world.random.below(3) as usize];
        for (nodes, role) in [(&ROWS[..], NodeRole::Row), (&SQL[..], NodeRole::Sql)] {
            for id in nodes {
                let (rpc_address, client_address) = (String::new(), String::new());
                let node = Node { id: *id, role, rpc_address, client_address };
                let session = Session::default();
                world.state.apply(Command::Register { node, session }).unwrap();
            }
        }
        world.change(CatalogChange::CreateDatabase("d".into()));
        (0..3).for_each(|_| world.create());
        ROWS.iter().chain(&SQL).for_each(|node| world.heartbeat(*node));
        world
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn at(&self) -> Instant {
        Instant::from_micros((self.now_ms - START_MS) * 1_000)
    }

    fn timestamp(&mut self) -> Timestamp {
        self.tick += 1;
        Timestamp::pack(self.now_ms, self.tick)
    }

    fn pick<T: Copy>(&self, all: &[T]) -> Option<T> {
        all.get(self.random.below(all.len().max(1) as u64) as usize).copied()
    }

    fn change(&mut self, change: CatalogChange) {
        let now = self.timestamp();
        let eligible = EligibleNodes(ROWS.to_vec());
        self.state.apply(Command::Change { change, eligible, now }).unwrap();
    }

    fn create(&mut self) {
        self.tables += 1;
        let described = table("d", &format!("t{}", self.tables), &[]);
        self.change(CatalogChange::CreateTable(Box::new(described)));
        for (id, record) in &self.state.regions {
            let on = || record.region.voters().map(|peer| peer.node).collect();
            self.regions.entry(*id).or_insert_with(|| Held { on: on(), ..Held::default() });
        }
    }

    fn drop_table(&mut self) {
        let tables: Vec<_> = self.state.catalog.tables.iter().map(|table| table.id).collect();
        if let Some(id) = self.pick(&tables) {
            self.change(CatalogChange::DropTable(id));
        }
    }

    /// A node reports, and carries out its orders.
    fn heartbeat(&mut self, node: NodeId) {
        let mine = self.living.iter().filter(|(_, living)| living.node == node);
        let oldest_start = mine.map(|(start, _)| *start).min();
        let peers = self.regions.iter().filter(|(_, held)| held.on.contains(&node));
        let peers =
            peers.filter_map(|(id, held)| Some(report(self.described(*id)?, node, held.floor)));
        let peers = peers.collect();
        let report = NodeReport { oldest_start, ..NodeReport::default() };
        let at = self.at();
        self.leader_state.record_heartbeat(node, report, peers, at);
        self.heartbeat_ms.insert(node, self.now_ms);
        for order in self.leader_state.orders(&self.state, node) {
            if let Order::Destroy { region: id, .. } = order {
                self.destroy(id, node);
            }
        }
    }

    fn described(&self, id: RegionId) -> Option<Region> {
        let record = self.state.regions.get(&id).map(|record| record.region.clone());
        record.or(self.state.tombstones.get(&id).map(|tombstone| tombstone.region.clone()))
    }

    fn destroy(&mut self, id: RegionId, node: NodeId) {
        self.saw("destroyed");
        for (other, held) in &self.regions {
            let needs = held.locks.iter().find(|(_, primary)| **primary == id && *other != id);
            if let Some((start, _)) = needs.filter(|_| self.matters(*other)) {
                panic!("region {id} is destroyed, and region {other} holds a lock of {start}");
            }
        }
        if let Some(held) = self.regions.get_mut(&id) {
            held.on.remove(&node);
        }
        self.regions.retain(|_, held| !held.on.is_empty());
    }

    fn begin(&mut self) {
        let node = SQL[self.random.below(2) as usize];
        let start = self.timestamp();
        self.living.insert(start, Living { node, kept: true, locks: Vec::new() });
    }

    /// First phase: locks in some live regions; the first decides.
    fn lock(&mut self) {
        let starts: Vec<_> = self.living.keys().copied().collect();
        let ids: Vec<_> = self.state.regions.keys().copied().collect();
        let (Some(start), Some(first)) = (self.pick(&starts), self.pick(&ids)) else { return };
        let others = ids.iter().copied().filter(|id| *id != first && self.random.below(2) == 0);
        let targets: Vec<_> = std::iter::once(first).chain(others).collect();
        let Some(living) = self.living.get_mut(&start).filter(|living| living.locks.is_empty())
        else {
            return;
        };
        for id in targets {
            let Some(held) = self.regions.get_mut(&id) else { continue };
            if start < held.floor {
                assert!(!living.kept, "{start} is turned away by region {id} at {}", held.floor);
                break;
            }
            held.locks.insert(start, first);
            living.locks.push(id);
        }
    }

    /// The client ends its transaction, or dies amid that.
    fn end(&mut self) {
        let starts: Vec<_> = self.living.keys().copied().collect();
        let Some(start) = self.pick(&starts) else { return };
        let Some(living) = self.living.remove(&start) else { return };
        let done = match self.random.below(3) {
            // Dead before the second phase, or somewhere amid it.
            0 => self.random.below(living.locks.len() as u64 + 1) as usize,
            _ => living.locks.len(),
        };
        for id in living.locks.into_iter().take(done) {
            let Some(held) = self.regions.get_mut(&id) else { continue };
            if held.locks.remove(&start) == Some(id) {
                held.fates.insert(start);
            }
        }
    }

    /// A region's leader takes over the safe point.
    fn collect(&mut self) {
        let ids: Vec<_> = self.regions.keys().copied().collect();
        let Some(id) = self.pick(&ids) else { return };
        let SafePoint { floor, .. } = self.state.safe_point;
        let settled = self.state.safe_point.settled_for(id);
        let older: Vec<_> = match self.regions.get(&id) {
            Some(held) => held.locks.range(..floor).map(|(start, to)| (*start, *to)).collect(),
            None => return,
        };
        for (start, primary) in older {
            if self.living.contains_key(&start) {
                return;
            }
            if !self.learn_fate(id, start, primary) {
                return;
            }
            if let Some(held) = self.regions.get_mut(&id) {
                held.locks.remove(&start);
            }
        }
        let Some(held) = self.regions.get_mut(&id) else { return };
        held.floor = held.floor.max(floor);
        held.settled = held.settled.max(settled.min(held.floor));
        held.fates = held.fates.split_off(&held.settled);
    }

    /// Whether a dead transaction's fate can be learnt.
    fn learn_fate(&mut self, from: RegionId, start: Timestamp, primary: RegionId) -> bool {
        self.saw("fate learnt");
        let Some(decides) = self.regions.get_mut(&primary) else {
            assert!(
                !self.matters(from),
                "region {from} looks up {start} at region {primary}, which is gone"
            );
            return false;
        };
        let unknown = decides.locks.remove(&start).is_none() && !decides.fates.contains(&start);
        let forgotten = unknown && start < decides.settled;
        decides.fates.insert(start);
        let relies = forgotten && self.matters(from);
        assert!(!relies, "region {from}: region {primary} has forgotten {start}");
        true
    }

    /// Whether somebody may read a region.
    fn matters(&self, id: RegionId) -> bool {
        let dropped = self.state.tombstones.get(&id).map(|tombstone| tombstone.dropped);
        self.state.regions.contains_key(&id)
            || dropped.is_some_and(|dropped| self.state.safe_point.floor <= dropped)
    }

    /// Proposes a command, which may be applied later than others.
    fn propose(&mut self, command: Command) {
        self.under_way.push(command);
    }

    fn apply_one(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let which = self.random.below(self.under_way.len() as u64) as usize;
        _ = self.state.apply(self.under_way.swap_remove(which));
    }

    fn look(&mut self) {
        let (now, at) = (self.timestamp(), self.at());
        if let Some(point) = self.leader_state.safe_point(&self.state, now, at) {
            self.propose(Command::Collect { point, now_ms: self.now_ms });
        }
        let purged = self.leader_state.purgeable(&self.state);
        if !purged.is_empty() {
            self.saw("purged");
            self.propose(Command::Purge(purged));
        }
    }

    fn lease(&mut self) {
        let (now_ms, ttl_ms) = (self.now_ms, 1 + self.random.below(8_000));
        let ids: Vec<_> = self.state.leases.keys().copied().collect();
        let command = match (self.random.below(5), self.pick(&ids)) {
            (0, Some(lease)) => Command::ReleaseLease(lease),
            (1 | 2, Some(lease)) => Command::RenewLease { lease, now_ms, from_ms: now_ms, ttl_ms },
            (3, _) => Command::ExpireLeases { now_ms },
            _ => {
                let ago = self.random.below(2 * self.state.life_ms);
                let ts = Timestamp::pack(now_ms - ago, 0);
                Command::TakeLease { ts, owner: String::new(), now_ms, ttl_ms }
            }
        };
        self.propose(command);
    }

    fn pass_time(&mut self) {
        self.now_ms += self.random.below(HEARTBEAT_MS / 2);
        for node in ROWS.into_iter().chain(SQL) {
            let silence = self.now_ms - self.heartbeat_ms[&node];
            if self.silent.get(&node).is_some_and(|until| self.now_ms < *until) {
                let limit = (LIVE_FOR.as_millis() as u64).min(self.state.life_ms);
                // What is begun on a silent node is not known to be there.
                if silence + HEARTBEAT_MS >= limit {
                    let mine = self.living.values_mut().filter(|living| living.node == node);
                    mine.for_each(|living| living.kept = false);
                }
            } else if silence >= HEARTBEAT_MS {
                self.heartbeat(node);
            }
        }
    }

    fn step(&mut self) {
        self.pass_time();
        match self.random.below(100) {
            0..12 => self.begin(),
            12..24 => self.lock(),
            24..34 => self.end(),
            34..60 => self.collect(),
            60..72 => self.look(),
            72..86 => self.apply_one(),
            86..97 => self.lease(),
            97 if self.state.regions.len() > 5 || self.random.below(3) == 0 => self.drop_table(),
            97 => self.create(),
            98 => {
                let node = 1 + self.random.below(5);
                let until = self.now_ms + self.random.below(15_000);
                self.silent.insert(node, until);
            }
            _ => {
                self.term += 1;
                self.leader_state = LeaderState::new(self.term, 0, self.at());
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let SafePoint { floor, settled, settled_below } = self.state.safe_point;
        for lease in crate::leases::live(&self.state, self.now_ms) {
            assert!(floor <= lease.ts, "the floor {floor} has passed lease {lease:?}");
        }
        for (start, living) in &self.living {
            assert!(floor <= *start || !living.kept, "the floor {floor} has passed {start}");
        }
        for id in self.state.regions.keys().filter(|id| **id < settled_below) {
            let oldest = self.regions[id].locks.keys().next();
            assert!(oldest.is_none_or(|start| *start >= settled), "region {id} is not settled");
        }
        let held = crate::leases::live(&self.state, self.now_ms).any(|lease| lease.ts == floor);
        if held {
            self.saw("held by a lease");
        }
        if self.living.keys().next() == Some(&floor) {
            self.saw("held by a transaction");
        }
    }
}

fn report(region: Region, node: NodeId, floor: Timestamp) -> PeerReport {
    PeerReport {
        peer: region.peer_on(node).map_or(0, |peer| peer.id),
        region,
        leader: false,
        term: 1,
        applied: 0,
        committed: 0,
        bytes: 0,
        rows: 0,
        ready: true,
        damaged: false,
        lag: None,
        floor,
        history_bytes: 0,
    }
}

#[test]
fn what_is_held_is_never_passed() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..60 {
        let mut world = World::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..4_000).for_each(|_| world.step());
        }));
        assert!(outcome.is_ok(), "history of seed {seed}");
        for (what, times) in world.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    let all = ["destroyed", "fate learnt", "purged", "held by a lease", "held by a transaction"];
    for what in all {
        assert!(seen.get(what).is_some_and(|times| *times > 20), "{what}: {seen:?}");
    }
}

#[test]
fn what_nobody_holds_moves_on() {
    let mut world = World::new(7);
    (0..4_000).for_each(|_| world.step());
    // No new transactions and leases, and everybody is well: all that was dropped goes.
    while !world.state.regions.is_empty() {
        world.drop_table();
    }
    world.living.clear();
    world.silent.clear();
    let dropped = world.timestamp();
    for _ in 0..20_000 {
        world.pass_time();
        world.collect();
        if world.random.below(4) == 0 {
            world.look();
        }
        world.apply_one();
    }
    let point = world.state.safe_point;
    assert!(point.floor > dropped && point.settled > dropped, "{point:?} against {dropped}");
    assert!(world.state.tombstones.is_empty(), "{:?}", world.state.tombstones);
    assert!(world.at().since(Instant::from_micros(0)) > Duration::from_secs(60));
}
