//! What a statement warns of: its own warnings, and the remarks of its expressions.
//!
//! Both are bounded by max_error_count, and counted beyond it. They stay until the next statement that
//! is not a SHOW of them.

use std::sync::Arc;

use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use sqlparser::ast::Expr;

use super::Session;
use crate::error::SqlResult;
use crate::functions::remarks::Remarks;
use crate::planner;
use crate::result::WarningCount;

/// A remark on the last statement.
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
    /// What its expressions met, if it has any.
    remarks: Option<Arc<Remarks>>,
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

    /// How far it has come: its own, and what its expressions have met.
    pub(super) fn mark(&self) -> (usize, u64) {
        (self.own.len(), self.remarks.as_ref().map_or(0, |remarks| remarks.count()))
    }

    /// Takes back all since a mark.
    pub(super) fn back_to(&mut self, (own, met): (usize, u64)) {
        self.own.truncate(own);
        self.forget_met(met);
    }

    /// Takes back what its expressions have met since a mark.
    pub(super) fn forget_met(&self, met: u64) {
        if let Some(remarks) = &self.remarks {
            remarks.forget_from(met);
        }
    }

    fn bound(&mut self, most: usize) {
        let beyond = self.own.len().saturating_sub(most);
        self.dropped += beyond as u64;
        self.own.truncate(most);
    }

    /// How many there are, kept or not.
    pub(super) fn count(&self) -> u64 {
        let remarked = self.remarks.as_ref().map_or(0, |remarks| remarks.count());
        self.own.len() as u64 + self.dropped + remarked
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

    /// Where the statement's expressions say what they meet.
    pub(super) fn remarks(&mut self) -> Arc<Remarks> {
        if let Some(remarks) = &self.warnings.remarks {
            return remarks.clone();
        }
        let remarks = Arc::new(self.no_remarks());
        self.warnings.remarks = Some(remarks.clone());
        remarks
    }

    fn no_remarks(&self) -> Remarks {
        Remarks::new(self.most_warnings(), self.has_mode("ERROR_FOR_DIVISION_BY_ZERO"))
    }

    fn has_mode(&self, mode: &str) -> bool {
        let sql_mode = self.variables.get("sql_mode").unwrap_or_default();
        sql_mode.split(',').any(|one| one.eq_ignore_ascii_case(mode))
    }

    /// Listens to the expressions of a statement that writes: in strict mode and without IGNORE,
    /// what they meet is its error.
    pub(super) fn listen_writing(&mut self, ignore: bool) {
        let strict = ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"];
        let strict = !ignore && strict.iter().any(|mode| self.has_mode(mode));
        let remarks = self.no_remarks();
        self.warnings.remarks = Some(Arc::new(if strict { remarks.strict() } else { remarks }));
    }

    /// Where expressions say what they meet, if the statement listens.
    pub(super) fn listening(&self) -> Option<Arc<Remarks>> {
        self.warnings.remarks.clone()
    }

    /// An expression over the columns of a schema, ready to evaluate, which is listened to if the
    /// statement listens.
    pub(super) fn compiled(
        &self,
        expr: Expr,
        schema: &DFSchema,
    ) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let (context, state) = (self.context(), &self.engine.state);
        match &self.warnings.remarks {
            Some(remarks) => planner::compile_told(expr, schema, &context, state, remarks),
            None => planner::compile(expr, schema, &context, state),
        }
    }

    /// Takes away what the statement's expressions have met, to put it back later or never.
    pub(super) fn take_remarks(&mut self) -> Option<Arc<Remarks>> {
        self.warnings.remarks.take()
    }

    /// Puts back what was taken.
    pub(super) fn put_remarks(&mut self, remarks: Option<Arc<Remarks>>) {
        self.warnings.remarks = remarks;
    }

    /// How many warnings an answer announces: with rows, more may come until the last.
    pub(super) fn warning_count(&self) -> WarningCount {
        let own = self.warnings.own.len() as u64 + self.warnings.dropped;
        WarningCount::new(own, self.warnings.remarks.clone())
    }

    /// What SHOW WARNINGS lists.
    pub(super) fn diagnostics(&self) -> Vec<Warning> {
        let remarked = self.warnings.remarks.as_ref().map(|remarks| remarks.kept());
        let remarked = remarked.unwrap_or_default().into_iter();
        let remarked = remarked.map(|(code, message)| Warning { level: "Warning", code, message });
        let all = self.warnings.own.iter().cloned().chain(remarked);
        all.take(self.most_warnings()).collect()
    }
}
