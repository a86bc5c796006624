//! Literals taken to the type of what they are compared with, once, at planning.

use arrow::datatypes::{DataType, TimeUnit, i256};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use functions::kinds::digits_of;
use functions::warnings;
use types::Wide;
use types::decimal::DECIMAL_MAX_PRECISION;
use types::wide::{DECIMAL_MAX_SCALE, WIDE_MAX_PRECISION};
use values::error::{SqlResult, unsupported, wrong_time_literal};
use values::numbers::leading_number;
use values::temporal::{DAY_US, ZERO_US, from_number, is_zero, parse_datetime_in};

use crate::operators::MysqlOperators;

/// The text of a text literal.
pub fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text),
        Expr::Alias(alias) => text(&alias.expr),
        _ => None,
    }
}

/// A literal of bytes as a number: what X'…' and b'…' are beside numbers.
pub fn number(expr: Expr) -> Expr {
    match &expr {
        Expr::Literal(ScalarValue::Binary(Some(bytes)), _) => {
            match values::numbers::number_of(bytes) {
                Some(n) => Expr::Literal(ScalarValue::UInt64(Some(n)), None),
                None => expr,
            }
        }
        Expr::Alias(alias) => number((*alias.expr).clone()),
        _ => expr,
    }
}

/// A literal text as a literal of the other operand's type, where MySQL compares it as such.
pub fn typed(literal: &str, ty: &DataType, by: &MysqlOperators) -> SqlResult<Option<Expr>> {
    // What would be an error is computed instead, for such rows as there are.
    if ty.is_numeric()
        && warnings::are_errors()
        && warnings::says_more(literal, leading_number(literal))
    {
        return Ok(None);
    }
    let time = |kind: &str| time(literal, kind, by);
    let value = match ty {
        DataType::Date32 => return Ok(datetime_at(time("DATE")?, ty, by)),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let kind = if zone.is_some() { "TIMESTAMP" } else { "DATETIME" };
            return Ok(datetime_at(time(kind)?, ty, by));
        }
        DataType::Binary => ScalarValue::Binary(Some(literal.as_bytes().to_vec())),
        DataType::Duration(TimeUnit::Microsecond) => match values::temporal::parse_time(literal) {
            Some(us) => ScalarValue::DurationMicrosecond(Some(us)),
            None => {
                return Err(wrong_time_literal("TIME", literal));
            }
        },
        ty if ty.is_integer() => match leading_number(literal).parse::<i64>() {
            Ok(n) => {
                warnings::read("DOUBLE", literal, leading_number(literal));
                ScalarValue::Int64(Some(n))
            }
            Err(_) => return Ok(None),
        },
        DataType::Decimal128(_, _) => match types::Decimal::parse(leading_number(literal)) {
            Ok(n) => ScalarValue::Decimal128(
                Some(n.unscaled),
                n.precision().max(n.scale).min(38),
                n.scale as i8,
            ),
            Err(_) => return Ok(None),
        },
        DataType::Decimal256(_, _) => match types::Wide::parse(leading_number(literal)) {
            Ok(n) if n.checked().is_some() && n.scale <= DECIMAL_MAX_PRECISION => {
                ScalarValue::Decimal256(Some(n.unscaled), WIDE_MAX_PRECISION, n.scale as i8)
            }
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(Expr::Literal(value, None)))
}

