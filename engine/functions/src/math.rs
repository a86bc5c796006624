//! ROUND, FLOOR, ABS and the rest of the numeric functions.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, UInt32Array,
};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use rand::Rng;
use types::Decimal;
use values::error::{SqlResult, no_logarithm, out_of_range};
use values::numbers::unsigned_zero;

use super::convert::{to_bits, to_bytes, to_f64, to_i64, to_strings, to_type};
use super::kinds::{MOST, decimal_type, digits_of, is_exact, is_time, is_wide, number_type};
use super::wide;
use super::{Function, double, literal_int, text, warnings, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_round", 1..=2, round_type, |a, t| round(a, t, false)),
    Function::new("mysql_truncate", 2..=2, round_type, |a, t| round(a, t, true)),
    Function::new("mysql_floor", 1..=1, whole_type, |a, t| to_whole(a, t, f64::floor, false)),
    Function::new("mysql_ceil", 1..=1, whole_type, |a, t| to_whole(a, t, f64::ceil, true)),
    Function::new("mysql_abs", 1..=1, same_number, abs),
    Function::new("mysql_sign", 1..=1, whole, sign),
    Function::new("mysql_sqrt", 1..=1, double, |a, _| {
        map("sqrt", a, |n| (n >= 0.0).then(|| n.sqrt()))
    }),
    Function::new("mysql_exp", 1..=1, double, |a, _| map("exp", a, |n| Some(n.exp()))),
    Function::new("mysql_ln", 1..=1, double, |a, _| map("ln", a, |n| logarithm(n, f64::ln))),
    Function::new("mysql_log2", 1..=1, double, |a, _| map("log2", a, |n| logarithm(n, f64::log2))),
    Function::new("mysql_log10", 1..=1, double, |a, _| {
        map("log10", a, |n| logarithm(n, f64::log10))
    }),
    Function::new("mysql_pow", 2..=2, double, |a, _| map2("pow", a, f64::powf)),
    Function::new("mysql_atan2", 2..=2, double, |a, _| map2("atan2", a, f64::atan2)),
    Function::new("mysql_sin", 1..=1, double, |a, _| map("sin", a, |n| Some(n.sin()))),
    Function::new("mysql_cos", 1..=1, double, |a, _| map("cos", a, |n| Some(n.cos()))),
    Function::new("mysql_tan", 1..=1, double, |a, _| map("tan", a, |n| Some(n.tan()))),
    Function::new("mysql_asin", 1..=1, double, |a, _| map("asin", a, |n| Some(n.asin()))),
    Function::new("mysql_acos", 1..=1, double, |a, _| map("acos", a, |n| Some(n.acos()))),
    Function::new("mysql_atan", 1..=2, double, |a, _| match a {
        [_, _] => map2("atan", a, f64::atan2),
        _ => map("atan", a, |n| Some(n.atan())),
    }),
    Function::new("mysql_radians", 1..=1, double, |a, _| {
        map("radians", a, |n| Some(n.to_radians()))
    }),
    Function::new("mysql_degrees", 1..=1, double, |a, _| {
        map("degrees", a, |n| Some(n.to_degrees()))
    }),
    Function::new("mysql_pi", 0..=0, double, |a, _| {
        Ok(Arc::new(Float64Array::from(vec![std::f64::consts::PI; a[0].len()])))
    }),
    Function {
        volatile: true,
        ..Function::new("mysql_rand", 0..=0, double, |a, _| {
            let mut random = rand::rng();
            Ok(Arc::new(
                (0..a[0].len()).map(|_| Some(random.random::<f64>())).collect::<Float64Array>(),
            ))
        })
    },
    Function::new("mysql_cot", 1..=1, double, cot),
    Function::new("mysql_interval", 2..=999, whole, interval),
    Function::new("mysql_bit_and", 2..=2, unsigned, |a, _| bits(a, |x, y| x & y)),
    Function::new("mysql_bit_or", 2..=2, unsigned, |a, _| bits(a, |x, y| x | y)),
    Function::new("mysql_bit_xor", 2..=2, unsigned, |a, _| bits(a, |x, y| x ^ y)),
    Function::new("mysql_shift_left", 2..=2, unsigned, |a, _| {
        bits(a, |x, n| u32::try_from(n).ok().and_then(|n| x.checked_shl(n)).unwrap_or(0))
    }),
    Function::new("mysql_shift_right", 2..=2, unsigned, |a, _| {
        bits(a, |x, n| u32::try_from(n).ok().and_then(|n| x.checked_shr(n)).unwrap_or(0))
    }),
    Function::new("mysql_crc32", 1..=1, |_, _| Ok(DataType::UInt32), crc32),
    Function::new("mysql_conv", 3..=3, text, conv),
];

