//! The internal port of a node: takes Raft messages, snapshots and requests from other nodes.
//!
//! It answers nothing by itself; a node without a service says so with a typed error.

use std::net::SocketAddr;
use std::sync::Arc;

use placement::service::PlacementService;
use raft::{Envelope, SpoolWriter, StoreHandle};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};
use txn::service::TxnService;
use types::{Error, Result};

use crate::channel::MESSAGE_LIMIT;
use crate::client::{pack, unpack};
use crate::proto::node_server::{Node, NodeServer};
use crate::proto::{self, Ack, Payload, RaftBatch, SnapshotPart};

/// What a node does with what arrives.
#[derive(Clone)]
pub struct Handlers {
    /// The node's Raft groups.
    pub store: StoreHandle,
    /// Present on row nodes.
    pub txn: Option<Arc<TxnService>>,
    /// Present on members of placement.
    pub placement: Option<Arc<PlacementService>>,
    /// Present on columnar nodes: the service that runs tasks of distributed plans.
    pub worker: Option<Routes>,
}

/// Serves the internal port until `shutdown` resolves.
pub async fn serve(
    listener: TcpListener,
    handlers: Handlers,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let address = listener.local_addr().ok();
    let worker = handlers.worker.clone().unwrap_or_default();
    let node = NodeServer::new(handlers)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    // The builder's own setting is for sockets that it binds itself. Without it, small answers wait
    // 40 ms for the client's delayed acknowledgement.
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(10)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .add_routes(worker.add_service(node))
        .serve_with_incoming_shutdown(incoming, shutdown)
        .await
        .map_err(|error| Error::Unavailable(format!("internal port {address:?}: {error}")))
}

/// Opens a listening socket, naming what to do if it is taken.
pub async fn listen(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::Unavailable(format!("cannot listen on {address}: {error}; choose another {setting}"))
    })
}

#[tonic::async_trait]
impl Node for Handlers {
    async fn raft(&self, request: Request<Streaming<RaftBatch>>) -> Result<Response<Ack>, Status> {
        let mut batches = request.into_inner();
        while let Some(batch) = batches.next().await {
            let envelopes = batch?
                .envelopes
                .into_iter()
                .map(Envelope::try_from)
                .collect::<Result<Vec<_>>>()
                .map_err(refused)?;
            self.store.receive(envelopes);
        }
        Ok(Response::new(Ack {}))
    }

    async fn snapshot(
        &self,
        request: Request<Streaming<SnapshotPart>>,
    ) -> Result<Response<Ack>, Status> {
        let mut parts = request.into_inner();
        let first = parts.next().await.ok_or_else(|| Status::invalid_argument("no header"))??;
        let header = first.header.ok_or_else(|| Status::invalid_argument("no header"))?;
        let header = <proto::Envelope as prost::Message>::decode(header.as_slice())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let store = self.store.clone();
        let header = header.try_into().map_err(refused)?;
        let mut spool = blocking(move || store.spool(header)).await?;
        while let Some(part) = parts.next().await {
            let part = part?;
            if part.chunk.is_empty() {
                let store = self.store.clone();
                blocking(move || store.spooled(spool)).await?;
                return Ok(Response::new(Ack {}));
            }
            spool = blocking(move || write(spool, part.chunk)).await?;
        }
        Err(Status::aborted("the snapshot ended before its end mark"))
    }

    async fn txn(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let request = unpack(request.get_ref()).map_err(refused)?;
        let response = match &self.txn {
            Some(service) => service.handle(request).await,
            None => {
                txn::api::Response::Failed(Error::Unavailable("this node holds no rows".into()))
            }
        };
        Ok(Response::new(pack(&response).map_err(refused)?))
    }

    async fn placement(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let request = unpack(request.get_ref()).map_err(refused)?;
        let response = match &self.placement {
            Some(service) => service.handle(request).await,
            None => placement::api::Response::Failed(Error::Unavailable(
                "this node is no member of placement".into(),
            )),
        };
        Ok(Response::new(pack(&response).map_err(refused)?))
    }
}

fn write(mut spool: SpoolWriter, chunk: Vec<u8>) -> Result<SpoolWriter> {
    spool.push(chunk)?;
    Ok(spool)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(refused)
}

fn refused(error: Error) -> Status {
    match error {
        Error::Invalid(_) | Error::Corrupt(_) => Status::invalid_argument(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    }
}
