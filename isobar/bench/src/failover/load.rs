//! The load of a failover: single reads, single writes and small transactions on a schedule that waits for nobody.
//!
//! Each kind has connections of its own at each table, so that a table without an answer holds up no other one. It must
//! lose nothing that was due: what was never started counts as not answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use parking_lot::Mutex;
use rand::Rng;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::gaps::Sample;
use crate::random::{Random, stream};
use crate::target::Target;

/// Rows of one INSERT.
const ROWS: u64 = 500;
/// How long after its end the load waits for answers.
const GRACE: Duration = Duration::from_secs(2);
/// Pause of a connection that could not be made.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A row by its key.
    Read,
    /// A row by its key, in a transaction of its own.
    Write,
    /// A row is read, and it and one of the next table are written.
    Transaction,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Transaction];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Transaction => "transaction",
        }
    }
}

/// Tables that are read and written, and what must be in them by now.
pub struct Tables {
    target: Target,
    count: u64,
    rows: u64,
    /// Writes that were acknowledged, and others that may have happened, by table.
    written: Vec<(AtomicU64, AtomicU64)>,
}

impl Tables {
    /// So many tables of so many rows, which [`Tables::prepare`] makes.
    pub fn new(target: Target, count: u64, rows: u64) -> Arc<Self> {
        let written = (0..count).map(|_| Default::default()).collect();
        Arc::new(Tables { target, count, rows, written })
    }

    /// Makes and fills them.
    pub async fn prepare(&self) -> Result<()> {
        let mut conn = self.target.connect_and_create().await?;
        for table in 0..self.count {
            let table = name(table);
            conn.query_drop(format!("DROP TABLE IF EXISTS {table}")).await?;
            let columns = "id INT PRIMARY KEY, n BIGINT NOT NULL, pad CHAR(60) NOT NULL";
            conn.query_drop(format!("CREATE TABLE {table} ({columns})"))
                .await
                .with_context(|| format!("cannot make {table}"))?;
            for first in (1..=self.rows).step_by(ROWS as usize) {
                let last = self.rows.min(first + ROWS - 1);
                let rows: Vec<String> =
                    (first..=last).map(|id| format!("({id},0,'{id:060}')")).collect();
                conn.query_drop(format!("INSERT INTO {table} VALUES {}", rows.join(",")))
                    .await
                    .with_context(|| format!("cannot fill {table}"))?;
            }
        }
        Ok(conn.disconnect().await?)
    }

    /// What was acknowledged and is not there, or is there and was never asked for.
    pub async fn check(&self) -> Result<Vec<String>> {
        let mut conn = self.target.connect().await.context("cannot connect to check the tables")?;
        let mut wrong = Vec::new();
        for (table, (acknowledged, perhaps)) in self.written.iter().enumerate() {
            let table = name(table as u64);
            let query = format!("SELECT COUNT(*), CAST(SUM(n) AS UNSIGNED) FROM {table}");
            let found: Option<(u64, u64)> =
                conn.query_first(&query).await.with_context(|| format!("cannot read {table}"))?;
            let (rows, sum) = found.unwrap_or_default();
            let least = acknowledged.load(Ordering::Acquire);
            let most = least + perhaps.load(Ordering::Acquire);
            if rows != self.rows || !(least..=most).contains(&sum) {
                wrong.push(format!(
                    "{table} has {rows} rows that were written {sum} times: it was made of {} rows, and {least} writes \
                     were acknowledged, {} more may have happened",
                    self.rows,
                    most - least
                ));
            }
        }
        Ok(wrong)
    }
}

/// The name of a table by its number.
pub fn name(table: u64) -> String {
    format!("failover_{}", table + 1)
}

/// Statements per second of each kind, over all tables.
pub type Rates = BTreeMap<Kind, f64>;

/// As [`Sample`], by the clock.
struct Offered {
    due: Instant,
    answered: Option<Instant>,
    error: Option<String>,
}

/// One kind of statement at one table.
pub struct Lane {
    /// The kind.
    pub kind: Kind,
    /// Tables that it touches.
    pub tables: Vec<u64>,
    /// Seconds between two that are due, and of the first one; none in a closed loop.
    pace: Option<(f64, f64)>,
    next: AtomicU64,
    offered: Mutex<Vec<Offered>>,
}

impl Lane {
    /// What was offered and how it ended, by seconds since `zero`.
    pub fn samples(&self, zero: Instant) -> Vec<Sample> {
        let since = |at: Instant| match at.checked_duration_since(zero) {
            Some(after) => after.as_secs_f64(),
            None => -zero.duration_since(at).as_secs_f64(),
        };
        let offered = self.offered.lock();
        let all = offered.iter().map(|one| Sample {
            due: since(one.due),
            answered: one.answered.map(since),
            error: one.error.clone(),
        });
        all.collect()
    }

    /// When the next one is due.
    fn take(&self, start: Instant) -> Instant {
        match self.pace {
            None => Instant::now(),
            Some((gap, first)) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                start + Duration::from_secs_f64(first + gap * number as f64)
            }
        }
    }
}

/// A running load.
pub struct Load {
    /// Its parts.
    pub lanes: Vec<Arc<Lane>>,
    /// When it began.
    pub start: Instant,
    /// When nothing more is due.
    pub end: Instant,
    workers: JoinSet<()>,
}

