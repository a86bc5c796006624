//! Decimals of which the type has more than 38 digits, in 256 bits, a row at a time.
//!
//! Only what has a wide operand or a wide result comes here: all else stays with `decimal`, at its
//! speed. A result that does not fit its type is an error, never a wrong number.
//!
//! Columns and CAST have 65 digits at most. What is computed from them may have the 76 that 256 bits
//! hold, of MySQL's 81, so that a sum or an average of the largest is a number still.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array};
use arrow::datatypes::{DataType, Decimal256Type, i256};
use num_bigint::BigInt;
use types::wide::{DECIMAL_MAX_SCALE, WIDE_MAX_PRECISION, Wide, power, round_div};
use values::error::{SqlResult, out_of_range};
use values::numbers::rounded;

use super::convert::wide::{exact, largest, to_wide};
use super::convert::{number_texts, to_f64, to_type};
use super::kinds::{MOST, comparable, digits_of, is_binary, is_string, is_wide, scale_of};
use super::operators::{Op, shows_all};
use super::texts::read_decimal;
use super::warnings;

/// Unscaled numbers as a decimal of type `ty`.
///
/// # Errors
///
/// 1690, in the name of `what`, where a number has more digits than the type.
pub(super) fn typed(
    numbers: impl Iterator<Item = SqlResult<Option<i256>>>,
    ty: &DataType,
    what: &str,
) -> SqlResult<ArrayRef> {
    let beyond = || out_of_range("DECIMAL", what);
    let (precision, scale) = digits_of(ty).ok_or_else(beyond)?;
    let most = largest(precision);
    let fits = |n: i256| if n.wrapping_abs() <= most { Ok(n) } else { Err(beyond()) };
    let fit = |n: SqlResult<Option<i256>>| -> SqlResult<Option<i256>> { n?.map(fits).transpose() };
    let numbers = numbers.map(fit);
    let array: ArrayRef = if is_wide(ty) {
        let numbers = numbers.collect::<SqlResult<Decimal256Array>>()?;
        Arc::new(numbers.with_precision_and_scale(precision, scale).map_err(|_| beyond())?)
    } else {
        let narrow = |n: SqlResult<Option<i256>>| -> SqlResult<Option<i128>> {
            Ok(n?.and_then(i256::to_i128))
        };
        let numbers = numbers.map(narrow).collect::<SqlResult<Decimal128Array>>()?;
        Arc::new(numbers.with_precision_and_scale(precision, scale).map_err(|_| beyond())?)
    };
    Ok(array)
}

/// The operator on two columns, as a decimal of type `ty`. Division by zero is NULL.
///
/// # Errors
///
/// 1690 where a result has more digits than `ty`.
pub(super) fn wides(op: Op, a: &ArrayRef, b: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    let overflow = || out_of_range("DECIMAL", op.symbol());
    let (_, scale) = digits_of(ty).ok_or_else(overflow)?;
    let (sa, sb) = (scale_of(a), scale_of(b));
    let cut = shows_all(sa, sb, scale);
    let (a, b) = (exact(a)?, exact(b)?);
    let numbers = a.iter().zip(b.iter()).map(|(a, b)| {
        let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
        if b == i256::ZERO && matches!(op, Op::Div | Op::Mod) {
            warnings::division();
            return Ok(None);
        }
        let n = match op {
            Op::Mul => scaled_ratio(a, b, scale - sa - sb, i256::ONE, false),
            Op::Div => scaled_ratio(a, i256::ONE, scale + sb - sa, b, cut),
            Op::Mod => remainder(a, b, sa, sb).and_then(|n| scaled(n, scale - sa.max(sb))),
            Op::Add => scaled(a, scale - sa).zip(scaled(b, scale - sb)).and_then(plus),
            Op::Sub => scaled(a, scale - sa)
                .zip(scaled(b, scale - sb))
                .and_then(|(a, b)| plus((a, b.wrapping_neg()))),
        };
        n.map(Some).ok_or_else(overflow)
    });
    typed(numbers, ty, op.symbol())
}

