//! Both disks obey one contract; the simulated one forgets what was not synced.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use env::{Access, Disk, Operation, RealDisk, SimDisk};

fn obeys_the_contract(disk: &dyn Disk, root: &Path) {
    let dir = root.join("a/b");
    disk.create_dir_all(&dir).unwrap();
    disk.create_dir_all(&dir).unwrap();
    let one = dir.join("one");
    let file = disk.create(&one).unwrap();
    assert_eq!(file.append(b"hello").unwrap(), 0);
    assert_eq!(file.append(b" world").unwrap(), 5);
    file.write_at(b"J", 0).unwrap();
    file.write_at(b"!", 13).unwrap();
    assert_eq!(file.len().unwrap(), 14);
    let mut buffer = [1; 20];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 14);
    assert_eq!(&buffer[..14], b"Jello world\0\0!");
    assert_eq!(file.read_at(&mut buffer, 99).unwrap(), 0);
    assert_eq!(file.read_exact_at(&mut buffer, 0).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.truncate(5).unwrap();
    file.sync().unwrap();

    let reader = disk.open(&one, Access::Read).unwrap();
    assert_eq!(reader.len().unwrap(), 5);
    assert!(reader.write_at(b"x", 0).is_err());
    let missing = disk.open(&dir.join("none"), Access::Read).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("none"), "{missing}");

    let two = dir.join("two");
    disk.create(&two).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), [one.clone(), two.clone()]);
    disk.rename(&one, &two).unwrap();
    assert_eq!(disk.list(&dir).unwrap(), std::slice::from_ref(&two));
    assert_eq!(disk.open(&two, Access::Read).unwrap().len().unwrap(), 5);
    disk.sync_dir(&dir).unwrap();
    assert!(disk.exists(&two).unwrap() && !disk.exists(&one).unwrap());
    assert!(disk.exists(&dir).unwrap());
    disk.create(&two).unwrap();
    assert_eq!(disk.open(&two, Access::Read).unwrap().len().unwrap(), 0);
    disk.remove(&two).unwrap();
    assert_eq!(disk.remove(&two).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.create(&root.join("absent/file")).is_err());
    assert!(disk.list(&root.join("absent")).is_err());
    assert_eq!(disk.list(root).unwrap(), [root.join("a")]);
    disk.create(&dir.join("three")).unwrap();
    assert!(disk.free_bytes(root).unwrap() > 0);
    disk.remove_dir_all(&root.join("a")).unwrap();
    disk.remove_dir_all(&root.join("a")).unwrap();
    assert!(disk.list(root).unwrap().is_empty());
}

#[test]
fn real_disk() {
    let dir = tempfile::tempdir().unwrap();
    obeys_the_contract(&RealDisk, dir.path());
}

#[test]
fn simulated_disk() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/sim")).unwrap();
    obeys_the_contract(&disk, Path::new("/sim"));
}

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(path), Access::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_part_of_the_rest() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let disk = SimDisk::new();
        let file = disk.create(Path::new("/f")).unwrap();
        file.append(&[1; 600]).unwrap();
        file.sync().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        file.append(&[2; 600]).unwrap();
        file.append(&[3; 600]).unwrap();
        disk.crash(seed);
        assert!(file.len().is_err(), "a handle survived the crash");
        let bytes = contents(&disk, "/f").unwrap();
        assert_eq!(bytes[..600], [1; 600]);
        assert!(bytes.len() <= 1800);
        seen.insert(bytes);
    }
    let whole = [vec![1; 600], vec![2; 600], vec![3; 600]].concat();
    assert!(seen.contains(&vec![1; 600]), "never lost everything");
    assert!(seen.iter().any(|b| b.len() > 600 && b.len() < 1200), "never tore a write");
    assert!(seen.iter().any(|b| b.contains(&3) && b[..1200] != whole[..1200]), "never reordered");
}

#[test]
fn names_are_durable_only_after_the_directory_sync() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..50 {
        let disk = SimDisk::new();
        disk.create(Path::new("/old")).unwrap().append(b"old").unwrap();
        disk.open(Path::new("/old"), Access::Write).unwrap().sync().unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.rename(Path::new("/old"), Path::new("/new")).unwrap();
        disk.crash(seed);
        // A rename is atomic: one of the names, with the content.
        match (contents(&disk, "/old"), contents(&disk, "/new")) {
            (Some(bytes), None) => {
                assert_eq!(bytes, b"old");
                lost += 1;
            }
            (None, Some(bytes)) => {
                assert_eq!(bytes, b"old");
                kept += 1;
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(kept > 0 && lost > 0);
}

#[test]
fn one_seed_is_one_crash() {
    let run = || {
        let disk = SimDisk::new();
        let file = disk.create(Path::new("/f")).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        for byte in 0..20 {
            file.append(&[byte; 300]).unwrap();
        }
        disk.crash(42);
        contents(&disk, "/f")
    };
    assert_eq!(run(), run());
}

#[test]
fn planned_crashes_and_injected_errors() {
    let disk = SimDisk::new();
    let path = Path::new("/f");
    let file = disk.create(path).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(disk.syncs(), 1);

    disk.fail_nth(Operation::Write, 2);
    file.append(b"a").unwrap();
    assert!(file.append(b"b").unwrap_err().to_string().contains("/f"));
    file.append(b"c").unwrap();
    file.sync().unwrap();

    disk.set_capacity(Some(5));
    assert_eq!(disk.free_bytes(path).unwrap(), 3);
    let full = file.append(b"defgh").unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    assert_eq!(contents(&disk, "/f").unwrap(), b"acdef");
    file.write_at(b"A", 0).unwrap();
    file.truncate(2).unwrap();
    file.append(b"d").unwrap();
    disk.set_capacity(None);

    disk.crash_at_sync(2);
    file.sync().unwrap();
    file.append(b"e").unwrap();
    assert!(file.sync().is_err() && disk.is_down());
    assert!(file.len().is_err() && disk.open(path, Access::Read).is_err());
    disk.crash(3);
    let bytes = contents(&disk, "/f").unwrap();
    assert!(bytes == b"Acd" || bytes == b"Acde", "{bytes:?}");

    let file = disk.open(path, Access::Write).unwrap();
    file.truncate(0).unwrap();
    file.sync().unwrap();
    file.append(b"lost").unwrap();
    disk.fail_nth(Operation::Sync, 1);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    disk.crash(1);
    assert_eq!(contents(&disk, "/f").unwrap(), b"", "a failed sync was repaired by a later one");

    disk.open(path, Access::Write).unwrap().append(&[0; 4]).unwrap();
    disk.flip_bit(path, 2, 3).unwrap();
    assert_eq!(contents(&disk, "/f").unwrap(), [0, 0, 8, 0]);
    assert!(disk.flip_bit(path, 4, 0).is_err());
}

#[test]
fn power_that_is_cut_within_a_write_leaves_a_part_of_it_at_most() {
    let path = Path::new("/file");
    let mut lengths = BTreeSet::new();
    for seed in 0..40 {
        let disk = SimDisk::new();
        let file = disk.create(path).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        disk.crash_at_write(2);
        file.append(&[1; 700]).unwrap();
        assert!(file.append(&[2; 700]).is_err() && disk.is_down());
        assert!(file.append(&[3; 700]).is_err() && file.sync().is_err());
        disk.crash(seed);
        let after = disk.open(path, Access::Read).unwrap();
        assert!(after.len().unwrap() <= 1_400, "nothing is written once the power is cut");
        lengths.insert(after.len().unwrap());
    }
    assert!(lengths.len() > 3, "the write is torn in many ways: {lengths:?}");
}
