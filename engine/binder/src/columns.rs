//! What the columns of a result are: names, MySQL types, and the tables they come from.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Column as PlanColumn, JoinType, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Cast, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder,
};
use functions::convert::is_string;
use syntax::names::{Displayed, TableName};
use types::columns::arrow_type;
use types::{ColumnType, IntWidth, Table};
use values::column::ResultColumn;
use values::error::SqlResult;
use values::mysql_type::NOT_FIXED;
use values::temporal::fraction_digits;

use crate::bound::OutputColumn;
use crate::duplicate_names::DUPLICATE_MARK;
use crate::years::is_year;
use crate::{PlannedSelect, ResolvedTable};

/// Length that a text of unknown length is announced with.
pub(crate) const TEXT_LENGTH: u32 = 255;

/// Where a column of a result comes from.
struct Origin {
    table: Arc<Table>,
    alias: String,
    position: usize,
}

/// Describes the columns and casts those that are of no MySQL type.
pub fn finish(
    plan: LogicalPlan,
    resolved: &HashMap<TableName, ResolvedTable>,
    displayed: &[Displayed],
) -> SqlResult<PlannedSelect> {
    let names = names(displayed, plan.schema().fields().len());
    let mut columns = Vec::new();
    let mut exprs = Vec::new();
    let mut recast = false;
    for (at, (qualifier, field)) in plan.schema().iter().enumerate() {
        let origin = origin(&plan, at, resolved);
        let labelled = crate::labels::type_of_field(field);
        let ty = match is_year(&plan, at, resolved) {
            true => Some(ColumnType::Year),
            false => {
                labelled.or_else(|| result_type(field.data_type(), fraction(&plan, at, resolved)))
            }
        };
        let mut column = describe(origin, ty, field.is_nullable());
        if let Some(name) = names.get(at).and_then(Clone::clone) {
            column.name = name;
        } else if column.name.is_empty() || is_alias(field.name(), &column.name) {
            column.name = field.name().split(DUPLICATE_MARK).next().unwrap_or_default().to_owned();
        }
        if column.ty == Some(ColumnType::Double) {
            column.decimals = crate::decimals::fixed(&plan, at);
        }
        let input = Expr::Column(PlanColumn::from((qualifier, field)));
        match column.ty.map(arrow_type) {
            Some(ty) if ty != *field.data_type() => {
                recast = true;
                exprs.push(
                    Expr::Cast(Cast::new(Box::new(input), ty))
                        .alias_qualified(qualifier.cloned(), field.name()),
                );
            }
            _ => exprs.push(input),
        }
        columns.push(column);
    }
    let plan = if recast { LogicalPlanBuilder::from(plan).project(exprs)?.build()? } else { plan };
    Ok(PlannedSelect { plan, columns })
}

/// Describes the columns of a bound query's plan, and casts those that the plan has at another type.
pub fn described(
    plan: LogicalPlan,
    output: &[OutputColumn],
    resolved: &HashMap<TableName, ResolvedTable>,
) -> SqlResult<PlannedSelect> {
    let mut columns = Vec::with_capacity(output.len());
    let mut exprs = Vec::with_capacity(output.len());
    let mut recast = false;
    for (shown, (qualifier, field)) in output.iter().zip(plan.schema().iter()) {
        let origin = shown.origin.as_ref().and_then(|origin| {
            let table = resolved.get(&origin.table)?.table.clone()?;
            Some(Origin { table, alias: origin.alias.clone(), position: origin.position })
        });
        // What is computed from quotients has its digits from the rules for them.
        let ty = match shown.ty.column {
            Some(ColumnType::Decimal { .. }) => result_type(field.data_type(), 0),
            ty => ty,
        };
        let mut column = describe(origin, ty, field.is_nullable());
        column.name.clone_from(&shown.name);
        if column.ty == Some(ColumnType::Double) && shown.ty.digits < NOT_FIXED {
            column.decimals = Some(shown.ty.digits);
        }
        let input = Expr::Column(PlanColumn::from((qualifier, field)));
        exprs.push(match column.ty.map(arrow_type) {
            Some(ty) if ty != *field.data_type() => {
                recast = true;
                Expr::Cast(Cast::new(Box::new(input), ty))
                    .alias_qualified(qualifier.cloned(), field.name())
            }
            _ => input,
        });
        columns.push(column);
    }
    let plan = if recast { LogicalPlanBuilder::from(plan).project(exprs)?.build()? } else { plan };
    Ok(PlannedSelect { plan, columns })
}

