//! A node's heartbeat: reports to placement what it holds, and carries out its orders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use columnar::ColumnarStore;
use kv::FjallKv;
use placement::api::{NodeReport, PeerReport};
use placement::client::PlacementClient;
use placement::identity::Identity;
use raft::{Groups, PeerStatus};
use txn::{RowStore, TxnClient, TxnService};
use types::{Error, NodeId, PeerRole, RegionId, ReplicaLag, Timestamp, version};

use crate::addresses::Addresses;
use crate::orders::Orders;
use crate::{Common, StoreEnded, restarts};
use placement::entry::Me;

/// Pause after a heartbeat that failed.
const RETRY: Duration = Duration::from_millis(200);
/// Least time between heartbeats; placement holds one back while there is nothing to order.
const PACE: Duration = Duration::from_millis(50);

/// How often it is tried whether a disk that refused a write takes writes again.
const ROOM_EVERY: Duration = Duration::from_secs(5);
/// Twice as long before the first try after each restart in a row, but so many times at most: a disk may
/// take the file that is tried, and still not what the store asks for.
const ROOM_DOUBLINGS: u32 = 6;
/// Bytes that must find room then: what a node writes within seconds.
const ROOM: usize = 8 << 20;

/// How often it is reported what this process's own clients ask.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// How often a mark is synced to this node's directories and reported.
const MARK_EVERY: Duration = Duration::from_secs(10);

/// How much a node's peers hold, by its role.
pub(crate) trait Sizes: Send + Sync {
    /// Rows and bytes of a region, about, and a learner's lag.
    fn of(&self, region: RegionId) -> (u64, u64, Option<ReplicaLag>);

    /// Oldest timestamp that a region of row nodes can be read at, and the bytes of its superseded
    /// versions.
    fn history(&self, _region: RegionId) -> (Timestamp, u64) {
        (Timestamp::ZERO, 0)
    }

    /// The largest timestamp in what row nodes have applied.
    fn newest_applied(&self) -> Option<Timestamp> {
        None
    }

    /// Bytes on disk.
    fn disk_bytes(&self) -> u64;

    /// Regions whose stored columns are damaged, and how.
    fn damaged(&self) -> Vec<(RegionId, String)> {
        Vec::new()
    }

    /// What is damaged of a store that no region of this node can go on with.
    fn store_damage(&self) -> Option<String> {
        None
    }

    /// Whether the store takes no more writes in this process.
    fn refuses_writes(&self) -> bool {
        false
    }
}

/// Sizes of a row node.
pub(crate) struct RowSizes {
    pub rows: Arc<RowStore>,
    pub kv: Arc<FjallKv>,
}

impl Sizes for RowSizes {
    fn of(&self, region: RegionId) -> (u64, u64, Option<ReplicaLag>) {
        let size = self.rows.region(region).map(|view| view.live_size()).unwrap_or_default();
        (size.rows, size.bytes, None)
    }

    fn history(&self, region: RegionId) -> (Timestamp, u64) {
        let view = self.rows.region(region).filter(|view| view.whole);
        view.map_or((Timestamp::ZERO, 0), |view| (view.floors.read, view.history_bytes()))
    }

    fn newest_applied(&self) -> Option<Timestamp> {
        self.rows.newest_timestamp()
    }

    fn disk_bytes(&self) -> u64 {
        self.rows.disk_bytes()
    }

    fn store_damage(&self) -> Option<String> {
        self.kv.damage()
    }

    fn refuses_writes(&self) -> bool {
        self.kv.refuses_writes()
    }
}

/// Sizes of a columnar node.
pub(crate) struct ColumnSizes(pub ColumnarStore);

impl Sizes for ColumnSizes {
    fn of(&self, region: RegionId) -> (u64, u64, Option<ReplicaLag>) {
        let Some(tablet) = self.0.tablet(region) else { return (0, 0, None) };
        let Ok(now) = tablet.snapshot_at(Timestamp::MAX, tablet.region().epoch) else {
            return (0, 0, Some(tablet.lag()));
        };
        (now.row_count_estimate(), now.bytes_estimate(), Some(tablet.lag()))
    }

    fn disk_bytes(&self) -> u64 {
        self.0.regions().into_iter().map(|region| self.of(region).1).sum()
    }

    fn damaged(&self) -> Vec<(RegionId, String)> {
        self.0.needs_repair()
    }

    fn refuses_writes(&self) -> bool {
        self.0.refuses_writes()
    }
}

/// The heartbeat loop of one node.
pub(crate) struct Heartbeat {
    node: NodeId,
    identity: Arc<Identity>,
    data_dir: std::path::PathBuf,
    disk: Arc<dyn env::Disk>,
    clock: Arc<dyn env::Clock>,
    placement: PlacementClient,
    addresses: Addresses,
    channels: rpc::Channels,
    groups: Arc<dyn Groups>,
    sizes: Box<dyn Sizes>,
    orders: Orders,
    /// Of a row node.
    txn: Option<Arc<TxnService>>,
    /// The transactions of this process's own clients.
    sessions: Option<TxnClient>,
}

