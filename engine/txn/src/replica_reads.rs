//! Reads that go to replicas near their client, or away from the leader.
//!
//! Whatever keeps a replica from answering, the leader is asked in its place: it may cost time, never an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use types::{Error, NodeId, Result};

use crate::api::{Request, Response};
use crate::client::TxnClient;
use crate::price::Price;
use crate::replicas::{Distance, ReplicaReads};
use crate::routes::Target;

/// How long a client waits for a replica's answer.
const ANSWER: Duration = Duration::from_secs(2);

impl TxnClient {
    /// The same client, which knows how far away nodes are.
    #[must_use]
    pub fn with_distances(
        mut self,
        distance: impl Fn(NodeId) -> Distance + Send + Sync + 'static,
    ) -> Self {
        self.distance = Arc::new(distance);
        self
    }

    /// Sends a read once: to the replica that is to answer it, and to the leader where that does not.
    pub(crate) async fn send_read(
        &self,
        target: &Target,
        read: Request,
        reads: Option<&ReplicaReads>,
    ) -> Result<Response> {
        let Some(reads) = reads else { return self.send(target, read).await };
        let choose =
            || self.choices.choose(&target.region, target.node, reads.from, self.distance.as_ref());
        if let Some(node) = choose()
            && let Some(answer) = self.ask_replica(node, read.clone(), reads).await
        {
            self.pay(Price::Read, &answer, &target.region);
            return Ok(answer);
        }
        let answer = self.send(target, read).await?;
        reads.leaders.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }

    /// The answer of a replica; none where it has none.
    async fn ask_replica(
        &self,
        node: NodeId,
        read: Request,
        reads: &ReplicaReads,
    ) -> Option<Response> {
        let call = self.call_node(node, Request::ByReplica(Box::new(read)));
        let error = match timeout(ANSWER, call).await {
            Ok(Ok(Response::ByReplica { pairs, resume, leads, asked })) => {
                let by = if leads { &reads.leaders } else { &reads.followers };
                by.fetch_add(1, Ordering::Relaxed);
                reads.read_indexes.fetch_add(u64::from(asked), Ordering::Relaxed);
                return Some(Response::Pairs { pairs, resume });
            }
            Ok(Ok(Response::Failed(error)) | Err(error)) => error,
            Ok(Ok(_)) => Error::Invalid("a replica answers something else than a read".into()),
            Err(_) => Error::timeout("a replica's answer", ANSWER),
        };
        tracing::debug!(node, %error, "a leader is asked in a replica's place");
        if matches!(error, Error::Unavailable(_) | Error::Timeout { .. } | Error::Invalid(_)) {
            self.choices.avoid(node);
        }
        None
    }
}
