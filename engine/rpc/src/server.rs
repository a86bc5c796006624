//! The internal port of a node: takes Raft messages, snapshots and requests from other nodes.
//!
//! It answers nothing by itself; a node without a service, or that has not begun its work, says so with a
//! typed error.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use placement::formation;
use placement::formation::ClusterId;
use placement::participant::Participant;
use placement::service::PlacementService;
use raft::{Envelope, SpoolWriter, StoreHandle};
use resources::{ReadyWork, Scheduled};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{SetOnce, mpsc};
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};
use txn::service::TxnService;
use types::{Error, Result, version};

use crate::answering::{Answers, answer_all};
use crate::builds::Builds;
use crate::calls::{Said, Service};
use crate::channel::{Channels, MESSAGE_LIMIT};
use crate::client::{pack, unpack};
use crate::frames::{self, Accepted};
use crate::proto::node_server::{Node, NodeServer};
use crate::proto::{self, Ack, Payload, RaftBatch, SnapshotPart};

/// Connections that wait for gRPC's server to take them.
const ACCEPTED: usize = 64;
/// Pause after one could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How long a connection may bring nothing before it is known what it is.
const FIRST_BYTE: Duration = Duration::from_secs(10);
/// How long a node that stops waits for what it was asked.
const LAST_CALLS: Duration = Duration::from_secs(2);
/// How long Raft's messages wait for a node that has not begun its work.
const START_WAIT: Duration = Duration::from_secs(2);

/// What a node does with what arrives.
#[derive(Clone)]
pub struct Handlers {
    /// The node's Raft groups.
    pub store: StoreHandle,
    /// Present on row nodes.
    pub txn: Option<Arc<TxnService>>,
    /// Present on row nodes, any of which may become a member of placement.
    pub placement: Option<Arc<PlacementService>>,
    /// Present on columnar nodes: has somebody pay for the snapshots that arrive.
    pub builds: Option<Builds>,
}

/// The internal port: open before the node knows who it is, so that others can ask it.
#[derive(Clone)]
pub struct Port {
    /// Says how far the node is in becoming part of a cluster.
    pub participant: Arc<Participant>,
    /// Knows the cluster.
    pub channels: Channels,
    /// Set once the node has begun its work.
    pub handlers: Arc<SetOnce<Handlers>>,
    /// What waits for a thread of this process.
    pub ready: Arc<ReadyWork>,
}

/// Serves the internal port until `shutdown` resolves. Columnar nodes have a `worker`, the service that
/// runs tasks of distributed plans.
pub async fn serve(
    listener: TcpListener,
    port: Port,
    worker: Option<Routes>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    let address = listener.local_addr().ok();
    let worker = worker.unwrap_or_default();
    let (accepted, incoming) = mpsc::channel(ACCEPTED);
    let calls = TaskTracker::new();
    let accepting = accept(listener, port.clone(), accepted, calls.clone());
    tokio::pin!(accepting);
    let node = NodeServer::new(port)
        .max_decoding_message_size(MESSAGE_LIMIT)
        .max_encoding_message_size(MESSAGE_LIMIT);
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(10)))
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .add_routes(worker.add_service(node))
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), shutdown);
    let served = tokio::select! {
        served = serving => served,
        never = &mut accepting => match never {},
    };
    // gRPC's server has waited for its calls. Connections of frames end after theirs: Raft's messages decide them.
    calls.close();
    if tokio::time::timeout(LAST_CALLS, calls.wait()).await.is_err() {
        tracing::warn!(calls = calls.len(), "requests are not answered: this node stops");
    }
    served.map_err(|error| Error::Unavailable(format!("internal port {address:?}: {error}")))
}

