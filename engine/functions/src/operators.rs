//! The operators of arithmetic, and the types of what they give: exact stays exact, and `/` gains four digits.
//!
//! Nothing is computed here.

use arrow::datatypes::DataType;
use datafusion::common::Result;
use types::decimal::DECIMAL_MAX_PRECISION;

use super::kinds::{MOST, decimal_type, digits, digits_of, is_wide, number_type};

/// Digits that `/` adds to the dividend's scale (div_precision_increment).
const DIVISION_DIGITS: i8 = 4;
/// Most digits behind the point (MySQL's limit).
const MAX_SCALE: i8 = 30;
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl Op {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Op::Add => "+",
            Op::Sub => "-",
            Op::Mul => "*",
            Op::Div => "/",
            Op::Mod => "%",
        }
    }
}

/// The type of a result of so many digits. Of narrow operands it is narrow, and what needs more is
/// error 1690: their arithmetic stays in 128 bits. With a wide operand it has all its digits.
fn decimal(operands: [&DataType; 2], whole: i16, scale: i8) -> DataType {
    let scale = scale.clamp(0, MAX_SCALE);
    let most = i16::from(match operands.into_iter().any(is_wide) {
        true => MOST,
        false => DECIMAL_MAX_PRECISION,
    });
    let precision = (whole + i16::from(scale)).clamp(1, most) as u8;
    decimal_type(precision.max(scale as u8), scale)
}

pub(super) fn operands(types: &[DataType]) -> (DataType, DataType) {
    let of = |at: usize| types.get(at).map_or(DataType::Int64, number_type);
    (of(0), of(1))
}

pub(super) fn is_double(a: &DataType, b: &DataType) -> bool {
    *a == DataType::Float64 || *b == DataType::Float64
}

fn is_decimal(ty: &DataType) -> bool {
    digits_of(ty).is_some()
}

fn integer(a: &DataType, b: &DataType) -> DataType {
    if *a == DataType::UInt64 || *b == DataType::UInt64 {
        DataType::UInt64
    } else {
        DataType::Int64
    }
}

pub(super) fn sum_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        return Ok(integer(&a, &b));
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa.max(wb) + 1, sa.max(sb)))
}

pub(super) fn product_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        return Ok(integer(&a, &b));
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa + wb, sa.saturating_add(sb)))
}

pub(super) fn quotient_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    let ((wa, sa), (_, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa + i16::from(sb), sa + DIVISION_DIGITS))
}

/// The type of a quotient inside an expression.
pub(super) fn all_digits_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) || is_wide(&a) || is_wide(&b) {
        return quotient_type(types);
    }
    let ((wa, sa), (_, sb)) = (digits(&a), digits(&b));
    let scale = scale_inside(sa, sb).min(i16::from(MAX_SCALE)) as i8;
    Ok(decimal([&a, &b], wa + i16::from(sb), scale))
}

/// Digits behind the point that MySQL computes of a quotient of operands with so many: it keeps words of nine, those of
/// both operands, and one more where they have no four digits to spare.
fn scale_inside(sa: i8, sb: i8) -> i16 {
    const WORD: i16 = 9;
    let words = |digits: i16| (digits + WORD - 1) / WORD * WORD;
    let of_both = words(i16::from(sa)) + words(i16::from(sb));
    let spare = of_both - i16::from(sa) - i16::from(sb);
    words(of_both + (i16::from(DIVISION_DIGITS) - spare).max(0))
}

/// Whether a quotient shows all digits that MySQL computes: then it is cut, as there is none to round by.
pub(super) fn shows_all(sa: i8, sb: i8, scale: i8) -> bool {
    i16::from(scale) >= scale_inside(sa, sb)
}

pub(super) fn int_div_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    Ok(integer(&a, &b))
}

pub(super) fn mod_type(types: &[DataType]) -> Result<DataType> {
    let (a, b) = operands(types);
    if is_double(&a, &b) {
        return Ok(DataType::Float64);
    }
    if !is_decimal(&a) && !is_decimal(&b) {
        // The remainder has the dividend's sign.
        return Ok(a);
    }
    let ((wa, sa), (wb, sb)) = (digits(&a), digits(&b));
    Ok(decimal([&a, &b], wa.max(wb), sa.max(sb)))
}

pub(super) fn neg_type(types: &[DataType]) -> Result<DataType> {
    Ok(match types.first().map(number_type) {
        Some(DataType::UInt64) | None => DataType::Int64,
        Some(ty) => ty,
    })
}
