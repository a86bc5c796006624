//! Bound queries as typed plans, and expressions ready to evaluate.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Expr as PlanExpr;
use datafusion::physical_expr::PhysicalExpr;
use functions::warnings::{self, ExprWarnings};
use sqlparser::ast::Expr;
use values::error::SqlResult;

use crate::bound::{self, BoundQuery, ColumnId, Scalar};
use crate::operators::{MysqlOperators, operators};
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

/// What turns expressions over the columns of a schema into what evaluates them.
pub struct Compiler<'a> {
    /// The columns. Names are in lower case.
    pub schema: &'a DFSchema,
    /// What gives expressions their meaning.
    pub context: &'a QueryContext,
    /// Where functions are by their names.
    pub state: &'a SessionState,
    /// Where the warnings of the expressions go.
    pub expr_warnings: Option<&'a Arc<ExprWarnings>>,
}

impl Compiler<'_> {
    /// An expression of the text.
    ///
    /// # Errors
    ///
    /// MySQL's where it is wrong.
    pub fn text(&self, expr: &Expr) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let Compiler { schema, context, state, .. } = *self;
        self.compiled(|operators| bound::expression(expr, schema, context, (operators, state)))
    }

    /// An expression that is bound to these columns, which are the schema's.
    ///
    /// # Errors
    ///
    /// What the types of operands forbid.
    pub fn bound(&self, scalar: &Scalar, columns: &[ColumnId]) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let Compiler { schema, state, .. } = *self;
        self.compiled(|operators| bound::of_row(scalar, (columns, schema), (operators, state)))
    }

    fn compiled(
        &self,
        planned: impl FnOnce(&MysqlOperators) -> SqlResult<PlanExpr>,
    ) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let Compiler { schema, context, state, expr_warnings } = *self;
        let operators = operators(context)?;
        let typed = || -> SqlResult<PlanExpr> {
            let typed = rules::expression(planned(&operators)?, schema, &operators)?;
            Ok(quotients::whole(typed, schema)?)
        };
        let typed = match expr_warnings {
            Some(expr_warnings) => {
                let typed = warnings::listen(expr_warnings, typed)?;
                warnings::attach(typed, expr_warnings)?.data
            }
            None => typed()?,
        };
        Ok(state.create_physical_expr(typed, schema)?)
    }
}
