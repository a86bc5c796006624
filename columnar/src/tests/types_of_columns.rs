//! Every column type, through delta, Parquet, zone maps and Bloom filters.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use txn::{Fact, WriteKind};
use types::{
    Column, ColumnType, Decimal, IntWidth, Labels, Row, Table, Timestamp, Value, key, row,
};

use super::harness::{REGION, TABLE, World, small};
use crate::predicate::{Compare, Comparison, Predicate};
use crate::scan::{PartitionScan, ScanRequest, TabletScan};
use crate::shared::Config;
use crate::snapshot::{TabletHandle, TabletSnapshot};

fn types() -> Vec<ColumnType> {
    let widths = [IntWidth::Tiny, IntWidth::Small, IntWidth::Medium, IntWidth::Int, IntWidth::Big];
    let ints = widths
        .into_iter()
        .flat_map(|width| [false, true].map(|unsigned| ColumnType::Int { width, unsigned }));
    let others = [
        ColumnType::Double,
        ColumnType::Decimal { precision: 5, scale: 2 },
        ColumnType::Decimal { precision: 15, scale: 4 },
        ColumnType::Decimal { precision: 38, scale: 10 },
        ColumnType::Char(10),
        ColumnType::Varchar(200),
        ColumnType::Text(65_535),
        ColumnType::Date,
        ColumnType::DateTime(6),
        ColumnType::Timestamp(3),
        ColumnType::Int { width: IntWidth::Bool, unsigned: false },
        ColumnType::Binary(8),
        ColumnType::Varbinary(200),
        ColumnType::Blob(65_535),
        ColumnType::Float,
        ColumnType::Year,
        ColumnType::Time(6),
        ColumnType::Bit(1),
        ColumnType::Bit(64),
        ColumnType::Json,
        ColumnType::Enum(labels()),
        ColumnType::Set(labels()),
    ];
    ints.chain(others).collect()
}

fn labels() -> Labels {
    Labels::new(&["low", "", "Größe", "it's"].map(str::to_owned))
}

fn random_value(random: &mut ChaCha8Rng, ty: ColumnType) -> Value {
    let edge = random.random_range(0..10);
    match ty {
        ColumnType::Int { unsigned, .. } => {
            let (low, high) = ty.int_range().unwrap();
            let n = match edge {
                0 => low,
                1 => high,
                _ => random.random_range(low..=high),
            };
            if unsigned { Value::UInt(n as u64) } else { Value::Int(n as i64) }
        }
        ColumnType::Double => Value::Double(match edge {
            0 => 0.0,
            1 => -0.0,
            2 => f64::MIN,
            _ => random.random_range(-1e6..1e6),
        }),
        ColumnType::Decimal { precision, scale } => {
            let most = 10i128.pow(u32::from(precision)) - 1;
            let unscaled = match edge {
                0 => most,
                1 => -most,
                _ => random.random_range(-most..=most),
            };
            Value::Decimal(Decimal { unscaled, scale })
        }
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) | ColumnType::Json => {
            let length = if edge == 0 { 150 } else { random.random_range(0..8) };
            let letter = |_| random.random_range('a'..='ÿ');
            Value::String((0..length).map(letter).collect())
        }
        ColumnType::Date => Value::Date(random.random_range(-40_000..40_000)),
        ColumnType::DateTime(_) => Value::DateTime(random.random()),
        ColumnType::Timestamp(_) => Value::Timestamp(random.random_range(0..1 << 50)),
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            let length = if edge == 0 { 150 } else { random.random_range(0..8) };
            Value::Bytes((0..length).map(|_| random.random()).collect())
        }
        ColumnType::Float => Value::Float(match edge {
            0 => 0.0,
            1 => -0.0,
            2 => f32::MIN,
            _ => random.random_range(-1e6..1e6),
        }),
        ColumnType::Year => Value::UInt(random.random_range(0..=2155)),
        ColumnType::Time(_) => {
            Value::Time(random.random_range(-3_020_399_999_999..=3_020_399_999_999))
        }
        ColumnType::Bit(n) => Value::UInt(random.random::<u64>() >> (64 - n)),
        ColumnType::Enum(labels) => {
            let number = random.random_range(0..=labels.all().len() as u64);
            Value::String(labels.label(number).unwrap_or_default().to_owned())
        }
        ColumnType::Set(labels) => Value::String(labels.of_bits(random.random())),
    }
}

