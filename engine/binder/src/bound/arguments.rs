//! Arguments as what a function takes: a time that is read as text or as a number keeps the digits of its second's
//! fraction, and an ENUM or SET among numbers is its number.
//!
//! An argument of any other type stays as it is.

use arrow::datatypes::DataType;
use types::{ColumnType, Value};

use super::tree::{Comparison, Node, Scalar};
use super::{call_types, literal};
use crate::fractional_seconds::{Taken, taken};
use crate::labels::{NumericArgs, numeric_args};
use crate::result_type::TEXT_LENGTH;
use functions::control::common;
use functions::labels::{BITS, NUMBER};
use values::error::SqlResult;
use values::mysql_type::MysqlType;

/// Digits of a TIME as the number HHMMSS.
const TIME_DIGITS: i64 = 7;

/// A call of a function of ours with arguments that it has as they are.
///
/// # Errors
///
/// What the function says of its arguments: how many there are, and of which types.
pub fn call(function: &str, args: Vec<Scalar>) -> SqlResult<Scalar> {
    let ty = call_types::of_call(function, &args)?;
    Ok(Scalar { node: Node::Call { function: function.to_owned(), args }, ty })
}

/// The arguments as a function takes them.
///
/// # Errors
///
/// Those of [`call`].
pub fn taken_by(function: &str, args: Vec<Scalar>) -> SqlResult<Vec<Scalar>> {
    let mut args = numbers_of_labels(function, args)?;
    if function == "sum_arg" {
        return args.into_iter().map(number_of_time).collect();
    }
    if let Some(conditions) = conditions(function) {
        return spelled_results(args, conditions);
    }
    let Some(taken) = taken(function) else { return Ok(args) };
    // It has a place of its own for the digits.
    if function == "mysql_unix_timestamp" {
        let digits = args.first().map_or(0, |time| time.ty.fraction());
        if digits > 0 && args.len() == 2 {
            args.push(literal::of(Value::Int(i64::from(digits))));
        }
        return Ok(args);
    }
    args.into_iter().map(|arg| spelled(arg, &taken)).collect()
}

/// Behind how many others the results stand that a function chooses from; `None` of any other function.
fn conditions(function: &str) -> Option<usize> {
    match function {
        "mysql_if" => Some(1),
        "mysql_coalesce" => Some(0),
        _ => None,
    }
}

/// Results to choose from, of which the times are written out where the choice is a text or bytes.
fn spelled_results(mut args: Vec<Scalar>, conditions: usize) -> SqlResult<Vec<Scalar>> {
    let results = args.split_off(conditions.min(args.len()));
    args.extend(as_chosen(results)?);
    Ok(args)
}

/// Values of which one is chosen: times among texts or bytes with the digits of their fractions, whichever is taken.
///
/// # Errors
///
/// Those of [`call`].
pub fn as_chosen(values: Vec<Scalar>) -> SqlResult<Vec<Scalar>> {
    let types: Vec<DataType> = values.iter().map(|value| call_types::arrow(&value.ty)).collect();
    match common(&types) {
        DataType::Utf8 | DataType::Binary => {
            values.into_iter().map(|value| spelled(value, &Taken::Text)).collect()
        }
        _ => Ok(values),
    }
}

/// A TIME as the number HHMMSS with as many digits behind the point as it has; anything else as it is.
fn number_of_time(arg: Scalar) -> SqlResult<Scalar> {
    if !matches!(arg.ty.column, Some(ColumnType::Time(_))) {
        return Ok(arg);
    }
    let digits = i64::from(arg.ty.fraction());
    let number = |n| literal::of(Value::Int(n));
    call("cast_decimal", vec![arg, number(TIME_DIGITS + digits), number(digits)])
}

/// A time with the digits of its fraction written out; as a number it has no others.
fn spelled(arg: Scalar, taken: &Taken) -> SqlResult<Scalar> {
    let function = match (arg.ty.column, taken) {
        (Some(ColumnType::Time(0)), Taken::Number) => return call("cast_signed", vec![arg]),
        (Some(ColumnType::Time(_)), Taken::Number) => return number_of_time(arg),
        (Some(ColumnType::DateTime(_) | ColumnType::Timestamp(_)), Taken::Number) => {
            "isobar_moment_number"
        }
        (
            Some(ColumnType::DateTime(_) | ColumnType::Timestamp(_) | ColumnType::Time(_)),
            Taken::Text,
        ) => "isobar_moment_text",
        _ => return Ok(arg),
    };
    match arg.ty.fraction() {
        0 => Ok(arg),
        digits => call(function, vec![arg, literal::of(Value::Int(i64::from(digits)))]),
    }
}

fn is_labelled(arg: &Scalar) -> bool {
    arg.ty.column.is_some_and(|column| column.labels().is_some())
}

/// The number that an ENUM or SET is, computed by `form`; anything else as it is.
fn numbered(arg: Scalar, form: &str) -> SqlResult<Scalar> {
    match arg.ty.column.filter(|column| column.labels().is_some()) {
        Some(column) => call(form, vec![arg, literal::of(Value::String(column.to_string()))]),
        None => Ok(arg),
    }
}

fn numbers_of_labels(function: &str, args: Vec<Scalar>) -> SqlResult<Vec<Scalar>> {
    if !args.iter().any(is_labelled) {
        return Ok(args);
    }
    let compares = matches!(function, "mysql_nullif" | "mysql_field");
    let numeric = match compares && args.iter().any(is_number) {
        true => NumericArgs::All(NUMBER),
        false => numeric_args(function),
    };
    let form = |at: usize| match &numeric {
        NumericArgs::All(form) => Some(*form),
        NumericArgs::At(places) if places.contains(&at) => Some(BITS),
        _ => None,
    };
    let number = |(at, arg)| match form(at) {
        Some(form) => numbered(arg, form),
        None => Ok(arg),
    };
    args.into_iter().enumerate().map(number).collect()
}

/// Whether an argument is neither text nor bytes nor NULL.
fn is_number(arg: &Scalar) -> bool {
    arg.ty.column.is_some_and(|column| {
        !(column.is_text()
            || matches!(
                column,
                ColumnType::Json
                    | ColumnType::Binary(_)
                    | ColumnType::Varbinary(_)
                    | ColumnType::Blob(_)
            ))
    })
}

/// NULLIF of an ENUM or SET and a number, which compares numbers and gives the text; `None` of other arguments.
///
/// # Errors
///
/// Those of [`call`].
pub fn null_if_number(args: &[Scalar]) -> SqlResult<Option<Scalar>> {
    let [value, other] = args else { return Ok(None) };
    if !is_labelled(value) || !args.iter().any(is_number) {
        return Ok(None);
    }
    let left = Box::new(numbered(value.clone(), NUMBER)?);
    let right = Box::new(call("cast_double", vec![numbered(other.clone(), NUMBER)?])?);
    let node = Node::Compare { comparison: Comparison::Equal, left, right };
    let equal = Scalar { node, ty: MysqlType::of_truth() };
    let branches = vec![(equal, literal::of(Value::Null))];
    let otherwise = Some(Box::new(value.clone()));
    let text = MysqlType::of_column(ColumnType::Varchar(TEXT_LENGTH));
    Ok(Some(Scalar { node: Node::Case { branches, otherwise }, ty: text }))
}
