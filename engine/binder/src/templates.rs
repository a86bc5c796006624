//! Queries that a rewrite puts around parts of the client's: written as text with holes, and the
//! holes then filled with trees.
//!
//! Only fixed texts are parsed here, never a client's: a part of it goes in as a tree, so that
//! nothing is quoted twice.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Query, SetExpr, Statement, TableFactor, VisitorMut};
use syntax::walk::walk_mut;
use values::error::{SqlResult, unknown};

/// The query that a text spells.
pub fn query(text: &str) -> SqlResult<Query> {
    match syntax::parser::parse_sql(text)? {
        Statement::Query(query) => Ok(*query),
        _ => Err(unknown(format!("a rewrite is no query: {text}"))),
    }
}

/// Puts an expression where the text has this name, outside of subqueries already filled in.
pub fn fill_expr(query: &mut Query, hole: &str, expr: &Expr) {
    _ = walk_mut(query, &mut Exprs { hole, expr });
}

/// Puts a query where the text has a derived table of this name: at the first, since what was
/// filled in before may have others.
pub fn fill_query(query: &mut Query, hole: &str, subquery: &Query) {
    _ = walk_mut(query, &mut Queries { hole, subquery });
}

/// A query of nothing but a body.
pub fn query_of(body: SetExpr) -> Query {
    Query {
        with: None,
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

struct Exprs<'a> {
    hole: &'a str,
    expr: &'a Expr,
}

impl VisitorMut for Exprs<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Identifier(name) if name.value == self.hole) {
            *expr = Expr::Nested(Box::new(self.expr.clone()));
        }
        ControlFlow::Continue(())
    }
}

struct Queries<'a> {
    hole: &'a str,
    subquery: &'a Query,
}

impl VisitorMut for Queries<'_> {
    type Break = ();

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Derived { subquery, alias: Some(alias), .. } = factor
            && alias.name.value == self.hole
        {
            **subquery = self.subquery.clone();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
