//! `isobar bench online`: one phase of online load against a server, measured.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use serde::Serialize;
use tokio::time::timeout;

use crate::driver::{Arrivals, Pace, Settings, drive};
use crate::latency::Phase;
use crate::output;
use crate::random::Skew;
use crate::target::Target;
use crate::workload::{Name, SqlWork, Workload, oltp, own, tpcc};

/// A workload and its size.
#[derive(clap::Args, Clone, Debug)]
pub struct WorkloadArgs {
    /// point-select, single-row, read-only, write-only, read-write, tpcc, or a .toml file of statements
    #[arg(long, default_value = "read-write", value_name = "NAME|FILE")]
    pub workload: Name,
    /// Tables of a sysbench-like mix
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub tables: u64,
    /// Rows of each of them
    #[arg(long, default_value_t = 25_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub rows: u64,
    /// How a mix draws rows: uniform, pareto, or zipf:θ
    #[arg(long, default_value = "uniform")]
    pub skew: Skew,
    /// TPC-C's warehouses
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub warehouses: u32,
    /// Customers and items of TPC-C, as a part of the standard's
    #[arg(long, default_value_t = 1.0, value_name = "PART")]
    pub fraction: f64,
    /// TPC-C without FOR UPDATE, for servers that lack it
    #[arg(long)]
    pub no_for_update: bool,
    /// TPC-C with the standard's keying and think times (closed loop)
    #[arg(long)]
    pub think: bool,
    /// Of everything that is drawn. The same one again has an UPDATE find what it would write: it writes nothing then
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Online load: sysbench-like mixes, TPC-C, or statements of your own.
///
/// Closed loop with --threads alone; open loop with --rate, where latency counts from the time a
/// transaction was meant to start. A file of statements:
///
///   measured_rate = 120.0
///   [parameters]
///   id = { from = 1, to = 100000, skew = "zipf:0.9" }
///   [[transaction]]
///   name = "look"
///   weight = 3
///   statements = ["SELECT c FROM t WHERE id = :id"]
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The server and database
    #[arg(long, default_value = "mysql://root@127.0.0.1:4000/bench", value_name = "URL")]
    target: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Connections
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: u32,
    /// Transactions per second, in an open loop
    #[arg(long, value_name = "TPS")]
    rate: Option<f64>,
    /// N times the measured_rate of a file of statements, in an open loop
    #[arg(long, value_name = "N", conflicts_with = "rate")]
    times: Option<f64>,
    /// How an open loop's transactions are spaced
    #[arg(long, value_enum, default_value = "poisson")]
    arrivals: Arrivals,
    /// Seconds behind schedule at which an open loop is given up
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    max_behind: f64,
    /// Seconds to measure; 0 measures nothing
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    time: f64,
    /// Seconds of load before
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    warmup: f64,
    /// Seconds after which a transaction is an error
    #[arg(long, default_value_t = 30.0, value_name = "S")]
    timeout: f64,
    /// Make and fill the tables first; those of an earlier run are dropped
    #[arg(long)]
    prepare: bool,
    /// Check the tables afterwards; TPC-C's conditions are always checked
    #[arg(long)]
    check: bool,
    /// Check nothing afterwards
    #[arg(long, conflicts_with = "check")]
    no_check: bool,
    /// Drop the tables at the end
    #[arg(long)]
    cleanup: bool,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    target: String,
    version: String,
    workload: String,
    size: String,
    phase: Option<Phase>,
    checked: bool,
    violations: Vec<String>,
}

impl WorkloadArgs {
    /// The workload, ready to draw from.
    pub fn make(&self) -> Result<Workload> {
        Ok(match &self.workload {
            Name::Mix(mix) => {
                Workload::Oltp(oltp::Oltp::new(*mix, self.tables, self.rows, self.skew))
            }
            Name::Tpcc => {
                if !(self.fraction > 0.0 && self.fraction <= 1.0) {
                    bail!("--fraction {} is not above 0 and up to 1", self.fraction);
                }
                let options = tpcc::Options {
                    scale: tpcc::Scale::new(self.warehouses, self.fraction),
                    for_update: !self.no_for_update,
                    think: self.think,
                };
                Workload::Tpcc(tpcc::Tpcc::new(options, self.seed))
            }
            Name::File(path) => Workload::Own(own::Own::read(path)?),
        })
    }
}

impl Workload {
    /// How large it is, in words.
    pub fn size(&self) -> String {
        match self {
            Workload::Oltp(oltp) => oltp.size(),
            Workload::Tpcc(tpcc) => tpcc.size(),
            Workload::Own(_) => "as the server has it".to_owned(),
        }
    }

    /// Makes and fills its tables; how many rows.
    pub async fn prepare(&self, target: &Target, seed: u64) -> Result<u64> {
        match self {
            Workload::Oltp(oltp) => oltp.prepare(target, LOADERS, seed).await,
            Workload::Tpcc(tpcc) => tpcc.prepare(target, LOADERS, seed).await,
            Workload::Own(_) => bail!(
                "a file of statements says nothing of tables: make them yourself, without --prepare"
            ),
        }
    }

