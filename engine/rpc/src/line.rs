//! Calls to one node over one connection of frames, opened at its first use and again after it broke.
//!
//! A call ends with its answer or with the connection. It must never wait for a connection that brings nothing: a process
//! that was stopped keeps its connections, so one that is silent while calls are under way is asked, and given up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use types::{Error, Result};

use crate::calls::{Incoming, Said, Service};
use crate::frames::{self, Purpose, Reached};
use crate::pipe::{Pipe, ended};
use crate::proto::Payload;

/// How often it is looked whether anything has come while calls are under way.
const LOOK: Duration = Duration::from_secs(2);
/// Looks in a row that found nothing, each of which has asked the other side, after which the connection is given up.
const SILENT_LOOKS: u32 = 3;
/// After how long it is looked again whether a node that took none takes frames.
const FRAMES_AGAIN: Duration = Duration::from_secs(10);

/// The way to one node.
pub(crate) struct Line {
    address: String,
    state: Mutex<State>,
    /// Held by who opens a connection.
    opening: tokio::sync::Mutex<()>,
}

enum State {
    Closed,
    Open(Arc<Connection>),
    /// Its program does not know frames; until when this is believed.
    Grpc(Instant),
    /// It could not be reached; when that was seen.
    Failed(Instant, Error),
}

impl Line {
    pub(crate) fn new(address: &str) -> Self {
        Line {
            address: address.to_owned(),
            state: Mutex::new(State::Closed),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// The connection; none where the node's program does not know frames.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the node cannot be reached: nothing was asked of it.
    pub(crate) async fn connection(&self) -> Result<Option<Arc<Connection>>> {
        let asked = Instant::now();
        if let Some(known) = self.known(asked) {
            return known;
        }
        let _alone = self.opening.lock().await;
        // Those who waited while another tried have its outcome.
        if let Some(known) = self.known(asked) {
            return known;
        }
        let (state, outcome) = match frames::connect(&self.address, Purpose::Calls).await {
            Ok(Reached::Frames(stream)) => {
                let connection = Arc::new(Connection::begin(stream));
                (State::Open(connection.clone()), Ok(Some(connection)))
            }
            Ok(Reached::Grpc) => (State::Grpc(Instant::now() + FRAMES_AGAIN), Ok(None)),
            Err(error) => {
                let error = Error::Unavailable(error.to_string());
                (State::Failed(Instant::now(), error.clone()), Err(error))
            }
        };
        *self.state.lock() = state;
        outcome
    }

    /// What is known to somebody who asked at that time.
    fn known(&self, asked: Instant) -> Option<Result<Option<Arc<Connection>>>> {
        match &*self.state.lock() {
            State::Open(connection) if connection.is_open() => Some(Ok(Some(connection.clone()))),
            State::Grpc(until) if asked < *until => Some(Ok(None)),
            State::Failed(at, error) if asked < *at => Some(Err(error.clone())),
            _ => None,
        }
    }
}

/// An open connection, with the task that keeps it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    _keeper: AbortOnDropHandle<()>,
}

struct Shared {
    pipe: Pipe,
    calls: Mutex<Calls>,
    /// Something has come since it was last looked.
    heard: AtomicBool,
}

#[derive(Default)]
struct Calls {
    next: u64,
    waiting: HashMap<u64, oneshot::Sender<Said>>,
    ended: bool,
}

impl Connection {
    fn begin(stream: TcpStream) -> Self {
        let stream = Arc::new(stream);
        let shared = Arc::new(Shared {
            pipe: Pipe::into_stream(stream.clone()),
            calls: Mutex::default(),
            heard: AtomicBool::new(false),
        });
        let keeper = tokio::spawn(keep(shared.clone(), stream));
        Connection { shared, _keeper: AbortOnDropHandle::new(keeper) }
    }

    fn is_open(&self) -> bool {
        !self.shared.calls.lock().ended
    }

    /// Asks, and waits for the answer: the caller bounds the wait.
    ///
    /// # Errors
    ///
    /// `Invalid` if the request is refused, `Unavailable` if it was not looked at; none where nobody knows whether it was.
    pub(crate) async fn call(&self, service: Service, payload: Payload) -> Result<Option<Payload>> {
        let (answer, answered) = oneshot::channel();
        let id = self.shared.begin(answer).ok_or_else(ended)?;
        let call = Call { shared: &self.shared, id };
        let frame = Said::Ask(service, payload).encode(id)?;
        self.shared.pipe.send_in_turn(&frame).await;
        let said = answered.await;
        drop(call);
        match said {
            Ok(Said::Answer(payload)) => Ok(Some(payload)),
            Ok(Said::Refused(why)) => Err(Error::Invalid(why)),
            Ok(Said::Busy) => Err(Error::Unavailable("it takes no more requests now".into())),
            // The other side has failed, the connection has ended, or it has said what is no answer.
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

impl Shared {
    fn begin(&self, answer: oneshot::Sender<Said>) -> Option<u64> {
        let mut calls = self.calls.lock();
        if calls.ended {
            return None;
        }
        calls.next += 1;
        let id = calls.next;
        calls.waiting.insert(id, answer);
        Some(id)
    }

    fn end(&self) {
        let mut calls = self.calls.lock();
        calls.ended = true;
        let waiting = std::mem::take(&mut calls.waiting);
        drop(calls);
        drop(waiting);
        self.pipe.forget();
    }
}

/// A call under way; one that is dropped before its answer is cancelled.
struct Call<'c> {
    shared: &'c Shared,
    id: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let waited = self.shared.calls.lock().waiting.remove(&self.id).is_some();
        if let (true, Ok(frame)) = (waited, Said::Cancel.encode(self.id)) {
            self.shared.pipe.send(&frame);
        }
    }
}

/// Ends a connection's calls with the task that keeps it, however that ends.
struct End<'c>(&'c Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn keep(shared: Arc<Shared>, stream: Arc<TcpStream>) {
    let _end = End(&shared);
    let why = tokio::select! {
        error = shared.pipe.keep_writing(&stream) => error,
        error = hand_out(&shared, &stream) => error,
        error = listen(&shared) => error,
    };
    tracing::debug!(%why, "a connection for calls ended");
}

/// Hands answers to who waits for them.
async fn hand_out(shared: &Shared, stream: &TcpStream) -> Error {
    let mut incoming = Incoming::new();
    loop {
        match incoming.next(stream, || shared.heard.store(true, Ordering::Relaxed)).await {
            Ok(Some((id, said))) => {
                let waiting = shared.calls.lock().waiting.remove(&id);
                if let Some(waiting) = waiting {
                    // Whoever waited may have gone away since.
                    _ = waiting.send(said);
                }
            }
            Ok(None) => return ended(),
            Err(error) => return error,
        }
    }
}

/// Asks a silent node whether it is there while calls wait; ends when it is not.
async fn listen(shared: &Shared) -> Error {
    let mut silent = 0;
    loop {
        sleep(LOOK).await;
        let heard = shared.heard.swap(false, Ordering::Relaxed);
        if heard || shared.calls.lock().waiting.is_empty() {
            silent = 0;
            continue;
        }
        silent += 1;
        if silent >= SILENT_LOOKS {
            return Error::timeout("the other side", LOOK * SILENT_LOOKS);
        }
        // Ids of calls begin at 1.
        if let Ok(frame) = Said::Ping.encode(0) {
            shared.pipe.send(&frame);
        }
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
