//! CSV with a line of names first. Every value is checked against the type it is compared as.

use std::path::Path;

use chrono::{NaiveDate, NaiveDateTime};

use crate::class::{Class, float, six_digits};
use crate::error::{Error, Result};
use crate::rows::{CsvForm, TakeRow};
use crate::schema::Column;

fn fail(file: &Path, line: Option<u64>, cause: impl std::fmt::Display) -> Error {
    let place = line.map(|line| format!(", line {line}")).unwrap_or_default();
    Error::File {
        file: file.to_owned(),
        place,
        cause: format!("{cause}; mend the line, or leave its column out"),
    }
}

fn open(file: &Path, form: &CsvForm) -> Result<csv::Reader<std::fs::File>> {
    csv::ReaderBuilder::new()
        .delimiter(form.delimiter)
        .from_path(file)
        .map_err(|error| fail(file, None, error))
}

/// The file's columns, of no type.
pub fn columns(file: &Path, form: &CsvForm) -> Result<Vec<Column>> {
    let mut reader = open(file, form)?;
    let names = reader.headers().map_err(|error| fail(file, Some(1), error))?;
    let column = |name: &str| Column {
        name: name.trim().trim_start_matches('\u{feff}').to_owned(),
        class: Class::Unknown,
        type_name: "csv".into(),
        nullable: true,
        collation: None,
        is_cast: false,
    };
    let columns: Vec<Column> = names.iter().map(column).collect();
    if columns.is_empty() || columns.iter().any(|column| column.name.is_empty()) {
        return Err(fail(file, Some(1), "the first line must name every column"));
    }
    Ok(columns)
}

/// Every row: the named columns, each read as its class.
pub fn scan(
    file: &Path,
    form: &CsvForm,
    names: &[String],
    classes: &[Class],
    row: &mut TakeRow<'_>,
) -> Result<()> {
    let found = columns(file, form)?;
    let place = |name: &String| {
        found
            .iter()
            .position(|column| column.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| fail(file, Some(1), format!("column {name} is missing")))
    };
    let places = names.iter().map(place).collect::<Result<Vec<_>>>()?;
    let mut reader = open(file, form)?;
    let mut record = csv::StringRecord::new();
    loop {
        let more = reader.read_record(&mut record).map_err(|error| {
            let line = error.position().map(csv::Position::line);
            fail(file, line.or(Some(reader.position().line())), error)
        })?;
        if !more {
            return Ok(());
        }
        let line = record.position().map(csv::Position::line);
        let value = |((at, class), name): ((&usize, &Class), &String)| {
            let text = record.get(*at).unwrap_or_default();
            read(*class, text, &form.null).map_err(|kind| {
                let shown: String = text.chars().take(40).collect();
                fail(file, line, format!("column {name}: '{shown}' is no {kind}"))
            })
        };
        let values =
            places.iter().zip(classes).zip(names).map(value).collect::<Result<Vec<_>>>()?;
        row(values, &|| line.map(|line| format!(", line {line}")).unwrap_or_default())?;
    }
}

/// A value's plain spelling; `Err`: the kind that it is not.
fn read(class: Class, text: &str, null: &str) -> std::result::Result<Option<String>, &'static str> {
    if text == null {
        return Ok(None);
    }
    let is_text = matches!(class, Class::Text { .. } | Class::Unknown | Class::Binary);
    let text = if is_text { text } else { text.trim() };
    if text.is_empty() && !is_text {
        return Ok(None);
    }
    let spelled = match class {
        Class::Int => match text.to_lowercase().as_str() {
            "true" => Some("1".into()),
            "false" => Some("0".into()),
            number => number.parse::<i128>().ok().map(|n| n.to_string()),
        },
        Class::Decimal(scale) => read_decimal(text, scale),
        Class::Float => text.parse::<f64>().ok().map(float),
        Class::Binary => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let is_hex = digits.len() % 2 == 0 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            is_hex.then(|| digits.to_uppercase())
        }
        Class::Date => NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().map(|_| text.to_owned()),
        Class::DateTime | Class::Timestamp => read_datetime(text),
        Class::Time => {
            let is_time = text.bytes().all(|b| b.is_ascii_digit() || b":.-".contains(&b))
                && text.contains(':');
            is_time.then(|| six_digits(text))
        }
        Class::Text { .. } | Class::Unknown => Some(text.to_owned()),
    };
    spelled.map(Some).ok_or(class.name())
}

/// A decimal with its column's digits after the point, and more where it has more.
fn read_decimal(text: &str, scale: u8) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction =
        format!("{:0<width$}", fraction.trim_end_matches('0'), width = usize::from(scale));
    let is_zero = whole == "0" && fraction.bytes().all(|b| b == b'0');
    let sign = if is_zero { "" } else { sign };
    Some(if fraction.is_empty() {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    })
}

fn read_datetime(text: &str) -> Option<String> {
    let plain = text
        .strip_suffix('Z')
        .or(text.strip_suffix("+00:00"))
        .unwrap_or(text)
        .replacen('T', " ", 1);
    let plain = if plain.len() == 10 { format!("{plain} 00:00:00") } else { plain };
    NaiveDateTime::parse_from_str(&plain, "%Y-%m-%d %H:%M:%S%.f").ok()?;
    Some(six_digits(&plain))
}

#[cfg(test)]
#[path = "tests/csvfile.rs"]
mod tests;
