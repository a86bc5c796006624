//! What is done, line by line in a file: a run that ends in the middle goes on from there.
//!
//! A line counts once its end is written. Differences are kept here, not in memory.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read as _, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::bisect::Digest;
use crate::compare::Difference;
use crate::error::{Error, Result};
use crate::range::Key;
use crate::schema::Wishes;

/// What must be the same for a checkpoint to be of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// Sides, without passwords.
    pub source: String,
    /// Sides, without passwords.
    pub target: String,
    /// Columns and rules.
    pub wishes: Wishes,
    /// Condition.
    pub condition: Option<String>,
    /// Rows of a chunk and of a leaf.
    pub rows: (u64, u64),
    /// Engine and snapshot.
    pub reading: String,
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "lowercase")]
pub enum Line {
    /// The first.
    Run {
        /// Version of the lines.
        format: u32,
        /// What is compared, and how.
        parameters: Parameters,
        /// Snapshot tokens of SOURCE and TARGET.
        tokens: [Option<String>; 2],
    },
    /// A table is begun.
    Table {
        /// Table.
        table: String,
        /// Rows of both.
        rows: (u64, u64),
        /// Keys between chunks.
        cuts: Vec<Key>,
        /// Compared columns; so that they are the same when it goes on.
        columns: Vec<String>,
    },
    /// A chunk is done.
    Chunk {
        /// Table.
        table: String,
        /// Number of the chunk.
        chunk: usize,
        /// Of both.
        digests: (Digest, Digest),
        /// Rows that differ.
        differences: Vec<Difference>,
    },
    /// Everything is done.
    End,
}

/// The version of the lines.
const FORMAT: u32 = 1;

/// The file.
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Kept by the user, or deleted at the end.
    _temporary: Option<tempfile::TempPath>,
}

/// What to do with a checkpoint that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Refuse one that is unfinished.
    Refuse,
    /// Go on with one that is unfinished.
    Resume,
    /// Begin anew.
    Restart,
}

impl Journal {
    /// A journal that nobody keeps.
    pub fn temporary() -> Result<Journal> {
        let made = tempfile::NamedTempFile::new()
            .map_err(|cause| Error::Output { file: std::env::temp_dir(), cause })?;
        let (file, path) = made.into_parts();
        Ok(Journal { path: path.to_path_buf(), file, _temporary: Some(path) })
    }

    /// Opens a checkpoint; its tokens, if it goes on with one.
    pub fn open(
        path: &Path,
        existing: Existing,
        parameters: &Parameters,
    ) -> Result<(Journal, Option<[Option<String>; 2]>)> {
        let fail = |cause: std::io::Error| Error::Output { file: path.to_owned(), cause };
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).map_err(fail)?;
        cut_torn_line(&mut file).map_err(fail)?;
        let journal = Journal { path: path.to_owned(), file, _temporary: None };
        let mut begun = None;
        let mut ended = false;
        journal.read(|line| {
            match line {
                Line::Run { format: FORMAT, parameters, tokens } => begun = Some((parameters, tokens)),
                Line::Run { format, .. } => return Err(format!("it is of format {format}, and this is format {FORMAT}; begin anew with --restart")),
                Line::End => ended = true,
                _ => {}
            }
            Ok(())
        })
        .or_else(|error| if existing == Existing::Restart { Ok(()) } else { Err(error) })?;
        let refuse =
            |cause: &str| Err(Error::Checkpoint { file: path.to_owned(), cause: cause.to_owned() });
        match begun {
            _ if ended || existing == Existing::Restart => {}
            None => {}
            Some(_) if existing == Existing::Refuse => {
                return refuse(
                    "it holds an unfinished comparison; go on with --resume, or begin anew with --restart",
                );
            }
            Some((of, tokens)) if of == *parameters => return Ok((journal, Some(tokens))),
            Some((of, _)) => {
                let what = unlike(&of, parameters);
                return refuse(&format!(
                    "it is of a comparison with other {what}; repeat those, or begin anew with --restart"
                ));
            }
        }
        journal.file.set_len(0).map_err(fail)?;
        Ok((journal, None))
    }

    /// Begins anew.
    pub fn begin(&mut self, parameters: Parameters, tokens: [Option<String>; 2]) -> Result<()> {
        self.write(&Line::Run { format: FORMAT, parameters, tokens })
    }

    /// Writes a line.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let fail = |cause: std::io::Error| Error::Output { file: self.path.clone(), cause };
        let mut text = serde_json::to_vec(line).map_err(|error| fail(error.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(fail)
    }

    /// Every line, in order. A refusal becomes an error that names the line.
    pub fn read(
        &self,
        mut take: impl FnMut(Line) -> std::result::Result<(), String>,
    ) -> Result<()> {
        let fail = |cause: std::io::Error| Error::Output { file: self.path.clone(), cause };
        let file = File::open(&self.path).map_err(fail)?;
        for (at, text) in BufReader::new(file).lines().enumerate() {
            let refuse = |cause: String| Error::Checkpoint {
                file: self.path.clone(),
                cause: format!("line {}: {cause}", at + 1),
            };
            let text = text.map_err(fail)?;
            let line = serde_json::from_str(&text).map_err(|error| {
                refuse(format!("is damaged ({error}); begin anew with --restart"))
            })?;
            take(line).map_err(refuse)?;
        }
        Ok(())
    }

    /// A table's chunks in the order of their numbers, whatever order they were finished in.
    pub fn chunks(
        &self,
        label: &str,
        mut take: impl FnMut(usize, (Digest, Digest), Vec<Difference>) -> Result<()>,
    ) -> Result<()> {
        let fail = |cause: std::io::Error| Error::Output { file: self.path.clone(), cause };
        let mut file = BufReader::new(File::open(&self.path).map_err(fail)?);
        let mut places = std::collections::BTreeMap::new();
        let (mut at, mut text) = (0, String::new());
        loop {
            text.clear();
            let length = file.read_line(&mut text).map_err(fail)?;
            if length == 0 {
                break;
            }
            if let Ok(Line::Chunk { table, chunk, .. }) = serde_json::from_str(&text)
                && table == label
            {
                places.entry(chunk).or_insert(at);
            }
            at += length as u64;
        }
        for place in places.into_values() {
            file.seek(SeekFrom::Start(place)).map_err(fail)?;
            text.clear();
            file.read_line(&mut text).map_err(fail)?;
            if let Ok(Line::Chunk { chunk, digests, differences, .. }) = serde_json::from_str(&text)
            {
                take(chunk, digests, differences)?;
            }
        }
        Ok(())
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Drops a line whose end was never written.
fn cut_torn_line(file: &mut File) -> std::io::Result<()> {
    let mut length = file.seek(SeekFrom::End(0))?;
    let mut block = vec![0; 65536];
    while length > 0 {
        let start = length.saturating_sub(block.len() as u64);
        let part =
            block.get_mut(..usize::try_from(length - start).unwrap_or(0)).unwrap_or_default();
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return file.set_len(start + at as u64 + 1);
        }
        length = start;
    }
    file.set_len(0)
}

fn unlike(a: &Parameters, b: &Parameters) -> &'static str {
    if a.source != b.source || a.target != b.target {
        "sides"
    } else if a.wishes != b.wishes {
        "columns or rules"
    } else if a.condition != b.condition {
        "rows (--where)"
    } else if a.rows != b.rows {
        "chunk sizes"
    } else {
        "ways of reading (--engine, --snapshot)"
    }
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod tests;
