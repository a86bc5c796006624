//! Cells of Arrow columns, ready for either row format.
//!
//! The engine promises columns typed by `types::columns::arrow_type`; a neighbouring Arrow type
//! that holds the same values (`Utf8View`, a wider integer) is taken too. Anything else is a typed
//! error that names the column, never a wrong value.

use arrow::array::timezone::Tz;
use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::array::{
    Array, AsArray, BinaryArray, BinaryViewArray, BooleanArray, LargeBinaryArray, LargeStringArray,
    PrimitiveArray, RecordBatch, StringArray, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, TimeUnit, i256};
use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, Offset, TimeZone};
use types::ColumnType;
use values::column::ResultColumn;
use values::error::{self, SqlError};

/// One value, borrowed from its column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// NULL.
    Null,
    /// Signed integer.
    Int(i64),
    /// Unsigned integer.
    UInt(u64),
    /// DOUBLE.
    Double(f64),
    /// DOUBLE that shows so many digits behind the point.
    Fixed(f64, u8),
    /// DECIMAL: `unscaled / 10^scale`.
    Decimal {
        /// The digits.
        unscaled: i128,
        /// Digits behind the point.
        scale: u8,
    },
    /// DECIMAL of more than 38 digits: its digits, and how many stand behind the point.
    Wide(&'a i256, u8),
    /// FLOAT.
    Float(f32),
    /// YEAR of a table, which shows four digits; a computed one is an unsigned integer.
    Year(u16),
    /// BIT: the number, and how many bytes its column has.
    Bit(u64, usize),
    /// TIME, in microseconds.
    Time(i64),
    /// Text or bytes.
    Bytes(&'a [u8]),
    /// DATE.
    Date(NaiveDate),
    /// DATETIME, or TIMESTAMP in the session's time zone.
    DateTime(NaiveDateTime),
}

/// An Arrow column, downcast once.
enum Values<'a> {
    Null,
    Boolean(&'a BooleanArray),
    I8(&'a PrimitiveArray<Int8Type>),
    I16(&'a PrimitiveArray<Int16Type>),
    I32(&'a PrimitiveArray<Int32Type>),
    I64(&'a PrimitiveArray<Int64Type>),
    U8(&'a PrimitiveArray<UInt8Type>),
    U16(&'a PrimitiveArray<UInt16Type>),
    U32(&'a PrimitiveArray<UInt32Type>),
    U64(&'a PrimitiveArray<UInt64Type>),
    F32(&'a PrimitiveArray<Float32Type>),
    F64(&'a PrimitiveArray<Float64Type>),
    Fixed(&'a PrimitiveArray<Float64Type>, u8),
    Decimal(&'a PrimitiveArray<Decimal128Type>, u8),
    Wide(&'a PrimitiveArray<Decimal256Type>, u8),
    Year(&'a PrimitiveArray<UInt16Type>),
    Bit(&'a PrimitiveArray<UInt64Type>, usize),
    Span(&'a PrimitiveArray<DurationMicrosecondType>),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Date(&'a PrimitiveArray<Date32Type>),
    /// Zoneless, or already shown in the session's zone.
    Local(&'a PrimitiveArray<TimestampMicrosecondType>),
    /// UTC, to be shown in the session's zone.
    Utc(&'a PrimitiveArray<TimestampMicrosecondType>, Tz),
}

/// Reads the cells of one column of one batch.
pub struct CellReader<'a> {
    column: &'a ResultColumn,
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
}

/// Readers of all columns of a batch, in the order of `columns`. `zone` is the session's.
pub fn readers<'a>(
    batch: &'a RecordBatch,
    columns: &'a [ResultColumn],
    zone: Tz,
) -> Result<Vec<CellReader<'a>>, SqlError> {
    if batch.num_columns() != columns.len() {
        return Err(error::unknown(format!(
            "the engine announced {} columns and sent {}",
            columns.len(),
            batch.num_columns()
        )));
    }
    let pairs = batch.columns().iter().zip(columns);
    pairs.map(|(array, column)| CellReader::new(array.as_ref(), column, zone)).collect()
}

impl<'a> CellReader<'a> {
    fn new(array: &'a dyn Array, column: &'a ResultColumn, zone: Tz) -> Result<Self, SqlError> {
        let mismatch = || {
            let declared = match column.ty {
                Some(ty) => ty.to_string(),
                None => "NULL".to_owned(),
            };
            error::unknown(format!(
                "column '{}' is declared {declared} and came as {}",
                column.name,
                array.data_type()
            ))
        };
        let values = match (column.ty, array.data_type()) {
            (_, DataType::Null) => Values::Null,
            (Some(ColumnType::Int { .. }), _) => integers(array).ok_or_else(mismatch)?,
            (Some(ColumnType::Double), DataType::Float64) => match column.decimals {
                Some(digits) => Values::Fixed(array.as_primitive(), digits),
                None => Values::F64(array.as_primitive()),
            },
            (Some(ColumnType::Double | ColumnType::Float), DataType::Float32) => {
                Values::F32(array.as_primitive())
            }
            (Some(ColumnType::Year), DataType::UInt16) if column.org_table.is_empty() => {
                Values::U16(array.as_primitive())
            }
            (Some(ColumnType::Year), DataType::UInt16) => Values::Year(array.as_primitive()),
            (Some(ColumnType::Bit(bits)), DataType::UInt64) => {
                Values::Bit(array.as_primitive(), usize::from(bits).div_ceil(8))
            }
            (Some(ColumnType::Time(_)), DataType::Duration(TimeUnit::Microsecond)) => {
                Values::Span(array.as_primitive())
            }
            (Some(ty), DataType::Binary) if ty.is_binary() => Values::Binary(array.as_binary()),
            (Some(ty), DataType::LargeBinary) if ty.is_binary() => {
                Values::LargeBinary(array.as_binary())
            }
            (Some(ty), DataType::BinaryView) if ty.is_binary() => {
                Values::BinaryView(array.as_binary_view())
            }
            (Some(ColumnType::Decimal { .. }), DataType::Decimal128(_, scale)) => {
                let scale = u8::try_from(*scale).map_err(|_| mismatch())?;
                Values::Decimal(array.as_primitive(), scale)
            }
            (Some(ColumnType::Decimal { .. }), DataType::Decimal256(_, scale)) => {
                let scale = u8::try_from(*scale).map_err(|_| mismatch())?;
                Values::Wide(array.as_primitive(), scale)
            }
            (Some(declared), ty) if declared.is_text() || declared == ColumnType::Json => {
                match ty {
                    DataType::Utf8 => Values::Utf8(array.as_string()),
                    DataType::LargeUtf8 => Values::LargeUtf8(array.as_string()),
                    DataType::Utf8View => Values::Utf8View(array.as_string_view()),
                    _ => return Err(mismatch()),
                }
            }
            (Some(ColumnType::Date), DataType::Date32) => Values::Date(array.as_primitive()),
            (Some(ColumnType::DateTime(_)), DataType::Timestamp(TimeUnit::Microsecond, None)) => {
                Values::Local(array.as_primitive())
            }
            (
                Some(ColumnType::Timestamp(_)),
                DataType::Timestamp(TimeUnit::Microsecond, Some(_)),
            ) => Values::Utc(array.as_primitive(), zone),
            _ => return Err(mismatch()),
        };
        Ok(Self { column, values, nulls: array.nulls() })
    }

    /// Name of the column.
    pub fn name(&self) -> &str {
        &self.column.name
    }

    /// Declared type of the column.
    pub fn ty(&self) -> Option<ColumnType> {
        self.column.ty
    }

    /// Digits of a second's fraction that the column shows.
    pub fn fraction(&self) -> u8 {
        match self.column.ty {
            Some(
                ColumnType::DateTime(digits)
                | ColumnType::Timestamp(digits)
                | ColumnType::Time(digits),
            ) => digits,
            _ => 0,
        }
    }

    /// The value in a row, which must be one of the batch.
    pub fn cell(&self, row: usize) -> Result<Cell<'a>, SqlError> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(Cell::Null);
        }
        Ok(match &self.values {
            Values::Null => Cell::Null,
            Values::Boolean(a) => Cell::Int(i64::from(a.value(row))),
            Values::I8(a) => Cell::Int(wide(a, row)),
            Values::I16(a) => Cell::Int(wide(a, row)),
            Values::I32(a) => Cell::Int(wide(a, row)),
            Values::I64(a) => Cell::Int(wide(a, row)),
            Values::U8(a) => Cell::UInt(wide(a, row)),
            Values::U16(a) => Cell::UInt(wide(a, row)),
            Values::U32(a) => Cell::UInt(wide(a, row)),
            Values::U64(a) => Cell::UInt(wide(a, row)),
            Values::F32(a) if self.column.ty == Some(ColumnType::Float) => {
                Cell::Float(a.value(row))
            }
            Values::F32(a) => Cell::Double(wide(a, row)),
            Values::Year(a) => Cell::Year(a.value(row)),
            Values::Bit(a, bytes) => Cell::Bit(a.value(row), *bytes),
            Values::Span(a) => Cell::Time(a.value(row)),
            Values::Binary(a) => Cell::Bytes(a.value(row)),
            Values::LargeBinary(a) => Cell::Bytes(a.value(row)),
            Values::BinaryView(a) => Cell::Bytes(a.value(row)),
            Values::F64(a) => Cell::Double(wide(a, row)),
            Values::Fixed(a, digits) => Cell::Fixed(wide(a, row), *digits),
            Values::Decimal(a, scale) => Cell::Decimal { unscaled: a.value(row), scale: *scale },
            Values::Wide(a, scale) => {
                a.values().get(row).map_or(Cell::Null, |n| Cell::Wide(n, *scale))
            }
            Values::Utf8(a) => Cell::Bytes(a.value(row).as_bytes()),
            Values::LargeUtf8(a) => Cell::Bytes(a.value(row).as_bytes()),
            Values::Utf8View(a) => Cell::Bytes(a.value(row).as_bytes()),
            Values::Date(a) => Cell::Date(self.date(a.value(row))?),
            Values::Local(a) => Cell::DateTime(self.time(a.value(row))?),
            Values::Utc(a, zone) => {
                let utc = self.time(a.value(row))?;
                let offset = zone.offset_from_utc_datetime(&utc).fix();
                let shown = utc.checked_add_offset(offset);
                Cell::DateTime(shown.ok_or_else(|| self.no_calendar())?)
            }
        })
    }

    fn date(&self, days: i32) -> Result<NaiveDate, SqlError> {
        let span = Days::new(u64::from(days.unsigned_abs()));
        let date = match days < 0 {
            true => NaiveDate::default().checked_sub_days(span),
            false => NaiveDate::default().checked_add_days(span),
        };
        date.ok_or_else(|| self.no_calendar())
    }

    fn time(&self, micros: i64) -> Result<NaiveDateTime, SqlError> {
        let time = DateTime::from_timestamp_micros(micros).ok_or_else(|| self.no_calendar())?;
        Ok(time.naive_utc())
    }

    fn no_calendar(&self) -> SqlError {
        error::unknown(format!("column '{}' holds a time outside the calendar", self.column.name))
    }
}

fn wide<T: ArrowPrimitiveType, W: From<T::Native>>(array: &PrimitiveArray<T>, row: usize) -> W {
    W::from(array.value(row))
}

fn integers(array: &dyn Array) -> Option<Values<'_>> {
    Some(match array.data_type() {
        DataType::Boolean => Values::Boolean(array.as_boolean()),
        DataType::Int8 => Values::I8(array.as_primitive()),
        DataType::Int16 => Values::I16(array.as_primitive()),
        DataType::Int32 => Values::I32(array.as_primitive()),
        DataType::Int64 => Values::I64(array.as_primitive()),
        DataType::UInt8 => Values::U8(array.as_primitive()),
        DataType::UInt16 => Values::U16(array.as_primitive()),
        DataType::UInt32 => Values::U32(array.as_primitive()),
        DataType::UInt64 => Values::U64(array.as_primitive()),
        _ => return None,
    })
}
