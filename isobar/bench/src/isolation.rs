//! `isobar bench isolation`: online latency alone and beside batch load of every kind, over shuffled rounds.
//!
//! It states only what its intervals carry: a comparison that is not known well enough is "not resolved",
//! and a limit that an interval reaches over is "inconclusive".

mod arms;
mod cluster;
mod companion;
mod judge;
mod machine;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio_util::sync::CancellationToken;

use crate::batch::Query;
use crate::cpus::Cpus;
use crate::online::WorkloadArgs;
use crate::output::{self, note};
use crate::report::{Arm, Report, Sample};
use crate::stats::Verdict;
use crate::workload::Workload;
use arms::Bench;
use cluster::Cluster;
use judge::Limit;
pub(crate) use machine::describe;

/// Proof of isolation: online latency alone, and beside batch load of every kind.
///
/// Without --target it starts a playground whose row nodes answer MySQL clients, pins these and the
/// driver to one half of the processors and columnar nodes, a SQL node for the batch, Spark and the
/// control to the other, and removes everything at the end. Arms, in turns whose order is drawn
/// each time, at one online rate:
///
///   alone      no columnar replicas            rows       and a batch that reads the row store
///   learners   replicas follow the load        columns    and the same batch on replicas, by SQL
///   control    the batch's processor time,     spark      and the same by Spark
///              memory traffic and writes, without a database
///
/// Exit code 0: every limit is met (or none was given); 1: one is not; 2: inconclusive.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A running cluster and a database of it, instead of a playground
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// Where the batch's SQL goes [default: where the online load goes]
    #[arg(long, value_name = "URL", requires = "target")]
    pub batch_target: Option<String>,
    /// First port of the playground
    #[arg(long, default_value_t = 14_000, value_name = "P", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    pub port_base: u16,
    /// Columnar nodes of the playground
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub columnar: u16,
    /// The playground's data [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The isobar binary [default: this one]
    #[arg(long, value_name = "FILE")]
    pub isobar: Option<PathBuf>,
    /// Processors of row nodes and driver [default: half of them]
    #[arg(long, value_name = "LIST")]
    pub online_cpus: Option<Cpus>,
    /// Processors of columnar nodes, the batch's SQL node, Spark and the control [default: the other half]
    #[arg(long, value_name = "LIST")]
    pub batch_cpus: Option<Cpus>,
    /// Pin nothing
    #[arg(long)]
    pub no_pin: bool,
    /// The online load
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// The tables are there already
    #[arg(long)]
    pub no_prepare: bool,
    /// Columnar replicas of each table
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub replicas: u8,
    /// Online connections
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub threads: u32,
    /// Online transactions per second [default: --load of the measured capacity]
    #[arg(long, value_name = "TPS")]
    pub rate: Option<f64>,
    /// The rate as a part of the closed loop's throughput, without learners
    #[arg(long, default_value_t = 0.5, value_name = "PART")]
    pub load: f64,
    /// Seconds of load before each measured part
    #[arg(long, default_value_t = 1.0, value_name = "S")]
    pub warmup: f64,
    /// Seconds of each arm in each round at the rate (open loop: latency)
    #[arg(long, default_value_t = 12.0, value_name = "S")]
    pub time: f64,
    /// Seconds of each arm in each round in a closed loop (throughput)
    #[arg(long, default_value_t = 4.0, value_name = "S")]
    pub throughput_time: f64,
    /// Turns in which an arm has these seconds: the shorter they are, the less does it matter what the machine does meanwhile
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub turns: u32,
    /// Exactly so many rounds
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Rounds before a comparison counts as resolved
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub min_rounds: usize,
    /// Rounds at most
    #[arg(long, default_value_t = 30, value_name = "N")]
    pub max_rounds: usize,
    /// No new round after so many minutes
    #[arg(long, value_name = "MIN")]
    pub max_minutes: Option<f64>,
    /// Half-width of the 95 % interval, in per cent, at which the ratio of columns and Spark to the control is resolved
    /// for p95, and that of learners to none for throughput
    #[arg(long, default_value_t = 3.0, value_name = "%")]
    pub resolve: f64,
    /// The same for p99
    #[arg(long, default_value_t = 5.0, value_name = "%")]
    pub resolve_p99: f64,
    /// A query of the batch, as scan:SELECT … or aggregate:SELECT …, COUNT(*) [default: of the workload's tables]
    #[arg(long = "query", value_name = "KIND:SQL")]
    pub queries: Vec<Query>,
    /// Leave out the arm of Spark
    #[arg(long)]
    pub no_spark: bool,
    /// Runs Spark's batch; {endpoints}, {database} and {tables} are put in, lists with commas
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "python3 examples/isolation/spark_batch.py --endpoints {endpoints} --database {database} --tables {tables}"
    )]
    pub spark_command: String,
    /// Seconds before, during and after a batch in the plots over time; 0 leaves them out
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub timeline: f64,
    /// p95<=5% (also p50, p99, p99.9: columns against control) or throughput<=3% (lost by learners); several
    #[arg(long = "limit", value_name = "LIMIT")]
    pub limits: Vec<Limit>,
    /// Write the results here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the page here
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Args {
    fn check(&self) -> Result<()> {
        let lengths = [
            ("--warmup", self.warmup),
            ("--time", self.time),
            ("--throughput-time", self.throughput_time),
        ];
        for (name, value) in lengths.into_iter().chain([("--timeline", self.timeline)]) {
            crate::online::seconds(name, value)?;
        }
        if self.time < 1.0 || self.throughput_time < 1.0 {
            bail!("--time and --throughput-time must be at least a second");
        }
        if !(self.load > 0.0 && self.load <= 1.5) {
            bail!("--load {} is no part of the capacity: write 0.5 for half of it", self.load);
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e6)) {
            bail!("--rate must be above 0 and up to a million");
        }
        if self.rounds == Some(0) || self.max_rounds == 0 {
            bail!("at least one round is needed");
        }
        Ok(())
    }

    fn most_rounds(&self) -> usize {
        self.rounds.unwrap_or(self.max_rounds)
    }

    /// Arms that are measured.
    fn arms(&self) -> Vec<Arm> {
        Arm::ALL.into_iter().filter(|arm| *arm != Arm::Spark || !self.no_spark).collect()
    }
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    args.check()?;
    let stop = crate::interrupt::token()?;
    let workload = args.workload.make()?;
    let cluster = tokio::select! {
        cluster = Cluster::open(&args) => cluster?,
        () = stop.cancelled() => bail!("interrupted while the cluster started"),
    };
    let mut bench = Bench::new(&args, cluster, workload, stop.clone())?;
    let outcome = tokio::select! {
        outcome = measure(&args, &mut bench, &stop) => outcome,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; everything that was started is stopped")),
    };
    bench.close().await;
    let report = outcome?;
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    if let Some(path) = &args.html {
        output::write(path, &crate::report::html(&report))?;
    }
    print!("{}", crate::report::text(&report));
    let broken = report.violations.as_ref().is_some_and(|violations| !violations.is_empty());
    Ok(match (broken, report.verdict) {
        (true, _) | (false, Some(Verdict::NotMet)) => ExitCode::from(1),
        (false, Some(Verdict::Inconclusive)) => ExitCode::from(2),
        (false, Some(Verdict::Met) | None) => ExitCode::SUCCESS,
    })
}

