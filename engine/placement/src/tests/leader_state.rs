//! Moves under way while somebody else changes the region: which go on, and on what their orders rest.

use std::collections::BTreeSet;
use std::time::Duration;

use env::Instant;
use futures::FutureExt;
use raft::Groups;
use raft::testing::{EchoMachines, SoloGroups};
use types::{Epoch, Error, NodeId, Peer, PeerRole, Region, RegionKind, Timestamp};

use crate::api::{Node, NodeReport, NodeRole, Order, PeerReport, Session};
use crate::bootstrap::placement_region;
use crate::command::Command;
use crate::leader_state::{GONE_AFTER, LeaderState};
use crate::scheduler::{Move, plan};
use crate::state::{RegionRecord, State};

const REGION: u64 = 500;
const TABLE: u64 = 100;

fn member(id: u64, role: PeerRole) -> Peer {
    Peer { id: 10 + id, node: id, role }
}

/// A leader of placement with row nodes 1, 3 and 4, a columnar node 5, and a region of 1, 2 and 3, of which
/// number 2 is gone for good. Node 1 leads it.
struct Scene {
    state: State,
    leader_state: LeaderState,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        let mut state = State::new();
        for (id, role) in
            [(1, NodeRole::Row), (3, NodeRole::Row), (4, NodeRole::Row), (5, NodeRole::Columnar)]
        {
            let (rpc_address, client_address) = (id.to_string(), String::new());
            let node = Node { id, role, rpc_address, client_address };
            state.apply(Command::Register { node, session: Session::default() }).unwrap();
        }
        let peers = [1, 2, 3].map(|id| member(id, PeerRole::Voter)).to_vec();
        let region = Region {
            id: REGION,
            epoch: Epoch { version: 1, conf: 7 },
            kind: RegionKind::Records(TABLE),
            start: vec![1],
            end: vec![2],
            peers,
        };
        state.regions.insert(REGION, RegionRecord { region, uncreated: BTreeSet::new() });
        let now = Instant::from_micros(0);
        let mut scene = Scene { state, leader_state: LeaderState::new(1, 0, now), now };
        scene.heartbeat();
        scene
    }

    fn region(&mut self) -> &mut Region {
        &mut self.state.regions.get_mut(&REGION).unwrap().region
    }

    /// Everybody but node 4 reports what the region's leader knows.
    fn heartbeat(&mut self) {
        for node in [1, 3, 4, 5] {
            self.heartbeat_of(node, node != 4);
        }
    }

    fn heartbeat_of(&mut self, node: NodeId, holds: bool) {
        let region = self.region().clone();
        let holds = holds && region.peer_on(node).is_some();
        let report = PeerReport {
            peer: region.peer_on(node).map_or(0, |peer| peer.id),
            region,
            leader: node == 1,
            term: 6,
            applied: 9,
            committed: 9,
            rows: 0,
            bytes: 0,
            ready: true,
            damaged: false,
            lag: None,
            floor: Timestamp::ZERO,
            history_bytes: 0,
        };
        let peers = if holds { vec![report] } else { vec![] };
        self.leader_state.record_heartbeat(node, NodeReport::default(), peers, self.now);
    }

    fn schedule(&mut self) -> Vec<Move> {
        self.leader_state.settle(&self.state, self.now);
        let moves = plan(&self.leader_state.cluster_view(&self.state, self.now));
        let count = u64::from(self.leader_state.numbers_needed(&moves));
        self.leader_state.undertake(&self.state, moves.clone(), 900..900 + count, self.now);
        moves
    }

    fn orders(&mut self) -> Vec<Order> {
        self.leader_state.settle(&self.state, self.now);
        self.leader_state.orders(&self.state, 1)
    }
}

