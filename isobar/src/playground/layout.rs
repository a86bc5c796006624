//! Which processes a playground has, where they listen and where they keep their files.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::cpus::Cpus;
use bench::playground::BATCH_SQL;
use node::config::{Config, Member, Role};

use super::Args;
use crate::health::Expected;

const MYSQL: u16 = 0;
const BATCH_MYSQL: u16 = 10;
const ROW_RPC: u16 = 20;
const COLUMNAR_RPC: u16 = 30;
const FLIGHT: u16 = 40;

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// `row-1`, `sql`, `columnar-2`, `sql-batch`.
    pub name: String,
    /// Its settings.
    pub config: Config,
    /// Its settings' file.
    pub config_path: PathBuf,
    /// Its log.
    pub log_path: PathBuf,
    /// The processors that it may run on, if not all.
    pub cpus: Option<Cpus>,
}

/// A playground's processes.
#[derive(Clone, Debug)]
pub struct Layout {
    /// In the order they start.
    pub processes: Vec<Process>,
    /// Members of placement.
    pub placement: Vec<Member>,
    /// What a healthy cluster shows.
    pub expected: Expected,
    port_base: u16,
}

impl Layout {
    /// Plans the processes and writes their config files below `data`.
    pub fn prepare(data: &Path, args: &Args) -> Result<Self> {
        let Args { row, sql, batch_sql, columnar, port_base, .. } = *args;
        std::fs::create_dir_all(data)
            .with_context(|| format!("cannot create the data directory {}", data.display()))?;
        let data = data
            .canonicalize()
            .with_context(|| format!("cannot use the data directory {}", data.display()))?;
        let address = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port_base + offset));
        let placement: Vec<Member> = (1..=row.min(3))
            .map(|n| Member { id: u64::from(n), address: address(ROW_RPC + n - 1) })
            .collect();
        let base = |role: Role, name: &str, rpc: u16| Config {
            role,
            data_dir: data.join(name),
            rpc_address: address(rpc),
            node_id: None,
            raft_log_dir: None,
            mysql_address: None,
            tls_certificate: None,
            tls_key: None,
            max_connections: 1000,
            flight_address: None,
            query_memory_mib: 2048,
            column_cache_mib: 2048,
            placement: placement.clone(),
        };
        let mut configs = Vec::new();
        for n in 1..=row {
            let name = format!("row-{n}");
            let mut config = base(Role::Row, &name, ROW_RPC + n - 1);
            config.node_id = Some(u64::from(n));
            config.mysql_address = (sql == 0).then(|| address(MYSQL + n - 1));
            configs.push((name, config));
        }
        for n in 1..=columnar {
            let name = format!("columnar-{n}");
            let mut config = base(Role::Columnar, &name, COLUMNAR_RPC + n - 1);
            config.flight_address = Some(address(FLIGHT + n - 1));
            configs.push((name, config));
        }
        let mut sql_node = |name: &str, rpc: u16, mysql: u16| {
            let mut config = base(Role::Sql, name, rpc);
            config.mysql_address = Some(address(mysql));
            configs.push((name.to_owned(), config));
        };
        for n in 1..=sql {
            let name = if n == 1 { "sql".to_owned() } else { format!("sql-{n}") };
            sql_node(&name, ROW_RPC - n, MYSQL + n - 1);
        }
        if batch_sql {
            sql_node(BATCH_SQL, ROW_RPC - sql - 1, BATCH_MYSQL);
        }

        let mut processes = Vec::new();
        for (name, config) in configs {
            std::fs::create_dir_all(&config.data_dir)
                .with_context(|| format!("cannot create {}", config.data_dir.display()))?;
            let batch = config.role == Role::Columnar || name == BATCH_SQL;
            let cpus = if batch { &args.batch_cpus } else { &args.online_cpus };
            let process = Process {
                cpus: cpus.clone(),
                config_path: config.data_dir.join("isobar.toml"),
                log_path: config.data_dir.join("isobar.log"),
                name,
                config,
            };
            process.config.check()?;
            process.config.store(&process.config_path)?;
            processes.push(process);
        }
        let sql = sql + u16::from(batch_sql);
        let expected = Expected { row: row.into(), sql: sql.into(), columnar: columnar.into() };
        Ok(Layout { processes, placement, expected, port_base })
    }

    /// Every port must be free before anything starts.
    pub fn check_ports(&self) -> Result<()> {
        for process in &self.processes {
            let config = &process.config;
            let ports = [Some(config.rpc_address), config.mysql_address, config.flight_address];
            for address in ports.into_iter().flatten() {
                if let Err(error) = TcpListener::bind(address) {
                    bail!(
                        "{address} (for {}) is not free: {error}; stop what uses it or choose \
                         other ports with --port-base (now {})",
                        process.name,
                        self.port_base
                    );
                }
            }
        }
        Ok(())
    }

    fn flight_addresses(&self) -> Vec<SocketAddr> {
        self.processes.iter().filter_map(|process| process.config.flight_address).collect()
    }

    /// How to connect.
    pub fn welcome(&self, took: Duration, temporary: bool) -> String {
        let mysql = self.port_base + MYSQL;
        let flight = self.flight_addresses();
        let endpoints: Vec<String> = flight.iter().map(ToString::to_string).collect();
        let mut text = String::new();
        let Expected { row, sql, columnar } = self.expected;
        let plural = if sql == 1 { "" } else { "s" };
        let answers = self.processes.iter().any(|process| {
            process.config.role == Role::Row && process.config.mysql_address.is_some()
        });
        let rows = if answers { "row nodes that answer MySQL clients" } else { "row nodes" };
        let _ = writeln!(
            text,
            "Isobar is up after {:.1} s: {row} {rows}, {sql} SQL node{plural}, {columnar} columnar nodes.\n",
            took.as_secs_f64()
        );
        let _ = writeln!(text, "  MySQL    mysql -h 127.0.0.1 -P {mysql} -u root");
        if let Some(first) = flight.first() {
            let _ = writeln!(text, "  Flight   grpc://{first} (user root, empty password)");
            let _ = writeln!(
                text,
                "  Spark    --conf spark.sql.catalog.isobar=org.isobar.spark.IsobarCatalog \\\n           \
                 --conf spark.sql.catalog.isobar.endpoints={}",
                endpoints.join(",")
            );
        }
        let members: Vec<String> =
            self.placement.iter().map(|member| member.address.to_string()).collect();
        let _ = writeln!(text, "  Status   isobar ctl status --placement {}", members.join(","));
        let kept = if temporary { "removed at the end; keep it with --data DIR" } else { "kept" };
        if let Some(dir) =
            self.processes.first().and_then(|process| process.config.data_dir.parent())
        {
            let _ = writeln!(text, "  Data     {} ({kept})", dir.display());
        }
        text.push_str("\nCtrl-C stops everything.\n");
        text
    }
}
