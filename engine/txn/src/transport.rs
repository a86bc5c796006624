//! How requests reach row nodes, and the bound of one call.
//!
//! Nothing is repeated here.

use std::time::Duration;

use async_trait::async_trait;
use types::{Error, NodeId, Result};

use crate::api::{Request, Response};

/// How long one request may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries requests to row nodes.
#[async_trait]
pub trait RowTransport: Send + Sync + 'static {
    /// Asks a node. `Unavailable` or `Timeout` where the answer did not come; whether the request
    /// arrived is unknown then.
    async fn call(&self, node: NodeId, request: Request) -> Result<Response>;
}

/// One call within its bound.
pub(crate) async fn within_call<T>(whom: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(CALL_TIMEOUT, call)
        .await
        .unwrap_or_else(|_| Err(Error::timeout(format!("an answer of {whom}"), CALL_TIMEOUT)))
}
