//! Literals of the text as values, and values as the literals of a plan.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use types::decimal::DECIMAL_MAX_PRECISION;
use types::{ColumnType, Decimal, IntWidth, Value, Wide};
use values::error::{SqlResult, syntax};
use values::mysql_type::MysqlType;

use super::tree::{Node, Scalar};
use crate::result_type::TEXT_LENGTH;

/// A number of the text, with its sign.
///
/// # Errors
///
/// 1064 where it is none.
pub fn number(digits: &str, negative: bool) -> SqlResult<Scalar> {
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    let value = if let Ok(n) = signed.parse::<i64>() {
        Value::Int(n)
    } else if !negative && let Ok(n) = signed.parse::<u64>() {
        Value::UInt(n)
    } else if let Ok(n) = Decimal::parse(&signed)
        && n.precision().max(n.scale) <= DECIMAL_MAX_PRECISION
    {
        Value::Decimal(n)
    } else {
        let wide = Wide::parse(&signed).map_err(|_| syntax(format!("'{signed}' is no number")))?;
        Value::Wide(Box::new(wide))
    };
    Ok(of(value))
}

/// A value as an expression.
pub fn of(value: Value) -> Scalar {
    let int = |unsigned| ColumnType::Int { width: IntWidth::Big, unsigned };
    let column = match &value {
        Value::Null => None,
        Value::UInt(_) => Some(int(true)),
        Value::Decimal(n) => {
            Some(ColumnType::Decimal { precision: n.precision().max(n.scale), scale: n.scale })
        }
        Value::Wide(n) => {
            Some(ColumnType::Decimal { precision: n.precision().max(n.scale), scale: n.scale })
        }
        Value::String(_) => Some(ColumnType::Varchar(TEXT_LENGTH)),
        Value::Bytes(_) => Some(ColumnType::Varbinary(TEXT_LENGTH)),
        Value::Double(_) => Some(ColumnType::Double),
        Value::Float(_) => Some(ColumnType::Float),
        Value::Date(_) => Some(ColumnType::Date),
        Value::DateTime(_) => Some(ColumnType::DateTime(6)),
        Value::Timestamp(_) => Some(ColumnType::Timestamp(6)),
        Value::Time(_) => Some(ColumnType::Time(6)),
        Value::Int(_) => Some(int(false)),
    };
    let ty = column.map_or(MysqlType::NULL, MysqlType::of_column);
    Scalar { node: Node::Literal(value), ty }
}

/// A value as a plan has it.
pub fn scalar_value(value: &Value) -> ScalarValue {
    match value {
        Value::Null => ScalarValue::Null,
        Value::Int(n) => ScalarValue::Int64(Some(*n)),
        Value::UInt(n) => ScalarValue::UInt64(Some(*n)),
        Value::Double(n) => ScalarValue::Float64(Some(*n)),
        Value::Float(n) => ScalarValue::Float32(Some(*n)),
        Value::Decimal(n) => {
            let (precision, scale) = (n.precision().max(n.scale), n.scale.cast_signed());
            ScalarValue::Decimal128(Some(n.unscaled), precision, scale)
        }
        Value::Wide(n) => {
            let (precision, scale) = (n.precision().max(n.scale), n.scale.cast_signed());
            ScalarValue::Decimal256(Some(n.unscaled), precision, scale)
        }
        Value::String(text) => ScalarValue::Utf8(Some(text.clone())),
        Value::Bytes(bytes) => ScalarValue::Binary(Some(bytes.clone())),
        Value::Date(days) => ScalarValue::Date32(Some(*days)),
        Value::DateTime(us) => ScalarValue::TimestampMicrosecond(Some(*us), None),
        Value::Timestamp(us) => ScalarValue::TimestampMicrosecond(Some(*us), Some("UTC".into())),
        Value::Time(us) => ScalarValue::DurationMicrosecond(Some(*us)),
    }
}

/// A value as an expression of a plan.
pub fn expr(value: &Value) -> Expr {
    Expr::Literal(scalar_value(value), None)
}
