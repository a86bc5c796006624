//! From samples to results: means and intervals, differences within rounds, limits.
//!
//! Pure: it reads samples and nothing else.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::Args;
use crate::latency::{Phase, Quantiles};
use crate::report::{Arm, ArmResult, Difference, LimitResult, Sample};
use crate::stats::{Estimate, Verdict, excess, judge};

/// Latency metrics, as they are named on the command line and in reports.
pub const LATENCIES: [&str; 4] = ["p50", "p95", "p99", "p99.9"];
/// The name of the other metric.
pub const THROUGHPUT: &str = "throughput";

/// A limit: a metric may be worse by so many per cent.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    metric: String,
    percent: f64,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no limit: write p95<=5%, or another of p50, p99, p99.9 and throughput"
            )
        };
        let (metric, percent) = text.split_once("<=").ok_or_else(wrong)?;
        let metric = metric.trim();
        if metric != THROUGHPUT && !LATENCIES.contains(&metric) {
            return Err(wrong());
        }
        let number = percent.trim().trim_end_matches('%').trim();
        match number.parse::<f64>() {
            Ok(percent) if percent.is_finite() => Ok(Limit { metric: metric.to_owned(), percent }),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ≤ {} %", self.metric, self.percent)
    }
}

/// Of what met no hiccup of the machine, where that was watched.
fn latency(phase: &Phase, metric: &str) -> f64 {
    quantile(phase.steady.as_ref().map_or(&phase.latency_ms, |steady| &steady.latency_ms), metric)
}

fn quantile(latency: &Quantiles, metric: &str) -> f64 {
    match metric {
        "p50" => latency.p50,
        "p95" => latency.p95,
        "p99" => latency.p99,
        _ => latency.p999,
    }
}

fn value(sample: &Sample, metric: &str) -> f64 {
    if metric == THROUGHPUT { sample.closed.tps } else { latency(&sample.open, metric) }
}

fn of(samples: &[Sample], arm: Arm) -> Vec<&Sample> {
    samples.iter().filter(|sample| sample.arm == arm).collect()
}

fn values(samples: &[&Sample], metric: &str) -> Vec<f64> {
    samples.iter().map(|sample| value(sample, metric)).collect()
}

/// The metrics that two arms are compared for, with how well they are to be known: half of the interval, in per cent of the
/// base. Whatever else is compared is shown as far as it is known.
fn wanted(args: &Args, arm: Arm, base: Arm) -> Vec<(&'static str, f64)> {
    match (arm, base) {
        (Arm::Columns | Arm::Spark, Arm::Control) => {
            vec![("p95", args.resolve), ("p99", args.resolve_p99)]
        }
        (Arm::Learners, Arm::Alone) => vec![(THROUGHPUT, args.resolve)],
        _ => Vec::new(),
    }
}

fn why_unresolved(args: &Args, found: &Estimate, wanted: f64) -> Option<String> {
    match found.half_width {
        _ if found.rounds < args.min_rounds => {
            Some(format!("{} rounds, and {} are the least", found.rounds, args.min_rounds))
        }
        Some(half) if half <= wanted => None,
        Some(half) => Some(format!("known to ± {half:.1} %, wanted to ± {wanted} %")),
        None => Some("one round has no interval".to_owned()),
    }
}

/// Each arm over all rounds.
pub fn arms(args: &Args, samples: &[Sample]) -> Vec<ArmResult> {
    args.arms().into_iter().map(|arm| summarize(arm, &of(samples, arm))).collect()
}

fn summarize(arm: Arm, samples: &[&Sample]) -> ArmResult {
    let latency_ms = LATENCIES
        .iter()
        .map(|metric| ((*metric).to_owned(), Estimate::of(&values(samples, metric))))
        .collect();
    let slow: Vec<f64> =
        samples.iter().filter_map(|sample| Some(sample.open.steady?.slow * 100.0)).collect();
    let with_hiccups_ms = ["p95", "p99"].into_iter().filter(|_| !slow.is_empty()).map(|metric| {
        let of = |sample: &&Sample| quantile(&sample.open.latency_ms, metric);
        (metric.to_owned(), Estimate::of(&samples.iter().map(of).collect::<Vec<f64>>()))
    });
    let lags: Vec<[f64; 2]> = samples.iter().filter_map(|sample| sample.lag_ms).collect();
    let lag = |at: usize| Estimate::of(&lags.iter().map(|lag| lag[at]).collect::<Vec<f64>>());
    let lag_ms = match lags.is_empty() {
        true => BTreeMap::new(),
        false => BTreeMap::from([("p50".to_owned(), lag(0)), ("p99".to_owned(), lag(1))]),
    };
    let batches: Vec<_> = samples.iter().filter_map(|sample| sample.batch.as_ref()).collect();
    ArmResult {
        arm,
        name: arm.name().to_owned(),
        says: arm.says().to_owned(),
        latency_ms,
        with_hiccups_ms: with_hiccups_ms.collect(),
        slow_percent: Estimate::of(&slow),
        throughput: Estimate::of(&values(samples, THROUGHPUT)),
        lag_ms,
        batch_rows_per_second: by_name(batches.iter().map(|batch| &batch.rows_per_second)),
        cpu: by_name(samples.iter().map(|sample| &sample.cpu)),
        errors: sums(samples, |phase| &phase.errors),
        retries: sums(samples, |phase| &phase.retries),
        batch_errors: batches.iter().map(|batch| batch.errors).sum(),
        batch_first_error: batches.iter().find_map(|batch| batch.first_error.clone()),
        overruns: samples.iter().filter(|sample| sample.open.overrun.is_some()).count(),
    }
}

