//! The warnings of a statement: its own, and those of its expressions.
//!
//! Both are bounded by max_error_count, and counted beyond it. They stay until the next statement that
//! is not a SHOW of them.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use functions::warnings::ExprWarnings;
use sqlparser::ast::Expr;
use values::error::SqlResult;

use super::Session;
use crate::result::WarningCount;

/// A warning or note of the last statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// `Note`, `Warning` or `Error`.
    pub level: &'static str,
    /// MySQL's number.
    pub code: u16,
    /// What.
    pub message: String,
}

/// The warnings of a session's last statement.
#[derive(Default)]
pub(super) struct Warnings {
    own: Vec<Warning>,
    /// How many of its own were not kept.
    dropped: u64,
    /// The warnings of its expressions, if it has any expressions.
    expr_warnings: Option<Arc<ExprWarnings>>,
    /// How many warnings, and errors among them, the statement before it had.
    before: (u64, u64),
}

impl Warnings {
    /// Begins those of another statement.
    pub(super) fn begin(&mut self) {
        *self = Warnings { before: self.counts(), ..Warnings::default() };
    }

    /// Adds one.
    pub(super) fn push(&mut self, warning: Warning) {
        self.own.push(warning);
    }

    /// Adds several.
    pub(super) fn extend(&mut self, warnings: impl IntoIterator<Item = Warning>) {
        self.own.extend(warnings);
    }

    /// How many of its own the statement has so far.
    pub(super) fn len(&self) -> usize {
        self.own.len()
    }

    /// How many there are so far: its own, and those of its expressions.
    pub(super) fn mark(&self) -> (usize, u64) {
        (self.own.len(), self.expr_warnings.as_ref().map_or(0, |warnings| warnings.count()))
    }

    /// Takes back all since a mark.
    pub(super) fn back_to(&mut self, (own, of_exprs): (usize, u64)) {
        self.own.truncate(own);
        self.forget_expr_warnings(of_exprs);
    }

    /// Takes back the warnings of its expressions since a mark.
    pub(super) fn forget_expr_warnings(&self, from: u64) {
        if let Some(expr_warnings) = &self.expr_warnings {
            expr_warnings.forget_from(from);
        }
    }

    fn bound(&mut self, most: usize) {
        let beyond = self.own.len().saturating_sub(most);
        self.dropped += beyond as u64;
        self.own.truncate(most);
    }

    /// How many there are, kept or not.
    pub(super) fn count(&self) -> u64 {
        let of_exprs = self.expr_warnings.as_ref().map_or(0, |warnings| warnings.count());
        self.own.len() as u64 + self.dropped + of_exprs
    }

    /// How many there are, and how many errors among them.
    pub(super) fn counts(&self) -> (u64, u64) {
        let errors = self.own.iter().filter(|warning| warning.level == "Error").count();
        (self.count(), errors as u64)
    }

    /// What `@@warning_count` and `@@error_count` say: of the statement before.
    pub(super) fn counted_before(&self) -> (u64, u64) {
        self.before
    }
}

impl Session {
    pub(super) fn warn(&mut self, code: u16, message: impl Into<String>) {
        self.warnings.push(Warning { level: "Warning", code, message: message.into() });
    }

    pub(super) fn note(&mut self, code: u16, message: impl Into<String>) {
        if self.variables.get("sql_notes").is_ok_and(|notes| notes == "OFF") {
            return;
        }
        self.warnings.push(Warning { level: "Note", code, message: message.into() });
    }

    /// How many warnings are kept.
    fn most_warnings(&self) -> usize {
        let most = self.variables.get("max_error_count").ok();
        most.and_then(|most| most.parse().ok()).unwrap_or(1024)
    }

    /// Keeps no more warnings than are to be kept.
    pub(super) fn bound_warnings(&mut self) {
        if self.warnings.len() > 0 {
            let most = self.most_warnings();
            self.warnings.bound(most);
        }
    }

    /// Where the warnings of the statement's expressions go.
    pub(super) fn expr_warnings(&mut self) -> Arc<ExprWarnings> {
        if let Some(expr_warnings) = &self.warnings.expr_warnings {
            return expr_warnings.clone();
        }
        let expr_warnings = Arc::new(self.new_expr_warnings());
        self.warnings.expr_warnings = Some(expr_warnings.clone());
        expr_warnings
    }

    fn new_expr_warnings(&self) -> ExprWarnings {
        ExprWarnings::new(self.most_warnings(), self.has_mode("ERROR_FOR_DIVISION_BY_ZERO"))
    }

    fn has_mode(&self, mode: &str) -> bool {
        let sql_mode = self.variables.get("sql_mode").unwrap_or_default();
        sql_mode.split(',').any(|one| one.eq_ignore_ascii_case(mode))
    }

    /// Listens to the expressions of a statement that writes: in strict mode and without IGNORE,
    /// their warnings are its errors.
    pub(super) fn listen_writing(&mut self, ignore: bool) {
        let strict = ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"];
        let strict = !ignore && strict.iter().any(|mode| self.has_mode(mode));
        let expr_warnings = self.new_expr_warnings();
        self.warnings.expr_warnings =
            Some(Arc::new(if strict { expr_warnings.strict() } else { expr_warnings }));
    }

    /// Where warnings of expressions go, if the statement listens.
    pub(super) fn listening(&self) -> Option<Arc<ExprWarnings>> {
        self.warnings.expr_warnings.clone()
    }

    /// An expression over the columns of a schema, ready to evaluate, which is listened to if the
    /// statement listens.
    pub(super) fn compiled(
        &self,
        expr: Expr,
        schema: &DFSchema,
    ) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let (context, state) = (self.context(), &self.engine.state);
        match &self.warnings.expr_warnings {
            Some(expr_warnings) => {
                binder::compile_with_warnings(expr, schema, &context, state, expr_warnings)
            }
            None => binder::compile(expr, schema, &context, state),
        }
    }

    /// Takes away the warnings of the statement's expressions, to put them back later or never.
    pub(super) fn take_expr_warnings(&mut self) -> Option<Arc<ExprWarnings>> {
        self.warnings.expr_warnings.take()
    }

    /// Puts back what was taken.
    pub(super) fn put_expr_warnings(&mut self, expr_warnings: Option<Arc<ExprWarnings>>) {
        self.warnings.expr_warnings = expr_warnings;
    }

    /// How many warnings an answer announces: with rows, more may come until the last.
    pub(super) fn warning_count(&self) -> WarningCount {
        let own = self.warnings.own.len() as u64 + self.warnings.dropped;
        WarningCount::new(own, self.warnings.expr_warnings.clone())
    }

    /// What SHOW WARNINGS lists.
    pub(super) fn diagnostics(&self) -> Vec<Warning> {
        let of_exprs = self.warnings.expr_warnings.as_ref().map(|warnings| warnings.kept());
        let of_exprs = of_exprs.unwrap_or_default().into_iter();
        let of_exprs = of_exprs.map(|(code, message)| Warning { level: "Warning", code, message });
        let all = self.warnings.own.iter().cloned().chain(of_exprs);
        all.take(self.most_warnings()).collect()
    }
}
