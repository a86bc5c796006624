//! Connections to other nodes' workers, so that a node that is gone or mute is an error in bounded
//! time.
//!
//! It never waits for a node without a bound: connecting has one, and a connection that stops
//! answering pings is closed, which fails every query that runs over it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use url::Url;

use crate::error::{MppCode, MppError, MppResult};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between pings, and how long an answer to one may take. Together they bound how long a
/// mute node is waited for.
const KEEP_ALIVE: Duration = Duration::from_millis(1_500);
/// How long a node that just failed may take to accept a connection before it is avoided.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// One connection for each worker, reopened when it broke.
#[derive(Clone, Default)]
pub struct WorkerChannels(Arc<Mutex<HashMap<Url, Channel>>>);

impl WorkerChannels {
    async fn channel(&self, url: &Url) -> MppResult<Channel> {
        if let Some(channel) = self.0.lock().get(url) {
            return Ok(channel.clone());
        }
        let failed = |cause: String| {
            let text = format!(
                "the worker at {url} cannot be reached ({cause}): check that its node runs, or \
                 read rows"
            );
            MppError::new(MppCode::Unavailable, text)
        };
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|error| failed(error.to_string()))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true);
        let channel = match timeout(CONNECT_TIMEOUT, endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed("it does not answer".to_owned())),
        };
        self.0.lock().insert(url.clone(), channel.clone());
        Ok(channel)
    }
}

#[async_trait]
impl ChannelResolver for WorkerChannels {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let channel = self.channel(url).await?;
        Ok(create_worker_client(BoxCloneSyncChannel::new(channel)))
    }
}

/// Whether a worker's node accepts connections at all.
pub async fn accepts(url: &Url) -> bool {
    let address =
        url.socket_addrs(|| None).ok().and_then(|all: Vec<SocketAddr>| all.first().copied());
    match address {
        Some(address) => {
            matches!(timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_)))
        }
        None => false,
    }
}
