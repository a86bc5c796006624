//! What all seeds of a run came to: counts, the least of each, faults by what the system was doing, and hashes.
//!
//! It only adds up and prints; what is wrong was found before.

use std::collections::{BTreeMap, BTreeSet};

use simulation::Report;

/// What a seed should have at least.
pub(crate) const TRANSACTIONS: u64 = 200;
const KINDS: u64 = 3;

/// The smallest of some numbers, and the seed that it is of.
#[derive(Default)]
struct Least(Option<(u64, u64)>);

impl Least {
    fn note(&mut self, number: u64, seed: u64) {
        self.0 = Some(self.0.map_or((number, seed), |known| known.min((number, seed))));
    }
}

impl std::fmt::Display for Least {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some((number, seed)) => write!(f, "{number} (seed {seed})"),
            None => f.write_str("none"),
        }
    }
}

/// All seeds together.
#[derive(Default)]
pub(crate) struct Sum {
    pub done: u64,
    pub committed: u64,
    pub failed: Vec<u64>,
    /// Seeds that were run twice, with the hash that both histories have.
    twice: BTreeMap<u64, u64>,
    refused: u64,
    unknown: u64,
    rows: u64,
    columns: u64,
    compared: u64,
    events: u64,
    transactions: Least,
    kinds: Least,
    brought: Least,
    /// Seeds with fewer transactions or kinds of fault than they should have.
    thin: u64,
    faults: BTreeMap<(&'static str, &'static str), u64>,
}

impl Sum {
    /// Takes a seed in; `twice` if a second run of it had the same history.
    pub(crate) fn add(&mut self, report: &Report, twice: bool) {
        let totals = report.totals;
        self.done += 1;
        self.committed += totals.committed;
        self.refused += totals.refused;
        self.unknown += totals.unknown;
        self.rows += totals.rows_read;
        self.columns += totals.columns_read;
        self.compared += totals.compared;
        self.events += report.events;
        if twice {
            self.twice.insert(report.seed, report.hash);
        }
        for (key, count) in &report.faults {
            *self.faults.entry(*key).or_default() += count;
        }
        if !report.failures.is_empty() {
            // It was not lived to its end, and says nothing of how much a seed holds.
            return self.failed.push(report.seed);
        }
        let kinds: BTreeSet<&str> = report.faults.keys().map(|(fault, _)| *fault).collect();
        let (kinds, attempts) = (kinds.len() as u64, totals.attempts());
        self.transactions.note(attempts, report.seed);
        self.kinds.note(kinds, report.seed);
        self.brought.note(report.brought, report.seed);
        self.thin += u64::from(kinds < KINDS || attempts < TRANSACTIONS);
    }

    /// Prints everything.
    pub(crate) fn show(&self, seconds: u64) {
        println!(
            "{} seeds of {seconds} simulated seconds under faults, {} failed: {:?}",
            self.done,
            self.failed.len(),
            self.failed
        );
        println!(
            "{} transactions committed, {} refused, {} unknown; {} snapshots read from rows, {} from \
             columns; {} replicas compared; {} events",
            self.committed,
            self.refused,
            self.unknown,
            self.rows,
            self.columns,
            self.compared,
            self.events,
        );
        println!(
            "least of a seed: {} transactions, {} kinds of fault, {} faults; {} seeds with fewer than \
             {TRANSACTIONS} transactions or {KINDS} kinds",
            self.transactions, self.kinds, self.brought, self.thin
        );
        self.show_faults();
        println!("{} seeds were run twice, each with the same history:", self.twice.len());
        for (seed, hash) in &self.twice {
            println!("    seed {seed}: {hash:016x}");
        }
    }

    /// Faults by what the system was doing. One fault may meet several states.
    fn show_faults(&self) {
        let states: BTreeSet<&str> = self.faults.keys().map(|(_, state)| *state).collect();
        print!("{:16}", "fault");
        states.iter().for_each(|state| print!(" {state:>16}"));
        println!();
        let faults: BTreeSet<&str> = self.faults.keys().map(|(fault, _)| *fault).collect();
        for fault in faults {
            print!("{fault:16}");
            for state in &states {
                print!(" {:>16}", self.faults.get(&(fault, *state)).copied().unwrap_or(0));
            }
            println!();
        }
    }
}
