//! Random histories: transactions that conflict, give up and leave locks behind, imports, schema
//! changes, splits, late decisions; fed to a follower with rows and a learner with columns that
//! lag, flush, merge, crash and are copied anew.

use std::collections::BTreeMap;

use env::Random;
use raft::{Effect, Machine, Machines};
use txn::api::{Mutation, Op};
use txn::decide::{Prewrite, Rollback, Status};
use txn::layout::Fate;
use txn::{Fact, Floors, Sweep, WriteKind};
use types::{Error, RegionId, Result, Timestamp};

use crate::columns::Columns;
use crate::leader::Leader;
use crate::rows::{self, Rows};
use crate::seeds;
use crate::table::{self, REGION, key_of};

const STEPS: u64 = 600;
/// For histories that are repeated for every sync in them.
const SHORT: u64 = 200;
const IDS: u64 = 20;
const MOST_REGIONS: usize = 5;

/// One node that follows the leader's logs.
pub trait Replica {
    fn peers(&mut self) -> &mut BTreeMap<RegionId, Box<dyn Machine>>;
    fn machines(&mut self) -> &mut dyn Machines;
    /// Cuts the power and starts again with what survived.
    fn crash(&mut self, seed: u64);
    /// Whether the disk waits for [`Replica::crash`].
    fn is_down(&self) -> bool;
}

/// A replica, and what it has promised to keep.
struct Follower<R> {
    replica: R,
    /// Highest durable index that it reported of each region: the log may be cut there.
    reported: BTreeMap<RegionId, u64>,
    crashes: u64,
}

impl<R: Replica> Follower<R> {
    fn new(replica: R) -> Self {
        Follower { replica, reported: BTreeMap::new(), crashes: 0 }
    }

    fn applied(&mut self, region: RegionId) -> Option<u64> {
        self.replica.peers().get(&region).map(|peer| peer.applied().index)
    }

    fn apply_one(&mut self, leader: &Leader, region: RegionId) -> Result<bool> {
        let Some(peer) = self.replica.peers().get_mut(&region) else { return Ok(false) };
        let applied = peer.applied().index;
        if applied == 0 {
            return Ok(false);
        }
        let Some((at, entry)) = leader.logs[&region].after(applied) else { return Ok(false) };
        if let Effect::Split(children) = peer.apply(at, entry.command())? {
            // As the Raft store does: a split ends its batch, durably, before its children live.
            peer.finish_batch()?;
            peer.persist()?;
            for child in children {
                self.replica.peers().insert(child.region().id, child);
            }
        }
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        self.replica.peers().values_mut().try_for_each(|peer| peer.finish_batch())?;
        self.note_durable();
        Ok(())
    }

    fn persist(&mut self, region: RegionId) -> Result<()> {
        if let Some(peer) = self.replica.peers().get_mut(&region) {
            peer.persist()?;
        }
        self.note_durable();
        Ok(())
    }

    fn note_durable(&mut self) {
        for (region, peer) in self.replica.peers() {
            let reported = self.reported.entry(*region).or_default();
            *reported = (*reported).max(peer.durable_index());
        }
    }

    /// Applies every log to its end, and asks for copies of what no log leads to.
    fn catch_up(&mut self, leader: &Leader) -> Result<()> {
        loop {
            let mut moved = self.adopt(leader)?;
            for region in leader.regions() {
                while self.apply_one(leader, region)? {
                    moved = true;
                }
            }
            self.finish()?;
            if !moved {
                return Ok(());
            }
        }
    }

