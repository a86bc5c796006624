//! A run: sides, tables one after the other, then report, corrections and exit code.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::bisect::Side;
use crate::error::{Error, Result};
use crate::expr::name;
use crate::fix::{Fix, FixTable, Pass};
use crate::journal::{Existing, Journal, Line, Parameters};
use crate::lease::Leases;
use crate::location::Location;
use crate::report::{Report, TableReport, Verdict};
use crate::schema::{Plan, plan};
use crate::server::SnapshotMode;
use crate::sides::{Pair, Place, pairs};
use crate::table::Comparison;
use crate::throttle::Throttle;

/// Runs `isobar diff`. Exit code: 0 the same, 1 different, 2 inconclusive.
pub fn run(runtime: &Runtime, args: Args) -> ExitCode {
    runtime.block_on(run_until_signal(args))
}

async fn run_until_signal(args: Args) -> ExitCode {
    let leases = Leases::default();
    let outcome = {
        let mut comparison = std::pin::pin!(compare(&args, &leases));
        tokio::select! {
            outcome = &mut comparison => outcome,
            name = interrupted() => {
                tokio::select! {
                    _ = &mut comparison => {}
                    () = leases.settled() => {}
                }
                Err(Error::Interrupted(match &args.checkpoint {
                    Some(file) => format!(" by {name}; what is done is in {}: go on with --resume", file.display()),
                    None => format!(" by {name}; with --checkpoint FILE, the next run could go on from here"),
                }))
            }
        }
    };
    // Who goes on from a checkpoint reads at the same snapshot.
    if outcome.is_err() && args.checkpoint.is_none() {
        leases.release().await;
    }
    match outcome {
        Ok(Verdict::Same) => ExitCode::SUCCESS,
        Ok(Verdict::Different) => ExitCode::from(1),
        Ok(Verdict::Inconclusive) => ExitCode::from(2),
        Err(error) => {
            // Not `eprintln`, which panics when standard error cannot be written.
            _ = writeln!(std::io::stderr(), "isobar diff: {error}");
            ExitCode::from(2)
        }
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn interrupted() -> &'static str {
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        },
        // Without handlers, a signal ends the process, which loses nothing that is written.
        _ => std::future::pending().await,
    }
}

fn password(file: Option<&std::path::PathBuf>, variable: &str) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(std::env::var(variable).ok()) };
    let text = std::fs::read_to_string(file).map_err(|cause| Error::File {
        file: file.clone(),
        place: String::new(),
        cause: format!("{cause}; it should hold a password on its first line"),
    })?;
    Ok(Some(text.lines().next().unwrap_or_default().to_owned()))
}

fn check(args: &Args, source: &Location, target: &Location) -> Result<()> {
    let is_files = |location: &Location| matches!(location, Location::Files { .. });
    if args.fix.is_some() && is_files(target) {
        return Err(Error::Usage(
            "--fix writes SQL for TARGET, which is files here; name the server as TARGET and the files as SOURCE".into(),
        ));
    }
    if args.condition.is_some() && (is_files(source) || is_files(target)) {
        return Err(Error::Usage(
            "--where is for servers, and files would be read whole; write the wanted rows into a file of their own".into(),
        ));
    }
    Ok(())
}

/// A transaction ended with the process that had it: what follows would be of another snapshot.
fn check_resumed(places: &[&Place]) -> Result<()> {
    for server in places.iter().filter_map(|place| place.server.as_ref()) {
        if *server.snapshot_mode() == SnapshotMode::Transaction {
            return Err(server.lost("its transaction ended with the run before".into()));
        }
    }
    Ok(())
}

async fn compare(args: &Args, leases: &Leases) -> Result<Verdict> {
    let begun = Instant::now();
    if crate::lease::duration(&args.lease).is_none() {
        return Err(Error::Usage(format!("--lease {} is no time like 90s, 10m or 2h", args.lease)));
    }
    let of = |text, file, variable| Location::parse(text, password(file, variable)?);
    let source = of(&args.source, args.source_password_file.as_ref(), "ISOBAR_SOURCE_PASSWORD")?;
    let target = of(&args.target, args.target_password_file.as_ref(), "ISOBAR_TARGET_PASSWORD")?;
    check(args, &source, &target)?;
    let parameters = Parameters {
        source: source.label(),
        target: target.label(),
        wishes: args.wishes(),
        condition: args.condition.clone(),
        rows: (args.chunk_rows, args.fetch_rows),
        reading: format!("{:?} {}", args.engine, args.transaction),
    };
    let (mut journal, tokens) = open_journal(args, &parameters)?;
    let resumed = tokens.is_some();
    let [ours, theirs] = tokens.unwrap_or_default();
    let source = Place::open(Side::Source, source, args, ours, None);
    let source = leases.open(source, &args.lease).await?;
    let target = Place::open(Side::Target, target, args, theirs, source.token());
    let target = leases.open(target, &args.lease).await?;
    if resumed {
        check_resumed(&[&source, &target])?;
    } else {
        journal.begin(parameters, [source.token(), target.token()])?;
    }
    let run = Run { args, source, target, throttle: Arc::new(Throttle::new(args.rows_per_second)) };
    let (tables, plans, rows) = run.tables(&mut journal).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let report = Report {
        verdict: Report::verdict_of(&tables),
        source: run.source.location.label(),
        target: run.target.location.label(),
        source_snapshot: run.source.snapshot_text().to_owned(),
        target_snapshot: run.target.snapshot_text().to_owned(),
        seconds,
        rows_per_second: rows as f64 / seconds.max(0.001),
        tables,
    };
    run.write_fix(&journal, &plans)?;
    if let Some(file) = &args.report {
        let text = serde_json::to_vec_pretty(&report).unwrap_or_default();
        std::fs::write(file, text).map_err(|cause| Error::Output { file: file.clone(), cause })?;
    }
    if report.verdict != Verdict::Inconclusive {
        journal.write(&Line::End)?;
    }
    if report.verdict != Verdict::Inconclusive || args.checkpoint.is_none() {
        leases.release().await;
    }
    // A reader that has left wants no more.
    _ = std::io::stdout().write_all(report.text().as_bytes());
    for place in [&run.source, &run.target] {
        if let Some(server) = &place.server {
            server.close().await;
        }
    }
    Ok(report.verdict)
}

