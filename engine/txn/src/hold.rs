//! The client's side of row locks: takes them at the leaders, keeps them while the transaction is
//! open, and gives them back when it ends, however that comes about.
//!
//! A wait is a request that the leader holds back; nothing here polls for a row. Nothing here
//! decides what a newer version means: the transaction does.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::error::LockInfo;
use types::{Error, Result, Timestamp};

use crate::api::{Current, Request, Response, Waiting};
use crate::client::{Answer, Patience, TxnClient, passing};
use crate::resolve::unexpected;
use crate::routes::Target;

/// How long a leader keeps rows for a transaction that it does not hear of.
const HOLD: Duration = Duration::from_secs(10);
/// How often it hears of one that is open.
const BEAT: Duration = Duration::from_secs(3);
/// Keys of one request.
const LOCK_KEYS: usize = 1_024;

/// What an open transaction may hold at leaders. Given back when this is dropped.
pub(crate) struct Held {
    client: TxnClient,
    start_ts: Timestamp,
    keys: Mutex<BTreeSet<Vec<u8>>>,
    beat: Mutex<Option<JoinHandle<()>>>,
}

impl Held {
    pub(crate) fn new(client: TxnClient, start_ts: Timestamp) -> Arc<Self> {
        let (keys, beat) = (Mutex::default(), Mutex::default());
        Arc::new(Held { client, start_ts, keys, beat })
    }

    /// Takes note of keys before they are asked for: whatever becomes of the asking, they are given
    /// back in the end.
    fn note(self: &Arc<Self>, keys: &[Vec<u8>]) {
        self.keys.lock().extend(keys.iter().cloned());
        let mut beat = self.beat.lock();
        if beat.is_none() {
            *beat = Some(tokio::spawn(keep(Arc::downgrade(self))));
        }
    }

