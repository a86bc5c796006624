//! JSON documents where a number or a time is asked for.

use arrow::array::{ArrayRef, StringArray};
use values::error::{SqlError, SqlResult, json_too_deep, wrong_json_argument};
use values::json::{self, Doc, Fault};

use super::to_strings;

/// JSON as the text of what it is as a number, a time or a truth value: a text without its quotes,
/// true as 1; what is none of these is 0.
pub(super) fn scalars(array: &ArrayRef) -> SqlResult<StringArray> {
    let plain = |text: &str| {
        Ok(match json::parse(text).map_err(|fault| unreadable(fault, 1, "cast"))? {
            Doc::Bool(truth) => i32::from(truth).to_string(),
            Doc::Null | Doc::Array(_) | Doc::Object(_) => "0".to_owned(),
            other => other.unquoted(),
        })
    };
    to_strings(array)?.iter().map(|text| text.map(plain).transpose()).collect()
}

/// The error of an argument, by its number from 1, of a function that is no document.
pub(crate) fn unreadable(fault: Fault, number: usize, function: &str) -> SqlError {
    match fault {
        Fault::TooDeep => json_too_deep(),
        Fault::Text(what, position) => wrong_json_argument(number, function, what, position),
    }
}
