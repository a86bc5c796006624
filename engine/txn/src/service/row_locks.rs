//! Row locks at a region's leader: the thin loop around [`crate::queues`] that waits, wakes,
//! reports waits to the deadlock detector, and reads what a lock has made current.
//!
//! Nothing here is logged or survives a leader. A lock that was lost shows as a conflict in the
//! first phase of its owner.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use types::error::LockInfo;
use types::{Error, RegionId, Result, Timestamp};

use crate::api::{Current, Expect, Mode, Mutation, RegionRef, Request, Response, Taking, Waiting};
use crate::mvcc;
use crate::queues::{Grant, Queues, Standing, Tenure};
use crate::service::TxnService;
use crate::share::{share_key, shared_key};

/// How long one request waits for a key. Who wants to wait longer asks again and keeps its place.
pub(crate) const SLICE: Duration = Duration::from_secs(5);
/// How long a place in a queue lasts without its owner asking again.
const PLACE_MS: u64 = 3_000;
/// How often a waiter looks whether what it waits for has run out, or the leader is another.
const LOOK: Duration = Duration::from_millis(100);
/// Waits shorter than this are not reported to the detector.
const REPORT_AFTER: Duration = Duration::from_millis(10);
/// How often a wait is reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(1);
/// How long the end of a wait waits for the detector to be informed.
const FAREWELL: Duration = Duration::from_millis(300);
/// How long a first phase holds rows against others while it waits for the rest.
const PREWRITE_HOLD_MS: u64 = 5_000;
/// Pause between two looks for what has run out and nobody asks for.
const SWEEP_MS: u64 = 5_000;
/// How long what was taken over from another leader is held unless its owner sends a heartbeat.
const INHERITED_MS: u64 = 5_000;
/// Most keys of a request.
const MAX_KEYS: usize = 65_536;

/// Where waits of the whole cluster come together.
#[async_trait]
pub trait WaitGraph: Send + Sync + 'static {
    /// A transaction waits for another one's key. Whether it has to give way because the wait
    /// closes a circle.
    async fn waits(&self, waiter: Timestamp, holder: Timestamp, key: Vec<u8>) -> Result<bool>;

    /// It no longer waits for the key.
    async fn ended(&self, waiter: Timestamp, key: Vec<u8>) -> Result<()>;
}

/// The row locks of one node.
pub(crate) struct RowLocks {
    state: Mutex<State>,
    began: Instant,
    graph: Option<Arc<dyn WaitGraph>>,
}

#[derive(Default)]
struct State {
    queues: Queues,
    wakers: HashMap<(Vec<u8>, Timestamp), Arc<Notify>>,
    swept: u64,
}

impl State {
    /// Wakes who was given a key.
    fn wake(&mut self) {
        for granted in self.queues.take_granted() {
            if let Some(waker) = self.wakers.get(&granted) {
                waker.notify_one();
            }
        }
    }
}

impl RowLocks {
    pub(crate) fn new(graph: Option<Arc<dyn WaitGraph>>) -> Self {
        RowLocks { state: Mutex::default(), began: Instant::now(), graph }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Claims a key for `hold` milliseconds; queues for it if `queue` is set.
    fn claim(
        &self,
        tenure: Tenure,
        key: &[u8],
        by: (Timestamp, Mode),
        hold: u64,
        queue: bool,
    ) -> Standing {
        let now = self.now();
        let mut state = self.state.lock();
        if now >= state.swept + SWEEP_MS {
            state.swept = now;
            state.queues.sweep(now);
        }
        let until = (now + hold, queue.then_some(now + PLACE_MS));
        let standing = state.queues.claim(now, tenure, key, by, until);
        state.wake();
        standing
    }

    /// Keeps what a leader held that hands over, for this node's next term as leader.
    pub(crate) fn inherit(&self, region: RegionId, term: u64, held: Vec<Grant>, mode: Mode) {
        let tenure = Tenure { region, term: term.saturating_add(1) };
        for (key, owner) in held {
            self.claim(tenure, &key, (owner, mode), INHERITED_MS, false);
        }
    }

    /// Gives back keys and places in queues, and keys of which these are a transaction's shares.
    pub(crate) fn release<'a>(
        &self,
        owner: Timestamp,
        keys: impl IntoIterator<Item = &'a Vec<u8>>,
    ) {
        let mut state = self.state.lock();
        if state.queues.is_empty() {
            return;
        }
        let now = self.now();
        for key in keys {
            state.queues.release(now, key, owner);
            if let Some(shared) = shared_key(key, owner) {
                state.queues.release(now, shared, owner);
            }
        }
        state.wake();
    }

