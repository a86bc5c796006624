//! Kinds of Arrow types as MySQL's functions see them: which are numbers, texts, bytes or times, and how many digits
//! the exact ones have.
//!
//! No value is looked at here.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, TimeUnit};
use types::decimal::DECIMAL_MAX_PRECISION;

/// DATETIME in Arrow.
pub const DATETIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Most digits of what is computed.
pub const MOST: u8 = DECIMAL256_MAX_PRECISION;

/// The type of exact numbers of so many digits, in all and behind the point.
pub fn decimal_type(precision: u8, scale: i8) -> DataType {
    match precision > DECIMAL_MAX_PRECISION {
        true => DataType::Decimal256(precision, scale),
        false => DataType::Decimal128(precision, scale),
    }
}

/// Whether a type has more digits than 128 bits hold.
pub fn is_wide(ty: &DataType) -> bool {
    matches!(ty, DataType::Decimal256(..))
}

/// Digits in all and behind the point.
pub fn digits_of(ty: &DataType) -> Option<(u8, i8)> {
    match ty {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((*precision, *scale))
        }
        _ => None,
    }
}

/// What arithmetic makes of an operand of a type: Int64, UInt64, a decimal or Float64.
pub fn number_type(ty: &DataType) -> DataType {
    match ty {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            DataType::UInt64
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => ty.clone(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
        ty if is_string(ty) || is_binary(ty) => DataType::Float64,
        // A bare NULL is a text to arithmetic.
        DataType::Null => DataType::Float64,
        // HHMMSS with the fraction of the second.
        ty if is_time(ty) => DataType::Decimal128(13, 6),
        _ => DataType::Int64,
    }
}

/// Whether a type holds text.
pub fn is_string(ty: &DataType) -> bool {
    matches!(ty, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether a type is JSON: texts of documents in normal form, and nothing else.
pub fn is_json(ty: &DataType) -> bool {
    *ty == DataType::LargeUtf8
}

/// Whether a type holds bytes.
pub fn is_binary(ty: &DataType) -> bool {
    matches!(ty, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Whether a type is TIME.
pub fn is_time(ty: &DataType) -> bool {
    matches!(ty, DataType::Duration(_))
}

/// Whether a type is DATE, DATETIME or TIMESTAMP.
pub fn is_temporal(ty: &DataType) -> bool {
    matches!(ty, DataType::Date32 | DataType::Timestamp(_, _))
}

/// Whether a type is an integer.
pub fn is_integer(ty: &DataType) -> bool {
    ty.is_integer()
}

/// Integer digits and scale of an exact operand.
pub(super) fn digits(ty: &DataType) -> (i16, i8) {
    match (digits_of(ty), ty) {
        (Some((precision, scale)), _) => (i16::from(precision) - i16::from(scale), scale),
        (None, DataType::UInt64) => (20, 0),
        _ => (19, 0),
    }
}

/// Digits behind the point of a column of numbers.
pub(super) fn scale_of(array: &ArrayRef) -> i8 {
    digits(&number_type(array.data_type())).1
}

/// Whether a type's values are exact numbers.
pub(super) fn is_exact(ty: &DataType) -> bool {
    ty.is_integer() || *ty == DataType::Boolean || digits_of(ty).is_some()
}

/// Digits before the point of any value of an exact type, and behind it.
fn room(ty: &DataType) -> (u8, i8) {
    match ty {
        DataType::Boolean => (1, 0),
        DataType::Int8 | DataType::UInt8 => (3, 0),
        DataType::Int16 | DataType::UInt16 => (5, 0),
        DataType::Int32 | DataType::UInt32 => (10, 0),
        DataType::UInt64 => (20, 0),
        ty => match digits_of(&number_type(ty)) {
            Some((precision, scale)) => (precision.saturating_sub(scale.unsigned_abs()), scale),
            None => (19, 0),
        },
    }
}

/// The decimal type that holds every value of some exact types: narrow where 38 digits are enough, which is asked of the
/// types as they are; else as wide as 256 bits allow.
pub(super) fn holding(types: &[&DataType]) -> DataType {
    let needed = |room: fn(&DataType) -> (u8, i8)| {
        let rooms = types.iter().map(|ty| room(ty));
        let (whole, scale) =
            rooms.fold((0, 0), |(whole, scale), (w, s)| (w.max(whole), s.max(scale)));
        (whole + scale.unsigned_abs(), scale)
    };
    // Integers count as the widest of their kind, so that a type says little of where a value came from.
    let (digits, scale) = needed(|ty| room(&number_type(ty)));
    let wide = types.iter().any(|ty| is_wide(ty)) || needed(room).0 > DECIMAL_MAX_PRECISION;
    match wide {
        true => DataType::Decimal256(digits.clamp(DECIMAL_MAX_PRECISION + 1, MOST), scale),
        false => DataType::Decimal128(digits.min(DECIMAL_MAX_PRECISION), scale),
    }
}

/// Whether no type of 128 bits holds the values of both: then they compare at [`comparable`].
pub fn apart(a: &DataType, b: &DataType) -> bool {
    is_exact(a) && is_exact(b) && is_wide(&holding(&[a, b]))
}

/// The type at which two exact types compare: every digit behind a point, and room for any
/// number. What does not fit at that scale is larger than all that has it, and becomes the largest.
pub fn comparable(a: &DataType, b: &DataType) -> DataType {
    let scale = |ty: &DataType| digits_of(&number_type(ty)).map_or(0, |(_, scale)| scale);
    DataType::Decimal256(MOST, scale(a).max(scale(b)))
}
