//! Frames on a plain connection: a length of four bytes, then a [`RaftBatch`], or a request or an answer ([`crate::calls`]).
//!
//! HTTP/2 costs more than the message that it carries: two tasks, a window and a header for each. A connection begins with a
//! word by which the port knows it and what it is for, and which the port repeats; a program that does not know the word
//! closes the connection, and is sent the same over gRPC.

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
use crate::pipe::broken;
use crate::proto::RaftBatch;

/// What a connection of frames begins with, beside what it is for. HTTP/2 begins with a `P`.
const FIRST: u8 = b'I';
/// How long the other side may take to say that it knows frames.
const WORD_LIMIT: Duration = Duration::from_secs(2);
/// How long what was sent may stay unacknowledged before the connection is given up.
const SILENT: Duration = Duration::from_secs(4);
/// How long a connection may bring nothing before the kernel asks whether the other side is still there.
const IDLE: Duration = Duration::from_secs(10);

/// What a connection of frames is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Raft's messages. Nothing comes back.
    Raft,
    /// Requests, and their answers.
    Calls,
}

impl Purpose {
    const fn word(self) -> &'static [u8; 8] {
        match self {
            Purpose::Raft => b"ISOBAR1\n",
            Purpose::Calls => b"ISOBAR2\n",
        }
    }
}

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
pub(crate) async fn connect(address: &str, purpose: Purpose) -> Result<Reached> {
    let gone = |why: std::io::Error| Error::Unavailable(format!("{address}: {why}"));
    let silent = || Error::timeout(address, CONNECT_TIMEOUT);
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let mut stream = connecting.await.map_err(|_| silent())?.map_err(gone)?;
    tune(&stream).map_err(gone)?;
    let mut word = [0; 8];
    let asking = async {
        stream.write_all(purpose.word()).await?;
        stream.read_exact(&mut word).await
    };
    match timeout(WORD_LIMIT, asking).await {
        Err(_) => Err(silent()),
        Ok(Ok(_)) if word == *purpose.word() => Ok(Reached::Frames(stream)),
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
    Ok(count > 0 && first.first() == Some(&FIRST))
}

/// Batches that come over a connection.
pub(crate) struct Batches(FramedRead<TcpStream, LengthDelimitedCodec>);

/// A connection of frames that was accepted.
pub(crate) enum Accepted {
    /// Raft's messages come over it.
    Raft(Batches),
    /// Requests do.
    Calls(TcpStream),
}

/// Takes a connection that begins as one of frames.
///
/// # Errors
///
/// `Invalid` for one of anything else.
pub(crate) async fn accept(mut stream: TcpStream) -> Result<Accepted> {
    tune(&stream).map_err(broken)?;
    let mut word = [0; 8];
    let read = timeout(WORD_LIMIT, stream.read_exact(&mut word)).await;
    let purpose = [Purpose::Raft, Purpose::Calls].into_iter().find(|one| word == *one.word());
    let (Ok(Ok(_)), Some(purpose)) = (read, purpose) else {
        return Err(Error::Invalid("the connection is neither of frames nor of gRPC".into()));
    };
    stream.write_all(&word).await.map_err(broken)?;
    Ok(match purpose {
        Purpose::Raft => Accepted::Raft(Batches(FramedRead::new(stream, codec()))),
        Purpose::Calls => Accepted::Calls(stream),
    })
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

pub(crate) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().little_endian().max_frame_length(MESSAGE_LIMIT).new_codec()
}

pub(crate) fn not_a_frame(error: std::io::Error) -> Error {
    Error::Invalid(format!("no frame of at most {MESSAGE_LIMIT} bytes: {error}"))
}
