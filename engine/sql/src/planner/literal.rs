//! Literals taken to the type of what they are compared with, once, at planning.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

use crate::error::SqlResult;
use crate::functions::convert::leading_number;
use crate::result::SqlError;
use crate::temporal::{DAY_US, Zone, parse_datetime};

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
            match crate::constant::number_of(bytes) {
                Some(n) => Expr::Literal(ScalarValue::UInt64(Some(n)), None),
                None => expr,
            }
        }
        Expr::Alias(alias) => number((*alias.expr).clone()),
        _ => expr,
    }
}

/// A literal text as a literal of the other operand's type, where MySQL compares it as such.
pub fn typed(literal: &str, ty: &DataType, zone: Zone) -> SqlResult<Option<Expr>> {
    let value = match ty {
        DataType::Date32 => {
            let us = time(literal, "DATE")?;
            if us.rem_euclid(DAY_US) == 0 {
                ScalarValue::Date32(i32::try_from(us.div_euclid(DAY_US)).ok())
            } else {
                ScalarValue::TimestampMicrosecond(Some(us), None)
            }
        }
        DataType::Timestamp(TimeUnit::Microsecond, None) => {
            ScalarValue::TimestampMicrosecond(Some(time(literal, "DATETIME")?), None)
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(utc)) => {
            let us = zone.to_utc(time(literal, "TIMESTAMP")?);
            ScalarValue::TimestampMicrosecond(Some(us), Some(utc.clone()))
        }
        DataType::Binary => ScalarValue::Binary(Some(literal.as_bytes().to_vec())),
        DataType::Duration(TimeUnit::Microsecond) => match crate::temporal::parse_time(literal) {
            Some(us) => ScalarValue::DurationMicrosecond(Some(us)),
            None => {
                let text = format!("Incorrect TIME value: '{literal}'");
                return Err(SqlError::new(1525, b"HY000", text));
            }
        },
        ty if ty.is_integer() => match leading_number(literal).parse::<i64>() {
            Ok(n) => ScalarValue::Int64(Some(n)),
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
        _ => return Ok(None),
    };
    Ok(Some(Expr::Literal(value, None)))
}

fn time(literal: &str, kind: &str) -> SqlResult<i64> {
    parse_datetime(literal).ok_or_else(|| {
        SqlError::new(1525, b"HY000", format!("Incorrect {kind} value: '{literal}'"))
    })
}
