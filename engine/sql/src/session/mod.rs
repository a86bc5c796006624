//! One client's session, and the statements it runs.
//!
//! Its parts are its user (`identity`), its variables, its transaction (`transaction::state`), what it
//! says of its last statement (`diagnostics`) and its prepared statements: each keeps its own rules
//! and knows no other. `Session` does what takes several of them. Used by one connection at a time.
//! It holds no socket; what it answers is pulled by its reader.

mod admin;
mod advisory;
mod ddl;
mod diagnostics;
mod dispatch;
mod identity;
mod kill;
mod prepared;
mod query;
mod resource_group;
mod runaway;
mod transaction;
mod write;

use std::sync::Arc;
use std::time::Duration;

use access::Need;
use binder::{ColumnId, Compiler, QueryContext, Scalar};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use functions::warnings::ExprWarnings;
use futures::future::{BoxFuture, FutureExt};
use sqlparser::ast::Expr;
use syntax::statement::{LoadData, Stmt};
use syntax::{binary_literals, parser};
use tokio_util::sync::CancellationToken;
use types::Value;
use values::error::{
    AMBIGUOUS_COLUMN, DERIVED_WITHOUT_ALIAS, DUPLICATE_COLUMN, NO_COLUMN, NO_DATABASE,
    NO_DATABASE_SELECTED, NO_FUNCTION, NO_TABLE, NOT_GROUPED, SYNTAX, SqlError, SqlResult,
    UNSUPPORTED, no_database, too_many_parameters, unknown,
};

use crate::engine::Engine;
use crate::variables::Variables;
use advisory::Advisory;
use diagnostics::Diagnostics;
use execution::interrupts::Interrupts;
use execution::reply::{Done, Reply, SessionChanges};
use identity::Identity;
use prepared::{PreparedStatement, PreparedStatements};
use query::known::KnownRead;
use resource_group::GroupChoice;
use storage::ReplicaReads;
use transaction::state::TransactionState;
use write::derived::Derivations;

pub use admin::status;
pub use ddl::abandoned::AbandonedChanges;
pub use diagnostics::Warning;
pub use identity::SessionInfo;
pub use prepared::Prepared;
pub use write::ingest::{ImportTarget, ImportedRows};
pub use write::load::Infile;

/// Attempts of an autocommit statement that conflicts with others.
const ATTEMPTS: u32 = 10;
/// Errors that a query has whatever its parameters are: unknown names, names that mean several
/// things, what is not built.
const WRONG_WHATEVER_COMES: [u16; 11] = [
    NO_DATABASE_SELECTED,
    NO_DATABASE,
    AMBIGUOUS_COLUMN,
    NO_COLUMN,
    NOT_GROUPED,
    DUPLICATE_COLUMN,
    SYNTAX,
    NO_TABLE,
    UNSUPPORTED,
    DERIVED_WITHOUT_ALIAS,
    NO_FUNCTION,
];

/// A session: parts that know nothing of each other, and what it takes several of them to do.
pub struct Session {
    engine: Engine,
    identity: Identity,
    group: GroupChoice,
    variables: Variables,
    transaction: TransactionState,
    diagnostics: Diagnostics,
    prepared: PreparedStatements,
    /// The one of them, by number, that runs.
    running: Option<Arc<PreparedStatement>>,
    /// Locks of GET_LOCK, once it was called.
    advisory: Option<Arc<Advisory>>,
    /// Planned expressions of tables that were written.
    derivations: Derivations,
    interrupts: Interrupts,
    /// The statement that the client is to send a file for.
    loading: Option<LoadData>,
    /// Which replicas answer what the statement reads, if others than leaders.
    replica_reads: Option<Arc<ReplicaReads>>,
    /// When the statement began, in microseconds since 1970: what NOW() is to all of it.
    now_us: i64,
    /// Whether rows of the statement are pulled while others of the session run.
    pulled_later: bool,
}

