//! Digests: `MD5`, and the digest of a whole row that `isobar diff` compares tables by.
//!
//! A row's text must stay the one that other servers can spell with CONCAT_WS, LENGTH and IFNULL:
//! what is computed here is compared with what they compute.

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type, UInt64Type};
use chrono::{Datelike as _, NaiveDateTime, Timelike as _};
use datafusion::common::{Result, ScalarValue};
use md5::{Digest, Md5};
use types::Decimal;
use types::value::format_time;
use values::error::SqlResult;
use values::temporal::{datetime, format_datetime};

use super::convert::{to_bytes, to_datetime, to_f64, to_i64, to_strings, to_time};
use super::{Function, text};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_md5", 1..=1, text, md5),
    Function::new("isobar_digest", 1..=4096, number, digest),
];

fn number(_: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(DataType::UInt64)
}

fn md5(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let texts = to_strings(&args[0])?;
    let sums = texts.iter().map(|text| text.map(|text| format!("{:x}", Md5::digest(text))));
    Ok(Arc::new(sums.collect::<StringArray>()))
}

/// One column, in the form its texts are made from.
enum Cells {
    Text(StringArray),
    Signed(ArrayRef),
    Unsigned(ArrayRef),
    Decimal(ArrayRef, u8),
    DateTime(ArrayRef),
    /// Texts that need no length before them: numbers and dates.
    Plain(StringArray),
}

impl Cells {
    fn of(array: &ArrayRef) -> SqlResult<Cells> {
        Ok(match array.data_type() {
            // As HEX() spells them on the other side.
            DataType::Binary => {
                let hex =
                    |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<String>();
                let bytes = to_bytes(array)?;
                Cells::Text(bytes.iter().map(|bytes| bytes.map(hex)).collect())
            }
            // A FLOAT by all its digits, as `+ 0e0` gives them on the other side.
            DataType::Float32 => {
                let wide: ArrayRef = Arc::new(to_f64(array)?);
                Cells::Plain(to_strings(&wide)?)
            }
            DataType::Duration(_) => {
                let us = to_time(array)?;
                Cells::Plain(us.iter().map(|us| us.map(|us| format_time(us, 6))).collect())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Cells::Text(to_strings(array)?)
            }
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Cells::Signed(Arc::new(to_i64(array)?))
            }
            DataType::UInt64 => Cells::Unsigned(array.clone()),
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => {
                Cells::Signed(Arc::new(to_i64(array)?))
            }
            DataType::Decimal128(_, scale) => {
                Cells::Decimal(array.clone(), u8::try_from(*scale).unwrap_or(0))
            }
            DataType::Timestamp(_, _) => Cells::DateTime(Arc::new(to_datetime(array)?)),
            _ => Cells::Plain(to_strings(array)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Cells::Text(array) | Cells::Plain(array) => array.is_null(row),
            Cells::Signed(array)
            | Cells::Unsigned(array)
            | Cells::Decimal(array, _)
            | Cells::DateTime(array) => array.is_null(row),
        }
    }

    /// Appends a value's text. Text carries its length, so that no two rows have one spelling; a
    /// NULL is the letter N, which no length and no number begins with.
    fn append(&self, row: usize, out: &mut Vec<u8>) {
        if self.is_null(row) {
            out.push(b'N');
            return;
        }
        // Writing to memory does not fail.
        _ = match self {
            Cells::Text(array) => write!(out, "{}:{}", array.value(row).len(), array.value(row)),
            Cells::Plain(array) => write!(out, "{}", array.value(row)),
            Cells::Signed(array) => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
            Cells::Unsigned(array) => {
                write!(out, "{}", array.as_primitive::<UInt64Type>().value(row))
            }
            Cells::Decimal(array, scale) => {
                let unscaled = array.as_primitive::<Decimal128Type>().value(row);
                write!(out, "{}", Decimal { unscaled, scale: *scale })
            }
            Cells::DateTime(array) => {
                let us =
                    array.as_primitive::<arrow::datatypes::TimestampMicrosecondType>().value(row);
                match datetime(us) {
                    Some(at) => write_datetime(at, out),
                    None => out.write_all(format_datetime(us, 6).as_bytes()),
                }
            }
        };
    }
}

/// A date with a time and six digits of the second: what [`format_datetime`] writes, without reading
/// a pattern for every value.
fn write_datetime(at: NaiveDateTime, out: &mut Vec<u8>) -> std::io::Result<()> {
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let us = at.and_utc().timestamp_subsec_micros();
    write!(out, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{us:06}")
}

/// The first 64 bits of the MD5 of a row's text: the values' texts with commas between them.
fn digest(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let columns = args.iter().map(Cells::of).collect::<SqlResult<Vec<_>>>()?;
    let mut line = Vec::new();
    let rows = (0..args[0].len()).map(|row| {
        line.clear();
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                line.push(b',');
            }
            column.append(row, &mut line);
        }
        let sum: [u8; 16] = Md5::digest(&line).into();
        sum.iter().take(8).fold(0, |high, byte| high << 8 | u64::from(*byte))
    });
    Ok(Arc::new(rows.collect::<UInt64Array>()))
}
