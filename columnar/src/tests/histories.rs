//! Random histories, compared at every timestamp with a trivial multi-version map.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use txn::{Fact, WriteKind};
use types::{RegionId, Timestamp};

use super::harness::{Cells, World, narrowed, small, widened};

/// Seeds of a normal run.
const SEEDS: u64 = 60;
const STEPS: usize = 200;
const IDS: i64 = 24;

struct History {
    world: World,
    random: ChaCha8Rng,
    now: u64,
    /// No reader asks for less.
    safe: u64,
    next_region: RegionId,
    seen: Seen,
}

/// How often what the test is about has happened.
#[derive(Debug, Default)]
struct Seen {
    crashes: u64,
    merges: u64,
    late_entries: u64,
    splits: u64,
    snapshots: u64,
    pins: u64,
}

#[test]
fn random_histories_show_what_the_model_shows() {
    let range = env::seeds::range(SEEDS);
    let all = range.end - range.start;
    let mut seen = Seen::default();
    for seed in range {
        eprintln!("seed {seed}");
        let mut history = History {
            world: World::new(small()),
            random: ChaCha8Rng::seed_from_u64(seed),
            now: 10,
            safe: 0,
            next_region: 11,
            seen,
        };
        for step in 0..STEPS {
            history.step();
            if step % 10 == 9 {
                history.settle();
                let ts = history.random.random_range(0..=history.now);
                history.world.check_at(ts, history.safe);
                history.world.check_locks(history.now);
            }
        }
        history.settle();
        for ts in 0..=history.now {
            history.world.check_at(ts, history.safe);
        }
        seen = history.seen;
    }
    eprintln!("{seen:?}");
    let Seen { crashes, merges, late_entries, splits, snapshots, pins } = seen;
    for often in [crashes, merges, late_entries, splits, snapshots, pins] {
        assert!(all < SEEDS || often >= all / 2, "the histories have become tame: {often}");
    }
}

impl History {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn some_region(&mut self) -> RegionId {
        let regions: Vec<RegionId> = self.world.groups.keys().copied().collect();
        regions[self.random.random_range(0..regions.len())]
    }

    /// Everything in the logs is applied, whatever crashes on the way.
    fn settle(&mut self) {
        loop {
            match self.world.catch_up() {
                Ok(()) => return,
                Err(error) => self.recover(&error.to_string()),
            }
        }
    }

    /// After an error of the disk: cut the power, start again.
    fn recover(&mut self, why: &str) {
        assert!(self.world.disk.is_down(), "an error without a crash: {why}");
        self.crash();
    }

    fn crash(&mut self) {
        self.seen.crashes += 1;
        let seed = self.random.random();
        self.world.crash(seed).unwrap();
        // A replica whose snapshot was cut off holds nothing and is given another.
        self.world.adopt_orphans().unwrap();
    }

    fn step(&mut self) {
        let work = match self.random.random_range(0..100) {
            0..50 => {
                self.write();
                Ok(())
            }
            50..64 => self.apply_some(),
            64..72 => {
                let region = self.some_region();
                self.world.persist(region)
            }
            72..80 => self.maintain(),
            80..86 => self.merge_with_late_deletions(),
            86..88 => self.flush_with_late_entries(),
            88..89 => {
                let nth = self.random.random_range(1..6);
                self.world.disk.crash_at_sync(nth);
                Ok(())
            }
            89..90 => {
                self.crash();
                Ok(())
            }
            90..92 => {
                self.split();
                Ok(())
            }
            92..94 => {
                self.alter();
                Ok(())
            }
            94..95 => self.resnapshot(),
            95..98 => self.pin_and_compare(),
            _ => {
                self.safe = self.random.random_range(self.safe..=self.now);
                Ok(())
            }
        };
        if let Err(error) = work {
            self.recover(&error.to_string());
        }
    }

    fn row(&mut self, id: i64) -> (Cells, Vec<u8>) {
        let newest = self.world.schemas.len() - 1;
        // Leaders accept rows of the schema version before the newest.
        let version = newest - usize::from(newest > 0 && self.random.random_bool(0.3));
        let v = self.random.random_range(-5..5);
        let s = self.random.random_bool(0.7).then(|| format!("s{v}"));
        self.world.encode(id, v, s.as_deref(), version)
    }

    /// One entry of one to four facts about rows of one region.
    fn write(&mut self) {
        let region = self.some_region();
        self.write_to(region);
    }

    fn write_to(&mut self, region: RegionId) {
        let mut facts = Vec::new();
        for _ in 0..self.random.random_range(1..=4) {
            let id = self.random.random_range(0..IDS);
            if self.world.region_of(id) == region {
                facts.extend(self.decide(id));
            }
        }
        if !facts.is_empty() {
            self.world.append(region, facts);
        }
    }

    fn decide(&mut self, id: i64) -> Vec<Fact> {
        let chance = self.random.random_range(0..10);
        if let Some(start) = self.world.is_held(id) {
            let ts = self.tick();
            return match chance {
                0..6 => vec![self.world.commit(id, ts)],
                6..8 => vec![self.world.rollback(id, start)],
                8 => vec![self.world.rollback(id, ts)],
                // Another transaction's prewrite is refused, so nothing is logged.
                _ => Vec::new(),
            };
        }
        let (start, kind) = match chance {
            0..6 => (self.tick(), WriteKind::Put),
            6..8 => (self.tick(), WriteKind::Delete),
            8 => (self.tick(), WriteKind::Lock),
            _ => {
                let row = self.row(id);
                let row = (self.random.random_bool(0.8)).then_some(row);
                let ts = self.tick();
                let fact = self.world.import(id, ts, row.clone());
                // An import that is tried again changes nothing.
                return if row.is_some() && self.random.random_bool(0.3) {
                    vec![fact.clone(), fact]
                } else {
                    vec![fact]
                };
            }
        };
        let row = (kind == WriteKind::Put).then(|| self.row(id));
        let mut facts = vec![self.world.lock(id, start, kind, row)];
        if self.random.random_bool(0.2) {
            // Kept alive: the same lock once more.
            facts.push(facts[0].clone());
        }
        if self.random.random_bool(0.4) {
            let ts = self.tick();
            facts.push(self.world.commit(id, ts));
        } else if self.random.random_bool(0.1) {
            let region = self.world.region_of(id);
            let stale = facts.clone();
            let by_term = self.random.random_bool(0.5);
            self.world.append_stale(region, stale, by_term);
        }
        facts
    }

