//! SET: variables, character sets, isolation, and the snapshot that a session reads at.

use datafusion::common::DFSchema;
use sqlparser::ast::Expr;
use syntax::scalar_query::{has_query, select_of};
use syntax::statement::{Assignment, Scope, Target};
use types::{SnapshotToken, Value};
use values::coerce::text;
use values::error::{
    SqlResult, stronger_isolation, too_many_rows, transaction_in_progress, unsupported,
    variable_within_transaction, wrong_snapshot,
};

use crate::session::query::constants::value_of;
use crate::session::query::one_row::one_column;
use crate::session::{Session, done};
use execution::reply::Reply;

impl Session {
    /// SET a = …, b = ….
    pub(in crate::session) async fn set(
        &mut self,
        list: Vec<Assignment>,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        for Assignment { target, value } in list {
            let value = match value {
                // A bare word is its own text: SET sql_mode = ANSI.
                Some(Expr::Identifier(word)) if !word.value.starts_with('@') => {
                    Some(Value::String(word.value))
                }
                Some(expr) => Some(self.assign(expr, parameters).await?),
                None => None,
            };
            match target {
                Target::User(name) => self.variables.set_user(&name, value.unwrap_or(Value::Null)),
                Target::Session(name) => self.set_variable(&name, value).await?,
                Target::Global(name) => self.set_global(&name, value).await?,
            }
        }
        Ok(done())
    }

    async fn set_variable(&mut self, name: &str, value: Option<Value>) -> SqlResult<()> {
        if name == "isobar_snapshot" || name == "tidb_snapshot" {
            return self.read_at(name, value).await;
        }
        let turned_on = name == "autocommit" && !self.variables.autocommit();
        // Two names of one variable.
        if name == "tx_read_only" || name == "transaction_read_only" {
            return self.set_read_only(value);
        }
        let alias = match name {
            "transaction_isolation" => Some("tx_isolation"),
            "tx_isolation" => Some("transaction_isolation"),
            _ => None,
        };
        if let Some(alias) = alias {
            self.variables.set(alias, value.clone())?;
        }
        self.variables.set(name, value)?;
        if turned_on && self.variables.autocommit() {
            self.commit().await?;
        }
        Ok(())
    }

    /// Redeems a snapshot token: the session reads at it until it is set to ''.
    async fn read_at(&mut self, name: &str, value: Option<Value>) -> SqlResult<()> {
        let token = value.clone().map(text).unwrap_or_default();
        if token.is_empty() {
            self.transaction.set_snapshot(None);
            self.variables.set("isobar_snapshot", None)?;
            return self.variables.set("tidb_snapshot", None);
        }
        if self.in_transaction() {
            return Err(variable_within_transaction(name));
        }
        let storage = &self.engine.storage;
        let key = storage.signing_key().await?;
        let verified =
            SnapshotToken::verify(&token, &key).map_err(|error| wrong_snapshot(name, error))?;
        let alive = storage.leases().await?.iter().any(|lease| lease.id == verified.lease);
        if !alive {
            return Err(types::Error::LeaseLost(verified.lease).into());
        }
        self.transaction.set_snapshot(Some(verified));
        self.variables.set(name, value)
    }

    fn set_read_only(&mut self, value: Option<Value>) -> SqlResult<()> {
        for name in ["transaction_read_only", "tx_read_only"] {
            self.variables.set(name, value.clone())?;
        }
        Ok(())
    }

    /// SET NAMES: text is UTF-8, and a client that speaks anything else gets an error.
    pub(in crate::session) fn set_names(&mut self, charset: &str) -> SqlResult<Reply> {
        let charset = match charset {
            default if default.eq_ignore_ascii_case("default") => "utf8mb4",
            charset => charset,
        };
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.variables.set(name, Some(Value::String(charset.into())))?;
        }
        Ok(done())
    }

    /// SET TRANSACTION. Snapshot isolation is called REPEATABLE READ; READ UNCOMMITTED is not to be
    /// had, and becomes READ COMMITTED.
    pub(in crate::session) async fn set_transaction(
        &mut self,
        scope: Scope,
        level: Option<&str>,
        read_only: Option<bool>,
    ) -> SqlResult<Reply> {
        if level == Some("SERIALIZABLE") {
            return Err(unsupported("ISOLATION LEVEL SERIALIZABLE"));
        }
        if scope == Scope::Next && self.in_transaction() {
            return Err(transaction_in_progress());
        }
        if level == Some("READ UNCOMMITTED") {
            self.diagnostics.warn(stronger_isolation());
        }
        if scope == Scope::Global && read_only == Some(true) {
            return Err(unsupported("SET GLOBAL TRANSACTION READ ONLY"));
        }
        if let Some(level) = level {
            let committed = level.ends_with("COMMITTED");
            let level = if committed { "READ-COMMITTED" } else { "REPEATABLE-READ" };
            match scope {
                Scope::Global => self.set_global_isolation(level).await?,
                Scope::Next => self.transaction.set_next_fresh(committed),
                Scope::Session => {
                    for name in ["transaction_isolation", "tx_isolation"] {
                        self.variables.set(name, Some(Value::String(level.into())))?;
                    }
                }
            }
        }
        match (scope, read_only) {
            (Scope::Next, Some(read_only)) => self.transaction.set_next_read_only(read_only),
            (Scope::Session, Some(read_only)) => {
                self.set_read_only(Some(Value::Int(i64::from(read_only))))?;
            }
            _ => {}
        }
        Ok(done())
    }

    /// The value of an expression without columns.
    pub(in crate::session) async fn evaluate(
        &mut self,
        expr: Expr,
        parameters: &[Value],
    ) -> SqlResult<Value> {
        if let Some(value) = syntax::constant::literal(&expr) {
            return Ok(value);
        }
        if has_query(&expr) {
            let (width, row) = self.one_row(select_of(expr)?, parameters, too_many_rows).await?;
            one_column(width)?;
            return self.as_seen(row.and_then(|mut row| row.pop()).unwrap_or(Value::Null));
        }
        self.evaluate_plain(expr, parameters).await
    }

    /// The value of an expression without columns and queries.
    pub(in crate::session) async fn evaluate_plain(
        &mut self,
        mut expr: Expr,
        parameters: &[Value],
    ) -> SqlResult<Value> {
        self.inline(&mut expr, parameters).await?;
        if let Some(value) = syntax::constant::literal(&expr) {
            return Ok(value);
        }
        _ = self.expr_warnings();
        self.as_seen(value_of(&*self.compiled(expr, &DFSchema::empty())?)?)
    }

    /// A value that is kept without its type: a TIMESTAMP is the time that it is to the session.
    pub(in crate::session) fn as_seen(&self, value: Value) -> SqlResult<Value> {
        match value {
            Value::Timestamp(us) => Ok(Value::DateTime(self.context().zone()?.to_local(us))),
            other => Ok(other),
        }
    }
}
