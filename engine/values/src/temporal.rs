//! Dates and times as MySQL reads and writes them: text, numbers, intervals, time zones.
//!
//! Days are counted from 1970-01-01, times in microseconds from its midnight. No clock is read.

use chrono::{
    DateTime, Datelike, Days, Duration, Months, NaiveDate, NaiveDateTime, Offset, TimeZone,
    Timelike,
};
use types::{Error, Result};

mod times;

pub use times::{begun_time, parse_time};

/// Microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// A session's time zone: a fixed offset or a zone of the IANA database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Seconds east of UTC.
    Fixed(i32),
    /// A named zone.
    Named(chrono_tz::Tz),
}

impl Zone {
    /// UTC.
    pub const UTC: Zone = Zone::Fixed(0);

    /// Reads `SYSTEM` (which is UTC here), `UTC`, `+08:00` or a zone's name.
    pub fn parse(text: &str) -> Result<Zone> {
        let bad = || Error::Invalid(format!("Unknown or incorrect time zone: '{text}'"));
        if text.eq_ignore_ascii_case("SYSTEM") || text.eq_ignore_ascii_case("UTC") {
            return Ok(Zone::UTC);
        }
        let sign = match text.as_bytes().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return text.parse().map(Zone::Named).map_err(|_| bad()),
        };
        let (hours, minutes) = text.get(1..).and_then(|t| t.split_once(':')).ok_or_else(bad)?;
        let hours: i32 = hours.parse().map_err(|_| bad())?;
        let minutes: i32 = minutes.parse().map_err(|_| bad())?;
        if !(0..=14).contains(&hours) || !(0..60).contains(&minutes) {
            return Err(bad());
        }
        Ok(Zone::Fixed(sign * (hours * 3600 + minutes * 60)))
    }

    /// Wall time of an instant.
    pub fn to_local(self, utc_us: i64) -> i64 {
        match self {
            Zone::Fixed(seconds) => utc_us.saturating_add(i64::from(seconds) * 1_000_000),
            Zone::Named(zone) => match DateTime::from_timestamp_micros(utc_us) {
                Some(at) => {
                    let offset = zone.offset_from_utc_datetime(&at.naive_utc()).fix();
                    utc_us.saturating_add(i64::from(offset.local_minus_utc()) * 1_000_000)
                }
                None => utc_us,
            },
        }
    }

    /// Instant of a wall time; the earlier one where clocks were set back, the time of the
    /// change where they were set forward.
    pub fn to_utc(self, local_us: i64) -> i64 {
        match self {
            Zone::Fixed(seconds) => local_us.saturating_sub(i64::from(seconds) * 1_000_000),
            Zone::Named(zone) => {
                let Some(at) = datetime(local_us) else { return local_us };
                match zone.from_local_datetime(&at).earliest() {
                    Some(at) => at.timestamp_micros(),
                    None => {
                        let later = at.checked_add_signed(Duration::hours(1));
                        later
                            .and_then(|later| zone.from_local_datetime(&later).earliest())
                            .map_or(local_us, |at| at.timestamp_micros() - 3_600_000_000)
                    }
                }
            }
        }
    }
}

/// The calendar time of a count of microseconds.
pub fn datetime(us: i64) -> Option<NaiveDateTime> {
    DateTime::from_timestamp_micros(us).map(|at| at.naive_utc())
}

/// The calendar day of a count of days.
pub fn date(days: i32) -> Option<NaiveDate> {
    datetime(i64::from(days).checked_mul(DAY_US)?).map(|at| at.date())
}

/// Days since 1970-01-01.
pub fn days(date: NaiveDate) -> i32 {
    date.num_days_from_ce() - 719_163
}

/// Microseconds since 1970-01-01 00:00:00.
pub fn micros(at: NaiveDateTime) -> i64 {
    at.and_utc().timestamp_micros()
}

/// Reads a DATE or DATETIME in MySQL's relaxed forms: `2024-1-2`, `2024-01-02T03:04:05.678`,
/// `20240102`, `20240102030405`, `20240102T030405`. `None` if it is none, or no day of the calendar.
pub fn parse_datetime(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    // With two dots, they stand between the parts of a day.
    if digits && !text.is_empty() && text.bytes().filter(|b| *b == b'.').count() < 2 {
        return parse_digits(text);
    }
    if let Some((day, clock)) = text.split_once('T')
        && matches!(day.len(), 6 | 8)
        && day.bytes().all(|b| b.is_ascii_digit())
        && clock.bytes().take_while(u8::is_ascii_digit).count() == CLOCK_DIGITS
    {
        return parse_digits(&format!("{day}{clock}"));
    }
    let mut rest = text;
    let year_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let year = two_digit_year(number(&mut rest)?, year_digits);
    separator(&mut rest)?;
    let month = number(&mut rest)?;
    separator(&mut rest)?;
    let day = number(&mut rest)?;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    if rest.is_empty() {
        return before_end(micros(date.and_hms_opt(0, 0, 0)?));
    }
    rest = rest.strip_prefix(['T', 't', ' '])?.trim_start();
    before_end(i64::from(days(date)) * DAY_US + clock(rest)?)
}

