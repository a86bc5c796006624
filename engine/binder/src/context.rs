//! Bound queries as typed plans, and expressions ready to evaluate.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr as PlanExpr;
use datafusion::physical_expr::PhysicalExpr;
use functions::warnings::{self, ExprWarnings};
use sqlparser::ast::Expr;
use values::error::SqlResult;

use crate::bound::{self, BoundQuery};
use crate::operators::operators;
use crate::rules::{self, Planning};
use crate::{PlannedSelect, QueryContext, ResolvedTables, quotients};

/// Plans a bound query over the tables that it names. What it was bound with must be what plans it: the same zone and
/// sql_mode, the same versions of tables.
///
/// # Errors
///
/// What operands forbid; 1146 for a table that is not among these.
pub fn plan(
    bound: &BoundQuery,
    context: &QueryContext,
    state: &SessionState,
    resolved: &ResolvedTables,
) -> SqlResult<PlannedSelect> {
    let operators = operators(context)?;
    let plan = bound::lower(bound, resolved, &operators, state)?;
    rules::plan(plan, &Planning { operators: &operators, output: &bound.output, resolved })
}

/// One expression over the columns of a schema, ready to evaluate. Names in the schema are in
/// lower case.
pub fn compile(
    expr: Expr,
    schema: &DFSchema,
    query_context: &QueryContext,
    state: &SessionState,
) -> SqlResult<Arc<dyn PhysicalExpr>> {
    let typed = typed(&expr, schema, query_context, state)?;
    Ok(state.create_physical_expr(typed, schema)?)
}

/// The same, sending its warnings to a statement.
pub fn compile_with_warnings(
    expr: Expr,
    schema: &DFSchema,
    query_context: &QueryContext,
    state: &SessionState,
    expr_warnings: &Arc<ExprWarnings>,
) -> SqlResult<Arc<dyn PhysicalExpr>> {
    let typed = warnings::listen(expr_warnings, || typed(&expr, schema, query_context, state))?;
    let attached = warnings::attach(typed, expr_warnings)?;
    Ok(state.create_physical_expr(attached.data, schema)?)
}

fn typed(
    expr: &Expr,
    schema: &DFSchema,
    context: &QueryContext,
    state: &SessionState,
) -> SqlResult<PlanExpr> {
    let operators = operators(context)?;
    let planned = bound::expression(expr, schema, context, (&operators, state))?;
    let typed = rules::expression(planned, schema, &operators)?;
    Ok(quotients::whole(typed, schema)?)
}