    fn apply_some(&mut self) -> types::Result<()> {
        let region = self.some_region();
        for _ in 0..self.random.random_range(1..8) {
            self.world.apply_one(region)?;
        }
        if self.random.random_bool(0.7) { self.world.finish() } else { Ok(()) }
    }

    fn maintain(&mut self) -> types::Result<()> {
        let store = self.world.store.clone();
        for _ in 0..self.random.random_range(1..5) {
            store.maintain(Timestamp(self.safe))?;
        }
        self.world.note_durable();
        Ok(())
    }

    /// A merge, with entries applied, flushed or split off between its steps.
    fn merge_with_late_deletions(&mut self) -> types::Result<()> {
        let region = self.some_region();
        let Some(tablet) = self.world.store.tablets.get(region) else { return Ok(()) };
        for _ in 0..self.random.random_range(1..6) {
            self.write_to(region);
            while self.world.apply_one(region)? {}
            self.world.persist(region)?;
        }
        let Some(merge) = tablet.plan_merge(Timestamp(self.safe)) else { return Ok(()) };
        let merged = tablet.merge(&merge)?;
        self.late_entries(region)?;
        if self.random.random_bool(0.3) {
            self.world.persist(region)?;
        }
        tablet.install_merge(&merge, &merged)?;
        self.seen.merges += 1;
        self.world.note_durable();
        Ok(())
    }

    /// A flush, with entries applied and segments merged between its steps.
    fn flush_with_late_entries(&mut self) -> types::Result<()> {
        let region = self.some_region();
        let Some(tablet) = self.world.store.tablets.get(region) else { return Ok(()) };
        let applied = self.world.applied(region).unwrap_or_default();
        let Some(sealed) = tablet.seal_below(applied)? else { return Ok(()) };
        let written = tablet.write_sealed(&sealed)?;
        self.late_entries(region)?;
        if self.random.random_bool(0.5) {
            tablet.compact(Timestamp(self.safe))?;
        }
        tablet.install(&sealed, written)?;
        self.world.note_durable();
        Ok(())
    }

    fn late_entries(&mut self, region: RegionId) -> types::Result<()> {
        for _ in 0..self.random.random_range(0..4) {
            self.write_to(region);
        }
        for _ in 0..self.random.random_range(0..8) {
            self.seen.late_entries += u64::from(self.world.apply_one(region)?);
        }
        if self.random.random_bool(0.3) { self.world.finish() } else { Ok(()) }
    }

    fn split(&mut self) {
        if self.world.groups.len() >= 3 {
            return;
        }
        let at = self.random.random_range(1..IDS);
        let region = self.world.region_of(at);
        let cut = super::harness::key_of(at);
        if self.world.groups[&region].region.start < cut {
            self.world.split(region, &[(at, self.next_region)]);
            self.next_region += 1;
            self.seen.splits += 1;
        }
    }

    fn alter(&mut self) {
        let newest = self.world.schemas.last().unwrap().clone();
        if self.world.schemas.len() >= 5 {
            return;
        }
        let added = newest.columns.iter().find(|column| column.name.starts_with('n'));
        let table = match added {
            Some(column) if self.random.random_bool(0.4) => narrowed(&newest, &column.name.clone()),
            _ => widened(&newest, &format!("n{}", newest.version), i64::from(newest.version)),
        };
        self.world.alter(table);
    }

    /// A replica that fell behind gets a snapshot, beside whoever reads the old one; one that
    /// waits for its parent's split may be overtaken by a snapshot, or learn of its region only.
    fn resnapshot(&mut self) -> types::Result<()> {
        let region = self.some_region();
        if !self.world.learners.contains_key(&region) {
            self.world.create(region)?;
            if self.random.random_bool(0.5) {
                return Ok(());
            }
        }
        if self.world.learners.contains_key(&region) {
            // Its sender has removed versions up to some point that no reader asks before.
            let floor = self.random.random_range(0..=self.safe);
            self.world.resnapshot_from(region, floor)?;
            self.seen.snapshots += 1;
        }
        Ok(())
    }

    /// What was pinned reads the same after anything.
    fn pin_and_compare(&mut self) -> types::Result<()> {
        self.settle();
        let region = self.some_region();
        let handle = self.world.store.tablet(region).unwrap();
        let ts = Timestamp(self.now);
        let snapshot = handle.snapshot_at(ts, handle.region().epoch)?;
        let before = super::scans::dump(&snapshot);
        for _ in 0..4 {
            self.write();
        }
        self.world.catch_up()?;
        self.world.persist(region)?;
        let store = self.world.store.clone();
        while store.maintain(Timestamp(self.safe))? {}
        self.seen.pins += 1;
        assert_eq!(super::scans::dump(&snapshot), before, "a pinned snapshot has changed");
        Ok(())
    }
}
