//! A store on disk whose files are flipped or cut: nothing wrong is read, and it begins anew.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use kv::{FjallKv, Keyspace, KvEngine, WriteBatch};
use types::Error;

const ROWS: u32 = 20_000;

fn key(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n} {}", n.wrapping_mul(2_654_435_761)).into_bytes()
}

/// A store with tables and a journal; closed.
fn filled(path: &Path) {
    let store = FjallKv::open_with(path, 1 << 20, 256 << 10).unwrap();
    for from in (0..ROWS).step_by(500) {
        let mut batch = WriteBatch::default();
        (from..from + 500).for_each(|n| batch.put(Keyspace::Data, key(n), value(n)));
        store.write(batch).unwrap();
    }
    store.sync().unwrap();
}

/// Every file of a store, but those that are kept aside.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir).into_iter().filter(|path| path.parent().unwrap().ends_with("tables")).collect()
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x04], at).unwrap();
}

/// Reads everything: only what was written may come, or an error that is damage.
fn read_all(store: &FjallKv) -> Result<u32, Error> {
    let snapshot = store.snapshot();
    let mut rows = 0;
    for pair in snapshot.scan(Keyspace::Data, &[], &[0xff; 8]) {
        let (found, content) = pair?;
        let n = u32::from_be_bytes(found.try_into().unwrap());
        assert_eq!(content, value(n), "row {n}");
        rows += 1;
    }
    Ok(rows)
}

#[test]
fn a_flip_anywhere_is_found_or_harmless_and_the_store_begins_anew() {
    // In memory where there is one: journals of 64 MiB are copied.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let whole = dir.path().join("whole");
    filled(&whole);
    let names: Vec<PathBuf> =
        files(&whole).into_iter().map(|f| f.strip_prefix(&whole).unwrap().to_owned()).collect();
    let (mut anew, mut found, mut cut, mut harmless) = (0, 0, 0, 0);
    for name in names {
        let length = fs::metadata(whole.join(&name)).unwrap().len();
        // Journals are long and empty at their ends.
        // The list of a tree's tables is small, and every part of it counts.
        let is_list = name.file_name().is_some_and(|name| name.to_string_lossy().starts_with('v'));
        let shares = if is_list { (0..100).step_by(6).collect() } else { vec![1, 40, 99] };
        for share in shares {
            let at = length.min(1 << 20) * share / 100;
            if at >= length {
                continue;
            }
            let copy = dir.path().join("copy");
            let _ = fs::remove_dir_all(&copy);
            copy_dir(&whole, &copy);
            flip(&copy.join(&name), at);
            let (store, why) = FjallKv::open_or_begin_anew(&copy, 1 << 20)
                .unwrap_or_else(|error| panic!("{} at {at}: {error}", name.display()));
            if why.is_some() {
                assert_eq!(read_all(&store).unwrap(), 0);
                anew += 1;
                continue;
            }
            match (read_all(&store), store.scrub(|_| true)) {
                (Ok(ROWS), Ok(())) => harmless += 1,
                // Behind the journal's mark it may be a torn tail: a prefix is left, and Raft's log
                // has the rest or shows that it is missing.
                (Ok(rows), Ok(())) if name.extension().is_some_and(|e| e == "jnl") => {
                    assert!(
                        rows < ROWS && rows % 500 == 0,
                        "{} at {at}: {rows} rows",
                        name.display()
                    );
                    cut += 1;
                }
                (Ok(rows), Ok(())) => panic!("{} at {at}: {rows} rows", name.display()),
                _ => {
                    found += 1;
                    assert!(store.damage().is_some(), "{} at {at}", name.display());
                    drop(store);
                    let (store, why) = FjallKv::open_or_begin_anew(&copy, 1 << 20).unwrap();
                    assert!(why.is_some(), "{} at {at}: found and forgotten", name.display());
                    assert_eq!(read_all(&store).unwrap(), 0);
                    drop(store);
                    let (_, why) = FjallKv::open_or_begin_anew(&copy, 1 << 20).unwrap();
                    assert_eq!(why, None, "it begins anew once");
                }
            }
        }
    }
    println!("{anew} times anew, {found} found later, {cut} cut, {harmless} harmless");
    assert!(anew > 0 && found > 0);
}

#[test]
fn a_table_that_is_cut_or_gone_does_not_keep_the_store_closed() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let whole = dir.path().join("whole");
    filled(&whole);
    for left in [None, Some(0), Some(10), Some(1_000), Some(50_000)] {
        let copy = dir.path().join("copy");
        let _ = fs::remove_dir_all(&copy);
        copy_dir(&whole, &copy);
        let table = tables(&copy).into_iter().max_by_key(|p| p.metadata().unwrap().len()).unwrap();
        match left {
            None => fs::remove_file(&table).unwrap(),
            Some(bytes) => {
                OpenOptions::new().write(true).open(&table).unwrap().set_len(bytes).unwrap();
            }
        }
        let (store, why) = FjallKv::open_or_begin_anew(&copy, 1 << 20).unwrap();
        assert!(why.is_some(), "left of it: {left:?}");
        assert_eq!(read_all(&store).unwrap(), 0);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_dir(&path, &target),
            // Journals are mostly holes.
            false => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}
