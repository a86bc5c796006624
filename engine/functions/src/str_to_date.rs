//! STR_TO_DATE: a text read by DATE_FORMAT's directives.
//!
//! What the format asks for decides the type: a DATE, a TIME, or a DATETIME. A text that is not
//! what the format says is NULL, and so is a day that no calendar has.

use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Datelike, NaiveDate};
use datafusion::common::{Result, ScalarValue};
use values::error::{SqlResult, incorrect_for_function};
use values::temporal::{self, DAY_US};

use super::convert::{to_strings, to_type};
use super::kinds::DATETIME;
use super::{Function, warnings};

/// The function.
pub const FUNCTIONS: &[Function] = &[Function::new("mysql_str_to_date", 2..=2, kind, str_to_date)];

/// Directives of a day, and of a clock.
const OF_DAY: &str = "YymcMbdeDjaWwUuVvXx";
const OF_CLOCK: &str = "HkhIlisSfprT";

fn has_directive(format: &str, directives: &str) -> bool {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter == '%' && letters.next().is_some_and(|directive| directives.contains(directive)) {
            return true;
        }
    }
    false
}

fn kind(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match literals.get(1).copied().flatten() {
        Some(ScalarValue::Utf8(Some(format))) => {
            match (has_directive(format, OF_DAY), has_directive(format, OF_CLOCK)) {
                (true, false) => DataType::Date32,
                (false, true) => DataType::Duration(TimeUnit::Microsecond),
                _ => DATETIME,
            }
        }
        _ => DATETIME,
    })
}

fn str_to_date(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let (texts, formats) = (to_strings(&args[0])?, to_strings(&args[1])?);
    let is_time = matches!(ty, DataType::Duration(_));
    let times = texts.iter().zip(formats.iter()).map(|(text, format)| {
        let (text, format) = (text?, format?);
        let read = Read::of(text, format).and_then(|read| match is_time {
            true => read.clock(),
            false => Some(read.day()? * DAY_US + read.clock()?),
        });
        if read.is_none() {
            let kind = if is_time { "time" } else { "datetime" };
            let value = warnings::shown(text);
            warnings::warn(|| incorrect_for_function(kind, value, "str_to_date"));
        }
        read
    });
    if is_time {
        let times = times.collect::<arrow::array::DurationMicrosecondArray>();
        return Ok(Arc::new(times));
    }
    let datetimes: ArrayRef = Arc::new(times.collect::<TimestampMicrosecondArray>());
    to_type(&datetimes, ty)
}

/// What was read so far.
#[derive(Default)]
struct Read {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: Option<i64>,
    /// The day of the week, Monday the first.
    weekday: Option<i64>,
    /// The week and the year that it belongs to, with their directives.
    week: Option<(char, i64)>,
    week_year: Option<(char, i64)>,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Whether the hour is one of twelve, and whether it is one of the afternoon.
    of_twelve: bool,
    afternoon: bool,
}

impl Read {
    fn of(text: &str, format: &str) -> Option<Read> {
        let mut read = Read::default();
        let mut rest = text;
        let mut letters = format.chars();
        while let Some(letter) = letters.next() {
            rest = rest.trim_start();
            // A text may end before its format does.
            if rest.is_empty() {
                break;
            }
            match letter {
                '%' => read.directive(letters.next()?, &mut rest)?,
                letter if letter.is_whitespace() => {}
                letter => rest = rest.strip_prefix(letter)?,
            }
        }
        // What is left over is dropped, with a warning in MySQL.
        Some(read)
    }

