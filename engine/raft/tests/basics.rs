//! The store in a simulated cluster: elections, replication, restart, learners, snapshots.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{Rig, put, region};
use futures::FutureExt;
use raft::Groups;
use types::{Error, PeerRole};

#[test]
fn three_nodes_elect_and_replicate() {
    let mut rig = Rig::new(3, 1);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    let at = rig.write(1, "a", 7).unwrap();
    rig.cluster.run(10);
    for node in [1, 2, 3] {
        let state = rig.state(node, 1);
        assert_eq!(state.history, vec![(at.index, b"a".to_vec(), 7)], "node {node}");
    }
    let status = rig.cluster.groups(leader).unwrap().status(1).unwrap();
    assert!(status.decides && status.ready && status.fault.is_none());
}

#[test]
fn a_follower_refuses_proposals_and_names_the_leader() {
    let mut rig = Rig::new(3, 2);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    rig.cluster.run(5);
    let follower = (1..=3).find(|node| *node != leader).unwrap();
    let groups = rig.cluster.groups(follower).unwrap();
    let term = groups.status(1).unwrap().term;
    let answer = groups.propose(1, term, put("a", 1));
    rig.cluster.run(1);
    let refused = Error::NotLeader { region: 1, leader: Some(leader) };
    assert_eq!(answer.now_or_never(), Some(Err(refused)));
    let groups = rig.cluster.groups(leader).unwrap();
    let answer = groups.propose(1, term + 1, put("a", 1));
    rig.cluster.run(1);
    assert!(matches!(answer.now_or_never(), Some(Err(Error::NotLeader { .. }))));
}

#[test]
fn everything_acknowledged_is_there_after_all_nodes_crash() {
    let mut rig = Rig::new(3, 3);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    rig.wait_leader(1);
    for value in 0..20 {
        rig.write(1, &format!("k{value}"), value).unwrap();
    }
    for node in 1..=3 {
        rig.crash(node, false);
    }
    for node in 1..=3 {
        rig.cluster.restart(node).unwrap();
    }
    let leader = rig.wait_leader(1);
    let state = rig.state(leader, 1);
    let values: Vec<u64> = state.history.iter().map(|(_, _, value)| *value).collect();
    assert_eq!(values, (0..20).collect::<Vec<_>>());
}

#[test]
fn a_single_voter_leads_at_once() {
    let mut rig = Rig::new(1, 4);
    rig.cluster.create(&region(1, &[1])).unwrap();
    rig.cluster.step();
    assert_eq!(rig.cluster.leader(1), Some(1));
    rig.write(1, "a", 1).unwrap();
    rig.crash(1, false);
    rig.cluster.restart(1).unwrap();
    rig.cluster.step();
    assert_eq!(rig.cluster.leader(1), Some(1));
    assert_eq!(rig.state(1, 1).get(b"a"), Some(1));
}

#[test]
fn a_learner_joins_by_snapshot_follows_and_reads() {
    let mut rig = Rig::new(4, 5);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    rig.write(1, "a", 1).unwrap();
    let mut peers = region(1, &[1, 2, 3]).peers;
    peers.push(types::Peer { id: 1004, node: 4, role: PeerRole::Learner });
    let changed = rig.cluster.groups(leader).unwrap().change_membership(1, peers.clone());
    let changed = rig.answer(changed, 100).unwrap();
    assert_eq!(changed.peers, peers);
    rig.write(1, "b", 2).unwrap();
    let read = rig.cluster.groups(4).unwrap().read_index(1);
    let index = rig.answer(read, 100).unwrap();
    let state = rig.state(4, 1);
    assert!(state.index >= index);
    assert_eq!((state.get(b"a"), state.get(b"b")), (Some(1), Some(2)));
    let unhurried = rig.cluster.messages_that_may_wait();
    rig.write(1, "b", 3).unwrap();
    assert!(rig.cluster.messages_that_may_wait() > unhurried, "nobody waits for the learner");
    rig.crash(4, false);
    rig.write(1, "c", 3).unwrap();
    rig.cluster.restart(4).unwrap();
    let read = rig.cluster.groups(4).unwrap().read_index(1);
    rig.answer(read, 100).unwrap();
    assert_eq!(rig.state(4, 1).get(b"c"), Some(3));
}

