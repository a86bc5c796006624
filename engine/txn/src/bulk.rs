//! Bulk writes give way to the online path.
//!
//! An import or a large first phase fills the log and the machines behind it; a small write that
//! arrives then waits for all of it. So while a node serves the online path, as leader or as
//! follower, bulk writes go through it one at a time, each with a pause as long as it took, and
//! otherwise a few at once. Only the order of requests is touched: nothing is refused, and nobody
//! else waits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

/// Writes of at least this many bytes are bulk.
pub(crate) const BYTES: usize = 128 << 10;
/// Bulk writes at once while there is no online path.
const AT_ONCE: u32 = 4;
/// For how long after a request of the online path more of them are expected.
const ONLINE: Duration = Duration::from_millis(300);
/// Longest wait for a turn: its caller waits twice as long for all of it.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Longest pause after a bulk write.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The turns of one node.
pub(crate) struct Bulk {
    turns: Semaphore,
    /// What the online path has asked of this node so far.
    online: Arc<AtomicU64>,
    /// How much that was when last looked at, and when it last grew.
    seen: Mutex<(u64, Option<Instant>)>,
}

impl Bulk {
    /// `online` counts requests of the online path.
    pub(crate) fn new(online: Arc<AtomicU64>) -> Self {
        Bulk { turns: Semaphore::new(AT_ONCE as usize), online, seen: Mutex::default() }
    }

    /// Runs a write of so many bytes when it is its turn.
    pub(crate) async fn run<T>(&self, bytes: usize, write: impl Future<Output = T>) -> T {
        if bytes < BYTES {
            return write.await;
        }
        let turns = if self.is_online() { AT_ONCE } else { 1 };
        // Without a turn it is only less considerate.
        let _turn = timeout(LONGEST_WAIT, self.turns.acquire_many(turns)).await;
        let began = Instant::now();
        let done = write.await;
        sleep(self.pause(began.elapsed())).await;
        done
    }

    /// How long the next bulk write is held back after one that took so long.
    fn pause(&self, took: Duration) -> Duration {
        if self.is_online() { took.min(LONGEST_PAUSE) } else { Duration::ZERO }
    }

    fn is_online(&self) -> bool {
        let count = self.online.load(Ordering::Relaxed);
        let mut seen = self.seen.lock();
        if count != seen.0 {
            *seen = (count, Some(Instant::now()));
        }
        seen.1.is_some_and(|at| at.elapsed() < ONLINE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;
    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    /// Six bulk writes started together: most of them at once. While they run, `beside` is called.
    async fn most_at_once(bulk: &Bulk, beside: impl Fn()) -> usize {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let write = || async {
            most.fetch_max(now.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            for _ in 0..10 {
                beside();
                yield_now().await;
            }
            now.fetch_sub(1, Ordering::AcqRel);
        };
        join_all((0..6).map(|_| bulk.run(BYTES, write()))).await;
        most.load(Ordering::Acquire)
    }

    #[tokio::test]
    async fn beside_the_online_path_bulk_writes_go_one_at_a_time_and_alone_a_few_at_once() {
        let online = Arc::new(AtomicU64::new(0));
        let bulk = Bulk::new(online.clone());
        assert_eq!(most_at_once(&bulk, || ()).await, AT_ONCE as usize);
        let small = || {
            online.fetch_add(1, Ordering::Relaxed);
            assert!(bulk.run(10, async {}).now_or_never().is_some(), "a small write waited");
        };
        small();
        assert_eq!(most_at_once(&bulk, small).await, 1);
    }

    #[test]
    fn a_bulk_write_beside_the_online_path_is_followed_by_a_pause_as_long_as_itself() {
        let online = Arc::new(AtomicU64::new(0));
        let (bulk, took) = (Bulk::new(online.clone()), Duration::from_millis(7));
        assert_eq!(bulk.pause(took), Duration::ZERO);
        online.fetch_add(1, Ordering::Relaxed);
        assert_eq!(bulk.pause(took), took);
        assert_eq!(bulk.pause(Duration::from_secs(9)), LONGEST_PAUSE);
    }
}
