//! Decimals of up to 38 digits: what fits 128 bits.
//!
//! Digits that do not fit are an error or nothing, never others.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Most digits a [`Decimal`] can hold, as on the columnar side (Arrow's Decimal128). Columns of
/// more hold a [`crate::Wide`].
pub const DECIMAL_MAX_PRECISION: u8 = 38;

/// An exact number: `unscaled / 10^scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decimal {
    /// The digits, as one integer.
    pub unscaled: i128,
    /// How many of them stand behind the point.
    pub scale: u8,
}

impl Decimal {
    /// The same number with another scale, rounded half away from zero as MySQL does;
    /// `None` if the digits do not fit 128 bits.
    pub fn rescale(self, scale: u8) -> Option<Decimal> {
        if scale >= self.scale {
            let factor = 10i128.checked_pow(u32::from(scale - self.scale))?;
            return Some(Decimal { unscaled: self.unscaled.checked_mul(factor)?, scale });
        }
        let factor = 10i128.checked_pow(u32::from(self.scale - scale))?;
        let (quotient, rest) = (self.unscaled / factor, self.unscaled % factor);
        let carry = i128::from(rest.unsigned_abs() * 2 >= factor.unsigned_abs());
        Some(Decimal { unscaled: quotient + carry * self.unscaled.signum(), scale })
    }

    /// Number of significant digits, at least 1.
    pub fn precision(self) -> u8 {
        self.unscaled.unsigned_abs().checked_ilog10().map_or(1, |digits| digits as u8 + 1)
    }

    /// Parses `[-+]digits[.digits]`, without an exponent.
    pub fn parse(text: &str) -> Result<Decimal> {
        let bad = || Error::Invalid(format!("not a decimal number: {} bytes of text", text.len()));
        let (negative, digits) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(bad());
        }
        let mut unscaled = 0i128;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return Err(bad());
            }
            unscaled = unscaled
                .checked_mul(10)
                .and_then(|n| n.checked_add(i128::from(byte - b'0')))
                .ok_or_else(bad)?;
        }
        let scale = u8::try_from(fraction.len()).map_err(|_| bad())?;
        Ok(Decimal { unscaled: if negative { -unscaled } else { unscaled }, scale })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        let sign = if self.unscaled < 0 { "-" } else { "" };
        if scale == 0 {
            return write!(f, "{sign}{digits}");
        }
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, fraction) = padded.split_at(padded.len() - scale);
        write!(f, "{sign}{whole}.{fraction}")
    }
}
