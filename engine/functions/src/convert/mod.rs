//! Whole columns from one type to another, as leniently as MySQL's expressions are.
//!
//! What does not convert is zero for numbers and NULL for dates; strict checks belong to DML.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    DurationMicrosecondArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type,
    Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType, UInt64Type, i256,
};
use types::value::format_double;
use types::{Decimal, Wide};
use values::error::{SqlResult, wrong_utf8};
use values::numbers::rounded;
use values::temporal;

use super::kinds::{DATETIME, is_binary, is_json, is_string, is_temporal, is_time};
use super::texts::{
    datetime_of_number, read_datetime, read_decimal, read_f64, read_i64, read_integer, read_time,
    time_of_number,
};

pub(super) mod json;
pub(super) mod wide;

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
        // The same digits in more bits, as SUM takes them.
        DataType::Decimal256(_, scale) if matches!(array.data_type(), DataType::Decimal128(_, from) if from == scale) => {
            arrow_cast(array, ty)?
        }
        DataType::Decimal256(p, s) => Arc::new(wide::to_wide(array, *p, *s)?),
        DataType::Date32 => Arc::new(to_date(array)?),
        DataType::Timestamp(TimeUnit::Microsecond, None) => Arc::new(to_datetime(array)?),
        DataType::Boolean => Arc::new(to_bool(array)?),
        DataType::Binary => Arc::new(to_bytes(array)?),
        DataType::Duration(TimeUnit::Microsecond) => Arc::new(to_time(array)?),
        ty => arrow_cast(array, ty)?,
    })
}

/// Arrow's own cast, where it means the same as MySQL's.
fn arrow_cast(array: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    cast(array, ty).map_err(Into::into)
}

