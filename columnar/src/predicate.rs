//! Simple predicates for pruning: comparisons of a column with a constant, joined by AND.
//!
//! A row is only ever left out if the predicate is certainly not true for it. What cannot be
//! judged here stays in, so the caller evaluates its filter again.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Scalar};
use arrow::compute::kernels::cmp;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::bloom_filter::Sbbf;
use parquet::file::metadata::ParquetMetaData;
use serde::{Deserialize, Serialize};
use types::columns::ColumnBuilder;
use types::{Column, ColumnType, IntWidth, Result, Value};

use crate::reader::{Opened, Segment};
use crate::schemas::arrow_error;

/// A comparison. It travels in plans, numbered by its place: a new one goes to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    /// `=`
    Eq,
    /// `<`
    Lt,
    /// `<=`
    LtEq,
    /// `>`
    Gt,
    /// `>=`
    GtEq,
    /// `<>`
    NotEq,
}

/// `column op literal`. A scan takes the column as the reader's schema has it; what describes a
/// table once may name it otherwise, such as by its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison<C = Column> {
    /// The column.
    pub column: C,
    /// The comparison.
    pub op: Compare,
    /// The constant; one that is not of the column's type prunes nothing.
    pub value: Value,
}

/// Comparisons, all of which must be true.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicate {
    /// The comparisons.
    pub all: Vec<Comparison>,
}

/// A comparison made ready for Arrow.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub column: Column,
    op: Compare,
    value: Value,
    scalar: Arc<dyn Array>,
}

impl Predicate {
    /// What of the predicate can be judged.
    pub(crate) fn prepare(&self) -> Vec<Prepared> {
        self.all.iter().filter_map(Prepared::new).collect()
    }
}

impl Prepared {
    fn new(comparison: &Comparison) -> Option<Self> {
        let Comparison { column, op, value } = comparison.clone();
        // Arrow orders -0.0 before 0.0; SQL holds them equal.
        if value.is_null() || value == Value::Double(0.0) || value == Value::Float(0.0) {
            return None;
        }
        // A decimal literal with more digits than the column would be rounded.
        if let (Value::Decimal(n), ColumnType::Decimal { scale, .. }) = (&value, column.ty)
            && n.scale > scale
        {
            return None;
        }
        let mut builder = ColumnBuilder::new(column.ty);
        builder.push(&value).ok()?;
        Some(Prepared { column, op, value, scalar: builder.finish() })
    }

    /// The comparison, row by row; NULL where the column is NULL.
    pub fn evaluate(&self, array: &ArrayRef) -> Result<BooleanArray> {
        compare(self.op, array, &self.scalar)
    }

    /// Whether no row of a row group can satisfy it, by zone map and Bloom filter.
    pub fn excludes(&self, segment: &Segment, opened: &Opened, group: usize) -> Result<bool> {
        let Some(at) = segment.position(self.column.id) else { return Ok(false) };
        let metadata = opened.metadata().metadata();
        let Some(converter) = self.converter(opened, at) else { return Ok(false) };
        let row_group = || metadata.row_groups().get(group);
        let (Ok(min), Ok(max)) =
            (converter.row_group_mins(row_group()), converter.row_group_maxes(row_group()))
        else {
            return Ok(false);
        };
        if self.outside(&min, &max)?.into_iter().any(|out| out) {
            return Ok(true);
        }
        let has_filter = metadata
            .row_groups()
            .get(group)
            .is_some_and(|rows| rows.column(at).bloom_filter_offset().is_some());
        if self.op != Compare::Eq || !has_filter {
            return Ok(false);
        }
        Ok(segment.bloom_filter(group, at)?.is_some_and(|filter| !self.may_hold(&filter)))
    }

    /// Ranges of rows within a row group whose pages cannot satisfy it.
    pub fn excluded_rows(
        &self,
        segment: &Segment,
        opened: &Opened,
        group: usize,
    ) -> Result<Vec<Range<usize>>> {
        let metadata = opened.metadata().metadata();
        let at = segment.position(self.column.id);
        let Some(at) = at else { return Ok(Vec::new()) };
        let Some(pages) = self.pages(opened, metadata, group, at)? else { return Ok(Vec::new()) };
        Ok(pages)
    }

