//! `isobar bench failover`: for how long nothing is answered once a row node is killed or stopped, and until when the offered
//! rate is back.
//!
//! The load is an open loop that waits for nobody, its clients stay connected to a SQL node that is not touched, and every
//! acknowledged write must be there in the end.

mod cluster;
mod gaps;
mod load;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::Rng;
use tokio_util::sync::CancellationToken;

use crate::online::seconds;
use crate::output::{self, note};
use crate::random::stream;
use cluster::{Cluster, Ended, Lost, Stop, Victim};
use load::{Kind, Lane, Load, Rates, Tables};
use report::{Measured, Report, Run};

/// The node is ended within so many seconds of the warm-up's end, drawn from the seed.
const DRAWN: f64 = 1.0;
/// So long before that it is chosen, by who leads then.
const CHOSEN_BEFORE: Duration = Duration::from_millis(2_500);
/// Of what is drawn for times; connections draw from the numbers below.
const TIMES: u64 = 1 << 40;

/// How long nothing is answered once a row node is killed or stopped, and until when the rate is back.
///
/// Starts a cluster of its own with a SQL node that stays, and offers reads by key, writes by key and
/// small transactions at a fixed rate, each kind on connections of its own at each table (a table is a
/// region). Then it ends the node that leads most, watches, lets the node start again, waits until
/// every replica is whole, and repeats.
///
///   none for    the longest time in which a table had no answer, from one answer to the next; of all
///               tables the longest
///   90 % after  when of all that was due in the second before 90 % was answered within 0.25 s of being
///               due, once that had ceased to be so
///   lowest      the smallest such part of any second
///   slowest     the slowest answer, from when its statement was due
///   errors      by MySQL's number; a client that repeats its statement does not see most of them
///
/// Tables whose region loses its majority (with --kill 2) are named and count nowhere else. Writes that
/// were acknowledged must be there in the end.
///
///   isobar bench failover                                   one of three, kill -9
///   isobar bench failover --victim placement                the one that leads placement, too
///   isobar bench failover --stop planned                    one is asked to stop, as by an operator
///   isobar bench failover --nodes 6 --kill 2 --json failover.json
///
/// Exit code 0: measured, and nothing acknowledged is missing; 1: something is, or an error.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Row nodes; the first three form placement
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(3..=9))]
    nodes: u16,
    /// Nodes that are ended at a time
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2))]
    kill: u16,
    /// Which nodes
    #[arg(long, value_enum, default_value = "leaders")]
    victim: Victim,
    /// How
    #[arg(long, value_enum, default_value = "kill")]
    stop: Stop,
    /// How often
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Tables, of a region each [default: two for each row node]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    tables: Option<u64>,
    /// Rows of each
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rows: u64,
    /// Connections of each kind at each table
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    connections: u32,
    /// Reads per second over all tables [default: --load of what they did in a closed loop]
    #[arg(long, value_name = "R")]
    reads: Option<f64>,
    /// Writes per second, likewise
    #[arg(long, value_name = "R")]
    writes: Option<f64>,
    /// Transactions per second, likewise; 0 leaves them out
    #[arg(long, value_name = "R")]
    transactions: Option<f64>,
    /// The rate as a part of what a closed loop of all kinds at once does
    #[arg(long, default_value_t = 0.4, value_name = "PART")]
    load: f64,
    /// Seconds of the closed loop
    #[arg(long, default_value_t = 8.0, value_name = "S")]
    capacity_time: f64,
    /// Seconds of load before a node is ended
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    warmup: f64,
    /// Seconds of load after
    #[arg(long, default_value_t = 15.0, value_name = "S")]
    watch: f64,
    /// Of everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// First port of the playground
    #[arg(long, default_value_t = 14_200, value_name = "P", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
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
}

impl Args {
    fn check(&self) -> Result<()> {
        seconds("--capacity-time", self.capacity_time)?;
        if !(2.0..=600.0).contains(&self.warmup) || !(2.0..=240.0).contains(&self.watch) {
            bail!(
                "--warmup is 2 to 600 seconds, and --watch 2 to 240: a node that is away longer is given up"
            );
        }
        if self.capacity_time < 1.0 {
            bail!("--capacity-time must be at least a second");
        }
        if !(self.load > 0.0 && self.load <= 1.0) {
            bail!(
                "--load {} is no part of the capacity: write 0.4 for two fifths of it",
                self.load
            );
        }
        for rate in [self.reads, self.writes, self.transactions].into_iter().flatten() {
            if !(0.0..=1e6).contains(&rate) {
                bail!("a rate of {rate} per second is not between 0 and a million");
            }
        }
        if self.kill * 2 >= self.nodes {
            bail!("--kill {} leaves no majority of --nodes {}", self.kill, self.nodes);
        }
        Ok(())
    }

    fn tables(&self) -> u64 {
        self.tables.unwrap_or(2 * u64::from(self.nodes))
    }

    /// What is offered, by what a closed loop did.
    fn rates(&self, capacity: &Rates) -> Rates {
        let given = |kind| match kind {
            Kind::Read => self.reads,
            Kind::Write => self.writes,
            Kind::Transaction => self.transactions,
        };
        let of = |kind: Kind| {
            let measured = capacity.get(&kind).copied().unwrap_or_default();
            (kind, given(kind).unwrap_or(measured * self.load))
        };
        Kind::ALL.into_iter().map(of).collect()
    }
}

