//! Real kills, torn journals and a full disk: what fjall's store holds afterwards.
//!
//! A writer numbers its batches from one; batch `n` writes, in every keyspace, the counter `n`
//! and one of [`SLOTS`] slots. So a recovered counter says exactly what every slot must hold.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use env::Random;
use kv::{FjallKv, Keyspace, KvEngine, MemoryKv, Pair, WriteBatch};
use types::{Error, Result};

const SLOTS: u64 = 97;
const INGESTED: u64 = 20;
const CACHE: u64 = 1 << 20;

/// Set in a child process: the directory of its store, and what it should do there.
const DIRECTORY: &str = "KV_CRASH_DIRECTORY";
const TASK: &str = "KV_CRASH_TASK";

/// A directory in memory where there is one: killed processes and damaged files need no real disk,
/// and without its syncs there is time for many more of them.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn slot(number: u64) -> Vec<u8> {
    format!("slot{:03}", number % SLOTS).into_bytes()
}

/// Content of a slot as batch `number` leaves it, of a length that varies.
fn content(number: u64) -> Vec<u8> {
    let mut content = number.to_be_bytes().to_vec();
    content.resize(8 + (number % 150) as usize, number as u8);
    content
}

fn numbered(number: u64) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for space in Keyspace::ALL {
        batch.put(space, b"counter", number.to_be_bytes());
        batch.put(space, slot(number), content(number));
    }
    batch
}

/// Pairs that are ingested right after batch `number`, in one keyspace.
fn ingested(number: u64) -> (Keyspace, Vec<Pair>) {
    let space = Keyspace::ALL[(number % 5) as usize];
    let key = |part| format!("ingest{number:020}.{part:03}").into_bytes();
    (space, (0..INGESTED).map(|part| (key(part), content(number))).collect())
}

fn ingests(number: u64) -> bool {
    number.is_multiple_of(211)
}

fn write(store: &dyn KvEngine, number: u64) -> Result<()> {
    store.write(numbered(number))?;
    if ingests(number) {
        let (space, pairs) = ingested(number);
        store.ingest(space, &mut pairs.into_iter().map(Ok))?;
    }
    Ok(())
}

/// Checks that the store holds exactly the first batches, and returns how many.
fn prefix(store: &dyn KvEngine) -> u64 {
    let snapshot = store.snapshot();
    let counters = Keyspace::ALL.map(|space| {
        let counter = snapshot.get(space, b"counter").unwrap();
        counter.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()))
    });
    let last = counters[0];
    assert!(counters.iter().all(|counter| *counter == last), "not one prefix: {counters:?}");
    for space in Keyspace::ALL {
        let slots: Vec<Pair> = snapshot.scan(space, b"slot", b"slou").map(Result::unwrap).collect();
        let mut expected: Vec<Pair> =
            (last.saturating_sub(SLOTS - 1).max(1)..=last).map(|n| (slot(n), content(n))).collect();
        expected.sort();
        assert_eq!(slots, expected, "slots of {space:?} after batch {last}");
    }
    // An ingest is there with all its pairs if a later batch is; that of the last may be cut off.
    for number in (1..=last).filter(|number| ingests(*number)) {
        let (space, pairs) = ingested(number);
        let end = format!("ingest{number:020}/").into_bytes();
        let found: Vec<Pair> =
            snapshot.scan(space, &pairs[0].0, &end).map(Result::unwrap).collect();
        let whole = found == pairs || (number == last && pairs.starts_with(&found));
        assert!(whole, "{} of {INGESTED} ingested after {number} of {last}", found.len());
    }
    last
}

/// In a child: writes batches and reports every sync, until it is killed. Sometimes it kills itself
/// right after an ingest, a point that its parent hardly ever hits.
fn write_for_ever(directory: &Path) -> ! {
    let random = Random::from_os();
    let store = FjallKv::open_with(directory, CACHE, 60_000).unwrap();
    let mut number = prefix(&store);
    println!("opened {number}");
    if ingests(number) {
        let (space, pairs) = ingested(number);
        if store.get(space, &pairs[0].0).unwrap().is_none() {
            store.ingest(space, &mut pairs.into_iter().map(Ok)).unwrap();
        }
    }
    loop {
        number += 1;
        write(&store, number).unwrap();
        if ingests(number) && random.chance(0.1) {
            std::process::abort();
        }
        if random.chance(0.01) {
            store.sync().unwrap();
            println!("synced {number}");
        }
    }
}