fn plus((a, b): (i256, i256)) -> Option<i256> {
    a.checked_add(b)
}

/// `n·10^digits`, rounded where digits go.
fn scaled(n: i256, digits: i8) -> Option<i256> {
    let factor = power(digits.unsigned_abs())?;
    if digits >= 0 { n.checked_mul(factor) } else { round_div(n, factor) }
}

/// `a·b·10^digits / c`, cut or rounded half away from zero; `None` where it leaves 256 bits. What lies
/// between may be longer.
fn scaled_ratio(a: i256, b: i256, digits: i8, c: i256, cut: bool) -> Option<i256> {
    let factor = power(digits.unsigned_abs())?;
    let product = a.checked_mul(b);
    let (above, below) = match digits >= 0 {
        true => (product.and_then(|n| n.checked_mul(factor)), Some(c)),
        false => (product, c.checked_mul(factor)),
    };
    if let (Some(above), Some(below)) = (above, below) {
        return if cut { above.checked_div(below) } else { round_div(above, below) };
    }
    let (mut above, mut below) = (big(a) * big(b), big(c));
    match digits >= 0 {
        true => above *= big(factor),
        false => below *= big(factor),
    }
    let negative = (above < BigInt::ZERO) != (below < BigInt::ZERO);
    let (above, below) = (above.magnitude().clone(), below.magnitude().clone());
    let (mut quotient, rest) = (&above / &below, &above % &below);
    if !cut && rest * 2u8 >= below {
        quotient += 1u8;
    }
    let quotient = small(&BigInt::from(quotient))?;
    Some(if negative { quotient.wrapping_neg() } else { quotient })
}

/// What is left of `a` by `b`, at the larger of their scales, with the sign of `a`.
fn remainder(a: i256, b: i256, sa: i8, sb: i8) -> Option<i256> {
    let (a, b) = at_one_scale(a, b, sa, sb)?;
    small(&(a % b))
}

/// The whole quotient of `a` and `b`, cut.
fn whole_quotient(a: i256, b: i256, sa: i8, sb: i8) -> Option<i256> {
    let (a, b) = at_one_scale(a, b, sa, sb)?;
    small(&(a / b))
}

fn at_one_scale(a: i256, b: i256, sa: i8, sb: i8) -> Option<(BigInt, BigInt)> {
    let scale = sa.max(sb);
    let factor = |from: i8| power((scale - from).unsigned_abs()).map(big);
    Some((big(a) * factor(sa)?, big(b) * factor(sb)?))
}

fn big(n: i256) -> BigInt {
    BigInt::from_signed_bytes_le(&n.to_le_bytes())
}

fn small(n: &BigInt) -> Option<i256> {
    let bytes = n.to_signed_bytes_le();
    let sign = if *n < BigInt::ZERO { 0xFF } else { 0 };
    let mut full = [sign; 32];
    full.get_mut(..bytes.len())?.copy_from_slice(&bytes);
    Some(i256::from_le_bytes(full))
}

/// DIV: the quotients cut to whole numbers; `None` for NULL and by zero. Texts and doubles are divided as the decimals that
/// they spell.
///
/// # Errors
///
/// 1690 for a quotient beyond 128 bits, and for a number of more digits than a decimal has.
pub(super) fn int_div(a: &ArrayRef, b: &ArrayRef) -> SqlResult<Vec<Option<i128>>> {
    let beyond = || out_of_range("BIGINT", "DIV");
    let (a, b) = (spelled(a)?, spelled(b)?);
    let quotient = |(a, b): (Option<Wide>, Option<Wide>)| match (a, b) {
        (Some(a), Some(b)) if b.unscaled != i256::ZERO => {
            let digits = |n: Wide| i8::try_from(n.scale).ok();
            let scales = digits(a).zip(digits(b));
            let quotient =
                scales.and_then(|(sa, sb)| whole_quotient(a.unscaled, b.unscaled, sa, sb));
            quotient.and_then(i256::to_i128).map(Some).ok_or_else(beyond)
        }
        (Some(_), Some(_)) => {
            warnings::division();
            Ok(None)
        }
        _ => Ok(None),
    };
    a.into_iter().zip(b).map(quotient).collect()
}

