//! `+ - * / DIV % -x` with MySQL's types: exact stays exact, `/` gains four digits, division by
//! zero is NULL, and a number that leaves its type is error 1690 rather than a wrong one.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, UInt64Array,
};
use arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, i256};
use datafusion::common::{Result, ScalarValue};
use types::decimal::DECIMAL_MAX_PRECISION;
use values::error::{SqlResult, out_of_range};
use values::numbers::unsigned_zero;

use super::convert::{to_strings, to_type};
use super::decimal::{decimals, exact, power, quotients};
use super::kinds::{MOST, is_time, is_wide, number_type, scale_of};
use super::operators::{
    Op, all_digits_type, int_div_type, is_double, mod_type, neg_type, product_type, quotient_type,
    sum_type,
};
use super::{Function, warnings, wide};

/// Digits of the type that DataFusion gives to a sum of decimals of 38; sums of wider ones have more.
const NARROW_SUM: u8 = DECIMAL_MAX_PRECISION + 10;

/// The operators.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_add", 2..=2, |t, _| sum_type(t), |a, t| binary(Op::Add, a, t)),
    Function::new("mysql_sub", 2..=2, |t, _| sum_type(t), |a, t| binary(Op::Sub, a, t)),
    Function::new("mysql_mul", 2..=2, |t, _| product_type(t), |a, t| binary(Op::Mul, a, t)),
    Function::new("mysql_div", 2..=2, |t, _| quotient_type(t), |a, t| binary(Op::Div, a, t)),
    Function::new("mysql_quotient", 2..=2, |t, _| all_digits_type(t), quotient),
    Function::new("mysql_int_div", 2..=2, |t, _| int_div_type(t), int_div),
    Function::new("mysql_mod", 2..=2, |t, _| mod_type(t), |a, t| binary(Op::Mod, a, t)),
    Function::new("mysql_neg", 1..=1, |t, _| neg_type(t), neg),
    Function::new("sum_arg", 1..=1, sum_arg_type, |a, t| wide::summand(&a[0], t)),
    Function::new("sum_result", 1..=1, sum_result_type, sum_result),
    Function::new("isobar_finite", 2..=2, super::double, finite_result),
];

/// SUM's argument: exact numbers become decimals so wide that SUM's type is MySQL's (22 digits
/// more; DataFusion's own SUM adds 10 of them).
fn sum_arg_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match types.first() {
        Some(DataType::Int8 | DataType::UInt8) => DataType::Decimal128(15, 0),
        Some(DataType::Int16 | DataType::UInt16) => DataType::Decimal128(17, 0),
        Some(DataType::Int32 | DataType::UInt32) => DataType::Decimal128(22, 0),
        Some(DataType::Boolean) => DataType::Decimal128(13, 0),
        // Fewer digits cannot leave 38 in as many rows as there may be.
        Some(DataType::Decimal128(p, s)) if *p > 20 => DataType::Decimal256(38, *s),
        Some(DataType::Decimal128(p, s)) => DataType::Decimal128((*p + 12).min(38), *s),
        Some(DataType::Decimal256(p, s)) => DataType::Decimal256(*p, *s),
        Some(ty) if number_type(ty) == DataType::Float64 => DataType::Float64,
        Some(ty) if is_time(ty) => DataType::Decimal128(19, 6),
        _ => DataType::Decimal128(31, 0),
    })
}

fn sum_result_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match types.first() {
        Some(DataType::Decimal256(p, scale)) if *p <= NARROW_SUM => {
            DataType::Decimal128(38, *scale)
        }
        Some(DataType::Decimal256(p, scale)) => DataType::Decimal256((*p + 12).min(MOST), *scale),
        Some(other) => other.clone(),
        None => DataType::Null,
    })
}

