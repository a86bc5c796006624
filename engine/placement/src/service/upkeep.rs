//! What placement's leader does unasked: timestamps ahead of need, leases that ended, advisory locks of
//! silent sessions, dropped regions that are gone, what may be collected, and the schedule.
//!
//! Every round looks at everything again, so that one that failed is made good by the next.

use std::sync::Weak;
use std::time::Duration;

use env::Clock;
use tokio::time::timeout;
use types::{Error, Result};

use crate::command::{Command, Outcome};
use crate::safe_point;
use crate::scheduler;
use crate::service::PlacementService;

/// How often upkeep looks around unless something changes.
const UPKEEP: Duration = Duration::from_millis(500);

/// Least time between two rounds of upkeep: many changes at once are looked after once.
const PACE: Duration = Duration::from_millis(20);

impl PlacementService {
    /// What a leader does unasked: its first signing key, and what the file is about.
    async fn look_after(&self) -> Result<()> {
        let term = self.lead()?;
        if self.check_sound(term).is_err() {
            return Ok(());
        }
        if self.view.read().signing_key.is_empty() {
            self.signing_key().await?;
        }
        let in_use = {
            let (leader, now) = self.clocks(term)?;
            leader.oracle.in_use(now)
        };
        if in_use {
            self.extend(term).await?;
        }
        let (ended, purged) = {
            let (leader, now) = self.clocks(term)?;
            let state = self.view.read();
            let over = |now_ms: &u64| state.leases.values().any(|one| one.expires_ms <= *now_ms);
            (now.clock_ms.filter(over), leader.purgeable(&state))
        };
        if let Some(now_ms) = ended {
            self.propose_in(term, Command::ExpireLeases { now_ms }).await?;
        }
        if !purged.is_empty() {
            self.propose_in(term, Command::Purge(purged)).await?;
        }
        self.free_silent(term).await?;
        let complete = self.leader_state(term)?.newly_complete(&self.view.read());
        if !complete.is_empty() {
            self.propose_in(term, Command::NoteComplete(complete)).await?;
        }
        self.raise_version(term).await?;
        self.collect(term).await?;
        self.tend_own_group(term).await?;
        self.follow_clients(term)?;
        self.schedule(term).await
    }

    /// Raises the point below which old versions may go.
    async fn collect(&self, term: u64) -> Result<()> {
        let at = self.clock.now();
        let now_ms = {
            let (mut leader, now) = self.clocks(term)?;
            // No lease may end by anything else than the clocks of a majority.
            let Some(now_ms) = now.clock_ms else { return Ok(()) };
            let pace = safe_point::pace(self.view.read().life_ms);
            if leader.collected.is_some_and(|last| at.since(last) < pace) {
                return Ok(());
            }
            leader.collected = Some(at);
            now_ms
        };
        let now = self.allocate(term, 1).await?;
        let (known, point) = {
            let (leader, state) = (self.leader_state(term)?, self.view.read());
            (state.safe_point, leader.safe_point(&state, now, at))
        };
        match point {
            Some(point) if point.floor > known.floor || point.settled > known.settled => {
                self.propose_in(term, Command::Collect { point, now_ms }).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn schedule(&self, term: u64) -> Result<()> {
        let now = self.clock.now();
        let (moves, count) = {
            let mut leader = self.leader_state(term)?;
            let state = self.view.read();
            leader.settle(&state, now);
            let moves = scheduler::plan(&leader.cluster_view(&state, now));
            let count = leader.numbers_needed(&moves);
            (moves, count)
        };
        if moves.is_empty() {
            return Ok(());
        }
        let first = match count {
            0 => 0,
            count => match self.propose_in(term, Command::TakeIds { count }).await? {
                Outcome::First(first) => first,
                _ => return Ok(()),
            },
        };
        tracing::info!(?moves, "scheduled");
        let numbers = first..first + u64::from(count);
        self.leader_state(term)?.undertake(&self.view.read(), moves, numbers, now);
        self.view.announce();
        Ok(())
    }
}

/// Looks after placement until the service is gone.
pub(crate) async fn run(service: Weak<PlacementService>) {
    while let Some(strong) = service.upgrade() {
        let mut changes = strong.view.subscribe();
        if let Err(error) = strong.look_after().await
            && !matches!(error, Error::NotLeader { .. })
        {
            tracing::warn!(%error, "placement's upkeep failed and will be repeated");
        }
        drop(strong);
        tokio::time::sleep(PACE).await;
        let _ = timeout(UPKEEP, changes.changed()).await;
    }
}
