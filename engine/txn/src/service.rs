//! Answers requests to the regions that this node leads.
//!
//! A write is: check leadership, epoch and range; take the keys' latches; decide on the present
//! state; propose the facts under exactly the term and epoch of the decision; hold the latches
//! until they are applied or provably dropped; what is decided without an entry is confirmed by a
//! read index before it is answered. A new leader's first phases wait for the leases of leaders before
//! it. A read is: confirm leadership by a lease or a read index, wait for commits that are under way in
//! one entry, check locks, then look at the store. Every wait is bounded.

mod async_prewrite;
mod following;
mod leases;
mod one_entry;
pub(crate) mod row_locks;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use parking_lot::Mutex;
use raft::{Groups, PeerStatus};
use tokio::sync::RwLock;
use tokio::time::Instant;
use types::{
    Error, Region, RegionId, RegionKind, Result, SchemaVersion, Table, TableId, Timestamp, key,
};

use crate::api::{Mode, Mutation, RegionRef, Request, Response};
use crate::bulk::Bulk;
use crate::decide::{Known, Prewrite, Prewritten, Rollback, Status};
use crate::fact::{AsyncCommit, Fact, Facts, SplitChild, split_region};
use crate::in_flight::InFlight;
use crate::latches::Latches;
use crate::layout::Fate;
use crate::sample;
use crate::store::{RegionView, RowStore};
use following::Followers;
use leases::LeaseKeeper;
use one_entry::AtOnce;
use row_locks::RowLocks;
use turns::Decision;

/// How long a request waits for its keys' latches, and a schema change for the writes before it.
const LATCH_WAIT: Duration = Duration::from_secs(5);
/// Locks that one proposal ends, at most.
const RESOLVE_KEYS: usize = 1_024;
/// Largest log entry, in bytes.
const MAX_ENTRY_BYTES: usize = 32 << 20;
/// Siblings that are returned to a caller with a stale route, at most.
const MAX_SIBLINGS: usize = 64;

/// Answers requests to the regions that this node leads.
#[derive(Clone)]
pub struct TxnService {
    pub(crate) groups: Arc<dyn Groups>,
    pub(crate) store: Arc<RowStore>,
    latches: Latches,
    bulk: Arc<Bulk>,
    pub(crate) row_locks: Arc<RowLocks>,
    pub(crate) leases: Arc<LeaseKeeper>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) followers: Arc<Followers>,
    /// Prewrites share their region's fence; a schema change takes it alone.
    fences: Arc<Mutex<HashMap<RegionId, Arc<RwLock<()>>>>>,
    /// Transactions that began before this take no more locks here. Shared while deciding and
    /// proposing: whatever was decided under a lower one stands before its raiser's proposal.
    pub(crate) oldest: Arc<parking_lot::RwLock<Timestamp>>,
    /// Whether this node is stopping, and takes over no region any more.
    retired: Arc<AtomicBool>,
}

impl TxnService {
    /// A service over a node's groups and the row store that their machines write.
    pub fn new(groups: Arc<dyn Groups>, store: Arc<RowStore>) -> Self {
        TxnService {
            groups,
            latches: Latches::default(),
            bulk: Arc::new(Bulk::new(store.online.clone())),
            store,
            row_locks: Arc::new(RowLocks::new(None)),
            leases: Arc::default(),
            in_flight: Arc::default(),
            followers: Arc::default(),
            fences: Arc::default(),
            oldest: Arc::default(),
            retired: Arc::default(),
        }
    }

