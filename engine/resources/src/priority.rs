//! What goes first where processors are busy, and who pays for them: work that could go on lets more urgent work that could go
//! on pass it, and is measured while it has its turn.
//!
//! The queue is the runtime's. Whoever is woken counts as ready until it is polled; whoever is polled while something more
//! urgent is ready goes to the end of the queue instead, so often and no more: nobody starves. Without priorities nothing is
//! ever deferred, and no thread is added.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::future::Either;
use parking_lot::Mutex;
use types::Priority;

use crate::account::Account;
use crate::payer::Payer;
use crate::processor::Timed;
use crate::units::Units;

/// How often work is deferred before it goes on all the same.
const DEFERRALS: u32 = 16;
/// Nanoseconds of a processor that are paid for at a time, at least: who pays is looked up for that.
const PAID_TOGETHER: u64 = 100_000;

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
    /// Whose work this thread is in.
    static CURRENT: Cell<Option<Arc<Owner>>> = const { Cell::new(None) };
}

/// The priority of the work that calls this, for whoever works for it elsewhere; [`Priority::Medium`] outside of any.
pub fn current() -> Priority {
    owner().map_or(Priority::Medium, |owner| owner.priority())
}

/// A future that goes by the priority of the work that calls this, whatever that will be, and is paid for with it; as it is
/// outside of any. For tasks that work begins.
pub fn inherited<F: Future>(work: F) -> Either<Run<F>, F> {
    match owner() {
        Some(owner) => Either::Left(Scheduled::of(owner).run(work)),
        None => Either::Right(work),
    }
}

/// A computation that is paid for with the work that calls this.
pub fn inherited_block<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let owner = owner();
    move || {
        let timed = Timed::begin();
        let done = work();
        if let Some(owner) = owner {
            owner.spend(timed.end());
        }
        done
    }
}

/// Has the work that calls this pay for time of a processor that was used for it elsewhere.
pub fn spend(time: Duration) {
    if let Some(owner) = owner() {
        owner.spend(time);
    }
}

fn owner() -> Option<Arc<Owner>> {
    let owner = CURRENT.take();
    CURRENT.set(owner.clone());
    owner
}

/// Whoever has futures scheduled, several at the same time if they are tasks of one.
struct Owner {
    all: Arc<ReadyWork>,
    priority: AtomicU8,
    /// Who pays for processor time, if anybody does.
    payer: Mutex<Option<Arc<Payer>>>,
    turn: Mutex<Option<Turn>>,
    /// Whether anybody wants to know what it uses of a processor.
    timed: AtomicBool,
    /// Nanoseconds of a processor that were not paid for yet.
    spent: AtomicU64,
}

/// What becomes of work that takes long.
struct Turn {
    at: Instant,
    /// Who pays for the rest, and its priority; without, the rest goes behind all others.
    other: Option<(Priority, Arc<Account>)>,
}

impl Owner {
    fn priority(&self) -> Priority {
        let all = [Priority::Low, Priority::Medium, Priority::High];
        let index = usize::from(self.priority.load(Ordering::Relaxed));
        all.get(index).copied().unwrap_or_default()
    }

    fn is_timed(&self) -> bool {
        self.timed.load(Ordering::Relaxed)
    }

    /// Has time of a processor paid for; little of it together with what comes next.
    fn spend(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let spent = self.spent.fetch_add(nanos, Ordering::Relaxed).saturating_add(nanos);
        if spent < PAID_TOGETHER {
            return;
        }
        let payer = self.payer.lock().clone();
        // Where nobody pays, it is kept for whoever asks what was spent.
        if let Some(payer) = payer {
            self.turn(&payer);
            let spent = self.spent.swap(0, Ordering::Relaxed);
            payer.charge(Units::of_processor(Duration::from_nanos(spent)));
        }
    }

    /// Has another one pay for the rest, or has that go behind all others, once it is time.
    #[allow(clippy::disallowed_methods)] // as who pays for what is decided by nothing that is replayed
    fn turn(&self, payer: &Payer) {
        let turn = self.turn.lock().take_if(|turn| turn.at <= Instant::now());
        let Some(Turn { other, .. }) = turn else { return };
        let priority = other.as_ref().map_or(Priority::Low, |(priority, _)| *priority);
        self.priority.store(priority as u8, Ordering::Relaxed);
        if let Some((_, account)) = other {
            payer.switch_to(account);
        }
    }
}

