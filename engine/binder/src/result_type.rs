//! The MySQL types of what plans compute, as far as an Arrow type says them.

use arrow::datatypes::{DataType, TimeUnit};
use types::{ColumnType, IntWidth};

/// Length that a text of unknown length is announced with.
pub(crate) const TEXT_LENGTH: u32 = 255;

/// The MySQL type of an expression's values.
pub fn result_type(ty: &DataType, fraction: u8) -> Option<ColumnType> {
    let int = |width, unsigned| Some(ColumnType::Int { width, unsigned });
    match ty {
        DataType::Null => None,
        DataType::Int8 => int(IntWidth::Tiny, false),
        DataType::Int16 => int(IntWidth::Small, false),
        DataType::Int32 => int(IntWidth::Int, false),
        DataType::Int64 | DataType::Boolean => int(IntWidth::Big, false),
        DataType::UInt8 => int(IntWidth::Tiny, true),
        DataType::UInt16 => int(IntWidth::Small, true),
        DataType::UInt32 => int(IntWidth::Int, true),
        DataType::UInt64 => int(IntWidth::Big, true),
        DataType::Float16 | DataType::Float64 => Some(ColumnType::Double),
        DataType::Float32 => Some(ColumnType::Float),
        DataType::Duration(_) => Some(ColumnType::Time(fraction)),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Some(ColumnType::Varbinary(TEXT_LENGTH))
        }
        DataType::LargeUtf8 => Some(ColumnType::Json),
        // What is computed may have more digits than a column, and is reported as 65 of them.
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            Some(ColumnType::Decimal { precision: *p, scale: u8::try_from(*s).unwrap_or(0) })
        }
        DataType::Date32 | DataType::Date64 => Some(ColumnType::Date),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            Some(ColumnType::Timestamp(fraction))
        }
        DataType::Timestamp(_, _) => Some(ColumnType::DateTime(fraction)),
        _ => Some(ColumnType::Varchar(TEXT_LENGTH)),
    }
}