/// Runs it.
pub async fn run(args: Args) -> Result<ExitCode> {
    args.check()?;
    let stop = crate::interrupt::token()?;
    note(&format!("starting {} row nodes and a SQL node …", args.nodes));
    let cluster = tokio::select! {
        cluster = Cluster::start(&args) => cluster?,
        () = stop.cancelled() => bail!("interrupted while the cluster started"),
    };
    let outcome = tokio::select! {
        outcome = measure(&args, &cluster, &stop) => outcome,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; everything that was started is stopped")),
    };
    cluster.close().await;
    let report = outcome?;
    if let Some(path) = &args.json {
        output::write_json(path, &report)?;
    }
    print!("{}", report.text());
    Ok(if report.wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(args: &Args, cluster: &Cluster, stop: &CancellationToken) -> Result<Report> {
    let started = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S UTC").to_string();
    let machine = crate::isolation::describe(&cluster.target).await?;
    let tables = Tables::new(cluster.target.clone(), args.tables(), args.rows);
    tables.prepare().await.context("the tables could not be prepared")?;
    note("waiting until every replica is whole …");
    cluster.whole().await?;
    let capacity = capacity(args, &tables).await?;
    let rates = args.rates(&capacity);
    note(&format!("offered per second: {}", report::rates(&rates)));
    let mut runs = Vec::new();
    for number in 1..=args.runs {
        if stop.is_cancelled() {
            bail!("interrupted");
        }
        let run = once(args, cluster, &tables, &rates, number).await;
        let run = run.with_context(|| format!("run {number}"))?;
        note(&format!("run {number} of {}: {}", args.runs, run.line()));
        runs.push(run);
        cluster.whole().await.context("after the node was started again")?;
    }
    Ok(Report {
        started,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        machine,
        nodes: args.nodes,
        stop: args.stop,
        victim: args.victim,
        capacity,
        rates,
        runs,
        wrong: tables.check().await?,
    })
}

/// What all kinds at once do per second in a closed loop.
async fn capacity(args: &Args, tables: &Arc<Tables>) -> Result<Rates> {
    note("measuring what the machine carries …");
    let length = Duration::from_secs_f64(args.capacity_time);
    let load = Load::start(tables, None, args.connections, length, args.seed).await?;
    let start = load.start;
    let lanes = load.finish().await?;
    let answered = |lane: &Arc<Lane>| {
        let samples = lane.samples(start);
        samples.iter().filter(|sample| sample.answered.is_some()).count()
    };
    let of = |kind: Kind| {
        let lanes = lanes.iter().filter(|lane| lane.kind == kind);
        (kind, lanes.map(answered).sum::<usize>() as f64 / args.capacity_time)
    };
    Ok(Kind::ALL.into_iter().map(of).collect())
}

/// One run: load, the end of some nodes, and what that did.
async fn once(
    args: &Args,
    cluster: &Cluster,
    tables: &Arc<Tables>,
    rates: &Rates,
    number: u32,
) -> Result<Run> {
    let mut random = stream(args.seed, TIMES + u64::from(number));
    let before = Duration::from_secs_f64(args.warmup + random.random_range(0.0..DRAWN));
    let watch = Duration::from_secs_f64(args.watch);
    let seed = args.seed.wrapping_add(u64::from(number));
    let load = Load::start(tables, Some(rates), args.connections, before + watch, seed).await?;
    let at = load.start + before;
    tokio::time::sleep_until((at - CHOSEN_BEFORE.min(before)).into()).await;
    let (status, regions) = (cluster.status().await?, cluster.tables().await?);
    let ended = cluster.choose(&status, args.victim, usize::from(args.kill))?;
    let lost = Cluster::lost(&status, &regions, &ended);
    let (down, pids) = cluster.keep_down(&ended)?;
    tokio::time::sleep_until(at.into()).await;
    let fault = Instant::now();
    let ends = cluster::end(&pids, args.stop).await?;
    let watched = load.end.saturating_duration_since(fault).as_secs_f64();
    let lanes = load.finish().await?;
    drop(down);
    let what = (ended, lost, ends, status.regions());
    Ok(judged(args, &lanes, (fault, watched), what))
}

/// What a run shows.
fn judged(
    args: &Args,
    lanes: &[Arc<Lane>],
    (fault, watched): (Instant, f64),
    (ended, lost, ends, regions): (Vec<Ended>, Vec<Lost>, f64, usize),
) -> Run {
    let names: Vec<String> = (0..args.tables()).map(load::name).collect();
    let counts = |lane: &&Arc<Lane>| {
        let touches = |lost: &Lost| {
            lane.tables.iter().any(|table| names.get(*table as usize) == Some(&lost.table))
        };
        !lost.iter().any(touches)
    };
    let measured = Kind::ALL.into_iter().filter_map(|kind| {
        let of_kind = lanes.iter().filter(|lane| lane.kind == kind);
        let samples: Vec<_> = of_kind.filter(counts).map(|lane| lane.samples(fault)).collect();
        (!samples.is_empty()).then(|| (kind, Measured::of(&samples, watched)))
    });
    let kinds = measured.collect();
    Run { ended, ends_after: ends, watched, regions, lost, kinds }
}
