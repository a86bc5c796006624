//! What the groups have done: each run, what is claimed of all of them, for people, as JSON and as a page with plots.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::GROUPS;
use super::cases::{Case, Claim};
use super::usage::Used;
use crate::latency::Phase;
use crate::measure::table;
use crate::report::STYLE;
use crate::report::svg::{Bar, Line, bars, escape, over_time, short};

/// The part of its rate by which what a group uses may differ from it.
const CLOSE: f64 = 0.03;
/// TPC-C's transaction that is counted.
const COUNTED: &str = "new-order";
const COLOURS: [&str; 2] = ["#1d4ed8", "#c2410c"];

/// What one group did in a run.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// New orders a minute.
    pub tpm_c: f64,
    /// Transactions a second.
    pub tps: f64,
    /// 95th percentile of a transaction, ms: the worst of the SQL nodes.
    pub p95_ms: f64,
    /// Failed transactions.
    pub errors: u64,
    /// Units a second that it was held to.
    pub granted: Option<u64>,
    /// Units a second that it used.
    pub used: Option<f64>,
    /// Seconds, and units a second since the one before.
    pub rates: Vec<[f64; 2]>,
}

impl Side {
    /// Of the phases at each SQL node.
    pub fn new(phases: &[Phase], used: Used, granted: Option<u64>) -> Self {
        let counted = |phase: &Phase| {
            let orders = phase.kinds.get(COUNTED).map_or(0, |kind| kind.transactions);
            60.0 * orders as f64 / phase.seconds
        };
        Side {
            tpm_c: phases.iter().map(counted).sum(),
            tps: phases.iter().map(|phase| phase.tps).sum(),
            p95_ms: phases.iter().map(|phase| phase.latency_ms.p95).fold(0.0, f64::max),
            errors: phases.iter().map(Phase::error_count).sum(),
            granted,
            used: used.per_second(),
            rates: used.rates(),
        }
    }
}

/// One run of a case.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Which case.
    pub case: Case,
    /// Which round.
    pub round: u32,
    /// What each group did.
    pub sides: [Side; 2],
}

impl Run {
    /// In a line.
    pub fn line(&self) -> String {
        let side = |(group, side): (&str, &Side)| {
            let used = side.used.map_or_else(|| "?".to_owned(), |used| format!("{used:.0}"));
            let granted = side.granted.map_or_else(|| "no limit".to_owned(), |ru| ru.to_string());
            format!("{group} {:.0} tpmC, {used} RU/s of {granted}", side.tpm_c)
        };
        let sides: Vec<String> = GROUPS.into_iter().zip(&self.sides).map(side).collect();
        format!("{:<15} {}", self.case.name(), sides.join("; "))
    }
}

/// What the processors carry that this program leaves.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Hardware {
    /// Units a second of all of them.
    pub quota: f64,
    /// The part that it leaves.
    pub left: f64,
}

/// Units a second that the machine carries, as found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Capacity {
    /// As given.
    pub given: Option<u64>,
    /// What both groups use without limits.
    pub used: Option<f64>,
    /// By CALIBRATE RESOURCE WORKLOAD TPCC.
    pub by_hardware: Option<Hardware>,
    /// CALIBRATE RESOURCE of the time in which that was used, if it was long enough.
    pub by_use: Option<f64>,
}

impl Capacity {
    /// What limits are parts of.
    pub fn in_all(&self) -> f64 {
        let given = self.given.map(|given| given as f64);
        given.or(self.by_use).or(self.used).unwrap_or(0.0)
    }

    /// In a line.
    pub fn line(&self) -> String {
        let shown =
            |what: &str, found: Option<f64>| found.map(|found| format!("{found:.0} RU/s {what}"));
        let all = [
            shown("given", self.given.map(|given| given as f64)),
            shown("used without limits", self.used),
            shown("by CALIBRATE RESOURCE of that time", self.by_use),
            shown("by CALIBRATE RESOURCE WORKLOAD TPCC", self.by_hardware.map(|by| by.quota)),
        ];
        format!("capacity: {}", all.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }

    fn claims(&self) -> Vec<Claim> {
        let Some(used) = self.used else { return Vec::new() };
        let of = |what: &str, quota: Option<f64>| {
            quota.map(|quota| Claim {
                what: format!("QUOTA by {what} / used without limits"),
                from: 0.8,
                to: Some(1.2),
                found: quota / used,
            })
        };
        let left = self.by_hardware.map(|by| by.quota * by.left);
        let by_hardware = of("hardware, less this program's part of the processors,", left);
        [of("use", self.by_use), by_hardware].into_iter().flatten().collect()
    }
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When, in UTC.
    pub started: String,
    /// The command line.
    pub command: String,
    /// The machine and the server.
    pub machine: BTreeMap<String, String>,
    /// What limits are parts of.
    pub capacity: Capacity,
    /// Seconds of each run.
    pub time: f64,
    /// Runs, as they were made.
    pub runs: Vec<Run>,
    /// What does not hold of the tables afterwards.
    pub violations: Vec<String>,
}

impl Report {
    fn cases(&self) -> Vec<Case> {
        let mut cases: Vec<Case> = self.runs.iter().map(|run| run.case).collect();
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    fn of(&self, case: Case) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.case == case)
    }

