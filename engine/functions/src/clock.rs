//! Functions of TIME: MAKETIME, SEC_TO_TIME, ADDTIME, TIMEDIFF, TIME_FORMAT; and of periods of
//! months.
//!
//! A TIME is microseconds and may be negative; it ends at 838:59:59. No clock is read here.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, DurationMicrosecondArray, Int64Array, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use values::date_format;
use values::error::{SqlResult, out_of_range, wrong_arguments};
use values::temporal::{self, DAY_US, TIME_END_US, within_time};

use super::convert::{to_datetime, to_decimal, to_i64, to_strings, to_time};
use super::kinds::{DATETIME, is_binary, is_string, is_temporal, is_time};
use super::texts::{read_datetime, read_time};
use super::{Function, datetime, span, text, warnings, whole};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_maketime", 3..=3, span, maketime),
    Function::new("mysql_sec_to_time", 1..=1, span, sec_to_time),
    Function::new("mysql_time_to_sec", 1..=1, whole, |a, _| {
        let times = to_time(&a[0])?;
        Ok(Arc::new(times.iter().map(|us| Some(us? / 1_000_000)).collect::<Int64Array>()))
    }),
    Function::new("mysql_addtime", 2..=2, added_type, |a, t| added(a, t, 1)),
    Function::new("mysql_subtime", 2..=2, added_type, |a, t| added(a, t, -1)),
    Function::new("mysql_timediff", 2..=2, span, timediff),
    Function::new("mysql_time_format", 2..=2, text, time_format),
    Function::new("mysql_get_format", 2..=2, text, get_format),
    Function::new("isobar_on_day", 2..=2, datetime, on_day),
    Function::new("isobar_moment_text", 2..=2, text, datetime_text),
    Function::new("isobar_moment_number", 2..=2, number_type, datetime_number),
    Function::new("mysql_period_add", 2..=2, whole, |a, _| {
        let (periods, counts) = (to_i64(&a[0])?, to_i64(&a[1])?);
        let moved = periods.iter().zip(counts.iter()).map(|(period, n)| {
            let (Some(period), Some(n)) = (period, n) else { return Ok(None) };
            Ok(Some(period_of(months(period, "period_add")?, n)))
        });
        Ok(Arc::new(moved.collect::<SqlResult<Int64Array>>()?))
    }),
    Function::new("mysql_period_diff", 2..=2, whole, |a, _| {
        let (left, right) = (to_i64(&a[0])?, to_i64(&a[1])?);
        let counts = left.iter().zip(right.iter()).map(|(left, right)| {
            let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
            Ok(Some(months(left, "period_diff")? - months(right, "period_diff")?))
        });
        Ok(Arc::new(counts.collect::<SqlResult<Int64Array>>()?))
    }),
];

/// The period of so many months and some more. MySQL counts months in 32 bits, as these do.
fn period_of(months: i64, more: i64) -> i64 {
    let months = i64::from((months as i32).wrapping_add(more as i32).cast_unsigned());
    if months == 0 {
        return 0;
    }
    of_century(months / 12) * 100 + months % 12 + 1
}

/// A year; of one of two digits the year that is meant.
fn of_century(year: i64) -> i64 {
    match year {
        0..70 => 2000 + year,
        70..100 => 1900 + year,
        _ => year,
    }
}

/// Seconds with their fraction, in microseconds.
fn seconds(array: &ArrayRef) -> SqlResult<Vec<Option<i64>>> {
    let numbers = to_decimal(array, 38, 6)?;
    let most = i128::from(TIME_END_US) * 2;
    Ok(numbers.iter().map(|n| i64::try_from(n?.clamp(-most, most)).ok()).collect())
}

/// MAKETIME(hour, minute, second); NULL where minute or second is none.
fn maketime(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (hours, minutes) = (to_i64(&args[0])?, to_i64(&args[1])?);
    let times = hours.iter().zip(minutes.iter()).zip(seconds(&args[2])?);
    let times = times.map(|((hour, minute), us)| {
        let (hour, minute, us) = (hour?.clamp(-839, 839), minute?, us?);
        if !(0..60).contains(&minute) || !(0..60_000_000).contains(&us) {
            return None;
        }
        let size = (hour.abs() * 3600 + minute * 60) * 1_000_000 + us;
        Some(within_time(if hour < 0 { -size } else { size }))
    });
    Ok(Arc::new(times.collect::<DurationMicrosecondArray>()))
}

