//! Functions of dates and times. The present is never read here: the planner writes it in.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Date32Array, DurationMicrosecondArray, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::DataType;
use chrono::{Datelike, Timelike};
use datafusion::common::{Result, ScalarValue};
use values::calendar::{self, Compound};
use values::date_format;
use values::error::{SqlError, SqlResult, out_of_range, unsupported};
use values::temporal::{self, DAY_US, Unit, Zone};

use super::convert::{to_date, to_datetime, to_decimal, to_i64, to_strings, to_time};
use super::kinds::{DATETIME, is_binary, is_string, is_temporal, is_time};
use super::{Function, datetime, day, text, warnings, whole};

macro_rules! parts {
    ($($name:literal => $part:expr),* $(,)?) => {
        &[
            $(Function::new($name, 1..=1, whole, |a, _| part($name, a, $part)),)*
            Function::new("mysql_date_format", 2..=2, text, date_format),
            Function::new("mysql_date_shift", 3..=3, shift_type, date_shift),
            Function::new("mysql_datediff", 2..=2, whole, datediff),
            Function::new("mysql_timestampdiff", 3..=3, whole, timestampdiff),
            Function::new("mysql_last_day", 1..=1, day, last_day),
            Function::new("mysql_dayname", 1..=1, text, |a, _| named(a, "%W")),
            Function::new("mysql_monthname", 1..=1, text, |a, _| named(a, "%M")),
            Function::new("mysql_from_days", 1..=1, day, from_days),
            Function::new("mysql_makedate", 2..=2, day, makedate),
            Function::new("mysql_convert_tz", 3..=3, datetime, convert_tz),
            Function::new("mysql_unix_timestamp", 2..=3, unix_type, unix_timestamp),
            Function::new("mysql_from_unixtime", 2..=2, datetime, from_unixtime),
            Function::new("mysql_extract", 2..=2, whole, super::extract::extract),
            Function::new("mysql_week", 1..=2, whole, |a, _| week(a, 0, |(_, week)| week)),
            Function::new("mysql_yearweek", 1..=2, whole, |a, _| {
                week(a, 2, |(year, week)| year * 100 + week)
            }),
        ]
    };
}

/// The functions.
pub const FUNCTIONS: &[Function] = parts! {
    "mysql_year" => |at| i64::from(at.year()),
    "mysql_month" => |at| i64::from(at.month()),
    "mysql_dayofmonth" => |at| i64::from(at.day()),
    "mysql_hour" => |at| i64::from(at.hour()),
    "mysql_minute" => |at| i64::from(at.minute()),
    "mysql_second" => |at| i64::from(at.second()),
    "mysql_microsecond" => |at| i64::from(at.nanosecond() / 1000),
    "mysql_quarter" => |at| i64::from(at.month().div_ceil(3)),
    "mysql_dayofweek" => |at| i64::from(at.weekday().number_from_sunday()),
    "mysql_weekday" => |at| i64::from(at.weekday().num_days_from_monday()),
    "mysql_dayofyear" => |at| i64::from(at.ordinal()),
    "mysql_weekofyear" => |at| i64::from(at.iso_week().week()),
    "mysql_to_days" => |at| i64::from(temporal::days(at.date())) + 719_528,
    "mysql_to_seconds" => |at| temporal::micros(at).div_euclid(1_000_000) + 62_167_219_200,
};

fn part(
    name: &str,
    args: &[ArrayRef],
    of: fn(chrono::NaiveDateTime) -> i64,
) -> SqlResult<ArrayRef> {
    let of_clock =
        matches!(name, "mysql_hour" | "mysql_minute" | "mysql_second" | "mysql_microsecond");
    if of_clock && !is_temporal(args[0].data_type()) {
        let hours = |us: i64| if name == "mysql_hour" { us / DAY_US * 24 } else { 0 };
        let part = |us: i64| {
            let size = us.checked_abs()?;
            Some(temporal::datetime(size % DAY_US).map(of)? + hours(size))
        };
        let times = to_time(&args[0])?;
        return Ok(Arc::new(times.iter().map(|us| us.and_then(part)).collect::<Int64Array>()));
    }
    let times = to_datetime(&args[0])?;
    let parts = times.iter().map(|us| us.and_then(temporal::datetime).map(of));
    Ok(Arc::new(parts.collect::<Int64Array>()))
}

fn named(args: &[ArrayRef], pattern: &str) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    let names = times.iter().map(|us| us.and_then(|us| date_format::format(us, pattern)));
    Ok(Arc::new(names.collect::<StringArray>()))
}

