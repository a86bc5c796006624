//! A node that goes on alone where its groups have lost their quorum, whatever interrupts it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{Rig, put, region};
use raft::testing::{EchoCommand, SimOptions};
use raft::{Alone, FAR, Groups, Offline, Outcome, Replica, decide};
use types::{NodeId, Peer, PeerRole, RegionId, Result};

fn open(rig: &Rig, node: NodeId) -> Result<Offline> {
    let disk = rig.cluster.store_disk(node)?;
    Offline::open(node, disk, Box::new(rig.machines[&node].clone()))
}

/// Goes on with everything that no quorum is left for among the survivors, the first of which this is.
fn recover(rig: &Rig, node: NodeId, others: &BTreeMap<NodeId, Vec<Replica>>) -> Result<()> {
    let mut offline = open(rig, node)?;
    let mut survivors = others.clone();
    survivors.insert(node, offline.replicas()?);
    let decided = decide(&survivors);
    let mine = |id: &RegionId| match decided.get(id) {
        Some(Outcome::Alone { node: who, .. }) => *who == node,
        _ => false,
    };
    let regions: BTreeSet<RegionId> = decided.keys().copied().filter(mine).collect();
    offline.take_all(&regions)?;
    let mut alone = Vec::new();
    let mut dropped = BTreeSet::new();
    for held in offline.replicas()? {
        let region = held.region.id;
        match decided.get(&region) {
            Some(Outcome::Alone { node: who, term, conf }) if *who == node => {
                alone.push(Alone { region, term: *term, conf: *conf, command: None });
            }
            Some(Outcome::Quorum) => {}
            Some(_) => drop(dropped.insert(region)),
            // Made by a split that nobody had applied.
            None => {
                let (term, conf) = (held.term + FAR, held.region.epoch.conf + FAR);
                alone.push(Alone { region, term, conf, command: None });
            }
        }
    }
    offline.finish(alone, &dropped)
}

/// Three voters; node 3 has missed the last ten of thirty writes, and all are down.
fn one_behind(seed: u64) -> Rig {
    let mut rig = Rig::new(3, seed);
    rig.cluster.create(&region(2, &[1, 2, 3])).unwrap();
    for value in 0..20 {
        rig.write(2, "a", value).unwrap();
    }
    let leader = rig.wait_leader(2);
    rig.cluster.groups(leader).unwrap().transfer(2, 2_001);
    assert!(rig.cluster.run_until(100, |cluster| cluster.leader(2) == Some(1)));
    let caught_up = rig.cluster.run_until(100, |cluster| {
        let groups = [1, 2, 3].map(|node| cluster.groups(node).unwrap().status(2).unwrap());
        groups.iter().all(|status| status.applied == groups[0].applied)
    });
    assert!(caught_up);
    rig.cluster.partition(&[3]);
    for value in 20..30 {
        rig.write(2, "a", value).unwrap();
    }
    for node in 1..=3 {
        rig.crash(node, false);
    }
    rig.cluster.partition(&[]);
    rig
}

fn values(rig: &Rig, node: NodeId) -> Vec<u64> {
    rig.state(node, 2).history.iter().map(|(_, _, value)| *value).collect()
}

#[test]
fn the_last_voter_goes_on_with_what_it_holds() {
    let mut rig = one_behind(1);
    let before = open(&rig, 3).unwrap().replicas().unwrap().remove(0);
    recover(&rig, 3, &BTreeMap::new()).unwrap();
    rig.cluster.restart(3).unwrap();
    assert_eq!(rig.wait_leader(2), 3);
    assert_eq!(values(&rig, 3), (0..20).collect::<Vec<_>>());
    let status = rig.cluster.groups(3).unwrap().status(2).unwrap();
    assert_eq!(status.region.peers, [before.peer]);
    assert!(status.term > before.term + FAR && status.region.epoch.conf > FAR);
    rig.write(2, "b", 1).unwrap();
    // It is as sound as any group: it starts again, and takes a new member.
    rig.crash(3, false);
    rig.cluster.restart(3).unwrap();
    assert_eq!(rig.wait_leader(2), 3);
    assert_eq!(rig.state(3, 2).get(b"b"), Some(1));
    assert!(decide(&BTreeMap::from([(3, vec![before])])).contains_key(&2));
}

