//! The page: one file without anything from elsewhere, fit to be shown to those who run a database.
//!
//! It is well-formed XML, so that a strict parser can check it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::costs::{Cost, costs};
use super::model::{Arm, ArmResult, Report, Timeline};
use super::svg::{Bar, Dot, Line, bars, dots, escape, over_time, short};
use super::text::{hiccups, verdict, with_interval};
use crate::playground::BATCH_SQL;
use crate::stats::{Estimate, Verdict};

pub const STYLE: &str = include_str!("page.css");

/// The page of a report.
pub fn page(report: &Report) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>Proof of isolation</title><style>{STYLE}</style></head><body><main>"
    );
    head(&mut out, report);
    over_time_section(&mut out, report);
    latency_section(&mut out, report);
    batch_section(&mut out, report);
    tables(&mut out, report);
    method(&mut out, report);
    out.push_str("</main></body></html>\n");
    out
}

fn colour(arm: Arm) -> &'static str {
    match arm {
        Arm::Alone => "#6b7280",
        Arm::Learners => "#0f766e",
        Arm::Rows => "#c2410c",
        Arm::Columns => "#1d4ed8",
        Arm::Spark => "#7c3aed",
        Arm::Control => "#a16207",
    }
}

fn arm(report: &Report, arm: Arm) -> Option<&ArmResult> {
    report.arms.iter().find(|result| result.arm == arm)
}

/// A difference in per cent with a sign.
fn percent(estimate: &Estimate) -> String {
    match (estimate.rounds, estimate.half_width) {
        (0, _) => "–".to_owned(),
        (_, Some(half)) => format!("{:+.1} % ± {half:.1}", estimate.mean),
        (_, None) => format!("{:+.1} %", estimate.mean),
    }
}

fn head(out: &mut String, report: &Report) {
    let server = report.machine.get("server").cloned().unwrap_or_default();
    let workload = report.settings.get("workload").cloned().unwrap_or_default();
    let _ = write!(
        out,
        "<header><p class=\"over\">Isobar · proof of isolation</p><h1>{}</h1>\
         <p class=\"lead\">{} transactions per second of {}, beside scans and aggregates of the same tables. \
         {} rounds in shuffled order; intervals are 95 %.</p><p class=\"small\">{} · {} · {:.0} minutes</p></header>",
        escape(&headline(report)),
        short(report.rate),
        escape(&workload),
        report.rounds,
        escape(&report.started),
        escape(&server),
        report.minutes
    );
    out.push_str("<section class=\"cards\">");
    for (title, value, note) in cards(report) {
        let _ = write!(
            out,
            "<div class=\"card\"><p class=\"name\">{}</p><p class=\"number\">{}</p><p class=\"small\">{}</p></div>",
            escape(title),
            escape(&value),
            escape(&note)
        );
    }
    out.push_str("</section>");
    limits(out, report);
    if let Some(first) = report.cannot_show.first() {
        let _ = write!(
            out,
            "<p class=\"caveat\"><b>Mind:</b> {} More under “What this run cannot show”.</p>",
            escape(first)
        );
    }
}

/// The run's main result, in a sentence that claims no more than the interval.
fn headline(report: &Report) -> String {
    let found = report
        .differences
        .iter()
        .find(|difference| difference.arm == Arm::Columns && difference.base == Arm::Control);
    let unresolved = found.and_then(|difference| difference.unresolved.as_ref());
    let is_known = unresolved.is_none_or(|metrics| !metrics.contains_key("p95"));
    match found.and_then(|difference| difference.percent.get("p95")) {
        Some(Estimate { half_width: Some(half), .. }) if !is_known => format!(
            "Not resolved: what a batch on columns does to the online p95 is known only to ±{half:.1} %"
        ),
        Some(Estimate { mean, half_width: Some(half), .. }) => format!(
            "A batch on columns moves the online p95 by {mean:+.1} % ± {half:.1} % beyond the hardware it shares"
        ),
        _ => "Online latency beside batch load: too few rounds for an interval".to_owned(),
    }
}

