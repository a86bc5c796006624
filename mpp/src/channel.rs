//! Connections to other nodes' workers, so that a node that is gone or mute is an error in bounded
//! time.
//!
//! It never waits for a node without a bound: connecting has one, and a connection that stops
//! answering pings is closed, which fails every query that runs over it. A worker that takes plans otherwise than they
//! are meant here is given none.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, GetWorkerInfoRequest, WorkerChannel};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::codegen::http::HeaderMap;
use tonic::transport::{Channel, Endpoint};
use url::Url;

use crate::error::{MppCode, MppError, MppResult};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between pings, and how long an answer to one may take. Together they bound how long a
/// mute node is waited for.
const KEEP_ALIVE: Duration = Duration::from_millis(1_500);
/// How long a worker may take to say what plans it takes: its threads may be busy with queries.
const INFO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a node that just failed may take to accept a connection before it is avoided.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The version of plans: raised when a function, a node or a type in them changes its meaning.
pub const PLANS: &str = "plans 2";

/// The header by which a plan says its version; those of the release before have none.
pub const PLANS_HEADER: &str = "isobar-plans";

/// Refuses a plan that is meant otherwise than it would be run here. Connections outlive the processes at their ends, so
/// that what was asked when one was made does not hold for ever.
pub fn check_header(headers: &HeaderMap) -> MppResult<()> {
    match headers.get(PLANS_HEADER).map(|plans| plans.to_str().unwrap_or("another version")) {
        None | Some(PLANS) => Ok(()),
        Some(theirs) => Err(MppError::new(
            MppCode::Unavailable,
            format!(
                "this node takes {PLANS}, and the coordinator makes {theirs}: it runs another release"
            ),
        )),
    }
}

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
        check_plans(url, channel.clone()).await?;
        self.0.lock().insert(url.clone(), channel.clone());
        Ok(channel)
    }

    /// Whether a worker's node accepts connections, and is not known to take other plans than are made here. One that is
    /// busy does not say so in time.
    pub async fn answers(&self, url: &Url) -> bool {
        let other = async {
            self.channel(url).await.is_err_and(|error| error.code == MppCode::Unavailable)
        };
        accepts(url).await && !timeout(PROBE_TIMEOUT, other).await.unwrap_or(false)
    }
}

/// Refuses a worker of another release, whose functions may mean something else by the same names.
async fn check_plans(url: &Url, channel: Channel) -> MppResult<()> {
    let mut client = create_worker_client(BoxCloneSyncChannel::new(channel));
    let unavailable = |text: String| MppError::new(MppCode::Unavailable, text);
    let info = timeout(INFO_TIMEOUT, client.get_worker_info(GetWorkerInfoRequest {})).await;
    match info {
        Ok(Ok(info)) if info.version == PLANS => Ok(()),
        Ok(Ok(info)) => {
            let theirs = if info.version.is_empty() { "plans 1" } else { &info.version };
            Err(unavailable(format!(
                "the worker at {url} takes {theirs}, and this node makes {PLANS}: it runs another release; retry once \
                 all columnar nodes are upgraded, or read rows"
            )))
        }
        Ok(Err(error)) => {
            Err(unavailable(format!("the worker at {url} does not say what it runs: {error}")))
        }
        Err(_) => Err(unavailable(format!("the worker at {url} does not answer"))),
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
async fn accepts(url: &Url) -> bool {
    let address =
        url.socket_addrs(|| None).ok().and_then(|all: Vec<SocketAddr>| all.first().copied());
    match address {
        Some(address) => {
            matches!(timeout(PROBE_TIMEOUT, TcpStream::connect(address)).await, Ok(Ok(_)))
        }
        None => false,
    }
}
