//! The cluster that is measured: started here as a playground, or running already at an address.
//!
//! What only Isobar has (columnar replicas and their lag) is asked for here, by SQL.

use anyhow::{Context, Result, bail};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::Args;
use crate::cpus::Cpus;
use crate::playground::{Playground, ROW_NODES, Setup};
use crate::processes::Named;
use crate::replicas;
use crate::report::Pinning;
use crate::target::Target;

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
            Cluster { online: at(0)?, batch: at(10)?, online_cpus, batch_cpus, playground: None };
        cluster.start(args).await?;
        Ok(cluster)
    }

    async fn start(&mut self, args: &Args) -> Result<()> {
        let setup = Setup {
            isobar: args.isobar.clone(),
            data: args.data.clone(),
            row: ROW_NODES,
            sql: 0,
            batch_sql: true,
            columnar: args.columnar,
            port_base: args.port_base,
            online_cpus: self.online_cpus.clone(),
            batch_cpus: self.batch_cpus.clone(),
        };
        self.playground = Some(Playground::start(&setup, &[&self.online, &self.batch]).await?);
        Ok(())
    }

    /// Addresses of the columnar nodes' Flight servers.
    pub async fn flight_addresses(&self) -> Result<Vec<String>> {
        replicas::flight_addresses(&self.online).await
    }

    /// The nodes' processes by name, where they run here.
    pub fn nodes(&self) -> Named {
        self.playground.as_ref().map(|playground| playground.nodes()).unwrap_or_default()
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
                format!("Row nodes, the first of which answers the online clients, and this driver run on processors {online} only (sched_setaffinity)."),
                format!(
                    "Columnar nodes, a SQL node that only the batch uses, the batch's client, Spark and the control run on processors {batch} only."
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
        replicas::set(&self.online, tables, count).await
    }

    /// The largest number that a query for lags answers with.
    pub async fn furthest(conn: &mut Conn, query: &str) -> Result<Option<f64>> {
        let rows: Vec<Row> = conn.query(query).await.context("cannot ask for the lag")?;
        let lags = rows.iter().filter_map(|row| row.get_opt::<Option<f64>, _>(0)?.ok().flatten());
        Ok(lags.fold(None, |most: Option<f64>, lag| Some(most.map_or(lag, |most| most.max(lag)))))
    }

    /// Stops what was started here.
    pub async fn close(mut self) {
        if let Some(playground) = self.playground.take() {
            playground.stop().await;
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
