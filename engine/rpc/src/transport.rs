//! What a store sends to other nodes: messages over a [`Link`] to each, snapshots over gRPC.
//!
//! Sending never blocks the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use raft::{Envelope, SnapshotSource, SnapshotStream, Transport};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use types::{NodeId, version};

use crate::channel::{AddressBook, Channels, MESSAGE_LIMIT};
use crate::link::Link;
use crate::proto::node_client::NodeClient;
use crate::proto::{self, RaftBatch, SnapshotPart};

/// A batch of messages ends at about this many bytes.
const BATCH_BYTES: usize = 1 << 20;
/// Chunks of a snapshot under way at a time.
const SNAPSHOT_WINDOW: usize = 4;
/// How long a whole snapshot may take.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);

/// Sends a store's messages to other nodes.
pub struct NodeTransport {
    book: AddressBook,
    channels: Channels,
    runtime: Handle,
    /// Each with the task that keeps it.
    links: Mutex<HashMap<NodeId, (Link, AbortOnDropHandle<()>)>>,
}

impl NodeTransport {
    /// A transport whose connections are kept on `runtime`.
    pub fn new(book: AddressBook, channels: Channels, runtime: Handle) -> Arc<Self> {
        Arc::new(NodeTransport { book, channels, runtime, links: Mutex::default() })
    }

    fn link(&self, node: NodeId) -> Link {
        let mut links = self.links.lock();
        let begun = || {
            let link = Link::default();
            let (book, channels) = (self.book.clone(), self.channels.clone());
            let running = self.runtime.spawn(link.clone().run(node, book, channels));
            (link, AbortOnDropHandle::new(running))
        };
        let (link, _) = links.entry(node).or_insert_with(begun);
        link.clone()
    }

    fn send_to(&self, node: NodeId, batch: Batch) {
        let cluster = self.channels.cluster();
        let Batch { envelopes, urgent, .. } = batch;
        self.link(node).send(&RaftBatch { envelopes, cluster, speaks: version::CURRENT }, !urgent);
    }
}

/// Messages to one node.
#[derive(Default)]
struct Batch {
    bytes: usize,
    envelopes: Vec<proto::Envelope>,
    /// Whether somebody waits for one of them.
    urgent: bool,
}

impl Transport for NodeTransport {
    fn send(&self, messages: Vec<Envelope>) {
        let mut batches: BTreeMap<NodeId, Batch> = BTreeMap::new();
        for envelope in messages {
            let node = envelope.to.node;
            let batch = batches.entry(node).or_default();
            batch.bytes += envelope.message.len();
            batch.urgent |= !envelope.may_wait;
            batch.envelopes.push(envelope.into());
            if batch.bytes >= BATCH_BYTES {
                self.send_to(node, std::mem::take(batch));
            }
        }
        for (node, batch) in batches {
            if !batch.envelopes.is_empty() {
                self.send_to(node, batch);
            }
        }
    }

    fn hurry(&self) {
        let links: Vec<Link> = self.links.lock().values().map(|(link, _)| link.clone()).collect();
        links.iter().for_each(Link::hurry);
    }

    fn send_snapshot(&self, stream: SnapshotStream) {
        let (book, channels) = (self.book.clone(), self.channels.clone());
        self.runtime.spawn(async move {
            let node = stream.header.to.node;
            let sent = tokio::time::timeout(SNAPSHOT_TIMEOUT, snapshot_to(book, channels, stream));
            match sent.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(node, %error, "snapshot was not delivered"),
                Err(_) => tracing::warn!(node, "snapshot took too long"),
            }
        });
    }
}

async fn snapshot_to(
    book: AddressBook,
    channels: Channels,
    stream: SnapshotStream,
) -> types::Result<()> {
    let SnapshotStream { header, source, report } = stream;
    let channel = channels.get(&book.get(header.to.node)?)?;
    let (parts, outgoing) = mpsc::channel(SNAPSHOT_WINDOW);
    let first = SnapshotPart {
        header: Some(prost::Message::encode_to_vec(&proto::Envelope::from(header))),
        chunk: Vec::new(),
        cluster: channels.cluster(),
        speaks: version::CURRENT,
    };
    // Reading a snapshot is disk work, kept off the runtime's threads; a part that failed ends the
    // stream with an error in its place, so the receiver never takes a short snapshot for whole.
    let reader = tokio::task::spawn_blocking(move || read_parts(first, source, &parts));
    let mut client = NodeClient::new(channel).max_encoding_message_size(MESSAGE_LIMIT);
    let outgoing = ReceiverStream::new(outgoing).map_while(Result::ok);
    let answer = client.snapshot(outgoing).await;
    let read = reader
        .await
        .map_err(|error| types::Error::Unavailable(format!("snapshot reader ended: {error}")))?;
    read?;
    answer.map_err(|status| types::Error::Unavailable(status.message().to_owned()))?;
    report.arrived();
    Ok(())
}

fn read_parts(
    first: SnapshotPart,
    mut source: Box<dyn SnapshotSource>,
    parts: &mpsc::Sender<Result<SnapshotPart, ()>>,
) -> types::Result<()> {
    let gone = || types::Error::Unavailable("the receiver hung up".into());
    parts.blocking_send(Ok(first)).map_err(|_| gone())?;
    while let Some(chunk) = source.next_chunk()? {
        parts
            .blocking_send(Ok(SnapshotPart { chunk, ..SnapshotPart::default() }))
            .map_err(|_| gone())?;
    }
    // An empty part without a header is the end mark: a cut stream lacks it.
    parts.blocking_send(Ok(SnapshotPart::default())).map_err(|_| gone())
}