#[test]
fn a_change_of_members_goes_on_through_its_own_steps_and_no_others() {
    let mut scene = Scene::new();
    let add = Move::Add { region: REGION, node: 4, role: PeerRole::Voter };
    assert_eq!(scene.schedule(), [add]);
    let conf = |orders: &[Order]| match orders {
        [Order::Membership { region: REGION, conf, peers }] => {
            assert_eq!(peers.iter().map(|peer| peer.node).collect::<Vec<_>>(), [1, 2, 3, 4]);
            Some(*conf)
        }
        [] => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(conf(&scene.orders()), Some(7));
    // Its first step: what is ordered rests on that now.
    let learner = Peer { id: 900, node: 4, role: PeerRole::Learner };
    scene.region().peers.push(learner);
    scene.region().epoch.conf += 1;
    assert_eq!(conf(&scene.orders()), Some(8));
    // An order of an earlier leader of placement takes 3 away: with this order it would be brought back under
    // a number that never comes back.
    scene.region().peers.retain(|peer| peer.node != 3);
    scene.region().epoch.conf += 1;
    assert_eq!(conf(&scene.orders()), None);
}

#[test]
fn a_change_of_members_is_thought_over_where_somebody_added_one() {
    let mut scene = Scene::new();
    scene.schedule();
    assert_eq!(scene.orders().len(), 1);
    scene.region().peers.push(member(6, PeerRole::Voter));
    scene.region().epoch.conf += 1;
    assert_eq!(scene.orders(), vec![]);
}

#[test]
fn a_replacement_that_a_split_cut_short_is_finished_in_both_halves() {
    let mut scene = Scene::new();
    scene.schedule();
    let learner = Peer { id: 900, node: 4, role: PeerRole::Learner };
    scene.region().peers.push(learner);
    scene.region().epoch = Epoch { version: 2, conf: 8 };
    scene.heartbeat_of(4, true);
    assert_eq!(scene.schedule(), [Move::Promote { region: REGION, peer: 900 }]);
    let orders = scene.orders();
    let [Order::Membership { conf: 8, peers, .. }] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert!(peers.contains(&Peer { role: PeerRole::Voter, ..learner }), "{peers:?}");
    scene.region().peers.clone_from(peers);
    scene.region().epoch.conf += 1;
    assert_eq!(scene.schedule(), [Move::Remove { region: REGION, peer: 12 }]);
}

#[test]
fn a_member_left_halfway_serves_no_reader_and_is_not_waited_for_as_long_as_a_replica() {
    let mut scene = Scene::new();
    scene.region().peers.push(member(4, PeerRole::Learner));
    scene.region().peers.push(member(5, PeerRole::Learner));
    scene.heartbeat();
    scene.heartbeat_of(4, true);
    let region = scene.region().clone();
    assert_eq!(scene.leader_state.route(&scene.state, &region).ready_learners, [5]);
    // Lost on 4, and nobody is on the way to bring it.
    scene.region().epoch.conf += 1;
    scene.heartbeat();
    let seen = |scene: &mut Scene| {
        scene.leader_state.cluster_view(&scene.state, scene.now).regions.remove(0)
    };
    assert!(seen(&mut scene).missing.is_empty());
    scene.now = scene.now + Duration::from_secs(31);
    scene.heartbeat();
    assert_eq!(seen(&mut scene).missing, BTreeSet::from([4]));
    assert!(GONE_AFTER > Duration::from_secs(60));
}

#[test]
fn what_a_node_whose_log_was_set_aside_does_not_report_is_lost_within_seconds() {
    let mut scene = Scene::new();
    let own = placement_region(&[1, 3]).unwrap();
    let heartbeat = |scene: &mut Scene, begun_anew| {
        scene.heartbeat_of(1, true);
        let report = NodeReport { begun_anew, ..NodeReport::default() };
        scene.leader_state.record_heartbeat(3, report, vec![], scene.now);
        let seen = scene.leader_state.cluster_view(&scene.state, scene.now).regions.remove(0);
        (seen.missing, scene.leader_state.lost_members(&own, scene.now))
    };
    let none = (BTreeSet::new(), BTreeSet::new());
    let all = (BTreeSet::from([3]), BTreeSet::from([own.peer_on(3).unwrap().id]));
    for (anew, wanted) in [(false, &none), (true, &all)] {
        // A peer may be on its way.
        assert_eq!(heartbeat(&mut scene, anew).1, none.1);
        scene.now = scene.now + Duration::from_secs(11);
        assert_eq!(heartbeat(&mut scene, anew), *wanted, "begun anew: {anew}");
    }
}

#[test]
fn an_order_that_was_on_its_way_while_the_members_changed_is_refused() {
    let groups = SoloGroups::open(1, Box::new(EchoMachines::new())).unwrap();
    let peers = vec![member(1, PeerRole::Voter)];
    let region = Region {
        id: REGION,
        epoch: Epoch { version: 1, conf: 7 },
        kind: RegionKind::Records(TABLE),
        start: vec![1],
        end: vec![2],
        peers: peers.clone(),
    };
    groups.create(region).now_or_never().unwrap().unwrap();
    let destroy = Order::Destroy { region: REGION, conf: 7 };
    let change = Order::Membership { region: REGION, conf: 7, peers: peers.clone() };
    assert_eq!(destroy.check(&groups), Ok(()));
    assert_eq!(change.check(&groups), Ok(()));
    // The peer here may be a new one by now: the old one's end is not its own.
    groups.change_membership(REGION, peers).now_or_never().unwrap().unwrap();
    for order in [destroy, change] {
        let refused = order.check(&groups);
        assert!(matches!(refused, Err(Error::Dropped(_))), "{refused:?}");
    }
    assert_eq!(Order::Split(REGION).check(&groups), Ok(()));
}

#[test]
fn leadership_goes_to_the_voter_whose_clients_ask_most() {
    let mut scene = Scene::new();
    let own = scene.region().clone();
    let nearest = |scene: &Scene| scene.leader_state.nearest_voter(&own, 1, scene.now);
    let ask = |scene: &mut Scene, node, count| {
        scene.heartbeat();
        scene.leader_state.affinity.note(node, vec![(REGION, count)], scene.now);
    };
    ask(&mut scene, 3, 1_000);
    assert_eq!(nearest(&scene), None, "the leader is new");
    scene.now = scene.now + Duration::from_secs(60);
    ask(&mut scene, 3, 1_000);
    assert_eq!(nearest(&scene), own.peer_on(3).map(|peer| peer.id));
    ask(&mut scene, 1, 1_000);
    assert_eq!(nearest(&scene), None, "half of it");
    ask(&mut scene, 1, 5_000);
    assert_eq!(nearest(&scene), None, "it leads already");
    scene.now = scene.now + Duration::from_secs(60);
    ask(&mut scene, 4, 1_000);
    assert_eq!(nearest(&scene), None, "it is no voter");
}

#[test]
fn leaders_are_handed_to_nobody_who_was_not_heard_of_lately() {
    let mut scene = Scene::new();
    let hand_over = |scene: &mut Scene| {
        let to_3 = Move::Transfer { region: REGION, to: 13 };
        scene.leader_state.undertake(&scene.state, vec![to_3], 900..900, scene.now);
        scene.orders()
    };
    assert_eq!(hand_over(&mut scene), [Order::Transfer(REGION, 13)]);
    scene.now = scene.now + Duration::from_secs(2);
    [1, 4, 5].into_iter().for_each(|node| scene.heartbeat_of(node, node != 4));
    assert_eq!(scene.orders(), [], "node 3 fell silent");
    assert_eq!(hand_over(&mut scene), []);
    scene.heartbeat_of(3, true);
    assert_eq!(hand_over(&mut scene), [Order::Transfer(REGION, 13)]);
}
