//! From planted samples to verdicts, a page and an exit: what a run must and must not claim.

use std::collections::BTreeMap;

use clap::Parser;

use super::*;
use crate::latency::{Quantiles, Second};
use crate::report::{BatchResult, Pinning, Timeline};
use crate::stats::judge as judge_estimate;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(words: &[&str]) -> Args {
    Line::parse_from([&["isolation"], words].concat()).args
}

fn sample(arm: Arm, round: usize, p95: f64, tps: f64) -> Sample {
    let latency_ms = Quantiles {
        p50: p95 / 3.0,
        p95,
        p99: p95 * 1.5,
        p999: p95 * 2.0,
        mean: p95 / 2.0,
        max: p95 * 3.0,
    };
    let mut open = crate::latency::Phase { latency_ms, tps: 100.0, ..Default::default() };
    open.retries.insert("1213".into(), 2);
    let mut closed = open.clone();
    closed.tps = tps;
    let batch = arm.is_loaded().then(|| BatchResult {
        rows_per_second: BTreeMap::from([("scan".into(), 1e6), ("aggregate".into(), 5e6)]),
        queries: 10,
        ..BatchResult::default()
    });
    let cpu = BTreeMap::from([
        ("row-1".to_owned(), 0.3),
        ("columnar-1".to_owned(), 0.2),
        ("<b>".to_owned(), 0.1),
    ]);
    Sample {
        arm,
        round,
        started: round as f64 * 60.0,
        open,
        closed,
        lag_ms: arm.has_learners().then_some([40.0, 90.0]),
        batch: batch.filter(|_| arm != Arm::Control),
        written_mb: BTreeMap::new(),
        cpu,
    }
}

/// Rounds on a machine that becomes slower, with columns so many per cent over the control.
fn rounds(count: usize, columns: f64, learners: f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for round in 1..=count {
        let slow = 1.0 + round as f64 * 0.002;
        let wobble = if round % 2 == 0 { 1.003 } else { 0.997 };
        for (arm, p95, tps) in [
            (Arm::Alone, 20.0, 1_000.0),
            (Arm::Learners, 20.5, 1_000.0 * (1.0 - learners / 100.0) * wobble),
            (Arm::Rows, 300.0, 400.0),
            (Arm::Columns, 22.0 * (1.0 + columns / 100.0) * wobble, 950.0),
            (Arm::Control, 22.0, 960.0),
        ] {
            samples.push(sample(arm, round, p95 * slow, tps / slow));
        }
    }
    samples
}

fn report(args: &Args, samples: Vec<Sample>) -> Report {
    let differences = judge::differences(args, &samples);
    let limits = judge::limits(&args.limits, &differences);
    let second =
        |at: u64| Second { at, transactions: 50, errors: 0, p50: 5.0, p95: 12.0, p99: 20.0 };
    Report {
        started: "2026-01-01 00:00:00 UTC".into(),
        minutes: 12.0,
        command: "isobar bench isolation --limit 'p95<=5%' <&>".into(),
        machine: BTreeMap::from([("server".into(), "8.0 at 127.0.0.1:4000/bench".into())]),
        settings: BTreeMap::from([("workload".into(), "read-write".into())]),
        pinning: Pinning { says: vec!["pinned".into()], ..Pinning::default() },
        cannot_show: vec!["one disk".into()],
        capacity_tps: Some(1_000.0),
        rate: 500.0,
        control: Some(crate::burn::Size { cpu: 0.8, memory: 1e8, write: 0.0, fsyncs: 0.0 }),
        rounds: samples.iter().map(|sample| sample.round).max().unwrap_or(0),
        ended_because: "enough".into(),
        verdict: judge::verdict(&limits),
        arms: judge::arms(args, &samples),
        differences,
        limits,
        violations: Some(vec!["condition 1 is violated".into()]),
        timelines: vec![Timeline {
            arm: Arm::Columns,
            series: (0..30).map(second).collect(),
            batch: [10.0, 20.5],
            lag: vec![[1.0, 30.0], [2.0, 50.0]],
        }],
        events: vec!["row-1 was started again".into()],
        samples,
    }
}

const LIMITS: [&str; 5] = ["--no-spark", "--limit", "p95<=5%", "--limit", "throughput<=3%"];

