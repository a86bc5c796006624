//! What goes first where processors are busy: work that could go on lets more urgent work that could go on pass it.
//!
//! The queue is the runtime's. Whoever is woken counts as ready until it is polled; whoever is polled while something more
//! urgent is ready goes to the end of the queue instead, so often and no more: nobody starves. Without priorities nothing is
//! ever deferred, and no thread is added.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use types::Priority;

/// How often work is deferred before it goes on all the same.
const DEFERRALS: u32 = 16;

/// Work of a process that could go on and waits for a thread, by priority.
#[derive(Debug, Default)]
pub struct ReadyWork([AtomicIsize; 3]);

impl ReadyWork {
    fn change(&self, priority: u8, by: isize) {
        if let Some(count) = self.0.get(usize::from(priority)) {
            count.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Whether something is ready that goes before work of this priority.
    fn is_any_before(&self, priority: u8) -> bool {
        self.0.iter().skip(usize::from(priority) + 1).any(|count| count.load(Ordering::Relaxed) > 0)
    }
}

thread_local! {
    /// That of the work that this thread is in.
    static CURRENT: Cell<u8> = const { Cell::new(Priority::Medium as u8) };
}

/// The priority of the work that calls this, for whoever works for it elsewhere; [`Priority::Medium`] outside of any.
pub fn current() -> Priority {
    let all = [Priority::Low, Priority::Medium, Priority::High];
    all.get(usize::from(CURRENT.get())).copied().unwrap_or_default()
}

/// Nothing runs.
const IDLE: u8 = 0;
/// Something runs, or waits for what will wake it.
const BUSY: u8 = 1;
/// It is ready; above this by its priority.
const READY: u8 = 2;

/// One after another, the futures of somebody whose priority may change.
#[derive(Debug)]
pub struct Scheduled {
    all: Arc<ReadyWork>,
    priority: AtomicU8,
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Scheduled {
    /// Somebody of priority [`Priority::Medium`] among the work of a process.
    pub fn new(all: Arc<ReadyWork>) -> Arc<Self> {
        Arc::new(Scheduled {
            all,
            priority: AtomicU8::new(Priority::Medium as u8),
            state: AtomicU8::new(IDLE),
            task: Mutex::new(None),
        })
    }

    /// From now on it has this priority; what runs, too.
    pub fn set_priority(&self, priority: Priority) {
        self.set_index(priority as u8);
    }

    pub(crate) fn set_index(&self, priority: u8) {
        self.priority.store(priority, Ordering::Relaxed);
    }

    /// The future, deferred while more urgent work is ready.
    pub fn run<F>(self: &Arc<Self>, work: F) -> Run<F> {
        Run { work, by: self.clone(), deferred: 0 }
    }

    /// It is ready from now on, if something runs.
    fn make_ready(&self) {
        let priority = self.priority.load(Ordering::Relaxed);
        let ready = READY + priority;
        if self.state.compare_exchange(BUSY, ready, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.all.change(priority, 1);
        }
    }

    /// It is not ready any more.
    fn enter(&self, state: u8) {
        let before = self.state.swap(state, Ordering::AcqRel);
        if let Some(priority) = before.checked_sub(READY) {
            self.all.change(priority, -1);
        }
    }

    /// Whether it is to let others pass, which it does by coming back later.
    fn defers(&self, task: &Waker) -> bool {
        if !self.all.is_any_before(self.priority.load(Ordering::Relaxed)) {
            return false;
        }
        self.make_ready();
        task.wake_by_ref();
        true
    }

    fn remember(&self, task: &Waker) {
        let mut known = self.task.lock();
        if known.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }
}

impl Wake for Scheduled {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.make_ready();
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

pin_project_lite::pin_project! {
    /// See [`Scheduled::run`].
    pub struct Run<F> {
        #[pin]
        work: F,
        by: Arc<Scheduled>,
        deferred: u32,
    }

    impl<F> PinnedDrop for Run<F> {
        fn drop(this: Pin<&mut Self>) {
            this.by.enter(IDLE);
        }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.by.enter(BUSY);
        this.by.remember(cx.waker());
        if *this.deferred < DEFERRALS && this.by.defers(cx.waker()) {
            *this.deferred += 1;
            return Poll::Pending;
        }
        *this.deferred = 0;
        let waker = Waker::from(this.by.clone());
        let outside = CURRENT.replace(this.by.priority.load(Ordering::Relaxed));
        let polled = this.work.poll(&mut Context::from_waker(&waker));
        CURRENT.set(outside);
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Pending once, and ready at once.
    async fn again() {
        let mut woken = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut woken, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// How often each of some priorities had its turn, while all had something to do.
    fn turns(priorities: &[Priority], rounds: u64) -> Vec<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let all = Arc::new(ReadyWork::default());
        let counts: Vec<_> = priorities.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        runtime.block_on(async {
            let mut tasks = tokio::task::JoinSet::new();
            let total = Arc::new(AtomicU64::new(0));
            for (priority, count) in priorities.iter().zip(&counts) {
                let by = Scheduled::new(all.clone());
                by.set_priority(*priority);
                let (count, total) = (count.clone(), total.clone());
                tasks.spawn(async move {
                    let work = async {
                        while total.fetch_add(1, Ordering::Relaxed) < rounds {
                            count.fetch_add(1, Ordering::Relaxed);
                            again().await;
                        }
                    };
                    by.run(work).await;
                });
            }
            while tasks.join_next().await.is_some() {}
        });
        assert!(all.0.iter().all(|count| count.load(Ordering::Relaxed) == 0), "{all:?}");
        counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn what_is_more_urgent_goes_first_and_nobody_starves() {
        use Priority::{High, Low, Medium};
        let alike = turns(&[Medium, Medium, Medium, Medium], 4_000);
        assert!(alike.iter().all(|count| (990..=1_010).contains(count)), "{alike:?}");
        let mixed = turns(&[High, Medium, Low, High], 4_000);
        assert!(mixed[0] > 4 * mixed[1] && mixed[3] > 4 * mixed[1], "{mixed:?}");
        assert!(mixed[1] > 50 && mixed[2] > 50, "{mixed:?}");
    }

    #[test]
    fn work_knows_its_priority() {
        let by = Scheduled::new(Arc::default());
        let mut seen = Vec::new();
        for priority in [Priority::High, Priority::Low] {
            by.set_priority(priority);
            let work = by.run(std::future::poll_fn(|_| Poll::Ready(current())));
            seen.push(futures::executor::block_on(work));
        }
        assert_eq!((seen, current()), (vec![Priority::High, Priority::Low], Priority::Medium));
    }

    #[test]
    fn who_waits_for_something_else_defers_nobody() {
        let all = Arc::new(ReadyWork::default());
        let urgent = Scheduled::new(all.clone());
        urgent.set_priority(Priority::High);
        let mut waits = Box::pin(urgent.run(std::future::pending::<()>()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        assert!(!all.is_any_before(Priority::Medium as u8));
        urgent.wake_by_ref();
        assert!(all.is_any_before(Priority::Medium as u8));
        assert!(!all.is_any_before(Priority::High as u8));
        let other = Scheduled::new(all.clone());
        let mut deferred = Box::pin(other.run(std::future::ready(())));
        for _ in 0..DEFERRALS {
            assert!(deferred.as_mut().poll(&mut cx).is_pending());
        }
        assert!(deferred.as_mut().poll(&mut cx).is_ready(), "it was deferred often enough");
        drop(waits);
        urgent.wake_by_ref();
        assert!(!all.is_any_before(Priority::Low as u8), "what is gone is not ready");
    }
}
