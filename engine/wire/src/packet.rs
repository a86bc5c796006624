//! MySQL packets: 3 bytes of length, 1 of sequence number, payload; longer payloads in several.
//!
//! Knows framing only, never what a payload means. It must never believe a length before the
//! bytes are there (memory follows what arrived, not what was announced) and never buffer more
//! output than [`FLUSH_AT`] plus one packet.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mysql_common::constants::MAX_PAYLOAD_LEN;
use mysql_common::proto::codec::packet_to_chunks;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Length of a packet's header.
const HEADER: usize = 4;
/// Bytes asked of the socket at a time: between packets, and within a long one.
const READ_STEP: usize = 16 * 1024;
const LONG_READ_STEP: usize = 256 * 1024;
/// Buffered output from which [`PacketWriter::flush_if_full`] writes to the socket.
pub const FLUSH_AT: usize = 64 * 1024;
/// Capacity beyond which a buffer that served one big packet is given back.
const KEEP_CAPACITY: usize = 1024 * 1024;

/// Why no packet could be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The peer closed the connection between two packets.
    #[error("connection closed by the peer")]
    Closed,
    /// The peer closed the connection within a packet.
    #[error("connection closed within a packet")]
    Truncated,
    /// The payload is longer than allowed. It has been read past, so an answer can be sent.
    #[error("packet longer than {limit} bytes")]
    TooLarge {
        /// Most bytes allowed.
        limit: usize,
    },
    /// The sequence number is not the next one.
    #[error("packet number {found} where {expected} was due")]
    OutOfOrder {
        /// Number that was due.
        expected: u8,
        /// Number that came.
        found: u8,
    },
    /// The peer did not take our bytes, or send its own, in time.
    #[error("peer silent for {0:?}")]
    TimedOut(Duration),
    /// The socket failed.
    #[error("connection failed: {0}")]
    Io(#[from] std::io::Error),
}

/// Where the decoder stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// A header is due.
    Header,
    /// Bytes of a chunk are due.
    Body { left: usize, last: bool },
}

/// Turns bytes into payloads, without I/O.
///
/// A payload of one chunk is cut out of the input without a copy.
#[derive(Debug)]
pub struct PacketDecoder {
    /// Most bytes of one payload.
    limit: usize,
    /// Number of the next chunk.
    sequence: u8,
    state: State,
    /// Earlier chunks of the payload at hand.
    partial: BytesMut,
    /// Length so far of the payload at hand, whether kept or skipped.
    total: usize,
}

impl PacketDecoder {
    /// A decoder for payloads of at most `limit` bytes, at sequence number 0.
    pub fn new(limit: usize) -> Self {
        Self { limit, sequence: 0, state: State::Header, partial: BytesMut::new(), total: 0 }
    }

    /// Changes the limit, for packets that have not begun.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The number that the next packet must bear.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// The number that follows the last packet read.
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Whether a packet has begun and not ended.
    pub fn in_packet(&self) -> bool {
        !matches!(self.state, State::Header) || self.total > 0
    }

    /// Bytes that the chunk at hand still lacks.
    fn wanted(&self) -> usize {
        match self.state {
            State::Header => 0,
            State::Body { left, .. } => left,
        }
    }

