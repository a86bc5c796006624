//! One suite for every engine: random operations against ordered maps, then the edges by name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use env::Random;
use kv::{Change, FjallKv, Keyspace, KvEngine, KvRead, MemoryKv, Pair, WriteBatch};
use types::Error;

/// A directory in memory where there is one: nothing here needs a real disk's syncs.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// An engine with the means to close and open it again.
trait Subject {
    fn engine(&self) -> &dyn KvEngine;
    fn reopen(&mut self);
}

impl Subject for MemoryKv {
    fn engine(&self) -> &dyn KvEngine {
        self
    }

    fn reopen(&mut self) {
        self.sync().unwrap();
        *self = self.crash(0);
    }
}

struct OnDisk {
    directory: PathBuf,
    engine: Option<FjallKv>,
    seal_bytes: u64,
}

impl OnDisk {
    fn new(directory: PathBuf, seal_bytes: u64) -> Self {
        let mut subject = OnDisk { directory, engine: None, seal_bytes };
        subject.reopen();
        subject
    }
}

impl Subject for OnDisk {
    fn engine(&self) -> &dyn KvEngine {
        self.engine.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.engine = None;
        let opened = FjallKv::open_with(&self.directory, 1 << 20, self.seal_bytes);
        self.engine = Some(opened.unwrap());
    }
}

type Model = [BTreeMap<Vec<u8>, Vec<u8>>; Keyspace::ALL.len()];

/// Keys of one to three bytes over a small alphabet, so that they meet often and nest.
fn key(random: &Random) -> Vec<u8> {
    (0..=random.below(3)).map(|_| [0, 1, 97, 98, 255][random.below(5) as usize]).collect()
}

fn value(random: &Random) -> Vec<u8> {
    let mut value = vec![0; random.below(60) as usize];
    random.fill(&mut value);
    value
}

fn space(random: &Random) -> Keyspace {
    Keyspace::ALL[random.below(5) as usize]
}

fn batch(random: &Random, model: &mut Model) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for _ in 0..random.below(8) {
        let (space, key) = (space(random), key(random));
        if random.chance(0.3) {
            model[space as usize].remove(&key);
            batch.delete(space, key);
        } else {
            let value = value(random);
            model[space as usize].insert(key.clone(), value.clone());
            batch.put(space, key, value);
        }
    }
    batch
}

fn agrees(random: &Random, read: &dyn KvRead, model: &Model) {
    let space = space(random);
    let map = &model[space as usize];
    let (start, end) = match random.below(3) {
        0 => (vec![], vec![255; 5]),
        _ => (key(random), key(random)),
    };
    let expected: Vec<Pair> = if start < end {
        map.range(start.clone()..end.clone()).map(|(k, v)| (k.clone(), v.clone())).collect()
    } else {
        vec![]
    };
    let scanned: Vec<Pair> = read.scan(space, &start, &end).map(Result::unwrap).collect();
    assert_eq!(scanned, expected, "scan of {space:?}");
    let mut reverse: Vec<Pair> =
        read.scan_reverse(space, &start, &end).map(Result::unwrap).collect();
    reverse.reverse();
    assert_eq!(reverse, expected, "reverse scan of {space:?}");
    let key = key(random);
    assert_eq!(read.get(space, &key).unwrap(), map.get(&key).cloned(), "get of {space:?}");
}

fn random_history(subject: &mut dyn Subject, seed: u64, steps: usize) {
    let random = Random::seeded(seed);
    let mut model = Model::default();
    let mut snapshots: Vec<(Box<dyn KvRead>, Model)> = Vec::new();
    for _ in 0..steps {
        match random.below(100) {
            0..60 => {
                let batch = batch(&random, &mut model);
                subject.engine().write(batch).unwrap();
            }
            60..75 => {
                agrees(&random, &*subject.engine().snapshot(), &model);
                let (space, key) = (space(&random), key(&random));
                let found = subject.engine().get(space, &key).unwrap();
                assert_eq!(found, model[space as usize].get(&key).cloned());
            }
            75..82 => snapshots.push((subject.engine().snapshot(), model.clone())),
            82..88 => {
                if let Some((read, model)) = snapshots.last() {
                    agrees(&random, &**read, model);
                }
            }
            88..91 => {
                if !snapshots.is_empty() {
                    let chosen = random.below(snapshots.len() as u64) as usize;
                    let (read, model) = snapshots.swap_remove(chosen);
                    agrees(&random, &*read, &model);
                }
            }
            91..95 => {
                let (space, start, end) = (space(&random), key(&random), key(&random));
                subject.engine().delete_range(space, &start, &end).unwrap();
                model[space as usize].retain(|key, _| *key < start || *key >= end);
                if random.chance(0.7) {
                    let mut pairs: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
                    for _ in 0..random.below(10) {
                        pairs.insert(key(&random), value(&random));
                    }
                    pairs.retain(|key, _| *key >= start && *key < end);
                    let mut feed = pairs.clone().into_iter().map(Ok);
                    subject.engine().ingest(space, &mut feed).unwrap();
                    model[space as usize].extend(pairs);
                }
            }
            95..98 => subject.engine().sync().unwrap(),
            _ => {
                snapshots.clear();
                subject.reopen();
            }
        }
    }
    for _ in 0..20 {
        agrees(&random, &*subject.engine().snapshot(), &model);
    }
}

