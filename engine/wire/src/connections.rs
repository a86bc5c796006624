//! The connections of this process: numbers, the process list, KILL, statistics.
//!
//! Shared by the server and the engine. Holds a statement's text only while that runs; who shows it
//! must leave out what may hold a password.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// What KILL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillScope {
    /// The statement that runs.
    Query,
    /// The connection.
    Connection,
}

/// One line of the process list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionSummary {
    /// Number.
    pub id: u32,
    /// User; empty until authenticated.
    pub user: String,
    /// Address of the client.
    pub host: IpAddr,
    /// Current database, as of the last answer.
    pub database: Option<String>,
    /// What it does: `Query`, `Sleep` … as MySQL names it.
    pub command: &'static str,
    /// For how long.
    pub elapsed: Duration,
    /// The statement that runs.
    pub statement: Option<Bytes>,
}

/// All connections.
#[derive(Debug)]
pub struct Connections {
    open: Mutex<HashMap<u32, Arc<Handle>>>,
    most: AtomicUsize,
    next: AtomicU64,
    statements: AtomicU64,
    started: Instant,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            open: Mutex::default(),
            most: AtomicUsize::new(usize::MAX),
            next: AtomicU64::new(1),
            statements: AtomicU64::new(0),
            started: Instant::now(),
        }
    }
}

/// What others may know of a connection, and do to it.
#[derive(Debug)]
pub struct Handle {
    /// Number.
    pub id: u32,
    /// Ends the connection.
    pub closing: CancellationToken,
    host: IpAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    user: String,
    database: Option<String>,
    command: &'static str,
    since: Instant,
    /// Cancels the statement that runs.
    query: Option<CancellationToken>,
    statement: Option<Bytes>,
}

/// Takes a connection off the list when dropped.
#[derive(Debug)]
pub struct Registration {
    connections: Arc<Connections>,
    handle: Arc<Handle>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.handle.id);
    }
}

impl std::ops::Deref for Registration {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Connections {
    /// Allows so many at a time from now on; those that are there stay.
    pub fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// How many are allowed at a time.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Puts a new connection on the list; none if there are as many as are allowed.
    pub fn register(self: &Arc<Self>, host: IpAddr) -> Option<Registration> {
        let state = State {
            user: String::new(),
            database: None,
            command: "Connect",
            since: Instant::now(),
            query: None,
            statement: None,
        };
        let mut open = self.open.lock();
        if open.len() >= self.most() {
            return None;
        }
        // Numbers are 32 bits on the wire; after four billion they begin again.
        let id = loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed) as u32;
            if id != 0 && !open.contains_key(&id) {
                break id;
            }
        };
        let handle = Arc::new(Handle {
            id,
            closing: CancellationToken::new(),
            host,
            state: Mutex::new(state),
        });
        open.insert(id, Arc::clone(&handle));
        Some(Registration { connections: Arc::clone(self), handle })
    }

    /// Ends a connection or what it runs; `false` if there is none of that number. Whether the
    /// caller may do that is the caller's to know: see [`Connections::user_of`].
    pub fn kill(&self, id: u32, scope: KillScope) -> bool {
        let Some(handle) = self.open.lock().get(&id).cloned() else { return false };
        if let Some(query) = handle.state.lock().query.as_ref() {
            query.cancel();
        }
        if scope == KillScope::Connection {
            handle.closing.cancel();
        }
        true
    }

    /// The user of a connection.
    pub fn user_of(&self, id: u32) -> Option<String> {
        self.open.lock().get(&id).map(|handle| handle.state.lock().user.clone())
    }

    /// The statement that a connection runs.
    pub fn statement(&self, id: u32) -> Option<Bytes> {
        let handle = self.open.lock().get(&id).cloned()?;
        let state = handle.state.lock();
        state.statement.clone()
    }

    /// The process list, by number.
    pub fn list(&self) -> Vec<ConnectionSummary> {
        let mut list: Vec<_> = self.open.lock().values().map(|handle| handle.summary()).collect();
        list.sort_by_key(|summary| summary.id);
        list
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Commands answered since the start.
    pub fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Asks every connection to end now.
    pub fn close_all(&self) {
        let handles: Vec<_> = self.open.lock().values().cloned().collect();
        for handle in handles {
            if let Some(query) = handle.state.lock().query.as_ref() {
                query.cancel();
            }
            handle.closing.cancel();
        }
    }
}

impl Registration {
    /// Notes who was authenticated.
    pub fn set_user(&self, user: &str) {
        user.clone_into(&mut self.handle.state.lock().user);
    }

    /// Notes the current database.
    pub fn set_database(&self, database: Option<String>) {
        self.handle.state.lock().database = database;
    }

    /// Notes that a command begins, and returns the token that KILL cancels.
    pub fn begin(&self, command: &'static str, statement: Option<Bytes>) -> CancellationToken {
        let token = CancellationToken::new();
        let mut state = self.handle.state.lock();
        state.command = command;
        state.since = Instant::now();
        state.query = Some(token.clone());
        state.statement = statement;
        self.connections.statements.fetch_add(1, Ordering::Relaxed);
        token
    }

    /// Notes that the command ended.
    pub fn end(&self) {
        let mut state = self.handle.state.lock();
        state.command = "Sleep";
        state.since = Instant::now();
        state.query = None;
        state.statement = None;
    }
}

impl Handle {
    fn summary(&self) -> ConnectionSummary {
        let state = self.state.lock();
        ConnectionSummary {
            id: self.id,
            user: state.user.clone(),
            host: self.host,
            database: state.database.clone(),
            command: state.command,
            elapsed: state.since.elapsed(),
            statement: state.statement.clone(),
        }
    }
}
