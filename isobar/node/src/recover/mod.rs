//! `isobar ctl recover-unsafe`: goes on with what survivors hold where a quorum is lost for good.
//!
//! It works on the directories of a row node that is down, and contacts no other node. Without
//! `--yes` it changes nothing.

mod plan;
mod report;
mod show;
mod survivor;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use self::plan::Plan;
use self::report::Report;
use self::survivor::{Place, Survivor};
use crate::config::{Config, LOG_DIR, Role};

/// Go on with what a row node holds where a quorum is lost for good.
///
/// For the worst case only: more row nodes have lost their disks than the others can make up for, and
/// no backup is better. What the lost ones acknowledged beyond what is left here is lost.
///
///   1. Stop every node that is left: row, SQL and columnar. Wipe or unplug the disks of the lost row
///      nodes: started again with them, they would go on as a cluster of their own. Nothing here can
///      keep them from that.
///   2. One row node is left:
///      $ isobar ctl recover-unsafe --config row-3.toml           says what will be lost
///      $ isobar ctl recover-unsafe --config row-3.toml --yes     does it
///      Several are left. On each of them, before any of them is changed:
///      $ isobar ctl recover-unsafe --config row-3.toml --report row-3.held
///      Then, on each of them, with the reports of all others:
///      $ isobar ctl recover-unsafe --config row-3.toml --with row-4.held,row-5.held
///      $ isobar ctl recover-unsafe --config row-3.toml --with row-4.held,row-5.held --yes
///   3. Start the nodes that are left; then new row nodes, with empty directories and the settings of
///      those that were lost. `isobar ctl status` shows when all regions have three voters again.
///
/// Killed midway, it is to be run again with the same files; the node does not start before.
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The settings of the row node (TOML)
    #[arg(long, value_name = "FILE", required_unless_present = "data_dir")]
    config: Option<PathBuf>,
    /// Its data directory, instead of its settings
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    data_dir: Option<PathBuf>,
    /// Its Raft log's directory [default: raft-log in the data directory]
    #[arg(long, value_name = "DIR", requires = "data_dir")]
    raft_log_dir: Option<PathBuf>,
    /// Write what this node holds to a file, for the other survivors
    #[arg(long, value_name = "FILE", conflicts_with_all = ["with", "yes"])]
    report: Option<PathBuf>,
    /// What the other survivors hold
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    with: Vec<PathBuf>,
    /// Do it
    #[arg(long)]
    yes: bool,
}

/// Runs it; blocks.
pub fn run(args: &Args) -> Result<()> {
    let survivor = Survivor::open(&place(args)?)?;
    if let Some(path) = &args.report {
        let report = survivor.report()?;
        report.write(path)?;
        print!("{}", show::report(&report, path));
        return Ok(());
    }
    let mut reports = BTreeMap::new();
    for path in &args.with {
        let report = Report::read(path)?;
        if report.cluster != survivor.cluster {
            bail!("{} is of another cluster: name reports of this one", path.display());
        }
        if report.node != survivor.node && reports.insert(report.node, report).is_some() {
            bail!("{} is of a node that another report is of: name each once", path.display());
        }
    }
    let before = survivor.glance()?;
    let plan = Plan::make(&before, &reports)?;
    let preview = survivor.preview(&plan, &before, &reports)?;
    print!("{}", show::plan(&plan, &before, preview.as_ref()));
    if !args.yes {
        println!("\nNothing was changed. The same command with --yes does it.");
        return Ok(());
    }
    let node = survivor.node;
    survivor.go_on(&plan, &reports).with_context(|| {
        format!("row node {node} may be left halfway: run the command again with the same files")
    })?;
    print!("{}", show::done(&plan));
    Ok(())
}

/// Where the node keeps its files.
fn place(args: &Args) -> Result<Place> {
    if let Some(path) = &args.config {
        let config = Config::load(path)?;
        if config.role != Role::Row {
            bail!("{} is of a {} node: name a row node's", path.display(), config.role.name());
        }
        return Ok(Place { log: config.log_dir(), data: config.data_dir });
    }
    let data = args.data_dir.clone().context("name the node's settings by --config")?;
    let log = args.raft_log_dir.clone().unwrap_or_else(|| data.join(LOG_DIR));
    Ok(Place { data, log })
}
