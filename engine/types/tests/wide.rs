//! Wide decimals: the same numbers in rows, in keys, in Arrow and as text, and bytes that are none.
#![allow(clippy::unwrap_used)]

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use types::columns::ColumnsBuilder;
use types::{Column, ColumnType, Decimal, Table, Value, Wide, key, row};

/// Numbers of every length, and the ends.
fn numbers() -> Vec<Wide> {
    let mut random = StdRng::seed_from_u64(65);
    let mut numbers = Vec::new();
    for digits in 1..=65usize {
        for sign in ["", "-"] {
            let text: String =
                (0..digits).map(|_| char::from(b'0' + random.random_range(0..10u8))).collect();
            let nines = "9".repeat(digits);
            let one = format!("1{}", "0".repeat(digits - 1));
            for text in [text, nines, one] {
                numbers.push(Wide::parse(&format!("{sign}{text}")).unwrap());
            }
        }
    }
    for near in [i128::MIN, i128::MAX, -1, 0, 1, 127, 128, -128, -129, 255, 256] {
        numbers.push(Decimal { unscaled: near, scale: 0 }.into());
    }
    numbers
}

#[test]
fn every_number_comes_back_from_its_bytes_and_its_text() {
    for n in numbers() {
        for scale in [0, 1, 30] {
            let n = Wide { scale, ..n };
            assert_eq!(Wide::of_short_bytes(&n.short_bytes(), scale), Some(n));
            assert_eq!(Wide::of_ordered_bytes(n.ordered_bytes(), scale), Some(n));
            assert_eq!(Wide::parse(&n.to_string()).unwrap(), n);
            let saved = postcard::to_allocvec(&n).unwrap();
            assert_eq!(postcard::from_bytes::<Wide>(&saved).unwrap(), n);
        }
    }
}

#[test]
fn bytes_are_in_the_order_of_the_numbers() {
    let numbers = numbers();
    for a in &numbers {
        for b in &numbers {
            let bytes = a.ordered_bytes().cmp(&b.ordered_bytes());
            assert_eq!(bytes, a.unscaled.cmp(&b.unscaled), "{a} {b}");
        }
    }
}

fn table(ty: ColumnType) -> Table {
    let column = |id, name: &str, ty| Column {
        id,
        name: name.into(),
        ty,
        nullable: true,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let text = ColumnType::Varchar(9);
    Table {
        id: 7,
        version: 1,
        database: "d".into(),
        name: "t".into(),
        columns: vec![column(1, "n", ty), column(2, "s", text), column(3, "m", ty)],
        primary_key: vec![1, 2],
        indexes: Vec::new(),
        columnar_replicas: 0,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

/// A column's values are the same numbers in rows, in keys and in Arrow; keys are in order.
#[test]
fn rows_keys_and_columns_hold_the_same_numbers() {
    let mut keys = Vec::new();
    let ty = ColumnType::Decimal { precision: 65, scale: 30 };
    let table = table(ty);
    let mut columns = ColumnsBuilder::new(&table, &[0, 2]).unwrap();
    for n in numbers() {
        let n = Value::Wide(Box::new(Wide { scale: 30, ..n }));
        let row = vec![n.clone(), Value::String("x".into()), Value::Null];
        let bytes = row::encode(&table, &row);
        assert_eq!(row::decode(&table, &bytes).unwrap(), row);
        // No cut row is read.
        for end in 0..bytes.len() {
            assert!(row::decode(&table, &bytes[..end]).is_err());
        }
        let key = key::record(table.id, &row[..2]);
        assert_eq!(key::decode_record(&table, &key).unwrap(), row[..2]);
        columns.push(&row).unwrap();
        if let Value::Wide(n) = n {
            keys.push((key, n));
        }
    }
    let batch = columns.finish().unwrap();
    assert_eq!(*batch.column(0).data_type(), DataType::Decimal256(65, 30));
    let held = batch.column(0).as_primitive::<Decimal256Type>();
    for (at, (_, n)) in keys.iter().enumerate() {
        assert_eq!(held.value(at), n.unscaled);
    }
    assert_eq!(batch.column(1).null_count(), keys.len());
    keys.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(keys.is_sorted_by(|a, b| a.1.unscaled <= b.1.unscaled));
}

/// Narrow decimals are stored as they always were.
#[test]
fn narrow_rows_and_keys_do_not_change() {
    let table = table(ColumnType::Decimal { precision: 38, scale: 2 });
    let n = |unscaled| Value::Decimal(Decimal { unscaled, scale: 2 });
    let row = vec![n(-5), Value::String("x".into()), n(300)];
    assert_eq!(row::encode(&table, &row), [1, 1, 3, 2, 9, 4, 1, b'x', 6, 0xD8, 4]);
    let key = key::record(table.id, &row[..1]);
    let mut expected = vec![2, 0x7F];
    expected.extend([0xFF; 14]);
    expected.push(0xFB);
    assert_eq!(key[key::records_start(7).len()..], expected);
    assert_eq!(size_of::<Value>(), 48);
}

#[test]
fn bytes_of_no_number_are_refused() {
    for bytes in [&[][..], &[0, 0], &[0, 1], &[0xFF, 0xFF], &[0xFF, 0x80], &[1; 33], &[0x7F; 32]] {
        assert_eq!(Wide::of_short_bytes(bytes, 0), None, "{bytes:?}");
    }
    assert_eq!(Wide::of_ordered_bytes([0; 32], 0), None);
    assert_eq!(Wide::of_ordered_bytes([0xFF; 32], 0), None);
    let mut random = StdRng::seed_from_u64(66);
    for _ in 0..20_000 {
        let length = random.random_range(0..40);
        let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
        if let Some(n) = Wide::of_short_bytes(&bytes, 3) {
            assert!(n.precision() <= 65 && n.short_bytes() == bytes);
        }
    }
}

#[test]
fn numbers_are_rounded_half_away_from_zero() {
    let at = |text: &str, scale| Wide::parse(text).unwrap().rescale(scale).unwrap().to_string();
    let nines = "9".repeat(40);
    assert_eq!(at(&format!("{nines}.995"), 2), format!("1{}.00", "0".repeat(40)));
    assert_eq!(at(&format!("-{nines}.994"), 2), format!("-{nines}.99"));
    assert_eq!([at("2.5", 0), at("-2.5", 0), at("-0.4", 0), at("7", 3)], ["3", "-3", "0", "7.000"]);
    assert_eq!(Wide::parse(&"9".repeat(65)).unwrap().rescale(30), None);
    assert!(Wide::parse(&"9".repeat(78)).is_err() && Wide::parse("1.2.3").is_err());
    assert!(Wide::parse("").is_err() && Wide::parse("-.").is_err());
}

#[test]
fn a_row_spends_no_byte_more_than_the_number_needs() {
    for (n, bytes) in [(0, 1), (-1, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (-32_768, 2)] {
        let number = Wide { unscaled: i256::from_i128(n), scale: 3 };
        assert_eq!(number.short_bytes().len(), bytes, "{n}");
    }
}
