//! `isobar bench lag`: how far columns are behind the row store, and what a strong read waits for them.
//!
//! Every read of it is checked against what was acknowledged before it began: one that is stale ends the bench.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::batch::{Engine, connect};
use crate::driver::{Arrivals, Failure, Pace, Settings, Work, drive};
use crate::latency::{Ending, Phase};
use crate::measure::{bar, quantile, table};
use crate::online::seconds;
use crate::output::{self, note};
use crate::random::Random;
use crate::replicas;
use crate::stage::{self, Setting, Stage, StageArgs};
use crate::target::Target;
use crate::workload::load::{Part, load};
use crate::workload::sort;

/// The table that is written and read.
const TABLE: &str = "lag_written";
/// Odd, so that different numbers become different keys all over the key range.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// The read whose wait is measured.
const READ: &str = "SELECT COUNT(*), MAX(n) FROM lag_written";
/// How long one of them may take.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// Connections that fill the table.
const LOADERS: usize = 4;

/// Replica lag, and the added wait of a strong read, while transactions are written.
///
/// Writers insert single rows in transactions of their own, on a schedule that does not wait for
/// the server. Meanwhile one connection asks for the table's count, in turn on columns, with EXPLAIN
/// ANALYZE on columns, and on rows, first in quiet and then under the load. Each count must hold
/// every row that was acknowledged before it was asked for.
///
///   lag      from a row's commit timestamp to the time that columns show it, as the replica reports
///   wait     the part of a read on columns that waits for the replica to reach the read's timestamp
///   reads    the whole read on columns, beside the same on rows
///
///   isobar bench lag --rate 1000 --time 60 --json lag.json
///
/// Exit code 0: measured; 1: a read was stale, or an error; 2: the server did not keep up with the rate.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    stage: StageArgs,
    /// Transactions per second
    #[arg(long, default_value_t = 1_000.0, value_name = "TPS")]
    rate: f64,
    /// Connections that write
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Seconds of load before anything counts
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    warmup: f64,
    /// Seconds under load
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    time: f64,
    /// Reads of each kind in quiet
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    quiet_reads: u32,
    /// Milliseconds between reads
    #[arg(long, default_value_t = 50, value_name = "MS", value_parser = clap::value_parser!(u64).range(0..=60_000))]
    every: u64,
    /// Rows of the table before
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rows: u64,
    /// Of everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Milliseconds of some reads.
#[derive(Clone, Debug, Default, Serialize)]
struct Spread {
    reads: usize,
    p50: f64,
    p99: f64,
}

