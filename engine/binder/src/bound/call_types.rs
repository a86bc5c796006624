//! The MySQL types of what functions give.
//!
//! Which kind of value it is, the function's own signature says; this says what no Arrow type holds: the digits of a
//! second's fraction, the digits that a DOUBLE is shown with, and that a number is a YEAR.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ReturnFieldArgs, TypeSignature};
use functions::random::{self, SEEDED};
use types::columns::arrow_type;
use types::{ColumnType, IntWidth, Value};
use values::error::{SqlResult, unknown};
use values::mysql_type::{MysqlType, NOT_FIXED};
use values::temporal::fraction_digits;

use super::literal::scalar_value;
use super::tree::{Node, Scalar};
use crate::KEEP_INSERT_ID;
use crate::result_type::result_type;

/// Digits that `/` adds (div_precision_increment).
const DIVISION: u8 = 4;
/// Most digits of a second's fraction.
const MICROSECONDS: u8 = 6;

/// The Arrow type that plans have for an expression.
pub fn arrow(ty: &MysqlType) -> DataType {
    match ty.column {
        _ if ty.truth => DataType::Boolean,
        Some(column) => arrow_type(column),
        None => DataType::Null,
    }
}

/// Whether a function is one that calls are bound to.
pub fn is_function(name: &str) -> bool {
    matches!(name, SEEDED | KEEP_INSERT_ID) || functions::named(name).is_some()
}

/// The type of a call.
///
/// # Errors
///
/// What the function says of its arguments: how many there are, and of which types.
pub fn of_call(name: &str, args: &[Scalar]) -> SqlResult<MysqlType> {
    let function = match name {
        SEEDED => random::seeded(),
        KEEP_INSERT_ID => {
            let (width, unsigned) = (IntWidth::Big, true);
            return Ok(MysqlType::of_column(ColumnType::Int { width, unsigned }));
        }
        name => functions::named(name)
            .ok_or_else(|| unknown(format!("function {name} is not registered")))?,
    };
    let types: Vec<DataType> = args.iter().map(|arg| arrow(&arg.ty)).collect();
    // Ours take whatever they are given, and say how many.
    if function.signature().type_signature == TypeSignature::UserDefined {
        function.coerce_types(&types)?;
    }
    let fields: Vec<FieldRef> =
        types.into_iter().map(|ty| Arc::new(Field::new("", ty, true))).collect();
    let literals: Vec<Option<ScalarValue>> = args.iter().map(constant).collect();
    let literals: Vec<Option<&ScalarValue>> = literals.iter().map(Option::as_ref).collect();
    let given = ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &literals };
    let field = function.return_field_from_args(given)?;
    Ok(of_kind(name, field.data_type(), args))
}

/// The value of a literal.
fn constant(arg: &Scalar) -> Option<ScalarValue> {
    match &arg.node {
        Node::Literal(value) => Some(scalar_value(value)),
        _ => None,
    }
}

/// The type of a call that gives values of an Arrow type.
fn of_kind(function: &str, arrow: &DataType, args: &[Scalar]) -> MysqlType {
    if is_year(function, arrow, args) {
        return MysqlType::of_column(ColumnType::Year);
    }
    of_arrow(arrow, fraction(function, args), digits(function, args))
}

/// The type of values of an Arrow type: with these digits of a second's fraction if they are times, and shown with
/// these behind the point if they are DOUBLEs.
pub fn of_arrow(arrow: &DataType, fraction: u8, digits: u8) -> MysqlType {
    let Some(column) = result_type(arrow, fraction) else { return MysqlType::NULL };
    let ty = MysqlType::of_column(column);
    let digits = if column == ColumnType::Double { digits } else { ty.digits };
    MysqlType { digits, truth: *arrow == DataType::Boolean, ..ty }
}

/// Whether a function gives one of its arguments, and these are YEARs or NULL.
fn is_year(function: &str, arrow: &DataType, args: &[Scalar]) -> bool {
    let year = |arg: &Scalar| arg.ty.column == Some(ColumnType::Year);
    let or_null = |arg: &Scalar| arg.ty.column.is_none() || year(arg);
    *arrow == DataType::UInt16
        && match (function, args) {
            ("mysql_coalesce" | "mysql_greatest" | "mysql_least", args)
            | ("mysql_if", [_, args @ ..]) => args.iter().all(or_null),
            ("mysql_nullif", [value, ..]) => year(value),
            _ => false,
        }
}

/// The whole number of a literal.
fn whole(arg: &Scalar) -> Option<i64> {
    match &arg.node {
        Node::Literal(Value::Int(n)) => Some(*n),
        Node::Literal(Value::UInt(n)) => i64::try_from(*n).ok(),
        _ => None,
    }
}

