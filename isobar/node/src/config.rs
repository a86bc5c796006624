//! A node's settings: one small TOML file, checked whole before anything starts.
//!
//! Thirteen keys. What nobody will turn is a constant beside the code that uses it. The page
//! `docs/reference/configuration.md` is made of the doc comments here: whose a key is stands at the beginning, what is
//! done without one that may be absent behind `;`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use types::NodeId;

/// The Raft log's directory below the data directory, unless it is named.
pub const LOG_DIR: &str = "raft-log";

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds rows, and with its peers placement.
    Row,
    /// Answers MySQL clients.
    Sql,
    /// Holds columns and answers Arrow Flight clients.
    Columnar,
}

impl Role {
    /// Name as in the file.
    pub fn name(self) -> &'static str {
        match self {
            Role::Row => "row",
            Role::Sql => "sql",
            Role::Columnar => "columnar",
        }
    }
}

/// A member of placement: one of the first row nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The row node's number.
    pub id: NodeId,
    /// Its internal address.
    pub address: SocketAddr,
}

/// Settings of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What the node is for: `row`, `sql` or `columnar`.
    pub role: Role,
    /// Where this node keeps its files; created if missing.
    pub data_dir: PathBuf,
    /// Internal address that other nodes reach it at.
    pub rpc_address: SocketAddr,
    /// Row nodes: the number in `placement`, a label; others than members take any other number. Who a
    /// node is stands in its directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// Row and columnar nodes: where the Raft log lives; `raft-log` in `data_dir` if not given. On a row
    /// node a disk of its own keeps commits from waiting for other I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raft_log_dir: Option<PathBuf>,
    /// SQL nodes: where MySQL clients connect. A row node that has one answers them itself, and reaches what it leads
    /// without a call between processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mysql_address: Option<SocketAddr>,
    /// SQL nodes: certificate chain (PEM); self-made in `data_dir` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_certificate: Option<PathBuf>,
    /// SQL nodes: private key (PEM) of `tls_certificate`, given with it; self-made in `data_dir` if not
    /// given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// SQL nodes: most connections at a time.
    #[serde(default = "default_connections")]
    pub max_connections: usize,
    /// Columnar nodes: where Arrow Flight clients connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flight_address: Option<SocketAddr>,
    /// Columnar nodes: memory for queries, in MiB.
    #[serde(default = "default_query_memory")]
    pub query_memory_mib: usize,
    /// Columnar nodes: memory for columns that stay decoded between scans, in MiB.
    #[serde(default = "default_column_cache")]
    pub column_cache_mib: usize,
    /// The members of placement, the same on every node.
    pub placement: Vec<Member>,
}

fn default_connections() -> usize {
    1000
}

fn default_query_memory() -> usize {
    2048
}

fn default_column_cache() -> usize {
    2048
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the config file {}", path.display()))?;
        let config: Config = toml::from_str(&text)
            .with_context(|| format!("{} is not a valid config file", path.display()))?;
        config.check().with_context(|| format!("in {}", path.display()))?;
        Ok(config)
    }

    /// Writes the file.
    pub fn store(&self, path: &Path) -> Result<()> {
        let text = toml::to_string_pretty(self).context("config cannot be written as TOML")?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// All settings by name, as they are in the file or without it; no secrets are among them, only where those lie.
    pub fn shown(&self) -> BTreeMap<String, String> {
        let Ok(toml::Value::Table(all)) = toml::Value::try_from(self) else {
            return BTreeMap::new();
        };
        let text = |value: toml::Value| match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        all.into_iter().map(|(name, value)| (name, text(value))).collect()
    }

    /// Where the Raft log lives.
    pub fn log_dir(&self) -> PathBuf {
        self.raft_log_dir.clone().unwrap_or_else(|| self.data_dir.join(LOG_DIR))
    }

    /// What a role needs and what contradicts itself.
    pub fn check(&self) -> Result<()> {
        if self.placement.is_empty() {
            bail!(
                "`placement` is empty: name at least one row node as {{ id = 1, address = \"…\" }}"
            );
        }
        let mut ids: Vec<_> = self.placement.iter().map(|member| member.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != self.placement.len() || ids.first() == Some(&0) {
            bail!("`placement` needs distinct ids above 0");
        }
        match self.role {
            Role::Row if self.node_id.is_none() => {
                bail!("role = \"row\" needs `node_id`: its number in `placement`")
            }
            Role::Sql if self.mysql_address.is_none() => {
                bail!("role = \"sql\" needs `mysql_address`, for example \"127.0.0.1:4000\"")
            }
            Role::Columnar if self.flight_address.is_none() => {
                bail!("role = \"columnar\" needs `flight_address`, for example \"127.0.0.1:4040\"")
            }
            _ => {}
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            bail!("`tls_certificate` and `tls_key` belong together: give both or neither");
        }
        Ok(())
    }
}

#[cfg(test)]
mod page;