/// A sum of decimals, which DataFusion adds without looking, back to the digits there are.
fn sum_result(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    if is_wide(ty) {
        let sums = args[0].as_primitive::<Decimal256Type>().iter();
        return wide::typed(sums.map(Ok), ty, "sum");
    }
    if *ty == DataType::Float64 {
        return finite(&args[0], "sum");
    }
    let (DataType::Decimal256(..), DataType::Decimal128(precision, scale)) =
        (args[0].data_type(), ty)
    else {
        return Ok(args[0].clone());
    };
    let largest = 10i128.pow(u32::from(*precision)) - 1;
    let narrow = |sum: i256| {
        let sum = sum.to_i128().filter(|sum| (-largest..=largest).contains(sum));
        sum.ok_or_else(|| out_of_range("DECIMAL", "sum"))
    };
    let sums =
        args[0].as_primitive::<Decimal256Type>().iter().map(|sum| sum.map(narrow).transpose());
    let sums: Decimal128Array = sums.collect::<SqlResult<_>>()?;
    let sums = sums.with_precision_and_scale(*precision, *scale);
    Ok(Arc::new(sums?))
}

/// Doubles that an aggregate gives: one of more than there is ends beyond them, or nowhere.
fn finite(numbers: &ArrayRef, name: &str) -> SqlResult<ArrayRef> {
    let doubles = to_type(numbers, &DataType::Float64)?;
    match doubles.as_primitive::<Float64Type>().iter().flatten().all(f64::is_finite) {
        true => Ok(doubles),
        false => Err(out_of_range("DOUBLE", name)),
    }
}

/// The same of an aggregate whose name stands behind it.
fn finite_result(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let names = to_strings(&args[1])?;
    finite(&args[0], names.iter().next().flatten().unwrap_or("double"))
}

fn binary(op: Op, args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let (a, b) = (&args[0], &args[1]);
    match ty {
        DataType::Float64 => doubles(op, a, b),
        DataType::Int64 | DataType::UInt64 => integers(op, a, b, ty),
        _ => decimals(op, a, b, ty),
    }
}

/// `/` with the digits that it is computed with, none of them rounded.
fn quotient(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    match ty {
        DataType::Decimal128(precision, scale) => quotients(&args[0], &args[1], *precision, *scale),
        _ => binary(Op::Div, args, ty),
    }
}

fn doubles(op: Op, a: &ArrayRef, b: &ArrayRef) -> SqlResult<ArrayRef> {
    let a = to_type(a, &DataType::Float64)?;
    let b = to_type(b, &DataType::Float64)?;
    let pairs = a.as_primitive::<Float64Type>().iter().zip(b.as_primitive::<Float64Type>().iter());
    let compute = |(a, b): (Option<f64>, Option<f64>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        let n = match op {
            Op::Add => a + b,
            Op::Sub => a - b,
            Op::Mul => a * b,
            Op::Div | Op::Mod if b == 0.0 => {
                warnings::division();
                return Ok(None);
            }
            Op::Div => a / b,
            Op::Mod => a % b,
        };
        if n.is_finite() {
            Ok(Some(unsigned_zero(n)))
        } else {
            Err(out_of_range("DOUBLE", op.symbol()))
        }
    };
    Ok(Arc::new(pairs.map(compute).collect::<SqlResult<Float64Array>>()?))
}

fn integers(op: Op, a: &ArrayRef, b: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    let signed = |array: &ArrayRef| number_type(array.data_type()) == DataType::Int64;
    if *ty == DataType::Int64 && signed(a) && signed(b) {
        return signed_integers(op, a, b);
    }
    let (a, b) = (exact(a)?, exact(b)?);
    let compute = |(a, b): (Option<i128>, Option<i128>)| match (op, a, b) {
        (_, None, _) | (_, _, None) => None,
        (Op::Div | Op::Mod, _, Some(0)) => {
            warnings::division();
            None
        }
        (Op::Add, Some(a), Some(b)) => Some(a + b),
        (Op::Sub, Some(a), Some(b)) => Some(a - b),
        (Op::Mul, Some(a), Some(b)) => Some(a.saturating_mul(b)),
        (Op::Div, Some(a), Some(b)) => Some(a / b),
        (Op::Mod, Some(a), Some(b)) => Some(a % b),
    };
    narrow(a.iter().zip(b.iter()).map(compute), ty, op.symbol())
}

