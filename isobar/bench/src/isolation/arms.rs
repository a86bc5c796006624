//! Runs arms: replicas attached or not, something beside the online load or nothing, and everything measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use rand::seq::SliceRandom as _;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::Args;
use super::cluster::Cluster;
use super::companion::Companion;
use crate::batch::{Engine, Kind, Query};
use crate::burn::Size;
use crate::driver::{Arrivals, Pace, Recorded, Settings, drive, record};
use crate::hiccups::Meter;
use crate::latency::{Latencies, Phase};
use crate::output;
use crate::processes::{self, Named, Used};
use crate::random::{self, Random};
use crate::report::{Arm, Sample, Timeline, is_batch_side};
use crate::workload::{SqlWork, Workload, oltp};

/// How long a batch by SQL, and one by Spark, may take until it is warm.
const SQL_READY: Duration = Duration::from_secs(300);
const SPARK_READY: Duration = Duration::from_secs(180);
/// How often the lag is looked at.
const LAG_EVERY: Duration = Duration::from_millis(500);
/// Traffic in memory of a row that a batch reads: in from the page cache, out decoded, in again to compute.
const PASSES: f64 = 3.0;
/// A transaction that takes longer is an error.
const TRANSACTION: Duration = Duration::from_secs(60);

/// The cluster, the workload, and what is known so far.
pub struct Bench {
    args: Args,
    /// The cluster.
    pub cluster: Cluster,
    work: Arc<SqlWork>,
    stop: CancellationToken,
    meter: Arc<Meter>,
    /// Online transactions per second.
    pub rate: f64,
    attached: Option<bool>,
    /// Parts of load so far.
    driven: u64,
    /// What the batch side used: learners alone, and with the batch on columns.
    idle: Vec<Used>,
    busy: Vec<Used>,
    traffic: Vec<f64>,
    /// What went wrong on the way.
    pub events: Vec<String>,
}

impl Bench {
    /// Nothing is known yet.
    pub fn new(
        args: &Args,
        cluster: Cluster,
        workload: Workload,
        stop: CancellationToken,
    ) -> Result<Self> {
        let target = cluster.online.clone();
        Ok(Bench {
            args: args.clone(),
            cluster,
            work: Arc::new(SqlWork { target, workload }),
            stop,
            rate: 0.0,
            attached: None,
            driven: 0,
            idle: Vec::new(),
            busy: Vec::new(),
            traffic: Vec::new(),
            events: Vec::new(),
            // The process is pinned by now, and the meter with it.
            meter: Arc::new(Meter::start()?),
        })
    }

    /// The workload.
    pub fn workload(&self) -> &Workload {
        &self.work.workload
    }

    /// Makes and fills the tables.
    pub async fn prepare(&self) -> Result<u64> {
        self.work.workload.prepare(&self.cluster.online, self.args.workload.seed).await
    }

    /// Stops what was started.
    pub async fn close(self) {
        self.cluster.close().await;
    }

    /// `draws`: which random numbers are drawn for arrivals. What transactions do is another draw each time: the second
    /// arm to write the same values would write nothing.
    fn settings(&mut self, pace: Pace, time: f64, draws: u64) -> Settings {
        self.driven += 1;
        let seed = |number: u64| self.args.workload.seed.wrapping_add(number << 20);
        Settings {
            pace,
            connections: self.args.threads as usize,
            warmup: Duration::from_secs_f64(self.args.warmup),
            time: Duration::from_secs_f64(time),
            arrivals_seed: seed(draws),
            seed: seed(self.driven),
            transaction_timeout: TRANSACTION,
            meter: Some(self.meter.clone()),
        }
    }

    /// Arrivals at the rate. What is late is not given up: it belongs into the arm's tail.
    fn open(&self, time: f64) -> Pace {
        Pace::Open {
            rate: self.rate,
            arrivals: Arrivals::Poisson,
            most_behind: Duration::from_secs_f64(2.0 * (time + self.args.warmup) + 5.0),
        }
    }

    async fn phase(&mut self, pace: Pace, time: f64, draws: u64, label: &str) -> Result<Recorded> {
        let settings = self.settings(pace, time, draws);
        Ok(record(self.work.clone(), &settings, &self.stop, output::progress(label)).await?)
    }

