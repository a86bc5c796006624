//! Commits that are answered after the first phase: of transactions of several regions that are small enough for their
//! primary's lock to name every other key.
//!
//! Such a transaction is committed once all of its keys are locked, at the greatest `min_commit_ts` of the locks, whoever
//! finds that out. So its primary is rolled back by nobody who has not found, or made, a key that can never be locked;
//! but for the one who would have answered its client, and has not.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::{Instant, timeout};
use types::error::LockInfo;
use types::{Error, Result, SchemaVersion, TableId, Timestamp};

use crate::api::{AsyncPrewrite, Mutation, Request, Response, Secondaries};
use crate::bulk;
use crate::client::TxnClient;
use crate::coordinator::{Batch, Committed, Failed, FirstPhase, HEARTBEAT, PARALLEL, Phased, Plan};
use crate::resolve::{Standing, Unfinished, unexpected};
use crate::retry::Retry;
use crate::routes::Target;

/// Most keys of such a transaction, and bytes of them: they lie in one lock (as in TiKV).
const MOST_KEYS: usize = 256;
const MOST_BYTES: usize = 4_096;
/// How long a first phase waits for older transactions that live.
const GIVE_WAY: Duration = Duration::from_millis(100);

impl Plan {
    /// Whether the transaction is committed once all of its keys are locked.
    pub(crate) fn is_for_async(&self, batches: &[Batch]) -> bool {
        self.may_be_async
            && (2..=PARALLEL).contains(&batches.len())
            && self.keys.len() <= MOST_KEYS
            && self.keys.iter().map(Vec::len).sum::<usize>() <= MOST_BYTES
            && batches.iter().flat_map(|(_, batch)| batch).map(Mutation::bytes).sum::<usize>()
                < bulk::BYTES
            && self.client.commits_async()
    }

    /// Gets the lock of an older transaction out of the way. One that lives may be waiting for a lock of this one in another
    /// region: after a while the younger gives way.
    pub(crate) async fn get_past_older(
        &self,
        lock: &LockInfo,
        waiting: &mut Retry,
        met: &mut Option<Instant>,
    ) -> Result<()> {
        if met.get_or_insert_with(Instant::now).elapsed() < GIVE_WAY {
            return self.client.get_past(lock, waiting).await;
        }
        let resolution = self.client.resolve(std::slice::from_ref(lock), Timestamp::MAX).await?;
        match resolution.alive {
            Some(_) => Err(Error::Deadlock(self.start_ts)),
            None => Ok(()),
        }
    }

    /// Locks everything, by which the transaction is committed. Keys that may be locked by one that is not are noted.
    pub(crate) async fn commit_async(
        self: &Arc<Self>,
        batches: Vec<Batch>,
        locked: &mut Vec<Vec<u8>>,
    ) -> Result<Committed, Failed> {
        let mut locking = pin!(self.lock_all(batches, true));
        let Phased { touched, outcome } = match timeout(HEARTBEAT, &mut locking).await {
            Ok(ended) => ended,
            Err(_) => {
                // The primary's time would run out.
                let _beating = self.clone().heartbeat();
                locking.await
            }
        };
        let error = match outcome {
            Ok(FirstPhase::Locked(at) | FirstPhase::Committed(at)) => return Ok((at, Vec::new())),
            Err(error) => error,
        };
        locked.extend(touched);
        if matches!(error, Error::Conflict { .. } | Error::RolledBack(_)) {
            // That key is never locked, whatever request for it comes late: nobody finds all of them locked.
            return Err(Failed::for_certain(error));
        }
        // Somebody may have found that, or may yet: a request that was refused can come again. It ends at the primary.
        match self.settle().await {
            Ok(Some(at)) => Ok((at, Vec::new())),
            Ok(None) => Err(Failed::for_certain(error)),
            Err(unknown) => Err(Failed::perhaps(unknown)),
        }
    }

    pub(crate) fn prewrite_async(
        &self,
        target: &Target,
        mutations: &[Mutation],
        schema: (TableId, SchemaVersion),
    ) -> Request {
        let others = self.tables.values().filter(|table| table.id != schema.0);
        let has_primary = mutations.iter().any(|mutation| mutation.key == self.primary);
        let secondaries = match has_primary {
            true => self.keys.iter().filter(|key| **key != self.primary).cloned().collect(),
            false => Vec::new(),
        };
        let first = AsyncPrewrite {
            start_ts: self.start_ts,
            primary: self.primary.clone(),
            secondaries,
            mutations: mutations.to_vec(),
            ttl: self.ttl(),
            schema,
            others: others.map(|table| (table.id, table.version)).collect(),
            wait: self.row_wait.as_millis() as u64,
        };
        Request::PrewriteAsync { region: target.reference(), first: Box::new(first) }
    }
}

impl TxnClient {
    /// Finishes a transaction that commits asynchronously, if it is committed or its time is over.
    pub(crate) async fn finish_async(
        &self,
        of: Unfinished<'_>,
        retry: &mut Retry,
    ) -> Result<Standing> {
        let Unfinished { primary, start_ts, secondaries, min_commit_ts, left } = of;
        let seal = left == 0;
        match self.secondaries(start_ts, secondaries, seal, retry).await? {
            Secondaries::Missing => Ok(Standing::Alive(left)),
            Secondaries::RolledBack => {
                self.end_primary(primary, start_ts, None, retry).await.map(Standing::Ended)
            }
            Secondaries::Locked(at) | Secondaries::Committed(at) => {
                let at = Some(at.max(min_commit_ts));
                self.end_primary(primary, start_ts, at, retry).await.map(Standing::Ended)
            }
        }
    }

    /// How all of these keys stand.
    async fn secondaries(
        &self,
        start_ts: Timestamp,
        keys: Vec<Vec<u8>>,
        seal: bool,
        retry: &mut Retry,
    ) -> Result<Secondaries> {
        let (mut left, mut from) = (keys, Timestamp::ZERO);
        while !left.is_empty() {
            let groups = self.group(std::mem::take(&mut left), Vec::as_slice, retry).await?;
            let asked = groups.into_iter().map(|(target, keys)| async move {
                let (region, asked) = (target.reference(), keys.clone());
                let request = Request::CheckSecondaries { region, start_ts, keys: asked, seal };
                (keys, self.send(&target, request).await)
            });
            for (keys, answer) in join_all(asked).await {
                match answer {
                    Ok(Response::Secondaries(Secondaries::Locked(at))) => from = from.max(at),
                    Ok(Response::Secondaries(known)) => return Ok(known),
                    Ok(_) => return Err(unexpected("secondaries")),
                    Err(error) if error.is_retryable() => {
                        left.extend(keys);
                        retry.pause(error).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Secondaries::Locked(from))
    }

    /// Ends a transaction at its primary, unless it has ended there otherwise; how it ended.
    async fn end_primary(
        &self,
        primary: &[u8],
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        retry: &mut Retry,
    ) -> Result<Option<Timestamp>> {
        loop {
            let target = self.locate(primary, retry).await?;
            let (region, keys) = (target.reference(), vec![primary.to_vec()]);
            let request = match commit_ts {
                Some(commit_ts) => Request::Commit { region, start_ts, commit_ts, keys },
                None => Request::Rollback { region, start_ts, keys },
            };
            match self.send(&target, request).await {
                Ok(Response::Done) => return Ok(commit_ts),
                Ok(Response::Fate(Some(at))) => return Ok(Some(at)),
                Ok(_) => return Err(unexpected("the end of a transaction")),
                Err(Error::RolledBack(_)) => return Ok(None),
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }
}
