//! A columnar node on a simulated disk, the logs it follows, and the multi-version map that says
//! what it must show.
//!
//! The harness plays the leader: it decides facts as the row store would, appends them to a
//! region's log and to the model, and feeds the log to the node's machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use env::{SimClock, SimDisk};
use raft::{Command, Effect, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks};
use txn::{Fact, Facts, Floors, SnapshotItem, SplitChild, WriteKind, encode_chunk, split_region};
use types::{
    Column, ColumnId, ColumnType, Epoch, Error, IntWidth, Peer, PeerRole, Region, RegionId,
    RegionKind, Result, Row, Table, Timestamp, Value, key, row,
};

use crate::ColumnarMachines;
use crate::shared::Config;
use crate::store::ColumnarStore;

/// The table of all tests.
pub const TABLE: u64 = 7;
/// The first region of all tests.
pub const REGION: RegionId = 10;
const TERM: u64 = 5;

/// `t (id bigint primary key, v bigint, s varchar(20))`.
pub fn table() -> Table {
    let column = |id: ColumnId, name: &str, ty, nullable| Column {
        id,
        name: name.into(),
        ty,
        nullable,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    };
    let big = ColumnType::Int { width: IntWidth::Big, unsigned: false };
    Table {
        id: TABLE,
        version: 1,
        database: "d".into(),
        name: "t".into(),
        columns: vec![
            column(1, "id", big, false),
            column(2, "v", big, true),
            column(3, "s", ColumnType::Varchar(20), true),
        ],
        primary_key: vec![1],
        indexes: Vec::new(),
        columnar_replicas: 1,
        comment: String::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
    }
}

/// The table with one more integer column, which older rows read as `default`.
pub fn widened(table: &Table, name: &str, default: i64) -> Table {
    let mut wider = table.clone();
    wider.version += 1;
    let id = 10 + wider.version;
    let ty = ColumnType::Int { width: IntWidth::Big, unsigned: false };
    let original = Some(Value::Int(default));
    let first = wider.columns[0].clone();
    wider.columns.push(Column { id, name: name.into(), ty, nullable: true, original, ..first });
    wider
}

/// The table without one of its columns.
pub fn narrowed(table: &Table, name: &str) -> Table {
    let mut narrower = table.clone();
    narrower.version += 1;
    narrower.columns.retain(|column| column.name != name);
    let gone = table.columns.iter().filter(|column| column.name == name);
    narrower.dropped.extend(gone.cloned());
    narrower
}

/// Record key of a row.
pub fn key_of(id: i64) -> Vec<u8> {
    key::record(TABLE, &[Value::Int(id)])
}

/// A config under which everything happens soon.
pub fn small() -> Config {
    Config {
        column_cache_bytes: 64 << 10,
        key_cache_bytes: 16 << 10,
        open_segments: 4,
        delta_rows: 12,
        delta_bytes: 64 << 10,
        log_entries: 1 << 20,
        deltas_bytes: 256 << 10,
    }
}

/// What a row held, by column.
pub type Cells = BTreeMap<ColumnId, Value>;

struct Held {
    start: u64,
    kind: WriteKind,
    cells: Option<Cells>,
    fact: Fact,
}

/// One region as its leader sees it, and its log.
pub struct Group {
    pub region: Region,
    /// Entries from the first one behind [`INITIAL_POSITION`].
    pub log: Vec<Vec<u8>>,
}

/// The node, the logs and the model.
pub struct World {
    pub disk: SimDisk,
    pub clock: SimClock,
    dir: PathBuf,
    config: Config,
    pub store: ColumnarStore,
    machines: ColumnarMachines,
    pub learners: BTreeMap<RegionId, Box<dyn Machine>>,
    pub groups: BTreeMap<RegionId, Group>,
    pub schemas: Vec<Table>,
    /// Versions by row id, ascending; none is a deletion.
    pub versions: BTreeMap<i64, Vec<(u64, Option<Cells>)>>,
    held: BTreeMap<i64, Held>,
    /// Where each region came from: its parent, and the index of the split.
    parents: BTreeMap<RegionId, (RegionId, u64)>,
    /// Highest durable index that the node has reported of each region.
    reported: BTreeMap<RegionId, u64>,
    /// How far each region's leader has removed versions.
    collected: BTreeMap<RegionId, u64>,
}

