//! What a proof of isolation found, as it is written to JSON and drawn on its page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::burn::Size;
use crate::latency::{Phase, Second};
use crate::playground::BATCH_SQL;
use crate::stats::{Estimate, Verdict};

/// A condition that online load runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// Online load, and no learners.
    Alone,
    /// Learners attached.
    Learners,
    /// And a batch that reads rows.
    Rows,
    /// And a batch that reads columns by SQL.
    Columns,
    /// And a batch that reads columns by Spark.
    Spark,
    /// Learners, and what the batch on columns used, used without the database.
    Control,
}

impl Arm {
    /// All, in the order of reports.
    pub const ALL: [Arm; 6] =
        [Arm::Alone, Arm::Learners, Arm::Rows, Arm::Columns, Arm::Spark, Arm::Control];

    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Alone => "alone",
            Arm::Learners => "learners",
            Arm::Rows => "batch on rows",
            Arm::Columns => "batch on columns (SQL)",
            Arm::Spark => "batch on columns (Spark)",
            Arm::Control => "control",
        }
    }

    /// In a sentence.
    pub fn says(self) -> &'static str {
        match self {
            Arm::Alone => "Online load, no columnar replica.",
            Arm::Learners => "Online load, columnar replicas follow it.",
            Arm::Rows => "And scans and aggregates that read the row store.",
            Arm::Columns => "And the same scans and aggregates by SQL on columnar replicas.",
            Arm::Spark => "And the same by Spark, which reads columnar replicas over Arrow Flight.",
            Arm::Control => {
                "Replicas follow, and a process that knows no database uses what the batch on columns used."
            }
        }
    }

    /// Whether a batch or its stand-in runs.
    pub fn is_loaded(self) -> bool {
        !matches!(self, Arm::Alone | Arm::Learners)
    }

    /// Whether columnar replicas are attached.
    pub fn has_learners(self) -> bool {
        self != Arm::Alone
    }
}

/// Whether a process, by its name, works for the batch.
pub fn is_batch_side(name: &str) -> bool {
    name.starts_with("columnar") || name == BATCH_SQL || name == "batch"
}

/// What one arm saw in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Which.
    pub arm: Arm,
    /// Of which round, from 1.
    pub round: usize,
    /// Seconds since the first round began.
    pub started: f64,
    /// Latency at a given rate.
    pub open: Phase,
    /// Throughput.
    pub closed: Phase,
    /// Replica lag: median and 99th percentile of the samples, ms.
    pub lag_ms: Option<[f64; 2]>,
    /// The batch.
    pub batch: Option<BatchResult>,
    /// Processor seconds per second, by process.
    pub cpu: BTreeMap<String, f64>,
    /// Megabytes written per second, by process.
    pub written_mb: BTreeMap<String, f64>,
}

/// What a batch did beside one arm.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BatchResult {
    /// Rows per second of each kind of query.
    pub rows_per_second: BTreeMap<String, f64>,
    /// Queries that ended.
    pub queries: u64,
    /// The same, per second of the time that they took; 0 where that was not written.
    #[serde(default)]
    pub queries_per_second: f64,
    /// Queries that failed.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
}

/// An arm over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArmResult {
    /// Which.
    pub arm: Arm,
    /// In a few words.
    pub name: String,
    /// In a sentence.
    pub says: String,
    /// Latency in ms: p50, p95, p99, p99.9.
    pub latency_ms: BTreeMap<String, Estimate>,
    /// The same of all transactions, those that met a hiccup of the machine included: p95, p99. Empty where hiccups were
    /// not watched.
    #[serde(default)]
    pub with_hiccups_ms: BTreeMap<String, Estimate>,
    /// Per cent of the time that the machine was slow.
    #[serde(default)]
    pub slow_percent: Estimate,
    /// Transactions per second, closed loop.
    pub throughput: Estimate,
    /// Replica lag in ms: p50, p99.
    pub lag_ms: BTreeMap<String, Estimate>,
    /// Batch rows per second, by kind of query.
    pub batch_rows_per_second: BTreeMap<String, Estimate>,
    /// Processor seconds per second, by process.
    pub cpu: BTreeMap<String, Estimate>,
    /// Transactions that failed, in all rounds.
    pub errors: BTreeMap<String, u64>,
    /// Attempts that were repeated.
    pub retries: BTreeMap<String, u64>,
    /// Batch queries that failed.
    pub batch_errors: u64,
    /// The first of these failures.
    pub batch_first_error: Option<String>,
    /// Rounds in which the server could not keep up with the rate.
    pub overruns: usize,
}

/// One arm against another of the same rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// In words.
    pub name: String,
    /// What is compared.
    pub arm: Arm,
    /// Against what.
    pub base: Arm,
    /// By metric, in per cent of the base.
    pub percent: BTreeMap<String, Estimate>,
    /// The metrics that it is measured for and that are not known well enough, and why; `None` where it is measured for none.
    pub unresolved: Option<BTreeMap<String, String>>,
}

/// A limit and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitResult {
    /// As given.
    pub limit: String,
    /// What it is about.
    pub says: String,
    /// What was found, in per cent.
    pub found: Estimate,
    /// Whether it was met.
    pub verdict: Verdict,
}

/// Online latency by the second while a batch comes and goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timeline {
    /// Which batch.
    pub arm: Arm,
    /// By the second.
    pub series: Vec<Second>,
    /// When the batch ran.
    pub batch: [f64; 2],
    /// Replica lag in ms, with its time in seconds.
    pub lag: Vec<[f64; 2]>,
}

/// How processes were kept apart.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pinning {
    /// In sentences.
    pub says: Vec<String>,
    /// Processors of row nodes and driver.
    pub online: Option<String>,
    /// Processors of columnar nodes and batch.
    pub batch: Option<String>,
    /// What the kernel says of each process.
    pub processes: BTreeMap<String, String>,
}

/// The whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// When it began (UTC).
    pub started: String,
    /// How long it took, in minutes.
    pub minutes: f64,
    /// The command.
    pub command: String,
    /// Versions and the machine, by name.
    pub machine: BTreeMap<String, String>,
    /// Settings, by name.
    pub settings: BTreeMap<String, String>,
    /// How processes were kept apart.
    pub pinning: Pinning,
    /// What this run cannot show.
    pub cannot_show: Vec<String>,
    /// Throughput that the rate was derived from, if it was.
    pub capacity_tps: Option<f64>,
    /// Transactions per second in all arms.
    pub rate: f64,
    /// What the control used.
    pub control: Option<Size>,
    /// Finished rounds.
    pub rounds: usize,
    /// Why there were no more.
    pub ended_because: String,
    /// Each arm over all rounds.
    pub arms: Vec<ArmResult>,
    /// Arms against each other.
    pub differences: Vec<Difference>,
    /// Limits.
    pub limits: Vec<LimitResult>,
    /// Of all limits.
    pub verdict: Option<Verdict>,
    /// Whether the workload's consistency conditions were checked, and which do not hold.
    pub violations: Option<Vec<String>>,
    /// A batch that comes and goes.
    pub timelines: Vec<Timeline>,
    /// What went wrong on the way.
    pub events: Vec<String>,
    /// Each arm of each round.
    pub samples: Vec<Sample>,
}
