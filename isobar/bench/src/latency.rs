//! What a phase of load has seen: latencies, throughput, errors and retries, in all and by the second.
//!
//! Latencies are kept in histograms to three digits, never averaged away.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Microseconds that a histogram can hold: an hour.
const MOST_MICROS: u64 = 3_600_000_000;

/// Latency in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// The slowest.
    pub max: f64,
}

/// One second of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the measured part began.
    pub at: u64,
    /// Transactions that ended well.
    pub transactions: u64,
    /// Transactions that failed.
    pub errors: u64,
    /// Median, ms.
    pub p50: f64,
    /// 95th percentile, ms.
    pub p95: f64,
    /// 99th percentile, ms.
    pub p99: f64,
}

/// One kind of transaction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KindResult {
    /// How many ended well.
    pub transactions: u64,
    /// Latency, ms.
    pub latency_ms: Quantiles,
}

/// What met no hiccup of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steady {
    /// Latency, ms.
    pub latency_ms: Quantiles,
    /// Transactions that met one, and are left out.
    pub left_out: u64,
    /// The part of the time in which the machine was slow.
    pub slow: f64,
}

/// All that is reported of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `open` (arrivals on a schedule) or `closed` (each connection waits for its answer).
    pub pacing: String,
    /// Where latency is measured from.
    pub latency_from: String,
    /// Transactions per second that were asked for, in an open loop.
    pub rate: Option<f64>,
    /// Connections.
    pub connections: usize,
    /// Length of the measured part, in seconds.
    pub seconds: f64,
    /// Transactions that ended well in the measured part.
    pub transactions: u64,
    /// The same, per second.
    pub tps: f64,
    /// Latency of transactions, ms; retries are part of a transaction's latency.
    pub latency_ms: Quantiles,
    /// Transactions that failed for good, by error number or name.
    pub errors: BTreeMap<String, u64>,
    /// Attempts that were repeated, by error number.
    pub retries: BTreeMap<String, u64>,
    /// Transactions that rolled back because their definition says so.
    pub rolled_back: u64,
    /// By kind.
    pub kinds: BTreeMap<String, KindResult>,
    /// By the second.
    pub series: Vec<Second>,
    /// Why the schedule was given up, if it was: then latencies are lower bounds.
    pub overrun: Option<String>,
    /// What met no hiccup of the machine, where that was watched.
    #[serde(default)]
    pub steady: Option<Steady>,
}

impl Phase {
    /// Errors of all kinds.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Retries of all kinds.
    pub fn retry_count(&self) -> u64 {
        self.retries.values().sum()
    }
}

/// A histogram of microseconds.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // Bounds and digits are constants that the library accepts; its smallest histogram otherwise.
        Latencies(Histogram::new_with_bounds(1, MOST_MICROS, 3).unwrap_or_else(|_| smallest()))
    }
}

#[expect(clippy::expect_used, reason = "one digit is within the library's one to five")]
fn smallest() -> Histogram<u64> {
    Histogram::new(1).expect("one significant digit")
}