struct OneChunk(Option<Vec<u8>>);

impl SnapshotChunks for OneChunk {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.take())
    }
}

fn region() -> Region {
    let peer = |id, node, role| Peer { id, node, role };
    Region {
        id: REGION,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(TABLE),
        start: key::records_start(TABLE),
        end: key::records_end(TABLE),
        peers: vec![peer(101, 1, PeerRole::Voter), peer(102, 2, PeerRole::Learner)],
    }
}

impl World {
    /// A node that has joined the first region with an empty snapshot.
    pub fn new(config: Config) -> Self {
        let disk = SimDisk::new();
        let clock = SimClock::default();
        let dir = PathBuf::from("/columns");
        let store = open(&disk, &clock, &dir, config).unwrap();
        let machines = ColumnarMachines::new(&store);
        let mut world = World {
            disk,
            clock,
            dir,
            config,
            store,
            machines,
            learners: BTreeMap::new(),
            groups: BTreeMap::from([(REGION, Group { region: region(), log: Vec::new() })]),
            schemas: vec![table()],
            versions: BTreeMap::new(),
            held: BTreeMap::new(),
            parents: BTreeMap::new(),
            reported: BTreeMap::new(),
            collected: BTreeMap::new(),
        };
        let learner = world.machines.create(&region(), false).unwrap();
        world.learners.insert(REGION, learner);
        world.resnapshot(REGION).unwrap();
        world
    }

    /// The region that holds a row.
    pub fn region_of(&self, id: i64) -> RegionId {
        let key = key_of(id);
        self.groups.values().find(|group| group.region.contains(&key)).unwrap().region.id
    }

    pub fn is_held(&self, id: i64) -> Option<u64> {
        self.held.get(&id).map(|held| held.start)
    }

    /// When the live version of a row began, if it has one.
    pub fn live(&self, id: i64) -> Option<Timestamp> {
        let (ts, cells) = self.versions.get(&id)?.last()?;
        cells.as_ref().map(|_| Timestamp(*ts))
    }

    /// A row's cells under a schema version, and its encoding.
    pub fn encode(&self, id: i64, v: i64, s: Option<&str>, version: usize) -> (Cells, Vec<u8>) {
        let table = &self.schemas[version];
        let values: Row = table
            .columns
            .iter()
            .map(|column| match column.name.as_str() {
                "id" => Value::Int(id),
                "s" => s.map_or(Value::Null, |s| Value::String(s.into())),
                _ => Value::Int(v),
            })
            .collect();
        let cells = table.columns.iter().map(|column| column.id).zip(values.clone()).collect();
        (cells, row::encode(table, &values))
    }

    /// Decides a lock; `row` is none for a deletion or a bare lock.
    pub fn lock(
        &mut self,
        id: i64,
        start: u64,
        kind: WriteKind,
        row: Option<(Cells, Vec<u8>)>,
    ) -> Fact {
        let (cells, bytes) = row.unzip();
        let fact = Fact::Lock {
            key: key_of(id),
            start_ts: Timestamp(start),
            primary: key_of(id),
            kind,
            row: bytes,
            replaces: self.live(id).filter(|_| kind.changes()),
            ttl: 3_000,
            for_update_ts: None,
        };
        self.held.insert(id, Held { start, kind, cells, fact: fact.clone() });
        fact
    }

    /// Decides the commit of a row's lock.
    pub fn commit(&mut self, id: i64, commit: u64) -> Fact {
        let held = self.held.remove(&id).unwrap();
        if held.kind.changes() {
            self.versions.entry(id).or_default().push((commit, held.cells));
        }
        Fact::Commit {
            key: key_of(id),
            start_ts: Timestamp(held.start),
            commit_ts: Timestamp(commit),
        }
    }

