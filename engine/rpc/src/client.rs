//! Requests to leaders, over the network.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use placement::PlacementService;
use placement::formation;
use serde::Serialize;
use serde::de::DeserializeOwned;
use txn::TxnService;
use types::{Error, NodeId, Result, version};

use crate::calls::Service;
use crate::channel::{AddressBook, Channels, MESSAGE_LIMIT};
use crate::line::Line;
use crate::proto::Payload;
use crate::proto::node_client::NodeClient;

/// Version of the postcard bodies.
pub(crate) const FORMAT: u32 = 1;
/// How long a request may take in all; servers bound their own waits below this.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a node may take to say how far it is; it may have to write that down first.
const FORMATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Asks nodes: others over the network, this one's services by calling them.
#[derive(Clone)]
pub struct RpcClient {
    book: AddressBook,
    channels: Channels,
    own: Arc<OnceLock<Own>>,
    /// By address.
    lines: Arc<RwLock<HashMap<String, Arc<Lines>>>>,
}

/// The ways to one node.
struct Lines {
    calls: Line,
    /// Behind a page of rows a small answer would wait.
    pages: Line,
}

/// The node of this process, where it has services that its own clients ask.
struct Own {
    node: NodeId,
    address: String,
    // Services hold clients, of which this is a part.
    txn: Weak<TxnService>,
    placement: Weak<PlacementService>,
}

impl RpcClient {
    /// A client that finds nodes in `book`.
    pub fn new(book: AddressBook, channels: Channels) -> Self {
        RpcClient { book, channels, own: Arc::default(), lines: Arc::default() }
    }

    /// Calls the services of this process from now on where they are asked, in every clone.
    pub fn serve_here(
        &self,
        (node, address): (NodeId, String),
        txn: &Arc<TxnService>,
        placement: &Arc<PlacementService>,
    ) {
        let (txn, placement) = (Arc::downgrade(txn), Arc::downgrade(placement));
        // A process has one node.
        let _ = self.own.set(Own { node, address, txn, placement });
    }

    /// The address book that this client reads.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// Asks the node at an address how far it is in becoming part of a cluster.
    pub async fn formation(
        &self,
        address: &str,
        request: &formation::Request,
    ) -> Result<formation::Answer> {
        let payload = Payload { cluster: 0, ..pack(request, &self.channels)? };
        let call = async {
            let mut client = self.node(address)?;
            let answer = client.founding(payload).await;
            answer.map_err(|status| Error::Unavailable(status.message().to_owned()))
        };
        let answer = tokio::time::timeout(FORMATION_TIMEOUT, call)
            .await
            .unwrap_or_else(|_| Err(Error::timeout(address, FORMATION_TIMEOUT)))?;
        unpack(answer.get_ref())
    }

    /// One call, over frames where the node's program knows them.
    async fn ask(
        &self,
        (address, service): (&str, Service),
        pages: bool,
        payload: Payload,
    ) -> Result<Payload> {
        let call = async {
            let lines = self.lines(address);
            let line = if pages { &lines.pages } else { &lines.calls };
            if let Some(connection) = line.connection().await? {
                return connection.call(service, payload).await;
            }
            let mut client = self.node(address)?;
            outcome(match service {
                Service::Txn => client.txn(payload).await,
                Service::Placement => client.placement(payload).await,
            })
        };
        // The node may have acted on a request whose answer did not come.
        let unknown = || Error::timeout(address, CALL_TIMEOUT);
        let answer = tokio::time::timeout(CALL_TIMEOUT, call).await.map_err(|_| unknown())?;
        answer?.ok_or_else(unknown)
    }

    fn lines(&self, address: &str) -> Arc<Lines> {
        if let Some(lines) = self.lines.read().get(address) {
            return lines.clone();
        }
        let new = || Arc::new(Lines { calls: Line::new(address), pages: Line::new(address) });
        self.lines.write().entry(address.to_owned()).or_insert_with(new).clone()
    }

    fn node(&self, address: &str) -> Result<NodeClient<tonic::transport::Channel>> {
        Ok(NodeClient::new(self.channels.get(address)?)
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT))
    }
}

fn stopped() -> Error {
    Error::Unavailable("this node is stopping".into())
}

pub(crate) fn pack<T: Serialize>(body: &T, channels: &Channels) -> Result<Payload> {
    let body = postcard::to_stdvec(body)
        .map_err(|error| Error::Invalid(format!("message cannot be encoded: {error}")))?;
    let (cluster, version) = (channels.cluster(), channels.version());
    let priority = Payload::number(resources::priority::current());
    let speaks = version::CURRENT;
    Ok(Payload { format: FORMAT, body, cluster, speaks, version, priority, processor_us: 0 })
}

/// Has the work that asked pay for what the answer took. No request takes longer than one may last.
fn pay(answer: &Payload) {
    resources::priority::spend(Duration::from_micros(answer.processor_us).min(CALL_TIMEOUT));
}

