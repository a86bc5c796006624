//! The SQL engine behind the MySQL wire: sessions and users, translated one to one.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use execution::host::{Host, Process};
use execution::panics::guarded;
use execution::reply::{Reply, SessionChanges};
use placement::client::PlacementClient;
use sql::engine::Engine;
use sql::session::SessionInfo;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::error::SqlError;
use wire::{
    AuthPlugin, Backend, ConnectionInfo, Connections, InfileReceiver, KillScope, Prepared, Session,
    SessionStatus, StoredPassword,
};

use crate::users;

/// Opens sessions of one engine.
pub struct SqlBackend {
    engine: Engine,
    placement: PlacementClient,
}

impl SqlBackend {
    /// A backend whose users are placement's.
    pub fn new(engine: Engine, placement: PlacementClient) -> Self {
        SqlBackend { engine, placement }
    }
}

#[async_trait]
impl Backend for SqlBackend {
    async fn credentials(
        &self,
        user: &str,
        host: IpAddr,
    ) -> Result<Option<StoredPassword>, SqlError> {
        users::stored_password(&self.placement, user, host).await.map_err(SqlError::from)
    }

    async fn open_session(&self, info: ConnectionInfo) -> Result<Box<dyn Session>, SqlError> {
        let mut session = sql::session::Session::new(
            self.engine.clone(),
            SessionInfo {
                id: info.id.into(),
                user: info.user,
                host: info.host.to_string(),
                found_rows: info.found_rows,
            },
        );
        if let Some(database) = &info.database {
            session.use_database(database).await?;
        }
        Ok(Box::new(SqlSession(session)))
    }
}

/// A session of the engine, as the wire asks for it. A call that panics fails, and the session goes on.
struct SqlSession(sql::session::Session);

impl SqlSession {
    async fn settled<T>(&mut self, done: Result<T, SqlError>) -> Result<T, SqlError> {
        if done.as_ref().err().is_some_and(values::error::is_fault) {
            self.0.give_up().await;
        }
        done
    }
}

#[async_trait]
impl Session for SqlSession {
    async fn execute(&mut self, sql: &[u8], cancel: &CancellationToken) -> Result<Reply, SqlError> {
        let done = guarded(self.0.execute(sql, cancel)).await;
        self.settled(done).await
    }

    async fn prepare(&mut self, sql: &[u8]) -> Result<Prepared, SqlError> {
        let prepared = guarded(self.0.prepare(sql)).await;
        let prepared = self.settled(prepared).await?;
        Ok(Prepared {
            id: prepared.id,
            params: prepared.parameters,
            columns: prepared.columns,
            warnings: 0,
        })
    }

    async fn execute_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        let done = guarded(self.0.execute_prepared(id, params, cancel)).await;
        self.settled(done).await
    }

    async fn open_prepared(
        &mut self,
        id: u32,
        params: Vec<Value>,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        let done = guarded(self.0.open_prepared(id, params, cancel)).await;
        self.settled(done).await
    }

    async fn close_prepared(&mut self, id: u32) {
        self.0.close_prepared(id);
    }

    async fn load_data(
        &mut self,
        file: InfileReceiver,
        cancel: &CancellationToken,
    ) -> Result<Reply, SqlError> {
        let done = guarded(self.0.load_data(file, cancel)).await;
        self.settled(done).await
    }

    async fn use_database(&mut self, name: &str) -> Result<(), SqlError> {
        guarded(self.0.use_database(name)).await
    }

    fn database(&self) -> Option<String> {
        self.0.database()
    }

    fn take_changes(&mut self) -> SessionChanges {
        self.0.take_changes()
    }

    fn status(&self) -> SessionStatus {
        SessionStatus {
            in_transaction: self.0.in_transaction(),
            autocommit: self.0.autocommit(),
            no_backslash_escapes: self.0.no_backslash_escapes(),
        }
    }

    fn time_zone(&self) -> String {
        self.0.time_zone()
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

/// The server around the sessions, as the engine asks for it.
pub struct ServerHost(pub Arc<Connections>);

impl Host for ServerHost {
    fn processes(&self) -> Vec<Process> {
        let connections = self.0.list().into_iter();
        connections
            .map(|connection| Process {
                id: connection.id.into(),
                user: connection.user,
                host: connection.host.to_string(),
                database: connection.database,
                command: connection.command.to_owned(),
                seconds: connection.elapsed.as_secs(),
                statement: connection
                    .statement
                    .map(|text| String::from_utf8_lossy(&text).into_owned()),
            })
            .collect()
    }

    fn statement(&self, connection: u64) -> Option<String> {
        let text = self.0.statement(u32::try_from(connection).ok()?)?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn kill(&self, connection: u64, query_only: bool) -> bool {
        let scope = if query_only { KillScope::Query } else { KillScope::Connection };
        u32::try_from(connection).is_ok_and(|id| self.0.kill(id, scope))
    }

    fn store_password(&self, password: &str) -> Vec<u8> {
        let stored = StoredPassword::from_plaintext(password.as_bytes(), AuthPlugin::CachingSha2);
        // Digests always encode; an account without credentials would let anyone in.
        users::encode(&stored).unwrap_or_else(|_| b"unusable".to_vec())
    }

    fn uptime_and_statements(&self) -> (u64, u64) {
        (self.0.uptime().as_secs(), self.0.statements())
    }
}