/// Numbers as decimals with all their digits; of a text and of a double those that it spells, 30 of them behind the point.
fn spelled(numbers: &ArrayRef) -> SqlResult<Vec<Option<Wide>>> {
    // Of more digits before the point than leave room for those, only these.
    let read = |number: &str| {
        let read = rounded(number, DECIMAL_MAX_SCALE).or_else(|| rounded(number, 0));
        read.ok_or_else(|| out_of_range("BIGINT", "DIV"))
    };
    let ty = numbers.data_type();
    if is_string(ty) || is_binary(ty) {
        let texts = number_texts(numbers)?;
        return texts.iter().map(|text| text.map(read_decimal).map(read).transpose()).collect();
    }
    if ty.is_floating() {
        let doubles = to_f64(numbers)?;
        return doubles.iter().map(|n| n.map(|n| read(&format!("{n}"))).transpose()).collect();
    }
    if *ty == DataType::Null {
        return Ok(vec![None; numbers.len()]);
    }
    let scale = scale_of(numbers).unsigned_abs();
    Ok(exact(numbers)?.iter().map(|n| n.map(|unscaled| Wide { unscaled, scale })).collect())
}

/// A column as the type that it shares with others. To a wide one no number is cut down.
///
/// # Errors
///
/// 1690 where a number has more digits than a wide type.
pub(super) fn undiminished(array: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    let from = array.data_type();
    if !is_wide(ty) || from == ty || !(from.is_integer() || digits_of(from).is_some()) {
        return to_type(array, ty);
    }
    let (_, scale) = digits_of(ty).unwrap_or_default();
    let digits = scale - scale_of(array);
    let numbers = exact(array)?;
    let rows = numbers.iter().map(|n| {
        let Some(n) = n else { return Ok(None) };
        scaled(n, digits).map(Some).ok_or_else(|| out_of_range("DECIMAL", "decimal"))
    });
    typed(rows, ty, "decimal")
}

/// Numbers with `digits` of them kept behind the point, or before it if negative: rounded half away
/// from zero, or cut.
pub(super) fn round(
    number: &ArrayRef,
    digits: impl Iterator<Item = Option<i64>>,
    ty: &DataType,
    cut: bool,
) -> SqlResult<ArrayRef> {
    let overflow = || out_of_range("DECIMAL", "round");
    let (_, to) = digits_of(ty).ok_or_else(overflow)?;
    let from = scale_of(number);
    let numbers = exact(number)?;
    let rows = numbers.iter().zip(digits).map(|(n, digits)| {
        let (Some(n), Some(digits)) = (n, digits) else { return Ok(None) };
        let digits = digits.clamp(-i64::from(MOST) - 1, i64::from(from));
        let unit = u8::try_from(i64::from(from) - digits).ok().and_then(power);
        let rounded = match unit {
            Some(unit) => {
                let units = if cut { n.checked_div(unit) } else { round_div(n, unit) };
                units.and_then(|units| units.checked_mul(unit))
            }
            // The unit has more digits than any number.
            None => Some(i256::ZERO),
        };
        let scale = from.unsigned_abs();
        let n = rounded.and_then(|unscaled| Wide { unscaled, scale }.rescale(to.unsigned_abs()));
        n.map(|n| Some(n.unscaled)).ok_or_else(overflow)
    });
    typed(rows, ty, "round")
}

/// FLOOR, or CEILING if `up`, as whole numbers.
pub(super) fn to_whole(number: &ArrayRef, up: bool) -> SqlResult<ArrayRef> {
    let unit = power(scale_of(number).unsigned_abs()).unwrap_or(i256::ONE);
    let numbers = exact(number)?;
    let rows = numbers.iter().map(|n| {
        let Some(n) = n else { return Ok(None) };
        let (whole, rest) = (n.wrapping_div(unit), n.wrapping_rem(unit));
        let step = match (rest.cmp(&i256::ZERO), up) {
            (Ordering::Greater, true) => i256::ONE,
            (Ordering::Less, false) => i256::MINUS_ONE,
            _ => i256::ZERO,
        };
        Ok(Some(whole.wrapping_add(step)))
    });
    typed(rows, &DataType::Decimal256(MOST, 0), "floor")
}

