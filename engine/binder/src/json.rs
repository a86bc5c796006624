//! JSON in queries: which calls its operators and functions are, and by what JSON compares.
//!
//! A JSON value compares and sorts by its key ([`functions::json::key`]). What would compare
//! texts of documents in its place is refused by name.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr as PlanExpr, ExprSchemable, LogicalPlan, Subquery};
use functions::kinds::{is_binary, is_json, is_temporal, is_time};
use sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, MemberOf, Value, ValueWithSpan,
};
use syntax::names::parts;
use syntax::tree::{call, number, plain, string};
use values::error::{SqlResult, external, no_function, syntax, unsupported, wrong_argument_count};

use crate::forms::op;
use crate::udf;

/// Functions of MySQL 8 that are left out.
const LEFT_OUT: &[&str] = &[
    "json_schema_valid",
    "json_schema_validation_report",
    "json_storage_free",
    "json_storage_size",
    "json_table",
];

/// A call of a function whose name begins with `json_`.
pub fn call_of(name: &str, mut function: Function) -> SqlResult<Expr> {
    let shown = name.to_uppercase();
    if LEFT_OUT.contains(&name) {
        return Err(unsupported(format!("{shown}()")));
    }
    let args = arguments(&shown, &function)?;
    let of_groups = matches!(name, "json_arrayagg" | "json_objectagg");
    if !of_groups && function.over.is_some() {
        return Err(syntax(format!("{shown} is no function of a window")));
    }
    let odd = args.len() % 2 == 1;
    Ok(match (name, args.len()) {
        ("json_array", 0) => call("cast_json", vec![string("[]")]),
        ("json_object", 0) => call("cast_json", vec![string("{}")]),
        ("json_arrayagg", 1) => of_group(function, args, "mysql_json_item", "mysql_json_items"),
        ("json_objectagg", 2) => {
            of_group(function, args, "mysql_json_member", "mysql_json_members")
        }
        ("json_object", _) if odd => return Err(wrong_argument_count(name)),
        (
            "json_set" | "json_insert" | "json_replace" | "json_array_append" | "json_array_insert",
            _,
        ) if !odd => return Err(wrong_argument_count(name)),
        ("json_arrayagg" | "json_objectagg", _) => return Err(wrong_argument_count(name)),
        ("json_merge", _) => {
            function.name = vec![plain("json_merge_preserve".to_owned())].into();
            Expr::Function(function)
        }
        (_, 0) if functions::named(name).is_some() => return Err(wrong_argument_count(name)),
        _ if functions::named(name).is_some() => Expr::Function(function),
        _ => return Err(no_function(name)),
    })
}

/// The arguments of a call, which has nothing but arguments.
fn arguments(shown: &str, function: &Function) -> SqlResult<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return Err(syntax(format!("{shown} takes arguments in parentheses")));
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return Err(unsupported(format!("{shown} with clauses or DISTINCT")));
    }
    let plain = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Ok(expr.clone()),
        other => Err(syntax(format!("'{other}' is no argument of {shown}"))),
    };
    list.args.iter().map(plain).collect()
}

/// JSON_ARRAYAGG and JSON_OBJECTAGG: the texts of the parts, put together by an aggregate of texts,
/// and read as one document.
fn of_group(mut function: Function, args: Vec<Expr>, part: &str, whole: &str) -> Expr {
    let parts = [call(part, args), string(",")];
    let args = parts.map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).into();
    function.name = vec![plain("string_agg".to_owned())].into();
    function.args = FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args,
        clauses: Vec::new(),
    });
    call(whole, vec![Expr::Function(function)])
}

/// `column -> path` and `column ->> path`. An UPDATE may have put what a column was assigned in the
/// column's place.
pub fn extracted(column: Expr, operator: &BinaryOperator, path: Expr) -> SqlResult<Expr> {
    let path_behind =
        matches!(&path, Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }));
    if matches!(column, Expr::Value(_)) || !path_behind {
        return Err(syntax(format!("{operator} stands between a column and the text of a path")));
    }
    let found = call("json_extract", vec![column, path]);
    Ok(match operator {
        BinaryOperator::LongArrow => call("json_unquote", vec![found]),
        _ => found,
    })
}