fn unsigned(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::UInt64)
}

fn first(types: &[DataType]) -> DataType {
    types.first().map_or(DataType::Int64, number_type)
}

fn same_number(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(first(types))
}

fn whole_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match first(types) {
        DataType::Decimal128(p, s) if i16::from(p) - i16::from(s) > 18 => {
            DataType::Decimal128(p.saturating_sub(s as u8).saturating_add(1).min(38), 0)
        }
        DataType::Decimal128(_, _) => DataType::Int64,
        DataType::Decimal256(p, s) if i16::from(p) - i16::from(s) > 18 => {
            decimal_type(p.saturating_sub(s as u8).saturating_add(1).min(MOST), 0)
        }
        DataType::Decimal256(_, _) => DataType::Int64,
        ty => ty,
    })
}

fn round_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match first(types) {
        ty if digits_of(&ty).is_some() => {
            let (p, s) = digits_of(&ty).unwrap_or_default();
            let room = i16::from(if is_wide(&ty) { MOST } else { 38 });
            let digits = if types.len() < 2 { Some(0) } else { literal_int(literals, 1) };
            let whole = i16::from(p) - i16::from(s) + 1;
            // More digits than there are become zeros, as long as the number has room for them.
            let most = (room - whole).min(30).max(i16::from(s));
            let scale = digits.map_or(i16::from(s), |d| d.clamp(0, i64::from(most)) as i16);
            decimal_type((whole + scale).clamp(1, room) as u8, scale as i8)
        }
        ty => ty,
    })
}

/// A TIME as the exact number HHMMSS that it is among numbers; anything else as it is.
fn without_time(array: &ArrayRef) -> SqlResult<ArrayRef> {
    match array.data_type() {
        ty if is_time(ty) => to_type(array, &number_type(ty)),
        _ => Ok(array.clone()),
    }
}

fn round(args: &[ArrayRef], ty: &DataType, cut: bool) -> SqlResult<ArrayRef> {
    let number = without_time(&args[0])?;
    let digits = match args.get(1) {
        Some(digits) => to_i64(digits)?,
        None => Int64Array::from(vec![0; args[0].len()]),
    };
    match ty {
        _ if is_wide(ty) || is_wide(number.data_type()) => {
            wide::round(&number, digits.iter(), ty, cut)
        }
        DataType::Float64 => {
            let numbers = to_f64(&number)?;
            let rounded =
                numbers.iter().zip(digits.iter()).map(|(n, d)| Some(round_double(n?, d?, cut)));
            Ok(Arc::new(rounded.collect::<Float64Array>()))
        }
        DataType::Decimal128(p, s) => {
            let from = match number_type(number.data_type()) {
                DataType::Decimal128(_, from) => from as u8,
                _ => 0,
            };
            let numbers = number.as_primitive::<Decimal128Type>();
            let rounded = numbers.iter().zip(digits.iter()).map(|(n, d)| {
                let (Some(n), Some(d)) = (n, d) else { return Ok(None) };
                let d = d.clamp(-38, i64::from(from));
                round_exact(n, i64::from(from) - d, cut)
                    .and_then(|unscaled| Decimal { unscaled, scale: from }.rescale(*s as u8))
                    .map(|n| Some(n.unscaled))
                    .ok_or_else(|| out_of_range("DECIMAL", "round"))
            });
            let rounded = rounded.collect::<SqlResult<Decimal128Array>>()?;
            rounded
                .with_precision_and_scale(*p, *s)
                .map(|a| Arc::new(a) as ArrayRef)
                .map_err(|_| out_of_range("DECIMAL", "round"))
        }
        _ => {
            let numbers = to_type(&number, &DataType::Decimal128(38, 0))?;
            let numbers = numbers.as_primitive::<Decimal128Type>();
            let (name, ends) = match ty {
                DataType::UInt64 => ("BIGINT UNSIGNED", 0..=i128::from(u64::MAX)),
                _ => ("BIGINT", i128::from(i64::MIN)..=i128::from(i64::MAX)),
            };
            let rounded = numbers.iter().zip(digits.iter()).map(|(n, d)| {
                let (Some(n), Some(d)) = (n, d) else { return Ok(None) };
                let rounded = round_exact(n, -d.clamp(-38, 0), cut).filter(|n| ends.contains(n));
                rounded.map(Some).ok_or_else(|| out_of_range(name, "round"))
            });
            let rounded = rounded.collect::<SqlResult<Decimal128Array>>()?;
            let rounded: ArrayRef = Arc::new(
                rounded
                    .with_precision_and_scale(38, 0)
                    .map_err(|_| out_of_range("BIGINT", "round"))?,
            );
            to_type(&rounded, ty)
        }
    }
}

