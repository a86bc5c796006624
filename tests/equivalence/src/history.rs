//! Random histories: transactions that conflict, give up and leave locks behind, imports, schema
//! changes, splits, late decisions; fed to a follower with rows and a learner with columns that
//! lag, flush, merge, crash and are copied anew.

mod transactions;

use std::collections::BTreeMap;

use env::Random;
use txn::{Fact, Floors, Sweep, WriteKind};
use types::key::is_record;
use types::{Error, RegionId, Result, Timestamp};

use crate::columns::Columns;
use crate::follower::{Follower, Replica};
use crate::leader::Leader;
use crate::rows::{self, Rows};
use crate::table::{self, REGION, key_of};
use transactions::Txn;

const STEPS: u64 = 600;
/// For histories that are repeated for every sync in them.
const SHORT: u64 = 200;
const IDS: u64 = 20;
const MOST_REGIONS: usize = 5;

/// What has happened, over all seeds: a history without it would show nothing.
#[derive(Debug, Default)]
struct Tally {
    commits: u64,
    /// … in one entry.
    at_once: u64,
    asynchronous: u64,
    conflicts: u64,
    rollbacks: u64,
    stale: u64,
    splits: u64,
    copies: u64,
    row_crashes: u64,
    column_crashes: u64,
    compared: u64,
    too_old: u64,
    /// Where rows refuse: columns that answered, and that refused.
    below: u64,
    refused: u64,
    /// Floors raised, records removed, fates looked up while a lock was left.
    collections: u64,
    removed: u64,
    looked_up: u64,
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
    next_region: RegionId,
    /// Whether crashes happen by chance.
    crashes: bool,
    tally: Tally,
}

/// What columns hold of a region.
fn records(mut rows: BTreeMap<Vec<u8>, types::Row>) -> BTreeMap<Vec<u8>, types::Row> {
    rows.retain(|key, _| is_record(key));
    rows
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
        let id = self.random.below(IDS) as i64;
        // Every fourth is an entry of an index.
        if id % 4 == 3 { -id } else { id }
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
                self.look_up_fate(&txn);
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
                let region = peer.region().clone();
                drop(peer);
                columns.replica.machines().destroy(&region)?;
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
            174..178 => self.leader.next_term(region),
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
        let floors = store.region(region).map(|view| view.floors).unwrap_or_default();
        if floors.check(ts).is_err() {
            self.tally.too_old += 1;
            if settled {
                self.compare_below(region, ts, floors.read);
            }
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
                let rows = records(rows);
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

    /// Where rows refuse, columns may still answer, but then with every row: what was copied from a
    /// voter without its older versions refuses as well.
    fn compare_below(&mut self, region: RegionId, ts: Timestamp, floor: Timestamp) {
        let safe = floor.max(Timestamp(self.safe));
        match self.columns.replica.store.visible_rows(region, ts) {
            Ok(columns) => {
                let (descriptor, newest) = (self.leader.region(region), self.leader.newest(region));
                let model = self.leader.model.rows(&descriptor, &self.leader.schemas, &newest, ts);
                let model = records(model);
                assert_eq!(columns, model, "columns (left) and model of region {region} at {ts}");
                self.tally.below += 1;
            }
            Err(Error::SnapshotTooOld { floor, .. }) => {
                assert!(ts < floor && floor <= safe, "{ts} {floor} {safe}");
                self.tally.refused += 1;
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
            let held: Vec<_> = expected.iter().filter(|key| is_record(key)).cloned().collect();
            assert_eq!(found, held, "locks of region {region} at {ts} in columns");
            let rows = &self.rows.replica.store;
            let first = rows.locks().blocking(&descriptor.start, &descriptor.end, ts);
            let expected = self.leader.model.blocking(&descriptor, ts);
            assert_eq!(first.map(|lock| lock.key.clone()), expected);
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
        tally.at_once += self.tally.at_once;
        tally.asynchronous += self.tally.asynchronous;
        tally.conflicts += self.tally.conflicts;
        tally.rollbacks += self.tally.rollbacks;
        tally.stale += self.leader.stale;
        tally.splits += self.tally.splits;
        tally.copies += self.tally.copies;
        tally.row_crashes += self.rows.crashes;
        tally.column_crashes += self.columns.crashes;
        tally.compared += self.tally.compared;
        tally.too_old += self.tally.too_old;
        tally.below += self.tally.below;
        tally.refused += self.tally.refused;
        tally.collections += self.tally.collections;
        tally.removed += self.tally.removed;
        tally.looked_up += self.tally.looked_up;
        tally.late += self.tally.late;
    }
}

#[test]
fn rows_and_columns_show_the_same_at_every_timestamp() {
    let mut tally = Tally::default();
    let test = "-p isobar-equivalence rows_and_columns_show_the_same_at_every_timestamp";
    env::seeds::each(test, 200, |seed| {
        let mut history = History::new(seed, true);
        history.run(STEPS, 1);
        history.add_to(&mut tally);
    });
    eprintln!("{tally:?}");
    assert!(tally.at_once > 0, "nothing was ever committed in one entry");
    assert!(tally.asynchronous > 0, "nothing was ever locked by an asynchronous commit");
}

#[test]
fn columns_survive_a_crash_at_each_of_their_syncs() {
    let mut tally = Tally::default();
    let test = "-p isobar-equivalence columns_survive_a_crash_at_each_of_their_syncs";
    env::seeds::each(test, 4, |seed| {
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
