//! Random histories under crashes, partitions, loss, splits and membership changes, on disks that
//! forget what was not synced. Seeds are chosen by `env::seeds`.
//!
//! Checked: an acknowledged write is applied exactly once and in one order everywhere; a refused
//! one never is; neither a read index nor a leader that is confirmed misses a write that was acknowledged before that was
//! asked for.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Rig;
use env::Random;
use futures::FutureExt;
use raft::testing::{EchoCommand, EchoState, SimOptions};
use raft::{Groups, PeerStatus, Pending, Position, StoreConfig};
use types::{Error, NodeId, Peer, PeerRole, Region, RegionId};

const NODES: u64 = 5;
const TICKS: u64 = 400;

struct Write {
    value: u64,
    pending: Pending<Position>,
}

struct Read {
    node: NodeId,
    region: RegionId,
    /// Values acknowledged before the request, in this region's range then.
    must_see: BTreeSet<u64>,
    pending: Pending<u64>,
}

/// A leader asks whether it still leads, and is not waited for beyond so many steps.
struct Confirmation {
    read: Read,
    left: u64,
}

#[derive(Default)]
struct Ledger {
    keys: BTreeMap<u64, Vec<u8>>,
    acknowledged: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    unknown: u64,
    reads: u64,
    confirmations: u64,
    /// Where each value was seen; it must never be seen elsewhere.
    seen: BTreeMap<u64, (u64, Vec<u8>)>,
}

