//! What placement's state becomes where its group goes on without a quorum.
//!
//! Pure, and a command like any other: it is in the log of the one who goes on. What was lost may have
//! given numbers, names and timestamps that no survivor knows of, so everything goes on far above what
//! survivors hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use raft::FAR;
use serde::{Deserialize, Serialize};
use types::{
    ColumnType, Index, IndexId, IndexState, IntWidth, NodeId, Peer, PeerRole, Region, RegionKind,
    Result, Table, TableId, Timestamp, key, version,
};

use crate::api::NodeRole;
use crate::catalog::kinds_of;
use crate::state::{INITIAL_EPOCH, RegionRecord, State, Tombstone};

/// How far timestamps go on above everything that survivors hold, in milliseconds: a quarter of an hour.
pub const MARGIN_MS: u64 = 1 << 20;

/// How far a table's description goes on above those that survivors know.
const VERSIONS: u32 = 1 << 10;

/// What goes on of a cluster that has lost a quorum.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Survivors {
    /// Row nodes that go on.
    pub nodes: BTreeSet<NodeId>,
    /// The one of them that goes on with placement's group.
    pub home: NodeId,
    /// Voters of placement's group before.
    pub voters: BTreeSet<NodeId>,
    /// Every other group that one of them holds, as it goes on.
    pub regions: Vec<Region>,
    /// The newest descriptions of tables that these regions have received.
    pub tables: Vec<Table>,
    /// Numbers of nodes, regions and peers that any of them holds are below.
    pub numbers_below: u64,
    /// Timestamps that any of them holds, and their clocks, are not past this Unix millisecond.
    pub time_ms: u64,
}

/// What is lost by that, as far as survivors know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Row nodes that never come back, with the address of each.
    pub nodes: BTreeMap<NodeId, String>,
    /// Ranges of tables that no survivor holds: they go on empty.
    pub emptied: Vec<Region>,
    /// Indexes, by table, that cannot be used without what is lost: they are dropped.
    pub indexes: BTreeSet<(TableId, IndexId)>,
    /// Tables of which survivors hold regions and no name: they are dropped.
    pub tables: BTreeSet<TableId>,
    /// Snapshot leases that end.
    pub leases: usize,
}

impl State {
    /// Goes on with what is left. Whom it leaves behind is shut out first.
    pub fn go_on(&mut self, survivors: Survivors) -> Result<Lost> {
        let mut lost = Lost { nodes: self.revoke(&survivors), ..Lost::default() };
        self.raise(&survivors);
        let now = Timestamp::pack(self.high_water_ms, 0);
        lost.leases = self.forget_snapshots(now);
        self.describe(&survivors.tables);
        lost.indexes = self.drop_broken_indexes(&survivors.regions);
        lost.tables = self.place(&survivors, now);
        lost.emptied = self.fill_gaps(survivors.home)?;
        Ok(lost)
    }

    /// Row nodes that are not among the survivors never come back under their numbers.
    fn revoke(&mut self, survivors: &Survivors) -> BTreeMap<NodeId, String> {
        let rows =
            self.nodes.values().filter(|node| node.role == NodeRole::Row).map(|node| node.id);
        let voters = self.regions.values().flat_map(|record| record.region.voters());
        let members: BTreeSet<NodeId> = rows
            .chain(voters.map(|voter| voter.node))
            .chain(survivors.voters.iter().copied())
            .filter(|node| !survivors.nodes.contains(node) && !self.gone.contains_key(node))
            .collect();
        let mut lost = BTreeMap::new();
        for node in members {
            let address = self.nodes.remove(&node).map(|known| known.rpc_address);
            if let Some(address) = address.clone().filter(|_| survivors.voters.contains(&node)) {
                self.recovered.seats.insert(address);
            }
            // Nobody has taken its place yet.
            self.gone.insert(node, node);
            lost.insert(node, address.unwrap_or_default());
        }
        // Starts that were registered with those who are lost are not known here.
        self.sessions.clear();
        lost
    }

    /// Numbers, versions and time go on above everything that may have been given out.
    fn raise(&mut self, survivors: &Survivors) {
        let peers = |region: &Region| region.peers.iter().map(|peer| peer.id.max(peer.node)).max();
        let held = survivors.regions.iter().map(|region| region.id.max(peers(region).unwrap_or(0)));
        let nodes = survivors.nodes.iter().copied();
        let highest = held.chain(nodes).max().map_or(0, |highest| highest.saturating_add(1));
        let far = |known: u64, held: u64| known.max(held).saturating_add(FAR);
        self.next_id = far(self.next_id, highest.max(survivors.numbers_below));
        self.recovered.below = self.next_id;
        let tables = survivors.regions.iter().filter_map(Region::table).max();
        self.next_table = far(self.next_table, tables.map_or(0, |table| table.saturating_add(1)));
        self.next_lease = far(self.next_lease, 0);
        self.catalog.version = far(self.catalog.version, 0);
        let time_ms = self.high_water_ms.max(survivors.time_ms);
        self.high_water_ms = time_ms.saturating_add(MARGIN_MS);
        let tables = self.catalog.tables.iter();
        for table in tables.filter(|table| table.columns.iter().any(counts_far)) {
            if let Some(last) = self.auto_increment.get_mut(&table.id) {
                *last = last.saturating_add(FAR);
            }
        }
    }

    /// A snapshot from before may have had rows that are lost: it is refused, and not shown without them.
    fn forget_snapshots(&mut self, now: Timestamp) -> usize {
        self.safe_point.floor = self.safe_point.floor.max(now);
        std::mem::take(&mut self.leases).len()
    }