/// Whether a derived table calls a column otherwise than the table that it comes from.
fn is_alias(name: &str, source: &str) -> bool {
    !name.contains(DUPLICATE_MARK) && name != source.to_lowercase()
}

/// Calls the columns of a result what a select list says: for whoever planned a query with
/// literals in the place of what its client wrote.
pub fn rename(columns: &mut [ResultColumn], displayed: &[Displayed]) {
    let names = names(displayed, columns.len());
    for (column, name) in columns.iter_mut().zip(names) {
        if let Some(name) = name {
            column.name = name;
        }
    }
}

/// The displayed name of each column, where the select list says it.
fn names(displayed: &[Displayed], columns: usize) -> Vec<Option<String>> {
    let wildcards = displayed.iter().filter(|d| **d == Displayed::Wildcard).count();
    let named = displayed.len() - wildcards;
    if wildcards > 1 || columns < named || (wildcards == 0 && named != columns) {
        return vec![None; columns];
    }
    let mut names = Vec::with_capacity(columns);
    for item in displayed {
        match item {
            Displayed::Named(name) => names.push(Some(name.clone())),
            Displayed::Wildcard => names.extend(std::iter::repeat_n(None, columns - named)),
        }
    }
    names
}

/// The MySQL type of an expression's values.
pub fn result_type(ty: &DataType, fraction: u8) -> Option<ColumnType> {
    let int = |width, unsigned| Some(ColumnType::Int { width, unsigned });
    match ty {
        DataType::Null => None,
        DataType::Int8 => int(IntWidth::Tiny, false),
        DataType::Int16 => int(IntWidth::Small, false),
        DataType::Int32 => int(IntWidth::Int, false),
        DataType::Int64 | DataType::Boolean => int(IntWidth::Big, false),
        DataType::UInt8 => int(IntWidth::Tiny, true),
        DataType::UInt16 => int(IntWidth::Small, true),
        DataType::UInt32 => int(IntWidth::Int, true),
        DataType::UInt64 => int(IntWidth::Big, true),
        DataType::Float16 | DataType::Float64 => Some(ColumnType::Double),
        DataType::Float32 => Some(ColumnType::Float),
        DataType::Duration(_) => Some(ColumnType::Time(fraction)),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Some(ColumnType::Varbinary(TEXT_LENGTH))
        }
        DataType::LargeUtf8 => Some(ColumnType::Json),
        // What is computed may have more digits than a column, and is reported as 65 of them.
        DataType::Decimal128(p, s) | DataType::Decimal256(p, s) => {
            Some(ColumnType::Decimal { precision: *p, scale: u8::try_from(*s).unwrap_or(0) })
        }
        DataType::Date32 | DataType::Date64 => Some(ColumnType::Date),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            Some(ColumnType::Timestamp(fraction))
        }
        DataType::Timestamp(_, _) => Some(ColumnType::DateTime(fraction)),
        _ => Some(ColumnType::Varchar(TEXT_LENGTH)),
    }
}

fn describe(origin: Option<Origin>, ty: Option<ColumnType>, nullable: bool) -> ResultColumn {
    let mut column = ResultColumn::expression("", ty, nullable);
    let Some(origin) = origin else { return column };
    let Some(source) = origin.table.columns.get(origin.position) else { return column };
    column.name.clone_from(&source.name);
    column.org_name.clone_from(&source.name);
    column.table = origin.alias;
    column.org_table.clone_from(&origin.table.name);
    column.database.clone_from(&origin.table.database);
    column.ty = Some(source.ty);
    column.primary_key = origin.table.primary_key.contains(&source.id);
    column.auto_increment = source.auto_increment;
    for index in origin.table.indexes.iter().filter(|i| i.columns.first() == Some(&source.id)) {
        if index.unique && index.columns.len() == 1 {
            column.unique_key = true;
        } else {
            column.multiple_key = true;
        }
    }
    column
}