struct Run {
    rig: Rig,
    random: Random,
    seed: u64,
    writes: Vec<Write>,
    reads: Vec<Read>,
    confirmations: Vec<Confirmation>,
    changes: Vec<Pending<Region>>,
    ledger: Ledger,
    next_value: u64,
    next_id: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let config = StoreConfig {
            keep_entries: 10,
            keep_entries_for_slow: 40,
            persist_entries: 20,
            compact_ticks: 15,
            // Groups that are asleep half of the time, and groups that seldom are.
            sleep_ticks: 1 + seed % 4 * 6,
            ..StoreConfig::new(0)
        };
        // Every other history has its bulk work done apart, as in production, and entries where applying would wait.
        let max_work = if seed.is_multiple_of(2) { 0 } else { 40 };
        // And writes of the log take a moment, a while, or so long that leaders give up.
        let max_write = [0, 6, 60, 600][(seed / 2 % 4) as usize];
        let options = SimOptions {
            nodes: NODES,
            seed,
            loss: 0.02,
            max_delay: 4,
            max_work,
            max_write,
            // Files that end with what was written, and files that go on with zeros.
            ahead: seed % 3 * (4 << 10),
            config,
        };
        let mut rig = Rig::with(options);
        if max_work > 0 {
            let chance = [0.05, 0.5][(seed / 8 % 2) as usize];
            for (node, machines) in &rig.machines {
                machines.be_busy(Random::seeded(seed ^ (node << 32)), chance);
            }
        }
        rig.cluster.create(&common::region(1, &[1, 2, 3])).unwrap();
        Run {
            rig,
            random: Random::seeded(seed ^ 0x5eed),
            seed,
            writes: Vec::new(),
            reads: Vec::new(),
            confirmations: Vec::new(),
            changes: Vec::new(),
            ledger: Ledger::default(),
            next_value: 0,
            next_id: 10_000,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn any_node(&self) -> NodeId {
        1 + self.random.below(NODES)
    }

    fn any_status(&self, node: NodeId) -> Option<PeerStatus> {
        let all = self.rig.cluster.groups(node).unwrap().statuses();
        let pick = self.random.below(all.len() as u64) as usize;
        all.get(pick).cloned()
    }

    fn act(&mut self) {
        // Ten acts a tick; a group needs a dozen ticks to elect a leader.
        match self.random.below(10_000) {
            0..4000 => self.write(),
            4000..4700 => self.read(),
            4700..5000 => self.confirm(),
            5000..5020 => self.crash(),
            5020..5120 => self.restart(),
            5120..5135 => {
                let away: Vec<NodeId> = (1..=NODES).filter(|_| self.random.chance(0.4)).collect();
                self.rig.cluster.partition(&away);
            }
            5135..5200 => self.rig.cluster.partition(&[]),
            5200..5210 => self.rig.cluster.set_loss(0.2),
            5210..5250 => self.rig.cluster.set_loss(0.01),
            5250..5280 => self.split(),
            5280..5380 => self.change(),
            5380..5430 => self.transfer(),
            5430..5445 => {
                let nth = 1 + self.random.below(5);
                self.rig.cluster.disk(self.any_node()).unwrap().crash_at_sync(nth);
            }
            5445..5460 => {
                let (from, to) = (self.any_node(), self.any_node());
                self.rig.cluster.set_link(from, to, false);
            }
            5460..5600 => {
                let (from, to) = (self.any_node(), self.any_node());
                self.rig.cluster.set_link(from, to, true);
            }
            _ => {}
        }
    }

    fn write(&mut self) {
        let node = self.any_node();
        let Some(status) = self.any_status(node) else { return };
        if !status.decides {
            return;
        }
        self.next_value += 1;
        let value = self.next_value;
        let key = vec![self.random.below(250) as u8];
        let command = EchoCommand::Put { key: key.clone(), value }.encode().unwrap();
        self.ledger.keys.insert(value, key);
        let groups = self.rig.cluster.groups(node).unwrap();
        let pending = groups.propose(status.region.id, status.term, command);
        self.writes.push(Write { value, pending });
    }

    fn read(&mut self) {
        let node = self.any_node();
        let Some(status) = self.any_status(node) else { return };
        let in_range = |value: &u64| status.region.contains(&self.ledger.keys[value]);
        let must_see = self.ledger.acknowledged.iter().copied().filter(in_range).collect();
        let region = status.region.id;
        let pending = self.rig.cluster.groups(node).unwrap().read_index(region);
        self.reads.push(Read { node, region, must_see, pending });
    }

    fn confirm(&mut self) {
        let node = self.any_node();
        let Some(status) = self.any_status(node) else { return };
        let in_range = |value: &u64| status.region.contains(&self.ledger.keys[value]);
        let must_see = self.ledger.acknowledged.iter().copied().filter(in_range).collect();
        let region = status.region.id;
        let groups = self.rig.cluster.groups(node).unwrap();
        if let Some(round) = groups.confirm(region, status.term) {
            let pending = round.map(|confirmed| confirmed.map(|()| 0)).boxed();
            let read = Read { node, region, must_see, pending };
            self.confirmations.push(Confirmation { read, left: 10 * 20 });
        }
    }

    fn crash(&mut self) {
        let node = self.any_node();
        if self.rig.cluster.is_up(node) {
            let lucky = self.random.chance(0.3);
            self.rig.crash(node, lucky);
        }
    }

    fn restart(&mut self) {
        let node = self.any_node();
        if self.rig.cluster.is_up(node) {
            return;
        }
        if let Err(error) = self.rig.cluster.restart(node) {
            // A crash within recovery.
            let down = self.rig.cluster.disk(node).unwrap().is_down();
            assert!(down, "seed {}: node {node} does not start: {error}", self.seed);
            self.rig.crash(node, false);
        }
    }

    /// Crashes the nodes whose disks went down as planned.
    fn complete_planned_crashes(&mut self) {
        for node in 1..=NODES {
            if self.rig.cluster.disk(node).unwrap().is_down() {
                self.rig.crash(node, false);
            }
        }
    }

    fn leading(&self) -> Option<(NodeId, PeerStatus)> {
        let node = self.any_node();
        self.any_status(node).filter(|status| status.decides).map(|status| (node, status))
    }

    fn split(&mut self) {
        let Some((node, status)) = self.leading() else { return };
        let (low, high) = (status.region.start.first(), status.region.end[0]);
        let low = low.copied().unwrap_or(0);
        if high - low < 10 {
            return;
        }
        let at = vec![low + 1 + self.random.below(u64::from(high - low - 2)) as u8];
        let child = self.fresh();
        let mut peers = status.region.peers.clone();
        for peer in &mut peers {
            peer.id = self.fresh();
        }
        let command = EchoCommand::Split { at, child, peers, epoch: status.region.epoch };
        let groups = self.rig.cluster.groups(node).unwrap();
        drop(groups.propose(status.region.id, status.term, command.encode().unwrap()));
    }

    fn change(&mut self) {
        let Some((node, status)) = self.leading() else { return };
        let mut peers = status.region.peers.clone();
        if self.random.chance(0.5) && status.region.voters().count() > 2 {
            let gone = self.random.below(peers.len() as u64) as usize;
            peers.remove(gone);
        }
        let to = self.any_node();
        if !peers.iter().any(|peer| peer.node == to) {
            let role = if self.random.chance(0.6) { PeerRole::Voter } else { PeerRole::Learner };
            peers.push(Peer { id: self.fresh(), node: to, role });
        }
        let groups = self.rig.cluster.groups(node).unwrap();
        self.changes.push(groups.change_membership(status.region.id, peers));
    }

    fn transfer(&mut self) {
        let Some((node, status)) = self.leading() else { return };
        let pick = self.random.below(status.region.peers.len() as u64) as usize;
        let to = status.region.peers[pick].id;
        self.rig.cluster.groups(node).unwrap().transfer(status.region.id, to);
    }

    fn collect(&mut self) {
        let ledger = &mut self.ledger;
        let seed = self.seed;
        self.writes.retain_mut(|write| match (&mut write.pending).now_or_never() {
            None => true,
            Some(Ok(_)) => {
                ledger.acknowledged.insert(write.value);
                false
            }
            Some(Err(Error::Dropped(_) | Error::NotLeader { .. })) => {
                ledger.refused.insert(write.value);
                false
            }
            Some(Err(_)) => {
                ledger.unknown += 1;
                false
            }
        });
        let machines = &self.rig.machines;
        self.reads.retain_mut(|read| match (&mut read.pending).now_or_never() {
            None => true,
            Some(Err(_)) => false,
            Some(Ok(index)) => {
                ledger.reads += 1;
                let state = machines[&read.node].state(read.region);
                sees(seed, "a read index", read, state, index, &ledger.keys);
                false
            }
        });
        self.confirmations.retain_mut(|Confirmation { read, left }| {
            *left -= 1;
            match (&mut read.pending).now_or_never() {
                None => *left > 0,
                Some(Err(_)) => false,
                Some(Ok(index)) => {
                    ledger.confirmations += 1;
                    let state = machines[&read.node].state(read.region);
                    sees(seed, "a confirmed leader", read, state, index, &ledger.keys);
                    false
                }
            }
        });
        self.changes.retain_mut(|change| (change).now_or_never().is_none());
    }

    /// What is visible anywhere never contradicts what was visible anywhere before.
    fn check_visible(&mut self) {
        for node in 1..=NODES {
            for state in self.rig.machines[&node].states() {
                let mut here = BTreeSet::new();
                for (index, key, value) in &state.history {
                    assert!(here.insert(*value), "seed {}: {value} applied twice", self.seed);
                    let seen =
                        self.ledger.seen.entry(*value).or_insert_with(|| (*index, key.clone()));
                    assert_eq!(*seen, (*index, key.clone()), "seed {}: {value}", self.seed);
                    assert!(
                        !self.ledger.refused.contains(value),
                        "seed {}: {value} was refused and is there",
                        self.seed
                    );
                }
            }
        }
    }

    fn heal(&mut self) {
        self.rig.cluster.partition(&[]);
        self.rig.cluster.set_loss(0.0);
        for from in 1..=NODES {
            for to in 1..=NODES {
                self.rig.cluster.set_link(from, to, true);
            }
            let node = from;
            if self.rig.cluster.is_up(node) && self.random.chance(0.5) {
                self.rig.crash(node, false);
            }
            self.rig.cluster.disk(node).unwrap().crash_at_sync(u64::MAX >> 1);
            self.rig.cluster.set_write_time(node, u64::from(self.seed % 8 > 1)).unwrap();
            if !self.rig.cluster.is_up(node) {
                self.rig.cluster.restart(node).unwrap();
            }
        }
    }

    /// Every region has a leader and its members are where the leader is.
    fn settled(&self) -> Result<Vec<Region>, String> {
        let mut regions: BTreeMap<RegionId, (NodeId, PeerStatus)> = BTreeMap::new();
        let mut all = Vec::new();
        for node in 1..=NODES {
            for status in self.rig.cluster.groups(node).unwrap().statuses() {
                if let Some(fault) = &status.fault {
                    return Err(format!("node {node}: {fault}"));
                }
                if status.decides {
                    regions.insert(status.region.id, (node, status.clone()));
                }
                all.push((node, status));
            }
        }
        for (node, status) in &all {
            let Some((_, leader)) = regions.get(&status.region.id) else {
                return Err(format!("region {} has no leader", status.region.id));
            };
            if leader.region != status.region
                || leader.applied != status.applied
                || status.region.peer(status.peer.id).is_none()
            {
                return Err(format!("{status:?} on node {node} is not as its leader {leader:?}"));
            }
        }
        for (_, leader) in regions.values() {
            for peer in &leader.region.peers {
                let there = |(node, status): &(NodeId, PeerStatus)| {
                    *node == peer.node && status.peer.id == peer.id
                };
                if !all.iter().any(there) {
                    return Err(format!("{peer:?} of region {} is missing", leader.region.id));
                }
            }
        }
        let regions: Vec<Region> =
            regions.into_values().map(|(_, status)| Region::clone(&status.region)).collect();
        let mut edge = Vec::new();
        let mut sorted = regions.clone();
        sorted.sort_by(|a, b| a.start.cmp(&b.start));
        for region in &sorted {
            if region.start != edge {
                return Err(format!("a range is missing before {:?}", region.start));
            }
            edge = region.end.clone();
        }
        if edge == [0xff] { Ok(regions) } else { Err("the last range is missing".to_owned()) }
    }

    fn check_end(&mut self) -> Vec<Region> {
        let mut why = String::new();
        for _ in 0..60 {
            self.rig.cluster.run(20);
            self.collect();
            self.check_visible();
            match self.settled() {
                Ok(regions) => {
                    self.check_regions(&regions);
                    return regions;
                }
                Err(reason) => why = reason,
            }
        }
        for node in 1..=NODES {
            for status in self.rig.cluster.groups(node).unwrap().statuses() {
                println!("node {node}: {status:?}");
            }
        }
        panic!("seed {}: not settled: {why}", self.seed);
    }

    fn check_regions(&self, regions: &[Region]) {
        let mut found = BTreeSet::new();
        for region in regions {
            let mut first = None;
            for peer in &region.peers {
                let state = self.rig.state(peer.node, region.id);
                found.extend(state.history.iter().map(|entry| entry.2));
                let first = first.get_or_insert(state.clone());
                assert_eq!(*first, state, "seed {}: replicas differ", self.seed);
            }
        }
        for value in &self.ledger.acknowledged {
            assert!(found.contains(value), "seed {}: acknowledged {value} is lost", self.seed);
        }
    }
}

/// What a node has applied holds what a reader of it must see.
fn sees(
    seed: u64,
    what: &str,
    read: &Read,
    state: Option<EchoState>,
    index: u64,
    keys: &BTreeMap<u64, Vec<u8>>,
) {
    let Some(state) = state else { return };
    assert!(state.index >= index, "seed {seed}: read before it was applied");
    let has: BTreeSet<u64> = state.history.iter().map(|entry| entry.2).collect();
    for value in &read.must_see {
        let here = state.region.contains(&keys[value]);
        let (region, node) = (read.region, read.node);
        assert!(
            !here || has.contains(value),
            "seed {seed}: {what} of region {region} on node {node} misses {value}"
        );
    }
}

/// What a run did, to see that the histories are not empty.
#[derive(Default)]
struct Outcome {
    regions: usize,
    confs: u64,
    acknowledged: usize,
    refused: usize,
    unknown: u64,
    reads: u64,
    confirmations: u64,
}

fn run(seed: u64) -> Outcome {
    let mut run = Run::new(seed);
    for _ in 0..TICKS {
        for _ in 0..10 {
            run.act();
            run.rig.cluster.step();
            run.collect();
            run.complete_planned_crashes();
        }
        run.check_visible();
    }
    run.heal();
    let regions = run.check_end();
    Outcome {
        regions: regions.len(),
        confs: regions.iter().map(|region| region.epoch.conf - 1).sum(),
        acknowledged: run.ledger.acknowledged.len(),
        refused: run.ledger.refused.len(),
        unknown: run.ledger.unknown,
        reads: run.ledger.reads,
        confirmations: run.ledger.confirmations,
    }
}

#[test]
fn random_histories_keep_every_promise() {
    let mut total = Outcome::default();
    let mut count = 0;
    env::seeds::each("-p isobar-raft --test simulation", 40, |seed| {
        let outcome = run(seed);
        count += 1;
        total.acknowledged += outcome.acknowledged;
        total.refused += outcome.refused;
        total.unknown += outcome.unknown;
        total.reads += outcome.reads;
        total.confirmations += outcome.confirmations;
        total.regions += outcome.regions;
        total.confs += outcome.confs;
    });
    println!(
        "{count} seeds: {} writes acknowledged, {} refused, {} unknown, {} reads, {} confirmations; \
         {} regions, {} membership steps",
        total.acknowledged,
        total.refused,
        total.unknown,
        total.reads,
        total.confirmations,
        total.regions,
        total.confs
    );
    assert!(
        total.acknowledged as u64 > 50 * count
            && total.reads > 10 * count
            && total.confirmations > 5 * count,
        "too little happened"
    );
}
