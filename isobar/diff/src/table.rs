//! One table's comparison: chunks, their digests, the rows that differ; all of it into the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};

use crate::bisect::{Bisect, Cut, Digest, Moved, Request, Side};
use crate::compare::{Difference, compare};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::journal::{Journal, Line};
use crate::progress::Progress;
use crate::range::{Key, Range, find};
use crate::schema::Plan;

/// Pieces that a range with differences is cut into.
const FAN_OUT: u64 = 16;
/// Chunks that are looked at in one pass over files.
const FILE_BATCH: usize = 256;
/// Rows fetched at once.
const FETCHED: u64 = 50_000;

/// Everything needed for one table.
pub struct Comparison {
    /// Name in the journal.
    pub label: String,
    /// Columns, rules, key.
    pub plan: Arc<Plan>,
    /// SOURCE.
    pub source: Input,
    /// TARGET.
    pub target: Input,
    /// Whether each side is read at one snapshot.
    pub still: [bool; 2],
    /// Rows of a chunk.
    pub chunk_rows: u64,
    /// Rows of a leaf.
    pub fetch_rows: u64,
    /// Chunks at once.
    pub threads: usize,
    /// Differences after which to stop.
    pub most: u64,
    /// Show no progress.
    pub quiet: bool,
}

/// Rows of both, keys between chunks, columns.
type Begun = ((u64, u64), Vec<Key>, Vec<String>);

/// What the journal knows of a table.
#[derive(Default)]
pub struct Known {
    /// With what it was begun.
    pub begun: Option<Begun>,
    /// Finished chunks.
    pub done: BTreeSet<usize>,
    /// Their rows.
    pub rows: u64,
    /// Their digests.
    pub sums: (Digest, Digest),
    /// Their differences.
    pub differences: u64,
}