fn cards(report: &Report) -> Vec<(&'static str, String, String)> {
    let mut cards = Vec::new();
    let p95 = |which: Arm| arm(report, which).and_then(|result| result.latency_ms.get("p95"));
    for (title, which) in [
        ("p95, online alone", Arm::Alone),
        ("p95, batch on columns", Arm::Columns),
        ("p95, control", Arm::Control),
        ("p95, batch on rows", Arm::Rows),
    ] {
        if let Some(estimate) = p95(which) {
            let note = estimate
                .half_width
                .map_or("one round".into(), |half| format!("± {} ms", short(half)));
            cards.push((title, format!("{} ms", short(estimate.mean)), note));
        }
    }
    let cost = report.differences.iter().find(|d| d.arm == Arm::Learners && d.base == Arm::Alone);
    if let Some(estimate) = cost.and_then(|cost| cost.percent.get("throughput")) {
        let note = estimate
            .half_width
            .map_or("one round".into(), |half| format!("± {half:.1} %, against none"));
        cards.push(("throughput with learners", format!("{:+.1} %", estimate.mean), note));
    }
    let rate = |which: Arm| {
        let rates = &arm(report, which)?.batch_rows_per_second;
        rates.get("aggregate").map(|estimate| estimate.mean)
    };
    if let (Some(rows), Some(columns)) = (rate(Arm::Rows), rate(Arm::Columns)) {
        let note = format!("aggregate: {} against {} rows/s", short(columns), short(rows));
        cards.push(("columns against rows", format!("{:.1} ×", columns / rows.max(1e-9)), note));
    }
    cards
}

fn limits(out: &mut String, report: &Report) {
    if report.limits.is_empty() {
        out.push_str("<p class=\"small\">No limits were given.</p>");
    } else {
        out.push_str("<ul class=\"limits\">");
        for limit in &report.limits {
            let class = match limit.verdict {
                Verdict::Met => "met",
                Verdict::NotMet => "missed",
                Verdict::Inconclusive => "open",
            };
            let _ = write!(
                out,
                "<li class=\"{class}\"><b>{}</b> {}: {} – {}</li>",
                escape(&limit.limit),
                verdict(limit.verdict),
                escape(&percent(&limit.found)),
                escape(&limit.says)
            );
        }
        out.push_str("</ul>");
    }
    match &report.violations {
        Some(violations) if violations.is_empty() => {
            out.push_str("<p class=\"small\">After the run every consistency condition of the workload held.</p>");
        }
        Some(violations) => {
            out.push_str("<ul class=\"limits\">");
            for violation in violations {
                let _ = write!(out, "<li class=\"missed\">{}</li>", escape(violation));
            }
            out.push_str("</ul>");
        }
        None => {}
    }
}

fn over_time_section(out: &mut String, report: &Report) {
    if report.timelines.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Latency while a batch comes and goes</h2>\
         <p>Online latency of each second, at the same rate throughout. Both plots have one scale.</p><div class=\"pair\">",
    );
    let all = report.timelines.iter().flat_map(|timeline| timeline.series.iter());
    let most = all.map(|second| second.p95).fold(0.0, f64::max);
    for timeline in &report.timelines {
        let line = |name, colour, of: fn(&crate::latency::Second) -> f64| Line {
            name,
            colour,
            points: timeline.series.iter().map(|s| [s.at as f64 + 0.5, of(s)]).collect(),
        };
        let lines =
            [line("p95", colour(timeline.arm), |s| s.p95), line("p50", "#9ca3af", |s| s.p50)];
        out.push_str(&figure(&over_time(
            timeline.arm.name(),
            "ms",
            &lines,
            Some(timeline.batch),
            most,
            length(timeline),
        )));
    }
    let most =
        report.timelines.iter().flat_map(|t| t.lag.iter()).map(|[_, lag]| *lag).fold(0.0, f64::max);
    for timeline in report.timelines.iter().filter(|timeline| !timeline.lag.is_empty()) {
        let title = format!("replica lag, {}", timeline.arm.name());
        let lines = [Line { name: "lag", colour: "#0f766e", points: timeline.lag.clone() }];
        out.push_str(&figure(&over_time(
            &title,
            "ms",
            &lines,
            Some(timeline.batch),
            most,
            length(timeline),
        )));
    }
    out.push_str("</div></section>");
}

fn length(timeline: &Timeline) -> f64 {
    timeline.series.last().map_or(1.0, |second| second.at as f64 + 1.0)
}

fn figure(svg: &str) -> String {
    format!("<figure>{svg}</figure>")
}

/// A plot of one estimate of each arm that has it.
fn plot(
    report: &Report,
    title: &str,
    unit: &str,
    of: impl Fn(&ArmResult) -> Option<Estimate>,
) -> String {
    let lines: Vec<Dot> = report
        .arms
        .iter()
        .filter_map(|result| {
            let estimate = of(result).filter(|estimate| estimate.rounds > 0)?;
            Some(Dot {
                name: result.name.clone(),
                colour: colour(result.arm),
                value: estimate.mean,
                half: estimate.half_width,
            })
        })
        .collect();
    if lines.is_empty() { String::new() } else { figure(&dots(title, unit, &lines)) }
}

