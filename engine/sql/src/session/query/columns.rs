//! A query that columns are to answer: run, planned anew where its table has changed meanwhile, and
//! what becomes of it when no columnar replica can answer.
//!
//! It must never let rows do the work of columns unasked: a full scan on the leaders would be paid
//! for by the online path.

use sqlparser::ast::Query;
use syntax::{hints, names};
use values::error::{
    COLUMNS_TIMEOUT, COLUMNS_UNAVAILABLE, SqlError, SqlResult, TABLE_CHANGED, UNAVAILABLE,
    UNSUPPORTED, answered_from_rows, no_engine_answers,
};

use super::last_query::AnsweredBy;
use super::prepared::Prepared;
use crate::session::{ATTEMPTS, Session, pause};
use execution::reply::{Reply, WarningCount};

/// Errors that say nothing about the query itself: a replica, a node, or a way of running it is
/// missing.
const OF_THE_TIER: [u16; 4] = [UNSUPPORTED, UNAVAILABLE, COLUMNS_TIMEOUT, COLUMNS_UNAVAILABLE];

/// Who answers.
pub(in crate::session) enum Answer {
    /// Columns.
    Columns(Reply),
    /// Rows, as they may, by this plan.
    Rows(Box<Prepared>),
}

impl Session {
    /// Has columns answer. The tier has tried every replica when it fails; then rows answer if the
    /// query reads little of them, or if the session wants that (`isobar_fallback`).
    pub(in crate::session) async fn by_columns(
        &mut self,
        query: Query,
        mut prepared: Box<Prepared>,
        displayed: &[names::Displayed],
    ) -> SqlResult<Answer> {
        let mut attempt = 0;
        loop {
            let error = match self.on_columns(&prepared).await {
                Ok((mut columns, batches, by)) => {
                    let (route, at) = (prepared.route, prepared.reader.ts());
                    self.note_query(AnsweredBy::Route { route, columns: Some(by) }, at);
                    binder::rename(&mut columns, displayed);
                    // The warnings of expressions on other nodes are not sent here; then those that
                    // were computed here give none either.
                    self.diagnostics.listen_no_more();
                    let warnings = WarningCount::default();
                    return Ok(Answer::Columns(Reply::Rows { columns, batches, warnings }));
                }
                Err(error) => error,
            };
            attempt += 1;
            // A table changes in several versions when its columns change.
            if error.code == TABLE_CHANGED && attempt < ATTEMPTS {
                pause(attempt).await;
                self.engine.storage.timestamp().await?;
                let source = self.reader().await?;
                self.diagnostics.listen_no_more();
                let expr_warnings = self.expr_warnings();
                *prepared = self.routed_from(query.clone(), source, expr_warnings).await?;
                if let Some(why) = &prepared.route.refused {
                    return Err(no_engine_answers(why));
                }
                if prepared.route.engine == hints::Engine::Rows {
                    return Ok(Answer::Rows(prepared));
                }
                continue;
            }
            // What is wrong with the query itself, planning it here says.
            self.planned(&mut prepared)?;
            if !self.rows_may_answer(&mut prepared)? {
                return Err(self.not_scanned(error));
            }
            let warning = answered_from_rows(error.message);
            prepared.route.engine = hints::Engine::Rows;
            prepared.route.reasons.iter_mut().for_each(|(_, why)| why.clone_from(&warning.message));
            self.diagnostics.warn(warning);
            return Ok(Answer::Rows(prepared));
        }
    }

    /// Whether rows may answer in the place of columns: where the session says so, or where they
    /// read by key or a small range only.
    pub(super) fn rows_may_answer(&self, prepared: &mut Prepared) -> SqlResult<bool> {
        if !self.variables.read_engines().0 {
            return Ok(false);
        }
        Ok(self.variables.falls_back() || self.optimized(prepared)?.reads_little())
    }

    /// The error of a query that no columnar replica answered, with what can be done.
    pub(super) fn not_scanned(&self, mut error: SqlError) -> SqlError {
        if OF_THE_TIER.contains(&error.code) && self.variables.read_engines().0 {
            error.message.push_str(
                "; rows are not scanned in the place of columns unless SET isobar_fallback = 'rows' \
                 or a hint READ_FROM_STORAGE(ROWS[…]) asks for it",
            );
        }
        error
    }
}