fn sec_to_time(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = seconds(&args[0])?.into_iter().map(|us| us.map(within_time));
    Ok(Arc::new(times.collect::<DurationMicrosecondArray>()))
}

fn added_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match types.first() {
        Some(ty) if is_temporal(ty) => DATETIME,
        Some(ty) if is_string(ty) || is_binary(ty) => DataType::Utf8,
        _ => DataType::Duration(arrow::datatypes::TimeUnit::Microsecond),
    })
}

/// Whether a text begins with a day and not with a clock.
fn has_day(text: &str) -> bool {
    text.trim().get(1..).is_some_and(|rest| rest.contains(['-', '/']))
}

/// ADDTIME and SUBTIME: a TIME more or less than a DATETIME, a TIME, or a text of either.
fn added(args: &[ArrayRef], ty: &DataType, sign: i64) -> SqlResult<ArrayRef> {
    let more = to_time(&args[1])?;
    let more = more.iter().map(|us| us?.checked_mul(sign));
    if *ty == DataType::Utf8 {
        let texts = to_strings(&args[0])?;
        let sums = texts.iter().zip(more).map(|(text, more)| {
            let (text, more) = (text?, more?);
            if has_day(text) {
                return datetime_and(read_datetime(text)?, more)
                    .map(temporal::format_datetime_auto);
            }
            Some(temporal::format_time_auto(time_and(read_time(text)?, more)))
        });
        return Ok(Arc::new(sums.collect::<StringArray>()));
    }
    let sums: ArrayRef = if *ty == DATETIME {
        let sums = to_datetime(&args[0])?;
        let sums = sums.iter().zip(more).map(|(us, more)| datetime_and(us?, more?));
        Arc::new(sums.collect::<arrow::array::TimestampMicrosecondArray>())
    } else {
        let sums = to_time(&args[0])?;
        let sums = sums.iter().zip(more).map(|(us, more)| Some(time_and(us?, more?)));
        Arc::new(sums.collect::<DurationMicrosecondArray>())
    };
    Ok(sums)
}

/// A DATETIME and a TIME; NULL beyond the calendar.
fn datetime_and(us: i64, more: i64) -> Option<i64> {
    let sum = us.checked_add(more).and_then(temporal::in_calendar);
    sum.or_else(|| warnings::overflow("add_time"))
}

/// A TIME and another, up to the last TIME.
fn time_and(us: i64, more: i64) -> i64 {
    let sum = us.saturating_add(more);
    let within = within_time(sum);
    if within != sum {
        warnings::truncated("time", &temporal::format_time_auto(sum));
    }
    within
}

/// A value as a DATETIME, or as a TIME; which of them it is stands first.
type Either = Option<(bool, i64)>;

fn eithers(array: &ArrayRef) -> SqlResult<Vec<Either>> {
    let ty = array.data_type();
    Ok(if is_temporal(ty) {
        to_datetime(array)?.iter().map(|us| Some((true, us?))).collect()
    } else if is_string(ty) || is_binary(ty) {
        let of = |text: &str| match has_day(text) {
            true => Some((true, read_datetime(text)?)),
            false => Some((false, read_time(text)?)),
        };
        to_strings(array)?.iter().map(|text| of(text?)).collect()
    } else {
        to_time(array)?.iter().map(|us| Some((false, us?))).collect()
    })
}

/// TIMEDIFF of two DATETIMEs or of two TIMEs; NULL of one of each.
fn timediff(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (left, right) = (eithers(&args[0])?, eithers(&args[1])?);
    let spans = left.into_iter().zip(right).map(|(left, right)| {
        let ((datetime, a), (other, b)) = (left?, right?);
        (datetime == other).then(|| time_and(a, b.saturating_neg()))
    });
    Ok(Arc::new(spans.collect::<DurationMicrosecondArray>()))
}

/// TIME_FORMAT: DATE_FORMAT's directives of the clock; the hours may be more than a day's.
fn time_format(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = if is_temporal(args[0].data_type()) || is_time(args[0].data_type()) {
        to_time(&args[0])?
    } else {
        to_time(&(Arc::new(to_strings(&args[0])?) as ArrayRef))?
    };
    let patterns = to_strings(&args[1])?;
    let texts = times.iter().zip(patterns.iter()).map(|(us, pattern)| {
        let (us, pattern) = (us?, pattern?);
        let size = i64::try_from(us.unsigned_abs()).ok()?;
        let hours = size / 3_600_000_000;
        // The hours are written here; whatever else there is, by the clock of a day.
        let pattern = pattern
            .replace("%T", "%H:%i:%S")
            .replace("%H", &format!("{hours:02}"))
            .replace("%k", &hours.to_string());
        let sign = if us < 0 { "-" } else { "" };
        Some(format!("{sign}{}", date_format::format(size % DAY_US, &pattern)?))
    });
    Ok(Arc::new(texts.collect::<StringArray>()))
}

