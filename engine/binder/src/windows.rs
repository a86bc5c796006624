//! A window that starts from a named one, `OVER (w ORDER BY …)`, written out in full: the planner below knows only
//! windows that are a name or a specification.
//!
//! It must never drop a clause of either window: what MySQL refuses is refused here.

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{
    Cast, Expr as PlanExpr, ExprSchemable, WindowFrame as PlanFrame, WindowFrameBound as PlanBound,
    WindowFrameUnits,
};
use functions::kinds::{is_binary, is_temporal, is_time};
use sqlparser::ast::{
    DateTimeField, Expr, Function, NamedWindowDefinition, NamedWindowExpr, Query, Select,
    UnaryOperator, Visitor, WindowFrameBound, WindowSpec, WindowType,
};
use syntax::tree::string;
use syntax::walk::{each_expr, walk};
use types::Value;
use values::error::{
    SqlError, SqlResult, external, frame_of_numbers, frame_of_times, frame_without_number, syntax,
    unsupported, window_function_here, window_ordered_twice, window_partitions, window_with_frame,
    wrong_arguments,
};

use crate::udf;

/// Writes every window of a SELECT out that starts from one of its WINDOW clause.
pub fn write_out(select: &mut Select) -> SqlResult<()> {
    if select.named_window.is_empty() {
        return Ok(());
    }
    // A window may start from one that is defined after it: as many rounds as there are windows.
    for _ in 0..select.named_window.len() {
        let before = select.named_window.clone();
        for NamedWindowDefinition(_, window) in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(spec) = window {
                start_from(spec, &before)?;
            }
        }
    }
    let windows = select.named_window.clone();
    each_expr(select, &mut |expr| match expr {
        Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) => {
            start_from(spec, &windows)
        }
        _ => Ok(()),
    })
}

/// `INTERVAL 1 DAY` as a bound of a frame, in the one form that the planner below takes: a text
/// that has the unit in it. Whoever rewrites expressions knows such an interval by its lack of a
/// unit of its own.
pub fn bounds(select: &mut Select) -> SqlResult<()> {
    for NamedWindowDefinition(_, window) in &mut select.named_window {
        if let NamedWindowExpr::WindowSpec(spec) = window {
            bounds_of(spec)?;
        }
    }
    each_expr(&mut select.projection, &mut |expr| match expr {
        Expr::Function(Function { over: Some(WindowType::WindowSpec(spec)), .. }) => {
            bounds_of(spec)
        }
        _ => Ok(()),
    })
}

fn bounds_of(spec: &mut WindowSpec) -> SqlResult<()> {
    let Some(frame) = &mut spec.window_frame else { return Ok(()) };
    for bound in std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound) {
        let (WindowFrameBound::Preceding(Some(bound)) | WindowFrameBound::Following(Some(bound))) =
            bound
        else {
            continue;
        };
        let Expr::Interval(interval) = &mut **bound else { continue };
        let Some(unit) = interval.leading_field.take() else { continue };
        let (Some(count), true) = (syntax::constant::literal(&interval.value), of_one_part(&unit))
        else {
            return Err(unsupported(format!("a frame's bound of INTERVAL … {unit}")));
        };
        *interval.value = string(format!("{count} {unit}"));
    }
    Ok(())
}

/// Orders of windows by TIME and by bytes, which the planner below has no ranges over, as orders by numbers and by
/// hexadecimal texts that sort alike.
pub(crate) fn in_ranges(orders: &mut [Sort], frame: &PlanFrame, schema: &DFSchema) -> Result<()> {
    if frame.units != WindowFrameUnits::Range {
        return Ok(());
    }
    let bounds = [&frame.start_bound, &frame.end_bound];
    let distance = bounds.into_iter().find_map(|bound| match bound {
        PlanBound::Preceding(by) | PlanBound::Following(by) if !by.is_null() => Some(by),
        _ => None,
    });
    for order in orders {
        let ty = order.expr.get_type(schema)?;
        if let Some(distance) = distance {
            measurable(&ty, distance.to_string().contains(char::is_alphabetic))?;
        }
        if !(is_time(&ty) || is_binary(&ty)) {
            continue;
        }
        let by = std::mem::take(&mut order.expr);
        order.expr = match is_time(&ty) {
            true => PlanExpr::Cast(Cast::new(Box::new(by), DataType::Int64)),
            false => udf::call("mysql_hex", vec![by])?,
        };
    }
    Ok(())
}

