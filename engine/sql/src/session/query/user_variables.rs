//! `@v := expr` as an item of a select list, and in DO.
//!
//! It is carried out before the SELECT is planned, which therefore has the value and nothing to
//! assign. So it stands only where it would be carried out exactly once: in a SELECT without a table,
//! as a whole item. Elsewhere it is refused by name when variables are written into a statement.

use futures::future::BoxFuture;
use sqlparser::ast::{BinaryOperator, Expr, Query, Select, SelectItem, SetExpr, TableFactor};
use syntax::names::parts;
use types::Value;
use values::error::{SqlError, SqlResult, assignment_within_expression, unsupported};

use crate::session::Session;

/// Error 1235 for an assignment that cannot be carried out where it stands.
pub(super) fn misplaced() -> SqlError {
    unsupported(
        "':=' but as an item of a SELECT without a table, for rows have no order (use SET, or SELECT … INTO @v)",
    )
}

impl Session {
    /// Carries out the assignments of a select list, item by item: later items read the new values.
    pub(super) async fn assign_items(
        &mut self,
        query: &mut Query,
        parameters: &[Value],
    ) -> SqlResult<()> {
        let Some(select) = assigning(query) else { return Ok(()) };
        for item in &mut select.projection {
            let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
            else {
                continue;
            };
            if assignment(expr).is_some() {
                let value = self.assign(expr.clone(), parameters).await?;
                *expr = syntax::constant::expression(&value);
            } else {
                self.inline(expr, parameters).await?;
            }
        }
        Ok(())
    }

    /// The value of an expression, which variables are set to that it begins with. Boxed, for it may
    /// be a subquery.
    pub(in crate::session) fn assign<'a>(
        &'a mut self,
        mut expr: Expr,
        parameters: &'a [Value],
    ) -> BoxFuture<'a, SqlResult<Value>> {
        Box::pin(async move {
            let mut names = Vec::new();
            while let Some((name, value)) = assignment(&expr) {
                names.push(name);
                expr = value.clone();
            }
            let value = self.evaluate(expr, parameters).await?;
            for name in names.into_iter().rev() {
                self.variables.set_user(&name, value.clone());
                self.diagnostics.warn(assignment_within_expression());
            }
            Ok(value)
        })
    }
}

/// Leaves of assignments what they assign: for whoever only describes a statement.
pub(super) fn without_assignments(query: &mut Query) {
    let Some(select) = assigning(query) else { return };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            while let Some((_, value)) = assignment(expr) {
                *expr = value.clone();
            }
        }
    }
}

/// A SELECT that gives exactly one row and has an assignment in its list.
fn assigning(query: &mut Query) -> Option<&mut Select> {
    let one = query.with.is_none() && query.order_by.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = &mut *query.body else { return None };
    let dual = match &select.from[..] {
        [] => true,
        [only] => {
            let named = &only.relation;
            only.joins.is_empty()
                && matches!(named, TableFactor::Table { name, .. } if parts(name) == ["dual"])
        }
        _ => false,
    };
    let alone = one && dual && select.selection.is_none() && select.having.is_none();
    let assigns = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            assignment(expr).is_some()
        }
        _ => false,
    };
    (alone && select.projection.iter().any(assigns)).then_some(&mut **select)
}

/// The name and the value of an assignment.
fn assignment(expr: &Expr) -> Option<(String, &Expr)> {
    match expr {
        Expr::Nested(inner) => assignment(inner),
        Expr::BinaryOp { left, op: BinaryOperator::Assignment, right } => match &**left {
            Expr::Identifier(name) => {
                Some((name.value.strip_prefix('@')?.to_lowercase(), &**right))
            }
            _ => None,
        },
        _ => None,
    }
}
