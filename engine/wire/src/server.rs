//! The listening side: accepts connections up to a limit, and drains them on shutdown.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use mysql_common::constants::CapabilityFlags;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use values::error;

use crate::backend::Backend;
use crate::connection::{self, Shared};
use crate::connections::{Connections, Registration};
use crate::options::Options;
use crate::{answer, handshake};

/// Version of MySQL whose behaviour clients may expect.
const MYSQL_VERSION: &str = "8.0.11";
/// How long accepting pauses after the operating system refused (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long cancelled connections get to say goodbye.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The version string of the greeting and of `SELECT VERSION()`.
pub fn server_version() -> String {
    format!("{MYSQL_VERSION}-isobar-{}", env!("CARGO_PKG_VERSION"))
}

/// A MySQL server: one listening socket before one engine.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Server {
    /// Listens on `address`. `connections` is shared with the engine, for KILL and SHOW
    /// PROCESSLIST.
    pub async fn bind(
        address: SocketAddr,
        options: Options,
        backend: Arc<dyn Backend>,
        connections: Arc<Connections>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        connections.allow(options.max_connections);
        let shared = Arc::new(Shared {
            options,
            backend,
            connections,
            version: server_version(),
            draining: CancellationToken::new(),
        });
        Ok(Self { listener, shared })
    }

    /// The address that is listened on; its port is real where 0 was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`; then lets running commands finish, up to the drain time, and
    /// closes everything.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        // Boxed, to be compiled here and not where it is spawned.
        self.accept_until(shutdown).boxed()
    }

    async fn accept_until(self, shutdown: CancellationToken) {
        let Server { listener, shared } = self;
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => match shared.connections.register(peer.ip()) {
                    Some(registration) => {
                        tasks.spawn(serve(socket, peer, registration, Arc::clone(&shared)));
                    }
                    None => {
                        let shared = Arc::clone(&shared);
                        tasks.spawn(async move { turn_away(socket, &shared).await });
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a MySQL connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        tasks.close();
        shared.draining.cancel();
        if tokio::time::timeout(shared.options.drain, tasks.wait()).await.is_err() {
            shared.connections.close_all();
            if tokio::time::timeout(LAST_WORDS, tasks.wait()).await.is_err() {
                let left = shared.connections.count();
                tracing::warn!(left, "MySQL connections are still busy at the end of shutdown");
            }
        }
    }
}

async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    registration: Registration,
    shared: Arc<Shared>,
) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let id = registration.id;
    match connection::serve(Box::new(socket), peer.ip(), registration, shared).await {
        Ok(()) => tracing::debug!(id, %peer, "MySQL connection closed"),
        Err(failure) => tracing::debug!(id, %peer, %failure, "MySQL connection ended"),
    }
}

/// Refuses a client that there is no room for.
async fn turn_away(socket: TcpStream, shared: &Shared) {
    let (_, mut writer) = handshake::packets(Box::new(socket), shared.options.handshake_timeout);
    let error = error::too_many_connections(shared.connections.most());
    answer::put_error(&mut writer, CapabilityFlags::empty(), &error);
    if let Err(error) = writer.close().await {
        tracing::debug!(%error, "cannot turn a MySQL connection away");
    }
}
