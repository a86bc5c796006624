//! Memcomparable keys: byte order of the encoding is the order of the values.
//!
//! ```text
//! record   't' table(u64) 'r' primary key columns…
//! index    't' table(u64) 'i' index(u32) index columns… [primary key columns…]
//! ```
//!
//! An index entry carries the primary key unless the index is unique and no column is NULL; then
//! the entry's value carries it. Of a column that is indexed by a prefix, the entry has that much.
//! A column is one marker byte, then its payload. DECIMALs are their unscaled numbers in 128 bits,
//! those of more than 38 digits in 256. Strings are escaped in the manner of CockroachDB's encoding:
//! `00` becomes `00 FF`, the end is `00 01`.

use crate::decimal::Decimal;
use crate::error::{Error, Result};
use crate::ids::{IndexId, TableId};
use crate::index::Index;
use crate::region_kind::RegionKind;
use crate::schema::{ColumnType, Table};
use crate::value::Value;
use crate::wide::Wide;

const TABLE: u8 = b't';
const RECORD: u8 = b'r';
const INDEX: u8 = b'i';
const NULL: u8 = 0x01;
const PRESENT: u8 = 0x02;

/// First key of a table: its indexes' entries come before its records.
pub fn table_start(table: TableId) -> Vec<u8> {
    table_prefix(table, INDEX)
}

/// First key of a table's records; the range ends before [`records_end`].
pub fn records_start(table: TableId) -> Vec<u8> {
    table_prefix(table, RECORD)
}

/// First key behind a table's records.
pub fn records_end(table: TableId) -> Vec<u8> {
    table_prefix(table, RECORD + 1)
}

/// First key of an index; the range ends before [`index_end`].
pub fn index_start(table: TableId, index: IndexId) -> Vec<u8> {
    let mut key = table_prefix(table, INDEX);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// First key behind an index.
pub fn index_end(table: TableId, index: IndexId) -> Vec<u8> {
    index_start(table, index + 1)
}

/// The table that a key belongs to, or none where it is no table's key.
pub fn table(key: &[u8]) -> Option<TableId> {
    let (first, rest) = key.split_first()?;
    let (table, _) = rest.split_first_chunk::<8>()?;
    (*first == TABLE).then(|| TableId::from_be_bytes(*table))
}

/// First key and end of everything of a kind; none for placement's own region.
pub fn range(kind: RegionKind) -> Option<(Vec<u8>, Vec<u8>)> {
    match kind {
        RegionKind::Placement => None,
        RegionKind::Records(table) => Some((records_start(table), records_end(table))),
        RegionKind::Index(table, index) => {
            Some((index_start(table, index), index_end(table, index)))
        }
        RegionKind::Table(table) => Some((table_start(table), records_end(table))),
    }
}

/// Whether a key is that of a table's record.
pub fn is_record(key: &[u8]) -> bool {
    key.first() == Some(&TABLE) && key.get(9) == Some(&RECORD)
}

/// Which records or index a key is of, or none where it is no table's key.
pub fn region_kind(key: &[u8]) -> Option<RegionKind> {
    let table = table(key)?;
    match key.get(9..)?.split_first()? {
        (&RECORD, _) => Some(RegionKind::Records(table)),
        (&INDEX, rest) => {
            let (index, _) = rest.split_first_chunk::<4>()?;
            Some(RegionKind::Index(table, IndexId::from_be_bytes(*index)))
        }
        _ => None,
    }
}

/// Key of the record whose primary key columns are `values`, in key order. A prefix of them gives
/// the first key of all records that share it.
pub fn record(table: TableId, values: &[Value]) -> Vec<u8> {
    let mut key = records_start(table);
    values.iter().for_each(|value| encode(&mut key, value));
    key
}

/// Prefix of the entries of an index whose first columns are `values`.
pub fn index_prefix(table: TableId, index: IndexId, values: &[Value]) -> Vec<u8> {
    let mut key = index_start(table, index);
    values.iter().for_each(|value| encode(&mut key, value));
    key
}

/// Key and value of the index entry of a row (`row` in the order of [`Table::columns`]).
///
/// The value is empty, or the encoded primary key columns for a unique entry without NULLs.
pub fn index_entry(table: &Table, index: &Index, row: &[Value]) -> Result<(Vec<u8>, Vec<u8>)> {
    let pick = |ids: &[u32]| -> Result<Vec<Value>> {
        ids.iter()
            .map(|id| {
                table.position(*id).and_then(|at| row.get(at)).cloned().ok_or_else(|| {
                    Error::Corrupt(format!("table {} has no column {id} for an index", table.name))
                })
            })
            .collect()
    };
    let mut columns = pick(&index.columns)?;
    if !index.parts.is_empty() {
        let both = index.columns.iter().zip(&mut columns);
        both.for_each(|(id, value)| index.shorten(*id, value));
    }
    let mut key = index_prefix(table.id, index.id, &columns);
    let mut tail = Vec::new();
    pick(&table.primary_key)?.iter().for_each(|value| encode(&mut tail, value));
    if index.unique && !columns.iter().any(Value::is_null) {
        return Ok((key, tail));
    }
    key.extend_from_slice(&tail);
    Ok((key, Vec::new()))
}

/// Record key of the row that an index entry points to.
pub fn record_of_index_entry(
    table: &Table,
    index: &Index,
    key: &[u8],
    value: &[u8],
) -> Result<Vec<u8>> {
    let mut record = records_start(table.id);
    if !value.is_empty() {
        record.extend_from_slice(value);
        return Ok(record);
    }
    let prefix = index_start(table.id, index.id);
    let mut rest = key.strip_prefix(prefix.as_slice()).ok_or_else(|| bad("index prefix"))?;
    for id in &index.columns {
        let column = table.column(*id).ok_or_else(|| bad("index column"))?;
        decode(&mut rest, column.ty)?;
    }
    record.extend_from_slice(rest);
    Ok(record)
}

/// Primary key columns of a record key, in key order.
pub fn decode_record(table: &Table, key: &[u8]) -> Result<Vec<Value>> {
    let prefix = records_start(table.id);
    let mut rest = key.strip_prefix(prefix.as_slice()).ok_or_else(|| bad("record prefix"))?;
    let mut values = Vec::with_capacity(table.primary_key.len());
    for id in &table.primary_key {
        let column = table.column(*id).ok_or_else(|| bad("primary key column"))?;
        values.push(decode(&mut rest, column.ty)?);
    }
    if rest.is_empty() { Ok(values) } else { Err(bad("end of record key")) }
}

/// First key that is greater than every key with this prefix.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![u8::MAX; prefix.len() + 1]
}