#[test]
fn members_that_come_back_one_by_one_learn_that_they_are_gone() {
    let mut rig = one_behind(2);
    recover(&rig, 3, &BTreeMap::new()).unwrap();
    rig.cluster.restart(3).unwrap();
    rig.wait_leader(2);
    rig.write(2, "b", 1).unwrap();
    rig.cluster.restart(1).unwrap();
    let gone = rig.cluster.run_until(300, |cluster| cluster.groups(1).unwrap().status(2).is_none());
    assert!(gone, "a lost member goes on beside the one that went on without it");
    let groups = rig.cluster.groups(3).unwrap();
    let me = groups.status(2).unwrap().peer;
    let new = Peer { id: 9_001, node: 1, role: PeerRole::Voter };
    let change = groups.change_membership(2, vec![me, new]);
    rig.answer(change, 600).unwrap();
    rig.write(2, "c", 2).unwrap();
    rig.cluster.run(50);
    assert_eq!(rig.state(1, 2).history, rig.state(3, 2).history);
}

#[test]
fn a_recovery_that_is_killed_anywhere_is_run_again_and_ends_the_same() {
    let syncs = {
        let rig = one_behind(3);
        let disk = rig.cluster.disk(3).unwrap();
        let before = disk.syncs();
        recover(&rig, 3, &BTreeMap::new()).unwrap();
        disk.syncs() - before
    };
    let mut refused = 0;
    for nth in 1..=syncs {
        let mut rig = one_behind(3);
        let disk = rig.cluster.disk(3).unwrap();
        disk.crash_at_sync(nth);
        let ended = recover(&rig, 3, &BTreeMap::new());
        disk.crash(nth);
        rig.machines[&3].crash(nth % 2 == 0);
        match rig.cluster.restart(3) {
            Err(error) => {
                assert!(error.to_string().contains("recover-unsafe"), "{error}");
                assert!(ended.is_err(), "recovered without sync {nth}");
                refused += 1;
                recover(&rig, 3, &BTreeMap::new()).unwrap();
                rig.cluster.restart(3).unwrap();
            }
            Ok(()) if rig.cluster.run_until(100, |cluster| cluster.leader(2).is_some()) => {}
            Ok(()) => {
                // It had not begun.
                assert!(ended.is_err(), "recovered without sync {nth}");
                rig.crash(3, true);
                recover(&rig, 3, &BTreeMap::new()).unwrap();
                rig.cluster.restart(3).unwrap();
            }
        }
        assert_eq!(rig.wait_leader(2), 3, "killed at sync {nth}");
        assert_eq!(values(&rig, 3), (0..20).collect::<Vec<_>>(), "killed at sync {nth}");
        rig.write(2, "b", nth).unwrap();
    }
    assert!(refused > 0, "no kill came between the beginning and the end");
}

#[test]
fn of_two_survivors_the_later_log_goes_on_and_the_other_is_given_its_data() {
    let mut rig = one_behind(4);
    let reports: BTreeMap<NodeId, Vec<Replica>> =
        [1, 3].map(|node| (node, open(&rig, node).unwrap().replicas().unwrap())).into();
    let majority = decide(&reports);
    assert_eq!(majority[&2], Outcome::Quorum);
    // A third survivor of five, which never held the group, changes nothing about that of two of five.
    let five = reports.into_iter().map(|(node, mut held)| {
        let lost = |node| Peer { id: 2_000 + node, node, role: PeerRole::Voter };
        held[0].region.peers.extend([lost(4), lost(5)]);
        (node, held)
    });
    let five: BTreeMap<NodeId, Vec<Replica>> = five.collect();
    assert!(matches!(decide(&five)[&2], Outcome::Alone { node: 1, .. }), "{:?}", decide(&five));
    for node in [1, 3] {
        let mut offline = open(&rig, node).unwrap();
        let group = Alone { region: 2, term: 50 + FAR, conf: 1 + FAR, command: None };
        let (region, none) = (BTreeSet::from([2]), BTreeSet::new());
        let (alone, taken, dropped) =
            if node == 1 { (vec![group], &region, &none) } else { (vec![], &none, &region) };
        offline.take_all(taken).unwrap();
        offline.finish(alone, dropped).unwrap();
        rig.cluster.restart(node).unwrap();
    }
    assert_eq!(rig.wait_leader(2), 1);
    assert_eq!(values(&rig, 1), (0..30).collect::<Vec<_>>());
    assert!(rig.cluster.groups(3).unwrap().status(2).is_none());
    let groups = rig.cluster.groups(1).unwrap();
    let me = groups.status(2).unwrap().peer;
    let old = Peer { id: 2_003, node: 3, role: PeerRole::Voter };
    let change = groups.change_membership(2, vec![me, old]);
    assert!(rig.answer(change, 700).is_err(), "a peer that was given up came back as itself");
}