/// Whether a text that reads as a DATETIME says a time of the day, too.
pub fn says_time_of_day(text: &str) -> bool {
    let text = text.trim();
    text.contains([' ', 'T', ':']) || text.bytes().filter(u8::is_ascii_digit).count() > 8
}

/// The same with an offset from UTC behind it, as `2024-01-02 03:04:05+05:30`, taken to a time zone.
pub fn parse_datetime_in(text: &str, zone: Zone) -> Option<i64> {
    parse_datetime(text).or_else(|| before_end(zone.to_local(parse_instant(text)?)))
}

/// The instant that a datetime with an offset from UTC is; `None` of a text without one.
pub fn parse_instant(text: &str) -> Option<i64> {
    let text = text.trim();
    let (wall, offset) = text.split_at_checked(text.len().checked_sub(OFFSET)?)?;
    let (sign, clock) = offset.split_at_checked(1)?;
    let (hours, minutes) = clock.split_once(':')?;
    let two = |digits: &str| {
        let are_digits = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| are_digits)
    };
    let minutes = two(hours)? * 60 + two(minutes).filter(|minutes| *minutes < 60)?;
    let minutes = match sign {
        "+" => minutes,
        // The standard has no -00:00.
        "-" if minutes > 0 => -minutes,
        _ => return None,
    };
    // It stands right behind the seconds, or their fraction.
    let has_seconds = wall.matches(':').count() >= 2 && !wall.ends_with(' ');
    if !has_seconds || minutes.abs() > FARTHEST_MINUTES {
        return None;
    }
    parse_datetime(wall)?.checked_sub(minutes * 60_000_000)
}

/// Digits of a clock without colons: `hhmmss`.
const CLOCK_DIGITS: usize = 6;
/// Letters of an offset from UTC.
const OFFSET: usize = "+hh:mm".len();
/// The farthest offset from UTC, in minutes.
const FARTHEST_MINUTES: i64 = 14 * 60;

/// The end of the calendar: the first microsecond of the year 10000.
const END_US: i64 = 253_402_300_800_000_000;

/// A datetime before the year 10000, where rounding may end; `None` for a later one.
fn before_end(us: i64) -> Option<i64> {
    (us < END_US).then_some(us)
}

/// What stands for `0000-00-00 00:00:00` in comparisons: before every datetime that is kept. No row has it.
pub const ZERO_US: i64 = -719_529 * DAY_US;

/// Whether a text is a zero date: one of which every number is 0, which no calendar has.
pub fn is_zero(text: &str) -> bool {
    let parts: Vec<&str> = text.trim().split(['-', '/', '.', ':', '^', 'T', 't', ' ']).collect();
    let zeros = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte == b'0'));
    zeros
        && match &parts[..] {
            [digits] => matches!(digits.len(), 6 | 8 | 12 | 14),
            _ => (3..=7).contains(&parts.len()),
        }
}

/// Microseconds of `hh:mm[:ss[.ffffff]]`, within one day.
fn clock(text: &str) -> Option<i64> {
    let mut rest = text;
    let hour = i64::from(number(&mut rest)?);
    let mut minute = 0;
    let mut second = 0;
    let mut fraction = 0;
    if let Some(after) = rest.strip_prefix(':') {
        rest = after;
        minute = i64::from(number(&mut rest)?);
    }
    if let Some(after) = rest.strip_prefix(':') {
        rest = after;
        second = i64::from(number(&mut rest)?);
    }
    if let Some(after) = rest.strip_prefix('.') {
        fraction = fraction_us(after)?;
        rest = "";
    }
    if !rest.is_empty() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second) * 1_000_000 + fraction)
}

/// Microseconds of the digits behind a second's point, rounded at the seventh.
fn fraction_us(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let padded = format!("{digits:0<7}");
    let seven: i64 = padded.get(..7)?.parse().ok()?;
    Some((seven + 5) / 10)
}

