//! Numbers in 256 bits: conversion to decimals of more than 38 digits.

use arrow::array::{Array, ArrayRef, AsArray, Decimal256Array};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float64Type, Int64Type, UInt64Type, i256,
};
use types::wide::{Wide, power};
use values::error::SqlResult;
use values::numbers::rounded;

use super::{number_texts, to_type};
use crate::kinds::{MOST, digits_of, number_type, scale_of};
use crate::texts::read_decimal;

/// Exact numbers as 256 bits, without their scale.
pub(crate) fn exact(array: &ArrayRef) -> SqlResult<Decimal256Array> {
    Ok(match number_type(array.data_type()) {
        DataType::UInt64 => to_type(array, &DataType::UInt64)?
            .as_primitive::<UInt64Type>()
            .unary(|n| i256::from_i128(i128::from(n))),
        ty @ DataType::Decimal128(..) => {
            to_type(array, &ty)?.as_primitive::<Decimal128Type>().unary(i256::from_i128)
        }
        DataType::Decimal256(..) => array.as_primitive::<Decimal256Type>().clone(),
        _ => to_type(array, &DataType::Int64)?.as_primitive::<Int64Type>().unary(i256::from),
    })
}

/// The largest number of so many digits.
pub(crate) fn largest(precision: u8) -> i256 {
    power(precision).map_or(i256::MAX, |n| n.wrapping_sub(i256::ONE))
}

/// Numbers as a decimal of a scale, rounded half away from zero; beyond the precision they become
/// the largest such number.
pub(crate) fn to_wide(array: &ArrayRef, precision: u8, scale: i8) -> SqlResult<Decimal256Array> {
    let digits = u8::try_from(scale).unwrap_or(0);
    // Of all that 256 bits hold, what is beyond is larger than any number of 76 digits.
    let most = if precision == MOST { i256::MAX } else { largest(precision) };
    let fit = |n: Wide| match n.rescale(digits) {
        Some(n) if n.unscaled.wrapping_abs() <= most => n.unscaled,
        _ if n.unscaled.is_negative() => most.wrapping_neg(),
        _ => most,
    };
    let of_text = |text: &str| {
        let text = read_decimal(text);
        let end = if text.starts_with('-') { most.wrapping_neg() } else { most };
        rounded(text, digits)
            .filter(|n| n.unscaled.wrapping_abs() <= most)
            .map_or(end, |n| n.unscaled)
    };
    let values: Decimal256Array = match array.data_type() {
        ty if digits_of(ty).is_some() || ty.is_integer() => {
            let from = u8::try_from(scale_of(array)).unwrap_or(0);
            exact(array)?.unary(|unscaled| fit(Wide { unscaled, scale: from }))
        }
        DataType::Float64 | DataType::Float32 => {
            let numbers = to_type(array, &DataType::Float64)?;
            let numbers = numbers.as_primitive::<Float64Type>();
            numbers.iter().map(|n| n.map(|n| of_text(&spelled(n)))).collect()
        }
        ty if number_type(ty) == DataType::Float64 => {
            let texts = number_texts(array)?;
            texts.iter().map(|text| text.map(of_text)).collect()
        }
        _ => {
            let narrow = to_type(array, &number_type(array.data_type()))?;
            return to_wide(&narrow, precision, scale);
        }
    };
    values.with_precision_and_scale(precision, scale).map_err(Into::into)
}

/// A double in digits. What is not finite spells a number beyond every decimal.
fn spelled(n: f64) -> String {
    match n.is_finite() {
        true => format!("{n}"),
        false if n < 0.0 => "-1e400".into(),
        false => "1e400".into(),
    }
}
