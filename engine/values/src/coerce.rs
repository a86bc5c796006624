//! Values into their columns, as strictly as MySQL's default sql_mode: what does not fit is an
//! error that names column and row, never a silently changed value.

use types::value::format_double;
use types::{Column, ColumnType, Decimal, Value, Wide};

use crate::error::{
    SqlError, SqlResult, data_too_long, data_truncated, incorrect_time, incorrect_value,
    json_of_bytes, json_too_deep, not_null, out_of_column_range, wrong_json,
};
use crate::json::Fault;
use crate::numbers::{leading_number, rounded};
use crate::temporal::{self, DAY_US, Zone};

pub mod converted;
pub mod labels;

/// Last second of TIMESTAMP's range (2038-01-19 03:14:07 UTC), in microseconds.
const TIMESTAMP_END: i64 = 2_147_483_648_000_000;

/// Where a value is going, for messages.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Column.
    pub column: &'a Column,
    /// Row of the statement, from 1.
    pub row: usize,
    /// Session time zone.
    pub zone: Zone,
}

impl Place<'_> {
    fn incorrect(&self, kind: &str, value: &Value) -> SqlError {
        let besides = of_zero_date(value, self.column.ty);
        incorrect_value(kind, value, besides, &self.column.name, self.row)
    }

    fn no_time(&self, kind: &str, value: &Value) -> SqlError {
        let besides = of_zero_date(value, self.column.ty);
        incorrect_time(kind, value, besides, &self.column.name, self.row)
    }

    fn out_of_range(&self) -> SqlError {
        out_of_column_range(&self.column.name, self.row)
    }

    fn too_long(&self) -> SqlError {
        data_too_long(&self.column.name, self.row)
    }

    /// Error 1265.
    pub fn truncated(&self) -> SqlError {
        data_truncated(&self.column.name, self.row)
    }

    fn not_null(&self) -> SqlError {
        not_null(&self.column.name)
    }
}

/// A value as one of its column.
pub fn to_column(value: Value, place: Place<'_>) -> SqlResult<Value> {
    if value.is_null() {
        return if place.column.nullable { Ok(Value::Null) } else { Err(place.not_null()) };
    }
    match place.column.ty {
        ColumnType::Int { unsigned, .. } => integer(value, unsigned, place),
        ColumnType::Double => double(value, place),
        ColumnType::Decimal { precision, scale } => decimal(value, precision, scale, place),
        ColumnType::Char(length) => {
            let text = characters(value, place)?;
            Ok(Value::String(fit(text.trim_end_matches(' ').to_owned(), length, place)?))
        }
        ColumnType::Varchar(length) => {
            Ok(Value::String(fit(characters(value, place)?, length, place)?))
        }
        ColumnType::Text(bytes) => {
            let text = characters(value, place)?;
            if text.len() > bytes as usize {
                Err(place.too_long())
            } else {
                Ok(Value::String(text))
            }
        }
        ColumnType::Date => {
            let us = wall_time(&value, place, "date")?;
            let days = i32::try_from(us.div_euclid(DAY_US)).map_err(|_| place.out_of_range())?;
            Ok(Value::Date(days))
        }
        ColumnType::DateTime(digits) => {
            let us = temporal::round_fraction(wall_time(&value, place, "datetime")?, digits);
            // The last half second of the year 9999 is rounded out of the calendar.
            match temporal::in_calendar(us) {
                None if us > 0 => Err(place.no_time("datetime", &value)),
                _ => Ok(Value::DateTime(us)),
            }
        }
        ColumnType::Timestamp(digits) => {
            let us = match value {
                Value::Timestamp(us) => us,
                ref other => match instant(other) {
                    Some(us) => us,
                    None => place.zone.to_utc(wall_time(other, place, "datetime")?),
                },
            };
            let us = temporal::round_fraction(us, digits);
            if !(1_000_000..TIMESTAMP_END).contains(&us) {
                return Err(place.no_time("datetime", &value));
            }
            Ok(Value::Timestamp(us))
        }
        ColumnType::Binary(length) => {
            let mut bytes = fit_bytes(value, length, place)?;
            bytes.resize(length as usize, 0);
            Ok(Value::Bytes(bytes))
        }
        ColumnType::Varbinary(length) | ColumnType::Blob(length) => {
            Ok(Value::Bytes(fit_bytes(value, length, place)?))
        }
        ColumnType::Float => float(value, place),
        ColumnType::Year => year(value, place),
        ColumnType::Time(digits) => time(value, digits, place),
        ColumnType::Bit(bits) => bit(value, bits, place),
        ColumnType::Json => json(value, place),
        ColumnType::Enum(list) => labels::label(value, list, place),
        ColumnType::Set(list) => labels::set(value, list, place),
    }
}