/// Absolute values.
pub(super) fn abs(numbers: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    typed(exact(numbers)?.iter().map(|n| Ok(n.map(i256::wrapping_abs))), ty, "abs")
}

/// A number's text with so many digits behind the point, however long that is.
pub(super) fn with_digits(number: &str, digits: u8) -> Option<String> {
    let n = Wide::parse(number).ok()?;
    if let Some(n) = n.rescale(digits) {
        return Some(n.to_string());
    }
    let point = if n.scale == 0 { "." } else { "" };
    Some(format!("{n}{point}{}", "0".repeat(usize::from(digits.checked_sub(n.scale)?))))
}

/// What SUM adds up: of numbers of at most 65 digits, 256 bits hold the sum of more rows than there
/// may be.
pub(super) fn summand(numbers: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    let numbers = to_type(numbers, ty)?;
    let within = largest(WIDE_MAX_PRECISION);
    if matches!(ty, DataType::Decimal256(precision, _) if *precision > WIDE_MAX_PRECISION)
        && numbers
            .as_primitive::<Decimal256Type>()
            .iter()
            .flatten()
            .any(|n| n.wrapping_abs() > within)
    {
        return Err(out_of_range("DECIMAL", "sum"));
    }
    Ok(numbers)
}

/// How the numbers of two columns of exact types compare.
pub(super) fn compared(a: &ArrayRef, b: &ArrayRef) -> SqlResult<Vec<Option<Ordering>>> {
    let ty = comparable(a.data_type(), b.data_type());
    let (a, b) = (to_type(a, &ty)?, to_type(b, &ty)?);
    let (a, b) = (a.as_primitive::<Decimal256Type>(), b.as_primitive::<Decimal256Type>());
    Ok(a.iter().zip(b.iter()).map(|(a, b)| Some(a?.cmp(&b?))).collect())
}

/// The greatest or the least number of each row; NULL where one is.
///
/// # Errors
///
/// 1690 where one has more digits than the type.
pub(super) fn extreme(args: &[ArrayRef], ty: &DataType, greatest: bool) -> SqlResult<ArrayRef> {
    let Some((first, rest)) = args.split_first() else {
        return Err(out_of_range("DECIMAL", "decimal"));
    };
    let scale = args.iter().map(scale_of).max().unwrap_or(0);
    let at_one_scale = |arg: &ArrayRef| to_wide(arg, MOST, scale);
    let mut best = at_one_scale(first)?;
    let mut chosen = vec![0; first.len()];
    for (at, arg) in rest.iter().enumerate() {
        let other = at_one_scale(arg)?;
        let better = |(row, (best, other)): (usize, (Option<i256>, Option<i256>))| {
            let (best, other) = (best?, other?);
            if if greatest { other > best } else { other < best } {
                chosen[row] = at + 1;
                return Some(other);
            }
            Some(best)
        };
        let both = best.iter().zip(other.iter()).enumerate();
        best = both.map(better).collect::<Decimal256Array>();
    }
    // At that scale the largest have lost digits: the numbers that were chosen have not.
    let (_, scale) = digits_of(ty).unwrap_or_default();
    let exacts = args.iter().map(exact).collect::<SqlResult<Vec<_>>>()?;
    let digits: Vec<i8> = args.iter().map(|arg| scale - scale_of(arg)).collect();
    let rows = best.iter().zip(chosen).enumerate().map(|(row, (best, at))| {
        let (Some(_), Some(numbers), Some(digits)) = (best, exacts.get(at), digits.get(at)) else {
            return Ok(None);
        };
        let beyond = || out_of_range("DECIMAL", if greatest { "greatest" } else { "least" });
        scaled(numbers.value(row), *digits).map(Some).ok_or_else(beyond)
    });
    typed(rows, ty, if greatest { "greatest" } else { "least" })
}
