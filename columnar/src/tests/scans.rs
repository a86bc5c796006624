//! What scans return: projections, predicates, partitions, and what they leave unread.

use std::sync::atomic::Ordering;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use txn::WriteKind;
use types::{Row, Timestamp, Value};

use super::harness::{REGION, World, key_of, small, widened};
use crate::predicate::{Compare, Comparison, Predicate};
use crate::scan::ScanRequest;
use crate::shared::Config;
use crate::snapshot::TabletSnapshot;
use crate::verify::value;

/// Every row of a snapshot, sorted.
pub fn dump(snapshot: &TabletSnapshot) -> Vec<Row> {
    let Some(table) = snapshot.table() else { return Vec::new() };
    rows(snapshot, ScanRequest { columns: table.columns.clone(), ..ScanRequest::default() })
}

fn rows(snapshot: &TabletSnapshot, request: ScanRequest) -> Vec<Row> {
    let columns = request.columns.clone();
    let mut rows: Vec<Row> = Vec::new();
    for batch in snapshot.scan(request).unwrap() {
        let batch = batch.unwrap();
        for at in 0..batch.num_rows() {
            let cells = columns.iter().zip(batch.columns());
            rows.push(cells.map(|(column, array)| value(array, column.ty, at).unwrap()).collect());
        }
    }
    rows.sort_by_key(|row| format!("{row:?}"));
    rows
}

/// Many rows in a segment, some updated and deleted later, some in the delta.
fn filled(rows: i64) -> (World, u64) {
    let config = Config { delta_rows: 1 << 20, delta_bytes: 1 << 30, ..small() };
    let mut world = World::new(Config { column_cache_bytes: 64 << 20, ..config });
    let mut ts = 10;
    for id in 0..rows {
        ts += 1;
        let row = world.encode(id, id * 10, Some(&format!("s{}", id % 100)), 0);
        let fact = world.import(id, ts, Some(row));
        world.append(REGION, vec![fact]);
    }
    world.catch_up().unwrap();
    world.persist(REGION).unwrap();
    for id in (0..rows).step_by(7) {
        ts += 1;
        let row = (id % 2 == 0).then(|| world.encode(id, -id, None, 0));
        let fact = world.import(id, ts, row);
        world.append(REGION, vec![fact]);
    }
    world.catch_up().unwrap();
    (world, ts)
}

#[test]
fn projection_predicate_and_partitions_agree_with_the_model() {
    let (world, now) = filled(3_000);
    let table = world.schemas[0].clone();
    let region = world.groups[&REGION].region.clone();
    let handle = world.store.tablet(REGION).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let ops = [Compare::Eq, Compare::NotEq, Compare::Lt, Compare::LtEq, Compare::Gt, Compare::GtEq];
    for round in 0..60 {
        let ts = random.random_range(0..=now);
        let snapshot = handle.snapshot_at(Timestamp(ts), region.epoch).unwrap();
        let op = ops[round % ops.len()];
        let (at, value) = match random.random_range(0..3) {
            0 => (0, Value::Int(random.random_range(-5..3_005))),
            1 => (1, Value::Int(random.random_range(-50..30_050))),
            _ => (2, Value::String(format!("s{}", random.random_range(0..110)))),
        };
        let holds = |row: &Row| {
            let order = match (&row[at], &value) {
                (Value::Int(a), Value::Int(b)) => a.cmp(b),
                (Value::String(a), Value::String(b)) => a.cmp(b),
                _ => return false,
            };
            match op {
                Compare::Eq => order.is_eq(),
                Compare::NotEq => order.is_ne(),
                Compare::Lt => order.is_lt(),
                Compare::LtEq => order.is_le(),
                Compare::Gt => order.is_gt(),
                Compare::GtEq => order.is_ge(),
            }
        };
        let mut expected: Vec<Row> = world
            .expected(&region, ts)
            .into_values()
            .filter(|row| holds(row))
            .map(|row| vec![row[2].clone(), row[0].clone()])
            .collect();
        expected.sort_by_key(|row| format!("{row:?}"));
        let column = table.columns[at].clone();
        let request = ScanRequest {
            columns: vec![table.columns[2].clone(), table.columns[0].clone()],
            predicate: Predicate { all: vec![Comparison { column, op, value: value.clone() }] },
            batch_rows: 100,
        };
        assert_eq!(rows(&snapshot, request.clone()), expected, "{op:?} {value:?} at {ts}");
        let parts = snapshot.scan(request).unwrap().partitions(3);
        let counted: usize = parts.into_iter().flatten().map(|b| b.unwrap().num_rows()).sum();
        assert_eq!(counted, expected.len());
    }
}