/// A literal number as the DATE or DATETIME that MySQL takes it for beside a column of a temporal type: 20240102 or
/// 20240102030405. `None` if it is no literal, or no datetime: then it compares as a number.
pub fn datetime_of_number(literal: &Expr, ty: &DataType, by: &MysqlOperators) -> Option<Expr> {
    let (number, fraction_us) = match literal {
        Expr::Alias(alias) => return datetime_of_number(&alias.expr, ty, by),
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => (*n, 0),
        Expr::Literal(ScalarValue::UInt64(Some(n)), _) => (i64::try_from(*n).ok()?, 0),
        Expr::Literal(ScalarValue::Decimal128(Some(n), _, scale), _) => {
            let unit = 10_i128.checked_pow(u32::try_from(*scale).ok()?)?;
            // Rounded at the seventh digit, as in a text.
            let fraction = n.rem_euclid(unit).checked_mul(1_000_000)?.checked_add(unit / 2)? / unit;
            (i64::try_from(n.div_euclid(unit)).ok()?, i64::try_from(fraction).ok()?)
        }
        Expr::Literal(ScalarValue::Float64(Some(n)), _) if n.fract() == 0.0 && n.abs() < 1e15 => {
            (*n as i64, 0)
        }
        _ => return None,
    };
    datetime_at(from_number(number)?.checked_add(fraction_us)?, ty, by)
}

/// A literal of a datetime in the session's time zone beside a temporal type; a DATE beside a DATE.
fn datetime_at(us: i64, ty: &DataType, by: &MysqlOperators) -> Option<Expr> {
    let value = match ty {
        DataType::Date32 if us.rem_euclid(DAY_US) == 0 => {
            ScalarValue::Date32(i32::try_from(us.div_euclid(DAY_US)).ok())
        }
        DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, None) => {
            ScalarValue::TimestampMicrosecond(Some(us), None)
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            ScalarValue::TimestampMicrosecond(Some(by.zone.to_utc(us)), zone.clone())
        }
        _ => return None,
    };
    Some(Expr::Literal(value, None))
}

/// A literal of an exact number as one of a decimal type; `None` if it is none, or no number of the
/// type.
pub fn exact(expr: &Expr, ty: &DataType) -> Option<Expr> {
    let of = |n: i128, scale: i8| {
        Some(Wide { unscaled: i256::from_i128(n), scale: u8::try_from(scale).ok()? })
    };
    let number = match expr {
        Expr::Alias(alias) => return exact(&alias.expr, ty),
        Expr::Literal(ScalarValue::Int64(Some(n)), _) => of(i128::from(*n), 0)?,
        Expr::Literal(ScalarValue::UInt64(Some(n)), _) => of(i128::from(*n), 0)?,
        Expr::Literal(ScalarValue::Decimal128(Some(n), _, scale), _) => of(*n, *scale)?,
        Expr::Literal(ScalarValue::Decimal256(Some(n), _, scale), _) => {
            Wide { unscaled: *n, scale: u8::try_from(*scale).ok()? }
        }
        _ => return None,
    };
    let (precision, scale) = digits_of(ty)?;
    let same = number.rescale(u8::try_from(scale).ok()?)?;
    if same.precision() > precision || same.rescale(number.scale)? != number {
        return None;
    }
    let value = match ty {
        DataType::Decimal256(..) => ScalarValue::Decimal256(Some(same.unscaled), precision, scale),
        _ => ScalarValue::Decimal128(Some(same.narrow()?.unscaled), precision, scale),
    };
    Some(Expr::Literal(value, None))
}

/// Refuses a number of more digits than a DECIMAL has.
pub fn check_digits(number: &str) -> SqlResult<()> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    if digits <= usize::from(DECIMAL_MAX_PRECISION)
        || digits <= usize::from(WIDE_MAX_PRECISION)
            && fraction.len() <= usize::from(DECIMAL_MAX_SCALE)
    {
        return Ok(());
    }
    Err(unsupported(format!(
        "a number of {digits} digits, {} of them behind the point (65 and 30 are the most)",
        fraction.len()
    )))
}

/// The datetime that a literal is compared as; that of a zero date where there may be one.
fn time(literal: &str, kind: &str, by: &MysqlOperators) -> SqlResult<i64> {
    let zero = || (by.zero_dates && is_zero(literal)).then_some(ZERO_US);
    parse_datetime_in(literal, by.zone)
        .or_else(zero)
        .ok_or_else(|| wrong_time_literal(kind, literal))
}
