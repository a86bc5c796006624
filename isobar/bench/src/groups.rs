//! `isobar bench groups`: two users in two resource groups, side by side: what each gets of a cluster under their limits.
//!
//! The evaluation that TiDB published of its resource control, against a cluster of its own. Whatever it claims it
//! compares within one run, and it must never touch a cluster that it did not start.

mod cases;
mod report;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::driver::{DriveError, Pace, Settings, drive};
use crate::latency::Phase;
use crate::online::seconds;
use crate::output::{self, note};
use crate::playground::{Playground, Setup};
use crate::processes;
use crate::target::Target;
use crate::workload::{SqlWork, Workload, tpcc};
use cases::{Case, Limits};
use report::{Capacity, Hardware, Report, Run, Side};
use usage::Watch;

/// What CALIBRATE RESOURCE needs to judge by, with room for where what it knows begins and ends.
const JUDGED: Duration = Duration::from_secs(25);

/// The groups, each with a user and a database of its name.
pub const GROUPS: [&str; 2] = ["rg1", "rg2"];

/// What two users in two resource groups get of a cluster, side by side.
///
/// Starts a cluster of its own, fills a TPC-C database for each user, measures how many request units a
/// second both use without limits, and then, case by case, how much each does under limits:
///
///   rates           rg1 has half of what rg2 has: half of its tpmC
///   equal           both have the same
///   limited         as rates, with less for both: what the next case is compared with
///   burstable       the same, and rg1 is BURSTABLE: it takes what is left, and rg2 keeps its own
///   both-burstable  both are
///   priority        no limits; rg1 has PRIORITY HIGH, rg2 MEDIUM
///
/// Before, CALIBRATE RESOURCE says what the machine carries, by its hardware and by that use; limits are
/// parts of what it says by use.
///
/// Used units are what placement knows of (information_schema.resource_group_usage).
///
///   isobar bench groups --html groups.html
///   isobar bench groups --sql 2 --cases rates equal
///   isobar bench groups --cases priority --rounds 5
///
/// Exit code 0: measured, and every claim holds; 1: one does not, or an error.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which cases [default: all]
    #[arg(long, value_enum, num_args = 1.., value_name = "CASE")]
    cases: Vec<Case>,
    /// How often each of them
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds to measure each time
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    time: f64,
    /// Seconds of load before: debts of the case before are paid meanwhile
    #[arg(long, default_value_t = 15.0, value_name = "S")]
    warmup: f64,
    /// Connections of each user
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    threads: u32,
    /// Warehouses of each database
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    warehouses: u32,
    /// Customers and items, as a part of the standard's
    #[arg(long, default_value_t = 0.1, value_name = "PART")]
    fraction: f64,
    /// Units per second that limits are parts of, instead of what is measured
    #[arg(long, value_name = "RU", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    capacity: Option<u64>,
    /// Row nodes
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    row: u16,
    /// SQL nodes, over which each user's connections are spread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4))]
    sql: u16,
    /// Of everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First port of the playground
    #[arg(long, default_value_t = 14_300, value_name = "P", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    port_base: u16,
    /// The playground's data [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The isobar binary [default: this one]
    #[arg(long, value_name = "FILE")]
    isobar: Option<PathBuf>,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots here
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Args {
    fn check(&self) -> Result<()> {
        seconds("--warmup", self.warmup)?;
        if !(4.0..=3_600.0).contains(&self.time) {
            bail!(
                "--time {} is not from 4 to 3600 seconds: shares change once a second",
                self.time
            );
        }
        if !(self.fraction > 0.0 && self.fraction <= 1.0) {
            bail!("--fraction {} is not above 0 and up to 1", self.fraction);
        }
        if self.threads < u32::from(self.sql) {
            bail!("--threads {} are too few for --sql {}", self.threads, self.sql);
        }
        Ok(())
    }

    fn cases(&self) -> Vec<Case> {
        if self.cases.is_empty() { Case::ALL.to_vec() } else { self.cases.clone() }
    }

    /// A user's server and database at a SQL node.
    fn target(&self, user: &str, database: &str, node: u16) -> Result<Target> {
        let port = self.port_base + node;
        Target::parse(&format!("mysql://{user}@127.0.0.1:{port}/{database}"))
    }
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    args.check()?;
    let stop = crate::interrupt::token()?;
    let root = args.target("root", "bench", 0)?;
    let setup = Setup {
        isobar: args.isobar.clone(),
        data: args.data.clone(),
        row: args.row,
        sql: args.sql,
        batch_sql: false,
        columnar: 0,
        port_base: args.port_base,
        online_cpus: None,
        batch_cpus: None,
    };
    note(&format!("starting {} row and {} SQL nodes …", args.row, args.sql));
    let nodes = (0..args.sql).map(|node| args.target("root", "bench", node));
    let nodes = nodes.collect::<Result<Vec<_>>>()?;
    let targets: Vec<&Target> = nodes.iter().collect();
    let playground = tokio::select! {
        playground = Playground::start(&setup, &targets) => playground?,
        () = stop.cancelled() => bail!("interrupted while the cluster started"),
    };
    let outcome = tokio::select! {
        outcome = measure(&args, &root, &stop) => outcome,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; everything that was started is stopped")),
    };
    playground.stop().await;
    let report = outcome?;
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if let Some(path) = &args.html {
        output::write(path, &report.page())?;
    }
    print!("{}", report.text());
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(args: &Args, root: &Target, stop: &CancellationToken) -> Result<Report> {
    let started = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S UTC").to_string();
    let machine = crate::isolation::describe(root).await?;
    let bench = Bench::prepare(args, root).await?;
    let capacity = match args.capacity {
        Some(given) => Capacity { given: Some(given), ..Capacity::default() },
        None => bench.capacity(stop).await?,
    };
    note(&capacity.line());
    let mut runs = Vec::new();
    // Rounds outside: what makes the machine slower for a while is in every case.
    for round in 1..=args.rounds {
        for case in args.cases() {
            let run = bench.once(case, case.limits(capacity.in_all()), round, stop).await;
            let run = run.with_context(|| format!("{}, round {round}", case.name()))?;
            note(&run.line());
            runs.push(run);
        }
    }
    let violations = bench.check().await?;
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    Ok(Report { started, command, machine, capacity, time: args.time, runs, violations })
}

/// Two groups, their users and their databases.
struct Bench<'a> {
    args: &'a Args,
    root: &'a Target,
    /// Of each group, at each SQL node.
    works: [Vec<Arc<SqlWork>>; 2],
}

