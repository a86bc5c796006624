//! The binary protocol's rows: values in the width that their column was declared with.
//!
//! Output only. A value that its column cannot hold is an error, never a cut number.

use bytes::{BufMut, BytesMut};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use mysql_common::io::BufMutExt;
use types::wide::write_decimal;
use types::{ColumnType, IntWidth};
use values::error::{self, SqlError};

use crate::cell::{Cell, CellReader};
use crate::text::{put_bit, put_decimal};

/// The first two bits of a row's null bitmap are reserved.
const BITMAP_OFFSET: usize = 2;

/// Appends one binary row: marker, null bitmap, values.
pub fn put_row(out: &mut BytesMut, columns: &[CellReader<'_>], row: usize) -> Result<(), SqlError> {
    out.put_u8(0);
    let bitmap = out.len();
    out.put_bytes(0, (columns.len() + BITMAP_OFFSET).div_ceil(8));
    for (position, column) in columns.iter().enumerate() {
        let cell = column.cell(row)?;
        if matches!(cell, Cell::Null) {
            let bit = position + BITMAP_OFFSET;
            if let Some(byte) = out.get_mut(bitmap + bit / 8) {
                *byte |= 1 << (bit % 8);
            }
            continue;
        }
        put_cell(out, &cell, column)?;
    }
    Ok(())
}

fn put_cell(out: &mut BytesMut, cell: &Cell<'_>, column: &CellReader<'_>) -> Result<(), SqlError> {
    match *cell {
        Cell::Null => {}
        Cell::Int(n) => put_int(out, i128::from(n), column)?,
        Cell::UInt(n) => put_int(out, i128::from(n), column)?,
        Cell::Double(n) | Cell::Fixed(n, _) => out.put_f64_le(n),
        Cell::Bytes(bytes) => out.put_lenenc_str(bytes),
        Cell::Decimal { unscaled, scale } => {
            let mut text = String::with_capacity(40);
            // Formatting into a String cannot fail.
            let _infallible = put_decimal(&mut text, unscaled, scale);
            out.put_lenenc_str(text.as_bytes());
        }
        Cell::Wide(n, scale) => {
            let mut text = String::with_capacity(70);
            // Formatting into a String cannot fail.
            let _infallible = write_decimal(&mut text, *n, scale);
            out.put_lenenc_str(text.as_bytes());
        }
        Cell::Float(n) => out.put_f32_le(n),
        Cell::Year(n) => out.put_u16_le(n),
        Cell::Bit(n, bytes) => put_bit(out, n, bytes),
        Cell::Time(us) => put_time(out, us, column.fraction()),
        Cell::Date(date) => {
            out.put_u8(4);
            put_date(out, date);
        }
        Cell::DateTime(time) => put_datetime(out, time, column.fraction()),
    }
    Ok(())
}

fn put_int(out: &mut BytesMut, n: i128, column: &CellReader<'_>) -> Result<(), SqlError> {
    if column.ty() == Some(ColumnType::Year) {
        out.put_u16_le(n as u16);
        return Ok(());
    }
    let Some(ColumnType::Int { width, .. }) = column.ty() else {
        return Err(error::unknown(format!("column '{}' is no integer column", column.name())));
    };
    let fits = column.ty().and_then(ColumnType::int_range).is_some_and(|(a, b)| a <= n && n <= b);
    if !fits {
        return Err(error::unknown(format!("value out of range in column '{}'", column.name())));
    }
    match width {
        IntWidth::Tiny | IntWidth::Bool => out.put_u8(n as u8),
        IntWidth::Small => out.put_u16_le(n as u16),
        IntWidth::Medium | IntWidth::Int => out.put_u32_le(n as u32),
        IntWidth::Big => out.put_u64_le(n as u64),
    }
    Ok(())
}

fn put_date(out: &mut BytesMut, date: NaiveDate) {
    out.put_u16_le(date.year() as u16);
    out.put_u8(date.month() as u8);
    out.put_u8(date.day() as u8);
}

/// 4, 7 or 11 bytes: what is zero at the end is left out.
fn put_datetime(out: &mut BytesMut, time: NaiveDateTime, fraction: u8) {
    let step = 10u32.pow(u32::from(6 - fraction.min(6)));
    let micros = time.and_utc().timestamp_subsec_micros() / step * step;
    let length = match (micros, time.num_seconds_from_midnight()) {
        (0, 0) => 4,
        (0, _) => 7,
        _ => 11,
    };
    out.put_u8(length);
    put_date(out, time.date());
    if length >= 7 {
        out.put_u8(time.hour() as u8);
        out.put_u8(time.minute() as u8);
        out.put_u8(time.second() as u8);
    }
    if length == 11 {
        out.put_u32_le(micros);
    }
}

/// 0, 8 or 12 bytes: sign, days, clock, and the fraction if there is one.
fn put_time(out: &mut BytesMut, us: i64, fraction: u8) {
    let step = 10u64.pow(u32::from(6 - fraction.min(6)));
    let size = us.unsigned_abs() / step * step;
    let (seconds, micros) = (size / 1_000_000, size % 1_000_000);
    let length = match (seconds, micros) {
        (0, 0) => 0,
        (_, 0) => 8,
        _ => 12,
    };
    out.put_u8(length);
    if length == 0 {
        return;
    }
    out.put_u8(u8::from(us < 0));
    out.put_u32_le((seconds / 86_400) as u32);
    out.put_u8((seconds / 3600 % 24) as u8);
    out.put_u8((seconds / 60 % 60) as u8);
    out.put_u8((seconds % 60) as u8);
    if length == 12 {
        out.put_u32_le(micros as u32);
    }
}
