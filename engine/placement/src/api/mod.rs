//! What is asked of placement's leader, and what it answers; and the cluster's state as data.
//!
//! Plain data: `rpc` carries it, `service` answers it, `client` asks it.

use raft::Groups;
use resources::{Grant, Processors, Use};
use serde::{Deserialize, Serialize};
use types::calibration::Calibration;
use types::query_watch::{QueryWatch, Runaway};
use types::{
    ClusterVersion, Error, LeaseId, NodeId, Peer, PeerId, Region, RegionId, RegionKind, ReplicaLag,
    Result, Table, TableId, Timestamp,
};

mod catalog;
mod foreign_keys;
mod locks;
mod resource_groups;
mod runaways;
mod session;
mod users;

pub use catalog::{Catalog, CatalogChange, Import, Renamed, StoredView, next_index_id};
pub use foreign_keys::{ForeignKeys, Found, KeyChange};
pub use locks::{Freed, Hold, LockAnswer, LockRequest};
pub use resource_groups::{GroupChange, ResourceGroups};
pub use runaways::Runaways;
pub use session::{Known, Session};
pub use users::{GrantChange, Grants, Level, User};

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeRole {
    /// Holds voters.
    Row,
    /// Answers MySQL clients.
    Sql,
    /// Holds learners and answers Flight clients.
    Columnar,
}

impl NodeRole {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            NodeRole::Row => "row",
            NodeRole::Sql => "sql",
            NodeRole::Columnar => "columnar",
        }
    }
}

/// A process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Number.
    pub id: NodeId,
    /// What it is for.
    pub role: NodeRole,
    /// Internal RPC address, `host:port`.
    pub rpc_address: String,
    /// What clients connect to: MySQL for SQL nodes and row nodes that answer MySQL clients, Flight for columnar nodes,
    /// else empty.
    pub client_address: String,
}

impl Node {
    /// Whether it has clients who may read at timestamps that it reports. Of the roles only row nodes may have none.
    pub fn has_clients(&self) -> bool {
        self.role != NodeRole::Row || !self.client_address.is_empty()
    }
}

/// By what settings nodes go: names and values.
pub type NodeSettings = Vec<(NodeId, Vec<(String, String)>)>;

/// A node and the time since its last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: Node,
    /// Milliseconds since its last heartbeat, by the leader's monotonic clock; `None` if not yet
    /// received by this leader.
    pub silent_ms: Option<u64>,
    /// What it last reported.
    pub report: NodeReport,
}

/// What a node says of itself with each heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Free bytes on its file system.
    pub disk_free: u64,
    /// Faults that need a person, one line each.
    pub faults: Vec<String>,
    /// Start of the oldest transaction that reads or writes through it.
    pub oldest_start: Option<Timestamp>,
    /// Row nodes: their clock, in Unix milliseconds. Timestamps follow the clocks of a majority of
    /// placement's voters.
    pub clock_ms: Option<u64>,
    /// The largest timestamp that placement gave it since it started, and the term of the leader who
    /// gave it. The client fills it in.
    pub newest: Option<(Timestamp, u64)>,
    /// Row nodes: the largest timestamp in what their regions have applied since they started.
    pub newest_applied: Option<Timestamp>,
    /// The process's session; the client fills it in.
    pub session: Option<u64>,
    /// The session's last mark that is on its disk.
    pub mark: u64,
    /// Whether its Raft log was set aside as damaged: peers that it does not report any more are lost.
    pub begun_anew: bool,
}

/// Timestamps and the clocks that they follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeStatus {
    /// Every timestamp handed out lies before this Unix millisecond.
    pub high_water_ms: u64,
    /// How far timestamps lie ahead of the clocks of a majority, in milliseconds; none while the
    /// leader knows fewer.
    pub ahead_ms: Option<u64>,
    /// By how many milliseconds the clock of each of placement's voters is ahead of the median, or
    /// behind.
    pub clocks: Vec<(NodeId, i64)>,
    /// Why placement's leader has stopped, if it has: a node has seen a timestamp that its log knows
    /// nothing of.
    pub damage: Option<String>,
}

