//! The machine over a key-value store: what survives, what travels.

use std::sync::Arc;

use kv::{KvEngine, MemoryKv};
use raft::{
    Command as Entry, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks, SnapshotSource,
};
use types::query_watch::QueryWatch;
use types::resource_group::{Action, Likeness};
use types::{Epoch, Error, ForeignKey, GroupOptions, OnParent, Result, Timestamp};

use super::state_scripts::table;
use crate::api::{CatalogChange, GroupChange};
use crate::bootstrap::placement_region;
use crate::catalog::EligibleNodes;
use crate::command::{Command, Outcome, Proposal};
use crate::machines::PlacementMachines;
use crate::state::State;
use crate::view::View;

fn machines(store: &Arc<dyn KvEngine>) -> (PlacementMachines, Arc<View>) {
    let view = Arc::new(View::new());
    (PlacementMachines::new(store.clone(), view.clone(), None), view)
}

fn memory() -> Arc<dyn KvEngine> {
    Arc::new(MemoryKv::new())
}

fn entry(count: u64, command: Command) -> Vec<u8> {
    postcard::to_stdvec(&Proposal { ticket: (7, count), command }).unwrap()
}

fn take_ids(machine: &mut dyn Machine, count: u64) {
    let at = Position { index: machine.applied().index + 1, term: 6 };
    machine.apply(at, Entry::Data(&entry(count, Command::TakeIds { count: 3 }))).unwrap();
    machine.finish_batch().unwrap();
}

struct Sent(Box<dyn SnapshotSource>);

impl SnapshotChunks for Sent {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        self.0.next_chunk()
    }
}

#[test]
fn restart_finds_what_was_persisted_and_its_position() {
    let store = memory();
    let region = placement_region(&[1]).unwrap();
    let (first, view) = machines(&store);
    let mut machine = first.create(&region, true).unwrap();
    assert_eq!(machine.applied(), INITIAL_POSITION);
    take_ids(machine.as_mut(), 1);
    machine.persist().unwrap();
    assert_eq!(machine.durable_index(), 6);
    // Not persisted: the log has to bring it again.
    take_ids(machine.as_mut(), 2);
    assert_eq!(machine.durable_index(), 6);
    assert_eq!(view.read().next_id, 1_006);
    drop(machine);

    let (second, view) = machines(&store);
    let mut found = second.recover().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].applied(), Position { index: 6, term: 6 });
    assert_eq!(found[0].region(), &region);
    assert_eq!(view.read().next_id, 1_003);
    take_ids(found[0].as_mut(), 2);
    assert_eq!(view.read().next_id, 1_006);
}

#[test]
fn snapshot_carries_state_region_and_position() {
    let (from, sent) = machines(&memory());
    let mut leader = from.create(&placement_region(&[1]).unwrap(), true).unwrap();
    for count in 0..5 {
        take_ids(leader.as_mut(), count);
    }
    let big = vec![b'x'; 3 << 20];
    let at = Position { index: 11, term: 6 };
    leader.apply(at, Entry::Data(&entry(9, Command::SetSigningKey(big)))).unwrap();

    let store = memory();
    let (to, received) = machines(&store);
    let mut region = placement_region(&[1, 2]).unwrap();
    let mut member = to.create(&region, false).unwrap();
    assert_eq!(member.applied().index, 0);
    region.epoch = Epoch { version: 1, conf: 2 };
    let mut chunks = Sent(leader.snapshot().unwrap());
    member.restore(&region, leader.applied(), &mut chunks).unwrap();
    assert_eq!(*received.read(), *sent.read());
    assert_eq!(member.applied(), at);
    assert_eq!(member.durable_index(), 11);
    drop(member);

    let (again, view) = machines(&store);
    let found = again.recover().unwrap();
    assert_eq!(found[0].region(), &region);
    assert_eq!(*view.read(), *sent.read());
}

#[test]
fn only_waiting_proposers_are_answered_and_only_once() {
    let (machines, view) = machines(&memory());
    let mut machine = machines.create(&placement_region(&[1]).unwrap(), true).unwrap();
    view.expect((7, 1));
    take_ids(machine.as_mut(), 1);
    take_ids(machine.as_mut(), 2);
    assert_eq!(view.collect((7, 1)), Some(Ok(Outcome::First(1_000))));
    assert_eq!(view.collect((7, 1)), None);
    assert_eq!(view.collect((7, 2)), None);
}

#[test]
fn garbage_in_the_log_or_the_store_is_corruption() {
    let store = memory();
    let (first, _) = machines(&store);
    let mut machine = first.create(&placement_region(&[1]).unwrap(), true).unwrap();
    let at = Position { index: 6, term: 6 };
    assert!(matches!(machine.apply(at, Entry::Data(&[255; 9])), Err(Error::Corrupt(_))));
    let recovered = |value: &[u8]| {
        let mut batch = kv::WriteBatch::default();
        batch.put(kv::Keyspace::Meta, &b"placement/state"[..], value);
        store.write(batch).unwrap();
        machines(&store).0.recover().map(|found| found.len())
    };
    for value in [&[][..], &[10], &[9], &[8], &[7], &[6, 2, 3]] {
        assert!(matches!(recovered(value), Err(Error::Corrupt(_))), "{value:?}");
    }
    // What another release wrote is not damaged.
    let Err(Error::Invalid(named)) = recovered(&[11, 2, 3]) else {
        panic!("read as of this release")
    };
    assert!(named.contains("format 11") && named.contains("format 10"), "{named}");
}

