//! The cluster that is measured: started here as a playground, or running already at an address.
//!
//! What only Isobar has (columnar replicas and their lag) is asked for here, by SQL.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::Args;
use crate::cpus::Cpus;
use crate::processes::{self, Named};
use crate::report::Pinning;
use crate::target::Target;

/// How long a playground may take to start or to stop.
const START: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(30);
/// How long replicas may take to come or to go.
const REPLICAS: Duration = Duration::from_secs(600);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// A cluster.
pub struct Cluster {
    /// Where online load goes.
    pub online: Target,
    /// Where batch load goes.
    pub batch: Target,
    /// Processors of online load, if processes are pinned.
    pub online_cpus: Option<Cpus>,
    /// Processors of batch load.
    pub batch_cpus: Option<Cpus>,
    playground: Option<Playground>,
}

struct Playground {
    child: Child,
    pid: u32,
    _folder: Option<TempDir>,
}

impl Cluster {
    /// Starts a playground, or takes the cluster at an address.
    pub async fn open(args: &Args) -> Result<Self> {
        let (online_cpus, batch_cpus) = sets(args)?;
        if let Some(cpus) = &online_cpus {
            cpus.pin(std::process::id())?;
        }
        if let Some(url) = &args.target {
            let online = Target::parse(url)?;
            let batch = Target::parse(args.batch_target.as_ref().unwrap_or(url))?;
            return Ok(Cluster { online, batch, online_cpus, batch_cpus, playground: None });
        }
        let at = |offset: u16| {
            Target::parse(&format!("mysql://root@127.0.0.1:{}/bench", args.port_base + offset))
        };
        let mut cluster =
            Cluster { online: at(0)?, batch: at(1)?, online_cpus, batch_cpus, playground: None };
        cluster.start(args).await?;
        Ok(cluster)
    }