fn latency_section(out: &mut String, report: &Report) {
    out.push_str(
        "<section><h2>Latency and throughput by arm</h2><p>Means over rounds with 95 % intervals. Latency is that of an \
         open loop, from the time at which a transaction was meant to start. What counts is the distance between \
         the batch on columns and the control: a process that uses the same hardware and no database.",
    );
    if report.arms.iter().any(|arm| !arm.with_hiccups_ms.is_empty()) {
        out.push_str(
            " The machine's own speed was watched: what was to start in or close to a hiccup of it, a stretch in which the same \
             small work took three times its processor time, is left out, in all arms alike. The table has the latencies \
             with it, too.",
        );
    }
    out.push_str("</p><div class=\"pair\">");
    for metric in ["p50", "p95", "p99", "p99.9"] {
        out.push_str(&plot(report, metric, "ms", |result| result.latency_ms.get(metric).copied()));
    }
    out.push_str(&plot(report, "throughput, closed loop", "transactions/s", |result| {
        Some(result.throughput)
    }));
    out.push_str(&plot(report, "replica lag, p99", "ms", |result| {
        result.lag_ms.get("p99").copied()
    }));
    out.push_str("</div></section>");
}

fn batch_section(out: &mut String, report: &Report) {
    out.push_str("<section><h2>The batch, and who used the processors</h2><div class=\"pair\">");
    for kind in ["scan", "aggregate"] {
        let of = |result: &ArmResult| result.batch_rows_per_second.get(kind).copied();
        out.push_str(&plot(report, &format!("{kind}, one after the other"), "rows/s", of));
    }
    out.push_str("</div>");
    let lines: Vec<Bar> = report
        .arms
        .iter()
        .map(|result| Bar { name: result.name.clone(), parts: processes(&result.cpu) })
        .collect();
    out.push_str(&figure(&bars("processor time by process", "processors", &lines)));
    out.push_str("</section>");
}

/// Processes in a fixed order with their colours: online ones in greens, the batch's in blues.
fn processes(cpu: &BTreeMap<String, Estimate>) -> Vec<(String, &'static str, f64)> {
    let shade = |name: &str| match name {
        "driver" => (0, "#a7c4a0"),
        _ if name.starts_with("row") => (2, "#2f5d50"),
        BATCH_SQL => (3, "#93b4e8"),
        _ if name.starts_with("columnar") => (4, "#4f7fd1"),
        _ => (5, "#27488f"),
    };
    let mut parts: Vec<_> =
        cpu.iter().map(|(name, of)| (shade(name), name.clone(), of.mean)).collect();
    parts.sort_by(|a, b| (a.0.0, &a.1).cmp(&(b.0.0, &b.1)));
    parts.into_iter().map(|((_, colour), name, size)| (name, colour, size)).collect()
}

fn row(out: &mut String, cell: &str, cells: &[String]) {
    out.push_str("<tr>");
    for (number, text) in cells.iter().enumerate() {
        let kind = if number == 0 { "th" } else { cell };
        let _ = write!(out, "<{kind}>{}</{kind}>", escape(text));
    }
    out.push_str("</tr>");
}

fn tables(out: &mut String, report: &Report) {
    out.push_str("<section><h2>Measurements</h2><div class=\"wide\"><table><thead>");
    let names = [
        "arm",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "p99.9 ms",
        "closed loop tps",
        "lag p50 / p99 ms",
        "batch rows/s",
        "errors",
        "retries",
        "notes",
    ];
    row(out, "th", &names.map(str::to_owned));
    out.push_str("</thead><tbody>");
    for result in &report.arms {
        row(out, "td", &arm_row(result));
    }
    out.push_str("</tbody></table></div><h2>Differences within rounds</h2><div class=\"wide\"><table><thead>");
    row(
        out,
        "th",
        &["", "p50", "p95", "p99", "p99.9", "throughput", "resolved"].map(str::to_owned),
    );
    out.push_str("</thead><tbody>");
    for difference in &report.differences {
        let metrics = ["p50", "p95", "p99", "p99.9", "throughput"].iter();
        let cells =
            metrics.map(|metric| difference.percent.get(*metric).map(percent).unwrap_or_default());
        let unresolved = difference.unresolved.iter().flatten();
        let unresolved: Vec<String> =
            unresolved.map(|(metric, why)| format!("{metric}: {why}")).collect();
        let resolved = match (&difference.unresolved, unresolved.is_empty()) {
            (None, _) => "–".to_owned(),
            (Some(_), true) => "yes".to_owned(),
            (Some(_), false) => format!("not resolved: {}", unresolved.join("; ")),
        };
        row(out, "td", &[vec![difference.name.clone()], cells.collect(), vec![resolved]].concat());
    }
    out.push_str("</tbody></table></div>");
    costs_table(out, report);
    out.push_str("</section>");
}

