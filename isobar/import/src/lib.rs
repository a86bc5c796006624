//! `isobar import`: fills an empty table from CSV or Parquet files, in key order and without
//! transactions.
//!
//! Readers see nothing of the table until all of it is there. What ends the import early leaves the
//! table closed, and the same command goes on where it stopped, or begins anew where that took so
//! long that its commit timestamp is below the safe point.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod cluster;
mod commit_lease;
mod paying;
mod read;
mod sort;
mod source;

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use mysql_async::prelude::Queryable;
use sql::session::{ImportTarget, Session, SessionInfo};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use types::NodeId;

use cluster::{Cluster, DuplicateKey, Layout};
use source::{Csv, Input};

/// How often progress is printed where it is not drawn.
const PRINT_EVERY: Duration = Duration::from_secs(10);
/// How long the SQL node may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// Fill an empty table from CSV or Parquet files.
///
/// All files are read, checked and sorted before the first row is written: a row that does not fit
/// is named by file and line, and the table is left as it was. Then the table is closed, its
/// regions are cut, and the rows are written in key order. Nobody sees any row before all are
/// there. If the import is interrupted, run the same command again: it goes on where it stopped.
///
///   isobar import --database shop --table orders --header orders-*.csv
///   isobar import --database tpch --table lineitem /lake/lineitem     a folder of Parquet files
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// MySQL address of a SQL node
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4000")]
    target: String,
    /// User
    #[arg(long, default_value = "root")]
    user: String,
    /// Password
    #[arg(long, env = "ISOBAR_PASSWORD", hide_env_values = true, default_value = "")]
    password: String,
    /// Database of the table
    #[arg(long)]
    database: String,
    /// Table; it must be there, and empty
    #[arg(long)]
    table: String,
    /// Files, or folders whose files are taken
    #[arg(required = true, value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// What the files are [default: by their names' endings]
    #[arg(long, value_parser = ["csv", "parquet"])]
    format: Option<String>,
    /// CSV: what separates fields; \t for a tab
    #[arg(long, default_value = ",")]
    delimiter: String,
    /// CSV: what ends lines, as `|\n` [default: \n or \r\n, as found]
    #[arg(long, value_name = "TEXT")]
    line_end: Option<String>,
    /// CSV: what stands around fields that hold other marks; empty for nothing
    #[arg(long, default_value = "\"")]
    quote: String,
    /// CSV: what stands for NULL, besides a bare NULL
    #[arg(long, default_value = "\\N", value_name = "TEXT")]
    null: String,
    /// CSV: the first line names the columns
    #[arg(long, conflicts_with = "columns")]
    header: bool,
    /// CSV: the columns, where no header names them [default: all of the table, in its order]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    columns: Option<Vec<String>>,
    /// Time zone of times for TIMESTAMP columns
    #[arg(long, default_value = "+00:00")]
    time_zone: String,
    /// Resource group that pays for what is written [default: the user's]; with BACKGROUND = (TASK_TYPES = 'import') it
    /// gives way to all other work
    #[arg(long, value_name = "GROUP")]
    resource_group: Option<String>,
    /// Memory for sorting, in MiB; what is more goes to temporary files
    #[arg(long, default_value_t = 512, value_name = "MIB", value_parser = clap::value_parser!(u32).range(16..))]
    memory: u32,
    /// Folder for temporary files [default: the system's]
    #[arg(long, value_name = "DIR")]
    temporary: Option<PathBuf>,
}

/// Runs the import.
///
/// # Errors
///
/// Whatever keeps all rows from being there, with the file and line of a row that does.
pub fn run(runtime: &Runtime, args: Args) -> Result<()> {
    runtime.block_on(import(args))
}

