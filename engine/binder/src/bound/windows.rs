//! Window functions bound. Windows with names are written out first, by the rules of [`crate::windows`].

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::functions_window::all_default_window_functions;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Expr as PlanExpr, ExprSchemable, WindowFunctionDefinition, WindowUDF,
};
use sqlparser::ast::{
    Expr, Function, FunctionArgumentList, NamedWindowDefinition, NamedWindowExpr, OrderByExpr,
    Query, Select, SelectItem, Visitor, VisitorMut, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};
use syntax::walk::{finds, walk_mut};
use types::{ColumnType, Value};
use values::error::{
    SqlError, SqlResult, no_window, syntax, unknown, unsupported, window_function_here,
};
use values::mysql_type::{MysqlType, NOT_FIXED};

use super::call_types::{arrow, of_arrow};
use super::groups;
use super::scalars::Scalars;
use super::tree::{Bound, ColumnId, Distance, Frame, Node, Scalar, WindowCall};
use crate::windows;

/// The calls of a query's window functions so far.
pub type Windows = Vec<(ColumnId, WindowCall)>;

/// Functions whose value is one of their argument's.
const CHOOSING: [&str; 7] = ["lag", "lead", "first_value", "last_value", "nth_value", "min", "max"];

/// The function of a name that is called over windows: one of theirs, else an aggregate.
pub fn function(name: &str) -> Option<WindowFunctionDefinition> {
    static ALL: OnceLock<HashMap<String, Arc<WindowUDF>>> = OnceLock::new();
    let all = || {
        let functions = all_default_window_functions().into_iter();
        functions.map(|function| (function.name().to_owned(), function)).collect()
    };
    if windows::ONLY.contains(&name) {
        let function = ALL.get_or_init(all).get(name)?;
        return Some(WindowFunctionDefinition::WindowUDF(function.clone()));
    }
    groups::aggregate(name).map(WindowFunctionDefinition::AggregateUDF)
}

/// What a SELECT shows and is sorted by, where no window has a name any more.
pub struct Written {
    pub items: Vec<SelectItem>,
    pub orders: Vec<OrderByExpr>,
}

/// The windows of a SELECT and its order written out; `None` if it has none.
///
/// # Errors
///
/// MySQL's for windows that cannot start from others, or that there are not.
pub fn written_out(select: &Select, orders: &[OrderByExpr]) -> SqlResult<Option<Written>> {
    let has_windows = |by: &OrderByExpr| finds(&by.expr, &mut Over::default());
    if !finds(&select.projection, &mut Over::default()) && !orders.iter().any(has_windows) {
        return Ok(None);
    }
    let mut written = Select { from: Vec::new(), selection: None, ..select.clone() };
    let order = orders.iter().map(|by| SelectItem::UnnamedExpr(by.expr.clone()));
    written.projection.extend(order);
    windows::write_out(&mut written)?;
    windows::bounds(&mut written)?;
    let named = std::mem::take(&mut written.named_window);
    walk_mut(&mut written.projection, &mut Names { named: &named, depth: 0 })?;
    let mut items = written.projection;
    let behind = items.split_off(select.projection.len());
    let order = |(by, item): (&OrderByExpr, SelectItem)| match item {
        SelectItem::UnnamedExpr(expr) => OrderByExpr { expr, ..by.clone() },
        _ => by.clone(),
    };
    let orders = orders.iter().zip(behind).map(order).collect();
    Ok(Some(Written { items, orders }))
}

/// Looks for a window, not within queries.
#[derive(Default)]
struct Over {
    depth: usize,
}

impl Visitor for Over {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(Function { over: Some(_), .. }) if self.depth == 0 => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Puts windows in the place of their names, not within queries.
struct Names<'a> {
    named: &'a [NamedWindowDefinition],
    depth: usize,
}

impl VisitorMut for Names<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(Function { over: Some(over), .. }) = expr
            && let WindowType::NamedWindow(name) = over
            && self.depth == 0
        {
            match spec_of(&name.value, self.named, self.named.len()) {
                Some(spec) => *over = WindowType::WindowSpec(spec),
                None => return ControlFlow::Break(no_window(&name.value)),
            }
        }
        ControlFlow::Continue(())
    }
}

/// The window of a name, at most so many names away.
fn spec_of(name: &str, named: &[NamedWindowDefinition], steps: usize) -> Option<WindowSpec> {
    let steps = steps.checked_sub(1)?;
    let is_it = |NamedWindowDefinition(other, _): &&NamedWindowDefinition| {
        other.value.eq_ignore_ascii_case(name)
    };
    match named.iter().find(is_it)? {
        NamedWindowDefinition(_, NamedWindowExpr::WindowSpec(spec)) => Some(spec.clone()),
        NamedWindowDefinition(_, NamedWindowExpr::NamedWindow(other)) => {
            spec_of(&other.value, named, steps)
        }
    }
}

