//! Literals as values, and values as literals: the forms that need no planner.

use sqlparser::ast::{Expr, UnaryOperator, Value as SqlValue, ValueWithSpan};
use types::{Decimal, Value};

use crate::functions::convert::format_double;

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
                crate::planner::text_of_hex(hex).ok().map(Value::String)
            }
            _ => None,
        },
        Expr::Prefixed { value, .. } => literal(value),
        Expr::TypedString(typed) => match &typed.value.value {
            SqlValue::SingleQuotedString(text) | SqlValue::DoubleQuotedString(text) => {
                crate::temporal::parse_datetime(text).map(|_| Value::String(text.clone()))
            }
            _ => None,
        },
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
        && n.precision() <= types::value::DECIMAL_MAX_PRECISION
    {
        return Some(Value::Decimal(n));
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
        Value::Double(n) => {
            let text = format_double(*n);
            number(if text.contains('e') { text } else { format!("{text}e0") })
        }
        Value::String(text) => string(text),
        other => string(&other.to_string()),
    }
}

/// Text as a literal that survives being written out and read again: what holds quotes or
/// backslashes is spelled in hexadecimal.
fn string(text: &str) -> Expr {
    if text.contains(['\'', '\\', '"', '\0']) {
        let hex: String = text.bytes().map(|byte| format!("{byte:02X}")).collect();
        return Expr::value(SqlValue::HexStringLiteral(hex));
    }
    Expr::value(SqlValue::SingleQuotedString(text.to_owned()))
}