impl Session {
    /// A session without a database.
    pub fn new(engine: Engine, info: SessionInfo) -> Self {
        let group = GroupChoice::new(engine.scheduled());
        Session {
            engine,
            identity: Identity::new(info),
            group,
            variables: Variables::default(),
            transaction: TransactionState::default(),
            diagnostics: Diagnostics::default(),
            prepared: PreparedStatements::default(),
            running: None,
            advisory: None,
            derivations: Derivations::default(),
            interrupts: Interrupts::default(),
            loading: None,
            replica_reads: None,
            now_us: 0,
            pulled_later: false,
        }
    }

    /// Runs one statement.
    pub async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> SqlResult<Reply> {
        self.pulled_later = false;
        let dialect = self.variables.dialect();
        let statement = parser::parse_in(&binary_literals::to_text(sql, &dialect)?, &dialect);
        self.answer(statement.map(Arc::new), &[], cancel).await
    }

    /// Parses a statement and says what it will want and answer.
    pub fn prepare<'a>(&'a mut self, sql: &'a [u8]) -> BoxFuture<'a, SqlResult<Prepared>> {
        self.prepared(sql).boxed()
    }

    async fn prepared(&mut self, sql: &[u8]) -> SqlResult<Prepared> {
        let dialect = self.variables.dialect();
        let text = binary_literals::to_text(sql, &dialect)?;
        let waiting = self.parsed(&text)?;
        let allowed = self.check_privileges(&waiting.statement).await;
        // It does not run yet: its hint counts when it does.
        self.end_group();
        allowed?;
        self.take_time();
        let columns = match &*waiting.statement {
            Stmt::Query(query) => {
                let unknown = waiting.unknown_parameters();
                match self.columns_of((**query).clone(), &unknown).await {
                    Ok(columns) => columns,
                    Err(error) if WRONG_WHATEVER_COMES.contains(&error.code) => return Err(error),
                    // What the parameters are may make it right: it is reported with them.
                    Err(_) => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        let id = self.prepared.new_id();
        let parameters = u16::try_from(waiting.parameters).map_err(|_| too_many_parameters())?;
        self.prepared.keep(id, waiting);
        Ok(Prepared { id, parameters, columns })
    }

    /// A statement and how many parameters it takes, as the session's sql_mode reads it.
    fn parsed(&self, sql: &str) -> SqlResult<PreparedStatement> {
        let dialect = self.variables.dialect();
        let statement = Arc::new(parser::parse_in(sql, &dialect)?);
        let parameters = parser::placeholders(sql, &dialect)?;
        let database = self.variables.database().to_owned();
        Ok(PreparedStatement { statement, parameters, database, known: KnownRead::default() })
    }

    /// Runs a prepared statement.
    pub async fn execute_prepared(
        &mut self,
        id: u32,
        parameters: Vec<Value>,
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.pulled_later = false;
        self.run_prepared(id, parameters, cancel).await
    }

    /// Runs a prepared statement for a cursor: its rows may be pulled while later statements run,
    /// and are as they were at its beginning all the same.
    pub async fn open_prepared(
        &mut self,
        id: u32,
        parameters: Vec<Value>,
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.pulled_later = true;
        self.run_prepared(id, parameters, cancel).await
    }

    async fn run_prepared(
        &mut self,
        id: u32,
        parameters: Vec<Value>,
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let running = self.prepared.of_id(id, parameters.len())?;
        self.variables.run_in(Some(running.database.clone()));
        let statement = running.statement.clone();
        self.running = Some(running);
        self.answer(Ok(statement), &parameters, cancel).await
    }

    /// Forgets a prepared statement.
    pub fn close_prepared(&mut self, id: u32) {
        self.prepared.forget(id);
    }

    /// Makes a database the current one.
    pub fn use_database<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, SqlResult<()>> {
        self.used_database(name).boxed()
    }

    async fn used_database(&mut self, name: &str) -> SqlResult<()> {
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        rights.check(&Need::SomethingIn(name.to_lowercase()))?;
        let name = match catalog.database_named(name) {
            Some(spelled) => spelled.to_owned(),
            None if information_schema::is_virtual(name) => name.to_lowercase(),
            None => return Err(no_database(name)),
        };
        self.variables.set_database(name);
        Ok(())
    }

    /// The current database.
    pub fn database(&self) -> Option<String> {
        let name = self.variables.database();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.transaction.open().is_some()
    }

    /// Whether every statement is a transaction of its own.
    pub fn autocommit(&self) -> bool {
        self.variables.autocommit()
    }

    /// Changes that the client tracks, since this was last asked.
    pub fn take_changes(&mut self) -> SessionChanges {
        self.variables.take_changes()
    }

    /// Whether backslashes in texts stand for themselves.
    pub fn no_backslash_escapes(&self) -> bool {
        self.variables.dialect().plain_backslashes
    }

    /// Whether `"x"` is a name.
    pub fn ansi_quotes(&self) -> bool {
        self.variables.dialect().ansi_quotes
    }

    /// Time zone in which TIMESTAMP values are shown.
    pub fn time_zone(&self) -> String {
        self.variables.time_zone()
    }

    /// Rolls back what is open and forgets everything but the user (COM_RESET_CONNECTION).
    pub async fn reset(&mut self) {
        self.transaction.rollback().await;
        self.end_locks().await;
        let database = self.variables.database().to_owned();
        let diagnostics = self.diagnostics.renewed();
        *self = Session::new(self.engine.clone(), self.identity.info().clone());
        self.diagnostics = diagnostics;
        self.variables.set_database(database);
    }

    /// Rolls back what is open, of which nobody knows any more how far it came.
    pub async fn give_up(&mut self) {
        self.transaction.rollback().await;
    }

    /// Rolls back what is open, and gives back what is held.
    pub async fn close(&mut self) {
        self.transaction.rollback().await;
        self.end_locks().await;
        self.prepared.forget_ids();
    }

    /// What a plan has to know of the session.
    fn context(&self) -> QueryContext {
        QueryContext {
            database: self.variables.database().to_owned(),
            now_us: self.now_us,
            time_zone: self.variables.time_zone(),
            sql_mode: self.variables.sql_mode(),
            user: self.identity.user_and_host(),
            connection_id: self.identity.connection(),
            ..QueryContext::default()
        }
    }

    /// Where the warnings of the statement's expressions go.
    fn expr_warnings(&mut self) -> Arc<ExprWarnings> {
        self.diagnostics.listen(|| self.variables.expr_warnings())
    }

    /// An expression over the columns of a schema, ready to evaluate, which is listened to if the
    /// statement listens.
    fn compiled(&self, expr: Expr, schema: &DFSchema) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let (context, state) = (self.context(), &self.engine.state);
        let expr_warnings = self.diagnostics.listening();
        Compiler { schema, context: &context, state, expr_warnings }.text(&expr)
    }

    /// What evaluates an expression that is bound to the columns of a schema, over rows of it.
    fn compiled_scalar(
        &self,
        scalar: &Scalar,
        columns: &[ColumnId],
        schema: &DFSchema,
    ) -> SqlResult<Arc<dyn PhysicalExpr>> {
        let (context, state) = (self.context(), &self.engine.state);
        let expr_warnings = self.diagnostics.listening();
        Compiler { schema, context: &context, state, expr_warnings }.bound(scalar, columns)
    }

    /// Takes the present for the time of the statement.
    fn take_time(&mut self) {
        self.now_us = i64::try_from(self.engine.clock.unix_micros()).unwrap_or(i64::MAX);
    }

    /// Notes something, unless the session wants no notes.
    fn note(&mut self, note: SqlError) {
        if self.variables.takes_notes() {
            self.diagnostics.note(note);
        }
    }
}

/// A pause before the next attempt, longer each time and not the same for all.
async fn pause(attempt: u32) {
    let most = 2u64.saturating_pow(attempt.min(7));
    let millis = rand::random_range(0..=most);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// An answer without rows.
fn done() -> Reply {
    Reply::Done(Done::default())
}

/// A fault that should not be possible.
fn impossible(what: &str) -> SqlError {
    unknown(format!("{what}: please report the statement"))
}
