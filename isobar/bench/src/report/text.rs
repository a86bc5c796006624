//! A report in a few lines, for a terminal.

use std::fmt::Write as _;

use super::costs::{Cost, costs};
use super::model::{ArmResult, Report};
use super::svg::short;
use crate::stats::{Estimate, Verdict};

/// A mean with its interval.
pub fn with_interval(estimate: &Estimate) -> String {
    match (estimate.rounds, estimate.half_width) {
        (0, _) => "–".to_owned(),
        (_, Some(half)) => format!("{} ± {}", short(estimate.mean), short(half)),
        (_, None) => short(estimate.mean),
    }
}

/// A verdict in words.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::NotMet => "NOT MET",
        Verdict::Inconclusive => "inconclusive",
    }
}

/// The report.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\nOnline load of {:.1} transactions per second, {} rounds ({}), {:.1} minutes in all\n",
        report.rate, report.rounds, report.ended_because, report.minutes
    );
    let _ = writeln!(
        out,
        "{:<26}{:>16}{:>16}{:>16}{:>16}{:>18}",
        "arm", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "closed tps"
    );
    for arm in &report.arms {
        let latency = |name: &str| arm.latency_ms.get(name).map(with_interval).unwrap_or_default();
        let _ = writeln!(
            out,
            "{:<26}{:>16}{:>16}{:>16}{:>16}{:>18}{}",
            arm.name,
            latency("p50"),
            latency("p95"),
            latency("p99"),
            latency("p99.9"),
            with_interval(&arm.throughput),
            notes(arm)
        );
    }
    out.push('\n');
    for arm in report.arms.iter().filter(|arm| !arm.batch_rows_per_second.is_empty()) {
        let rates = arm.batch_rows_per_second.iter();
        let rates: Vec<String> =
            rates.map(|(kind, rate)| format!("{kind} {} rows/s", with_interval(rate))).collect();
        let _ = writeln!(out, "{}: {}", arm.name, rates.join(", "));
    }
    for arm in &report.arms {
        if let Some(hiccups) = hiccups(arm) {
            let _ = writeln!(out, "{}: {hiccups}", arm.name);
        }
    }
    for difference in &report.differences {
        let parts = ["p50", "p95", "p99", "throughput"].iter().filter_map(|metric| {
            difference.percent.get(*metric).map(|of| format!("{metric} {} %", with_interval(of)))
        });
        let _ = writeln!(out, "{}: {}", difference.name, parts.collect::<Vec<_>>().join(", "));
        for (metric, why) in difference.unresolved.iter().flatten() {
            let _ = writeln!(out, "    {metric} is not resolved: {why}");
        }
    }
    for Cost { what, found, unit } in costs(&report.samples) {
        let _ = writeln!(out, "cost of {what}: {} {unit}", with_interval(&found));
    }
    for limit in &report.limits {
        let _ = writeln!(
            out,
            "limit {}: {} ({} %)",
            limit.limit,
            verdict(limit.verdict),
            with_interval(&limit.found)
        );
    }
    match &report.violations {
        None => {}
        Some(violations) if violations.is_empty() => {
            let _ = writeln!(out, "the workload's conditions hold");
        }
        Some(violations) => {
            for violation in violations {
                let _ = writeln!(out, "{violation}");
            }
        }
    }
    for event in &report.events {
        let _ = writeln!(out, "note: {event}");
    }
    out
}

/// What the machine did to an arm, where that was watched.
pub fn hiccups(arm: &ArmResult) -> Option<String> {
    let all = |metric: &str| arm.with_hiccups_ms.get(metric).map(with_interval);
    Some(format!(
        "the machine was slow for {} % of the time; with what met that, p95 {} ms, p99 {} ms",
        with_interval(&arm.slow_percent),
        all("p95")?,
        all("p99")?
    ))
}

fn notes(arm: &ArmResult) -> String {
    let mut notes = Vec::new();
    let errors: u64 = arm.errors.values().sum();
    if errors > 0 {
        notes.push(format!("{errors} errors"));
    }
    if arm.overruns > 0 {
        notes.push(format!("could not keep up in {} rounds", arm.overruns));
    }
    if arm.batch_errors > 0 {
        notes.push(format!("{} batch errors", arm.batch_errors));
    }
    if notes.is_empty() { String::new() } else { format!("  {}", notes.join(", ")) }
}