/// A period YYYYMM or YYMM as a count of months.
fn months(period: i64, function: &str) -> SqlResult<i64> {
    let (year, month) = (period / 100, period % 100);
    if period <= 0 || !(1..=12).contains(&month) {
        return Err(wrong_arguments(function));
    }
    Ok(of_century(year) * 12 + month - 1)
}

/// How many digits of a second's fraction are asked for.
fn digits_of(args: &[ArrayRef]) -> SqlResult<u8> {
    let digits = to_i64(&args[1])?.iter().next().flatten().unwrap_or(6);
    Ok(digits.clamp(0, 6) as u8)
}

/// A TIME as so long after the midnight of a day, which is counted from 1970-01-01; NULL beyond the calendar.
fn on_day(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (times, days) = (to_time(&args[0])?, to_i64(&args[1])?);
    let datetimes = times.iter().zip(days.iter()).map(|(us, day)| {
        let midnight = day?.checked_mul(DAY_US)?;
        midnight.checked_add(us?).and_then(temporal::in_calendar)
    });
    Ok(Arc::new(datetimes.collect::<arrow::array::TimestampMicrosecondArray>()))
}

/// A DATETIME or a TIME with all digits of its column.
fn datetime_text(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let digits = digits_of(args)?;
    let texts: StringArray = if is_time(args[0].data_type()) {
        let times = to_time(&args[0])?;
        times.iter().map(|us| us.map(|us| types::value::format_time(us, digits))).collect()
    } else {
        let times = to_datetime(&args[0])?;
        times.iter().map(|us| us.map(|us| temporal::format_datetime(us, digits))).collect()
    };
    Ok(Arc::new(texts))
}

fn number_type(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let digits = super::literal_int(literals, 1).unwrap_or(6).clamp(0, 6);
    Ok(DataType::Decimal128(14 + digits as u8, digits as i8))
}

/// A DATETIME as YYYYMMDDHHMMSS with all digits of its column.
fn datetime_number(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let digits = digits_of(args)?;
    let (unit, cut) = (10i128.pow(u32::from(digits)), 10i64.pow(u32::from(6 - digits)));
    let times = to_datetime(&args[0])?;
    let numbers = times.iter().map(|us| {
        let us = us?;
        let fraction = us.rem_euclid(1_000_000) / cut;
        Some(i128::from(temporal::datetime_number(us)) * unit + i128::from(fraction))
    });
    let numbers = numbers.collect::<Decimal128Array>();
    let DataType::Decimal128(precision, scale) = *ty else {
        return Err(out_of_range("DECIMAL", "datetime"));
    };
    let numbers = numbers.with_precision_and_scale(precision, scale);
    Ok(Arc::new(numbers.map_err(|_| out_of_range("DECIMAL", "datetime"))?))
}

/// GET_FORMAT(kind, place): DATE_FORMAT's directives for a place's way of writing; NULL for others.
fn get_format(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (kinds, places) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let formats = kinds.iter().zip(places.iter()).map(|(kind, place)| {
        let (kind, place) = (kind?.to_ascii_uppercase(), place?.to_ascii_uppercase());
        Some(match (kind.as_str(), place.as_str()) {
            ("DATE", "USA") => "%m.%d.%Y",
            ("DATE", "JIS" | "ISO") => "%Y-%m-%d",
            ("DATE", "EUR") => "%d.%m.%Y",
            ("DATE", "INTERNAL") => "%Y%m%d",
            ("DATETIME" | "TIMESTAMP", "USA" | "EUR") => "%Y-%m-%d %H.%i.%s",
            ("DATETIME" | "TIMESTAMP", "JIS" | "ISO") => "%Y-%m-%d %H:%i:%s",
            ("DATETIME" | "TIMESTAMP", "INTERNAL") => "%Y%m%d%H%i%s",
            ("TIME", "USA") => "%h:%i:%s %p",
            ("TIME", "JIS" | "ISO") => "%H:%i:%s",
            ("TIME", "EUR") => "%H.%i.%s",
            ("TIME", "INTERNAL") => "%H%i%s",
            _ => return None,
        })
    });
    Ok(Arc::new(formats.collect::<StringArray>()))
}