    /// This node is stopping: from now on it answers whoever wants to hand it a region that it does not take it over.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    /// Answers one request. Dropping the future does not undo what it has proposed.
    pub fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
        self.answer(request).unwrap_or_else(Response::Failed).boxed()
    }

    async fn answer(&self, request: Request) -> Result<Response> {
        match request {
            Request::Get { region, keys, ts } => self.get(region, keys, ts).await,
            Request::Scan { region, start, end, ts, limit, bytes, reverse } => {
                self.scan(region, (start, end), ts, (limit, bytes), reverse).await
            }
            Request::Prewrite { region, start_ts, primary, mutations, ttl, schema, wait } => {
                self.prewrite(region, (start_ts, primary, ttl), mutations, schema, wait).await
            }
            Request::Shared(request) => self.answer_row_locks(*request, Mode::Shared).await,
            request @ (Request::Acquire { .. }
            | Request::KeepHeld { .. }
            | Request::Inherit { .. }) => self.answer_row_locks(request, Mode::Exclusive).await,
            Request::Release { region, start_ts, keys } => {
                self.row_locks.release(start_ts, &keys);
                // Another leader may have received them.
                self.led(region).map(|_| Response::Done)
            }
            Request::Commit { region, start_ts, commit_ts, keys } => {
                self.commit(region, start_ts, commit_ts, keys).await
            }
            Request::Rollback { region, start_ts, keys } => {
                self.end(region, start_ts, keys.clone(), move |known, _| {
                    rollback(known, start_ts, &keys)
                })
                .await
            }
            Request::CheckStatus { region, primary, start_ts, now, ttl } => {
                self.check_status(region, primary, start_ts, (now, ttl)).await
            }
            Request::Resolve { region, start_ts, commit_ts, keys } => {
                self.resolve(region, start_ts, commit_ts, keys).await
            }
            Request::KeepAlive { region, primary, start_ts, ttl } => {
                self.write(region, (start_ts, vec![primary.clone()]), None, move |known, _| {
                    let fact = known.keep_alive(&primary, start_ts, ttl)?;
                    Ok((fact.into_iter().collect(), Response::Done))
                })
                .await
            }
            Request::Import { region, commit_ts, rows, schema, anew } => {
                self.import(region, commit_ts, rows, schema, anew).await
            }
            Request::Schema { region, table } => self.schema(region, *table).await,
            Request::CommitAtOnce {
                region,
                start_ts,
                primary,
                mutations,
                schema,
                others,
                wait,
            } => {
                let all = AtOnce { start_ts, primary, mutations, schema, others, wait };
                self.commit_at_once(region, all).await
            }
            Request::PrewriteAsync { region, first } => self.prewrite_async(region, *first).await,
            Request::CheckSecondaries { region, start_ts, keys, seal } => {
                self.check_secondaries(region, start_ts, keys, seal).await
            }
            Request::Reach { region, ts } => self.reach_for_others(region, ts).await,
            Request::ByReplica(read) => self.by_replica(*read).boxed().await,
            Request::Split { region, cuts } => self.split(region, cuts).await,
            Request::SplitKeys { region, parts } => {
                let (_, view) = self.led(region)?;
                let keys = sample::split_keys(self.store.snapshot(), &view.region, parts).await?;
                Ok(Response::Keys(keys))
            }
            Request::Leader { region } => {
                let status = self.groups.status(region).ok_or(Error::RegionNotFound(region))?;
                let PeerStatus { leader, term, .. } = status;
                Ok(Response::Leader { leader: leader.map(|peer| peer.node), term })
            }
        }
    }

    async fn commit(
        &self,
        region: RegionRef,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        keys: Vec<Vec<u8>>,
    ) -> Result<Response> {
        self.end(region, start_ts, keys.clone(), move |known, _| {
            let facts = keys.iter().map(|key| known.commit(key, start_ts, commit_ts));
            Ok((facts.filter_map(Result::transpose).collect::<Result<_>>()?, Response::Done))
        })
        .await
    }

    async fn check_status(
        &self,
        region: RegionRef,
        primary: Vec<u8>,
        start_ts: Timestamp,
        (now, ttl): (Timestamp, u64),
    ) -> Result<Response> {
        self.write(region, (start_ts, vec![primary.clone()]), None, move |known, _| {
            Ok(match known.status(&primary, start_ts, now, ttl)? {
                Status::Ended(fate) => (vec![], Response::Fate(fate.commit_ts())),
                Status::Alive(left) => (vec![], Response::Alive(left)),
                Status::Expire(fact) => (vec![fact], Response::Fate(None)),
                Status::Pending(AsyncCommit { min_commit_ts, secondaries }, left) => {
                    (vec![], Response::Pending { secondaries, min_commit_ts, left })
                }
            })
        })
        .await
    }

    async fn import(
        &self,
        region: RegionRef,
        commit_ts: Timestamp,
        rows: Vec<kv::Pair>,
        schema: (TableId, SchemaVersion),
        anew: bool,
    ) -> Result<Response> {
        let keys = rows.iter().map(|(key, _)| key.clone()).collect();
        let bytes = rows.iter().map(|(key, row)| key.len() + row.len()).sum();
        let keys = (Timestamp::ZERO, keys);
        let write = self.write(region, keys, Some(schema), move |known, view| {
            known.check_fresh(commit_ts)?;
            let facts = rows.into_iter().map(|(key, row)| known.import(key, row, commit_ts, anew));
            let facts = facts.filter_map(Result::transpose).collect::<Result<_>>();
            Ok((facts.map_err(|error| name_index(error, view))?, Response::Done))
        });
        self.bulk.run(bytes, write).await
    }

    async fn prewrite(
        &self,
        region: RegionRef,
        (start_ts, primary, ttl): (Timestamp, Vec<u8>, u64),
        mutations: Vec<Mutation>,
        schema: (TableId, SchemaVersion),
        wait: u64,
    ) -> Result<Response> {
        let keys: Vec<_> = mutations.iter().map(|mutation| mutation.key.clone()).collect();
        // Until the primary's lock stands nobody can keep the others alive: it waits for no turn.
        let first = mutations.iter().any(|mutation| mutation.key == primary);
        let bytes = if first { 0 } else { mutations.iter().map(Mutation::bytes).sum() };
        let (primary, mutations, began) = (&primary, &mutations, Instant::now());
        self.admitted(region, start_ts, mutations, wait, || {
            // Who waits for rows takes no turn from others meanwhile.
            let keys = (start_ts, keys.clone());
            let write = self.write(region, keys, Some(schema), |known, view| {
                self.check_not_held(start_ts, mutations)?;
                // A lock's life begins when it is written, not when it was asked for.
                let ttl = ttl + began.elapsed().as_millis() as u64;
                let of = Prewrite { start_ts, primary, ttl };
                let mut facts = Vec::with_capacity(mutations.len());
                for mutation in mutations {
                    let written = known.prewrite(of, mutation);
                    match written.map_err(|error| name_index(error, view))? {
                        Prewritten::Lock(fact) => facts.push(fact),
                        Prewritten::Locked => {}
                        // All of it, in one entry, before its region was split.
                        Prewritten::Committed(at) => {
                            return Ok((vec![], Response::Fate(Some(at))));
                        }
                    }
                }
                Ok((facts, Response::Done))
            });
            self.bulk.run(bytes, write)
        })
        .await
    }

    /// Decides how a transaction ends on some keys, and gives its row locks on them back once that
    /// is applied: who waits for them then finds what they became.
    async fn end(
        &self,
        region: RegionRef,
        start_ts: Timestamp,
        keys: Vec<Vec<u8>>,
        decide: impl FnOnce(Known<'_>, &RegionView) -> Result<Decision> + Send,
    ) -> Result<Response> {
        let response = self.write(region, (start_ts, keys.clone()), None, decide).await?;
        self.row_locks.release(start_ts, &keys);
        Ok(response)
    }

    async fn resolve(
        &self,
        region: RegionRef,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: Vec<Vec<u8>>,
    ) -> Result<Response> {
        let all = keys.is_empty();
        let mut keys = keys;
        loop {
            if all {
                let (_, view) = self.led(region)?;
                let Region { start, end, .. } = &view.region;
                keys = self.store.locks().of_transaction(start, end, start_ts, RESOLVE_KEYS);
                if keys.is_empty() {
                    return Ok(Response::Done);
                }
            }
            let batch = std::mem::take(&mut keys);
            let response = self
                .end(region, start_ts, batch.clone(), move |known, _| {
                    let facts =
                        batch.iter().filter_map(|key| known.resolve(key, start_ts, commit_ts));
                    Ok((facts.collect(), Response::Done))
                })
                .await?;
            if !all {
                return Ok(response);
            }
        }
    }

    async fn schema(&self, region: RegionRef, table: Table) -> Result<Response> {
        let fence = self.fence(region.id);
        let _alone = bounded("earlier writes of the region", fence.write()).await?;
        let (status, view) = self.led(region)?;
        if view.region.table() != Some(table.id) {
            return Err(Error::Invalid(format!(
                "region {} holds no keys of table {}",
                region.id, table.id
            )));
        }
        if view.schemas.contains_key(&(table.id, table.version)) {
            return Ok(Response::Done);
        }
        let known = view.newest_schema(table.id).map(|newest| newest.version);
        if known.is_some_and(|known| table.version + 1 < known) {
            return Err(Error::SchemaChanged { table: table.id, sent: table.version, known });
        }
        let facts = vec![Fact::Schema(Box::new(table))];
        self.propose(&status, &view, facts)?.await?;
        Ok(Response::Done)
    }

    async fn split(
        &self,
        region: RegionRef,
        cuts: Vec<(Vec<u8>, RegionId, Vec<types::PeerId>)>,
    ) -> Result<Response> {
        let (status, view) = self.led(region)?;
        let children: Vec<SplitChild> = cuts
            .into_iter()
            .map(|(start, region, peers)| SplitChild { start, region, peers })
            .collect();
        let (parent, siblings) = split_region(&view.region, &children)?;
        // From here on another node may lead a part of what this one leads.
        self.splits(&status, &view.region);
        let proposed =
            async { self.propose(&status, &view, vec![Fact::Split { children }])?.await };
        if let Err(error) = proposed.await {
            if certain(&error) {
                self.does_not_split(&status, &view.region);
            }
            return Err(error);
        }
        Ok(Response::Regions(std::iter::once(parent).chain(siblings).collect()))
    }

    /// Proposes facts under the term and epoch of their decision.
    pub(crate) fn propose(
        &self,
        status: &PeerStatus,
        view: &RegionView,
        facts: Vec<Fact>,
    ) -> Result<raft::Pending<raft::Position>> {
        let epoch = view.region.epoch;
        let entry = Facts { term: status.term, epoch, facts }.encode()?;
        if entry.len() > MAX_ENTRY_BYTES {
            return Err(Error::Invalid(format!(
                "a write of {} bytes to one region is too large; write less at a time",
                entry.len()
            )));
        }
        Ok(self.groups.propose(view.region.id, status.term, entry))
    }

    /// The region, if this node leads it and may decide in it.
    pub(crate) fn led(&self, region: RegionRef) -> Result<(PeerStatus, Arc<RegionView>)> {
        let status = self.groups.status(region.id).ok_or(Error::RegionNotFound(region.id))?;
        if status.leader.map(|leader| leader.id) != Some(status.peer.id) {
            let leader = status.leader.map(|leader| leader.node);
            return Err(Error::NotLeader { region: region.id, leader });
        }
        if !status.decides {
            return Err(Error::Unavailable(format!(
                "the leader of region {} is new and not ready yet",
                region.id
            )));
        }
        let view = self.store.expect_region(region.id)?;
        self.check_epoch(region, &view)?;
        Ok((status, view))
    }

    pub(crate) fn check_epoch(&self, region: RegionRef, view: &RegionView) -> Result<()> {
        if !view.whole {
            return Err(Error::RegionNotFound(region.id));
        }
        if view.region.epoch == region.epoch {
            return Ok(());
        }
        // Siblings of the last split carry the same version.
        let version = view.region.epoch.version;
        let siblings = self.store.regions().into_iter().map(|other| other.region.clone());
        let siblings = siblings.filter(|other| {
            other.id != region.id
                && other.kind == view.region.kind
                && other.epoch.version == version
        });
        let mut current = vec![view.region.clone()];
        current.extend(siblings.take(MAX_SIBLINGS));
        Err(Error::StaleEpoch { region: region.id, current })
    }

    fn fence(&self, region: RegionId) -> Arc<RwLock<()>> {
        self.fences.lock().entry(region).or_default().clone()
    }
}

