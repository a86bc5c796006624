//! The client's side of row locks: takes them at the leaders, keeps them while the transaction is
//! open, and gives them back when it ends, however that comes about.
//!
//! A wait is a request that the leader holds back; nothing here polls for a row. Nothing here
//! decides what a newer version means: the transaction does.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::error::LockInfo;
use types::retry::Pauses;
use types::{Error, Result, Timestamp};

use crate::api::{Current, Mode, Request, Response, Taking, Waiting};
use crate::client::{Answer, TxnClient};
use crate::resolve::unexpected;
use crate::retry::{self, Retry};
use crate::routes::Target;
use crate::share::shared_key;

/// How long a leader keeps rows for a transaction that sends no heartbeat.
const HOLD: Duration = Duration::from_secs(10);
/// How often an open one sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Keys of one request.
const LOCK_KEYS: usize = 1_024;

/// How keys are locked, and what is wanted to be known of them.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// How they are locked.
    pub taking: Taking,
    /// Whether their rows are wanted.
    pub rows: bool,
}

/// What an open transaction may hold at leaders. Given back when this is dropped.
pub(crate) struct Held {
    client: TxnClient,
    start_ts: Timestamp,
    /// Every key that was asked for, and how it was given, if it was: only those are kept.
    keys: Mutex<BTreeMap<Vec<u8>, Option<Mode>>>,
    heartbeat: Mutex<Option<JoinHandle<()>>>,
}

impl Held {
    pub(crate) fn new(client: TxnClient, start_ts: Timestamp) -> Arc<Self> {
        let (keys, heartbeat) = (Mutex::default(), Mutex::default());
        Arc::new(Held { client, start_ts, keys, heartbeat })
    }

    /// Takes note of keys before they are asked for: whatever becomes of the asking, they are given
    /// back in the end. Those that it did not know.
    fn note(self: &Arc<Self>, keys: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
        let mut held = self.keys.lock();
        let fresh: BTreeSet<_> =
            keys.iter().filter(|key| !held.contains_key(*key)).cloned().collect();
        held.extend(fresh.iter().map(|key| (key.clone(), None)));
        drop(held);
        let mut heartbeat = self.heartbeat.lock();
        if heartbeat.is_none() {
            *heartbeat = Some(tokio::spawn(keep(Arc::downgrade(self))));
        }
        fresh
    }

    fn given(&self, found: &[Current], mode: Mode) {
        let mut held = self.keys.lock();
        for one in found {
            let known = held.entry(one.key.clone()).or_default();
            *known = (*known).max(Some(mode));
        }
    }

    /// Gives every key back before its owner learns that the transaction is over: who reads that
    /// may ask for the rows with NOWAIT. What cannot be given back within one heartbeat interval is left to
    /// [`Drop`].
    pub(crate) async fn give_back(&self) {
        let keys: Vec<_> = self.keys.lock().keys().cloned().collect();
        if !keys.is_empty() && self.client.release(self.start_ts, keys.clone()).await.is_ok() {
            self.forget(&keys);
        }
    }

    /// Forgets keys that are given back already, or by a commit of these or of the shares that they are.
    pub(crate) fn forget<'a>(&self, keys: impl IntoIterator<Item = &'a Vec<u8>>) {
        let mut held = self.keys.lock();
        for key in keys {
            held.remove(key);
            if let Some(shared) = shared_key(key, self.start_ts) {
                held.remove(shared);
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(heartbeat) = self.heartbeat.lock().take() {
            heartbeat.abort();
        }
        let keys: Vec<_> = std::mem::take(&mut *self.keys.lock()).into_keys().collect();
        // Without a runtime the process is ending; the leaders forget the rows after a while.
        if keys.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (client, start_ts) = (self.client.clone(), self.start_ts);
        self.client.tasks.spawn(async move {
            if let Err(error) = client.release(start_ts, keys).await {
                tracing::debug!(%start_ts, %error, "row locks are left to run out");
            }
        });
    }
}

/// Reports to the leaders now and then that a transaction is open.
async fn keep(held: Weak<Held>) {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let Some(held) = held.upgrade() else { return };
        let (client, start_ts) = (held.client.clone(), held.start_ts);
        let given = |wanted: Mode| -> Vec<_> {
            let keys = held.keys.lock();
            let given = keys.iter().filter(|(_, mode)| **mode == Some(wanted));
            given.map(|(key, _)| key.clone()).collect()
        };
        let all = [Mode::Exclusive, Mode::Shared].map(|mode| (mode, given(mode)));
        // Not kept alive by its own heartbeat.
        drop(held);
        let hold = HOLD.as_millis() as u64;
        for (mode, keys) in all {
            let request = |target: &Target, keys| {
                let region = target.reference();
                in_mode(Request::KeepHeld { region, start_ts, keys, hold }, mode)
            };
            if let Err(error) = client.send_to_leaders(keys, request).await {
                tracing::debug!(%start_ts, %error, "row locks could not be prolonged");
            }
        }
    }
}

