//! Stored rows: columns keyed by id, under a header that names the schema version they were
//! written with.
//!
//! ```text
//! 0x01 | version | n | n × ( id << 1 | null , payload unless null )      all numbers LEB128
//! ```
//!
//! A DECIMAL of up to 38 digits is a number too; one of more is its length, then the unscaled number
//! in two's complement, the highest byte first and no byte more than it needs.
//!
//! Every column of the row stands in it, primary key included, so a reader needs no key. A column
//! that a row does not mention was added later and reads as its default of then; one that the table
//! has dropped since is skipped by its type. Decoding never guesses: a type change is a new column
//! id.

use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::ids::SchemaVersion;
use crate::schema::{Column, ColumnType, Table};
use crate::value::Value;
use crate::version::unknown_format;
use crate::wide::Wide;

/// One row, in the order of [`Table::columns`].
pub type Row = Vec<Value>;

const FORMAT: u8 = 1;

/// Encodes a row given in the order of the table's columns.
///
/// A column that is being added is left out while it says what a row without it reads as: writers
/// of the version before do not know it yet.
pub fn encode(table: &Table, row: &[Value]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 8 * row.len());
    let held = |(column, value): &(&Column, &Value)| {
        !column.hidden || column.original.as_ref() != Some(*value)
    };
    out.push(FORMAT);
    put(&mut out, u128::from(table.version));
    put(&mut out, table.columns.iter().zip(row).filter(held).count() as u128);
    for (column, value) in table.columns.iter().zip(row).filter(held) {
        put(&mut out, u128::from(column.id) << 1 | u128::from(value.is_null()));
        match value {
            Value::Null => {}
            Value::Int(n) | Value::DateTime(n) | Value::Timestamp(n) | Value::Time(n) => {
                put(&mut out, zigzag(i128::from(*n)));
            }
            Value::UInt(n) => put(&mut out, u128::from(*n)),
            Value::Double(n) => out.extend_from_slice(&n.to_le_bytes()),
            Value::Float(n) => out.extend_from_slice(&n.to_le_bytes()),
            Value::Decimal(n) => put(&mut out, zigzag(n.unscaled)),
            Value::Wide(n) => put_bytes(&mut out, &n.short_bytes()),
            Value::String(s) => put_bytes(&mut out, s.as_bytes()),
            Value::Bytes(bytes) => put_bytes(&mut out, bytes),
            Value::Date(n) => put(&mut out, zigzag(i128::from(*n))),
        }
    }
    out
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u128);
    out.extend_from_slice(bytes);
}

/// Schema version that a stored row was written with.
pub fn version(bytes: &[u8]) -> Result<SchemaVersion> {
    header(&mut &*bytes)
}

/// What a stored row says, whatever schema version it was written with.
pub fn body(bytes: &[u8]) -> Result<&[u8]> {
    let mut input = bytes;
    header(&mut input)?;
    Ok(input)
}

/// The same row as written with another version of the schema, whose columns must be the same.
pub fn restamp(bytes: &[u8], version: SchemaVersion) -> Result<Vec<u8>> {
    let body = body(bytes)?;
    let mut out = Vec::with_capacity(body.len() + 6);
    out.push(FORMAT);
    put(&mut out, u128::from(version));
    out.extend_from_slice(body);
    Ok(out)
}

/// Decodes a stored row into the order of the table's columns, those that it has dropped left out.
///
/// # Errors
///
/// `SchemaChanged` for a row of a later version that this description cannot show; `Corrupt` for
/// bytes that are no row of the table.
pub fn decode(table: &Table, bytes: &[u8]) -> Result<Row> {
    decode_wanted(table, bytes, |_| true)
}