/// In a child whose files may not grow further: writes until it fails, then checks the failure.
fn write_until_full(directory: &Path) {
    let store = FjallKv::open_with(directory, CACHE, u64::MAX).unwrap();
    let (mut number, mut synced) = (0, 0);
    let error = loop {
        let mut batch = numbered(number + 1);
        batch.put(Keyspace::Hist, b"bulk", vec![number as u8; 1 << 20]);
        if let Err(error) = store.write(batch) {
            break error;
        }
        number += 1;
        if number.is_multiple_of(16) {
            match store.sync() {
                Ok(()) => synced = number,
                Err(error) => break error,
            }
        }
        assert!(number < 500, "the limit on files has no effect");
    };
    assert!(matches!(error, Error::Io(_)), "{error}");
    // Already the first: whoever made it may never write again.
    assert!(store.refuses_writes());
    let later = store.write(numbered(number + 1)).unwrap_err();
    assert!(matches!(&later, Error::Io(text) if text.contains("opened again")), "{later}");
    assert!(store.sync().is_err());
    assert!(store.get(Keyspace::Data, b"counter").unwrap().is_some());
    drop(store);
    println!("synced {synced}");
}

/// Runs this test binary as a child that does `task`, below a shell's `limits`.
fn child(task: &str, directory: &Path, limits: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("{limits} exec \"$0\" --exact child_process --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .env(DIRECTORY, directory)
        .env(TASK, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn child_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    match std::env::var(TASK).unwrap().as_str() {
        "for ever" => write_for_ever(&directory),
        "until full" => write_until_full(&directory),
        other => panic!("unknown task {other}"),
    }
}

/// Last number that a child reported after `word`.
fn reported(lines: &[String], word: &str) -> Option<u64> {
    let numbers = lines.iter().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    numbers.max()
}

#[test]
fn kill_nine_leaves_a_prefix_with_all_that_was_synced() {
    let directory = scratch();
    let store = directory.path().join("kv");
    let random = Random::from_os();
    let began = Instant::now();
    let (mut rounds, mut beyond, mut lost, mut last) = (0, 0, 0, 0);
    while rounds < 60 && began.elapsed() < Duration::from_secs(12) {
        let mut writer = child("for ever", &store, "");
        let output = BufReader::new(writer.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            output.lines().map_while(std::io::Result::ok).collect::<Vec<String>>()
        });
        std::thread::sleep(Duration::from_millis(30 + random.below(270)));
        writer.kill().unwrap();
        let status = writer.wait().unwrap();
        assert!(status.signal().is_some(), "the writer ended by itself: {status}");
        let lines = reader.join().unwrap();
        let synced = reported(&lines, "synced").or(reported(&lines, "opened")).unwrap_or(last);

        let opened = FjallKv::open_with(&store, CACHE, 60_000).unwrap();
        let found = prefix(&opened);
        assert!(found >= synced.max(last), "found {found}, but {synced} was synced");
        beyond += u64::from(found > synced);
        lost += u64::from(found == synced);
        opened.sync().unwrap();
        last = found;
        rounds += 1;
    }
    println!("{rounds} kills, {last} batches; {beyond} times more was found than was synced");
    assert!(rounds >= 10 && last > 1_000 && beyond > 0, "{rounds} rounds, {last} batches, {lost}");
}

#[test]
fn simulated_crashes_leave_a_prefix_with_all_that_was_synced() {
    let (mut beyond, mut lost) = (0, 0);
    for seed in 0..300 {
        let random = Random::seeded(seed);
        let mut store = MemoryKv::new();
        let mut number = 205;
        for early in 1..=number {
            write(&store, early).unwrap();
        }
        store.sync().unwrap();
        let mut synced = number;
        for _crash in 0..5 {
            for _ in 0..random.below(20) {
                number += 1;
                write(&store, number).unwrap();
                if random.chance(0.1) {
                    store.sync().unwrap();
                    synced = number;
                }
            }
            let recovered = store.crash(random.u64());
            assert!(store.write(numbered(number + 1)).is_err() && store.sync().is_err());
            let found = prefix(&recovered);
            assert!((synced..=number).contains(&found), "seed {seed}: {found}, {synced} synced");
            beyond += u64::from(found > synced);
            lost += u64::from(found < number);
            // Repeated in full, as Raft's log does it.
            for again in found.max(1)..=number {
                write(&recovered, again).unwrap();
            }
            store = recovered;
            synced = found;
        }
    }
    assert!(beyond > 100 && lost > 100, "{beyond} kept more than was synced, {lost} lost some");
}

/// The newest journal and where its last byte that is not zero ends.
fn newest_journal(store: &Path) -> (File, u64) {
    let journals = fs::read_dir(store.join("fjall")).unwrap().map(|entry| entry.unwrap().path());
    let newest = journals
        .filter(|path| path.extension().is_some_and(|e| e == "jnl"))
        .max_by_key(|path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap())
        .unwrap();
    let bytes = fs::read(&newest).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    (OpenOptions::new().read(true).write(true).open(newest).unwrap(), end)
}

/// Damages bytes of the journal from a random place on, in one of the ways of a power cut.
fn damage(random: &Random, journal: &File, end: u64) -> &'static str {
    let at = random.below(end);
    match random.below(4) {
        0 => {
            journal.set_len(at).unwrap();
            "truncated"
        }
        1 => {
            // A lost sector within the tail, with what follows it written.
            let length = (end - at).min(512);
            journal.write_all_at(&vec![0; length as usize], at).unwrap();
            "lost a sector"
        }
        2 => {
            let mut garbage = vec![0; random.below(end - at) as usize + 1];
            random.fill(&mut garbage);
            journal.write_all_at(&garbage, at).unwrap();
            "overwritten by garbage"
        }
        _ => {
            let mut byte = [0];
            journal.read_exact_at(&mut byte, at).unwrap();
            journal.write_all_at(&[byte[0] ^ (1 << random.below(8))], at).unwrap();
            "flipped a bit"
        }
    }
}

