//! Raft's messages to one other node, in their order.
//!
//! Who sends never waits: a message is written at once where the connection takes it, and waits otherwise for a task that
//! writes when it can. What finds no room is dropped, and so is everything that waits when a connection breaks: Raft
//! repeats what matters.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use types::{Error, NodeId, Result};

use crate::channel::{AddressBook, Channels, MESSAGE_LIMIT};
use crate::frames::{self, Purpose, Reached};
use crate::pipe::{Pipe, broken, ended};
use crate::proto::RaftBatch;
use crate::proto::node_client::NodeClient;

/// Pause after a connection broke.
const RECONNECT: Duration = Duration::from_millis(200);
/// After how long it is looked again whether a node that took none takes frames.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The way to one node.
#[derive(Clone, Default)]
pub(crate) struct Link(Arc<Pipe>);

impl Link {
    /// Sends messages, or drops them; if they may wait, in a while with others.
    pub(crate) fn send(&self, batch: &RaftBatch, may_wait: bool) {
        let mut frame = BytesMut::new();
        if let Err(error) = frames::encode(batch, &mut frame) {
            tracing::error!(%error, "Raft messages are too large for one frame");
            return;
        }
        if may_wait {
            self.0.send_later(&frame);
        } else {
            self.0.send(&frame);
        }
    }

    /// Sends at once what waits for others.
    pub(crate) fn hurry(&self) {
        self.0.hurry();
    }

    /// Keeps a connection to the node for as long as this is polled.
    pub(crate) async fn run(self, node: NodeId, book: AddressBook, channels: Channels) {
        loop {
            if let Err(error) = self.attempt(node, &book, &channels).await {
                tracing::debug!(node, %error, "no connection for Raft's messages");
            }
            self.0.close();
            sleep(RECONNECT).await;
            // What waits is old news by now, and may begin within a message.
            self.0.forget();
        }
    }

    async fn attempt(&self, node: NodeId, book: &AddressBook, channels: &Channels) -> Result<()> {
        let address = book.get(node)?;
        match frames::connect(&address, Purpose::Raft).await? {
            Reached::Frames(stream) => self.by_frames(Arc::new(stream)).await,
            Reached::Grpc => self.by_grpc(&address, channels).await,
        }
    }

    async fn by_frames(&self, stream: Arc<TcpStream>) -> Result<()> {
        self.0.open(stream.clone());
        let until_end = async {
            loop {
                stream.readable().await.map_err(broken)?;
                match stream.try_read(&mut [0; 64]) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(broken(error)),
                    Ok(_) => return Err(ended()),
                }
            }
        };
        tokio::select! {
            error = self.0.keep_writing(&stream) => Err(error),
            end = until_end => end,
        }
    }

    /// As frames to a program that knows none of them: the same batches, over gRPC.
    async fn by_grpc(&self, address: &str, channels: &Channels) -> Result<()> {
        let (batches, outgoing) = mpsc::channel(4);
        let mut client =
            NodeClient::new(channels.get(address)?).max_encoding_message_size(MESSAGE_LIMIT);
        let pump = async {
            loop {
                let Some(frame) = self.0.take(frames::first)? else {
                    self.0.work().await;
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