impl Scalars<'_, '_> {
    /// A window function, as a column of the rows that have it.
    pub(super) fn window(
        &self,
        name: &str,
        over: &WindowType,
        list: &FunctionArgumentList,
    ) -> SqlResult<Scalar> {
        let Some(windows) = self.windows else {
            return Err(window_function_here(name));
        };
        if function(name).is_none() {
            return Err(syntax(format!("{name} is no function of a window")));
        }
        let WindowType::WindowSpec(spec) = over else {
            return Err(unknown("a window has no specification"));
        };
        if let Some(base) = &spec.window_name {
            return Err(no_window(&base.value));
        }
        if list.duplicate_treatment.is_some() {
            return Err(unsupported("DISTINCT over a window"));
        }
        // What an item of the select list is called is no name within one.
        let within = Scalars { windows: None, named: &[], ..*self };
        let args = within.values(list)?;
        let is_literal = |scalar: &Scalar| matches!(scalar.node, Node::Literal(_));
        let mut partition = Vec::with_capacity(spec.partition_by.len());
        for expr in &spec.partition_by {
            partition.push(within.value(expr)?);
        }
        partition.retain(|by| !is_literal(by));
        let order = spec.order_by.iter().map(|by| within.ordered(by));
        let order = order.collect::<SqlResult<Vec<_>>>()?;
        let frame = frame(spec.window_frame.as_ref(), !order.is_empty())?;
        let ty = type_of(name, &args)?;
        let call = WindowCall { function: name.to_owned(), args, partition, order, frame };
        let mut windows = windows.borrow_mut();
        let known = windows.iter().find(|(_, known)| *known == call).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            let id = self.binder.next();
            windows.push((id, call));
            id
        });
        Ok(Scalar { node: Node::Window(id), ty })
    }
}

/// Which rows a window has: without bounds those up to the ones that tie with the row, or all where there is no order.
fn frame(written: Option<&WindowFrame>, ordered: bool) -> SqlResult<Frame> {
    let Some(WindowFrame { units, start_bound, end_bound }) = written else {
        let end = if ordered { Bound::CurrentRow } else { Bound::Following(None) };
        return Ok(Frame { rows: !ordered, start: Bound::Preceding(None), end });
    };
    let rows = match units {
        WindowFrameUnits::Rows => true,
        WindowFrameUnits::Range => false,
        WindowFrameUnits::Groups => return Err(unsupported("a frame of GROUPS")),
    };
    let start = bound(start_bound, rows)?;
    let end = end_bound.as_ref().map_or(Ok(Bound::CurrentRow), |end| bound(end, rows))?;
    match (&start, &end) {
        (Bound::Following(None), _) | (_, Bound::Preceding(None)) => {
            Err(syntax("a frame ends before it begins"))
        }
        _ => Ok(Frame { rows, start, end }),
    }
}

fn bound(written: &WindowFrameBound, rows: bool) -> SqlResult<Bound> {
    let odd = || syntax(format!("'{written}' is no bound of a frame"));
    let distance = |distance: &Option<Box<Expr>>| match distance.as_deref() {
        None => Ok(None),
        Some(Expr::Interval(interval)) if !rows => match syntax::constant::literal(&interval.value)
        {
            Some(Value::String(text)) => Ok(Some(Distance::Interval(text))),
            _ => Err(odd()),
        },
        Some(expr) => match (syntax::constant::literal(expr), rows) {
            (Some(Value::Int(n)), _) if n >= 0 => Ok(Some(Distance::Number(n.to_string()))),
            // A parameter that has no value yet.
            (Some(Value::Null), _) => Ok(Some(Distance::Number("0".to_owned()))),
            (Some(Value::Decimal(n)), false) => Ok(Some(Distance::Number(n.to_string()))),
            _ => Err(odd()),
        },
    };
    Ok(match written {
        WindowFrameBound::CurrentRow => Bound::CurrentRow,
        WindowFrameBound::Preceding(by) => Bound::Preceding(distance(by)?),
        WindowFrameBound::Following(by) => Bound::Following(distance(by)?),
    })
}

/// The type of a window function's value.
///
/// # Errors
///
/// What the function says of its arguments' types.
pub fn type_of(name: &str, args: &[Scalar]) -> SqlResult<MysqlType> {
    let function =
        function(name).ok_or_else(|| unknown(format!("function {name} is not registered")))?;
    if let WindowFunctionDefinition::AggregateUDF(function) = &function {
        return groups::type_of(name, function, args);
    }
    let field = |(at, arg): (usize, &Scalar)| Field::new(at.to_string(), arrow(&arg.ty), true);
    let fields: Vec<Field> = args.iter().enumerate().map(field).collect();
    let columns =
        fields.iter().map(|field| PlanExpr::Column(Column::new_unqualified(field.name())));
    let call = PlanExpr::from(WindowFunction::new(function, columns.collect()));
    let schema = DFSchema::from_unqualified_fields(fields.into(), HashMap::new())?;
    let ty = call.get_type(&schema)?;
    let chosen = CHOOSING.contains(&name);
    let year = |arg: &Scalar| arg.ty.column == Some(ColumnType::Year);
    if chosen && args.first().is_some_and(year) {
        return Ok(MysqlType::of_column(ColumnType::Year));
    }
    let fraction = args.iter().map(|arg| arg.ty.fraction()).max().unwrap_or(0);
    let digits = args.first().filter(|_| chosen).map_or(NOT_FIXED, |arg| arg.ty.digits);
    Ok(of_arrow(&ty, fraction, digits))
}
