//! Disks that fill up or fail: nothing is acknowledged that is not safe, and it is said why.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::{Rig, put, region};
use env::{Access, Disk, Operation};
use futures::FutureExt;
use raft::testing::{EchoCommand, SimOptions};
use raft::{Groups, StoreConfig};
use types::{Error, Peer, PeerRole, Region};

#[test]
fn a_full_log_disk_refuses_typed_and_goes_on_once_there_is_room() {
    let mut rig = Rig::new(1, 1);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.write(1, "a", 1).unwrap();
    let disk = rig.cluster.disk(1).unwrap();
    disk.set_capacity(Some(0));
    let groups = rig.cluster.groups(1).unwrap();
    let term = groups.status(1).unwrap().term;
    let mut first = groups.propose(1, term, put("b", 2));
    rig.cluster.run(3);
    assert!((&mut first).now_or_never().is_none(), "answered without being written");
    let fault = groups.status(1).unwrap().fault.unwrap();
    assert!(fault.contains("cannot be written"), "{fault}");
    let second = groups.propose(1, term, put("c", 3));
    rig.cluster.run(1);
    assert!(matches!(second.now_or_never(), Some(Err(Error::Unavailable(_)))));
    let read = groups.read_index(1);
    rig.cluster.run(1);
    assert!(matches!(read.now_or_never(), Some(Err(Error::Unavailable(_)))));
    disk.set_capacity(None);
    rig.cluster.run(2);
    assert!(matches!((&mut first).now_or_never(), Some(Ok(_))), "the write was kept and is done");
    assert_eq!(groups.status(1).unwrap().fault, None);
    rig.write(1, "d", 4).unwrap();
    rig.crash(1, false);
    rig.cluster.restart(1).unwrap();
    rig.wait_leader(1);
    let values: Vec<u64> = rig.state(1, 1).history.iter().map(|entry| entry.2).collect();
    assert_eq!(values, [1, 2, 4]);
}

#[test]
fn who_waits_at_a_full_disk_is_sent_away_when_others_may_lead() {
    let mut rig = Rig::new(1, 1);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.write(1, "a", 1).unwrap();
    let disk = rig.cluster.disk(1).unwrap();
    disk.set_capacity(Some(0));
    let groups = rig.cluster.groups(1).unwrap();
    let term = groups.status(1).unwrap().term;
    let mut waiting = groups.propose(1, term, put("b", 2));
    rig.cluster.run(10);
    assert!((&mut waiting).now_or_never().is_none(), "a disk may be full for a moment only");
    rig.cluster.run(20);
    let answer = (&mut waiting).now_or_never();
    assert!(matches!(answer, Some(Err(Error::Timeout { .. }))), "{answer:?}");
    disk.set_capacity(None);
    rig.cluster.run(5);
    let values: Vec<u64> = rig.state(1, 1).history.iter().map(|entry| entry.2).collect();
    assert_eq!(values, [1, 2], "unknown is not dropped");
}

#[test]
fn a_full_disk_on_one_node_leaves_the_group_writing() {
    let mut rig = Rig::new(3, 2);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    rig.write(1, "a", 1).unwrap();
    rig.cluster.disk(leader).unwrap().set_capacity(Some(0));
    let groups = rig.cluster.groups(leader).unwrap();
    let term = groups.status(1).unwrap().term;
    drop(groups.propose(1, term, put("b", 2)));
    let moved =
        rig.cluster.run_until(100, |cluster| cluster.leader(1).is_some_and(|node| node != leader));
    assert!(moved, "nobody took over");
    rig.write(1, "c", 3).unwrap();
    rig.cluster.disk(leader).unwrap().set_capacity(None);
    rig.cluster.run(60);
    let states: Vec<_> = (1..=3).map(|node| rig.state(node, 1).history).collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
}

#[test]
fn after_a_failed_sync_the_node_acknowledges_nothing_until_it_restarts() {
    let mut rig = Rig::new(1, 3);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.write(1, "a", 1).unwrap();
    rig.cluster.disk(1).unwrap().fail_nth(Operation::Sync, 1);
    let groups = rig.cluster.groups(1).unwrap();
    let term = groups.status(1).unwrap().term;
    let mut pending = groups.propose(1, term, put("b", 2));
    rig.cluster.run(50);
    assert!(groups.status(1).unwrap().fault.is_some());
    let answer = (&mut pending).now_or_never();
    assert!(matches!(answer, Some(Err(Error::Timeout { .. }))), "after a failed sync: {answer:?}");
    rig.crash(1, false);
    rig.cluster.restart(1).unwrap();
    rig.write(1, "c", 3).unwrap();
    assert_eq!(rig.state(1, 1).get(b"a"), Some(1));
}

