//! Values into columns of ENUM and SET: by label, or by number.
//!
//! What no label stands for is error 1265 here; what a statement with IGNORE makes of it is
//! [`nearest`].

use types::{ColumnType, Decimal, Labels, Value};

use super::{Place, characters, text};
use crate::error::SqlResult;

/// Longer texts are not read as numbers (MySQL's limits).
const LONGEST_NUMBER_OF_ENUM: usize = 5;
const LONGEST_NUMBER_OF_SET: usize = 21;

/// The whole number that a value of a numeric type is, its fraction cut.
fn whole(value: &Value) -> Option<i128> {
    match value {
        Value::Int(n) => Some(i128::from(*n)),
        Value::UInt(n) => Some(i128::from(*n)),
        Value::Decimal(Decimal { unscaled, scale }) => {
            Some(10i128.checked_pow(u32::from(*scale)).map_or(0, |unit| unscaled / unit))
        }
        Value::Wide(n) => n.unscaled.checked_div(types::wide::power(n.scale)?)?.to_i128(),
        Value::Double(n) => Some(*n as i128),
        Value::Float(n) => Some(*n as i128),
        _ => None,
    }
}

/// Digits alone, as a number of at most so many digits.
fn digits(text: &str, longest: usize) -> Option<u64> {
    let text = text.trim_start();
    (text.len() <= longest).then(|| text.parse().ok()).flatten()
}

/// The empty text that stands for no label; none where it is a label itself.
pub fn of_no_label(labels: Labels) -> Option<Value> {
    labels.number("").is_none().then(|| Value::String(String::new()))
}

/// A value as one of an ENUM's labels.
pub fn label(value: Value, labels: Labels, place: Place<'_>) -> SqlResult<Value> {
    let of_number = |n: u64| labels.label(n).map(|label| Value::String(label.to_owned()));
    if let Some(n) = whole(&value) {
        let found = u64::try_from(n).ok().and_then(of_number);
        return found.ok_or_else(|| place.truncated());
    }
    let text = characters(value, place)?;
    let text = text.trim_end_matches(' ');
    if labels.number(text).is_some() {
        return Ok(Value::String(text.to_owned()));
    }
    let found = digits(text, LONGEST_NUMBER_OF_ENUM).and_then(of_number);
    found.ok_or_else(|| place.truncated())
}

/// A value as some of a SET's labels.
pub fn set(value: Value, labels: Labels, place: Place<'_>) -> SqlResult<Value> {
    let of_number =
        |n: u64| (n & !labels.all_bits() == 0).then(|| Value::String(labels.of_bits(n)));
    if let Some(n) = whole(&value) {
        // A number below zero is its 64 bits.
        let bits = u64::try_from(n).or_else(|_| i64::try_from(n).map(i64::cast_unsigned));
        return bits.ok().and_then(of_number).ok_or_else(|| place.truncated());
    }
    let text = characters(value, place)?;
    let text = text.trim_end_matches(' ');
    let found = match labels.bits(text) {
        (bits, true) => Some(Value::String(labels.of_bits(bits))),
        (0, false) => digits(text, LONGEST_NUMBER_OF_SET).and_then(of_number),
        _ => None,
    };
    found.ok_or_else(|| place.truncated())
}

/// What stands for a value that fits no label: of an ENUM the empty text, of a SET the labels and
/// bits that there are.
pub fn nearest(value: &Value, ty: ColumnType) -> Option<Value> {
    match ty {
        ColumnType::Enum(labels) => of_no_label(labels),
        ColumnType::Set(labels) => {
            let bits = match whole(value) {
                Some(n) => n as u64 & labels.all_bits(),
                None => labels.bits(text(value.clone()).trim_end_matches(' ')).0,
            };
            Some(Value::String(labels.of_bits(bits)))
        }
        _ => None,
    }
}

/// The number of a value.
pub fn number(ty: ColumnType, value: &str) -> u64 {
    match ty {
        ColumnType::Enum(labels) => labels.number(value).map_or(0, u64::from),
        ColumnType::Set(labels) => labels.bits(value).0,
        _ => 0,
    }
}