#[test]
fn the_version_is_stored_once_it_is_raised_and_before_in_the_format_of_old_programs() {
    let store = memory();
    let (first, _) = machines(&store);
    let region = placement_region(&[1]).unwrap();
    let mut machine = first.create(&region, true).unwrap();
    let format = || store.get(kv::Keyspace::Meta, b"placement/state").unwrap().unwrap()[0];
    assert_eq!(format(), 6);
    let at = Position { index: 6, term: 6 };
    machine.apply(at, Entry::Data(&entry(1, Command::RaiseVersion(2)))).unwrap();
    machine.persist().unwrap();
    assert_eq!(format(), 7);
    let (second, view) = machines(&store);
    assert_eq!(second.recover().unwrap()[0].applied(), at);
    assert_eq!(view.read().version, 2);
    let (to, received) = machines(&memory());
    let mut member = to.create(&region, false).unwrap();
    member.restore(&region, at, &mut Sent(machine.snapshot().unwrap())).unwrap();
    assert_eq!(received.read().version, 2);
    // It never falls.
    let at = Position { index: 7, term: 6 };
    machine.apply(at, Entry::Data(&entry(2, Command::RaiseVersion(1)))).unwrap();
    machine.persist().unwrap();
    assert_eq!(format(), 7);
}

#[test]
fn resource_groups_watches_and_foreign_keys_are_stored_and_sent_with_the_state() {
    let store = memory();
    let (first, view) = machines(&store);
    let region = placement_region(&[1]).unwrap();
    let mut machine = first.create(&region, true).unwrap();
    let rate = GroupOptions { ru_per_sec: Some(Some(5)), ..GroupOptions::default() };
    let change = CatalogChange::Groups(GroupChange::Create("g".into(), rate));
    let (eligible, now) = (EligibleNodes::default(), Timestamp(9));
    for (index, command) in
        [(6, Command::RaiseVersion(7)), (7, Command::Change { change, eligible, now })]
    {
        let at = Position { index, term: 6 };
        machine.apply(at, Entry::Data(&entry(index, command))).unwrap();
    }
    machine.persist().unwrap();
    let format = || store.get(kv::Keyspace::Meta, b"placement/state").unwrap().unwrap()[0];
    assert_eq!(format(), 8);
    let watch = QueryWatch {
        id: 0,
        group: "g".into(),
        by: Likeness::Exact,
        text: "SELECT 1".into(),
        action: Action::Kill,
        since_ms: 1,
        until_ms: None,
        source: "manual".into(),
    };
    for (index, command) in [(8, Command::RaiseVersion(8)), (9, Command::Watch(watch))] {
        let at = Position { index, term: 6 };
        machine.apply(at, Entry::Data(&entry(index, command))).unwrap();
    }
    machine.persist().unwrap();
    assert_eq!(format(), 9);
    assert_eq!(view.read().runaways.watches[0].id, 1);
    let keys = vec![ForeignKey {
        name: "k".into(),
        columns: vec!["id".into()],
        parent: ("d".into(), "later".into()),
        referenced: vec!["id".into()],
        on_delete: OnParent::Cascade,
        on_update: OnParent::NoAction,
        proven: true,
    }];
    let table = Box::new(table("d", "t", &[]));
    let creates = CatalogChange::CreateReferring { table, keys: keys.clone(), parents: vec![] };
    let changes = [CatalogChange::CreateDatabase("d".into()), creates];
    let command = |change| Command::Change { change, eligible: EligibleNodes(vec![1]), now };
    let commands = std::iter::once(Command::RaiseVersion(10)).chain(changes.map(command));
    for (index, command) in (10..).zip(commands) {
        let at = Position { index, term: 6 };
        machine.apply(at, Entry::Data(&entry(index, command))).unwrap();
    }
    machine.persist().unwrap();
    assert_eq!(format(), 10);
    let child = view.read().catalog.tables[0].id;
    assert_eq!(view.read().catalog.foreign_keys.of(child), keys);
    assert_eq!(view.read().catalog.resources.named("g").unwrap().ru_per_sec, Some(5));
    let (second, found) = machines(&store);
    second.recover().unwrap();
    assert_eq!(*found.read(), *view.read());
    let (to, received) = machines(&memory());
    let mut member = to.create(&region, false).unwrap();
    member.restore(&region, machine.applied(), &mut Sent(machine.snapshot().unwrap())).unwrap();
    assert_eq!(*received.read(), *view.read());
}

#[test]
fn destroyed_machine_leaves_nothing() {
    let store = memory();
    let (first, view) = machines(&store);
    let region = placement_region(&[1]).unwrap();
    let mut machine = first.create(&region, true).unwrap();
    take_ids(machine.as_mut(), 1);
    drop(machine);
    first.destroy(&region).unwrap();
    assert_eq!(*view.read(), State::new());
    assert!(machines(&store).0.recover().unwrap().is_empty());
}

#[test]
fn row_regions_need_a_row_store() {
    let (machines, _) = machines(&memory());
    let mut region = placement_region(&[1]).unwrap();
    region.kind = types::RegionKind::Records(100);
    assert!(matches!(machines.create(&region, true).err(), Some(Error::Invalid(_))));
}

#[test]
fn bootstrap_lists_must_make_sense() {
    assert!(placement_region(&[]).is_err());
    assert!(placement_region(&[1, 2, 1]).is_err());
    assert!(placement_region(&[0]).is_err());
    assert!(placement_region(&[1_000]).is_err());
    assert_eq!(placement_region(&[3, 1, 2]).unwrap(), placement_region(&[1, 2, 3]).unwrap());
}
