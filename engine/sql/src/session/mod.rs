//! One client's session: its variables, its transaction, and the statements it runs.
//!
//! Used by one connection at a time. It holds no socket; what it answers is pulled by its reader.

mod change;
mod define;
mod globals;
pub mod ingest;
mod inline;
mod insert;
mod interrupt;
mod load;
mod locking;
mod point;
mod savepoint;
mod select;
mod settings;
mod show;
mod snapshots;
mod tables;
mod users;
mod write;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use placement::api::Catalog;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use types::{SnapshotToken, Timestamp, Value};

use crate::engine::Engine;
use crate::error::{SqlResult, interrupted, no_database, unknown};
use crate::planner::QueryContext;
use crate::reader::{Reader, Shared};
use crate::result::{Done, Reply, ResultColumn, SqlError};
use crate::statement::{Mode, Stmt};
use crate::storage::Savepoint;
use crate::variables::Variables;
use crate::{parser, rows};
use interrupt::Shield;

pub use load::Infile;

/// Attempts of an autocommit statement that conflicts with others.
const ATTEMPTS: u32 = 10;
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

/// An open transaction.
#[derive(Clone)]
struct Open {
    shared: Shared,
    ts: Timestamp,
    /// Whether it locks rows before it writes them.
    pessimistic: bool,
    /// Whether each of its statements reads the present (READ COMMITTED).
    fresh: bool,
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
    /// Isolation of the next transaction alone: whether its statements read the present.
    next_fresh: Option<bool>,
    snapshot: Option<SnapshotToken>,
    warnings: Vec<Warning>,
    last_insert_id: u64,
    row_count: i64,
    found_rows: Arc<AtomicU64>,
    now_us: i64,
    prepared: HashMap<u32, Waiting>,
    next_prepared: u32,
    loading: Option<crate::statement::LoadData>,
    shield: Shield,
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
            next_fresh: None,
            snapshot: None,
            warnings: Vec::new(),
            last_insert_id: 0,
            row_count: -1,
            found_rows: Arc::default(),
            now_us: 0,
            prepared: HashMap::new(),
            next_prepared: 1,
            loading: None,
            shield: Shield::default(),
        }
    }

    /// Runs one statement.
    pub async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> SqlResult<Reply> {
        let statement = parser::parse(utf8(sql)?);
        self.answer(statement, &[], cancel).await
    }

    /// Parses a statement and says what it will want and answer.
    pub async fn prepare(&mut self, sql: &[u8]) -> SqlResult<Prepared> {
        let text = utf8(sql)?;
        let statement = parser::parse(text)?;
        let parameters = parser::placeholders(text)?;
        self.now_us = i64::try_from(self.engine.clock.unix_micros()).unwrap_or(i64::MAX);
        let columns = match &statement {
            Stmt::Query(query) => {
                let unknown = vec![Value::Null; parameters];
                self.columns_of((**query).clone(), &unknown).await.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        let id = self.next_prepared;
        self.next_prepared = self.next_prepared.wrapping_add(1).max(1);
        self.prepared.insert(id, Waiting { statement, parameters });
        let parameters = u16::try_from(parameters).map_err(|_| {
            SqlError::new(1390, b"HY000", "Prepared statement contains too many placeholders")
        })?;
        Ok(Prepared { id, parameters, columns })
    }

    /// Runs a prepared statement.
    pub async fn execute_prepared(
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
        let catalog = self.engine.storage.catalog().await?;
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
        self.variables.get("sql_mode").is_ok_and(|mode| mode.contains("NO_BACKSLASH_ESCAPES"))
    }

    /// Time zone in which TIMESTAMP values are shown.
    pub fn time_zone(&self) -> String {
        self.variables.time_zone()
    }

    /// Rolls back what is open and forgets everything but the user (COM_RESET_CONNECTION).
    pub async fn reset(&mut self) {
        self.rollback().await;
        let database = std::mem::take(&mut self.database);
        *self = Session::new(self.engine.clone(), self.info.clone());
        self.database = database;
    }

    /// Rolls back what is open.
    pub async fn close(&mut self) {
        self.rollback().await;
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
                crate::statement::ShowKind::Warnings | crate::statement::ShowKind::Errors
            )
        );
        if !diagnostic {
            self.warnings.clear();
        }
        // Of a statement that is a transaction of its own, nothing may stay open.
        let alone = self.open.is_none() && self.autocommit();
        let shield = self.shield.clone();
        let run = async {
            let statement = statement?;
            self.begin_variables().await;
            self.run(statement, parameters, cancel).await
        };
        let answer = tokio::select! {
            biased;
            () = shield.interruption(cancel) => Err(interrupted()),
            answer = run => answer,
        };
        match answer {
            Ok(Reply::Rows { columns, batches, .. }) => {
                self.row_count = -1;
                let token = cancel.clone();
                let batches = batches.take_until(token.clone().cancelled_owned());
                let ended = futures::stream::once(async move {
                    if token.is_cancelled() { Err(interrupted()) } else { Ok(None) }
                });
                let batches = batches.map(|batch| batch.map(Some)).chain(ended);
                let batches = batches.filter_map(|batch| async { batch.transpose() });
                let found = Arc::new(AtomicU64::new(0));
                self.found_rows = found.clone();
                let batches = batches.inspect_ok(move |batch| {
                    found.fetch_add(batch.num_rows() as u64, Ordering::AcqRel);
                });
                let warnings = u16::try_from(self.warnings.len()).unwrap_or(u16::MAX);
                Ok(Reply::Rows { columns, batches: Box::pin(batches), warnings })
            }
            Ok(Reply::Done(mut done)) => {
                self.row_count = i64::try_from(done.affected_rows).unwrap_or(i64::MAX);
                done.warnings = u16::try_from(self.warnings.len()).unwrap_or(u16::MAX);
                Ok(Reply::Done(done))
            }
            Ok(other) => Ok(other),
            Err(error) => {
                self.row_count = -1;
                // As in MySQL: who gives way loses the whole transaction, not only the statement.
                if alone || error.code == DEADLOCK {
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
        match statement {
            Stmt::Query(query) => self.select(*query, parameters).await,
            Stmt::Insert(insert) => self.write(write::Write::Insert(insert), parameters).await,
            Stmt::Update(update) => self.write(write::Write::Update(update), parameters).await,
            Stmt::Delete(delete) => self.write(write::Write::Delete(delete), parameters).await,
            Stmt::Explain { analyze, statement } => {
                self.explain(*statement, analyze, parameters).await
            }
            Stmt::Begin(mode) => {
                self.commit().await?;
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
            Stmt::SetTransaction { scope, words } => self.set_transaction(scope, &words).await,
            Stmt::SetPassword { user, password } => self.set_password(user, &password).await,
            Stmt::PutUser { users, lenient, create } => {
                self.put_users(users, lenient, create).await
            }
            Stmt::DropUser { users, if_exists } => self.drop_users(users, if_exists).await,
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
                    self.evaluate(expr, parameters).await?;
                }
                Ok(done())
            }
            Stmt::Nothing => Ok(done()),
            definition => {
                self.commit().await?;
                // What a definition has begun, it ends: regions must not know less than the catalog.
                let _held = self.shield.hold();
                self.define(definition, cancel).await
            }
        }
    }

    fn warn(&mut self, code: u16, message: impl Into<String>) {
        self.warnings.push(Warning { level: "Warning", code, message: message.into() });
    }

    fn note(&mut self, code: u16, message: impl Into<String>) {
        self.warnings.push(Warning { level: "Note", code, message: message.into() });
    }

    fn context(&self) -> QueryContext {
        QueryContext {
            database: self.database.clone(),
            now_us: self.now_us,
            time_zone: self.variables.time_zone(),
            sql_mode: self.variables.get("sql_mode").unwrap_or_default(),
            user: format!("{}@{}", self.info.user, self.info.host),
            connection_id: self.info.id,
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
        let (locking, reads_at) = (Arc::default(), Arc::default());
        let open = Open { shared, ts, pessimistic, fresh, locking, reads_at };
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
        let _held = self.shield.hold();
        match transaction.commit().await {
            Ok(_) => Ok(()),
            Err(error) => {
                let catalog = self.engine.storage.catalog().await?;
                Err(rows::error(error, &catalog.tables))
            }
        }
    }

    async fn rollback(&mut self) {
        let Some(open) = self.open.take() else { return };
        let transaction = open.shared.lock().await.take();
        if let Some(transaction) = transaction {
            transaction.rollback().await;
        }
    }

    /// When a plain read of a transaction reads: at its snapshot, which is its beginning, or the
    /// first plain read if it had to lock rows before: what was waited for is seen then.
    async fn reads_at(&self, open: &Open) -> SqlResult<Timestamp> {
        if open.fresh {
            return Ok(self.engine.storage.timestamp().await?);
        }
        if let Some(at) = open.reads_at.get() {
            return Ok(*at);
        }
        let at = match open.locking.load(Ordering::Acquire) {
            true => self.engine.storage.timestamp().await?,
            false => open.ts,
        };
        Ok(*open.reads_at.get_or_init(|| at))
    }

    /// What a statement reads from, and the catalog as of then.
    async fn reader(&mut self) -> SqlResult<(Reader, Arc<Catalog>)> {
        let storage = self.engine.storage.clone();
        let reader = if let Some(token) = self.snapshot {
            storage.timestamp().await?;
            Reader::Snapshot(storage.snapshot(token.ts))
        } else if let Some(open) = self.enclosing().await? {
            let at = self.reads_at(&open).await?;
            Reader::Transaction(open.shared, at)
        } else {
            Reader::Snapshot(storage.present().await?)
        };
        Ok((reader, storage.catalog().await?))
    }
}

/// A pause before the next attempt, longer each time and not the same for all.
async fn pause(attempt: u32) {
    let most = 2u64.saturating_pow(attempt.min(7));
    let millis = rand::random_range(0..=most);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn utf8(sql: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(sql).map_err(|error| {
        let at = error.valid_up_to();
        SqlError::new(1300, b"HY000", format!("Invalid utf8mb4 character string at byte {at}"))
    })
}

/// An answer without rows.
fn done() -> Reply {
    Reply::Done(Done::default())
}

/// A fault that should not be possible.
fn impossible(what: &str) -> SqlError {
    unknown(format!("{what}: please report the statement"))
}
