//! Two-phase commit, after Percolator (Peng and Dabek, 2010): lock every key, take the commit
//! timestamp once all locks are applied, commit the primary, which decides, then the rest behind
//! the caller's back. What [`crate::at_once`] takes on goes without a lock on the primary, and what
//! [`crate::async_commit`] does is committed by its first phase.
//!
//! An outcome is learned or forced at the primary, never guessed.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use types::{Error, Result, SchemaVersion, Table, TableId, Timestamp};

use crate::api::{Mutation, Op, Request, Response};
use crate::client::{Answer, TxnClient};
use crate::decide::LOCK_TTL_MS;
use crate::resolve::unexpected;
use crate::retry::Retry;
use crate::routes::Target;

/// Keys of one request.
const BATCH_KEYS: usize = 1_024;
/// Bytes of one request, about.
const BATCH_BYTES: usize = 1 << 20;
/// Requests of one transaction under way at a time.
pub(crate) const PARALLEL: usize = 16;
/// Pause between signs of life.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(LOCK_TTL_MS / 3);

/// What one request does in one region.
pub(crate) type Batch = (Target, Vec<Mutation>);

/// A transaction being committed.
pub(crate) struct Commit {
    plan: Arc<Plan>,
    mutations: Vec<Mutation>,
}

/// What is to be committed, and how it is reached.
pub(crate) struct Plan {
    pub(crate) client: TxnClient,
    pub(crate) start_ts: Timestamp,
    began: Instant,
    pub(crate) tables: BTreeMap<TableId, Arc<Table>>,
    /// How long to wait for rows that others hold.
    pub(crate) row_wait: Duration,
    pub(crate) may_be_async: bool,
    pub(crate) primary: Vec<u8>,
    /// Every key, ascending.
    pub(crate) keys: Vec<Vec<u8>>,
}

/// Keys that a failed transaction may have locked: those of batches that were sent.
struct Sent(Vec<(Vec<Vec<u8>>, AtomicBool)>);

/// What first phases came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstPhase {
    /// All of their keys are locked. If the transaction commits asynchronously, at this timestamp or later.
    Locked(Timestamp),
    /// The transaction has committed.
    Committed(Timestamp),
}

impl FirstPhase {
    /// Of two that have succeeded.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (FirstPhase::Locked(one), FirstPhase::Locked(other)) => {
                FirstPhase::Locked(one.max(other))
            }
            (committed @ FirstPhase::Committed(_), _) | (_, committed) => committed,
        }
    }
}

/// First phases that have ended.
pub(crate) struct Phased {
    /// Keys that may be locked by them.
    pub(crate) touched: Vec<Vec<u8>>,
    pub(crate) outcome: Result<FirstPhase>,
}

/// When a transaction committed, and keys at which that is written.
pub(crate) type Committed = (Timestamp, Vec<Vec<u8>>);

/// Why a transaction was not committed, as far as is known.
pub(crate) struct Failed {
    error: Error,
    /// It has not been and will not be.
    for_certain: bool,
}

impl Failed {
    pub(crate) fn for_certain(error: Error) -> Self {
        Failed { error, for_certain: true }
    }

    pub(crate) fn perhaps(error: Error) -> Self {
        Failed { error, for_certain: false }
    }
}

/// A task that ends with its owner.
pub(crate) struct Heartbeat(JoinHandle<()>);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What became of a transaction whose primary was to be committed at once.
pub(crate) enum AtOnce {
    /// It is committed, and that is written at these keys.
    Committed(Timestamp, Vec<Vec<u8>>),
    /// All of its keys are locked, which takes a second phase; it is kept alive meanwhile.
    Locked(Heartbeat),
    /// The primary's region is several by now: these batches are to be locked. They may have been committed, which their
    /// first phases find out.
    Parted(Vec<Batch>),
}

impl Commit {
    /// `mutations` ascend by key and are not empty.
    pub(crate) fn new(
        client: TxnClient,
        (start_ts, began, row_wait): (Timestamp, Instant, Duration),
        tables: BTreeMap<TableId, Arc<Table>>,
        mutations: Vec<Mutation>,
        may_be_async: bool,
    ) -> Self {
        // A share is nobody's primary: whoever shares rows and writes nothing commits nothing.
        let rank = |mutation: &&Mutation| match mutation.op {
            Op::Put(_) | Op::Insert(_) | Op::Delete => 0,
            Op::Lock => 1,
            Op::Share => 2,
        };
        let primary = mutations.iter().min_by_key(rank).map(|mutation| mutation.key.clone());
        let keys = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let primary = primary.unwrap_or_default();
        let plan = Plan { client, start_ts, began, tables, row_wait, may_be_async, primary, keys };
        Commit { plan: Arc::new(plan), mutations }
    }