/// Appends one column's value.
pub fn encode(out: &mut Vec<u8>, value: &Value) {
    if value.is_null() {
        out.push(NULL);
        return;
    }
    out.push(PRESENT);
    match value {
        Value::Null => {}
        Value::Int(n) | Value::DateTime(n) | Value::Timestamp(n) | Value::Time(n) => {
            out.extend_from_slice(&flip(*n).to_be_bytes());
        }
        Value::UInt(n) => out.extend_from_slice(&n.to_be_bytes()),
        Value::Double(n) => encode_double(out, *n),
        Value::Float(n) => encode_double(out, f64::from(*n)),
        Value::Decimal(n) => {
            out.extend_from_slice(&((n.unscaled as u128) ^ (1 << 127)).to_be_bytes());
        }
        Value::Wide(n) => out.extend_from_slice(&n.ordered_bytes()),
        Value::String(s) => encode_bytes(out, s.as_bytes()),
        Value::Bytes(bytes) => encode_bytes(out, bytes),
        Value::Date(n) => out.extend_from_slice(&((*n as u32) ^ (1 << 31)).to_be_bytes()),
    }
}

fn encode_double(out: &mut Vec<u8>, n: f64) {
    // Minus zero equals zero, so it must be the same key.
    let bits = if n == 0.0 { 0 } else { n.to_bits() };
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    out.extend_from_slice(&ordered.to_be_bytes());
}

fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0x00, 0x01]);
}

/// Takes one column's value of a known type off the front.
pub fn decode(input: &mut &[u8], ty: ColumnType) -> Result<Value> {
    match take::<1>(input)? {
        [NULL] => return Ok(Value::Null),
        [PRESENT] => {}
        _ => return Err(bad("marker")),
    }
    Ok(match ty {
        ColumnType::Int { unsigned: false, .. } => Value::Int(take_i64(input)?),
        ColumnType::Int { unsigned: true, .. } | ColumnType::Year | ColumnType::Bit(_) => {
            Value::UInt(u64::from_be_bytes(take(input)?))
        }
        ColumnType::Time(_) => Value::Time(take_i64(input)?),
        ColumnType::DateTime(_) => Value::DateTime(take_i64(input)?),
        ColumnType::Timestamp(_) => Value::Timestamp(take_i64(input)?),
        ColumnType::Double => Value::Double(take_double(input)?),
        // Widened without loss, so narrowing gives the same number back.
        ColumnType::Float => Value::Float(take_double(input)? as f32),
        ColumnType::Decimal { scale, .. } if ty.is_wide() => {
            let number = Wide::of_ordered_bytes(take(input)?, scale);
            Value::Wide(Box::new(number.ok_or_else(|| bad("decimal"))?))
        }
        ColumnType::Decimal { scale, .. } => {
            let unscaled = (u128::from_be_bytes(take(input)?) ^ (1 << 127)) as i128;
            Value::Decimal(Decimal { unscaled, scale })
        }
        ColumnType::Char(_)
        | ColumnType::Varchar(_)
        | ColumnType::Text(_)
        | ColumnType::Json
        | ColumnType::Enum(_)
        | ColumnType::Set(_) => {
            let bytes = take_bytes(input)?;
            Value::String(String::from_utf8(bytes).map_err(|_| bad("string encoding"))?)
        }
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            Value::Bytes(take_bytes(input)?)
        }
        ColumnType::Date => Value::Date((u32::from_be_bytes(take(input)?) ^ (1 << 31)) as i32),
    })
}

fn table_prefix(table: TableId, kind: u8) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    key.push(TABLE);
    key.extend_from_slice(&table.to_be_bytes());
    key.push(kind);
    key
}

fn flip(n: i64) -> u64 {
    (n as u64) ^ (1 << 63)
}

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N]> {
    let (head, rest) = input.split_first_chunk::<N>().ok_or_else(|| bad("length"))?;
    *input = rest;
    Ok(*head)
}

fn take_i64(input: &mut &[u8]) -> Result<i64> {
    Ok((u64::from_be_bytes(take(input)?) ^ (1 << 63)) as i64)
}

fn take_double(input: &mut &[u8]) -> Result<f64> {
    let ordered = u64::from_be_bytes(take(input)?);
    let bits = if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered };
    Ok(f64::from_bits(bits))
}

fn take_bytes(input: &mut &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match take::<1>(input)? {
            [0] => match take::<1>(input)? {
                [0xFF] => bytes.push(0),
                [0x01] => break,
                _ => return Err(bad("string escape")),
            },
            [byte] => bytes.push(byte),
        }
    }
    Ok(bytes)
}

fn bad(what: &str) -> Error {
    Error::Corrupt(format!("malformed key ({what})"))
}
