//! The leader of every region: decides through `txn`'s own functions, keeps the logs, and never
//! crashes. What it appends is what a cluster of row nodes could have appended.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::{KvRead, MemoryKv};
use raft::{Command, Effect, INITIAL_POSITION, Machine, Machines, Position, SnapshotChunks};
use txn::decide::Known;
use txn::{Fact, Facts, Floors, RowMachines, RowStore, SplitChild, Sweep};
use types::{Region, RegionId, Result, Table, Timestamp};

use crate::model::Model;
use crate::table::{self, REGION, key_of};

pub enum Body {
    Empty,
    Data(Vec<u8>),
    Membership(Region),
}

pub struct Entry {
    pub term: u64,
    pub body: Body,
}

impl Entry {
    pub fn command(&self) -> Command<'_> {
        match &self.body {
            Body::Empty => Command::Empty,
            Body::Data(bytes) => Command::Data(bytes),
            Body::Membership(region) => Command::Membership(region),
        }
    }
}

/// A region's log, and where the region came from: its parent and the index of the split.
pub struct Log {
    pub entries: Vec<Entry>,
    pub parent: Option<(RegionId, u64)>,
}

impl Log {
    /// The entry behind an index, with its position.
    pub fn after(&self, index: u64) -> Option<(Position, &Entry)> {
        let entry = self.entries.get((index - INITIAL_POSITION.index) as usize)?;
        Some((Position { index: index + 1, term: entry.term }, entry))
    }
}

/// A region's state as a voter would send it.
pub struct Copy {
    pub region: Region,
    pub at: Position,
    chunks: std::vec::IntoIter<Vec<u8>>,
}

impl SnapshotChunks for Copy {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.chunks.next())
    }
}

pub struct Leader {
    store: Arc<RowStore>,
    machines: BTreeMap<RegionId, Box<dyn Machine>>,
    pub logs: BTreeMap<RegionId, Log>,
    pub model: Model,
    /// All versions of the table, from the first on.
    pub schemas: Vec<Table>,
    /// Entries that were made to be dropped.
    pub stale: u64,
}

impl Leader {
    pub fn new() -> Self {
        let store = RowStore::open(Arc::new(MemoryKv::new())).unwrap();
        let region = table::region(&[1], &[2]);
        let machine = RowMachines::new(store.clone()).create(&region, true).unwrap();
        let mut leader = Leader {
            store,
            machines: BTreeMap::new(),
            logs: BTreeMap::new(),
            model: Model::default(),
            schemas: vec![table::first()],
            stale: 0,
        };
        leader.lead(machine, None);
        leader.decide(REGION, vec![Fact::Schema(Box::new(table::first()))]);
        leader
    }

    fn lead(&mut self, machine: Box<dyn Machine>, parent: Option<(RegionId, u64)>) {
        let id = machine.region().id;
        let term = machine.applied().term + 1;
        self.machines.insert(id, machine);
        self.logs.insert(id, Log { entries: Vec::new(), parent });
        self.append(id, Entry { term, body: Body::Empty }, true);
    }

    pub fn regions(&self) -> Vec<RegionId> {
        self.machines.keys().copied().collect()
    }

    pub fn region(&self, id: RegionId) -> Region {
        self.machines[&id].region().clone()
    }

    pub fn region_of(&self, key: &[u8]) -> RegionId {
        self.machines.values().find(|machine| machine.region().contains(key)).unwrap().region().id
    }

    /// The newest schema that a region knows.
    pub fn newest(&self, region: RegionId) -> Table {
        let view = self.store.region(region).unwrap();
        Table::clone(view.newest_schema(table::TABLE).unwrap())
    }