async fn import(args: Args) -> Result<()> {
    let began = Instant::now();
    let inputs = inputs(&args)?;
    let (rows, group) = row_nodes_and_group(&args).await?;
    let cluster = Cluster::new(rows);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sessions = Vec::with_capacity(workers);
    for _ in 0..workers {
        sessions.push(session(&cluster, &args).await?);
    }
    let inputs = targets(&args, &mut sessions, inputs).await?;
    let Some(table) = inputs.first().map(|(_, target)| target.table.clone()) else {
        bail!("no files to import");
    };
    for (_, target) in &inputs {
        cluster::check_unchanged(&table, &target.table)?;
    }
    cluster.check_empty(&table).await?;

    let folder = match &args.temporary {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.context("cannot make a temporary folder (another place: --temporary)")?;
    let bytes = inputs.iter().map(|(input, _)| input.bytes).sum();
    let memory = args.memory as usize * (1 << 20);
    let mut sorted = Progress::new("reading", bytes).during(|bar| {
        tokio::task::block_in_place(|| read::read(&inputs, sessions, (folder.path(), memory), bar))
    })?;
    let layout = match tokio::task::block_in_place(|| Layout::plan(&sorted.runs))? {
        Ok(layout) => layout,
        Err(DuplicateKey(one, other)) => bail!(
            "{} and {}: {}",
            describe(&inputs, one.origin),
            describe(&inputs, other.origin),
            storage::rows::duplicate(&table, &one.key).message
        ),
    };
    let (read, rows) = (began.elapsed(), sorted.rows);
    print(&format!("{rows} rows are read and sorted, in {:.1} s", read.as_secs_f64()));

    let (table, lease) = cluster.begin(&table, sorted.digest).await?;
    let runs = Arc::new(std::mem::take(&mut sorted.runs));
    let writing = async {
        cluster.cut(&layout).await?;
        let progress = Progress::new("writing", layout.bytes);
        cluster.write(&table, lease.ts, runs, &group, &progress.bar).await?;
        drop(progress);
        cluster.finish(&table, sorted.highest).await
    };
    let written = tokio::select! {
        written = writing => written,
        lost = lease.keep() => Err(lost),
        stopped = stopped() => stopped,
    };
    lease.release().await;
    written.context("the table stays closed: run the same command again, or drop the table")?;
    let all = began.elapsed();
    print(&format!(
        "{rows} rows are in {}.{}: {:.1} s, {:.0} rows/s, {} MiB (writing: {:.1} s)",
        table.database,
        table.name,
        all.as_secs_f64(),
        rows as f64 / all.as_secs_f64().max(1e-9),
        layout.bytes >> 20,
        (all - read).as_secs_f64(),
    ));
    Ok(())
}

/// Ends when the process is asked to end.
async fn stopped() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
    bail!("the import was interrupted")
}

fn describe(inputs: &[(Input, ImportTarget)], origin: sort::Origin) -> String {
    inputs.get(origin.file as usize).map_or_else(String::new, |(input, _)| input.describe(origin))
}

fn inputs(args: &Args) -> Result<Vec<Input>> {
    let quote = match args.quote.as_bytes() {
        [] => None,
        [one] => Some(*one),
        _ => bail!("--quote takes one ASCII character, or nothing"),
    };
    let csv = Csv {
        delimiter: unescaped(&args.delimiter),
        line_end: args.line_end.as_deref().map(unescaped),
        quote,
        null: args.null.clone(),
        header: args.header,
    };
    if csv.delimiter.is_empty() || csv.line_end.as_deref() == Some("") {
        bail!("--delimiter and --line-end cannot be empty");
    }
    let mut inputs = Vec::new();
    for path in files(&args.files)? {
        inputs.push(source::open(&path, args.format.as_deref(), &csv)?);
    }
    Ok(inputs)
}

fn unescaped(text: &str) -> String {
    text.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n")
}