    /// Means over the rounds of a case; none if it was not run.
    fn tpm_c(&self, case: Case) -> Option<[f64; 2]> {
        let count = self.of(case).count();
        let mean = |side: fn(&Run) -> f64| self.of(case).map(side).sum::<f64>() / count as f64;
        (count > 0).then(|| [mean(|run| run.sides[0].tpm_c), mean(|run| run.sides[1].tpm_c)])
    }

    /// What is claimed.
    pub fn claims(&self) -> Vec<Claim> {
        let mut claims = self.capacity.claims();
        for case in self.cases() {
            let limited = self.tpm_c(Case::Limited);
            claims.extend(self.tpm_c(case).map_or_else(Vec::new, |of| case.claims(of, limited)));
            for (at, group) in GROUPS.into_iter().enumerate() {
                let sides = self.of(case).filter_map(|run| run.sides.get(at));
                let parts: Vec<f64> =
                    sides.filter_map(|side| Some(side.used? / side.granted? as f64)).collect();
                if !parts.is_empty() {
                    claims.push(Claim {
                        what: format!("{}: used of granted units, {group}", case.name()),
                        from: 1.0 - CLOSE,
                        to: Some(1.0 + CLOSE),
                        found: parts.iter().sum::<f64>() / parts.len() as f64,
                    });
                }
            }
        }
        claims
    }

    /// Whether every claim and every condition of the workload holds.
    pub fn holds(&self) -> bool {
        self.violations.is_empty() && self.claims().iter().all(Claim::holds)
    }

    /// A table and the claims.
    pub fn text(&self) -> String {
        let head = ["", "group", "tpmC", "tps", "p95 ms", "errors", "RU/s", "of"];
        let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for run in &self.runs {
            for (group, side) in GROUPS.into_iter().zip(&run.sides) {
                rows.push(vec![
                    run.case.name().to_owned(),
                    group.to_owned(),
                    format!("{:.0}", side.tpm_c),
                    format!("{:.1}", side.tps),
                    format!("{:.1}", side.p95_ms),
                    side.errors.to_string(),
                    side.used.map_or_else(|| "–".into(), |used| format!("{used:.0}")),
                    side.granted.map_or_else(|| "–".into(), |granted| granted.to_string()),
                ]);
            }
        }
        let mut text = format!("{}\n\n{}\n", self.capacity.line(), table(&head, &rows));
        for claim in self.claims() {
            let verdict = if claim.holds() { "holds" } else { "does not hold" };
            let _ =
                writeln!(text, "{}: {:.3} ({}) {verdict}", claim.what, claim.found, bounds(&claim));
        }
        for violation in &self.violations {
            let _ = writeln!(text, "{violation}");
        }
        text
    }

