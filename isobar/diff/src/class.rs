//! Kinds of values, the rule that two columns are compared by, and the one text of each value.
//!
//! Both sides must spell a value alike: what is not equal in text is looked at again by
//! [`Rule::same`], but what is equal in text is never looked at again.

use serde::{Deserialize, Serialize};

/// A kind of values that have one spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Class {
    /// Whole numbers, signed or not; BIT and BOOL too.
    Int,
    /// DECIMAL with so many digits after the point.
    Decimal(u8),
    /// DOUBLE and FLOAT.
    Float,
    /// Text. `padded`: CHAR, whose trailing spaces mean nothing.
    Text {
        /// Whether trailing spaces mean nothing.
        padded: bool,
    },
    /// Bytes, spelled in hexadecimal.
    Binary,
    /// DATE.
    Date,
    /// DATETIME: a reading of the clock, without a zone.
    DateTime,
    /// TIMESTAMP: an instant, spelled in UTC.
    Timestamp,
    /// TIME: a span of at most 838 hours.
    Time,
    /// Text of a file that says no types: takes the other side's class.
    Unknown,
}

impl Class {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Class::Int => "whole number",
            Class::Decimal(_) => "decimal",
            Class::Float => "float",
            Class::Text { .. } => "text",
            Class::Binary => "binary",
            Class::Date => "date",
            Class::DateTime => "datetime",
            Class::Timestamp => "timestamp",
            Class::Time => "time",
            Class::Unknown => "untyped text",
        }
    }
}

/// How one column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Spelling.
    pub class: Class,
    /// Decimals without trailing zeros, because the sides' scales differ.
    pub trim_zeros: bool,
    /// Text without trailing spaces.
    pub trim_spaces: bool,
    /// Text without case.
    pub fold_case: bool,
    /// Floats are equal within one unit of this significant digit.
    pub float_digits: Option<u8>,
}

impl Rule {
    /// Bytes are compared as they are.
    pub fn exact(class: Class) -> Rule {
        Rule { class, trim_zeros: false, trim_spaces: false, fold_case: false, float_digits: None }
    }

    /// Whether two values, as they were read, are the same.
    pub fn same(&self, a: Option<&str>, b: Option<&str>) -> bool {
        let (a, b) = match (a, b) {
            (Some(a), Some(b)) => (a, b),
            (a, b) => return a.is_none() && b.is_none(),
        };
        if self.class == Class::Float {
            return match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => same_float(a, b, self.float_digits),
                _ => a == b,
            };
        }
        self.spelled(a) == self.spelled(b)
    }

    /// The text that goes into a digest, for a value in its plain spelling.
    pub fn spelled(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if self.trim_zeros && text.contains('.') {
            text = text.trim_end_matches('0').trim_end_matches('.').to_owned();
        }
        if self.trim_spaces {
            text.truncate(text.trim_end_matches(' ').len());
        }
        if self.fold_case {
            text = text.to_lowercase();
        }
        if let (Some(digits), Ok(n)) = (self.float_digits, text.parse::<f64>()) {
            text = rounded_float(n, digits);
        }
        text
    }
}

/// Equal, or within one unit of the last of so many significant digits of the larger.
fn same_float(a: f64, b: f64, digits: Option<u8>) -> bool {
    if a == b {
        return true;
    }
    let Some(digits) = digits else { return false };
    let larger = a.abs().max(b.abs());
    let unit = 10f64.powi(larger.log10().floor() as i32 + 1 - i32::from(digits));
    (a - b).abs() <= unit
}

/// A float of so many significant digits, as `mantissa e exponent`: what the SQL of
/// [`crate::expr`] computes, too.
pub fn rounded_float(n: f64, digits: u8) -> String {
    if n == 0.0 {
        return "0".into();
    }
    let exponent = n.abs().log10().floor();
    let mantissa = (n / 10f64.powf(exponent - f64::from(digits) + 1.0)).round();
    if !mantissa.is_finite() || !exponent.is_finite() {
        return format!("?{}", float(n));
    }
    format!("{}e{}", mantissa as i64, exponent as i64)
}

/// A float in the shortest digits that read back the same, as MySQL spells it.
pub fn float(n: f64) -> String {
    if n == 0.0 {
        "0".into()
    } else if (1e-15..1e15).contains(&n.abs()) {
        format!("{n}")
    } else {
        format!("{n:e}")
    }
}

/// A decimal of an unscaled number.
pub fn decimal(unscaled: i128, scale: u8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// A date with a time, or a time, with six digits of the second.
pub fn six_digits(text: &str) -> String {
    match text.split_once('.') {
        None => format!("{text}.000000"),
        Some((front, fraction)) => format!("{front}.{fraction:0<6}"),
    }
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to memory does not fail.
        _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_spelling() {
        assert_eq!(
            [float(0.5), float(-0.0), float(1e15), float(-2.5e-16)],
            ["0.5", "0", "1e15", "-2.5e-16"]
        );
        assert_eq!([decimal(-5, 2), decimal(1234, 2), decimal(7, 0)], ["-0.05", "12.34", "7"]);
        assert_eq!(decimal(i128::MIN, 38).len(), 41);
        assert_eq!(six_digits("2013-01-02 03:04:05"), "2013-01-02 03:04:05.000000");
        assert_eq!(six_digits("2013-01-02 03:04:05.6"), "2013-01-02 03:04:05.600000");
        assert_eq!(hex(&[0, 255, 0x1b]), "00FF1B");
    }

    #[test]
    fn rules_are_followed() {
        let decimal = Rule { trim_zeros: true, ..Rule::exact(Class::Decimal(2)) };
        assert!(decimal.same(Some("1.50"), Some("1.5")) && decimal.same(Some("3.00"), Some("3")));
        assert!(!decimal.same(Some("100"), Some("1")) && !decimal.same(Some("1.5"), None));
        let text = Rule {
            trim_spaces: true,
            fold_case: true,
            ..Rule::exact(Class::Text { padded: true })
        };
        assert!(text.same(Some("Ä b  "), Some("ä B")) && !text.same(Some(" a"), Some("a")));
        let exact = Rule::exact(Class::Text { padded: false });
        assert!(
            !exact.same(Some(""), None)
                && exact.same(None, None)
                && !exact.same(Some("a "), Some("a"))
        );
    }

    #[test]
    fn floats_are_equal_within_a_digit() {
        let rule = Rule { float_digits: Some(6), ..Rule::exact(Class::Float) };
        assert!(
            rule.same(Some("1.000001"), Some("1.0000012"))
                && rule.same(Some("1e300"), Some("1.000001e300"))
        );
        assert!(!rule.same(Some("1.0001"), Some("1.0002")) && !rule.same(Some("0"), Some("1e-9")));
        let exact = Rule::exact(Class::Float);
        assert!(exact.same(Some("1e2"), Some("100")) && exact.same(Some("-0"), Some("0")));
        assert!(!exact.same(Some("0.1"), Some("0.10000000000000002")));
    }

    #[test]
    fn a_rounded_spelling_that_is_equal_means_equal() {
        let numbers =
            [1.0, 9.9999995, 10.0, 0.1, 0.099999999, 123456.5, 1e300, 1e-300, 5e-324, -1.0];
        let rule = Rule { float_digits: Some(6), ..Rule::exact(Class::Float) };
        for a in numbers {
            for step in [1.0, 1.0000001, 1.000001, 1.00001] {
                let b = a * step;
                if rounded_float(a, 6) == rounded_float(b, 6) {
                    assert!(rule.same(Some(&float(a)), Some(&float(b))), "{a} {b}");
                }
            }
        }
    }
}