    async fn start(&mut self, args: &Args) -> Result<()> {
        let program = match &args.isobar {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("cannot find this program's file")?,
        };
        let (folder, data) = match &args.data {
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
        command.arg("playground").args(["--sql", "2"]);
        command.args(["--parent", &std::process::id().to_string()]);
        command.args(["--columnar", &args.columnar.to_string()]);
        command.args(["--port-base", &args.port_base.to_string()]).arg("--data").arg(&data);
        for (name, cpus) in
            [("--online-cpus", &self.online_cpus), ("--batch-cpus", &self.batch_cpus)]
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
        self.playground = Some(Playground { child, pid, _folder: folder });
        self.wait_for_nodes(usize::from(args.columnar)).await.with_context(|| {
            let text = std::fs::read_to_string(&log_path).unwrap_or_default();
            format!("the playground did not come up:\n{text}")
        })
    }

    async fn wait_for_nodes(&mut self, columnar: usize) -> Result<()> {
        let end = Instant::now() + START;
        loop {
            let playground = self.playground.as_mut().context("no playground")?;
            if let Some(status) =
                playground.child.try_wait().context("cannot watch the playground")?
            {
                bail!("it ended: {status}");
            }
            let (online, batch) = (self.doors().await, self.batch.connect_and_create().await);
            match (online, batch) {
                (Ok(doors), Ok(_)) if doors.len() >= columnar => return Ok(()),
                (Err(error), _) | (_, Err(error)) if Instant::now() > end => return Err(error),
                _ if Instant::now() > end => bail!("not all columnar nodes are up"),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Flight doors of columnar nodes.
    pub async fn doors(&self) -> Result<Vec<String>> {
        let mut conn = self.online.connect_and_create().await?;
        let doors: Vec<String> = conn
            .query("SELECT client_address FROM information_schema.cluster_info WHERE type = 'columnar'")
            .await
            .context("the server does not tell its columnar nodes; the proof of isolation needs an Isobar")?;
        Ok(doors)
    }

    /// The nodes' processes by name, where they run here.
    pub fn nodes(&self) -> Named {
        self.playground
            .as_ref()
            .map(|playground| processes::nodes(playground.pid))
            .unwrap_or_default()
    }

    /// Whether a node's work is the batch's.
    pub fn is_batch_side(name: &str) -> bool {
        name.starts_with("columnar") || name == "sql-2" || name == "batch"
    }

    /// Whether the cluster was started here.
    pub fn is_ours(&self) -> bool {
        self.playground.is_some()
    }

    /// How processes are kept apart, in words and as the kernel has it.
    pub fn pinning(&self) -> Pinning {
        let mut pinning = Pinning {
            online: self.online_cpus.as_ref().map(ToString::to_string),
            batch: self.batch_cpus.as_ref().map(ToString::to_string),
            ..Pinning::default()
        };
        match (&self.online_cpus, &self.batch_cpus, self.is_ours()) {
            (Some(online), Some(batch), true) => pinning.says.extend([
                format!("Row nodes, the first SQL node and this driver run on processors {online} only (sched_setaffinity)."),
                format!(
                    "Columnar nodes, a second SQL node that only the batch uses, the batch's client, Spark and the control run on processors {batch} only."
                ),
            ]),
            (Some(online), Some(batch), false) => pinning.says.push(format!(
                "This driver runs on processors {online}, the batch's client, Spark and the control on {batch}. The nodes were running already, where their operator put them."
            )),
            _ => pinning.says.push("Nothing was pinned: every process may run on every processor.".into()),
        }
        for (name, pid) in self.nodes() {
            let cpus = Cpus::of(pid).map_or("unknown".to_owned(), |cpus| cpus.to_string());
            pinning.processes.insert(name, cpus);
        }
        if let Ok(cpus) = Cpus::allowed() {
            pinning.processes.insert("driver".into(), cpus.to_string());
        }
        pinning
    }

    /// Attaches or detaches replicas of tables, and waits until that is done.
    pub async fn replicas(&self, tables: &[String], count: u8) -> Result<()> {
        let mut conn = self.online.connect().await.context("cannot connect")?;
        for table in tables {
            conn.query_drop(format!("ALTER TABLE {table} SET COLUMNAR REPLICA {count}"))
                .await
                .with_context(|| {
                    format!("cannot set the columnar replicas of {table} to {count}")
                })?;
        }
        let end = Instant::now() + REPLICAS;
        loop {
            let pending = self.pending(&mut conn, tables, count).await?;
            let Some(pending) = pending else { return Ok(()) };
            if Instant::now() > end {
                bail!("after {} s the replicas of {pending} are not as asked", REPLICAS.as_secs());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A table whose replicas are not yet as asked.
    async fn pending(
        &self,
        conn: &mut Conn,
        tables: &[String],
        count: u8,
    ) -> Result<Option<String>> {
        let database = self.online.database();
        let done: Vec<String> = if count == 0 {
            let regions: Vec<(String, Option<String>)> = conn
                .query(format!(
                    "SELECT table_name, learners FROM information_schema.regions WHERE table_schema = '{database}'"
                ))
                .await
                .context("cannot ask for regions")?;
            let busy = |table: &&String| {
                regions.iter().any(|(name, learners)| {
                    name == *table && learners.as_ref().is_some_and(|learners| !learners.is_empty())
                })
            };
            tables.iter().filter(|table| !busy(table)).cloned().collect()
        } else {
            conn.query(format!(
                "SELECT table_name FROM information_schema.columnar_replica \
                 WHERE table_schema = '{database}' AND available = 1"
            ))
            .await
            .context("cannot ask for columnar replicas")?
        };
        Ok(tables.iter().find(|table| !done.contains(table)).cloned())
    }

    /// The largest number that a query for lags answers with.
    pub async fn furthest(conn: &mut Conn, query: &str) -> Result<Option<f64>> {
        let rows: Vec<Row> = conn.query(query).await.context("cannot ask for the lag")?;
        let lags = rows.iter().filter_map(|row| row.get_opt::<Option<f64>, _>(0)?.ok().flatten());
        Ok(lags.fold(None, |most: Option<f64>, lag| Some(most.map_or(lag, |most| most.max(lag)))))
    }

    /// Stops what was started here.
    pub async fn close(mut self) {
        if let Some(mut playground) = self.playground.take() {
            crate::system::terminate(playground.pid);
            if tokio::time::timeout(STOP, playground.child.wait()).await.is_err() {
                let _ = playground.child.kill().await;
            }
        }
    }
}

/// The two sets of processors; none where nothing is to be pinned.
fn sets(args: &Args) -> Result<(Option<Cpus>, Option<Cpus>)> {
    if args.no_pin {
        return Ok((None, None));
    }
    let (online, batch) = match (&args.online_cpus, &args.batch_cpus) {
        (Some(online), Some(batch)) => (online.clone(), batch.clone()),
        (None, None) => match Cpus::allowed()?.halves() {
            Some(halves) => halves,
            None => return Ok((None, None)),
        },
        _ => bail!("give both of --online-cpus and --batch-cpus, or neither"),
    };
    if online.shared(&batch) {
        bail!(
            "--online-cpus {online} and --batch-cpus {batch} share processors, so nothing would be isolated"
        );
    }
    Ok((Some(online), Some(batch)))
}
