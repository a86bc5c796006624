//! What columns still cost the online path, one by one: following the log, answering what a query asks, sharing a machine.
//!
//! Pure: it reads samples, and compares arms within rounds.

use super::model::{Arm, Sample, is_batch_side};
use crate::stats::{Estimate, excess};

/// One of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// What costs it.
    pub what: &'static str,
    /// How much.
    pub found: Estimate,
    /// Of what.
    pub unit: &'static str,
}

/// All that the samples show.
pub fn costs(samples: &[Sample]) -> Vec<Cost> {
    let per_transaction = |side: Side| {
        move |sample: &Sample| {
            let rate = sample.open.tps;
            (rate > 0.0).then(|| side.cpu(sample) / rate * 1e6)
        }
    };
    let online = more(samples, Arm::Learners, Arm::Alone, per_transaction(Side::Online));
    let columnar = more(samples, Arm::Learners, Arm::Alone, per_transaction(Side::Columnar));
    let written = more(samples, Arm::Learners, Arm::Alone, |sample| {
        let rate = sample.open.tps;
        (rate > 0.0).then(|| Side::Columnar.sum(&sample.written_mb) / rate * 1e3)
    });
    let queries = queries_per_second(samples);
    let asked = more(samples, Arm::Columns, Arm::Control, |sample| {
        let queries = queries.filter(|rate| *rate > 0.0)?;
        Some(Side::Online.cpu(sample) / queries * 1e3)
    });
    let p95 = |sample: &Sample| {
        let open = &sample.open;
        Some(open.steady.map_or(open.latency_ms.p95, |steady| steady.latency_ms.p95))
    };
    let (control, learners) = paired(samples, Arm::Control, Arm::Learners, p95);
    let found = [
        ("following the log, of row nodes", online, "µs of processor time a transaction"),
        ("following the log, of columnar nodes", columnar, "µs of processor time a transaction"),
        ("following the log, of the disk", written, "kB written a transaction"),
        (
            "a query on columns, of row nodes (read indexes, timestamps, catalog)",
            asked,
            "ms of processor time a query",
        ),
        (
            "the machine that is shared (the control beyond learners)",
            excess(&control, &learners),
            "% of the online p95",
        ),
    ];
    let known = found.into_iter().filter(|(_, found, _)| found.rounds > 0);
    known.map(|(what, found, unit)| Cost { what, found, unit }).collect()
}

#[derive(Clone, Copy)]
enum Side {
    Online,
    Columnar,
}

impl Side {
    fn has(self, process: &str) -> bool {
        match self {
            Side::Online => !is_batch_side(process) && process != "driver",
            Side::Columnar => process.starts_with("columnar"),
        }
    }

    fn sum(self, of: &std::collections::BTreeMap<String, f64>) -> f64 {
        of.iter().filter(|(process, _)| self.has(process)).map(|(_, value)| value).sum()
    }

    fn cpu(self, sample: &Sample) -> f64 {
        self.sum(&sample.cpu)
    }
}

/// Queries on columns by SQL, over all rounds.
fn queries_per_second(samples: &[Sample]) -> Option<f64> {
    let columns = samples.iter().filter(|sample| sample.arm == Arm::Columns);
    let rates: Vec<f64> =
        columns.filter_map(|s| s.batch.as_ref()).map(|batch| batch.queries_per_second).collect();
    (!rates.is_empty()).then(|| Estimate::of(&rates).mean)
}

/// How much more an arm has than another of the same rounds.
fn more(
    samples: &[Sample],
    arm: Arm,
    base: Arm,
    value: impl Fn(&Sample) -> Option<f64>,
) -> Estimate {
    let (ours, theirs) = paired(samples, arm, base, value);
    let differences: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, base)| ours - base).collect();
    Estimate::of(&differences)
}

fn paired(
    samples: &[Sample],
    arm: Arm,
    base: Arm,
    value: impl Fn(&Sample) -> Option<f64>,
) -> (Vec<f64>, Vec<f64>) {
    let ours = samples.iter().filter(|sample| sample.arm == arm);
    let pairs = ours.filter_map(|sample| {
        let of_round = |other: &&Sample| other.arm == base && other.round == sample.round;
        Some((value(sample)?, value(samples.iter().find(of_round)?)?))
    });
    pairs.unzip()
}
