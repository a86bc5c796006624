//! Values into their columns as a statement asks for it: strictly, or, with IGNORE, changed until
//! they fit, with a warning. What no value of a column comes near to stays an error.

use types::{Column, ColumnType, Value};
use values::coerce::{Place, labels, text, to_column};
use values::error::{
    DATA_TOO_LONG, DATA_TRUNCATED, INCORRECT_TIME, INCORRECT_VALUE, NOT_NULL, OUT_OF_COLUMN_RANGE,
    SqlError, SqlResult,
};
use values::numbers::leading_number;

use crate::session::Warning;

/// How values that do not fit are treated.
pub(super) enum Fitting {
    /// As errors.
    Strict,
    /// Changed, with these warnings.
    Ignore(Vec<Warning>),
}

impl Fitting {
    /// IGNORE or not.
    pub(super) fn ignoring(ignore: bool) -> Self {
        if ignore { Fitting::Ignore(Vec::new()) } else { Fitting::Strict }
    }

    /// A value as one of its column.
    pub(in crate::session) fn column(
        &mut self,
        value: Value,
        place: Place<'_>,
    ) -> SqlResult<Value> {
        let Fitting::Ignore(warnings) = self else { return to_column(value, place) };
        match to_column(value.clone(), place) {
            Err(error) => near(value, place, error, warnings),
            fitting => fitting,
        }
    }

    /// What stands for a value that is not given and has no default.
    pub(in crate::session) fn missing(
        &mut self,
        place: Place<'_>,
        error: SqlError,
    ) -> SqlResult<Value> {
        match (self, implicit(place)) {
            (Fitting::Ignore(warnings), Some(value)) => {
                warnings.push(Warning::new("Warning", error));
                Ok(value)
            }
            _ => Err(error),
        }
    }

    /// A duplicate, or another reason to leave a row out; an error unless it is to be ignored.
    pub(super) fn leave_out(&mut self, error: SqlError) -> SqlResult<()> {
        match self {
            Fitting::Strict => Err(error),
            Fitting::Ignore(warnings) => {
                warnings.push(Warning::new("Warning", error));
                Ok(())
            }
        }
    }

    /// The warnings.
    pub(super) fn into_warnings(self) -> Vec<Warning> {
        match self {
            Fitting::Strict => Vec::new(),
            Fitting::Ignore(warnings) => warnings,
        }
    }
}

/// The value of a column that is nearest to one that does not fit.
fn near(
    value: Value,
    place: Place<'_>,
    error: SqlError,
    warnings: &mut Vec<Warning>,
) -> SqlResult<Value> {
    let (nearest, warning) = match error.code {
        NOT_NULL => (implicit(place), error.clone()),
        OUT_OF_COLUMN_RANGE => (limit(&value, place), error.clone()),
        DATA_TRUNCATED => (labels::nearest(&value, place.column.ty), error.clone()),
        DATA_TOO_LONG => (cut(&value, place.column), place.truncated()),
        INCORRECT_VALUE if !place.column.ty.is_number() => (valid(&value, place), error.clone()),
        INCORRECT_VALUE => {
            let written = text(value);
            // Of what begins with no number there is none, not even the text '0'.
            let digits = leading_number(written.trim());
            if !written.trim().starts_with(digits) {
                (to_column(Value::Int(0), place).ok(), error.clone())
            } else {
                let digits = Value::String(digits.to_owned());
                let number = match to_column(digits.clone(), place) {
                    Err(error) if error.code == OUT_OF_COLUMN_RANGE => limit(&digits, place),
                    number => number.ok(),
                };
                (number, place.truncated())
            }
        }
        INCORRECT_TIME => {
            // What is no time at all has no value here, zero dates not being kept, but NULL.
            let null = place.column.nullable.then_some(Value::Null);
            (begun(text(value).trim(), place).or(null), place.truncated())
        }
        _ => return Err(error),
    };
    let nearest = nearest.ok_or(error)?;
    warnings.push(Warning::new("Warning", warning));
    Ok(nearest)
}

/// The time that a text begins with. It ends where no number goes on, nor another follows: of
/// `2024-02-30` there is no third of February.
fn begun(written: &str, place: Place<'_>) -> Option<Value> {
    let ends = |end: &usize| {
        let rest = written.get(*end..).unwrap_or_default();
        !rest
            .trim_start_matches(|c: char| " Tt:.-/^".contains(c))
            .starts_with(|c: char| c.is_ascii_digit())
    };
    let begin = |end: usize| {
        let begin = written.get(..end)?;
        to_column(Value::String(begin.to_owned()), place).ok()
    };
    (8..written.len()).rev().filter(ends).find_map(begin)
}

/// As much of bytes as is text, in a column of text.
fn valid(value: &Value, place: Place<'_>) -> Option<Value> {
    let (Value::Bytes(bytes), true) = (value, is_text(place.column.ty)) else { return None };
    let text = bytes.utf8_chunks().next().map(|chunk| chunk.valid().to_owned());
    let text = Value::String(text.unwrap_or_default());
    to_column(text.clone(), place).ok().or_else(|| cut(&text, place.column))
}

fn is_text(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_))
}

/// What a column of a type has when nothing says otherwise: 0, '', the JSON `null` or the first
/// label of an ENUM.
pub(in crate::session) fn implicit(place: Place<'_>) -> Option<Value> {
    match place.column.ty {
        ColumnType::Int { .. } | ColumnType::Double | ColumnType::Decimal { .. } => {
            to_column(Value::Int(0), place).ok()
        }
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => {
            Some(Value::String(String::new()))
        }
        ColumnType::Json => Some(Value::String("null".into())),
        ColumnType::Enum(list) => list.label(1).map(|label| Value::String(label.to_owned())),
        ColumnType::Set(_) => Some(Value::String(String::new())),
        _ => None,
    }
}

/// The end of a column's range that a number lies beyond.
fn limit(value: &Value, place: Place<'_>) -> Option<Value> {
    let below = text(value.clone()).trim().starts_with('-');
    match place.column.ty {
        ColumnType::Int { unsigned, .. } => {
            let (low, high) = place.column.ty.int_range()?;
            let end = if below { low } else { high };
            Some(match unsigned {
                true => Value::UInt(u64::try_from(end).ok()?),
                false => Value::Int(i64::try_from(end).ok()?),
            })
        }
        ColumnType::Double => Some(Value::Double(if below { f64::MIN } else { f64::MAX })),
        ColumnType::Decimal { precision, scale } => {
            let (precision, scale) = (usize::from(precision), usize::from(scale));
            let whole = "9".repeat(precision.saturating_sub(scale));
            let number = format!("{whole}.{}", "9".repeat(scale));
            let sign = if below { "-" } else { "" };
            let number = format!("{sign}{}", number.trim_end_matches('.'));
            to_column(Value::String(number), place).ok()
        }
        _ => None,
    }
}

/// As much of a text as its column has room for.
fn cut(value: &Value, column: &Column) -> Option<Value> {
    let written = text(value.clone());
    let end = match column.ty {
        ColumnType::Char(length) | ColumnType::Varchar(length) => {
            written.char_indices().nth(length as usize).map_or(written.len(), |(at, _)| at)
        }
        ColumnType::Text(bytes) => written.floor_char_boundary(bytes as usize),
        _ => return None,
    };
    Some(Value::String(written.get(..end)?.to_owned()))
}
