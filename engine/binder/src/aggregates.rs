//! Aggregates whose arguments or result MySQL types otherwise than the planner below, and
//! GROUP_CONCAT.

use sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentClause, FunctionArgumentList, FunctionArguments, OrderByExpr, Value,
    ValueWithSpan,
};
use syntax::tree::{call, null, number, plain, string};
use values::error::{SqlResult, no_column, unsupported};

use crate::forms::op;

/// The aggregates of this crate.
pub const AGGREGATES: &[&str] = &[
    "sum",
    "avg",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "variance",
    "var_pop",
    "var_samp",
    "any_value",
    "bit_and",
    "bit_or",
    "bit_xor",
    "group_concat",
];

/// The same function by another name, with each argument in a call.
fn renamed(mut function: Function, name: &str, wrap: impl Fn(Expr) -> Expr) -> Expr {
    function.name = vec![plain(name.to_owned())].into();
    if let FunctionArguments::List(list) = &mut function.args {
        for arg in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg {
                let inner = std::mem::replace(expr, null());
                *expr = wrap(inner);
            }
        }
    }
    Expr::Function(function)
}

/// One of [`AGGREGATES`].
pub fn aggregate(name: &str, mut function: Function) -> SqlResult<Expr> {
    let summed = |function| renamed(function, "sum", |expr| call("sum_arg", vec![expr]));
    let double = |function, name| {
        let aggregate = renamed(function, name, |expr| call("cast_double", vec![expr]));
        call("isobar_finite", vec![aggregate, string(name)])
    };
    Ok(match name {
        "sum" => call("sum_result", vec![summed(function)]),
        "avg" => {
            let mut count = function.clone();
            count.name = vec![plain("count".to_owned())].into();
            let sum = call("sum_result", vec![summed(function)]);
            Expr::Nested(Box::new(op(sum, BinaryOperator::Divide, Expr::Function(count))))
        }
        "std" | "stddev" | "stddev_pop" => double(function, "stddev_pop"),
        "stddev_samp" => double(function, "stddev"),
        "variance" | "var_pop" => double(function, "var_pop"),
        "var_samp" => double(function, "var"),
        "any_value" => {
            function.name = vec![plain("first_value".to_owned())].into();
            Expr::Function(function)
        }
        // Of 64 bits without a sign; of no rows, what changes nothing.
        "bit_and" | "bit_or" | "bit_xor" => {
            let none = if name == "bit_and" { number(u64::MAX) } else { unsigned(0) };
            let bits = |expr| call("mysql_bit_or", vec![expr, number(0)]);
            call("mysql_coalesce", vec![renamed(function, name, bits), none])
        }
        _ => group_concat(function)?,
    })
}

fn unsigned(n: u64) -> Expr {
    call("cast_unsigned", vec![number(n)])
}

/// COUNT(DISTINCT a, b): of rows in which nothing is NULL, as single values that distinguish them.
pub fn count_of_rows(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else { return };
    if list.args.len() < 2 || list.duplicate_treatment != Some(DuplicateTreatment::Distinct) {
        return;
    }
    let row = call("isobar_row", Vec::new());
    let args = std::mem::take(&mut list.args);
    if let Expr::Function(mut row) = row {
        if let FunctionArguments::List(inner) = &mut row.args {
            inner.args = args;
        }
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(row)))];
    }
}

/// Turns an order around if it begins downwards, and says so. Where DataFusion has one list for an order
/// and one for its opposite, it makes both in the same, and lists of distinct values stay so.
fn upwards(order: &mut [OrderByExpr]) -> bool {
    let down = |by: &OrderByExpr| by.options.asc == Some(false);
    if !order.first().is_some_and(down) {
        return false;
    }
    for by in order {
        by.options.asc = Some(down(by));
    }
    true
}

/// A number in GROUP_CONCAT's ORDER BY is the place of one of its arguments.
fn by_places(list: &mut FunctionArgumentList) -> SqlResult<()> {
    for clause in &mut list.clauses {
        let FunctionArgumentClause::OrderBy(order) = clause else { continue };
        for by in order {
            let Expr::Value(ValueWithSpan { value: Value::Number(n, _), .. }) = &by.expr else {
                continue;
            };
            let Ok(place) = n.parse::<usize>() else { continue };
            match place.checked_sub(1).and_then(|place| list.args.get(place)) {
                Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => by.expr = expr.clone(),
                _ => {
                    return Err(no_column(n, "order clause"));
                }
            }
        }
    }
    Ok(())
}

fn group_concat(mut function: Function) -> SqlResult<Expr> {
    let mut separator = ",".to_owned();
    let (mut distinct, mut in_order, mut backwards) = (false, false, false);
    if let FunctionArguments::List(list) = &mut function.args {
        by_places(list)?;
        list.clauses.retain(|clause| match clause {
            FunctionArgumentClause::Separator(text) => {
                if let Value::SingleQuotedString(s) | Value::DoubleQuotedString(s) = &text.value {
                    separator.clone_from(s);
                }
                false
            }
            _ => true,
        });
        if list.args.len() > 1 {
            let parts = std::mem::take(&mut list.args).into_iter().map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr),
                other => Err(unsupported(format!("GROUP_CONCAT({other})"))),
            });
            let whole = call("mysql_concat", parts.collect::<SqlResult<_>>()?);
            list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(whole))];
        }
        distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
        for clause in &mut list.clauses {
            if let FunctionArgumentClause::OrderBy(order) = clause {
                in_order = true;
                backwards = upwards(order);
            }
        }
    }
    // Of several lists each may have an order of its own, where string_agg wants one for all.
    if in_order {
        // Distinct values are put in order as what they are, and become text afterwards.
        let text = |expr| if distinct { expr } else { call("cast_char", vec![expr]) };
        let list = renamed(function, "array_agg", text);
        let backwards = number(u64::from(backwards));
        return Ok(call("isobar_join", vec![list, string(separator), backwards]));
    }
    let mut joined = renamed(function, "string_agg", |expr| call("cast_char", vec![expr]));
    if let Expr::Function(Function { args: FunctionArguments::List(list), .. }) = &mut joined {
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(string(separator))));
    }
    // DataFusion's is of the type that JSON has here.
    Ok(call("cast_char", vec![joined]))
}
