//! Literals as values, and values as literals.
//!
//! Nothing is computed here: what is more than a literal is its caller's.

use sqlparser::ast::{DataType, Expr, Ident, UnaryOperator, Value as SqlValue, ValueWithSpan};
use types::value::format_double;
use types::wide::DECIMAL_MAX_SCALE;
use types::{Decimal, Value, Wide};
use values::temporal::{DAY_US, parse_datetime, says_time_of_day};

/// The value of `DATE '2024-1-2'` or of a TIMESTAMP without a fraction. What else is written so is for others to compute, or
/// to refuse.
fn time(text: &str, ty: &DataType) -> Option<Value> {
    let us = parse_datetime(text)?;
    match ty {
        DataType::Date if !says_time_of_day(text) => {
            i32::try_from(us.div_euclid(DAY_US)).ok().map(Value::Date)
        }
        DataType::Timestamp(..) | DataType::Datetime(_)
            if says_time_of_day(text) && !text.contains('.') =>
        {
            Some(Value::DateTime(us))
        }
        _ => None,
    }
}

/// The value of a literal, signed or in parentheses; `None` if the expression is anything else.
pub fn literal(expr: &Expr) -> Option<Value> {
    match expr {
        Expr::Nested(inner) => literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(ValueWithSpan { value: SqlValue::Number(digits, _), .. }) => {
                number(&format!("-{digits}"))
            }
            Expr::Nested(inner) => {
                literal(&Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner.clone() })
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => literal(expr),
        Expr::Value(value) => match &value.value {
            SqlValue::Null => Some(Value::Null),
            SqlValue::Boolean(truth) => Some(Value::Int(i64::from(*truth))),
            SqlValue::Number(digits, _) => number(digits),
            SqlValue::SingleQuotedString(text)
            | SqlValue::DoubleQuotedString(text)
            | SqlValue::NationalStringLiteral(text) => Some(Value::String(text.clone())),
            SqlValue::HexStringLiteral(hex) => {
                values::bytes::bytes_of_hex(hex).ok().map(Value::Bytes)
            }
            SqlValue::SingleQuotedByteStringLiteral(bits) => {
                values::bytes::bytes_of_bits(bits).ok().map(Value::Bytes)
            }
            _ => None,
        },
        Expr::Prefixed { prefix, value } if is_binary(prefix) => bytes(value),
        Expr::Prefixed { prefix, value } => {
            let introduced = crate::introducer::introduced(prefix, (**value).clone());
            literal(&introduced.ok()?)
        }
        Expr::TypedString(typed) => match &typed.value.value {
            SqlValue::SingleQuotedString(text) | SqlValue::DoubleQuotedString(text) => {
                time(text, &typed.data_type)
            }
            _ => None,
        },
        _ => None,
    }
}

fn is_binary(prefix: &Ident) -> bool {
    prefix.value.eq_ignore_ascii_case("_binary")
}

/// The bytes of a literal behind `_binary`.
fn bytes(value: &Expr) -> Option<Value> {
    match literal(value)? {
        Value::Bytes(bytes) => Some(Value::Bytes(bytes)),
        Value::String(text) => Some(Value::Bytes(text.into_bytes())),
        _ => None,
    }
}

fn number(digits: &str) -> Option<Value> {
    if let Ok(n) = digits.parse::<i64>() {
        return Some(Value::Int(n));
    }
    if let Ok(n) = digits.parse::<u64>() {
        return Some(Value::UInt(n));
    }
    if !digits.contains(['e', 'E'])
        && let Ok(n) = Decimal::parse(digits)
        && n.precision() <= types::decimal::DECIMAL_MAX_PRECISION
    {
        return Some(Value::Decimal(n));
    }
    // One digit more than a column can have says how the last one is rounded.
    let point = digits.find('.').unwrap_or(digits.len());
    let cut = digits.len().min(point + 2 + usize::from(DECIMAL_MAX_SCALE));
    if !digits.contains(['e', 'E'])
        && let Ok(n) = Wide::parse(digits).or_else(|_| Wide::parse(digits.get(..cut).unwrap_or("")))
    {
        return Some(Value::Wide(Box::new(n)));
    }
    digits.parse::<f64>().ok().filter(|n| n.is_finite()).map(Value::Double)
}

/// A value as a literal expression. Times become text, which compares and stores as a time.
pub fn expression(value: &Value) -> Expr {
    let number = |digits: String| {
        let (negative, digits) = match digits.strip_prefix('-') {
            Some(rest) => (true, rest.to_owned()),
            None => (false, digits),
        };
        let literal = Expr::value(SqlValue::Number(digits, false));
        if negative {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(literal) }
        } else {
            literal
        }
    };
    match value {
        Value::Null => Expr::value(SqlValue::Null),
        Value::Int(n) => number(n.to_string()),
        Value::UInt(n) => number(n.to_string()),
        Value::Decimal(n) => number(n.to_string()),
        Value::Wide(n) => number(n.to_string()),
        Value::Double(n) => {
            let text = format_double(*n);
            number(if text.contains('e') { text } else { format!("{text}e0") })
        }
        Value::String(text) => string(text),
        // Without the introducer it would be a number among numbers.
        Value::Bytes(bytes) => {
            Expr::Prefixed { prefix: Ident::new("_binary"), value: Box::new(hexadecimal(bytes)) }
        }
        Value::Float(n) => number(format!("{:e}", f64::from(*n))),
        other => string(&other.to_string()),
    }
}

/// Text as a literal that survives being written out and read again: what holds quotes or
/// backslashes is spelled in hexadecimal.
fn string(text: &str) -> Expr {
    if text.contains(['\'', '\\', '"', '\0']) {
        return Expr::Prefixed {
            prefix: Ident::new("_utf8mb4"),
            value: Box::new(hexadecimal(text.as_bytes())),
        };
    }
    Expr::value(SqlValue::SingleQuotedString(text.to_owned()))
}

fn hexadecimal(bytes: &[u8]) -> Expr {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    Expr::value(SqlValue::HexStringLiteral(hex))
}

/// A hexadecimal or bit literal on its way into a column of numbers is a number; everywhere else
/// it is bytes. `None`: the expression is no such literal, or the column holds no numbers.
pub fn number_of_bytes(expr: &Expr, ty: types::ColumnType) -> Option<Value> {
    let bytes = ty.is_number().then(|| plain_bytes(expr)).flatten()?;
    values::numbers::number_of(&bytes).map(Value::UInt)
}

/// The bytes of a hexadecimal or bit literal without an introducer.
pub fn plain_bytes(expr: &Expr) -> Option<Vec<u8>> {
    match expr {
        Expr::Nested(inner) => plain_bytes(inner),
        Expr::Value(_) => match literal(expr)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_the_same_after_it_was_written_out() {
        for n in [0.0, -0.0, 1.5, -1e300, 5e-324, 123456789012345680.0] {
            let Some(Value::Double(read)) = literal(&expression(&Value::Double(n))) else {
                panic!("{n} is no double any more");
            };
            assert_eq!(read.to_bits(), n.to_bits(), "{n}");
        }
    }
}
