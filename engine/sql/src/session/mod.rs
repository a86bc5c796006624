//! One client's session: its variables, its transaction, and the statements it runs.
//!
//! Used by one connection at a time. It holds no socket; what it answers is pulled by its reader.

mod admin;
mod advisory;
mod ddl;
mod diagnostics;
mod interrupt;
mod query;
mod transaction;
mod write;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use binder::QueryContext;
use binder::privileges::{Need, Rights};
use execution::panics;
use futures::{StreamExt, TryStreamExt};
use syntax::dialect::Mysql;
use syntax::statement::{Mode, ShowKind, Stmt};
use syntax::{binary_literals, parser};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use types::{Error, SnapshotToken, Timestamp, Value};
use values::column::ResultColumn;
use values::error::{SqlError, SqlResult, interrupted, is_fault, no_database, unknown};

use crate::engine::Engine;
use crate::reader::Shared;
use crate::result::{Done, Reply};
use crate::rows;
use crate::storage::Savepoint;
use crate::variables::Variables;
use interrupt::Interrupts;

pub use ddl::abandoned::AbandonedChanges;
pub use diagnostics::Warning;
use diagnostics::Warnings;
use query::{last_insert_id, limits};
pub use write::ingest::{ImportTarget, ImportedRows};
pub use write::load::Infile;
use write::{derived, statement};

/// Attempts of an autocommit statement that conflicts with others.
const ATTEMPTS: u32 = 10;
/// Errors that a query has whatever its parameters are: unknown names, names that mean several
/// things, what is not built.
const WRONG_WHATEVER_COMES: [u16; 11] =
    [1046, 1049, 1052, 1054, 1055, 1060, 1064, 1146, 1235, 1248, 1305];
/// Error of a transaction that gives way to another one, and is rolled back.
const DEADLOCK: u16 = 1213;

/// Who a session belongs to.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Connection number.
    pub id: u64,
    /// User name.
    pub user: String,
    /// Client's address.
    pub host: String,
    /// CLIENT_FOUND_ROWS: UPDATE counts the rows it found, changed or not.
    pub found_rows: bool,
}

/// An open transaction.
#[derive(Clone)]
struct Open {
    shared: Shared,
    ts: Timestamp,
    /// Whether it locks rows before it writes them.
    pessimistic: bool,
    /// Whether each of its statements reads the present (READ COMMITTED).
    fresh: bool,
    /// READ ONLY: what writes is refused.
    read_only: bool,
    /// Whether it has asked for row locks.
    locking: Arc<AtomicBool>,
    /// When its plain reads read, once one has.
    reads_at: Arc<OnceLock<Timestamp>>,
}

/// A statement that waits for its parameters.
#[derive(Clone)]
struct Waiting {
    statement: Stmt,
    parameters: usize,
}

/// A prepared statement, for its client.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Number within the session.
    pub id: u32,
    /// Parameters it takes.
    pub parameters: u16,
    /// Columns of its result; empty for a statement without one.
    pub columns: Vec<ResultColumn>,
}

/// A session.
pub struct Session {
    engine: Engine,
    info: SessionInfo,
    database: String,
    variables: Variables,
    open: Option<Open>,
    savepoints: Vec<(String, Savepoint)>,
    /// Locks of GET_LOCK, once it was called.
    advisory: Option<Arc<advisory::Advisory>>,
    /// Isolation of the next transaction alone: whether its statements read the present.
    next_fresh: Option<bool>,
    /// Whether the next transaction alone is READ ONLY.
    next_read_only: Option<bool>,
    snapshot: Option<SnapshotToken>,
    warnings: Warnings,
    last_insert_id: u64,
    /// What LAST_INSERT_ID(expr) assigned, and how much of it `last_insert_id` knows.
    assigned_id: Arc<last_insert_id::AssignedId>,
    adopted: u64,
    row_count: i64,
    found_rows: Arc<AtomicU64>,
    /// What SQL_CALC_FOUND_ROWS of the statement counts.
    counted: Option<Arc<AtomicU64>>,
    now_us: i64,
    prepared: HashMap<u32, Waiting>,
    next_prepared: u32,
    /// Statements that were prepared by name.
    named: HashMap<String, Waiting>,
    loading: Option<syntax::statement::LoadData>,
    /// Planned expressions of tables that were written.
    derivations: derived::Derivations,
    /// Whether rows of the statement are pulled while others of the session run.
    pulled_later: bool,
    interrupts: Interrupts,
    /// What the user may do, by a version of the catalog.
    rights: Option<(u64, Arc<Rights>)>,
}