    /// Lets the caller decide on keys of a region by what is applied.
    pub fn known<T>(&self, region: RegionId, decide: impl FnOnce(Known<'_>) -> T) -> T {
        let kv: Box<dyn KvRead> = self.store.snapshot();
        let floors = self.floors(region);
        decide(Known {
            kv: kv.as_ref(),
            locks: self.store.locks(),
            floors,
            oldest: Timestamp::ZERO,
        })
    }

    /// How far back a region can be asked.
    pub fn floors(&self, region: RegionId) -> Floors {
        self.store.region(region).unwrap().floors
    }

    /// Locks of a region whose transactions began before `ts`: key and start.
    pub fn older_locks(&self, region: RegionId, ts: Timestamp) -> Vec<(Vec<u8>, Timestamp)> {
        let Region { start, end, .. } = self.region(region);
        let locks = self.store.locks().older(&start, &end, ts, usize::MAX);
        locks.iter().map(|lock| (lock.key.clone(), lock.start_ts)).collect()
    }

    /// Whether a transaction holds a key anywhere.
    pub fn holds(&self, start_ts: Timestamp) -> bool {
        !self.store.locks().of_transaction(&[], &[0xFF], start_ts, 1).is_empty()
    }

    /// Removes what its regions' floors allow to go.
    pub fn sweep(&self, region: RegionId) {
        let mut sweep = Sweep::new(&self.store, region).unwrap();
        while self.store.sweep(&mut sweep).unwrap() {}
    }

    /// Appends an entry that a lock in the region makes void.
    pub fn decide_in_vain(&mut self, region: RegionId, facts: Vec<Fact>) {
        let (term, epoch) = (self.term(region), self.region(region).epoch);
        let body = Body::Data(Facts { term, epoch, facts }.encode().unwrap());
        self.append(region, Entry { term, body }, false);
    }

    fn term(&self, region: RegionId) -> u64 {
        self.machines[&region].applied().term
    }

    fn append(&mut self, region: RegionId, entry: Entry, stands: bool) {
        let machine = self.machines.get_mut(&region).unwrap();
        let at = Position { index: machine.applied().index + 1, term: entry.term };
        let effect = machine.apply(at, entry.command()).unwrap();
        machine.finish_batch().unwrap();
        self.logs.get_mut(&region).unwrap().entries.push(entry);
        assert_eq!(!matches!(effect, Effect::Dropped), stands, "whether {at:?} stands");
        if let Effect::Split(children) = effect {
            for child in children {
                self.lead(child, Some((region, at.index)));
            }
        }
    }

    /// Appends what was decided just now.
    pub fn decide(&mut self, region: RegionId, facts: Vec<Fact>) {
        self.model.apply(&facts);
        let (term, epoch) = (self.term(region), self.region(region).epoch);
        let body = Body::Data(Facts { term, epoch, facts }.encode().unwrap());
        self.append(region, Entry { term, body }, true);
    }

    /// Appends what was decided before something else came into the log: it must change nothing.
    pub fn decide_too_late(
        &mut self,
        region: RegionId,
        facts: Vec<Fact>,
        between: impl FnOnce(&mut Self),
    ) {
        let (term, epoch) = (self.term(region), self.region(region).epoch);
        let body = Body::Data(Facts { term, epoch, facts }.encode().unwrap());
        between(self);
        let stale = term != self.term(region) || epoch != self.region(region).epoch;
        assert!(stale, "nothing came between");
        self.stale += 1;
        self.append(region, Entry { term: self.term(region), body }, false);
    }

    /// Leadership changes hands.
    pub fn next_term(&mut self, region: RegionId) {
        let term = self.term(region) + 1;
        self.append(region, Entry { term, body: Body::Empty }, true);
    }

    /// A member comes or goes; `node` says which.
    pub fn change_members(&mut self, region: RegionId, node: u64) {
        let mut next = self.region(region);
        next.epoch.conf += 1;
        let known = next.peers.len();
        next.peers.retain(|peer| peer.node != node);
        if next.peers.len() == known {
            let (id, role) = (region * 1000 + next.epoch.conf, types::PeerRole::Voter);
            next.peers.push(types::Peer { id, node, role });
        }
        let term = self.term(region);
        self.append(region, Entry { term, body: Body::Membership(next) }, true);
    }

    /// Cuts the region that holds a row in front of it; whether that was possible.
    pub fn split(&mut self, id: i64, child: RegionId) -> bool {
        let start = key_of(id);
        let parent = self.region(self.region_of(&start));
        if parent.start >= start {
            return false;
        }
        let peers = (0..parent.peers.len() as u64).map(|at| child * 1000 + 500 + at).collect();
        let children = vec![SplitChild { start, region: child, peers }];
        self.decide(parent.id, vec![Fact::Split { children }]);
        true
    }

    /// The next version of the table, sent to every region.
    pub fn alter(&mut self, narrower: bool) {
        let next = table::altered(self.schemas.last().unwrap(), narrower);
        self.schemas.push(next.clone());
        for region in self.regions() {
            self.decide(region, vec![Fact::Schema(Box::new(next.clone()))]);
        }
    }

    /// What a voter would send to a member without a log.
    pub fn copy(&self, region: RegionId) -> Copy {
        let machine = &self.machines[&region];
        let mut source = machine.snapshot().unwrap();
        let mut chunks = Vec::new();
        while let Some(chunk) = source.next_chunk().unwrap() {
            chunks.push(chunk);
        }
        Copy { region: machine.region().clone(), at: machine.applied(), chunks: chunks.into_iter() }
    }
}
