//! The client's side of transactions: asks leaders through a transport, finds them through a
//! directory, and repeats what may be repeated within a bound.
//!
//! It never guesses an outcome: what it cannot learn in time is a typed error that says so.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt};
use lru::LruCache;
use parking_lot::Mutex;
use placement::api::Route;
use resources::{Payer, Units};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use types::{
    Error, NodeId, Region, RegionId, RegionKind, Result, SchemaVersion, TableId, Timestamp, key,
};

use crate::api::{Request, Response};
use crate::asked::Asked;
use crate::liveness::{Called, Liveness};
use crate::living::Living;
use crate::price::{self, Price};
use crate::replicas::{Choices, Distance};
use crate::retry::Retry;
use crate::routes::{Routes, Target};
use crate::transport::{RowTransport, within_call};

/// How long a read or a write goes on trying, unless a lock is in its way, by default.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a reader or writer waits for another transaction's lock, likewise.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Transactions whose fate is remembered.
const FATES: usize = 8_192;

/// Knows where regions are and what time it is: placement, or a simulation's stand-in.
#[async_trait]
pub trait Directory: Send + Sync + 'static {
    /// A timestamp greater than all given before.
    async fn timestamp(&self) -> Result<Timestamp>;

    /// As [`Directory::timestamp`], for a transaction that is to become visible then;
    /// `SchemaChanged` if a table that it writes is gone by then, and its rows with it. A directory
    /// that knows of no tables loses none.
    async fn commit_timestamp(&self, _: &[(TableId, SchemaVersion)]) -> Result<Timestamp> {
        self.timestamp().await
    }

    /// The region of a key.
    async fn locate(&self, key: &[u8]) -> Result<Route>;

    /// The regions of a kind, in key order.
    async fn regions(&self, kind: RegionKind) -> Result<Vec<Route>>;

    /// What it said of a region has proven wrong: it must ask anew when that is next wanted.
    fn forget(&self, region: RegionId);
}

/// What a leader said of some keys.
pub(crate) type Answer = (Vec<Vec<u8>>, Result<Response>);

/// Begins transactions and reads snapshots. Cheap to clone.
#[derive(Clone)]
pub struct TxnClient {
    transport: Arc<dyn RowTransport>,
    directory: Arc<dyn Directory>,
    routes: Arc<Routes>,
    liveness: Arc<Liveness>,
    asked: Arc<Asked>,
    pub(crate) choices: Arc<Choices>,
    pub(crate) distance: Arc<dyn Fn(NodeId) -> Distance + Send + Sync>,
    /// Whether all programs of the cluster are known to read as commits in one entry need it.
    at_once: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether they are known to read locks of asynchronous commits.
    async_commits: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Whether they are known to read locks of keys that several transactions share.
    shared_locks: Arc<dyn Fn() -> bool + Send + Sync>,
    /// How transactions ended: commit timestamp, or none for a rollback.
    fates: Arc<Mutex<LruCache<Timestamp, Option<Timestamp>>>>,
    /// Second phases and rollbacks that go on behind their transactions.
    pub(crate) tasks: TaskTracker,
    /// Who pays for what is asked.
    payer: Option<Arc<Payer>>,
    pub(crate) living: Arc<Living>,
    pub(crate) retry_timeout: Duration,
    pub(crate) lock_wait: Duration,
}

impl TxnClient {
    /// A client.
    pub fn new(transport: Arc<dyn RowTransport>, directory: Arc<dyn Directory>) -> Self {
        let capacity = NonZeroUsize::new(FATES).unwrap_or(NonZeroUsize::MIN);
        TxnClient {
            transport,
            directory,
            routes: Arc::default(),
            liveness: Arc::default(),
            asked: Arc::default(),
            choices: Arc::default(),
            distance: Arc::new(|_| Distance::Elsewhere),
            at_once: Arc::new(|| false),
            async_commits: Arc::new(|| false),
            shared_locks: Arc::new(|| false),
            fates: Arc::new(Mutex::new(LruCache::new(capacity))),
            tasks: TaskTracker::new(),
            payer: None,
            living: Arc::default(),
            retry_timeout: RETRY_TIMEOUT,
            lock_wait: LOCK_WAIT,
        }
    }

    /// The same client with other bounds: how long to go on trying to reach regions, and how long
    /// to wait for other transactions' locks.
    pub fn with_bounds(self, retry_timeout: Duration, lock_wait: Duration) -> Self {
        TxnClient { retry_timeout, lock_wait, ..self }
    }

    /// The same client, whose transactions of one region commit in one entry. `everybody_asks` says whether all programs
    /// of the cluster are known to ask leaders how far to read: before, both phases are entries of their own.
    #[must_use]
    pub fn with_one_entry(self, everybody_asks: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        TxnClient { at_once: Arc::new(everybody_asks), ..self }
    }