fn parse_digits(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let (year_len, has_time) = match whole.len() {
        8 => (4, false),
        6 => (2, false),
        14 => (4, true),
        12 => (2, true),
        _ => return None,
    };
    let part = |from: usize, len: usize| whole.get(from..from + len)?.parse::<u32>().ok();
    let year = two_digit_year(part(0, year_len)?, year_len);
    let date = NaiveDate::from_ymd_opt(
        i32::try_from(year).ok()?,
        part(year_len, 2)?,
        part(year_len + 2, 2)?,
    )?;
    let mut us = i64::from(days(date)) * DAY_US;
    if has_time {
        let at = year_len + 4;
        let (h, m, s) = (part(at, 2)?, part(at + 2, 2)?, part(at + 4, 2)?);
        us += micros(NaiveDate::from_ymd_opt(1970, 1, 1)?.and_hms_opt(h, m, s)?);
        us += fraction_us(fraction)?;
    }
    before_end(us)
}

fn two_digit_year(year: u32, digits: usize) -> u32 {
    match (digits, year) {
        (1 | 2, 0..=69) => 2000 + year,
        (1 | 2, _) => 1900 + year,
        _ => year,
    }
}

fn number(rest: &mut &str) -> Option<u32> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (head, tail) = rest.split_at(digits);
    *rest = tail;
    head.parse().ok()
}

fn separator(rest: &mut &str) -> Option<()> {
    *rest = rest.strip_prefix(['-', '/', '.', ':', '^'])?;
    Some(())
}

/// Reads a date or time given as a number: 20240102 or 20240102030405, also with years of two digits.
pub fn from_number(n: i64) -> Option<i64> {
    if n <= 0 {
        return None;
    }
    let text = match n {
        101..=991_231 => format!("{n:06}"),
        101_000_000..=991_231_235_959 => format!("{n:012}"),
        _ => n.to_string(),
    };
    parse_digits(&text)
}

/// A date as the number 20240102.
pub fn date_number(days: i32) -> i64 {
    date(days).map_or(0, |d| {
        i64::from(d.year()) * 10_000 + i64::from(d.month()) * 100 + i64::from(d.day())
    })
}

/// A time as the number 20240102030405.
pub fn datetime_number(us: i64) -> i64 {
    datetime(us).map_or(0, |at| {
        let clock = at.hour() * 10_000 + at.minute() * 100 + at.second();
        date_number(days(at.date())) * 1_000_000 + i64::from(clock)
    })
}

/// A time as the number 20240102030405, with six digits behind the point.
pub fn datetime_decimal(us: i64) -> types::Decimal {
    let micros = i128::from(us.rem_euclid(1_000_000));
    types::Decimal { unscaled: i128::from(datetime_number(us)) * 1_000_000 + micros, scale: 6 }
}

/// `2024-01-02`.
pub fn format_date(days: i32) -> String {
    date(days).map_or_else(|| "0000-00-00".into(), |d| d.format("%Y-%m-%d").to_string())
}

/// `2024-01-02 03:04:05`, with as many digits of a fraction as asked for.
pub fn format_datetime(us: i64, digits: u8) -> String {
    let Some(at) = datetime(us) else { return "0000-00-00 00:00:00".into() };
    let mut text = at.format("%Y-%m-%d %H:%M:%S").to_string();
    if digits > 0 {
        let fraction = format!(".{:06}", us.rem_euclid(1_000_000));
        text.push_str(&fraction[..=usize::from(digits.min(6))]);
    }
    text
}

/// The same, with a fraction only where there is one.
pub fn format_datetime_auto(us: i64) -> String {
    format_datetime(us, if us.rem_euclid(1_000_000) == 0 { 0 } else { 6 })
}

/// Rounds to so many digits of a second, half up, as MySQL does on storing. The last half second of the calendar
/// ends beyond it.
pub fn round_fraction(us: i64, digits: u8) -> i64 {
    let unit = 10i64.pow(u32::from(6 - digits.min(6)));
    us.saturating_add(unit / 2).div_euclid(unit).saturating_mul(unit)
}

/// Units of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Of so many microseconds.
    Micros(i64),
    /// Of so many months.
    Months(i64),
}

impl Unit {
    /// Reads MICROSECOND … YEAR.
    pub fn parse(name: &str) -> Option<Unit> {
        Some(match name.to_ascii_uppercase().as_str() {
            "MICROSECOND" => Unit::Micros(1),
            "SECOND" => Unit::Micros(1_000_000),
            "MINUTE" => Unit::Micros(60_000_000),
            "HOUR" => Unit::Micros(3_600_000_000),
            "DAY" => Unit::Micros(DAY_US),
            "WEEK" => Unit::Micros(7 * DAY_US),
            "MONTH" => Unit::Months(1),
            "QUARTER" => Unit::Months(3),
            "YEAR" => Unit::Months(12),
            _ => return None,
        })
    }

