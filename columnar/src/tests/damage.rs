//! Damage: every changed byte is noticed or harmless, and never answered with.

use std::collections::BTreeMap;

use env::{Disk, Operation};
use txn::Fact;
use types::{Error, Row, Timestamp};

use super::harness::{REGION, World, key_of, small};
use crate::manifest::Manifest;
use crate::segment::{data_path, keys_path};
use crate::shared::Config;

fn world() -> (World, u64) {
    let mut world = World::new(Config { delta_rows: 10_000, ..small() });
    for id in 0..40 {
        let row = world.encode(id, id * 3, Some("some text"), 0);
        let fact = world.import(id, 20 + id as u64, Some(row));
        world.append(REGION, vec![fact]);
    }
    world.catch_up().unwrap();
    world.persist(REGION).unwrap();
    (world, 100)
}

fn read(world: &World, ts: u64) -> Result<BTreeMap<Vec<u8>, Row>, Error> {
    // Nothing may hide behind what was read before.
    let files = &world.store.shared.files;
    for path in world.files() {
        let id = crate::segment::id_of(&path).unwrap();
        files.opened.remove(&id);
        for block in 0..4 {
            files.keys.remove(&(id, block));
            files.columns.remove(&(id, 0, block));
        }
    }
    world.store.visible_rows(REGION, Timestamp(ts))
}

#[test]
fn every_flipped_byte_of_a_segment_is_noticed_or_harmless() {
    let (mut world, ts) = world();
    let whole = read(&world, ts).unwrap();
    assert_eq!(whole.len(), 40);
    let (mut noticed, mut harmless) = (0, 0);
    for path in world.files() {
        let length = world.disk.open(&path, env::Access::Read).unwrap().len().unwrap();
        for at in 0..length {
            world.disk.flip_bit(&path, at, (at % 8) as u8).unwrap();
            match read(&world, ts) {
                Ok(rows) => {
                    assert_eq!(rows, whole, "byte {at} of {} changed an answer", path.display());
                    harmless += 1;
                }
                Err(Error::Corrupt(_)) => {
                    noticed += 1;
                    // A reader that met it has quarantined the tablet, for all readers.
                    assert_eq!(world.store.needs_repair().len(), 1);
                    assert!(matches!(read(&world, ts), Err(Error::Corrupt(_))));
                }
                Err(error) => panic!("byte {at} of {}: {error}", path.display()),
            }
            // A reader may not need the byte; a check of all of them does, and may not miss it.
            let checked = world.store.verify(REGION);
            assert!(matches!(checked, Err(Error::Corrupt(_))), "byte {at} of {}", path.display());
            world.disk.flip_bit(&path, at, (at % 8) as u8).unwrap();
            if at % 64 == 0 || at + 1 == length {
                world.crash(at).unwrap();
            } else {
                forgive(&world);
            }
        }
    }
    eprintln!("{noticed} flips noticed by the reader, {harmless} harmless to it");
    assert!(noticed > 1_000);
}

#[test]
fn a_read_that_fails_is_no_damage() {
    let (world, ts) = world();
    let mut failed = 0;
    // The first lists the files.
    for nth in 2.. {
        world.disk.fail_nth(Operation::Read, nth);
        match read(&world, ts) {
            Ok(rows) => {
                assert_eq!(rows.len(), 40);
                break;
            }
            Err(Error::Io(_)) => failed += 1,
            Err(error) => panic!("read {nth}: {error}"),
        }
        assert!(world.store.needs_repair().is_empty());
    }
    assert!(failed > 3, "{failed} reads failed");
}

/// Puts the tablet back as the manifest has it.
fn forgive(world: &World) {
    let tablet = world.store.tablets.get(REGION).unwrap();
    let record = world.store.shared.manifest.lock().state().tablets[&REGION].clone();
    tablet.replace(record).unwrap();
}