fn edges(subject: &mut dyn Subject) {
    let put = |engine: &dyn KvEngine, key: &[u8], value: &[u8]| {
        let mut batch = WriteBatch::default();
        batch.put(Keyspace::Data, key, value);
        engine.write(batch)
    };
    let engine = subject.engine();
    assert!(matches!(put(engine, b"", b"v"), Err(Error::Invalid(_))));
    assert!(matches!(put(engine, &[7; 65_536], b"v"), Err(Error::Invalid(_))));
    put(engine, &[7; 65_535], b"").unwrap();
    assert_eq!(engine.get(Keyspace::Data, &[7; 65_535]).unwrap(), Some(vec![]));
    assert_eq!(engine.get(Keyspace::Data, b"").unwrap(), None);
    engine.write(WriteBatch::default()).unwrap();

    // Within a batch the last change of a key wins, whatever its kind.
    let mut batch = WriteBatch::default();
    batch.put(Keyspace::Lock, b"a", b"1");
    batch.delete(Keyspace::Lock, b"a");
    batch.delete(Keyspace::Lock, b"b");
    batch.put(Keyspace::Lock, b"b", b"2");
    assert_eq!(batch.changes[1].2, Change::Delete);
    engine.write(batch).unwrap();
    assert_eq!(engine.get(Keyspace::Lock, b"a").unwrap(), None);
    assert_eq!(engine.get(Keyspace::Lock, b"b").unwrap(), Some(b"2".to_vec()));

    let descending = vec![(b"z".to_vec(), vec![]), (b"y".to_vec(), vec![])];
    let refused = engine.ingest(Keyspace::Hist, &mut descending.into_iter().map(Ok));
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let mut failing =
        [Ok((b"k".to_vec(), vec![])), Err(Error::Cancelled("feed".into()))].into_iter();
    assert_eq!(engine.ingest(Keyspace::Hist, &mut failing), Err(Error::Cancelled("feed".into())));
    engine.ingest(Keyspace::Hist, &mut std::iter::empty()).unwrap();
    assert_eq!(engine.snapshot().scan(Keyspace::Hist, b"", &[255]).count(), 0);

    // An ingest is newer than what was deleted before it, and older than what is written after.
    put(engine, b"i", b"old").unwrap();
    engine.delete_range(Keyspace::Data, b"i", b"j").unwrap();
    let mut feed = [Ok((b"i".to_vec(), b"new".to_vec()))].into_iter();
    engine.ingest(Keyspace::Data, &mut feed).unwrap();
    assert_eq!(engine.get(Keyspace::Data, b"i").unwrap(), Some(b"new".to_vec()));
    put(engine, b"i", b"newest").unwrap();
    engine.sync().unwrap();
    assert!(engine.disk_bytes() > 0);
    subject.reopen();
    assert_eq!(subject.engine().get(Keyspace::Data, b"i").unwrap(), Some(b"newest".to_vec()));
}

#[test]
fn memory_obeys() {
    for seed in 0..60 {
        random_history(&mut MemoryKv::new(), seed, 600);
    }
    edges(&mut MemoryKv::new());
}

#[test]
fn fjall_obeys() {
    for (seed, seal_bytes) in [(1, 64 << 20), (2, 20_000), (3, 4_000), (4, 1_000)] {
        let directory = scratch();
        let mut subject = OnDisk::new(directory.path().join("kv"), seal_bytes);
        random_history(&mut subject, seed, 1_500);
    }
    let directory = scratch();
    edges(&mut OnDisk::new(directory.path().to_path_buf(), 64 << 20));
}

#[test]
fn threads_see_whole_batches_in_snapshots() {
    // Sealed after every few batches, so that tables are finished all the while.
    let directory = scratch();
    let disk = FjallKv::open_with(directory.path(), 1 << 20, 4_000).unwrap();
    for engine in [&disk as &dyn KvEngine, &MemoryKv::new()] {
        std::thread::scope(|scope| {
            let writers = [0, 1u8].map(|writer| {
                scope.spawn(move || {
                    for round in 0..4_000u32 {
                        let mut batch = WriteBatch::default();
                        for space in Keyspace::ALL {
                            batch.put(space, [writer], round.to_be_bytes());
                        }
                        engine.write(batch).unwrap();
                    }
                })
            });
            while !writers.iter().all(|writer| writer.is_finished()) {
                let snapshot = engine.snapshot();
                for writer in 0..2u8 {
                    let found = Keyspace::ALL.map(|s| snapshot.get(s, &[writer]).unwrap());
                    assert!(found.iter().all(|value| *value == found[0]), "{found:?}");
                }
            }
        });
    }
}

#[test]
fn only_an_empty_directory_becomes_a_store() {
    let directory = scratch();
    std::fs::write(directory.path().join("letter.txt"), b"dear").unwrap();
    let error = FjallKv::open(directory.path(), 1 << 20).err().unwrap();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("ISOBAR")), "{error}");

    let directory = scratch();
    let first = FjallKv::open(directory.path(), 1 << 20).unwrap();
    let error = FjallKv::open(directory.path(), 1 << 20).err().unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    drop(first);
    FjallKv::open(directory.path(), 1 << 20).unwrap();
    let marker = directory.path().join("ISOBAR");
    std::fs::write(&marker, b"something else entirely, not a marker").unwrap();
    let error = FjallKv::open(directory.path(), 1 << 20).err().unwrap();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}