/// Three voters with something written, and their leader.
fn written(seed: u64) -> (Rig, NodeId) {
    let mut rig = Rig::with(SimOptions { seed, ..SimOptions::default() });
    rig.cluster.create(&region(2, &[1, 2, 3])).unwrap();
    for value in 0..5 {
        rig.write(2, "a", value).unwrap();
    }
    let leader = rig.wait_leader(2);
    (rig, leader)
}

fn crash_all(rig: &mut Rig) {
    for node in 1..=3 {
        rig.crash(node, false);
    }
}

#[test]
fn entries_that_only_the_survivor_has_count_and_their_splits_go_on_too() {
    let (mut rig, leader) = written(5);
    rig.cluster.partition(&[leader]);
    let groups = rig.cluster.groups(leader).unwrap();
    let status = groups.status(2).unwrap();
    let peers = (1..=3).map(|node| Peer { id: 3_000 + node, node, role: PeerRole::Voter });
    let (peers, epoch) = (peers.collect(), status.region.epoch);
    let split = EchoCommand::Split { at: b"m".to_vec(), child: 3, peers, epoch };
    drop(groups.propose(2, status.term, put("z", 7)));
    drop(groups.propose(2, status.term, split.encode().unwrap()));
    rig.cluster.run(2);
    crash_all(&mut rig);
    rig.cluster.partition(&[]);

    recover(&rig, leader, &BTreeMap::new()).unwrap();
    rig.cluster.restart(leader).unwrap();
    for (region, key) in [(2, "b"), (3, "y")] {
        assert_eq!(rig.wait_leader(region), leader);
        rig.write(region, key, 1).unwrap();
        let status = rig.cluster.groups(leader).unwrap().status(region).unwrap();
        assert_eq!(status.region.peers.len(), 1);
    }
    assert_eq!(rig.state(leader, 3).get(b"z"), Some(7));
}

#[test]
fn an_entry_that_would_remove_the_survivor_does_not_count() {
    let (mut rig, leader) = written(6);
    let survivor = (1..=3).find(|node| *node != leader).unwrap();
    for node in (1..=3).filter(|node| *node != leader) {
        // They take what the leader sends, and it does not learn that they have it.
        rig.cluster.set_link(node, leader, false);
    }
    let groups = rig.cluster.groups(leader).unwrap();
    let status = groups.status(2).unwrap();
    drop(groups.propose(2, status.term, put("b", 8)));
    rig.cluster.run(1);
    let stay = status.region.peers.iter().filter(|peer| peer.node != survivor).copied();
    drop(groups.change_membership(2, stay.collect()));
    rig.cluster.run(2);
    crash_all(&mut rig);
    for node in (1..=3).filter(|node| *node != leader) {
        rig.cluster.set_link(node, leader, true);
    }

    let held = open(&rig, survivor).unwrap().replicas().unwrap().remove(0);
    assert!(held.last.index >= held.committed.index + 2, "the removal did not arrive: {held:?}");
    recover(&rig, survivor, &BTreeMap::new()).unwrap();
    rig.cluster.restart(survivor).unwrap();
    assert_eq!(rig.wait_leader(2), survivor);
    assert_eq!(rig.state(survivor, 2).get(b"b"), Some(8));
}
