//! Types of columns as they are written, and what of MySQL's is not built.
//!
//! Types of labels (ENUM, SET) are `labels`'.

use sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo};
use syntax::decimal::digits;
use types::{ColumnType, IntWidth};
use values::error::{
    SqlResult, column_too_long, empty_bit, fraction_too_long, syntax, unsupported, wide_bit,
    wrong_float,
};

/// The type of a column, which errors call `name`.
pub(super) fn column_type(ty: &DataType, name: &str) -> SqlResult<ColumnType> {
    match number_type(ty, name)? {
        Some(number) => Ok(number),
        None => other_type(ty),
    }
}

/// The type of a column of numbers; nothing if it is none.
fn number_type(ty: &DataType, name: &str) -> SqlResult<Option<ColumnType>> {
    let int = |width, unsigned| ColumnType::Int { width, unsigned };
    Ok(Some(match ty {
        DataType::TinyInt(Some(1)) | DataType::Bool | DataType::Boolean => {
            int(IntWidth::Bool, false)
        }
        DataType::TinyInt(_) => int(IntWidth::Tiny, false),
        DataType::TinyIntUnsigned(_) | DataType::UTinyInt => int(IntWidth::Tiny, true),
        DataType::SmallInt(_) | DataType::Int2(_) => int(IntWidth::Small, false),
        DataType::SmallIntUnsigned(_) | DataType::USmallInt | DataType::Int2Unsigned(_) => {
            int(IntWidth::Small, true)
        }
        DataType::MediumInt(_) => int(IntWidth::Medium, false),
        DataType::MediumIntUnsigned(_) => int(IntWidth::Medium, true),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => int(IntWidth::Int, false),
        DataType::IntUnsigned(_) | DataType::IntegerUnsigned(_) | DataType::Int4Unsigned(_) => {
            int(IntWidth::Int, true)
        }
        DataType::BigInt(_) | DataType::Int8(_) => int(IntWidth::Big, false),
        DataType::BigIntUnsigned(_) | DataType::UBigInt | DataType::Int8Unsigned(_) => {
            int(IntWidth::Big, true)
        }
        DataType::Double(ExactNumberInfo::PrecisionAndScale(m, d)) => {
            return Err(unsupported(format!("DOUBLE({m},{d}) columns (use DOUBLE or DECIMAL)")));
        }
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real | DataType::Float8 => {
            ColumnType::Double
        }
        DataType::Float(info) => float(*info)?,
        DataType::FloatUnsigned(_) => return Err(unsupported("FLOAT UNSIGNED columns")),
        DataType::Bit(bits) => bit(bits.unwrap_or(1))?,
        DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info) => {
            let (precision, scale) = digits(*info, name)?;
            ColumnType::Decimal { precision, scale }
        }
        _ => return Ok(None),
    }))
}

/// BIT(n).
fn bit(bits: u64) -> SqlResult<ColumnType> {
    match u8::try_from(bits) {
        Ok(bits @ 1..=64) => Ok(ColumnType::Bit(bits)),
        Ok(0) => Err(empty_bit()),
        _ => Err(wide_bit()),
    }
}

/// The type of a column of texts, bytes or times.
fn other_type(ty: &DataType) -> SqlResult<ColumnType> {
    match ty {
        DataType::Time(digits, _) => Ok(ColumnType::Time(fraction(*digits)?)),
        DataType::Custom(name, digits)
            if name.to_string().eq_ignore_ascii_case("year")
                && (digits.is_empty() || digits.as_slice() == ["4"]) =>
        {
            Ok(ColumnType::Year)
        }
        DataType::Char(length) | DataType::Character(length) => {
            Ok(ColumnType::Char(chars(length.as_ref(), 255, Some(1))?))
        }
        DataType::Varchar(length)
        | DataType::CharVarying(length)
        | DataType::CharacterVarying(length)
        | DataType::Nvarchar(length) => {
            Ok(ColumnType::Varchar(chars(length.as_ref(), 16_383, None)?))
        }
        DataType::Binary(length) => Ok(ColumnType::Binary(bytes(length.unwrap_or(1), 255)?)),
        DataType::Varbinary(Some(sqlparser::ast::BinaryLength::IntegerLength { length })) => {
            Ok(ColumnType::Varbinary(bytes(*length, 65_532)?))
        }
        DataType::Varbinary(_) => Err(syntax("VARBINARY needs a length")),
        DataType::TinyBlob => Ok(ColumnType::Blob(255)),
        DataType::Blob(None) => Ok(ColumnType::Blob(65_535)),
        // BLOB(n) is the smallest of the four that holds n bytes, as in MySQL.
        DataType::Blob(Some(n)) => Ok(ColumnType::Blob(match n {
            0..=255 => 255,
            256..=65_535 => 65_535,
            65_536..=16_777_215 => 16_777_215,
            _ => bytes(*n, u32::MAX).map(|_| u32::MAX)?,
        })),
        DataType::MediumBlob => Ok(ColumnType::Blob(16_777_215)),
        DataType::LongBlob => Ok(ColumnType::Blob(u32::MAX)),
        DataType::TinyText => Ok(ColumnType::Text(255)),
        DataType::Text => Ok(ColumnType::Text(65_535)),
        DataType::MediumText => Ok(ColumnType::Text(16_777_215)),
        DataType::LongText => Ok(ColumnType::Text(u32::MAX)),
        DataType::JSON => Ok(ColumnType::Json),
        DataType::Date => Ok(ColumnType::Date),
        DataType::Datetime(digits) => Ok(ColumnType::DateTime(fraction(*digits)?)),
        DataType::Timestamp(digits, _) => Ok(ColumnType::Timestamp(fraction(*digits)?)),
        other => Err(unsupported(format!("columns of type {other}"))),
    }
}

fn bytes(length: u64, most: u32) -> SqlResult<u32> {
    u32::try_from(length)
        .ok()
        .filter(|length| *length <= most)
        .ok_or_else(|| column_too_long(most, "BLOB"))
}

fn fraction(digits: Option<u64>) -> SqlResult<u8> {
    match digits.unwrap_or(0) {
        digits @ 0..=6 => Ok(digits as u8),
        digits => Err(fraction_too_long(digits)),
    }
}

/// FLOAT(p) is DOUBLE from 25 bits on; FLOAT(m,d) would round to d digits, which is not kept (nor is DOUBLE(m,d)).
fn float(info: ExactNumberInfo) -> SqlResult<ColumnType> {
    match info {
        ExactNumberInfo::None | ExactNumberInfo::Precision(0..=24) => Ok(ColumnType::Float),
        ExactNumberInfo::Precision(25..=53) => Ok(ColumnType::Double),
        ExactNumberInfo::Precision(_) => Err(wrong_float()),
        ExactNumberInfo::PrecisionAndScale(m, d) => {
            Err(unsupported(format!("FLOAT({m},{d}) columns (use FLOAT or DECIMAL)")))
        }
    }
}

fn chars(length: Option<&CharacterLength>, most: u32, default: Option<u32>) -> SqlResult<u32> {
    let length = match (length, default) {
        (Some(CharacterLength::IntegerLength { length, .. }), _) => *length,
        (None, Some(default)) => u64::from(default),
        _ => return Err(syntax("VARCHAR needs a length")),
    };
    u32::try_from(length)
        .ok()
        .filter(|length| *length <= most)
        .ok_or_else(|| column_too_long(most, "TEXT"))
}
