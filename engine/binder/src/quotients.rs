//! How many digits a quotient has inside an expression. MySQL shows four more than the dividend has,
//! and computes with more: `1 / 3 * 100` is 33.3333, and not 33.3300.
//!
//! It changes no type but that of ROUND and TRUNCATE, which show what was asked of them, and of what is
//! written to a table: what else is computed from a quotient is rounded to the digits that it would have
//! had without, where it leaves the expression; a sum, where it leaves the SELECT that sums. It never takes so many digits that numbers no longer fit.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator, Projection, lit};
use functions::control::common;
use functions::kinds::{self, is_wide};
use functions::trees::Tree;

use crate::udf::call;

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

/// Sums of quotients with all of their digits, by the names of their columns: the types that they have,
/// and those of the sums that are shown.
#[derive(Default)]
pub struct Sums(HashMap<String, (DataType, DataType)>);

/// Whether a node sums quotients with all of their digits. MySQL keeps groups in a table, in which a sum
/// has the digits that are shown; but for ROLLUP, and where all rows are one group.
pub fn are_summed(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate)
        if matches!(aggregate.group_expr[..], [] | [Expr::GroupingSet(_)]))
}

impl Sums {
    /// An aggregate and the name of its column: if it sums quotients, then all of their digits. Not where
    /// it sums distinct ones, which are distinct as they are shown.
    pub fn collect(
        &mut self,
        expr: Expr,
        name: String,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let Expr::AggregateFunction(sum) = &expr else { return Ok(Transformed::no(expr)) };
        let [Expr::ScalarFunction(summand)] = &sum.params.args[..] else {
            return Ok(Transformed::no(expr));
        };
        if sum.func.name() != "sum" || sum.params.distinct || summand.name() != "sum_arg" {
            return Ok(Transformed::no(expr));
        }
        let exacts = summand.args.iter().map(|arg| exact(arg, schema));
        let Some(exacts) = exacts.collect::<Result<Option<Vec<_>>>>()? else {
            return Ok(Transformed::no(expr));
        };
        let summand = ScalarFunction::new_udf(Arc::clone(&summand.func), exacts);
        let mut all = sum.clone();
        all.params.args = vec![Expr::ScalarFunction(summand)];
        let all = Expr::AggregateFunction(all);
        let result = |sum: &Expr| call("sum_result", vec![sum.clone()])?.get_type(schema);
        let shown = result(&expr)?;
        if !has_room(&shown, &result(&all)?) {
            return Ok(Transformed::no(expr));
        }
        let types = (all.get_type(schema)?, shown);
        let known = self.0.entry(name).or_insert_with(|| types.clone());
        Ok(if *known == types { Transformed::yes(all) } else { Transformed::no(expr) })
    }

    /// A sum as it is shown, if it has more digits.
    pub fn shown(&self, expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        if let Expr::ScalarFunction(function) = &expr
            && function.name() == "sum_result"
            && let [Expr::Column(column)] = &function.args[..]
            && let Some((all, shown)) = self.0.get(&column.name)
            && *all == function.args[0].get_type(schema)?
        {
            return Ok(Transformed::yes(rounded(expr, shown)?));
        }
        Ok(Transformed::no(expr))
    }
}

/// What a query gives for columns of a table: quotients with all of their digits, as far as those
/// have room for them. Distinct and grouped values are those that are shown.
pub(crate) fn written(plan: LogicalPlan) -> Result<LogicalPlan> {
    let passes_on = |expr: &Expr| matches!(expr.clone().unalias(), Expr::Column(_));
    match plan {
        LogicalPlan::Projection(projection) if projection.expr.iter().all(passes_on) => {
            let input = Arc::new(written(Arc::unwrap_or_clone(projection.input))?);
            Ok(LogicalPlan::Projection(Projection::try_new(projection.expr, input)?))
        }
        LogicalPlan::Projection(projection) => {
            let schema = projection.input.schema();
            let exprs = projection.expr.into_iter().map(|expr| {
                let (name, inner) = (expr.qualified_name(), expr.clone().unalias());
                Ok(match exact(&inner, schema)? {
                    Some(exact) => exact.alias_qualified(name.0, name.1),
                    None => expr,
                })
            });
            let exprs = exprs.collect::<Result<Vec<_>>>()?;
            Ok(LogicalPlan::Projection(Projection::try_new(exprs, projection.input)?))
        }
        LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => plan
            .map_parts(&mut |input| Ok(Transformed::yes(written(input)?)))?
            .data
            .recompute_schema(),
        other => Ok(other),
    }
}