/// Everything between the cluster's start and its end.
async fn measure(args: &Args, bench: &mut Bench, stop: &CancellationToken) -> Result<Report> {
    let started = Instant::now();
    let began = chrono::Utc::now();
    let mut settings = machine::settings(args, bench.workload());
    let mut found = machine::describe(&bench.cluster.online).await?;
    if !args.no_prepare {
        note("preparing the tables …");
        let rows = bench.prepare().await.context("the tables could not be prepared")?;
        settings.insert("rows loaded".into(), rows.to_string());
    }
    let capacity = match args.rate {
        Some(rate) => {
            bench.rate = rate;
            None
        }
        None => Some(bench.measure_capacity().await?),
    };
    note(&format!("online rate {:.1} transactions per second in all arms", bench.rate));
    bench.size_control().await?;
    let clock = Instant::now();
    let (samples, ended_because) = rounds(args, bench, clock, stop).await?;
    let timelines = match args.timeline > 0.0 {
        true => bench.timelines().await?,
        false => Vec::new(),
    };
    note("checking the workload's conditions …");
    let violations = match bench.workload() {
        Workload::Own(_) => None,
        workload => Some(workload.check(&bench.cluster.online).await?),
    };
    let mut pinning = bench.cluster.pinning();
    let mut cannot_show = machine::cannot_show(&bench.cluster, &pinning);
    cannot_show.extend(machine::few_transactions(&samples));
    pinning.says.push(match args.target {
        None => "Started with a data directory of its own; the operating system may use every processor for interrupts and writing to disks.".into(),
        Some(_) => "The cluster was running before.".into(),
    });
    found.insert("isobar".into(), env!("CARGO_PKG_VERSION").into());
    let arms = judge::arms(args, &samples);
    let differences = judge::differences(args, &samples);
    let limits = judge::limits(&args.limits, &differences);
    Ok(Report {
        started: began.format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        minutes: started.elapsed().as_secs_f64() / 60.0,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        machine: found,
        settings,
        pinning,
        cannot_show,
        capacity_tps: capacity,
        rate: bench.rate,
        control: Some(bench.control()),
        rounds: samples.iter().map(|sample| sample.round).max().unwrap_or(0),
        ended_because,
        verdict: judge::verdict(&limits),
        arms,
        differences,
        limits,
        violations,
        timelines,
        events: bench.events.clone(),
        samples,
    })
}

/// Rounds until every comparison is resolved, or there were enough.
async fn rounds(
    args: &Args,
    bench: &mut Bench,
    clock: Instant,
    stop: &CancellationToken,
) -> Result<(Vec<Sample>, String)> {
    let mut random = crate::random::stream(args.workload.seed, 1 << 40);
    let mut samples: Vec<Sample> = Vec::new();
    let most = args.most_rounds();
    let limit =
        args.max_minutes.map(|minutes| Duration::from_secs_f64((minutes * 60.0).clamp(0.0, 1e6)));
    for round in 1..=most {
        if stop.is_cancelled() {
            bail!("interrupted");
        }
        note(&format!("round {round} of at most {most}"));
        let of_round = bench.round(&args.arms(), round, clock, &mut random).await;
        // A round ends where its server is gone; not every error of a client's names the server.
        let of_round =
            of_round.with_context(|| format!("round {round}, on {}", bench.cluster.online.shown));
        for sample in of_round? {
            note(&format!("  {}: {}", sample.arm.name(), judge::line(&sample)));
            samples.push(sample);
        }
        let found = judge::differences(args, &samples);
        let resolved = found.iter().flat_map(|d| &d.unresolved).all(|metrics| metrics.is_empty());
        if args.rounds.is_none() && resolved {
            return Ok((samples, format!("every comparison was resolved after {round} rounds")));
        }
        if limit.is_some_and(|limit| clock.elapsed() > limit) {
            return Ok((
                samples,
                format!("the time for rounds (--max-minutes) was over after {round}"),
            ));
        }
    }
    Ok((samples, format!("{most} rounds were asked for")))
}