fn open_journal(
    args: &Args,
    parameters: &Parameters,
) -> Result<(Journal, Option<[Option<String>; 2]>)> {
    let Some(file) = &args.checkpoint else { return Ok((Journal::temporary()?, None)) };
    let existing = match (args.resume, args.restart) {
        (true, _) => Existing::Resume,
        (_, true) => Existing::Restart,
        _ => Existing::Refuse,
    };
    Journal::open(file, existing, parameters)
}

struct Run<'a> {
    args: &'a Args,
    source: Place,
    target: Place,
    throttle: Arc<Throttle>,
}

/// Plans of the tables that were compared.
type Plans = Vec<(Pair, Arc<Plan>)>;

impl Run<'_> {
    /// Every pair of tables; an error of one table alone does not stop the others.
    async fn tables(&self, journal: &mut Journal) -> Result<(Vec<TableReport>, Plans, u64)> {
        let (mut reports, mut plans, mut rows) = (Vec::new(), Vec::new(), 0);
        for pair in pairs(&self.source, &self.target).await? {
            match self.table(&pair, journal).await {
                Ok((report, plan, looked_at)) => {
                    rows += looked_at;
                    reports.push(report);
                    plans.extend(plan.map(|plan| (pair, plan)));
                }
                Err(
                    error @ (Error::Schema { .. } | Error::Refused { .. } | Error::Moved { .. }),
                ) => {
                    _ = writeln!(std::io::stderr(), "isobar diff: {error}");
                    reports.push(TableReport::failed(pair.label, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((reports, plans, rows))
    }

    async fn table(
        &self,
        pair: &Pair,
        journal: &mut Journal,
    ) -> Result<(TableReport, Option<Arc<Plan>>, u64)> {
        let mut report = TableReport::new(pair.label.clone());
        let (Some(ours), Some(theirs)) = (&pair.source, &pair.target) else {
            let side = if pair.source.is_none() { "SOURCE" } else { "TARGET" };
            report.verdict = Verdict::Different;
            report.cause = Some(format!("{side} has no table of this name"));
            return Ok((report, None, 0));
        };
        let args = self.args;
        let source = self.source.describe(ours, args).await?;
        let target = self.target.describe(theirs, args).await?;
        let mut planned = plan(&source, &target, &args.wishes())?;
        report.notes = std::mem::take(&mut planned.notes);
        let plan = Arc::new(planned);
        report.key = plan
            .key
            .iter()
            .filter_map(|at| plan.columns.get(*at))
            .map(|c| c.source.name.clone())
            .collect();
        let comparison = Comparison {
            label: pair.label.clone(),
            source: self.source.input(ours, &plan, args, &self.throttle, &mut report.notes).await?,
            target: self
                .target
                .input(theirs, &plan, args, &self.throttle, &mut report.notes)
                .await?,
            plan: Arc::clone(&plan),
            still: [self.source.is_still(), self.target.is_still()],
            chunk_rows: args.chunk_rows,
            fetch_rows: args.fetch_rows,
            threads: usize::from(args.threads),
            most: args.max_differences,
            quiet: args.quiet,
        };
        let outcome = comparison.run(journal).await?;
        report.notes.extend(outcome.notes);
        (report.source_rows, report.target_rows) = outcome.counts;
        journal.chunks(&pair.label, |_, digests, differences| {
            report.chunks += 1;
            report.differing_chunks += usize::from(digests.0 != digests.1);
            for difference in differences {
                report.add(&difference, &plan);
            }
            Ok(())
        })?;
        Ok((report, Some(plan), outcome.rows))
    }

    /// Corrections: for each table what deletes, then what changes, then what adds.
    fn write_fix(&self, journal: &Journal, plans: &Plans) -> Result<()> {
        let (Some(file), Location::Server { database, .. }, Some(server)) =
            (&self.args.fix, &self.target.location, &self.target.server)
        else {
            return Ok(());
        };
        let mut fix =
            Fix::create(file, &self.source.location.label(), &self.target.location.label())?;
        for (pair, plan) in plans {
            let Some(table) = &pair.target else { continue };
            let quoted = format!("{}.{}", name(database), name(table));
            let table = FixTable { dialect: server.dialect, table: &quoted, plan };
            for pass in [Pass::Delete, Pass::Update, Pass::Insert] {
                journal.chunks(&pair.label, |_, _, differences| {
                    differences
                        .iter()
                        .try_for_each(|difference| fix.write(&table, pass, difference))
                })?;
            }
        }
        fix.finish()
    }
}
