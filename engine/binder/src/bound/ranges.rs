//! BETWEEN: the value and both ends are compared as one type, which their three types decide together.
//!
//! The two comparisons that it is each know two of them: what these would compare as texts becomes what the third one asks
//! for, and exact numbers are compared as DOUBLEs where the third is one. No other comparison changes, and none that comes out
//! the same either way, by which rows may be looked up.

use functions::kinds::is_temporal;
use types::{ColumnType, IntWidth, Value};
use values::error::SqlResult;

use super::tree::{Node, Scalar};
use super::{arguments, call_types, literal};

/// Digits of a second's fraction that a text may have.
const MICROSECONDS: i64 = 6;

/// Below it, a DOUBLE holds every whole number, and no other one becomes it.
const EXACT_IN_DOUBLE: u64 = 1 << 53;

/// What texts become beside a number, and beside a day; and exact numbers beside a DOUBLE.
#[derive(Clone, Copy)]
enum Third {
    Number,
    Day,
    Double,
}

/// The comparisons of a value with its low and its high end, at one type where texts stand among numbers or days, or exact
/// numbers beside a DOUBLE.
///
/// # Errors
///
/// None that the comparisons would not have.
pub fn alike(low: Scalar, high: Scalar) -> SqlResult<(Scalar, Scalar)> {
    let third = match (&low.node, &high.node) {
        (Node::Compare { left: value, right: low, .. }, Node::Compare { right: high, .. })
            if is_text(value) =>
        {
            match (is_text(low), is_text(high)) {
                (true, false) => third_of(high),
                (false, true) => third_of(low),
                _ => None,
            }
        }
        (Node::Compare { right: low, .. }, Node::Compare { right: high, .. }) => {
            (is_double(low) || is_double(high)).then_some(Third::Double)
        }
        _ => None,
    };
    match third {
        Some(third) => Ok((converted(low, third)?, converted(high, third)?)),
        None => Ok((low, high)),
    }
}

fn is_text(scalar: &Scalar) -> bool {
    let is_label = |column: types::ColumnType| column.labels().is_some();
    scalar.ty.column.is_some_and(|column| column.is_text() && !is_label(column))
}

fn is_double(scalar: &Scalar) -> bool {
    call_types::arrow(&scalar.ty).is_floating()
}

/// Whether it is an exact number.
fn is_exact(scalar: &Scalar) -> bool {
    let ty = call_types::arrow(&scalar.ty);
    ty.is_numeric() && !ty.is_floating()
}

/// Whether two numbers are compared as they are all the same: whole ones, of which a DOUBLE holds one, so that it comes out
/// the same; and a column of whole numbers beside a constant, which MySQL makes one of the column's type.
fn compare_alike(left: &Scalar, right: &Scalar) -> bool {
    let is_whole = |scalar: &Scalar| call_types::arrow(&scalar.ty).is_integer();
    let is_constant = matches!(right.node, Node::Literal(_) | Node::Parameter(_));
    let as_column = is_constant && matches!(left.node, Node::Column(_));
    is_whole(left) && is_whole(right) && (as_column || is_held(left) || is_held(right))
}

fn is_held(scalar: &Scalar) -> bool {
    match (&scalar.node, scalar.ty.column) {
        (Node::Literal(Value::Int(number)), _) => number.unsigned_abs() < EXACT_IN_DOUBLE,
        (Node::Literal(Value::UInt(number)), _) => *number < EXACT_IN_DOUBLE,
        (_, Some(ColumnType::Int { width, .. })) => !matches!(width, IntWidth::Big),
        _ => false,
    }
}

fn third_of(end: &Scalar) -> Option<Third> {
    match call_types::arrow(&end.ty) {
        ty if ty.is_numeric() => Some(Third::Number),
        ty if is_temporal(&ty) => Some(Third::Day),
        _ => None,
    }
}

/// A comparison of two texts as one of two numbers or datetimes, or of two exact numbers as one of DOUBLEs; any other as it is.
fn converted(comparison: Scalar, third: Third) -> SqlResult<Scalar> {
    let Scalar { node, ty } = comparison;
    let is_other = |left: &Scalar, right: &Scalar| match third {
        Third::Number | Third::Day => is_text(left) && is_text(right),
        Third::Double => is_exact(left) && is_exact(right) && !compare_alike(left, right),
    };
    let node = match node {
        Node::Compare { comparison, left, right } if is_other(&left, &right) => {
            let (left, right) = (taken(*left, third)?, taken(*right, third)?);
            Node::Compare { comparison, left: Box::new(left), right: Box::new(right) }
        }
        node => node,
    };
    Ok(Scalar { node, ty })
}

fn taken(text: Scalar, third: Third) -> SqlResult<Scalar> {
    match third {
        Third::Number | Third::Double => arguments::call("cast_double", vec![text]),
        Third::Day => {
            arguments::call("cast_datetime", vec![text, literal::of(Value::Int(MICROSECONDS))])
        }
    }
}
