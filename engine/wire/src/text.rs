//! Values as MySQL prints them: the text protocol's cells.
//!
//! Output only. Only strings, and doubles with a fixed number of digits behind the point, take more
//! than [`SHORT`] bytes.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use mysql_common::io::BufMutExt;
use types::value::{format_float, format_time, write_double};
use types::wide::write_decimal;

use crate::cell::Cell;

/// Longest printed number or date; fits the one-byte form of a length-encoded integer.
const SHORT: usize = 250;
/// Marks NULL in a text row.
const NULL: u8 = 0xfb;

/// Appends one cell of a text row: its length, then its text.
pub fn put_cell(out: &mut BytesMut, cell: &Cell<'_>, fraction: u8) {
    match cell {
        Cell::Null => out.put_u8(NULL),
        Cell::Bytes(bytes) => out.put_lenenc_str(bytes),
        Cell::Int(n) => short(out, |out| write!(out, "{n}")),
        Cell::UInt(n) => short(out, |out| write!(out, "{n}")),
        Cell::Double(n) => short(out, |out| write_double(out, *n)),
        Cell::Fixed(n, digits) => out.put_lenenc_str(fixed(*n, *digits).as_bytes()),
        Cell::Decimal { unscaled, scale } => short(out, |out| put_decimal(out, *unscaled, *scale)),
        Cell::Wide(n, scale) => short(out, |out| write_decimal(out, **n, *scale)),
        Cell::Float(n) => short(out, |out| out.write_str(&format_float(*n))),
        Cell::Year(n) => short(out, |out| write!(out, "{n:04}")),
        Cell::Bit(n, bytes) => put_bit(out, *n, *bytes),
        Cell::Time(us) => short(out, |out| out.write_str(&format_time(*us, fraction))),
        Cell::Date(date) => short(out, |out| put_date(out, *date)),
        Cell::DateTime(time) => short(out, |out| put_datetime(out, *time, fraction)),
    }
}

/// A BIT is its bytes, the highest first, in either protocol.
pub fn put_bit(out: &mut BytesMut, n: u64, bytes: usize) {
    let all = n.to_be_bytes();
    out.put_lenenc_str(all.get(all.len().saturating_sub(bytes)..).unwrap_or(&all));
}

/// Writes text of at most [`SHORT`] bytes behind its length.
fn short(out: &mut BytesMut, text: impl FnOnce(&mut BytesMut) -> std::fmt::Result) {
    let at = out.len();
    out.put_u8(0);
    // BytesMut takes any amount of text, so formatting into it cannot fail.
    let _infallible = text(out);
    let length = out.len() - at - 1;
    debug_assert!(length <= SHORT, "{length} bytes are no short text");
    if let Some(byte) = out.get_mut(at) {
        *byte = length.min(SHORT) as u8;
    }
}

/// A double with exactly so many digits behind the point: the shortest that read back as the same
/// number, filled up with zeros or rounded.
fn fixed(n: f64, digits: u8) -> String {
    let shortest = format!("{n}");
    let digits = usize::from(digits);
    let behind = shortest.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    if behind > digits {
        return format!("{n:.digits$}");
    }
    let point = if behind == 0 && digits > 0 { "." } else { "" };
    format!("{shortest}{point}{}", "0".repeat(digits - behind))
}

/// Prints `unscaled / 10^scale` with exactly `scale` digits behind the point.
pub fn put_decimal(out: &mut impl Write, unscaled: i128, scale: u8) -> std::fmt::Result {
    if unscaled < 0 {
        out.write_char('-')?;
    }
    let magnitude = unscaled.unsigned_abs();
    if scale == 0 {
        return write!(out, "{magnitude}");
    }
    match 10u128.checked_pow(u32::from(scale)) {
        Some(unit) => {
            let width = usize::from(scale);
            write!(out, "{}.{:0width$}", magnitude / unit, magnitude % unit)
        }
        // More digits behind the point than 128 bits hold.
        None => write!(out, "0.{magnitude:0width$}", width = usize::from(scale)),
    }
}

/// `YYYY-MM-DD`.
pub fn put_date(out: &mut impl Write, date: NaiveDate) -> std::fmt::Result {
    write!(out, "{:04}-{:02}-{:02}", date.year(), date.month(), date.day())
}

/// `YYYY-MM-DD HH:MM:SS`, and the given number of digits of the second's fraction, cut.
pub fn put_datetime(out: &mut impl Write, time: NaiveDateTime, fraction: u8) -> std::fmt::Result {
    put_date(out, time.date())?;
    write!(out, " {:02}:{:02}:{:02}", time.hour(), time.minute(), time.second())?;
    let digits = fraction.min(6);
    if digits > 0 {
        let micros = time.and_utc().timestamp_subsec_micros();
        let cut = micros / 10u32.pow(u32::from(6 - digits));
        write!(out, ".{cut:0width$}", width = usize::from(digits))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;

    #[test]
    fn doubles_with_fixed_digits_print_as_mysql_prints_them() {
        for (text, n, digits) in [
            ("3.141593", std::f64::consts::PI, 6),
            ("2.50", 2.5, 2),
            ("-2", -2.0, 0),
            ("0.000", 0.0, 3),
            ("0.0", 0.00001, 1),
            ("3", 2.75, 0),
            (
                "413294435277810600000000000000000000000000000000000000.000000",
                4.132944352778106e53,
                6,
            ),
        ] {
            assert_eq!(fixed(n, digits), text);
        }
        let mut out = BytesMut::new();
        put_cell(&mut out, &Cell::Fixed(1e300, 2), 0);
        // 301 digits and the fraction, behind a length of two bytes.
        assert_eq!((out.first(), out.len()), (Some(&0xfc), 3 + 304));
    }

    #[test]
    fn decimals_keep_their_scale() {
        for (text, unscaled, scale) in [
            ("0.00", 0, 2),
            ("-0.01", -1, 2),
            ("12345.678", 12345678, 3),
            ("-7", -7, 0),
            ("99999999999999999999999999999999999999", 10i128.pow(38) - 1, 0),
            ("0.00000000000000000000000000000000000001", 1, 38),
            ("0.0000000000000000000000000000000000000001", 1, 40),
        ] {
            let mut out = String::new();
            put_decimal(&mut out, unscaled, scale).unwrap();
            assert_eq!(out, text);
        }
    }

    #[test]
    fn fractions_of_a_second_are_cut_not_rounded() {
        let time = DateTime::from_timestamp_micros(1_700_000_000_999_999).unwrap().naive_utc();
        for (text, digits) in [
            ("2023-11-14 22:13:20", 0),
            ("2023-11-14 22:13:20.9", 1),
            ("2023-11-14 22:13:20.999", 3),
            ("2023-11-14 22:13:20.999999", 6),
        ] {
            let mut out = String::new();
            put_datetime(&mut out, time, digits).unwrap();
            assert_eq!(out, text);
        }
    }
}