    /// An error for a table that cannot be read: better one before the load than one for each of
    /// its statements.
    pub async fn ready(&self, target: &Target) -> Result<()> {
        let mut connection = target.connect().await?;
        for table in self.tables() {
            let read = connection.query_drop(format!("SELECT 1 FROM {table} LIMIT 1")).await;
            read.with_context(|| {
                format!("table {table} of {} cannot be read (--prepare makes it)", target.shown)
            })?;
        }
        Ok(connection.disconnect().await?)
    }

    /// Drops its tables.
    pub async fn cleanup(&self, target: &Target) -> Result<()> {
        match self {
            Workload::Oltp(oltp) => oltp.cleanup(target).await,
            Workload::Tpcc(tpcc) => tpcc.cleanup(target).await,
            Workload::Own(_) => Ok(()),
        }
    }

    /// What does not hold of its tables.
    pub async fn check(&self, target: &Target) -> Result<Vec<String>> {
        match self {
            Workload::Oltp(oltp) => oltp.check(target).await,
            Workload::Tpcc(tpcc) => {
                Ok(tpcc.check(target).await?.iter().map(ToString::to_string).collect())
            }
            Workload::Own(_) => Ok(Vec::new()),
        }
    }

    /// Its tables, as far as they are known.
    pub fn tables(&self) -> Vec<String> {
        match self {
            Workload::Oltp(oltp) => oltp.tables(),
            Workload::Tpcc(_) => tpcc::Tpcc::tables(),
            Workload::Own(_) => Vec::new(),
        }
    }
}

/// Connections that load.
const LOADERS: usize = 4;

/// A length from the command line.
pub fn seconds(name: &str, value: f64) -> Result<Duration> {
    match value.is_finite() && (0.0..=1e6).contains(&value) {
        true => Ok(Duration::from_secs_f64(value)),
        false => bail!("{name} {value} is not a number of seconds from 0 to a million"),
    }
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    let target = Target::parse(&args.target)?;
    let workload = args.workload.make()?;
    let settings = settings(&args, &workload)?;
    let stop = crate::interrupt::token()?;
    let always = matches!(workload, Workload::Tpcc(_));
    let work = Arc::new(SqlWork { target: target.clone(), workload });
    let version = target.version().await?;
    if args.prepare {
        let preparing = work.workload.prepare(&target, args.workload.seed);
        let rows = tokio::select! {
            rows = preparing => rows.context("the tables could not be prepared")?,
            () = stop.cancelled() => bail!("interrupted while tables were prepared; they are incomplete"),
        };
        output::note(&format!("prepared {rows} rows: {}", work.workload.size()));
    }
    let mut phase = None;
    if !settings.time.is_zero() {
        tokio::select! {
            ready = timeout(settings.transaction_timeout, work.workload.ready(&target)) => {
                ready.with_context(|| format!("{} does not answer", target.shown))??;
            }
            () = stop.cancelled() => bail!("interrupted before the load"),
        }
        let ran = drive(
            work.clone(),
            &settings,
            &stop,
            output::progress(&args.workload.workload.to_string()),
        );
        let ran = ran.await.with_context(|| format!("no results of {}", target.shown))?;
        print!("{}", output::summary(&ran));
        phase = Some(ran);
    }
    let checked = (args.check || always) && !args.no_check;
    let violations = if checked { work.workload.check(&target).await? } else { Vec::new() };
    for violation in &violations {
        println!("{violation}");
    }
    if checked && violations.is_empty() {
        println!("checked: every condition holds");
    }
    if args.cleanup {
        work.workload.cleanup(&target).await?;
    }
    let overran = phase.as_ref().and_then(|phase| phase.overrun.clone());
    let report = Report {
        target: target.shown,
        version,
        workload: args.workload.workload.to_string(),
        size: work.workload.size(),
        phase,
        checked,
        violations,
    };
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if let Some(overran) = overran {
        bail!("{overran}");
    }
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn settings(args: &Args, workload: &Workload) -> Result<Settings> {
    let rate = match (args.rate, args.times, workload) {
        (Some(rate), _, _) => Some(rate),
        (None, Some(times), Workload::Own(own::Own { measured_rate: Some(rate), .. })) => {
            Some(times * rate)
        }
        (None, Some(_), _) => bail!("--times needs a file of statements with a measured_rate"),
        (None, None, _) => None,
    };
    let pace = match rate {
        None => Pace::Closed,
        Some(rate) if rate > 0.0 && rate <= 1e6 => Pace::Open {
            rate,
            arrivals: args.arrivals,
            most_behind: seconds("--max-behind", args.max_behind)?,
        },
        Some(rate) => bail!("a rate of {rate} per second is not above 0 and up to a million"),
    };
    Ok(Settings {
        pace,
        connections: args.threads as usize,
        warmup: seconds("--warmup", args.warmup)?,
        time: seconds("--time", args.time)?,
        arrivals_seed: args.workload.seed,
        seed: args.workload.seed,
        transaction_timeout: seconds("--timeout", args.timeout)?,
        meter: None,
    })
}