/// How far back anybody can ask. Only ever rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SafePoint {
    /// Oldest timestamp that can be read; no lease and no living transaction is older.
    pub floor: Timestamp,
    /// No transaction that began before it holds a key of a region that existed then.
    pub settled: Timestamp,
    /// Regions that existed then have lower numbers. Others may not go by `settled` yet: they were
    /// not asked.
    pub settled_below: RegionId,
}

impl SafePoint {
    /// What a region may take for settled.
    pub fn settled_for(&self, region: RegionId) -> Timestamp {
        if region < self.settled_below { self.settled } else { Timestamp::ZERO }
    }
}

/// The state of garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Garbage {
    /// How far back anybody can ask.
    pub safe_point: SafePoint,
    /// How long versions stay readable without a lease, in milliseconds.
    pub life_ms: u64,
    /// Bytes of superseded versions that row nodes still hold, about: one replica of each region.
    pub history_bytes: u64,
}

/// What a peer says of its region with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The region as this peer knows it.
    pub region: Region,
    /// The peer's number: what one says of itself does not hold for its successor on the same node.
    pub peer: PeerId,
    /// Whether this peer leads it.
    pub leader: bool,
    /// Raft term.
    pub term: u64,
    /// Applied index.
    pub applied: u64,
    /// Commit index as far as the peer knows.
    pub committed: u64,
    /// Bytes of live data, about (leaders and learners).
    pub bytes: u64,
    /// Live rows, about (leaders and learners).
    pub rows: u64,
    /// Whether it holds data, that is, does not wait for a snapshot.
    pub ready: bool,
    /// Whether what it holds is damaged or it cannot go on: it answers nothing and is to be made anew.
    pub damaged: bool,
    /// For learners that hold columns: how far they are behind.
    pub lag: Option<ReplicaLag>,
    /// Row nodes: oldest timestamp that the region can be read at. Older transactions hold no key
    /// of it.
    pub floor: Timestamp,
    /// Row nodes: bytes of superseded versions, as of the last walk over them.
    pub history_bytes: u64,
}

/// What placement wants a region's leader or a node to do; repeated until the reports show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Create a initial voter.
    Create(Region),
    /// Forget a region that no longer exists or that this node is no longer a member of, unless its peer here
    /// knows other members by now: then it may be a new one.
    Destroy {
        /// Which.
        region: RegionId,
        /// Membership's part of the epoch that the peer reported.
        conf: u64,
    },
    /// Leader: change membership to these peers (one change at a time), unless it has changed since the
    /// epoch that the order rests on.
    Membership {
        /// Which.
        region: RegionId,
        /// Membership's part of the epoch that placement knows.
        conf: u64,
        /// Members as they shall be.
        peers: Vec<Peer>,
    },
    /// Leader: hand leadership to this peer.
    Transfer(RegionId, PeerId),
    /// Leader: cut the region by size; ask `AllocIds` for numbers first.
    Split(RegionId),
}

impl Order {
    /// The region that it is about.
    pub fn region(&self) -> RegionId {
        match self {
            Order::Create(region) => region.id,
            Order::Destroy { region, .. }
            | Order::Membership { region, .. }
            | Order::Transfer(region, _)
            | Order::Split(region) => *region,
        }
    }

    /// Refuses what rests on other members than the peer here knows: it was on its way while they changed.
    ///
    /// # Errors
    /// `Dropped`: placement gives another order if one is still due.
    pub fn check(&self, groups: &dyn Groups) -> Result<()> {
        let (Order::Destroy { region, conf } | Order::Membership { region, conf, .. }) = self
        else {
            return Ok(());
        };
        match groups.status(*region) {
            Some(status) if status.region.epoch.conf != *conf => Err(Error::Dropped(format!(
                "the members of region {region} have changed since the order was given"
            ))),
            _ => Ok(()),
        }
    }
}

/// A region, as last reported, and where its leader is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Descriptor.
    pub region: Region,
    /// Node of the leader, where known.
    pub leader: Option<NodeId>,
    /// Nodes of learners that hold data.
    pub ready_learners: Vec<NodeId>,
    /// Rows, about.
    pub rows: u64,
    /// Bytes, about.
    pub bytes: u64,
}

