//! Every function over a grid of values at the ends of their types: whatever it answers, none may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF};
use values::temporal::TIME_END_US;

use super::convert::wide::largest;

/// The most that 38 digits say.
const MOST: i128 = 10i128.pow(38) - 1;
/// The last DATETIME, in microseconds, and the last DATE.
const LAST_US: i64 = 253_402_300_799_999_999;
const LAST_DAY: i32 = 2_932_896;

fn texts(all: &[&str]) -> Vec<ScalarValue> {
    all.iter().map(|text| ScalarValue::Utf8(Some((*text).to_owned()))).collect()
}

/// Values of three arguments: the ends of each type, and words that some arguments are.
fn few() -> Vec<ScalarValue> {
    let mut all = vec![
        ScalarValue::Null,
        ScalarValue::Int64(Some(i64::MIN)),
        ScalarValue::Int64(Some(i64::MAX)),
        ScalarValue::Int64(Some(-1)),
        ScalarValue::Int64(Some(3)),
        ScalarValue::UInt64(Some(u64::MAX)),
        ScalarValue::Float64(Some(f64::MAX)),
        ScalarValue::Decimal128(Some(-MOST), 38, 10),
        ScalarValue::Date32(Some(LAST_DAY)),
        ScalarValue::TimestampMicrosecond(Some(LAST_US), None),
        ScalarValue::DurationMicrosecond(Some(-TIME_END_US)),
        ScalarValue::Binary(Some(vec![0xFF, 0])),
        ScalarValue::LargeUtf8(Some("[1, null]".into())),
    ];
    all.extend(texts(&["", "SECOND", "YEAR", "-DAY_SECOND", "9999-12-31 23:59:59.9"]));
    all
}

/// Values of one argument or two.
fn many() -> Vec<ScalarValue> {
    let mut all = few();
    all.extend([
        ScalarValue::Int64(Some(0)),
        ScalarValue::Int64(Some(62)),
        ScalarValue::Int64(Some(101)),
        ScalarValue::Int32(Some(i32::MIN)),
        ScalarValue::UInt8(Some(u8::MAX)),
        ScalarValue::Boolean(Some(true)),
        ScalarValue::Float64(Some(0.0)),
        ScalarValue::Float64(Some(-1e19)),
        ScalarValue::Float64(Some(f64::MIN_POSITIVE)),
        ScalarValue::Float32(Some(f32::MIN)),
        ScalarValue::Decimal128(Some(MOST), 38, 0),
        ScalarValue::Decimal128(Some(-MOST), 38, 30),
        ScalarValue::Decimal256(Some(largest(76)), 76, 0),
        ScalarValue::Decimal256(Some(largest(76).wrapping_neg()), 76, 30),
        ScalarValue::Date32(Some(-719_162)),
        ScalarValue::TimestampMicrosecond(Some(-62_135_596_800_000_000), None),
        ScalarValue::TimestampMicrosecond(Some(2_147_483_647_999_999), Some("+00:00".into())),
        ScalarValue::DurationMicrosecond(Some(TIME_END_US)),
        ScalarValue::Binary(Some(Vec::new())),
        ScalarValue::Binary(Some(vec![0; 16])),
        ScalarValue::LargeUtf8(Some("{\"a\": -1.7976931348623157e308}".into())),
        ScalarValue::Utf8(None),
        ScalarValue::Int64(None),
    ]);
    all.extend(texts(&[
        "abc",
        "-1e400",
        "9223372036854775808",
        "-170141183460469231731687303715884105728",
        "0000-00-00",
        "9999-12-31 23:59:59.9999999",
        "-838:59:59.9",
        "2562047788:00:54.9999999",
        "4294967295 99999999:59:59",
        "123456789012",
        "☃é\u{0}",
        "%",
        "\\",
        "(",
        "[[:alpha:]",
        "$[*].a",
        "+15:00",
        "Europe/Berlin",
        "%Y-%j %V",
        "99999999999999999999999999 99:99:99:99:99",
    ]));
    all
}

/// Calls a function as a plan does: of constants, and of columns of one row.
fn invoked(function: &ScalarUDF, values: &[&ScalarValue], constant: bool) {
    let fields: Vec<FieldRef> =
        values.iter().map(|v| Arc::new(Field::new("a", v.data_type(), true)) as FieldRef).collect();
    let literals: Vec<Option<&ScalarValue>> =
        values.iter().map(|value| constant.then_some(*value)).collect();
    let args = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &literals };
    let Ok(return_field) = function.return_field_from_args(args) else { return };
    let args = values.iter().map(|value| match constant {
        true => ColumnarValue::Scalar((*value).clone()),
        false => ColumnarValue::Array(value.to_array().unwrap()),
    });
    let call = ScalarFunctionArgs {
        args: args.collect(),
        arg_fields: fields,
        number_rows: 1,
        return_field,
        config_options: Arc::new(ConfigOptions::default()),
    };
    if let Ok(value) = function.invoke_with_args(call) {
        assert!(matches!(value.data_type(), ty if ty != DataType::Float16));
    }
}

/// What panics, with its arguments.
fn panics(function: &ScalarUDF, values: &[&ScalarValue]) -> Option<String> {
    let call = |constant| {
        let done = catch_unwind(AssertUnwindSafe(|| invoked(function, values, constant)));
        done.err().map(|_| format!("{}{values:?} constant: {constant}", function.name()))
    };
    call(true).or_else(|| call(false))
}

#[test]
fn no_function_panics_whatever_it_is_given() {
    let (many, few) = (many(), few());
    let mut found = Vec::new();
    for function in super::all() {
        let mut grid = Vec::new();
        for a in &many {
            grid.push(vec![a]);
            grid.extend(many.iter().map(|b| vec![a, b]));
        }
        for a in &few {
            for b in &few {
                grid.extend(few.iter().map(|c| vec![a, b, c]));
            }
        }
        let takes = |values: &Vec<&ScalarValue>| {
            let types: Vec<DataType> = values.iter().map(|value| value.data_type()).collect();
            function.inner().coerce_types(&types).is_ok()
        };
        let panicked = grid.into_iter().filter(takes).filter_map(|v| panics(&function, &v));
        // The first few say enough of one function.
        found.extend(panicked.take(3));
    }
    assert!(found.is_empty(), "{} calls panic:\n{}", found.len(), found.join("\n"));
}
