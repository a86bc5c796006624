//! Decimals of more digits than 128 bits hold: up to 65, as MySQL's DECIMAL has.
//!
//! Columns of up to 38 digits hold a [`Decimal`], wider ones a [`Wide`], whatever the number is.
//! Nothing here rounds without being asked: what does not fit is `None` or an error.

use std::fmt;

use arrow::datatypes::i256;
use serde::{Deserialize, Serialize};

use crate::decimal::Decimal;
use crate::error::{Error, Result};

/// Most digits of a DECIMAL.
pub const WIDE_MAX_PRECISION: u8 = 65;
/// Most digits behind the point.
pub const DECIMAL_MAX_SCALE: u8 = 30;
/// Bytes of a number in full.
const FULL: usize = 32;

/// An exact number: `unscaled / 10^scale`. Outside of this memory it is its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Wide {
    /// The digits, as one integer.
    pub unscaled: i256,
    /// How many of them stand behind the point.
    pub scale: u8,
}

/// `10^n`; `None` beyond 76.
pub fn power(n: u8) -> Option<i256> {
    i256::from_i128(10).checked_pow(u32::from(n))
}

/// The quotient rounded half away from zero; `None` by zero.
pub fn round_div(a: i256, b: i256) -> Option<i256> {
    let (quotient, rest) = (a.checked_div(b)?, a.checked_rem(b)?);
    // Not twice the rest, which may leave 256 bits.
    let (rest, b_size) = (rest.wrapping_abs(), b.wrapping_abs());
    if rest < b_size.wrapping_sub(rest) {
        return Some(quotient);
    }
    let carry = if a.is_negative() == b.is_negative() { i256::ONE } else { i256::MINUS_ONE };
    quotient.checked_add(carry)
}

impl Wide {
    /// The same number with another scale, rounded half away from zero; `None` if its digits do
    /// not fit 256 bits.
    pub fn rescale(self, scale: u8) -> Option<Wide> {
        let unscaled = match scale.checked_sub(self.scale) {
            Some(more) => self.unscaled.checked_mul(power(more)?)?,
            None => round_div(self.unscaled, power(self.scale - scale)?)?,
        };
        Some(Wide { unscaled, scale })
    }

    /// Number of significant digits, at least 1.
    pub fn precision(self) -> u8 {
        let size = self.unscaled.wrapping_abs();
        size.checked_ilog10().map_or(1, |digits| digits as u8 + 1)
    }

    /// The same number in 128 bits, if it fits them.
    pub fn narrow(self) -> Option<Decimal> {
        Some(Decimal { unscaled: self.unscaled.to_i128()?, scale: self.scale })
    }

    /// Parses `[-+]digits[.digits]`, without an exponent; at most as many digits as 256 bits hold.
    pub fn parse(text: &str) -> Result<Wide> {
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
        let ten = i256::from_i128(10);
        let mut unscaled = i256::ZERO;
        for byte in whole.bytes().chain(fraction.bytes()) {
            if !byte.is_ascii_digit() {
                return Err(bad());
            }
            unscaled = unscaled
                .checked_mul(ten)
                .and_then(|n| n.checked_add(i256::from(i64::from(byte - b'0'))))
                .ok_or_else(bad)?;
        }
        let scale = u8::try_from(fraction.len()).map_err(|_| bad())?;
        Ok(Wide { unscaled: if negative { unscaled.wrapping_neg() } else { unscaled }, scale })
    }

    /// The unscaled number as bytes of which the order is the order of the numbers: 256 bits, the
    /// highest first, with the sign turned around.
    pub fn ordered_bytes(self) -> [u8; FULL] {
        let mut bytes = self.unscaled.to_be_bytes();
        bytes[0] ^= 0x80;
        bytes
    }

    /// What [`Wide::ordered_bytes`] made.
    pub fn of_ordered_bytes(mut bytes: [u8; FULL], scale: u8) -> Option<Wide> {
        bytes[0] ^= 0x80;
        Wide { unscaled: i256::from_be_bytes(bytes), scale }.checked()
    }

    /// The unscaled number in two's complement, the highest byte first, in as few bytes as say it.
    pub fn short_bytes(self) -> Vec<u8> {
        let bytes = self.unscaled.to_be_bytes();
        let sign = if self.unscaled.is_negative() { 0xFF } else { 0 };
        let needless = bytes
            .windows(2)
            .take_while(|two| two[0] == sign && (two[1] ^ sign) & 0x80 == 0)
            .count();
        bytes.get(needless..).unwrap_or_default().to_vec()
    }

    /// What [`Wide::short_bytes`] made, and nothing else.
    pub fn of_short_bytes(bytes: &[u8], scale: u8) -> Option<Wide> {
        let first = *bytes.first()?;
        let mut full = [if first & 0x80 == 0 { 0 } else { 0xFF }; FULL];
        let start = FULL.checked_sub(bytes.len())?;
        full.get_mut(start..)?.copy_from_slice(bytes);
        let number = Wide { unscaled: i256::from_be_bytes(full), scale }.checked()?;
        (number.short_bytes() == bytes).then_some(number)
    }

    /// The number, if no DECIMAL has fewer digits than it needs.
    pub fn checked(self) -> Option<Wide> {
        (self.unscaled != i256::MIN && self.precision() <= WIDE_MAX_PRECISION).then_some(self)
    }
}

impl From<Decimal> for Wide {
    fn from(n: Decimal) -> Wide {
        Wide { unscaled: i256::from_i128(n.unscaled), scale: n.scale }
    }
}

impl From<Wide> for String {
    fn from(n: Wide) -> String {
        n.to_string()
    }
}

impl TryFrom<String> for Wide {
    type Error = Error;

    fn try_from(text: String) -> Result<Wide> {
        let beyond = || Error::Invalid("a decimal number of more than 65 digits".into());
        Wide::parse(&text)?.checked().ok_or_else(beyond)
    }
}

impl fmt::Display for Wide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.unscaled, self.scale)
    }
}

/// Prints `unscaled / 10^scale` with exactly `scale` digits behind the point.
pub fn write_decimal(out: &mut impl fmt::Write, unscaled: i256, scale: u8) -> fmt::Result {
    let text = unscaled.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or(("", &*text), |digits| ("-", digits));
    let scale = usize::from(scale);
    if scale == 0 {
        return out.write_str(&text);
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    write!(out, "{sign}{whole}.{fraction}")
}
