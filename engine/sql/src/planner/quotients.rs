//! How many digits a quotient has inside an exact expression. MySQL shows four more than the dividend
//! has, and computes with more: `1 / 3 * 100` is 33.3333, and not 33.3300.
//!
//! It changes no type: what is computed from a quotient is rounded to the digits that it would have
//! had without, where it leaves arithmetic. It never takes so many digits that numbers no longer fit.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, lit};

use super::typing::call;

/// What takes a quotient with all of its digits.
const ARITHMETIC: [&str; 8] = [
    "mysql_add",
    "mysql_sub",
    "mysql_mul",
    "mysql_div",
    "mysql_mod",
    "mysql_neg",
    "mysql_round",
    "mysql_truncate",
];
/// Digits before the point that are never given up for some behind it.
const WHOLE: i16 = 18;

/// Arithmetic over quotients, with their digits; and whether it was any.
pub fn kept(expr: Expr, schema: &DFSchema) -> Result<(Expr, bool)> {
    let Expr::ScalarFunction(function) = &expr else { return Ok((expr, false)) };
    if !ARITHMETIC.contains(&function.name()) {
        return Ok((expr, false));
    }
    let mut args = Vec::with_capacity(function.args.len());
    let mut found = false;
    for arg in &function.args {
        let exact = exact(arg, schema)?;
        found |= exact.is_some();
        args.push(exact.unwrap_or_else(|| arg.clone()));
    }
    if !found {
        return Ok((expr, false));
    }
    let shown = expr.get_type(schema)?;
    let all = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args));
    let DataType::Decimal128(precision, scale) = shown else { return Ok((expr, false)) };
    if !has_room(&shown, &all.get_type(schema)?) {
        return Ok((expr, false));
    }
    let (precision, scale) = (lit(i64::from(precision)), lit(i64::from(scale)));
    Ok((call("isobar_rounded", vec![all, precision, scale])?, true))
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

/// Whether a type has the digits before the point that numbers of another need.
fn has_room(shown: &DataType, all: &DataType) -> bool {
    let (DataType::Decimal128(p, s), DataType::Decimal128(more, behind)) = (shown, all) else {
        return false;
    };
    let whole = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
    whole(*more, *behind) >= whole(*p, *s).min(WHOLE)
}