impl<'a> Bench<'a> {
    async fn prepare(args: &'a Args, root: &'a Target) -> Result<Self> {
        let scale = tpcc::Scale::new(args.warehouses, args.fraction);
        let options = tpcc::Options { scale, for_update: true, think: false };
        let mut works = [Vec::new(), Vec::new()];
        for (group, works) in GROUPS.into_iter().zip(&mut works) {
            let mut conn = root.connect_and_create().await?;
            for statement in [
                format!("CREATE RESOURCE GROUP {group} RU_PER_SEC = UNLIMITED"),
                format!("CREATE USER '{group}'@'%' RESOURCE GROUP {group}"),
                format!("CREATE DATABASE {group}"),
                format!("GRANT ALL ON {group}.* TO '{group}'@'%'"),
            ] {
                conn.query_drop(&statement).await.with_context(|| statement.clone())?;
            }
            for node in 0..args.sql {
                let target = args.target(group, group, node)?;
                let workload = Workload::Tpcc(tpcc::Tpcc::new(options, args.seed));
                works.push(Arc::new(SqlWork { target, workload }));
            }
            note(&format!("filling {group}'s database …"));
            if let Some(work) = works.first() {
                let filled = work.workload.prepare(&root.with_database(group), args.seed).await;
                let rows = filled.context("the tables could not be prepared")?;
                note(&format!("prepared {rows} rows: {}", work.workload.size()));
            }
        }
        Ok(Bench { args, root, works })
    }