    fn of_region(&self, region: RegionId, mode: Mode) -> Vec<Grant> {
        self.state.lock().queues.of_region(self.now(), region, mode)
    }

    /// The first key that another transaction holds, so that these changes cannot be made, which transaction that is, and how
    /// the changes hold the key.
    pub(crate) fn held_by_other(
        &self,
        owner: Timestamp,
        mutations: &[Mutation],
    ) -> Result<Option<(Grant, Mode)>> {
        let state = self.state.lock();
        if state.queues.is_empty() {
            return Ok(None);
        }
        let now = self.now();
        for mutation in mutations {
            let (key, mode) = mutation.holds(owner)?;
            if let Some(holder) = state.queues.held_by_other(now, key, owner, mode) {
                return Ok(Some(((key.to_vec(), holder), mode)));
            }
        }
        Ok(None)
    }
}

/// A request's presence in a key's queue.
struct Waiter<'a> {
    locks: &'a RowLocks,
    key: &'a [u8],
    owner: Timestamp,
    waker: Arc<Notify>,
    /// Whether its place is kept when it goes.
    stay: bool,
    reported: bool,
    /// A report whose answer has not come yet.
    report: Option<JoinHandle<Result<bool>>>,
}

impl<'a> Waiter<'a> {
    fn new(locks: &'a RowLocks, key: &'a [u8], owner: Timestamp) -> Self {
        let waker = Arc::new(Notify::new());
        locks.state.lock().wakers.insert((key.to_vec(), owner), waker.clone());
        Waiter { locks, key, owner, waker, stay: false, reported: false, report: None }
    }

    /// Reports the wait to the detector.
    fn report_wait(&mut self, holder: Timestamp) {
        let Some(graph) = self.locks.graph.clone() else { return };
        self.reported = true;
        let (owner, key) = (self.owner, self.key.to_vec());
        self.report = Some(tokio::spawn(async move { graph.waits(owner, holder, key).await }));
    }

    /// What the detector answers: whether to give way. One that cannot be asked says no.
    async fn answer(&mut self) -> bool {
        let Some(report) = &mut self.report else { return std::future::pending().await };
        let answer = report.await;
        self.report = None;
        matches!(answer, Ok(Ok(true)))
    }

    /// Takes the wait back before its owner goes on without the key: a wait that the detector
    /// still believes in would make circles that are none.
    async fn withdraw(&mut self) {
        if let Some(farewell) = self.farewell() {
            _ = timeout(FAREWELL, farewell).await;
        }
    }

    fn farewell(&mut self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let graph = self.locks.graph.clone().filter(|_| self.reported)?;
        self.reported = false;
        let (owner, key, report) = (self.owner, self.key.to_vec(), self.report.take());
        Some(async move {
            if let Some(report) = report {
                _ = report.await;
            }
            // What is not taken back is forgotten after a while.
            _ = graph.ended(owner, key).await;
        })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let place = (self.key.to_vec(), self.owner);
        let mut state = self.locks.state.lock();
        if state.wakers.get(&place).is_some_and(|waker| Arc::ptr_eq(waker, &self.waker)) {
            state.wakers.remove(&place);
            if !self.stay {
                state.queues.leave(self.locks.now(), self.key, self.owner);
                state.wake();
            }
        }
        drop(state);
        if let Some(farewell) = self.farewell().filter(|_| !self.stay) {
            tokio::spawn(farewell);
        }
    }
}

/// Keys that a first phase has taken for its own length; given back when this is dropped.
struct Admitted<'a> {
    locks: &'a RowLocks,
    owner: Timestamp,
    keys: Vec<Vec<u8>>,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.locks.release(self.owner, &self.keys);
    }
}

impl TxnService {
    /// Reports waits for rows to a detector of deadlocks; without one, they end by time alone.
    pub fn with_wait_graph(mut self, graph: Arc<dyn WaitGraph>) -> Self {
        self.row_locks = Arc::new(RowLocks::new(Some(graph)));
        self
    }

    /// Requests that hand the region's row locks, if there are any, over to the node that is about to lead it, and show
    /// whether that one takes it over; none unless this node decides. What is locked after this is lost with the leadership.
    pub fn handover(&self, region: RegionId) -> Vec<Request> {
        let Some(status) = self.groups.status(region).filter(|status| status.decides) else {
            return Vec::new();
        };
        let inherit = |held| Request::Inherit { region, term: status.term, held };
        let shared = self.row_locks.of_region(region, Mode::Shared);
        let alone = inherit(self.row_locks.of_region(region, Mode::Exclusive));
        // A node that knows of no shares is not sent any while there are none.
        let shared = (!shared.is_empty()).then(|| Request::Shared(Box::new(inherit(shared))));
        std::iter::once(alone).chain(shared).collect()
    }

