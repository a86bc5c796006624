//! Framed and whole files: crashes give a prefix, damage gives an error, nothing gives wrong bytes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use env::frame::{FILE_HEADER, RECORD_HEADER, read_record};
use env::{
    Access, Disk, Format, FrameReader, FrameWriter, Operation, Random, SimDisk, atomic_write,
    read_whole,
};
use types::{Error, Result};

const FORMAT: Format = Format::new(*b"ISOTEST\n", 3);
const LOG: &str = "/log";

fn read_all(disk: &SimDisk) -> Result<Vec<Vec<u8>>> {
    let mut reader = FrameReader::open(disk, Path::new(LOG), FORMAT)?;
    let mut payloads = Vec::new();
    while let Some(record) = reader.next_record()? {
        payloads.push(record.payload);
    }
    Ok(payloads)
}

#[test]
fn random_crashes_leave_a_prefix_that_holds_all_that_was_synced() {
    let (mut torn, mut longer) = (0, 0);
    for seed in 0..400 {
        let random = Random::seeded(seed);
        let disk = SimDisk::new();
        let mut model: Vec<Vec<u8>> = Vec::new();
        let mut writer = FrameWriter::create(&disk, Path::new(LOG), FORMAT).unwrap();
        for _round in 0..4 {
            let mut durable = model.len();
            for _ in 0..random.below(12) {
                if random.chance(0.3) {
                    writer.sync().unwrap();
                    durable = model.len();
                } else {
                    let mut payload = vec![0; random.below(1_500) as usize];
                    random.fill(&mut payload);
                    let offset = writer.append(&payload).unwrap();
                    assert_eq!(read_record(&*writer.file(), offset).unwrap(), payload);
                    model.push(payload);
                }
            }
            disk.crash(random.u64());
            let raw_length = disk.open(Path::new(LOG), Access::Read).unwrap().len().unwrap();
            let mut found = Vec::new();
            writer = FrameWriter::open(&disk, Path::new(LOG), FORMAT, |record| {
                found.push(record.payload);
                Ok(())
            })
            .unwrap();
            torn += u32::from(writer.len() < raw_length);
            assert!(found.len() >= durable, "seed {seed}: lost a synced record");
            longer += u32::from(found.len() > durable);
            assert_eq!(found, model[..found.len()], "seed {seed}: not a prefix");
            model = found;
        }
        assert_eq!(read_all(&disk).unwrap(), model);
    }
    assert!(torn > 20 && longer > 20, "the crashes were too kind: {torn} torn, {longer} longer");
}

/// Ten records, each synced; offsets of their beginnings.
fn synced_log(disk: &SimDisk) -> Vec<u64> {
    let mut writer = FrameWriter::create(disk, Path::new(LOG), FORMAT).unwrap();
    (0..10u8)
        .map(|number| {
            let offset = writer.append(&[number; 50]).unwrap();
            writer.sync().unwrap();
            offset
        })
        .collect()
}

#[test]
fn every_flipped_bit_inside_is_reported() {
    let disk = SimDisk::new();
    let offsets = synced_log(&disk);
    for byte in 0..offsets[9] {
        let bit = (byte % 8) as u8;
        disk.flip_bit(Path::new(LOG), byte, bit).unwrap();
        match read_all(&disk) {
            Err(Error::Corrupt(text)) => assert!(text.contains(LOG), "{text}"),
            other => panic!("byte {byte}: {other:?}"),
        }
        disk.flip_bit(Path::new(LOG), byte, bit).unwrap();
    }
    assert_eq!(read_all(&disk).unwrap().len(), 10);
    // No later record vouches for the last one: it reads as a torn tail.
    disk.flip_bit(Path::new(LOG), offsets[9] + RECORD_HEADER, 0).unwrap();
    assert_eq!(read_all(&disk).unwrap().len(), 9);
    let file = disk.open(Path::new(LOG), Access::Read).unwrap();
    assert!(matches!(read_record(&*file, offsets[9]), Err(Error::Corrupt(_))));
    assert!(matches!(read_record(&*file, offsets[9] + 1), Err(Error::Corrupt(_))));
}