#[test]
fn an_empty_projection_counts_without_reading_columns() {
    let (world, now) = filled(1_000);
    let handle = world.store.tablet(REGION).unwrap();
    let snapshot = handle.snapshot_at(Timestamp(now), handle.region().epoch).unwrap();
    let scan = snapshot.scan(ScanRequest::default()).unwrap();
    let stats = scan.stats();
    let counted: usize = scan.into_iter().map(|batch| batch.unwrap().num_rows()).sum();
    let expected = world.expected(&handle.region(), now).len();
    assert_eq!(counted, expected);
    assert_eq!(snapshot.row_count_estimate(), expected as u64);
    // Only 72 even multiples of seven were written anew and are still in the delta.
    assert_eq!(stats.delta_rows.load(Ordering::Relaxed), 72);
    assert_eq!(world.store.column_cache_bytes(), 0, "a count decoded a column");
}

#[test]
fn zone_maps_leave_out_row_groups_and_pages() {
    let (mut world, _) = filled(20_000);
    world.persist(REGION).unwrap();
    let handle = world.store.tablet(REGION).unwrap();
    let snapshot = handle.snapshot_at(Timestamp::MAX, handle.region().epoch).unwrap();
    let table = world.schemas[0].clone();
    let id = table.columns[0].clone();
    let scan = |op, n: i64| {
        let all = vec![Comparison { column: id.clone(), op, value: Value::Int(n) }];
        let predicate = Predicate { all };
        let request = ScanRequest { columns: vec![id.clone()], predicate, batch_rows: 0 };
        let scan = snapshot.scan(request).unwrap();
        let stats = scan.stats();
        let counted: usize = scan.into_iter().map(|batch| batch.unwrap().num_rows()).sum();
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        (counted, load(&stats.groups_read), load(&stats.rows_pruned))
    };
    assert_eq!(scan(Compare::Gt, 50_000).1, 0);
    let (counted, read, pruned) = scan(Compare::Lt, 10);
    assert_eq!(counted, 9, "rows 0 to 9, of which 7 was deleted");
    assert!(read <= 2 && pruned > 10_000, "{read} groups read, {pruned} rows pruned by page");
}

#[test]
fn a_dropped_column_and_an_added_one_read_the_default_of_rows_without_them() {
    let mut world = World::new(small());
    let row = world.encode(1, 5, None, 0);
    let fact = world.import(1, 20, Some(row));
    world.append(REGION, vec![fact]);
    let wider = widened(&world.schemas[0].clone(), "n", 9);
    world.alter(wider.clone());
    world.catch_up().unwrap();
    world.persist(REGION).unwrap();
    let handle = world.store.tablet(REGION).unwrap();
    let columns = wider.columns.clone();
    let read = |columns: Vec<_>| {
        let snapshot = handle.snapshot_at(Timestamp(20), handle.region().epoch).unwrap();
        let scan = snapshot.scan(ScanRequest { columns, ..ScanRequest::default() })?;
        scan.into_iter().map(|batch| batch.map(|b| b.num_rows())).sum::<types::Result<usize>>()
    };
    assert_eq!(read(columns.clone()).unwrap(), 1);
    assert_eq!(
        world.store.visible_rows(REGION, Timestamp(20)).unwrap()[&key_of(1)][3],
        Value::Int(9)
    );
    world.alter(super::harness::narrowed(&wider, "n"));
    world.catch_up().unwrap();
    assert_eq!(read(columns).unwrap(), 1);
}

#[test]
fn handles_answer_epoch_floor_locks_and_lag() {
    let mut world = World::new(small());
    let now = env::Clock::unix_millis(&world.clock);
    let commit = Timestamp::pack(now + 5, 0).0;
    let row = world.encode(1, 5, None, 0);
    let lock = world.lock(1, Timestamp::pack(now, 0).0, WriteKind::Put, Some(row));
    world.append(REGION, vec![lock]);
    world.catch_up().unwrap();
    let handle = world.store.tablet(REGION).unwrap();
    assert_eq!(handle.pending_locks(Timestamp(commit)).len(), 1);
    assert_eq!(handle.pending_locks(Timestamp::pack(now - 1, 0)).len(), 0);
    world.wait(40);
    let fact = world.commit(1, commit);
    world.append(REGION, vec![fact]);
    world.apply_one(REGION).unwrap();
    // Applied, but not in what readers see: they must still meet the lock.
    assert_eq!(handle.pending_locks(Timestamp(commit)).len(), 1);
    world.finish().unwrap();
    assert_eq!(handle.pending_locks(Timestamp(commit)).len(), 0);
    assert_eq!(handle.lag().last_ms, Some(35));
    world.wait(5_000);
    world.append(REGION, Vec::new());
    world.catch_up().unwrap();
    assert_eq!(handle.lag().last_ms, Some(35), "lag grows while idle");
    let stale = types::Epoch { version: 0, conf: 1 };
    let answer = handle.snapshot_at(Timestamp(commit), stale).map(|_| ());
    assert!(matches!(answer, Err(types::Error::StaleEpoch { .. })));
}
