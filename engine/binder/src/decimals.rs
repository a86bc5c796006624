//! How many digits behind the point a DOUBLE is shown with, where MySQL fixes that: what is rounded to
//! two digits has two, PI() has six, and arithmetic has as many as its operands.
//!
//! It decides what is shown, never what is computed.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use functions::wide::digits_of;

use crate::columns::expr_of;

/// As many as it has; MySQL counts with this number, too.
const NOT_FIXED: u8 = 31;
/// Digits that `/` adds (div_precision_increment).
const DIVISION: u8 = 4;

/// Of a column of a plan; `None` if it is shown with as many as it has.
pub fn fixed(plan: &LogicalPlan, at: usize) -> Option<u8> {
    Some(of_column(plan, at)).filter(|digits| *digits < NOT_FIXED)
}

fn of_column(plan: &LogicalPlan, at: usize) -> u8 {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.get(at).map_or(NOT_FIXED, |expr| of(expr, &projection.input))
        }
        LogicalPlan::Aggregate(aggregate) => {
            expr_of(aggregate, at).map_or(NOT_FIXED, |expr| of(expr, &aggregate.input))
        }
        LogicalPlan::Filter(filter) => of_column(&filter.input, at),
        LogicalPlan::Sort(sort) => of_column(&sort.input, at),
        LogicalPlan::Limit(limit) => of_column(&limit.input, at),
        LogicalPlan::Distinct(distinct) => of_column(distinct.input(), at),
        LogicalPlan::SubqueryAlias(alias) => of_column(&alias.input, at),
        other => {
            let fields = other.schema().fields();
            fields.get(at).map_or(NOT_FIXED, |field| of_type(field.data_type()))
        }
    }
}

fn of_type(ty: &DataType) -> u8 {
    match ty {
        ty if ty.is_integer() => 0,
        ty => digits_of(ty).map_or(NOT_FIXED, |(_, scale)| u8::try_from(scale).unwrap_or(0)),
    }
}

fn of(expr: &Expr, input: &LogicalPlan) -> u8 {
    let schema = input.schema().as_ref();
    let own = || expr.get_type(schema).map_or(NOT_FIXED, |ty| of_type(&ty));
    let function = match expr {
        Expr::Alias(alias) => return of(&alias.expr, input),
        Expr::Column(column) => {
            let at = schema.maybe_index_of_column(column);
            return at.map_or(NOT_FIXED, |at| of_column(input, at));
        }
        Expr::AggregateFunction(call) => {
            return match (call.func.name(), call.params.args.first()) {
                ("min" | "max" | "sum", Some(argument)) => of(argument, input),
                _ => own(),
            };
        }
        Expr::ScalarFunction(function) => function,
        _ => return own(),
    };
    if !matches!(expr.get_type(schema), Ok(DataType::Float64)) {
        return own();
    }
    let most = || function.args.iter().map(|arg| of(arg, input)).max().unwrap_or(NOT_FIXED);
    match (function.name(), &function.args[..]) {
        ("mysql_pi", _) => 6,
        ("mysql_floor" | "mysql_ceil" | "mysql_round", [_]) => 0,
        ("mysql_round" | "mysql_truncate", [_, Expr::Literal(ScalarValue::Int64(Some(n)), _)]) => {
            (*n).clamp(0, i64::from(NOT_FIXED) - 1) as u8
        }
        ("mysql_round" | "mysql_truncate", [number, _])
        | ("mysql_neg" | "mysql_abs" | "sum_arg" | "sum_result", [number]) => of(number, input),
        ("mysql_add" | "mysql_sub" | "mysql_mul" | "mysql_mod", _) => most(),
        ("mysql_div", _) => most().saturating_add(DIVISION).min(NOT_FIXED),
        _ => NOT_FIXED,
    }
}
