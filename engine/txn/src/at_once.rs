//! Commits that need no lock on their primary: every other key is locked, then the leader of the primary's region decides
//! all that lies there, locks and commits in one entry. Where that is everything, it is the only one.
//!
//! It must not be taken for a lock while it is on its way: a transaction whose locking takes long is handed back, for its
//! primary's lock to keep it alive.

use std::pin::pin;
use std::sync::Arc;

use futures::future::join;
use tokio::time::timeout;
use types::{Error, Result, SchemaVersion, TableId, Timestamp};

use crate::api::{Mutation, Request, Response};
use crate::coordinator::{self, AtOnce, Batch, Failed, HEARTBEAT, PARALLEL, Phased, Plan};
use crate::resolve::unexpected;
use crate::routes::Target;

/// What a leader answers.
enum Ended {
    At(Timestamp),
    TableGone(TableId),
}

impl Plan {
    /// Takes the primary's batch out of all of them, if that is all of its region and the rest is soon locked.
    pub(crate) fn take_own(&self, batches: &mut Vec<Batch>) -> Option<Batch> {
        if !self.client.commits_at_once() || batches.len() > PARALLEL {
            return None;
        }
        let own = batches.iter().position(|(target, _)| target.region.contains(&self.primary))?;
        let (target, _) = batches.get(own)?;
        let region = target.region.id;
        let alone = batches.iter().filter(|(target, _)| target.region.id == region).count() == 1;
        alone.then(|| batches.swap_remove(own))
    }

    /// Locks all but the primary's batch, then commits that. Keys that may be locked are noted.
    pub(crate) async fn at_once(
        self: &Arc<Self>,
        own: Batch,
        others: Vec<Batch>,
        locked: &mut Vec<Vec<u8>>,
    ) -> Result<AtOnce, Failed> {
        if !others.is_empty() {
            let mut locking = pin!(self.lock_all(others, false));
            match timeout(HEARTBEAT, &mut locking).await {
                Ok(Phased { touched, outcome, .. }) => {
                    locked.extend(touched);
                    outcome.map_err(Failed::for_certain)?;
                }
                Err(_) => {
                    // Its locks' time would run out.
                    let heartbeat = self.clone().heartbeat();
                    let (others, own) = join(locking, self.lock_all(vec![own], false)).await;
                    locked.extend(others.touched.into_iter().chain(own.touched));
                    others.outcome.and(own.outcome).map_err(Failed::for_certain)?;
                    return Ok(AtOnce::Locked(heartbeat));
                }
            }
        }
        self.commit_at_once(vec![own]).await.map_err(|error| match error {
            Error::OutcomeUnknown { .. } => Failed::perhaps(error),
            error => Failed::for_certain(error),
        })
    }

    /// Both phases of the primary's region, in one entry. Every other key is locked.
    async fn commit_at_once(&self, mut batches: Vec<Batch>) -> Result<AtOnce> {
        let mut retry = self.client.retry("a region to write to");
        let mut waiting = self.client.lock_wait();
        loop {
            let [(target, mutations)] = &batches[..] else {
                return Ok(AtOnce::Parted(batches));
            };
            let (table, schema) = self.schema(target)?;
            let over = match self.try_at_once(target, mutations, schema).await {
                Ok(Ended::At(commit_ts)) => {
                    return Ok(AtOnce::Committed(commit_ts, keys_of(mutations)));
                }
                Ok(Ended::TableGone(gone)) => Err(self.table_gone(gone)),
                Err(Error::SchemaChanged { sent, known, .. })
                    if known.is_none_or(|known| sent + 1 >= known) =>
                {
                    self.send_schema(target, table, &mut retry).await
                }
                Err(error) => self.client.get_over(error, &mut retry, &mut waiting).await,
            };
            let over = match over {
                Ok(()) => {
                    let mutations = mutations.clone();
                    let groups =
                        self.client.group(mutations, |mutation| &mutation.key, &mut retry).await;
                    groups.map(|groups| groups.into_iter().flat_map(coordinator::batches).collect())
                }
                Err(error) => Err(error),
            };
            batches = match over {
                Ok(batches) => batches,
                // An attempt that is late, or comes twice, must find the transaction ended, whatever this one was answered.
                Err(error) => {
                    let settled = self.settle().await?;
                    return settled.map(|at| AtOnce::Committed(at, Vec::new())).ok_or(error);
                }
            };
        }
    }

    async fn try_at_once(
        &self,
        target: &Target,
        mutations: &[Mutation],
        schema: (TableId, SchemaVersion),
    ) -> Result<Ended> {
        let others = self.tables.values().filter(|table| table.id != schema.0);
        let request = Request::CommitAtOnce {
            region: target.reference(),
            start_ts: self.start_ts,
            primary: self.primary.clone(),
            mutations: mutations.to_vec(),
            schema,
            others: others.map(|table| (table.id, table.version)).collect(),
            wait: self.row_wait.as_millis() as u64,
        };
        match self.client.send(target, request).await? {
            Response::Fate(Some(commit_ts)) => Ok(Ended::At(commit_ts)),
            Response::TableGone(table) => Ok(Ended::TableGone(table)),
            _ => Err(unexpected("a commit at once")),
        }
    }
}

fn keys_of(mutations: &[Mutation]) -> Vec<Vec<u8>> {
    mutations.iter().map(|mutation| mutation.key.clone()).collect()
}
