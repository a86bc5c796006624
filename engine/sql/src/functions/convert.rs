//! Whole columns from one type to another, as leniently as MySQL's expressions are.
//!
//! What does not convert is zero for numbers and NULL for dates; strict checks belong to DML.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array,
    StringArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, UInt64Type,
};
use types::Decimal;

use crate::error::{SqlResult, unknown};
use crate::temporal;

/// DATETIME in Arrow.
pub const DATETIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// What arithmetic makes of an operand of a type: Int64, UInt64, a Decimal128 or Float64.
pub fn number_type(ty: &DataType) -> DataType {
    match ty {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::UInt64
        }
        DataType::Decimal128(p, s) => DataType::Decimal128(*p, *s),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        ty if is_string(ty) => DataType::Float64,
        _ => DataType::Int64,
    }
}

/// Whether a type holds text.
pub fn is_string(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether a type is DATE, DATETIME or TIMESTAMP.
pub fn is_temporal(ty: &DataType) -> bool {
    matches!(ty, DataType::Date32 | DataType::Timestamp(_, _))
}

/// Whether a type is an integer.
pub fn is_integer(ty: &DataType) -> bool {
    ty.is_integer()
}

/// A column as another type.
pub fn to_type(array: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    if array.data_type() == ty {
        return Ok(array.clone());
    }
    Ok(match ty {
        DataType::Utf8 => Arc::new(to_strings(array)?),
        DataType::Float64 => Arc::new(to_f64(array)?),
        DataType::Int64 => Arc::new(to_i64(array)?),
        DataType::UInt64 => Arc::new(to_u64(array)?),
        DataType::Decimal128(p, s) => Arc::new(to_decimal(array, *p, *s)?),
        DataType::Date32 => Arc::new(to_date(array)?),
        DataType::Timestamp(TimeUnit::Microsecond, None) => Arc::new(to_datetime(array)?),
        DataType::Boolean => Arc::new(to_bool(array)?),
        ty => arrow_cast(array, ty)?,
    })
}

/// Arrow's own cast, where it means the same as MySQL's.
fn arrow_cast(array: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    cast(array, ty).map_err(|error| unknown(error.to_string()))
}

/// As text.
pub fn to_strings(array: &ArrayRef) -> SqlResult<StringArray> {
    Ok(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().clone(),
        DataType::Null => StringArray::new_null(array.len()),
        DataType::Float64 | DataType::Float32 => {
            let array = arrow_cast(array, &DataType::Float64)?;
            array.as_primitive::<Float64Type>().iter().map(|n| n.map(format_double)).collect()
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            array.iter().map(|days| days.map(temporal::format_date)).collect()
        }
        DataType::Timestamp(_, _) => {
            let array = to_datetime(array)?;
            array.iter().map(|us| us.map(temporal::format_datetime_auto)).collect()
        }
        DataType::Boolean => {
            array.as_boolean().iter().map(|b| b.map(|b| if b { "1" } else { "0" })).collect()
        }
        _ => arrow_cast(array, &DataType::Utf8)?.as_string::<i32>().clone(),
    })
}

/// MySQL's shortest spelling of a double.
pub fn format_double(n: f64) -> String {
    let size = n.abs();
    if n == 0.0 {
        "0".into()
    } else if (1e-15..1e15).contains(&size) {
        format!("{n}")
    } else {
        format!("{n:e}")
    }
}

/// As a double; text by its leading number.
pub fn to_f64(array: &ArrayRef) -> SqlResult<Float64Array> {
    Ok(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().clone(),
        ty if is_string(ty) => {
            let strings = to_strings(&arrow_cast(array, &DataType::Utf8)?)?;
            strings.iter().map(|text| text.map(leading_f64)).collect()
        }
        ty if is_temporal(ty) => {
            let numbers = to_i64(array)?;
            numbers.iter().map(|n| n.map(|n| n as f64)).collect()
        }
        DataType::Decimal128(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            let numbers = array.as_primitive::<Decimal128Type>();
            numbers
                .iter()
                .map(|n| n.map(|unscaled| decimal_f64(Decimal { unscaled, scale })))
                .collect()
        }
        _ => arrow_cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
    })
}