/// A double rounded to so many digits, halves to even, or cut to them.
pub(super) fn round_double(n: f64, digits: i64, cut: bool) -> f64 {
    let digits = digits.clamp(-400, 400) as i32;
    let factor = 10f64.powi(digits.abs());
    if digits < 0 && factor.is_infinite() {
        return 0.0;
    }
    let scaled = if digits >= 0 { n * factor } else { n / factor };
    if !scaled.is_finite() {
        return n;
    }
    let whole = if cut { scaled.trunc() } else { scaled.round_ties_even() };
    let result = if digits >= 0 { whole / factor } else { whole * factor };
    unsigned_zero(if result.is_finite() { result } else { n })
}

/// `n` with its last `digits` digits rounded or cut to zero.
fn round_exact(n: i128, digits: i64, cut: bool) -> Option<i128> {
    if digits <= 0 {
        return Some(n);
    }
    let Some(unit) = 10i128.checked_pow(digits as u32) else { return Some(0) };
    let rest = n % unit;
    let down = n - rest;
    // The half of a power of ten is whole: twice the rest might be too large.
    if !cut && rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2) {
        return down.checked_add(unit.checked_mul(n.signum())?);
    }
    Some(down)
}

fn to_whole(args: &[ArrayRef], ty: &DataType, of: fn(f64) -> f64, up: bool) -> SqlResult<ArrayRef> {
    let number = without_time(&args[0])?;
    match number.data_type() {
        DataType::Decimal256(..) => to_type(&wide::to_whole(&number, up)?, ty),
        DataType::Decimal128(_, scale) => {
            let unit = 10i128.pow(u32::from(scale.unsigned_abs()));
            let numbers = number.as_primitive::<Decimal128Type>();
            let wholes = numbers.iter().map(|n| {
                let n = n?;
                n.div_euclid(unit).checked_add(i128::from(up && n.rem_euclid(unit) != 0))
            });
            let wholes = wholes.collect::<Decimal128Array>();
            let wholes = wholes
                .with_precision_and_scale(38, 0)
                .map_err(|_| out_of_range("DECIMAL", "floor"))?;
            to_type(&(Arc::new(wholes) as ArrayRef), ty)
        }
        _ if *ty == DataType::Float64 => map("floor", args, |n| Some(of(n))),
        _ => to_type(&number, ty),
    }
}

fn abs(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let numbers = to_type(&args[0], ty)?;
    Ok(match ty {
        DataType::Float64 => map("abs", &[numbers], |n| Some(n.abs()))?,
        DataType::Decimal256(..) => wide::abs(&numbers, ty)?,
        DataType::Decimal128(p, s) => {
            let numbers = numbers.as_primitive::<Decimal128Type>();
            let positive: Decimal128Array = numbers.unary(i128::saturating_abs);
            Arc::new(
                positive
                    .with_precision_and_scale(*p, *s)
                    .map_err(|_| out_of_range("DECIMAL", "abs"))?,
            )
        }
        DataType::Int64 => {
            let positive = numbers.as_primitive::<Int64Type>().iter().map(|n| {
                n.map(|n| n.checked_abs().ok_or_else(|| out_of_range("BIGINT", "abs"))).transpose()
            });
            Arc::new(positive.collect::<SqlResult<Int64Array>>()?)
        }
        _ => numbers,
    })
}

fn sign(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let signs = to_f64(&args[0])?;
    let signs = signs.iter().map(|n| n.map(|n| if n > 0.0 { 1 } else { -i64::from(n < 0.0) }));
    Ok(Arc::new(signs.collect::<Int64Array>()))
}

/// A logarithm; NULL, with a warning, of what has none.
fn logarithm(n: f64, of: fn(f64) -> f64) -> Option<f64> {
    if n <= 0.0 {
        warnings::warn(no_logarithm);
        return None;
    }
    Some(of(n))
}

/// NULL where there is no number; error 1690 where it is beyond all doubles.
fn map(name: &str, args: &[ArrayRef], f: impl Fn(f64) -> Option<f64>) -> SqlResult<ArrayRef> {
    let numbers = to_f64(&args[0])?;
    let results = numbers.iter().map(|n| match n.and_then(&f) {
        Some(n) if n.is_infinite() => Err(out_of_range("DOUBLE", name)),
        n => Ok(n.filter(|n| !n.is_nan()).map(unsigned_zero)),
    });
    Ok(Arc::new(results.collect::<SqlResult<Float64Array>>()?))
}

