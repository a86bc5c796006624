//! Which process stands for a node, and which nodes are gone for good.
//!
//! Decided by commands alone. A node that was replaced at its address never comes back under its number,
//! and a process whose directories are an older copy of what placement has seen takes no part.

use types::{Error, NodeId, Result};

use crate::api::{Node, NodeRole, Session};
use crate::state::State;

impl State {
    /// Makes a node known, or updates its addresses; nodes whose place it takes are gone.
    pub(crate) fn register(&mut self, node: Node, session: &Session) -> Result<()> {
        self.check_registration(&node, session)?;
        if let Some(known) = self.nodes.get(&node.id)
            && known.role != node.role
        {
            return Err(Error::Invalid(format!(
                "node {} is a {:?} node already and cannot become a {:?} node: give the new node \
                 another number",
                node.id, known.role, node.role
            )));
        }
        let known = self.sessions.entry(node.id).or_default();
        if known.id != session.id {
            *known = session.begun();
        }
        for gone in self.displaced_by(&node) {
            self.nodes.remove(&gone);
            self.sessions.remove(&gone);
            self.gone.insert(gone, node.id);
        }
        self.next_id = self.next_id.max(node.id.saturating_add(1));
        self.nodes.insert(node.id, node);
        Ok(())
    }

    fn check_registration(&self, node: &Node, session: &Session) -> Result<()> {
        if self.gone.contains_key(&node.id) {
            return Err(revoked(node.id));
        }
        match self.sessions.get(&node.id) {
            Some(last) if last.id != session.id && !session.follows(last) => {
                Err(Error::Revoked(format!(
                    "node {}'s directories are an older copy: placement has seen start {} with mark \
                     {}, and they know of start {} with mark {}. Empty the data directory and the Raft \
                     log's and start it again: it joins as a new node",
                    node.id, last.boot, last.mark, session.known.boot, session.known.mark
                )))
            }
            _ => Ok(()),
        }
    }

    /// Nodes that were where this one is now: two processes cannot listen on one address.
    fn displaced_by(&self, node: &Node) -> Vec<NodeId> {
        let same = |other: &&Node| {
            other.id != node.id
                && other.role == node.role
                && other.rpc_address == node.rpc_address
                && (node.role == NodeRole::Row || other.client_address == node.client_address)
                && !node.rpc_address.is_empty()
        };
        // Whoever registered last is there; numbers only rise.
        let older = |other: &&Node| other.id < node.id;
        self.nodes.values().filter(same).filter(older).map(|other| other.id).collect()
    }

    /// Takes note of a session's mark.
    pub(crate) fn mark(&mut self, node: NodeId, session: u64, mark: u64) {
        if let Some(known) = self.sessions.get_mut(&node).filter(|known| known.id == session) {
            known.mark = known.mark.max(mark);
        }
    }

    /// An error unless the process of a node is the one that is registered.
    pub fn check_session(&self, node: NodeId, session: Option<u64>) -> Result<()> {
        if self.gone.contains_key(&node) {
            return Err(revoked(node));
        }
        match (self.sessions.get(&node), session) {
            (Some(known), Some(session)) if known.id != session => Err(Error::Revoked(format!(
                "another process has registered as node {node}: stop one of the two, and empty its \
                 directories if it is a copy"
            ))),
            _ => Ok(()),
        }
    }

    /// The node that is where a gone one was, if it is known.
    pub fn successor(&self, gone: NodeId) -> Option<NodeId> {
        let mut node = gone;
        while let Some(next) = self.gone.get(&node) {
            // Numbers rise along the way, so it ends.
            if *next <= node {
                return None;
            }
            node = *next;
        }
        self.nodes.contains_key(&node).then_some(node)
    }
}

fn revoked(node: NodeId) -> Error {
    Error::Revoked(format!(
        "node {node} was replaced and its peers are given to others: empty the data directory and the \
         Raft log's and start it again, and it joins as a new node"
    ))
}
