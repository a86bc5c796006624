//! The writing end of a connection: a frame is written at once where the connection takes it, and waits otherwise for the
//! task that keeps the connection. A frame for which nobody waits gathers others for a while: each write wakes the other
//! side, which costs this one more than the bytes do.
//!
//! Who sends never waits, and never wakes a task where nothing has to wait. It knows nothing of what frames hold.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use types::{Error, Result};

/// Most bytes that wait; one frame more may begin below.
pub(crate) const MOST_WAITING: usize = 16 << 20;
/// A frame of no more bytes always finds room: it says that a call has ended.
pub(crate) const SMALL: usize = 13;
/// Most bytes that are written while nobody else can add to what waits.
const AT_ONCE: usize = 256 << 10;
/// How long a frame for which nobody waits gathers others.
const GATHER: Duration = Duration::from_millis(5);
/// So many bytes gather no more.
const GATHERED: usize = 64 << 10;
/// How long a connection may take nothing before it is given up.
const STALLED: Duration = Duration::from_secs(5);

/// Frames on their way out.
#[derive(Default)]
pub(crate) struct Pipe {
    out: Mutex<Out>,
    /// There is something to write, or a connection to give up.
    work: Notify,
    /// Something that waited was written, or dropped.
    room: Notify,
}

#[derive(Default)]
struct Out {
    /// Where frames may be written.
    stream: Option<Arc<TcpStream>>,
    /// Frames that wait, the first of which may have been begun.
    waiting: BytesMut,
    /// They wait for others, and could be written.
    gathering: bool,
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

    /// Writes what the connection takes of what has gathered; whether that was all.
    fn flush(&mut self) -> bool {
        self.gathering = false;
        let gathered = std::mem::take(&mut self.waiting);
        let rest = self.write(&gathered).len();
        self.put_back(gathered, rest);
        rest == 0
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
}

impl Pipe {
    /// A pipe into a connection.
    pub(crate) fn into_stream(stream: Arc<TcpStream>) -> Self {
        let pipe = Pipe::default();
        pipe.open(stream);
        pipe
    }

    /// Writes into this connection from now on, what waits first.
    pub(crate) fn open(&self, stream: Arc<TcpStream>) {
        self.out.lock().stream = Some(stream);
    }

    /// Whether frames are written, as far as is known.
    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.out.lock().stream.is_some()
    }

    /// Writes nothing more; frames wait for another connection.
    pub(crate) fn close(&self) {
        let mut out = self.out.lock();
        out.stream = None;
        out.gathering = false;
    }

    /// Drops what waits.
    pub(crate) fn forget(&self) {
        let mut out = self.out.lock();
        out.stream = None;
        out.gathering = false;
        out.waiting.clear();
        drop(out);
        self.room.notify_waiters();
    }

    /// Where frames are written.
    #[cfg(test)]
    pub(crate) fn stream(&self) -> Option<Arc<TcpStream>> {
        self.out.lock().stream.clone()
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.out.lock().waiting.len()
    }

    /// Takes something from the front of what waits.
    pub(crate) fn take<T>(&self, first: impl FnOnce(&mut BytesMut) -> T) -> T {
        first(&mut self.out.lock().waiting)
    }

    /// Writes a frame, or lets it wait; false if it finds no room.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        let mut out = self.out.lock();
        let mut taken = true;
        if out.gathering {
            out.waiting.extend_from_slice(frame);
            if out.flush() {
                return true;
            }
        } else if !out.waiting.is_empty() || out.stream.is_none() {
            taken = out.waiting.len() < MOST_WAITING || frame.len() <= SMALL;
            if taken {
                out.waiting.extend_from_slice(frame);
            }
        } else {
            let rest = out.write(frame).len();
            if rest == 0 {
                return true;
            }
            let written = frame.len() - rest;
            out.waiting.extend_from_slice(frame.get(written..).unwrap_or_default());
        }
        drop(out);
        self.work.notify_one();
        taken
    }

    /// As [`Pipe::send`], of a frame for which nobody waits: it goes with the next one for which somebody does, or soon.
    pub(crate) fn send_later(&self, frame: &[u8]) {
        let mut out = self.out.lock();
        let could_be_written = out.stream.is_some() && (out.waiting.is_empty() || out.gathering);
        if !could_be_written || out.waiting.len() + frame.len() > GATHERED {
            drop(out);
            self.send(frame);
            return;
        }
        out.waiting.extend_from_slice(frame);
        if !std::mem::replace(&mut out.gathering, true) {
            drop(out);
            self.work.notify_one();
        }
    }

    /// Writes at once what gathers.
    pub(crate) fn hurry(&self) {
        let mut out = self.out.lock();
        if out.gathering && !out.flush() {
            drop(out);
            self.work.notify_one();
        }
    }

    /// As [`Pipe::send`], but waits for room: as long as the connection takes what waits, or until this is dropped. It is for
    /// a pipe into one connection, and drops the frame once that has ended.
    pub(crate) async fn send_in_turn(&self, frame: &[u8]) {
        loop {
            // From here on no notification is missed.
            let room = self.room.notified();
            if self.out.lock().stream.is_none() || self.send(frame) {
                return;
            }
            room.await;
        }
    }

    /// Until there may be more to do than when this was last asked.
    pub(crate) async fn work(&self) {
        self.work.notified().await;
    }

    /// Writes what waits into the connection, whenever something does, until the connection breaks.
    pub(crate) async fn keep_writing(&self, stream: &TcpStream) -> Error {
        loop {
            if let Err(error) = self.write_all(stream).await {
                return error;
            }
            self.work().await;
            self.gathered().await;
        }
    }

    /// Until what waits was given its time to gather more, if it gathers any.
    async fn gathered(&self) {
        let end = sleep(GATHER);
        tokio::pin!(end);
        while self.out.lock().gathering {
            tokio::select! {
                () = &mut end => return,
                // It may gather anew.
                () = self.work() => end.as_mut().reset(Instant::now() + GATHER),
            }
        }
    }

    async fn write_all(&self, stream: &TcpStream) -> Result<()> {
        loop {
            let (written, waiting) = {
                let mut out = self.out.lock();
                out.gathering = false;
                let count = out.waiting.len().min(AT_ONCE);
                let some = out.waiting.split_to(count);
                let rest = out.write(&some).len();
                if out.stream.is_none() {
                    return Err(ended());
                }
                out.put_back(some, rest);
                (rest == 0, !out.waiting.is_empty())
            };
            self.room.notify_waiters();
            match (waiting, written) {
                (false, _) => return Ok(()),
                (true, true) => tokio::task::yield_now().await,
                (true, false) => {
                    let writable = timeout(STALLED, stream.writable()).await;
                    writable
                        .map_err(|_| Error::timeout("the other side", STALLED))?
                        .map_err(broken)?;
                }
            }
        }
    }
}

pub(crate) fn broken(why: std::io::Error) -> Error {
    Error::Unavailable(format!("the connection broke: {why}"))
}

pub(crate) fn ended() -> Error {
    Error::Unavailable("the other side has ended the connection".into())
}
