//! Which nodes answer pings: ends waits for processes that were stopped or cut off, and remembers
//! them until they answer again.
//!
//! A process that was stopped keeps its connections, so only an answer shows that it runs. Nobody is
//! asked while calls are answered in time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tonic::Code;
use types::{NodeId, Result};

use crate::channel::Channels;
use crate::proto::Ack;
use crate::proto::node_client::NodeClient;

/// Pause of a call before its nodes are asked, and between two rounds of asking.
const PING_EVERY: Duration = Duration::from_millis(400);
/// How long an answer to a ping may take.
const PING_LIMIT: Duration = Duration::from_millis(600);
/// Rounds in a row without an answer after which a call is given up though nobody else can answer it.
const LAST_ROUND: u32 = 3;
/// How often a silent node is asked whether it is back, before it is simply tried again.
const RETURNS: u32 = 600;

/// A node and its internal address, `host:port`.
pub type Address = (NodeId, String);

/// Nodes that were silent when they were last asked. Clones share what they know.
#[derive(Clone, Default)]
pub struct Pulse {
    channels: Channels,
    silent: Arc<Mutex<BTreeSet<NodeId>>>,
}

impl Pulse {
    /// Pings over these channels.
    pub fn new(channels: Channels) -> Self {
        Pulse { channels, silent: Arc::default() }
    }

    /// Nodes that did not answer when they were last asked.
    pub fn silent(&self) -> BTreeSet<NodeId> {
        self.silent.lock().clone()
    }

    /// Waits for a call that needs all of `nodes`. Should one of them stop answering pings, the call
    /// is given up, with the silent ones as the error: at once if `without` says that others can do
    /// their part, else after some more rounds.
    pub async fn watch<T>(
        &self,
        nodes: &[Address],
        without: impl Fn(&BTreeSet<NodeId>) -> bool,
        call: impl Future<Output = T>,
    ) -> Result<T, BTreeSet<NodeId>> {
        let silence = async {
            let mut rounds = 0;
            loop {
                sleep(PING_EVERY).await;
                let silent = self.ping_all(nodes).await;
                rounds = if silent.is_empty() { 0 } else { rounds + 1 };
                if rounds >= LAST_ROUND || !silent.is_empty() && without(&silent) {
                    return silent;
                }
            }
        };
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            silent = silence => Err(silent),
        }
    }

    /// Pings nodes; those that do not answer.
    pub async fn ping_all(&self, nodes: &[Address]) -> BTreeSet<NodeId> {
        let pings = nodes.iter().map(|address| async move {
            if ping(&self.channels, &address.1).await {
                self.silent.lock().remove(&address.0);
                return None;
            }
            Some(self.missed(address.clone()))
        });
        join_all(pings).await.into_iter().flatten().collect()
    }

    /// Notes a node as silent until it answers again.
    fn missed(&self, (node, address): Address) -> NodeId {
        if !self.silent.lock().insert(node) {
            return node;
        }
        tracing::warn!(node, %address, "a node does not answer and is left out until it does");
        let pulse = self.clone();
        tokio::spawn(async move {
            for _ in 0..RETURNS {
                sleep(PING_EVERY).await;
                if ping(&pulse.channels, &address).await {
                    tracing::info!(node, %address, "a node answers again");
                    break;
                }
            }
            pulse.silent.lock().remove(&node);
        });
        node
    }
}

/// Whether a node answers, whatever it says.
async fn ping(channels: &Channels, address: &str) -> bool {
    let Ok(channel) = channels.get(address) else { return false };
    match timeout(PING_LIMIT, NodeClient::new(channel).ping(Ack {})).await {
        Ok(Ok(_)) => true,
        // A node without this service answers, too.
        Ok(Err(status)) => status.code() == Code::Unimplemented,
        Err(_) => false,
    }
}