    /// Decides a rollback of a row's lock, or of a transaction that never locked it.
    pub fn rollback(&mut self, id: i64, start: u64) -> Fact {
        if self.held.get(&id).is_some_and(|held| held.start == start) {
            self.held.remove(&id);
        }
        Fact::Rollback { key: key_of(id), start_ts: Timestamp(start) }
    }

    /// Decides an import.
    pub fn import(&mut self, id: i64, ts: u64, row: Option<(Cells, Vec<u8>)>) -> Fact {
        let replaces = self.live(id);
        let (cells, row) = row.unzip();
        let kind = if row.is_some() { WriteKind::Put } else { WriteKind::Delete };
        self.versions.entry(id).or_default().push((ts, cells));
        Fact::Write { key: key_of(id), commit_ts: Timestamp(ts), kind, row, replaces }
    }

    /// Appends an entry to a region's log.
    pub fn append(&mut self, region: RegionId, facts: Vec<Fact>) {
        let group = self.groups.get_mut(&region).unwrap();
        let entry = Facts { term: TERM, epoch: group.region.epoch, facts };
        group.log.push(entry.encode().unwrap());
    }

    /// Appends an entry that was decided under another term or epoch, and changes nothing.
    pub fn append_stale(&mut self, region: RegionId, facts: Vec<Fact>, by_term: bool) {
        let group = self.groups.get_mut(&region).unwrap();
        let Epoch { version, conf } = group.region.epoch;
        let entry = match by_term {
            true => Facts { term: TERM - 1, epoch: group.region.epoch, facts },
            false => Facts { term: TERM, epoch: Epoch { version: version - 1, conf }, facts },
        };
        group.log.push(entry.encode().unwrap());
    }

    /// Decides a split at rows, the children being new regions.
    pub fn split(&mut self, region: RegionId, cuts: &[(i64, RegionId)]) {
        let children: Vec<SplitChild> = cuts
            .iter()
            .map(|(id, child)| SplitChild {
                start: key_of(*id),
                region: *child,
                peers: vec![child * 10 + 1, child * 10 + 2],
            })
            .collect();
        self.append(region, vec![Fact::Split { children: children.clone() }]);
        let (parent, regions) = split_region(&self.groups[&region].region, &children).unwrap();
        self.groups.get_mut(&region).unwrap().region = parent;
        let index = self.last_index(region);
        for child in regions {
            self.parents.insert(child.id, (region, index));
            let collected = self.collected.get(&region).copied().unwrap_or_default();
            self.collected.insert(child.id, collected);
            self.groups.insert(child.id, Group { region: child, log: Vec::new() });
        }
    }

    /// The node learns of a region that it holds no part of yet.
    pub fn create(&mut self, region: RegionId) -> Result<()> {
        let learner = self.machines.create(&self.groups[&region].region, false)?;
        self.learners.insert(region, learner);
        Ok(())
    }

