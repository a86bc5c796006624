//! Stored values under another type: what ALTER TABLE … MODIFY makes of a column.
//!
//! An assignment would see a value alone; here its column's type says more of it: the number behind
//! a label, the digits of a second. What does not fit is [`to_column`]'s to refuse.

use types::value::format_time;
use types::{Column, ColumnType, Value};

use super::{Place, labels, to_column};
use crate::error::{SqlResult, unsupported};
use crate::temporal::{Zone, format_datetime};

/// Refuses what no value of one type means under the other.
pub fn check(from: ColumnType, to: ColumnType, column: &str) -> SqlResult<()> {
    // MySQL's text of a BIT is its bytes.
    if matches!(from, ColumnType::Bit(_)) && !to.is_number() {
        return Err(unsupported(format!("changing column {column} from {from} to {to}")));
    }
    Ok(())
}

/// What a value of a column of one type is for an assignment to a column of another.
pub fn assigned(value: Value, from: ColumnType, to: ColumnType, zone: Zone) -> Value {
    let written = to.is_text() || to.is_binary();
    match (value, from) {
        (Value::String(text), ColumnType::Enum(labels)) if to.is_number() => {
            Value::UInt(labels.number(&text).unwrap_or(0).into())
        }
        (Value::String(text), ColumnType::Set(labels)) if to.is_number() => {
            Value::UInt(labels.bits(&text).0)
        }
        (Value::Timestamp(us), ColumnType::Timestamp(digits)) if written => {
            Value::String(format_datetime(zone.to_local(us), digits))
        }
        (Value::Timestamp(us), _) if !matches!(to, ColumnType::Timestamp(_)) => {
            Value::DateTime(zone.to_local(us))
        }
        (Value::DateTime(us), ColumnType::DateTime(digits)) if written => {
            Value::String(format_datetime(us, digits))
        }
        (Value::Time(us), ColumnType::Time(digits)) if written => {
            Value::String(format_time(us, digits))
        }
        (Value::UInt(year), ColumnType::Year) if written => Value::String(format!("{year:04}")),
        (value, _) => value,
    }
}

/// Whether MySQL says of a value that is too long that it was truncated (1265), and not that it is
/// too long (1406): where it would only have to be cut.
pub fn cuts(from: ColumnType, to: ColumnType) -> bool {
    // Lengths of up to 255 bytes are stored in one byte, others in two.
    let alike = |from: u32, to: u32, bytes: u32| {
        (from.saturating_mul(bytes) > 255) == (to.saturating_mul(bytes) > 255)
    };
    match (from, to) {
        (ColumnType::Char(_), ColumnType::Char(_))
        | (ColumnType::Binary(_), ColumnType::Binary(_)) => true,
        (ColumnType::Varchar(from), ColumnType::Varchar(to)) => alike(from, to, 4),
        (ColumnType::Varbinary(from), ColumnType::Varbinary(to)) => alike(from, to, 1),
        _ => false,
    }
}

/// The text that stands for no label of an ENUM stays that in another.
pub fn of_no_label(value: &Value, from: ColumnType, to: ColumnType) -> Option<Value> {
    match (value, from, to) {
        (Value::String(text), ColumnType::Enum(known), ColumnType::Enum(list))
            if text.is_empty() && known.number("").is_none() =>
        {
            labels::of_no_label(list)
        }
        _ => None,
    }
}

/// A value of a column's type, to stand where there is none yet.
pub fn stand_in(column: &Column) -> SqlResult<Value> {
    if column.nullable {
        return Ok(Value::Null);
    }
    let value = match column.ty {
        ColumnType::Date => return Ok(Value::Date(0)),
        ColumnType::DateTime(_) => return Ok(Value::DateTime(0)),
        // The first second of a TIMESTAMP.
        ColumnType::Timestamp(_) => return Ok(Value::Timestamp(1_000_000)),
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            Value::Bytes(Vec::new())
        }
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => {
            Value::String(String::new())
        }
        ColumnType::Json => Value::String("null".into()),
        ColumnType::Enum(_) => Value::UInt(1),
        _ => Value::Int(0),
    };
    to_column(value, Place { column, row: 1, zone: Zone::UTC })
}
