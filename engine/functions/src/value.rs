//! Cells of Arrow columns, and scalars, as MySQL's values.
//!
//! Nothing is converted: a type that is none of MySQL's is an error.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use datafusion::common::ScalarValue;
use types::{Decimal, Value, Wide};
use values::error::{SqlResult, unknown};

/// The value at a row of an Arrow column.
pub fn value_at(array: &ArrayRef, row: usize) -> SqlResult<Value> {
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    macro_rules! int {
        ($ty:ty, $variant:ident, $to:ty) => {
            Value::$variant(<$to>::from(array.as_primitive::<$ty>().value(row)))
        };
    }
    Ok(match array.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Int(i64::from(array.as_boolean().value(row))),
        DataType::Int8 => int!(Int8Type, Int, i64),
        DataType::Int16 => int!(Int16Type, Int, i64),
        DataType::Int32 => int!(Int32Type, Int, i64),
        DataType::Int64 => int!(Int64Type, Int, i64),
        DataType::UInt8 => int!(UInt8Type, UInt, u64),
        DataType::UInt16 => int!(UInt16Type, UInt, u64),
        DataType::UInt32 => int!(UInt32Type, UInt, u64),
        DataType::UInt64 => int!(UInt64Type, UInt, u64),
        DataType::Float32 => int!(Float32Type, Float, f32),
        DataType::Float64 => int!(Float64Type, Double, f64),
        DataType::Decimal128(_, scale) => Value::Decimal(Decimal {
            unscaled: array.as_primitive::<Decimal128Type>().value(row),
            scale: u8::try_from(*scale).unwrap_or(0),
        }),
        DataType::Decimal256(_, scale) => Value::Wide(Box::new(Wide {
            unscaled: array.as_primitive::<Decimal256Type>().value(row),
            scale: u8::try_from(*scale).unwrap_or(0),
        })),
        DataType::Utf8 => Value::String(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Value::String(array.as_string::<i64>().value(row).to_owned()),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::Duration(arrow::datatypes::TimeUnit::Microsecond) => {
            int!(DurationMicrosecondType, Time, i64)
        }
        DataType::Date32 => Value::Date(array.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, zone) => {
            let us = array.as_primitive::<TimestampMicrosecondType>().value(row);
            if zone.is_some() { Value::Timestamp(us) } else { Value::DateTime(us) }
        }
        other => return Err(unknown(format!("a value of type {other} is none of MySQL's"))),
    })
}

/// A scalar of DataFusion as a value.
pub fn value_of(scalar: &ScalarValue) -> SqlResult<Value> {
    let array = scalar.to_array()?;
    let array = match array.data_type() {
        DataType::Utf8View => arrow::compute::cast(&array, &DataType::Utf8)?,
        DataType::BinaryView | DataType::LargeBinary => {
            arrow::compute::cast(&array, &DataType::Binary)?
        }
        _ => array,
    };
    value_at(&array, 0)
}
