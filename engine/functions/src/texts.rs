//! What a text is taken for where a number or a time is asked for: what it begins with. What it has
//! besides gives a warning.

use values::numbers::{leading_number, unsigned_zero};
use values::temporal;

use super::warnings;

/// The double that a text is taken for: beyond the largest, that.
pub(super) fn read_f64(text: &str) -> f64 {
    let number = leading_number(text);
    let double = number.parse().unwrap_or(0.0);
    if !f64::is_finite(double) {
        warnings::truncated("DOUBLE", text);
        return f64::MAX.copysign(double);
    }
    warnings::read("DOUBLE", text, number);
    unsigned_zero(double)
}

/// The number that a text is taken for where it becomes a decimal.
pub(super) fn read_decimal(text: &str) -> &str {
    let number = leading_number(text);
    match text.trim().is_empty() {
        true => warnings::truncated("DECIMAL", text),
        false => warnings::read("DECIMAL", text, number),
    }
    number
}

/// The sign and the digits that a text starts with, and nothing behind them: `1.9` is 1, and so is
/// `1e3`. Beyond 128 bits the number is at their end.
pub(super) fn read_integer(text: &str) -> i128 {
    let begin = text.trim_start();
    let (negative, rest) = match begin.strip_prefix(['-', '+']) {
        Some(rest) => (begin.starts_with('-'), rest),
        None => (false, begin),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit);
    let (count, size) = digits.fold((0, 0i128), |(count, sum), digit| {
        (count + 1, sum.saturating_mul(10).saturating_add(i128::from(digit - b'0')))
    });
    let size = if negative { -size } else { size };
    let within = i128::from(i64::MIN)..=i128::from(u64::MAX);
    if count == 0
        || count < rest.trim_end_matches(warnings::BLANKS).len()
        || !within.contains(&size)
    {
        warnings::truncated("INTEGER", text);
    }
    size
}

/// The integer that a text is taken for.
pub(super) fn read_i64(text: &str) -> i64 {
    read_integer(text).clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// The DATETIME that a text is taken for.
pub(super) fn read_datetime(text: &str) -> Option<i64> {
    let datetime = temporal::parse_datetime(text);
    if datetime.is_none() {
        warnings::invalid_datetime(text);
    }
    datetime
}

/// The DATETIME that a number is taken for.
pub(super) fn datetime_of_number(n: i64) -> Option<i64> {
    let datetime = temporal::from_number(n);
    if datetime.is_none() && n != 0 {
        warnings::invalid_datetime(&n.to_string());
    }
    datetime
}

/// The TIME that a text is taken for: beyond its ends, the nearest.
pub(super) fn read_time(text: &str) -> Option<i64> {
    match temporal::begun_time(text) {
        Some((us, true)) => {
            warnings::truncated("time", text);
            Some(temporal::within_time(us))
        }
        read => within_time(read.map(|(us, _)| us), text),
    }
}

/// The TIME that a number HHMMSS is taken for.
pub(super) fn time_of_number(n: i64) -> Option<i64> {
    let time = temporal::time_from_number(n, 0);
    time.and_then(|us| within_time(Some(us), &n.to_string()))
}

fn within_time(us: Option<i64>, written: &str) -> Option<i64> {
    let within = us.map(temporal::within_time);
    if us.is_none() || within != us {
        warnings::truncated("time", written);
    }
    within
}
