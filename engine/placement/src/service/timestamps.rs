//! Timestamps: allocated first, then confirmed by a quorum, then handed out.
//!
//! None leaves that was not confirmed after it was allocated.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::timeout;
use types::region::PLACEMENT_REGION;
use types::{Error, Result, Timestamp};

use super::{PlacementService, check_count};
use crate::command::Command;
use crate::oracle::MAX_COUNT;

/// Windows that one allocation may have to wait for: a clock that leaps needs a second one.
const WINDOWS: u32 = 8;

/// How long the cheap round may take that confirms a leader, before Raft is asked.
const CONFIRM_LIMIT: Duration = Duration::from_millis(50);

/// A timestamp, the catalog's version as of then, and the term of the leader who gives both.
pub type Given = (Timestamp, u64, u64);

/// The first of so many timestamps, of whoever leads placement.
pub type Proxy = Box<dyn Fn(u32) -> BoxFuture<'static, Result<Given>> + Send + Sync>;

impl PlacementService {
    pub(super) async fn timestamps(&self, count: u32) -> Result<Given> {
        check_count(count, MAX_COUNT, "timestamps")?;
        let batcher = self
            .timestamps
            .get()
            .ok_or_else(|| Error::Unavailable("placement is starting".into()))?;
        batcher.call(count).await
    }

    /// One allocation and one confirmation for many callers: allocate first, confirm second.
    pub(super) async fn timestamp_batch(&self, counts: &[u32]) -> Result<Vec<Given>> {
        let mut answers = Vec::with_capacity(counts.len());
        let mut rest = counts;
        while !rest.is_empty() {
            // One allocation holds at most a millisecond's worth.
            let mut total = 0u32;
            let fits = |count: &&u32| {
                total = total.saturating_add(**count);
                total <= MAX_COUNT
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            let term = self.lead()?;
            let mut first = self.allocate(term, now.iter().sum()).await?;
            self.confirm_leads(term).await?;
            let catalog = self.view.read().catalog.version;
            for count in now {
                answers.push((first, catalog, term));
                first = Timestamp(first.0 + u64::from(*count));
            }
            rest = later;
        }
        Ok(answers)
    }

    /// Timestamps that this node asks the leader for, together with all who ask it meanwhile.
    pub(super) async fn timestamps_by_proxy(&self, count: u32) -> Result<Given> {
        check_count(count, MAX_COUNT, "timestamps")?;
        let proxy = self.proxy.get();
        let proxy = proxy.ok_or_else(|| Error::Unavailable("this node is no proxy".into()))?;
        proxy(count).await
    }

    /// The first of `count` timestamps, if this node leads placement and no other could.
    pub fn timestamps_alone(&self, count: u32) -> Option<Given> {
        let peer = self.peer().ok().filter(|peer| peer.alone)?;
        let given = self.given_in(peer.term, count)?;
        // Alone after they were allocated, too.
        self.peer().ok().filter(|now| now.alone && now.term == peer.term)?;
        Some(given)
    }

    /// The first of `count` timestamps, if this node leads placement and can give them without waiting for long; none
    /// otherwise: placement's leader is to be asked then.
    pub async fn timestamps_at_once(&self, count: u32) -> Option<Given> {
        let term = self.lead().ok()?;
        let given = self.given_in(term, count)?;
        self.confirms_at_once(term).await.then_some(given)
    }

    /// What `term` may give of the window that is persisted. Not yet confirmed.
    fn given_in(&self, term: u64, count: u32) -> Option<Given> {
        check_count(count, MAX_COUNT, "timestamps").ok()?;
        let (mut leader, now) = self.clocks(term).ok()?;
        if leader.damage.is_some() || leader.oracle.waits_for_clocks(now) {
            return None;
        }
        let first = leader.oracle.allocate(now, count)?;
        drop(leader);
        Some((first, self.view.read().catalog.version, term))
    }

    /// Allocates in `term`, prolonging the window where needed. Not yet confirmed.
    pub(crate) async fn allocate(&self, term: u64, count: u32) -> Result<Timestamp> {
        for _ in 0..WINDOWS {
            let allocated = {
                let (mut leader, now) = self.clocks(term)?;
                if leader.oracle.waits_for_clocks(now) {
                    return Err(Error::Unavailable(
                        "placement's leader does not know the clocks of a majority of the row nodes \
                         yet: retry"
                            .into(),
                    ));
                }
                leader.oracle.allocate(now, count)
            };
            match allocated {
                Some(first) => return Ok(first),
                None => self.extend(term).await?,
            }
        }
        Err(Error::Unavailable("the clock runs ahead faster than timestamps can follow".into()))
    }

    /// As [`PlacementService::confirm`], by a cheaper round where there is one; the view may be older than all that is committed.
    async fn confirm_leads(&self, term: u64) -> Result<()> {
        if self.confirms_at_once(term).await {
            return Ok(());
        }
        self.confirm(term).await
    }

    /// Whether the cheaper round confirms it soon.
    async fn confirms_at_once(&self, term: u64) -> bool {
        let Some(round) = self.groups.confirm(PLACEMENT_REGION, term) else { return false };
        matches!(timeout(CONFIRM_LIMIT, round).await, Ok(Ok(())))
    }

    /// Persists a longer window, once for all who wait for it.
    pub(crate) async fn extend(&self, term: u64) -> Result<()> {
        let _alone = self.extending.lock().await;
        let wanted = {
            let (leader, now) = self.clocks(term)?;
            leader.oracle.wanted(now)
        };
        if let Some(until_ms) = wanted {
            self.propose_in(term, Command::ExtendWindow { until_ms }).await?;
            self.leader_state(term)?.oracle.extended(until_ms);
        }
        Ok(())
    }
}
