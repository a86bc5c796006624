//! Where `tpch`, `scan` and `lag` measure: a playground of their own or a cluster at an address, on
//! so many processors for everybody.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cpus::Cpus;
use crate::playground::{Playground, ROW_NODES, Setup};
use crate::replicas;
use crate::target::Target;

/// Where to measure.
#[derive(clap::Args, Clone, Debug)]
pub struct StageArgs {
    /// A running cluster and a database of it, instead of a playground
    #[arg(long, value_name = "URL")]
    pub target: Option<String>,
    /// First port of the playground
    #[arg(long, default_value_t = 14_100, value_name = "P", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    pub port_base: u16,
    /// Columnar nodes of the playground
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub columnar: u16,
    /// The playground's data [default: a temporary directory, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The isobar binary [default: this one]
    #[arg(long, value_name = "FILE")]
    pub isobar: Option<PathBuf>,
    /// Processors for everything that is started here, and threads that each peer is given
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: u16,
}

/// When, where and how a measurement was made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Setting {
    /// When, in UTC.
    pub started: String,
    /// The command line.
    pub command: String,
    /// The machine and the server.
    pub machine: BTreeMap<String, String>,
    /// What everything is pinned to, in words.
    pub pinning: String,
}

/// A cluster to measure.
pub struct Stage {
    /// Its SQL node and the database.
    pub target: Target,
    /// The binary.
    pub isobar: PathBuf,
    /// What everything is pinned to, in words.
    pub pinning: String,
    /// It, if it was started here.
    pub playground: Option<Playground>,
}

impl Stage {
    /// Starts a playground, or takes the cluster at an address.
    pub async fn open(args: &StageArgs, database: &str) -> Result<Self> {
        let isobar = match &args.isobar {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program's file")?,
        };
        let ours = if args.target.is_none() { "every node, " } else { "" };
        // What is started takes after this process.
        let pinning = match Cpus::allowed()?.first(args.threads.into()) {
            Some(cpus) => {
                cpus.pin(std::process::id())?;
                format!("{ours}this client and every peer run on processors {cpus} only")
            }
            None => format!(
                "this machine has fewer than {} processors: nothing is pinned",
                args.threads
            ),
        };
        let url = format!("mysql://root@127.0.0.1:{}/{database}", args.port_base);
        let target = Target::parse(args.target.as_ref().unwrap_or(&url))?;
        let mut playground = None;
        if args.target.is_none() {
            let setup = Setup {
                isobar: args.isobar.clone(),
                data: args.data.clone(),
                row: ROW_NODES,
                sql: 1,
                batch_sql: false,
                columnar: args.columnar,
                port_base: args.port_base,
                online_cpus: None,
                batch_cpus: None,
            };
            playground = Some(Playground::start(&setup, &[&target]).await?);
        }
        target.connect_and_create().await?;
        Ok(Stage { target, isobar, pinning, playground })
    }

    /// What a report begins with.
    pub async fn setting(&self) -> Result<Setting> {
        Ok(Setting {
            started: chrono::Utc::now().format("%Y-%m-%d %H:%M:%S UTC").to_string(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            machine: crate::isolation::describe(&self.target).await?,
            pinning: self.pinning.clone(),
        })
    }

    /// Flight addresses, as Spark's option wants them.
    pub async fn endpoints(&self) -> Result<String> {
        Ok(replicas::flight_addresses(&self.target).await?.join(","))
    }

    /// Bytes below the folders of nodes whose names begin so, where they are of our playground.
    pub fn bytes(&self, node: &str) -> Option<u64> {
        let data = self.playground.as_ref()?.data();
        let folders = std::fs::read_dir(data).ok()?.flatten();
        let of = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(node));
        Some(of.map(|entry| below(&entry.path())).sum())
    }

    /// Stops what was started here.
    pub async fn close(self) {
        if let Some(playground) = self.playground {
            playground.stop().await;
        }
    }
}

/// Measures on a stage, and stops what was started there; Ctrl-C and SIGTERM end it early.
pub async fn measured<T>(
    args: &StageArgs,
    database: &str,
    measure: impl AsyncFnOnce(&Stage, &CancellationToken) -> Result<T>,
) -> Result<T> {
    let stop = crate::interrupt::token()?;
    let stage = tokio::select! {
        stage = Stage::open(args, database) => stage?,
        () = stop.cancelled() => bail!("interrupted while the cluster started"),
    };
    let outcome = tokio::select! {
        outcome = measure(&stage, &stop) => outcome,
        () = stop.cancelled() => Err(anyhow::anyhow!("interrupted; everything that was started is stopped")),
    };
    stage.close().await;
    outcome
}

/// Bytes of a file, or of all files below a folder; one that goes meanwhile has none.
pub fn below(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        // What the disk holds: files may be made longer than what was written to them.
        return meta.blocks() * 512;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| below(&entry.path())).sum()
}
