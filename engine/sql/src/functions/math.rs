//! ROUND, FLOOR, ABS and the rest of the numeric functions.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, UInt32Array,
};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use rand::Rng;
use types::Decimal;

use super::convert::{number_type, to_f64, to_i64, to_strings, to_type, to_u64};
use super::{Function, double, literal_int, text, whole};
use crate::error::{SqlResult, out_of_range};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_round", 1..=2, round_type, |a, t| round(a, t, false)),
    Function::new("mysql_truncate", 2..=2, round_type, |a, t| round(a, t, true)),
    Function::new("mysql_floor", 1..=1, whole_type, |a, t| to_whole(a, t, f64::floor, false)),
    Function::new("mysql_ceil", 1..=1, whole_type, |a, t| to_whole(a, t, f64::ceil, true)),
    Function::new("mysql_abs", 1..=1, same_number, abs),
    Function::new("mysql_sign", 1..=1, whole, sign),
    Function::new("mysql_sqrt", 1..=1, double, |a, _| map(a, |n| (n >= 0.0).then(|| n.sqrt()))),
    Function::new("mysql_exp", 1..=1, double, |a, _| map(a, |n| Some(n.exp()))),
    Function::new("mysql_ln", 1..=1, double, |a, _| map(a, |n| (n > 0.0).then(|| n.ln()))),
    Function::new("mysql_log2", 1..=1, double, |a, _| map(a, |n| (n > 0.0).then(|| n.log2()))),
    Function::new("mysql_log10", 1..=1, double, |a, _| map(a, |n| (n > 0.0).then(|| n.log10()))),
    Function::new("mysql_pow", 2..=2, double, |a, _| map2(a, f64::powf)),
    Function::new("mysql_atan2", 2..=2, double, |a, _| map2(a, f64::atan2)),
    Function::new("mysql_sin", 1..=1, double, |a, _| map(a, |n| Some(n.sin()))),
    Function::new("mysql_cos", 1..=1, double, |a, _| map(a, |n| Some(n.cos()))),
    Function::new("mysql_tan", 1..=1, double, |a, _| map(a, |n| Some(n.tan()))),
    Function::new("mysql_asin", 1..=1, double, |a, _| map(a, |n| Some(n.asin()))),
    Function::new("mysql_acos", 1..=1, double, |a, _| map(a, |n| Some(n.acos()))),
    Function::new("mysql_atan", 1..=1, double, |a, _| map(a, |n| Some(n.atan()))),
    Function::new("mysql_radians", 1..=1, double, |a, _| map(a, |n| Some(n.to_radians()))),
    Function::new("mysql_degrees", 1..=1, double, |a, _| map(a, |n| Some(n.to_degrees()))),
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
            DataType::Decimal128((p - s as u8 + 1).min(38), 0)
        }
        DataType::Decimal128(_, _) => DataType::Int64,
        ty => ty,
    })
}

fn round_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match first(types) {
        DataType::Decimal128(p, s) => {
            let digits = if types.len() < 2 { Some(0) } else { literal_int(literals, 1) };
            let scale = digits.map_or(s, |d| d.clamp(0, i64::from(s)) as i8);
            let whole = i16::from(p) - i16::from(s) + 1;
            DataType::Decimal128((whole + i16::from(scale)).clamp(1, 38) as u8, scale)
        }
        ty => ty,
    })
}

fn round(args: &[ArrayRef], ty: &DataType, cut: bool) -> SqlResult<ArrayRef> {
    let digits = match args.get(1) {
        Some(digits) => to_i64(digits)?,
        None => Int64Array::from(vec![0; args[0].len()]),
    };
    match ty {
        DataType::Float64 => {
            let numbers = to_f64(&args[0])?;
            let rounded = numbers.iter().zip(digits.iter()).map(|(n, d)| {
                let (n, d) = (n?, d?.clamp(-300, 300) as i32);
                let factor = 10f64.powi(d.abs());
                let scaled = if d >= 0 { n * factor } else { n / factor };
                let whole = if cut { scaled.trunc() } else { scaled.round() };
                let result = if d >= 0 { whole / factor } else { whole * factor };
                Some(if result.is_finite() { result } else { n })
            });
            Ok(Arc::new(rounded.collect::<Float64Array>()))
        }
        DataType::Decimal128(p, s) => {
            let from = match number_type(args[0].data_type()) {
                DataType::Decimal128(_, from) => from as u8,
                _ => 0,
            };
            let numbers = args[0].as_primitive::<Decimal128Type>();
            let rounded = numbers.iter().zip(digits.iter()).map(|(n, d)| {
                let (n, d) = (n?, d?.clamp(-38, i64::from(from)));
                round_exact(n, i64::from(from) - d, cut)
                    .and_then(|unscaled| Decimal { unscaled, scale: from }.rescale(*s as u8))
                    .map(|n| n.unscaled)
            });
            let rounded = rounded.collect::<Decimal128Array>();
            rounded
                .with_precision_and_scale(*p, *s)
                .map(|a| Arc::new(a) as ArrayRef)
                .map_err(|_| out_of_range("DECIMAL", "round"))
        }
        _ => {
            let numbers = to_type(&args[0], &DataType::Decimal128(38, 0))?;
            let numbers = numbers.as_primitive::<Decimal128Type>();
            let rounded = numbers.iter().zip(digits.iter()).map(|(n, d)| {
                let (n, d) = (n?, d?.clamp(-38, 0));
                round_exact(n, -d, cut)
            });
            let rounded: ArrayRef = Arc::new(
                rounded
                    .collect::<Decimal128Array>()
                    .with_precision_and_scale(38, 0)
                    .map_err(|_| out_of_range("BIGINT", "round"))?,
            );
            to_type(&rounded, ty)
        }
    }
}

