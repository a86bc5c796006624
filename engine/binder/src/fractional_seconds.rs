//! DATETIME and TIME values as text and as numbers, with the fractional seconds of their columns.
//!
//! The type that a plan has for a DATETIME says nothing of its digits, so a function that takes one
//! for a text or a number could not know them: they are written beside the argument here. An
//! argument whose digits are not known stays as it is.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, lit};
use functions::cast::STATED_CHAR;
use functions::convert::is_time;
use functions::{arithmetic, string};
use syntax::names::TableName;
use types::ColumnType;

use crate::ResolvedTable;
use crate::columns::expr_fraction;
use crate::typing::call;

/// Digits of a TIME as the number HHMMSS.
const TIME_DIGITS: i64 = 7;

/// The tables of a query, by which the digits of their columns are known.
pub type Tables = HashMap<TableName, ResolvedTable>;

/// Whether any column of the tables has digits of a second's fraction.
pub fn has_fractions(tables: &Tables) -> bool {
    let of = |ty: ColumnType| match ty {
        ColumnType::DateTime(digits) | ColumnType::Timestamp(digits) | ColumnType::Time(digits) => {
            digits > 0
        }
        _ => false,
    };
    let described = tables.values().filter_map(|table| table.table.as_ref());
    described.flat_map(|table| &table.columns).any(|column| of(column.ty))
}

/// Whether a statement has literals with fractional seconds, or casts to such.
pub fn states_fractions(plan: &LogicalPlan) -> Result<bool> {
    let states = |expr: &Expr| {
        let Expr::ScalarFunction(function) = expr else { return Ok(false) };
        Ok(matches!(
            (function.name(), &function.args[..]),
            ("cast_datetime" | "cast_time", [_, Expr::Literal(ScalarValue::Int64(Some(1..)), _)])
        ))
    };
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(states)?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// What a function converts a datetime to.
pub(crate) enum Taken {
    /// A text.
    Text,
    /// A number.
    Number,
}

/// What a function converts its datetimes to; `None` if it takes them as they are.
pub(crate) fn taken(name: &str) -> Option<Taken> {
    let others = ["cast_char", STATED_CHAR, "mysql_like", "mysql_regexp"];
    if name == "mysql_format" {
        return None;
    }
    if others.contains(&name) || string::FUNCTIONS.iter().any(|function| function.name == name) {
        return Some(Taken::Text);
    }
    let sums = name.starts_with("sum_");
    let computes = arithmetic::FUNCTIONS.iter().any(|function| function.name == name);
    ((computes && !sums) || name == "mysql_unix_timestamp").then_some(Taken::Number)
}

/// A call with the fractional digits of its arguments written out.
pub fn spelled(
    function: ScalarFunction,
    schema: &DFSchema,
    input: &LogicalPlan,
    tables: &Tables,
) -> Result<Transformed<Expr>> {
    if function.name() == "sum_arg" {
        return summed(function, schema, input, tables);
    }
    let Some(taken) = taken(function.name()) else {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    };
    let is_unix = function.name() == "mysql_unix_timestamp";
    // A bound call says its digits.
    if is_unix && function.args.len() > 2 {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    }
    let mut changed = false;
    let mut args = Vec::with_capacity(function.args.len());
    for arg in function.args {
        let ty = arg.get_type(schema)?;
        let is_datetime = matches!(ty, DataType::Timestamp(..));
        if !(is_datetime || is_time(&ty) && matches!(taken, Taken::Text)) {
            args.push(arg);
            continue;
        }
        let digits = expr_fraction(&arg, input, tables);
        if digits == 0 {
            args.push(arg);
            continue;
        }
        changed = true;
        let digits = lit(i64::from(digits));
        match taken {
            Taken::Number if is_unix => args.extend([arg, digits]),
            Taken::Number => args.push(call("isobar_moment_number", vec![arg, digits])?),
            Taken::Text => args.push(call("isobar_moment_text", vec![arg, digits])?),
        }
    }
    // The digits stand last, behind the zone.
    if is_unix && changed && args.len() == 3 {
        args.swap(1, 2);
    }
    let call = Expr::ScalarFunction(ScalarFunction::new_udf(function.func, args));
    Ok(if changed { Transformed::yes(call) } else { Transformed::no(call) })
}

/// SUM's argument; a TIME is the number HHMMSS with as many digits behind the point as it has.
fn summed(
    function: ScalarFunction,
    schema: &DFSchema,
    input: &LogicalPlan,
    tables: &Tables,
) -> Result<Transformed<Expr>> {
    let [arg] = &function.args[..] else {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    };
    if !is_time(&arg.get_type(schema)?) || !is_traced(arg, input)? {
        return Ok(Transformed::no(Expr::ScalarFunction(function)));
    }
    let digits = i64::from(expr_fraction(arg, input, tables).min(6));
    let number = call("cast_decimal", vec![arg.clone(), lit(TIME_DIGITS + digits), lit(digits)])?;
    let sum = ScalarFunction::new_udf(function.func, vec![number]);
    Ok(Transformed::yes(Expr::ScalarFunction(sum)))
}

/// Whether no digit of a TIME can come from where its digits are not known: what is known to have none
/// is rounded.
fn is_traced(arg: &Expr, input: &LogicalPlan) -> Result<bool> {
    let outer = arg.exists(|expr| Ok(matches!(expr, Expr::OuterReferenceColumn(..))))?;
    let untraced = input.exists(|plan| {
        Ok(matches!(
            plan,
            LogicalPlan::Values(_)
                | LogicalPlan::Unnest(_)
                | LogicalPlan::Extension(_)
                | LogicalPlan::RecursiveQuery(_)
                | LogicalPlan::Repartition(_)
                | LogicalPlan::Subquery(_)
        ))
    })?;
    Ok(!outer && !untraced)
}
