//! LOAD DATA LOCAL INFILE: the client sends a file within a command.
//!
//! The file is read to its end whatever the engine makes of it, or the client would take its rest
//! for commands. Between socket and engine stand at most [`CHANNEL`] packets.

use std::time::Duration;

use execution::reply::Reply;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use values::error::{self, SqlError};

use crate::backend::Session;
use crate::handshake::Reader;
use crate::packet::PacketError;

/// Packets between the socket and the engine; clients send 4 KiB to 16 MiB each.
const CHANNEL: usize = 4;

/// Hands the file that follows to the session, and returns what it says in the end.
///
/// The outer error means that the client is gone or the connection killed; the session has been
/// reported by an error in the channel and by `cancel`.
pub async fn load(
    reader: &mut Reader,
    session: &mut dyn Session,
    closing: &CancellationToken,
    cancel: &CancellationToken,
    timeout: Duration,
) -> Result<Result<Reply, SqlError>, PacketError> {
    let (sender, receiver) = mpsc::channel(CHANNEL);
    let feed = async {
        let sent = tokio::select! {
            biased;
            () = closing.cancelled() => Err(PacketError::Closed),
            sent = feed(reader, &sender, timeout) => sent,
        };
        if sent.is_err() {
            // A full channel cannot take the error; the token says it too.
            let _ = sender.try_send(Err(error::interrupted()));
            cancel.cancel();
        }
        drop(sender);
        sent
    };
    let (sent, reply) = tokio::join!(feed, session.load_data(receiver, cancel));
    sent.map(|()| reply)
}

/// Passes packets on until the empty one that ends the file.
async fn feed(
    reader: &mut Reader,
    sender: &mpsc::Sender<Result<bytes::Bytes, SqlError>>,
    timeout: Duration,
) -> Result<(), PacketError> {
    loop {
        let packet = reader.read(timeout).await?;
        if packet.is_empty() {
            return Ok(());
        }
        // An engine that has read enough drops the receiver; the rest is read past.
        let _ = sender.send(Ok(packet)).await;
    }
}