/// The table column that a plan's column is, if it is no more than that.
fn origin(
    plan: &LogicalPlan,
    at: usize,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> Option<Origin> {
    match plan {
        LogicalPlan::Projection(projection) => {
            column_origin(projection.expr.get(at)?, &projection.input, resolved)
        }
        LogicalPlan::Aggregate(aggregate) => {
            column_origin(expr_of(aggregate, at)?, &aggregate.input, resolved)
        }
        LogicalPlan::Filter(filter) => origin(&filter.input, at, resolved),
        LogicalPlan::Sort(sort) => origin(&sort.input, at, resolved),
        LogicalPlan::Limit(limit) => origin(&limit.input, at, resolved),
        LogicalPlan::Distinct(distinct) => origin(distinct.input(), at, resolved),
        LogicalPlan::SubqueryAlias(alias) => {
            let mut found = origin(&alias.input, at, resolved)?;
            found.alias = alias.alias.table().to_owned();
            Some(found)
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match join.join_type {
                JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                    if at < left {
                        origin(&join.left, at, resolved)
                    } else {
                        origin(&join.right, at - left, resolved)
                    }
                }
                _ => None,
            }
        }
        LogicalPlan::TableScan(scan) => {
            let name = TableName {
                database: scan.table_name.schema().unwrap_or_default().to_owned(),
                table: scan.table_name.table().to_owned(),
            };
            let table = resolved.get(&name)?.table.clone()?;
            let position = match &scan.projection {
                Some(projection) => *projection.get(at)?,
                None => at,
            };
            Some(Origin { alias: table.name.clone(), table, position })
        }
        _ => None,
    }
}

fn column_origin(
    expr: &Expr,
    input: &LogicalPlan,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> Option<Origin> {
    match expr {
        Expr::Column(column) => {
            origin(input, input.schema().maybe_index_of_column(column)?, resolved)
        }
        Expr::Alias(alias) => column_origin(&alias.expr, input, resolved),
        _ => None,
    }
}

/// What an output column of an aggregate is computed by. ROLLUP has a column of its own behind the groups.
pub(crate) fn expr_of(aggregate: &Aggregate, at: usize) -> Option<&Expr> {
    let columns = aggregate.schema.fields().len();
    match at.checked_sub(columns.checked_sub(aggregate.aggr_expr.len())?) {
        Some(at) => aggregate.aggr_expr.get(at),
        None => grouping_set_to_exprlist(&aggregate.group_expr).ok()?.get(at).copied(),
    }
}

/// The type of the table column that a plan's column is, if it is no more than that.
pub(crate) fn stored_type(
    plan: &LogicalPlan,
    at: usize,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> Option<ColumnType> {
    let origin = origin(plan, at, resolved)?;
    origin.table.columns.get(origin.position).map(|column| column.ty)
}

/// Digits of a second's fraction that a time expression may have: those of the columns in it.
fn fraction(plan: &LogicalPlan, at: usize, resolved: &HashMap<TableName, ResolvedTable>) -> u8 {
    match plan {
        LogicalPlan::Projection(p) => {
            p.expr.get(at).map_or(0, |e| expr_fraction(e, &p.input, resolved))
        }
        LogicalPlan::Aggregate(a) => {
            expr_of(a, at).map_or(0, |e| expr_fraction(e, &a.input, resolved))
        }
        LogicalPlan::Filter(f) => fraction(&f.input, at, resolved),
        LogicalPlan::Sort(s) => fraction(&s.input, at, resolved),
        LogicalPlan::Limit(l) => fraction(&l.input, at, resolved),
        LogicalPlan::Distinct(d) => fraction(d.input(), at, resolved),
        LogicalPlan::SubqueryAlias(a) => fraction(&a.input, at, resolved),
        LogicalPlan::Union(u) => {
            u.inputs.iter().map(|input| fraction(input, at, resolved)).max().unwrap_or(0)
        }
        LogicalPlan::Window(w) => {
            let columns = w.input.schema().fields().len();
            match at.checked_sub(columns) {
                None => fraction(&w.input, at, resolved),
                Some(at) => {
                    w.window_expr.get(at).map_or(0, |e| expr_fraction(e, &w.input, resolved))
                }
            }
        }
        LogicalPlan::Join(join) => fraction_of_join(join, at, resolved),
        _ => match origin(plan, at, resolved) {
            Some(origin) => match origin.table.columns.get(origin.position).map(|c| c.ty) {
                Some(
                    ColumnType::DateTime(digits)
                    | ColumnType::Timestamp(digits)
                    | ColumnType::Time(digits),
                ) => digits,
                _ => 0,
            },
            None => 0,
        },
    }
}

fn fraction_of_join(join: &Join, at: usize, resolved: &HashMap<TableName, ResolvedTable>) -> u8 {
    let left = join.left.schema().fields().len();
    match join.join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
            fraction(&join.right, at, resolved)
        }
        _ if at < left => fraction(&join.left, at, resolved),
        _ => fraction(&join.right, at - left, resolved),
    }
}

