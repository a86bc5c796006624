//! Numbers that were written when their column was narrower: in memory, on disk, and merged with
//! wider ones.

use std::collections::BTreeMap;

use txn::{Fact, WriteKind};
use types::{Column, ColumnType, Decimal, Error, IntWidth, Row, Table, Timestamp, Value, key, row};

use super::harness::{REGION, TABLE, World, small};
use crate::predicate::{Compare, Comparison, Predicate};
use crate::scan::ScanRequest;
use crate::shared::Config;

/// `t (id bigint primary key, n …, u … unsigned, d decimal(…, 2))`.
fn table(model: &Table, version: u32, width: IntWidth, precision: u8) -> Table {
    let id = model.columns[0].clone();
    let column = |number, name: &str, ty| Column {
        id: number,
        name: name.into(),
        ty,
        nullable: true,
        original: Some(Value::Null),
        ..id.clone()
    };
    let columns = vec![
        id.clone(),
        column(20, "n", ColumnType::Int { width, unsigned: false }),
        column(21, "u", ColumnType::Int { width, unsigned: true }),
        column(22, "d", ColumnType::Decimal { precision, scale: 2 }),
    ];
    Table { columns, version, ..model.clone() }
}

/// Rows that are written while the columns are narrow.
const NARROW: u64 = 70;

struct Widening {
    world: World,
    rows: BTreeMap<Vec<u8>, Row>,
}

impl Widening {
    /// Writes rows with these numbers, and with NULLs.
    fn write(&mut self, table: &Table, numbers: std::ops::Range<i64>) {
        for n in numbers {
            let at = self.rows.len() as i64;
            let unscaled = i128::from(n) * 7;
            let row: Row = match n % 5 {
                0 => vec![Value::Int(at), Value::Null, Value::Null, Value::Null],
                _ => vec![
                    Value::Int(at),
                    Value::Int(-n),
                    Value::UInt(n.cast_unsigned()),
                    Value::Decimal(Decimal { unscaled, scale: 2 }),
                ],
            };
            let key = key::record(TABLE, &row[..1]);
            let write = Fact::Write {
                key: key.clone(),
                commit_ts: Timestamp(20 + at.cast_unsigned()),
                kind: WriteKind::Put,
                row: Some(row::encode(table, &row)),
                replaces: None,
            };
            self.world.append(REGION, vec![write]);
            self.rows.insert(key, row);
        }
        self.world.catch_up().unwrap();
    }

    fn found(&self, table: &Table, comparison: Option<Comparison>) -> Result<usize, Error> {
        self.found_at(Timestamp::MAX, table, comparison)
    }

    /// Who reads at a snapshot of before, by the narrower columns, finds what they held.
    fn check_narrow(&self, table: &Table) {
        let before = Timestamp(20 + NARROW - 1);
        assert_eq!(self.found_at(before, table, None).unwrap(), NARROW as usize);
        for row in self.rows.values().take(NARROW as usize).filter(|row| !row[1].is_null()) {
            for (column, value) in table.columns.iter().zip(row.iter()).skip(1) {
                let (column, value) = (column.clone(), value.clone());
                let equal = Comparison { column, op: Compare::Eq, value };
                assert_eq!(self.found_at(before, table, Some(equal)).unwrap(), 1, "{row:?}");
            }
        }
    }

    fn found_at(
        &self,
        ts: Timestamp,
        table: &Table,
        comparison: Option<Comparison>,
    ) -> Result<usize, Error> {
        let handle = self.world.store.tablet(REGION).unwrap();
        let snapshot = handle.snapshot_at(ts, handle.region().epoch)?;
        let predicate = Predicate { all: comparison.into_iter().collect() };
        let request = ScanRequest { columns: table.columns.clone(), predicate, batch_rows: 0 };
        let mut found = 0;
        for batch in snapshot.scan(request)? {
            found += batch?.num_rows();
        }
        Ok(found)
    }

    /// Every row is there with its values, and comparisons find those that they should.
    fn check(&self, table: &Table) {
        let shown = self.world.store.visible_rows(REGION, Timestamp::MAX).unwrap();
        assert_eq!(shown, self.rows);
        assert_eq!(self.found(table, None).unwrap(), self.rows.len());
        for (at, column) in table.columns.iter().enumerate().skip(1) {
            for row in self.rows.values().filter(|row| !row[at].is_null()) {
                let (column, value) = (column.clone(), row[at].clone());
                let same = self.rows.values().filter(|other| other[at] == value).count();
                let equal = Comparison { column, op: Compare::Eq, value };
                assert_eq!(self.found(table, Some(equal)).unwrap(), same, "{:?}", row[at]);
            }
        }
    }
}

#[test]
fn numbers_of_a_narrower_column_are_found_among_wider_ones() {
    let world = World::new(Config { delta_rows: 10_000, ..small() });
    let narrow = table(&world.schemas[0], 2, IntWidth::Small, 6);
    let wide = table(&world.schemas[0], 3, IntWidth::Big, 12);
    let mut widening = Widening { world, rows: BTreeMap::new() };
    widening.world.append(REGION, vec![Fact::Schema(Box::new(narrow.clone()))]);
    widening.write(&narrow, 0..40);
    widening.world.persist(REGION).unwrap();
    widening.write(&narrow, 30_000..30_030);
    widening.check(&narrow);
    // On disk and in memory there are narrow numbers now, and wide ones beside them.
    widening.world.append(REGION, vec![Fact::Schema(Box::new(wide.clone()))]);
    widening.world.catch_up().unwrap();
    widening.check(&wide);
    widening.write(&wide, 3_000_000_000..3_000_000_020);
    widening.check(&wide);
    // Who plans by the narrower columns gets an error, and finds nothing that it cannot hold.
    let stale = widening.found(&narrow, None).unwrap_err();
    assert!(matches!(stale, Error::SchemaChanged { sent: 2, known: Some(3), .. }), "{stale}");
    widening.check_narrow(&narrow);
    widening.world.persist(REGION).unwrap();
    widening.check(&wide);
    for numbers in [0..10, 4_000_000_000..4_000_000_010] {
        widening.write(&wide, numbers);
        widening.world.persist(REGION).unwrap();
    }
    widening.check_narrow(&narrow);
    while widening.world.store.maintain(Timestamp(10)).unwrap() {}
    widening.check(&wide);
    widening.check_narrow(&narrow);
}

#[test]
fn a_column_that_may_hold_null_since_is_no_damage_to_who_does_not_know_it() {
    let world = World::new(Config { delta_rows: 10_000, ..small() });
    let loose = table(&world.schemas[0], 3, IntWidth::Big, 12);
    let mut strict = Table { version: 2, ..loose.clone() };
    strict.columns.iter_mut().for_each(|column| column.nullable = false);
    let mut widening = Widening { world, rows: BTreeMap::new() };
    widening.world.append(REGION, vec![Fact::Schema(Box::new(strict.clone()))]);
    widening.write(&strict, 1..5);
    widening.check(&strict);
    widening.world.append(REGION, vec![Fact::Schema(Box::new(loose.clone()))]);
    widening.write(&loose, 5..7);
    for _ in ["in memory", "on disk"] {
        let stale = widening.found(&strict, None).unwrap_err();
        assert!(matches!(stale, Error::SchemaChanged { sent: 2, known: Some(3), .. }), "{stale}");
        assert_eq!(widening.found_at(Timestamp(23), &strict, None).unwrap(), 4);
        widening.check(&loose);
        widening.world.persist(REGION).unwrap();
    }
    assert!(widening.world.store.needs_repair().is_empty());
}