    fn adopt(&mut self, leader: &Leader) -> Result<bool> {
        let mut moved = false;
        for region in leader.regions() {
            let wanted = match self.applied(region) {
                Some(applied) => applied == 0,
                None => match leader.logs[&region].parent {
                    None => true,
                    Some((parent, split)) => self.applied(parent).is_some_and(|at| at >= split),
                },
            };
            if wanted {
                self.copy(leader, region)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Takes a voter's snapshot, beside or instead of what is there.
    fn copy(&mut self, leader: &Leader, region: RegionId) -> Result<()> {
        let mut copy = leader.copy(region);
        if self.applied(region).is_none() {
            let peer = self.replica.machines().create(&copy.region, false)?;
            self.replica.peers().insert(region, peer);
        }
        // A replica that is being replaced promises nothing until it has the snapshot.
        self.reported.remove(&region);
        let (descriptor, at) = (copy.region.clone(), copy.at);
        self.replica.peers().get_mut(&region).unwrap().restore(&descriptor, at, &mut copy)?;
        self.note_durable();
        Ok(())
    }

    fn crash(&mut self, seed: u64) {
        self.crashes += 1;
        self.replica.crash(seed);
        for (region, reported) in std::mem::take(&mut self.reported) {
            let recovered = self.applied(region).unwrap_or(0);
            assert!(
                recovered >= reported,
                "region {region}: {reported} was durable, {recovered} is"
            );
        }
        self.note_durable();
    }

    /// After an error: the disk must be down; cut the power, start again.
    fn recover(&mut self, error: &Error, seed: u64) {
        assert!(self.replica.is_down(), "an error without a crash: {error}");
        self.crash(seed);
    }
}

/// A transaction: what it writes, and how far it has come.
struct Txn {
    start: Timestamp,
    primary: Vec<u8>,
    writes: Vec<Mutation>,
    /// Keys without a lock yet.
    unlocked: Vec<Vec<u8>>,
    /// Once it has ended: keys to be told, and when it committed.
    ending: Option<(Vec<Vec<u8>>, Option<Timestamp>)>,
}

/// What has happened, over all seeds: a history without it would show nothing.
#[derive(Debug, Default)]
struct Tally {
    commits: u64,
    conflicts: u64,
    rollbacks: u64,
    stale: u64,
    splits: u64,
    copies: u64,
    row_crashes: u64,
    column_crashes: u64,
    compared: u64,
    too_old: u64,
    /// Floors raised, records removed, fates asked for while a lock was left.
    collections: u64,
    removed: u64,
    asked: u64,
    late: u64,
}

struct History {
    leader: Leader,
    rows: Follower<Rows>,
    columns: Follower<Columns>,
    random: Random,
    txns: Vec<Txn>,
    now: u64,
    /// No reader asks for less.
    safe: u64,
    /// Walks over the follower's garbage that are under way.
    sweeps: BTreeMap<RegionId, Sweep>,
    /// When a range was last deleted, fates with it.
    wiped: Timestamp,
    next_region: RegionId,
    /// Whether crashes happen by chance.
    crashes: bool,
    tally: Tally,
}

impl History {
    fn new(seed: u64, crashes: bool) -> Self {
        History {
            leader: Leader::new(),
            rows: Follower::new(Rows::new()),
            columns: Follower::new(Columns::new()),
            random: Random::seeded(seed),
            txns: Vec::new(),
            now: 10,
            safe: 0,
            sweeps: BTreeMap::new(),
            wiped: Timestamp::ZERO,
            next_region: REGION + 1,
            crashes,
            tally: Tally::default(),
        }
    }

    fn tick(&mut self) -> Timestamp {
        self.now += 1;
        Timestamp(self.now)
    }

    fn some_region(&self) -> RegionId {
        let regions = self.leader.regions();
        regions[self.random.below(regions.len() as u64) as usize]
    }

    fn some_id(&self) -> i64 {
        self.random.below(IDS) as i64
    }

    fn row(&self, region: RegionId, id: i64) -> Vec<u8> {
        let newest = self.leader.newest(region);
        // Leaders accept rows of the schema version before the newest.
        let older = u32::from(newest.version > 1 && self.random.chance(0.3));
        let table = &self.leader.schemas[(newest.version - older) as usize - 1];
        table::encode(table, id, self.random.below(100) as i64)
    }

    /// Appends a decision, or, seldom, too late; whether it took effect.
    fn submit(&mut self, region: RegionId, facts: Vec<Fact>) -> bool {
        if facts.is_empty() {
            return true;
        }
        if !self.random.chance(0.1) {
            self.leader.decide(region, facts);
            return true;
        }
        let (what, cut) = (self.random.below(3), self.some_id());
        let room = self.leader.regions().len() < MOST_REGIONS;
        let inside = self.leader.region_of(&key_of(cut)) == region;
        let child = self.next_region;
        let mut split = false;
        self.leader.decide_too_late(region, facts, |leader| match what {
            0 => leader.change_members(region, 3),
            1 if room && inside && leader.split(cut, child) => split = true,
            _ => leader.next_term(region),
        });
        if split {
            self.next_region += 1;
            self.tally.splits += 1;
        }
        false
    }

    fn begin(&mut self) {
        let start = self.tick();
        let mut writes: BTreeMap<Vec<u8>, Mutation> = BTreeMap::new();
        for _ in 0..1 + self.random.below(4) {
            let id = self.some_id();
            let key = key_of(id);
            let row = self.row(self.leader.region_of(&key), id);
            let op = match self.random.below(10) {
                0..4 => Op::Put(row),
                4..6 => Op::Insert(row),
                6..9 => Op::Delete,
                _ => Op::Lock,
            };
            writes.insert(key.clone(), Mutation { key, op, for_update_ts: None });
        }
        let keys: Vec<Vec<u8>> = writes.keys().cloned().collect();
        let primary = keys[self.random.below(keys.len() as u64) as usize].clone();
        let writes = writes.into_values().collect();
        self.txns.push(Txn { start, primary, writes, unlocked: keys, ending: None });
    }

    /// One transaction makes one step, in one region.
    fn advance(&mut self) {
        if self.txns.is_empty() {
            return;
        }
        let at = self.random.below(self.txns.len() as u64) as usize;
        let mut txn = self.txns.swap_remove(at);
        if txn.ending.is_some() {
            self.end(&mut txn);
        } else if self.random.chance(0.08) {
            self.give_up(&mut txn);
        } else if txn.unlocked.is_empty() {
            self.commit(&mut txn);
        } else {
            self.prewrite(&mut txn);
        }
        if txn.ending.as_ref().is_none_or(|(keys, _)| !keys.is_empty()) {
            self.txns.push(txn);
        }
    }

    fn give_up(&mut self, txn: &mut Txn) {
        self.tally.rollbacks += 1;
        txn.ending = Some((txn.writes.iter().map(|write| write.key.clone()).collect(), None));
    }

    /// Some of the keys in the region of one of them.
    fn together(&self, keys: &[Vec<u8>]) -> (RegionId, Vec<Vec<u8>>) {
        let first = &keys[self.random.below(keys.len() as u64) as usize];
        let region = self.leader.region(self.leader.region_of(first));
        let near = keys.iter().filter(|key| region.contains(key));
        let some = near.filter(|key| *key == first || self.random.chance(0.7));
        (region.id, some.cloned().collect())
    }

    fn prewrite(&mut self, txn: &mut Txn) {
        let (region, keys) = self.together(&txn.unlocked);
        let mut facts = Vec::new();
        for key in &keys {
            let write = txn.writes.iter().find(|write| write.key == *key).unwrap();
            let of = Prewrite { start_ts: txn.start, primary: &txn.primary, ttl: 3_000 };
            match self.leader.known(region, |known| known.prewrite(of, write)) {
                Ok(fact) => facts.extend(fact),
                Err(
                    Error::Locked(_)
                    | Error::Conflict { .. }
                    | Error::Duplicate { .. }
                    | Error::RolledBack(_)
                    | Error::SnapshotTooOld { .. },
                ) => {
                    self.tally.conflicts += 1;
                    return self.give_up(txn);
                }
                Err(error) => panic!("{error}"),
            }
        }
        if self.random.chance(0.2) {
            // The same lock again, as a keep-alive gives.
            facts.extend(facts.first().cloned());
        }
        if self.submit(region, facts) {
            txn.unlocked.retain(|key| !keys.contains(key));
        }
    }

    fn commit(&mut self, txn: &mut Txn) {
        let commit_ts = self.tick();
        let region = self.leader.region_of(&txn.primary);
        let decided =
            self.leader.known(region, |known| known.commit(&txn.primary, txn.start, commit_ts));
        match decided {
            Ok(fact) => {
                if self.submit(region, fact.into_iter().collect()) {
                    self.tally.commits += 1;
                    let others = txn.writes.iter().map(|write| write.key.clone());
                    let others = others.filter(|key| *key != txn.primary).collect();
                    txn.ending = Some((others, Some(commit_ts)));
                }
            }
            // Its lock went with a deleted range.
            Err(Error::RolledBack(_) | Error::SnapshotTooOld { .. }) => self.give_up(txn),
            Err(error) => panic!("{error}"),
        }
    }

    fn end(&mut self, txn: &mut Txn) {
        self.ask(txn);
        let Some((keys, commit_ts)) = &mut txn.ending else { return };
        let (region, some) = self.together(keys);
        let mut facts = Vec::new();
        for key in &some {
            match *commit_ts {
                Some(ts) => {
                    let fact =
                        self.leader.known(region, |known| known.resolve(key, txn.start, Some(ts)));
                    facts.extend(fact);
                }
                None => {
                    match self.leader.known(region, |known| known.rollback(key, txn.start)) {
                        Ok(Rollback::Fact(fact)) => facts.push(fact),
                        Ok(_) => {}
                        // Nobody can tell how it ended, for nobody needs to know.
                        Err(Error::SnapshotTooOld { .. }) => self.tally.late += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
        if self.submit(region, facts) {
            keys.retain(|key| !some.contains(key));
        }
    }

    /// While a transaction holds a key, its primary says how it ended.
    fn ask(&mut self, txn: &Txn) {
        let Some((_, Some(commit_ts))) = &txn.ending else { return };
        if txn.start <= self.wiped || !self.leader.holds(txn.start) {
            return;
        }
        let region = self.leader.region_of(&txn.primary);
        let now = Timestamp::MAX;
        let status = |known: txn::decide::Known<'_>| known.status(&txn.primary, txn.start, now, 0);
        let status = self.leader.known(region, status).unwrap();
        assert_eq!(status, Status::Ended(Fate::Committed(*commit_ts)), "of {}", txn.start);
        self.tally.asked += 1;
    }

    /// Raises a region's floor: resolves older locks of ended transactions first, and ends some of
    /// those that live.
    fn collect(&mut self) {
        let region = self.some_region();
        let known = self.leader.floors(region);
        let read = Timestamp(known.read.0 + self.random.below((self.now - known.read.0) / 2 + 1));
        let all = self.leader.regions().into_iter().map(|region| self.leader.floors(region).read);
        let settled = all.min().unwrap().max(known.settled);
        let collect = || vec![Fact::Collect(Floors { read, settled })];
        for (key, start) in self.leader.older_locks(region, read) {
            let at = self.txns.iter().position(|txn| txn.start == start).unwrap();
            let mut txn = self.txns.swap_remove(at);
            if txn.ending.is_none() && self.random.chance(0.5) {
                self.give_up(&mut txn);
            }
            if let Some((_, commit_ts)) = txn.ending {
                self.ask(&txn);
                let fact = self.leader.known(region, |known| known.resolve(&key, start, commit_ts));
                self.submit(region, fact.into_iter().collect());
            }
            self.txns.push(txn);
        }
        // A decision that came too late may have split it.
        match self.leader.older_locks(region, read).is_empty() {
            true => {
                if self.submit(region, collect()) {
                    self.tally.collections += 1;
                }
                if self.random.chance(0.5) {
                    self.leader.sweep(region);
                }
            }
            false => self.leader.decide_in_vain(region, collect()),
        }
    }

    /// Removes some garbage from the follower, or all of it from the leader.
    fn sweep(&mut self) {
        let region = self.some_region();
        if self.random.chance(0.2) {
            return self.leader.sweep(region);
        }
        let store = self.rows.replica.store.clone();
        let (steps, keys) = (1 + self.random.below(4), 1 + self.random.below(4) as usize);
        let begun = self.sweeps.remove(&region);
        let begin = || Sweep::new(&store, region).map(|sweep| sweep.step_keys(keys));
        let Some(mut sweep) = begun.or_else(begin) else { return };
        let before = sweep.removed();
        for _ in 0..steps {
            let seen = self.answers(region);
            let more = store.sweep(&mut sweep).unwrap();
            assert!(seen == self.answers(region), "a step of a walk changes answers of {region}");
            if !more {
                self.tally.removed += sweep.removed() - before;
                return;
            }
        }
        self.tally.removed += sweep.removed() - before;
        self.sweeps.insert(region, sweep);
    }

    /// What the follower answers at every timestamp that can be asked for.
    fn answers(&self, region: RegionId) -> Vec<BTreeMap<Vec<u8>, types::Row>> {
        let store = &self.rows.replica.store;
        let Some(view) = store.region(region).filter(|view| view.whole) else { return vec![] };
        let visible = |ts| rows::visible(store, region, &self.leader.schemas, Timestamp(ts));
        (view.floors.read.0..=self.now).map(|ts| visible(ts).unwrap().2).collect()
    }

    /// A version without a lock before it.
    fn import(&mut self) {
        let id = self.some_id();
        let key = key_of(id);
        let region = self.leader.region_of(&key);
        let state = self.leader.known(region, |known| {
            let newest = txn::mvcc::data(known.kv, &key).unwrap();
            known.locks.get(&key).is_none().then(|| newest.live())
        });
        let Some(replaces) = state else { return };
        let row = self.random.chance(0.8).then(|| self.row(region, id));
        let kind = if row.is_some() { WriteKind::Put } else { WriteKind::Delete };
        let commit_ts = self.tick();
        let again = row.is_some() && self.random.chance(0.3);
        let fact = Fact::Write { key, commit_ts, kind, row, replaces };
        // An import that is tried again changes nothing.
        let facts = if again { vec![fact.clone(), fact] } else { vec![fact] };
        self.submit(region, facts);
    }

    fn split(&mut self) {
        if self.leader.regions().len() < MOST_REGIONS
            && self.leader.split(self.some_id(), self.next_region)
        {
            self.next_region += 1;
            self.tally.splits += 1;
        }
    }

    fn delete_range(&mut self) {
        let (a, b) = (self.some_id(), self.some_id());
        let start = key_of(a.min(b));
        let region = self.leader.region(self.leader.region_of(&start));
        let end = key_of(a.max(b)).min(region.end);
        self.wiped = self.tick();
        self.submit(region.id, vec![Fact::DeleteRange { start, end }]);
    }

    fn on_rows(&mut self, work: impl FnOnce(&mut Follower<Rows>, &Leader) -> Result<()>) {
        if let Err(error) = work(&mut self.rows, &self.leader) {
            self.sweeps.clear();
            self.rows.recover(&error, self.random.u64());
        }
    }

    fn on_columns(&mut self, work: impl FnOnce(&mut Follower<Columns>, &Leader) -> Result<()>) {
        if let Err(error) = work(&mut self.columns, &self.leader) {
            self.columns.recover(&error, self.random.u64());
        }
    }

    fn apply_some(&mut self) {
        let region = self.some_region();
        let (rows, columns) = (self.random.below(8), self.random.below(8));
        self.on_rows(|rows_, leader| {
            for _ in 0..rows {
                rows_.apply_one(leader, region)?;
            }
            rows_.finish()
        });
        let finish = self.random.chance(0.7);
        self.on_columns(|columns_, leader| {
            for _ in 0..columns {
                columns_.apply_one(leader, region)?;
            }
            if finish { columns_.finish() } else { Ok(()) }
        });
    }

    fn maintain(&mut self) {
        let (rounds, safe) = (1 + self.random.below(5), Timestamp(self.safe));
        self.on_columns(|columns, _| {
            for _ in 0..rounds {
                columns.replica.store.maintain(safe)?;
            }
            columns.note_durable();
            Ok(())
        });
    }

    /// One of the replicas loses a region, or is far behind, and gets a voter's snapshot; columns
    /// may get a child's before they have split its parent.
    fn copy(&mut self) {
        let region = self.some_region();
        self.tally.copies += 1;
        if self.random.chance(0.3) {
            if self.rows.applied(region).is_some() {
                self.on_rows(|rows, leader| rows.copy(leader, region));
            }
            return;
        }
        let wipe = self.random.chance(0.5);
        self.on_columns(|columns, leader| {
            if wipe && let Some(peer) = columns.replica.peers().remove(&region) {
                columns.reported.remove(&region);
                columns.replica.machines().destroy(peer)?;
            }
            columns.copy(leader, region)
        });
    }

    fn step(&mut self) {
        let region = self.some_region();
        match self.random.below(230) {
            0..12 => self.begin(),
            12..95 => self.advance(),
            95..105 => self.import(),
            105..135 => self.apply_some(),
            135..142 => self.on_rows(|rows, _| rows.persist(region)),
            142..152 => self.on_columns(|columns, _| columns.persist(region)),
            152..168 => self.maintain(),
            168..171 => self.split(),
            171..174 => {
                if self.leader.schemas.len() < 6 {
                    self.leader.alter(self.random.chance(0.4));
                }
            }
            174 => self.delete_range(),
            175..178 => self.leader.next_term(region),
            178..181 => self.leader.change_members(region, 3 + self.random.below(2)),
            181..184 => self.copy(),
            184..187 if self.crashes => self.crash_rows(),
            187..190 if self.crashes => self.columns.crash(self.random.u64()),
            190..194 if self.crashes => {
                self.columns.replica.disk.crash_at_sync(1 + self.random.below(6));
            }
            194 => self.safe += self.random.below((self.now - self.safe) / 2 + 1),
            195..205 => self.collect(),
            205..225 => self.sweep(),
            _ => self.compare_now(),
        }
    }

    /// Removes everything from the follower that may go.
    fn sweep_all(&mut self) {
        self.sweeps.clear();
        let store = &self.rows.replica.store;
        for region in self.leader.regions() {
            let Some(mut sweep) = Sweep::new(store, region) else { continue };
            while store.sweep(&mut sweep).unwrap() {}
            self.tally.removed += sweep.removed();
        }
    }

    fn crash_rows(&mut self) {
        self.sweeps.clear();
        self.rows.crash(self.random.u64());
    }

    /// Everything in the logs is applied, whatever crashes on the way.
    fn settle(&mut self) {
        while let Err(error) = self.rows.catch_up(&self.leader) {
            self.sweeps.clear();
            self.rows.recover(&error, self.random.u64());
        }
        while let Err(error) = self.columns.catch_up(&self.leader) {
            self.columns.recover(&error, self.random.u64());
        }
    }

    /// Compares a region's replicas if they happen to stand at the same entry.
    fn compare_now(&mut self) {
        let region = self.some_region();
        self.on_rows(|rows, _| rows.finish());
        self.on_columns(|columns, _| columns.finish());
        let (rows, columns) = (self.rows.applied(region), self.columns.applied(region));
        if rows == columns && rows.is_some_and(|index| index > 0) {
            let ts = Timestamp(self.random.below(self.now + 1));
            self.compare(region, ts, false);
        }
    }

    /// Rows and columns of a region at a timestamp must be equal, and, once everything is applied,
    /// what the model says.
    fn compare(&mut self, region: RegionId, ts: Timestamp, settled: bool) {
        let store = &self.rows.replica.store;
        if store.region(region).is_some_and(|view| view.floors.check(ts).is_err()) {
            self.tally.too_old += 1;
            return;
        }
        let (_, descriptor, rows) = rows::visible(store, region, &self.leader.schemas, ts).unwrap();
        if settled {
            let newest = self.leader.newest(region);
            let model = self.leader.model.rows(&descriptor, &self.leader.schemas, &newest, ts);
            assert_eq!(rows, model, "rows (left) and model of region {region} at {ts}");
        }
        match self.columns.replica.store.visible_rows(region, ts) {
            Ok(columns) => {
                self.tally.compared += 1;
                assert_eq!(columns, rows, "columns (left) and rows of region {region} at {ts}");
            }
            Err(Error::SnapshotTooOld { floor, .. }) => {
                self.tally.too_old += 1;
                assert!(ts < floor && floor.0 <= self.safe, "{ts} {floor} {}", self.safe);
            }
            // A sync of its disk failed on the way to it.
            Err(error) => self.columns.recover(&error, self.random.u64()),
        }
    }

    /// Everything is applied; every region is compared at a timestamp, and its locks.
    fn check(&mut self, ts: Timestamp) {
        self.settle();
        if self.random.chance(0.3) {
            self.sweep_all();
        }
        for region in self.leader.regions() {
            self.compare(region, ts, true);
            let descriptor = self.leader.region(region);
            let expected = self.leader.model.locked(&descriptor, ts);
            let Some(tablet) = self.columns.replica.store.tablet(region) else { continue };
            let locks = tablet.pending_locks(ts);
            let mut found: Vec<Vec<u8>> = locks.into_iter().map(|lock| lock.key).collect();
            found.sort();
            assert_eq!(found, expected, "locks of region {region} at {ts} in columns");
            let rows = &self.rows.replica.store;
            let first = rows.locks().blocking(&descriptor.start, &descriptor.end, ts);
            assert_eq!(first.map(|lock| lock.key.clone()), expected.first().cloned());
        }
    }

    fn run(&mut self, steps: u64, every: u64) {
        for step in 0..steps {
            self.step();
            if step % 20 == 19 {
                self.check(Timestamp(self.random.below(self.now + 1)));
            }
        }
        let end = self.now + 1;
        for ts in (0..=end).filter(|ts| ts % every == 0 || *ts == end) {
            self.check(Timestamp(ts));
        }
    }

    fn add_to(self, tally: &mut Tally) {
        tally.commits += self.tally.commits;
        tally.conflicts += self.tally.conflicts;
        tally.rollbacks += self.tally.rollbacks;
        tally.stale += self.leader.stale;
        tally.splits += self.tally.splits;
        tally.copies += self.tally.copies;
        tally.row_crashes += self.rows.crashes;
        tally.column_crashes += self.columns.crashes;
        tally.compared += self.tally.compared;
        tally.too_old += self.tally.too_old;
        tally.collections += self.tally.collections;
        tally.removed += self.tally.removed;
        tally.asked += self.tally.asked;
        tally.late += self.tally.late;
    }
}

#[test]
fn rows_and_columns_show_the_same_at_every_timestamp() {
    let mut tally = Tally::default();
    seeds::each("rows_and_columns_show_the_same_at_every_timestamp", 1, |seed| {
        let mut history = History::new(seed, true);
        history.run(STEPS, 1);
        history.add_to(&mut tally);
    });
    eprintln!("{tally:?}");
}

#[test]
fn columns_survive_a_crash_at_each_of_their_syncs() {
    let mut tally = Tally::default();
    seeds::each("columns_survive_a_crash_at_each_of_their_syncs", 50, |seed| {
        let mut calm = History::new(seed, false);
        let before = calm.columns.replica.disk.syncs();
        calm.run(SHORT, 10);
        for sync in 1..=calm.columns.replica.disk.syncs() - before {
            let mut history = History::new(seed, false);
            history.columns.replica.disk.crash_at_sync(sync);
            history.run(SHORT, 10);
            assert!(history.columns.crashes > 0, "sync {sync} was never reached");
            history.add_to(&mut tally);
        }
    });
    eprintln!("{tally:?}");
}
