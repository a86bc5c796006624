//! Reads all files of an import and sorts their rows: one thread cuts, several convert and sort.
//!
//! Nothing reaches the cluster here; the first row that its column does not take ends it all.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use sql::session::{ImportTarget, Session};
use types::row;
use values::error::SqlError;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::sort::{Entry, Origin, Run, Sorter};
use crate::source::{Batch, Input, Part};

/// Parts that wait for a worker.
const WAITING: usize = 8;

/// All rows of an import, sorted.
#[derive(Debug, Default)]
pub struct Sorted {
    /// Keys and rows.
    pub runs: Vec<Run>,
    /// Rows, without index entries.
    pub rows: u64,
    /// Stands for all keys and rows, in whatever order they came.
    pub digest: u64,
    /// Highest AUTO_INCREMENT number.
    pub highest: u64,
}

/// Reads the files, each with its target, with one worker a session.
///
/// # Errors
///
/// The first row that cannot be stored, by file and line; a file that cannot be read.
pub fn read(
    inputs: &[(Input, ImportTarget)],
    sessions: Vec<Session>,
    (folder, memory): (&Path, usize),
    progress: &ProgressBar,
) -> Result<Sorted> {
    let budget = memory / sessions.len().max(1);
    let (parts, queue) = sync_channel::<(u32, Part)>(WAITING);
    let queue = Mutex::new(queue);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(number, session)| {
                let sorter = Sorter::new(folder, format!("worker-{number}"), budget);
                let (queue, stop) = (&queue, &stop);
                scope.spawn(move || {
                    let outcome = work(inputs, &session, sorter, queue, progress);
                    if outcome.is_err() {
                        stop.store(true, Ordering::Relaxed);
                        // Nobody may wait for room in a queue that nobody empties.
                        while let Ok(part) = queue.lock().recv() {
                            drop(part);
                        }
                    }
                    outcome
                })
            })
            .collect();
        let mut cut = Ok(());
        for (file, (input, _)) in (0..).zip(inputs) {
            cut = input.parts(|part| {
                let sent = parts.send((file, part)).is_ok();
                Ok(sent && !stop.load(Ordering::Relaxed))
            });
            if cut.is_err() || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        drop(parts);
        let mut all = Sorted::default();
        let mut failed = cut;
        for worker in workers {
            match worker.join() {
                Ok(Ok(part)) => {
                    all.runs.extend(part.runs);
                    all.rows += part.rows;
                    all.digest = all.digest.wrapping_add(part.digest);
                    all.highest = all.highest.max(part.highest);
                }
                Ok(Err(error)) => failed = failed.and(Err(error)),
                Err(_) => failed = failed.and(Err(anyhow!("a worker of the import ended early"))),
            }
        }
        failed.map(|()| all)
    })
}

fn work(
    inputs: &[(Input, ImportTarget)],
    session: &Session,
    mut sorter: Sorter,
    queue: &Mutex<Receiver<(u32, Part)>>,
    progress: &ProgressBar,
) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    loop {
        let next = queue.lock().recv();
        let Ok((file, part)) = next else { break };
        let Some((input, target)) = inputs.get(file as usize) else { break };
        let bytes = input.weight(&part);
        input.rows(part, |batch| {
            convert(session, input, target, file, batch, |entry, is_record| {
                if is_record {
                    sorted.rows += 1;
                }
                let body = if is_record { row::body(&entry.row)? } else { &entry.row };
                let digest = xxh3_64_with_seed(body, xxh3_64(&entry.key));
                sorted.digest = sorted.digest.wrapping_add(digest);
                sorter.push(entry)
            })
            .map(|highest| sorted.highest = sorted.highest.max(highest))
        })?;
        progress.inc(bytes);
    }
    sorted.runs = sorter.finish();
    Ok(sorted)
}

/// The keys and rows of a batch; the highest AUTO_INCREMENT number.
fn convert(
    session: &Session,
    input: &Input,
    target: &ImportTarget,
    file: u32,
    batch: Batch,
    mut push: impl FnMut(Entry, bool) -> Result<()>,
) -> Result<u64> {
    let Batch { places, values } = batch;
    let place = |at: usize| Origin { file, place: places.get(at).copied().unwrap_or_default() };
    let wanted = target.positions.len();
    if let Some(at) = values.iter().position(|row| row.len() != wanted) {
        let has = values.get(at).map_or(0, Vec::len);
        let place = input.describe(place(at));
        return Err(anyhow!("{place}: it has {has} fields, and {wanted} columns are filled"));
    }
    let count = values.len();
    let ingested = session.import_rows(target, values).map_err(|error| {
        let (text, at) = row_of(&error);
        match at.filter(|at| *at < count) {
            Some(at) => anyhow!("{}: {text}", input.describe(place(at))),
            None => {
                let (first, last) = (place(0), place(count.saturating_sub(1)));
                anyhow!("{} to {}: {text}", input.describe(first), input.describe(last))
            }
        }
    })?;
    for (at, pairs) in ingested.rows.into_iter().enumerate() {
        for (number, (key, row)) in pairs.into_iter().enumerate() {
            push(Entry { key, row, origin: place(at) }, number == 0)?;
        }
    }
    Ok(ingested.highest)
}

/// An error's text without its row's number, and that number from 0.
fn row_of(error: &SqlError) -> (String, Option<usize>) {
    match error.message.rsplit_once(" at row ") {
        Some((text, row)) => {
            (text.to_owned(), row.parse::<usize>().ok().and_then(|row| row.checked_sub(1)))
        }
        None => (error.message.clone(), None),
    }
}
