//! Parameters of COM_STMT_EXECUTE: null bitmap, types, values.
//!
//! Pure decoding of untrusted bytes: an error, never a panic, and never more memory than the
//! packet has bytes.

use mysql_common::constants::{ColumnFlags, ColumnType as WireType};
use mysql_common::io::ParseBuf;
use mysql_common::value::{BinValue, Value as WireValue, ValueDeserializer};
use types::Value;
use values::error::{self, SqlError};

/// Type of a parameter, as the client bound it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamType {
    ty: WireType,
    unsigned: bool,
}

/// Decodes the parameters of a statement that takes `count` of them.
///
/// `bound` holds the types of the last execution; clients send them only when they change.
/// `long_data` gives what COM_STMT_SEND_LONG_DATA collected for a position, if anything.
pub fn decode<'l>(
    payload: &[u8],
    count: usize,
    bound: &mut Vec<ParamType>,
    mut long_data: impl FnMut(usize) -> Option<&'l [u8]>,
) -> Result<Vec<Value>, SqlError> {
    let mut buf = ParseBuf(payload);
    if count == 0 {
        return Ok(Vec::new());
    }
    let short = || error::malformed("COM_STMT_EXECUTE ends within its parameters");
    let nulls = buf.checked_eat(count.div_ceil(8)).ok_or_else(short)?;
    if buf.checked_eat_u8().ok_or_else(short)? == 1 {
        *bound = decode_types(&mut buf, count)?;
    }
    if bound.len() != count {
        return Err(error::wrong_arguments_because(
            "mysqld_stmt_execute",
            "no types are bound to the parameters",
        ));
    }
    let mut values = Vec::with_capacity(count);
    for (position, param) in bound.iter().enumerate() {
        let null = nulls.get(position / 8).is_some_and(|byte| byte & (1 << (position % 8)) != 0);
        values.push(if let Some(data) = long_data(position) {
            text(data)
        } else if null {
            Value::Null
        } else {
            decode_value(&mut buf, *param, position)?
        });
    }
    Ok(values)
}

fn decode_types(buf: &mut ParseBuf<'_>, count: usize) -> Result<Vec<ParamType>, SqlError> {
    let mut types = Vec::with_capacity(count);
    for position in 0..count {
        let (Some(code), Some(flags)) = (buf.checked_eat_u8(), buf.checked_eat_u8()) else {
            return Err(error::malformed("COM_STMT_EXECUTE ends within its parameter types"));
        };
        let ty = WireType::try_from(code).ok().filter(|ty| readable(*ty)).ok_or_else(|| {
            error::wrong_arguments_because(
                "mysqld_stmt_execute",
                format!("parameter {} has unknown type {code}", position + 1),
            )
        })?;
        types.push(ParamType { ty, unsigned: flags & 0x80 != 0 });
    }
    Ok(types)
}

/// Types that mysql_common decodes; it panics on the others.
fn readable(ty: WireType) -> bool {
    !matches!(
        ty,
        WireType::MYSQL_TYPE_TIMESTAMP2
            | WireType::MYSQL_TYPE_DATETIME2
            | WireType::MYSQL_TYPE_TIME2
            | WireType::MYSQL_TYPE_TYPED_ARRAY
            | WireType::MYSQL_TYPE_UNKNOWN
    )
}

fn decode_value(
    buf: &mut ParseBuf<'_>,
    param: ParamType,
    position: usize,
) -> Result<Value, SqlError> {
    let flags = match param.unsigned {
        true => ColumnFlags::UNSIGNED_FLAG,
        false => ColumnFlags::empty(),
    };
    let value = buf
        .parse::<ValueDeserializer<BinValue>>((param.ty, flags))
        .map_err(|_| error::malformed("COM_STMT_EXECUTE ends within a parameter's value"))?;
    Ok(match value.0 {
        WireValue::NULL => Value::Null,
        WireValue::Bytes(bytes) => text(&bytes),
        WireValue::Int(n) if param.unsigned => Value::UInt(n as u64),
        WireValue::Int(n) => Value::Int(n),
        WireValue::UInt(n) => Value::UInt(n),
        WireValue::Float(n) => finite(f64::from(n), position)?,
        WireValue::Double(n) => finite(n, position)?,
        WireValue::Date(year, month, day, hour, minute, second, micros) => {
            date(param.ty, (year, month, day), (hour, minute, second, micros))
        }
        WireValue::Time(negative, days, hours, minutes, seconds, micros) => {
            let sign = if negative { "-" } else { "" };
            let hours = u64::from(days) * 24 + u64::from(hours);
            let fraction = if micros == 0 { String::new() } else { format!(".{micros:06}") };
            Value::String(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}"))
        }
    })
}

/// A date of the calendar, or its text where no calendar has it: SQL decides what `0000-00-00`
/// or `2023-02-30` mean.
fn date(ty: WireType, (y, m, d): (u16, u8, u8), (h, min, s, us): (u8, u8, u8, u32)) -> Value {
    let day = chrono::NaiveDate::from_ymd_opt(i32::from(y), u32::from(m), u32::from(d));
    if matches!(ty, WireType::MYSQL_TYPE_DATE | WireType::MYSQL_TYPE_NEWDATE) {
        let days = day.map(|day| (day - chrono::NaiveDate::default()).num_days());
        return match days.and_then(|days| i32::try_from(days).ok()) {
            Some(days) => Value::Date(days),
            None => Value::String(format!("{y:04}-{m:02}-{d:02}")),
        };
    }
    // chrono reads microseconds of a million and more as a leap second.
    let time = day
        .filter(|_| us < 1_000_000)
        .and_then(|day| day.and_hms_micro_opt(u32::from(h), u32::from(min), u32::from(s), us));
    match time {
        Some(time) => Value::DateTime(time.and_utc().timestamp_micros()),
        None => Value::String(format!("{y:04}-{m:02}-{d:02} {h:02}:{min:02}:{s:02}.{us:06}")),
    }
}

/// Text where it is UTF-8, else bytes: what a column may hold is decided where it is stored.
fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => Value::Bytes(bytes.to_vec()),
    }
}

fn finite(n: f64, position: usize) -> Result<Value, SqlError> {
    match n.is_finite() {
        true => Ok(Value::Double(n)),
        false => Err(error::wrong_arguments_because(
            "mysqld_stmt_execute",
            format!("parameter {} is not finite", position + 1),
        )),
    }
}
