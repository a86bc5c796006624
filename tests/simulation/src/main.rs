//! Runs seeds of the simulation, shows progress, and sums up; what fails is printed with the command that replays it.
//!
//!     cargo run -p isobar-simulation --features clock -- --seeds 1000 --from 0

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use simulation::{FAULTS, Options, Report, note_panics, run};

/// Runs whole clusters in simulated time, one seed after another.
#[derive(Parser)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Simulated seconds under faults, each.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Names of the faults that may come, with commas between; all but those that are known to find something, unless given.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Seeds at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Every so many seeds one is run twice, and must give the same history.
    #[arg(long, default_value_t = 100)]
    twice: u64,
    /// File for every event of a single seed, a line each.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Prints what the rooms log, as RUST_LOG says.
    #[arg(long)]
    log: bool,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
}

#[derive(Default)]
struct Sum {
    done: u64,
    twice: u64,
    committed: u64,
    refused: u64,
    unknown: u64,
    rows: u64,
    columns: u64,
    compared: u64,
    events: u64,
    /// Seeds with fewer than three kinds of fault, or fewer than 200 transactions.
    thin: u64,
    faults: BTreeMap<(&'static str, &'static str), u64>,
    failed: Vec<u64>,
}

impl Arguments {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::new(seed, self.seconds);
        if !self.faults.is_empty() {
            options.faults = self.faults.iter().cloned().collect();
        }
        if let Some(path) = &self.trace {
            #[allow(clippy::disallowed_methods, reason = "the runner's own file")]
            let file = std::fs::File::create(path);
            options.trace = file
                .ok()
                .map(|file| Box::new(std::io::BufWriter::new(file)) as Box<dyn Write + Send>);
        }
        options
    }

    fn replay(&self, seed: u64) -> String {
        let mut command = format!(
            "cargo run --locked -p isobar-simulation --features clock -- --seeds 1 --from {seed} \
             --seconds {}",
            self.seconds
        );
        if !self.faults.is_empty() {
            command += &format!(" --faults {}", self.faults.join(","));
        }
        command
    }

    fn judge(&self, seed: u64) -> Report {
        let mut report = run(self.options(seed));
        if self.twice > 0 && seed.is_multiple_of(self.twice) {
            let again = run(Options { trace: None, ..self.options(seed) });
            if (again.hash, again.events) != (report.hash, report.events) {
                report.failures.push(format!(
                    "two runs differ: {:016x} after {} events, {:016x} after {}",
                    report.hash, report.events, again.hash, again.events
                ));
            }
        }
        report
    }
}

impl Sum {
    fn add(&mut self, arguments: &Arguments, report: Report) {
        let figures = report.figures;
        self.done += 1;
        self.twice += u64::from(arguments.twice > 0 && report.seed.is_multiple_of(arguments.twice));
        self.committed += figures.committed;
        self.refused += figures.refused;
        self.unknown += figures.unknown;
        self.rows += figures.rows_read;
        self.columns += figures.columns_read;
        self.compared += figures.compared;
        self.events += report.events;
        let kinds: BTreeSet<&str> = report.faults.keys().map(|(fault, _)| *fault).collect();
        let attempts = figures.committed + figures.refused + figures.unknown;
        self.thin += u64::from(kinds.len() < 3 || attempts < 200);
        for (key, count) in report.faults {
            *self.faults.entry(key).or_default() += count;
        }
        if !report.failures.is_empty() {
            self.failed.push(report.seed);
            println!("seed {} FAILED", report.seed);
            report.failures.iter().for_each(|failure| println!("    {failure}"));
            println!("    again: {}", arguments.replay(report.seed));
        }
    }

    fn show(&self) {
        println!(
            "{} seeds, {} of them twice with the same history, {} failed: {:?}",
            self.done,
            self.twice,
            self.failed.len(),
            self.failed
        );
        println!(
            "{} transactions committed, {} refused, {} unknown; {} snapshots read from rows, {} from \
             columns; {} replicas compared; {} events; {} seeds with fewer than 200 transactions or \
             3 kinds of fault",
            self.committed,
            self.refused,
            self.unknown,
            self.rows,
            self.columns,
            self.compared,
            self.events,
            self.thin
        );
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

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = |name: &String| {
        FAULTS.iter().any(|(fault, _)| fault == name)
            || simulation::KNOWN.contains(&name.as_str())
            || name == "none"
    };
    if let Some(unknown) = arguments.faults.iter().find(|name| !known(name)) {
        let names: Vec<&str> = FAULTS.iter().map(|(name, _)| *name).collect();
        eprintln!("no fault is called {unknown}: there are {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    if arguments.log {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .without_time()
            .with_writer(std::io::stderr)
            .init();
    }
    note_panics();
    let (next, stop) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = Mutex::new(Sum::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.clamp(1, arguments.seeds.max(1)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= arguments.seeds || stop.load(Ordering::Relaxed) > 0 {
                        return;
                    }
                    let report = arguments.judge(arguments.from + at);
                    let failed = !report.failures.is_empty();
                    if failed && !arguments.keep_going {
                        stop.store(1, Ordering::Relaxed);
                    }
                    let Ok(mut sum) = sum.lock() else { return };
                    sum.add(&arguments, report);
                    if sum.done.is_multiple_of(25) {
                        println!(
                            "{} of {} seeds, {} failed, {} committed",
                            sum.done,
                            arguments.seeds,
                            sum.failed.len(),
                            sum.committed
                        );
                    }
                }
            });
        }
    });
    let Ok(sum) = sum.into_inner() else { return ExitCode::FAILURE };
    sum.show();
    if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
