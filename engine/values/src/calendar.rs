//! MySQL's weeks, and the units of intervals that have several parts, as HOUR_MINUTE.
//!
//! Pure arithmetic of days: no clock is read and no zone is known.

use chrono::{Datelike, NaiveDate};

use crate::temporal::{DAY_US, days};

/// A day's week and the year that the week belongs to, by one of MySQL's eight modes. Where the
/// mode keeps to the day's own year, the days before its first week are in week 0.
pub fn week(date: NaiveDate, mode: i64) -> Option<(i32, i32)> {
    let monday_first = mode & 1 != 0;
    let own_year = mode & 2 == 0;
    // Whether the first week is the first one that begins in the year, or the first with four days.
    let whole_first = (mode & 4 != 0) == monday_first;
    let begin = |year: i32| {
        let first = NaiveDate::from_ymd_opt(year, 1, 1)?;
        let weekday = first.weekday();
        let before = if monday_first {
            weekday.num_days_from_monday()
        } else {
            weekday.num_days_from_sunday()
        } as i32;
        let counts = if whole_first { before == 0 } else { before < 4 };
        Some(days(first) - before + if counts { 0 } else { 7 })
    };
    let (day, year) = (days(date), date.year());
    let nth = |begin: i32| (day - begin) / 7 + 1;
    if day < begin(year)? {
        return Some(if own_year { (year, 0) } else { (year - 1, nth(begin(year - 1)?)) });
    }
    if !own_year && day >= begin(year + 1)? {
        return Some((year + 1, 1));
    }
    Some((year, nth(begin(year)?)))
}

/// An interval whose value is a text of several numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compound {
    /// What each number counts, in microseconds; in months where `months` says so.
    factors: &'static [i64],
    /// YEAR_MONTH.
    pub months: bool,
    /// Whether the last number is the digits of a second's fraction.
    fraction: bool,
}

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

impl Compound {
    /// Reads SECOND_MICROSECOND … YEAR_MONTH.
    pub fn parse(name: &str) -> Option<Compound> {
        let of = |factors, months, fraction| Some(Compound { factors, months, fraction });
        match name.to_ascii_uppercase().as_str() {
            "YEAR_MONTH" => of(&[12, 1], true, false),
            "DAY_HOUR" => of(&[DAY_US, HOUR], false, false),
            "DAY_MINUTE" => of(&[DAY_US, HOUR, MINUTE], false, false),
            "DAY_SECOND" => of(&[DAY_US, HOUR, MINUTE, SECOND], false, false),
            "DAY_MICROSECOND" => of(&[DAY_US, HOUR, MINUTE, SECOND, 1], false, true),
            "HOUR_MINUTE" => of(&[HOUR, MINUTE], false, false),
            "HOUR_SECOND" => of(&[HOUR, MINUTE, SECOND], false, false),
            "HOUR_MICROSECOND" => of(&[HOUR, MINUTE, SECOND, 1], false, true),
            "MINUTE_SECOND" => of(&[MINUTE, SECOND], false, false),
            "MINUTE_MICROSECOND" => of(&[MINUTE, SECOND, 1], false, true),
            "SECOND_MICROSECOND" => of(&[SECOND, 1], false, true),
            _ => None,
        }
    }

    /// How many microseconds, or months, a value means. Whatever is no digit parts its numbers;
    /// where there are fewer of them than the unit has parts, they are the last ones. `None` if
    /// there are more, or too large ones.
    pub fn count(self, value: &str) -> Option<i64> {
        let value = value.trim();
        let negative = value.starts_with('-');
        let numbers: Vec<&str> =
            value.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        let missing = self.factors.len().checked_sub(numbers.len())?;
        let mut sum = 0i64;
        for (at, (digits, factor)) in
            numbers.iter().zip(self.factors.iter().skip(missing)).enumerate()
        {
            let number: i64 = if self.fraction && at + 1 == numbers.len() {
                format!("{digits:0<6}").get(..6)?.parse().ok()?
            } else {
                digits.parse().ok()?
            };
            sum = sum.checked_add(number.checked_mul(*factor)?)?;
        }
        Some(if negative { -sum } else { sum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_belongs_to_the_year_that_its_mode_says() {
        let weeks = |y, m, d| {
            let date = NaiveDate::from_ymd_opt(y, m, d).unwrap();
            (0..8).map(|mode| week(date, mode).unwrap().1).collect::<Vec<_>>()
        };
        assert_eq!(weeks(2024, 1, 1), [0, 1, 53, 1, 1, 1, 1, 1]);
        assert_eq!(weeks(2023, 1, 1), [1, 0, 1, 52, 1, 0, 1, 52]);
        assert_eq!(weeks(2008, 2, 20), [7, 8, 7, 8, 8, 7, 8, 7]);
        assert_eq!(weeks(2024, 12, 31), [52, 53, 52, 1, 53, 53, 1, 53]);
        let new_year = NaiveDate::from_ymd_opt(2000, 1, 1).unwrap();
        assert_eq!(week(new_year, 2), Some((1999, 52)));
    }

    #[test]
    fn an_interval_of_several_numbers_fills_its_last_parts_first() {
        let count = |unit, value| Compound::parse(unit).unwrap().count(value);
        assert_eq!(count("HOUR_MINUTE", "1:30"), Some(HOUR + 30 * MINUTE));
        assert_eq!(count("HOUR_SECOND", "1:30"), Some(MINUTE + 30 * SECOND));
        assert_eq!(count("DAY_HOUR", "-1 10"), Some(-DAY_US - 10 * HOUR));
        assert_eq!(count("YEAR_MONTH", "1-2"), Some(14));
        assert_eq!(count("SECOND_MICROSECOND", "1.5"), Some(1_500_000));
        assert_eq!(count("MINUTE_SECOND", "1:2:3"), None);
    }
}
