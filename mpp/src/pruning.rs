//! Which filters a scan may use to leave out row groups: comparisons of a column with a constant.
//!
//! Every filter is evaluated again above the scan, so this file may overlook filters but must
//! never claim one that means something else.

use columnar::{Compare, Comparison, Predicate};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use types::{ColumnType, Decimal, Table, Value};

/// A column, by its position in the table, and a constant of its type.
pub type Bound = Comparison<usize>;

/// The answer to the planner for each filter.
pub fn support(filters: &[&Expr], table: &Table) -> Vec<TableProviderFilterPushDown> {
    let of = |filter: &&Expr| match bound(filter, table) {
        Some(_) => TableProviderFilterPushDown::Inexact,
        None => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(of).collect()
}

/// The filters that can be used.
pub fn bounds(filters: &[Expr], table: &Table) -> Vec<Bound> {
    filters.iter().filter_map(|filter| bound(filter, table)).collect()
}

/// The bounds as a scan takes them.
pub fn predicate(bounds: &[Bound], table: &Table) -> Predicate {
    let comparison = |bound: &Bound| {
        let column = table.columns.get(bound.column)?.clone();
        Some(Comparison { column, op: bound.op, value: bound.value.clone() })
    };
    Predicate { all: bounds.iter().filter_map(comparison).collect() }
}

fn bound(filter: &Expr, table: &Table) -> Option<Bound> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
    let (name, value, op) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), Expr::Literal(value, _)) => (&column.name, value, *op),
        (Expr::Literal(value, _), Expr::Column(column)) => (&column.name, value, op.swap()?),
        _ => return None,
    };
    let op = match op {
        Operator::Eq => Compare::Eq,
        Operator::Lt => Compare::Lt,
        Operator::LtEq => Compare::LtEq,
        Operator::Gt => Compare::Gt,
        Operator::GtEq => Compare::GtEq,
        _ => return None,
    };
    let (at, column) = table.column_named(name)?;
    Some(Bound { column: at, op, value: constant(value, column.ty)? })
}

/// The constant as a value of exactly the column's type; none if it is of another.
fn constant(value: &ScalarValue, ty: ColumnType) -> Option<Value> {
    let ColumnType::Int { unsigned, .. } = ty else { return other_constant(value, ty) };
    let n = match value {
        ScalarValue::Int8(n) => i128::from((*n)?),
        ScalarValue::Int16(n) => i128::from((*n)?),
        ScalarValue::Int32(n) => i128::from((*n)?),
        ScalarValue::Int64(n) => i128::from((*n)?),
        ScalarValue::UInt8(n) => i128::from((*n)?),
        ScalarValue::UInt16(n) => i128::from((*n)?),
        ScalarValue::UInt32(n) => i128::from((*n)?),
        ScalarValue::UInt64(n) => i128::from((*n)?),
        _ => return None,
    };
    let (least, most) = ty.int_range()?;
    if n < least || n > most {
        return None;
    }
    match unsigned {
        true => u64::try_from(n).ok().map(Value::UInt),
        false => i64::try_from(n).ok().map(Value::Int),
    }
}

fn other_constant(value: &ScalarValue, ty: ColumnType) -> Option<Value> {
    match (value, ty) {
        (ScalarValue::Float64(n), ColumnType::Double) => (*n).map(Value::Double),
        (ScalarValue::Decimal128(n, _, given), ColumnType::Decimal { scale, .. }) => {
            let same = u8::try_from(*given).ok()? == scale;
            let value = Value::Decimal(Decimal { unscaled: (*n)?, scale });
            same.then_some(value)
        }
        (
            ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text),
            ColumnType::Varchar(_) | ColumnType::Text(_) | ColumnType::Enum(_) | ColumnType::Set(_),
        ) => text.clone().map(Value::String),
        (ScalarValue::Binary(bytes), ColumnType::Varbinary(_) | ColumnType::Blob(_)) => {
            bytes.clone().map(Value::Bytes)
        }
        (ScalarValue::DurationMicrosecond(us), ColumnType::Time(_)) => (*us).map(Value::Time),
        (ScalarValue::Date32(days), ColumnType::Date) => (*days).map(Value::Date),
        (ScalarValue::TimestampMicrosecond(us, None), ColumnType::DateTime(_)) => {
            (*us).map(Value::DateTime)
        }
        (ScalarValue::TimestampMicrosecond(us, Some(_)), ColumnType::Timestamp(_)) => {
            (*us).map(Value::Timestamp)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of another build read the plans of this one.
    #[test]
    fn bounds_keep_their_bytes_in_plans() {
        let ops =
            [Compare::Eq, Compare::Lt, Compare::LtEq, Compare::Gt, Compare::GtEq, Compare::NotEq];
        for (number, op) in (0_u8..).zip(ops) {
            let bound = Bound { column: 3, op, value: Value::Null };
            let bytes = postcard::to_allocvec(&bound).unwrap();
            assert_eq!(bytes, [3_u8, number, 0]);
            assert_eq!(postcard::from_bytes::<Bound>(&bytes).unwrap(), bound);
        }
    }
}
