//! Stand-ins for the tests of this room and of those above.
//!
//! Nothing here reaches a network or a disk.

use std::collections::BTreeMap;
use std::sync::Arc;

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
}

#[async_trait]
impl PlacementTransport for InProcess {
    async fn call(&self, node_address: &str, request: Request) -> Result<Response> {
        let service = self.services.read().get(node_address).cloned();
        match service {
            Some(service) => Ok(service.handle(request).await),
            None => Err(Error::Unavailable(format!("nobody listens on {node_address}"))),
        }
    }
}
