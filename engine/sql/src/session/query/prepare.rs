//! PREPARE, EXECUTE and DEALLOCATE as statements, and SELECT … INTO variables.
//!
//! Statements prepared by name are the session's, and apart from those of the binary protocol.

use std::sync::Arc;

use futures::future::BoxFuture;
use sqlparser::ast::{Expr, Query};
use syntax::statement::Stmt;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::coerce::text;
use values::error::{
    SqlResult, different_column_counts, into_several_rows, no_data, not_preparable,
};

use crate::session::{Session, done};
use execution::reply::{Done, Reply};

impl Session {
    /// PREPARE: one of the same name goes first, also if the new one turns out to be wrong.
    pub(in crate::session) async fn prepare_text(
        &mut self,
        name: &str,
        source: Expr,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        self.prepared.make_room(name)?;
        let sql = text(self.evaluate(source, parameters).await?);
        let waiting = self.parsed(&sql)?;
        if let Stmt::Prepare { .. }
        | Stmt::Execute { .. }
        | Stmt::Deallocate(_)
        | Stmt::LoadData(_) = &*waiting.statement
        {
            return Err(not_preparable());
        }
        self.check_privileges(&waiting.statement).await?;
        if let Stmt::Query(query) = &*waiting.statement {
            self.columns_of((**query).clone(), &waiting.unknown_parameters()).await?;
        }
        self.prepared.keep_named(name, waiting);
        Ok(done())
    }

    /// EXECUTE … USING: its parameters are variables.
    pub(in crate::session) async fn execute_text(
        &mut self,
        name: &str,
        using: &[String],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let prepared = self.prepared.named(name, using.len())?;
        let values: Vec<Value> = using.iter().map(|name| self.variables.user(name)).collect();
        self.check_read_only(&prepared.statement)?;
        self.variables.run_in(Some(prepared.database.clone()));
        self.run_again(prepared.statement.clone(), values, cancel).await
    }

    fn run_again<'a>(
        &'a mut self,
        statement: Arc<Stmt>,
        values: Vec<Value>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        Box::pin(async move { self.run(statement, &values, cancel).await })
    }

    /// DEALLOCATE PREPARE.
    pub(in crate::session) fn deallocate(&mut self, name: &str) -> SqlResult<Reply> {
        self.prepared.forget_named(name)?;
        Ok(done())
    }

    /// SELECT … INTO @a, @b: the one row, column by column; without one, the variables stay.
    pub(in crate::session) async fn select_into(
        &mut self,
        query: Query,
        names: &[String],
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        let (width, row) = self.one_row(query, parameters, into_several_rows).await?;
        if width != names.len() {
            return Err(different_column_counts());
        }
        let Some(row) = row else {
            self.diagnostics.warn(no_data());
            return Ok(done());
        };
        for (name, value) in names.iter().zip(row) {
            let value = self.as_seen(value)?;
            self.variables.set_user(name, value);
        }
        Ok(Reply::Done(Done { affected_rows: 1, ..Done::default() }))
    }
}