    /// Throughput without learners, from which the rate follows.
    pub async fn measure_capacity(&mut self) -> Result<f64> {
        output::note("measuring the capacity without learners …");
        self.attach(false).await?;
        let time = self.args.throughput_time.max(5.0);
        let phase = self.phase(Pace::Closed, time, 0, "capacity").await.context("the capacity")?;
        let phase = finished(phase)?;
        self.rate = phase.tps * self.args.load;
        Ok(phase.tps)
    }

    /// Measures what a batch on columns uses, which is what the control will use.
    pub async fn size_control(&mut self) -> Result<()> {
        output::note("measuring what a batch on columns uses, for the control …");
        let clock = Instant::now();
        self.round(&[Arm::Learners, Arm::Columns], 0, clock, &mut random::stream(0, 0))
            .await
            .context("sizing the control")?;
        let size = self.control();
        output::note(&format!(
            "the control: {:.2} processors, {:.0} MB/s in memory, {:.1} MB/s written",
            size.cpu,
            size.memory / 1e6,
            size.write / 1e6
        ));
        Ok(())
    }

    /// What the batch on columns used beyond what learners use, on average so far.
    pub fn control(&self) -> Size {
        let mean = |of: &[Used], part: fn(&Used) -> f64| {
            of.iter().map(part).sum::<f64>() / of.len().max(1) as f64
        };
        let more =
            |part: fn(&Used) -> f64| (mean(&self.busy, part) - mean(&self.idle, part)).max(0.0);
        let most = self.cluster.batch_cpus.as_ref().map_or(f64::MAX, |cpus| cpus.count() as f64);
        let write = more(|used| used.written_bytes);
        Size {
            cpu: more(|used| used.cpu_seconds).min(most),
            memory: self.traffic.iter().sum::<f64>() / self.traffic.len().max(1) as f64,
            write,
            // The kernel does not count syncs of a process: one a second where anything is written.
            fsyncs: if write >= 4096.0 { 1.0 } else { 0.0 },
        }
    }

    async fn attach(&mut self, wanted: bool) -> Result<()> {
        if self.attached == Some(wanted) {
            return Ok(());
        }
        let tables = self.work.workload.tables();
        let count = if wanted { self.args.replicas } else { 0 };
        self.cluster.replicas(&tables, count).await?;
        self.attached = Some(wanted);
        Ok(())
    }

    /// Runs one round: arms with replicas take turns, so that each meets what the machine does; without replicas, one after
    /// or before them.
    pub async fn round(
        &mut self,
        arms: &[Arm],
        round: usize,
        clock: Instant,
        random: &mut Random,
    ) -> Result<Vec<Sample>> {
        let (with, without): (Vec<Arm>, Vec<Arm>) = arms.iter().partition(|arm| arm.has_learners());
        let mut groups = [with, without];
        groups.shuffle(random);
        let mut samples = Vec::new();
        for group in groups.iter().filter(|group| !group.is_empty()) {
            samples.extend(self.take_turns(group, round, clock, random).await?);
        }
        Ok(samples)
    }

    /// Arms that have the same replicas, in turns whose order is drawn.
    async fn take_turns(
        &mut self,
        arms: &[Arm],
        round: usize,
        clock: Instant,
        random: &mut Random,
    ) -> Result<Vec<Sample>> {
        self.attach(arms.iter().any(|arm| arm.has_learners())).await?;
        let mut parts = Vec::new();
        for arm in arms {
            let mut companion = self.companion(*arm).await?;
            companion.iter_mut().for_each(Companion::hold);
            parts.push(Part::new(*arm, companion));
        }
        let names: Vec<&str> = arms.iter().map(|arm| arm.name()).collect();
        output::note(&format!("  {} turns of {}", self.args.turns, names.join(", ")));
        let started = clock.elapsed().as_secs_f64();
        for turn in 0..self.args.turns {
            // Arrivals are the same for all arms of a turn, whose bursts are then no difference between them (common random
            // numbers, as in simulation), and others in each turn.
            let draws = (round as u64 * u64::from(self.args.turns) + u64::from(turn)) * 2;
            parts.shuffle(random);
            for part in &mut parts {
                self.turn(part, draws).await.with_context(|| part.arm.name())?;
            }
        }
        let mut samples = Vec::new();
        for part in parts {
            samples.push(self.sample(part, round, started).await?);
        }
        Ok(samples)
    }

