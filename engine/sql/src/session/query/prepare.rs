//! PREPARE, EXECUTE and DEALLOCATE as statements, and SELECT … INTO variables.
//!
//! Statements prepared by name are the session's, and apart from those of the binary protocol.

use futures::future::BoxFuture;
use sqlparser::ast::{Expr, Query};
use syntax::parser;
use syntax::statement::Stmt;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::coerce::text;
use values::error::{SqlError, SqlResult};

use crate::result::{Done, Reply};
use crate::session::{Session, Waiting, done};

/// Most statements that a session prepares by name.
const MOST: usize = 16_382;

impl Session {
    /// PREPARE: one of the same name goes first, also if the new one turns out to be wrong.
    pub(in crate::session) async fn prepare_text(
        &mut self,
        name: &str,
        source: Expr,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        let name = name.to_lowercase();
        self.named.remove(&name);
        if self.named.len() >= MOST {
            let text = format!(
                "Can't create more than max_prepared_stmt_count statements (current value: {MOST})"
            );
            return Err(SqlError::new(1461, b"42000", text));
        }
        let sql = text(self.evaluate(source, parameters).await?);
        let waiting = self.parsed(&sql)?;
        if let Stmt::Prepare { .. }
        | Stmt::Execute { .. }
        | Stmt::Deallocate(_)
        | Stmt::LoadData(_) = waiting.statement
        {
            let text = "This command is not supported in the prepared statement protocol yet";
            return Err(SqlError::new(1295, b"HY000", text));
        }
        self.check_privileges(&waiting.statement).await?;
        if let Stmt::Query(query) = &waiting.statement {
            let unknown = vec![Value::Null; waiting.parameters];
            self.columns_of((**query).clone(), &unknown).await?;
        }
        self.named.insert(name, waiting);
        Ok(done())
    }

    /// A statement and how many parameters it takes, as the session's sql_mode reads it.
    fn parsed(&self, sql: &str) -> SqlResult<Waiting> {
        let dialect = self.dialect();
        let statement = parser::parse_in(sql, &dialect)?;
        Ok(Waiting { statement, parameters: parser::placeholders(sql, &dialect)? })
    }

    /// EXECUTE … USING: its parameters are variables.
    pub(in crate::session) async fn execute_text(
        &mut self,
        name: &str,
        using: &[String],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let Some(waiting) = self.named.get(&name.to_lowercase()).cloned() else {
            return Err(unknown_handler(name, "EXECUTE"));
        };
        if waiting.parameters != using.len() {
            return Err(SqlError::new(1210, b"HY000", "Incorrect arguments to EXECUTE"));
        }
        let values: Vec<Value> = using.iter().map(|name| self.variables.user(name)).collect();
        self.check_read_only(&waiting.statement)?;
        self.run_again(waiting.statement, values, cancel).await
    }

    fn run_again<'a>(
        &'a mut self,
        statement: Stmt,
        values: Vec<Value>,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        Box::pin(async move { self.run(statement, &values, cancel).await })
    }

    /// DEALLOCATE PREPARE.
    pub(in crate::session) fn deallocate(&mut self, name: &str) -> SqlResult<Reply> {
        match self.named.remove(&name.to_lowercase()) {
            Some(_) => Ok(done()),
            None => Err(unknown_handler(name, "DEALLOCATE PREPARE")),
        }
    }

    /// SELECT … INTO @a, @b: the one row, column by column; without one, the variables stay.
    pub(in crate::session) async fn select_into(
        &mut self,
        query: Query,
        names: &[String],
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        let several = || SqlError::new(1172, b"42000", "Result consisted of more than one row");
        let (width, row) = self.one_row(query, parameters, several).await?;
        if width != names.len() {
            let text = "The used SELECT statements have a different number of columns";
            return Err(SqlError::new(1222, b"21000", text));
        }
        let Some(row) = row else {
            self.warn(1329, "No data - zero rows fetched, selected, or processed");
            return Ok(done());
        };
        for (name, value) in names.iter().zip(row) {
            self.variables.set_user(name, value);
        }
        Ok(Reply::Done(Done { affected_rows: 1, ..Done::default() }))
    }
}

fn unknown_handler(name: &str, given_to: &str) -> SqlError {
    let text = format!("Unknown prepared statement handler ({name}) given to {given_to}");
    SqlError::new(1243, b"HY000", text)
}
