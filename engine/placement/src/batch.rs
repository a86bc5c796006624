//! Turns concurrent calls into few: what waits while as many batches are under way as may be makes the next batch.
//!
//! A call never joins a batch that has begun, so its answer is never older than the call. One that finds fewer under way is a
//! batch of its own and takes no other task's turn.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;
use types::{Error, Result};

/// Batches of timestamps under way at a time. A call waits for half of somebody else's round on average before its own begins;
/// with more, each round serves fewer, and rounds are what a statement costs where placement has three voters.
pub(crate) const TIMESTAMP_BATCHES: usize = 1;

/// Most calls in one batch.
const MAX_CALLS: usize = 4_096;

struct Call<Q, A> {
    query: Q,
    answer: oneshot::Sender<Result<A>>,
}

/// What answers the queries of a batch, in their order, and bounds its own wait.
type Run<Q, A> = dyn Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>>> + Send + Sync;

struct Line<Q, A> {
    /// Batches under way.
    busy: usize,
    waiting: Vec<Call<Q, A>>,
}

struct Shared<Q, A> {
    line: Mutex<Line<Q, A>>,
    /// Batches under way at a time, at most.
    most: usize,
    /// How long a batch waits for calls to join it.
    wait: Box<dyn Fn() -> Duration + Send + Sync>,
    run: Box<Run<Q, A>>,
}

/// A queue in front of something that is better asked once for many.
pub struct Batcher<Q, A>(Arc<Shared<Q, A>>);

impl<Q: Send + 'static, A: Send + 'static> Batcher<Q, A> {
    /// An empty queue, with so many batches under way at a time at most, each of which waits so long for calls to join it.
    pub fn new<R>(most: usize, wait: impl Fn() -> Duration + Send + Sync + 'static, run: R) -> Self
    where
        R: Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>>> + Send + Sync + 'static,
    {
        let line = Mutex::new(Line { busy: 0, waiting: Vec::new() });
        Batcher(Arc::new(Shared { line, most, wait: Box::new(wait), run: Box::new(run) }))
    }

    /// Asks one query; bounded as two batches are.
    pub async fn call(&self, query: Q) -> Result<A> {
        let (turn, query) = match self.join(query) {
            Place::Next(turn, query) => (turn, query),
            Place::Waits(answer) => return answer.await.map_err(|_| ended())?,
        };
        let found = (turn.of.run)(vec![query]).await?;
        drop(turn);
        found.into_iter().next().ok_or_else(ended)
    }

    fn join(&self, query: Q) -> Place<Q, A> {
        // More calls of the same task are about to follow, or others may within the wait.
        let joinable = raft::is_together() || !(self.0.wait)().is_zero();
        let mut line = self.0.line.lock();
        let free = line.busy < self.0.most;
        line.busy += usize::from(free);
        if free && !joinable {
            return Place::Next(Turn { of: self.0.clone(), begun: true }, query);
        }
        let (answer, wait) = oneshot::channel();
        line.waiting.push(Call { query, answer });
        drop(line);
        if free {
            tokio::spawn(Turn { of: self.0.clone(), begun: false }.take_waiting());
        }
        Place::Waits(wait)
    }
}

/// What becomes of a call.
enum Place<Q: Send + 'static, A: Send + 'static> {
    /// It is a batch of its own.
    Next(Turn<Q, A>, Q),
    /// It is part of a later one, whose answer comes here.
    Waits(oneshot::Receiver<Result<A>>),
}

/// A batch under way. When it is over, however that came, those that wait are the next one.
struct Turn<Q: Send + 'static, A: Send + 'static> {
    of: Arc<Shared<Q, A>>,
    begun: bool,
}

impl<Q: Send + 'static, A: Send + 'static> Drop for Turn<Q, A> {
    fn drop(&mut self) {
        let mut line = self.of.line.lock();
        let runtime = Handle::try_current().ok().filter(|_| self.begun);
        match runtime.filter(|_| !line.waiting.is_empty()) {
            Some(runtime) => {
                drop(line);
                runtime.spawn(Turn { of: self.of.clone(), begun: false }.take_waiting());
            }
            None => {
                line.busy -= 1;
                // Whoever still waits does so in vain: a runtime that drops what it has not begun has ended.
                let in_vain = std::mem::take(&mut line.waiting);
                drop(line);
                drop(in_vain);
            }
        }
    }
}

impl<Q: Send + 'static, A: Send + 'static> Turn<Q, A> {
    /// The next batch is of those that wait by the time it begins.
    async fn take_waiting(mut self) {
        self.begun = true;
        let wait = (self.of.wait)();
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let calls: Vec<Call<Q, A>> = {
            let mut line = self.of.line.lock();
            let count = line.waiting.len().min(MAX_CALLS);
            line.waiting.drain(..count).collect()
        };
        if !calls.is_empty() {
            self.answer(calls).await;
        }
    }