    /// Forgets keys whose commit gives them back.
    pub(crate) fn forget(&self, keys: &[Vec<u8>]) {
        let mut held = self.keys.lock();
        for key in keys {
            held.remove(key);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(beat) = self.beat.lock().take() {
            beat.abort();
        }
        let keys: Vec<_> = std::mem::take(&mut *self.keys.lock()).into_iter().collect();
        // Without a runtime the process is ending; the leaders forget the rows after a while.
        if keys.is_empty() || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (client, start_ts) = (self.client.clone(), self.start_ts);
        self.client.tasks.spawn(async move {
            let request = |target: &Target, keys| {
                let region = target.reference();
                Request::Release { region, start_ts, keys }
            };
            if let Err(error) = client.tell_leaders(keys, request).await {
                tracing::debug!(%start_ts, %error, "row locks are left to run out");
            }
        });
    }
}

/// Tells the leaders now and then that a transaction is open.
async fn keep(held: Weak<Held>) {
    loop {
        tokio::time::sleep(BEAT).await;
        let Some(held) = held.upgrade() else { return };
        let (client, start_ts) = (held.client.clone(), held.start_ts);
        let keys: Vec<_> = held.keys.lock().iter().cloned().collect();
        // Not kept alive by its own beat.
        drop(held);
        let hold = HOLD.as_millis() as u64;
        let request = |target: &Target, keys| {
            let region = target.reference();
            Request::KeepHeld { region, start_ts, keys, hold }
        };
        if let Err(error) = client.tell_leaders(keys, request).await {
            tracing::debug!(%start_ts, %error, "row locks could not be prolonged");
        }
    }
}

impl TxnClient {
    /// Takes row locks and gives the newest versions, ascending. Keys that are to be skipped
    /// because others hold them are left out.
    pub(crate) async fn acquire(
        &self,
        held: &Arc<Held>,
        keys: Vec<Vec<u8>>,
        waiting: Waiting,
        rows: bool,
    ) -> Result<Vec<Current>> {
        let began = Instant::now();
        let limit = match waiting {
            Waiting::For(ms) => Duration::from_millis(ms),
            Waiting::No | Waiting::Skip => Duration::ZERO,
        };
        let mut left = keys;
        left.sort_unstable();
        left.dedup();
        held.note(&left);
        let mut found = Vec::with_capacity(left.len());
        let mut patience = self.patience("a region to lock rows in");
        let mut pauses = Patience::new("a lock", limit.max(Duration::from_millis(1)));
        while !left.is_empty() {
            let waiting = match waiting {
                Waiting::For(_) => {
                    Waiting::For(limit.saturating_sub(began.elapsed()).as_millis() as u64)
                }
                other => other,
            };
            let round = self.acquire_round(held.start_ts, left, (waiting, rows), &mut patience);
            let round = round.await?;
            found.extend(round.found);
            left = round.left;
            if let Some(holder) = round.behind {
                self.still_waits(waiting, holder, began, limit)?;
            }
            for lock in round.locked {
                let alive = self.resolve(std::slice::from_ref(&lock), Timestamp::MAX).await?.alive;
                if alive.is_none() {
                    left.push(lock.key);
                    continue;
                }
                if waiting == Waiting::Skip {
                    continue;
                }
                self.still_waits(waiting, lock.start_ts, began, limit)?;
                left.push(lock.key);
                tokio::time::sleep(pauses.step()).await;
            }
            left.sort_unstable();
        }
        found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// Fails when the time to wait for a row is over.
    fn still_waits(
        &self,
        waiting: Waiting,
        holder: Timestamp,
        began: Instant,
        limit: Duration,
    ) -> Result<()> {
        match waiting {
            Waiting::For(_) if began.elapsed() < limit => Ok(()),
            Waiting::For(_) => {
                Err(Error::LockWait { holder, millis: began.elapsed().as_millis() as u64 })
            }
            Waiting::No | Waiting::Skip => Err(Error::LockBusy(holder)),
        }
    }

    /// Asks every leader once.
    async fn acquire_round(
        &self,
        start_ts: Timestamp,
        keys: Vec<Vec<u8>>,
        (waiting, rows): (Waiting, bool),
        patience: &mut Patience,
    ) -> Result<Round> {
        let hold = HOLD.as_millis() as u64;
        let groups = self.group(keys, Vec::as_slice, patience).await?;
        let mut asking: Vec<BoxFuture<'_, Answer>> = Vec::new();
        for (target, keys) in &groups {
            for keys in keys.chunks(LOCK_KEYS) {
                let (region, keys) = (target.reference(), keys.to_vec());
                let request =
                    Request::Acquire { region, start_ts, keys: keys.clone(), hold, waiting, rows };
                asking.push(async move { (keys, self.ask(target, request).await) }.boxed());
            }
        }
        let mut round = Round::default();
        let mut passed = None;
        for (keys, answer) in join_all(asking).await {
            match answer {
                Ok(Response::Acquired { found, locked, behind }) => {
                    // Waiting for rows is no trouble with regions.
                    *patience = self.patience("a region to lock rows in");
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
                Err(error) if passing(&error) => {
                    round.left.extend(keys);
                    passed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = passed {
            patience.pause(error).await?;
        }
        Ok(round)
    }

    /// Sends a request about keys to all their leaders, where that succeeds within a beat.
    async fn tell_leaders(
        &self,
        keys: Vec<Vec<u8>>,
        request: impl Fn(&Target, Vec<Vec<u8>>) -> Request,
    ) -> Result<()> {
        let mut patience = Patience::new("the leaders of row locks", BEAT);
        let mut left = keys;
        while !left.is_empty() {
            let groups =
                self.group(std::mem::take(&mut left), Vec::as_slice, &mut patience).await?;
            let mut passed = None;
            for (target, keys) in groups {
                for keys in keys.chunks(LOCK_KEYS) {
                    match self.ask(&target, request(&target, keys.to_vec())).await {
                        Ok(_) => {}
                        Err(error) if passing(&error) => {
                            left.extend_from_slice(keys);
                            passed = Some(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            if let Some(error) = passed {
                patience.pause(error).await?;
            }
        }
        Ok(())
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
