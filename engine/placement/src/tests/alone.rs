//! What goes on of placement's state where a quorum is lost: nothing of what was lost is given again.

use std::collections::BTreeSet;
use std::time::Duration;

use env::Instant;
use raft::FAR;
use types::{
    Epoch, Error, NodeId, Peer, PeerRole, Region, RegionKind, Table, Timestamp, key, version,
};

use super::state_scripts::table;
use crate::alone::{Lost, MARGIN_MS, Survivors};
use crate::api::{
    CatalogChange, Node, NodeReport, NodeRole, Order, PeerReport, SafePoint, Session,
};
use crate::bootstrap::placement_region;
use crate::catalog::EligibleNodes;
use crate::command::{Command, Outcome};
use crate::leader_state::LeaderState;
use crate::own_group::{Wanted, wanted};
use crate::state::State;

const CLOCK_MS: u64 = 5_000_000;

fn register(state: &mut State, id: NodeId, role: NodeRole, address: &str) -> Result<(), Error> {
    let (rpc_address, client_address) = (address.to_owned(), String::new());
    let node = Node { id, role, rpc_address, client_address };
    state.apply(Command::Register { node, session: Session::default() }).map(|_| ())
}

fn create(state: &mut State, name: &str, indexes: &[String], eligible: &[NodeId]) -> Table {
    let change = CatalogChange::CreateTable(Box::new(table("d", name, indexes)));
    let now = Timestamp::pack(1_000, 0);
    let eligible = EligibleNodes(eligible.to_vec());
    match state.apply(Command::Change { change, eligible, now }).unwrap() {
        Outcome::Changed { table: Some(table), .. } => *table,
        other => panic!("{other:?}"),
    }
}

/// Three row nodes and a columnar one, a database, and a table with one index.
fn cluster() -> (State, Table) {
    let mut state = State::new();
    for id in 1..=3 {
        register(&mut state, id, NodeRole::Row, &format!("h:{id}")).unwrap();
    }
    register(&mut state, 900, NodeRole::Columnar, "h:900").unwrap();
    let change = CatalogChange::CreateDatabase("d".into());
    let (eligible, now) = (EligibleNodes::default(), Timestamp::ZERO);
    state.apply(Command::Change { change, eligible, now }).unwrap();
    let table = create(&mut state, "t", &["i".into()], &[1, 2, 3]);
    (state, table)
}

/// A region as node 3 goes on with it.
fn alone(region: &Region) -> Region {
    let peer = *region.peer_on(3).unwrap();
    let epoch = Epoch { conf: region.epoch.conf + FAR, ..region.epoch };
    Region { epoch, peers: vec![peer], ..region.clone() }
}

fn survivors(state: &State) -> Survivors {
    Survivors {
        nodes: BTreeSet::from([3]),
        home: 3,
        voters: BTreeSet::from([1, 2, 3]),
        regions: state.regions.values().map(|record| alone(&record.region)).collect(),
        time_ms: CLOCK_MS,
        ..Survivors::default()
    }
}