#[test]
fn a_damaged_journal_opens_with_a_prefix_while_no_table_is_ahead() {
    for seed in 0..200 {
        let random = Random::seeded(seed);
        let directory = scratch();
        let store = FjallKv::open(directory.path(), CACHE).unwrap();
        let batches = 1 + random.below(150);
        for number in 1..=batches {
            store.write(numbered(number)).unwrap();
        }
        drop(store);
        let (journal, end) = newest_journal(directory.path());
        let how = damage(&random, &journal, end);

        let store = FjallKv::open(directory.path(), CACHE).unwrap();
        let found = prefix(&store);
        assert!(found <= batches, "seed {seed}, {how}");
        // It goes on from there, and what is written now stays.
        for number in found + 1..=found + 20 {
            write(&store, number).unwrap();
        }
        store.sync().unwrap();
        drop(store);
        let store = FjallKv::open(directory.path(), CACHE).unwrap();
        assert_eq!(prefix(&store), found + 20, "seed {seed}, {how}");
    }
}

#[test]
fn damage_of_what_was_synced_is_a_prefix_or_an_error_for_ever() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..200 {
        let random = Random::seeded(seed);
        let directory = scratch();
        let store = FjallKv::open_with(directory.path(), CACHE, 60_000).unwrap();
        for number in 1..=300 {
            write(&store, number).unwrap();
        }
        drop(store);
        let (journal, end) = newest_journal(directory.path());
        let how = damage(&random, &journal, end);
        match FjallKv::open_with(directory.path(), CACHE, 60_000) {
            Ok(store) => {
                assert!(prefix(&store) <= 300, "seed {seed}, {how}");
                opened += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt(_)), "seed {seed}, {how}: {error}");
                let again = FjallKv::open_with(directory.path(), CACHE, 60_000).err();
                assert!(matches!(again, Some(Error::Corrupt(_))), "seed {seed}, {how}: {again:?}");
                refused += 1;
            }
        }
    }
    assert!(opened > 3 && refused > 3, "{opened} opened, {refused} refused");
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing_synced() {
    let directory = scratch();
    let store = directory.path().join("kv");
    // 512-byte blocks: 80 MB a file, of which a new journal claims 64.
    let mut writer = child("until full", &store, "trap '' XFSZ; ulimit -f 160000;");
    let output = BufReader::new(writer.stdout.take().unwrap());
    let lines: Vec<String> = output.lines().map_while(std::io::Result::ok).collect();
    assert!(writer.wait().unwrap().success(), "{lines:?}");
    let synced = reported(&lines, "synced").unwrap();
    let store = FjallKv::open(&store, CACHE).unwrap();
    let found = prefix(&store);
    assert!(synced >= 16 && found >= synced, "found {found}, synced {synced}");
    store.write(numbered(found + 1)).unwrap();
    store.sync().unwrap();
}
