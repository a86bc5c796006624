//! One MySQL-protocol server: sessions at one snapshot, statements with bounded retries.
//!
//! It reads only. What a table's SQL says is [`crate::expr`]'s business.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, Row, Value};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::expr::Dialect;

/// Tries of one statement.
const TRIES: u32 = 6;
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Error codes after which a statement may be tried again: locks, limits, shutdown, regions that move.
const PASSING: [u16; 9] = [1040, 1053, 1205, 1213, 1317, 1927, 9001, 9002, 9005];
/// Isobar's code of a snapshot that is too old or whose lease is over.
const SNAPSHOT_LOST: u16 = 9006;

/// Which engines of an Isobar server may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Columnar replicas only.
    Columns,
    /// The row store only.
    Rows,
    /// Whichever its router takes.
    Any,
}

impl Engine {
    fn setting(self) -> &'static str {
        match self {
            Engine::Columns => "columns",
            Engine::Rows => "rows",
            Engine::Any => "rows,columns",
        }
    }
}

/// Which snapshot a server is read at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotMode {
    /// Each statement at its own snapshot.
    Each,
    /// All at one snapshot, by a token of Isobar's.
    Token(String),
    /// All at one snapshot, in one transaction of one session.
    Transaction,
}

struct Session {
    conn: Conn,
    engine: Option<Engine>,
}

/// A server.
pub struct Server {
    opts: Opts,
    /// Host and port.
    pub label: String,
    /// Kind.
    pub dialect: Dialect,
    /// What it calls itself.
    pub version: String,
    mode: SnapshotMode,
    idle: Mutex<Vec<Session>>,
    slots: Semaphore,
    timeout: Duration,
    resume: &'static str,
    /// Whether the one transaction is begun.
    begun: AtomicBool,
}

/// A row as it comes: text, or NULL.
pub type Cells = Vec<Option<Vec<u8>>>;

enum Failed {
    Passing(String),
    Final(Error),
}

impl Server {
    /// Connects, and finds out what kind of server it is.
    pub async fn connect(
        opts: Opts,
        label: String,
        sessions: usize,
        timeout: Duration,
        resume: &'static str,
    ) -> Result<Server> {
        let mut server = Server {
            opts,
            label,
            dialect: Dialect::Plain,
            version: String::new(),
            mode: SnapshotMode::Each,
            idle: Mutex::default(),
            // One more, so that a lease is renewed while all others are busy.
            slots: Semaphore::new(sessions.max(1) + 1),
            timeout,
            resume,
            begun: AtomicBool::new(false),
        };
        let rows = server.query("ask for its version", "SELECT VERSION()", Engine::Any).await?;
        server.version = text(rows.into_iter().flatten().next().flatten());
        if server.version.contains("Isobar") {
            server.dialect = Dialect::Isobar;
        }
        Ok(server)
    }

    /// Reads at this snapshot from now on.
    pub fn read_at(&mut self, mode: SnapshotMode) {
        if mode == SnapshotMode::Transaction {
            self.slots = Semaphore::new(1);
        }
        self.mode = mode;
        // Earlier sessions read at another snapshot.
        if let Ok(mut idle) = self.idle.lock() {
            idle.clear();
        }
    }

    /// The snapshot that it is read at.
    pub fn snapshot_mode(&self) -> &SnapshotMode {
        &self.mode
    }