    /// Whether it leaves the time of day alone.
    pub fn is_whole_days(self) -> bool {
        match self {
            Unit::Micros(us) => us % DAY_US == 0,
            Unit::Months(_) => true,
        }
    }

    /// A time moved by `n` units; `None` beyond the calendar.
    pub fn shift(self, us: i64, n: i64) -> Option<i64> {
        match self {
            Unit::Micros(unit) => us.checked_add(unit.checked_mul(n)?),
            Unit::Months(unit) => {
                let at = datetime(us)?;
                let months = u32::try_from(unit.checked_mul(n)?.unsigned_abs()).ok()?;
                let moved = if n < 0 {
                    at.checked_sub_months(Months::new(months))?
                } else {
                    at.checked_add_months(Months::new(months))?
                };
                Some(micros(moved))
            }
        }
    }

    /// How many whole units lie between two times.
    pub fn between(self, from: i64, to: i64) -> Option<i64> {
        match self {
            Unit::Micros(unit) => to.checked_sub(from)?.checked_div(unit),
            Unit::Months(unit) => {
                let (a, b) = (datetime(from)?, datetime(to)?);
                let month = |at: &NaiveDateTime| i64::from(at.year()) * 12 + i64::from(at.month0());
                let mut months = month(&b) - month(&a);
                let rest = |at: &NaiveDateTime| (at.day(), at.time());
                if months > 0 && rest(&b) < rest(&a) {
                    months -= 1;
                } else if months < 0 && rest(&b) > rest(&a) {
                    months += 1;
                }
                Some(months / unit)
            }
        }
    }
}

/// A value in the range of DATETIME, from the year 1 to 9999; `None` for any other.
pub fn in_calendar(us: i64) -> Option<i64> {
    (-62_135_596_800_000_000..END_US).contains(&us).then_some(us)
}

/// How many digits of a second's fraction a text ends with, at most six.
pub fn fraction_digits(text: &str) -> u8 {
    let fraction = text.trim_end().rsplit_once('.').map_or("", |(_, fraction)| fraction);
    // The dots between the parts of a day are none.
    let of_clock = text.contains(':') && fraction.bytes().all(|b| b.is_ascii_digit());
    if of_clock { fraction.len().min(6) as u8 } else { 0 }
}

/// Last day of a day's month.
pub fn last_day(day: i32) -> Option<i32> {
    let first = date(day)?.with_day(1)?;
    Some(days(first.checked_add_months(Months::new(1))?.checked_sub_days(Days::new(1))?))
}

/// The largest TIME: 838:59:59, with whatever digits of a fraction behind it cut off.
pub const TIME_END_US: i64 = (838 * 3600 + 59 * 60 + 59) * 1_000_000;

/// The TIME nearest to so many microseconds.
pub fn within_time(us: i64) -> i64 {
    us.clamp(-TIME_END_US, TIME_END_US)
}

/// Reads a TIME given as the number HHMMSS.
pub fn time_from_number(n: i64, fraction_us: i64) -> Option<i64> {
    let size = i64::try_from(n.unsigned_abs()).ok()?;
    let (hours, minutes, seconds) = (size / 10_000, size / 100 % 100, size % 100);
    if minutes > 59 || seconds > 59 || hours > 1_000_000 {
        return None;
    }
    let us = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + fraction_us;
    Some(if n < 0 { -us } else { us })
}

/// A TIME as the number HHMMSS, with six digits behind the point.
pub fn time_number(us: i64) -> types::Decimal {
    let size = i128::from(us.unsigned_abs());
    let (seconds, micros) = (size / 1_000_000, size % 1_000_000);
    let whole = seconds / 3600 * 10_000 + seconds / 60 % 60 * 100 + seconds % 60;
    let unscaled = whole * 1_000_000 + micros;
    types::Decimal { unscaled: if us < 0 { -unscaled } else { unscaled }, scale: 6 }
}

/// Rounds a TIME to so many digits of a second, half away from zero.
pub fn round_time(us: i64, digits: u8) -> i64 {
    us.signum()
        * round_fraction(i64::try_from(us.unsigned_abs()).unwrap_or(i64::MAX - 500_000), digits)
}

/// `HH:MM:SS`, with a fraction only where there is one.
pub fn format_time_auto(us: i64) -> String {
    types::value::format_time(us, if us % 1_000_000 == 0 { 0 } else { 6 })
}

/// The year of a datetime.
pub fn year_of(us: i64) -> i128 {
    datetime(us).map_or(0, |at| i128::from(at.year()))
}
