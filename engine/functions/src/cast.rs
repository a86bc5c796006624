//! CAST and CONVERT.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, DurationMicrosecondArray, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Result, ScalarValue, plan_err};
use values::error::{SqlResult, wrong_utf8};
use values::temporal::{Zone, in_calendar, round_fraction, round_time, within_time};

use super::convert::{to_bytes, to_datetime, to_i64, to_strings, to_time, to_type, to_u64};
use super::kinds::{is_binary, is_string};
use super::{Function, datetime, day, double, literal_int, span, text, warnings, whole};

/// CAST(… AS CHAR) and CONVERT(… USING …) as a statement has them. Where a value becomes text unasked, bytes that are
/// none are an error.
pub const STATED_CHAR: &str = "stated_char";

/// One function for each target type.
pub const FUNCTIONS: &[Function] = &[
    Function::new("cast_signed", 1..=1, whole, cast_signed),
    Function::new("cast_unsigned", 1..=1, |_, _| Ok(DataType::UInt64), |a, t| to_type(&a[0], t)),
    Function::new("cast_double", 1..=1, double, |a, t| to_type(&a[0], t)),
    Function::new("cast_decimal", 3..=3, decimal_type, |a, t| to_type(&a[0], t)),
    // The same of what only loses digits behind the point; the planner's own.
    Function::new("isobar_rounded", 3..=3, decimal_type, |a, t| to_type(&a[0], t)),
    // The same, where more digits than the type has are an error; the planner's own.
    Function::new("isobar_undiminished", 3..=3, decimal_type, |a, t| {
        super::wide::undiminished(&a[0], t)
    }),
    Function::new("cast_date", 1..=1, day, |a, t| to_type(&a[0], t)),
    Function::new("cast_datetime", 1..=2, datetime, cast_datetime),
    Function::new("cast_char", 1..=2, text, cast_char),
    Function::new(STATED_CHAR, 1..=2, text, stated_char),
    Function::new("cast_binary", 1..=2, |_, _| Ok(DataType::Binary), cast_binary),
    Function::new("cast_time", 1..=2, span, cast_time),
    Function::new("ts_local", 2..=2, datetime, ts_local),
];

fn decimal_type(_: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    match (literal_int(literals, 1), literal_int(literals, 2)) {
        // Statements ask for 65 digits at most, the planner for as many as 256 bits hold.
        (Some(p @ 1..=76), Some(s @ 0..=38)) if s <= p => {
            Ok(super::kinds::decimal_type(p as u8, s as i8))
        }
        (Some(p), Some(s)) => {
            plan_err!("DECIMAL({p},{s}) is not between DECIMAL(1,0) and DECIMAL(65,30)")
        }
        // Asked without literals, only by name: the widest.
        _ => Ok(DataType::Decimal128(38, 10)),
    }
}

/// CAST(… AS SIGNED): unsigned numbers beyond the range wrap, also those that a text spells; all
/// others end at its ends.
fn cast_signed(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let from = args[0].data_type();
    if *from == DataType::UInt64 || is_string(from) || is_binary(from) {
        let numbers = to_u64(&args[0])?;
        return Ok(Arc::new(numbers.unary::<_, Int64Type>(u64::cast_signed)));
    }
    to_type(&args[0], ty)
}

fn cast_datetime(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = to_datetime(&args[0])?;
    let digits = match args.get(1) {
        Some(digits) => to_i64(digits)?.iter().next().flatten().unwrap_or(0).clamp(0, 6) as u8,
        None => 6,
    };
    let rounded = times.iter().map(|us| {
        let us = us?;
        let rounded = round_fraction(us, digits);
        // The year 0 stays what it was; only rounding leads beyond the end.
        if rounded > us && in_calendar(rounded).is_none() {
            return warnings::overflow("datetime");
        }
        Some(rounded)
    });
    Ok(Arc::new(rounded.collect::<TimestampMicrosecondArray>()))
}

fn cast_char(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let strings = to_strings(&args[0])?;
    let Some(length) = args.get(1) else { return Ok(Arc::new(strings)) };
    let length = to_i64(length)?.iter().next().flatten().unwrap_or(0).max(0) as usize;
    let cut = strings.iter().map(|text| {
        let text = text?;
        let end = text.char_indices().nth(length).map(|(at, _)| at);
        if end.is_some() {
            warnings::truncated(&format!("CHAR({length})"), text);
        }
        text.get(..end.unwrap_or(text.len()))
    });
    Ok(Arc::new(cut.collect::<StringArray>()))
}

/// Bytes that are no UTF-8 are NULL.
fn stated_char(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    if !is_binary(args[0].data_type()) {
        return cast_char(args, ty);
    }
    let bytes = to_bytes(&args[0])?;
    let texts: StringArray = bytes.iter().map(|bytes| bytes.and_then(text_of)).collect();
    let mut cast: Vec<ArrayRef> = vec![Arc::new(texts)];
    cast.extend(args.iter().skip(1).cloned());
    cast_char(&cast, ty)
}

fn text_of(bytes: &[u8]) -> Option<&str> {
    let found = std::str::from_utf8(bytes);
    if let Err(error) = found {
        warnings::warn(|| {
            let wrong = bytes.iter().skip(error.valid_up_to()).take(3);
            let hex: String = wrong.map(|byte| format!("{byte:02X}")).collect();
            wrong_utf8(hex)
        });
    }
    found.ok()
}

/// CAST(… AS BINARY(n)) cuts, or fills up with zero bytes.
fn cast_binary(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let bytes = to_bytes(&args[0])?;
    let Some(length) = args.get(1) else { return Ok(Arc::new(bytes)) };
    let length = to_i64(length)?.iter().next().flatten().unwrap_or(0);
    let length = usize::try_from(length).ok().filter(|n| *n <= super::string::LONGEST);
    let sized = |bytes: &[u8]| {
        let mut sized = bytes.to_vec();
        sized.resize(length?, 0);
        Some(sized)
    };
    Ok(Arc::new(bytes.iter().map(|bytes| bytes.and_then(sized)).collect::<BinaryArray>()))
}

fn cast_time(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let times = to_time(&args[0])?;
    let digits = match args.get(1) {
        Some(digits) => to_i64(digits)?.iter().next().flatten().unwrap_or(0).clamp(0, 6) as u8,
        None => 6,
    };
    let rounded = times.iter().map(|us| us.map(|us| within_time(round_time(us, digits))));
    Ok(Arc::new(rounded.collect::<DurationMicrosecondArray>()))
}

/// A TIMESTAMP as the session's wall time.
fn ts_local(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let zone = to_strings(&args[1])?;
    let zone = Zone::parse(zone.iter().next().flatten().unwrap_or("UTC"))?;
    let local = to_datetime(&args[0])?;
    let local = local.iter().map(|us| us.map(|us| zone.to_local(us)));
    Ok(Arc::new(local.collect::<TimestampMicrosecondArray>()))
}