    /// A statement's rows; tried again where that may help. `doing` is for people.
    pub async fn query(&self, doing: &str, sql: &str, engine: Engine) -> Result<Vec<Cells>> {
        let _slot = self.slots.acquire().await.map_err(|_| self.gone("its sessions are closed"))?;
        let mut last = String::new();
        for attempt in 0..TRIES {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_millis(200 << attempt.min(4))).await;
            }
            match self.attempt(doing, sql, engine).await {
                Ok(rows) => return Ok(rows),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing(cause)) => last = cause,
            }
        }
        Err(self.gone(&last))
    }

    async fn attempt(
        &self,
        doing: &str,
        sql: &str,
        engine: Engine,
    ) -> std::result::Result<Vec<Cells>, Failed> {
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let mut session = match kept {
            Some(session) => session,
            None => self.open().await?,
        };
        let query = async {
            if self.dialect == Dialect::Isobar && session.engine != Some(engine) {
                let set = format!("SET isobar_read_engines = '{}'", engine.setting());
                session.conn.query_drop(set).await?;
                session.engine = Some(engine);
            }
            let mut rows = session.conn.query_iter(sql).await?;
            rows.map(cells).await
        };
        match tokio::time::timeout(self.timeout, query).await {
            Ok(Ok(rows)) => {
                if let Ok(mut idle) = self.idle.lock() {
                    idle.push(session);
                }
                Ok(rows)
            }
            Ok(Err(error)) => {
                let failed = self.failed(doing, &error);
                // A refusal leaves the session, and its transaction, as it was. After anything else
                // the session is dropped: what it was doing is unknown.
                if matches!(failed, Failed::Final(Error::Refused { .. }))
                    && let Ok(mut idle) = self.idle.lock()
                {
                    idle.push(session);
                }
                Err(self.ended(failed))
            }
            Err(_) => {
                let cause = format!("no answer within {} s", self.timeout.as_secs());
                Err(self.ended(Failed::Passing(cause)))
            }
        }
    }

    /// What a failure means once a session had its snapshot: another try would read another snapshot.
    fn ended(&self, failed: Failed) -> Failed {
        match failed {
            Failed::Passing(cause) if self.mode == SnapshotMode::Transaction => {
                Failed::Final(self.lost(cause))
            }
            other => other,
        }
    }

    /// That the snapshot is gone.
    pub fn lost(&self, cause: String) -> Error {
        Error::SnapshotLost { server: self.label.clone(), cause }
    }

    /// A session at the server's snapshot, in UTC.
    async fn open(&self) -> std::result::Result<Session, Failed> {
        let connected = tokio::time::timeout(CONNECT, Conn::new(self.opts.clone())).await;
        let mut conn = match connected {
            Ok(Ok(conn)) => conn,
            Ok(Err(error)) => return Err(self.failed("let us in", &error)),
            Err(_) => return Err(Failed::Passing("connecting takes too long".into())),
        };
        let mut setup = vec!["SET NAMES utf8mb4".to_owned(), "SET time_zone = '+00:00'".to_owned()];
        if self.dialect == Dialect::Plain && !self.version.is_empty() {
            setup.push("SET SESSION sql_mode = ''".into());
        }
        match &self.mode {
            SnapshotMode::Each => {}
            SnapshotMode::Token(token) => setup.push(format!("SET isobar_snapshot = '{token}'")),
            SnapshotMode::Transaction => {
                setup.push("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ".into());
                setup.push("START TRANSACTION WITH CONSISTENT SNAPSHOT".into());
            }
        }
        for statement in setup {
            match tokio::time::timeout(CONNECT, conn.query_drop(statement)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.failed("set up a session", &error)),
                Err(_) => {
                    return Err(Failed::Passing(
                        "a session's first statements take too long".into(),
                    ));
                }
            }
        }
        if self.mode == SnapshotMode::Transaction && self.begun.swap(true, Ordering::AcqRel) {
            return Err(Failed::Final(self.lost("its session has ended".into())));
        }
        Ok(Session { conn, engine: None })
    }

    fn failed(&self, doing: &str, error: &mysql_async::Error) -> Failed {
        match error {
            mysql_async::Error::Server(said) if said.code == SNAPSHOT_LOST => {
                Failed::Final(self.lost(said.message.clone()))
            }
            mysql_async::Error::Server(said) if !PASSING.contains(&said.code) => {
                Failed::Final(Error::Refused {
                    server: self.label.clone(),
                    doing: doing.to_owned(),
                    cause: format!("{} ({})", said.message, said.code),
                })
            }
            other => Failed::Passing(other.to_string()),
        }
    }

    fn gone(&self, cause: &str) -> Error {
        Error::Gone { server: self.label.clone(), cause: cause.to_owned(), resume: self.resume }
    }

    /// Ends its sessions.
    pub async fn close(&self) {
        let sessions =
            self.idle.lock().map(|mut idle| std::mem::take(&mut *idle)).unwrap_or_default();
        for session in sessions {
            // Whoever does not say goodbye in time is left.
            _ = tokio::time::timeout(Duration::from_secs(2), session.conn.disconnect()).await;
        }
    }
}

fn cells(row: Row) -> Cells {
    let cell = |value: Value| match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(bytes),
        // The text protocol knows bytes only.
        other => Some(other.as_sql(true).into_bytes()),
    };
    row.unwrap_raw().into_iter().map(|value| value.and_then(cell)).collect()
}

/// A cell as text; NULL as nothing.
pub fn text(cell: Option<Vec<u8>>) -> String {
    cell.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
