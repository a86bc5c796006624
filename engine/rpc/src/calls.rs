//! Requests and answers as frames: behind the length an id of eight bytes, a tag, and what the tag says.
//!
//! One connection carries many calls at a time; answers come in any order. A call whose caller has gone away is cancelled
//! at the other side, as a stream of HTTP/2 would be. It decides nothing about what is asked.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::net::TcpStream;
use tokio_util::codec::{Decoder, LengthDelimitedCodec};
use types::{Error, Result};

use crate::channel::MESSAGE_LIMIT;
use crate::frames::{codec, not_a_frame};
use crate::pipe::broken;
use crate::proto::Payload;

/// Bytes of id and tag.
const HEAD: usize = 9;
/// Room to read into, at least.
const READ: usize = 16 << 10;

/// Which service is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Txn,
    Placement,
}

/// What one frame says of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// To the server: a request.
    Ask(Service, Payload),
    /// To the server: nobody waits for the answer any more.
    Cancel,
    /// To the server: is anybody there? To the client: yes. The id means nothing.
    Ping,
    /// To the client: the answer.
    Answer(Payload),
    /// To the client: the request is none; nothing was done.
    Refused(String),
    /// To the client: too many requests are under way, or the node stops; nothing was done.
    Busy,
    /// To the client: there is no answer; something may have been done.
    Failed,
}

impl Said {
    fn tag(&self) -> u8 {
        match self {
            Said::Ask(Service::Txn, _) => 1,
            Said::Ask(Service::Placement, _) => 2,
            Said::Cancel => 3,
            Said::Ping => 4,
            Said::Answer(_) => 5,
            Said::Refused(_) => 6,
            Said::Busy => 7,
            Said::Failed => 8,
        }
    }

    /// As the frame of a call.
    ///
    /// # Errors
    ///
    /// `Invalid` for more bytes than are taken.
    pub(crate) fn encode(&self, call: u64) -> Result<BytesMut> {
        let body = match self {
            Said::Ask(_, payload) | Said::Answer(payload) => payload.encoded_len(),
            Said::Refused(text) => text.len(),
            Said::Cancel | Said::Ping | Said::Busy | Said::Failed => 0,
        };
        let length = body + HEAD;
        let counted = u32::try_from(length).ok().filter(|_| length <= MESSAGE_LIMIT);
        let counted = counted.ok_or_else(|| {
            Error::Invalid(format!("a message of {length} bytes: at most {MESSAGE_LIMIT} are sent"))
        })?;
        let mut frame = BytesMut::with_capacity(length + 4);
        frame.put_u32_le(counted);
        frame.put_u64_le(call);
        frame.put_u8(self.tag());
        match self {
            Said::Ask(_, payload) | Said::Answer(payload) => payload.encode_raw(&mut frame),
            Said::Refused(text) => frame.put_slice(text.as_bytes()),
            Said::Cancel | Said::Ping | Said::Busy | Said::Failed => {}
        }
        Ok(frame)
    }

    /// The call that a frame is of, and what it says.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is none.
    pub(crate) fn decode(mut frame: Bytes) -> Result<(u64, Self)> {
        if frame.len() < HEAD {
            return Err(Error::Invalid(format!("a frame of {} bytes is no call", frame.len())));
        }
        let (call, tag) = (frame.get_u64_le(), frame.get_u8());
        let payload = |frame: Bytes| {
            Payload::decode(frame).map_err(|error| Error::Invalid(format!("no payload: {error}")))
        };
        let said = match tag {
            1 => Said::Ask(Service::Txn, payload(frame)?),
            2 => Said::Ask(Service::Placement, payload(frame)?),
            3 => Said::Cancel,
            4 => Said::Ping,
            5 => Said::Answer(payload(frame)?),
            6 => Said::Refused(String::from_utf8_lossy(&frame).into_owned()),
            7 => Said::Busy,
            8 => Said::Failed,
            other => return Err(Error::Invalid(format!("a frame with tag {other} is no call"))),
        };
        Ok((call, said))
    }
}

/// The frames that come over a connection.
pub(crate) struct Incoming {
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Incoming { codec: codec(), buffer: BytesMut::new() }
    }

    /// The next frame; none at the end. `arrived` is called for each part of one: a large one may be long on its way.
    ///
    /// # Errors
    ///
    /// `Invalid` for what is no frame of a call: nothing behind it can be read. `Unavailable` if the connection breaks.
    pub(crate) async fn next(
        &mut self,
        stream: &TcpStream,
        arrived: impl Fn(),
    ) -> Result<Option<(u64, Said)>> {
        loop {
            // A connection that always has more would keep others on this thread from their turn.
            tokio::task::consume_budget().await;
            if let Some(frame) = self.codec.decode(&mut self.buffer).map_err(not_a_frame)? {
                return Said::decode(frame.freeze()).map(Some);
            }
            stream.readable().await.map_err(broken)?;
            if self.buffer.capacity() - self.buffer.len() < READ / 4 {
                self.buffer.reserve(READ);
            }
            match stream.try_read_buf(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(_) => arrived(),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
}
