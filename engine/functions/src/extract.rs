//! EXTRACT(unit FROM datetime), of one part and of several.
//!
//! A unit of the clock alone takes a TIME, whose hours may be more than a day's; its parts have the
//! TIME's sign.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use chrono::{Datelike, Timelike};
use values::calendar;
use values::error::{SqlResult, unsupported};
use values::temporal::{self, DAY_US};

use super::convert::{to_datetime, to_strings, to_time};
use super::kinds::{is_temporal, is_time};

/// A datetime's parts.
struct Parts {
    sign: i64,
    year: i64,
    month: i64,
    week: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
}

impl Parts {
    fn of_datetime(us: i64) -> Option<Parts> {
        let at = temporal::datetime(us)?;
        Some(Parts {
            sign: 1,
            year: i64::from(at.year()),
            month: i64::from(at.month()),
            week: i64::from(calendar::week(at.date(), 0)?.1),
            day: i64::from(at.day()),
            hour: i64::from(at.hour()),
            minute: i64::from(at.minute()),
            second: i64::from(at.second()),
            micros: us.rem_euclid(1_000_000),
        })
    }

    fn of_time(us: i64) -> Option<Parts> {
        let clock = us.checked_abs()?;
        Some(Parts {
            sign: us.signum(),
            hour: clock / 3_600_000_000,
            ..Parts::of_datetime(clock % DAY_US).map(|day| Parts { day: 0, ..day })?
        })
    }

    /// The number that a unit asks for.
    fn number(&self, unit: &str) -> Option<i64> {
        let clock = self.minute * 100 + self.second;
        let size = match unit {
            "YEAR" => self.year,
            "QUARTER" => (self.month + 2) / 3,
            "MONTH" => self.month,
            "WEEK" => self.week,
            "DAY" => self.day,
            "HOUR" => self.hour,
            "MINUTE" => self.minute,
            "SECOND" => self.second,
            "MICROSECOND" => self.micros,
            "YEAR_MONTH" => self.year * 100 + self.month,
            "DAY_HOUR" => self.day * 100 + self.hour,
            "DAY_MINUTE" => (self.day * 100 + self.hour) * 100 + self.minute,
            "DAY_SECOND" => (self.day * 100 + self.hour) * 10_000 + clock,
            "DAY_MICROSECOND" => {
                ((self.day * 100 + self.hour) * 10_000 + clock) * 1_000_000 + self.micros
            }
            "HOUR_MINUTE" => self.hour * 100 + self.minute,
            "HOUR_SECOND" => self.hour * 10_000 + clock,
            "HOUR_MICROSECOND" => (self.hour * 10_000 + clock) * 1_000_000 + self.micros,
            "MINUTE_SECOND" => clock,
            "MINUTE_MICROSECOND" => clock * 1_000_000 + self.micros,
            "SECOND_MICROSECOND" => self.second * 1_000_000 + self.micros,
            _ => return None,
        };
        Some(size * if self.sign < 0 { -1 } else { 1 })
    }
}

/// EXTRACT(unit, datetime).
pub fn extract(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let names = to_strings(&args[0])?;
    let unit = names.iter().next().flatten().unwrap_or_default().to_ascii_uppercase();
    let known = Parts::of_datetime(0).and_then(|parts| parts.number(&unit));
    if known.is_none() {
        return Err(unsupported(format!("EXTRACT({unit} FROM …)")));
    }
    let of_clock =
        ["HOUR", "MINUTE", "SECOND", "MICROSECOND"].iter().any(|part| unit.starts_with(part));
    let ty = args[1].data_type();
    let numbers: Int64Array = if is_temporal(ty) || !(of_clock || unit.starts_with("DAY_")) {
        let datetimes = to_datetime(&args[1])?;
        datetimes.iter().map(|us| Parts::of_datetime(us?)?.number(&unit)).collect()
    } else if is_time(ty) || of_clock {
        let times = to_time(&args[1])?;
        times.iter().map(|us| Parts::of_time(us?)?.number(&unit)).collect()
    } else {
        let texts = to_strings(&args[1])?;
        let parts = |text: &str| match temporal::parse_datetime(text) {
            Some(us) => Parts::of_datetime(us),
            None => Parts::of_time(temporal::within_time(temporal::parse_time(text)?)),
        };
        texts.iter().map(|text| parts(text?)?.number(&unit)).collect()
    };
    Ok(Arc::new(numbers))
}