    /// Takes over what regions know of their tables and the catalog does not: rows are stored by it.
    fn describe(&mut self, held: &[Table]) {
        for table in self.catalog.tables.iter_mut().map(Arc::make_mut) {
            let newest = held.iter().filter(|other| other.id == table.id).max_by_key(|t| t.version);
            if let Some(newest) = newest.filter(|newest| newest.version > table.version) {
                *table = described(table, newest);
            }
            // Nobody may take another description for this one.
            table.version = table.version.saturating_add(VERSIONS);
            let used = self.used_numbers.entry(table.id).or_default();
            let columns = table.columns.iter().chain(&table.dropped);
            used.0 = columns.map(|column| column.id).fold(used.0, u32::max);
            used.1 = used.1.saturating_add(VERSIONS).min(u32::MAX - 1);
        }
    }

    /// An index lacks entries where one of its ranges is lost, and names lost rows where one of its
    /// table's is.
    fn drop_broken_indexes(&mut self, held: &[Region]) -> BTreeSet<(TableId, IndexId)> {
        let mut dropped = BTreeSet::new();
        let lacks = |kind| !gaps(kind, held.iter()).is_empty();
        for table in self.catalog.tables.iter_mut().map(Arc::make_mut) {
            let rows = lacks(RegionKind::Records(table.id));
            let broken = |index: &Index| rows || lacks(RegionKind::Index(table.id, index.id));
            let (gone, stay): (Vec<_>, Vec<_>) = table.indexes.drain(..).partition(broken);
            dropped.extend(gone.iter().map(|index| (table.id, index.id)));
            table.indexes = stay;
        }
        dropped
    }

    /// Puts regions where survivors hold them. Those of what the catalog does not name are dropped.
    fn place(&mut self, survivors: &Survivors, now: Timestamp) -> BTreeSet<TableId> {
        let known = std::mem::take(&mut self.regions);
        let mut nameless = BTreeSet::new();
        for region in survivors.regions.iter().cloned() {
            let id = region.id;
            if let Some(tombstone) = self.tombstones.get_mut(&id) {
                tombstone.region = region;
            } else if self.is_live(region.kind) {
                let missing = known.get(&id).map(|record| &record.uncreated);
                let missing = missing.into_iter().flatten().copied();
                let here = |node: &NodeId| region.peer_on(*node).is_some();
                let uncreated = missing.filter(here).collect();
                self.regions.insert(id, RegionRecord { region, uncreated });
            } else {
                nameless
                    .extend(region.table().filter(|table| self.catalog.table(*table).is_none()));
                self.tombstones.insert(id, Tombstone { region, dropped: now });
            }
        }
        nameless
    }

    /// Creates regions at `home` for the ranges that nobody holds.
    fn fill_gaps(&mut self, home: NodeId) -> Result<Vec<Region>> {
        let tables = self.catalog.tables.iter();
        let kinds: Vec<RegionKind> = tables.flat_map(|table| self.kinds_left(table)).collect();
        let mut emptied = Vec::new();
        for kind in kinds {
            let held = self.regions.values().map(|record| &record.region);
            for (start, end) in gaps(kind, held) {
                let id = self.take_ids(2)?;
                let peers = vec![Peer { id: id + 1, node: home, role: PeerRole::Voter }];
                let region = Region { id, epoch: INITIAL_EPOCH, kind, start, end, peers };
                let uncreated = BTreeSet::from([home]);
                self.regions.insert(id, RegionRecord { region: region.clone(), uncreated });
                emptied.push(region);
            }
        }
        Ok(emptied)
    }

    /// What regions a table has: as those are that are left, dropped ones included, for ranges of both
    /// forms would overlap.
    fn kinds_left(&self, table: &Table) -> Vec<RegionKind> {
        let live = self.regions.values().map(|record| &record.region);
        let left = live.chain(self.tombstones.values().map(|tombstone| &tombstone.region));
        let left: Vec<&Region> = left.filter(|region| region.table() == Some(table.id)).collect();
        match left.first().map(|region| region.kind) {
            None => kinds_of(self.version, table),
            Some(RegionKind::Table(_)) => kinds_of(version::SHARED_REGIONS, table),
            Some(_) => kinds_of(version::MINIMUM, table),
        }
    }
}

/// Whether a column counts, and has room to leave numbers out.
fn counts_far(column: &types::Column) -> bool {
    let wide = matches!(column.ty, ColumnType::Int { width: IntWidth::Int | IntWidth::Big, .. });
    column.auto_increment && wide
}

/// A table by the description that its regions know, with the name and the indexes that the catalog has.
fn described(known: &Table, held: &Table) -> Table {
    let kept = |index: &Index| {
        let mut newest = held.indexes.iter().find(|other| other.id == index.id)?.clone();
        // Whether it was filled is for the catalog to say.
        if !matches!(index.state, IndexState::Public { .. }) {
            newest.state = index.state;
        }
        Some(newest)
    };
    Table {
        database: known.database.clone(),
        name: known.name.clone(),
        columnar_replicas: known.columnar_replicas,
        indexes: known.indexes.iter().filter_map(kept).collect(),
        ..held.clone()
    }
}

/// Parts of a kind's range that no region covers.
fn gaps<'a>(
    kind: RegionKind,
    regions: impl Iterator<Item = &'a Region>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Some((mut at, end)) = key::range(kind) else { return Vec::new() };
    let mut held: Vec<(Vec<u8>, Vec<u8>)> = regions.filter_map(|held| held.part_of(kind)).collect();
    held.sort();
    let mut gaps = Vec::new();
    for (start, next) in held {
        if start > at {
            gaps.push((at.clone(), start));
        }
        at = at.max(next);
    }
    if at < end {
        gaps.push((at, end));
    }
    gaps
}
