//! Which columns of a result are YEARs: clients get that type for the column of a table, and of what
//! chooses among such values without computing with them. A plan knows a YEAR as a number of 16 bits.
//!
//! It changes no value, and never calls a YEAR what may be a SMALLINT.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use syntax::names::TableName;
use types::ColumnType;

use crate::ResolvedTable;
use crate::columns::{expr_of, stored_type};

/// Aggregates and window functions that give one of their argument's values.
const CHOOSING: [&str; 7] = ["min", "max", "first_value", "last_value", "nth_value", "lag", "lead"];

/// Whether a column of a plan is a YEAR.
pub fn is_year(
    plan: &LogicalPlan,
    at: usize,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> bool {
    let ty = plan.schema().fields().get(at).map(|field| field.data_type());
    ty == Some(&DataType::UInt16) && comes_of_years(plan, at, resolved)
}

fn comes_of_years(
    plan: &LogicalPlan,
    at: usize,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> bool {
    let of = |plan: &LogicalPlan, at: usize| comes_of_years(plan, at, resolved);
    match plan {
        LogicalPlan::Projection(p) => {
            p.expr.get(at).is_some_and(|expr| chosen(expr, &p.input, resolved))
        }
        LogicalPlan::Aggregate(aggregate) => {
            expr_of(aggregate, at).is_some_and(|expr| chosen(expr, &aggregate.input, resolved))
        }
        LogicalPlan::Window(window) => match at.checked_sub(window.input.schema().fields().len()) {
            None => of(&window.input, at),
            Some(at) => {
                let expr = window.window_expr.get(at);
                expr.is_some_and(|expr| chosen(expr, &window.input, resolved))
            }
        },
        LogicalPlan::Union(union) => union.inputs.iter().all(|input| of(input, at)),
        LogicalPlan::Join(join) => {
            let (input, at) = input_of(join, at);
            of(input, at)
        }
        LogicalPlan::Filter(filter) => of(&filter.input, at),
        LogicalPlan::Sort(sort) => of(&sort.input, at),
        LogicalPlan::Limit(limit) => of(&limit.input, at),
        LogicalPlan::Distinct(distinct) => of(distinct.input(), at),
        LogicalPlan::SubqueryAlias(alias) => of(&alias.input, at),
        scan => stored_type(scan, at, resolved) == Some(ColumnType::Year),
    }
}

/// The input of a join that a column is of, and its place there.
fn input_of(join: &Join, at: usize) -> (&LogicalPlan, usize) {
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => (&*join.right, at),
        _ if at < left => (&*join.left, at),
        _ => (&*join.right, at - left),
    }
}

/// Whether an expression gives nothing but YEARs of its operands.
fn chosen(expr: &Expr, input: &LogicalPlan, resolved: &HashMap<TableName, ResolvedTable>) -> bool {
    let of = |expr: &Expr| chosen(expr, input, resolved);
    let or_null = |expr: &Expr| matches!(expr, Expr::Literal(ScalarValue::Null, _)) || of(expr);
    match expr {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Column(column) => {
            let at = input.schema().maybe_index_of_column(column);
            at.is_some_and(|at| comes_of_years(input, at, resolved))
        }
        Expr::AggregateFunction(call) if CHOOSING.contains(&call.func.name()) => {
            call.params.args.first().is_some_and(of)
        }
        Expr::WindowFunction(call) if CHOOSING.contains(&call.fun.name()) => {
            call.params.args.first().is_some_and(of)
        }
        Expr::Case(case) => {
            let mut results =
                case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            results.all(|result| or_null(result))
        }
        Expr::ScalarSubquery(query) => comes_of_years(&query.subquery, 0, resolved),
        Expr::ScalarFunction(function) => match (function.name(), &function.args[..]) {
            ("mysql_coalesce" | "mysql_greatest" | "mysql_least", args)
            | ("mysql_if", [_, args @ ..]) => args.iter().all(or_null),
            ("mysql_nullif" | "isobar_only_row", [value, ..]) => of(value),
            _ => false,
        },
        _ => false,
    }
}
