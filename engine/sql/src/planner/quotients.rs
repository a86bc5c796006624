//! How many digits a quotient has inside an expression. MySQL shows four more than the dividend has,
//! and computes with more: `1 / 3 * 100` is 33.3333, and not 33.3300.
//!
//! It changes no type but that of ROUND and TRUNCATE, which show what was asked of them: what else is
//! computed from a quotient is rounded to the digits that it would have had without, where it leaves
//! the expression. It never takes so many digits that numbers no longer fit.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, lit};

use super::typing::call;
use crate::functions::control::common;

/// What takes a quotient with all of its digits, and has as many itself.
const EXACT: [&str; 14] = [
    "mysql_add",
    "mysql_sub",
    "mysql_mul",
    "mysql_div",
    "mysql_mod",
    "mysql_neg",
    "mysql_abs",
    "mysql_round",
    "mysql_truncate",
    "mysql_if",
    "mysql_coalesce",
    "mysql_nullif",
    "mysql_greatest",
    "mysql_least",
];
/// What takes a quotient with all of its digits, and gives something else.
const OTHERWISE: [&str; 31] = [
    "cast_decimal",
    "cast_double",
    "cast_signed",
    "cast_unsigned",
    "mysql_truth",
    "mysql_floor",
    "mysql_ceil",
    "mysql_sign",
    "mysql_sqrt",
    "mysql_exp",
    "mysql_ln",
    "mysql_log2",
    "mysql_log10",
    "mysql_pow",
    "mysql_sin",
    "mysql_cos",
    "mysql_tan",
    "mysql_cot",
    "mysql_asin",
    "mysql_acos",
    "mysql_atan",
    "mysql_atan2",
    "mysql_radians",
    "mysql_degrees",
    "mysql_interval",
    "mysql_bit_and",
    "mysql_bit_or",
    "mysql_bit_xor",
    "mysql_shift_left",
    "mysql_shift_right",
    "mysql_format",
];
const COMPARISONS: [Operator; 8] = [
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
];
/// Digits before the point that are never given up for some behind it.
const WHOLE: i16 = 18;

/// An expression over quotients, with their digits; and whether it was one.
pub fn kept(expr: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let kept = match &expr {
        Expr::ScalarFunction(function) => called(&expr, function, schema)?,
        Expr::Case(case) => chosen(case, schema)?,
        _ => return compared(expr, schema),
    };
    Ok(match kept {
        Some(kept) => (kept, true),
        None => (expr, false),
    })
}

/// A call that takes quotients; `None` if it shows their digits, or has none.
fn called(expr: &Expr, function: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let name = function.name();
    let otherwise = OTHERWISE.contains(&name);
    if !(otherwise || EXACT.contains(&name)) || !function.args.iter().any(is_quotient) {
        return Ok(None);
    }
    let shown = expr.get_type(schema)?;
    // Of an IF of texts or dates, only what it asks is a number.
    let asks_only = name == "mysql_if" && !matches!(shown, DataType::Decimal128(..));
    let mut args = Vec::with_capacity(function.args.len());
    let mut found = false;
    for (at, arg) in function.args.iter().enumerate() {
        let exact = if asks_only && at > 0 { None } else { exact(arg, schema)? };
        found |= exact.is_some();
        args.push(exact.unwrap_or_else(|| arg.clone()));
    }
    if !found {
        return Ok(None);
    }
    let all = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args));
    let ty = all.get_type(schema)?;
    if (otherwise || asks_only) && shown == ty {
        return Ok(Some(all));
    }
    if !has_room(&shown, &ty) {
        return Ok(None);
    }
    let asked = matches!(name, "mysql_round" | "mysql_truncate")
        && matches!(function.args.get(1), Some(Expr::Literal(..)));
    if asked && scale(&ty) > scale(&shown) {
        return Ok(Some(all));
    }
    Ok(Some(rounded(all, &shown)?))
}