/// Reads of each kind.
#[derive(Clone, Debug, Default, Serialize)]
struct Reads {
    columns_ms: Spread,
    rows_ms: Spread,
    wait_ms: Spread,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Report {
    #[serde(flatten)]
    setting: Setting,
    rate: f64,
    lag_p50_ms: Option<u64>,
    lag_p99_ms: Option<u64>,
    /// Batches of log entries that the lag is of, each with its slowest commit.
    quiet: Reads,
    under_load: Reads,
    writers: Phase,
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    if !(args.rate > 0.0 && args.rate <= 1e6) {
        bail!("--rate {} is not above 0 and up to a million", args.rate);
    }
    let report =
        stage::measured(&args.stage, "lag", async |stage, stop| measure(&args, stage, stop).await)
            .await?;
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    print!("{}", report.text());
    Ok(if report.writers.overrun.is_some() { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

async fn measure(args: &Args, stage: &Stage, stop: &CancellationToken) -> Result<Report> {
    let setting = stage.setting().await?;
    prepare(args, &stage.target).await?;
    let writer = Arc::new(Writer {
        target: stage.target.clone(),
        next: AtomicU64::new(args.rows),
        sent: AtomicU64::new(args.rows),
        acknowledged: AtomicU64::new(args.rows),
    });
    note("reads in quiet …");
    let mut probe = Probe::open(&stage.target, writer.clone()).await?;
    probe.round().await.context("the first reads")?;
    probe.forget();
    let quiet_bar = bar(args.quiet_reads.into(), "quiet reads");
    for _ in 0..args.quiet_reads {
        probe.round().await?;
        quiet_bar.inc(1);
    }
    quiet_bar.finish_and_clear();
    let quiet = probe.reads();
    probe.forget();
    let settings = Settings {
        pace: Pace::Open {
            rate: args.rate,
            arrivals: Arrivals::Poisson,
            most_behind: Duration::from_secs(10),
        },
        connections: args.connections as usize,
        warmup: seconds("--warmup", args.warmup)?,
        time: seconds("--time", args.time)?,
        arrivals_seed: args.seed,
        seed: args.seed,
        transaction_timeout: Duration::from_secs(30),
        meter: None,
    };
    note(&format!("{} transactions a second for {} s …", args.rate, args.warmup + args.time));
    let ended = CancellationToken::new();
    let load = async {
        let outcome = drive(writer, &settings, stop, output::progress("writing")).await;
        ended.cancel();
        outcome
    };
    let every = Duration::from_millis(args.every);
    let (writers, probed) = tokio::join!(load, probe.under_load(settings.warmup, every, &ended));
    let lag = probed?;
    let writers = writers.with_context(|| format!("no results of {}", stage.target.shown))?;
    if !writers.errors.is_empty() {
        note(&format!("writers met errors: {:?}", writers.errors));
    }
    Ok(Report {
        setting,
        rate: args.rate,
        lag_p50_ms: lag.map(|lag| lag.0),
        lag_p99_ms: lag.map(|lag| lag.1),
        quiet,
        under_load: probe.reads(),
        writers,
    })
}

/// Makes the table anew, with its replica.
async fn prepare(args: &Args, target: &Target) -> Result<()> {
    let mut conn = target.connect().await.context("cannot connect")?;
    conn.query_drop(format!("DROP TABLE IF EXISTS {TABLE}")).await?;
    conn.query_drop(format!(
        "CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, note VARCHAR(60) NOT NULL)"
    ))
    .await
    .with_context(|| format!("cannot make table {TABLE}"))?;
    let fill = Arc::new(|number: u64, _: &mut Random, out: &mut String| {
        let _ = write!(
            out,
            "({}, {number}, 'a row of before, as long as those that come')",
            key(number)
        );
    });
    let part = Part { table: TABLE.to_owned(), first: 0, rows: args.rows, fill };
    load(target, vec![part], LOADERS, args.seed).await?;
    replicas::set(target, &[TABLE.to_owned()], 1).await
}

fn key(number: u64) -> u64 {
    number.wrapping_mul(SPREAD) & (u64::MAX >> 1)
}

/// Inserts rows, and counts them before and after.
struct Writer {
    target: Target,
    next: AtomicU64,
    /// At least as many rows as there can be.
    sent: AtomicU64,
    /// At most as many rows as there must be.
    acknowledged: AtomicU64,
}

impl Work for Writer {
    type Session = Conn;
    type Plan = u64;

    async fn open(&self) -> Result<Conn, Failure> {
        let lost = |error| Failure::Lost(format!("{}: {error}", self.target.shown));
        self.target.connect().await.map_err(lost)
    }

    fn draw(&self, _: &mut Random) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn kind(&self, _: &u64) -> &'static str {
        "insert"
    }

    async fn run(&self, conn: &mut Conn, number: &u64) -> Result<Ending, Failure> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        let text =
            "INSERT INTO lag_written VALUES (?, ?, 'a row that is written while reads go on')";
        let outcome = conn.exec_drop(text, (key(*number), *number)).await;
        outcome.map_err(|error| sort(&error))?;
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        Ok(Ending::Done)
    }

    async fn undo(&self, conn: &mut Conn) -> Result<(), Failure> {
        conn.query_drop("ROLLBACK").await.map_err(|error| sort(&error))
    }

    fn pauses(&self, _: &u64, _: &mut Random) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }
}

/// One connection for each kind of read, and what they took in milliseconds.
struct Probe {
    writer: Arc<Writer>,
    columns: Conn,
    rows: Conn,
    columns_ms: Vec<f64>,
    rows_ms: Vec<f64>,
    wait_ms: Vec<f64>,
}

impl Probe {
    async fn open(target: &Target, writer: Arc<Writer>) -> Result<Self> {
        Ok(Probe {
            writer,
            columns: connect(target, Engine::Columns).await?,
            rows: connect(target, Engine::Rows).await?,
            columns_ms: Vec::new(),
            rows_ms: Vec::new(),
            wait_ms: Vec::new(),
        })
    }

