//! `+ - * / %` of decimals, a batch at a time.
//!
//! A result that does not fit its type is an error, never a wrong number. Whether that can happen
//! is asked once of a batch's largest operands; rows are looked at one by one only where it might.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::compute::binary;
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, UInt64Type, i256};
use values::error::{SqlResult, out_of_range};

use super::convert::{largest, to_type};
use super::kinds::{is_wide, number_type, scale_of};
use super::operators::{Op, shows_all};
use super::warnings;
use super::wide::wides;

/// `10^n`, for at most 38 digits.
pub(super) fn power(n: i8) -> i128 {
    10i128.pow(u32::from(n.unsigned_abs()).min(38))
}

/// Exact numbers as 128 bits, without their scale.
pub(super) fn exact(array: &ArrayRef) -> SqlResult<Decimal128Array> {
    Ok(match number_type(array.data_type()) {
        DataType::UInt64 => {
            to_type(array, &DataType::UInt64)?.as_primitive::<UInt64Type>().unary(i128::from)
        }
        ty @ DataType::Decimal128(..) => {
            to_type(array, &ty)?.as_primitive::<Decimal128Type>().clone()
        }
        _ => to_type(array, &DataType::Int64)?.as_primitive::<Int64Type>().unary(i128::from),
    })
}

/// The operator on two columns, as a decimal of type `ty`. Division by zero is NULL.
///
/// # Errors
///
/// 1690 where a result has more digits than `ty`.
pub(super) fn decimals(op: Op, a: &ArrayRef, b: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    if [a.data_type(), b.data_type(), ty].into_iter().any(is_wide) {
        return wides(op, a, b, ty);
    }
    let overflow = || out_of_range("DECIMAL", op.symbol());
    let DataType::Decimal128(precision, scale) = *ty else { return Err(overflow()) };
    let scales = Scales { a: scale_of(a), b: scale_of(b), result: scale };
    let (a, b) = (exact(a)?, exact(b)?);
    let most = power(precision as i8);
    let numbers = match at_once(op, &a, &b, &scales, most)? {
        Some(numbers) => numbers,
        None => one_by_one(op, &a, &b, &scales, most)?,
    };
    let numbers = numbers.with_precision_and_scale(precision, scale).map_err(|_| overflow())?;
    Ok(Arc::new(numbers))
}

/// Digits behind the point.
struct Scales {
    a: i8,
    b: i8,
    result: i8,
}

/// All rows without a check; `None` where a result might reach `most`, or must be rounded.
fn at_once(
    op: Op,
    a: &Decimal128Array,
    b: &Decimal128Array,
    scales: &Scales,
    most: i128,
) -> SqlResult<Option<Decimal128Array>> {
    let (fa, fb) = (power(scales.result - scales.a), power(scales.result - scales.b));
    let (la, lb) = (largest(a), largest(b));
    let bound = match op {
        Op::Mul if scales.a + scales.b == scales.result => la.checked_mul(lb),
        Op::Add | Op::Sub => {
            let (la, lb) = (la.checked_mul(fa.unsigned_abs()), lb.checked_mul(fb.unsigned_abs()));
            la.zip(lb).and_then(|(la, lb)| la.checked_add(lb))
        }
        _ => None,
    };
    if bound.is_none_or(|bound| bound >= most.unsigned_abs()) {
        return Ok(None);
    }
    // The bound holds for what lies under NULLs, too: nothing here wraps.
    let numbers = match op {
        Op::Add => {
            binary(a, b, |a: i128, b: i128| a.wrapping_mul(fa).wrapping_add(b.wrapping_mul(fb)))
        }
        Op::Sub => {
            binary(a, b, |a: i128, b: i128| a.wrapping_mul(fa).wrapping_sub(b.wrapping_mul(fb)))
        }
        _ => binary(a, b, i128::wrapping_mul),
    };
    numbers.map(Some).map_err(Into::into)
}

fn one_by_one(
    op: Op,
    a: &Decimal128Array,
    b: &Decimal128Array,
    scales: &Scales,
    most: i128,
) -> SqlResult<Decimal128Array> {
    let (fa, fb) = (power(scales.result - scales.a), power(scales.result - scales.b));
    let surplus = scales.a + scales.b - scales.result;
    let digits = scales.result + scales.b - scales.a;
    let cut = shows_all(scales.a, scales.b, scales.result);
    let compute = |(a, b): (Option<i128>, Option<i128>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if b == 0 && matches!(op, Op::Div | Op::Mod) {
            warnings::division();
            return Ok(None);
        }
        let n = match op {
            Op::Mul => multiply(a, b, surplus),
            Op::Div => divide(a, b, digits, cut),
            _ => match (op, a.checked_mul(fa), b.checked_mul(fb)) {
                (Op::Add, Some(a), Some(b)) => a.checked_add(b),
                (Op::Sub, Some(a), Some(b)) => a.checked_sub(b),
                (_, Some(a), Some(b)) => a.checked_rem(b),
                _ => None,
            },
        };
        match n {
            Some(n) if n.abs() < most => Ok(Some(n)),
            _ => Err(out_of_range("DECIMAL", op.symbol())),
        }
    };
    a.iter().zip(b.iter()).map(compute).collect()
}

