//! The first phase of a transaction that is committed once all of its keys are locked, and how those stand who may never
//! hear of it: CockroachDB's parallel commits and TiKV's asynchronous ones.
//!
//! Order is that of a commit in one entry: latches, announcement, timestamp, decision, entry. So `min_commit_ts` is later
//! than every read that did not meet the keys, and none has to be remembered. Nothing here ends a transaction: its primary
//! does, and whoever ends that has asked all other keys before, or is the one who would have answered its client.

use tokio::time::Instant;
use types::{Result, Timestamp};

use crate::api::{AsyncPrewrite, RegionRef, Response};
use crate::decide::{Once, Prewrite};
use crate::service::{TxnService, name_index};

impl TxnService {
    /// Locks the keys. Answered by from when on the transaction may commit, or by when it has.
    pub(crate) async fn prewrite_async(
        &self,
        region: RegionRef,
        all: AsyncPrewrite,
    ) -> Result<Response> {
        let keys: Vec<_> = all.mutations.iter().map(|mutation| mutation.key.clone()).collect();
        let began = Instant::now();
        let attempt = || self.try_prewrite_async(region, &all, &keys, began);
        let response =
            self.admitted(region, all.start_ts, &all.mutations, all.wait, attempt).await?;
        // Locks stand in their place, or what these have become: who waits for the rows finds that.
        self.row_locks.release(all.start_ts, &keys);
        Ok(response)
    }

    async fn try_prewrite_async(
        &self,
        region: RegionRef,
        all: &AsyncPrewrite,
        keys: &[Vec<u8>],
        began: Instant,
    ) -> Result<Response> {
        let AsyncPrewrite { start_ts, primary, secondaries, mutations, schema, others, .. } = all;
        let announced =
            self.announced(region, (*start_ts, keys, mutations), (*schema, others)).await?;
        let (turn, min_commit_ts) = match announced {
            Ok(announced) => announced,
            Err(table_gone) => return Ok(table_gone),
        };
        self.take_turn(turn, region, keys, Some(*schema), |known, view| {
            self.check_not_held(*start_ts, mutations)?;
            // A lock's life begins when it is written, not when it was asked for.
            let ttl = all.ttl + began.elapsed().as_millis() as u64;
            let of = Prewrite { start_ts: *start_ts, primary, ttl };
            let decided = known.prewrite_async(of, (min_commit_ts, secondaries), mutations);
            Ok(match decided.map_err(|error| name_index(error, view))? {
                Once::Commits(facts, from) => (facts, Response::LockedFrom(from)),
                Once::Committed(at) => (vec![], Response::Fate(Some(at))),
            })
        })
        .await
    }

    /// How secondaries stand; one that is not locked is sealed, if that is asked for.
    pub(crate) async fn check_secondaries(
        &self,
        region: RegionRef,
        start_ts: Timestamp,
        keys: Vec<Vec<u8>>,
        seal: bool,
    ) -> Result<Response> {
        self.write(region, (start_ts, keys.clone()), None, move |known, _| {
            let (fact, standing) = known.secondaries(&keys, start_ts, seal)?;
            Ok((fact.into_iter().collect(), Response::Secondaries(standing)))
        })
        .await
    }
}
