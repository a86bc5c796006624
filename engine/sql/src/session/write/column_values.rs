//! Expressions and values on their way into a column of another type: what they are there.
//!
//! Labels and times alone; everything else is the coercion's (`values::coerce`).

use functions::labels::AS_NUMBER;
use sqlparser::ast::Expr;
use syntax::tree::call;
use types::{ColumnType, Value};
use values::coerce::{converted, labels};
use values::temporal::Zone;

/// A column on its way into a column of numbers: of ENUM or SET it is the number. Within anything
/// else it is what that makes of it.
pub(super) fn number_of_column(expr: Expr, ty: ColumnType) -> Expr {
    match expr {
        Expr::Nested(inner) => Expr::Nested(Box::new(number_of_column(*inner, ty))),
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) if ty.is_number() => {
            call(AS_NUMBER, vec![expr])
        }
        other => other,
    }
}

/// A value of a type on its way into a column: a time is there what its type makes of it, with that many digits of a
/// second and in the session's zone, which the column does not see of the value.
pub(super) fn time_of_type(
    value: Value,
    from: Option<ColumnType>,
    to: ColumnType,
    zone: Zone,
) -> Value {
    match from {
        Some(
            from @ (ColumnType::Timestamp(_)
            | ColumnType::DateTime(_)
            | ColumnType::Time(_)
            | ColumnType::Year),
        ) => converted::assigned(value, from, to, zone),
        _ => value,
    }
}

/// A value of one column on its way into another, as [`number_of_column`].
pub(super) fn number_of_label(value: Value, from: Option<ColumnType>, to: ColumnType) -> Value {
    match (value, from) {
        (Value::String(text), Some(from)) if to.is_number() && from.labels().is_some() => {
            Value::UInt(labels::number(from, &text))
        }
        (value, _) => value,
    }
}
