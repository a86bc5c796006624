//! Text functions over bytes: BINARY, VARBINARY and BLOB arguments count bytes, not characters.
//!
//! Most are computed by their text form over a text with one character for each byte, so that the
//! two can never disagree on anything but the unit. Nothing here may decode bytes as UTF-8.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use md5::{Digest, Md5};
use values::error::SqlResult;

use super::Function;
use super::convert::to_bytes;
use super::kinds::{is_binary, is_string};

/// Functions that give bytes for bytes.
const BYTES: &[&str] = &[
    "mysql_concat",
    "mysql_concat_ws",
    "mysql_elt",
    "mysql_left",
    "mysql_lower",
    "mysql_lpad",
    "mysql_ltrim",
    "mysql_repeat",
    "mysql_replace",
    "mysql_reverse",
    "mysql_right",
    "mysql_rpad",
    "mysql_rtrim",
    "mysql_substring",
    "mysql_substring_index",
    "mysql_trim",
    "mysql_upper",
];

/// Functions that give something else for bytes.
const OTHERS: &[&str] = &[
    "mysql_ascii",
    "mysql_bit_length",
    "mysql_char_length",
    "mysql_field",
    "mysql_find_in_set",
    "mysql_hex",
    "mysql_length",
    "mysql_like",
    "mysql_locate",
    "mysql_md5",
    "mysql_strcmp",
];

/// Whether a call has bytes among its arguments, and counts by them.
pub fn applies<'a>(name: &str, mut types: impl Iterator<Item = &'a DataType>) -> bool {
    types.any(is_binary) && (BYTES.contains(&name) || OTHERS.contains(&name))
}

/// What such a call returns.
pub fn returned(name: &str, of_text: DataType) -> DataType {
    if BYTES.contains(&name) { DataType::Binary } else { of_text }
}

/// What such a call computes.
pub fn eval(function: &Function, args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let count = |f: fn(&[u8]) -> i64| -> SqlResult<ArrayRef> {
        let bytes = to_bytes(&args[0])?;
        Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(f)).collect::<Int64Array>()))
    };
    let text = |f: fn(&[u8]) -> String| -> SqlResult<ArrayRef> {
        let bytes = to_bytes(&args[0])?;
        Ok(Arc::new(bytes.iter().map(|bytes| bytes.map(f)).collect::<StringArray>()))
    };
    match function.name {
        "mysql_length" | "mysql_char_length" => count(|bytes| bytes.len() as i64),
        "mysql_bit_length" => count(|bytes| bytes.len() as i64 * 8),
        "mysql_ascii" => count(|bytes| bytes.first().copied().map_or(0, i64::from)),
        "mysql_hex" => text(|bytes| bytes.iter().map(|byte| format!("{byte:02X}")).collect()),
        "mysql_md5" => text(|bytes| format!("{:x}", Md5::digest(bytes))),
        "mysql_substring_index" => {
            let wide = args.iter().map(widened).collect::<SqlResult<Vec<_>>>()?;
            narrowed(&super::string::substring_index(&wide, true)?)
        }
        // Bytes have no case.
        "mysql_upper" | "mysql_lower" => Ok(Arc::new(to_bytes(&args[0])?)),
        _ => {
            let wide = args.iter().map(widened).collect::<SqlResult<Vec<_>>>()?;
            let of_text = if *ty == DataType::Binary { DataType::Utf8 } else { ty.clone() };
            let result = (function.eval)(&wide, &of_text)?;
            if *ty == DataType::Binary { narrowed(&result) } else { Ok(result) }
        }
    }
}

/// Text and bytes as one character for each byte; numbers as they are.
fn widened(array: &ArrayRef) -> SqlResult<ArrayRef> {
    if !is_binary(array.data_type()) && !is_string(array.data_type()) {
        return Ok(array.clone());
    }
    let wide = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect::<String>();
    Ok(Arc::new(to_bytes(array)?.iter().map(|b| b.map(wide)).collect::<StringArray>()))
}

/// The way back. A character beyond a byte cannot be there: it is kept as its UTF-8.
fn narrowed(array: &ArrayRef) -> SqlResult<ArrayRef> {
    let bytes = |text: &str| {
        let mut bytes = Vec::with_capacity(text.len());
        for c in text.chars() {
            match u8::try_from(u32::from(c)) {
                Ok(byte) => bytes.push(byte),
                Err(_) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes
    };
    let text = array.as_string::<i32>();
    Ok(Arc::new(text.iter().map(|text| text.map(bytes)).collect::<BinaryArray>()))
}