/// A table whose primary key holds a column of each type, so that each has a Bloom filter.
fn table(model: &Table) -> Table {
    let first = model.columns[0].clone();
    let column = |(at, ty): (usize, ColumnType)| Column {
        id: at as u32 + 1,
        name: format!("c{at}"),
        ty,
        ..first.clone()
    };
    let columns: Vec<Column> = types().into_iter().enumerate().map(column).collect();
    let primary_key = columns.iter().map(|column| column.id).collect();
    Table { columns, primary_key, version: 2, ..model.clone() }
}

fn scan(snapshot: &TabletSnapshot, table: &Table, comparison: Comparison) -> usize {
    let predicate = Predicate { all: vec![comparison] };
    let columns = table.columns.clone();
    let request = ScanRequest { columns, predicate, batch_rows: 0 };
    let batches = snapshot.scan(request).unwrap().into_iter();
    batches.map(|batch| batch.unwrap().num_rows()).sum()
}

#[test]
fn every_type_is_kept_and_found_alike_in_memory_and_on_disk() {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut world = World::new(Config { delta_rows: 10_000, ..small() });
    let table = table(&world.schemas[0]);
    world.append(REGION, vec![Fact::Schema(Box::new(table.clone()))]);
    let mut rows: Vec<Row> = Vec::new();
    for at in 0..300u64 {
        let row: Row =
            table.columns.iter().map(|column| random_value(&mut random, column.ty)).collect();
        let write = Fact::Write {
            key: key::record(TABLE, &row),
            commit_ts: Timestamp(20 + at),
            kind: WriteKind::Put,
            row: Some(row::encode(&table, &row)),
            replaces: None,
        };
        world.append(REGION, vec![write]);
        rows.push(row);
    }
    world.catch_up().unwrap();
    let handle = world.store.tablet(REGION).unwrap();
    let pin = || handle.snapshot_at(Timestamp::MAX, handle.region().epoch).unwrap();
    let in_memory = pin();
    let shown = world.store.visible_rows(REGION, Timestamp::MAX).unwrap();
    world.persist(REGION).unwrap();
    let on_disk = pin();
    assert_eq!(world.store.visible_rows(REGION, Timestamp::MAX).unwrap(), shown);
    let expected = rows.iter().map(|row| (key::record(TABLE, row), row.clone()));
    assert_eq!(shown, expected.collect());
    let ops = [Compare::Eq, Compare::NotEq, Compare::Lt, Compare::LtEq, Compare::Gt, Compare::GtEq];
    for (at, column) in table.columns.iter().enumerate() {
        for row in rows.iter().step_by(9) {
            let there = random.random_bool(0.7);
            let value = if there { row[at].clone() } else { random_value(&mut random, column.ty) };
            for op in ops {
                let comparison = Comparison { column: column.clone(), op, value: value.clone() };
                let found = scan(&on_disk, &table, comparison.clone());
                let wanted = scan(&in_memory, &table, comparison);
                assert_eq!(found, wanted, "{} {op:?} {value:?}", column.ty);
                assert!(op != Compare::Eq || !there || found > 0, "{} {value:?}", column.ty);
            }
        }
    }
}

#[test]
fn a_literal_of_another_type_prunes_nothing() {
    let mut world = World::new(small());
    for id in 0..5 {
        let row = world.encode(id, id, None, 0);
        let fact = world.import(id, 20, Some(row));
        world.append(REGION, vec![fact]);
    }
    world.catch_up().unwrap();
    let table = world.schemas[0].clone();
    let handle = world.store.tablet(REGION).unwrap();
    let snapshot = handle.snapshot_at(Timestamp(20), handle.region().epoch).unwrap();
    for value in [Value::Null, Value::String("x".into()), Value::Double(2.5), Value::UInt(2)] {
        let column = table.columns[1].clone();
        assert_eq!(scan(&snapshot, &table, Comparison { column, op: Compare::Eq, value }), 5);
    }
}

#[test]
fn readers_can_be_sent_between_threads() {
    fn sendable<T: Send + 'static>() {}
    sendable::<TabletHandle>();
    sendable::<TabletSnapshot>();
    sendable::<TabletScan>();
    sendable::<PartitionScan>();
}