    async fn answer(self, calls: Vec<Call<Q, A>>) {
        let (queries, answers): (Vec<Q>, Vec<_>) =
            calls.into_iter().map(|call| (call.query, call.answer)).unzip();
        // A caller that went away does not mind.
        match (self.of.run)(queries).await {
            Ok(found) => answers.into_iter().zip(found).for_each(|(answer, found)| {
                let _ = answer.send(Ok(found));
            }),
            Err(error) => answers.into_iter().for_each(|answer| {
                let _ = answer.send(Err(error.clone()));
            }),
        }
    }
}

fn ended() -> Error {
    Error::Unavailable("this node is shutting down".into())
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;

    type Queue = Arc<Batcher<u32, u32>>;
    /// A queue, what lets its batches go on, and the sizes of those that have begun.
    type Gated = (Queue, Arc<Semaphore>, Arc<Mutex<Vec<usize>>>);

    /// A queue whose batches wait for a permit each.
    fn gated() -> Gated {
        let (gate, sizes) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (permits, begun) = (gate.clone(), sizes.clone());
        let batcher = Batcher::new(
            1,
            || Duration::ZERO,
            move |queries: Vec<u32>| {
                let permits = permits.clone();
                begun.lock().push(queries.len());
                Box::pin(async move {
                    permits.acquire().await.map_err(|_| ended())?.forget();
                    assert!(!queries.contains(&13), "a batch that panics");
                    Ok(queries.into_iter().map(|query| query * 10).collect())
                })
            },
        );
        (Arc::new(batcher), gate, sizes)
    }

    fn called(batcher: &Queue, query: u32) -> JoinHandle<Result<u32>> {
        let batcher = batcher.clone();
        tokio::spawn(async move { batcher.call(query).await })
    }

    async fn answered(call: JoinHandle<Result<u32>>) -> Result<u32> {
        tokio::time::timeout(Duration::from_secs(20), call).await.expect("an answer").unwrap()
    }

    async fn until(is_so: impl Fn() -> bool) {
        let so = async {
            while !is_so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), so).await.expect("what was waited for");
    }

    async fn waiting(batcher: &Queue, count: usize) {
        until(|| batcher.0.line.lock().waiting.len() >= count).await;
    }

    /// A queue with a batch under way.
    async fn busy() -> (Gated, JoinHandle<Result<u32>>) {
        let (batcher, gate, sizes) = gated();
        let first = called(&batcher, 1);
        until(|| !sizes.lock().is_empty()).await;
        ((batcher, gate, sizes), first)
    }

    #[tokio::test]
    async fn those_that_wait_are_one_batch() {
        let ((batcher, gate, sizes), first) = busy().await;
        let others = [called(&batcher, 2), called(&batcher, 3), called(&batcher, 4)];
        waiting(&batcher, 3).await;
        gate.add_permits(1);
        assert_eq!(first.await.unwrap(), Ok(10));
        until(|| sizes.lock().len() == 2).await;
        let later = called(&batcher, 5);
        waiting(&batcher, 1).await;
        assert_eq!(*sizes.lock(), [1, 3], "one batch at a time");
        gate.add_permits(3);
        for (other, answer) in others.into_iter().zip([20, 30, 40]) {
            assert_eq!(answered(other).await, Ok(answer));
        }
        assert_eq!(answered(later).await, Ok(50));
        assert_eq!(answered(called(&batcher, 6)).await, Ok(60), "nothing is under way any more");
    }

    #[tokio::test]
    async fn calls_that_one_task_makes_at_once_are_one_batch() {
        let (batcher, gate, sizes) = gated();
        gate.add_permits(4);
        let calls = futures::future::join_all([2, 3, 4].map(|query| batcher.call(query)));
        let mut calls = std::pin::pin!(calls);
        let answers =
            std::future::poll_fn(|context| raft::together(|| calls.as_mut().poll(context)));
        let answers = tokio::time::timeout(Duration::from_secs(5), answers);
        assert_eq!(answers.await.expect("answers"), [Ok(20), Ok(30), Ok(40)]);
        assert_eq!(*sizes.lock(), [3]);
        assert_eq!(batcher.call(5).await, Ok(50), "nothing is under way any more");
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_leaves_nobody_waiting() {
        let ((batcher, gate, _), first) = busy().await;
        let other = called(&batcher, 2);
        waiting(&batcher, 1).await;
        first.abort();
        gate.add_permits(1);
        assert_eq!(answered(other).await, Ok(20));
    }

    #[tokio::test]
    async fn a_batch_that_panics_is_the_last_of_its_own_only() {
        let ((batcher, gate, _), first) = busy().await;
        let lost = called(&batcher, 13);
        waiting(&batcher, 1).await;
        gate.add_permits(10);
        assert_eq!(first.await.unwrap(), Ok(10));
        assert_eq!(answered(lost).await, Err(ended()));
        assert_eq!(answered(called(&batcher, 2)).await, Ok(20));
    }

    #[test]
    fn a_runtime_that_ends_ends_the_line() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let batcher = runtime.block_on(async {
            let ((batcher, _, _), _) = busy().await;
            drop(called(&batcher, 2));
            waiting(&batcher, 1).await;
            batcher
        });
        drop(runtime);
        let line = batcher.0.line.lock();
        assert_eq!((line.busy, line.waiting.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_batch_that_waits_takes_along_who_comes_meanwhile() {
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let begun = sizes.clone();
        let run = move |queries: Vec<u32>| -> BoxFuture<'static, Result<Vec<u32>>> {
            begun.lock().push(queries.len());
            Box::pin(async move { Ok(queries) })
        };
        let batcher = Arc::new(Batcher::new(1, || Duration::from_millis(50), run));
        let calls = [called(&batcher, 1), called(&batcher, 2), called(&batcher, 3)];
        for (call, answer) in calls.into_iter().zip([1, 2, 3]) {
            assert_eq!(answered(call).await, Ok(answer));
        }
        assert_eq!(*sizes.lock(), [3]);
        assert_eq!(answered(called(&batcher, 4)).await, Ok(4), "nothing is under way any more");
    }
}
