//! The cluster's version: what nodes' programs speak, as they say with each registration and heartbeat, and when the
//! cluster goes on to what all of them speak.
//!
//! It never falls: a program that does not speak it is refused by name.

use env::{Clock, Instant};
use types::{ClusterVersion, NodeId, Result, version};

use crate::api::{Node, NodeRole, Response};
use crate::command::Command;
use crate::leader_state::LeaderState;
use crate::service::PlacementService;
use crate::state::State;

impl LeaderState {
    /// What each node's program speaks, where it has said so to this leader.
    pub fn versions(&self, state: &State) -> Vec<(NodeId, Option<ClusterVersion>)> {
        state.nodes.keys().map(|node| (*node, self.versions.get(node).copied())).collect()
    }

    /// What all nodes speak, the members of placement's group among them; none before each has said it. SQL and columnar
    /// nodes that have said nothing for as long as [`GONE_AFTER`](crate::leader_state::GONE_AFTER) are not waited for: they
    /// must register again, and are refused then.
    pub fn spoken(
        &self,
        state: &State,
        members: &[NodeId],
        now: Instant,
    ) -> Option<ClusterVersion> {
        let counts = |node: &&Node| node.role == NodeRole::Row || !self.is_gone(node.id, now);
        let nodes = state.nodes.values().filter(counts).map(|node| node.id);
        let all: Option<Vec<ClusterVersion>> = nodes
            .chain(members.iter().copied())
            .map(|node| self.versions.get(&node).copied())
            .collect();
        all?.into_iter().min()
    }
}

impl PlacementService {
    /// The cluster's version, as this node knows it.
    pub fn version(&self) -> ClusterVersion {
        self.view.read().version
    }

    /// Refuses a node whose program does not speak the cluster's version. Of one that has spoken more before it is known at
    /// once, of one that speaks more only when it has been heard: another process of the node may be refused.
    ///
    /// # Errors
    ///
    /// `Invalid`, with both versions.
    pub(crate) fn check_sender(&self, node: NodeId, speaks: ClusterVersion) -> Result<()> {
        let term = self.lead()?;
        version::check_program(speaks, self.version())?;
        let mut leader = self.leader_state(term)?;
        leader.versions.entry(node).and_modify(|known| *known = speaks.min(*known));
        Ok(())
    }

    /// Takes note of what a node speaks whose registration or heartbeat was taken.
    pub(crate) fn note_version(&self, node: NodeId, speaks: ClusterVersion) {
        if let Ok(mut leader) = self.lead().and_then(|term| self.leader_state(term)) {
            leader.versions.insert(node, speaks);
        }
    }

    pub(crate) async fn versions(&self) -> Result<Response> {
        let term = self.lead()?;
        self.confirm(term).await?;
        let (leader, state) = (self.leader_state(term)?, self.view.read());
        Ok(Response::Versions { cluster: state.version, nodes: leader.versions(&state) })
    }

    /// Raises the cluster's version to what all nodes speak.
    pub(crate) async fn raise_version(&self, term: u64) -> Result<()> {
        let members: Vec<NodeId> = self.peer()?.region.peers.iter().map(|peer| peer.node).collect();
        let spoken = {
            let (leader, state) = (self.leader_state(term)?, self.view.read());
            let spoken = leader.spoken(&state, &members, self.clock.now());
            spoken.filter(|spoken| *spoken > state.version)
        };
        if let Some(spoken) = spoken {
            self.propose_in(term, Command::RaiseVersion(spoken)).await?;
            tracing::info!(version = spoken, "all nodes speak this version of the cluster");
        }
        Ok(())
    }
}