fn date_format(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (times, patterns) = (to_datetime(&args[0])?, to_strings(&args[1])?);
    let rows = times.iter().zip(patterns.iter());
    let texts = rows.map(|(us, pattern)| date_format::format(us?, pattern?));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

/// WEEK and YEARWEEK; `also` are bits of the mode that the function sets itself.
fn week(args: &[ArrayRef], also: i64, of: fn((i32, i32)) -> i32) -> SqlResult<ArrayRef> {
    let dates = to_date(&args[0])?;
    let modes = match args.get(1) {
        Some(modes) => to_i64(modes)?,
        None => Int64Array::from(vec![0; dates.len()]),
    };
    let weeks = dates.iter().zip(modes.iter()).map(|(day, mode)| {
        // NULL as a mode is 0.
        let mode = mode.unwrap_or(0) | also;
        Some(i64::from(of(calendar::week(temporal::date(day?)?, mode)?)))
    });
    Ok(Arc::new(weeks.collect::<Int64Array>()))
}

fn no_unit(name: &str) -> SqlError {
    unsupported(format!("INTERVAL … {name}"))
}

fn unit(array: &ArrayRef) -> SqlResult<Unit> {
    let names = to_strings(array)?;
    let name = names.iter().next().flatten().unwrap_or_default();
    Unit::parse(name).ok_or_else(|| no_unit(name))
}

/// The name of an interval's unit: behind a minus sign where the interval is taken off.
fn whole_days(name: &str) -> bool {
    match Compound::parse(name.trim_start_matches('-')) {
        Some(compound) => compound.months,
        None => Unit::parse(name).is_some_and(Unit::is_whole_days),
    }
}

/// Whether a unit has hours and what is less, and nothing of the calendar.
fn of_clock(name: &str) -> bool {
    !["DAY", "WEEK", "MONTH", "QUARTER", "YEAR"].iter().any(|unit| name.contains(unit))
}

fn shift_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let unit = match literals.get(2).copied().flatten() {
        Some(ScalarValue::Utf8(Some(name))) => name.as_str(),
        _ => "",
    };
    let whole_days = whole_days(unit);
    Ok(match types.first() {
        // With days, MySQL counts from the present one, and nothing here knows the present.
        Some(ty) if is_time(ty) && of_clock(unit) => return super::span(types, literals),
        Some(DataType::Date32) if whole_days => DataType::Date32,
        Some(ty) if is_string(ty) || is_binary(ty) || *ty == DataType::Null => DataType::Utf8,
        _ => DATETIME,
    })
}

/// Whether a text has no clock: of digits alone, eight are a day and more are one with a clock.
fn is_day(text: &str) -> bool {
    let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
    digits <= 8 && !text.trim().contains([' ', 'T', ':'])
}

/// By how much an interval moves, and in which unit.
fn amounts(counts: &ArrayRef, name: &str) -> SqlResult<(Vec<Option<i64>>, Unit)> {
    if let Some(compound) = Compound::parse(name.trim_start_matches('-')) {
        let sign = if name.starts_with('-') { -1 } else { 1 };
        let texts = to_strings(counts)?;
        let counts = texts.iter().map(|text| Some(sign * compound.count(text?)?)).collect();
        let unit = if compound.months { Unit::Months(1) } else { Unit::Micros(1) };
        return Ok((counts, unit));
    }
    let unit = Unit::parse(name).ok_or_else(|| no_unit(name))?;
    // Of the units, only seconds have a fraction.
    if unit == Unit::Micros(1_000_000) && !counts.data_type().is_integer() {
        let micros = to_decimal(counts, 38, 6)?;
        let ends = i128::from(i64::MIN)..=i128::from(i64::MAX);
        // What is beyond them leads out of any calendar.
        let micros = micros.iter().map(|us| Some(us?.clamp(*ends.start(), *ends.end()) as i64));
        let micros = micros.collect();
        return Ok((micros, Unit::Micros(1)));
    }
    Ok((to_i64(counts)?.iter().collect(), unit))
}

fn date_shift(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let names = to_strings(&args[2])?;
    let name = names.iter().next().flatten().unwrap_or_default();
    let (counts, unit) = amounts(&args[1], name)?;
    if is_time(ty) {
        let times = to_time(&args[0])?;
        let moved = times.iter().zip(counts).map(|(us, n)| {
            let moved = unit.shift(us?, n?).filter(|us| temporal::within_time(*us) == *us);
            moved.or_else(|| warnings::overflow("time"))
        });
        return Ok(Arc::new(moved.collect::<DurationMicrosecondArray>()));
    }
    let times = to_datetime(&args[0])?;
    let moved = times.iter().zip(counts).map(|(us, n)| {
        let moved = unit.shift(us?, n?).and_then(temporal::in_calendar);
        moved.or_else(|| warnings::overflow("datetime"))
    });
    if is_string(ty) {
        let (dates, whole_days) = (to_strings(&args[0])?, whole_days(name));
        let texts = moved.zip(dates.iter()).map(|(us, text)| {
            Some(if whole_days && text.is_some_and(is_day) {
                temporal::format_date(i32::try_from(us?.div_euclid(DAY_US)).ok()?)
            } else {
                temporal::format_datetime_auto(us?)
            })
        });
        return Ok(Arc::new(texts.collect::<StringArray>()));
    }
    let moved: ArrayRef = Arc::new(moved.collect::<TimestampMicrosecondArray>());
    super::convert::to_type(&moved, ty)
}

fn datediff(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (a, b) = (to_date(&args[0])?, to_date(&args[1])?);
    let days = a.iter().zip(b.iter()).map(|(a, b)| Some(i64::from(a?) - i64::from(b?)));
    Ok(Arc::new(days.collect::<Int64Array>()))
}

