//! IF, IFNULL, COALESCE, NULLIF, GREATEST, LEAST, and truth.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::compute::kernels::cmp;
use arrow::compute::kernels::zip::zip;
use arrow::compute::{and_kleene, is_not_null, not, nullif};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result, ScalarValue};
use values::error::{SqlResult, too_many_rows};

use super::convert::{to_bool, to_i64, to_type};
use super::kinds::{
    DATETIME, holding, is_binary, is_exact, is_integer, is_json, is_string, is_temporal, is_time,
    is_wide, number_type,
};
use super::{Function, truth, whole};
use super::{kinds, wide};

/// The functions.
pub const FUNCTIONS: &[Function] = &[
    Function::new("mysql_truth", 1..=1, truth, |a, _| Ok(Arc::new(to_bool(&a[0])?))),
    Function::new("isobar_both", 2..=2, truth, both),
    Function::new("mysql_if", 3..=3, |t, _| Ok(common(t.get(1..).unwrap_or(t))), mysql_if),
    Function::new("mysql_coalesce", 1..=99, |t, _| Ok(common(t)), coalesce),
    Function::new("mysql_nullif", 2..=2, first_type, mysql_nullif),
    Function::new("mysql_greatest", 2..=99, |t, _| Ok(common(t)), |a, t| extreme(a, t, true)),
    Function::new("mysql_least", 2..=99, |t, _| Ok(common(t)), |a, t| extreme(a, t, false)),
    Function::new("isnull", 1..=1, whole, isnull),
    Function::new("isobar_only_row", 2..=2, first_type, only_row),
];

/// Two truth values with AND between them, both of them computed for every row.
fn both(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    Ok(Arc::new(arrow(and_kleene(&to_bool(&args[0])?, &to_bool(&args[1])?))?))
}

/// A value, if it comes of no more than one row.
fn only_row(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    match to_i64(&args[1])?.iter().flatten().any(|rows| rows > 1) {
        true => Err(too_many_rows()),
        false => Ok(args[0].clone()),
    }
}

/// The type that holds values of all these types, as MySQL aggregates them.
pub fn common(types: &[DataType]) -> DataType {
    let types: Vec<&DataType> = types.iter().filter(|ty| **ty != DataType::Null).collect();
    let Some(first) = types.first() else { return DataType::Null };
    if types.iter().all(|ty| ty == first) {
        return (*first).clone();
    }
    if types.iter().any(|ty| is_binary(ty)) {
        return DataType::Binary;
    }
    if types.iter().any(|ty| is_string(ty)) {
        return DataType::Utf8;
    }
    if types.iter().any(|ty| is_time(ty) || is_temporal(ty)) {
        // A TIME among them is one of the present day, which the planner puts before it.
        let are_times = types.iter().all(|ty| is_time(ty) || is_temporal(ty));
        return if are_times { DATETIME } else { DataType::Utf8 };
    }
    let integers = types.iter().all(|ty| is_integer(ty) || **ty == DataType::Boolean);
    let signed = types.iter().any(|ty| !ty.is_unsigned_integer());
    if integers && signed && !types.contains(&&DataType::UInt64) {
        return DataType::Int64;
    }
    if types.iter().any(|ty| number_type(ty) == DataType::Float64) {
        return DataType::Float64;
    }
    match types.iter().all(|ty| number_type(ty) == number_type(first)) {
        true => number_type(first),
        false => holding(&types),
    }
}

fn first_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(types.first().cloned().unwrap_or(DataType::Null))
}

fn arrow<T>(result: std::result::Result<T, arrow::error::ArrowError>) -> SqlResult<T> {
    result.map_err(Into::into)
}

/// Where `mask` is true the first column, else the second, as `ty`; NULL counts as false. What is not chosen need not fit
/// the type.
fn choose(mask: &BooleanArray, a: &ArrayRef, b: &ArrayRef, ty: &DataType) -> SqlResult<ArrayRef> {
    let mask: BooleanArray = mask.iter().map(|m| Some(m.unwrap_or(false))).collect();
    if !is_wide(ty) {
        return arrow(zip(&mask, &to_type(a, ty)?, &to_type(b, ty)?));
    }
    let a = wide::undiminished(&arrow(nullif(a, &arrow(not(&mask))?))?, ty)?;
    let b = wide::undiminished(&arrow(nullif(b, &mask))?, ty)?;
    arrow(zip(&mask, &a, &b))
}

fn mysql_if(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    choose(&to_bool(&args[0])?, &args[1], &args[2], ty)
}

fn coalesce(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let mut result = wide::undiminished(&args[0], ty)?;
    for arg in &args[1..] {
        if result.null_count() == 0 {
            break;
        }
        let mask = arrow(is_not_null(&result))?;
        result = choose(&mask, &result, arg, ty)?;
    }
    Ok(result)
}

fn mysql_nullif(args: &[ArrayRef], _: &DataType) -> SqlResult<ArrayRef> {
    let (a, b) = (&args[0], &args[1]);
    if is_json(a.data_type()) || is_json(b.data_type()) {
        let key = |of: &ArrayRef| super::json::key(std::slice::from_ref(of), &DataType::Binary);
        let equal = arrow(cmp::eq(&key(a)?, &key(b)?))?;
        let known: BooleanArray = equal.iter().map(|e| Some(e.unwrap_or(false))).collect();
        return arrow(nullif(a, &known));
    }
    let ty = comparable(a.data_type(), b.data_type());
    let equal = arrow(cmp::eq(&to_type(a, &ty)?, &to_type(b, &ty)?))?;
    let known: BooleanArray = equal.iter().map(|e| Some(e.unwrap_or(false))).collect();
    arrow(nullif(a, &known))
}

/// The type at which two values are compared.
fn comparable(a: &DataType, b: &DataType) -> DataType {
    if a == b || *b == DataType::Null {
        return a.clone();
    }
    if is_temporal(a) || is_temporal(b) {
        return DATETIME;
    }
    if is_binary(a) || is_binary(b) {
        return if a.is_numeric() || b.is_numeric() { DataType::Float64 } else { DataType::Binary };
    }
    if is_time(a) || is_time(b) {
        return if a.is_numeric() || b.is_numeric() {
            DataType::Float64
        } else {
            DataType::Duration(TimeUnit::Microsecond)
        };
    }
    if is_string(a) != is_string(b) {
        return DataType::Float64;
    }
    match common(&[a.clone(), b.clone()]) {
        ty if is_wide(&ty) => kinds::comparable(a, b),
        ty => ty,
    }
}

fn extreme(args: &[ArrayRef], ty: &DataType, greatest: bool) -> SqlResult<ArrayRef> {
    if is_wide(ty) && args.iter().all(|arg| is_exact(arg.data_type())) {
        return wide::extreme(args, ty, greatest);
    }
    let mut result = to_type(&args[0], ty)?;
    for arg in &args[1..] {
        let other = to_type(arg, ty)?;
        let keep = if greatest { cmp::gt_eq(&result, &other) } else { cmp::lt_eq(&result, &other) };
        let keep = arrow(keep)?;
        let either_null: BooleanArray = keep.iter().map(|k| Some(k.is_none())).collect();
        let chosen = choose(&keep, &result, &other, ty)?;
        result = arrow(nullif(&chosen, &either_null))?;
    }
    Ok(result)
}

fn isnull(args: &[ArrayRef], ty: &DataType) -> SqlResult<ArrayRef> {
    let nulls: BooleanArray = arrow(arrow::compute::is_null(&args[0]))?;
    let nulls: ArrayRef = Arc::new(nulls);
    to_type(&nulls, ty)
}