fn by_name<'a>(
    maps: impl Iterator<Item = &'a BTreeMap<String, f64>>,
) -> BTreeMap<String, Estimate> {
    let mut lists: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, value) in maps.flatten() {
        lists.entry(name).or_default().push(*value);
    }
    lists.into_iter().map(|(name, values)| (name.to_owned(), Estimate::of(&values))).collect()
}

fn sums(samples: &[&Sample], part: fn(&Phase) -> &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (code, count) in samples.iter().flat_map(|s| part(&s.open).iter().chain(part(&s.closed))) {
        *sums.entry(code.clone()).or_insert(0) += count;
    }
    sums
}

/// Arms against each other, within rounds.
pub fn differences(args: &Args, samples: &[Sample]) -> Vec<Difference> {
    let pairs = [
        ("cost of learners", Arm::Learners, Arm::Alone),
        ("batch on rows", Arm::Rows, Arm::Learners),
        ("batch on columns (SQL) beyond the control", Arm::Columns, Arm::Control),
        ("batch on columns (Spark) beyond the control", Arm::Spark, Arm::Control),
        ("shared hardware: the control beyond learners", Arm::Control, Arm::Learners),
    ];
    let mut found = Vec::new();
    for (name, arm, base) in pairs {
        let (ours, theirs) = paired(samples, arm, base);
        if ours.is_empty() {
            continue;
        }
        let metrics = LATENCIES.iter().copied().chain([THROUGHPUT]);
        let percent = metrics.map(|metric| {
            (metric.to_owned(), excess(&values(&ours, metric), &values(&theirs, metric)))
        });
        let percent: BTreeMap<String, Estimate> = percent.collect();
        let wanted = wanted(args, arm, base);
        let unresolved = wanted.iter().filter_map(|(metric, wanted)| {
            let found = percent.get(*metric).copied().unwrap_or_default();
            Some(((*metric).to_owned(), why_unresolved(args, &found, *wanted)?))
        });
        let unresolved = (!wanted.is_empty()).then(|| unresolved.collect());
        found.push(Difference { name: name.to_owned(), arm, base, percent, unresolved });
    }
    found
}

/// Samples of two arms, of rounds that have both.
fn paired(samples: &[Sample], arm: Arm, base: Arm) -> (Vec<&Sample>, Vec<&Sample>) {
    let (ours, theirs) = (of(samples, arm), of(samples, base));
    let pairs = ours.into_iter().filter_map(|sample| {
        let other = theirs.iter().find(|other| other.round == sample.round)?;
        Some((sample, *other))
    });
    pairs.unzip()
}

/// What came of the limits.
pub fn limits(limits: &[Limit], differences: &[Difference]) -> Vec<LimitResult> {
    limits.iter().map(|limit| result(limit, differences)).collect()
}

fn result(limit: &Limit, differences: &[Difference]) -> LimitResult {
    let throughput = limit.metric == THROUGHPUT;
    let (arm, base) =
        if throughput { (Arm::Learners, Arm::Alone) } else { (Arm::Columns, Arm::Control) };
    let says = match throughput {
        true => "throughput that learners cost".to_owned(),
        false => format!("{} beside a batch on columns (SQL), against the control", limit.metric),
    };
    let of = differences.iter().find(|difference| difference.arm == arm && difference.base == base);
    let mut found = of.and_then(|of| of.percent.get(&limit.metric)).copied().unwrap_or_default();
    if throughput {
        // What is lost is what the difference lacks.
        found.mean = -found.mean;
    }
    let verdict = judge(&found, limit.percent);
    LimitResult { limit: limit.to_string(), says, found, verdict }
}

/// One verdict for all limits.
pub fn verdict(limits: &[LimitResult]) -> Option<Verdict> {
    let any = |verdict| limits.iter().any(|limit| limit.verdict == verdict);
    match () {
        () if limits.is_empty() => None,
        () if any(Verdict::NotMet) => Some(Verdict::NotMet),
        () if any(Verdict::Inconclusive) => Some(Verdict::Inconclusive),
        () => Some(Verdict::Met),
    }
}

/// A sample in a line.
pub fn line(sample: &Sample) -> String {
    let [p50, p95, p99] = ["p50", "p95", "p99"].map(|metric| latency(&sample.open, metric));
    let mut line = format!(
        "p50 {p50:.2}  p95 {p95:.2}  p99 {p99:.2} ms at {:.1}/s; {:.1} tps closed",
        sample.open.tps, sample.closed.tps
    );
    if let Some(steady) = &sample.open.steady {
        line.push_str(&format!(
            "; {:.0} % of the time the machine was slow (with it p95 {:.1}, p99 {:.1} ms)",
            steady.slow * 100.0,
            sample.open.latency_ms.p95,
            sample.open.latency_ms.p99
        ));
    }
    for (kind, rate) in sample.batch.iter().flat_map(|batch| &batch.rows_per_second) {
        line.push_str(&format!("; {kind} {rate:.0} rows/s"));
    }
    for (what, count) in
        [("errors", sample.open.error_count()), ("retries", sample.open.retry_count())]
    {
        if count > 0 {
            line.push_str(&format!("; {count} {what}"));
        }
    }
    line
}