/// Whether a failed proposal certainly never takes effect.
fn certain(error: &Error) -> bool {
    matches!(error, Error::Dropped(_) | Error::NotLeader { .. } | Error::RegionNotFound(_))
}

/// Refuses rows of a schema that the region does not know, or that is older than the previous one.
fn check_schema(view: &RegionView, table: TableId, sent: SchemaVersion) -> Result<()> {
    let known = view.newest_schema(table).map(|newest| newest.version);
    let fresh = known.is_some_and(|known| sent + 1 >= known);
    if fresh && view.schemas.contains_key(&(table, sent)) {
        return Ok(());
    }
    Err(Error::SchemaChanged { table, sent, known })
}

fn rollback(known: Known<'_>, start_ts: Timestamp, keys: &[Vec<u8>]) -> Result<Decision> {
    let mut facts = Vec::with_capacity(keys.len());
    for key in keys {
        match known.rollback(key, start_ts)? {
            Rollback::Fact(fact) => facts.push(fact),
            Rollback::Already => {}
            Rollback::Committed(at) => {
                return Ok((vec![], Response::Fate(Fate::Committed(at).commit_ts())));
            }
        }
    }
    Ok((facts, Response::Done))
}

/// Names the index whose uniqueness an insert violates.
fn name_index(error: Error, view: &RegionView) -> Error {
    let Error::Duplicate { key, .. } = error else { return error };
    let index = match key::region_kind(&key) {
        Some(RegionKind::Index(table, id)) => {
            let newest = view.newest_schema(table);
            let index = newest.and_then(|table| table.indexes.iter().find(|index| index.id == id));
            index.map_or_else(|| format!("index {id}"), |index| index.name.clone())
        }
        _ => "PRIMARY".into(),
    };
    Error::Duplicate { index, key }
}

/// Waits for something that holds up writes, within the bound.
pub(crate) async fn bounded<T>(what: &str, wait: impl Future<Output = T>) -> Result<T> {
    tokio::time::timeout(LATCH_WAIT, wait).await.map_err(|_| {
        Error::Unavailable(format!(
            "waited {} ms for {what}; nothing was written",
            LATCH_WAIT.as_millis()
        ))
    })
}