    fn directive(&mut self, directive: char, rest: &mut &str) -> Option<()> {
        match directive {
            'Y' | 'y' => {
                let before = rest.len();
                self.year = digits(rest, if directive == 'Y' { 4 } else { 2 })?;
                if before - rest.len() <= 2 {
                    self.year += if self.year < 70 { 2000 } else { 1900 };
                }
            }
            'm' | 'c' => self.month = digits(rest, 2)?,
            'd' | 'e' => self.day = digits(rest, 2)?,
            'D' => {
                self.day = digits(rest, 2)?;
                *rest = rest.get(2..)?;
            }
            'j' => self.day_of_year = Some(digits(rest, 3)?),
            'M' => self.month = named(rest, &MONTHS, usize::MAX)?,
            'b' => self.month = named(rest, &MONTHS, 3)?,
            'W' => self.weekday = Some(named(rest, &DAYS, usize::MAX)?),
            'a' => self.weekday = Some(named(rest, &DAYS, 3)?),
            'w' => {
                self.weekday = Some(match digits(rest, 1)? {
                    0 => 7,
                    day @ 1..=6 => day,
                    _ => return None,
                });
            }
            'U' | 'u' | 'V' | 'v' => self.week = Some((directive, digits(rest, 2)?)),
            'X' | 'x' => self.week_year = Some((directive, digits(rest, 4)?)),
            'H' | 'k' => self.hour = digits(rest, 2)?,
            'h' | 'I' | 'l' => {
                self.hour = digits(rest, 2)?;
                self.of_twelve = true;
            }
            'i' => self.minute = digits(rest, 2)?,
            's' | 'S' => self.second = digits(rest, 2)?,
            'f' => {
                let before = rest.len();
                let number = digits(rest, 6)?;
                let missing = 6u32.saturating_sub(u32::try_from(before - rest.len()).ok()?);
                self.micros = number * 10i64.pow(missing);
            }
            'p' => {
                let half = rest.get(..2)?;
                self.afternoon = half.eq_ignore_ascii_case("pm");
                if !self.afternoon && !half.eq_ignore_ascii_case("am") {
                    return None;
                }
                self.of_twelve = true;
                *rest = rest.get(2..)?;
            }
            'r' | 'T' => {
                let parts = if directive == 'r' { "h:i:S p" } else { "H:i:S" };
                for part in parts.chars() {
                    match part {
                        ':' => *rest = rest.strip_prefix(':')?,
                        ' ' => *rest = rest.trim_start(),
                        part => self.directive(part, rest)?,
                    }
                }
            }
            '.' => *rest = rest.trim_start_matches(|c: char| c.is_ascii_punctuation()),
            '@' => *rest = rest.trim_start_matches(char::is_alphabetic),
            '#' => *rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()),
            '%' => *rest = rest.strip_prefix('%')?,
            _ => return None,
        }
        Some(())
    }

    /// The day, in days since 1970.
    fn day(&self) -> Option<i64> {
        if let (Some((directive, week)), Some(weekday)) = (self.week, self.weekday) {
            return self.day_of_week(directive, week, weekday);
        }
        let year = i32::try_from(self.year).ok()?;
        let date = match self.day_of_year {
            Some(day) => NaiveDate::from_yo_opt(year, u32::try_from(day).ok()?)?,
            None => {
                let (month, day) = (u32::try_from(self.month).ok()?, u32::try_from(self.day).ok()?);
                NaiveDate::from_ymd_opt(year, month, day)?
            }
        };
        Some(i64::from(temporal::days(date)))
    }

    /// The day of a week, in days since 1970: `%V` and `%v` count in the years of `%X` and `%x`, others in those of `%Y`.
    fn day_of_week(&self, directive: char, week: i64, weekday: i64) -> Option<i64> {
        let year = match (directive, self.week_year) {
            ('V', Some(('X', year))) | ('v', Some(('x', year))) if week > 0 => year,
            ('U' | 'u', None) => self.year,
            _ => return None,
        };
        if week > 53 || !(1..=9999).contains(&year) {
            return None;
        }
        let new_year = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, 1, 1)?;
        // The first week of %U and %V is that of the first Sunday; of others, the one that has four days of the year.
        let (to_first, within) = if matches!(directive, 'U' | 'V') {
            let past = i64::from(new_year.weekday().num_days_from_sunday());
            (if past == 0 { 0 } else { 7 - past }, weekday % 7)
        } else {
            let past = i64::from(new_year.weekday().num_days_from_monday());
            (if past <= 3 { -past } else { 7 - past }, weekday - 1)
        };
        let day = i64::from(temporal::days(new_year)) + to_first + (week - 1) * 7 + within;
        let last = i64::from(temporal::days(NaiveDate::from_ymd_opt(9999, 12, 31)?));
        (day <= last).then_some(day)
    }

    /// The time of the day, in microseconds.
    fn clock(&self) -> Option<i64> {
        let hour = match (self.of_twelve, self.hour) {
            (false, hour) => hour,
            (true, hour @ 1..=12) => hour % 12 + if self.afternoon { 12 } else { 0 },
            (true, _) => return None,
        };
        if hour > 23 || self.minute > 59 || self.second > 59 {
            return None;
        }
        Some((hour * 3600 + self.minute * 60 + self.second) * 1_000_000 + self.micros)
    }
}

/// The number that a text begins with, of so many digits at most.
fn digits(rest: &mut &str, most: usize) -> Option<i64> {
    let length = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, after) = rest.split_at(length);
    *rest = after;
    number.parse().ok()
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Which name a text begins with, from 1; of each name so many letters at most count.
fn named(rest: &mut &str, names: &[&str], letters: usize) -> Option<i64> {
    let begins = |name: &str| {
        let name = name.get(..letters).unwrap_or(name);
        let front = rest.get(..name.len())?;
        front.eq_ignore_ascii_case(name).then_some(name.len())
    };
    let (at, length) = names.iter().enumerate().find_map(|(at, name)| Some((at, begins(name)?)))?;
    *rest = rest.get(length..)?;
    i64::try_from(at + 1).ok()
}
