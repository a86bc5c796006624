//! Checking what is stored: every byte of a tablet's files, and what its rows say.
//!
//! Damage quarantines the tablet; it is never repaired in place.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    Date32Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use types::{ColumnType, Decimal, Error, IntWidth, RegionId, Result, Row, Timestamp, Value, key};

use crate::scan::ScanRequest;
use crate::snapshot::TabletSnapshot;
use crate::store::ColumnarStore;

impl ColumnarStore {
    /// Reads and checks every byte of a region's files; how many there are. Damage quarantines its tablet.
    pub fn verify(&self, region: RegionId) -> Result<u64> {
        let tablet = self.tablets.get(region).ok_or(Error::RegionNotFound(region))?;
        let mut bytes = 0;
        let view = tablet.view();
        let damaged = |error: &Error| tablet.quarantine_generation(view.generation, error);
        for part in &view.parts {
            bytes += part.segment.verify().inspect_err(damaged)?;
        }
        Ok(bytes)
    }

    /// Every row of a region that is seen at `ts`, by record key, with all of its columns. Two
    /// rows under one key are corruption. For tests and comparisons of replicas, not for queries.
    pub fn visible_rows(&self, region: RegionId, ts: Timestamp) -> Result<BTreeMap<Vec<u8>, Row>> {
        let handle = self.tablet(region).ok_or(Error::RegionNotFound(region))?;
        handle.snapshot_at(ts, handle.region().epoch)?.rows()
    }
}

impl TabletSnapshot {
    /// As [`ColumnarStore::visible_rows`], of what is pinned.
    pub fn rows(&self) -> Result<BTreeMap<Vec<u8>, Row>> {
        let Some(table) = self.table() else { return Ok(BTreeMap::new()) };
        let request = ScanRequest { columns: table.columns.clone(), ..ScanRequest::default() };
        let mut rows = BTreeMap::new();
        for batch in self.scan(request)? {
            let batch = batch?;
            for at in 0..batch.num_rows() {
                let columns = table.columns.iter().zip(batch.columns());
                let row = columns
                    .map(|(column, array)| value(array, column.ty, at))
                    .collect::<Result<Row>>()?;
                let positions = table.key_positions();
                let keys = positions.iter().filter_map(|at| row.get(*at)).cloned();
                let key = key::record(table.id, &keys.collect::<Vec<_>>());
                if rows.insert(key, row).is_some() {
                    return Err(Error::Corrupt(format!(
                        "region {} shows two rows of one key at {}",
                        self.region_id(),
                        self.ts()
                    )));
                }
            }
        }
        Ok(rows)
    }
}

/// One value of an Arrow array whose column has a type.
pub fn value(array: &ArrayRef, ty: ColumnType, at: usize) -> Result<Value> {
    if at >= array.len() {
        return Err(Error::Corrupt("a column is shorter than its batch".into()));
    }
    if array.is_null(at) {
        return Ok(Value::Null);
    }
    macro_rules! number {
        ($arrow:ty) => {
            array.as_primitive_opt::<$arrow>().map(|array| array.value(at))
        };
    }
    let value = match ty {
        ColumnType::Int { width, unsigned: false } => match width {
            IntWidth::Tiny | IntWidth::Bool => number!(Int8Type).map(i64::from),
            IntWidth::Small => number!(Int16Type).map(i64::from),
            IntWidth::Medium | IntWidth::Int => number!(Int32Type).map(i64::from),
            IntWidth::Big => number!(Int64Type),
        }
        .map(Value::Int),
        ColumnType::Int { width, unsigned: true } => match width {
            IntWidth::Tiny | IntWidth::Bool => number!(UInt8Type).map(u64::from),
            IntWidth::Small => number!(UInt16Type).map(u64::from),
            IntWidth::Medium | IntWidth::Int => number!(UInt32Type).map(u64::from),
            IntWidth::Big => number!(UInt64Type),
        }
        .map(Value::UInt),
        ColumnType::Double => number!(Float64Type).map(Value::Double),
        ColumnType::Decimal { scale, .. } => {
            number!(Decimal128Type).map(|unscaled| Value::Decimal(Decimal { unscaled, scale }))
        }
        ColumnType::Char(_)
        | ColumnType::Varchar(_)
        | ColumnType::Text(_)
        | ColumnType::Enum(_)
        | ColumnType::Set(_) => {
            array.as_string_opt::<i32>().map(|array| Value::String(array.value(at).to_owned()))
        }
        ColumnType::Json => {
            array.as_string_opt::<i64>().map(|array| Value::String(array.value(at).to_owned()))
        }
        ColumnType::Date => number!(Date32Type).map(Value::Date),
        ColumnType::DateTime(_) => number!(TimestampMicrosecondType).map(Value::DateTime),
        ColumnType::Timestamp(_) => number!(TimestampMicrosecondType).map(Value::Timestamp),
        ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_) => {
            array.as_binary_opt::<i32>().map(|array| Value::Bytes(array.value(at).to_vec()))
        }
        ColumnType::Float => number!(Float32Type).map(Value::Float),
        ColumnType::Year => number!(UInt16Type).map(|n| Value::UInt(u64::from(n))),
        ColumnType::Bit(_) => number!(UInt64Type).map(Value::UInt),
        ColumnType::Time(_) => number!(DurationMicrosecondType).map(Value::Time),
    };
    value.ok_or_else(|| Error::Corrupt("an array is not of its column's type".into()))
}