    /// Commits, and says when.
    pub(crate) fn run(self) -> BoxFuture<'static, Result<Timestamp>> {
        self.committed().boxed()
    }

    async fn committed(self) -> Result<Timestamp> {
        let Commit { plan, mutations } = self;
        let mut retry = plan.client.retry("the regions of a transaction");
        let groups = plan.client.group(mutations, |mutation| &mutation.key, &mut retry).await?;
        let batches: Vec<Batch> = groups.into_iter().flat_map(batches).collect();
        let mut locked = Vec::new();
        let outcome = match plan.is_for_async(&batches) {
            true => plan.commit_async(batches, &mut locked).await,
            false => plan.carry_out(batches, &mut locked).await,
        };
        match outcome {
            Ok((commit_ts, done)) => {
                plan.client.remember_fate(plan.start_ts, Some(commit_ts));
                let rest = plan.keys.iter().filter(|key| done.binary_search(key).is_err());
                let rest: Vec<_> = rest.cloned().collect();
                if !rest.is_empty() {
                    let client = plan.client.clone();
                    client.tasks.spawn(plan.commit_rest(rest, commit_ts));
                }
                Ok(commit_ts)
            }
            Err(Failed { error, for_certain }) => {
                if for_certain {
                    // Nobody else can commit it, so its fate is known before it is written.
                    plan.abandon(locked);
                }
                Err(error)
            }
        }
    }
}

impl Plan {
    /// When the transaction commits. Regions of a dropped table take locks until they know of it,
    /// and what is committed there is lost: so it must be there as of the commit.
    async fn commit_timestamp(&self) -> Result<Timestamp> {
        let written: Vec<_> = self.tables.values().map(|table| (table.id, table.version)).collect();
        self.client.commit_timestamp(&written).await
    }

    /// Commits. Keys that may hold its locks are noted in `locked`.
    async fn carry_out(
        self: &Arc<Self>,
        batches: Vec<Batch>,
        locked: &mut Vec<Vec<u8>>,
    ) -> Result<Committed, Failed> {
        let (mut left, mut tried, mut beating) = (batches, false, None);
        if let Some(own) = self.take_own(&mut left) {
            match self.at_once(own, std::mem::take(&mut left), locked).await? {
                AtOnce::Committed(commit_ts, keys) => return Ok((commit_ts, keys)),
                AtOnce::Locked(heartbeat) => beating = Some(heartbeat),
                AtOnce::Parted(parts) => (left, tried) = (parts, true),
            }
        }
        let beating = beating.unwrap_or_else(|| self.clone().heartbeat());
        let Phased { touched, outcome, .. } = self.lock_all(left, false).await;
        locked.extend(touched);
        let commit_ts = match outcome {
            Ok(FirstPhase::Locked(_)) => self.commit_timestamp().await,
            // In one entry, before its region was split and its answer lost.
            Ok(FirstPhase::Committed(commit_ts)) => return Ok((commit_ts, Vec::new())),
            Err(error) => Err(error),
        };
        let commit_ts = match commit_ts {
            Ok(commit_ts) => commit_ts,
            Err(error) if tried => {
                let settled = self.settle().await.map_err(Failed::perhaps)?;
                let committed = settled.map(|commit_ts| (commit_ts, Vec::new()));
                return committed.ok_or(Failed::for_certain(error));
            }
            Err(error) => return Err(Failed::for_certain(error)),
        };
        let committed = self.commit_primary(commit_ts).await;
        drop(beating);
        match committed {
            Ok(done) => Ok((commit_ts, done)),
            Err(error @ Error::RolledBack(_)) => Err(Failed::for_certain(error)),
            Err(error) => Err(Failed::perhaps(error)),
        }
    }