#[test]
fn a_machine_that_fails_stops_its_peer_and_no_other() {
    let mut rig = Rig::new(1, 4);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.wait_leader(1);
    let groups = rig.cluster.groups(1).unwrap();
    let term = groups.status(1).unwrap().term;
    // No command at all: the machine takes it for corruption.
    let pending = groups.propose(1, term, vec![0xff; 40]);
    let answer = rig.answer(pending, 10);
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
    assert!(groups.status(1).unwrap().fault.is_some());
    let mut other = region(2, &[1]);
    // The first region's range is still taken.
    let refused = groups.create(other.clone());
    rig.cluster.run(1);
    assert!(matches!(refused.now_or_never(), Some(Err(Error::Unavailable(_)))));
    other.start = vec![0xff];
    other.end = vec![0xff, 1];
    drop(groups.create(other));
    rig.wait_leader(2);
}

/// Regions 1 and 2 on nodes 1 to 3, beside each other.
fn two_regions(rig: &mut Rig) {
    for (id, start, end) in [(1, 0, b'm'), (2, b'm', 0xff)] {
        let range = (vec![start], vec![end]);
        let region = region(id, &[1, 2, 3]);
        rig.cluster.create(&Region { start: range.0, end: range.1, ..region }).unwrap();
    }
    rig.cluster.run(60);
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    FirstByte,
    /// A part of the last record's checksum: a torn tail could look like that.
    LastByte,
    Cut,
}

/// Damages the newest file of a node's log.
fn damage(rig: &Rig, node: u64, damage: Damage) {
    let disk = rig.cluster.disk(node).unwrap();
    let files = disk.list(Path::new("/raft")).unwrap();
    let is_log = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "raftlog");
    let file = disk.open(files.iter().rfind(is_log).unwrap(), Access::Write).unwrap();
    let length = file.len().unwrap();
    let flip = |at| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 0x10], at).unwrap();
    };
    match damage {
        Damage::FirstByte => flip(0),
        Damage::LastByte => flip(length - 1),
        Damage::Cut => file.truncate(length / 2).unwrap(),
    }
    file.sync().unwrap();
}

#[test]
fn a_log_that_is_damaged_below_what_was_synced_is_set_aside_and_its_peers_are_replaced() {
    for case in [Damage::FirstByte, Damage::LastByte, Damage::Cut] {
        let mut rig = Rig::new(3, 7);
        two_regions(&mut rig);
        for value in 0..40 {
            rig.write(1, "a", value).unwrap();
        }
        let leader = rig.wait_leader(1);
        let victim = (1..=3).find(|node| *node != leader).unwrap();
        rig.cluster.run(20);
        // As after a kill: the note of what is synced is what it was.
        let disk = rig.cluster.disk(victim).unwrap();
        disk.open(Path::new("/raft/SYNCED"), Access::Write).unwrap().sync().unwrap();
        // Its machines had reached the disk at the initial position only: what is left looks new.
        rig.crash(victim, false);
        damage(&rig, victim, case);
        for again in 0..3 {
            if again == 2 {
                let note = disk.open(Path::new("/raft/LOST"), Access::Write).unwrap();
                note.write_at(b"?", 26).unwrap();
                note.sync().unwrap();
            }
            rig.cluster.restart(victim).unwrap();
            let groups = rig.cluster.groups(victim).unwrap();
            for region in [1, 2] {
                let status = groups.status(region).unwrap();
                assert!(status.lost && !status.ready, "{case:?}: {status:?}");
                assert!(status.fault.unwrap().contains("replace this replica"));
            }
            rig.cluster.run(50);
            rig.crash(victim, true);
        }
        rig.cluster.restart(victim).unwrap();
        rig.write(1, "b", 1).unwrap();
        for id in [1, 2] {
            let leader = rig.wait_leader(id);
            let members =
                rig.cluster.groups(leader).unwrap().status(id).unwrap().region.peers.clone();
            let fresh = Peer { id: id * 1_000 + 900, node: victim, role: PeerRole::Voter };
            let target = members.into_iter().filter(|p| p.node != victim).chain([fresh]).collect();
            let change = rig.cluster.groups(leader).unwrap().change_membership(id, target);
            rig.answer(change, 400).unwrap();
            let status = rig.cluster.groups(victim).unwrap().status(id).unwrap();
            assert!(status.ready && !status.lost && status.peer.id == fresh.id, "{status:?}");
        }
        rig.crash(victim, true);
        rig.cluster.restart(victim).unwrap();
        let disk = rig.cluster.disk(victim).unwrap();
        let left = disk.list(Path::new("/raft")).unwrap();
        let kept = left.iter().any(|path| path.extension().is_some_and(|e| e == "damaged"));
        assert!(!kept && !disk.exists(Path::new("/raft/LOST")).unwrap(), "{left:?}");
        rig.write(1, "c", 2).unwrap();
    }
}