/// As [`decode`], with NULL in the place of columns that are not wanted: those are passed over, unread.
///
/// # Errors
///
/// As [`decode`], but for what a column says that is not wanted.
pub fn decode_wanted(table: &Table, bytes: &[u8], wanted: impl Fn(usize) -> bool) -> Result<Row> {
    let mut row: Vec<Option<Value>> = vec![None; table.columns.len()];
    let mut input = bytes;
    let written = header(&mut input)?;
    for _ in 0..take(&mut input)? {
        let tag = take(&mut input)?;
        let id = u32::try_from(tag >> 1).map_err(|_| bad("column id"))?;
        let at = table.position(id);
        let column = match at {
            Some(at) => table.columns.get(at),
            None => table.dropped.iter().find(|column| column.id == id),
        };
        let column = column.ok_or_else(|| strange(table, written, id))?;
        let is_wanted = at.is_some_and(&wanted);
        if !is_wanted && tag & 1 == 0 {
            pass(&mut input, column.ty)?;
        }
        if !is_wanted {
            continue;
        }
        let value = if tag & 1 == 1 { Value::Null } else { payload(&mut input, column.ty)? };
        // The column was widened in a version that this one does not know yet.
        if written > table.version && at.is_some() && !has_room(column.ty, &value) {
            return Err(newer(table, written));
        }
        if let Some(slot) = at.and_then(|at| row.get_mut(at)) {
            *slot = Some(value);
        }
    }
    if !input.is_empty() {
        return Err(bad("trailing bytes"));
    }
    let whole = |(at, (column, value)): (usize, (&Column, Option<Value>))| {
        if !wanted(at) {
            return Ok(Value::Null);
        }
        // The column was replaced by another in a version that this one does not know yet.
        if value.is_none() && written > table.version && table.is_replaced(column.id) {
            return Err(newer(table, written));
        }
        let value = value.unwrap_or_else(|| column.missing());
        // The column was dropped, or may be NULL, in such a version.
        match value.is_null() && !column.nullable && written > table.version {
            true => Err(newer(table, written)),
            false => Ok(value),
        }
    };
    table.columns.iter().zip(row).enumerate().map(whole).collect()
}

/// Whether a number is in the range of its column.
fn has_room(ty: ColumnType, value: &Value) -> bool {
    let within = |n: i128| ty.int_range().is_none_or(|(low, high)| (low..=high).contains(&n));
    match (value, ty) {
        (Value::Int(n), _) => within(i128::from(*n)),
        (Value::UInt(n), _) => within(i128::from(*n)),
        (Value::Decimal(n), ColumnType::Decimal { precision, .. }) => n.precision() <= precision,
        _ => true,
    }
}

fn newer(table: &Table, written: SchemaVersion) -> Error {
    Error::SchemaChanged { table: table.id, sent: table.version, known: Some(written) }
}

fn strange(table: &Table, written: SchemaVersion, id: u32) -> Error {
    if written > table.version {
        return newer(table, written);
    }
    Error::Corrupt(format!(
        "row of table {} holds column {id}, unknown to schema version {}",
        table.name, table.version
    ))
}

fn header(input: &mut &[u8]) -> Result<SchemaVersion> {
    let (format, rest) = input.split_first().ok_or_else(|| bad("empty"))?;
    if *format != FORMAT {
        return Err(unknown_format("a row", *format, FORMAT));
    }
    *input = rest;
    u32::try_from(take(input)?).map_err(|_| bad("schema version"))
}

/// Passes over a payload.
fn pass(input: &mut &[u8], ty: ColumnType) -> Result<()> {
    let fixed = match ty {
        ColumnType::Double => 8,
        ColumnType::Float => 4,
        ColumnType::Decimal { .. } if ty.is_wide() => return bytes(input).map(drop),
        ColumnType::Char(_)
        | ColumnType::Varchar(_)
        | ColumnType::Text(_)
        | ColumnType::Json
        | ColumnType::Enum(_)
        | ColumnType::Set(_)
        | ColumnType::Binary(_)
        | ColumnType::Varbinary(_)
        | ColumnType::Blob(_) => return bytes(input).map(drop),
        ColumnType::Int { .. }
        | ColumnType::Decimal { .. }
        | ColumnType::Year
        | ColumnType::Bit(_)
        | ColumnType::Date
        | ColumnType::DateTime(_)
        | ColumnType::Timestamp(_)
        | ColumnType::Time(_) => return take(input).map(drop),
    };
    *input = input.get(fixed..).ok_or_else(|| bad("number"))?;
    Ok(())
}

