//! Columns that went after a reader's snapshot: it reads them as they were, until the safe point
//! has passed; a reader that should know of it is refused, and never shown a NULL for a value.

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use types::{Column, Error, Timestamp};

use super::harness::{REGION, World, narrowed, small};
use crate::predicate::{Compare, Comparison, Predicate};
use crate::scan::ScanRequest;
use crate::shared::Config;

/// Rows that hold column `v`; row `n` holds `3n`, and begins at `20 + n`.
const ROWS: i64 = 40;
/// Before any row that does not.
const BEFORE: Timestamp = Timestamp(90);

fn filled() -> (World, Column) {
    let mut world = World::new(Config { delta_rows: 10_000, ..small() });
    for n in 0..ROWS {
        let row = world.encode(n, n * 3, Some("x"), 0);
        let fact = world.import(n, 20 + n.cast_unsigned(), Some(row));
        world.append(REGION, vec![fact]);
        if n % 10 == 9 && n < 30 {
            world.catch_up().unwrap();
            world.persist(REGION).unwrap();
        }
    }
    world.catch_up().unwrap();
    let column = world.schemas[0].columns[1].clone();
    world.alter(narrowed(&world.schemas[0].clone(), "v"));
    world.catch_up().unwrap();
    (world, column)
}

/// Rows without the column, each after [`BEFORE`].
fn write(world: &mut World, rows: std::ops::Range<i64>) {
    for n in rows {
        let row = world.encode(n, 0, None, 1);
        let fact = world.import(n, 100 + n.cast_unsigned(), Some(row));
        world.append(REGION, vec![fact]);
    }
    world.catch_up().unwrap();
}

/// The values of a column at a timestamp, ascending; those above `above` if there is one.
fn read(
    world: &World,
    column: &Column,
    ts: Timestamp,
    above: Option<i64>,
) -> Result<Vec<Option<i64>>, Error> {
    let handle = world.store.tablet(REGION).unwrap();
    let comparison =
        |n| Comparison { column: column.clone(), op: Compare::Gt, value: types::Value::Int(n) };
    let predicate = Predicate { all: above.map(comparison).into_iter().collect() };
    let request = ScanRequest { columns: vec![column.clone()], predicate, batch_rows: 0 };
    let mut found = Vec::new();
    for batch in handle.snapshot_at(ts, handle.region().epoch)?.scan(request)? {
        found.extend(batch?.column(0).as_primitive::<Int64Type>().iter());
    }
    found.sort_unstable();
    Ok(found)
}

fn check(world: &World, column: &Column) {
    let all: Vec<_> = (0..ROWS).map(|n| Some(n * 3)).collect();
    assert_eq!(read(world, column, BEFORE, None).unwrap(), all);
    assert_eq!(read(world, column, BEFORE, Some(60)).unwrap(), all[21..]);
    let early: Vec<_> = (0..=5).map(|n| Some(n * 3)).collect();
    assert_eq!(read(world, column, Timestamp(25), None).unwrap(), early);
}

#[test]
fn a_dropped_column_is_read_as_it_was_until_the_safe_point_passes() {
    let (mut world, column) = filled();
    check(&world, &column);
    for round in 0..6 {
        write(&mut world, 100 + round * 10..110 + round * 10);
        check(&world, &column);
        world.persist(REGION).unwrap();
        check(&world, &column);
        let late = read(&world, &column, Timestamp::MAX, None);
        assert!(matches!(late, Err(Error::SchemaChanged { .. })), "{late:?}");
    }
    let before = world.files().len();
    while world.store.maintain(Timestamp(10)).unwrap() {}
    assert!(world.files().len() < before, "nothing was merged");
    check(&world, &column);
    world.check_at(u64::MAX, 0);
    let late = read(&world, &column, Timestamp::MAX, None);
    assert!(matches!(late, Err(Error::SchemaChanged { .. })), "{late:?}");

    world.crash(7).unwrap();
    world.catch_up().unwrap();
    check(&world, &column);

    // Nobody may read at a snapshot of before any more: the next merge leaves the column out.
    for round in 0..8 {
        write(&mut world, 200 + round * 10..210 + round * 10);
        world.persist(REGION).unwrap();
    }
    while world.store.maintain(Timestamp::MAX).unwrap() {}
    let gone = read(&world, &column, BEFORE, None);
    assert!(
        matches!(gone, Err(Error::SchemaChanged { .. } | Error::SnapshotTooOld { .. })),
        "{gone:?}"
    );
}

#[test]
fn a_row_that_was_decoded_without_the_column_is_refused_to_those_who_want_it() {
    let mut world = World::new(Config { delta_rows: 10_000, ..small() });
    let row = world.encode(1, 5, None, 0);
    let lock = world.lock(1, 20, txn::WriteKind::Put, Some(row));
    world.append(REGION, vec![lock]);
    let column = world.schemas[0].columns[1].clone();
    world.alter(narrowed(&world.schemas[0].clone(), "v"));
    // Its transaction had committed before the column went; here that is known only now.
    let commit = world.commit(1, 30);
    world.append(REGION, vec![commit]);
    world.catch_up().unwrap();
    let found = read(&world, &column, Timestamp(40), None);
    assert!(matches!(found, Err(Error::SchemaChanged { .. })), "{found:?}");
    assert_eq!(read(&world, &column, Timestamp(25), None).unwrap(), []);
}