/// A value as characters; bytes must be UTF-8.
fn characters(value: Value, place: Place<'_>) -> SqlResult<String> {
    match value {
        Value::Bytes(bytes) => String::from_utf8(bytes).map_err(|error| {
            let value = Value::Bytes(error.into_bytes());
            place.incorrect("string", &value)
        }),
        Value::Timestamp(us) => Ok(text(Value::DateTime(place.zone.to_local(us)))),
        other => Ok(text(other)),
    }
}

fn fit_bytes(value: Value, length: u32, place: Place<'_>) -> SqlResult<Vec<u8>> {
    let bytes = match value {
        Value::Bytes(bytes) => bytes,
        other => text(other).into_bytes(),
    };
    if bytes.len() > length as usize { Err(place.too_long()) } else { Ok(bytes) }
}

fn float(value: Value, place: Place<'_>) -> SqlResult<Value> {
    let Value::Double(n) = double(value, place)? else { return Err(place.out_of_range()) };
    // What rounds to nothing has no sign either.
    let narrow = n as f32 + 0.0;
    if narrow.is_finite() { Ok(Value::Float(narrow)) } else { Err(place.out_of_range()) }
}

/// A year of four digits, or of two: 00–69 are of this century.
fn year(value: Value, place: Place<'_>) -> SqlResult<Value> {
    let zero_means_2000 = matches!(&value, Value::String(text) if text.trim().len() < 4);
    let n = match value {
        Value::Date(_) | Value::DateTime(_) | Value::Timestamp(_) => {
            wall_time(&value, place, "year").map(temporal::year_of)?
        }
        ref value => match number(value, place, "integer")? {
            Number::Exact(n) => n.rescale(0).map_or(-1, |n| n.unscaled),
            Number::Double(n) if n.abs() < 1e6 => n.round_ties_even() as i128,
            Number::Wide(_) | Number::Double(_) => -1,
        },
    };
    let year = match n {
        0 if zero_means_2000 => 2000,
        0 => 0,
        1..=69 => 2000 + n,
        70..=99 => 1900 + n,
        1901..=2155 => n,
        _ => return Err(place.out_of_range()),
    };
    Ok(Value::UInt(u64::try_from(year).map_err(|_| place.out_of_range())?))
}

fn time(value: Value, digits: u8, place: Place<'_>) -> SqlResult<Value> {
    let us = match &value {
        Value::Time(us) => Some(*us),
        Value::String(text) => temporal::parse_time(text),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().and_then(temporal::parse_time),
        Value::Int(n) => temporal::time_from_number(*n, 0),
        Value::UInt(n) => i64::try_from(*n).ok().and_then(|n| temporal::time_from_number(n, 0)),
        Value::Decimal(_) | Value::Wide(_) | Value::Double(_) | Value::Float(_) => {
            temporal::parse_time(&text(value.clone()))
        }
        Value::DateTime(us) => Some(us.rem_euclid(DAY_US)),
        Value::Timestamp(us) => Some(place.zone.to_local(*us).rem_euclid(DAY_US)),
        Value::Date(_) => Some(0),
        Value::Null => return Err(place.not_null()),
    };
    us.map(|us| temporal::round_time(us, digits))
        .filter(|us| us.abs() <= temporal::TIME_END_US)
        .map(Value::Time)
        .ok_or_else(|| place.no_time("time", &value))
}

/// Text and bytes are a BIT's bytes, the highest first; anything else is a number.
fn bit(value: Value, bits: u8, place: Place<'_>) -> SqlResult<Value> {
    let n = match &value {
        Value::String(_) | Value::Bytes(_) => {
            let bytes = fit_bytes(value, u32::MAX, place)?;
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
            let rest = bytes.get(first..).unwrap_or_default();
            if rest.len() > 8 {
                return Err(place.too_long());
            }
            rest.iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
        }
        Value::Int(n) if bits == 64 => n.cast_unsigned(),
        value => match number(value, place, "integer")? {
            Number::Exact(n) => n.rescale(0).and_then(|n| u64::try_from(n.unscaled).ok()),
            Number::Double(n) if (0.0..1.8e19).contains(&n) => Some(n.round_ties_even() as u64),
            Number::Wide(n) => {
                let whole = n.rescale(0).and_then(Wide::narrow);
                whole.and_then(|n| u64::try_from(n.unscaled).ok())
            }
            Number::Double(_) => None,
        }
        .ok_or_else(|| place.too_long())?,
    };
    if bits < 64 && n >> bits != 0 { Err(place.too_long()) } else { Ok(Value::UInt(n)) }
}

