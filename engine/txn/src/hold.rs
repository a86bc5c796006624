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

use crate::api::{Current, Expect, Request, Response, Waiting};
use crate::client::{Answer, TxnClient};
use crate::resolve::unexpected;
use crate::retry::{self, Retry};
use crate::routes::Target;

/// How long a leader keeps rows for a transaction that sends no heartbeat.
const HOLD: Duration = Duration::from_secs(10);
/// How often an open one sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Keys of one request.
const LOCK_KEYS: usize = 1_024;

/// What is wanted to be known of keys that are locked.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    /// Their rows.
    pub rows: bool,
    /// What need not be confirmed.
    pub expect: Expect,
}

/// What an open transaction may hold at leaders. Given back when this is dropped.
pub(crate) struct Held {
    client: TxnClient,
    start_ts: Timestamp,
    /// Every key that was asked for, and whether it was given: only those are kept.
    keys: Mutex<BTreeMap<Vec<u8>, bool>>,
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
        held.extend(fresh.iter().map(|key| (key.clone(), false)));
        drop(held);
        let mut heartbeat = self.heartbeat.lock();
        if heartbeat.is_none() {
            *heartbeat = Some(tokio::spawn(keep(Arc::downgrade(self))));
        }
        fresh
    }

    fn given(&self, found: &[Current]) {
        self.keys.lock().extend(found.iter().map(|one| (one.key.clone(), true)));
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

    /// Forgets keys that are given back already, or by a commit.
    pub(crate) fn forget<'a>(&self, keys: impl IntoIterator<Item = &'a Vec<u8>>) {
        let mut held = self.keys.lock();
        for key in keys {
            held.remove(key);
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
        let given = |(key, given): (&Vec<u8>, &bool)| given.then(|| key.clone());
        let keys: Vec<_> = held.keys.lock().iter().filter_map(given).collect();
        // Not kept alive by its own heartbeat.
        drop(held);
        let hold = HOLD.as_millis() as u64;
        let request = |target: &Target, keys| {
            let region = target.reference();
            Request::KeepHeld { region, start_ts, keys, hold }
        };
        if let Err(error) = client.send_to_leaders(keys, request).await {
            tracing::debug!(%start_ts, %error, "row locks could not be prolonged");
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
        waiting: Waiting,
        look: Look,
    ) -> BoxFuture<'a, Result<Vec<Current>>> {
        self.acquire_once(held, keys, waiting, look).boxed()
    }

    async fn acquire_once(
        &self,
        held: &Arc<Held>,
        keys: Vec<Vec<u8>>,
        waiting: Waiting,
        look: Look,
    ) -> Result<Vec<Current>> {
        let mut keys = keys;
        keys.sort_unstable();
        keys.dedup();
        let fresh = held.note(&keys);
        let found = self.acquire_all(held.start_ts, keys, &fresh, waiting, look).await;
        match &found {
            Ok(found) => held.given(found),
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
        waiting: Waiting,
        look: Look,
    ) -> Result<Vec<Current>> {
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
            let now = if at_once { Waiting::No } else { wait.left() };
            let round = self.acquire_round(start_ts, batches, (now, look), &mut retry);
            let round = round.await?;
            found.extend(round.found);
            left.extend(round.left);
            if at_once {
                left.extend(round.locked.into_iter().map(|lock| lock.key));
                left.sort_unstable();
                self.step_back(start_ts, fresh, &mut found, &mut left).await;
                continue;
            }
            if let Some(holder) = round.behind {
                wait.goes_on(holder)?;
            }
            for lock in round.locked {
                let alive = self.resolve(std::slice::from_ref(&lock), Timestamp::MAX).await?.alive;
                if alive.is_some() {
                    if waiting == Waiting::Skip {
                        continue;
                    }
                    wait.goes_on(lock.start_ts)?;
                    tokio::time::sleep(wait.pauses.take()).await;
                }
                left.push(lock.key);
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
        (waiting, look): (Waiting, Look),
        retry: &mut Retry,
    ) -> Result<Round> {
        let hold = HOLD.as_millis() as u64;
        let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
        for (target, keys) in &batches {
            let (region, keys) = (target.reference(), keys.clone());
            let Look { rows, expect } = look;
            let sent = keys.clone();
            let request =
                Request::Acquire { region, start_ts, keys: sent, hold, waiting, rows, expect };
            calls.push(async move { (keys, self.send(target, request).await) }.boxed());
        }
        let mut round = Round::default();
        let mut passed = None;
        for (keys, answer) in join_all(calls).await {
            match answer {
                Ok(Response::Acquired { found, locked, behind }) => {
                    // Waiting for rows is no trouble with regions.
                    *retry = self.retry("a region to lock rows in");
                    if waiting != Waiting::Skip {
                        let settled = found.iter().map(|one| &one.key);
                        let settled: HashSet<&Vec<u8>> =
                            settled.chain(locked.iter().map(|lock| &lock.key)).collect();
                        let left = keys.into_iter().filter(|key| !settled.contains(key));
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
    locked: Vec<LockInfo>,
    behind: Option<Timestamp>,
    left: Vec<Vec<u8>>,
}