impl Known {
    /// Reads a journal.
    pub fn read(journal: &Journal, label: &str) -> Result<Known> {
        let mut known = Known::default();
        journal.read(|line| {
            match line {
                Line::Table { table, rows, cuts, columns } if table == label => {
                    known.begun = Some((rows, cuts, columns));
                }
                // A chunk that is there twice counts once.
                Line::Chunk { table, chunk, digests, differences }
                    if table == label && known.done.insert(chunk) =>
                {
                    known.add(digests, differences.len() as u64);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(known)
    }

    fn add(&mut self, digests: (Digest, Digest), differences: u64) {
        self.rows += digests.0.rows.max(digests.1.rows);
        self.sums.0.add(digests.0);
        self.sums.1.add(digests.1);
        self.differences += differences;
    }
}

/// A finished chunk.
struct Done {
    chunk: usize,
    digests: (Digest, Digest),
    differences: Vec<Difference>,
}

/// What a table's comparison came to, beside what is in the journal.
pub struct Outcome {
    /// Rows looked at in this run.
    pub rows: u64,
    /// What a user should know.
    pub notes: Vec<String>,
    /// Rows of both.
    pub counts: (u64, u64),
}

impl Comparison {
    /// Compares what the journal does not know yet.
    pub async fn run(&self, journal: &mut Journal) -> Result<Outcome> {
        let mut known = Known::read(journal, &self.label)?;
        let columns: Vec<String> =
            self.plan.columns.iter().map(|c| c.source.name.clone()).collect();
        let (counts, cuts) = match known.begun.take() {
            Some((counts, cuts, of)) if of == columns => (counts, cuts),
            Some(_) => {
                return Err(Error::Checkpoint {
                    file: journal.path().to_owned(),
                    cause: format!(
                        "the columns of {} have changed since; begin anew with --restart",
                        self.label
                    ),
                });
            }
            None => {
                let (counts, cuts) = self.begin().await?;
                journal.write(&Line::Table {
                    table: self.label.clone(),
                    rows: counts,
                    cuts: cuts.clone(),
                    columns,
                })?;
                (counts, cuts)
            }
        };
        let chunks = Range::all().cut(cuts);
        let before = known.rows;
        let mut progress =
            Progress::new(&self.label, counts.0.max(counts.1), known.rows, self.quiet);
        let open: Vec<(usize, Range)> =
            chunks.iter().cloned().enumerate().filter(|(at, _)| !known.done.contains(at)).collect();
        let files = self.source.is_files() || self.target.is_files();
        let (batch, width) = if files { (FILE_BATCH, 1) } else { (1, self.threads) };
        let batches = open.chunks(batch).map(|batch| self.batch(batch.to_vec()));
        let mut results = futures::stream::iter(batches).buffer_unordered(width);
        let mut moved = None;
        while known.differences < self.most {
            let Some((done, unlike)) = results.try_next().await? else { break };
            moved = moved.or(unlike);
            for Done { chunk, digests, differences } in done {
                known.add(digests, differences.len() as u64);
                progress.add(digests.0.rows.max(digests.1.rows));
                journal.write(&Line::Chunk {
                    table: self.label.clone(),
                    chunk,
                    digests,
                    differences,
                })?;
            }
        }
        drop(results);
        progress.finish();
        let mut notes = Vec::new();
        if known.differences >= self.most {
            notes.push(format!(
                "stopped after {} differences (--max-differences)",
                known.differences
            ));
        } else {
            self.check_counts(counts, known.sums, moved, &mut notes)?;
        }
        Ok(Outcome { rows: known.rows - before, notes, counts })
    }

    /// Counts, and the keys between chunks, by the side with more rows.
    async fn begin(&self) -> Result<((u64, u64), Vec<Key>)> {
        let all = Range::all();
        let counts = futures::try_join!(self.source.count(&all), self.target.count(&all))?;
        let (side, rows) =
            if counts.1 > counts.0 { (Side::Target, counts.1) } else { (Side::Source, counts.0) };
        let pieces = rows.div_ceil(self.chunk_rows.max(1));
        if pieces < 2 {
            return Ok((counts, Vec::new()));
        }
        let cut = Cut { range: all, side, rows, pieces };
        let keys = self.input(side).cuts(std::slice::from_ref(&cut)).await?;
        Ok((counts, keys.into_iter().next().unwrap_or_default()))
    }

    fn input(&self, side: Side) -> &Input {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }

    /// Chunks, down to the rows that differ.
    async fn batch(&self, chunks: Vec<(usize, Range)>) -> Result<(Vec<Done>, Option<Moved>)> {
        let ranges: Vec<Range> = chunks.iter().map(|(_, range)| range.clone()).collect();
        let mut machine = Bisect::new(ranges.clone(), self.fetch_rows, FAN_OUT);
        let mut differences: Vec<Vec<Difference>> = vec![Vec::new(); chunks.len()];
        let mut moved = None;
        while let Some(request) = machine.next_request() {
            match request {
                Request::Digests(wanted) => {
                    let (ours, theirs) = futures::try_join!(
                        self.source.digests(&wanted),
                        self.target.digests(&wanted)
                    )?;
                    if let Err(unlike) = machine.digests(ours.into_iter().zip(theirs).collect()) {
                        self.check_moved(&unlike)?;
                        moved = Some(unlike);
                    }
                }
                Request::Cuts(cuts) => machine.keys(self.cuts(&cuts).await?),
                Request::Rows(leaves) => self.leaves(&ranges, leaves, &mut differences).await?,
            }
        }
        let each = chunks.into_iter().zip(machine.chunks()).zip(differences);
        let done = each.map(|(((chunk, _), digests), differences)| Done {
            chunk,
            digests: *digests,
            differences,
        });
        Ok((done.collect(), moved))
    }

    async fn cuts(&self, cuts: &[Cut]) -> Result<Vec<Vec<Key>>> {
        let of = |side| cuts.iter().filter(|cut| cut.side == side).cloned().collect::<Vec<_>>();
        let (ours, theirs) = (of(Side::Source), of(Side::Target));
        let (ours, theirs) =
            futures::try_join!(self.source.cuts(&ours), self.target.cuts(&theirs))?;
        let (mut ours, mut theirs) = (ours.into_iter(), theirs.into_iter());
        let next = |cut: &Cut| match cut.side {
            Side::Source => ours.next(),
            Side::Target => theirs.next(),
        };
        Ok(cuts.iter().map(next).map(Option::unwrap_or_default).collect())
    }

    /// Rows of leaves, no more at once than memory is meant for.
    async fn leaves(
        &self,
        chunks: &[Range],
        leaves: Vec<(Range, u64)>,
        differences: &mut [Vec<Difference>],
    ) -> Result<()> {
        let rules = self.plan.rules();
        for group in groups(leaves) {
            let (ours, theirs) =
                futures::try_join!(self.source.rows(&group), self.target.rows(&group))?;
            for ((range, source), target) in group.iter().zip(ours).zip(theirs) {
                let chunk = match &range.high {
                    Some(high) => find(chunks, high),
                    None => chunks.len().checked_sub(1),
                };
                if let Some(found) = chunk.and_then(|at| differences.get_mut(at)) {
                    found.extend(compare(source, target, &rules));
                }
            }
        }
        Ok(())
    }

    fn is_still(&self, side: Side) -> bool {
        let [source, target] = self.still;
        if side == Side::Source { source } else { target }
    }

    /// At one snapshot, parts add up to their whole.
    fn check_moved(&self, moved: &Moved) -> Result<()> {
        if !self.is_still(moved.side) {
            return Ok(());
        }
        Err(Error::Moved {
            side: moved.side.name(),
            table: self.label.clone(),
            cause: format!(
                "a range of {} rows came to {} in parts",
                moved.before.rows, moved.after.rows
            ),
        })
    }

    fn check_counts(
        &self,
        counts: (u64, u64),
        sums: (Digest, Digest),
        moved: Option<Moved>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        for (side, count, sum) in
            [(Side::Source, counts.0, sums.0), (Side::Target, counts.1, sums.1)]
        {
            let partly = moved.as_ref().is_some_and(|moved| moved.side == side);
            if count == sum.rows && !partly {
                continue;
            }
            if self.is_still(side) {
                return Err(Error::Moved {
                    side: side.name(),
                    table: self.label.clone(),
                    cause: format!("{count} rows counted at first, {} in chunks", sum.rows),
                });
            }
            notes.push(format!(
                "{} changed while it was read ({count} rows at first, {} in chunks): differences may be of that",
                side.name(),
                sum.rows
            ));
        }
        Ok(())
    }
}

/// Leaves in groups of so many rows.
fn groups(leaves: Vec<(Range, u64)>) -> Vec<Vec<Range>> {
    let mut groups: Vec<Vec<Range>> = Vec::new();
    let mut room = 0;
    for (range, rows) in leaves {
        match groups.last_mut() {
            Some(group) if rows <= room => {
                group.push(range);
                room -= rows;
            }
            _ => {
                groups.push(vec![range]);
                room = FETCHED.saturating_sub(rows);
            }
        }
    }
    groups
}