fn map2(name: &str, args: &[ArrayRef], f: fn(f64, f64) -> f64) -> SqlResult<ArrayRef> {
    let (a, b) = (to_type(&args[0], &DataType::Float64)?, to_type(&args[1], &DataType::Float64)?);
    let pairs = a.as_primitive::<Float64Type>().iter().zip(b.as_primitive::<Float64Type>().iter());
    let results = pairs.map(|(a, b)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        let n = f(a, b);
        if n.is_finite() { Ok(Some(unsigned_zero(n))) } else { Err(out_of_range("DOUBLE", name)) }
    });
    Ok(Arc::new(results.collect::<SqlResult<Float64Array>>()?))
}

fn cot(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let results = to_f64(&args[0])?;
    let results = results.iter().map(|n| {
        let Some(n) = n else { return Ok(None) };
        let cot = n.tan().recip();
        if cot.is_finite() { Ok(Some(cot)) } else { Err(out_of_range("DOUBLE", "cot")) }
    });
    Ok(Arc::new(results.collect::<SqlResult<Float64Array>>()?))
}

/// INTERVAL(n, a, b, …): how many of the ascending numbers behind it are not larger; -1 for NULL.
fn interval(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (first, bounds) = args.split_first().ok_or_else(|| out_of_range("BIGINT", "interval"))?;
    let compared = bounds.iter().map(|bound| compared(first, bound));
    let compared = compared.collect::<SqlResult<Vec<Vec<Option<Ordering>>>>>()?;
    let nothing = to_f64(first)?;
    let counts = (0..first.len()).map(|row| match nothing.is_null(row) {
        true => -1,
        // A bound that is NULL is passed by.
        false => {
            let reached = |bound: &&Vec<Option<Ordering>>| bound[row] != Some(Ordering::Less);
            compared.iter().take_while(reached).count() as i64
        }
    });
    Ok(Arc::new(counts.map(Some).collect::<Int64Array>()))
}

/// How the numbers of two columns compare: exact ones as such, all others as doubles.
pub(super) fn compared(a: &ArrayRef, b: &ArrayRef) -> SqlResult<Vec<Option<Ordering>>> {
    if is_exact(a.data_type()) && is_exact(b.data_type()) {
        return wide::compared(a, b);
    }
    let (a, b) = (to_f64(a)?, to_f64(b)?);
    Ok(a.iter().zip(b.iter()).map(|(a, b)| a?.partial_cmp(&b?)).collect())
}

fn bits(args: &[ArrayRef], f: fn(u64, u64) -> u64) -> SqlResult<ArrayRef> {
    let (a, b) = (to_bits(&args[0])?, to_bits(&args[1])?);
    let both = a.iter().zip(b.iter()).map(|(a, b)| Some(f(a?, b?)));
    Ok(Arc::new(both.collect::<arrow::array::UInt64Array>()))
}

/// The CRC-32 of zip and Ethernet (polynomial EDB88320).
fn crc32(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let sum = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
            })
        })
    };
    Ok(Arc::new(to_bytes(&args[0])?.iter().map(|b| b.map(sum)).collect::<UInt32Array>()))
}

/// CONV: a number from one base to another. A negative one is its complement in 64 bits, unless
/// the target base is negative, which asks for a sign.
fn conv(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (numbers, from, to) = (to_strings(&args[0])?, to_i64(&args[1])?, to_i64(&args[2])?);
    let rows = numbers.iter().zip(from.iter()).zip(to.iter());
    let rows = rows.map(|((number, from), to)| converted(number?, from?, to?));
    Ok(Arc::new(rows.collect::<arrow::array::StringArray>()))
}

/// CONV(number, from, to): the digits that the number's text begins with, in another base. BIN and OCT
/// are CONV, too, so that of a DOUBLE they see what stands before the point.
pub(super) fn converted(number: &str, from: i64, to: i64) -> Option<String> {
    let number = Some(number).filter(|number| !number.is_empty())?.trim();
    let base = |n: i64| u32::try_from(n.unsigned_abs()).ok().filter(|n| (2..=36).contains(n));
    let (from, base) = (base(from)?, base(to)?);
    let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
    let value = digits.chars().map_while(|c| c.to_digit(from)).fold(0u64, |sum, digit| {
        sum.saturating_mul(u64::from(from)).saturating_add(u64::from(digit))
    });
    let value = if number.starts_with('-') { value.wrapping_neg() } else { value };
    let signed = value as i64;
    Some(if to < 0 && signed < 0 {
        format!("-{}", in_base(signed.unsigned_abs(), base))
    } else {
        in_base(value, base)
    })
}

fn in_base(mut n: u64, base: u32) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = (n % u64::from(base)) as u32;
        digits.push(char::from_digit(digit, base).unwrap_or('0').to_ascii_uppercase());
        n /= u64::from(base);
        if n == 0 {
            break;
        }
    }
    digits.into_iter().rev().collect()
}