/// Accepts connections, and hands those of gRPC on.
async fn accept(
    listener: TcpListener,
    port: Port,
    grpc: mpsc::Sender<std::io::Result<TcpStream>>,
    calls: TaskTracker,
) -> Infallible {
    let mut under_way = JoinSet::new();
    loop {
        while under_way.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, from)) => {
                let (port, grpc, calls) = (port.clone(), grpc.clone(), calls.clone());
                under_way.spawn(async move {
                    if let Err(error) = port.attend(stream, grpc, &calls).await {
                        tracing::debug!(%from, %error, "an internal connection ended");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to the internal port was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Opens a listening socket, naming what to do if it is taken.
pub async fn listen(address: SocketAddr, setting: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        Error::Unavailable(format!("cannot listen on {address}: {error}; choose another {setting}"))
    })
}

impl Port {
    /// Takes Raft's messages or requests from a connection of frames until it ends; hands any other on.
    async fn attend(
        self,
        stream: TcpStream,
        grpc: mpsc::Sender<std::io::Result<TcpStream>>,
        calls: &TaskTracker,
    ) -> Result<()> {
        // Without this, small answers wait 40 ms for the client's delayed acknowledgement.
        stream.set_nodelay(true).map_err(|error| Error::Unavailable(error.to_string()))?;
        let first = tokio::time::timeout(FIRST_BYTE, frames::begins(&stream)).await;
        match first {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                // Where it is not taken, the server has ended.
                _ = grpc.send(Ok(stream)).await;
                return Ok(());
            }
            Ok(Err(error)) => return Err(Error::Unavailable(error.to_string())),
            Err(_) => return Err(Error::timeout("a caller", FIRST_BYTE)),
        }
        match frames::accept(stream).await? {
            Accepted::Raft(mut batches) => {
                let handlers = self.started().await?;
                while let Some(batch) = batches.next().await? {
                    self.take(handlers, batch)?;
                }
                Ok(())
            }
            Accepted::Calls(stream) => answer_all(stream, self, calls).await,
        }
    }

    /// What takes Raft's messages. The first vote of a new cluster must not be lost because this member opens its files.
    async fn started(&self) -> Result<&Handlers> {
        let started = tokio::time::timeout(START_WAIT, self.handlers.wait()).await;
        started.map_err(|_| Error::Unavailable("this node is starting".into()))
    }

    /// Hands Raft's messages to the store.
    fn take(&self, handlers: &Handlers, batch: RaftBatch) -> Result<()> {
        self.check_cluster(batch.cluster, true)?;
        self.check_program(batch.speaks)?;
        let envelopes = batch.envelopes.into_iter().map(Envelope::try_from);
        handlers.store.receive(envelopes.collect::<Result<_>>()?);
        Ok(())
    }

    fn handlers(&self) -> Result<&Handlers> {
        self.handlers.get().ok_or_else(|| Error::Unavailable("this node is starting".into()))
    }

    /// What answers a request, unless it comes from another cluster, or from a program that does not speak its version.
    fn ready(&self, payload: &Payload) -> Result<&Handlers> {
        let handlers = self.handlers()?;
        self.check_cluster(payload.cluster, false)?;
        self.check_program(payload.speaks)?;
        Ok(handlers)
    }

    fn check_program(&self, speaks: u32) -> Result<()> {
        version::check_program(version::named(speaks), self.channels.version())
    }

    /// Refuses what comes from another cluster. Raft's messages name one, requests of people's programs
    /// need not.
    fn check_cluster(&self, theirs: ClusterId, needed: bool) -> Result<()> {
        let ours = self.channels.cluster();
        if theirs == ours || (theirs == 0 && !needed) {
            return Ok(());
        }
        Err(Error::Revoked(format!(
            "this node belongs to cluster {ours:016x}, and the caller to {theirs:016x}: correct the \
             addresses in `placement`, or empty the caller's directories to let it join here"
        )))
    }
}

#[tonic::async_trait]
impl Node for Port {
    async fn raft(&self, request: Request<Streaming<RaftBatch>>) -> Result<Response<Ack>, Status> {
        let mut batches = request.into_inner();
        let handlers = self.started().await.map_err(refused)?;
        while let Some(batch) = batches.next().await {
            self.take(handlers, batch?).map_err(refused)?;
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
        let handlers = self.handlers().map_err(refused)?;
        self.check_cluster(first.cluster, true).map_err(refused)?;
        self.check_program(first.speaks).map_err(refused)?;
        let store = handlers.store.clone();
        let header = header.try_into().map_err(refused)?;
        let mut spool = blocking(move || store.spool(header)).await?;
        let build = match &handlers.builds {
            Some(builds) => Some(builds.begin().await),
            None => None,
        };
        while let Some(part) = parts.next().await {
            let part = part?;
            if part.chunk.is_empty() {
                let store = handlers.store.clone();
                blocking(move || store.spooled(spool)).await?;
                return Ok(Response::new(Ack {}));
            }
            let bytes = part.chunk.len();
            spool = blocking(move || write(spool, part.chunk)).await?;
            if let Some(build) = &build {
                build.part(bytes).await;
            }
        }
        Err(Status::aborted("the snapshot ended before its end mark"))
    }

    async fn ping(&self, _: Request<Ack>) -> Result<Response<Ack>, Status> {
        Ok(Response::new(Ack {}))
    }

    async fn txn(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let answer = self.ask_txn(request.get_ref()).await.map_err(refused)?;
        self.reply(&answer)
    }

    async fn placement(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let answer = self.ask_placement(request.get_ref()).await.map_err(refused)?;
        self.reply(&answer)
    }

    async fn founding(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        let request: formation::Request = unpack(request.get_ref()).map_err(refused)?;
        let participant = self.participant.clone();
        let answer = blocking(move || participant.handle(&request)).await?;
        self.reply(&answer)
    }
}

impl Port {
    /// # Errors
    ///
    /// `Invalid` for what is no request.
    async fn ask_txn(&self, payload: &Payload) -> Result<txn::api::Response> {
        let request = unpack(payload)?;
        Ok(match self.ready(payload).map(|handlers| &handlers.txn) {
            Ok(Some(service)) => service.handle(request).await,
            Ok(None) => {
                txn::api::Response::Failed(Error::Unavailable("this node holds no rows".into()))
            }
            Err(error) => txn::api::Response::Failed(error),
        })
    }

    /// # Errors
    ///
    /// `Invalid` for what is no request.
    async fn ask_placement(&self, payload: &Payload) -> Result<placement::api::Response> {
        let request = unpack(payload)?;
        Ok(match self.ready(payload).map(|handlers| &handlers.placement) {
            Ok(Some(service)) => {
                let speaks = version::named(payload.speaks);
                let answer = service.handle_from(speaks, request).await;
                self.channels.note_version(service.version());
                answer
            }
            Ok(None) => placement::api::Response::Failed(Error::Unavailable(
                "this node is no member of placement".into(),
            )),
            Err(error) => placement::api::Response::Failed(error),
        })
    }

    fn said<T: Serialize>(&self, answer: Result<T>) -> Said {
        match answer.map(|answer| pack(&answer, &self.channels)) {
            Ok(Ok(payload)) => Said::Answer(payload),
            Ok(Err(_)) => Said::Failed,
            Err(error) => Said::Refused(error.to_string()),
        }
    }

    fn reply<T: Serialize>(&self, answer: &T) -> Result<Response<Payload>, Status> {
        Ok(Response::new(
            pack(answer, &self.channels).map_err(|error| Status::internal(error.to_string()))?,
        ))
    }
}

impl Answers for Port {
    async fn answer(&self, service: Service, payload: Payload) -> Said {
        match service {
            Service::Txn => {
                let by = Scheduled::new(self.ready.clone());
                by.set_priority(payload.priority());
                let said = by.run(async { self.said(self.ask_txn(&payload).await) }).await;
                with_cost(said, &by)
            }
            Service::Placement => self.said(self.ask_placement(&payload).await),
        }
    }
}

/// An answer that says how long a processor took for it.
fn with_cost(mut said: Said, by: &Scheduled) -> Said {
    if let Said::Answer(answer) = &mut said {
        answer.processor_us = by.take_spent().as_micros() as u64;
    }
    said
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
        Error::Revoked(_) => Status::failed_precondition(error.to_string()),
        _ => Status::unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_it_took() {
        let by = Scheduled::new(Arc::default());
        by.compute(|| {
            let began = env::processor::thread_time();
            while (env::processor::thread_time() - began).as_millis() < 3 {}
        });
        let Said::Answer(answer) = with_cost(Said::Answer(Payload::default()), &by) else {
            panic!()
        };
        assert!((2_000..10_000).contains(&answer.processor_us), "{}", answer.processor_us);
    }
}
