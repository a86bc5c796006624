//! What placement's Raft group agrees on: nodes, numbers, regions, catalog, leases, time.
//!
//! Data and look-ups only. It reads no clock and holds nothing that only one leader knows: the
//! same commands give the same state on every node.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use types::{
    ClusterVersion, ColumnId, Epoch, Error, IndexId, LeaseId, NodeId, PeerRole, Region, RegionId,
    RegionKind, Result, TableId, Timestamp, key, version,
};

use crate::api::{
    Catalog, ForeignKeys, Grants, Hold, Known, Lease, Node, NodeRole, ResourceGroups, Runaways,
    SafePoint, User,
};

/// First number given to nodes, regions and peers: those below are for row nodes, whose numbers
/// stand in their configuration, and for placement's own region and peers.
pub const FIRST_ID: u64 = 1_000;

/// First number given to a table; those below stay free for tables of the system's own.
pub const FIRST_TABLE: TableId = 100;

/// Databases that exist in every cluster and hold no table of a user.
pub const BUILT_IN_DATABASES: [&str; 2] = ["information_schema", "mysql"];

/// How long versions stay readable without a lease unless set otherwise, in milliseconds.
pub const DEFAULT_LIFE_MS: u64 = 10 * 60 * 1_000;

/// Voters of a region, where there are as many row nodes.
pub const VOTERS: usize = 3;

/// A new region's epoch.
pub const INITIAL_EPOCH: Epoch = Epoch { version: 1, conf: 1 };

/// A region and which of its initial voters have not been seen yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionRecord {
    /// Descriptor as last reported by a leader, or as created.
    pub region: Region,
    /// Nodes that are still to create their initial voter. A node is struck off when it first
    /// reports the peer, and is never asked again: a peer that lost its disk must not come back
    /// under its old identity.
    pub uncreated: BTreeSet<NodeId>,
}

/// A region whose table or index was dropped, until every member is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Last known descriptor.
    pub region: Region,
    /// When it was dropped: snapshots before this may still read it.
    pub dropped: Timestamp,
}

/// What is kept of a recovery without a quorum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// Addresses of lost voters of placement's own group: who is there now is to be a member.
    pub seats: BTreeSet<String>,
    /// Regions with lower numbers that are not known were lost.
    pub below: RegionId,
}

/// Placement's replicated state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Known processes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The session of each that registered one.
    pub sessions: BTreeMap<NodeId, Known>,
    /// Nodes that will never come back, and which took the place of each; its own number where none has.
    pub gone: BTreeMap<NodeId, NodeId>,
    /// What the last recovery without a quorum has left to do.
    pub recovered: Recovered,
    /// Next number for a node, region or peer.
    pub next_id: u64,
    /// Next number for a table.
    pub next_table: TableId,
    /// Live regions.
    pub regions: BTreeMap<RegionId, RegionRecord>,
    /// Dropped regions that some node may still hold.
    pub tombstones: BTreeMap<RegionId, Tombstone>,
    /// Names.
    pub catalog: Catalog,
    /// Highest column and index numbers that each table ever used: stored rows and keys carry them.
    pub used_numbers: BTreeMap<TableId, (ColumnId, IndexId)>,
    /// Last AUTO_INCREMENT number taken, by table.
    pub auto_increment: BTreeMap<TableId, u64>,
    /// Leases, expired ones included until a command removes them.
    pub leases: BTreeMap<LeaseId, Lease>,
    /// Next number for a lease.
    pub next_lease: LeaseId,
    /// Advisory locks that sessions hold, by name.
    pub locks: BTreeMap<String, Hold>,
    /// How far back anybody can ask.
    pub safe_point: SafePoint,
    /// How long versions stay readable without a lease, in milliseconds.
    pub life_ms: u64,
    /// Key that signs tokens and tickets; empty until the first leader made one.
    pub signing_key: Vec<u8>,
    /// Every timestamp handed out lies before this Unix millisecond.
    pub high_water_ms: u64,
    /// Watched queries and runaways. They stand behind the state where it is stored, and only from version 8 on.
    #[serde(skip)]
    pub runaways: Runaways,
    /// What all of its nodes speak. Stands behind the state where it is stored, and only from version 2 on.
    #[serde(skip, default = "first_version")]
    pub version: ClusterVersion,
}

fn first_version() -> ClusterVersion {
    version::MINIMUM
}

impl State {
    /// The state of a new cluster: `root` without a password from this machine only.
    pub fn new() -> Self {
        let root = |host: &str| User {
            name: "root".into(),
            host: host.into(),
            credentials: Vec::new(),
            grants: Grants::everything(),
        };
        State {
            nodes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            gone: BTreeMap::new(),
            recovered: Recovered::default(),
            next_id: FIRST_ID,
            next_table: FIRST_TABLE,
            regions: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            catalog: Catalog {
                version: 1,
                databases: BUILT_IN_DATABASES.map(String::from).to_vec(),
                tables: Vec::new(),
                created: BTreeMap::new(),
                importing: BTreeMap::new(),
                users: vec![root("127.0.0.1"), root("localhost")],
                globals: BTreeMap::new(),
                views: Vec::new(),
                complete_columns: BTreeSet::new(),
                resources: ResourceGroups::default(),
                foreign_keys: ForeignKeys::default(),
            },
            used_numbers: BTreeMap::new(),
            auto_increment: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: 1,
            locks: BTreeMap::new(),
            safe_point: SafePoint::default(),
            life_ms: DEFAULT_LIFE_MS,
            signing_key: Vec::new(),
            high_water_ms: 0,
            runaways: Runaways::default(),
            version: first_version(),
        }
    }