    /// One turn of an arm.
    async fn turn(&mut self, part: &mut Part, draws: u64) -> Result<()> {
        let label = part.arm.name();
        let turns = f64::from(self.args.turns);
        part.companion.iter_mut().for_each(Companion::go_on);
        let nodes = self.watched(part.companion.as_ref());
        let before = (Instant::now(), processes::read_all(&nodes));
        let lag = Lag::watch(self.cluster.online.clone(), self.database_lag());
        let time = self.args.time / turns;
        let open = self.phase(self.open(time), time, draws, label).await;
        // What comes before is the warm-up's, and the backlog of the turn before it.
        let measured = before.0 + Duration::from_secs_f64(self.args.warmup);
        part.lag.extend(lag.stop().await.into_iter().filter(|(at, _)| *at >= measured));
        let after = processes::read_all(&self.watched(part.companion.as_ref()));
        let seconds = before.0.elapsed().as_secs_f64();
        self.add_used(part, &before.1, &after);
        part.seconds += seconds;
        join(&mut part.open, open?);
        let time = self.args.throughput_time / turns;
        join(&mut part.closed, self.phase(Pace::Closed, time, draws + 1, label).await?);
        part.companion.iter_mut().for_each(Companion::hold);
        Ok(())
    }

    /// What an arm has seen in all its turns of a round.
    async fn sample(&mut self, part: Part, round: usize, started: f64) -> Result<Sample> {
        let Part { arm, companion, open, closed, used, seconds, lag } = part;
        let batch = match companion {
            Some(companion) => Some(companion.stop().await),
            None => None,
        };
        if let Some(error) = batch.as_ref().and_then(|batch| batch.first_error.clone()) {
            self.events.push(format!("round {round}, {}: {error}", arm.name()));
        }
        let rates = used.into_iter().map(|(name, used)| (name, used.per(seconds)));
        let used: BTreeMap<String, Used> = rates.collect();
        self.learn(arm, &used, batch.as_ref().and_then(|batch| batch.traffic()));
        let cpu = used.iter().map(|(name, used)| (name.clone(), used.cpu_seconds)).collect();
        let written_mb =
            used.iter().map(|(name, used)| (name.clone(), used.written_bytes / 1e6)).collect();
        Ok(Sample {
            arm,
            round,
            started,
            open: finished(open.context("no turn")?).with_context(|| arm.name())?,
            closed: finished(closed.context("no turn")?).with_context(|| arm.name())?,
            lag_ms: quantiles(&lag),
            batch: batch.map(|batch| batch.result).filter(|_| arm != Arm::Control),
            cpu,
            written_mb,
        })
    }

    /// Keeps what the batch side used, for the control.
    fn learn(&mut self, arm: Arm, used: &BTreeMap<String, Used>, traffic: Option<f64>) {
        let mut sum = Used::default();
        for (_, used) in used.iter().filter(|(name, _)| is_batch_side(name)) {
            sum.cpu_seconds += used.cpu_seconds;
            sum.written_bytes += used.written_bytes;
            sum.writes += used.writes;
        }
        match arm {
            Arm::Learners => self.idle.push(sum),
            Arm::Columns => {
                self.busy.push(sum);
                self.traffic.extend(traffic.map(|bytes| bytes * PASSES));
            }
            _ => {}
        }
    }

    /// Nodes, the batch and this driver.
    fn watched(&self, companion: Option<&Companion>) -> Named {
        let mut named = self.cluster.nodes();
        named.insert("driver".into(), std::process::id());
        for (number, pid) in
            companion.map(|c| processes::family(c.pid())).into_iter().flatten().enumerate()
        {
            let name = if number == 0 { "batch".to_owned() } else { format!("batch-{number}") };
            named.insert(name, pid);
        }
        named
    }

    /// Adds what each process used; one that was started again meanwhile is reported and left out.
    fn add_used(
        &mut self,
        part: &mut Part,
        before: &BTreeMap<String, (u32, Used)>,
        after: &BTreeMap<String, (u32, Used)>,
    ) {
        for (name, (pid, used)) in before {
            match after.get(name) {
                Some((same, now)) if same == pid => {
                    // A batch may be several processes; they count as one.
                    let name = if name.starts_with("batch") { "batch" } else { name };
                    part.used.entry(name.to_owned()).or_default().add(now.since(*used));
                }
                _ => self
                    .events
                    .push(format!("{name} ended or was started again while it was measured")),
            }
        }
    }

