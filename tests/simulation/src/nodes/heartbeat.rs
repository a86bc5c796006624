//! A node's heartbeat: reports to placement what it holds, and carries out its orders.

use std::sync::Arc;
use std::time::Duration;

use ::columnar::ColumnarStore;
use env::{Clock, Disk, SimDisk};
use placement::PlacementClient;
use placement::api::{NodeReport, PeerReport};
use placement::identity::Identity;
use raft::{Groups, PeerStatus};
use tokio::time::{Instant, sleep};
use txn::RowStore;
use types::{Error, NodeId, PeerRole, RegionId, ReplicaLag, Result, Timestamp};

use super::orders::Orders;

/// Pause after a heartbeat that failed.
const RETRY: Duration = Duration::from_millis(200);
/// Least time between heartbeats.
const PACE: Duration = Duration::from_millis(50);
/// How often it is tried whether a disk that refused a write takes writes again.
const ROOM_EVERY: Duration = Duration::from_secs(5);
/// How often a mark is synced to the node's directories and reported.
const MARK_EVERY: Duration = Duration::from_secs(10);

/// What a node holds.
pub(crate) enum Holds {
    Rows(Arc<RowStore>),
    Columns(ColumnarStore),
}

impl Holds {
    fn sizes(&self, region: RegionId) -> (u64, u64, Option<ReplicaLag>) {
        match self {
            Holds::Rows(rows) => {
                let size = rows.region(region).map(|view| view.live_size()).unwrap_or_default();
                (size.rows, size.bytes, None)
            }
            Holds::Columns(columns) => {
                let Some(tablet) = columns.tablet(region) else { return (0, 0, None) };
                match tablet.snapshot_at(Timestamp::MAX, tablet.region().epoch) {
                    Ok(now) => (now.row_count_estimate(), now.bytes_estimate(), Some(tablet.lag())),
                    Err(_) => (0, 0, Some(tablet.lag())),
                }
            }
        }
    }

    fn history(&self, region: RegionId) -> (Timestamp, u64) {
        let Holds::Rows(rows) = self else { return (Timestamp::ZERO, 0) };
        let view = rows.region(region).filter(|view| view.whole);
        view.map_or((Timestamp::ZERO, 0), |view| (view.floors.read, view.history_bytes()))
    }

    fn newest_applied(&self) -> Option<Timestamp> {
        match self {
            Holds::Rows(rows) => rows.newest_timestamp(),
            Holds::Columns(_) => None,
        }
    }

    fn refuses_writes(&self) -> bool {
        match self {
            Holds::Rows(_) => false,
            Holds::Columns(columns) => columns.refuses_writes(),
        }
    }

    fn damaged(&self) -> Vec<(RegionId, String)> {
        match self {
            Holds::Rows(_) => Vec::new(),
            Holds::Columns(columns) => columns.needs_repair(),
        }
    }
}

/// The heartbeat loop of one node.
pub(crate) struct Heartbeat {
    pub node: NodeId,
    pub identity: Arc<Identity>,
    pub placement: PlacementClient,
    pub groups: Arc<dyn Groups>,
    pub holds: Holds,
    pub disk: SimDisk,
    pub clock: Arc<dyn Clock>,
    pub orders: Orders,
}

impl Heartbeat {
    /// Sends heartbeats until another process runs this node.
    pub(crate) async fn run(self) -> Result<()> {
        let mut mark = (Instant::now(), 0);
        let mut tried = Instant::now();
        loop {
            if self.holds.refuses_writes() && tried.elapsed() >= ROOM_EVERY {
                if self.has_room() {
                    return Err(Error::Unavailable("the disk takes writes again".into()));
                }
                tried = Instant::now();
            }
            if mark.0.elapsed() >= MARK_EVERY {
                // A full disk must not end the node: the last mark stands.
                mark = (Instant::now(), self.identity.mark().unwrap_or(0));
            }
            let (report, peers) = self.report();
            let report = NodeReport { mark: mark.1, ..report };
            match self.placement.heartbeat(self.node, report, peers).await {
                Ok(orders) => {
                    orders.into_iter().for_each(|order| self.orders.carry_out(order));
                    sleep(PACE).await;
                }
                Err(error @ Error::Revoked(_)) => return Err(error),
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn has_room(&self) -> bool {
        let path = std::path::Path::new("/data/room");
        let written = self.disk.create(path).and_then(|file| {
            file.write_at(&[0xaa; 4096], 0)?;
            file.sync()
        });
        self.disk.remove(path).and(written).is_ok()
    }

    fn report(&self) -> (NodeReport, Vec<PeerReport>) {
        let statuses = self.groups.statuses();
        if let Some(txn) = &self.orders.txn {
            txn.note_led(&statuses);
        }
        let damaged = self.holds.damaged();
        let stopped = statuses.iter().filter_map(|status| {
            let fault = status.fault.as_ref()?;
            Some(format!("region {}: {fault}", status.region.id))
        });
        let faults = damaged.iter().map(|(region, what)| format!("region {region}: {what}"));
        let report = NodeReport {
            disk_free: self.disk.free_bytes(std::path::Path::new("/")).unwrap_or_default(),
            faults: faults.chain(stopped).collect(),
            clock_ms: Some(self.clock.unix_millis()),
            newest_applied: self.holds.newest_applied(),
            ..NodeReport::default()
        };
        let broken = |id| damaged.iter().any(|(region, _)| *region == id);
        let peers = statuses.into_iter().map(|status| {
            let broken = broken(status.region.id);
            self.peer_report(status, broken)
        });
        (report, peers.collect())
    }

    fn peer_report(&self, status: PeerStatus, broken: bool) -> PeerReport {
        let (rows, bytes, lag) = self.holds.sizes(status.region.id);
        let avoided = status.peer.role == PeerRole::Voter && self.groups.has_slow_disk();
        let (floor, history_bytes) = self.holds.history(status.region.id);
        PeerReport {
            leader: status.decides,
            term: status.term,
            applied: status.applied.index,
            committed: status.committed,
            ready: status.ready && status.fault.is_none() && !broken && !avoided,
            damaged: broken || status.lost,
            peer: status.peer.id,
            region: Arc::unwrap_or_clone(status.region),
            rows,
            bytes,
            lag,
            floor,
            history_bytes,
        }
    }
}
