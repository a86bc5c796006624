//! What the wire asks of a SQL engine.
//!
//! The traits carry no packet and no socket, so an engine, or a test, can be plugged in whole.

use std::net::IpAddr;

use async_trait::async_trait;
use bytes::Bytes;
use execution::reply::{Reply, SessionChanges};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::column::ResultColumn;
use values::error::SqlError;

use crate::password::StoredPassword;

/// Who connected, and how.
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    /// Number of the connection: `CONNECTION_ID()`, `KILL`.
    pub id: u32,
    /// User that was authenticated.
    pub user: String,
    /// Address of the client.
    pub host: IpAddr,
    /// Database to begin in.
    pub database: Option<String>,
    /// Connection attributes (`program_name`, `_client_name` …) as the client gave them.
    pub attributes: Vec<(String, String)>,
    /// Collation number of the client's handshake.
    pub collation: u16,
    /// CLIENT_FOUND_ROWS: an UPDATE counts the rows that it found, changed or not.
    pub found_rows: bool,
    /// CLIENT_LOCAL_FILES: the client is willing to send files.
    pub local_files: bool,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// State of a session that every answer reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// A transaction is open.
    pub in_transaction: bool,
    /// Autocommit is on.
    pub autocommit: bool,
    /// sql_mode holds NO_BACKSLASH_ESCAPES: clients quote accordingly.
    pub no_backslash_escapes: bool,
}

/// A statement that was parsed and waits for its parameters.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Number within the session, chosen by the session.
    pub id: u32,
    /// How many parameters it takes.
    pub params: u16,
    /// Columns of its result; empty for a statement without one.
    pub columns: Vec<ResultColumn>,
    /// Warnings from preparing it.
    pub warnings: u16,
}

/// Pieces of the file that a client sends for LOAD DATA LOCAL INFILE, in order. The end of the
/// channel is the end of the file; an error means that the rest will not come, so nothing of the
/// file may be believed whole.
pub type InfileReceiver = mpsc::Receiver<Result<Bytes, SqlError>>;

/// The engine behind the server.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The stored password of the user when connecting from `host`; `None` if there is no such
    /// user there. An error is reported to the client as it is.
    async fn credentials(
        &self,
        user: &str,
        host: IpAddr,
    ) -> Result<Option<StoredPassword>, SqlError>;

    /// Opens a session for an authenticated user; fails if its database does not exist.
    async fn open_session(&self, info: ConnectionInfo) -> Result<Box<dyn Session>, SqlError>;
}

/// One client's session. Used by one connection at a time, one call at a time.
///
/// A call that takes a token must end soon after the token is cancelled (KILL QUERY, client gone);
/// where the client is gone for good, the wire waits a bounded time and then drops the call.
#[async_trait]
pub trait Session: Send {
    /// Runs one statement. The text has no terminating semicolon and need not be UTF-8.
    async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> Result<Reply, SqlError>;

    /// Prepares one statement.
    async fn prepare(&mut self, sql: &[u8]) -> Result<Prepared, SqlError>;

    /// Runs a prepared statement. `id` is one that [`Session::prepare`] gave, and there are as
    /// many parameters as it asked for. Text parameters are [`Value::String`], and so are times
    /// (`[-]HHH:MM:SS[.ffffff]`) and dates that no calendar has (`0000-00-00`).
    async fn execute_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError>;

    /// As [`Session::execute_prepared`], for a cursor: the rows are pulled piece by piece, other
    /// statements run between, and what they write must not show.
    async fn open_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError>;

    /// Forgets a prepared statement.
    async fn close_prepared(&mut self, id: u32);

    /// Continues a statement that answered [`Reply::LocalInfile`]. Dropping the receiver early is
    /// allowed: the rest of the file is read and forgotten.
    async fn load_data(
        &mut self,
        file: InfileReceiver,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError>;

    /// Makes a database the current one.
    async fn use_database(&mut self, name: &str) -> Result<(), SqlError>;

    /// The current database.
    fn database(&self) -> Option<String>;

    /// Changes that the client tracks, since this was last called.
    fn take_changes(&mut self) -> SessionChanges;

    /// State for the answer's status flags.
    fn status(&self) -> SessionStatus;

    /// Time zone in which TIMESTAMP values are shown: `+02:00` or a name of the IANA database.
    fn time_zone(&self) -> String;

    /// Rolls back what is open and frees what is held. Called once, at the end, however the
    /// connection ended; nothing is called after it.
    async fn close(&mut self);
}