/// `n` with its last `digits` digits rounded or cut to zero.
fn round_exact(n: i128, digits: i64, cut: bool) -> Option<i128> {
    if digits <= 0 {
        return Some(n);
    }
    let Some(unit) = 10i128.checked_pow(digits as u32) else { return Some(0) };
    let rest = n % unit;
    let down = n - rest;
    if !cut && rest.unsigned_abs() * 2 >= unit.unsigned_abs() {
        return down.checked_add(unit * n.signum());
    }
    Some(down)
}

fn to_whole(args: &[ArrayRef], ty: &DataType, of: fn(f64) -> f64, up: bool) -> SqlResult<ArrayRef> {
    match args[0].data_type() {
        DataType::Decimal128(_, scale) => {
            let unit = 10i128.pow(u32::from(scale.unsigned_abs()));
            let numbers = args[0].as_primitive::<Decimal128Type>();
            let wholes = numbers
                .iter()
                .map(|n| n.map(|n| n.div_euclid(unit) + i128::from(up && n.rem_euclid(unit) != 0)));
            let wholes = wholes.collect::<Decimal128Array>();
            let wholes = wholes
                .with_precision_and_scale(38, 0)
                .map_err(|_| out_of_range("DECIMAL", "floor"))?;
            to_type(&(Arc::new(wholes) as ArrayRef), ty)
        }
        _ if *ty == DataType::Float64 => map(args, |n| Some(of(n))),
        _ => to_type(&args[0], ty),
    }
}

fn abs(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let numbers = to_type(&args[0], ty)?;
    Ok(match ty {
        DataType::Float64 => map(&[numbers], |n| Some(n.abs()))?,
        DataType::Decimal128(p, s) => {
            let positive =
                numbers.as_primitive::<Decimal128Type>().iter().map(|n| n.map(i128::abs));
            let positive = positive.collect::<Decimal128Array>();
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

fn map(args: &[ArrayRef], f: impl Fn(f64) -> Option<f64>) -> SqlResult<ArrayRef> {
    let numbers = to_f64(&args[0])?;
    Ok(Arc::new(
        numbers.iter().map(|n| n.and_then(&f).filter(|n| !n.is_nan())).collect::<Float64Array>(),
    ))
}

fn map2(args: &[ArrayRef], f: fn(f64, f64) -> f64) -> SqlResult<ArrayRef> {
    let (a, b) = (to_type(&args[0], &DataType::Float64)?, to_type(&args[1], &DataType::Float64)?);
    let pairs = a.as_primitive::<Float64Type>().iter().zip(b.as_primitive::<Float64Type>().iter());
    let results = pairs.map(|(a, b)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        let n = f(a, b);
        if n.is_finite() { Ok(Some(n)) } else { Err(out_of_range("DOUBLE", "pow")) }
    });
    Ok(Arc::new(results.collect::<SqlResult<Float64Array>>()?))
}

fn bits(args: &[ArrayRef], f: fn(u64, u64) -> u64) -> SqlResult<ArrayRef> {
    let (a, b) = (to_u64(&args[0])?, to_u64(&args[1])?);
    let both = a.iter().zip(b.iter()).map(|(a, b)| Some(f(a?, b?)));
    Ok(Arc::new(both.collect::<arrow::array::UInt64Array>()))
}

/// The CRC-32 of zip and Ethernet (polynomial EDB88320).
fn crc32(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let sum = |text: &str| {
        !text.bytes().fold(!0u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
            })
        })
    };
    Ok(Arc::new(to_strings(&args[0])?.iter().map(|s| s.map(sum)).collect::<UInt32Array>()))
}

/// CONV: a number from one base to another.
fn conv(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (numbers, from, to) = (to_strings(&args[0])?, to_i64(&args[1])?, to_i64(&args[2])?);
    let rows = numbers.iter().zip(from.iter()).zip(to.iter()).map(|((n, from), to)| {
        let (n, from, to) = (n?, u32::try_from(from?.abs()).ok()?, u32::try_from(to?.abs()).ok()?);
        if !(2..=36).contains(&from) || !(2..=36).contains(&to) {
            return None;
        }
        let value = n.trim().chars().map_while(|c| c.to_digit(from)).fold(0u64, |sum, digit| {
            sum.saturating_mul(u64::from(from)).saturating_add(u64::from(digit))
        });
        Some(in_base(value, to))
    });
    Ok(Arc::new(rows.collect::<arrow::array::StringArray>()))
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