#[test]
fn a_damaged_entry_costs_the_peer_that_it_belongs_to() {
    let mut rig = Rig::new(3, 8);
    two_regions(&mut rig);
    let leader = rig.wait_leader(1);
    let victim = (1..=3).find(|node| *node != leader).unwrap();
    for value in 0..20 {
        rig.write(1, "a", value).unwrap();
    }
    let disk = rig.cluster.disk(victim).unwrap();
    let files = disk.list(Path::new("/raft")).unwrap();
    let path = files.iter().rfind(|path| path.to_string_lossy().ends_with(".raftlog")).unwrap();
    // An entry of what is written next, which no later record of its block's is the last of.
    let before = disk.open(path, Access::Read).unwrap().len().unwrap();
    rig.write(1, &"in here ".repeat(20), 100).unwrap();
    // Not the last one, which is read in any case.
    rig.write(1, "later", 101).unwrap();
    for value in 0..20 {
        rig.write(2, "x", value).unwrap();
    }
    rig.cluster.run(20);
    rig.crash(victim, true);
    let file = disk.open(path, Access::Write).unwrap();
    let mut bytes = vec![0; (file.len().unwrap() - before) as usize];
    file.read_exact_at(&mut bytes, before).unwrap();
    let at = bytes.windows(8).position(|piece| piece == b"in here ").unwrap() as u64;
    file.write_at(b"!", before + at).unwrap();
    file.sync().unwrap();
    rig.cluster.restart(victim).unwrap();
    let groups = rig.cluster.groups(victim).unwrap();
    assert!(groups.status(1).unwrap().lost);
    assert!(!groups.status(2).unwrap().lost && groups.status(2).unwrap().fault.is_none());
    rig.write(2, "y", 1).unwrap();
}

#[test]
fn entries_that_wait_for_a_machine_for_long_are_read_from_the_log() {
    let mut rig = Rig::new(3, 7);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    let waits = if leader == 1 { 2 } else { 1 };
    rig.cluster.set_work_time(waits, 100).unwrap();
    rig.machines[&waits].be_busy(env::Random::seeded(7), 1.0);
    // More than are kept in memory.
    for value in 0..40 {
        rig.write(1, &value.to_string().repeat(500_000), value).unwrap();
    }
    let applied = rig.state(waits, 1).index;
    assert!(applied + 30 < rig.state(leader, 1).index, "it did not wait");
    rig.cluster.set_work_time(waits, 0).unwrap();
    rig.cluster.run(110);
    assert!(rig.state(waits, 1) == rig.state(leader, 1), "they differ");
}

#[test]
fn a_removed_peer_waits_for_its_machine_without_going_round() {
    let mut away = 0;
    for seed in 0..8 {
        let config = StoreConfig { persist_entries: 1, compact_ticks: 1, ..StoreConfig::new(0) };
        // Making the state durable takes up to twenty ticks.
        let options = SimOptions { nodes: 1, seed, max_work: 200, config, ..SimOptions::default() };
        let mut rig = Rig::with(options);
        rig.cluster.create(&region(1, &[1])).unwrap();
        rig.write(1, "a", 1).unwrap();
        rig.cluster.run(2);
        let groups = rig.cluster.groups(1).unwrap();
        let gone = groups.destroy(1);
        let before = rig.cluster.ticks();
        rig.answer(gone, 40).unwrap();
        away += u64::from(rig.cluster.ticks() > before + 1);
        assert!(groups.status(1).is_none());
    }
    assert!(away > 0, "no machine was ever away");
}