    /// Takes what it can from `input`; `None` means that more bytes are needed.
    ///
    /// A payload beyond the limit is skipped to its end before the error is returned, so that
    /// memory stays bounded and the peer, done with sending, can read the answer.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, PacketError> {
        loop {
            match self.state {
                State::Header => {
                    let Some(header) = input.first_chunk::<HEADER>() else { return Ok(None) };
                    let [a, b, c, sequence] = *header;
                    let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
                    if sequence != self.sequence {
                        return Err(PacketError::OutOfOrder {
                            expected: self.sequence,
                            found: sequence,
                        });
                    }
                    input.advance(HEADER);
                    self.sequence = self.sequence.wrapping_add(1);
                    self.total = self.total.saturating_add(length);
                    self.state = State::Body { left: length, last: length < MAX_PAYLOAD_LEN };
                    if self.total > self.limit {
                        self.partial = BytesMut::new();
                    }
                }
                State::Body { left, last } => {
                    let whole = last && self.partial.is_empty() && input.len() >= left;
                    let taken = input.split_to(left.min(input.len()));
                    let kept = self.total <= self.limit;
                    if kept && whole {
                        self.finish();
                        return Ok(Some(taken.freeze()));
                    }
                    if kept {
                        self.partial.extend_from_slice(&taken);
                    }
                    let left = left - taken.len();
                    self.state = State::Body { left, last };
                    if left > 0 {
                        return Ok(None);
                    }
                    self.state = State::Header;
                    if last {
                        let payload = std::mem::take(&mut self.partial);
                        self.finish();
                        if kept {
                            return Ok(Some(payload.freeze()));
                        }
                        return Err(PacketError::TooLarge { limit: self.limit });
                    }
                }
            }
        }
    }

    fn finish(&mut self) {
        self.state = State::Header;
        self.total = 0;
    }
}

/// Reads packets from a socket.
#[derive(Debug)]
pub struct PacketReader<R> {
    io: R,
    input: BytesMut,
    decoder: PacketDecoder,
}

impl<R: AsyncRead + Unpin> PacketReader<R> {
    /// Reads packets of at most `limit` bytes from `io`.
    pub fn new(io: R, limit: usize) -> Self {
        Self { io, input: BytesMut::new(), decoder: PacketDecoder::new(limit) }
    }

    /// The decoder, to set limit and sequence number.
    pub fn decoder(&mut self) -> &mut PacketDecoder {
        &mut self.decoder
    }

    /// The next payload. `timeout` bounds the whole wait; cancelling loses nothing.
    pub async fn read(&mut self, timeout: Duration) -> Result<Bytes, PacketError> {
        match tokio::time::timeout(timeout, self.read_unbounded()).await {
            Ok(result) => result,
            Err(_) => Err(PacketError::TimedOut(timeout)),
        }
    }

    async fn read_unbounded(&mut self) -> Result<Bytes, PacketError> {
        loop {
            if let Some(payload) = self.decoder.decode(&mut self.input)? {
                return Ok(payload);
            }
            if self.fill().await? == 0 {
                let clean = self.input.is_empty() && !self.decoder.in_packet();
                return Err(if clean { PacketError::Closed } else { PacketError::Truncated });
            }
        }
    }

    /// Waits for the first byte of the next packet; `false` if the peer closed instead.
    pub async fn wait_for_input(&mut self) -> Result<bool, PacketError> {
        Ok(!self.input.is_empty() || self.fill().await? > 0)
    }

    async fn fill(&mut self) -> std::io::Result<usize> {
        self.input.reserve(self.decoder.wanted().clamp(READ_STEP, LONG_READ_STEP));
        self.io.read_buf(&mut self.input).await
    }

    /// Returns once the peer has gone. Commands sent ahead are kept, at most `bound` bytes of
    /// them; a peer that sends more than that ahead is no longer watched.
    pub async fn wait_closed(&mut self, bound: usize) {
        while self.input.len() < bound {
            match self.fill().await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        std::future::pending().await
    }

    /// Reads and forgets what the peer still sends, until it closes or `bound` is over. Closing
    /// with unread input would reset the connection, and the peer might lose our last words.
    pub async fn drain(&mut self, bound: Duration) {
        let drain = async {
            loop {
                self.input.clear();
                if !self.fill().await.is_ok_and(|read| read > 0) {
                    break;
                }
            }
        };
        // At the bound the peer has had its time.
        let _ = tokio::time::timeout(bound, drain).await;
    }

    /// The socket, and bytes already read from it (the start of a TLS handshake).
    pub fn into_parts(self) -> (R, Bytes) {
        (self.io, self.input.freeze())
    }
}

/// Writes packets to a socket through one bounded buffer.
#[derive(Debug)]
pub struct PacketWriter<W> {
    io: W,
    output: BytesMut,
    sequence: u8,
    timeout: Duration,
}

impl<W: AsyncWrite + Unpin> PacketWriter<W> {
    /// Writes to `io`; a peer that takes nothing for `timeout` is given up.
    pub fn new(io: W, timeout: Duration) -> Self {
        Self { io, output: BytesMut::new(), sequence: 0, timeout }
    }

