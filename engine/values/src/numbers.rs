//! Numbers in texts and bytes, read as MySQL reads them.
//!
//! Nothing here warns or fails: what a text has besides its number is its caller's to judge.

use arrow::datatypes::i256;
use types::Wide;
use types::wide::WIDE_MAX_PRECISION;

/// A double of which zero has no sign: to MySQL both zeros are equal, to those who compare, group and join here they are not.
pub fn unsigned_zero(n: f64) -> f64 {
    n + 0.0
}

/// The longest front of a text that is a number; `0` if there is none.
pub fn leading_number(text: &str) -> &str {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let start = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = digits(start);
    let mut count = end - start;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        count += fraction - end - 1;
        end = fraction;
    }
    if count == 0 {
        return "0";
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    text.get(..end).unwrap_or("0")
}

/// The number that a text spells, perhaps with an exponent, rounded half away from zero to a
/// scale; `None` where it has more than 65 digits then. No more of the text is looked at than
/// decides that, however long it is.
pub fn rounded(text: &str, scale: u8) -> Option<Wide> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let leading = whole.len() - whole.trim_start_matches('0').len();
    // Beyond these, an exponent of any number that a text is long enough for says all or nothing.
    let exponent = match exponent.parse::<i64>() {
        Ok(exponent) => exponent,
        Err(_) if exponent.starts_with('-') => i64::MIN / 2,
        Err(_) => i64::MAX / 2,
    };
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).skip(leading).collect();
    // Where the point stands among the digits, and the end of those that count.
    let point = ((whole.len() - leading) as i64).checked_add(exponent)?;
    let zero = || Some(Wide { unscaled: i256::ZERO, scale });
    let Some(first) = digits.iter().position(|digit| *digit != b'0') else { return zero() };
    if point.checked_sub(first as i64)? > i64::from(WIDE_MAX_PRECISION) {
        return None;
    }
    let end = point.checked_add(i64::from(scale))?;
    if end < first as i64 {
        return zero();
    }
    let mut unscaled = i256::ZERO;
    for at in first as i64..end {
        let digit = usize::try_from(at).ok().and_then(|at| digits.get(at)).map_or(0, |d| d - b'0');
        let more = unscaled.checked_mul(i256::from_i128(10))?;
        unscaled = more.checked_add(i256::from(i64::from(digit)))?;
    }
    let next = usize::try_from(end).ok().and_then(|at| digits.get(at));
    if next.is_some_and(|digit| *digit >= b'5') {
        unscaled = unscaled.checked_add(i256::ONE)?;
    }
    Wide { unscaled: if negative { unscaled.wrapping_neg() } else { unscaled }, scale }.checked()
}

/// The number that bytes are, the highest first; `None` beyond 64 bits.
pub fn number_of(bytes: &[u8]) -> Option<u64> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let rest = bytes.get(first..)?;
    (rest.len() <= 8).then(|| rest.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}
