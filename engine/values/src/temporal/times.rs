//! Texts as TIMEs.
//!
//! A text is read from its front, as far as it is a TIME; whether what follows is forgiven, the caller decides.

use super::{DAY_US, fraction_us, parse_datetime};

/// Fewest letters of a datetime: what is shorter is a TIME, and a day alone is none with a clock.
const DATETIME_LETTERS: usize = 12;

/// Reads a TIME: `[-][D ]HH[:MM[:SS]]`, `HHMMSS`, with a fraction; of a DATETIME its clock. `None`
/// if it is none, whatever its size.
pub fn parse_time(text: &str) -> Option<i64> {
    begun_time(text).filter(|(_, is_more)| !is_more).map(|(us, _)| us)
}

/// The TIME that a text begins with, and whether it is more than that: `1abc` is 00:00:01, and a day alone is read as the
/// number before its first separator. `None` where it begins with none.
pub fn begun_time(text: &str) -> Option<(i64, bool)> {
    let text = text.trim();
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    if text.len() >= DATETIME_LETTERS
        && let Some(read) = datetime(text)
    {
        let (us, is_more) = read?;
        return Some((us.rem_euclid(DAY_US), is_more));
    }
    let mut rest = text;
    let first = number(&mut rest)?.filter(|n| *n <= i64::from(u32::MAX))?;
    let clock = clock(first, &mut rest)?;
    let fraction = fraction(&mut rest)?;
    let (hours, minutes, seconds) = clock;
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let seconds = hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds)?;
    let us = seconds.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some((sign * us, !rest.trim_start().is_empty()))
}

/// The datetime that a text begins with and whether it is more; `None` inside where it is no datetime of the calendar,
/// outside where it does not look like one.
fn datetime(text: &str) -> Option<Option<(i64, bool)>> {
    let is_part = |c: char| c.is_ascii_digit() || "-/.:^ Tt".contains(c);
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    let (front, rest) = text.split_at_checked(end)?;
    let digits = front.bytes().take_while(u8::is_ascii_digit).count();
    let (_, behind) = front.split_at_checked(digits)?;
    let is_digits = digits >= DATETIME_LETTERS && (behind.is_empty() || behind.starts_with('.'));
    let has_clock =
        behind.starts_with(['-', '/', '^', 'T', 't']) && front.trim_end().contains([' ', 'T', 't']);
    if !is_digits && !has_clock {
        return None;
    }
    let is_more = !rest.trim_start().is_empty();
    Some(parse_datetime(front).map(|us| (us, is_more)))
}

/// The digits at the front as a number; beyond 64 bits none, and `None` outside where there are no digits.
fn number(rest: &mut &str) -> Option<Option<i64>> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (head, tail) = rest.split_at_checked(digits)?;
    *rest = tail;
    (digits > 0).then(|| head.parse().ok())
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// Hours, minutes and seconds behind the first number of a text, which is one of them, a day, or all of HHMMSS.
fn clock(first: i64, rest: &mut &str) -> Option<(i64, i64, i64)> {
    let behind = rest.trim_start();
    // A single digit behind the blanks is no hour.
    let has_days = behind.len() < rest.len() && behind.len() > 1 && begins_with_digit(behind);
    let mut parts = Vec::with_capacity(3);
    if has_days {
        *rest = behind;
        let hours = number(rest)??;
        parts.push(first.checked_mul(24)?.checked_add(hours)?);
    } else if rest.strip_prefix(':').is_some_and(begins_with_digit) {
        parts.push(first);
    } else {
        return Some((first / 10_000, first / 100 % 100, first % 100));
    }
    while parts.len() < 3
        && let Some(after) = rest.strip_prefix(':').filter(|after| begins_with_digit(after))
    {
        *rest = after;
        parts.push(number(rest)??);
    }
    let part = |at: usize| parts.get(at).copied().unwrap_or(0);
    Some((part(0), part(1), part(2)))
}

/// Microseconds behind the point; 0 without one. What is followed by an exponent is no TIME.
fn fraction(rest: &mut &str) -> Option<i64> {
    let mut us = 0;
    if let Some(after) = rest.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let (head, tail) = after.split_at_checked(digits)?;
        // A point with nothing behind it counts as one, and is more than a TIME before anything else.
        if digits > 0 || tail.is_empty() {
            us = fraction_us(head)?;
            *rest = tail;
        }
    }
    let exponent = rest.strip_prefix(['e', 'E']).map(|after| after.trim_start_matches(['+', '-']));
    match exponent.is_some_and(begins_with_digit) {
        true => None,
        false => Some(us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_as_far_as_it_is_a_time() {
        let second = 1_000_000;
        for (text, seconds, is_more) in [
            ("10:11:12", 36_672, false),
            (" -1:02 ", -3_720, false),
            ("101112", 36_672, false),
            ("1 10:11", 123_060, false),
            ("1 23", 169_200, false),
            ("1 2", 1, true),
            ("2024-02-29", 1_224, true),
            ("2024-02-29 10:11:12", 36_672, false),
            ("2024-02-29T10:11:12", 36_672, false),
            ("2024-02-29 10:11:12x", 36_672, true),
            ("20240229101112", 36_672, false),
            ("1abc", 1, true),
            ("10:11x", 36_660, true),
            ("12:3:", 43_380, true),
            ("12.", 12, false),
            ("1 10:11:12:13", 123_072, true),
        ] {
            assert_eq!(begun_time(text), Some((seconds * second, is_more)), "{text}");
        }
        for text in ["", "abc", "12:70", "99999999", "1e3", "2024-02-29 25:11:12", "99999999999"] {
            assert_eq!(begun_time(text), None, "{text}");
        }
        assert_eq!(parse_time("10:11:12.5"), Some(36_672_500_000));
        assert_eq!(parse_time("1abc"), None);
    }
}
