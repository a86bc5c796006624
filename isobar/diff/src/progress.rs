//! How far a run is: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(10);

/// Progress of one table.
pub struct Progress {
    table: String,
    bar: Option<ProgressBar>,
    lines: bool,
    total: u64,
    done: u64,
    before: u64,
    begun: Instant,
    printed: Instant,
}

impl Progress {
    /// Of so many rows, of which some were done before.
    pub fn new(table: &str, total: u64, done: u64, quiet: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (!quiet && terminal).then(|| {
            let bar = ProgressBar::new(total).with_message(table.to_owned());
            let template =
                "{msg}  {bar:30}  {percent} % of {human_len} rows, {per_sec}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_position(done);
            bar.reset_eta();
            bar
        });
        let now = Instant::now();
        Progress {
            table: table.to_owned(),
            bar,
            lines: !quiet && !terminal,
            total,
            done,
            before: done,
            begun: now,
            printed: now,
        }
    }

    /// So many rows more.
    pub fn add(&mut self, rows: u64) {
        self.done += rows;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done.min(self.total));
        }
        if self.lines && self.printed.elapsed() >= QUIET {
            self.printed = Instant::now();
            let rate =
                (self.done - self.before) as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
            let left = self.total.saturating_sub(self.done) as f64 / rate.max(0.001);
            let percent = self.done * 100 / self.total.max(1);
            // A line that cannot be written is lost.
            _ = writeln!(
                std::io::stderr(),
                "{}: {percent} % of {} rows, {rate:.0} rows/s, {left:.0} s left",
                self.table,
                self.total
            );
        }
    }

    /// The end.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
