//! Parquet values of each type, and files that are broken.

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array,
    Int32Array, RecordBatch, StringArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt64Array,
};
use arrow::datatypes::i256;
use parquet::arrow::ArrowWriter;

use super::*;

fn written(columns: Vec<(&str, ArrayRef)>) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&file).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    (folder, file)
}

#[test]
fn values_have_their_plain_spelling() {
    let decimals =
        Decimal128Array::from(vec![Some(-5), None]).with_precision_and_scale(10, 2).unwrap();
    let wide = i256::from_string("-9999999999999999999999999999999999999999");
    let wides = Decimal256Array::from(vec![wide, None]).with_precision_and_scale(50, 2).unwrap();
    let columns: Vec<(&str, ArrayRef, &str)> = vec![
        ("i", Arc::new(Int32Array::from(vec![Some(-7), None])), "-7"),
        ("u", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])), "18446744073709551615"),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None])), "1"),
        ("d", Arc::new(decimals), "-0.05"),
        ("w", Arc::new(wides), "-99999999999999999999999999999999999999.99"),
        ("f", Arc::new(Float32Array::from(vec![Some(0.5), None])), "0.5"),
        ("s", Arc::new(StringArray::from(vec![Some("é "), None])), "é "),
        ("x", Arc::new(BinaryArray::from(vec![Some(&[0u8, 255][..]), None])), "00FF"),
        ("day", Arc::new(Date32Array::from(vec![Some(-1), None])), "1969-12-31"),
        (
            "sec",
            Arc::new(TimestampSecondArray::from(vec![Some(1), None])),
            "1970-01-01 00:00:01.000000",
        ),
        (
            "ns",
            Arc::new(TimestampNanosecondArray::from(vec![Some(1_007), None])),
            "1970-01-01 00:00:00.000001007",
        ),
    ];
    let (_folder, file) =
        written(columns.iter().map(|(name, array, _)| (*name, array.clone())).collect());
    let names: Vec<String> = columns.iter().rev().map(|(name, _, _)| name.to_uppercase()).collect();
    let mut rows = Vec::new();
    scan(&file, &names, &mut |values, place| {
        rows.push((values, place()));
        Ok(())
    })
    .unwrap();
    let expected: Vec<Option<String>> =
        columns.iter().rev().map(|(_, _, text)| Some((*text).to_owned())).collect();
    assert_eq!(
        rows,
        [(expected, ", row 1".to_owned()), (vec![None; columns.len()], ", row 2".to_owned())]
    );
    let classes: Vec<Class> =
        super::columns(&file, &[]).unwrap().into_iter().map(|column| column.class).collect();
    assert_eq!(classes[..3], [Class::Int; 3]);
    assert_eq!(classes[3..5], [Class::Decimal(2); 2]);
}

#[test]
fn a_broken_file_is_named() {
    let numbers = || Arc::new(Int32Array::from((0..10_000).collect::<Vec<_>>())) as ArrayRef;
    let (_folder, file) = written(vec![("i", numbers()), ("j", numbers())]);
    let names = ["i".to_owned(), "j".to_owned()];
    let run = |names: &[String]| {
        scan(&file, names, &mut |_, _| Ok(())).map_err(|error| error.to_string())
    };
    run(&names).unwrap();
    assert!(run(&["k".to_owned()]).unwrap_err().contains("column k is missing"));
    let whole = std::fs::read(&file).unwrap();
    for length in [0, 3, 4, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert!(run(&names).unwrap_err().contains("t.parquet"), "{length}");
    }
}
