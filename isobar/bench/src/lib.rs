//! Load over the MySQL protocol, and the proof that analytics leaves the online path alone.
//!
//! It knows nothing of the engine: everything it asks, any client could ask. So it measures any
//! MySQL-protocol server, and what it says of Isobar is what a user would see.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod batch;
pub mod burn;
pub mod cpus;
pub mod driver;
mod failover;
mod groups;
pub mod hiccups;
mod interrupt;
pub mod isolation;
mod lag;
pub mod latency;
mod measure;
mod online;
mod output;
pub mod peers;
pub mod playground;
pub mod processes;
pub mod random;
pub mod replicas;
pub mod report;
mod scan;
mod stage;
pub mod stats;
mod system;
pub mod target;
mod tpch;
pub mod workload;

use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

/// Put load on a MySQL-protocol server, and prove that analytics leaves the online path alone.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Command {
    /// Online load: sysbench-like mixes, TPC-C, or statements of your own
    Online(online::Args),
    /// Batch load: scans and aggregates, on rows or on columns
    Batch(batch::Args),
    /// Use processors, memory and a disk, and no database
    Burn(burn::Args),
    /// Proof of isolation: online latency alone, and beside batch load of every kind
    Isolation(Box<isolation::Args>),
    /// TPC-H's 22 queries on columns, beside DuckDB, DataFusion and Spark
    Tpch(tpch::Args),
    /// A full scan of a table: rows per second of SQL, Spark and JDBC
    Scan(scan::Args),
    /// Replica lag, and what a strong read waits, while transactions are written
    Lag(lag::Args),
    /// How long nothing is answered once a node is killed or stopped, and until when the rate is back
    Failover(failover::Args),
    /// What two users in two resource groups get of a cluster, side by side
    Groups(groups::Args),
    /// Make the page of a proof of isolation again, from its JSON
    Page(report::PageArgs),
    /// Run a command on some processors only
    #[command(hide = true)]
    Pinned(PinnedArgs),
}

#[derive(clap::Args, Clone, Debug)]
struct PinnedArgs {
    #[arg(long, value_name = "LIST")]
    cpus: cpus::Cpus,
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Becomes another program, on some processors only.
fn pinned(args: PinnedArgs) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt as _;
    args.cpus.pin(std::process::id())?;
    let (program, rest) = args.command.split_first().context("no command")?;
    let error = std::process::Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {program}"))
}

/// Runs a subcommand. Exit code 0: done, and what was checked holds; 1: it does not hold, or an
/// error; 2: inconclusive.
///
/// # Errors
///
/// What keeps it from measuring.
pub fn run(runtime: &Runtime, args: Args) -> Result<ExitCode> {
    runtime.block_on(run_command(args.command))
}

async fn run_command(command: Command) -> Result<ExitCode> {
    match command {
        Command::Online(args) => online::run(args).await,
        Command::Batch(args) => batch::run(args).await,
        Command::Burn(args) => burn::run(args).await,
        Command::Isolation(args) => isolation::run(*args).await,
        Command::Tpch(args) => tpch::run(args).await,
        Command::Scan(args) => scan::run(args).await,
        Command::Lag(args) => lag::run(args).await,
        Command::Failover(args) => failover::run(args).await,
        Command::Groups(args) => groups::run(args).await,
        Command::Page(args) => report::page(&args),
        Command::Pinned(args) => pinned(args),
    }
}
