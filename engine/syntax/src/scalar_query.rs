//! An expression with queries in it as a query of one value.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Statement, Visitor};
use values::error::{SqlResult, unknown};

use crate::parser;
use crate::walk::finds;

/// `SELECT expr`; of an expression that is one subquery, that one.
///
/// # Errors
///
/// None that a statement can cause.
pub fn select_of(expr: Expr) -> SqlResult<Query> {
    let expr = match expr {
        Expr::Subquery(query) => return Ok(*query),
        Expr::Nested(inner) if matches!(*inner, Expr::Subquery(_)) => return select_of(*inner),
        expr => expr,
    };
    let Statement::Query(mut query) = parser::parse_sql("SELECT 1")? else {
        return Err(unknown("SELECT 1 is no query"));
    };
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = vec![SelectItem::UnnamedExpr(expr)];
    }
    Ok(*query)
}

/// Whether an expression has a query within.
pub fn has_query(expr: &Expr) -> bool {
    finds(expr, &mut Found)
}

struct Found;

impl Visitor for Found {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}