    /// Answers what is asked about keys that are held so.
    pub(crate) async fn answer_row_locks(&self, request: Request, mode: Mode) -> Result<Response> {
        match request {
            Request::Acquire { region, start_ts, keys, hold, waiting, rows, expect } => {
                let taking = Taking { mode, waiting, expect };
                self.acquire(region, start_ts, keys, (hold, rows), taking).await
            }
            Request::KeepHeld { region, start_ts, keys, hold } => {
                self.keep_held(region, (start_ts, mode), &keys, hold)
            }
            Request::Inherit { .. } if self.retired.load(Ordering::Acquire) => {
                Err(Error::Unavailable("this node is stopping, and leads nothing more".into()))
            }
            Request::Inherit { region, term, held } => {
                self.row_locks.inherit(region, term, held, mode);
                Ok(Response::Done)
            }
            _ => Err(Error::Invalid("keys cannot be shared by such a request".into())),
        }
    }

    async fn acquire(
        &self,
        region: RegionRef,
        owner: Timestamp,
        keys: Vec<Vec<u8>>,
        (hold, rows): (u64, bool),
        Taking { mode, waiting, expect }: Taking,
    ) -> Result<Response> {
        self.check_keys(region, &keys)?;
        let by = (owner, mode);
        let (mut held, mut behind) = (Vec::with_capacity(keys.len()), None);
        let wait = match waiting {
            Waiting::For(ms) => Duration::from_millis(ms),
            Waiting::No | Waiting::Skip => Duration::ZERO,
        };
        let until = Instant::now() + wait.min(SLICE);
        for key in keys {
            match self.claim_within(region, &key, by, hold, (until, wait > SLICE)).await? {
                Standing::Holds => held.push(key),
                Standing::Behind(_) if waiting == Waiting::Skip => {}
                Standing::Behind(holder) => {
                    behind = Some(holder);
                    break;
                }
            }
        }
        let (found, locked) = self.current(region, by, &held, (rows, expect)).await?;
        Ok(Response::Acquired { found, locked, behind })
    }

    fn keep_held(
        &self,
        region: RegionRef,
        by: (Timestamp, Mode),
        keys: &[Vec<u8>],
        hold: u64,
    ) -> Result<Response> {
        self.check_keys(region, keys)?;
        let tenure = self.tenure(region)?;
        for key in keys {
            self.row_locks.claim(tenure, key, by, hold, false);
        }
        Ok(Response::Done)
    }

    /// Runs a first phase once no row of it is held by others, within `wait` milliseconds.
    pub(crate) async fn admitted<T, F>(
        &self,
        region: RegionRef,
        owner: Timestamp,
        mutations: &[Mutation],
        wait: u64,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let until = Instant::now() + Duration::from_millis(wait).min(SLICE);
        let mut admitted = Admitted { locks: &self.row_locks, owner, keys: Vec::new() };
        loop {
            let outcome = attempt().await;
            let blocked = match &outcome {
                Err(Error::Held { .. }) => self.row_locks.held_by_other(owner, mutations)?,
                _ => return outcome,
            };
            let Some(((key, _), mode)) = blocked else {
                if Instant::now() >= until {
                    return outcome;
                }
                continue;
            };
            if wait == 0 {
                return outcome;
            }
            let hold = PREWRITE_HOLD_MS;
            match self.claim_within(region, &key, (owner, mode), hold, (until, false)).await? {
                Standing::Holds => admitted.keys.push(key),
                Standing::Behind(holder) => return Err(Error::Held { start: owner, holder }),
            }
        }
    }