    fn forget(&mut self) {
        self.columns_ms.clear();
        self.rows_ms.clear();
        self.wait_ms.clear();
    }

    fn reads(&self) -> Reads {
        let spread = |values: &[f64]| Spread {
            reads: values.len(),
            p50: quantile(values, 0.5).unwrap_or_default(),
            p99: quantile(values, 0.99).unwrap_or_default(),
        };
        Reads {
            columns_ms: spread(&self.columns_ms),
            rows_ms: spread(&self.rows_ms),
            wait_ms: spread(&self.wait_ms),
        }
    }

    /// One read of each kind.
    async fn round(&mut self) -> Result<()> {
        let writer = self.writer.clone();
        self.columns_ms.push(counted(&mut self.columns, &writer, "columns").await?);
        let explained: Vec<Row> =
            bounded(self.columns.query(format!("EXPLAIN ANALYZE {READ}"))).await?;
        let text: Vec<String> =
            explained.iter().filter_map(|row| row.get_opt::<String, _>(0)?.ok()).collect();
        let missing = || format!("EXPLAIN ANALYZE does not show the wait:\n{}", text.join("\n"));
        self.wait_ms.push(wait_ms(&text.join("\n")).with_context(missing)?);
        self.rows_ms.push(counted(&mut self.rows, &writer, "rows").await?);
        Ok(())
    }

    /// Reads until the load has ended; the lag's quantiles as they were reported last.
    async fn under_load(
        &mut self,
        warmup: Duration,
        every: Duration,
        ended: &CancellationToken,
    ) -> Result<Option<(u64, u64)>> {
        let begin = Instant::now() + warmup;
        let (mut lag, mut warm) = (None, false);
        while !ended.is_cancelled() {
            if !warm && Instant::now() >= begin {
                warm = true;
                self.forget();
            }
            self.round().await?;
            lag = reported_lag(&mut self.rows, self.writer.target.database()).await?.or(lag);
            tokio::time::sleep(every).await;
        }
        Ok(lag)
    }
}

/// Milliseconds of a count, which must hold what was acknowledged before it.
async fn counted(conn: &mut Conn, writer: &Writer, who: &str) -> Result<f64> {
    let least = writer.acknowledged.load(Ordering::SeqCst);
    let began = Instant::now();
    let answer: Option<(u64, u64)> = bounded(conn.query_first(READ)).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let most = writer.sent.load(Ordering::SeqCst);
    let (count, _) = answer.with_context(|| format!("{who} gave no answer"))?;
    check(who, least, count, most)?;
    Ok(took)
}

fn check(who: &str, least: u64, count: u64, most: u64) -> Result<()> {
    match (least..=most).contains(&count) {
        true => Ok(()),
        false => bail!(
            "a read on {who} was wrong: it counted {count} rows, when {least} were acknowledged before it and {most} \
             were sent before it ended"
        ),
    }
}

async fn bounded<T>(call: impl Future<Output = Result<T, mysql_async::Error>>) -> Result<T> {
    match tokio::time::timeout(READ_LIMIT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => bail!("a read had no answer within {} s", READ_LIMIT.as_secs()),
    }
}

/// Median and 99th percentile of the lag, as the replica reports it with its heartbeats.
async fn reported_lag(conn: &mut Conn, database: &str) -> Result<Option<(u64, u64)>> {
    let text = format!(
        "SELECT lag_p50_ms, lag_p99_ms FROM information_schema.columnar_replica \
         WHERE table_schema = '{database}' AND table_name = '{TABLE}'"
    );
    let row: Option<(Option<u64>, Option<u64>)> = bounded(conn.query_first(text)).await?;
    Ok(row.and_then(|(p50, p99)| p50.zip(p99)))
}

/// The longest wait for a replica that a plan with its metrics shows, in milliseconds.
fn wait_ms(plan: &str) -> Option<f64> {
    let waits = plan.split("snapshot_wait").skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('=')?;
        let end =
            rest.find(|c: char| c == ',' || c == ']' || c.is_whitespace()).unwrap_or(rest.len());
        let text = rest.get(..end)?;
        let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = text.split_at_checked(at)?;
        let milliseconds = match unit {
            "ns" => 1e-6,
            "µs" | "μs" | "us" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            _ => return None,
        };
        Some(number.parse::<f64>().ok()? * milliseconds)
    });
    waits.reduce(f64::max)
}

