//! What nodes do in the background: raise floors, remove old versions, flush and merge columns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ::columnar::ColumnarStore;
use placement::PlacementClient;
use raft::Groups;
use tokio::time::{sleep, timeout};
use txn::{Floors, RowStore, Sweep, TxnClient, TxnService};
use types::{Error, RegionId, RegionKind, Result};

use crate::process::Process;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// Pause between steps of a walk, and between steps of maintenance.
const STEP_PAUSE: Duration = Duration::from_millis(2);
/// Keys that one step of a walk looks at: few, so that much can happen between two.
const STEP_KEYS: usize = 16;
/// How long one region may take.
const REGION_TIMEOUT: Duration = Duration::from_secs(5);
/// Older locks that are resolved together.
const LOCKS: usize = 1_024;
/// Pause of a columnar node that has nothing to do.
const IDLE: Duration = Duration::from_millis(200);

/// Raises floors of the regions that a node leads.
pub(crate) struct Collector {
    pub placement: PlacementClient,
    pub groups: Arc<dyn Groups>,
    pub service: Arc<TxnService>,
    pub client: TxnClient,
}

impl Collector {
    pub(crate) async fn run(self) {
        loop {
            sleep(PAUSE).await;
            for status in self.groups.statuses() {
                let region = status.region.id;
                if status.decides && status.region.kind != RegionKind::Placement {
                    // What is not raised now is tried again.
                    let _ = timeout(REGION_TIMEOUT, self.raise(region)).await;
                }
            }
        }
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

/// Walks over every region whose floors have risen since its last walk.
pub(crate) async fn sweep(rows: Arc<RowStore>, process: Arc<Process>) {
    let mut walked: BTreeMap<RegionId, (Floors, u64)> = BTreeMap::new();
    loop {
        let mut present = BTreeMap::new();
        for view in rows.regions() {
            let id = view.region.id;
            let wanted = (view.floors, view.region.epoch.version);
            let known = walked.get(&id) == Some(&wanted);
            if known || view.whole && walk(&rows, id, &process).await {
                present.insert(id, wanted);
            }
        }
        walked = present;
        sleep(PAUSE).await;
    }
}

async fn walk(rows: &RowStore, region: RegionId, process: &Process) -> bool {
    let Some(sweep) = Sweep::new(rows, region) else { return false };
    let mut sweep = sweep.step_keys(STEP_KEYS);
    loop {
        process.running().await;
        match rows.sweep(&mut sweep) {
            Ok(true) => sleep(STEP_PAUSE).await,
            Ok(false) => return true,
            Err(_) => return false,
        }
    }
}

/// Flushes and merges columns.
pub(crate) async fn maintain(
    columns: ColumnarStore,
    placement: PlacementClient,
    process: Arc<Process>,
) {
    loop {
        process.running().await;
        match columns.maintain(placement.safe_point().floor) {
            Ok(true) => sleep(STEP_PAUSE).await,
            Ok(false) => sleep(IDLE).await,
            Err(_) => sleep(10 * IDLE).await,
        }
    }
}
