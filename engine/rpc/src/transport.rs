//! Raft's messages over long-lived streams: one from each node to each other.
//!
//! Sending never blocks the store: a full or broken stream drops, and Raft repeats.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use raft::{Envelope, SnapshotSource, SnapshotStream, Transport};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use types::{NodeId, version};

use crate::channel::{AddressBook, Channels, MESSAGE_LIMIT};
use crate::proto::node_client::NodeClient;
use crate::proto::{self, RaftBatch, SnapshotPart};

/// Messages queued for one node before more are dropped.
const QUEUE: usize = 4096;
/// Most messages in a batch.
const BATCH: usize = 128;
/// Batches end at about this many bytes, by actual size.
const BATCH_BYTES: usize = 1 << 20;
/// Pause after a stream broke.
const RECONNECT: Duration = Duration::from_millis(200);
/// Chunks of a snapshot under way at a time.
const SNAPSHOT_WINDOW: usize = 4;
/// How long a whole snapshot may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);

/// Sends a store's messages to other nodes.
pub struct GrpcTransport {
    book: AddressBook,
    channels: Channels,
    runtime: Handle,
    senders: Mutex<HashMap<NodeId, mpsc::Sender<proto::Envelope>>>,
}

impl GrpcTransport {
    /// A transport whose streams run on `runtime`.
    pub fn new(book: AddressBook, channels: Channels, runtime: Handle) -> Arc<Self> {
        Arc::new(GrpcTransport { book, channels, runtime, senders: Mutex::default() })
    }

    fn sender(&self, node: NodeId) -> mpsc::Sender<proto::Envelope> {
        let mut senders = self.senders.lock();
        senders
            .entry(node)
            .or_insert_with(|| {
                let (sender, receiver) = mpsc::channel(QUEUE);
                self.runtime.spawn(stream_to(
                    node,
                    self.book.clone(),
                    self.channels.clone(),
                    receiver,
                ));
                sender
            })
            .clone()
    }
}

impl Transport for GrpcTransport {
    fn send(&self, messages: Vec<Envelope>) {
        for envelope in messages {
            let sender = self.sender(envelope.to.node);
            // A full queue means that the node is down or slow: Raft repeats what matters.
            let _ = sender.try_send(envelope.into());
        }
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

/// Keeps a stream to a node open for as long as its sender lives.
async fn stream_to(
    node: NodeId,
    book: AddressBook,
    channels: Channels,
    mut receiver: mpsc::Receiver<proto::Envelope>,
) {
    loop {
        let (batches, outgoing) = mpsc::channel(4);
        let call = async {
            let channel = channels.get(&book.get(node)?)?;
            let mut client = NodeClient::new(channel).max_encoding_message_size(MESSAGE_LIMIT);
            client
                .raft(ReceiverStream::new(outgoing))
                .await
                .map_err(|status| types::Error::Unavailable(status.message().to_owned()))
        };
        let pump = async {
            while let Some(first) = receiver.recv().await {
                let batch = gather(first, &mut receiver, channels.cluster());
                if batches.send(batch).await.is_err() {
                    return true;
                }
            }
            false
        };
        tokio::select! {
            ended = call => {
                if let Err(error) = ended {
                    tracing::debug!(node, %error, "raft stream broke");
                }
            }
            open = pump => if !open { return },
        }
        tokio::time::sleep(RECONNECT).await;
        // What queued up meanwhile is old news, and Raft repeats it.
        while receiver.try_recv().is_ok() {}
    }
}

fn gather(
    first: proto::Envelope,
    receiver: &mut mpsc::Receiver<proto::Envelope>,
    cluster: u64,
) -> RaftBatch {
    let mut bytes = first.message.len();
    let mut envelopes = vec![first];
    while envelopes.len() < BATCH && bytes < BATCH_BYTES {
        match receiver.try_recv() {
            Ok(next) => {
                bytes += next.message.len();
                envelopes.push(next);
            }
            Err(_) => break,
        }
    }
    RaftBatch { envelopes, cluster, speaks: version::CURRENT }
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