    /// Starts what an arm runs beside the online load, and waits until it is warm.
    async fn companion(&self, arm: Arm) -> Result<Option<Companion>> {
        let (command, limit) = match arm {
            Arm::Alone | Arm::Learners => return Ok(None),
            Arm::Rows => (self.sql_batch(Engine::Rows)?, SQL_READY),
            Arm::Columns => (self.sql_batch(Engine::Columns)?, SQL_READY),
            Arm::Spark => (self.spark_batch().await?, SPARK_READY),
            Arm::Control => (self.burn()?, SQL_READY),
        };
        let mut companion = Companion::start(command)?;
        companion.ready(limit).await.with_context(|| arm.name())?;
        Ok(Some(companion))
    }

    /// This program, for the batch's side.
    fn own(&self, subcommand: &str) -> Result<Command> {
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this program's file")?);
        command.args(["bench", subcommand, "--until-eof", "--time", "86400"]);
        if let Some(cpus) = &self.cluster.batch_cpus {
            command.args(["--cpus", &cpus.to_string()]);
        }
        Ok(command)
    }

    fn sql_batch(&self, engine: Engine) -> Result<Command> {
        let mut command = self.own("batch")?;
        let target = self.args.batch_target.as_ref().or(self.args.target.as_ref()).cloned();
        let target = target.unwrap_or_else(|| format!("mysql://root@{}", self.cluster.batch.shown));
        command.args(["--target", &target]);
        command.args(["--engine", if engine == Engine::Rows { "rows" } else { "columns" }]);
        let queries = self.queries();
        if queries.is_empty() {
            bail!("the batch has no queries: give --query with a file of statements");
        }
        for query in queries {
            command.args(["--query", &query.to_string()]);
        }
        Ok(command)
    }

    fn queries(&self) -> Vec<Query> {
        if !self.args.queries.is_empty() {
            return self.args.queries.clone();
        }
        let both = |aggregate: String, scan: String| {
            [
                Query { kind: Kind::Aggregate, text: aggregate },
                Query { kind: Kind::Scan, text: scan },
            ]
        };
        match &self.work.workload {
            Workload::Oltp(oltp) => oltp::Oltp::tables(oltp)
                .into_iter()
                .flat_map(|table| {
                    both(
                        format!("SELECT SUM(k), MIN(c), MAX(pad), COUNT(*) FROM {table}"),
                        format!("SELECT id, k, c, pad FROM {table}"),
                    )
                })
                .collect(),
            Workload::Tpcc(_) => both(
                "SELECT ol_number, SUM(ol_quantity), SUM(ol_amount), AVG(ol_amount), COUNT(*) FROM order_line \
                 GROUP BY ol_number"
                    .into(),
                "SELECT * FROM order_line".into(),
            )
            .into(),
            Workload::Own(_) => Vec::new(),
        }
    }

    async fn spark_batch(&self) -> Result<Command> {
        let flight_addresses = self.cluster.flight_addresses().await?;
        let tables = match &self.work.workload {
            Workload::Tpcc(_) => vec!["order_line".to_owned()],
            workload => workload.tables(),
        };
        let words = self.args.spark_command.split_whitespace().map(|word| {
            word.replace("{endpoints}", &flight_addresses.join(","))
                .replace("{database}", self.cluster.online.database())
                .replace("{tables}", &tables.join(","))
        });
        let mut command =
            Command::new(std::env::current_exe().context("cannot find this program's file")?);
        match &self.cluster.batch_cpus {
            Some(cpus) => {
                command.args(["bench", "pinned", "--cpus", &cpus.to_string(), "--"]).args(words);
            }
            None => {
                let mut words = words;
                command = Command::new(words.next().context("--spark-command is empty")?);
                command.args(words);
            }
        }
        Ok(command)
    }

    fn burn(&self) -> Result<Command> {
        let mut command = self.own("burn")?;
        let size = self.control();
        for (name, value) in [
            ("--cpu", size.cpu),
            ("--memory", size.memory),
            ("--write", size.write),
            ("--fsyncs", size.fsyncs),
        ] {
            command.args([name, &format!("{value:.4}")]);
        }
        if let Some(data) = &self.args.data {
            command.arg("--dir").arg(data);
        }
        Ok(command)
    }

    fn database_lag(&self) -> String {
        format!(
            "SELECT lag_ms FROM information_schema.columnar_replica WHERE table_schema = '{}'",
            self.cluster.online.database()
        )
    }