    /// The number that the next packet bears.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.sequence = sequence;
    }

    /// The number that the next packet bears.
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Appends a packet whose payload `fill` writes. Nothing reaches the socket yet.
    ///
    /// If `fill` fails, nothing is appended.
    pub fn packet<T, E>(
        &mut self,
        fill: impl FnOnce(&mut BytesMut) -> Result<T, E>,
    ) -> Result<T, E> {
        let start = self.output.len();
        self.output.put_slice(&[0; HEADER]);
        let value = match fill(&mut self.output) {
            Ok(value) => value,
            Err(error) => {
                self.output.truncate(start);
                return Err(error);
            }
        };
        let length = self.output.len() - start - HEADER;
        if length >= MAX_PAYLOAD_LEN {
            let mut payload = self.output.split_off(start + HEADER);
            self.output.truncate(start);
            self.sequence = packet_to_chunks(self.sequence, &mut payload, &mut self.output);
            return Ok(value);
        }
        let [a, b, c, _] = (length as u32).to_le_bytes();
        if let Some(header) = self.output.get_mut(start..start + HEADER) {
            header.copy_from_slice(&[a, b, c, self.sequence]);
        }
        self.sequence = self.sequence.wrapping_add(1);
        Ok(value)
    }

    /// Appends a packet of the given payload.
    pub fn put(&mut self, payload: &[u8]) {
        let fill = |output: &mut BytesMut| -> Result<(), std::convert::Infallible> {
            output.put_slice(payload);
            Ok(())
        };
        match self.packet(fill) {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// Whether the buffer holds enough to be written to the socket.
    pub fn is_full(&self) -> bool {
        self.output.len() >= FLUSH_AT
    }

    /// Writes the buffer to the socket if it is full. Waits for the peer: this is what holds back
    /// a query whose client does not read. Cancelling loses nothing.
    pub async fn flush_if_full(&mut self) -> Result<(), PacketError> {
        if self.is_full() {
            self.write_out().await?;
        }
        Ok(())
    }

    /// Writes everything to the socket.
    pub async fn flush(&mut self) -> Result<(), PacketError> {
        self.write_out().await?;
        self.timed(async |io: &mut W, _: &mut BytesMut| io.flush().await).await
    }

    /// Flushes, then signals the peer that nothing more will come.
    pub async fn close(&mut self) -> Result<(), PacketError> {
        self.flush().await?;
        self.timed(async |io: &mut W, _: &mut BytesMut| io.shutdown().await).await
    }

    async fn write_out(&mut self) -> Result<(), PacketError> {
        // The time limit is per write, so a slow but living peer is not cut off.
        while self.output.has_remaining() {
            self.timed(async |io: &mut W, output: &mut BytesMut| {
                match io.write_buf(output).await? {
                    0 => Err(std::io::ErrorKind::WriteZero.into()),
                    _ => Ok(()),
                }
            })
            .await?;
        }
        if self.output.capacity() > KEEP_CAPACITY {
            self.output = BytesMut::new();
        } else {
            self.output.clear();
        }
        Ok(())
    }

    async fn timed(
        &mut self,
        work: impl AsyncFnOnce(&mut W, &mut BytesMut) -> std::io::Result<()>,
    ) -> Result<(), PacketError> {
        match tokio::time::timeout(self.timeout, work(&mut self.io, &mut self.output)).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(PacketError::TimedOut(self.timeout)),
        }
    }

    /// The socket. Unflushed output is lost.
    pub fn into_inner(self) -> W {
        self.io
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 40 * 1024 * 1024;

    /// Writes payloads and returns the bytes that reached the socket.
    async fn written(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut socket = Vec::new();
        let mut writer = PacketWriter::new(&mut socket, Duration::from_secs(1));
        for payload in payloads {
            writer.put(payload);
        }
        writer.flush().await.unwrap();
        socket
    }

    fn decoded(bytes: &[u8], step: usize) -> Vec<Bytes> {
        let mut decoder = PacketDecoder::new(LIMIT);
        let mut input = BytesMut::new();
        let mut payloads = Vec::new();
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            while let Some(payload) = decoder.decode(&mut input).unwrap() {
                payloads.push(payload);
            }
        }
        assert!(input.is_empty() && !decoder.in_packet());
        payloads
    }

    #[tokio::test]
    async fn payloads_around_the_split_come_back_whole() {
        let lengths = [0, 1, 250, MAX_PAYLOAD_LEN - 1, MAX_PAYLOAD_LEN, MAX_PAYLOAD_LEN + 1];
        let more = [2 * MAX_PAYLOAD_LEN, 2 * MAX_PAYLOAD_LEN + 5, 0, 3];
        let payloads: Vec<Vec<u8>> = lengths
            .iter()
            .chain(&more)
            .map(|length| (0..*length).map(|at| (at % 251) as u8).collect())
            .collect();
        let bytes = written(&payloads).await;
        // Six short ones in one chunk each (0, 1, 250, the longest that fits, 0, 3).
        let chunks = 6 + 2 + 2 + 3 + 3;
        let total: usize = payloads.iter().map(Vec::len).sum();
        assert_eq!(bytes.len(), total + HEADER * chunks);
        for step in [bytes.len(), 1_000_003] {
            assert_eq!(decoded(&bytes, step), payloads);
        }
    }

    #[tokio::test]
    async fn arrival_byte_by_byte_changes_nothing() {
        let payloads = vec![b"SELECT 1".to_vec(), Vec::new(), vec![7; 300]];
        assert_eq!(decoded(&written(&payloads).await, 1), payloads);
    }

    #[test]
    fn an_announced_length_takes_no_memory_before_its_bytes_come() {
        let mut decoder = PacketDecoder::new(LIMIT);
        let mut input = BytesMut::from(&[0xff, 0xff, 0xff, 0, 1, 2, 3][..]);
        assert!(decoder.decode(&mut input).unwrap().is_none());
        assert!(decoder.in_packet() && decoder.partial.capacity() < 1024);
    }

    #[test]
    fn a_payload_beyond_the_limit_is_skipped_without_being_kept() {
        let mut decoder = PacketDecoder::new(1000);
        let mut input = BytesMut::from(&[0x10, 0x27, 0, 0][..]);
        for _ in 0..9 {
            input.extend_from_slice(&[0; 1000]);
            assert!(decoder.decode(&mut input).unwrap().is_none());
            assert!(decoder.partial.capacity() <= 1000 && input.is_empty());
        }
        input.extend_from_slice(&[0; 1000]);
        let error = decoder.decode(&mut input).unwrap_err();
        assert!(matches!(error, PacketError::TooLarge { limit: 1000 }));
        assert_eq!(decoder.sequence(), 1);
        // What follows is read as usual.
        input.extend_from_slice(&[1, 0, 0, 1, 14]);
        assert_eq!(decoder.decode(&mut input).unwrap().unwrap(), [14][..]);
    }

    #[test]
    fn numbers_must_follow_each_other() {
        let mut decoder = PacketDecoder::new(1000);
        let mut input = BytesMut::from(&[1, 0, 0, 3, 14][..]);
        let error = decoder.decode(&mut input).unwrap_err();
        assert!(matches!(error, PacketError::OutOfOrder { expected: 0, found: 3 }));
    }
}