    fn pages(
        &self,
        opened: &Opened,
        metadata: &ParquetMetaData,
        group: usize,
        at: usize,
    ) -> Result<Option<Vec<Range<usize>>>> {
        let (Some(columns), Some(offsets)) = (metadata.column_index(), metadata.offset_index())
        else {
            return Ok(None);
        };
        let Some(converter) = self.converter(opened, at) else { return Ok(None) };
        let (Ok(min), Ok(max)) = (
            converter.data_page_mins(columns, offsets, [&group]),
            converter.data_page_maxes(columns, offsets, [&group]),
        ) else {
            return Ok(None);
        };
        let Some(pages) = offsets.get(group).and_then(|group| group.get(at)) else {
            return Ok(None);
        };
        let starts = pages.page_locations().iter().map(|page| page.first_row_index as usize);
        let rows = metadata.row_group(group).num_rows() as usize;
        let ends = starts.clone().skip(1).chain([rows]);
        let out = self.outside(&min, &max)?;
        let excluded = starts.zip(ends).zip(out).filter(|(_, out)| *out);
        Ok(Some(excluded.map(|((start, end), _)| start..end).collect()))
    }

    /// Gives the bounds of a column of a file, if they are of the constant's type.
    fn converter<'a>(&self, opened: &'a Opened, at: usize) -> Option<StatisticsConverter<'a>> {
        let metadata = opened.metadata();
        let field = metadata.schema().fields().get(at)?;
        // Bounds and hashes of a column that was narrower then are of another type.
        if field.data_type() != self.scalar.data_type() {
            return None;
        }
        let descriptor = metadata.metadata().file_metadata().schema_descr();
        StatisticsConverter::from_column_index(at, field, descriptor).ok()
    }

    /// For each pair of bounds, whether nothing between them can satisfy the comparison. Unknown
    /// bounds exclude nothing.
    fn outside(&self, min: &ArrayRef, max: &ArrayRef) -> Result<Vec<bool>> {
        let certain = |array: BooleanArray| -> Vec<bool> {
            (0..array.len()).map(|at| array.is_valid(at) && array.value(at)).collect()
        };
        let bound = |op, array| Ok(certain(compare(op, array, &self.scalar)?));
        match self.op {
            Compare::Eq => {
                let above: Vec<bool> = bound(Compare::Gt, min)?;
                let below: Vec<bool> = bound(Compare::Lt, max)?;
                Ok(above.into_iter().zip(below).map(|(a, b)| a || b).collect())
            }
            Compare::NotEq => Ok(vec![false; min.len()]),
            Compare::Lt => bound(Compare::GtEq, min),
            Compare::LtEq => bound(Compare::Gt, min),
            Compare::Gt => bound(Compare::LtEq, max),
            Compare::GtEq => bound(Compare::Lt, max),
        }
    }

    /// Whether the filter admits the constant. Parquet hashes the physical value, so only types
    /// whose physical form is plain are looked up.
    fn may_hold(&self, filter: &Sbbf) -> bool {
        match (&self.value, self.column.ty) {
            (Value::Int(n), ColumnType::Int { width: IntWidth::Big, .. }) => filter.check(n),
            (Value::Int(n), ColumnType::Int { .. }) => {
                i32::try_from(*n).map_or(true, |n| filter.check(&n))
            }
            (Value::UInt(n), ColumnType::Int { width: IntWidth::Big, .. }) => {
                filter.check(&n.cast_signed())
            }
            (Value::UInt(n), ColumnType::Bit(_)) => filter.check(&n.cast_signed()),
            (Value::UInt(n), ColumnType::Int { .. } | ColumnType::Year) => {
                u32::try_from(*n).map_or(true, |n| filter.check(&n.cast_signed()))
            }
            (Value::String(s), _) => filter.check(s.as_str()),
            (Value::Date(n), _) => filter.check(n),
            (Value::DateTime(n) | Value::Timestamp(n) | Value::Time(n), _) => filter.check(n),
            (Value::Bytes(bytes), _) => filter.check(bytes.as_slice()),
            _ => true,
        }
    }
}

fn compare(op: Compare, array: &ArrayRef, scalar: &Arc<dyn Array>) -> Result<BooleanArray> {
    let scalar = Scalar::new(scalar.clone());
    match op {
        Compare::Eq => cmp::eq(array, &scalar),
        Compare::NotEq => cmp::neq(array, &scalar),
        Compare::Lt => cmp::lt(array, &scalar),
        Compare::LtEq => cmp::lt_eq(array, &scalar),
        Compare::Gt => cmp::gt(array, &scalar),
        Compare::GtEq => cmp::gt_eq(array, &scalar),
    }
    .map_err(arrow_error)
}