pub(crate) fn expr_fraction(
    expr: &Expr,
    input: &LogicalPlan,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> u8 {
    let of = |expr: &Expr| expr_fraction(expr, input, resolved);
    match expr {
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Column(column) => {
            let at = input.schema().maybe_index_of_column(column);
            at.map_or(0, |at| fraction(input, at, resolved))
        }
        Expr::ScalarFunction(function) => function_fraction(function, input, resolved),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
            results.map(|result| of(result)).max().unwrap_or(0)
        }
        Expr::WindowFunction(window) => window.params.args.iter().map(of).max().unwrap_or(0),
        Expr::AggregateFunction(call) => call.params.args.iter().map(of).max().unwrap_or(0),
        Expr::ScalarSubquery(query) => fraction(&query.subquery, 0, resolved),
        other => {
            let columns = other.column_refs().into_iter();
            columns.map(|c| of(&Expr::Column(c.clone()))).max().unwrap_or(0)
        }
    }
}

fn function_fraction(
    function: &ScalarFunction,
    input: &LogicalPlan,
    resolved: &HashMap<TableName, ResolvedTable>,
) -> u8 {
    let of = |expr: &Expr| expr_fraction(expr, input, resolved);
    let number = |expr: &Expr| match expr.get_type(input.schema().as_ref()) {
        Ok(DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale)) => {
            scale.clamp(0, 6).unsigned_abs()
        }
        Ok(DataType::Float64) => 6,
        // Whatever it was made of: FLOOR(UNIX_TIMESTAMP(t)) has no fraction.
        Ok(ty) if ty.is_integer() => 0,
        _ => of(expr),
    };
    let text = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => fraction_digits(text),
        other => match other.get_type(input.schema().as_ref()) {
            Ok(ty) if is_string(&ty) => 6,
            _ => number(other),
        },
    };
    let args = &function.args;
    match (function.name(), &args[..]) {
        ("cast_datetime" | "cast_time", [_, Expr::Literal(ScalarValue::Int64(Some(n)), _)]) => {
            u8::try_from(*n).unwrap_or(6).min(6)
        }
        ("cast_datetime" | "cast_time", [_, _]) => 0,
        ("cast_datetime" | "cast_time", [value]) => text(value),
        ("mysql_maketime" | "mysql_sec_to_time" | "mysql_from_unixtime", _) => {
            args.iter().take(3).map(number).max().unwrap_or(0)
        }
        ("mysql_addtime" | "mysql_subtime" | "mysql_timediff", _) => {
            args.iter().map(text).max().unwrap_or(0)
        }
        ("mysql_str_to_date", [_, Expr::Literal(ScalarValue::Utf8(Some(format)), _)]) => {
            if format.contains("%f") { 6 } else { 0 }
        }
        (
            "mysql_date_shift",
            [datetime, count, Expr::Literal(ScalarValue::Utf8(Some(unit)), _)],
        ) => {
            let moved = match unit.as_str() {
                "SECOND" => match count {
                    Expr::Literal(ScalarValue::Utf8(Some(text)), _) if !text.contains('.') => 0,
                    Expr::Literal(ScalarValue::Utf8(_), _) => 6,
                    count => number(count),
                },
                unit if unit.ends_with("MICROSECOND") => 6,
                _ => 0,
            };
            of(datetime).max(moved)
        }
        ("mysql_nullif", [value, _]) => of(value),
        ("mysql_if", [_, then, last]) => of(then).max(of(last)),
        _ => args.iter().map(of).max().unwrap_or(0),
    }
}