    /// One phase for each batch by SQL: before it, with it, after it.
    pub async fn timelines(&mut self) -> Result<Vec<Timeline>> {
        let mut timelines = Vec::new();
        for arm in [Arm::Rows, Arm::Columns] {
            output::note(&format!("over time: {}", arm.name()));
            timelines.push(
                self.timeline(arm).await.with_context(|| format!("over time: {}", arm.name()))?,
            );
        }
        Ok(timelines)
    }

    async fn timeline(&mut self, arm: Arm) -> Result<Timeline> {
        self.attach(true).await?;
        let part = Duration::from_secs_f64(self.args.timeline);
        let time = self.args.timeline * 3.0;
        let settings = self.settings(self.open(time), time, u64::from(u16::MAX));
        let begin = Instant::now() + settings.warmup;
        let lag = Lag::watch(self.cluster.online.clone(), self.database_lag());
        let beside = async {
            tokio::time::sleep_until((begin + part).into()).await;
            let from = begin.elapsed().as_secs_f64();
            let companion = self.companion(arm).await?;
            tokio::time::sleep_until((begin + 2 * part).into()).await;
            if let Some(companion) = companion {
                companion.stop().await;
            }
            Ok::<[f64; 2], anyhow::Error>([from, begin.elapsed().as_secs_f64()])
        };
        let label = format!("{} over time", arm.name());
        let load = drive(self.work.clone(), &settings, &self.stop, output::progress(&label));
        let (phase, batch) = tokio::join!(load, beside);
        let lag = lag.stop().await;
        let at = |(time, lag): &(Instant, f64)| {
            time.checked_duration_since(begin).map(|since| [since.as_secs_f64(), *lag])
        };
        let lag = lag.iter().filter_map(at).collect();
        Ok(Timeline { arm, series: phase?.series, batch: batch?, lag })
    }
}

/// An arm in the turns of one round.
struct Part {
    arm: Arm,
    companion: Option<Companion>,
    open: Option<Recorded>,
    closed: Option<Recorded>,
    used: BTreeMap<String, Used>,
    /// How long that was counted.
    seconds: f64,
    lag: Vec<(Instant, f64)>,
}

impl Part {
    fn new(arm: Arm, companion: Option<Companion>) -> Self {
        let (used, lag) = (BTreeMap::new(), Vec::new());
        Part { arm, companion, open: None, closed: None, used, seconds: 0.0, lag }
    }
}

fn join(whole: &mut Option<Recorded>, part: Recorded) {
    match whole {
        Some(whole) => whole.join(part),
        None => *whole = Some(part),
    }
}

fn finished(recorded: Recorded) -> Result<Phase> {
    let phase = recorded.finish();
    // One that ended late has a latency, and one that started early was completed.
    if phase.latency_ms.max == 0.0 && phase.transactions == 0 {
        bail!("no transaction ended well; errors: {:?}", phase.errors);
    }
    Ok(phase)
}

/// Median and 99th percentile, ms.
fn quantiles(lags: &[(Instant, f64)]) -> Option<[f64; 2]> {
    let mut latencies = Latencies::default();
    for (_, lag) in lags {
        latencies.record(Duration::from_secs_f64(lag / 1_000.0));
    }
    (!lags.is_empty()).then(|| [latencies.quantile(0.5), latencies.quantile(0.99)])
}

/// Looks at replica lag now and then, from a connection of its own.
struct Lag {
    task: tokio::task::JoinHandle<()>,
    end: CancellationToken,
    samples: Arc<Mutex<Vec<(Instant, f64)>>>,
}

impl Lag {
    fn watch(target: crate::target::Target, query: String) -> Self {
        let samples = Arc::new(Mutex::new(Vec::new()));
        let end = CancellationToken::new();
        let (kept, ended) = (samples.clone(), end.clone());
        let task = tokio::spawn(async move {
            let Ok(mut conn) = target.connect().await else { return };
            loop {
                // Asked in every arm, so that all pay for it alike.
                if let Ok(Some(lag)) = Cluster::furthest(&mut conn, &query).await {
                    kept.lock().push((Instant::now(), lag));
                }
                tokio::select! {
                    () = tokio::time::sleep(LAG_EVERY) => {}
                    () = ended.cancelled() => return,
                }
            }
        });
        Lag { task, end, samples }
    }

    async fn stop(self) -> Vec<(Instant, f64)> {
        self.end.cancel();
        // It may hang in a query of a server that is gone.
        if tokio::time::timeout(Duration::from_secs(5), self.task).await.is_err() {
            output::note("the lag could not be asked for in time");
        }
        std::mem::take(&mut *self.samples.lock())
    }
}