/// As text.
pub fn to_strings(array: &ArrayRef) -> SqlResult<StringArray> {
    Ok(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().clone(),
        DataType::Null => StringArray::new_null(array.len()),
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            array.iter().map(|n| n.map(types::value::format_float)).collect()
        }
        DataType::Duration(_) => {
            let array = to_time(array)?;
            array.iter().map(|us| us.map(temporal::format_time_auto)).collect()
        }
        ty if is_binary(ty) => {
            let array = to_bytes(array)?;
            array.iter().map(|bytes| bytes.map(utf8).transpose()).collect::<SqlResult<_>>()?
        }
        DataType::Float64 => {
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

/// Text as what is read as a number or a time; of JSON that is the scalar without its quotes.
fn scalars(array: &ArrayRef) -> SqlResult<StringArray> {
    if is_json(array.data_type()) { json::scalars(array) } else { to_strings(array) }
}

fn utf8(bytes: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(bytes).map_err(|_| {
        let hex: String = bytes.iter().take(32).map(|byte| format!("{byte:02X}")).collect();
        wrong_utf8(hex)
    })
}

/// As bytes: text by its UTF-8, numbers and times by what they print as.
pub fn to_bytes(array: &ArrayRef) -> SqlResult<BinaryArray> {
    Ok(match array.data_type() {
        DataType::Binary => array.as_binary::<i32>().clone(),
        ty if is_binary(ty) => arrow_cast(array, &DataType::Binary)?.as_binary::<i32>().clone(),
        _ => to_strings(array)?.iter().map(|text| text.map(str::as_bytes)).collect(),
    })
}

/// As TIME; NULL where the value is none.
pub fn to_time(array: &ArrayRef) -> SqlResult<DurationMicrosecondArray> {
    Ok(match array.data_type() {
        DataType::Duration(TimeUnit::Microsecond) => {
            array.as_primitive::<DurationMicrosecondType>().clone()
        }
        DataType::Duration(_) => {
            let ty = DataType::Duration(TimeUnit::Microsecond);
            arrow_cast(array, &ty)?.as_primitive::<DurationMicrosecondType>().clone()
        }
        DataType::Date32 => {
            array.as_primitive::<Date32Type>().iter().map(|day| day.map(|_| 0)).collect()
        }
        DataType::Timestamp(_, _) => {
            let us = to_datetime(array)?;
            us.iter().map(|us| us.map(|us| us.rem_euclid(temporal::DAY_US))).collect()
        }
        ty if ty.is_integer() => {
            to_i64(array)?.iter().map(|n| n.and_then(time_of_number)).collect()
        }
        _ => scalars(array)?.iter().map(|text| text.and_then(read_time)).collect(),
    })
}

/// As a double; text by its leading number.
pub fn to_f64(array: &ArrayRef) -> SqlResult<Float64Array> {
    Ok(match array.data_type() {
        DataType::Float64 => array.as_primitive::<Float64Type>().clone(),
        ty if is_string(ty) => scalars(array)?.iter().map(|text| text.map(read_f64)).collect(),
        ty if is_binary(ty) => leading_texts(array)?.iter().map(|t| t.map(read_f64)).collect(),
        ty if is_time(ty) => {
            let number = |us| decimal_f64(temporal::time_number(us));
            to_time(array)?.iter().map(|us| us.map(number)).collect()
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
        DataType::Decimal256(_, scale) => {
            let scale = u8::try_from(*scale).unwrap_or(0);
            let double =
                |unscaled| Wide { unscaled, scale }.to_string().parse::<f64>().unwrap_or(0.0);
            array.as_primitive::<Decimal256Type>().iter().map(|n| n.map(double)).collect()
        }
        _ => arrow_cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
    })
}

/// Text or bytes as the text of the number they may start with.
pub(super) fn number_texts(array: &ArrayRef) -> SqlResult<StringArray> {
    if is_binary(array.data_type()) { leading_texts(array) } else { scalars(array) }
}

/// Bytes as the text of the number they may start with.
fn leading_texts(array: &ArrayRef) -> SqlResult<StringArray> {
    let bytes = to_bytes(array)?;
    Ok(bytes.iter().map(|bytes| bytes.map(String::from_utf8_lossy)).collect())
}

/// The double nearest to a decimal.
pub fn decimal_f64(n: Decimal) -> f64 {
    n.to_string().parse().unwrap_or(0.0)
}

/// As a signed integer, rounded: halves of a decimal away from zero, halves of a double to even;
/// of a text only its leading digits count. Out of range becomes the nearest end.
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
        DataType::Decimal256(_, scale) => {
            let clamp = |n: i128| n.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
            wholes(array, *scale).map(|n| n.map(clamp)).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            let array = to_f64(array)?;
            array.iter().map(|n| n.map(|n| n.round_ties_even() as i64)).collect()
        }
        ty if is_string(ty) => scalars(array)?.iter().map(|text| text.map(read_i64)).collect(),
        ty if is_binary(ty) => leading_texts(array)?.iter().map(|t| t.map(read_i64)).collect(),
        ty if is_time(ty) => {
            // Rounded as a time is: 23:59:59.9 is 240000.
            let number = |us| round_i64(temporal::time_number(temporal::round_time(us, 0)));
            to_time(array)?.iter().map(|us| us.map(number)).collect()
        }
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>();
            array.iter().map(|n| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX))).collect()
        }
        _ => arrow_cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone(),
    })
}

fn read_u64(text: &str) -> u64 {
    wrapped_u64(read_integer(text))
}

/// Without a sign: negative numbers wrap, too large ones are the largest.
fn wrapped_u64(n: i128) -> u64 {
    match n {
        ..0 => n.max(i128::from(i64::MIN)) as i64 as u64,
        _ => u64::try_from(n).unwrap_or(u64::MAX),
    }
}

fn round_i64(n: Decimal) -> i64 {
    let whole = n.rescale(0).map_or(0, |n| n.unscaled);
    i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX })
}