/// Nothing runs.
const IDLE: u8 = 0;
/// Something runs, or waits for what will wake it.
const BUSY: u8 = 1;
/// It is ready; above this by its priority.
const READY: u8 = 2;

/// One after another, the futures of somebody whose priority may change.
pub struct Scheduled {
    owner: Arc<Owner>,
    state: AtomicU8,
    task: Mutex<Option<Waker>>,
}

impl Scheduled {
    /// Somebody of priority [`Priority::Medium`] among the work of a process, for whom nobody pays.
    pub fn new(all: Arc<ReadyWork>) -> Arc<Self> {
        Self::of(Arc::new(Owner {
            all,
            priority: AtomicU8::new(Priority::Medium as u8),
            payer: Mutex::new(None),
            turn: Mutex::new(None),
            timed: AtomicBool::new(true),
            spent: AtomicU64::new(0),
        }))
    }

    fn of(owner: Arc<Owner>) -> Arc<Self> {
        Arc::new(Scheduled { owner, state: AtomicU8::new(IDLE), task: Mutex::new(None) })
    }

    /// From now on it has this priority; what runs, too, and its tasks.
    pub fn set_priority(&self, priority: Priority) {
        self.owner.priority.store(priority as u8, Ordering::Relaxed);
    }

    /// From now on this one pays for its processor time, and that of its tasks; or nobody, who need not know it.
    pub fn charge_to(&self, payer: Option<Arc<Payer>>) {
        self.owner.timed.store(payer.is_some(), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.owner.payer.lock(), payer);
        if before.is_none() {
            // Nobody was to pay for that.
            self.take_spent();
        }
    }

    /// From this time on another account pays, and it has that one's priority; or, without one, it goes behind all others.
    /// Noticed when something is paid for.
    pub fn turn_at(&self, at: Instant, other: Option<(Priority, Arc<Account>)>) {
        *self.owner.turn.lock() = Some(Turn { at, other });
    }

    /// Has whoever pays by now pay for something else than time of a processor.
    pub fn charge(&self, units: Units) {
        let payer = self.owner.payer.lock().clone();
        if let Some(payer) = payer {
            self.owner.turn(&payer);
            payer.charge(units);
        }
    }

    /// Calls what begins tasks of this work, and is itself no part of any.
    pub fn begin<T>(&self, tasks: impl FnOnce() -> T) -> T {
        let outside = CURRENT.replace(Some(self.owner.clone()));
        let begun = tasks();
        CURRENT.set(outside);
        begun
    }

    /// A part of this work that is called on a thread of its own: paid for, and of no priority.
    pub fn compute<T>(&self, part: impl FnOnce() -> T) -> T {
        let timed = Timed::begin();
        let done = part();
        self.owner.spend(timed.end());
        done
    }

    /// Time of a processor that it took so far, where nobody pays.
    pub fn take_spent(&self) -> Duration {
        Duration::from_nanos(self.owner.spent.swap(0, Ordering::Relaxed))
    }

    /// The future, deferred while more urgent work is ready.
    pub fn run<F>(self: &Arc<Self>, work: F) -> Run<F> {
        Run { work, by: self.clone(), deferred: 0 }
    }

    /// It is ready from now on, if something runs.
    fn make_ready(&self) {
        let priority = self.owner.priority.load(Ordering::Relaxed);
        let ready = READY + priority;
        if self.state.compare_exchange(BUSY, ready, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.owner.all.change(priority, 1);
        }
    }

    /// It is not ready any more.
    fn enter(&self, state: u8) {
        let before = self.state.swap(state, Ordering::AcqRel);
        if let Some(priority) = before.checked_sub(READY) {
            self.owner.all.change(priority, -1);
        }
    }

