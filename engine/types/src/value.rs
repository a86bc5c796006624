//! One column of one row, in memory.
//!
//! Values are already of their column's type: coercion from SQL literals is `sql`'s business.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::wide::Wide;

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// Any signed integer column.
    Int(i64),
    /// Any unsigned integer column, YEAR and BIT.
    UInt(u64),
    /// DOUBLE; never NaN or infinite.
    Double(f64),
    /// DECIMAL of up to 38 digits, at its column's scale.
    Decimal(Decimal),
    /// CHAR, VARCHAR, TEXT, JSON, ENUM, SET; UTF-8, compared by bytes (utf8mb4_bin).
    String(String),
    /// DATE: days since 1970-01-01.
    Date(i32),
    /// DATETIME: microseconds since 1970-01-01 00:00:00 of a calendar without zones.
    DateTime(i64),
    /// TIMESTAMP: microseconds since 1970-01-01 00:00:00 UTC.
    Timestamp(i64),
    /// BINARY, VARBINARY, BLOB; compared byte by byte.
    Bytes(Vec<u8>),
    /// FLOAT; never NaN or infinite.
    Float(f32),
    /// TIME: microseconds, negative or not.
    Time(i64),
    /// DECIMAL of more than 38 digits, at its column's scale. Boxed: other values stay small.
    Wide(Box<Wide>),
}

impl Value {
    /// Whether this is SQL NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Int(n) => write!(f, "{n}"),
            Value::UInt(n) => write!(f, "{n}"),
            Value::Double(n) => write!(f, "{n}"),
            Value::Decimal(n) => write!(f, "{n}"),
            Value::Wide(n) => write!(f, "{n}"),
            Value::String(s) => f.write_str(s),
            Value::Date(days) => {
                match chrono::DateTime::from_timestamp(i64::from(*days) * 86_400, 0) {
                    Some(date) => write!(f, "{}", date.format("%Y-%m-%d")),
                    None => write!(f, "day {days}"),
                }
            }
            Value::DateTime(us) | Value::Timestamp(us) => {
                match chrono::DateTime::from_timestamp_micros(*us) {
                    Some(time) if us % 1_000_000 == 0 => {
                        write!(f, "{}", time.format("%Y-%m-%d %H:%M:%S"))
                    }
                    Some(time) => write!(f, "{}", time.format("%Y-%m-%d %H:%M:%S%.6f")),
                    None => write!(f, "microsecond {us}"),
                }
            }
            // Bytes that are no text are shown as MySQL shows them in messages.
            Value::Bytes(bytes) => {
                for chunk in bytes.utf8_chunks() {
                    f.write_str(chunk.valid())?;
                    for byte in chunk.invalid() {
                        write!(f, "\\x{byte:02X}")?;
                    }
                }
                Ok(())
            }
            Value::Float(n) => f.write_str(&format_float(*n)),
            Value::Time(us) => {
                f.write_str(&format_time(*us, if us % 1_000_000 == 0 { 0 } else { 6 }))
            }
        }
    }
}

/// MySQL's spelling of a FLOAT: six significant digits, with an exponent where the point would
/// stand more than 15 places from them.
pub fn format_float(n: f32) -> String {
    if n == 0.0 {
        return "0".into();
    }
    // Rounded to six digits, then the shortest text of that.
    let rounded: f64 = format!("{n:.5e}").parse().unwrap_or(f64::from(n));
    if (1e-15..1e15).contains(&rounded.abs()) {
        format!("{rounded}")
    } else {
        format!("{rounded:e}")
    }
}

/// Largest exponent position that MySQL still prints without an exponent (`DBL_DIG`).
const MAX_POINT: i32 = 15;

/// Prints a DOUBLE as MySQL's `my_gcvt` does: the shortest digits that read back as the same
/// number; with an exponent if the point would stand more than 15 places away from the digits.
pub fn write_double(out: &mut impl Write, n: f64) -> std::fmt::Result {
    if n == 0.0 || !n.is_finite() {
        return write!(out, "{n}");
    }
    let scientific = format!("{n:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count() as i32;
    // Position of the decimal point relative to the first digit: 1 for 1.5, 0 for 0.15.
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    if point > -MAX_POINT && (point <= MAX_POINT || digits > point) {
        write!(out, "{n}")
    } else {
        out.write_str(&scientific)
    }
}

/// The text that [`write_double`] prints.
pub fn format_double(n: f64) -> String {
    let mut text = String::new();
    // A String takes any text.
    let _infallible = write_double(&mut text, n);
    text
}

/// `[-]HH:MM:SS`, and so many digits of the second's fraction, cut.
pub fn format_time(us: i64, digits: u8) -> String {
    let sign = if us < 0 { "-" } else { "" };
    let size = us.unsigned_abs();
    let (seconds, micros) = (size / 1_000_000, size % 1_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let text = format!("{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60);
    match digits.min(6) {
        0 => text,
        digits => {
            let cut = micros / 10u64.pow(u32::from(6 - digits));
            format!("{text}.{cut:0width$}", width = usize::from(digits))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn doubles_print_as_mysql_prints_them() {
        // Left: what MySQL 8.0 answers to SELECT of the number on the right.
        for (text, n) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("1", 1.0),
            ("-1.5", -1.5),
            ("0.1", 0.1),
            ("0.30000000000000004", 0.1 + 0.2),
            ("100000000000000", 1e14),
            ("1e15", 1e15),
            ("-1e15", -1e15),
            ("123456789012345", 123456789012345.0),
            ("1.234567890123456e15", 1234567890123456.0),
            ("1234567890123456.8", 1234567890123456.7),
            ("1.2345678901234568e17", 123456789012345678.0),
            ("1e20", 1e20),
            ("0.00001", 1e-5),
            ("0.000000000000001", 1e-15),
            ("1e-16", 1e-16),
            ("1.5e300", 1.5e300),
            ("1.7976931348623157e308", f64::MAX),
            ("5e-324", 5e-324),
        ] {
            assert_eq!(format_double(n), text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), n.to_bits());
        }
    }
}