fn signed_integers(op: Op, a: &ArrayRef, b: &ArrayRef) -> SqlResult<ArrayRef> {
    let a = to_type(a, &DataType::Int64)?;
    let b = to_type(b, &DataType::Int64)?;
    let pairs = a.as_primitive::<Int64Type>().iter().zip(b.as_primitive::<Int64Type>().iter());
    let compute = |(a, b): (Option<i64>, Option<i64>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        let n = match op {
            Op::Add => a.checked_add(b),
            Op::Sub => a.checked_sub(b),
            Op::Mul => a.checked_mul(b),
            Op::Div | Op::Mod if b == 0 => {
                warnings::division();
                return Ok(None);
            }
            Op::Div => a.checked_div(b),
            Op::Mod => Some(a.wrapping_rem(b)),
        };
        n.map(Some).ok_or_else(|| out_of_range("BIGINT", op.symbol()))
    };
    Ok(Arc::new(pairs.map(compute).collect::<SqlResult<Int64Array>>()?))
}

fn narrow(
    numbers: impl Iterator<Item = Option<i128>>,
    ty: &DataType,
    symbol: &str,
) -> SqlResult<ArrayRef> {
    if *ty == DataType::UInt64 {
        let fit = |n: Option<i128>| {
            let fail = |_| out_of_range("BIGINT UNSIGNED", symbol);
            n.map(|n| u64::try_from(n).map_err(fail)).transpose()
        };
        return Ok(Arc::new(numbers.map(fit).collect::<SqlResult<UInt64Array>>()?));
    }
    let fit = |n: Option<i128>| {
        n.map(|n| i64::try_from(n).map_err(|_| out_of_range("BIGINT", symbol))).transpose()
    };
    Ok(Arc::new(numbers.map(fit).collect::<SqlResult<Int64Array>>()?))
}

/// DIV: the quotient cut to a whole number.
fn int_div(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let (a, b) = (&args[0], &args[1]);
    let (ta, tb) = (number_type(a.data_type()), number_type(b.data_type()));
    if is_double(&ta, &tb) || is_wide(&ta) || is_wide(&tb) {
        return narrow(wide::int_div(a, b)?.into_iter(), ty, "DIV");
    }
    let (sa, sb) = (scale_of(a), scale_of(b));
    let scale = sa.max(sb);
    let (a, b) = (exact(a)?, exact(b)?);
    let (fa, fb) = (power(scale - sa), power(scale - sb));
    let quotients = a.iter().zip(b.iter()).map(|(a, b)| {
        let (a, b) = (a?, b?);
        if b == 0 {
            warnings::division();
            return None;
        }
        let (a, b) = (i256::from_i128(a), i256::from_i128(b));
        // Less than 256 bits: each of 38 digits and as many zeros.
        let quotient =
            a.wrapping_mul(i256::from_i128(fa)).wrapping_div(b.wrapping_mul(i256::from_i128(fb)));
        Some(quotient.to_i128().unwrap_or(i128::MAX))
    });
    narrow(quotients, ty, "DIV")
}

fn neg(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let zero: ArrayRef = Arc::new(Int64Array::from(vec![0; args[0].len()]));
    if *ty == DataType::Float64 {
        let numbers = to_type(&args[0], ty)?;
        let negated = numbers.as_primitive::<Float64Type>().iter().map(|n| n.map(|n| 0.0 - n));
        return Ok(Arc::new(negated.collect::<Float64Array>()));
    }
    binary(Op::Sub, &[zero, args[0].clone()], ty)
}
