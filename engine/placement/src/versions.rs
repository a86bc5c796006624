//! The cluster's version: what nodes' programs speak, as they say with each registration and heartbeat, and when the
//! cluster goes on to what all of them speak.
//!
//! It never falls: a program that does not speak it is refused by name.

use types::{ClusterVersion, NodeId, Result, version};

use crate::api::{Request, Response};
use crate::command::Command;
use crate::leader_state::LeaderState;
use crate::service::PlacementService;
use crate::state::State;

impl LeaderState {
    /// Takes note of what a node's program speaks.
    pub fn note_version(&mut self, node: NodeId, speaks: ClusterVersion) {
        self.versions.insert(node, speaks);
    }

    /// What each node speaks, where it has said so to this leader.
    pub fn versions(&self, state: &State) -> Vec<(NodeId, Option<ClusterVersion>)> {
        state.nodes.keys().map(|node| (*node, self.versions.get(node).copied())).collect()
    }

    /// What all nodes speak; none before each of them has said it.
    pub fn spoken(&self, state: &State) -> Option<ClusterVersion> {
        let all: Option<Vec<ClusterVersion>> =
            self.versions(state).into_iter().map(|(_, speaks)| speaks).collect();
        all?.into_iter().min()
    }
}

impl PlacementService {
    /// The cluster's version, as this node knows it.
    pub fn version(&self) -> ClusterVersion {
        self.view.read().version
    }

    /// Takes note of what the sender of a request speaks, where it says who it is.
    ///
    /// # Errors
    ///
    /// `Invalid` for a node whose program does not speak the cluster's version.
    pub(crate) fn check_sender(&self, request: &Request, speaks: ClusterVersion) -> Result<()> {
        let node = match request {
            Request::Register { node, .. } => node.id,
            Request::Heartbeat { node, .. } => *node,
            _ => return Ok(()),
        };
        let term = self.lead()?;
        version::check_program(speaks, self.version())?;
        self.leader_state(term)?.note_version(node, speaks);
        Ok(())
    }

    pub(crate) async fn versions(&self) -> Result<Response> {
        let term = self.lead()?;
        self.confirm(term).await?;
        let (leader, state) = (self.leader_state(term)?, self.view.read());
        Ok(Response::Versions { cluster: state.version, nodes: leader.versions(&state) })
    }

    /// Raises the cluster's version to what all nodes speak.
    pub(crate) async fn raise_version(&self, term: u64) -> Result<()> {
        let spoken = {
            let (leader, state) = (self.leader_state(term)?, self.view.read());
            leader.spoken(&state).filter(|spoken| *spoken > state.version)
        };
        if let Some(spoken) = spoken {
            self.propose_in(term, Command::RaiseVersion(spoken)).await?;
            tracing::info!(version = spoken, "all nodes speak this version of the cluster");
        }
        Ok(())
    }
}