pub(crate) fn unpack<T: DeserializeOwned>(payload: &Payload) -> Result<T> {
    if payload.format != FORMAT {
        return Err(Error::Invalid(format!(
            "message format {} is not spoken here ({FORMAT}): run one version on all nodes",
            payload.format
        )));
    }
    Ok(postcard::from_bytes(&payload.body)?)
}

/// What a call over gRPC has brought; none where nobody knows whether the node has acted on it.
fn outcome(answer: Result<tonic::Response<Payload>, tonic::Status>) -> Result<Option<Payload>> {
    match answer {
        Ok(response) => Ok(Some(response.into_inner())),
        // Something else listens there.
        Err(status) if status.code() == tonic::Code::Unimplemented || never_arrived(&status) => {
            Err(Error::Unavailable(status.message().to_owned()))
        }
        Err(status) if was_refused(&status) => Err(Error::Invalid(status.message().into())),
        Err(_) => Ok(None),
    }
}

/// An error of a call, with whom was called.
fn of(whom: &str, error: Error) -> Error {
    match error {
        Error::Unavailable(why) => Error::Unavailable(format!("{whom}: {why}")),
        Error::Timeout { millis, .. } => Error::Timeout { what: whom.to_owned(), millis },
        error => error,
    }
}

/// Whether the node has not even looked at the request.
fn was_refused(status: &tonic::Status) -> bool {
    matches!(status.code(), tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument)
}

/// Whether the connection could not even be made.
fn never_arrived(status: &tonic::Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the answer is a page of rows.
fn has_pages(request: &txn::api::Request) -> bool {
    match request {
        txn::api::Request::Scan { .. } => true,
        txn::api::Request::ByReplica(read) => has_pages(read),
        _ => false,
    }
}

#[async_trait]
impl txn::RowTransport for RpcClient {
    async fn call(&self, node: NodeId, request: txn::api::Request) -> Result<txn::api::Response> {
        if let Some(own) = self.own.get().filter(|own| own.node == node) {
            let service = own.txn.upgrade().ok_or_else(stopped)?;
            // A service may answer without ever waiting: others on this thread have their turn all the same.
            match has_pages(&request) {
                true => tokio::task::yield_now().await,
                false => tokio::task::consume_budget().await,
            }
            return Ok(service.handle(request).await);
        }
        let address = self.book.get(node)?;
        let pages = has_pages(&request);
        let payload = pack(&request, &self.channels)?;
        let answer = self.ask((&address, Service::Txn), pages, payload).await;
        let answer = answer.map_err(|error| of(&format!("row node {node} at {address}"), error))?;
        pay(&answer);
        unpack(&answer)
    }
}

#[async_trait]
impl placement::client::PlacementTransport for RpcClient {
    async fn call(
        &self,
        node_address: &str,
        request: placement::api::Request,
    ) -> Result<placement::api::Response> {
        if let Some(own) = self.own.get().filter(|own| own.address == node_address) {
            let placement = own.placement.upgrade().ok_or_else(stopped)?;
            let answer = placement.handle_from(version::CURRENT, request).await;
            self.channels.note_version(placement.version());
            return Ok(answer);
        }
        let payload = pack(&request, &self.channels)?;
        let answer = self.ask((node_address, Service::Placement), false, payload).await;
        let answer = answer.map_err(|error| of(&format!("placement at {node_address}"), error))?;
        // Another cluster's node may be where a member was.
        if answer.version > 0 && answer.cluster == self.channels.cluster() {
            version::check_cluster(answer.version)?;
            self.channels.note_version(answer.version);
        }
        unpack(&answer)
    }
    fn here(&self) -> Option<Arc<placement::PlacementService>> {
        self.own.get()?.placement.upgrade()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use resources::{Ledger, Payer, Scheduled};
    use types::{Priority, ResourceGroup};

    use super::*;

    #[test]
    fn a_request_names_the_priority_of_who_asks() {
        let by = Scheduled::new(Arc::default());
        by.set_priority(Priority::High);
        let channels = Channels::default();
        let asks = by.run(async { pack(&7_u32, &channels).unwrap() });
        assert_eq!(futures::executor::block_on(asks).priority(), Priority::High);
        assert_eq!(pack(&7_u32, &channels).unwrap().priority(), Priority::Medium);
    }

    #[test]
    fn what_an_answer_took_is_paid_for_by_who_asks() {
        let ledger = Ledger::new(Arc::new(env::SimClock::new(0)));
        let account = ledger.account(&ResourceGroup::new("g").unwrap());
        let by = Scheduled::new(Arc::default());
        by.charge_to(Some(Payer::new(account.clone())));
        for (processor_us, least, most) in [(3_000, 1.0, 1.5), (u64::MAX, 1.0, 6_700.0)] {
            let before = account.used().as_f64();
            let answer = Payload { processor_us, ..Payload::default() };
            futures::executor::block_on(by.run(async { pay(&answer) }));
            let paid = account.used().as_f64() - before;
            assert!((least..=most).contains(&paid), "{paid}");
        }
    }
}