/// A CASE of which a result is a quotient; `None` if none is.
fn chosen(case: &Case, schema: &DFSchema) -> Result<Option<Expr>> {
    let mut results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
    if !results.any(|result| is_quotient(result)) {
        return Ok(None);
    }
    let mut all = case.clone();
    let (mut shown, mut types) = (Vec::new(), Vec::new());
    for result in results_of(&mut all) {
        shown.push(result.get_type(schema)?);
        if let Some(exact) = exact(result, schema)? {
            *result = exact;
        }
        types.push(result.get_type(schema)?);
    }
    let (shown, ty) = (common(&shown), common(&types));
    if !has_room(&shown, &ty) {
        return Ok(None);
    }
    for (result, from) in results_of(&mut all).zip(&types) {
        if *from != ty && *from != DataType::Null {
            *result = rounded(std::mem::take(result), &ty)?;
        }
    }
    Ok(Some(rounded(Expr::Case(all), &shown)?))
}

fn results_of(case: &mut Case) -> impl Iterator<Item = &mut Expr> {
    let results = case.when_then_expr.iter_mut().map(|(_, then)| then);
    results.chain(&mut case.else_expr).map(|result| &mut **result)
}

/// A comparison of quotients with each other, or with what is known to have no more digits than it
/// shows. A column may be the greatest quotient of a table, which is rounded: with such, both are.
fn compared(mut expr: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let mut operands: Vec<&mut Expr> = match &mut expr {
        Expr::BinaryExpr(binary) if COMPARISONS.contains(&binary.op) => {
            vec![&mut *binary.left, &mut *binary.right]
        }
        Expr::InList(list) => std::iter::once(&mut *list.expr).chain(&mut list.list).collect(),
        _ => return Ok((expr, false)),
    };
    if !operands.iter().any(|operand| is_quotient(operand)) {
        return Ok((expr, false));
    }
    let mut exacts = Vec::with_capacity(operands.len());
    let (mut shown, mut types) = (Vec::new(), Vec::new());
    for operand in &operands {
        let ty = operand.get_type(schema)?;
        let exact = exact(operand, schema)?;
        if exact.is_none() && !ty.is_integer() && comes_from_elsewhere(operand)? {
            return Ok((expr, false));
        }
        types.push(match &exact {
            Some(exact) => exact.get_type(schema)?,
            None => ty.clone(),
        });
        shown.push(ty);
        exacts.push(exact);
    }
    if !has_room(&common(&shown), &common(&types)) {
        return Ok((expr, false));
    }
    for (operand, exact) in operands.iter_mut().zip(exacts) {
        if let Some(exact) = exact {
            **operand = exact;
        }
    }
    Ok((expr, true))
}

fn comes_from_elsewhere(operand: &Expr) -> Result<bool> {
    operand.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_)
        ))
    })
}

fn is_quotient(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(function)
        if matches!(function.name(), "mysql_div" | "isobar_rounded"))
}

/// An operand before it is rounded; `None` if it has no more digits than it shows.
fn exact(operand: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let Expr::ScalarFunction(function) = operand else { return Ok(None) };
    match (function.name(), &function.args[..]) {
        ("isobar_rounded", [behind, ..]) => {
            Ok(Some(exact(behind, schema)?.unwrap_or_else(|| behind.clone())))
        }
        ("mysql_div", args) => {
            let quotient = call("mysql_quotient", args.to_vec())?;
            let (shown, all) = (operand.get_type(schema)?, quotient.get_type(schema)?);
            Ok(has_room(&shown, &all).then_some(quotient))
        }
        _ => Ok(None),
    }
}

/// The same number with the digits of a type.
fn rounded(expr: Expr, ty: &DataType) -> Result<Expr> {
    let DataType::Decimal128(precision, scale) = *ty else { return Ok(expr) };
    call("isobar_rounded", vec![expr, lit(i64::from(precision)), lit(i64::from(scale))])
}

fn scale(ty: &DataType) -> i8 {
    if let DataType::Decimal128(_, scale) = ty { *scale } else { 0 }
}

/// Whether a type has the digits before the point that numbers of another need.
fn has_room(shown: &DataType, all: &DataType) -> bool {
    let (DataType::Decimal128(p, s), DataType::Decimal128(more, behind)) = (shown, all) else {
        return false;
    };
    let whole = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
    whole(*more, *behind) >= whole(*p, *s).min(WHOLE)
}
