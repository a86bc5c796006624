//! Stored rows: columns keyed by id, under a header that names the schema version they were
//! written with.
//!
//! ```text
//! 0x01 | version | n | n × ( id << 1 | null , payload unless null )      all numbers LEB128
//! ```
//!
//! Every column of the row stands in it, primary key included, so a reader needs no key. A column
//! that a row does not mention was added later and reads as its default. Decoding never guesses: a
//! type change is a new column id.

use crate::error::{Error, Result};
use crate::schema::{Column, ColumnType, Default, SchemaVersion, Table};
use crate::value::{Decimal, Value};

/// One row, in the order of [`Table::columns`].
pub type Row = Vec<Value>;

const FORMAT: u8 = 1;

/// Encodes a row given in the order of the table's columns.
pub fn encode(table: &Table, row: &[Value]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 8 * row.len());
    out.push(FORMAT);
    put(&mut out, u128::from(table.version));
    put(&mut out, row.len() as u128);
    for (column, value) in table.columns.iter().zip(row) {
        put(&mut out, u128::from(column.id) << 1 | u128::from(value.is_null()));
        match value {
            Value::Null => {}
            Value::Int(n) | Value::DateTime(n) | Value::Timestamp(n) => {
                put(&mut out, zigzag(i128::from(*n)));
            }
            Value::UInt(n) => put(&mut out, u128::from(*n)),
            Value::Double(n) => out.extend_from_slice(&n.to_le_bytes()),
            Value::Decimal(n) => put(&mut out, zigzag(n.unscaled)),
            Value::String(s) => {
                put(&mut out, s.len() as u128);
                out.extend_from_slice(s.as_bytes());
            }
            Value::Date(n) => put(&mut out, zigzag(i128::from(*n))),
        }
    }
    out
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

/// Decodes a stored row into the order of the table's columns. Columns that the table no longer
/// has cannot be skipped without their type, so the table must still describe them or the row
/// must come from before; callers pass the schema of the row's version or a later one.
pub fn decode(table: &Table, bytes: &[u8]) -> Result<Row> {
    let mut row: Row = table.columns.iter().map(missing).collect();
    let mut input = bytes;
    header(&mut input)?;
    for _ in 0..take(&mut input)? {
        let tag = take(&mut input)?;
        let id = u32::try_from(tag >> 1).map_err(|_| bad("column id"))?;
        let at = table.position(id).ok_or_else(|| {
            Error::Corrupt(format!(
                "row of table {} holds column {id}, unknown to schema version {}",
                table.name, table.version
            ))
        })?;
        let value =
            if tag & 1 == 1 { Value::Null } else { payload(&mut input, table.columns[at].ty)? };
        row[at] = value;
    }
    if input.is_empty() { Ok(row) } else { Err(bad("trailing bytes")) }
}

fn missing(column: &Column) -> Value {
    match &column.default {
        Some(Default::Constant(value)) => value.clone(),
        _ => Value::Null,
    }
}

fn header(input: &mut &[u8]) -> Result<SchemaVersion> {
    let (format, rest) = input.split_first().ok_or_else(|| bad("empty"))?;
    if *format != FORMAT {
        return Err(bad("format"));
    }
    *input = rest;
    u32::try_from(take(input)?).map_err(|_| bad("schema version"))
}

fn payload(input: &mut &[u8], ty: ColumnType) -> Result<Value> {
    let narrow = |n: i128| i64::try_from(n).map_err(|_| bad("integer"));
    Ok(match ty {
        ColumnType::Int { unsigned: false, .. } => Value::Int(narrow(unzigzag(take(input)?))?),
        ColumnType::Int { unsigned: true, .. } => {
            Value::UInt(u64::try_from(take(input)?).map_err(|_| bad("integer"))?)
        }
        ColumnType::DateTime(_) => Value::DateTime(narrow(unzigzag(take(input)?))?),
        ColumnType::Timestamp(_) => Value::Timestamp(narrow(unzigzag(take(input)?))?),
        ColumnType::Double => {
            let (head, rest) = input.split_first_chunk::<8>().ok_or_else(|| bad("double"))?;
            *input = rest;
            Value::Double(f64::from_le_bytes(*head))
        }
        ColumnType::Decimal { scale, .. } => {
            Value::Decimal(Decimal { unscaled: unzigzag(take(input)?), scale })
        }
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => {
            let length = usize::try_from(take(input)?).map_err(|_| bad("string length"))?;
            let (head, rest) = input.split_at_checked(length).ok_or_else(|| bad("string"))?;
            *input = rest;
            let text = std::str::from_utf8(head).map_err(|_| bad("string encoding"))?;
            Value::String(text.to_owned())
        }
        ColumnType::Date => {
            Value::Date(i32::try_from(unzigzag(take(input)?)).map_err(|_| bad("date"))?)
        }
    })
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
