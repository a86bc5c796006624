//! Fills tables by INSERTs of many rows, over several connections, with progress and the time left.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::random::Random;
use crate::target::Target;

/// Rows of one INSERT.
const ROWS: u64 = 500;
/// How long one INSERT may take.
const INSERT_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts of one INSERT that meets a conflict.
const ATTEMPTS: u32 = 20;

/// Writes the values of a row, in parentheses.
pub type Fill = Arc<dyn Fn(u64, &mut Random, &mut String) + Send + Sync>;

/// A range of rows of one table.
#[derive(Clone)]
pub struct Part {
    /// The table, with its columns if not all are given.
    pub table: String,
    /// First row's number.
    pub first: u64,
    /// How many.
    pub rows: u64,
    /// What they hold.
    pub fill: Fill,
}

/// Loads parts, each in order, several at a time.
pub async fn load(target: &Target, parts: Vec<Part>, connections: usize, seed: u64) -> Result<u64> {
    let rows: u64 = parts.iter().map(|part| part.rows).sum();
    let bar = bar(rows, "loading");
    // Later parts first onto the stack, so that the first are taken first.
    let waiting: Vec<(usize, Part)> = parts.into_iter().enumerate().rev().collect();
    let waiting = Arc::new(Mutex::new(waiting));
    let mut tasks = JoinSet::new();
    for _ in 0..connections.max(1) {
        let (target, waiting, bar) = (target.clone(), waiting.clone(), bar.clone());
        tasks.spawn(async move {
            let mut conn = target.connect().await.context("cannot connect to load rows")?;
            loop {
                let Some((number, part)) = waiting.lock().pop() else { break };
                let mut random = crate::random::stream(seed, number as u64);
                load_part(&mut conn, &part, &mut random, &bar)
                    .await
                    .with_context(|| format!("cannot load {}", part.table))?;
            }
            let _ = conn.disconnect().await;
            Ok::<(), anyhow::Error>(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a loading task ended")??;
    }
    bar.finish_and_clear();
    Ok(rows)
}

async fn load_part(
    conn: &mut Conn,
    part: &Part,
    random: &mut Random,
    bar: &ProgressBar,
) -> Result<()> {
    let end = part.first + part.rows;
    let mut next = part.first;
    while next < end {
        let rows = ROWS.min(end - next);
        let mut text = format!("INSERT INTO {} VALUES ", part.table);
        for row in next..next + rows {
            if row > next {
                text.push(',');
            }
            (part.fill)(row, random, &mut text);
        }
        insert(conn, &text).await?;
        next += rows;
        bar.inc(rows);
    }
    Ok(())
}

async fn insert(conn: &mut Conn, text: &str) -> Result<()> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let outcome = tokio::time::timeout(INSERT_TIMEOUT, conn.query_drop(text))
            .await
            .context("an INSERT took longer than 60 s")?;
        match outcome {
            Err(error)
                if matches!(super::sort(&error), crate::driver::Failure::Retry(_))
                    && attempt < ATTEMPTS =>
            {
                tokio::time::sleep(Duration::from_millis(20 * u64::from(attempt))).await;
            }
            outcome => return Ok(outcome?),
        }
    }
}

/// A bar of rows on a terminal, and nothing elsewhere.
pub fn bar(rows: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(rows);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template(
        "{msg} {bar:30} {human_pos}/{human_len} rows  {per_sec}  {eta} left",
    ) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}

/// A text as a quoted literal; the text holds letters, digits and dashes only.
pub fn quoted(out: &mut String, text: &str) {
    let _ = write!(out, "'{text}'");
}
