//! Turns concurrent calls into one: what waits while a batch is under way makes the next batch.
//!
//! A call never joins a batch that has begun, so its answer is never older than the call.

use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use types::{Error, Result};

/// Most calls in one batch.
const MAX_CALLS: usize = 4_096;

struct Call<Q, A> {
    query: Q,
    answer: oneshot::Sender<Result<A>>,
}

/// A queue in front of something that is better asked once for many.
pub struct Batcher<Q, A> {
    calls: mpsc::UnboundedSender<Call<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// Starts the queue on the present tokio runtime; it ends with its last handle. `run` answers
    /// queries in their order and bounds its own wait.
    pub fn start<R>(run: R) -> Self
    where
        R: Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>>> + Send + Sync + 'static,
    {
        let (calls, mut queue) = mpsc::unbounded_channel::<Call<Q, A>>();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while queue.recv_many(&mut waiting, MAX_CALLS).await > 0 {
                let (queries, answers): (Vec<Q>, Vec<_>) =
                    waiting.drain(..).map(|call| (call.query, call.answer)).unzip();
                match run(queries).await {
                    // A caller that went away does not mind.
                    Ok(found) => answers.into_iter().zip(found).for_each(|(answer, found)| {
                        let _ = answer.send(Ok(found));
                    }),
                    Err(error) => answers.into_iter().for_each(|answer| {
                        let _ = answer.send(Err(error.clone()));
                    }),
                }
            }
        });
        Batcher { calls }
    }

    /// Asks one query; bounded as `run` is.
    pub async fn call(&self, query: Q) -> Result<A> {
        let (answer, wait) = oneshot::channel();
        let ended = || Error::Unavailable("this node is shutting down".into());
        self.calls.send(Call { query, answer }).map_err(|_| ended())?;
        wait.await.map_err(|_| ended())?
    }
}
