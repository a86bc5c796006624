//! Parquet: columns by name, values in their plain spelling.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, Int64Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, UInt64Type,
};
use chrono::{DateTime, Duration, NaiveDate};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::class::{Class, decimal, float, hex};
use crate::error::{Error, Result};
use crate::rows::TakeRow;
use crate::schema::Column;

fn fail(file: &Path, cause: impl std::fmt::Display) -> Error {
    Error::File {
        file: file.to_owned(),
        place: String::new(),
        cause: format!("{cause}; write the file again, or name another"),
    }
}

fn open(file: &Path) -> Result<ParquetRecordBatchReaderBuilder<std::fs::File>> {
    let opened = std::fs::File::open(file).map_err(|error| fail(file, error))?;
    ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|error| fail(file, error))
}

/// The file's columns. A type without a text of its own is an error that names the column.
pub fn columns(file: &Path, ignored: &[String]) -> Result<Vec<Column>> {
    let reader = open(file)?;
    let fields = reader.schema().fields().iter();
    let wanted =
        fields.filter(|field| !ignored.iter().any(|name| name.eq_ignore_ascii_case(field.name())));
    let column = |field: &Arc<arrow::datatypes::Field>| {
        let class = class(field.data_type()).ok_or_else(|| Error::Schema {
            table: file.display().to_string(),
            cause: format!(
                "column {} is of type {}, which has no common text; leave it out with --ignore-columns",
                field.name(),
                field.data_type()
            ),
        })?;
        Ok(Column {
            name: field.name().clone(),
            class,
            type_name: field.data_type().to_string(),
            nullable: field.is_nullable(),
            collation: None,
            is_cast: false,
        })
    };
    wanted.map(column).collect()
}

fn class(ty: &DataType) -> Option<Class> {
    Some(match ty {
        ty if ty.is_integer() => Class::Int,
        DataType::Boolean => Class::Int,
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => {
            Class::Decimal(u8::try_from(*scale).ok()?)
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Class::Float,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Class::Text { padded: false },
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => Class::Binary,
        DataType::Date32 | DataType::Date64 => Class::Date,
        DataType::Timestamp(_, None) => Class::DateTime,
        DataType::Timestamp(_, Some(_)) => Class::Timestamp,
        DataType::Time32(_) | DataType::Time64(_) => Class::Time,
        DataType::Dictionary(_, values) => return class(values),
        _ => return None,
    })
}

/// Every row: the named columns.
pub fn scan(file: &Path, names: &[String], row: &mut TakeRow<'_>) -> Result<()> {
    let builder = open(file)?;
    let schema = builder.schema().clone();
    let find = |name: &String| {
        schema
            .fields()
            .iter()
            .position(|field| field.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| fail(file, format!("column {name} is missing")))
    };
    let places = names.iter().map(find).collect::<Result<Vec<_>>>()?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), places.iter().copied());
    let reader = builder
        .with_projection(mask)
        .with_batch_size(4096)
        .build()
        .map_err(|error| fail(file, error))?;
    let mut at = 0;
    for batch in reader {
        let batch = batch.map_err(|error| fail(file, format!("after row {at}: {error}")))?;
        let column = |place: &usize| {
            let name = schema.field(*place).name();
            let array = batch
                .column_by_name(name)
                .ok_or_else(|| fail(file, format!("column {name} is missing")))?;
            Texts::of(array).map_err(|error| fail(file, format!("column {name}: {error}")))
        };
        let columns = places.iter().map(column).collect::<Result<Vec<_>>>()?;
        for index in 0..batch.num_rows() {
            at += 1;
            let values = columns.iter().map(|column| column.at(index)).collect();
            row(values, &|| format!(", row {at}"))?;
        }
    }
    Ok(())
}

/// One column of a batch.
struct Texts {
    array: ArrayRef,
    /// Nanoseconds that the microseconds in `array` leave out.
    rest: Option<ArrayRef>,
}

impl Texts {
    fn of(array: &ArrayRef) -> std::result::Result<Texts, arrow::error::ArrowError> {
        let to = |ty: &DataType| arrow::compute::cast(array, ty);
        let mut rest = None;
        let array = match array.data_type() {
            DataType::UInt64 | DataType::Decimal128(_, _) | DataType::Utf8 | DataType::Binary => {
                array.clone()
            }
            ty if ty.is_integer() || *ty == DataType::Boolean => to(&DataType::Int64)?,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => to(&DataType::Float64)?,
            DataType::Date32 | DataType::Date64 => to(&DataType::Date32)?,
            DataType::Timestamp(unit, zone) => {
                if *unit == TimeUnit::Nanosecond {
                    rest = Some(to(&DataType::Int64)?);
                }
                to(&DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))?
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                to(&DataType::Time64(TimeUnit::Microsecond))?
            }
            DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                to(&DataType::Binary)?
            }
            DataType::Dictionary(_, values) => return Texts::of(&to(values)?),
            _ => to(&DataType::Utf8)?,
        };
        Ok(Texts { array, rest })
    }

    fn at(&self, index: usize) -> Option<String> {
        if self.array.is_null(index) {
            return None;
        }
        let array = &self.array;
        Some(match array.data_type() {
            DataType::UInt64 => array.as_primitive::<UInt64Type>().value(index).to_string(),
            DataType::Int64 => array.as_primitive::<Int64Type>().value(index).to_string(),
            DataType::Float64 => float(array.as_primitive::<Float64Type>().value(index)),
            DataType::Decimal128(_, scale) => decimal(
                array.as_primitive::<Decimal128Type>().value(index),
                u8::try_from(*scale).unwrap_or(0),
            ),
            DataType::Date32 => {
                let days = array.as_primitive::<Date32Type>().value(index);
                let date = NaiveDate::from_ymd_opt(1970, 1, 1)
                    .and_then(|epoch| epoch.checked_add_signed(Duration::days(i64::from(days))));
                date.map_or_else(
                    || format!("day {days}"),
                    |date| date.format("%Y-%m-%d").to_string(),
                )
            }
            DataType::Timestamp(_, _) => {
                let us = array.as_primitive::<TimestampMicrosecondType>().value(index);
                let mut text = datetime(us);
                let ns = self.rest.as_ref().map_or(0, |rest| {
                    rest.as_primitive::<Int64Type>().value(index).rem_euclid(1000)
                });
                if ns != 0 {
                    // No server holds these digits: the value is like none of theirs.
                    text.push_str(&format!("{ns:03}"));
                }
                text
            }
            DataType::Time64(_) => {
                let us = array.as_primitive::<Time64MicrosecondType>().value(index);
                let (seconds, us) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
                format!(
                    "{:02}:{:02}:{:02}.{us:06}",
                    seconds / 3600,
                    seconds / 60 % 60,
                    seconds % 60
                )
            }
            DataType::Binary => hex(array.as_binary::<i32>().value(index)),
            _ => array.as_string::<i32>().value(index).to_owned(),
        })
    }
}

fn datetime(us: i64) -> String {
    DateTime::from_timestamp_micros(us).map_or_else(
        || format!("microsecond {us}"),
        |at| at.format("%Y-%m-%d %H:%M:%S%.6f").to_string(),
    )
}

#[cfg(test)]
#[path = "tests/parquetfile.rs"]
mod tests;