/// A snapshot lease: holds garbage collection back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Number.
    pub id: LeaseId,
    /// Snapshot that stays readable.
    pub ts: Timestamp,
    /// Who took it.
    pub owner: String,
    /// Unix milliseconds when it was taken.
    pub taken_ms: u64,
    /// Unix milliseconds when it ends.
    pub expires_ms: u64,
}

/// A request to placement's leader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Consecutive timestamps, greater than all handed out before by any leader.
    Timestamps {
        /// How many, at least 1.
        count: u32,
    },
    /// Consecutive numbers for nodes, regions and peers (one space, never reused).
    Ids {
        /// How many.
        count: u32,
    },
    /// Makes a node known, or updates its addresses.
    Register {
        /// The node.
        node: Node,
        /// Its process.
        session: Session,
    },
    /// A node's regular sign of life.
    Heartbeat {
        /// Which.
        node: NodeId,
        /// Of itself.
        report: NodeReport,
        /// Of its peers.
        peers: Vec<PeerReport>,
    },
    /// The catalog, unless the caller's version is current.
    Catalog {
        /// Version that the caller holds; 0 for none.
        known: u64,
    },
    /// Changes the catalog.
    Change(CatalogChange),
    /// The region of a key.
    Locate {
        /// The key.
        key: Vec<u8>,
    },
    /// The regions of a kind, in key order.
    Regions {
        /// Which keys.
        kind: RegionKind,
    },
    /// Every region, every node.
    Status,
    /// Consecutive AUTO_INCREMENT numbers of a table, above `above`.
    AutoIncrement {
        /// Table.
        table: TableId,
        /// How many, 0 to only raise the counter.
        count: u64,
        /// Numbers up to this are taken.
        above: u64,
    },
    /// Takes a lease at a snapshot, at the present timestamp if none is named.
    TakeLease {
        /// Snapshot.
        ts: Option<Timestamp>,
        /// Milliseconds until it ends unless renewed.
        ttl_ms: u64,
        /// Who takes it.
        owner: String,
    },
    /// Prolongs a lease from now on.
    RenewLease {
        /// Which.
        lease: LeaseId,
        /// Milliseconds.
        ttl_ms: u64,
    },
    /// Ends a lease.
    ReleaseLease {
        /// Which.
        lease: LeaseId,
    },
    /// Leases that live.
    Leases,
    /// The key that signs tokens and tickets.
    SigningKey,
    /// A transaction waits for another one to give up a key; repeated while that lasts.
    Wait {
        /// Who waits.
        waiter: Timestamp,
        /// For whom.
        holder: Timestamp,
        /// For what.
        key: Vec<u8>,
    },
    /// It waits for the key no longer.
    WaitEnded {
        /// Who waited.
        waiter: Timestamp,
        /// For what.
        key: Vec<u8>,
    },
    /// Sets how long versions stay readable without a lease, in milliseconds.
    SetLife(u64),
    /// Is about advisory locks.
    Advisory(LockRequest),
    /// The regions of a table that was dropped, in key order, as long as somebody may still read
    /// it at an older timestamp.
    DroppedRegions {
        /// Which keys.
        kind: RegionKind,
    },
    /// Who leads placement, as the node that is asked knows it; every member answers, at once.
    Leader,
    /// The cluster's version, and what each node speaks.
    Versions,
    /// What a row node's own clients have asked lately.
    Asked {
        /// Who asks.
        node: NodeId,
        /// Requests by region since its last report.
        regions: Vec<(RegionId, u64)>,
    },
    /// To a member of placement that need not lead: as [`Request::Timestamps`], which it asks the leader for, for all who
    /// ask it meanwhile.
    TimestampsByProxy {
        /// How many, at least 1.
        count: u32,
    },
    /// What a process has used of resource groups, and what it may use from now on.
    Shares {
        /// Its node.
        node: NodeId,
        /// By groups.
        uses: Vec<Use>,
    },
    /// What resource groups have used since the leader's term began.
    UnitsUsed,
    /// Watched queries, unless the caller knows them as of this version.
    Watches(u64),
    /// Watches queries.
    Watch(QueryWatch),
    /// Ends a watch.
    Unwatch(u64),
    /// Keeps runaways that were met.
    NoteRunaways(Vec<Runaway>),
    /// The last runaways.
    Runaways,
    /// What a process has of processors, and has used of them.
    Processors {
        /// Its node.
        node: NodeId,
        /// What it says.
        processors: Processors,
    },
    /// How many request units a second the cluster carries.
    Calibrate(Calibration),
    /// By what settings a node goes.
    NoteSettings {
        /// Which.
        node: NodeId,
        /// Names and values.
        settings: Vec<(String, String)>,
    },
    /// By what settings all nodes go, as far as they have said so to this leader.
    NodeSettings,
}

