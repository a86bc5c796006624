//! Garbage collection on a row node: raises the floors of the regions that it leads to placement's
//! safe point, and removes what lies below them from every replica that it holds.
//!
//! Both are background work: one region after the other, in small steps with pauses that are longer
//! than the steps, so that reads and writes find the disk and the processors mostly free.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use placement::PlacementClient;
use raft::Groups;
use tokio_util::sync::CancellationToken;
use txn::{Floors, RowStore, Sweep, TxnClient, TxnService};
use types::{Error, RegionId, RegionKind, Result};

/// Pause between two looks at the safe point and the regions.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one region may take; it may have lost its majority.
const REGION_TIMEOUT: Duration = Duration::from_secs(5);
/// Older locks that are resolved together.
const LOCKS: usize = 1_024;
/// A step of a walk is followed by a pause of so many times its length, and at least the shortest. Replicas walk at the same
/// time, over what is mostly too young to go; a fifth of a processor in each was a burst in the online path's p95. So a walk
/// takes its time at first: a quarter of that between two rises of the floor, and no longer, lest history grows.
const PAUSE_RATIO: u32 = 4;
const GENTLE_RATIO: u32 = 16;
const MOST_GENTLE: Duration = Duration::from_secs(15);
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);

/// Raises floors.
pub(crate) struct Collector {
    placement: PlacementClient,
    groups: Arc<dyn Groups>,
    service: Arc<TxnService>,
    rows: Arc<RowStore>,
    client: TxnClient,
}

impl Collector {
    pub(crate) fn new(
        placement: PlacementClient,
        groups: Arc<dyn Groups>,
        service: Arc<TxnService>,
        rows: Arc<RowStore>,
        client: TxnClient,
    ) -> Self {
        Collector { placement, groups, service, rows, client }
    }

    /// Goes on for as long as it is polled.
    pub(crate) async fn run(self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            for status in self.groups.statuses() {
                let region = status.region.id;
                if !status.decides || status.region.kind == RegionKind::Placement {
                    continue;
                }
                let raised = tokio::time::timeout(REGION_TIMEOUT, self.raise(region)).await;
                let raised = raised
                    .unwrap_or_else(|_| Err(Error::timeout("a region's floor", REGION_TIMEOUT)));
                if let Err(error) = raised {
                    tracing::debug!(region, %error, "floor not raised; tried again");
                }
            }
            if let Err(error) = self.describe().await {
                tracing::debug!(%error, "entries of dropped indexes stay; tried again");
            }
        }
    }

    /// Notes when this node had the newest descriptions of its tables: entries of indexes that they have no more go once
    /// nobody is left from before.
    async fn describe(&self) -> Result<()> {
        let news = self.rows.undescribed();
        if news.is_empty() {
            return Ok(());
        }
        let ts = self.client.timestamp().await?;
        news.into_iter()
            .for_each(|(region, version)| self.rows.note_described(region, version, ts));
        Ok(())
    }

    async fn raise(&self, region: RegionId) -> Result<()> {
        let point = self.placement.safe_point();
        let wanted = Floors { read: point.floor, settled: point.settled_for(region) };
        if self.service.floors(region).is_none_or(|known| known.max(wanted) == known) {
            return Ok(());
        }
        loop {
            let locks = self.service.older_locks(region, wanted.read, LOCKS);
            if locks.is_empty() {
                return self.service.collect(region, wanted).await;
            }
            let resolution = self.client.resolve(&locks, wanted.read).await?;
            if let Some((lock, _)) = resolution.alive {
                return Err(Error::Locked(Box::new(lock)));
            }
        }
    }
}

/// Walks over every region whose floors have risen since its last walk, until asked to stop.
pub(crate) fn sweep(rows: &RowStore, stop: &CancellationToken) {
    let mut walked: HashMap<RegionId, (Floors, u64)> = HashMap::new();
    while !stop.is_cancelled() {
        let mut present = HashMap::new();
        for view in rows.regions() {
            let id = view.region.id;
            let wanted = (view.floors, view.region.epoch.version);
            let before = walked.get(&id);
            let gentle = before.map_or(Duration::ZERO, |(floors, _)| gentle(*floors, view.floors));
            if before == Some(&wanted) || view.whole && walk(rows, id, gentle, stop) {
                present.insert(id, wanted);
            }
        }
        walked = present;
        std::thread::sleep(PAUSE);
    }
}

/// How long a walk takes its time.
fn gentle(walked: Floors, now: Floors) -> Duration {
    let risen = now.read.physical_ms().saturating_sub(walked.read.physical_ms());
    Duration::from_millis(risen / 4).min(MOST_GENTLE)
}

/// One walk over a region, which takes its time for so long; whether it came to its end.
fn walk(rows: &RowStore, region: RegionId, gentle: Duration, stop: &CancellationToken) -> bool {
    let Some(mut sweep) = Sweep::new(rows, region) else { return false };
    let hurries = Instant::now() + gentle;
    while !stop.is_cancelled() {
        let began = Instant::now();
        match rows.sweep(&mut sweep) {
            Ok(true) => {
                let ratio = if began < hurries { GENTLE_RATIO } else { PAUSE_RATIO };
                std::thread::sleep((began.elapsed() * ratio).max(SHORTEST_PAUSE));
            }
            Ok(false) => {
                let removed = sweep.removed();
                if removed > 0 {
                    tracing::debug!(region, removed, "old versions removed");
                }
                return true;
            }
            Err(error) => {
                tracing::warn!(region, %error, "old versions stay; tried again");
                return false;
            }
        }
    }
    false
}
