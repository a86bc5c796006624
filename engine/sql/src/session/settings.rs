//! SET: variables, character sets, isolation, and the snapshot that a session reads at.

use sqlparser::ast::Expr;
use types::{SnapshotToken, Value};

use super::{Session, done};
use crate::coerce::{text, value_at};
use crate::error::{SqlResult, unsupported};
use crate::planner;
use crate::result::{Reply, SqlError};
use crate::statement::{Assignment, Scope, Target};

impl Session {
    /// SET a = …, b = ….
    pub(super) async fn set(
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
                Some(expr) => Some(self.evaluate(expr, parameters).await?),
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
        let turned_on = name == "autocommit" && !self.autocommit();
        // Two names of one variable.
        let twin = match name {
            "transaction_isolation" => Some("tx_isolation"),
            "tx_isolation" => Some("transaction_isolation"),
            _ => None,
        };
        if let Some(twin) = twin {
            self.variables.set(twin, value.clone())?;
        }
        self.variables.set(name, value)?;
        if turned_on && self.autocommit() {
            self.commit().await?;
        }
        Ok(())
    }

    /// Redeems a snapshot token: the session reads at it until it is set to ''.
    async fn read_at(&mut self, name: &str, value: Option<Value>) -> SqlResult<()> {
        let token = value.clone().map(text).unwrap_or_default();
        if token.is_empty() {
            self.snapshot = None;
            self.variables.set("isobar_snapshot", None)?;
            return self.variables.set("tidb_snapshot", None);
        }
        if self.open.is_some() {
            let text = format!("Variable '{name}' cannot be set within a transaction");
            return Err(SqlError::new(1568, b"25001", text));
        }
        let storage = &self.engine.storage;
        let key = storage.signing_key().await?;
        let verified = SnapshotToken::verify(&token, &key).map_err(|error| {
            SqlError::new(1231, b"42000", format!("Variable '{name}': {error}"))
        })?;
        let alive = storage.leases().await?.iter().any(|lease| lease.id == verified.lease);
        if !alive {
            return Err(types::Error::LeaseLost(verified.lease).into());
        }
        self.snapshot = Some(verified);
        self.variables.set(name, value)
    }

    /// SET NAMES: text is UTF-8 whatever a client calls it.
    pub(super) fn set_names(&mut self, charset: &str) -> SqlResult<Reply> {
        let known = ["utf8", "utf8mb3", "utf8mb4", "ascii", "latin1", "binary", "default"];
        if !known.contains(&charset.to_lowercase().as_str()) {
            return Err(SqlError::new(
                1115,
                b"42000",
                format!("Unknown character set: '{charset}'"),
            ));
        }
        if charset.eq_ignore_ascii_case("latin1") {
            self.warn(1300, "latin1 is read as utf8mb4");
        }
        for name in ["character_set_client", "character_set_connection", "character_set_results"] {
            self.variables.set(name, Some(Value::String("utf8mb4".into())))?;
        }
        Ok(done())
    }

    /// SET TRANSACTION. Snapshot isolation is called REPEATABLE READ; READ UNCOMMITTED is not to be
    /// had, and becomes READ COMMITTED.
    pub(super) async fn set_transaction(&mut self, scope: Scope, words: &str) -> SqlResult<Reply> {
        if words.contains("SERIALIZABLE") {
            return Err(unsupported("ISOLATION LEVEL SERIALIZABLE"));
        }
        let committed = words.contains("READ COMMITTED") || words.contains("READ UNCOMMITTED");
        if !committed && !words.contains("REPEATABLE READ") {
            return Ok(done());
        }
        if words.contains("READ UNCOMMITTED") {
            self.warn(1105, "transactions run at READ COMMITTED, which is stronger");
        }
        let level = if committed { "READ-COMMITTED" } else { "REPEATABLE-READ" };
        match scope {
            Scope::Global => self.set_global_isolation(level).await?,
            Scope::Next if self.open.is_some() => {
                let text = "Transaction characteristics can't be changed while a transaction is in \
                            progress";
                return Err(SqlError::new(1568, b"25001", text));
            }
            Scope::Next => self.next_fresh = Some(committed),
            Scope::Session => {
                for name in ["transaction_isolation", "tx_isolation"] {
                    self.variables.set(name, Some(Value::String(level.into())))?;
                }
            }
        }
        Ok(done())
    }

    /// The value of an expression without columns.
    pub(super) async fn evaluate(
        &mut self,
        mut expr: Expr,
        parameters: &[Value],
    ) -> SqlResult<Value> {
        if let Some(value) = crate::constant::literal(&expr) {
            return Ok(value);
        }
        self.inline(&mut expr, parameters).await?;
        evaluate(expr, &self.context(), &self.engine.state)
    }
}

/// The value of an expression without columns and without variables.
pub fn evaluate(
    expr: Expr,
    context: &planner::QueryContext,
    state: &datafusion::execution::session_state::SessionState,
) -> SqlResult<Value> {
    if let Some(value) = crate::constant::literal(&expr) {
        return Ok(value);
    }
    let schema = datafusion::common::DFSchema::empty();
    let compiled = planner::compile(expr, &schema, context, state)?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(1));
    let empty = std::sync::Arc::new(arrow::datatypes::Schema::empty());
    let row = arrow::record_batch::RecordBatch::try_new_with_options(empty, vec![], &options)
        .map_err(|error| crate::error::unknown(error.to_string()))?;
    let value = compiled.evaluate(&row)?.into_array(1)?;
    value_at(&value, 0)
}