    /// A page.
    pub fn page(&self) -> String {
        let mut out = String::new();
        let held =
            if self.holds() { "what was claimed holds" } else { "not all that was claimed holds" };
        let _ = write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>Resource groups</title><style>{STYLE}</style></head><body><main>\
             <header><p class=\"over\">Isobar · resource groups</p><h1>Two users in two groups: {held}</h1>\
             <p class=\"lead\">TPC-C by two users side by side, each with a database of its own, {:.0} s a run. Limits are \
             parts of {} request units a second.</p>\
             <p class=\"small\">{} · {}</p></header>",
            self.time,
            short(self.capacity.in_all()),
            escape(&self.started),
            escape(self.machine.get("server").map_or("", String::as_str))
        );
        self.claims_section(&mut out);
        self.plots(&mut out);
        let _ = write!(out, "<section><h2>Numbers</h2><pre>{}</pre>", escape(&self.text()));
        out.push_str("<h3>Machine and versions</h3><table>");
        for (name, value) in &self.machine {
            let _ = write!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value));
        }
        let _ = writeln!(
            out,
            "</table><p class=\"small\">Command: <code>{}</code></p></section></main></body></html>",
            escape(&self.command)
        );
        out
    }

    fn claims_section(&self, out: &mut String) {
        out.push_str("<ul class=\"limits\">");
        for claim in self.claims() {
            let class = if claim.holds() { "met" } else { "missed" };
            let _ = write!(
                out,
                "<li class=\"{class}\"><b>{}</b> {:.3} ({})</li>",
                escape(&claim.what),
                claim.found,
                bounds(&claim)
            );
        }
        out.push_str("</ul>");
        for violation in &self.violations {
            let _ = write!(out, "<p class=\"caveat\">{}</p>", escape(violation));
        }
    }

    fn plots(&self, out: &mut String) {
        let bar = |case: Case| {
            let parts = GROUPS.into_iter().zip(COLOURS).zip(self.tpm_c(case).into_iter().flatten());
            let parts = parts.map(|((group, colour), tpm_c)| (group.to_owned(), colour, tpm_c));
            Bar { name: case.name().to_owned(), parts: parts.collect() }
        };
        let all: Vec<Bar> = self.cases().into_iter().map(bar).collect();
        let _ = write!(
            out,
            "<section><h2>New orders a minute</h2><figure>{}</figure></section>",
            bars("tpmC by group, means of rounds", "tpmC", &all)
        );
        out.push_str("<section><h2>Request units over time</h2><div class=\"pair\">");
        let rates = self.runs.iter().flat_map(|run| &run.sides).flat_map(|side| &side.rates);
        let most = rates.map(|[_, rate]| *rate).fold(0.0, f64::max);
        for run in &self.runs {
            let lines = GROUPS.into_iter().zip(COLOURS).zip(&run.sides);
            let lines: Vec<Line> = lines
                .map(|((name, colour), side)| Line { name, colour, points: side.rates.clone() })
                .collect();
            let title = format!("{}, round {}", run.case.name(), run.round);
            let plot = over_time(&title, "RU/s", &lines, None, most, self.time);
            let _ = write!(out, "<figure>{plot}</figure>");
        }
        out.push_str("</div></section>");
    }
}

fn bounds(claim: &Claim) -> String {
    match claim.to {
        Some(to) => format!("{} to {to}", claim.from),
        None => format!("at least {}", claim.from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(tpm_c: f64, used: f64, granted: Option<u64>) -> Side {
        let rates = vec![[1.0, used], [2.0, used]];
        Side { tpm_c, tps: 1.0, p95_ms: 2.0, errors: 0, granted, used: Some(used), rates }
    }

    fn report(used: f64) -> Report {
        let run = |case, first, second| Run { case, round: 1, sides: [first, second] };
        Report {
            started: "2030-01-01".into(),
            command: "isobar bench groups <&>".into(),
            machine: BTreeMap::new(),
            capacity: Capacity {
                used: Some(4_000.0),
                by_use: Some(4_400.0),
                ..Capacity::default()
            },
            time: 60.0,
            runs: vec![
                run(Case::Limited, side(50.0, 500.0, Some(500)), side(100.0, used, Some(1_000))),
                run(Case::Burstable, side(300.0, 3_000.0, None), side(99.0, 1_000.0, Some(1_000))),
            ],
            violations: Vec::new(),
        }
    }

    #[test]
    fn a_report_holds_if_all_of_it_does() {
        assert!(report(1_000.0).holds(), "{}", report(1_000.0).text());
        let beyond = report(1_050.0);
        assert!(!beyond.holds());
        assert!(
            beyond
                .text()
                .contains("used of granted units, rg2: 1.050 (0.97 to 1.03) does not hold")
        );
        let broken = Report { violations: vec!["condition 1".into()], ..report(1_000.0) };
        assert!(!broken.holds());
    }

    #[test]
    fn the_page_shows_every_run_and_is_harmless() {
        let page = report(1_000.0).page();
        assert_eq!(page.matches("<svg").count(), 3, "one of all cases, one of each run");
        assert!(page.contains("bench groups &lt;&amp;&gt;") && !page.contains("<&>"));
        assert!(page.contains("burstable: tpmC of rg1 / its limited one"));
    }
}