/// Marks TRUE and FALSE where they may meet JSON, which distinguishes them from 1 and 0. Everywhere else
/// they are numbers.
pub fn mark_truths(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp {
            left,
            op:
                BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq
                | BinaryOperator::Spaceship,
            right,
        } => {
            mark(left);
            mark(right);
        }
        Expr::InList { expr, list, .. } => {
            mark(expr);
            list.iter_mut().for_each(mark);
        }
        Expr::Case { operand: Some(operand), conditions, .. } => {
            mark(operand);
            conditions.iter_mut().for_each(|when| mark(&mut when.condition));
        }
        Expr::MemberOf(MemberOf { value, .. }) => mark(value),
        Expr::Cast { expr, data_type: SqlType::JSON, .. }
        | Expr::Convert { expr, data_type: Some(SqlType::JSON), .. } => mark(expr),
        Expr::Function(function) => {
            let json = |name: &String| name.starts_with("json_");
            let json = matches!(&parts(&function.name)[..], [name] if json(name));
            if json && let FunctionArguments::List(list) = &mut function.args {
                for arg in &mut list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg {
                        mark(expr);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Whether the operand of a CASE is what stands behind a WHEN. Beside a text, JSON may also be what that text
/// spells, as it is where both are texts: `null` is 'null'.
pub fn case_equal(operand: Expr, when: Expr) -> Expr {
    let text = match &when {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => when.clone(),
        _ => return op(operand, BinaryOperator::Eq, when),
    };
    let spelled = call("isobar_json_spells", vec![operand.clone(), text]);
    let equal = op(operand, BinaryOperator::Eq, when);
    Expr::Nested(Box::new(op(equal, BinaryOperator::Or, spelled)))
}

fn mark(expr: &mut Expr) {
    match expr {
        Expr::Nested(inner) => mark(inner),
        Expr::Tuple(items) => items.iter_mut().for_each(mark),
        Expr::Value(ValueWithSpan { value: Value::Boolean(truth), .. }) => {
            let truth = i32::from(*truth);
            *expr = call("mysql_truth", vec![number(truth)]);
        }
        _ => {}
    }
}

/// The TRUE or FALSE that was marked.
pub(crate) fn marked_truth(expr: &PlanExpr) -> Option<bool> {
    let PlanExpr::ScalarFunction(function) = expr else { return None };
    match &function.args[..] {
        [PlanExpr::Literal(ScalarValue::Int64(Some(n)), _)] if function.name() == "mysql_truth" => {
            Some(*n != 0)
        }
        _ => None,
    }
}

fn key(expr: PlanExpr) -> Result<PlanExpr> {
    udf::call("mysql_json_key", vec![expr])
}

/// Two operands, at least one of them JSON, as what they compare by.
pub(crate) fn keys(
    (left, lt): (PlanExpr, &DataType),
    (right, rt): (PlanExpr, &DataType),
) -> Result<(PlanExpr, PlanExpr)> {
    let apart = |ty: &DataType| is_temporal(ty) || is_time(ty) || is_binary(ty);
    if apart(lt) || apart(rt) {
        let what = "a comparison of JSON with a time or with bytes (CAST one to the other's type)";
        return Err(external(unsupported(what)));
    }
    Ok((key(left)?, key(right)?))
}

/// An expression whose operands are typed already, its orders by keys; an error if it would compare
/// JSON by its text.
pub(crate) fn checked(mut expr: PlanExpr, schema: &DFSchema) -> Result<PlanExpr> {
    let of_json = |what: &str| external(unsupported(format!("{what} of JSON")));
    let any = |exprs: &[PlanExpr]| exprs.iter().any(|expr| gives_json(expr, schema));
    match &mut expr {
        PlanExpr::AggregateFunction(call) => {
            let name = call.func.name();
            if matches!(name, "min" | "max") && any(&call.params.args) {
                return Err(of_json(&name.to_uppercase()));
            }
            by_keys(&mut call.params.order_by, schema)?;
        }
        PlanExpr::WindowFunction(call) => {
            let name = call.fun.name();
            if matches!(name, "min" | "max") && any(&call.params.args) {
                return Err(of_json(&name.to_uppercase()));
            }
            for order in &mut call.params.order_by {
                if gives_json(&order.expr, schema) {
                    order.expr = key(std::mem::take(&mut order.expr))?;
                }
            }
            let frame = &call.params.window_frame;
            crate::windows::in_ranges(&mut call.params.order_by, frame, schema)?;
        }
        PlanExpr::ScalarFunction(call)
            if matches!(call.name(), "mysql_greatest" | "mysql_least") && any(&call.args) =>
        {
            return Err(of_json("GREATEST and LEAST"));
        }
        PlanExpr::InSubquery(within)
            if gives_json(&within.expr, schema) || is_of_json(&within.subquery) =>
        {
            return Err(of_json("IN (SELECT …)"));
        }
        PlanExpr::SetComparison(within)
            if gives_json(&within.expr, schema) || is_of_json(&within.subquery) =>
        {
            return Err(of_json("ANY and ALL"));
        }
        _ => {}
    }
    Ok(expr)
}

fn gives_json(expr: &PlanExpr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|ty| is_json(&ty))
}

fn is_of_json(query: &Subquery) -> bool {
    let fields = query.subquery.schema().fields();
    fields.first().is_some_and(|field| is_json(field.data_type()))
}

/// Orders by JSON as orders by its keys; whether there were any.
fn by_keys(orders: &mut [Sort], schema: &DFSchema) -> Result<bool> {
    let mut found = false;
    for order in orders {
        if gives_json(&order.expr, schema) {
            order.expr = key(std::mem::take(&mut order.expr))?;
            found = true;
        }
    }
    Ok(found)
}

/// A plan that sorts, by keys where it sorts by JSON; `None` if it does not. An error for a join
/// that would compare the texts of documents.
pub(crate) fn sorted(plan: &LogicalPlan, schema: &DFSchema) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Sort(sort) => {
            let mut sort = sort.clone();
            Ok(by_keys(&mut sort.expr, schema)?.then_some(LogicalPlan::Sort(sort)))
        }
        LogicalPlan::Join(join) => {
            let (left, right) = (join.left.schema(), join.right.schema());
            if join.on.iter().any(|(l, r)| gives_json(l, left) || gives_json(r, right)) {
                return Err(external(unsupported("USING and NATURAL of JSON columns")));
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}
