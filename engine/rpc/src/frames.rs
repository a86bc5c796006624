//! Raft's messages as frames on a plain connection: a length of four bytes, then a [`RaftBatch`].
//!
//! HTTP/2 costs a follower more than the message that it carries: two tasks, a window and a header for each. A connection
//! begins with a word by which the port knows it, and which the port repeats; a program that does not know it
//! closes the connection, and is sent the same over gRPC. Nothing else ever comes back.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use prost::Message;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::codec::{Decoder, Encoder, FramedRead, LengthDelimitedCodec};
use types::{Error, Result};

use crate::channel::{CONNECT_TIMEOUT, MESSAGE_LIMIT};
use crate::proto::RaftBatch;

/// What a connection of frames begins with. HTTP/2 begins with a `P`.
const WORD: &[u8; 8] = b"ISOBAR1\n";
/// How long the other side may take to say that it knows frames.
const WORD_LIMIT: Duration = Duration::from_secs(2);
/// How long what was sent may stay unacknowledged before the connection is given up.
const SILENT: Duration = Duration::from_secs(4);
/// How long a connection may bring nothing before the kernel asks whether the other side is still there.
const IDLE: Duration = Duration::from_secs(10);

/// How a node is to be reached.
pub(crate) enum Reached {
    /// It takes frames here.
    Frames(TcpStream),
    /// Its program does not know them.
    Grpc,
}

/// Opens a connection of frames, if the node at `address` takes them.
///
/// # Errors
///
/// `Unavailable` where nobody listens, or nobody answers in time.
pub(crate) async fn connect(address: &str) -> Result<Reached> {
    let gone = |why: std::io::Error| Error::Unavailable(format!("{address}: {why}"));
    let silent = || Error::timeout(address, CONNECT_TIMEOUT);
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let mut stream = connecting.await.map_err(|_| silent())?.map_err(gone)?;
    tune(&stream).map_err(gone)?;
    let mut word = [0; WORD.len()];
    let asking = async {
        stream.write_all(WORD).await?;
        stream.read_exact(&mut word).await
    };
    match timeout(WORD_LIMIT, asking).await {
        Err(_) => Err(silent()),
        Ok(Ok(_)) if word == *WORD => Ok(Reached::Frames(stream)),
        // It has taken the word for a broken request, and said so or hung up.
        Ok(_) => Ok(Reached::Grpc),
    }
}

/// Has a connection fail soon after the other side is gone.
fn tune(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(IDLE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(SILENT))?;
    Ok(())
}

/// Whether a connection that was accepted is one of frames; waits for its first byte.
pub(crate) async fn begins(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; 1];
    let count = stream.peek(&mut first).await?;
    Ok(count > 0 && first.first() == WORD.first())
}

/// Batches that come over a connection.
pub(crate) struct Batches(FramedRead<TcpStream, LengthDelimitedCodec>);

/// Takes a connection that begins as one of frames.
///
/// # Errors
///
/// `Invalid` for one of anything else.
pub(crate) async fn accept(mut stream: TcpStream) -> Result<Batches> {
    let broken = |why: std::io::Error| Error::Unavailable(format!("a connection broke: {why}"));
    tune(&stream).map_err(broken)?;
    let mut word = [0; WORD.len()];
    match timeout(WORD_LIMIT, stream.read_exact(&mut word)).await {
        Ok(Ok(_)) if word == *WORD => stream.write_all(WORD).await.map_err(broken)?,
        _ => return Err(Error::Invalid("the connection is neither of frames nor of gRPC".into())),
    }
    Ok(Batches(FramedRead::new(stream, codec())))
}

impl Batches {
    /// The next batch; none at the end.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no frame: nothing behind it can be read.
    pub(crate) async fn next(&mut self) -> Result<Option<RaftBatch>> {
        match self.0.next().await {
            Some(frame) => decode(&frame.map_err(not_a_frame)?).map(Some),
            None => Ok(None),
        }
    }
}

/// A batch as a frame.
///
/// # Errors
///
/// `Invalid` for one that is larger than any that is taken.
pub(crate) fn encode(batch: &RaftBatch, into: &mut BytesMut) -> Result<()> {
    codec().encode(Bytes::from(batch.encode_to_vec()), into).map_err(not_a_frame)
}

/// What the first of frames holds, taken out of them; none if none is whole.
///
/// # Errors
///
/// `Invalid` for what is no frame.
pub(crate) fn first(frames: &mut BytesMut) -> Result<Option<BytesMut>> {
    codec().decode(frames).map_err(not_a_frame)
}

/// The batch that a frame holds.
///
/// # Errors
///
/// `Invalid` for what is none.
pub(crate) fn decode(frame: &[u8]) -> Result<RaftBatch> {
    RaftBatch::decode(frame).map_err(|error| Error::Invalid(format!("no Raft batch: {error}")))
}

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().little_endian().max_frame_length(MESSAGE_LIMIT).new_codec()
}

fn not_a_frame(error: std::io::Error) -> Error {
    Error::Invalid(format!("no frame of at most {MESSAGE_LIMIT} bytes: {error}"))
}