#[test]
fn a_leader_is_confirmed_by_as_many_as_are_needed() {
    let mut rig = Rig::new(5, 6);
    rig.cluster.create(&region(1, &[1, 2, 3, 4, 5])).unwrap();
    let leader = rig.wait_leader(1);
    rig.cluster.run(5);
    let groups = rig.cluster.groups(leader).unwrap();
    let term = groups.status(1).unwrap().term;
    // The first time all are asked, to find out who is near.
    for asked in [4, 2] {
        let sent = rig.cluster.messages_sent();
        let confirmed = groups.confirm(1, term).unwrap();
        assert_eq!(rig.cluster.messages_sent() - sent, asked, "two others make a majority of five");
        assert_eq!(rig.answer(confirmed, 2), Ok(()));
    }
    assert!(groups.confirm(1, term + 1).is_none(), "it leads in another term");
    let follower = (1..=5).find(|node| *node != leader).unwrap();
    assert!(rig.cluster.groups(follower).unwrap().confirm(1, term).is_none(), "it does not lead");
    // With one other there is no majority.
    let away: Vec<_> = (1..=5).filter(|node| *node != leader && *node != follower).collect();
    rig.cluster.partition(&away);
    for _ in 0..4 {
        if let Some(mut waits) = groups.confirm(1, term) {
            rig.cluster.run(2);
            assert!(!matches!((&mut waits).now_or_never(), Some(Ok(()))), "by two of five");
        }
    }
}

#[test]
fn who_does_not_confirm_is_not_asked_for_a_while() {
    let mut lost = 0;
    for seed in 7..15 {
        let mut rig = Rig::new(3, seed);
        rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
        let leader = rig.wait_leader(1);
        rig.cluster.run(5);
        let groups = rig.cluster.groups(leader).unwrap();
        let term = groups.status(1).unwrap().term;
        let confirmed = groups.confirm(1, term).unwrap();
        assert_eq!(rig.answer(confirmed, 2), Ok(()));
        let gone = (1..=3).find(|node| *node != leader).unwrap();
        rig.crash(gone, false);
        let mut asked = groups.confirm(1, term).unwrap();
        rig.cluster.run(2);
        lost += u64::from((&mut asked).now_or_never().is_none());
        drop(asked);
        let confirmed = groups.confirm(1, term).unwrap();
        assert_eq!(rig.answer(confirmed, 2), Ok(()));
    }
    assert!(lost > 0, "nobody asked the one that is gone");
}

#[test]
fn nobody_is_asked_who_cannot_be_a_majority() {
    let mut rig = Rig::new(3, 9);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let leader = rig.wait_leader(1);
    rig.cluster.run(5);
    let groups = rig.cluster.groups(leader).unwrap();
    let term = groups.status(1).unwrap().term;
    let away: Vec<_> = (1..=3).filter(|node| *node != leader).collect();
    rig.cluster.partition(&away);
    // Both let it come to nothing; a caller who goes away at once says nothing of them.
    drop(groups.confirm(1, term).unwrap());
    let waits = groups.confirm(1, term).unwrap();
    rig.cluster.run(2);
    drop(waits);
    assert!(groups.confirm(1, term).is_none(), "they are asked again and again");
}

#[test]
fn a_leader_that_was_replaced_is_not_confirmed() {
    let mut rig = Rig::new(3, 8);
    rig.cluster.create(&region(1, &[1, 2, 3])).unwrap();
    let old = rig.wait_leader(1);
    rig.write(1, "a", 1).unwrap();
    let groups = rig.cluster.groups(old).unwrap();
    let term = groups.status(1).unwrap().term;
    let others: Vec<_> = (1..=3).filter(|node| *node != old).collect();
    // It is heard by the others and does not hear them.
    others.iter().for_each(|other| rig.cluster.set_link(*other, old, false));
    groups.transfer(1, 1000 + others[0]);
    let replaced = rig.cluster.run_until(20, |cluster| cluster.leader(1) == Some(others[0]));
    assert!(replaced, "nobody else leads");
    assert!(groups.status(1).is_some_and(|status| status.decides), "the old one knows of it");
    others.iter().for_each(|other| rig.cluster.set_link(*other, old, true));
    let mut asked = groups.confirm(1, term).unwrap();
    let mut answered = None;
    rig.cluster.run_until(20, |_| {
        answered = (&mut asked).now_or_never();
        answered.is_some()
    });
    assert!(!matches!(answered, Some(Ok(()))), "another one leads");
}