/// The files named, and the files of folders named, in the order of their names; a folder's hidden
/// files, and those that Spark marks as its own with `_`, are not data.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let shown = path.display();
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot list {shown}"))?;
        let mut inside = Vec::new();
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {shown}"))?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            if path.is_file() && name.is_some_and(|name| !name.starts_with(['.', '_'])) {
                inside.push(path);
            }
        }
        if inside.is_empty() {
            bail!("{shown} holds no files");
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Row nodes of the cluster, as the SQL node knows them, and the resource group that pays, for a user whom it lets in.
async fn row_nodes_and_group(args: &Args) -> Result<(Vec<(NodeId, String)>, String)> {
    let Some((host, port)) = args.target.rsplit_once(':') else {
        bail!("--target is HOST:PORT, not {}", args.target);
    };
    let port: u16 = port.parse().with_context(|| format!("the port of {}", args.target))?;
    let options = mysql_async::OptsBuilder::default()
        .ip_or_hostname(host)
        .tcp_port(port)
        .user(Some(&args.user))
        .pass(Some(&args.password))
        .prefer_socket(false);
    let check = async {
        let mut connection = mysql_async::Conn::new(options).await?;
        let nodes: Vec<(NodeId, String)> = connection
            .query("SELECT node_id, instance FROM information_schema.cluster_info WHERE type = 'row' ORDER BY node_id")
            .await?;
        // Nothing is run for it, but that the user may add rows.
        let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
        let (database, table) = (quoted(&args.database), quoted(&args.table));
        connection.query_drop(format!("EXPLAIN INSERT INTO {database}.{table} VALUES (1)")).await?;
        if let Some(group) = &args.resource_group {
            connection.query_drop(format!("SET RESOURCE GROUP {}", quoted(group))).await?;
        }
        let group: Option<String> =
            connection.query_first("SELECT CURRENT_RESOURCE_GROUP()").await?;
        connection.disconnect().await?;
        anyhow::Ok((nodes, group.context("the SQL node names no resource group")?))
    };
    let answer = tokio::time::timeout(ANSWER, check).await;
    let answer = answer.with_context(|| format!("{} did not answer", args.target))?;
    answer.with_context(|| format!("SQL node {}", args.target))
}

/// A session that checks rows; it answers nobody.
async fn session(cluster: &Cluster, args: &Args) -> Result<Session> {
    let (user, host) = (args.user.clone(), "localhost".to_owned());
    let info = SessionInfo { id: 0, user, host, found_rows: false };
    let mut session = Session::new(cluster.engine(), info);
    let zone = args.time_zone.replace(['\\', '\''], "");
    let set = format!("SET time_zone = '{zone}'");
    session.execute(set.as_bytes(), &CancellationToken::new()).await?;
    Ok(session)
}

/// Which columns each file fills.
async fn targets(
    args: &Args,
    sessions: &mut [Session],
    inputs: Vec<Input>,
) -> Result<Vec<(Input, ImportTarget)>> {
    let mut all = Vec::with_capacity(inputs.len());
    for input in inputs {
        let columns = input.columns()?.or_else(|| args.columns.clone());
        let mut target = None;
        // Each session takes note of the time, for DEFAULT CURRENT_TIMESTAMP.
        for session in sessions.iter_mut() {
            let found =
                session.import_target(&args.database, &args.table, columns.as_deref()).await;
            target = Some(found.with_context(|| input.path.display().to_string())?);
        }
        all.extend(target.map(|target| (input, target)));
    }
    Ok(all)
}

/// A bar on a terminal, or a line now and then.
struct Progress {
    bar: ProgressBar,
    printer: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    fn new(what: &'static str, bytes: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        let shown = bar.clone();
        let printer = (!std::io::stderr().is_terminal()).then(|| {
            tokio::spawn(async move {
                let mut every = tokio::time::interval_at(
                    tokio::time::Instant::now() + PRINT_EVERY,
                    PRINT_EVERY,
                );
                loop {
                    every.tick().await;
                    let percent = 100 * shown.position() / shown.length().unwrap_or(1).max(1);
                    print(&format!("{what}: {percent} %, {} left", HumanDuration(shown.eta())));
                }
            })
        });
        Progress { bar, printer }
    }

    fn during<T>(self, work: impl FnOnce(&ProgressBar) -> T) -> T {
        work(&self.bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Some(printer) = &self.printer {
            printer.abort();
        }
    }
}

/// A line for the operator; lost where nobody takes it.
fn print(line: &str) {
    _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_give_their_data_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", "_SUCCESS", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = files(&[folder.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.csv", "b.csv"]);
        let empty = tempfile::tempdir().unwrap();
        assert!(files(&[empty.path().to_owned()]).is_err());
    }
}
