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

use super::convert::{is_time, number_type, to_strings, to_type};
use super::decimal::{decimals, exact, power, quotients};
use super::wide::{self, digits_of, is_wide};
use super::{Function, warnings};

/// Digits that `/` adds to the dividend's scale (div_precision_increment).
const DIVISION_DIGITS: i8 = 4;
/// Most digits behind the point (MySQL's limit).
const MAX_SCALE: i8 = 30;
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

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl Op {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::Div => "/",
            Op::Mod => "%",
        }
    }
}

/// Integer digits and scale of an exact operand.
fn digits(ty: &DataType) -> (i16, i8) {
    match (digits_of(ty), ty) {
        (Some((precision, scale)), _) => (i16::from(precision) - i16::from(scale), scale),
        (None, DataType::UInt64) => (20, 0),
        _ => (19, 0),
    }
}

/// The type of a result of so many digits. Of narrow operands it is narrow, and what needs more is
/// error 1690: their arithmetic stays in 128 bits. With a wide operand it has all its digits.
fn decimal(operands: [&DataType; 2], whole: i16, scale: i8) -> DataType {
    let scale = scale.clamp(0, MAX_SCALE);
    let most = i16::from(match operands.into_iter().any(is_wide) {
        true => wide::MOST,
        false => DECIMAL_MAX_PRECISION,
    });
    let precision = (whole + i16::from(scale)).clamp(1, most) as u8;
    wide::decimal_type(precision.max(scale as u8), scale)
}

fn operands(types: &[DataType]) -> (DataType, DataType) {
    let of = |at: usize| types.get(at).map_or(DataType::Int64, number_type);
    (of(0), of(1))
}

fn is_double(a: &DataType, b: &DataType) -> bool {
    *a == DataType::Float64 || *b == DataType::Float64
}

fn is_decimal(ty: &DataType) -> bool {
    digits_of(ty).is_some()
}

fn integer(a: &DataType, b: &DataType) -> DataType {
    if *a == DataType::UInt64 || *b == DataType::UInt64 {
        DataType::UInt64
    } else {
        DataType::Int64
    }
}

fn sum_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        return Ok(integer(&a, &b));
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa.max(wb) + 1, sa.max(sb)))
}

fn product_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        return Ok(integer(&a, &b));
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa + wb, sa.saturating_add(sb)))
}

fn quotient_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    let ((wa, sa), (_, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa + i16::from(sb), sa + DIVISION_DIGITS))
}

/// The type of a quotient inside an expression.
fn all_digits_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) || is_wide(&a) || is_wide(&b) {
        return quotient_type(types);
    }
    let ((wa, sa), (_, sb)) = (digits(&a), digits(&b));
    let scale = scale_inside(sa, sb).min(i16::from(MAX_SCALE)) as i8;
    Ok(decimal([&a, &b], wa + i16::from(sb), scale))
}

/// Digits behind the point that MySQL computes of a quotient of operands with so many: it keeps words of nine, those of
/// both operands, and one more where they have no four digits to spare.
fn scale_inside(sa: i8, sb: i8) -> i16 {
    const WORD: i16 = 9;
    let words = |digits: i16| (digits + WORD - 1) / WORD * WORD;
    let of_both = words(i16::from(sa)) + words(i16::from(sb));
    let spare = of_both - i16::from(sa) - i16::from(sb);
    words(of_both + (i16::from(DIVISION_DIGITS) - spare).max(0))
}

/// Whether a quotient shows all digits that MySQL computes: then it is cut, as there is none to round by.
pub(super) fn shows_all(sa: i8, sb: i8, scale: i8) -> bool {
    i16::from(scale) >= scale_inside(sa, sb)
}

fn int_div_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    Ok(integer(&a, &b))
}

fn mod_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        // The remainder has the dividend's sign.
        return Ok(a);
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa.max(wb), sa.max(sb)))
}

fn neg_type(types: &[DataType]) -> Result<DataType> {
    Ok(match types.first().map(number_type) {
        Some(DataType::UInt64) | None => DataType::Int64,
        Some(ty) => ty,
    })
}

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
        Some(DataType::Decimal256(p, scale)) => {
            DataType::Decimal256((*p + 12).min(wide::MOST), *scale)
        }
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

/// A double of which zero has no sign: to MySQL both zeros are equal, to those who compare, group and join here they are not.
pub(super) fn unsigned_zero(n: f64) -> f64 {
    n + 0.0
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

/// Digits behind the point of a column of numbers.
pub(super) fn scale_of(array: &ArrayRef) -> i8 {
    digits(&number_type(array.data_type())).1
}

/// DIV: the quotient cut to a whole number.
fn int_div(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let (a, b) = (&args[0], &args[1]);
    let (ta, tb) = (number_type(a.data_type()), number_type(b.data_type()));
    if is_double(&ta, &tb) {
        let quotient = doubles(Op::Div, a, b)?;
        let cut =
            quotient.as_primitive::<Float64Type>().iter().map(|n| n.map(|n| n.trunc() as i128));
        return narrow(cut, ty, "DIV");
    }
    if is_wide(&ta) || is_wide(&tb) {
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