impl Latencies {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Adds others.
    fn add(&mut self, others: &Latencies) {
        // Both have the same bounds, so that nothing is refused.
        _ = self.0.add(&others.0);
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A quantile in milliseconds; 0 when empty.
    pub fn quantile(&self, quantile: f64) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.value_at_quantile(quantile) as f64 / 1_000.0 }
    }

    /// The usual ones.
    pub fn quantiles(&self) -> Quantiles {
        if self.0.is_empty() {
            return Quantiles::default();
        }
        Quantiles {
            p50: self.quantile(0.50),
            p95: self.quantile(0.95),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            mean: self.0.mean() / 1_000.0,
            max: self.0.max() as f64 / 1_000.0,
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Done,
    /// By a rollback that is part of its definition.
    RolledBack,
    /// With an error, named by its number or cause.
    Failed(String),
}

/// Gathers what met no hiccup of the machine.
#[derive(Debug, Default)]
pub struct SteadyRecorder {
    latencies: Latencies,
    left_out: u64,
    slow: Duration,
}

impl SteadyRecorder {
    /// A transaction that ended well, and whether it met a hiccup.
    pub fn record(&mut self, latency: Duration, met: bool) {
        if met {
            self.left_out += 1;
        } else {
            self.latencies.record(latency);
        }
    }

    /// The machine was slow for so long.
    pub fn slow(&mut self, time: Duration) {
        self.slow += time;
    }

    /// Adds another part.
    pub fn join(&mut self, other: &SteadyRecorder) {
        self.latencies.add(&other.latencies);
        self.left_out += other.left_out;
        self.slow += other.slow;
    }

    /// The results of a measured part of this length.
    pub fn finish(&self, length: Duration) -> Steady {
        Steady {
            latency_ms: self.latencies.quantiles(),
            left_out: self.left_out,
            slow: self.slow.as_secs_f64() / length.as_secs_f64().max(f64::MIN_POSITIVE),
        }
    }
}

/// Gathers a phase.
#[derive(Debug, Default)]
pub struct Recorder {
    all: Latencies,
    kinds: BTreeMap<&'static str, Latencies>,
    errors: BTreeMap<String, u64>,
    retries: BTreeMap<String, u64>,
    rolled_back: u64,
    within: u64,
    done: Vec<Second>,
    current: Latencies,
    current_errors: u64,
    at: u64,
}

impl Recorder {
    /// A transaction that ended `since` after the measured part began, `within` it or after.
    pub fn record(
        &mut self,
        kind: &'static str,
        latency: Duration,
        since: Duration,
        within: bool,
        ending: Ending,
    ) {
        self.turn_to(since.as_secs());
        match ending {
            Ending::Failed(code) => {
                *self.errors.entry(code).or_default() += 1;
                self.current_errors += 1;
                return;
            }
            Ending::RolledBack => self.rolled_back += 1,
            Ending::Done => {}
        }
        self.all.record(latency);
        self.kinds.entry(kind).or_default().record(latency);
        self.current.record(latency);
        self.within += u64::from(within);
    }

    /// A transaction of the warm-up that ended within the measured part.
    pub fn completed(&mut self) {
        self.within += 1;
    }

    /// Adds what was gathered in another measured part, as if it had begun so many whole seconds later.
    pub fn join(&mut self, other: Recorder, later: u64) {
        self.turn_to(later);
        let mut other = other;
        other.turn_to(other.at + 1);
        self.all.add(&other.all);
        for (kind, latencies) in other.kinds {
            self.kinds.entry(kind).or_default().add(&latencies);
        }
        for (sums, more) in [(&mut self.errors, other.errors), (&mut self.retries, other.retries)] {
            for (code, count) in more {
                *sums.entry(code).or_default() += count;
            }
        }
        self.rolled_back += other.rolled_back;
        self.within += other.within;
        self.done.extend(other.done.into_iter().map(|s| Second { at: s.at + later, ..s }));
        self.at = self.at.max(later + other.at);
    }

    /// An attempt that is repeated.
    pub fn retried(&mut self, code: &str) {
        *self.retries.entry(code.to_owned()).or_default() += 1;
    }

    /// The last whole second, for a progress line.
    pub fn last_second(&self) -> Option<Second> {
        self.done.last().copied()
    }

    /// Closes seconds before `second`.
    fn turn_to(&mut self, second: u64) {
        while self.at < second {
            let latencies = std::mem::take(&mut self.current);
            self.done.push(Second {
                at: self.at,
                transactions: latencies.len(),
                errors: std::mem::take(&mut self.current_errors),
                p50: latencies.quantile(0.50),
                p95: latencies.quantile(0.95),
                p99: latencies.quantile(0.99),
            });
            self.at += 1;
        }
    }

    /// The results of a measured part of this length.
    pub fn finish(mut self, length: Duration) -> Phase {
        let end = self.at + 1;
        self.turn_to(end.max(length.as_secs()));
        let kinds = self.kinds.iter().map(|(kind, latencies)| {
            let result =
                KindResult { transactions: latencies.len(), latency_ms: latencies.quantiles() };
            ((*kind).to_owned(), result)
        });
        Phase {
            seconds: length.as_secs_f64(),
            transactions: self.within,
            tps: self.within as f64 / length.as_secs_f64().max(f64::MIN_POSITIVE),
            latency_ms: self.all.quantiles(),
            kinds: kinds.collect(),
            errors: self.errors,
            retries: self.retries,
            rolled_back: self.rolled_back,
            series: self.done,
            ..Phase::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantiles(), Quantiles::default());
        for ms in 1..=1000 {
            latencies.record(Duration::from_millis(ms));
        }
        let found = latencies.quantiles();
        for (quantile, expected) in
            [(found.p50, 500.0), (found.p95, 950.0), (found.p99, 990.0), (found.p999, 999.0)]
        {
            assert!((quantile - expected).abs() / expected < 0.002, "{quantile} for {expected}");
        }
        assert!((found.mean - 500.5).abs() < 1.0 && (found.max - 1000.0).abs() < 1.0);
    }

    #[test]
    fn parts_are_joined_one_behind_the_other() {
        let (mut first, mut second) = (Recorder::default(), Recorder::default());
        let ms = Duration::from_millis;
        first.record("a", ms(5), ms(100), true, Ending::Done);
        first.record("a", ms(6), ms(1_900), true, Ending::Done);
        second.record("b", ms(50), ms(1_100), true, Ending::Done);
        second.record("b", ms(1), ms(1_200), true, Ending::Failed("1062".to_owned()));
        second.retried("1213");
        first.join(second, 2);
        let phase = first.finish(Duration::from_secs(4));
        assert_eq!((phase.transactions, phase.error_count(), phase.retry_count()), (3, 1, 1));
        assert_eq!((phase.kinds["a"].transactions, phase.kinds["b"].transactions), (2, 1));
        assert!(phase.latency_ms.max > 49.0);
        let seconds: Vec<(u64, u64, u64)> =
            phase.series.iter().map(|s| (s.at, s.transactions, s.errors)).collect();
        assert_eq!(seconds[..4], [(0, 1, 0), (1, 1, 0), (2, 0, 0), (3, 1, 1)]);
    }

    #[test]
    fn seconds_errors_and_late_ends_are_kept_apart() {
        let mut recorder = Recorder::default();
        let ms = Duration::from_millis;
        recorder.record("a", ms(5), ms(100), true, Ending::Done);
        recorder.record("a", ms(7), ms(2_100), true, Ending::Done);
        recorder.record("b", ms(9), ms(2_200), true, Ending::Failed("1062".to_owned()));
        recorder.record("b", ms(900), ms(3_050), false, Ending::RolledBack);
        recorder.retried("1213");
        let phase = recorder.finish(Duration::from_secs(3));
        assert_eq!(
            (phase.transactions, phase.rolled_back, phase.error_count(), phase.retry_count()),
            (2, 1, 1, 1)
        );
        let counts: Vec<(u64, u64)> =
            phase.series.iter().map(|s| (s.transactions, s.errors)).collect();
        assert_eq!(counts, [(1, 0), (0, 0), (1, 1), (1, 0)]);
        assert!(phase.latency_ms.max > 899.0, "a late end is part of the tail");
        assert_eq!(phase.kinds["a"].transactions, 2);
    }
}