impl TxnClient {
    /// Takes row locks and gives the newest versions, ascending. Keys that are to be skipped
    /// because others hold them are left out.
    ///
    /// Who waits for a key holds only lesser ones of the same call: two statements that lock the
    /// same rows do not wait for each other. What is free everywhere is taken in one step.
    pub(crate) fn acquire<'a>(
        &'a self,
        held: &'a Arc<Held>,
        keys: Vec<Vec<u8>>,
        look: Look,
    ) -> BoxFuture<'a, Result<Vec<Current>>> {
        self.acquire_once(held, keys, look).boxed()
    }

    async fn acquire_once(
        &self,
        held: &Arc<Held>,
        keys: Vec<Vec<u8>>,
        look: Look,
    ) -> Result<Vec<Current>> {
        let mut keys = keys;
        keys.sort_unstable();
        keys.dedup();
        let fresh = held.note(&keys);
        let found = self.acquire_all(held.start_ts, keys, &fresh, look).await;
        match &found {
            Ok(found) => held.given(found, look.taking.mode),
            // The statement fails as a whole; what it had is given back before that is returned, for
            // the next one may want the same.
            Err(_) => {
                if self.release(held.start_ts, fresh.iter().cloned().collect()).await.is_ok() {
                    held.forget(&fresh);
                }
            }
        }
        found
    }

    async fn acquire_all(
        &self,
        start_ts: Timestamp,
        keys: Vec<Vec<u8>>,
        fresh: &BTreeSet<Vec<u8>>,
        look: Look,
    ) -> Result<Vec<Current>> {
        let waiting = look.taking.waiting;
        let mut wait = Wait::new(waiting);
        let mut left = keys;
        let mut found: Vec<Current> = Vec::with_capacity(left.len());
        let mut retry = self.retry("a region to lock rows in");
        let mut first = true;
        while !left.is_empty() {
            let mut batches = self.lock_batches(left, &mut retry).await?;
            left = Vec::new();
            let in_order = matches!(waiting, Waiting::For(_)) && batches.len() > 1;
            let at_once = in_order && std::mem::take(&mut first);
            if in_order && !at_once {
                left = batches.drain(1..).flat_map(|(_, keys)| keys).collect();
            }
            let waiting_now = if at_once { Waiting::No } else { wait.left() };
            let now = Look { taking: Taking { waiting: waiting_now, ..look.taking }, ..look };
            let round = self.acquire_round(start_ts, batches, now, &mut retry).await?;
            found.extend(round.found);
            left.extend(round.left);
            if at_once {
                left.extend(round.locked.into_iter().map(|(key, _)| key));
                left.sort_unstable();
                self.step_back(start_ts, fresh, &mut found, &mut left).await;
                continue;
            }
            if let Some(holder) = round.behind {
                wait.goes_on(holder)?;
            }
            for (key, lock) in round.locked {
                let alive = self.resolve(std::slice::from_ref(&lock), Timestamp::MAX).await?.alive;
                if alive.is_some() {
                    if waiting == Waiting::Skip {
                        continue;
                    }
                    wait.goes_on(lock.start_ts)?;
                    tokio::time::sleep(wait.pauses.take()).await;
                }
                left.push(key);
            }
            left.sort_unstable();
        }
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// Gives back what was taken beyond the first key that could not be had.
    async fn step_back(
        &self,
        start_ts: Timestamp,
        fresh: &BTreeSet<Vec<u8>>,
        found: &mut Vec<Current>,
        left: &mut Vec<Vec<u8>>,
    ) {
        let Some(missing) = left.first().cloned() else { return };
        let beyond = |key: &Vec<u8>| *key > missing && fresh.contains(key);
        let back: Vec<Vec<u8>> = fresh.iter().filter(|key| beyond(key)).cloned().collect();
        found.retain(|one| !beyond(&one.key));
        left.extend(back.iter().cloned());
        left.sort_unstable();
        left.dedup();
        // What is not given back is taken again soon.
        _ = self.release(start_ts, back).await;
    }

    /// Gives keys back.
    async fn release(&self, start_ts: Timestamp, keys: Vec<Vec<u8>>) -> Result<()> {
        let request = |target: &Target, keys| {
            let region = target.reference();
            Request::Release { region, start_ts, keys }
        };
        self.send_to_leaders(keys, request).await
    }

    /// Keys by region, in requests of bounded size, in order.
    async fn lock_batches(
        &self,
        keys: Vec<Vec<u8>>,
        retry: &mut Retry,
    ) -> Result<Vec<(Target, Vec<Vec<u8>>)>> {
        let mut batches = Vec::new();
        for (target, keys) in self.group(keys, Vec::as_slice, retry).await? {
            batches.extend(keys.chunks(LOCK_KEYS).map(|keys| (target.clone(), keys.to_vec())));
        }
        Ok(batches)
    }

    /// Asks every leader once.
    async fn acquire_round(
        &self,
        start_ts: Timestamp,
        batches: Vec<(Target, Vec<Vec<u8>>)>,
        look: Look,
        retry: &mut Retry,
    ) -> Result<Round> {
        let hold = HOLD.as_millis() as u64;
        let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
        for (target, keys) in &batches {
            let (region, keys) = (target.reference(), keys.clone());
            let Look { rows, taking: Taking { mode, waiting, expect } } = look;
            let sent = keys.clone();
            let request =
                Request::Acquire { region, start_ts, keys: sent, hold, waiting, rows, expect };
            let request = in_mode(request, mode);
            calls.push(async move { (keys, self.send(target, request).await) }.boxed());
        }
        let mut round = Round::default();
        let mut passed = None;
        for (keys, answer) in join_all(calls).await {
            match answer {
                Ok(Response::Acquired { found, locked, behind }) => {
                    // Waiting for rows is no trouble with regions.
                    *retry = self.retry("a region to lock rows in");
                    let locked = locked.into_iter().map(|lock| (asked(&keys, &lock), lock));
                    let locked: Vec<_> = locked.collect();
                    if look.taking.waiting != Waiting::Skip {
                        let settled = found.iter().map(|one| &one.key);
                        let settled: HashSet<&Vec<u8>> =
                            settled.chain(locked.iter().map(|(key, _)| key)).collect();
                        let left = keys.iter().filter(|key| !settled.contains(key)).cloned();
                        round.left.extend(left);
                    }
                    round.found.extend(found);
                    round.locked.extend(locked);
                    round.behind = round.behind.or(behind);
                }
                Ok(_) => return Err(unexpected("row locks")),
                Err(error) if error.is_retryable() => {
                    round.left.extend(keys);
                    passed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = passed {
            retry.pause(error).await?;
        }
        Ok(round)
    }

    /// Sends a request about keys to all their leaders, where that succeeds within one heartbeat interval.
    async fn send_to_leaders(
        &self,
        keys: Vec<Vec<u8>>,
        request: impl Fn(&Target, Vec<Vec<u8>>) -> Request,
    ) -> Result<()> {
        let mut retry = Retry::new("the leaders of row locks", HEARTBEAT);
        let mut left = keys;
        while !left.is_empty() {
            let groups = self.group(std::mem::take(&mut left), Vec::as_slice, &mut retry).await?;
            let mut passed = None;
            for (target, keys) in groups {
                for keys in keys.chunks(LOCK_KEYS) {
                    match self.send(&target, request(&target, keys.to_vec())).await {
                        Ok(_) => {}
                        Err(error) if error.is_retryable() => {
                            left.extend_from_slice(keys);
                            passed = Some(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            if let Some(error) = passed {
                retry.pause(error).await?;
            }
        }
        Ok(())
    }
}

/// How long a call waits for rows.
struct Wait {
    waiting: Waiting,
    began: Instant,
    limit: Duration,
    pauses: Pauses,
}

impl Wait {
    fn new(waiting: Waiting) -> Self {
        let limit = match waiting {
            Waiting::For(ms) => Duration::from_millis(ms),
            Waiting::No | Waiting::Skip => Duration::ZERO,
        };
        Wait { waiting, began: Instant::now(), limit, pauses: retry::pauses_of_locks() }
    }

    /// What is left of it, for a leader.
    fn left(&self) -> Waiting {
        match self.waiting {
            Waiting::For(_) => {
                Waiting::For(self.limit.saturating_sub(self.began.elapsed()).as_millis() as u64)
            }
            other => other,
        }
    }

    /// Fails when its time is over.
    fn goes_on(&self, holder: Timestamp) -> Result<()> {
        match self.waiting {
            Waiting::For(_) if self.began.elapsed() < self.limit => Ok(()),
            Waiting::For(_) => {
                Err(Error::LockWait { holder, millis: self.began.elapsed().as_millis() as u64 })
            }
            Waiting::No | Waiting::Skip => Err(Error::LockBusy(holder)),
        }
    }
}

/// What one round of asking brought.
#[derive(Default)]
struct Round {
    found: Vec<Current>,
    /// Keys that could not be had, and locks of others' unfinished commits on them.
    locked: Vec<(Vec<u8>, LockInfo)>,
    behind: Option<Timestamp>,
    left: Vec<Vec<u8>>,
}

/// Which of these keys a lock is in the way of.
fn asked(keys: &[Vec<u8>], lock: &LockInfo) -> Vec<u8> {
    match shared_key(&lock.key, lock.start_ts) {
        Some(shared) if !keys.contains(&lock.key) => shared.to_vec(),
        _ => lock.key.clone(),
    }
}

/// A request about keys that are held so.
fn in_mode(request: Request, mode: Mode) -> Request {
    if mode.shares() { Request::Shared(Box::new(request)) } else { request }
}