/// Only a text can be the text of a document; numbers and times need a CAST.
fn json(value: Value, place: Place<'_>) -> SqlResult<Value> {
    let fault = match &value {
        Value::String(text) => match crate::json::normal(text) {
            Ok(normal) => return Ok(Value::String(normal)),
            Err(fault) => fault,
        },
        Value::Bytes(_) => return Err(json_of_bytes()),
        _ => Fault::Text("not a JSON text, may need CAST", 0),
    };
    let Fault::Text(what, at) = fault else { return Err(json_too_deep()) };
    Err(wrong_json(what, at, &place.column.name))
}

/// A value as text.
pub fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Double(n) => format_double(n),
        other => other.to_string(),
    }
}

fn fit(text: String, length: u32, place: Place<'_>) -> SqlResult<String> {
    let length = length as usize;
    if text.len() <= length {
        return Ok(text);
    }
    let Some((cut, _)) = text.char_indices().nth(length) else { return Ok(text) };
    // Blanks beyond the end are dropped without a complaint, as MySQL does.
    match text.get(cut..) {
        Some(rest) if rest.chars().all(|c| c == ' ') => {
            Ok(text.get(..cut).unwrap_or_default().to_owned())
        }
        _ => Err(place.too_long()),
    }
}

/// The exact number that a value is, or a double.
enum Number {
    Exact(Decimal),
    /// One that 128 bits do not hold.
    Wide(Wide),
    Double(f64),
}

fn number(value: &Value, place: Place<'_>, kind: &str) -> SqlResult<Number> {
    Ok(match value {
        Value::Int(n) => Number::Exact(Decimal { unscaled: i128::from(*n), scale: 0 }),
        Value::UInt(n) => Number::Exact(Decimal { unscaled: i128::from(*n), scale: 0 }),
        Value::Decimal(n) => Number::Exact(*n),
        Value::Wide(n) => n.narrow().map_or(Number::Wide(**n), Number::Exact),
        Value::Double(n) => Number::Double(*n),
        Value::Float(n) => Number::Double(f64::from(*n)),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => return number(&Value::String(text.to_owned()), place, kind),
            Err(_) => return Err(place.incorrect(kind, value)),
        },
        Value::Time(us) => Number::Exact(temporal::time_number(*us)),
        Value::String(text) => {
            let trimmed = text.trim();
            if trimmed.is_empty() || leading_number(trimmed) != trimmed {
                return Err(place.incorrect(kind, value));
            }
            if let Ok(n) = Decimal::parse(trimmed) {
                return Ok(Number::Exact(n));
            }
            // One with an exponent is exact, too, where only its whole part counts: 1.05e1 is 10.5, and rounded as such.
            let is_whole = matches!(place.column.ty, ColumnType::Int { .. } | ColumnType::Year);
            match rounded(trimmed, 0).filter(|_| is_whole) {
                Some(n) => n.narrow().map_or(Number::Wide(n), Number::Exact),
                None => Number::Double(trimmed.parse().map_err(|_| place.incorrect(kind, value))?),
            }
        }
        Value::Date(days) => {
            Number::Exact(Decimal { unscaled: i128::from(temporal::date_number(*days)), scale: 0 })
        }
        Value::DateTime(us) => Number::Exact(temporal::datetime_decimal(*us)),
        Value::Timestamp(us) => Number::Exact(temporal::datetime_decimal(place.zone.to_local(*us))),
        Value::Null => return Err(place.not_null()),
    })
}

