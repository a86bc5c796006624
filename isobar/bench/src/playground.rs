//! A playground of its own for a bench: started, awaited and stopped, whatever happens to the bench.
//!
//! It must never touch a cluster that it did not start.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::cpus::Cpus;
use crate::processes::{self, Named};
use crate::replicas;
use crate::target::Target;

/// How long a playground may take to start or to stop.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(30);
/// Row nodes of a playground, where nothing else is wanted.
pub const ROW_NODES: u16 = 3;
/// The name of the SQL node for batches.
pub const BATCH_SQL: &str = "sql-batch";
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What to start.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The binary; this one if none.
    pub isobar: Option<PathBuf>,
    /// Where the data is kept; a temporary directory if nowhere.
    pub data: Option<PathBuf>,
    /// Row nodes.
    pub row: u16,
    /// SQL nodes; with 0, row nodes answer MySQL clients themselves.
    pub sql: u16,
    /// A SQL node for batches, beside the columnar nodes.
    pub batch_sql: bool,
    /// Columnar nodes.
    pub columnar: u16,
    /// First port.
    pub port_base: u16,
    /// Processors of row nodes and SQL nodes.
    pub online_cpus: Option<Cpus>,
    /// Processors of columnar nodes and of the SQL node for batches.
    pub batch_cpus: Option<Cpus>,
}

/// A running playground.
pub struct Playground {
    child: Child,
    pid: u32,
    data: PathBuf,
    _folder: Option<TempDir>,
}

impl Playground {
    /// Starts one, and waits until `targets` answer and every columnar node is known.
    pub async fn start(setup: &Setup, targets: &[&Target]) -> Result<Self> {
        let program = match &setup.isobar {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program's file")?,
        };
        let (folder, data) = match &setup.data {
            Some(data) => (None, data.clone()),
            None => {
                let folder = tempfile::Builder::new().prefix("isobar-bench-").tempdir();
                let folder = folder.context("cannot make a folder for the playground")?;
                let data = folder.path().join("data");
                (Some(folder), data)
            }
        };
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot make {}", data.display()))?;
        let log_path = data.join("playground.log");
        let log = std::fs::File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        let mut command = Command::new(&program);
        command.arg("playground").args(["--sql", &setup.sql.to_string()]);
        command.args(setup.batch_sql.then_some("--batch-sql"));
        command.args(["--row", &setup.row.to_string()]);
        command.args(["--parent", &std::process::id().to_string()]);
        command.args(["--columnar", &setup.columnar.to_string()]);
        command.args(["--port-base", &setup.port_base.to_string()]).arg("--data").arg(&data);
        for (name, cpus) in
            [("--online-cpus", &setup.online_cpus), ("--batch-cpus", &setup.batch_cpus)]
        {
            if let Some(cpus) = cpus {
                command.args([name, &cpus.to_string()]);
            }
        }
        let errors = log.try_clone().context("cannot share the playground's log")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().context("the playground ended at once")?;
        let mut playground = Playground { child, pid, data, _folder: folder };
        match playground.wait(targets, usize::from(setup.columnar)).await {
            Ok(()) => Ok(playground),
            Err(error) => {
                let text = std::fs::read_to_string(&log_path).unwrap_or_default();
                playground.stop().await;
                Err(error.context(format!("the playground did not come up:\n{text}")))
            }
        }
    }

    async fn wait(&mut self, targets: &[&Target], columnar: usize) -> Result<()> {
        let end = Instant::now() + START;
        loop {
            if let Some(status) = self.child.try_wait().context("cannot watch the playground")? {
                bail!("it ended: {status}");
            }
            let error = match self::answer(targets, columnar).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > end {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Where its nodes keep their files, each in a folder of its name.
    pub fn data(&self) -> &std::path::Path {
        &self.data
    }

    /// The nodes' processes by name.
    pub fn nodes(&self) -> Named {
        processes::nodes(self.pid)
    }

    /// Stops everything.
    pub async fn stop(mut self) {
        crate::system::terminate(self.pid);
        if tokio::time::timeout(STOP, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}

async fn answer(targets: &[&Target], columnar: usize) -> Result<()> {
    for target in targets {
        target.connect_and_create().await?;
        if replicas::flight_addresses(target).await?.len() < columnar {
            bail!("not all columnar nodes are up");
        }
    }
    Ok(())
}