#[test]
fn a_quarantined_replica_is_made_anew_by_a_snapshot() {
    let (mut world, ts) = world();
    let whole = read(&world, ts).unwrap();
    let path = world.files()[0].clone();
    world.disk.flip_bit(&path, 100, 1).unwrap();
    assert!(matches!(world.store.verify(REGION), Err(Error::Corrupt(_))));
    assert_eq!(world.store.needs_repair()[0].0, REGION);
    let row = world.encode(1, 1, None, 0);
    let fact = world.import(1, ts - 1, Some(row));
    world.append(REGION, vec![fact]);
    assert!(world.apply_one(REGION).is_err(), "a quarantined tablet goes on applying");
    world.resnapshot(REGION).unwrap();
    assert!(world.store.needs_repair().is_empty());
    assert_eq!(read(&world, ts - 2).unwrap(), whole);
    assert_eq!(read(&world, ts).unwrap().len(), 40);
}

#[test]
fn the_reserved_fact_is_refused() {
    let (mut world, _) = world();
    world.append(REGION, vec![Fact::Reserved]);
    let refused = world.apply_one(REGION);
    assert!(matches!(refused, Err(Error::Corrupt(what)) if what.contains("an unknown fact")));
    assert_eq!(world.store.needs_repair()[0].0, REGION);
}

#[test]
fn a_missing_or_short_file_is_corruption() {
    for shorten in [false, true] {
        let (mut world, ts) = world();
        let id = crate::segment::id_of(&world.files()[0]).unwrap();
        let dir = world.store.shared.files.dir.clone();
        let path = if shorten { data_path(&dir, id) } else { keys_path(&dir, id) };
        world.crash(1).unwrap();
        match shorten {
            true => {
                let file = world.disk.open(&path, env::Access::Write).unwrap();
                file.truncate(file.len().unwrap() - 1).unwrap();
            }
            false => world.disk.remove(&path).unwrap(),
        }
        let error = read(&world, ts).unwrap_err();
        assert!(matches!(&error, Error::Corrupt(what) if what.contains("columns")), "{error}");
    }
}

#[test]
fn a_full_disk_is_a_typed_error_and_loses_nothing() {
    let (mut world, ts) = world();
    let row = world.encode(77, 1, None, 0);
    let fact = world.import(77, ts, Some(row));
    world.append(REGION, vec![fact]);
    world.catch_up().unwrap();
    for _ in 0..3 {
        world.disk.set_capacity(Some(1));
        assert!(matches!(world.persist(REGION), Err(Error::Io(_))));
        assert_eq!(read(&world, ts).unwrap().len(), 41);
        world.disk.set_capacity(None);
        // A sync that fails leaves the manifest in doubt; the next edit writes it anew.
        world.disk.fail_nth(Operation::Sync, 4);
        assert!(matches!(world.persist(REGION), Err(Error::Io(_))));
    }
    world.persist(REGION).unwrap();
    world.crash(3).unwrap();
    assert_eq!(read(&world, ts).unwrap().len(), 41);
    assert!(read(&world, ts).unwrap().contains_key(&key_of(77)));
    // What the failed attempts left behind is gone.
    assert_eq!(world.files().len(), 4);
}

#[test]
fn a_damaged_manifest_is_set_aside_and_the_store_begins_anew() {
    let (world, _) = world();
    let dir = world.store.shared.files.dir.clone();
    let disk = world.store.shared.files.disk.clone();
    let (path, aside) = (dir.join("manifest"), dir.join("manifest.damaged"));
    let file = disk.open(&path, env::Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let whole = world.store.shared.manifest.lock().state().clone();
    let (mut anew, mut earlier) = (0, 0);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        disk.create(&path).unwrap().write_at(&damaged, 0).unwrap();
        let manifest = Manifest::open(disk.clone(), &dir)
            .unwrap_or_else(|error| panic!("byte {at} keeps the store closed: {error}"));
        assert_ne!(*manifest.state(), whole, "byte {at} is not under any checksum");
        match disk.exists(&aside).unwrap() {
            true => {
                assert!(manifest.state().tablets.is_empty(), "byte {at} is half believed");
                disk.remove(&aside).unwrap();
                anew += 1;
            }
            // The last record may be a torn one: what the log holds shows that it was not.
            false => earlier += 1,
        }
    }
    assert!(
        anew > 100 && earlier > 0,
        "{anew} times anew, {earlier} times as before the last edit"
    );
}