    /// First phase of batches, of a transaction that commits asynchronously or not.
    pub(crate) async fn lock_all(&self, batches: Vec<Batch>, asynchronous: bool) -> Phased {
        let sent = Sent(batches.iter().map(|(_, batch)| sent(batch)).collect());
        // Boxed one by one: a closure over borrowed flags would keep the commit from being `Send`.
        let mut locking: Vec<BoxFuture<'_, Result<FirstPhase>>> = Vec::new();
        for (batch, (_, touched)) in batches.into_iter().zip(&sent.0) {
            locking.push(self.lock(batch, touched, asynchronous).boxed());
        }
        let mut locking = stream::iter(locking).buffer_unordered(PARALLEL);
        let mut outcome = Ok(FirstPhase::Locked(Timestamp::ZERO));
        // One that fails, or finds the transaction committed, decides for all.
        while let (Ok(FirstPhase::Locked(from)), Some(next)) =
            (&outcome, together(locking.next()).await)
        {
            outcome = next.map(|next| FirstPhase::Locked(*from).and(next));
        }
        drop(locking);
        Phased { touched: sent.keys(), outcome }
    }

    /// First phase of a batch, which may meanwhile lie in several regions.
    async fn lock(
        &self,
        batch: Batch,
        touched: &AtomicBool,
        asynchronous: bool,
    ) -> Result<FirstPhase> {
        let mut locked = FirstPhase::Locked(Timestamp::ZERO);
        let mut retry = self.client.retry("a region to write to");
        let mut waiting = self.client.lock_wait();
        let mut met_older = None;
        let mut work = vec![batch];
        while let Some((target, mutations)) = work.pop() {
            let (table, schema) = self.schema(&target)?;
            let request = match asynchronous {
                true => self.prewrite_async(&target, &mutations, schema),
                false => self.prewrite(&target, &mutations, schema),
            };
            let before = touched.swap(true, Ordering::AcqRel);
            let error = match self.client.send(&target, request).await {
                Ok(Response::Done) => continue,
                Ok(Response::LockedFrom(from)) => {
                    locked = locked.and(FirstPhase::Locked(from));
                    continue;
                }
                Ok(Response::Fate(Some(commit_ts))) => return Ok(FirstPhase::Committed(commit_ts)),
                Ok(Response::TableGone(gone)) => {
                    touched.store(before, Ordering::Release);
                    return Err(self.table_gone(gone));
                }
                Ok(_) => return Err(unexpected("a prewrite")),
                Err(error) => error,
            };
            if without_effect(&error) {
                touched.store(before, Ordering::Release);
            }
            match error {
                Error::SchemaChanged { sent, known, .. }
                    if known.is_none_or(|known| sent + 1 >= known) =>
                {
                    self.send_schema(&target, table, &mut retry).await?;
                }
                Error::Locked(lock) if asynchronous && lock.start_ts < self.start_ts => {
                    self.get_past_older(&lock, &mut waiting, &mut met_older).await?;
                }
                error => self.client.get_over(error, &mut retry, &mut waiting).await?,
            }
            let again = self.client.group(mutations, |mutation| &mutation.key, &mut retry);
            work.extend(again.await?);
        }
        Ok(locked)
    }

    fn prewrite(
        &self,
        target: &Target,
        mutations: &[Mutation],
        schema: (TableId, SchemaVersion),
    ) -> Request {
        Request::Prewrite {
            region: target.reference(),
            start_ts: self.start_ts,
            primary: self.primary.clone(),
            mutations: mutations.to_vec(),
            ttl: self.ttl(),
            schema,
            wait: self.row_wait.as_millis() as u64,
        }
    }

    pub(crate) fn table_gone(&self, gone: TableId) -> Error {
        let sent = self.tables.get(&gone).map_or(0, |table| table.version);
        Error::SchemaChanged { table: gone, sent, known: None }
    }

