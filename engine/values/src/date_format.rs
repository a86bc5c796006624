//! DATE_FORMAT: times in the words and digits of a pattern.
//!
//! Names of days and months are English: no locale is known.

use std::fmt::Write;

use chrono::{Datelike, Timelike};

use crate::calendar::week;
use crate::temporal::datetime;

/// DATE_FORMAT's directives. Unknown ones stand for their letter, as in MySQL.
pub fn format(us: i64, pattern: &str) -> Option<String> {
    let at = datetime(us)?;
    let mut out = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let directive = chars.next().unwrap_or('%');
        let hour12 = (at.hour() + 11) % 12 + 1;
        let written = match directive {
            'Y' => write!(out, "{:04}", at.year()),
            'y' => write!(out, "{:02}", at.year() % 100),
            'm' => write!(out, "{:02}", at.month()),
            'c' => write!(out, "{}", at.month()),
            'd' => write!(out, "{:02}", at.day()),
            'e' => write!(out, "{}", at.day()),
            'D' => write!(out, "{}{}", at.day(), ordinal(at.day())),
            'H' => write!(out, "{:02}", at.hour()),
            'k' => write!(out, "{}", at.hour()),
            'h' | 'I' => write!(out, "{hour12:02}"),
            'l' => write!(out, "{hour12}"),
            'i' => write!(out, "{:02}", at.minute()),
            's' | 'S' => write!(out, "{:02}", at.second()),
            'f' => write!(out, "{:06}", us.rem_euclid(1_000_000)),
            'p' => write!(out, "{}", if at.hour() < 12 { "AM" } else { "PM" }),
            'r' => write!(
                out,
                "{hour12:02}:{:02}:{:02} {}",
                at.minute(),
                at.second(),
                if at.hour() < 12 { "AM" } else { "PM" }
            ),
            'T' => write!(out, "{}", at.format("%H:%M:%S")),
            'M' => write!(out, "{}", at.format("%B")),
            'b' => write!(out, "{}", at.format("%b")),
            'W' => write!(out, "{}", at.format("%A")),
            'a' => write!(out, "{}", at.format("%a")),
            'j' => write!(out, "{:03}", at.ordinal()),
            'w' => write!(out, "{}", at.weekday().num_days_from_sunday()),
            'U' => write!(out, "{:02}", week(at.date(), 0)?.1),
            'u' => write!(out, "{:02}", week(at.date(), 1)?.1),
            'V' => write!(out, "{:02}", week(at.date(), 2)?.1),
            'v' => write!(out, "{:02}", week(at.date(), 3)?.1),
            'X' => write!(out, "{:04}", week(at.date(), 2)?.0),
            'x' => write!(out, "{:04}", week(at.date(), 3)?.0),
            other => write!(out, "{other}"),
        };
        written.ok()?;
    }
    Some(out)
}

fn ordinal(day: u32) -> &'static str {
    match (day % 10, day / 10) {
        (1, tens) if tens != 1 => "st",
        (2, tens) if tens != 1 => "nd",
        (3, tens) if tens != 1 => "rd",
        _ => "th",
    }
}
