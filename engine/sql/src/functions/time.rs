//! Functions of dates and times. The present is never read here: the planner writes it in.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::DataType;
use chrono::{Datelike, Timelike};
use datafusion::common::{Result, ScalarValue};

use super::convert::{DATETIME, is_string, to_date, to_datetime, to_i64, to_strings};
use super::{Function, day, moment, text, whole};
use crate::error::{SqlResult, unsupported};
use crate::temporal::{self, DAY_US, Unit};

macro_rules! parts {
    ($($name:literal => $part:expr),* $(,)?) => {
        &[
            $(Function::new($name, 1..=1, whole, |a, _| part(a, $part)),)*
            Function::new("mysql_date_format", 2..=2, text, date_format),
            Function::new("mysql_date_shift", 3..=3, shift_type, date_shift),
            Function::new("mysql_datediff", 2..=2, whole, datediff),
            Function::new("mysql_timestampdiff", 3..=3, whole, timestampdiff),
            Function::new("mysql_last_day", 1..=1, day, last_day),
            Function::new("mysql_dayname", 1..=1, text, |a, _| named(a, "%W")),
            Function::new("mysql_monthname", 1..=1, text, |a, _| named(a, "%M")),
            Function::new("mysql_from_days", 1..=1, day, from_days),
            Function::new("mysql_makedate", 2..=2, day, makedate),
            Function::new("mysql_unix_timestamp", 1..=1, whole, unix_timestamp),
            Function::new("mysql_from_unixtime", 1..=1, moment, from_unixtime),
            Function::new("mysql_extract", 2..=2, whole, extract),
            Function::new("mysql_time_of_day", 1..=1, text, |a, _| named(a, "%T")),
            Function::new("mysql_str_to_date", 2..=2, moment, str_to_date),
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
    "mysql_week" => |at| i64::from((at.ordinal0() + 7 - at.weekday().num_days_from_sunday()) / 7),
    "mysql_to_days" => |at| i64::from(temporal::days(at.date())) + 719_528,
};

fn part(args: &[ArrayRef], of: fn(chrono::NaiveDateTime) -> i64) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    let parts = times.iter().map(|us| us.and_then(temporal::datetime).map(of));
    Ok(Arc::new(parts.collect::<Int64Array>()))
}

fn named(args: &[ArrayRef], pattern: &str) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    let names = times.iter().map(|us| us.and_then(|us| temporal::format(us, pattern)));
    Ok(Arc::new(names.collect::<StringArray>()))
}

fn date_format(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (times, patterns) = (to_datetime(&args[0])?, to_strings(&args[1])?);
    let rows = times.iter().zip(patterns.iter());
    let texts = rows.map(|(us, pattern)| temporal::format(us?, pattern?));
    Ok(Arc::new(texts.collect::<StringArray>()))
}

fn unit(array: &ArrayRef) -> SqlResult<Unit> {
    let names = to_strings(array)?;
    let name = names.iter().next().flatten().unwrap_or_default();
    Unit::parse(name).ok_or_else(|| unsupported(format!("INTERVAL … {name}")))
}

fn shift_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let whole_days = match literals.get(2).copied().flatten() {
        Some(ScalarValue::Utf8(Some(name))) => Unit::parse(name).is_some_and(Unit::is_whole_days),
        _ => false,
    };
    Ok(match types.first() {
        Some(DataType::Date32) if whole_days => DataType::Date32,
        Some(ty) if is_string(ty) => DataType::Utf8,
        _ => DATETIME,
    })
}

fn date_shift(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let unit = unit(&args[2])?;
    let (times, counts) = (to_datetime(&args[0])?, to_i64(&args[1])?);
    let moved = times.iter().zip(counts.iter()).map(|(us, n)| unit.shift(us?, n?));
    if is_string(ty) {
        let dates = to_strings(&args[0])?;
        let texts = moved.zip(dates.iter()).map(|(us, text)| {
            let only_date = text.is_some_and(|t| !t.trim().contains([' ', 'T', ':']));
            Some(if only_date && unit.is_whole_days() {
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

fn from_days(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let counts = to_i64(&args[0])?;
    let dates = counts.iter().map(|n| n.and_then(|n| i32::try_from(n - 719_528).ok()));
    Ok(Arc::new(dates.collect::<Date32Array>()))
}

fn makedate(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (years, days) = (to_i64(&args[0])?, to_i64(&args[1])?);
    let dates = years.iter().zip(days.iter()).map(|(year, day)| {
        let first = chrono::NaiveDate::from_ymd_opt(i32::try_from(year?).ok()?, 1, 1)?;
        let day = i32::try_from(day?).ok().filter(|day| *day > 0)?;
        temporal::days(first).checked_add(day - 1)
    });
    Ok(Arc::new(dates.collect::<Date32Array>()))
}

fn unix_timestamp(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    Ok(Arc::new(
        times.iter().map(|us| us.map(|us| us.div_euclid(1_000_000))).collect::<Int64Array>(),
    ))
}

fn from_unixtime(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let seconds = super::convert::to_f64(&args[0])?;
    let times = seconds.iter().map(|s| s.map(|s| (s * 1e6).round() as i64));
    Ok(Arc::new(times.collect::<TimestampMicrosecondArray>()))
}

fn extract(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let names = to_strings(&args[0])?;
    let name = names.iter().next().flatten().unwrap_or_default().to_ascii_uppercase();
    let of: fn(chrono::NaiveDateTime) -> i64 = match name.as_str() {
        "YEAR" => |at| i64::from(at.year()),
        "QUARTER" => |at| i64::from(at.month().div_ceil(3)),
        "MONTH" => |at| i64::from(at.month()),
        "WEEK" => |at| i64::from((at.ordinal0() + 7 - at.weekday().num_days_from_sunday()) / 7),
        "DAY" => |at| i64::from(at.day()),
        "HOUR" => |at| i64::from(at.hour()),
        "MINUTE" => |at| i64::from(at.minute()),
        "SECOND" => |at| i64::from(at.second()),
        "MICROSECOND" => |at| i64::from(at.nanosecond() / 1000),
        "YEAR_MONTH" => |at| i64::from(at.year()) * 100 + i64::from(at.month()),
        _ => return Err(unsupported(format!("EXTRACT({name} FROM …)"))),
    };
    part(&args[1..], of)
}

/// STR_TO_DATE for the directives that name digits.
fn str_to_date(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (texts, patterns) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let times = texts.iter().zip(patterns.iter()).map(|(text, pattern)| {
        let pattern = pattern?.replace("%i", "%M").replace("%s", "%S").replace("%T", "%H:%M:%S");
        let pattern = pattern.replace("%c", "%m").replace("%e", "%d").replace("%k", "%H");
        let text = text?;
        if let Ok(at) = chrono::NaiveDateTime::parse_from_str(text, &pattern) {
            return Some(temporal::micros(at));
        }
        let date = chrono::NaiveDate::parse_from_str(text, &pattern).ok()?;
        Some(i64::from(temporal::days(date)) * DAY_US)
    });
    Ok(Arc::new(times.collect::<TimestampMicrosecondArray>()))
}
