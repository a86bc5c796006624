//! Connections to other nodes: one lazily opened HTTP/2 channel for each address.
//!
//! It never resolves a node by itself: the address book is filled from placement's answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use placement::formation::ClusterId;
use tonic::transport::{Channel, Endpoint};
use types::{ClusterVersion, Error, NodeId, Result, version};

/// How long opening a connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest message accepted from another node, in bytes.
pub const MESSAGE_LIMIT: usize = 64 << 20;

/// Pause between pings of a connection that is in use.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
/// How long an answer to such a ping may take before everything under way over the connection fails.
const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(4);
const WINDOW: u32 = 4 << 20;

/// Which node listens where.
#[derive(Clone, Default)]
pub struct AddressBook(Arc<RwLock<HashMap<NodeId, String>>>);

impl AddressBook {
    /// Records a node's internal address, `host:port`.
    pub fn insert(&self, node: NodeId, address: impl Into<String>) {
        let address = address.into();
        let known = self.0.read().get(&node).is_some_and(|old| *old == address);
        if !known {
            self.0.write().insert(node, address);
        }
    }

    /// Address of a node.
    pub fn get(&self, node: NodeId) -> Result<String> {
        self.0.read().get(&node).cloned().ok_or_else(|| {
            Error::Unavailable(format!("the address of node {node} is not known yet"))
        })
    }
}

/// Channels by address, and what this node says of its cluster on each.
#[derive(Clone, Default)]
pub struct Channels(Arc<Shared>);

#[derive(Default)]
struct Shared {
    channels: RwLock<HashMap<String, Channel>>,
    cluster: AtomicU64,
    version: AtomicU32,
}

impl Channels {
    /// Says from now on which cluster this node belongs to.
    pub fn join(&self, cluster: ClusterId) {
        self.0.cluster.store(cluster, Ordering::Release);
    }

    /// The cluster; 0 if there is none yet.
    pub fn cluster(&self) -> ClusterId {
        self.0.cluster.load(Ordering::Acquire)
    }

    /// Takes note of the cluster's version, which never falls.
    pub fn note_version(&self, version: ClusterVersion) {
        self.0.version.fetch_max(version, Ordering::AcqRel);
    }

    /// The cluster's version, as far as this node knows: it may be greater by now.
    pub fn version(&self) -> ClusterVersion {
        version::named(self.0.version.load(Ordering::Acquire))
    }

    /// The channel to an address, opened at its first use and reopened by itself when it breaks.
    pub fn get(&self, address: &str) -> Result<Channel> {
        if let Some(channel) = self.0.channels.read().get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| Error::Invalid(format!("'{address}' is not a host:port: {error}")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_LIMIT)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(2 * WINDOW);
        let channel = endpoint.connect_lazy();
        Ok(self.0.channels.write().entry(address.to_owned()).or_insert(channel).clone())
    }
}