    /// Units a second that both use without limits, and what CALIBRATE says.
    async fn capacity(&self, stop: &CancellationToken) -> Result<Capacity> {
        note("measuring what both use without limits …");
        let begin = seconds("--warmup", self.args.warmup)? + unix_time()?;
        let (started, before) = (Instant::now(), processes::Used::of(std::process::id())?);
        let run = self.once(Case::BothBurstable, Limits::NONE, 0, stop).await?;
        let driver = processes::Used::of(std::process::id())?.since(before);
        let driver = driver.per(started.elapsed().as_secs_f64()).cpu_seconds;
        let end = unix_time()?;
        let used: Option<f64> = run.sides.iter().map(|side| side.used).sum();
        let used = used.filter(|used| *used > 0.0).context("nothing was used without limits")?;
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        let by_hardware = Hardware {
            quota: self.quota("WORKLOAD TPCC").await?,
            left: (1.0 - driver / processors as f64).max(0.0),
        };
        let time = |at: Duration| format!("FROM_UNIXTIME({:.3})", at.as_secs_f64());
        let then = format!("START_TIME {} END_TIME {}", time(begin), time(end));
        let by_use = match end.saturating_sub(begin) >= JUDGED {
            true => Some(self.quota(&then).await?),
            false => None,
        };
        Ok(Capacity { given: None, used: Some(used), by_hardware: Some(by_hardware), by_use })
    }

    async fn quota(&self, by: &str) -> Result<f64> {
        let statement = format!("CALIBRATE RESOURCE {by}");
        let quota = self.root.connect().await?.query_first(&statement).await;
        quota.context(statement)?.context("no quota")
    }

    async fn once(
        &self,
        case: Case,
        limits: Limits,
        round: u32,
        stop: &CancellationToken,
    ) -> Result<Run> {
        let mut conn = self.root.connect().await?;
        for statement in limits.statements() {
            conn.query_drop(&statement).await.with_context(|| statement.clone())?;
        }
        let (args, time) = (self.args, seconds("--time", self.args.time)?);
        let warmup = seconds("--warmup", args.warmup)?;
        let watch = Watch::start(self.root.clone(), warmup, time);
        let seed = args.seed.wrapping_add(u64::from(round) << 8).wrapping_add(case as u64);
        let settings = Settings {
            pace: Pace::Closed,
            connections: (args.threads / u32::from(args.sql)) as usize,
            warmup,
            time,
            arrivals_seed: seed,
            seed,
            transaction_timeout: Duration::from_secs(60),
            meter: None,
        };
        let mut phases = [JoinSet::new(), JoinSet::new()];
        for (works, phases) in self.works.iter().zip(&mut phases) {
            for (node, work) in works.iter().enumerate() {
                let seed = settings.seed.wrapping_add(node as u64);
                let (settings, stop) = (Settings { seed, ..settings.clone() }, stop.clone());
                let work = work.clone();
                phases.spawn(async move { drive(work, &settings, &stop, |_| {}).await });
            }
        }
        let [first, second] = phases;
        let (first, second) = (all(first).await?, all(second).await?);
        let [used_by_first, used_by_second] = watch.finish().await?;
        let sides = [
            Side::new(&first, used_by_first, limits.rate(0)),
            Side::new(&second, used_by_second, limits.rate(1)),
        ];
        Ok(Run { case, round, sides })
    }

    /// What does not hold of the tables.
    async fn check(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for work in self.works.iter().filter_map(|works| works.first()) {
            let of = self.root.with_database(work.target.database());
            found.extend(work.workload.check(&of).await?);
        }
        Ok(found)
    }
}

/// The time of the machine, which is the cluster's, too.
fn unix_time() -> Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("the machine's clock is before 1970")
}

/// All of some phases that run at the same time.
async fn all(mut phases: JoinSet<Result<Phase, DriveError>>) -> Result<Vec<Phase>> {
    let mut ended = Vec::new();
    while let Some(phase) = phases.join_next().await {
        ended.push(phase.context("a load's task ended")??);
    }
    Ok(ended)
}