/// The product with `surplus` digits rounded away.
fn multiply(a: i128, b: i128, surplus: i8) -> Option<i128> {
    if surplus <= 0 {
        return a.checked_mul(b);
    }
    let product = i256::from_i128(a).checked_mul(i256::from_i128(b))?;
    round_div(product, i256::from_i128(power(surplus)))
}

/// The quotient of `a·10^digits` and `b`, cut or rounded half away from zero.
fn divide(a: i128, b: i128, digits: i8, cut: bool) -> Option<i128> {
    let (mut a, mut b) = (i256::from_i128(a), i256::from_i128(b));
    let factor = i256::from_i128(power(digits));
    if digits >= 0 {
        a = a.checked_mul(factor)?;
    } else {
        b = b.checked_mul(factor)?;
    }
    if cut { a.checked_div(b)?.to_i128() } else { round_div(a, b) }
}

/// Quotients cut behind the last digit. Division by zero is NULL.
///
/// # Errors
///
/// 1690 where one has more digits than the type.
pub(super) fn quotients(
    a: &ArrayRef,
    b: &ArrayRef,
    precision: u8,
    scale: i8,
) -> SqlResult<ArrayRef> {
    let overflow = || out_of_range("DECIMAL", Op::Div.symbol());
    let digits = i16::from(scale) + i16::from(scale_of(b)) - i16::from(scale_of(a));
    let digits = i8::try_from(digits).ok().filter(|n| (0..=38).contains(n)).ok_or_else(overflow)?;
    let factor = i256::from_i128(power(digits));
    let (a, b) = (exact(a)?, exact(b)?);
    let most = power(precision as i8);
    let compute = |(a, b): (Option<i128>, Option<i128>)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if b == 0 {
            warnings::division();
            return Ok(None);
        }
        let cut = i256::from_i128(a).checked_mul(factor);
        let cut = cut.and_then(|a| a.checked_div(i256::from_i128(b))).and_then(i256::to_i128);
        cut.filter(|n| n.unsigned_abs() < most.unsigned_abs()).map(Some).ok_or_else(overflow)
    };
    let numbers: Decimal128Array = a.iter().zip(b.iter()).map(compute).collect::<SqlResult<_>>()?;
    let numbers = numbers.with_precision_and_scale(precision, scale).map_err(|_| overflow())?;
    Ok(Arc::new(numbers))
}

fn round_div(a: i256, b: i256) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    let rest = a.checked_rem(b)?;
    let two = i256::from_i128(2);
    let half = rest.wrapping_abs().checked_mul(two)? >= b.wrapping_abs();
    let negative = a.is_negative() != b.is_negative();
    let carry = match (half, negative) {
        (false, _) => i256::ZERO,
        (true, false) => i256::ONE,
        (true, true) => i256::MINUS_ONE,
    };
    quotient.checked_add(carry)?.to_i128()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(numbers: &[Option<i128>], precision: u8, scale: i8) -> ArrayRef {
        let numbers = Decimal128Array::from(numbers.to_vec());
        Arc::new(numbers.with_precision_and_scale(precision, scale).unwrap())
    }

    /// What is decided for a batch at once is what each of its rows would have got.
    #[test]
    fn a_batch_and_its_rows_agree() {
        let most = power(38) - 1;
        let numbers = [0, 1, -1, 99, -100, power(18), -power(19), most / 2, most, -most];
        let numbers = numbers.map(Some).into_iter().chain([None]).collect::<Vec<_>>();
        let mut quick = 0;
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Mod] {
            for (sa, sb, result) in [(0, 0, 0), (2, 0, 2), (0, 4, 4), (3, 5, 5), (3, 5, 8)] {
                let scales = Scales { a: sa, b: sb, result };
                for (x, y) in numbers.iter().flat_map(|x| numbers.iter().map(move |y| (*x, *y))) {
                    let (a, b) = (column(&[x, None], 38, sa), column(&[y, Some(1)], 38, sb));
                    let (a, b) = (a.as_primitive(), b.as_primitive());
                    let Some(at_once) = at_once(op, a, b, &scales, power(38)).unwrap() else {
                        continue;
                    };
                    quick += 1;
                    let rows = one_by_one(op, a, b, &scales, power(38)).unwrap();
                    assert_eq!(at_once, rows, "{x:?} {} {y:?}", op.symbol());
                }
            }
        }
        assert!(quick > 100, "only {quick} batches went the quick way");
    }

    #[test]
    fn a_number_too_large_is_an_error_wherever_it_stands() {
        let ty = DataType::Decimal128(38, 0);
        for at in [0, 500, 999] {
            let mut numbers = vec![Some(7); 1000];
            numbers[at] = Some(power(30));
            let (a, b) = (column(&numbers, 38, 0), column(&numbers, 38, 0));
            assert_eq!(decimals(Op::Mul, &a, &b, &ty).unwrap_err().code, 1690);
            let sums = decimals(Op::Add, &a, &b, &ty).unwrap();
            let sums = sums.as_primitive::<Decimal128Type>();
            assert_eq!((sums.value(at), sums.value((at + 1) % 1000)), (2 * power(30), 14));
        }
    }
}
