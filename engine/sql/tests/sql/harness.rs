//! A session over the store in memory, and its answers as text.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use env::{Clock, Instant, SimClock};
use execution::host::{Host, Process};
use execution::reply::{Done, Reply};
use functions::value::value_at;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use sql::engine::Engine;
use sql::session::{Session, SessionInfo};
use storage::memory::MemoryStorage;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::coerce::text;
use values::column::ResultColumn;
use values::error::SqlError;

/// A server without connections.
pub struct NoServer;

impl Host for NoServer {
    fn processes(&self) -> Vec<Process> {
        Vec::new()
    }

    fn statement(&self, _: u64) -> Option<String> {
        None
    }

    fn kill(&self, connection: u64, _: bool) -> bool {
        connection == 7
    }

    fn store_password(&self, password: &str) -> Vec<u8> {
        password.bytes().rev().collect()
    }

    fn uptime_and_statements(&self) -> (u64, u64) {
        (1, 2)
    }
}

/// An engine over an empty store.
pub fn engine() -> Engine {
    engine_over(MemoryStorage::new())
}

/// An engine over a store.
pub fn engine_over(store: MemoryStorage) -> Engine {
    let clock = Arc::new(SimClock::new(1_700_000_000_000_000));
    Engine::new(Arc::new(store), clock).with_host(Arc::new(NoServer))
}

/// An engine over an empty store, whose clock shows the store's present: each timestamp is a millisecond later.
pub fn engine_in_step() -> Engine {
    let store = MemoryStorage::new();
    Engine::new(Arc::new(store.clone()), Arc::new(Present(store))).with_host(Arc::new(NoServer))
}

/// The present of a store.
struct Present(MemoryStorage);

impl Clock for Present {
    fn now(&self) -> Instant {
        Instant::from_micros(self.0.unix_micros())
    }

    fn unix_micros(&self) -> u64 {
        self.0.unix_micros()
    }
}

/// A session of root.
pub fn session(engine: &Engine) -> Session {
    let info =
        SessionInfo { id: 1, user: "root".into(), host: "127.0.0.1".into(), found_rows: false };
    Session::new(engine.clone(), info)
}

/// A session in database `d`, which is made if need be.
pub async fn in_database(engine: &Engine) -> Session {
    let mut session = session(engine);
    done(&mut session, "CREATE DATABASE IF NOT EXISTS d").await.unwrap();
    done(&mut session, "USE d").await.unwrap();
    session
}

/// Rows as texts.
pub type Rows = Vec<Vec<String>>;

/// What a statement answers.
pub enum Answer {
    /// No rows.
    Done(Done),
    /// Rows.
    Rows(Vec<ResultColumn>, Rows),
}

/// Runs one statement to its end. What is awaited is small: a test of many statements would need
/// more stack than it has.
pub fn run<'a>(session: &'a mut Session, sql: &'a str) -> BoxFuture<'a, Result<Answer, SqlError>> {
    Box::pin(answer(session, sql))
}

async fn answer(session: &mut Session, sql: &str) -> Result<Answer, SqlError> {
    let cancel = CancellationToken::new();
    collected(session.execute(sql.as_bytes(), &cancel).await?, sql).await
}

/// Runs a prepared statement to its end.
pub async fn again(
    session: &mut Session,
    (id, sql): (u32, &str),
    parameters: Vec<Value>,
) -> Result<Answer, SqlError> {
    let cancel = CancellationToken::new();
    collected(session.execute_prepared(id, parameters, &cancel).await?, sql).await
}

async fn collected(reply: Reply, sql: &str) -> Result<Answer, SqlError> {
    match reply {
        Reply::Done(done) => Ok(Answer::Done(done)),
        Reply::Rows { columns, batches, .. } => {
            let batches: Vec<RecordBatch> = batches.try_collect().await?;
            let mut rows = Vec::new();
            for batch in batches {
                for (column, described) in batch.columns().iter().zip(&columns) {
                    if let Some(ty) = described.ty {
                        assert_eq!(*column.data_type(), types::columns::arrow_type(ty), "{sql}");
                    }
                }
                for row in 0..batch.num_rows() {
                    let cell = |c| value_at(c, row).map(text);
                    rows.push(batch.columns().iter().map(cell).collect::<Result<_, _>>()?);
                }
            }
            Ok(Answer::Rows(columns, rows))
        }
        Reply::LocalInfile { file } => {
            Err(SqlError::received(0, *b"00000", format!("the file {file} is wanted")))
        }
    }
}

/// The rows of a query, fields joined by `|`.
pub async fn rows(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    match run(session, sql).await? {
        Answer::Rows(_, rows) => Ok(rows.into_iter().map(|row| row.join("|")).collect()),
        Answer::Done(_) => panic!("{sql} answered no rows"),
    }
}

/// A statement without rows.
pub async fn done(session: &mut Session, sql: &str) -> Result<Done, SqlError> {
    match run(session, sql).await? {
        Answer::Done(done) => Ok(done),
        Answer::Rows(..) => panic!("{sql} answered rows"),
    }
}

/// What the last statement warned of.
pub async fn warnings(session: &mut Session) -> Vec<String> {
    rows(session, "SHOW WARNINGS").await.unwrap()
}