fn costs_table(out: &mut String, report: &Report) {
    let costs = costs(&report.samples);
    if costs.is_empty() {
        return;
    }
    out.push_str("<h2>What columns cost the online path</h2><div class=\"wide\"><table><tbody>");
    for Cost { what, found, unit } in costs {
        row(out, "td", &[what.to_owned(), with_interval(&found), unit.to_owned()]);
    }
    out.push_str("</tbody></table></div>");
}

fn arm_row(result: &ArmResult) -> Vec<String> {
    let list = |counts: &BTreeMap<String, u64>| match counts.is_empty() {
        true => "0".to_owned(),
        false => {
            counts.iter().map(|(code, n)| format!("{code}: {n}")).collect::<Vec<_>>().join(", ")
        }
    };
    let latency = |name: &str| result.latency_ms.get(name).map(with_interval).unwrap_or_default();
    let lag = |name: &str| result.lag_ms.get(name).map_or("–".to_owned(), |lag| short(lag.mean));
    let rates = result.batch_rows_per_second.iter();
    let rates: Vec<String> =
        rates.map(|(kind, rate)| format!("{kind} {}", with_interval(rate))).collect();
    let mut notes = Vec::new();
    if result.overruns > 0 {
        notes.push(format!("could not keep up with the rate in {} rounds", result.overruns));
    }
    notes.extend(hiccups(result));
    if let Some(error) = &result.batch_first_error {
        notes.push(format!("{} batch queries failed, the first: {error}", result.batch_errors));
    }
    vec![
        result.name.clone(),
        latency("p50"),
        latency("p95"),
        latency("p99"),
        latency("p99.9"),
        with_interval(&result.throughput),
        format!("{} / {}", lag("p50"), lag("p99")),
        if rates.is_empty() { "–".to_owned() } else { rates.join(", ") },
        list(&result.errors),
        list(&result.retries),
        notes.join("; "),
    ]
}

fn list(out: &mut String, lines: &[String]) {
    out.push_str("<ul>");
    for line in lines {
        let _ = write!(out, "<li>{}</li>", escape(line));
    }
    out.push_str("</ul>");
}

fn pairs(out: &mut String, pairs: &BTreeMap<String, String>) {
    out.push_str("<table class=\"pairs\"><tbody>");
    for (name, value) in pairs {
        row(out, "td", &[name.clone(), value.clone()]);
    }
    out.push_str("</tbody></table>");
}

fn method(out: &mut String, report: &Report) {
    out.push_str("<section><h2>How it was measured</h2><h3>Arms</h3><ul>");
    for result in &report.arms {
        let _ = write!(out, "<li><b>{}</b>: {}</li>", escape(&result.name), escape(&result.says));
    }
    out.push_str("</ul>");
    if let Some(size) = &report.control {
        let _ = write!(
            out,
            "<p>The control used {} processors, {} MB/s of memory traffic, {} MB/s of writes and {} syncs a second: \
             what the batch on columns used beyond what learners use, averaged over the run.</p>",
            short(size.cpu),
            short(size.memory / 1e6),
            short(size.write / 1e6),
            short(size.fsyncs)
        );
    }
    let _ = write!(out, "<p>Rounds ended because {}.</p>", escape(&report.ended_because));
    out.push_str("<h3>How processes were kept apart</h3>");
    list(out, &report.pinning.says);
    pairs(
        out,
        &report
            .pinning
            .processes
            .iter()
            .map(|(n, c)| (n.clone(), format!("processors {c}")))
            .collect(),
    );
    out.push_str("<h3>What this run cannot show</h3>");
    list(out, &report.cannot_show);
    out.push_str("<h3>Machine and versions</h3>");
    pairs(out, &report.machine);
    out.push_str("<h3>Settings</h3>");
    pairs(out, &report.settings);
    let _ = write!(out, "<p class=\"small\">Command: <code>{}</code></p>", escape(&report.command));
    if !report.events.is_empty() {
        out.push_str("<h3>What went wrong on the way</h3>");
        list(out, &report.events);
    }
    out.push_str("</section>");
}
