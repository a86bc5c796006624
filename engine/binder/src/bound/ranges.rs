//! BETWEEN: the value and both ends are compared as one type, which their three types decide together.
//!
//! The two comparisons that it is each know two of them: what these would compare as texts becomes what the third one asks
//! for. No other comparison changes.

use functions::kinds::is_temporal;
use types::Value;
use values::error::SqlResult;

use super::tree::{Node, Scalar};
use super::{arguments, call_types, literal};

/// Digits of a second's fraction that a text may have.
const MICROSECONDS: i64 = 6;

/// What texts become beside a number, and beside a day.
#[derive(Clone, Copy)]
enum Third {
    Number,
    Day,
}

/// The comparisons of a value with its low and its high end, at one type where texts stand among numbers or days.
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

fn third_of(end: &Scalar) -> Option<Third> {
    match call_types::arrow(&end.ty) {
        ty if ty.is_numeric() => Some(Third::Number),
        ty if is_temporal(&ty) => Some(Third::Day),
        _ => None,
    }
}

/// A comparison of two texts as one of two numbers or datetimes; any other as it is.
fn converted(comparison: Scalar, third: Third) -> SqlResult<Scalar> {
    let Scalar { node, ty } = comparison;
    let node = match node {
        Node::Compare { comparison, left, right } if is_text(&left) && is_text(&right) => {
            let (left, right) = (taken(*left, third)?, taken(*right, third)?);
            Node::Compare { comparison, left: Box::new(left), right: Box::new(right) }
        }
        node => node,
    };
    Ok(Scalar { node, ty })
}

fn taken(text: Scalar, third: Third) -> SqlResult<Scalar> {
    match third {
        Third::Number => arguments::call("cast_double", vec![text]),
        Third::Day => {
            arguments::call("cast_datetime", vec![text, literal::of(Value::Int(MICROSECONDS))])
        }
    }
}
