//! Expressions of the syntax tree that rewrites make.

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value, ValueWithSpan};
use syntax::tree::value;

/// What stands between the comparisons of BETWEEN: an AND of which both sides are computed, or none.
pub const BOTH: &str = "both";
/// The same of NOT BETWEEN: an OR.
pub const EITHER: &str = "either";

/// `left op right`.
pub fn op(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(left))),
        op,
        right: Box::new(Expr::Nested(Box::new(right))),
    }
}

/// NOT of a truth value.
pub fn not(expr: Expr) -> Expr {
    Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) }
}

/// A hexadecimal literal as the number that it is where a number is asked for; anything else as it
/// is. Behind `_binary` it is a call by now, and stays bytes.
pub fn number_of_hex(expr: Expr) -> Expr {
    match &expr {
        Expr::Nested(inner) => match number_of_hex((**inner).clone()) {
            number @ Expr::Value(ValueWithSpan { value: Value::Number(..), .. }) => number,
            _ => expr,
        },
        Expr::Value(ValueWithSpan { value: Value::HexStringLiteral(hex), .. }) => {
            let bytes = values::bytes::bytes_of_hex(hex).ok();
            match bytes.and_then(|bytes| values::numbers::number_of(&bytes)) {
                Some(n) => value(Value::Number(n.to_string(), false)),
                None => expr,
            }
        }
        _ => expr,
    }
}
