//! One expression over the columns of a schema: a default, a check, what a row is assigned.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Column, DFSchema};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr as PlanExpr;
use sqlparser::ast::Expr;
use values::error::SqlResult;

use super::lower::Lowering;
use super::query::Binder;
use super::scope::{Clause, Scope};
use super::tree::{ColumnId, Scalar};
use crate::QueryContext;
use crate::operators::MysqlOperators;

/// Binds an expression over the columns of a schema, and makes one of a plan of it.
///
/// # Errors
///
/// MySQL's where it is wrong.
pub fn expression(
    expr: &Expr,
    schema: &DFSchema,
    context: &QueryContext,
    (operators, state): (&MysqlOperators, &SessionState),
) -> SqlResult<PlanExpr> {
    let (tables, count) = (HashMap::new(), Cell::new(0));
    let mut scope = Scope::default();
    let mut columns = HashMap::new();
    for (qualifier, field) in schema.iter() {
        count.set(count.get() + 1);
        let id = scope.add_field(qualifier, field, count.get());
        columns.insert(id, (Column::from((qualifier, field)), Arc::clone(field)));
    }
    let binder = Binder { scope, ..Binder::new(context, &tables, &count) };
    let plain = binder.plain(expr)?;
    let scalar = binder.scalars(Clause::FieldList, &plain).bind(&plain.expr)?;
    let scalar = binder.values(scalar, true)?;
    Lowering::of_columns(columns, &tables, operators, state).scalar(&scalar, schema)
}

/// A plan's expression of one that is bound to these columns of a schema, in its order.
///
/// # Errors
///
/// What the types of operands forbid.
pub fn of_row(
    scalar: &Scalar,
    (columns, schema): (&[ColumnId], &DFSchema),
    (operators, state): (&MysqlOperators, &SessionState),
) -> SqlResult<PlanExpr> {
    let places = columns.iter().copied().zip(schema.iter());
    let places =
        places.map(|(id, (of, field))| (id, (Column::from((of, field)), Arc::clone(field))));
    Lowering::of_columns(places.collect(), &HashMap::new(), operators, state).scalar(scalar, schema)
}
