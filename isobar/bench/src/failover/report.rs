//! What a failover has shown: each run, and medians over runs, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::cluster::{Ended, Lost, Stop, Victim};
use super::gaps::{Sample, longest_gap, rate, slowest};
use super::load::{Kind, Rates};
use crate::measure::{median, table};

/// One kind of statement in one run; times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The longest time in which a table had no answer.
    pub none_for: f64,
    /// Whether every table had an answer again.
    pub all_answer: bool,
    /// When the rate was back; none if it was not.
    pub rate_after: Option<f64>,
    /// The smallest part of what was due in a second that was answered in time.
    pub lowest: f64,
    /// The slowest answer.
    pub slowest: f64,
    /// Statements that were due after the fault.
    pub due: usize,
    /// What they met in place of an answer.
    pub errors: BTreeMap<String, u64>,
}

impl Measured {
    /// Of the samples of each table, until `end`.
    pub fn of(tables: &[Vec<Sample>], end: f64) -> Self {
        let gaps = tables.iter().map(|samples| longest_gap(samples, end));
        let (none_for, all_answer) = gaps
            .fold((0.0_f64, true), |(longest, all), (gap, ended)| (longest.max(gap), all && ended));
        let all: Vec<Sample> = tables.iter().flatten().cloned().collect();
        let rate = rate(&all, end);
        let mut errors = BTreeMap::new();
        let behind = all.iter().filter(|sample| sample.due >= 0.0 && sample.due < end);
        for error in behind.clone().filter_map(|sample| sample.error.clone()) {
            *errors.entry(error).or_default() += 1;
        }
        Measured {
            none_for,
            all_answer,
            rate_after: rate.back,
            lowest: rate.lowest,
            slowest: slowest(&all),
            due: behind.count(),
            errors,
        }
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Nodes that were ended.
    pub ended: Vec<Ended>,
    /// Seconds until their processes were gone.
    pub ends_after: f64,
    /// Seconds of load from the fault on.
    pub watched: f64,
    /// Regions in all.
    pub regions: usize,
    /// Regions without a majority.
    pub lost: Vec<Lost>,
    /// By kind of statement, without tables of those.
    pub kinds: BTreeMap<Kind, Measured>,
}

impl Run {
    /// In a line.
    pub fn line(&self) -> String {
        let kinds = self.kinds.iter().map(|(kind, measured)| {
            let after = measured.rate_after.map_or("never".to_owned(), |at| format!("{at:.2} s"));
            let name = kind.name();
            format!("{name}s none for {:.2} s, 90 % after {after}", measured.none_for)
        });
        format!("{}: {}", self.what(), kinds.collect::<Vec<_>>().join("; "))
    }

    /// What was ended.
    fn what(&self) -> String {
        let ended = self.ended.iter().map(|node| {
            let placement = if node.led_placement { " and placement" } else { "" };
            format!("{} (led {} of {} regions{placement})", node.name, node.led, self.regions)
        });
        ended.collect::<Vec<_>>().join(", ")
    }

    fn text(&self, number: usize) -> String {
        let mut text = format!("\nrun {number}: {}", self.what());
        let _ = writeln!(text, "; gone after {:.2} s", self.ends_after);
        if !self.lost.is_empty() {
            let named = self.lost.iter().map(|lost| format!("{} ({})", lost.region, lost.table));
            let named = named.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "regions without a majority, not counted below: {named}");
        }
        let rows: Vec<Vec<String>> =
            self.kinds.iter().map(|(kind, one)| line(*kind, one)).collect();
        text + &table(&head(), &rows)
    }
}

fn head() -> Vec<String> {
    let head = ["", "none for, s", "90 % after, s", "lowest", "slowest, s", "due", "errors"];
    head.map(str::to_owned).to_vec()
}

fn line(kind: Kind, one: &Measured) -> Vec<String> {
    let again = if one.all_answer { "" } else { "+" };
    vec![
        format!("{}s", kind.name()),
        format!("{:.2}{again}", one.none_for),
        one.rate_after.map_or("never".to_owned(), |at| format!("{at:.2}")),
        format!("{:.0} %", one.lowest * 100.0),
        format!("{:.2}", one.slowest),
        one.due.to_string(),
        errors(&one.errors),
    ]
}