impl Load {
    /// Connects, and begins: at `rates`, or as fast as the connections go without. Ends after `length`.
    pub async fn start(
        tables: &Arc<Tables>,
        rates: Option<&Rates>,
        connections: u32,
        length: Duration,
        seed: u64,
    ) -> Result<Self> {
        let mut lanes = Vec::new();
        let mut sessions = Vec::new();
        for kind in Kind::ALL {
            let rate = rates.map(|rates| rates.get(&kind).copied().unwrap_or_default());
            if rate.is_some_and(|rate| rate <= 0.0) {
                continue;
            }
            for table in 0..tables.count {
                let gap = rate.map(|rate| tables.count as f64 / rate);
                let pace = gap.map(|gap| (gap, gap * table as f64 / tables.count as f64));
                let next = (table + 1) % tables.count;
                let touched = match kind {
                    Kind::Transaction if next != table => vec![table, next],
                    _ => vec![table],
                };
                let lane = Lane {
                    kind,
                    tables: touched,
                    pace,
                    next: AtomicU64::new(0),
                    offered: Mutex::default(),
                };
                let lane = Arc::new(lane);
                for _ in 0..connections {
                    let conn = tables.target.connect().await.context("cannot connect")?;
                    sessions.push((lane.clone(), conn));
                }
                lanes.push(lane);
            }
        }
        if lanes.is_empty() {
            bail!("nothing is to be offered: every rate is 0");
        }
        let start = Instant::now();
        let end = start + length;
        let mut workers = JoinSet::new();
        for (number, (lane, conn)) in sessions.into_iter().enumerate() {
            let random = stream(seed, number as u64);
            let worker = Worker { tables: tables.clone(), lane, conn: Some(conn), random };
            workers.spawn(worker.work(start, end));
        }
        Ok(Load { lanes, start, end, workers })
    }

    /// Waits for its end; what is not answered soon after counts as never answered.
    pub async fn finish(mut self) -> Result<Vec<Arc<Lane>>> {
        let ending = async {
            while let Some(ended) = self.workers.join_next().await {
                ended.context("a connection's task ended")?;
            }
            Ok::<(), anyhow::Error>(())
        };
        timeout_at((self.end + 2 * GRACE).into(), ending)
            .await
            .context("the load did not end in time")??;
        Ok(self.lanes)
    }
}

struct Worker {
    tables: Arc<Tables>,
    lane: Arc<Lane>,
    conn: Option<Conn>,
    random: Random,
}

impl Worker {
    async fn work(mut self, start: Instant, end: Instant) {
        loop {
            let due = self.lane.take(start);
            if due >= end {
                return;
            }
            tokio::time::sleep_until(due.into()).await;
            let outcome = if Instant::now() >= end + GRACE {
                Err("not started".to_owned())
            } else {
                let once = timeout_at((end + GRACE).into(), self.once()).await;
                once.unwrap_or_else(|_| {
                    // It may have happened. Its connection went with it.
                    self.count(false);
                    Err("not answered".to_owned())
                })
            };
            let answered = outcome.is_ok().then(Instant::now);
            self.lane.offered.lock().push(Offered { due, answered, error: outcome.err() });
        }
    }

    /// One statement or transaction; an error's number if it fails.
    async fn once(&mut self) -> Result<(), String> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => match self.tables.target.connect().await {
                Ok(conn) => conn,
                Err(_) => {
                    tokio::time::sleep(CONNECT_AGAIN).await;
                    return Err("no connection".to_owned());
                }
            },
        };
        let id = self.random.random_range(1..=self.tables.rows);
        let outcome = run(&mut conn, &self.lane, id).await;
        self.count(outcome.is_ok());
        match outcome {
            Ok(()) => {
                self.conn = Some(conn);
                Ok(())
            }
            Err(Error::Server(error)) => {
                let open = self.lane.kind != Kind::Transaction;
                if open || conn.query_drop("ROLLBACK").await.is_ok() {
                    self.conn = Some(conn);
                }
                Err(error.code.to_string())
            }
            Err(_) => Err("connection lost".to_owned()),
        }
    }

    /// Notes what must or may be in the tables from now on.
    fn count(&self, acknowledged: bool) {
        if self.lane.kind == Kind::Read {
            return;
        }
        for table in &self.lane.tables {
            let Some((sure, perhaps)) = self.tables.written.get(*table as usize) else { continue };
            let count = if acknowledged { sure } else { perhaps };
            count.fetch_add(1, Ordering::AcqRel);
        }
    }
}

async fn run(conn: &mut Conn, lane: &Lane, id: u64) -> Result<(), Error> {
    let read = |table: u64| format!("SELECT n FROM {} WHERE id = ?", name(table));
    let write = |table: u64| format!("UPDATE {} SET n = n + 1 WHERE id = ?", name(table));
    let table = lane.tables.first().copied().unwrap_or_default();
    match lane.kind {
        Kind::Read => conn.exec_drop(read(table), (id,)).await,
        Kind::Write => conn.exec_drop(write(table), (id,)).await,
        Kind::Transaction => {
            conn.query_drop("BEGIN").await?;
            conn.exec_drop(read(table), (id,)).await?;
            for table in &lane.tables {
                conn.exec_drop(write(*table), (id,)).await?;
            }
            conn.query_drop("COMMIT").await
        }
    }
}