/// The double nearest to a decimal.
pub fn decimal_f64(n: Decimal) -> f64 {
    n.to_string().parse().unwrap_or(0.0)
}

/// The number that a text starts with, or 0.
pub fn leading_f64(text: &str) -> f64 {
    leading_number(text).parse().unwrap_or(0.0)
}

/// The longest front of a text that is a number; `0` if there is none.
pub fn leading_number(text: &str) -> &str {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let start = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = digits(start);
    let mut count = end - start;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction - end - 1;
        end = fraction;
    }
    if count == 0 {
        return "0";
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    text.get(..end).unwrap_or("0")
}

/// As a signed integer, rounded; out of range becomes the nearest end.
pub fn to_i64(array: &ArrayRef) -> SqlResult<Int64Array> {
    Ok(match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().clone(),
        DataType::Null => Int64Array::new_null(array.len()),
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            array.iter().map(|days| days.map(temporal::date_number)).collect()
        }
        DataType::Timestamp(_, _) => {
            let array = to_datetime(array)?;
            array.iter().map(|us| us.map(temporal::datetime_number)).collect()
        }
        DataType::Decimal128(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            let array = array.as_primitive::<Decimal128Type>();
            array.iter().map(|n| n.map(|unscaled| round_i64(Decimal { unscaled, scale }))).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            let array = to_f64(array)?;
            array.iter().map(|n| n.map(|n| n.round() as i64)).collect()
        }
        ty if is_string(ty) => {
            let array = to_strings(array)?;
            array.iter().map(|text| text.map(leading_i64)).collect()
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            array.iter().map(|n| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX))).collect()
        }
        _ => arrow_cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
    })
}

fn leading_i64(text: &str) -> i64 {
    let number = leading_number(text);
    number.parse().unwrap_or_else(|_| leading_f64(number).round() as i64)
}

fn round_i64(n: Decimal) -> i64 {
    let whole = n.rescale(0).map_or(0, |n| n.unscaled);
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

/// As an unsigned integer; negative numbers wrap as MySQL's CAST … AS UNSIGNED does.
pub fn to_u64(array: &ArrayRef) -> SqlResult<UInt64Array> {
    Ok(match array.data_type() {
        DataType::UInt64 => array.as_primitive::<UInt64Type>().clone(),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
            arrow_cast(array, &DataType::UInt64)?.as_primitive::<UInt64Type>().clone()
        }
        DataType::Decimal128(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            let array = array.as_primitive::<Decimal128Type>();
            let round = |unscaled| {
                let whole = Decimal { unscaled, scale }.rescale(0).map_or(0, |n| n.unscaled);
                u64::try_from(whole).unwrap_or(if whole < 0 { 0 } else { u64::MAX })
            };
            array.iter().map(|n| n.map(round)).collect()
        }
        ty if is_string(ty) => {
            let array = to_strings(array)?;
            let read = |text: &str| {
                let number = leading_number(text);
                number.parse().unwrap_or_else(|_| leading_i64(number) as u64)
            };
            array.iter().map(|text| text.map(read)).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            let wrap = |n: f64| if n < 0.0 { n.round() as i64 as u64 } else { n.round() as u64 };
            to_f64(array)?.iter().map(|n| n.map(wrap)).collect()
        }
        _ => to_i64(array)?.iter().map(|n| n.map(|n| n as u64)).collect(),
    })
}

