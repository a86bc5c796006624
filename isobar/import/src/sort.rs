//! Sorts more keys and rows than memory holds: sorted runs, in memory or in files, and their merge.
//!
//! Files live in a folder of the caller's, who removes it; they hold nothing that is needed after
//! the process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Bytes that an entry costs besides its key and row, about.
const OVERHEAD: usize = 96;
/// Buffer of a run that is written or read.
const BUFFER: usize = 1 << 20;
/// Longest key or row of a run; beyond it, the file is not what was written.
const LONGEST: usize = 1 << 30;

/// Where an entry comes from: a file by number, and a place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// File.
    pub file: u32,
    /// Place, as the file's reader numbers them.
    pub place: u64,
}

/// A key, its row, and where they come from; ordered in this order of importance.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Key.
    pub key: Vec<u8>,
    /// Where it comes from.
    pub origin: Origin,
    /// Row, or an index entry's value.
    pub row: Vec<u8>,
}

/// A sorted part of what is sorted.
#[derive(Debug)]
pub enum Run {
    /// In memory.
    Memory(Vec<Entry>),
    /// In a file.
    File(PathBuf),
}

/// Takes entries in any order.
pub struct Sorter {
    folder: PathBuf,
    name: String,
    budget: usize,
    held: usize,
    entries: Vec<Entry>,
    runs: Vec<Run>,
}

impl Sorter {
    /// A sorter that holds about `budget` bytes and writes what is more into files of the folder,
    /// under its own name.
    pub fn new(folder: &Path, name: impl Into<String>, budget: usize) -> Self {
        let (folder, name) = (folder.to_owned(), name.into());
        Sorter { folder, name, budget, held: 0, entries: Vec::new(), runs: Vec::new() }
    }

    /// Takes an entry.
    ///
    /// # Errors
    ///
    /// A run that cannot be written.
    pub fn push(&mut self, entry: Entry) -> Result<()> {
        self.held += entry.key.len() + entry.row.len() + OVERHEAD;
        self.entries.push(entry);
        if self.held < self.budget {
            return Ok(());
        }
        self.held = 0;
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable();
        let path = self.folder.join(format!("{}-{}.run", self.name, self.runs.len()));
        let write = || -> std::io::Result<()> {
            let mut file = BufWriter::with_capacity(BUFFER, File::create(&path)?);
            entries.iter().try_for_each(|entry| write_entry(&mut file, entry))?;
            file.flush()
        };
        write().with_context(|| {
            format!("cannot write {} (another folder: --temporary)", path.display())
        })?;
        self.runs.push(Run::File(path));
        Ok(())
    }

    /// The sorted runs.
    pub fn finish(mut self) -> Vec<Run> {
        self.entries.sort_unstable();
        self.runs.push(Run::Memory(self.entries));
        self.runs
    }
}

fn write_entry(file: &mut impl Write, entry: &Entry) -> std::io::Result<()> {
    for length in [entry.key.len(), entry.row.len()] {
        file.write_all(&(length as u64).to_le_bytes())?;
    }
    file.write_all(&entry.origin.file.to_le_bytes())?;
    file.write_all(&entry.origin.place.to_le_bytes())?;
    file.write_all(&entry.key)?;
    file.write_all(&entry.row)
}

/// The next entry, or none at the end of the file.
fn read_entry(file: &mut impl Read) -> std::io::Result<Option<Entry>> {
    let mut number = [0; 8];
    match file.read_exact(&mut number) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let key = u64::from_le_bytes(number) as usize;
    file.read_exact(&mut number)?;
    let row = u64::from_le_bytes(number) as usize;
    if key > LONGEST || row > LONGEST {
        return Err(std::io::Error::new(ErrorKind::InvalidData, "it was changed by somebody else"));
    }
    let mut short = [0; 4];
    file.read_exact(&mut short)?;
    file.read_exact(&mut number)?;
    let origin = Origin { file: u32::from_le_bytes(short), place: u64::from_le_bytes(number) };
    let mut entry = Entry { key: vec![0; key], origin, row: vec![0; row] };
    file.read_exact(&mut entry.key)?;
    file.read_exact(&mut entry.row)?;
    Ok(Some(entry))
}

enum Source<'a> {
    Memory(std::slice::Iter<'a, Entry>),
    File(&'a Path, BufReader<File>),
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Source::Memory(entries) => Ok(entries.next().cloned()),
            Source::File(path, file) => {
                read_entry(file).with_context(|| format!("cannot read {}", path.display()))
            }
        }
    }
}

/// All entries of some runs, in order. The runs stay, for another merge.
pub struct Merge<'a> {
    sources: Vec<Source<'a>>,
    heads: BinaryHeap<Reverse<(Entry, usize)>>,
}

impl<'a> Merge<'a> {
    /// Opens the runs.
    ///
    /// # Errors
    ///
    /// A run that cannot be read.
    pub fn new(runs: &'a [Run]) -> Result<Self> {
        let mut merge = Merge { sources: Vec::new(), heads: BinaryHeap::new() };
        for (at, run) in runs.iter().enumerate() {
            merge.sources.push(match run {
                Run::Memory(entries) => Source::Memory(entries.iter()),
                Run::File(path) => {
                    let file = File::open(path)
                        .with_context(|| format!("cannot open {}", path.display()))?;
                    Source::File(path, BufReader::with_capacity(BUFFER, file))
                }
            });
            merge.advance(at)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        if let Some(source) = self.sources.get_mut(at)
            && let Some(entry) = source.next()?
        {
            self.heads.push(Reverse((entry, at)));
        }
        Ok(())
    }
}

impl Iterator for Merge<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let Reverse((entry, at)) = self.heads.pop()?;
        Some(self.advance(at).map(|()| entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7).to_be_bytes().to_vec();
        let row = vec![number as u8; (number % 50) as usize];
        Entry { key, origin: Origin { file: 1, place: number }, row }
    }

    #[test]
    fn what_does_not_fit_into_memory_comes_back_whole_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut runs = Vec::new();
        let mut expected: Vec<Entry> = Vec::new();
        for worker in 0..3 {
            let mut sorter = Sorter::new(folder.path(), format!("w{worker}"), 20_000);
            for number in 0..1_000 {
                let entry = entry(number * 3 + worker);
                expected.push(entry.clone());
                sorter.push(entry).unwrap();
            }
            runs.extend(sorter.finish());
        }
        expected.sort();
        assert!(runs.iter().filter(|run| matches!(run, Run::File(_))).count() > 3);
        for _ in 0..2 {
            let merged: Vec<Entry> = Merge::new(&runs).unwrap().map(Result::unwrap).collect();
            assert_eq!(merged, expected);
        }
    }

    #[test]
    fn a_run_that_was_cut_short_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(folder.path(), "w", 1);
        sorter.push(entry(5)).unwrap();
        let runs = sorter.finish();
        let Run::File(path) = &runs[0] else { panic!("nothing was written") };
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(Merge::new(&runs).is_err());
    }
}