    /// The same client, whose reads and writes an account pays for.
    #[must_use]
    pub fn charged_to(&self, payer: Arc<Payer>) -> Self {
        TxnClient { payer: Some(payer), ..self.clone() }
    }

    pub(crate) fn commits_at_once(&self) -> bool {
        (self.at_once)()
    }

    /// The same client, whose transactions of several regions are committed once all of their keys are locked.
    /// `everybody_reads` says whether all programs of the cluster are known to read such locks.
    #[must_use]
    pub fn with_async_commits(
        self,
        everybody_reads: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        TxnClient { async_commits: Arc::new(everybody_reads), ..self }
    }

    pub(crate) fn commits_async(&self) -> bool {
        (self.async_commits)()
    }

    /// The same client, whose transactions hold keys beside each other where they may; without, each holds its keys alone.
    /// `everybody_reads` says whether all programs of the cluster are known to read such locks.
    #[must_use]
    pub fn with_shared_locks(
        self,
        everybody_reads: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        TxnClient { shared_locks: Arc::new(everybody_reads), ..self }
    }

    pub(crate) fn shares_locks(&self) -> bool {
        (self.shared_locks)()
    }

    /// A bounded retry of something.
    pub(crate) fn retry(&self, what: &str) -> Retry {
        Retry::new(what, self.retry_timeout)
    }

    /// A bounded wait for locks.
    pub(crate) fn lock_wait(&self) -> Retry {
        Retry::of_locks(self.lock_wait)
    }