fn timestampdiff(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let unit = unit(&args[0])?;
    let (from, to) = (to_datetime(&args[1])?, to_datetime(&args[2])?);
    let counts = from.iter().zip(to.iter()).map(|(from, to)| unit.between(from?, to?));
    Ok(Arc::new(counts.collect::<Int64Array>()))
}

fn last_day(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let dates = to_date(&args[0])?;
    Ok(Arc::new(dates.iter().map(|d| d.and_then(temporal::last_day)).collect::<Date32Array>()))
}

/// The numbers of the first day of the year 1 and of the last one of 9999.
const DAY_NUMBERS: std::ops::RangeInclusive<i64> = 366..=3_652_424;

fn from_days(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let counts = to_i64(&args[0])?;
    let dates = counts.iter().map(|n| {
        let days = n.filter(|n| DAY_NUMBERS.contains(n))?.checked_sub(719_528)?;
        i32::try_from(days).ok()
    });
    Ok(Arc::new(dates.collect::<Date32Array>()))
}

/// The range that CONVERT_TZ converts, in microseconds of UTC: MySQL leaves others as they are.
const CONVERTED: std::ops::RangeInclusive<i64> = 1_000_000..=32_536_771_199_999_999;

fn convert_tz(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    let (from, to) = (to_strings(&args[1])?, to_strings(&args[2])?);
    let moved = times.iter().zip(from.iter().zip(to.iter())).map(|(us, (from, to))| {
        let (us, from, to) = (us?, Zone::parse(from?).ok()?, Zone::parse(to?).ok()?);
        let utc = from.to_utc(us);
        Some(if CONVERTED.contains(&utc) { to.to_local(utc) } else { us })
    });
    Ok(Arc::new(moved.collect::<TimestampMicrosecondArray>()))
}

fn makedate(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (years, days) = (to_i64(&args[0])?, to_i64(&args[1])?);
    let dates = years.iter().zip(days.iter()).map(|(year, day)| {
        let year = match year? {
            year @ 0..70 => 2000 + year,
            year @ 70..100 => 1900 + year,
            year => year,
        };
        let first = chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1)?;
        let day = i32::try_from(day?).ok().filter(|day| *day > 0)?;
        let date = temporal::days(first).checked_add(day - 1)?;
        temporal::in_calendar(i64::from(date).checked_mul(DAY_US)?).map(|_| date)
    });
    Ok(Arc::new(dates.collect::<Date32Array>()))
}

/// A whole number, unless a text may hold the fraction of a second, or a third argument says that a
/// column has so many digits of one.
fn unix_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let digits = match (types.first(), literals.first().copied().flatten()) {
        _ if types.len() == 3 => super::literal_int(literals, 2).unwrap_or(6).clamp(0, 6) as u8,
        (_, Some(ScalarValue::Utf8(Some(text)))) => temporal::fraction_digits(text),
        (Some(ty), None) if is_string(ty) => 6,
        _ => 0,
    };
    Ok(if digits == 0 { DataType::Int64 } else { DataType::Decimal128(20, digits as i8) })
}

/// The range of Unix time that MySQL gives a number or a date for.
const UNIX_TIMES: std::ops::RangeInclusive<i64> = 0..=32_536_771_199_999_999;

fn zone_of(args: &[ArrayRef]) -> SqlResult<Zone> {
    let zone = to_strings(&args[1])?;
    Ok(Zone::parse(zone.iter().next().flatten().unwrap_or("UTC"))?)
}

/// UNIX_TIMESTAMP(datetime) by the clocks of a zone; 0 out of the range of Unix time.
fn unix_timestamp(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let zone = zone_of(args)?;
    let times = to_datetime(&args[0])?;
    let micros = times.iter().map(|us| {
        let us = zone.to_utc(us?);
        Some(if UNIX_TIMES.contains(&us) { us } else { 0 })
    });
    if let DataType::Decimal128(_, digits) = ty {
        let unit = 10i64.pow(6 - u32::from(digits.unsigned_abs().min(6)));
        let numbers = micros.map(|us| Some(i128::from(us?.div_euclid(unit))));
        let numbers = numbers.collect::<arrow::array::Decimal128Array>();
        return Ok(Arc::new(
            numbers
                .with_precision_and_scale(20, *digits)
                .map_err(|_| out_of_range("DECIMAL", "unix_timestamp"))?,
        ));
    }
    Ok(Arc::new(micros.map(|us| Some(us?.div_euclid(1_000_000))).collect::<Int64Array>()))
}

/// FROM_UNIXTIME(seconds) by the clocks of a zone; NULL where Unix time does not reach.
fn from_unixtime(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let zone = zone_of(args)?;
    let micros = to_decimal(&args[0], 38, 6)?;
    let times = micros.iter().map(|us| {
        let us = i64::try_from(us?).ok().filter(|us| UNIX_TIMES.contains(us))?;
        Some(zone.to_local(us))
    });
    Ok(Arc::new(times.collect::<TimestampMicrosecondArray>()))
}
