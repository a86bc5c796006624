//! Stand-ins for the tests of this crate and of those above.
//!
//! Nothing here reaches a network or a disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use types::{Error, Result};

use crate::api::{Request, Response};
use crate::client::PlacementTransport;
use crate::service::PlacementService;

/// Carries requests to services of this process; an address without a service is a dead node.
#[derive(Default)]
pub struct InProcess {
    services: RwLock<BTreeMap<String, Arc<PlacementService>>>,
    /// How long each address takes for an answer; none is for good, as where a process is stopped.
    slow: RwLock<BTreeMap<String, Option<Duration>>>,
    /// Requests that came in, by address.
    received: RwLock<Vec<(String, Request)>>,
}

impl InProcess {
    /// A network without nodes.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Puts a service at an address.
    pub fn attach(&self, address: impl Into<String>, service: Arc<PlacementService>) {
        self.services.write().insert(address.into(), service);
    }

    /// Takes the node at an address away.
    pub fn detach(&self, address: &str) {
        self.services.write().remove(address);
    }

    /// From now on the node at an address takes what is sent and never answers.
    pub fn hang(&self, address: impl Into<String>) {
        self.slow.write().insert(address.into(), None);
    }

    /// From now on the node at an address takes so long for an answer, unless it is about who leads.
    pub fn delay(&self, address: impl Into<String>, by: Duration) {
        self.slow.write().insert(address.into(), Some(by));
    }

    /// What was sent to an address.
    pub fn received(&self, address: &str) -> Vec<Request> {
        let received = self.received.read();
        let of = received.iter().filter(|(at, _)| at == address);
        of.map(|(_, request)| request.clone()).collect()
    }
}

#[async_trait]
impl PlacementTransport for InProcess {
    async fn call(&self, node_address: &str, request: Request) -> Result<Response> {
        self.received.write().push((node_address.to_owned(), request.clone()));
        let slow = self.slow.read().get(node_address).copied();
        match slow {
            Some(None) => std::future::pending().await,
            Some(Some(by)) if request != Request::Leader => tokio::time::sleep(by).await,
            _ => {}
        }
        let service = self.services.read().get(node_address).cloned();
        match service {
            Some(service) => Ok(service.handle(request).await),
            None => Err(Error::Unavailable(format!("nobody listens on {node_address}"))),
        }
    }
}
