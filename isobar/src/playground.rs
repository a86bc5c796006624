//! `isobar playground`: a whole cluster on loopback, as separate processes, for trying and testing.
//!
//! It supervises and prints; what a node does is the node's business. A child that dies is started
//! again, and all of them die with this process, even if it is killed.

mod layout;
mod supervisor;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bench::cpus::Cpus;
use indicatif::{ProgressBar, ProgressStyle};

use layout::Layout;
use supervisor::Supervisor;

use crate::health;

/// How long the cluster may take to become healthy.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// What to start.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Row nodes; the first three also form placement.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub row: u16,
    /// SQL nodes; a second one listens on the next port. With 0, row nodes answer MySQL clients themselves, each on its
    /// own port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=2))]
    pub sql: u16,
    /// One more SQL node, for batches: it shares the processors of columnar nodes, and listens on P+10.
    #[arg(long)]
    pub batch_sql: bool,
    /// Columnar nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=9))]
    pub columnar: u16,
    /// Processors of row nodes and SQL nodes, as 0-1,3 [default: all].
    #[arg(long, value_name = "LIST")]
    pub online_cpus: Option<Cpus>,
    /// Processors of columnar nodes and of the SQL node for batches [default: all].
    #[arg(long, value_name = "LIST")]
    pub batch_cpus: Option<Cpus>,
    /// Die when this process is gone.
    #[arg(long, hide = true, value_name = "PID")]
    pub parent: Option<u32>,
    /// Keep the data here and find it again at the next start [default: a temporary directory,
    /// removed at the end].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// First port: MySQL listens on P, internal ports on P+20 and above, Flight on P+40 and above.
    #[arg(long, default_value_t = 4000, value_name = "P", value_parser = clap::value_parser!(u16).range(1024..=65_000))]
    pub port_base: u16,
}

/// Runs the playground until Ctrl-C or SIGTERM.
pub async fn run(args: Args) -> Result<()> {
    if let Some(parent) = args.parent {
        crate::signals::die_with_parent(parent)?;
    }
    // Handlers first: an interrupt while children start must still stop them.
    let mut interrupt = crate::signals::Interrupt::new()?;
    let temporary = match &args.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().context("cannot make a temporary data directory")?),
    };
    let data = match (&args.data, &temporary) {
        (Some(dir), _) => dir.clone(),
        (None, Some(dir)) => dir.path().to_owned(),
        (None, None) => bail!("no data directory"),
    };
    let layout = Layout::prepare(&data, &args)?;
    layout.check_ports()?;

    let started = Instant::now();
    let mut supervisor = Supervisor::start(&layout)?;
    let bar = spinner();
    let outcome = tokio::select! {
        outcome = health::wait(&layout.placement, &layout.expected, START_TIMEOUT, |text| bar.set_message(text)) => outcome,
        signal = interrupt.wait() => Err(anyhow::anyhow!("interrupted by {signal}")),
        failed = supervisor.first_failure() => Err(failed),
    };
    bar.finish_and_clear();
    if let Err(error) = outcome {
        supervisor.stop().await;
        return Err(error
            .context(format!("the playground did not come up; logs are in {}", data.display())));
    }
    print!("{}", layout.welcome(started.elapsed(), temporary.is_some()));
    tokio::select! {
        signal = interrupt.wait() => println!("stopping, asked to by {signal} …"),
        () = supervisor.watch() => {}
    }
    supervisor.stop().await;
    Ok(())
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(120));
    bar.set_message("starting the nodes");
    bar
}
