//! What a session bounds its queries by: sql_select_limit, max_execution_time, and the count that
//! SQL_CALC_FOUND_ROWS asks for beyond LIMIT.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use execution::BatchStream;
use futures::StreamExt;
use sqlparser::ast::{Expr, LimitClause, Query, SetExpr, Value as SqlValue};
use syntax::hints;
use syntax::statement::Stmt;
use tokio::time::Instant;
use types::Value;
use values::error::{SqlResult, syntax, too_slow};

use crate::session::Session;
use execution::reply::Reply;

impl Session {
    /// SELECT of a client that has begun, within what the session allows.
    pub(in crate::session) async fn limited_select(
        &mut self,
        mut query: Query,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        if query.limit_clause.is_none() && query.fetch.is_none() {
            query.limit_clause = self.select_limit();
        }
        if !take_calc_found_rows(&mut query) {
            return self.found(query, parameters).await;
        }
        let window = match query.limit_clause.take() {
            Some(mut limit) => {
                self.inline(&mut limit, parameters).await?;
                window(&limit)?
            }
            None => (0, u64::MAX),
        };
        let reply = self.found(query, parameters).await?;
        Ok(match reply {
            Reply::Rows { columns, batches, warnings } => {
                let found = self.diagnostics.count_beyond_limit();
                Reply::Rows { columns, batches: within(batches, window, found), warnings }
            }
            other => other,
        })
    }

    fn select_limit(&self) -> Option<LimitClause> {
        let most = self.variables.most_rows()?.to_string();
        let limit = Some(Expr::value(SqlValue::Number(most, false)));
        Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() })
    }

    /// When a statement must have ended, if it is a query and a time was set for it.
    pub(in crate::session) fn deadline(&self, statement: &Stmt) -> Option<Instant> {
        // EXECUTE is the statement that it runs.
        let statement = match statement {
            Stmt::Execute { name, .. } => self.prepared.of_name(name)?,
            statement => statement,
        };
        let Stmt::Query(query) = statement else { return None };
        let hinted = match &*query.body {
            SetExpr::Select(select) => {
                select.optimizer_hints.iter().find_map(|hint| hints::parse(&hint.text).milliseconds)
            }
            _ => None,
        };
        let limit = hinted.or_else(|| self.variables.most_milliseconds())?;
        (limit > 0).then(|| Instant::now() + Duration::from_millis(limit))
    }
}

/// Whether a query asks for the count; it no longer does afterwards.
fn take_calc_found_rows(query: &mut Query) -> bool {
    let mut body = &mut *query.body;
    // Of a UNION, the first SELECT says it.
    while let SetExpr::SetOperation { left, .. } = body {
        body = left;
    }
    match body {
        SetExpr::Select(select) => select
            .select_modifiers
            .as_mut()
            .is_some_and(|modifiers| std::mem::take(&mut modifiers.sql_calc_found_rows)),
        _ => false,
    }
}

/// Rows to leave out and rows to give.
fn window(limit: &LimitClause) -> SqlResult<(u64, u64)> {
    let number = |expr: &Expr| match syntax::constant::literal(expr) {
        Some(Value::Int(n)) if n >= 0 => Ok(n.unsigned_abs()),
        Some(Value::UInt(n)) => Ok(n),
        _ => Err(syntax(format!("LIMIT takes whole numbers, not {expr}"))),
    };
    let (offset, limit) = match limit {
        LimitClause::LimitOffset { limit, offset, .. } => {
            (offset.as_ref().map(|offset| &offset.value), limit.as_ref())
        }
        LimitClause::OffsetCommaLimit { offset, limit } => (Some(offset), Some(limit)),
    };
    Ok((offset.map_or(Ok(0), number)?, limit.map_or(Ok(u64::MAX), number)?))
}

/// The rows of a window; all of them are counted.
fn within(batches: BatchStream, (skip, most): (u64, u64), found: Arc<AtomicU64>) -> BatchStream {
    let end = skip.saturating_add(most);
    Box::pin(batches.filter_map(move |batch| {
        let part = batch.map(|batch| {
            let rows = batch.num_rows() as u64;
            let first = found.fetch_add(rows, Ordering::AcqRel);
            // Within the batch both fit.
            let from = skip.saturating_sub(first).min(rows) as usize;
            let to = end.saturating_sub(first).min(rows) as usize;
            (from < to).then(|| batch.slice(from, to - from))
        });
        futures::future::ready(part.transpose())
    }))
}

/// Waits until the deadline, if there is one.
pub(in crate::session) async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Batches up to the deadline, then error 3024.
pub(in crate::session) fn until(batches: BatchStream, deadline: Option<Instant>) -> BatchStream {
    let Some(deadline) = deadline else { return batches };
    Box::pin(futures::stream::unfold(Some(batches), move |batches| async move {
        let mut batches = batches?;
        match tokio::time::timeout_at(deadline, batches.next()).await {
            Ok(batch) => batch.map(|batch| (batch, Some(batches))),
            Err(_) => Some((Err(too_slow()), None)),
        }
    }))
}