/// Wide decimals as whole numbers, rounded half away from zero; at the ends of 128 bits beyond them.
fn wholes(array: &ArrayRef, scale: i8) -> impl Iterator<Item = Option<i128>> {
    let scale = u8::try_from(scale).unwrap_or(0);
    let end = |n: i256| if n.is_negative() { i128::MIN } else { i128::MAX };
    let whole = move |unscaled| {
        let whole = Wide { unscaled, scale }.rescale(0);
        whole.and_then(|n| n.unscaled.to_i128()).unwrap_or_else(|| end(unscaled))
    };
    array.as_primitive::<Decimal256Type>().iter().map(move |n| n.map(whole))
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
                wrapped_u64(Decimal { unscaled, scale }.rescale(0).map_or(0, |n| n.unscaled))
            };
            array.iter().map(|n| n.map(round)).collect()
        }
        DataType::Decimal256(_, scale) => {
            wholes(array, *scale).map(|n| n.map(wrapped_u64)).collect()
        }
        ty if is_string(ty) => scalars(array)?.iter().map(|text| text.map(read_u64)).collect(),
        ty if is_binary(ty) => leading_texts(array)?.iter().map(|t| t.map(read_u64)).collect(),
        DataType::Float64 | DataType::Float32 => {
            let wrap = |n: f64| if n < 0.0 { n as i64 as u64 } else { n as u64 };
            to_f64(array)?.iter().map(|n| n.map(|n| wrap(n.round_ties_even()))).collect()
        }
        _ => to_i64(array)?.iter().map(|n| n.map(|n| n as u64)).collect(),
    })
}

/// As the 64 bits of operators and functions of bits: of a DOUBLE and of a DECIMAL those of the nearest BIGINT, of what spells
/// a number those of a BIGINT UNSIGNED. What BIGINT and BIGINT UNSIGNED have in common is a DECIMAL here, and neither to MySQL.
pub fn to_bits(array: &ArrayRef) -> SqlResult<UInt64Array> {
    Ok(match array.data_type() {
        DataType::Decimal128(20, 0) => to_u64(array)?,
        DataType::Decimal128(..)
        | DataType::Decimal256(..)
        | DataType::Float64
        | DataType::Float32 => to_i64(array)?.unary(i64::cast_unsigned),
        _ => to_u64(array)?,
    })
}

/// As a decimal of a scale, rounded half away from zero; beyond the precision it becomes the
/// largest such number.
pub fn to_decimal(array: &ArrayRef, precision: u8, scale: i8) -> SqlResult<Decimal128Array> {
    let digits = u8::try_from(scale).unwrap_or(0);
    let most = 10i128.checked_pow(u32::from(precision)).map_or(i128::MAX, |n| n - 1);
    let values: Decimal128Array = match array.data_type() {
        // The same numbers, with more digits allowed.
        DataType::Decimal128(fewer, from) if *from == scale && *fewer <= precision => {
            array.as_primitive::<Decimal128Type>().clone()
        }
        DataType::Decimal128(_, from) => {
            let from = u8::try_from(*from).unwrap_or(0);
            rescale(array.as_primitive(), from, digits, most)
        }
        DataType::Decimal256(..) => {
            let numbers = wide::to_wide(array, precision, scale)?;
            numbers.iter().map(|n| n.and_then(i256::to_i128)).collect()
        }
        DataType::UInt64 => {
            rescale(&array.as_primitive::<UInt64Type>().unary(i128::from), 0, digits, most)
        }
        DataType::Float64 | DataType::Float32 => {
            let fit = |n: f64| fit(f64_decimal(n), digits, most);
            to_f64(array)?.iter().map(|n| n.map(fit)).collect()
        }
        ty if is_string(ty) => {
            scalars(array)?.iter().map(|text| text.map(|t| fit_text(t, digits, most))).collect()
        }
        ty if is_binary(ty) => {
            let fit = |text: &str| fit_text(text, digits, most);
            leading_texts(array)?.iter().map(|text| text.map(fit)).collect()
        }
        ty if is_time(ty) => {
            let fit = |us: i64| fit(temporal::time_number(us), digits, most);
            to_time(array)?.iter().map(|us| us.map(fit)).collect()
        }
        _ => rescale(&to_i64(array)?.unary(i128::from), 0, digits, most),
    };
    values.with_precision_and_scale(precision, scale).map_err(Into::into)
}