#[test]
fn limits_are_met_missed_or_left_open() {
    let verdict = |rounds: Vec<Sample>| report(&args(&LIMITS), rounds).verdict;
    assert_eq!(verdict(rounds(8, 1.0, 1.0)), Some(Verdict::Met));
    assert_eq!(verdict(rounds(8, 9.0, 1.0)), Some(Verdict::NotMet));
    assert_eq!(verdict(rounds(8, 1.0, 6.0)), Some(Verdict::NotMet));
    assert_eq!(verdict(rounds(8, 5.0, 1.0)), Some(Verdict::Inconclusive));
    assert_eq!(
        verdict(rounds(1, 1.0, 1.0)),
        Some(Verdict::Inconclusive),
        "one round has no interval"
    );
    assert_eq!(verdict(Vec::new()), Some(Verdict::Inconclusive));
    assert_eq!(report(&args(&["--no-spark"]), rounds(8, 50.0, 50.0)).verdict, None);
}

#[test]
fn each_cost_of_columns_has_its_figure() {
    let mut samples = rounds(4, 1.0, 1.0);
    for sample in &mut samples {
        let row = sample.cpu.get_mut("row-1").unwrap();
        if sample.arm != Arm::Alone {
            *row += 0.01;
            sample.written_mb.insert("columnar-1".into(), 0.05);
        }
        if sample.arm == Arm::Columns {
            *row += 0.02;
            sample.batch.as_mut().unwrap().queries_per_second = 4.0;
        }
    }
    let found: Vec<(&str, f64)> = crate::report::costs(&samples)
        .iter()
        .map(|cost| (cost.unit, (cost.found.mean * 10.0).round() / 10.0))
        .collect();
    assert_eq!(
        found,
        [
            ("µs of processor time a transaction", 100.0),
            ("µs of processor time a transaction", 0.0),
            ("kB written a transaction", 0.5),
            ("ms of processor time a query", 5.0),
            ("% of the online p95", 7.3),
        ]
    );
    // What was not measured has no figure.
    samples.retain(|sample| sample.arm == Arm::Learners);
    assert_eq!(crate::report::costs(&samples), []);
}

#[test]
fn columns_are_held_against_the_control_and_learners_against_none() {
    let report = report(&args(&LIMITS), rounds(8, 2.0, 1.5));
    let found =
        |metric: &str| report.limits.iter().find(|l| l.limit.starts_with(metric)).unwrap().found;
    assert!((found("p95").mean - 2.0).abs() < 0.05, "{:?}", found("p95"));
    assert!(
        (found("throughput").mean - 1.5).abs() < 0.05,
        "lost, so above 0: {:?}",
        found("throughput")
    );
    assert_eq!(judge_estimate(&found("p95"), 1.0), Verdict::NotMet);
}

#[test]
fn a_comparison_is_resolved_only_when_it_is_known_well_enough() {
    let args = args(&["--no-spark", "--min-rounds", "4"]);
    let unresolved = |samples: &[Sample]| -> Vec<(Arm, String)> {
        let found = judge::differences(&args, samples).into_iter();
        let of = |d: crate::report::Difference| {
            let metrics = d.unresolved.into_iter().flatten();
            metrics.map(move |(metric, _)| (d.arm, metric)).collect::<Vec<_>>()
        };
        found.flat_map(of).collect()
    };
    let of = |arm, metric: &str| (arm, metric.to_owned());
    assert_eq!(unresolved(&rounds(8, 1.0, 1.0)), []);
    let all = [of(Arm::Learners, "throughput"), of(Arm::Columns, "p95"), of(Arm::Columns, "p99")];
    assert_eq!(unresolved(&rounds(3, 1.0, 1.0)), all, "too few rounds");
    // What moves both arms of a round moves no ratio.
    let mut samples = rounds(8, 1.0, 1.0);
    for sample in samples.iter_mut().filter(|sample| sample.round % 2 == 0) {
        sample.open.latency_ms.p95 *= 1.5;
    }
    assert_eq!(unresolved(&samples), []);
    for sample in
        samples.iter_mut().filter(|sample| sample.arm == Arm::Control && sample.round % 4 == 0)
    {
        sample.open.latency_ms.p95 *= 1.5;
    }
    assert_eq!(unresolved(&samples), [of(Arm::Columns, "p95")]);
}

