//! The interface from sessions to the server around them: who is connected, and how to end a statement of theirs.
//!
//! Sessions know no more of sockets than this trait.

/// One connection, for the process list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Connection number.
    pub id: u64,
    /// User.
    pub user: String,
    /// Address of the client.
    pub host: String,
    /// Current database.
    pub database: Option<String>,
    /// `Query`, `Sleep` ….
    pub command: String,
    /// For how many seconds.
    pub seconds: u64,
    /// The statement that runs.
    pub statement: Option<String>,
}

/// The server around the sessions.
pub trait Host: Send + Sync + 'static {
    /// Open connections.
    fn processes(&self) -> Vec<Process>;

    /// The statement that a connection runs, as text.
    fn statement(&self, connection: u64) -> Option<String>;

    /// Ends a statement or a connection; false if there is none of that number.
    fn kill(&self, connection: u64, query_only: bool) -> bool;

    /// A password as the server checks it.
    fn store_password(&self, password: &str) -> Vec<u8>;

    /// Seconds since the start, and statements since then.
    fn uptime_and_statements(&self) -> (u64, u64);
}