#[test]
fn nothing_that_the_lost_may_have_given_is_given_again() {
    let (mut state, known) = cluster();
    state.apply(Command::ExtendWindow { until_ms: 4_000 }).unwrap();
    state.apply(Command::AutoIncrement { table: known.id, count: 5, above: 0 }).unwrap();
    // What the lost ones went on with, and the survivor does not know of.
    let mut ahead = state.clone();
    let later = create(&mut ahead, "later", &[], &[1, 2, 3]);
    register(&mut ahead, 1_500, NodeRole::Row, "h:4").unwrap();

    let before = state.clone();
    let held = survivors(&state);
    let lost = state.go_on(held).unwrap();
    assert_eq!(lost.nodes.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_eq!((lost.emptied, lost.tables, lost.leases), (vec![], BTreeSet::new(), 0));
    assert!(state.next_id > ahead.next_id && state.next_id >= before.next_id + FAR);
    assert!(state.catalog.version > ahead.catalog.version);
    assert_eq!(state.high_water_ms, CLOCK_MS + MARGIN_MS);
    let new = create(&mut state, "new", &[], &[3]);
    assert!(new.id > later.id + 1_000, "{} after {}", new.id, later.id);
    let table = state.catalog.table(known.id).unwrap();
    assert!(table.version > known.version + 100);
    let next = Command::AutoIncrement { table: known.id, count: 1, above: 0 };
    assert_eq!(state.apply(next).unwrap(), Outcome::First(6 + FAR));
}

#[test]
fn time_goes_on_above_the_mark_where_that_is_ahead_of_what_is_held() {
    let (mut state, _) = cluster();
    state.apply(Command::ExtendWindow { until_ms: CLOCK_MS + 77 }).unwrap();
    let held = survivors(&state);
    state.go_on(held).unwrap();
    assert_eq!(state.high_water_ms, CLOCK_MS + 77 + MARGIN_MS);
}

#[test]
fn the_lost_never_come_back_and_who_stands_where_they_stood_takes_their_seats() {
    let (mut state, _) = cluster();
    let held = survivors(&state);
    state.go_on(held).unwrap();
    for lost in [1, 2] {
        let back = register(&mut state, lost, NodeRole::Row, &format!("h:{lost}"));
        assert!(matches!(back, Err(Error::Revoked(_))), "{back:?}");
        assert!(state.check_session(lost, None).is_err());
    }
    // A start that was registered with those who are lost is no older copy.
    register(&mut state, 3, NodeRole::Row, "h:3").unwrap();

    let voter = |id, node| Peer { id, node, role: PeerRole::Voter };
    let mut own = placement_region(&[1, 2, 3]).unwrap();
    own.peers = vec![voter(3, 3)];
    assert_eq!(wanted(&own, &state, |_| false), None);
    let (first, second) = (state.next_id, state.next_id + 1);
    register(&mut state, first, NodeRole::Row, "h:1").unwrap();
    register(&mut state, 1_600, NodeRole::Row, "h:9").unwrap();
    assert_eq!(
        wanted(&own, &state, |_| false),
        None,
        "two would be worse than one, and h:9 has no seat"
    );
    register(&mut state, second, NodeRole::Row, "h:2").unwrap();
    assert_eq!(
        wanted(&own, &state, |_| false),
        Some(Wanted { peers: own.peers.clone(), new: Some(first) })
    );
    own.peers.push(Peer { role: PeerRole::Learner, ..voter(70, first) });
    let whole = vec![voter(3, 3), voter(70, first)];
    assert_eq!(wanted(&own, &state, |_| false), Some(Wanted { peers: whole.clone(), new: None }));
    own.peers = whole;
    assert_eq!(
        wanted(&own, &state, |_| false),
        Some(Wanted { peers: own.peers.clone(), new: Some(second) })
    );
    own.peers.push(voter(71, second));
    assert_eq!(wanted(&own, &state, |_| false), None);
}

#[test]
fn snapshots_from_before_end() {
    let (mut state, _) = cluster();
    let lease = Command::TakeLease {
        ts: Timestamp::pack(2_000, 0),
        owner: "a job".into(),
        now_ms: 2_000,
        ttl_ms: 60_000,
    };
    state.apply(lease.clone()).unwrap();
    let held = survivors(&state);
    assert_eq!(state.go_on(held).unwrap().leases, 1);
    assert!(matches!(state.apply(lease), Err(Error::SnapshotTooOld { .. })));
    let first = Timestamp::pack(state.high_water_ms, 0);
    assert_eq!(state.safe_point.floor, first, "the oracle's first timestamp can be read");
}

#[test]
fn a_region_of_a_table_without_a_name_is_dropped_and_a_missing_range_is_empty() {
    let (mut state, known) = cluster();
    let mut held = survivors(&state);
    let lost_kind = RegionKind::Records(known.id + 1);
    let (start, end) = key::range(lost_kind).unwrap();
    let nameless = Region { id: 5_000, kind: lost_kind, start, end, ..held.regions[0].clone() };
    held.regions.push(nameless);
    // Of the records there is the latter half only.
    let cut = key::records_end(known.id);
    let cut = [&key::records_start(known.id)[..], &[7]].concat().min(cut);
    held.regions[0].start.clone_from(&cut);
    assert_eq!(held.regions[0].kind, RegionKind::Records(known.id));
    let Lost { emptied, tables, indexes, .. } = state.go_on(held).unwrap();
    assert_eq!(tables, BTreeSet::from([known.id + 1]));
    assert!(state.tombstones.contains_key(&5_000) && !state.regions.contains_key(&5_000));
    assert_eq!(indexes, BTreeSet::from([(known.id, known.indexes[0].id)]));
    assert!(state.catalog.table(known.id).unwrap().indexes.is_empty());
    assert_eq!(emptied.len(), 1);
    assert_eq!((&emptied[0].start, &emptied[0].end), (&key::records_start(known.id), &cut));
    assert!(state.is_tiled() && emptied[0].id > 5_000 + FAR);
    let record = &state.regions[&emptied[0].id];
    assert_eq!(record.uncreated, BTreeSet::from([3]), "node 3 is to create it");
}

#[test]
fn a_region_of_everything_is_filled_as_one_and_indexes_go_where_a_part_of_it_is_lost() {
    let (mut state, _) = cluster();
    state.apply(Command::RaiseVersion(version::SHARED_REGIONS)).unwrap();
    let half = create(&mut state, "half", &["i".into()], &[1, 2, 3]);
    let gone = create(&mut state, "gone", &["i".into()], &[1, 2, 3]);
    let mut held = survivors(&state);
    held.regions.retain(|region| region.table() != Some(gone.id));
    // Of the other there are the records only.
    let cut = key::records_start(half.id);
    let region = held.regions.iter_mut().find(|region| region.table() == Some(half.id)).unwrap();
    assert_eq!(region.kind, RegionKind::Table(half.id));
    region.start.clone_from(&cut);
    let Lost { emptied, indexes, .. } = state.go_on(held).unwrap();
    assert_eq!(indexes, [&half, &gone].map(|table| (table.id, table.indexes[0].id)).into());
    let ranges: Vec<_> = emptied.iter().map(|r| (r.kind, r.start.clone(), r.end.clone())).collect();
    let (first, (start, end)) =
        (key::table_start(half.id), key::range(RegionKind::Table(gone.id)).unwrap());
    assert_eq!(
        ranges,
        [(RegionKind::Table(half.id), first, cut), (RegionKind::Table(gone.id), start, end)]
    );
    assert!(state.is_tiled());
}

#[test]
fn a_newer_description_that_regions_know_is_taken_over() {
    let (mut state, known) = cluster();
    let mut held = survivors(&state);
    let mut newer = Table { version: known.version + 2, ..known.clone() };
    let mut column = newer.columns[1].clone();
    (column.id, column.name) = (3, "c3".into());
    newer.columns.push(column);
    (newer.name, newer.database) = ("renamed".into(), "elsewhere".into());
    held.tables.push(newer.clone());
    state.go_on(held).unwrap();
    let table = state.catalog.table(known.id).unwrap();
    assert_eq!((&table.columns, table.name.as_str()), (&newer.columns, "t"));
    assert!(table.version > newer.version && state.used_numbers[&known.id].0 == 3);
}

/// A node's heartbeat about one region that it does not lead.
fn report(region: Region) -> PeerReport {
    PeerReport {
        peer: region.peers.first().map_or(0, |peer| peer.id),
        region,
        leader: false,
        term: 7,
        applied: 9,
        committed: 9,
        rows: 0,
        bytes: 0,
        ready: true,
        damaged: false,
        lag: None,
        floor: Timestamp::ZERO,
        history_bytes: 0,
    }
}

#[test]
fn columns_of_the_lost_are_destroyed_and_peers_of_row_nodes_are_not() {
    let (mut state, known) = cluster();
    let held = survivors(&state);
    let region = held.regions[0].clone();
    state.go_on(held).unwrap();
    state.safe_point = SafePoint::default();
    let now = Instant::from_micros(0);
    let mut leader = LeaderState::new(1, 0, now);
    let learner = Peer { id: 990, node: 900, role: PeerRole::Learner };
    let before = |id, conf| {
        let epoch = Epoch { version: 2, conf };
        let kind = RegionKind::Records(known.id);
        Region { id, epoch, kind, peers: vec![learner], ..region.clone() }
    };
    let orders = |leader: &mut LeaderState, state: &State, node, region: Region| {
        leader.record_heartbeat(
            node,
            NodeReport::default(),
            vec![report(region)],
            now + Duration::from_millis(1),
        );
        leader.orders(state, node)
    };
    // Half of a region that was split by those who are lost.
    let half = before(1_700, 4);
    assert_eq!(
        orders(&mut leader, &state, 900, half.clone()),
        [Order::Destroy { region: 1_700, conf: 4 }]
    );
    assert!(orders(&mut leader, &state, 3, half).is_empty());
    let own = before(region.id, 9);
    assert_eq!(
        orders(&mut leader, &state, 900, own),
        [Order::Destroy { region: region.id, conf: 9 }]
    );
    // One that is created from now on, and not reported by its leader yet.
    let new = before(state.next_id, 1);
    assert!(orders(&mut leader, &state, 900, new).is_empty());
}
