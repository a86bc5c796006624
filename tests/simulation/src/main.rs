//! Runs seeds of the simulation, shows progress, and sums up; what fails is printed with the command that replays it.
//!
//!     cargo run -p isobar-simulation --features clock -- --seeds 1000 --from 0

mod summary;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use clap::Parser;
use simulation::{FAULTS, Options, Report, note_panics, run};

use crate::summary::Sum;

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
    /// Names of the faults that may come, with commas between; all, unless given.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Seeds at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Seconds by the wall clock that a history may take; one that takes longer has failed.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// Every so many seeds one is run twice, and must give the same history.
    #[arg(long, default_value_t = 100)]
    twice: u64,
    /// File for every event of a single seed, a line each.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Prints what the crates log, as RUST_LOG says.
    #[arg(long)]
    log: bool,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
}

impl Arguments {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::new(seed, self.seconds);
        options.transactions = summary::TRANSACTIONS;
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

    fn is_run_twice(&self, seed: u64) -> bool {
        self.twice > 0 && seed.is_multiple_of(self.twice)
    }

    /// A history, unless it takes too long. One that goes on without end cannot be stopped: its thread is left
    /// behind, and ends with the process.
    fn history(&self, options: Options) -> Report {
        let seed = options.seed;
        let (done, waiting) = mpsc::channel();
        let thread = std::thread::Builder::new().name(format!("seed {seed}"));
        let began = thread.spawn(move || {
            // Who waited may have given up.
            let _ = done.send(run(options));
        });
        let why = match began {
            Ok(_) => match waiting.recv_timeout(Duration::from_secs(self.limit)) {
                Ok(report) => return report,
                Err(_) => format!("not done within {} s of the wall clock", self.limit),
            },
            Err(error) => format!("no thread: {error}"),
        };
        Report::failed(seed, why)
    }

    fn judge(&self, seed: u64) -> Report {
        let mut report = self.history(self.options(seed));
        if self.is_run_twice(seed) {
            let again = self.history(Options { trace: None, ..self.options(seed) });
            if (again.hash, again.events) != (report.hash, report.events) {
                report.failures.push(format!(
                    "two runs differ: {:016x} after {} events, {:016x} after {}",
                    report.hash, report.events, again.hash, again.events
                ));
            }
        }
        report
    }

    /// Runs seeds until none is left, or until one has failed and nobody goes on after that.
    fn work(&self, next: &AtomicU64, stop: &AtomicU64, sum: &Mutex<Sum>) {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= self.seeds || stop.load(Ordering::Relaxed) > 0 {
                return;
            }
            let report = self.judge(self.from + at);
            if !report.failures.is_empty() && !self.keep_going {
                stop.store(1, Ordering::Relaxed);
            }
            let Ok(mut sum) = sum.lock() else { return };
            self.print(&report);
            sum.add(&report, self.is_run_twice(report.seed) && report.failures.is_empty());
            if sum.done.is_multiple_of(25) {
                println!(
                    "{} of {} seeds, {} failed, {} committed",
                    sum.done,
                    self.seeds,
                    sum.failed.len(),
                    sum.committed
                );
            }
        }
    }

    fn print(&self, report: &Report) {
        if !report.failures.is_empty() {
            println!("seed {} FAILED", report.seed);
            report.failures.iter().for_each(|failure| println!("    {failure}"));
            println!("    again: {}", self.replay(report.seed));
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let known = |name: &String| FAULTS.iter().any(|(fault, _)| fault == name) || name == "none";
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
            scope.spawn(|| arguments.work(&next, &stop, &sum));
        }
    });
    let Ok(sum) = sum.into_inner() else { return ExitCode::FAILURE };
    sum.show(arguments.seconds);
    if sum.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