    /// Makes the schema of this transaction's rows known to a region that has not seen it.
    pub(crate) async fn send_schema(
        &self,
        target: &Target,
        table: &Arc<Table>,
        retry: &mut Retry,
    ) -> Result<()> {
        let table = Box::new(Table::clone(table));
        let request = Request::Schema { region: target.reference(), table };
        match self.client.send(target, request).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_retryable() => retry.pause(error).await,
            Err(error) => Err(error),
        }
    }

    pub(crate) fn schema(
        &self,
        target: &Target,
    ) -> Result<(&Arc<Table>, (TableId, SchemaVersion))> {
        let table = target.region.table().and_then(|table| self.tables.get(&table));
        let table = table.ok_or_else(|| {
            Error::Invalid(format!(
                "the transaction writes to region {}, of another table than it named",
                target.region.id
            ))
        })?;
        Ok((table, (table.id, table.version)))
    }

    /// Second phase of the primary and of what lies beside it; gives the committed keys.
    async fn commit_primary(&self, commit_ts: Timestamp) -> Result<Vec<Vec<u8>>> {
        let mut retry = self.client.retry("the primary's region");
        loop {
            let error = match self.try_primary(commit_ts, &mut retry).await {
                Ok(done) => return Ok(done),
                Err(error @ Error::RolledBack(_)) => return Err(error),
                Err(error) => error,
            };
            let over = match error.is_retryable() {
                true => retry.pause(error).await,
                false => Err(error),
            };
            if let Err(error) = over {
                tracing::warn!(start_ts = %self.start_ts, %error, "commit went unanswered");
                return match self.settle().await? {
                    Some(at) if at == commit_ts => Ok(vec![self.primary.clone()]),
                    Some(_) => Err(unexpected("a rollback")),
                    None => Err(Error::RolledBack(self.start_ts)),
                };
            }
        }
    }

    async fn try_primary(&self, commit_ts: Timestamp, retry: &mut Retry) -> Result<Vec<Vec<u8>>> {
        let target = self.client.locate(&self.primary, retry).await?;
        let from = self.keys.partition_point(|key| *key < self.primary);
        let near = self.keys.iter().skip(from).take(BATCH_KEYS);
        let keys: Vec<_> = near.filter(|key| target.region.contains(key)).cloned().collect();
        let (region, start_ts) = (target.reference(), self.start_ts);
        let request = Request::Commit { region, start_ts, commit_ts, keys: keys.clone() };
        match self.client.send(&target, request).await? {
            Response::Done => Ok(keys),
            _ => Err(unexpected("a commit")),
        }
    }

    /// Forces an outcome at the primary: when it committed, or none if it never will.
    pub(crate) async fn settle(&self) -> Result<Option<Timestamp>> {
        let mut retry = self.client.retry("the primary's region");
        loop {
            let outcome = async {
                let target = self.client.locate(&self.primary, &mut retry).await?;
                let (region, start_ts) = (target.reference(), self.start_ts);
                let keys = vec![self.primary.clone()];
                self.client.send(&target, Request::Rollback { region, start_ts, keys }).await
            };
            let error = match outcome.await {
                Ok(Response::Fate(Some(at))) => return Ok(Some(at)),
                Ok(Response::Done) => return Ok(None),
                Ok(_) => unexpected("a rollback"),
                Err(error) => error,
            };
            let over = match error.is_retryable() {
                true => retry.pause(error).await,
                false => Err(error),
            };
            if over.is_err() {
                let what = format!("the transaction that began at {}", self.start_ts);
                return Err(Error::outcome_unknown(what, 2 * self.client.retry_timeout));
            }
        }
    }

    /// Second phase of everything else. What it does not reach, readers will finish.
    async fn commit_rest(self: Arc<Self>, keys: Vec<Vec<u8>>, commit_ts: Timestamp) {
        let start_ts = self.start_ts;
        let request = move |target: &Target, keys| {
            let region = target.reference();
            Request::Commit { region, start_ts, commit_ts, keys }
        };
        if let Err(error) = self.send_to_all(keys, request).await {
            tracing::warn!(%start_ts, %error, "second phase left to readers");
        }
    }

    /// Ends a transaction that was not committed and will not be.
    fn abandon(self: &Arc<Self>, keys: Vec<Vec<u8>>) {
        let start_ts = self.start_ts;
        self.client.remember_fate(start_ts, None);
        if keys.is_empty() {
            return;
        }
        let plan = self.clone();
        self.client.tasks.spawn(async move {
            let request = move |target: &Target, keys| {
                let region = target.reference();
                Request::Rollback { region, start_ts, keys }
            };
            if let Err(error) = plan.send_to_all(keys, request).await {
                tracing::warn!(%start_ts, %error, "rollback left to readers");
            }
        });
    }

    /// Sends a request about keys to all their regions.
    async fn send_to_all(
        &self,
        keys: Vec<Vec<u8>>,
        request: impl Fn(&Target, Vec<Vec<u8>>) -> Request,
    ) -> Result<()> {
        let mut retry = self.client.retry("the regions of a transaction");
        let mut left = keys;
        while !left.is_empty() {
            let groups = self.client.group(left, Vec::as_slice, &mut retry).await?;
            let mut calls: Vec<BoxFuture<'_, Answer>> = Vec::new();
            for (target, keys) in &groups {
                for keys in keys.chunks(BATCH_KEYS) {
                    let (keys, request) = (keys.to_vec(), request(target, keys.to_vec()));
                    let call = async move { (keys, self.client.send(target, request).await) };
                    calls.push(call.boxed());
                }
            }
            let answers = stream::iter(calls).buffered(PARALLEL).collect();
            let answers: Vec<_> = together(answers).await;
            left = Vec::new();
            let mut passed = None;
            for (keys, answer) in answers {
                match answer {
                    Ok(_) => {}
                    Err(error) if error.is_retryable() => {
                        left.extend(keys);
                        passed = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(error) = passed {
                retry.pause(error).await?;
            }
        }
        Ok(())
    }

    /// Milliseconds after `start_ts` until which the transaction's locks should stand, as of now.
    pub(crate) fn ttl(&self) -> u64 {
        self.began.elapsed().as_millis() as u64 + LOCK_TTL_MS
    }

    /// Keeps the primary's lock alive until the returned guard is dropped.
    pub(crate) fn heartbeat(self: Arc<Self>) -> Heartbeat {
        Heartbeat(tokio::spawn(async move {
            loop {
                tokio::time::sleep(HEARTBEAT).await;
                let mut retry = Retry::new("the primary's region", HEARTBEAT);
                let Ok(target) = self.client.locate(&self.primary, &mut retry).await else {
                    continue;
                };
                let (region, start_ts) = (target.reference(), self.start_ts);
                let primary = self.primary.clone();
                let request = Request::KeepAlive { region, primary, start_ts, ttl: self.ttl() };
                // The primary may not be locked yet; the commit itself finds out if it never is.
                let _ = self.client.send(&target, request).await;
            }
        }))
    }
}

impl Sent {
    fn keys(self) -> Vec<Vec<u8>> {
        let sent = self.0.into_iter().filter(|(_, touched)| touched.load(Ordering::Acquire));
        sent.flat_map(|(keys, _)| keys).collect()
    }
}

/// Waits for something that asks many regions: what those that are led by this process write leaves as one, and is on its
/// disk by one sync.
async fn together<F: Future>(asks_many: F) -> F::Output {
    let mut asks_many = pin!(asks_many);
    poll_fn(|context| raft::together(|| asks_many.as_mut().poll(context))).await
}

/// The keys of a batch, not sent yet.
fn sent(batch: &[Mutation]) -> (Vec<Vec<u8>>, AtomicBool) {
    (batch.iter().map(|mutation| mutation.key.clone()).collect(), AtomicBool::new(false))
}

/// Whether an answer says that its prewrite, which is all or nothing, has left nothing behind.
fn without_effect(error: &Error) -> bool {
    matches!(
        error,
        Error::NotLeader { .. }
            | Error::StaleEpoch { .. }
            | Error::RegionNotFound(_)
            | Error::Conflict { .. }
            | Error::Locked(_)
            | Error::Duplicate { .. }
            | Error::RolledBack(_)
            | Error::Held { .. }
            | Error::SchemaChanged { .. }
            | Error::SnapshotTooOld { .. }
            | Error::Dropped(_)
    )
}

/// Cuts a region's mutations into requests.
pub(crate) fn batches((target, mutations): Batch) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut bytes = 0;
    for mutation in mutations {
        let size = mutation.key.len()
            + match &mutation.op {
                Op::Put(row) | Op::Insert(row) => row.len(),
                Op::Delete | Op::Lock | Op::Share => 0,
            };
        match batches.last_mut() {
            Some((_, batch)) if batch.len() < BATCH_KEYS && bytes + size <= BATCH_BYTES => {
                batch.push(mutation);
                bytes += size;
            }
            _ => {
                batches.push((target.clone(), vec![mutation]));
                bytes = size;
            }
        }
    }
    batches
}