    /// Claims a key, waiting for it until then.
    async fn claim_within(
        &self,
        region: RegionRef,
        key: &[u8],
        by: (Timestamp, Mode),
        hold: u64,
        (until, again): (Instant, bool),
    ) -> Result<Standing> {
        let (locks, (owner, _)) = (&*self.row_locks, by);
        let began = Instant::now();
        let queue = until > began;
        let mut standing = locks.claim(self.tenure(region)?, key, by, hold, queue);
        if standing == Standing::Holds || !queue {
            return Ok(standing);
        }
        let mut waiter = Waiter::new(locks, key, owner);
        let mut due = began + REPORT_AFTER;
        let mut reported = None;
        let mut looked = began;
        loop {
            standing = locks.claim(self.tenure(region)?, key, by, hold, true);
            let Standing::Behind(holder) = standing else { return Ok(standing) };
            let now = Instant::now();
            if now >= looked + LOOK {
                looked = now;
                // It may have been taken over from a leader who saw its end later than its rows.
                let (kv, share) = (self.store.snapshot(), share_key(key, holder));
                let ended = |key: &[u8]| mvcc::fate(kv.as_ref(), key, holder);
                if ended(key)?.or(ended(&share)?).is_some() {
                    locks.release(holder, [&share, &key.to_vec()]);
                    continue;
                }
            }
            if now >= until {
                waiter.stay = again;
                if !again {
                    waiter.withdraw().await;
                }
                return Ok(standing);
            }
            if reported.is_some_and(|reported| reported != holder) {
                due = due.min(now);
            }
            if waiter.report.is_none() && now >= due {
                waiter.report_wait(holder);
                (reported, due) = (Some(holder), now + REPORT_AGAIN);
            }
            let next = (now + LOOK).min(until);
            let next = if waiter.report.is_none() { next.min(due) } else { next };
            let waker = waiter.waker.clone();
            // In this order, so that one seed replays one history.
            tokio::select! {
                biased;
                () = waker.notified() => {}
                circle = waiter.answer() => if circle {
                    return Err(Error::Deadlock(owner));
                },
                () = sleep_until(next) => {}
            }
        }
    }

    /// The newest versions of keys that are held for a transaction.
    ///
    /// The latches make sure that no first phase which was admitted before the keys were held is
    /// still on its way to the log; the read index, that everything decided elsewhere is seen. It is
    /// a quorum's round, and spared where the commit would find out anyway.
    async fn current(
        &self,
        region: RegionRef,
        by: (Timestamp, Mode),
        keys: &[Vec<u8>],
        (rows, expect): (bool, Expect),
    ) -> Result<(Vec<Current>, Vec<LockInfo>)> {
        if keys.is_empty() {
            return Ok(Default::default());
        }
        let _latched = self.latch(keys.iter().map(|key| (key.clone(), by.1)).collect()).await?;
        let (status, _) = self.led(region)?;
        if expect != Expect::Nothing {
            let (found, locked) = self.look(region, by, keys, rows)?;
            if found.iter().all(|one| expect.is_met(one.live)) {
                return Ok((found, locked));
            }
        }
        self.groups.read_index(region.id).await?;
        let (now, _) = self.led(region)?;
        if now.term != status.term {
            return Err(Error::NotLeader { region: region.id, leader: None });
        }
        self.look(region, by, keys, rows)
    }

    /// What is stored of keys here, and locks of others' unfinished commits on them.
    fn look(
        &self,
        region: RegionRef,
        (owner, mode): (Timestamp, Mode),
        keys: &[Vec<u8>],
        rows: bool,
    ) -> Result<(Vec<Current>, Vec<LockInfo>)> {
        let (mut found, mut locked) = (Vec::with_capacity(keys.len()), Vec::new());
        let locks = self.store.locks();
        let free: Vec<&Vec<u8>> = keys
            .iter()
            .filter(|key| match locks.of_other(key, owner, mode) {
                Some(lock) => {
                    locked.push(lock.info());
                    false
                }
                None => true,
            })
            .collect();
        let kv = self.store.snapshot();
        // Read after the view of the store: what is missing there was removed up to this floor.
        let floor = self.unmoved(region)?.floors.read;
        for key in free {
            let record = mvcc::data(kv.as_ref(), key)?;
            let newest = record.newest(mode);
            let live = record.live().is_some();
            let (key, row) = (key.clone(), record.row.filter(|_| rows));
            found.push(Current { key, newest, floor, live, row });
        }
        Ok((found, locked))
    }

    fn tenure(&self, region: RegionRef) -> Result<Tenure> {
        let (status, _) = self.led(region)?;
        Ok(Tenure { region: region.id, term: status.term })
    }

    fn check_keys(&self, region: RegionRef, keys: &[Vec<u8>]) -> Result<()> {
        let (_, view) = self.led(region)?;
        if keys.len() > MAX_KEYS || keys.iter().any(|key| !view.region.contains(key)) {
            return Err(Error::Invalid(format!(
                "a lock request to region {} names keys outside of it, or more than {MAX_KEYS}",
                region.id
            )));
        }
        Ok(())
    }
}