impl Report {
    fn text(&self) -> String {
        let mut text = format!(
            "\nReplica lag at {:.0} transactions/s: {}\n\n",
            self.rate, self.setting.pinning
        );
        text += &output::summary(&self.writers);
        let shown = |ms: Option<u64>| ms.map_or("not reported".to_owned(), |ms| format!("{ms} ms"));
        let (p50, p99) = (shown(self.lag_p50_ms), shown(self.lag_p99_ms));
        let _ = writeln!(
            text,
            "\nreplica lag: p50 {p50}, p99 {p99} (commit timestamp to visible, the slowest commit of each batch)\n"
        );
        let ms = |value: f64| format!("{value:.2}");
        let row = |name: &str, of: fn(&Reads) -> &Spread| {
            let (quiet, load) = (of(&self.quiet), of(&self.under_load));
            let cells = [quiet.p50, quiet.p99, load.p50, load.p99].map(ms);
            let mut row = vec![name.to_owned()];
            row.extend(cells);
            row.push(load.reads.to_string());
            row
        };
        let head = ["milliseconds", "quiet p50", "p99", "under load p50", "p99", "reads"];
        let rows = [
            row("strong read on columns", |reads| &reads.columns_ms),
            row("  of it: wait for the replica", |reads| &reads.wait_ms),
            row("the same read on rows", |reads| &reads.rows_ms),
        ];
        text += &table(&head.map(str::to_owned), &rows);
        let checked = self.quiet.columns_ms.reads + self.under_load.columns_ms.reads;
        let _ = writeln!(
            text,
            "\nchecked: none of {checked} reads on columns missed a row that was acknowledged before it"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_read_from_a_plan_in_any_unit() {
        let plan = "ColumnarScanExec: table=d.t, metrics=[output_rows=7, snapshot_wait=1.25ms]\n\
                    ColumnarScanExec: table=d.u, metrics=[snapshot_wait=900.5µs, output_rows=7]";
        assert_eq!(wait_ms(plan), Some(1.25));
        assert_eq!(wait_ms("metrics=[snapshot_wait=2s]"), Some(2_000.0));
        assert_eq!(wait_ms("metrics=[output_rows=7]"), None);
    }

    #[test]
    fn a_stale_read_is_refused_and_so_is_one_of_the_future() {
        assert!(check("columns", 10, 10, 12).is_ok() && check("columns", 10, 12, 12).is_ok());
        let stale = check("columns", 10, 9, 12).unwrap_err().to_string();
        assert!(stale.contains("columns") && stale.contains("10 were acknowledged"), "{stale}");
        assert!(check("rows", 10, 13, 12).is_err());
    }

    #[test]
    fn keys_are_all_different() {
        let keys: std::collections::BTreeSet<u64> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
    }
}
