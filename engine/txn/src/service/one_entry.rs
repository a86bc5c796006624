//! The region of a primary that needs no lock: decided, committed and answered in one entry, and how far others have to
//! read because of it.
//!
//! Order is everything: the keys' latches, then the announcement that readers meet, then the commit timestamp, then the
//! decision on what is stored, then the entry. No answer leaves before it is applied.

use types::{Error, RegionId, Result, SchemaVersion, TableId, Timestamp};

use crate::api::{Mutation, RegionRef, Response};
use crate::decide::{Once, Prewrite};
use crate::service::turns::Turn;
use crate::service::{TxnService, bounded, name_index};

/// A transaction, as it asks to be committed at once.
pub(crate) struct AtOnce {
    pub(crate) start_ts: Timestamp,
    pub(crate) primary: Vec<u8>,
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) schema: (TableId, SchemaVersion),
    /// Tables in other regions.
    pub(crate) others: Vec<(TableId, SchemaVersion)>,
    /// Milliseconds to wait for rows that others hold.
    pub(crate) wait: u64,
}

impl TxnService {
    /// Commits a transaction all of whose keys lie in this region or are locked. Answered by when it committed, now or before.
    pub(crate) async fn commit_at_once(&self, region: RegionRef, all: AtOnce) -> Result<Response> {
        let keys: Vec<_> = all.mutations.iter().map(|mutation| mutation.key.clone()).collect();
        if !keys.contains(&all.primary) {
            return Err(Error::Invalid("the primary of a commit at once lies elsewhere".into()));
        }
        let attempt = || self.try_at_once(region, &all, &keys);
        let response =
            self.admitted(region, all.start_ts, &all.mutations, all.wait, attempt).await?;
        self.row_locks.release(all.start_ts, &keys);
        Ok(response)
    }

    async fn try_at_once(
        &self,
        region: RegionRef,
        all: &AtOnce,
        keys: &[Vec<u8>],
    ) -> Result<Response> {
        let AtOnce { start_ts, primary, mutations, schema, others, .. } = all;
        let announced =
            self.announced(region, (*start_ts, keys, mutations), (*schema, others)).await?;
        let (turn, commit_ts) = match announced {
            Ok(announced) => announced,
            Err(table_gone) => return Ok(table_gone),
        };
        self.take_turn(turn, region, keys, Some(*schema), |known, view| {
            self.check_not_held(*start_ts, mutations)?;
            let of = Prewrite { start_ts: *start_ts, primary, ttl: 0 };
            let decided = known.commit_at_once(of, commit_ts, mutations);
            Ok(match decided.map_err(|error| name_index(error, view))? {
                Once::Commits(facts, ()) => (facts, Response::Fate(Some(commit_ts))),
                Once::Committed(at) => (vec![], Response::Fate(Some(at))),
            })
        })
        .await
    }

    /// The turn to decide on keys that are announced to readers, and a timestamp of after that at which every table is there;
    /// or the answer that one is not.
    pub(crate) async fn announced(
        &self,
        region: RegionRef,
        (start_ts, keys, mutations): (Timestamp, &[Vec<u8>], &[Mutation]),
        (schema, others): ((TableId, SchemaVersion), &[(TableId, SchemaVersion)]),
    ) -> Result<std::result::Result<(Turn, Timestamp), Response>> {
        let mut turn = self.enter(region, (start_ts, keys), Some(schema)).await?;
        self.check_not_held(start_ts, mutations)?;
        let announced = self.in_flight.announce(keys.to_vec(), start_ts);
        let tables: Vec<_> = std::iter::once(schema).chain(others.iter().copied()).collect();
        let commit_ts = match self.leases.commit_timestamp(&tables).await {
            Err(Error::SchemaChanged { table, known: None, .. }) => {
                return Ok(Err(Response::TableGone(table)));
            }
            Err(error) => {
                return Err(Error::Unavailable(format!("no commit timestamp: {error}")));
            }
            Ok(commit_ts) => commit_ts,
        };
        announced.commits_at(commit_ts);
        turn.announced = Some(announced);
        Ok(Ok((turn, commit_ts)))
    }

    /// Fails if another transaction holds one of the rows.
    pub(crate) fn check_not_held(&self, owner: Timestamp, mutations: &[Mutation]) -> Result<()> {
        match self.row_locks.held_by_other(owner, mutations)? {
            Some(((_, holder), _)) => Err(Error::Held { start: owner, holder }),
            None => Ok(()),
        }
    }

    /// How far the log of a region must be applied for a read at `ts` elsewhere: everything that was committed at or
    /// before it is there by then, or a lock is. What is under way in one entry may have its timestamp already, and is
    /// waited for.
    pub(crate) async fn reach_for_others(
        &self,
        region: RegionId,
        ts: Timestamp,
    ) -> Result<Response> {
        let view = self.store.expect_region(region)?;
        let (status, view) = self.led(RegionRef { id: region, epoch: view.region.epoch })?;
        let (start, end) = (&view.region.start, &view.region.end);
        bounded("commits under way", self.in_flight.pass_range(start, end, ts)).await?;
        self.reach(&status, ts).await?;
        self.still_leads(&status)?;
        let applied = self.store.expect_region(region)?.applied.index;
        // Entries for learners gather; now somebody waits for them.
        self.groups.hurry();
        Ok(Response::Applied(applied))
    }
}