impl Heartbeat {
    pub(crate) fn new(
        common: &Common,
        me: &Me,
        groups: Arc<dyn Groups>,
        txn: Option<Arc<TxnService>>,
        sizes: Box<dyn Sizes>,
    ) -> Self {
        Heartbeat {
            node: me.node,
            identity: me.identity.clone(),
            data_dir: common.config.data_dir.clone(),
            disk: common.disk.clone(),
            clock: common.clock.clone(),
            placement: common.placement.clone(),
            addresses: Addresses::open(
                common.disk.clone(),
                &common.config.data_dir,
                common.rpc.book().clone(),
            ),
            orders: Orders::new(
                groups.clone(),
                txn.clone(),
                common.placement.clone(),
                common.rpc.clone(),
            ),
            channels: common.channels.clone(),
            groups,
            txn,
            sizes,
            sessions: None,
        }
    }

    /// Reports the oldest of these transactions, too.
    pub(crate) fn with_sessions(self, sessions: Option<TxnClient>) -> Self {
        Heartbeat { sessions, ..self }
    }

    /// Sends heartbeats until another process runs this node.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let mut mark = (Instant::now(), 0);
        let mut asked_at = Instant::now();
        let mut room_at = Instant::now() + ROOM_EVERY * (1 << restarts().min(ROOM_DOUBLINGS));
        loop {
            if let Some(what) = self.sizes.store_damage() {
                return Err(StoreEnded::Damaged(what).into());
            }
            if self.sizes.refuses_writes() && Instant::now() >= room_at {
                if self.has_room().await {
                    return Err(StoreEnded::Refused.into());
                }
                room_at = Instant::now() + ROOM_EVERY;
            }
            if mark.0.elapsed() >= MARK_EVERY {
                mark = (Instant::now(), self.mark().await?);
            }
            let (report, peers) = self.report();
            let report = NodeReport { mark: mark.1, ..report };
            match self.placement.heartbeat(self.node, report, peers).await {
                Ok(orders) => {
                    self.addresses.note(self.placement.known_nodes());
                    orders.into_iter().for_each(|order| self.orders.carry_out(order));
                    if asked_at.elapsed() >= ASKED_EVERY {
                        asked_at = Instant::now();
                        self.report_asked().await;
                    }
                    tokio::time::sleep(PACE).await;
                }
                // Peers here must not go on beside those of another process.
                Err(error @ Error::Revoked(_)) => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(%error, "placement did not take this node's heartbeat");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Reports what this process's own clients have asked: leaders come to where they are asked.
    async fn report_asked(&self) {
        let Some(sessions) = &self.sessions else { return };
        let asked = sessions.take_asked();
        if asked.is_empty() || self.channels.version() < version::LEASES {
            return;
        }
        if let Err(error) = self.placement.asked(self.node, asked).await {
            tracing::debug!(%error, "placement did not take what was asked");
        }
    }

    /// Whether the disk of the data directory takes a file and syncs it.
    async fn has_room(&self) -> bool {
        let (disk, path) = (self.disk.clone(), self.data_dir.join("room"));
        let written = tokio::task::spawn_blocking(move || {
            let written = disk.create(&path).and_then(|file| {
                file.write_at(&vec![0xaa; ROOM], 0)?;
                file.sync()
            });
            // What is left of it is written over by the next one.
            disk.remove(&path).and(written)
        });
        matches!(written.await, Ok(Ok(())))
    }

    /// A new mark, synced: a directory that lacks it is an older copy of this one.
    async fn mark(&self) -> anyhow::Result<u64> {
        let identity = self.identity.clone();
        match tokio::task::spawn_blocking(move || identity.mark()).await? {
            Ok(mark) => Ok(mark),
            // A full disk must not end the node: the last mark stands.
            Err(error) => {
                tracing::warn!(%error, "no mark could be written");
                Ok(0)
            }
        }
    }

    fn report(&self) -> (NodeReport, Vec<PeerReport>) {
        let statuses = self.groups.statuses();
        if let Some(txn) = &self.txn {
            txn.note_led(&statuses);
        }
        let damaged = self.sizes.damaged();
        let stopped = statuses.iter().filter_map(|status| {
            let fault = status.fault.as_ref()?;
            Some(format!("region {}: {fault}", status.region.id))
        });
        let faults = damaged.iter().map(|(region, what)| format!("region {region}: {what}"));
        let slow = self.groups.has_slow_disk();
        let slow = slow.then(|| "its disk is slow: others lead its regions".to_owned());
        let report = NodeReport {
            disk_bytes: self.sizes.disk_bytes(),
            disk_free: self.disk.free_bytes(&self.data_dir).unwrap_or_default(),
            faults: slow.into_iter().chain(faults).chain(stopped).collect(),
            clock_ms: Some(self.clock.unix_millis()),
            newest_applied: self.sizes.newest_applied(),
            oldest_start: self.sessions.as_ref().and_then(TxnClient::oldest_start),
            begun_anew: self.groups.begun_anew(),
            ..NodeReport::default()
        };
        let peers = statuses
            .into_iter()
            .map(|status| {
                let broken = damaged.iter().any(|(region, _)| *region == status.region.id);
                self.peer_report(status, broken)
            })
            .collect();
        (report, peers)
    }

    fn peer_report(&self, status: PeerStatus, broken: bool) -> PeerReport {
        let (rows, bytes, lag) = self.sizes.of(status.region.id);
        // It follows as well as it can, and leads badly.
        let avoided = status.peer.role == PeerRole::Voter && self.groups.has_slow_disk();
        let (floor, history_bytes) = self.sizes.history(status.region.id);
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