/// Errors 3587 to 3589 for a frame's bound at a distance, which may be an interval, from values of a type.
fn measurable(ty: &DataType, by_interval: bool) -> Result<()> {
    Err(external(match (ty.is_numeric(), is_temporal(ty) || is_time(ty)) {
        (true, _) if by_interval => frame_of_numbers(),
        (_, true) if !by_interval => frame_of_times(),
        (false, false) => frame_without_number(),
        _ if is_time(ty) => unsupported("a frame of a RANGE of TIME"),
        _ => return Ok(()),
    }))
}

/// Whether a unit means the same to the planner below.
fn of_one_part(unit: &DateTimeField) -> bool {
    matches!(
        unit,
        DateTimeField::Year
            | DateTimeField::Month
            | DateTimeField::Week(None)
            | DateTimeField::Day
            | DateTimeField::Hour
            | DateTimeField::Minute
            | DateTimeField::Second
            | DateTimeField::Microsecond
    )
}

/// Functions that are nothing without OVER.
pub const ONLY: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// Refuses a number that a window function counts rows by where there are no such rows.
pub fn count_within(name: &str, count: Option<&Expr>) -> SqlResult<()> {
    let negative = matches!(count, Some(Expr::UnaryOp { op: UnaryOperator::Minus, .. }));
    let zero = match count.and_then(syntax::constant::literal) {
        Some(Value::Int(n)) => n == 0,
        Some(Value::UInt(n)) => n == 0,
        _ => false,
    };
    match name {
        "nth_value" if negative || zero => Err(wrong_arguments("nth_value")),
        // Their grammar has no sign there.
        "lag" | "lead" if negative => Err(syntax(format!("{name} takes no negative number"))),
        _ => Ok(()),
    }
}

/// Error 3593 for a window function where rows are still being chosen or grouped.
pub fn misplaced(select: &Select) -> SqlResult<()> {
    struct Search(usize);
    impl Visitor for Search {
        type Break = SqlError;

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
            match expr {
                Expr::Function(Function { name, over: Some(_), .. }) if self.0 == 0 => {
                    let name = name.to_string().to_lowercase();
                    ControlFlow::Break(window_function_here(name))
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    for part in [&select.selection, &select.having].into_iter().flatten() {
        walk(part, &mut Search(0))?;
    }
    walk(&select.group_by, &mut Search(0))
}

/// Takes over what the window that this one starts from says. One that is not among these stays: it may belong to a
/// SELECT within, and is refused later if it does not.
fn start_from(spec: &mut WindowSpec, windows: &[NamedWindowDefinition]) -> SqlResult<()> {
    let Some(name) = &spec.window_name else { return Ok(()) };
    let same = |NamedWindowDefinition(other, _): &&NamedWindowDefinition| {
        other.value.eq_ignore_ascii_case(&name.value)
    };
    let Some(NamedWindowDefinition(_, NamedWindowExpr::WindowSpec(base))) =
        windows.iter().find(same)
    else {
        return Ok(());
    };
    if base.window_name.is_some() {
        return Ok(());
    }
    if !spec.partition_by.is_empty() {
        return Err(window_partitions());
    }
    if base.window_frame.is_some() {
        return Err(window_with_frame(name));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return Err(window_ordered_twice(name));
    }
    spec.partition_by.clone_from(&base.partition_by);
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&base.order_by);
    }
    spec.window_name = None;
    Ok(())
}