impl Session {
    /// A session without a database.
    pub fn new(engine: Engine, info: SessionInfo) -> Self {
        Session {
            engine,
            info,
            database: String::new(),
            variables: Variables::default(),
            open: None,
            savepoints: Vec::new(),
            advisory: None,
            next_fresh: None,
            next_read_only: None,
            snapshot: None,
            warnings: Warnings::default(),
            last_insert_id: 0,
            assigned_id: Arc::default(),
            adopted: 0,
            row_count: -1,
            found_rows: Arc::default(),
            counted: None,
            now_us: 0,
            prepared: HashMap::new(),
            next_prepared: 1,
            named: HashMap::new(),
            loading: None,
            derivations: derived::Derivations::default(),
            pulled_later: false,
            interrupts: Interrupts::default(),
            rights: None,
        }
    }

    /// Runs one statement.
    pub async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> SqlResult<Reply> {
        self.pulled_later = false;
        let dialect = self.dialect();
        let statement = parser::parse_in(&binary_literals::to_text(sql, &dialect)?, &dialect);
        self.answer(statement, &[], cancel).await
    }

    /// Parses a statement and says what it will want and answer.
    pub async fn prepare(&mut self, sql: &[u8]) -> SqlResult<Prepared> {
        let dialect = self.dialect();
        let text = &binary_literals::to_text(sql, &dialect)?;
        let statement = parser::parse_in(text, &dialect)?;
        let parameters = parser::placeholders(text, &dialect)?;
        self.check_privileges(&statement).await?;
        self.now_us = i64::try_from(self.engine.clock.unix_micros()).unwrap_or(i64::MAX);
        let columns = match &statement {
            Stmt::Query(query) => {
                let unknown = vec![Value::Null; parameters];
                match self.columns_of((**query).clone(), &unknown).await {
                    Ok(columns) => columns,
                    Err(error) if WRONG_WHATEVER_COMES.contains(&error.code) => return Err(error),
                    // What the parameters are may make it right: it is reported with them.
                    Err(_) => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        let id = self.next_prepared;
        self.next_prepared = self.next_prepared.wrapping_add(1).max(1);
        let count = u16::try_from(parameters).map_err(|_| {
            SqlError::new(1390, b"HY000", "Prepared statement contains too many placeholders")
        })?;
        self.prepared.insert(id, Waiting { statement, parameters });
        Ok(Prepared { id, parameters: count, columns })
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
        let Some(waiting) = self.prepared.get(&id).cloned() else {
            let text = format!("Unknown prepared statement handler ({id}) given to EXECUTE");
            return Err(SqlError::new(1243, b"HY000", text));
        };
        if waiting.parameters != parameters.len() {
            return Err(SqlError::new(1210, b"HY000", "Incorrect arguments to EXECUTE"));
        }
        self.answer(Ok(waiting.statement), &parameters, cancel).await
    }

    /// Forgets a prepared statement.
    pub fn close_prepared(&mut self, id: u32) {
        self.prepared.remove(&id);
    }

    /// Makes a database the current one.
    pub async fn use_database(&mut self, name: &str) -> SqlResult<()> {
        self.engine.storage.timestamp().await?;
        let (rights, catalog) = self.rights().await?;
        rights.check(&Need::SomethingIn(name.to_lowercase()))?;
        match catalog.database_named(name) {
            Some(spelled) => {
                self.database = spelled.to_owned();
                Ok(())
            }
            None if crate::info::is_virtual(name) => {
                self.database = name.to_lowercase();
                Ok(())
            }
            None => Err(no_database(name)),
        }
    }

    /// The current database.
    pub fn database(&self) -> Option<String> {
        (!self.database.is_empty()).then(|| self.database.clone())
    }

    /// Whether a transaction is open.
    pub fn in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Whether every statement is a transaction of its own.
    pub fn autocommit(&self) -> bool {
        self.variables.get("autocommit").is_ok_and(|value| value == "ON")
    }

    /// Whether backslashes in texts stand for themselves.
    pub fn no_backslash_escapes(&self) -> bool {
        self.dialect().plain_backslashes
    }

    /// Whether `"x"` is a name.
    pub fn ansi_quotes(&self) -> bool {
        self.dialect().ansi_quotes
    }

    /// How sql_mode has statements read.
    fn dialect(&self) -> Mysql {
        Mysql::of(&self.variables.get("sql_mode").unwrap_or_default())
    }

    /// Time zone in which TIMESTAMP values are shown.
    pub fn time_zone(&self) -> String {
        self.variables.time_zone()
    }

    /// Rolls back what is open and forgets everything but the user (COM_RESET_CONNECTION).
    pub async fn reset(&mut self) {
        self.rollback().await;
        self.end_locks().await;
        let database = std::mem::take(&mut self.database);
        let assigned_id = self.assigned_id.clone();
        *self = Session::new(self.engine.clone(), self.info.clone());
        // Plans of the session go on assigning values where they did.
        (self.adopted, self.assigned_id) = (assigned_id.count(), assigned_id);
        self.database = database;
    }

    /// Rolls back what is open, of which nobody knows any more how far it came.
    pub async fn give_up(&mut self) {
        self.rollback().await;
    }

    /// Rolls back what is open, and gives back what is held.
    pub async fn close(&mut self) {
        self.rollback().await;
        self.end_locks().await;
        self.prepared.clear();
    }

    async fn answer(
        &mut self,
        statement: SqlResult<Stmt>,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.now_us = i64::try_from(self.engine.clock.unix_micros()).unwrap_or(i64::MAX);
        let diagnostic = matches!(
            &statement,
            Ok(Stmt::Show(show)) if matches!(
                show.kind,
                ShowKind::Warnings { .. } | ShowKind::WarningCount { .. }
            )
        );
        if !diagnostic {
            self.warnings.begin();
        }
        // Rows of a SELECT LAST_INSERT_ID(n) are pulled after its answer.
        _ = self.adopt_assigned_id();
        // Of a statement that is a transaction of its own, nothing may stay open.
        let alone = self.open.is_none() && self.autocommit();
        let (interrupts, before) = (self.interrupts.clone(), self.last_insert_id);
        let deadline = statement.as_ref().ok().and_then(|statement| self.deadline(statement));
        self.counted = None;
        let run = async {
            let statement = statement?;
            self.begin_variables().await;
            self.run(statement, parameters, cancel).await
        };
        let answer = tokio::select! {
            biased;
            () = interrupts.interruption(cancel) => Err(interrupted()),
            () = limits::passed(deadline) => Err(limits::too_slow()),
            answer = panics::guarded(run) => answer,
        };
        match answer {
            Ok(Reply::Rows { columns, batches, .. }) => {
                self.row_count = -1;
                let batches = panics::guarded_stream(limits::until(batches, deadline));
                let token = cancel.clone();
                let batches = batches.take_until(token.clone().cancelled_owned());
                let ended = futures::stream::once(async move {
                    if token.is_cancelled() { Err(interrupted()) } else { Ok(None) }
                });
                let batches = batches.map(|batch| batch.map(Some)).chain(ended);
                let batches = batches.filter_map(|batch| async { batch.transpose() });
                let found = Arc::new(AtomicU64::new(0));
                self.found_rows = self.counted.take().unwrap_or_else(|| found.clone());
                let batches = batches.inspect_ok(move |batch| {
                    found.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
                });
                self.bound_warnings();
                let warnings = self.warning_count();
                Ok(Reply::Rows { columns, batches: Box::pin(batches), warnings })
            }
            Ok(Reply::Done(mut done)) => {
                self.row_count = i64::try_from(done.affected_rows).unwrap_or(i64::MAX);
                let generated = self.last_insert_id;
                if let Some(kept) = self.adopt_assigned_id() {
                    // A number given to a new row counts more than one that was assigned.
                    match generated != before && done.last_insert_id == generated {
                        true => self.last_insert_id = generated,
                        false => done.last_insert_id = kept,
                    }
                }
                self.bound_warnings();
                done.warnings = self.warning_count().now();
                Ok(Reply::Done(done))
            }
            Ok(other) => Ok(other),
            Err(error) => {
                self.row_count = -1;
                // As in MySQL: who gives way loses the whole transaction, not only the statement. Of a
                // statement that panicked, nobody knows how far it came.
                if alone || error.code == DEADLOCK || is_fault(&error) {
                    self.rollback().await;
                }
                let (code, message) = (error.code, error.message.clone());
                self.warnings.push(Warning { level: "Error", code, message });
                Err(error)
            }
        }
    }

    async fn run(
        &mut self,
        statement: Stmt,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.check_read_only(&statement)?;
        self.check_privileges(&statement).await?;
        match statement {
            Stmt::Query(query) => self.limited_select(*query, parameters).await,
            Stmt::SelectInto(query, names) => self.select_into(*query, &names, parameters).await,
            Stmt::Prepare { name, source } => self.prepare_text(&name, *source, parameters).await,
            Stmt::Execute { name, using } => self.execute_text(&name, &using, cancel).await,
            Stmt::Deallocate(name) => self.deallocate(&name),
            Stmt::Insert(insert) => self.write(statement::Write::Insert(insert), parameters).await,
            Stmt::Update(update) => self.write(statement::Write::Update(update), parameters).await,
            Stmt::Delete(delete, ignore) => {
                self.write(statement::Write::Delete(delete, ignore), parameters).await
            }
            Stmt::Explain { analyze, statement } => {
                self.explain(*statement, analyze, parameters).await
            }
            Stmt::Begin { mode, read_only } => {
                self.commit().await?;
                self.next_read_only = read_only.or(self.next_read_only);
                self.begin(mode.unwrap_or_else(|| self.mode())).await?;
                Ok(done())
            }
            Stmt::Commit => {
                self.commit().await?;
                Ok(done())
            }
            Stmt::Rollback => {
                self.rollback().await;
                Ok(done())
            }
            Stmt::Savepoint(step, name) => self.savepoint(step, &name).await,
            Stmt::Use(name) => {
                self.use_database(&name).await?;
                Ok(done())
            }
            Stmt::Set(assignments) => self.set(assignments, parameters).await,
            Stmt::SetNames(charset) => self.set_names(&charset),
            Stmt::SetTransaction { scope, level, read_only } => {
                self.set_transaction(scope, level.as_deref(), read_only).await
            }
            Stmt::SetPassword { user, password } => self.set_password(user, &password).await,
            Stmt::PutUser { users, lenient, create } => {
                self.put_users(users, lenient, create).await
            }
            Stmt::DropUser { users, if_exists } => self.drop_users(users, if_exists).await,
            Stmt::Grant(grant) => {
                self.commit().await?;
                self.grant(*grant).await
            }
            Stmt::Show(show) => self.show(show).await,
            Stmt::Describe { table, column } => self.describe(&table, column).await,
            Stmt::LoadData(load) => {
                self.check_load(&load).await?;
                let file = load.file.clone();
                self.loading = Some(*load);
                Ok(Reply::LocalInfile { file })
            }
            Stmt::Kill { id, query } => self.kill(id, query),
            Stmt::Do(exprs) => {
                for expr in exprs {
                    self.assign(expr, parameters).await?;
                }
                Ok(done())
            }
            Stmt::Flush | Stmt::Nothing => Ok(done()),
            Stmt::Maintain { task, tables } => self.maintain(task, &tables).await,
            Stmt::LockTables(tables) => self.lock_tables(&tables).await,
            Stmt::CreateTable(create) if create.query.is_some() => {
                self.create_filled(*create, parameters, cancel).await
            }
            definition => {
                self.commit().await?;
                // What a definition has begun, it ends: regions must not know less than the catalog.
                let _held = self.interrupts.hold();
                self.define(definition, cancel).await
            }
        }
    }

    fn context(&self) -> QueryContext {
        QueryContext {
            database: self.database.clone(),
            now_us: self.now_us,
            time_zone: self.variables.time_zone(),
            sql_mode: self.variables.get("sql_mode").unwrap_or_default(),
            user: format!("{}@{}", self.info.user, self.info.host),
            connection_id: self.info.id,
            ..QueryContext::default()
        }
    }

    // ---- transactions -----------------------------------------------------------------------

    /// How transactions begin unless they say so themselves.
    fn mode(&self) -> Mode {
        match self.variables.get("tidb_txn_mode") {
            Ok(mode) if mode.eq_ignore_ascii_case("optimistic") => Mode::Optimistic,
            _ => Mode::Pessimistic,
        }
    }

    async fn begin(&mut self, mode: Mode) -> SqlResult<Open> {
        let transaction = self.engine.storage.begin().await?;
        let ts = transaction.ts();
        let shared = Arc::new(Mutex::new(Some(transaction)));
        let pessimistic = mode == Mode::Pessimistic;
        let level = self.variables.get("transaction_isolation").unwrap_or_default();
        let committed = level.eq_ignore_ascii_case("READ-COMMITTED");
        // Without locks, what was read must be older than what others commit: one snapshot it is.
        let fresh = pessimistic && self.next_fresh.take().unwrap_or(committed);
        let read_only = self.begins_read_only();
        self.next_read_only = None;
        let (locking, reads_at) = (Arc::default(), Arc::default());
        let open = Open { shared, ts, pessimistic, fresh, read_only, locking, reads_at };
        self.open = Some(open.clone());
        self.savepoints.clear();
        Ok(open)
    }

    /// The transaction that a statement belongs to; none if it is its own.
    async fn enclosing(&mut self) -> SqlResult<Option<Open>> {
        match &self.open {
            Some(open) => Ok(Some(open.clone())),
            None if self.autocommit() => Ok(None),
            None => self.begin(self.mode()).await.map(Some),
        }
    }

    async fn commit(&mut self) -> SqlResult<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let Some(transaction) = open.shared.lock().await.take() else { return Ok(()) };
        let _held = self.interrupts.hold();
        match transaction.commit().await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.commit_error(error).await),
        }
    }

    /// The error that a client gets for a failed commit. Only the message of a duplicate needs the catalog:
    /// one that cannot be had must hide nothing else, an unknown outcome least of all.
    async fn commit_error(&self, error: Error) -> SqlError {
        match error {
            Error::Duplicate { .. } => match self.engine.storage.catalog().await {
                Ok(catalog) => rows::error(error, &catalog.tables),
                Err(_) => error.into(),
            },
            error => error.into(),
        }
    }

    async fn rollback(&mut self) {
        let Some(open) = self.open.take() else { return };
        let transaction = open.shared.lock().await.take();
        if let Some(transaction) = transaction {
            transaction.rollback().await;
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