    /// Whether it is to let others pass, which it does by coming back later.
    fn defers(&self, task: &Waker) -> bool {
        if !self.owner.all.is_any_before(self.owner.priority.load(Ordering::Relaxed)) {
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
            // It holds this.
            let woken = this.by.task.lock().take();
            drop(woken);
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
        let owner = &this.by.owner;
        let outside = CURRENT.replace(Some(owner.clone()));
        // Work within other work is paid for with that.
        let timed = (outside.is_none() && owner.is_timed()).then(Timed::begin);
        let polled = this.work.poll(&mut Context::from_waker(&waker));
        CURRENT.set(outside);
        if let Some(timed) = timed {
            owner.spend(timed.end());
        }
        polled
    }
}

#[cfg(test)]
mod tests {
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
    fn tasks_of_work_go_by_its_priority_and_are_paid_for_with_it() {
        let ledger = crate::Ledger::new(Arc::new(env::SimClock::new(0)));
        let account = ledger.account(&types::ResourceGroup::new("g").unwrap());
        let by = Scheduled::new(Arc::default());
        by.set_priority(Priority::Low);
        by.charge_to(Some(Payer::new(account.clone())));
        let busy = || {
            let began = env::processor::thread_time();
            while env::processor::thread_time() - began < Duration::from_millis(3) {}
        };
        let task = by.run(async {
            let task = inherited(std::future::poll_fn(move |_| {
                busy();
                Poll::Ready(current())
            }));
            (task, inherited_block(busy))
        });
        let (task, block) = futures::executor::block_on(task);
        assert_eq!(futures::executor::block_on(task), Priority::Low);
        block();
        assert!(account.used() >= Units::whole(2), "{:?}", account.used());
        assert!(matches!(inherited(std::future::ready(())), Either::Right(_)), "outside of any");
    }

    #[test]
    fn work_within_work_is_paid_for_by_the_outer_alone() {
        let ledger = crate::Ledger::new(Arc::new(env::SimClock::new(0)));
        let [outer, inner] = ["outer", "inner"]
            .map(|name| ledger.account(&types::ResourceGroup::new(name).unwrap()));
        let works = |account: &Arc<Account>| {
            let by = Scheduled::new(Arc::default());
            by.charge_to(Some(Payer::new(account.clone())));
            by
        };
        let work = works(&inner).run(async {
            let began = env::processor::thread_time();
            while env::processor::thread_time() - began < Duration::from_millis(3) {}
        });
        futures::executor::block_on(works(&outer).run(work));
        assert_eq!(inner.used(), Units::ZERO);
        assert!((Units(800_000)..Units(1_700_000)).contains(&outer.used()), "{:?}", outer.used());
    }

    #[test]
    fn what_nobody_pays_for_is_known_to_who_asks() {
        let by = Scheduled::new(Arc::default());
        by.compute(|| {
            let began = env::processor::thread_time();
            while env::processor::thread_time() - began < Duration::from_millis(3) {}
        });
        assert!(by.take_spent() >= Duration::from_millis(2));
        assert_eq!(by.take_spent(), Duration::ZERO);
    }

    #[test]
    #[allow(clippy::disallowed_methods)] // work turns by the machine's clock
    fn another_account_pays_for_the_rest_of_what_takes_long() {
        let ledger = crate::Ledger::new(Arc::new(env::SimClock::new(0)));
        let [one, other] =
            ["one", "other"].map(|name| ledger.account(&types::ResourceGroup::new(name).unwrap()));
        let late = Instant::now() + Duration::from_secs(3_600);
        for (at, switched, paid_by_other) in
            [(late, true, 0), (Instant::now(), true, 1), (Instant::now(), false, 0)]
        {
            let (by, before) = (Scheduled::new(Arc::default()), other.used().0);
            by.charge_to(Some(Payer::new(one.clone())));
            by.turn_at(at, switched.then(|| (Priority::High, other.clone())));
            by.charge(Units::whole(1));
            assert_eq!(other.used().0 - before, Units::whole(paid_by_other).0);
            let wanted = match (at == late, switched) {
                (true, _) => Priority::Medium,
                (false, true) => Priority::High,
                (false, false) => Priority::Low,
            };
            assert_eq!(by.owner.priority(), wanted);
        }
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