/// A value for a column, the same way.
pub fn whole(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    Ok(exact(&expr, schema)?.unwrap_or(expr))
}

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
    if let ("isobar_rounded", [behind, digits @ ..]) = (name, &function.args[..]) {
        // At more digits than it shows it is rounded once.
        let is_longer = scale(&expr.get_type(schema)?) > scale(&behind.get_type(schema)?);
        let exact = if is_longer { exact(behind, schema)? } else { None };
        let rounded = |exact| call(name, [&[exact], digits].concat());
        return exact.map(rounded).transpose();
    }
    let otherwise = OTHERWISE.contains(&name);
    if !(otherwise || EXACT.contains(&name)) || !function.args.iter().any(is_quotient) {
        return Ok(None);
    }
    let shown = expr.get_type(schema)?;
    // Of an IF of texts or dates, only its condition is a number.
    let condition_only = name == "mysql_if" && !matches!(shown, DataType::Decimal128(..));
    let mut args = Vec::with_capacity(function.args.len());
    let mut found = false;
    for (at, arg) in function.args.iter().enumerate() {
        let exact = if condition_only && at > 0 { None } else { exact(arg, schema)? };
        found |= exact.is_some();
        args.push(exact.unwrap_or_else(|| arg.clone()));
    }
    if !found {
        return Ok(None);
    }
    let all = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&function.func), args));
    let ty = all.get_type(schema)?;
    if (otherwise || condition_only || shown == DataType::Float64) && shown == ty {
        return Ok(Some(all));
    }
    if !has_room(&shown, &ty) {
        return Ok(None);
    }
    let has_digits = matches!(name, "mysql_round" | "mysql_truncate")
        && matches!(function.args.get(1), Some(Expr::Literal(..)));
    if has_digits && scale(&ty) > scale(&shown) {
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
    let ty = common(&types);
    if !(is_wide(&ty) || has_room(&common(&shown), &ty)) {
        return Ok((expr, false));
    }
    for (operand, exact) in operands.iter_mut().zip(exacts) {
        if let Some(exact) = exact {
            **operand = exact;
        }
        // No narrow type holds them all.
        if let DataType::Decimal256(_, scale) = ty {
            let digits = [lit(i64::from(kinds::MOST)), lit(i64::from(scale))];
            let number = std::mem::take(&mut **operand);
            **operand = call("cast_decimal", [vec![number], digits.to_vec()].concat())?;
        }
    }
    Ok((expr, true))
}

fn comes_from_elsewhere(operand: &Expr) -> Result<bool> {
    operand.has(&|expr| {
        Ok(matches!(
            expr,
            Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_)
        ))
    })
}

/// Whether an expression has more digits than it shows, or shows all that it has.
pub(crate) fn is_quotient(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(function) => {
            matches!(function.name(), "mysql_div" | "isobar_rounded")
        }
        Expr::ScalarSubquery(query) => given(&query.subquery).is_some_and(is_quotient),
        _ => false,
    }
}

/// What a subquery in the place of a value gives.
fn given(query: &LogicalPlan) -> Option<&Expr> {
    match query {
        LogicalPlan::Projection(projection) => match &projection.expr[..] {
            [Expr::Alias(alias)] => Some(&alias.expr),
            [expr] => Some(expr),
            _ => None,
        },
        LogicalPlan::Sort(sort) => given(&sort.input),
        LogicalPlan::Limit(limit) => given(&limit.input),
        _ => None,
    }
}

/// An operand before it is rounded; `None` if it has no more digits than it shows.
fn exact(operand: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let function = match operand {
        Expr::ScalarFunction(function) => function,
        Expr::ScalarSubquery(query) if is_quotient(operand) => {
            let all = written(query.subquery.as_ref().clone())?;
            let all = Expr::ScalarSubquery(query.with_plan(Arc::new(all)));
            let (shown, ty) = (operand.get_type(schema)?, all.get_type(schema)?);
            return Ok((shown != ty && has_room(&shown, &ty)).then_some(all));
        }
        _ => return Ok(None),
    };
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
pub(crate) fn rounded(expr: Expr, ty: &DataType) -> Result<Expr> {
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