/// As a decimal of a scale, rounded half away from zero; beyond the precision it becomes the
/// largest such number.
pub fn to_decimal(array: &ArrayRef, precision: u8, scale: i8) -> SqlResult<Decimal128Array> {
    let digits = u8::try_from(scale).unwrap_or(0);
    let most = 10i128.checked_pow(u32::from(precision)).map_or(i128::MAX, |n| n - 1);
    let fit = |n: Decimal| match n.rescale(digits) {
        Some(n) => n.unscaled.clamp(-most, most),
        None => most * n.unscaled.signum(),
    };
    let values: Decimal128Array = match array.data_type() {
        // The same numbers, with more digits allowed.
        DataType::Decimal128(fewer, from) if *from == scale && *fewer <= precision => {
            array.as_primitive::<Decimal128Type>().clone()
        }
        DataType::Decimal128(_, from) => {
            let from = u8::try_from(*from).unwrap_or(0);
            let array = array.as_primitive::<Decimal128Type>();
            array.iter().map(|n| n.map(|unscaled| fit(Decimal { unscaled, scale: from }))).collect()
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            let whole = |n: u64| fit(Decimal { unscaled: i128::from(n), scale: 0 });
            array.iter().map(|n| n.map(whole)).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            to_f64(array)?.iter().map(|n| n.map(|n| fit(f64_decimal(n)))).collect()
        }
        ty if is_string(ty) => {
            let array = to_strings(array)?;
            array.iter().map(|text| text.map(|text| fit(leading_decimal(text)))).collect()
        }
        _ => {
            let whole = |n: i64| fit(Decimal { unscaled: i128::from(n), scale: 0 });
            to_i64(array)?.iter().map(|n| n.map(whole)).collect()
        }
    };
    values.with_precision_and_scale(precision, scale).map_err(|error| unknown(error.to_string()))
}

/// The decimal that a double prints as; its largest neighbour if it has more than 38 digits.
pub fn f64_decimal(n: f64) -> Decimal {
    let most = Decimal { unscaled: i128::MAX, scale: 0 };
    let least = Decimal { unscaled: -i128::MAX, scale: 0 };
    let end = if n < 0.0 { least } else { most };
    if !n.is_finite() || n.abs() >= 1e37 {
        return end;
    }
    let text = format!("{n}");
    // Doubles near zero print hundreds of digits; what lies beyond 30 rounds away.
    let cut = text.find('.').map_or(text.len(), |point| text.len().min(point + 31));
    Decimal::parse(text.get(..cut).unwrap_or("0")).unwrap_or(end)
}

/// The decimal that a text starts with.
pub fn leading_decimal(text: &str) -> Decimal {
    let number = leading_number(text);
    Decimal::parse(number).unwrap_or_else(|_| f64_decimal(leading_f64(number)))
}

/// As DATETIME; NULL where the value is no time.
pub fn to_datetime(array: &ArrayRef) -> SqlResult<TimestampMicrosecondArray> {
    Ok(match array.data_type() {
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let array = array.as_primitive::<TimestampMicrosecondType>();
            TimestampMicrosecondArray::new(array.values().clone(), array.nulls().cloned())
        }
        DataType::Timestamp(_, _) => {
            arrow_cast(array, &DATETIME)?.as_primitive::<TimestampMicrosecondType>().clone()
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            array.iter().map(|d| d.map(|d| i64::from(d) * temporal::DAY_US)).collect()
        }
        ty if is_string(ty) => {
            to_strings(array)?.iter().map(|t| t.and_then(temporal::parse_datetime)).collect()
        }
        _ => to_i64(array)?.iter().map(|n| n.and_then(temporal::from_number)).collect(),
    })
}

/// As DATE; NULL where the value is no day.
pub fn to_date(array: &ArrayRef) -> SqlResult<Date32Array> {
    Ok(match array.data_type() {
        DataType::Date32 => array.as_primitive::<Date32Type>().clone(),
        _ => {
            let day = |us: i64| i32::try_from(us.div_euclid(temporal::DAY_US)).unwrap_or(0);
            to_datetime(array)?.iter().map(|us| us.map(day)).collect()
        }
    })
}

/// Truth: whether a value is a number other than zero.
pub fn to_bool(array: &ArrayRef) -> SqlResult<BooleanArray> {
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().clone(),
        DataType::Null => BooleanArray::new_null(array.len()),
        DataType::Decimal128(_, _) => {
            array.as_primitive::<Decimal128Type>().iter().map(|n| n.map(|n| n != 0)).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            to_f64(array)?.iter().map(|n| n.map(|n| n != 0.0)).collect()
        }
        ty if is_string(ty) => to_f64(array)?.iter().map(|n| n.map(|n| n != 0.0)).collect(),
        DataType::UInt64 => {
            array.as_primitive::<UInt64Type>().iter().map(|n| n.map(|n| n != 0)).collect()
        }
        _ => to_i64(array)?.iter().map(|n| n.map(|n| n != 0)).collect(),
    })
}