#[test]
fn a_peer_that_a_full_disk_keeps_is_destroyed_once_there_is_room() {
    let mut rig = Rig::new(1, 7);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.write(1, "a", 1).unwrap();
    let disk = rig.cluster.disk(1).unwrap();
    disk.set_capacity(Some(0));
    let groups = rig.cluster.groups(1).unwrap();
    let refused = groups.destroy(1);
    assert!(rig.answer(refused, 5).is_err());
    rig.cluster.run(5);
    disk.set_capacity(None);
    rig.cluster.run(2);
    assert!(rig.machines[&1].state(1).is_none(), "its data stays");
    drop(groups.create(region(2, &[1])));
    rig.wait_leader(2);
}

#[test]
fn a_member_that_a_full_disk_refused_is_created_once_there_is_room() {
    for machines_too in [false, true] {
        let mut rig = Rig::new(4, 9);
        rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
        rig.write(1, "a", 1).unwrap();
        let disk = rig.cluster.disk(4).unwrap();
        disk.set_capacity(Some(0));
        rig.machines[&4].set_full(machines_too);
        let mut peers = region(1, &[1, 2, 3]).peers;
        peers.push(Peer { id: 1004, node: 4, role: PeerRole::Learner });
        let leader = rig.wait_leader(1);
        drop(rig.cluster.groups(leader).unwrap().change_membership(1, peers));
        rig.cluster.run(50);
        let status = |cluster: &raft::testing::SimCluster| cluster.groups(4).unwrap().status(1);
        assert!(status(&rig.cluster).is_none(), "it was created on a full disk");
        // What could not be removed keeps its range until it is.
        assert_eq!(rig.machines[&4].state(1).is_some(), machines_too);
        disk.set_capacity(None);
        rig.machines[&4].set_full(false);
        let ready = |cluster: &_| status(cluster).is_some_and(|status| status.ready);
        assert!(rig.cluster.run_until(200, ready), "{:?}", status(&rig.cluster));
        assert_eq!(rig.state(4, 1).history, rig.state(leader, 1).history);
    }
}

#[test]
fn a_split_on_a_full_disk_is_done_once_there_is_room() {
    let mut waited = 0;
    for room in (0..2_048).step_by(32) {
        let mut rig = Rig::new(1, 8);
        rig.cluster.create(&region(1, &[1])).unwrap();
        rig.write(1, "a", 1).unwrap();
        let disk = rig.cluster.disk(1).unwrap();
        let used = u64::MAX - disk.free_bytes(std::path::Path::new("/")).unwrap();
        disk.set_capacity(Some(used + room));
        let groups = rig.cluster.groups(1).unwrap();
        let status = groups.status(1).unwrap();
        let peers = vec![Peer { id: 2_001, node: 1, role: PeerRole::Voter }];
        let epoch = status.region.epoch;
        let split = EchoCommand::Split { at: b"m".to_vec(), child: 2, peers, epoch };
        drop(groups.propose(1, status.term, split.encode().unwrap()));
        rig.cluster.run(5);
        let cut = groups.status(1).unwrap().region.epoch.version > epoch.version;
        waited += u64::from(cut && groups.status(2).is_none());
        disk.set_capacity(None);
        rig.wait_leader(2);
    }
    assert!(waited > 0, "the disk never was full between a split and its child");
}

#[test]
fn a_snapshot_that_finds_no_room_is_taken_over_once_there_is_some() {
    let mut rig = Rig::new(4, 3);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    rig.write(1, "a", 1).unwrap();
    rig.machines[&4].set_full(true);
    let mut peers = region(1, &[1, 2, 3]).peers;
    peers.push(Peer { id: 1004, node: 4, role: PeerRole::Learner });
    let leader = rig.wait_leader(1);
    drop(rig.cluster.groups(leader).unwrap().change_membership(1, peers));
    let status = |cluster: &raft::testing::SimCluster| cluster.groups(4).unwrap().status(1);
    let says =
        |cluster: &raft::testing::SimCluster| status(cluster).and_then(|status| status.fault);
    assert!(rig.cluster.run_until(200, |cluster| says(cluster).is_some()), "no fault is shown");
    let fault = says(&rig.cluster).unwrap();
    assert!(fault.contains("no storage space"), "{fault}");
    assert!(!status(&rig.cluster).unwrap().lost, "a full disk loses nothing");
    rig.machines[&4].set_full(false);
    rig.write(1, "b", 2).unwrap();
    let ready = |cluster: &_| status(cluster).is_some_and(|status| status.ready);
    assert!(rig.cluster.run_until(200, ready), "{:?}", status(&rig.cluster));
    assert_eq!(rig.state(4, 1).history, rig.state(leader, 1).history);
}