fn integer(value: Value, unsigned: bool, place: Place<'_>) -> SqlResult<Value> {
    let value = match value {
        // To a whole second first: 10:59:59.5 is 11:00:00, not 10:59:60.
        Value::DateTime(us) => Value::DateTime(temporal::round_fraction(us, 0)),
        Value::Timestamp(us) => Value::Timestamp(temporal::round_fraction(us, 0)),
        Value::Time(us) => Value::Time(temporal::round_time(us, 0)),
        other => other,
    };
    let whole = match number(&value, place, "integer")? {
        Number::Exact(n) => n.rescale(0).ok_or_else(|| place.out_of_range())?.unscaled,
        Number::Double(n) if n.abs() < 1e19 => n.round_ties_even() as i128,
        Number::Wide(n) => {
            n.rescale(0).and_then(Wide::narrow).ok_or_else(|| place.out_of_range())?.unscaled
        }
        Number::Double(_) => return Err(place.out_of_range()),
    };
    let in_range =
        place.column.ty.int_range().is_some_and(|(low, high)| (low..=high).contains(&whole));
    if !in_range {
        return Err(place.out_of_range());
    }
    Ok(if unsigned {
        Value::UInt(u64::try_from(whole).map_err(|_| place.out_of_range())?)
    } else {
        Value::Int(i64::try_from(whole).map_err(|_| place.out_of_range())?)
    })
}

fn double(value: Value, place: Place<'_>) -> SqlResult<Value> {
    let n = match number(&value, place, "double")? {
        Number::Exact(n) => n.to_string().parse().map_err(|_| place.out_of_range())?,
        Number::Wide(n) => n.to_string().parse().map_err(|_| place.out_of_range())?,
        Number::Double(n) => n,
    };
    // There is no -0, which would be another key than 0, and equal to none in a list or a join.
    if n.is_finite() { Ok(Value::Double(n + 0.0)) } else { Err(place.out_of_range()) }
}

fn decimal(value: Value, precision: u8, scale: u8, place: Place<'_>) -> SqlResult<Value> {
    let number = number(&value, place, "decimal")?;
    if !place.column.ty.is_wide()
        && let Number::Exact(n) = number
        && let Some(n) = n.rescale(scale)
    {
        let fits = n.unscaled == 0 || n.precision() <= precision;
        return if fits { Ok(Value::Decimal(n)) } else { Err(place.out_of_range()) };
    }
    let n = match (&value, number) {
        (_, Number::Exact(n)) => Wide::from(n).rescale(scale),
        (_, Number::Wide(n)) => n.rescale(scale),
        // Not by way of the double that it is not.
        (Value::String(_) | Value::Bytes(_), _) => rounded(text(value.clone()).trim(), scale),
        (_, Number::Double(n)) => rounded(&format!("{n}"), scale),
    };
    let n = n.filter(|n| n.precision() <= precision).ok_or_else(|| place.out_of_range())?;
    if place.column.ty.is_wide() {
        return Ok(Value::Wide(Box::new(n)));
    }
    n.narrow().map(Value::Decimal).ok_or_else(|| place.out_of_range())
}

/// The instant of a text that names its offset from UTC.
fn instant(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => temporal::parse_instant(text),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().and_then(temporal::parse_instant),
        _ => None,
    }
}

fn wall_time(value: &Value, place: Place<'_>, kind: &str) -> SqlResult<i64> {
    let us = match value {
        Value::Date(days) => Some(i64::from(*days) * DAY_US),
        Value::DateTime(us) => Some(*us),
        Value::Timestamp(us) => Some(place.zone.to_local(*us)),
        Value::String(text) => temporal::parse_datetime_in(text, place.zone),
        Value::Bytes(bytes) => {
            let text = std::str::from_utf8(bytes).ok();
            text.and_then(|text| temporal::parse_datetime_in(text, place.zone))
        }
        Value::Int(n) => temporal::from_number(*n),
        Value::UInt(n) => i64::try_from(*n).ok().and_then(temporal::from_number),
        _ => None,
    };
    us.ok_or_else(|| place.no_time(kind, value))
}

/// What an error says besides of a zero date on its way into a column; nothing of any other value.
pub fn of_zero_date(value: &Value, ty: ColumnType) -> &'static str {
    let is_zero = match value {
        Value::String(text) => temporal::is_zero(text),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).is_ok_and(temporal::is_zero),
        Value::Int(0) | Value::UInt(0) => true,
        _ => false,
    };
    match ty {
        ColumnType::Date | ColumnType::DateTime(_) | ColumnType::Timestamp(_) if is_zero => {
            " (zero dates are not kept: write NULL or a day of the calendar)"
        }
        _ => "",
    }
}
