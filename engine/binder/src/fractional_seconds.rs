//! Which functions take DATETIME and TIME values as text or as numbers, with the fractional seconds of their columns: the
//! type that a plan has for one says nothing of its digits, which are written beside the argument.

use functions::cast::STATED_CHAR;
use functions::{arithmetic, string};

/// What a function converts a datetime to.
pub(crate) enum Taken {
    /// A text.
    Text,
    /// A number.
    Number,
}

/// What a function converts its datetimes to; `None` if it takes them as they are.
pub(crate) fn taken(name: &str) -> Option<Taken> {
    let others = ["cast_char", STATED_CHAR, "mysql_like", "mysql_regexp"];
    if name == "mysql_format" {
        return None;
    }
    if others.contains(&name) || string::FUNCTIONS.iter().any(|function| function.name == name) {
        return Some(Taken::Text);
    }
    let sums = name.starts_with("sum_");
    let computes = arithmetic::FUNCTIONS.iter().any(|function| function.name == name);
    ((computes && !sums) || name == "mysql_unix_timestamp").then_some(Taken::Number)
}
