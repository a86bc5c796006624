//! The other end of a [`crate::line`]: requests that come over a connection of frames, each answered by a task of its own.
//!
//! It must never let a connection take more than its share: what is asked beyond a number of requests under way is not
//! looked at. What nobody waits for any more is cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;
use types::Result;

use crate::calls::{Incoming, Said, Service};
use crate::pipe::Pipe;
use crate::proto::Payload;

/// Requests of one connection under way at a time.
const MOST_CALLS: usize = 4_096;

/// What answers requests.
pub(crate) trait Answers: Clone + Send + 'static {
    /// The answer to one; `Refused` and `Failed` are answers, too.
    fn answer(&self, service: Service, payload: Payload) -> impl Future<Output = Said> + Send;
}

/// Requests under way, by their ids. Those of a connection that ended are cancelled.
#[derive(Default)]
struct UnderWay(Mutex<HashMap<u64, AbortHandle>>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.get_mut().values().for_each(AbortHandle::abort);
    }
}

/// The task of a request; one that ends before its answer, by a panic, says so.
struct Turn {
    of: Weak<UnderWay>,
    pipe: Arc<Pipe>,
    id: u64,
    answered: bool,
}

impl Turn {
    /// Sends the answer, once there is room for it: one that is lost would be waited for.
    async fn answer(mut self, said: &Said) {
        self.pipe.send_in_turn(&encoded(self.id, said)).await;
        self.answered = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(of) = self.of.upgrade() {
            of.0.lock().remove(&self.id);
        }
        if !self.answered {
            self.pipe.send(&encoded(self.id, &Said::Failed));
        }
    }
}

/// Answers what comes over a connection until it ends. `running` tracks the tasks that do; once it is closed, nothing more
/// is begun.
///
/// # Errors
///
/// `Invalid` for what is no request, `Unavailable` if the connection breaks, `Timeout` if it takes no answers.
pub(crate) async fn answer_all(
    stream: TcpStream,
    answers: impl Answers,
    running: &TaskTracker,
) -> Result<()> {
    let stream = Arc::new(stream);
    let pipe = Arc::new(Pipe::into_stream(stream.clone()));
    // Their tasks know it weakly: it ends with the connection, and they with it.
    let under_way = Arc::new(UnderWay::default());
    let taking = async {
        let mut incoming = Incoming::new();
        while let Some((id, said)) = incoming.next(&stream, || {}).await? {
            match said {
                Said::Ask(service, payload) => {
                    let (answers, pipe) = (answers.clone(), pipe.clone());
                    let mut tasks = under_way.0.lock();
                    if tasks.len() >= MOST_CALLS || running.is_closed() {
                        drop(tasks);
                        _ = pipe.send(&encoded(id, &Said::Busy));
                        continue;
                    }
                    let of = Arc::downgrade(&under_way);
                    // The lock is held until the task is known, so that it cannot end before that.
                    let task = running.spawn(async move {
                        let turn = Turn { of, pipe, id, answered: false };
                        let said = answers.answer(service, payload).await;
                        turn.answer(&said).await;
                    });
                    tasks.insert(id, task.abort_handle());
                }
                Said::Cancel => {
                    let task = under_way.0.lock().remove(&id);
                    task.iter().for_each(AbortHandle::abort);
                }
                Said::Ping => {
                    // Where it finds no room, something else is heard.
                    _ = pipe.send(&encoded(id, &Said::Ping));
                }
                Said::Answer(_) | Said::Refused(_) | Said::Busy | Said::Failed => {}
            }
        }
        Ok(())
    };
    tokio::select! {
        taken = taking => taken,
        error = pipe.keep_writing(&stream) => Err(error),
    }
}

fn encoded(call: u64, said: &Said) -> BytesMut {
    let failed = |error| {
        tracing::error!(%error, "an answer is too large");
        Said::Failed.encode(call)
    };
    // Failing has no body that could be too large.
    said.encode(call).or_else(failed).unwrap_or_default()
}