/// The largest absolute value, of what lies under NULLs too.
pub(super) fn largest(numbers: &Decimal128Array) -> u128 {
    numbers.values().iter().fold(0, |most, n| most.max(n.unsigned_abs()))
}

/// Numbers of one scale with another. Whether all of them fit is asked once, of the largest.
fn rescale(numbers: &Decimal128Array, from: u8, digits: u8, most: i128) -> Decimal128Array {
    let factor = digits.checked_sub(from).and_then(|more| 10i128.checked_pow(u32::from(more)));
    let bound = factor.and_then(|factor| largest(numbers).checked_mul(factor.unsigned_abs()));
    match (factor, bound) {
        (Some(factor), Some(bound)) if bound <= most.unsigned_abs() => {
            numbers.unary(|n| n.wrapping_mul(factor))
        }
        _ => numbers.unary(|unscaled| fit(Decimal { unscaled, scale: from }, digits, most)),
    }
}

/// The unscaled number nearest to one that has so many digits after the point and is at most so
/// large.
fn fit(n: Decimal, digits: u8, most: i128) -> i128 {
    match n.rescale(digits) {
        Some(n) => n.unscaled.clamp(-most, most),
        None => most * n.unscaled.signum(),
    }
}

/// The same of the number that a text starts with.
fn fit_text(text: &str, digits: u8, most: i128) -> i128 {
    let text = read_decimal(text);
    if let Ok(n) = Decimal::parse(text) {
        return fit(n, digits, most);
    }
    let n = rounded(text, digits).and_then(Wide::narrow);
    let end = if text.starts_with('-') { -most } else { most };
    n.map_or(end, |n| n.unscaled.clamp(-most, most))
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
        ty if is_string(ty) || is_binary(ty) => {
            scalars(array)?.iter().map(|t| t.and_then(read_datetime)).collect()
        }
        // MySQL would put the present day before it, and nothing here knows the present.
        ty if is_time(ty) => {
            return Err(values::error::unsupported("a TIME in the place of a DATETIME"));
        }
        _ => to_i64(array)?.iter().map(|n| n.and_then(datetime_of_number)).collect(),
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
        DataType::Decimal256(_, _) => {
            let numbers = array.as_primitive::<Decimal256Type>();
            numbers.iter().map(|n| n.map(|n| n != i256::ZERO)).collect()
        }
        DataType::Float64 | DataType::Float32 => {
            to_f64(array)?.iter().map(|n| n.map(|n| n != 0.0)).collect()
        }
        ty if is_string(ty) || is_binary(ty) => {
            to_f64(array)?.iter().map(|n| n.map(|n| n != 0.0)).collect()
        }
        DataType::UInt64 => {
            array.as_primitive::<UInt64Type>().iter().map(|n| n.map(|n| n != 0)).collect()
        }
        _ => to_i64(array)?.iter().map(|n| n.map(|n| n != 0)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_rescaled_as_each_of_its_rows_is() {
        let most = 10i128.pow(38) - 1;
        let numbers = [0, 1, -1, 49, -50, 995, 10i128.pow(18), -10i128.pow(36), most, -most];
        for (from, digits, most) in [(0, 0, 99), (0, 2, most), (4, 2, most), (2, 37, most)] {
            for (a, b) in numbers.iter().flat_map(|a| numbers.iter().map(move |b| (*a, *b))) {
                let rows = [a, b]
                    .map(|unscaled| Some(fit(Decimal { unscaled, scale: from }, digits, most)));
                let batch = Decimal128Array::from(vec![Some(a), None, Some(b)]);
                let expected = Decimal128Array::from(vec![rows[0], None, rows[1]]);
                assert_eq!(
                    rescale(&batch, from, digits, most),
                    expected,
                    "{a} {b} {from} {digits}"
                );
            }
        }
    }
}
