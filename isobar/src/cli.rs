//! The command line: what there is to run, and how failures are shown.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use node::config::{Config, Role};
use tracing_subscriber::EnvFilter;

use crate::{ctl, dbgen, playground, signals};

/// Columnar replicas for an online row store: exact snapshots for analytics, calm for transactions.
///
/// Try it:  isobar playground      a whole cluster on this machine
///          mysql -h 127.0.0.1 -P 4000 -u root
#[derive(Parser, Debug)]
#[command(version, propagate_version = true, arg_required_else_help = true, verbatim_doc_comment)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Start a whole cluster on loopback, as separate processes, until Ctrl-C
    Playground(playground::Args),
    Serve(ServeArgs),
    /// Look at a running cluster, or mend one that cannot run
    Ctl(ctl::Args),
    Diff(diff::Args),
    /// Fill an empty table from CSV or Parquet files
    Import(import::Args),
    /// Write the tables of TPC-H as files
    Dbgen(dbgen::Args),
    /// Put load on a server, and prove that analytics leaves the online path alone
    Bench(bench::Args),
}

/// Run one node from a config file.
///
/// A file for a SQL node:
///
///   role = "sql"
///   data_dir = "/var/lib/isobar/sql"
///   rpc_address = "10.0.0.5:4019"
///   mysql_address = "0.0.0.0:4000"
///   placement = [{ id = 1, address = "10.0.0.1:4020" },
///                { id = 2, address = "10.0.0.2:4020" },
///                { id = 3, address = "10.0.0.3:4020" }]
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
struct ServeArgs {
    /// The node's settings (TOML)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Refuse to start unless the file's role is this one
    #[arg(long)]
    role: Option<Role>,
    /// Die when this process is gone
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
    /// Run on these processors only
    #[arg(long, hide = true, value_name = "LIST")]
    cpus: Option<bench::cpus::Cpus>,
}

/// Runs a command; an error is printed with its causes and ends in exit code 1, but `diff` has codes of its own.
pub fn run(cli: Cli) -> ExitCode {
    match execute(cli) {
        Ok(code) => code,
        Err(error) => {
            // Not `eprintln`, which panics when standard error is a file on a full disk.
            let _ = writeln!(std::io::stderr(), "isobar: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(cli: Cli) -> Result<ExitCode> {
    // Before the runtime: it has as many threads as it may use processors.
    if let Command::Serve(ServeArgs { cpus: Some(cpus), .. }) = &cli.command {
        cpus.pin(std::process::id())?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // For the trees of long statements; a stack takes memory only as far as it is used.
        .thread_stack_size(syntax::parser::chains::STACK)
        .build()
        .context("cannot start the runtime")?;
    match cli.command {
        Command::Playground(args) => runtime.block_on(playground::run(args))?,
        Command::Ctl(args) => runtime.block_on(ctl::run(args))?,
        Command::Import(args) => import::run(&runtime, args)?,
        Command::Dbgen(args) => dbgen::run(&args)?,
        Command::Bench(args) => return bench::run(&runtime, args),
        Command::Diff(args) => return Ok(diff::run(&runtime, args)),
        Command::Serve(args) => {
            if let Some(parent) = args.parent {
                signals::die_with_parent(parent)?;
            }
            let log = log_to_stderr();
            execution::panics::log_all();
            let began = Instant::now();
            let outcome = serve(&runtime, &args, log);
            if let Err(error) = &outcome {
                tracing::error!("{error:#}");
            }
            // A query that is still running does not hold the process back.
            runtime.shutdown_timeout(Duration::from_secs(1));
            match outcome {
                Err(error) if error.is::<node::StoreEnded>() => {
                    return Err(begin_again(began.elapsed()));
                }
                outcome => outcome?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Becomes a new process of the same command in place of this one, with the same number: whoever looks
/// after it sees no end of it. Returns only if that fails.
fn begin_again(lasted: Duration) -> anyhow::Error {
    use std::os::unix::process::CommandExt as _;
    let restarts = if lasted < node::LASTED { node::restarts().saturating_add(1) } else { 1 };
    let mut arguments = std::env::args_os();
    match arguments.next() {
        Some(program) => {
            let mut next = std::process::Command::new(program);
            let error = next.args(arguments).env(node::RESTARTS, restarts.to_string()).exec();
            anyhow::Error::new(error).context("cannot start again: start this node by hand")
        }
        None => anyhow::anyhow!("cannot start again without a name: start this node by hand"),
    }
}

fn serve(runtime: &tokio::runtime::Runtime, args: &ServeArgs, log: node::LogLevel) -> Result<()> {
    let config = Config::load(&args.config)?;
    if let Some(role) = args.role
        && role != config.role
    {
        anyhow::bail!(
            "{} is for role \"{}\", not \"{}\"",
            args.config.display(),
            config.role.name(),
            role.name()
        );
    }
    let mut interrupt = {
        let _context = runtime.enter();
        signals::Interrupt::new()?
    };
    let stop = async move {
        let signal = interrupt.wait().await;
        tracing::info!(signal, "asked to stop");
    };
    node::run(runtime, config, log, Box::pin(stop))
}

/// What a level does not mean. raft-engine calls it corruption that a file goes on with the zeros that it was filled with, as
/// after every crash; what is damaged we find ourselves.
const QUIET: &str = "raft_engine::file_pipe_log::pipe_builder=error";

/// Logs go to standard error; ISOBAR_LOG chooses what, as `info` or `info,raft=debug`. A line that
/// cannot be written is lost: to complain of it on standard error would end the process.
fn log_to_stderr() -> node::LogLevel {
    let set = std::env::var("ISOBAR_LOG").ok().filter(|set| EnvFilter::try_new(set).is_ok());
    let own = set.unwrap_or_else(|| "info".to_owned());
    let logging = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_env_filter(filter(&own))
        .with_filter_reloading();
    let handle = logging.reload_handle();
    logging.init();
    let turn = move |level: &str| {
        // It fails where nothing is logged any more.
        _ = handle.reload(filter(level));
    };
    node::LogLevel { own, turn: Box::new(turn) }
}

/// By a level, or a filter as ISOBAR_LOG has it.
fn filter(of: &str) -> EnvFilter {
    let is_level = of.parse::<tracing::Level>().is_ok();
    let all = if is_level { format!("{of},{QUIET}") } else { of.to_owned() };
    EnvFilter::try_new(all).unwrap_or_else(|_| EnvFilter::new(format!("info,{QUIET}")))
}
