//! How a server is configured. It must never hold what changes while the server runs.

use std::sync::Arc;
use std::time::Duration;

/// Settings of a server. [`Options::default`] is MySQL's defaults where it has one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most connections at a time, until [`crate::Connections::allow`] says otherwise.
    pub max_connections: usize,
    /// Most bytes of one packet from a client.
    pub max_allowed_packet: usize,
    /// Encryption, if offered: see [`crate::tls::server_config`].
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Bounds each wait for the client during the handshake.
    pub handshake_timeout: Duration,
    /// An idle connection is closed after this.
    pub idle_timeout: Duration,
    /// A client that neither takes nor gives bytes within a command is given up after this.
    pub stall_timeout: Duration,
    /// How long running commands may go on after shutdown began.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_connections: 512,
            max_allowed_packet: 64 * 1024 * 1024,
            tls: None,
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(8 * 3600),
            stall_timeout: Duration::from_secs(600),
            drain: Duration::from_secs(10),
        }
    }
}