    /// Takes `count` consecutive numbers from the space of nodes, regions and peers.
    pub fn take_ids(&mut self, count: u64) -> Result<u64> {
        let first = self.next_id;
        self.next_id = first
            .checked_add(count)
            .ok_or_else(|| Error::Invalid("no numbers are left for nodes and regions".into()))?;
        Ok(first)
    }

    /// Whether a node is known as a row node.
    pub fn is_row(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.role == NodeRole::Row)
    }

    /// The live region whose range holds the key. While a split is being reported, both halves may
    /// hold it: the younger shape is right.
    pub fn locate(&self, key: &[u8]) -> Option<&RegionRecord> {
        self.regions
            .values()
            .filter(|record| record.region.contains(key))
            .max_by_key(|record| record.region.epoch.version)
    }

    /// The dropped region whose range holds the key, as long as it exists.
    pub fn locate_dropped(&self, key: &[u8]) -> Option<&Region> {
        self.tombstones
            .values()
            .map(|tombstone| &tombstone.region)
            .filter(|region| region.contains(key))
            .max_by_key(|region| region.epoch.version)
    }

    /// The live regions that hold keys of a kind, in key order, provided that they cover the kind's whole
    /// range without gap or overlap; none while a split has been reported by one half only.
    pub fn tiling(&self, kind: RegionKind) -> Option<Vec<&RegionRecord>> {
        let mut found: Vec<&RegionRecord> =
            self.regions.values().filter(|record| record.region.holds(kind)).collect();
        found.sort_by(|a, b| a.region.start.cmp(&b.region.start));
        tiles(kind, found.iter().map(|record| &record.region)).then_some(found)
    }

    /// The dropped regions with keys of a kind that somebody may still read, in key order; whether they
    /// cover the kind's whole range is for [`tiles`] to say.
    pub fn readable_tombstones(&self, kind: RegionKind) -> Vec<&Region> {
        let readable = |tombstone: &&Tombstone| self.is_readable(tombstone.dropped);
        let tombstones = self.tombstones.values().filter(|tombstone| tombstone.region.holds(kind));
        let mut found: Vec<&Region> =
            tombstones.filter(readable).map(|tombstone| &tombstone.region).collect();
        found.sort_by(|a, b| a.start.cmp(&b.start));
        found
    }

    /// Whether somebody may still read what was dropped then.
    pub fn is_readable(&self, dropped: Timestamp) -> bool {
        self.safe_point.floor <= dropped
    }

    /// Whether the live regions cover every range that they lie in, without gap or overlap.
    pub fn is_tiled(&self) -> bool {
        let mut regions: Vec<&Region> =
            self.regions.values().map(|record| &record.region).collect();
        regions.sort_by(|a, b| a.start.cmp(&b.start));
        regions.chunk_by(|a, b| a.kind == b.kind).all(|tiles| {
            let joined = tiles.windows(2).all(|pair| pair[0].end == pair[1].start);
            let ends = tiles.first().zip(tiles.last());
            let found = ends.map(|(first, last)| (first.start.clone(), last.end.clone()));
            joined && found == tiles.first().and_then(|region| key::range(region.kind))
        })
    }

    /// Whether a region of this number was lost with those who knew of it.
    pub fn is_lost(&self, region: RegionId) -> bool {
        let known = self.regions.contains_key(&region) || self.tombstones.contains_key(&region);
        region < self.recovered.below && !known
    }

    /// Whether a table's indexes and records began in one region: its indexes have none of their own then.
    pub fn is_shared(&self, table: TableId) -> bool {
        self.regions.values().any(|record| record.region.kind == RegionKind::Table(table))
    }

    /// Whether the catalog still has what a region's keys belong to.
    pub fn is_live(&self, kind: RegionKind) -> bool {
        let table = |id| self.catalog.tables.iter().find(|table| table.id == id);
        match kind {
            RegionKind::Placement => true,
            RegionKind::Records(id) | RegionKind::Table(id) => table(id).is_some(),
            RegionKind::Index(id, index) => {
                table(id).is_some_and(|table| table.indexes.iter().any(|listed| listed.id == index))
            }
        }
    }

    /// How many voters of live regions each row node holds; nodes without any are listed too.
    pub fn voter_loads(&self) -> BTreeMap<NodeId, usize> {
        let rows = self.nodes.values().filter(|node| node.role == NodeRole::Row);
        let mut loads: BTreeMap<NodeId, usize> = rows.map(|node| (node.id, 0)).collect();
        for record in self.regions.values() {
            for peer in record.region.peers.iter().filter(|peer| peer.role == PeerRole::Voter) {
                *loads.entry(peer.node).or_default() += 1;
            }
        }
        loads
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a descriptor says more than the known one: both parts of an epoch only ever rise.
pub fn is_newer(region: &Region, known: &Region) -> bool {
    region.epoch.version >= known.epoch.version
        && region.epoch.conf >= known.epoch.conf
        && region.epoch != known.epoch
}

/// Whether regions in key order cover a kind's whole range without gap or overlap. The first and the
/// last may reach beyond it.
pub fn tiles<'a>(kind: RegionKind, regions: impl Iterator<Item = &'a Region>) -> bool {
    let Some((start, end)) = key::range(kind) else { return false };
    let mut at: Option<&[u8]> = None;
    for region in regions {
        let joined = match at {
            None => region.start <= start,
            Some(at) => region.start == at,
        };
        if !joined {
            return false;
        }
        at = Some(&region.end);
    }
    at.is_some_and(|at| at >= end.as_slice())
}
