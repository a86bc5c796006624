//! Raft's messages to one other node, in their order.
//!
//! Who sends never waits: a message is written at once where the connection takes it, and waits otherwise for a task that
//! writes when it can. What finds no room is dropped, and so is everything that waits when a connection breaks: Raft
//! repeats what matters.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use types::{Error, NodeId, Result};

use crate::channel::{AddressBook, Channels, MESSAGE_LIMIT};
use crate::frames::{self, Reached};
use crate::proto::RaftBatch;
use crate::proto::node_client::NodeClient;

/// Most bytes that wait; one message more may begin below.
const MOST_WAITING: usize = 16 << 20;
/// Pause after a connection broke.
const RECONNECT: Duration = Duration::from_millis(200);
/// Most bytes that are written while nobody else can add to what waits.
const AT_ONCE: usize = 256 << 10;
/// After how long it is looked again whether a node that took none takes frames.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long a connection may take nothing before it is given up.
const STALLED: Duration = Duration::from_secs(5);

/// The way to one node.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Shared>);

#[derive(Default)]
struct Shared {
    out: Mutex<Out>,
    /// There is something to write, or a connection to give up.
    work: Notify,
}

#[derive(Default)]
struct Out {
    /// Where frames may be written.
    stream: Option<Arc<TcpStream>>,
    /// Frames that wait, the first of which may have been begun.
    waiting: BytesMut,
}

impl Out {
    /// Writes what the connection takes of these bytes now, and gives the rest.
    fn write<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        while let (Some(stream), false) = (&self.stream, bytes.is_empty()) {
            match stream.try_write(bytes) {
                Ok(count @ 1..) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return bytes,
                Ok(_) | Err(_) => self.stream = None,
            }
        }
        bytes
    }

    /// Puts back the last `rest` bytes of what was taken from the front of what waits.
    fn put_back(&mut self, mut taken: BytesMut, rest: usize) {
        taken.advance(taken.len() - rest);
        if rest > 0 {
            // They lie next to each other in memory, so that nothing is copied.
            taken.unsplit(std::mem::take(&mut self.waiting));
            self.waiting = taken;
        }
    }

    fn forget(&mut self) {
        self.stream = None;
        self.waiting.clear();
    }
}

impl Link {
    /// Sends messages, or drops them.
    pub(crate) fn send(&self, batch: &RaftBatch) {
        let mut frame = BytesMut::new();
        if let Err(error) = frames::encode(batch, &mut frame) {
            tracing::error!(%error, "Raft messages are too large for one frame");
            return;
        }
        let mut out = self.0.out.lock();
        if !out.waiting.is_empty() || out.stream.is_none() {
            if out.waiting.len() < MOST_WAITING {
                out.waiting.extend_from_slice(&frame);
            }
        } else {
            let rest = out.write(&frame).len();
            if rest == 0 {
                return;
            }
            let written = frame.len() - rest;
            out.waiting.extend_from_slice(frame.get(written..).unwrap_or_default());
        }
        drop(out);
        self.0.work.notify_one();
    }

    /// Keeps a connection to the node for as long as this is polled.
    pub(crate) async fn run(self, node: NodeId, book: AddressBook, channels: Channels) {
        loop {
            if let Err(error) = self.attempt(node, &book, &channels).await {
                tracing::debug!(node, %error, "no connection for Raft's messages");
            }
            self.0.out.lock().stream = None;
            sleep(RECONNECT).await;
            // What waits is old news by now, and may begin within a message.
            self.0.out.lock().forget();
        }
    }

    async fn attempt(&self, node: NodeId, book: &AddressBook, channels: &Channels) -> Result<()> {
        let address = book.get(node)?;
        match frames::connect(&address).await? {
            Reached::Frames(stream) => self.by_frames(Arc::new(stream)).await,
            Reached::Grpc => self.by_grpc(&address, channels).await,
        }
    }

    async fn by_frames(&self, stream: Arc<TcpStream>) -> Result<()> {
        let broken =
            |why: std::io::Error| Error::Unavailable(format!("the connection broke: {why}"));
        let ended = || Error::Unavailable("the other side has ended the connection".into());
        self.0.out.lock().stream = Some(stream.clone());
        loop {
            let (written, waiting) = {
                let mut out = self.0.out.lock();
                let count = out.waiting.len().min(AT_ONCE);
                let some = out.waiting.split_to(count);
                let rest = out.write(&some).len();
                if out.stream.is_none() {
                    return Err(ended());
                }
                out.put_back(some, rest);
                (rest == 0, !out.waiting.is_empty())
            };
            if waiting && written {
                tokio::task::yield_now().await;
                continue;
            }
            if waiting {
                let writable = timeout(STALLED, stream.writable()).await;
                writable.map_err(|_| Error::timeout("the other side", STALLED))?.map_err(broken)?;
                continue;
            }
            tokio::select! {
                () = self.0.work.notified() => {}
                readable = stream.readable() => {
                    readable.map_err(broken)?;
                    match stream.try_read(&mut [0; 64]) {
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(error) => return Err(broken(error)),
                        Ok(_) => return Err(ended()),
                    }
                }
            }
        }
    }

    /// As frames to a program that knows none of them: the same batches, over gRPC.
    async fn by_grpc(&self, address: &str, channels: &Channels) -> Result<()> {
        let (batches, outgoing) = mpsc::channel(4);
        let mut client =
            NodeClient::new(channels.get(address)?).max_encoding_message_size(MESSAGE_LIMIT);
        let pump = async {
            loop {
                let first = frames::first(&mut self.0.out.lock().waiting);
                let Some(frame) = first? else {
                    self.0.work.notified().await;
                    continue;
                };
                if batches.send(frames::decode(&frame)?).await.is_err() {
                    return Err(Error::Unavailable("the stream of Raft's messages ended".into()));
                }
            }
        };
        tokio::select! {
            ended = client.raft(ReceiverStream::new(outgoing)) => match ended {
                Ok(_) => Ok(()),
                Err(status) => Err(Error::Unavailable(status.message().to_owned())),
            },
            wrong = pump => wrong,
            () = sleep(LOOK_AGAIN) => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