#[test]
fn every_truncation_leaves_a_prefix() {
    let disk = SimDisk::new();
    let offsets = synced_log(&disk);
    let file = disk.open(Path::new(LOG), Access::Write).unwrap();
    for length in (0..file.len().unwrap()).rev() {
        file.truncate(length).unwrap();
        let whole = offsets.iter().filter(|o| **o + RECORD_HEADER + 50 <= length).count();
        assert_eq!(read_all(&disk).unwrap().len(), whole, "length {length}");
    }
    // Even the header may be missing, if the crash hit the file's creation.
    file.truncate(FILE_HEADER - 1).unwrap();
    let mut writer =
        FrameWriter::open(&disk, Path::new(LOG), FORMAT, |_| panic!("no record")).unwrap();
    writer.append(b"again").unwrap();
    assert_eq!(read_all(&disk).unwrap(), [b"again"]);
}

#[test]
fn stale_records_beyond_the_end_are_not_taken() {
    let disk = SimDisk::new();
    let mut writer = FrameWriter::create(&disk, Path::new(LOG), FORMAT).unwrap();
    writer.append(&[1; 100]).unwrap();
    writer.append(&[2; 100]).unwrap();
    // A copy of a valid record where no record begins, as a payload or a recycled block holds.
    let file = writer.file();
    let mut copy = vec![0; 120];
    file.read_exact_at(&mut copy, FILE_HEADER).unwrap();
    file.write_at(&copy, writer.len()).unwrap();
    assert_eq!(read_all(&disk).unwrap().len(), 2);
}

#[test]
fn errors_name_the_file_and_leave_it_usable() {
    let disk = SimDisk::new();
    let mut writer = FrameWriter::create(&disk, Path::new(LOG), FORMAT).unwrap();
    disk.set_capacity(Some(60));
    let full = writer.append(&[7; 100]).unwrap_err();
    assert!(matches!(&full, Error::Io(text) if text.contains(LOG)), "{full}");
    disk.set_capacity(None);
    writer.append(b"fits").unwrap();
    assert_eq!(read_all(&disk).unwrap(), [b"fits"]);
    assert!(matches!(writer.append(&vec![0; 1 << 30]), Err(Error::Invalid(_))));

    disk.fail_nth(Operation::Sync, 1);
    assert!(writer.sync().is_err());
    assert!(writer.append(b"x").is_err() && writer.sync().is_err());

    let other = Format::new(*b"ISOOTHER", 3);
    let error = FrameReader::open(&disk, Path::new(LOG), other).err().unwrap();
    assert!(matches!(&error, Error::Corrupt(text) if text.contains("ISOTEST")), "{error}");
    let newer = Format::new(FORMAT.magic, 4);
    let error = FrameReader::open(&disk, Path::new(LOG), newer).err().unwrap();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("version 3")), "{error}");
}

#[test]
fn a_whole_file_is_old_or_new() {
    let path = Path::new("/state");
    let (mut old, mut new) = (0, 0);
    for seed in 0..100 {
        let disk = SimDisk::new();
        assert_eq!(read_whole(&disk, path, FORMAT).unwrap(), None);
        atomic_write(&disk, path, FORMAT, b"first").unwrap();
        disk.crash_at_sync(1 + seed % 3);
        let done = atomic_write(&disk, path, FORMAT, &[9; 2_000]).is_ok();
        disk.crash(seed);
        match read_whole(&disk, path, FORMAT).unwrap().unwrap() {
            content if content == b"first" => {
                assert!(!done, "seed {seed}: lost an acknowledged write");
                old += 1;
            }
            content => {
                assert_eq!(content, [9; 2_000]);
                new += 1;
            }
        }
    }
    assert!(old > 0 && new > 0);
}

#[test]
fn a_damaged_whole_file_is_reported() {
    let disk = SimDisk::new();
    let path = Path::new("/state");
    atomic_write(&disk, path, FORMAT, b"content").unwrap();
    let length = disk.open(path, Access::Read).unwrap().len().unwrap();
    for byte in 0..length {
        disk.flip_bit(path, byte, 5).unwrap();
        let error = read_whole(&disk, path, FORMAT).unwrap_err();
        assert!(matches!(&error, Error::Corrupt(text) if text.contains("/state")), "{error}");
        disk.flip_bit(path, byte, 5).unwrap();
    }
    let file = disk.open(path, Access::Write).unwrap();
    file.truncate(10).unwrap();
    assert!(matches!(read_whole(&disk, path, FORMAT), Err(Error::Corrupt(_))));
}