/// Digits of a second's fraction that a number has.
fn fraction_of_number(arg: &Scalar) -> u8 {
    match arg.ty.column {
        Some(ColumnType::Decimal { scale, .. }) => scale.min(MICROSECONDS),
        Some(ColumnType::Double) => MICROSECONDS,
        // Whatever it was made of: FLOOR(UNIX_TIMESTAMP(t)) has no fraction.
        Some(ColumnType::Int { .. } | ColumnType::Year | ColumnType::Bit(_)) => 0,
        _ => arg.ty.fraction(),
    }
}

/// The same of what may be a text.
fn fraction_of_text(arg: &Scalar) -> u8 {
    match &arg.node {
        Node::Literal(Value::String(text)) => fraction_digits(text),
        _ if is_text(arg) => MICROSECONDS,
        _ => fraction_of_number(arg),
    }
}

fn is_text(arg: &Scalar) -> bool {
    arg.ty.column.is_some_and(|ty| ty.is_text() || ty == ColumnType::Json)
}

/// Digits of a second's fraction of what a function gives, should it be a time.
fn fraction(function: &str, args: &[Scalar]) -> u8 {
    let most = |of: fn(&Scalar) -> u8, args: &[Scalar]| args.iter().map(of).max().unwrap_or(0);
    let own: fn(&Scalar) -> u8 = |arg| arg.ty.fraction();
    match (function, args) {
        ("cast_datetime" | "cast_time", [_, digits]) => match whole(digits) {
            Some(digits) => u8::try_from(digits).unwrap_or(MICROSECONDS).min(MICROSECONDS),
            None => 0,
        },
        ("cast_datetime" | "cast_time", [value]) => fraction_of_text(value),
        // However few the text spells.
        ("mysql_sec_to_time", [seconds]) if is_text(seconds) => MICROSECONDS,
        ("mysql_maketime" | "mysql_sec_to_time" | "mysql_from_unixtime", args) => {
            most(fraction_of_number, args.get(..3).unwrap_or(args))
        }
        ("mysql_addtime" | "mysql_subtime" | "mysql_timediff", args) => {
            most(fraction_of_text, args)
        }
        ("mysql_str_to_date", [_, Scalar { node: Node::Literal(Value::String(format)), .. }]) => {
            if format.contains("%f") {
                MICROSECONDS
            } else {
                0
            }
        }
        (
            "mysql_date_shift",
            [time, count, Scalar { node: Node::Literal(Value::String(unit)), .. }],
        ) => own(time).max(fraction_of_shift(count, unit)),
        ("mysql_nullif", [value, _]) => own(value),
        ("mysql_if", [_, results @ ..]) => most(own, results),
        (_, args) => most(own, args),
    }
}

/// Digits that a count of a unit adds to a time.
fn fraction_of_shift(count: &Scalar, unit: &str) -> u8 {
    match (unit, &count.node) {
        ("SECOND", Node::Literal(Value::String(text))) => match text.contains('.') {
            true => MICROSECONDS,
            false => 0,
        },
        ("SECOND", _) => fraction_of_number(count),
        (unit, _) if unit.ends_with("MICROSECOND") => MICROSECONDS,
        _ => 0,
    }
}

/// Digits that a DOUBLE is shown with.
fn digits(function: &str, args: &[Scalar]) -> u8 {
    let most = || args.iter().map(|arg| arg.ty.digits).max().unwrap_or(NOT_FIXED);
    match (function, args) {
        ("mysql_pi", _) => 6,
        ("mysql_floor" | "mysql_ceil" | "mysql_round", [_]) => 0,
        ("mysql_round" | "mysql_truncate", [number, digits]) => match whole(digits) {
            Some(n) => u8::try_from(n.clamp(0, i64::from(NOT_FIXED) - 1)).unwrap_or(NOT_FIXED),
            None => number.ty.digits,
        },
        ("mysql_neg" | "mysql_abs", [number]) => number.ty.digits,
        ("mysql_add" | "mysql_sub" | "mysql_mul" | "mysql_mod", _) => most(),
        ("mysql_div", _) => most().saturating_add(DIVISION).min(NOT_FIXED),
        _ => NOT_FIXED,
    }
}

/// The type of a value that is one of several.
pub fn of_several<'a>(results: impl Iterator<Item = &'a Scalar> + Clone) -> MysqlType {
    let types: Vec<DataType> = results.clone().map(|result| arrow(&result.ty)).collect();
    let common = functions::control::common(&types);
    let fraction = results.clone().map(|result| result.ty.fraction()).max().unwrap_or(0);
    let mut columns = results.filter_map(|result| result.ty.column);
    if common == DataType::UInt16 && columns.all(|column| column == ColumnType::Year) {
        return MysqlType::of_column(ColumnType::Year);
    }
    match result_type(&common, fraction) {
        Some(column) => {
            MysqlType { truth: common == DataType::Boolean, ..MysqlType::of_column(column) }
        }
        None => MysqlType::NULL,
    }
}