impl Request {
    /// The node that sends it, where it says which.
    pub fn sender(&self) -> Option<NodeId> {
        match self {
            Request::Register { node, .. } => Some(node.id),
            Request::Heartbeat { node, .. } => Some(*node),
            _ => None,
        }
    }
}

/// Placement's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// First of the timestamps; and the catalog's version, so that a transaction learns at its
    /// start whether its schema is current.
    Timestamps {
        /// First.
        first: Timestamp,
        /// Version of the catalog.
        catalog: u64,
        /// Term of the leader who gives them.
        term: u64,
    },
    /// First of the numbers.
    Ids(u64),
    /// What to do, and the catalog's version.
    Orders {
        /// Orders.
        orders: Vec<Order>,
        /// Version of the catalog.
        catalog: u64,
        /// Every node, for addresses.
        nodes: Vec<Node>,
        /// What may be collected.
        safe_point: SafePoint,
    },
    /// The catalog, or none if the caller's is current.
    Catalog(Option<Box<Catalog>>),
    /// The table as changed, where one was.
    Changed {
        /// Version of the catalog from now on.
        catalog: u64,
        /// The table.
        table: Option<Box<Table>>,
    },
    /// Regions.
    Routes(Vec<Route>),
    /// The cluster's status.
    Status {
        /// Nodes.
        nodes: Vec<NodeStatus>,
        /// Regions.
        routes: Vec<Route>,
        /// Newest report of each peer.
        peers: Vec<(NodeId, PeerReport)>,
        /// Node that leads placement.
        leader: NodeId,
        /// Garbage collection.
        garbage: Garbage,
        /// Timestamps and clocks.
        time: TimeStatus,
    },
    /// First of the numbers.
    AutoIncrement(u64),
    /// A lease.
    Lease(Lease),
    /// Leases.
    Leases(Vec<Lease>),
    /// A key.
    SigningKey(Vec<u8>),
    /// The transactions that wait for one another in a circle, the one asked about first; empty
    /// without one.
    Circle(Vec<Timestamp>),
    /// Done.
    Done,
    /// It did not work; [`Error::NotLeader`] of region 1 names the leader.
    Failed(Error),
    /// Of an advisory lock.
    Advisory(LockAnswer),
    /// Who leads placement, as far as this node knows: a hint, confirmed by nobody.
    Leader {
        /// The leader's node.
        leader: Option<NodeId>,
        /// In which term.
        term: u64,
    },
    /// Versions.
    Versions {
        /// The cluster's.
        cluster: ClusterVersion,
        /// What each node's program speaks; none before its first heartbeat to this leader.
        nodes: Vec<(NodeId, Option<ClusterVersion>)>,
    },
    /// As [`Response::Catalog`] of one that is newer, to programs that know of resource groups.
    CatalogWithGroups(Box<Catalog>, Box<ResourceGroups>),
    /// What a process may use of resource groups, of those that are there.
    Shares(Vec<Grant>),
    /// Names of groups, and millionths of units.
    UnitsUsed(Vec<(String, u64)>),
    /// Watched queries and their version, or none if the caller knows them.
    Watches(Option<(u64, Vec<QueryWatch>)>),
    /// The last runaways.
    Runaways(Vec<Runaway>),
    /// Request units a second.
    Quota(u64),
    /// By nodes, names and values.
    NodeSettings(NodeSettings),
    /// As [`Response::CatalogWithGroups`], to programs that know of foreign keys.
    CatalogWithKeys(Box<Catalog>, Box<(ResourceGroups, ForeignKeys)>),
}