fn payload(input: &mut &[u8], ty: ColumnType) -> Result<Value> {
    let narrow = |n: i128| i64::try_from(n).map_err(|_| bad("integer"));
    Ok(match ty {
        ColumnType::Int { unsigned: false, .. } => Value::Int(narrow(unzigzag(take(input)?))?),
        ColumnType::Int { unsigned: true, .. } | ColumnType::Year | ColumnType::Bit(_) => {
            Value::UInt(u64::try_from(take(input)?).map_err(|_| bad("integer"))?)
        }
        ColumnType::DateTime(_) => Value::DateTime(narrow(unzigzag(take(input)?))?),
        ColumnType::Timestamp(_) => Value::Timestamp(narrow(unzigzag(take(input)?))?),
        ColumnType::Double => {
            let (head, rest) = input.split_first_chunk::<8>().ok_or_else(|| bad("double"))?;
            *input = rest;
            Value::Double(f64::from_le_bytes(*head))
        }
        ColumnType::Float => {
            let (head, rest) = input.split_first_chunk::<4>().ok_or_else(|| bad("float"))?;
            *input = rest;
            Value::Float(f32::from_le_bytes(*head))
        }
        ColumnType::Time(_) => Value::Time(narrow(unzigzag(take(input)?))?),
        ColumnType::Decimal { scale, .. } if ty.is_wide() => {
            let number = Wide::of_short_bytes(bytes(input)?, scale);
            Value::Wide(Box::new(number.ok_or_else(|| bad("decimal"))?))
        }
        ColumnType::Decimal { scale, .. } => {
            Value::Decimal(Decimal { unscaled: unzigzag(take(input)?), scale })
        }
        ColumnType::Char(_)
        | ColumnType::Varchar(_)
        | ColumnType::Text(_)
        | ColumnType::Json
        | ColumnType::Enum(_)
        | ColumnType::Set(_) => {
            let text = std::str::from_utf8(bytes(input)?).map_err(|_| bad("string encoding"))?;
            Value::String(text.to_owned())
        }
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            Value::Bytes(bytes(input)?.to_vec())
        }
        ColumnType::Date => {
            Value::Date(i32::try_from(unzigzag(take(input)?)).map_err(|_| bad("date"))?)
        }
    })
}

fn bytes<'a>(input: &mut &'a [u8]) -> Result<&'a [u8]> {
    let length = usize::try_from(take(input)?).map_err(|_| bad("string length"))?;
    let (head, rest) = input.split_at_checked(length).ok_or_else(|| bad("string"))?;
    *input = rest;
    Ok(head)
}

fn zigzag(n: i128) -> u128 {
    ((n << 1) ^ (n >> 127)) as u128
}

fn unzigzag(n: u128) -> i128 {
    (n >> 1) as i128 ^ -((n & 1) as i128)
}

fn put(out: &mut Vec<u8>, mut n: u128) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take(input: &mut &[u8]) -> Result<u128> {
    match input.split_first() {
        // Most are: tags, lengths, small numbers.
        Some((byte, rest)) if byte & 0x80 == 0 => {
            *input = rest;
            Ok(u128::from(*byte))
        }
        _ => take_long(input),
    }
}

fn take_long(input: &mut &[u8]) -> Result<u128> {
    let mut n = 0u128;
    for shift in (0..128).step_by(7) {
        let (byte, rest) = input.split_first().ok_or_else(|| bad("number"))?;
        *input = rest;
        let part = u128::from(byte & 0x7F);
        if shift == 126 && part > 3 {
            return Err(bad("number"));
        }
        n |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(n);
        }
    }
    Err(bad("number"))
}

fn bad(what: &str) -> Error {
    Error::Corrupt(format!("malformed row ({what})"))
}