    /// A new timestamp.
    pub async fn timestamp(&self) -> Result<Timestamp> {
        let mut retry = self.retry("placement's timestamp");
        loop {
            match within_call("placement", self.directory.timestamp()).await {
                Ok(ts) => return Ok(ts),
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// A timestamp to commit at, later than any at which one of the tables was dropped.
    pub(crate) async fn commit_timestamp(
        &self,
        tables: &[(TableId, SchemaVersion)],
    ) -> Result<Timestamp> {
        let mut retry = self.retry("placement's timestamp");
        loop {
            match within_call("placement", self.directory.commit_timestamp(tables)).await {
                Ok(ts) => return Ok(ts),
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The oldest timestamp that a transaction or snapshot of this client reads at.
    pub fn oldest_start(&self) -> Option<Timestamp> {
        self.living.oldest()
    }

    /// How often each region was asked since this was last called; the most asked ones.
    pub fn take_asked(&self) -> Vec<(RegionId, u64)> {
        self.asked.take()
    }

    /// Waits until the second phases and rollbacks that go on in the background are done.
    pub async fn settle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// How a transaction ended, if this client knows.
    pub(crate) fn known_fate(&self, start_ts: Timestamp) -> Option<Option<Timestamp>> {
        self.fates.lock().get(&start_ts).copied()
    }

    pub(crate) fn remember_fate(&self, start_ts: Timestamp, commit_ts: Option<Timestamp>) {
        self.fates.lock().put(start_ts, commit_ts);
    }

    /// The region of a key.
    pub(crate) async fn locate(&self, key: &[u8], retry: &mut Retry) -> Result<Target> {
        loop {
            if let Some(target) = self.routes.of(key) {
                return Ok(target);
            }
            match within_call("placement", self.directory.locate(key)).await {
                Ok(route) if route.region.contains(key) => {
                    self.routes.learn(&route.region, route.leader);
                    if self.routes.of(key).is_none() {
                        // Older than what leaders said. The directory must not answer from memory
                        // again, and placement gets to know of the split a little later.
                        self.directory.forget(route.region.id);
                        retry.pause(stale_routes()).await?;
                    }
                }
                Ok(_) => return Err(Error::not_found("region", "of a key")),
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The region of the keys right below `end`, of the kind that holds `start`.
    pub(crate) async fn locate_below(
        &self,
        start: &[u8],
        end: &[u8],
        retry: &mut Retry,
    ) -> Result<Target> {
        loop {
            if let Some(target) = self.routes.below(end) {
                return Ok(target);
            }
            let kind = key::region_kind(start)
                .ok_or_else(|| Error::Invalid("the scan is of no table's keys".into()))?;
            match within_call("placement", self.directory.regions(kind)).await {
                Ok(routes) if routes.is_empty() => {
                    return Err(Error::not_found("region", "of a range"));
                }
                Ok(routes) => {
                    // A range may reach beyond the last region: there is nothing there.
                    let last = routes.iter().max_by(|a, b| a.region.end.cmp(&b.region.end));
                    let last = last.map_or(end, |last| end.min(last.region.end.as_slice()));
                    self.routes.learn_all(&routes);
                    match self.routes.below(last) {
                        Some(target) => return Ok(target),
                        None => retry.pause(stale_routes()).await?,
                    }
                }
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a request to a region's leader once. Errors that say where the region is update
    /// the cached routes; the caller looks its keys up again. `Timeout` where the request was sent and
    /// the region has another leader by now: it may have been carried out.
    pub(crate) fn send<'a>(
        &'a self,
        target: &'a Target,
        request: Request,
    ) -> BoxFuture<'a, Result<Response>> {
        self.send_once(target, request).boxed()
    }

    async fn send_once(&self, target: &Target, request: Request) -> Result<Response> {
        let (region, begun) = (&target.region, Instant::now());
        self.asked.count(region.id);
        let price = match &self.payer {
            Some(payer) => {
                price::admit(payer, &request).await?;
                Price::of(&request)
            }
            None => Price::Nothing,
        };
        let answer = match self.liveness.call(self.transport.as_ref(), target, request).await {
            Called::Answered(answer) => answer,
            Called::Moved { leader, sent } => {
                self.routes.led_by(region, leader);
                return Err(match sent {
                    true => Error::timeout(
                        format!(
                            "an answer of row node {}, in whose place node {leader} leads region {}",
                            target.node, region.id
                        ),
                        begun.elapsed(),
                    ),
                    false => Error::NotLeader { region: region.id, leader: Some(leader) },
                });
            }
        };
        let error = match answer {
            Ok(Response::Failed(error)) | Err(error) => error,
            Ok(response) => {
                self.pay(price, &response, region);
                return Ok(response);
            }
        };
        match &error {
            Error::NotLeader { leader: Some(leader), .. } if *leader != target.node => {
                self.routes.led_by(region, *leader);
            }
            Error::NotLeader { .. }
            | Error::Timeout { .. }
            | Error::Unavailable(_)
            | Error::Io(_) => {
                let in_vain = self.routes.missed(region);
                // Those that are remembered may all be gone, and others have come in their place.
                if in_vain {
                    self.forget(region);
                }
            }
            Error::StaleEpoch { current, .. } => {
                let behind =
                    current.iter().any(|now| now.id == region.id && now.epoch < region.epoch);
                if !behind {
                    self.forget(region);
                    let node = Some(target.node);
                    current.iter().for_each(|now| {
                        let leader = if now.id == region.id { node } else { None };
                        self.routes.learn(now, leader);
                    });
                }
            }
            Error::RegionNotFound(_) => self.forget(region),
            _ => {}
        }
        Err(error)
    }

    /// Sends a request about a region as a whole, once, to the node that is believed to lead it.
    ///
    /// # Errors
    ///
    /// What it answers; `NotLeader` where it was silent before and another node leads, `Timeout` where
    /// it has been asked and another node leads by now, so that nobody knows what it did.
    pub async fn send_to_node(
        &self,
        region: &Region,
        node: NodeId,
        request: Request,
    ) -> Result<Response> {
        self.send(&Target { region: Arc::new(region.clone()), node }, request).await
    }

    /// Has the payer pay for an answer.
    pub(crate) fn pay(&self, price: Price, answer: &Response, region: &Region) {
        if let Some(payer) = &self.payer {
            price.charge(payer, answer, region.voters().count());
        }
    }

    /// See [`Payer::portion`].
    pub(crate) fn portion(&self) -> Option<Units> {
        self.payer.as_ref()?.portion()
    }

    /// Asks a node once, whatever it leads; nothing is learned from its answer.
    pub(crate) async fn call_node(&self, node: NodeId, request: Request) -> Result<Response> {
        within_call("a row node", self.transport.call(node, request)).await
    }

    fn forget(&self, region: &Region) {
        self.routes.forget(region.id, &region.start);
        self.directory.forget(region.id);
    }

    /// Groups items by their keys' regions, in key order. Items must ascend by key.
    pub(crate) async fn group<T>(
        &self,
        items: Vec<T>,
        key: impl Fn(&T) -> &[u8],
        retry: &mut Retry,
    ) -> Result<Vec<(Target, Vec<T>)>> {
        let mut groups: Vec<(Target, Vec<T>)> = Vec::new();
        for item in items {
            match groups.last_mut() {
                Some((target, group)) if target.region.contains(key(&item)) => group.push(item),
                _ => {
                    let target = self.locate(key(&item), retry).await?;
                    groups.push((target, vec![item]));
                }
            }
        }
        Ok(groups)
    }
}

/// Why a look-up is repeated though placement answered.
fn stale_routes() -> Error {
    Error::Unavailable("placement does not know of a split yet".into())
}
