//! How this process becomes part of a cluster: its directories, and its way to the listed members.
//!
//! What is done with them is placement's business.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use placement::api::{Node, NodeRole};
use placement::entry::{Entry, FormationTransport, Me};
use placement::formation::ClusterId;
use placement::formation::{Answer, Request};
use placement::identity::Directories;
use placement::participant::Participant;
use raft::StoreHandle;
use rpc::{Channels, RpcClient};

use crate::Common;
use crate::config::Role;

/// To the listed members over gRPC.
struct Members {
    rpc: RpcClient,
    channels: Channels,
}

#[async_trait]
impl FormationTransport for Members {
    async fn send(&self, address: &str, request: &Request) -> types::Result<Answer> {
        self.rpc.formation(address, request).await
    }

    fn join(&self, cluster: ClusterId) {
        self.channels.join(cluster);
    }
}

impl Common {
    /// Opens this node's directories.
    pub(crate) fn participant(&self) -> Result<Arc<Participant>> {
        let config = &self.config;
        let log_dir = self.config.log_dir();
        let (log, contents): (Option<PathBuf>, &[&str]) = match config.role {
            Role::Row => (Some(log_dir), &crate::row::CONTENTS),
            Role::Columnar => (Some(log_dir), &["columns", "spool"]),
            Role::Sql => (None, &[]),
        };
        let disk = self.disk.clone();
        let directories = Directories::new(disk, &config.data_dir, log.as_deref(), contents);
        let listed = config.placement.iter().map(|member| member.id).collect();
        let label = config.node_id.unwrap_or(0);
        Ok(Arc::new(Participant::open(directories, label, listed, env::Random::from_os().u64())?))
    }

    fn entry(&self) -> Entry {
        let config = &self.config;
        let members = Members { rpc: self.rpc.clone(), channels: self.channels.clone() };
        let listed = config.placement.iter();
        Entry {
            role: match config.role {
                Role::Row => NodeRole::Row,
                Role::Columnar => NodeRole::Columnar,
                Role::Sql => NodeRole::Sql,
            },
            label: config.node_id,
            listed: listed.map(|member| (member.id, member.address.to_string())).collect(),
            members: Arc::new(members),
            placement: self.placement.clone(),
            random: env::Random::from_os(),
        }
    }

    /// Who this node is: as its directories say, or as a new one.
    pub(crate) async fn establish(&self, participant: &Participant) -> Result<Me> {
        Ok(self.entry().establish(participant).await?)
    }

    /// Has placement register this process.
    pub(crate) async fn register(&self, me: &Me, node: Node) -> Result<()> {
        let registered = self.entry().register(me, node).await;
        registered.context("placement does not register this node")
    }

    /// Registers, and takes part in this node's groups from then on.
    pub(crate) async fn take_part(
        &self,
        me: &Me,
        node: Node,
        store: &StoreHandle,
        bootstrapped: bool,
    ) -> Result<()> {
        let participate = |participation| store.participate(participation);
        let entry = self.entry();
        let part = entry.take_part(me, node, participate, bootstrapped).await;
        part.context("placement does not register this node")
    }
}