#[test]
fn rounds_without_a_partner_are_left_out_of_differences() {
    let mut samples = rounds(4, 2.0, 1.0);
    samples.retain(|sample| !(sample.arm == Arm::Control && sample.round == 2));
    let differences = judge::differences(&args(&[]), &samples);
    let of = differences.iter().find(|d| d.arm == Arm::Columns && d.base == Arm::Control).unwrap();
    assert_eq!(of.percent["p95"].rounds, 3);
    assert!(differences.iter().all(|d| d.arm != Arm::Spark), "no arm, no difference");
}

#[test]
fn a_page_is_well_formed_and_says_which_limit_is_not_met() {
    let report = report(&args(&LIMITS), rounds(8, 9.0, 1.0));
    let page = crate::report::html(&report);
    check_tags(&page);
    assert!(page.len() < 300_000);
    for expected in [
        "NOT MET",
        "p95 ≤ 5 %",
        "condition 1 is violated",
        "one disk",
        "batch runs",
        "&lt;&amp;&gt;",
        "row-1 was started again",
        "0.80 processors",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    for foreign in ["http://", "https://", "src=", "href=", "<b>\"", "NaN", "<script"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // What was written is what the page can be made of again.
    let again: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(crate::report::html(&again), page);
    let text = crate::report::text(&report);
    assert!(
        text.contains("limit p95 ≤ 5 %: NOT MET") && text.contains("limit throughput ≤ 3 %: met"),
        "{text}"
    );
}

#[test]
fn a_headline_claims_no_more_than_its_interval() {
    let sure = crate::report::html(&report(&args(&LIMITS), rounds(8, 2.0, 1.0)));
    assert!(sure.contains("moves the online p95 by +2.0 %"));
    assert!(
        sure.contains("<td>yes</td>") && sure.contains("<td>–</td></tr>"),
        "what nobody asked for is not resolved"
    );
    let mut samples = rounds(4, 2.0, 1.0);
    for sample in samples.iter_mut().filter(|sample| sample.arm == Arm::Columns && sample.round > 2)
    {
        sample.open.latency_ms.p95 *= 2.0;
    }
    let unsure = crate::report::html(&report(&args(&LIMITS), samples));
    assert!(unsure.contains("<h1>Not resolved") && !unsure.contains("moves the online"));
}

#[test]
fn few_transactions_are_reported() {
    let with = |count: u64| {
        let mut one = sample(Arm::Alone, 1, 10.0, 100.0);
        let kind = crate::latency::KindResult { transactions: count, ..Default::default() };
        one.open.kinds.insert("a".into(), kind);
        machine::few_transactions(&[one])
    };
    assert!(with(150).unwrap().contains("p95, p99 and p99.9"));
    assert!(with(5_000).unwrap().contains(": p99.9 rests"));
    assert_eq!(with(10_000), None);
}

#[test]
fn a_page_of_nothing_is_a_page() {
    let mut empty = report(&args(&LIMITS), Vec::new());
    (empty.timelines, empty.control, empty.violations) = (Vec::new(), None, None);
    let page = crate::report::html(&empty);
    check_tags(&page);
    assert!(page.contains("too few rounds") && !page.contains("NaN"));
}

/// Every element is closed in order, and every attribute quoted.
fn check_tags(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    // The style holds `>` in none of its selectors, and no `<`.
    while let Some(start) = rest.find('<') {
        assert!(
            !rest[..start].contains('>') || open.last() == Some(&"style"),
            "a loose > in {open:?}"
        );
        let end = start + rest[start..].find('>').expect("a tag that never ends");
        let tag = &rest[start + 1..end];
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in another order");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn a_limit_is_read_or_refused() {
    assert_eq!("p99.9 <= 7.5 %".parse::<Limit>().unwrap().to_string(), "p99.9 ≤ 7.5 %");
    for wrong in ["p95", "p95<5%", "p90<=5%", "p95<=x", "p95<=inf", ""] {
        assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for wrong in [
        &["--load", "0"][..],
        &["--rate", "0"],
        &["--time", "0"],
        &["--rounds", "0"],
        &["--warmup", "nan"],
    ] {
        assert!(args(wrong).check().is_err(), "{wrong:?}");
    }
    assert!(args(&[]).check().is_ok());
}