    /// The leader of a region sends the node what it lost or never had.
    pub fn adopt_orphans(&mut self) -> Result<()> {
        for region in self.groups.keys().copied().collect::<Vec<_>>() {
            match self.applied(region) {
                Some(0) => self.resnapshot(region)?,
                None => {
                    let (parent, split) = self.parents[&region];
                    if self.applied(parent).is_some_and(|applied| applied >= split) {
                        self.create(region)?;
                        self.resnapshot(region)?;
                    }
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Decides a new schema for every region.
    pub fn alter(&mut self, table: Table) {
        self.schemas.push(table.clone());
        for region in self.groups.keys().copied().collect::<Vec<_>>() {
            self.append(region, vec![Fact::Schema(Box::new(table.clone()))]);
        }
    }

    /// Index of the last entry of a region's log.
    pub fn last_index(&self, region: RegionId) -> u64 {
        INITIAL_POSITION.index + self.groups[&region].log.len() as u64
    }

    /// Index up to which the node has applied a region's log, if it holds the region.
    pub fn applied(&self, region: RegionId) -> Option<u64> {
        self.learners.get(&region).map(|learner| learner.applied().index)
    }

    /// Applies a region's next entry; false if there is none.
    pub fn apply_one(&mut self, region: RegionId) -> Result<bool> {
        let Some(learner) = self.learners.get_mut(&region) else { return Ok(false) };
        if learner.applied().index == 0 {
            return Ok(false);
        }
        let next = learner.applied().index + 1;
        let at = (next - INITIAL_POSITION.index) as usize - 1;
        let Some(entry) = self.groups[&region].log.get(at) else { return Ok(false) };
        let effect = learner.apply(Position { index: next, term: TERM }, Command::Data(entry))?;
        if let Effect::Split(children) = effect {
            for child in children {
                self.learners.insert(child.region().id, child);
            }
        }
        Ok(true)
    }

    /// Ends the batches of all learners.
    pub fn finish(&mut self) -> Result<()> {
        self.learners.values_mut().try_for_each(|learner| learner.finish_batch())
    }

    /// Applies everything that is in the logs.
    pub fn catch_up(&mut self) -> Result<()> {
        loop {
            let mut moved = false;
            for region in self.groups.keys().copied().collect::<Vec<_>>() {
                while self.apply_one(region)? {
                    moved = true;
                }
            }
            self.finish()?;
            self.adopt_orphans()?;
            if !moved {
                return Ok(());
            }
        }
    }

    /// Makes a region durable and remembers that the node said so.
    pub fn persist(&mut self, region: RegionId) -> Result<()> {
        if let Some(learner) = self.learners.get_mut(&region) {
            learner.persist()?;
        }
        self.note_durable();
        Ok(())
    }

    /// Remembers what the node reports as durable: the log may be cut there.
    pub fn note_durable(&mut self) {
        for (region, learner) in &self.learners {
            let reported = self.reported.entry(*region).or_default();
            *reported = (*reported).max(learner.durable_index());
        }
    }

    /// Cuts the power and starts the node again. What was reported as durable must be there.
    pub fn crash(&mut self, seed: u64) -> Result<()> {
        self.learners.clear();
        self.disk.crash(seed);
        self.store = open(&self.disk, &self.clock, &self.dir, self.config)?;
        self.machines = ColumnarMachines::new(&self.store);
        for machine in self.machines.recover()? {
            self.learners.insert(machine.region().id, machine);
        }
        for (region, reported) in &self.reported {
            let recovered = self.learners.get(region).map_or(0, |learner| learner.applied().index);
            assert!(
                recovered >= *reported,
                "region {region}: reported {reported} as durable, recovered {recovered}"
            );
        }
        Ok(())
    }

    /// Gives a region's learner a snapshot of everything in its log.
    pub fn resnapshot(&mut self, region: RegionId) -> Result<()> {
        self.resnapshot_from(region, 0)
    }

    /// As [`World::resnapshot`], from a leader that has removed what was superseded before `floor`.
    pub fn resnapshot_from(&mut self, region: RegionId, floor: u64) -> Result<()> {
        let floor = self.collected.get(&region).copied().unwrap_or_default().max(floor);
        self.collected.insert(region, floor);
        let at = Position { index: self.last_index(region), term: TERM };
        let items = self.items(region, floor);
        let chunk = encode_chunk(&items).unwrap();
        let descriptor = self.groups[&region].region.clone();
        // A replica that is being replaced promises nothing until it has the snapshot.
        self.reported.remove(&region);
        let learner = self.learners.get_mut(&region).unwrap();
        learner.restore(&descriptor, at, &mut OneChunk(Some(chunk)))?;
        self.note_durable();
        Ok(())
    }

    /// A region's state as snapshot items, newest versions last; without what was superseded before
    /// `floor`.
    fn items(&self, region: RegionId, floor: u64) -> Vec<SnapshotItem> {
        let region = &self.groups[&region].region;
        let schema = |table: &Table| SnapshotItem::Schema(Box::new(table.clone()));
        let mut items: Vec<SnapshotItem> = self.schemas.iter().map(schema).collect();
        let read = Timestamp(floor);
        items.push(SnapshotItem::Collected(Floors { read, settled: Timestamp::ZERO }));
        for (id, versions) in self.versions.iter().filter(|(id, _)| region.contains(&key_of(**id)))
        {
            for (at, (ts, cells)) in versions.iter().enumerate() {
                if versions.get(at + 1).is_some_and(|(end, _)| *end <= floor) {
                    continue;
                }
                items.push(SnapshotItem::Version {
                    key: key_of(*id),
                    commit_ts: Timestamp(*ts),
                    start_ts: Timestamp(ts - 1),
                    kind: if cells.is_some() { WriteKind::Put } else { WriteKind::Delete },
                    row: cells.as_ref().map(|cells| self.stored(cells)),
                    ended_by: versions.get(at + 1).map(|(ts, _)| Timestamp(*ts)),
                });
            }
        }
        let mine = self.held.iter().filter(|(id, _)| region.contains(&key_of(**id)));
        items.extend(mine.map(|(_, held)| SnapshotItem::Lock(held.fact.clone())));
        items
    }

    /// The encoding of cells, under the schema that they were written with.
    fn stored(&self, cells: &Cells) -> Vec<u8> {
        let same = |table: &&Table| {
            table.columns.len() == cells.len()
                && table.columns.iter().all(|column| cells.contains_key(&column.id))
        };
        let table = self.schemas.iter().find(same).unwrap();
        let values: Row = table.columns.iter().map(|column| cells[&column.id].clone()).collect();
        row::encode(table, &values)
    }

    /// What a region must show at a timestamp, under the newest schema.
    pub fn expected(&self, region: &Region, ts: u64) -> BTreeMap<Vec<u8>, Row> {
        let table = self.schemas.last().unwrap();
        let mut rows = BTreeMap::new();
        for (id, versions) in &self.versions {
            let key = key_of(*id);
            let seen = versions.iter().rev().find(|(begin, _)| *begin <= ts);
            let Some((_, Some(cells))) = seen else { continue };
            if region.contains(&key) {
                let cell = |column: &Column| {
                    cells.get(&column.id).cloned().unwrap_or_else(|| column.missing())
                };
                rows.insert(key, table.columns.iter().map(cell).collect());
            }
        }
        rows
    }

    /// Compares what every region shows at a timestamp with the model. A timestamp below the
    /// floor must be refused, and the floor must not be above `safe`.
    pub fn check_at(&self, ts: u64, safe: u64) {
        for (id, group) in &self.groups {
            match self.store.visible_rows(*id, Timestamp(ts)) {
                Ok(rows) => {
                    let expected = self.expected(&group.region, ts);
                    assert_eq!(rows, expected, "region {id} at {ts}");
                }
                Err(Error::SnapshotTooOld { floor, .. }) => {
                    assert!(ts < floor.0 && floor.0 <= safe, "{ts} {floor} {safe}");
                }
                Err(error) => panic!("region {id} at {ts}: {error}"),
            }
        }
    }

    /// Locks of the node's tablets that a reader at `ts` would have to resolve must be the
    /// model's.
    pub fn check_locks(&self, ts: u64) {
        for (id, group) in &self.groups {
            let found = self.store.tablet(*id).unwrap().pending_locks(Timestamp(ts));
            let mut found: Vec<_> = found.into_iter().map(|lock| lock.key).collect();
            found.sort();
            let mine = self.held.iter().filter(|(id, held)| {
                held.kind.changes() && held.start <= ts && group.region.contains(&key_of(**id))
            });
            let expected: Vec<_> = mine.map(|(id, _)| key_of(*id)).collect();
            assert_eq!(found, expected, "locks of region {id} at {ts}");
        }
    }

    /// Moves the clock.
    pub fn wait(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Files of segments on the disk.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = env::Disk::list(&self.disk, &self.dir).unwrap();
        files.into_iter().filter(|path| crate::segment::id_of(path).is_some()).collect()
    }
}

fn open(disk: &SimDisk, clock: &SimClock, dir: &Path, config: Config) -> Result<ColumnarStore> {
    ColumnarStore::open(Arc::new(disk.clone()), Arc::new(clock.clone()), dir, config)
}