fn errors(errors: &BTreeMap<String, u64>) -> String {
    match errors.is_empty() {
        true => "none".to_owned(),
        false => {
            errors.iter().map(|(code, n)| format!("{code}: {n}")).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Rates in words.
pub fn rates(rates: &Rates) -> String {
    let each = rates.iter().map(|(kind, rate)| format!("{rate:.0} {}s", kind.name()));
    each.collect::<Vec<_>>().join(", ")
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// When, in UTC.
    pub started: String,
    /// The command line.
    pub command: String,
    /// The machine and the server.
    pub machine: BTreeMap<String, String>,
    /// Row nodes.
    pub nodes: u16,
    /// How nodes were ended.
    pub stop: Stop,
    /// Which.
    pub victim: Victim,
    /// Answers per second in a closed loop of all kinds.
    pub capacity: Rates,
    /// Offered per second.
    pub rates: Rates,
    /// Each run.
    pub runs: Vec<Run>,
    /// Acknowledged writes that are not there, or others that are.
    pub wrong: Vec<String>,
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.machine {
            let _ = writeln!(text, "{name}: {value}");
        }
        let _ = writeln!(text, "a closed loop does per second: {}", rates(&self.capacity));
        let _ = writeln!(text, "offered per second: {}", rates(&self.rates));
        for (at, run) in self.runs.iter().enumerate() {
            text += &run.text(at + 1);
        }
        text += &self.medians();
        for wrong in &self.wrong {
            let _ = writeln!(text, "{wrong}");
        }
        if self.wrong.is_empty() {
            text += "every acknowledged write is there, and nothing else\n";
        }
        text
    }

    /// Median and worst over runs, apart for those in which placement's leader was among the ended.
    fn medians(&self) -> String {
        let mut text = String::new();
        for led_placement in [false, true] {
            let with =
                |run: &&Run| run.ended.iter().any(|node| node.led_placement) == led_placement;
            let runs: Vec<&Run> = self.runs.iter().filter(with).collect();
            if runs.is_empty() {
                continue;
            }
            let of = if led_placement { "led placement, too" } else { "did not lead placement" };
            let _ = writeln!(text, "\nmedian / worst of {} runs; what was ended {of}", runs.len());
            let rows: Vec<Vec<String>> =
                Kind::ALL.into_iter().filter_map(|kind| over(kind, &runs)).collect();
            text += &table(&head(), &rows);
        }
        text
    }
}

/// A line of medians and worst values.
fn over(kind: Kind, runs: &[&Run]) -> Option<Vec<String>> {
    let ones: Vec<&Measured> = runs.iter().filter_map(|run| run.kinds.get(&kind)).collect();
    let both = |of: fn(&Measured) -> f64| {
        let values: Vec<f64> = ones.iter().map(|one| of(one)).collect();
        let worst = values.iter().copied().fold(0.0, f64::max);
        Some(format!("{:.2} / {worst:.2}", median(&values)?))
    };
    let back: Vec<f64> = ones.iter().map(|one| one.rate_after.unwrap_or(f64::INFINITY)).collect();
    let shown = |at: f64| if at.is_finite() { format!("{at:.2}") } else { "never".to_owned() };
    let worst = back.iter().copied().fold(0.0, f64::max);
    let mut all = BTreeMap::new();
    for (error, count) in ones.iter().flat_map(|one| &one.errors) {
        *all.entry(error.clone()).or_default() += count;
    }
    Some(vec![
        format!("{}s", kind.name()),
        both(|one| one.none_for)?,
        format!("{} / {}", shown(median(&back)?), shown(worst)),
        format!("{:.0} %", ones.iter().map(|one| one.lowest).fold(1.0, f64::min) * 100.0),
        both(|one| one.slowest)?,
        ones.iter().map(|one| one.due).sum::<usize>().to_string(),
        errors(&all),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(times: impl Iterator<Item = f64>) -> Vec<Sample> {
        times.map(|at| Sample { due: at, answered: Some(at), error: None }).collect()
    }

    #[test]
    fn the_table_that_waits_longest_counts_and_the_rate_is_of_all() {
        let fine = answered((0..1_200).map(|at| f64::from(at) / 100.0 - 2.0));
        let mut waits = fine.clone();
        for sample in waits.iter_mut().filter(|sample| (0.0..1.0).contains(&sample.due)) {
            *sample = Sample { due: sample.due, answered: None, error: Some("1105".into()) };
        }
        let measured = Measured::of(&[fine.clone(), waits.clone()], 10.0);
        assert!((measured.none_for - 1.01).abs() < 1e-6 && measured.all_answer, "{measured:?}");
        assert_eq!((measured.errors["1105"], measured.due), (100, 2_000));
        assert!((measured.lowest - 0.5).abs() < 1e-6, "half of what is due is of the other table");
        let back = measured.rate_after.unwrap();
        assert!((1.75..=1.85).contains(&back), "a fifth of a second of one of two tables: {back}");
        let gone: Vec<Sample> = waits.into_iter().filter(|sample| sample.due < 1.0).collect();
        assert!(!Measured::of(&[fine, gone], 10.0).all_answer);
    }
}
