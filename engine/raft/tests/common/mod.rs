//! A simulated cluster of machines that remember what they received.
#![allow(dead_code)]

use std::collections::BTreeMap;

use futures::FutureExt;
use raft::testing::{EchoCommand, EchoMachines, EchoState, SimCluster, SimOptions};
use raft::{Groups, Pending, Position};
use types::{Epoch, NodeId, Peer, PeerRole, Region, RegionId, RegionKind, Result};

/// A cluster and the machines of its nodes.
pub struct Rig {
    pub cluster: SimCluster,
    pub machines: BTreeMap<NodeId, EchoMachines>,
    _root: tempfile::TempDir,
}

impl Rig {
    pub fn new(nodes: u64, seed: u64) -> Self {
        Self::with(SimOptions { nodes, seed, ..SimOptions::default() })
    }

    pub fn with(options: SimOptions) -> Self {
        let root = tempfile::tempdir().unwrap();
        let machines: BTreeMap<NodeId, EchoMachines> =
            (1..=options.nodes).map(|node| (node, EchoMachines::new())).collect();
        let shared = machines.clone();
        let maker = Box::new(move |node: NodeId| {
            Box::new(shared.get(&node).unwrap().clone()) as Box<dyn raft::Machines>
        });
        let cluster = SimCluster::start(options, root.path(), maker).unwrap();
        Rig { cluster, machines, _root: root }
    }

    pub fn crash(&mut self, node: NodeId, all_survives: bool) {
        self.cluster.crash(node).unwrap();
        self.machines[&node].crash(all_survives);
    }

    pub fn state(&self, node: NodeId, region: RegionId) -> EchoState {
        self.machines[&node].state(region).unwrap()
    }

    pub fn wait_leader(&mut self, region: RegionId) -> NodeId {
        let found = self.cluster.run_until(200, |cluster| cluster.leader(region).is_some());
        assert!(found, "region {region} has no leader");
        self.cluster.leader(region).unwrap()
    }

    /// Lets time pass until an answer comes.
    pub fn answer<T: Send + 'static>(&mut self, mut pending: Pending<T>, ticks: u64) -> Result<T> {
        let mut answer = None;
        let came = self.cluster.run_until(ticks, |_| {
            answer = (&mut pending).now_or_never();
            answer.is_some()
        });
        assert!(came, "no answer within {ticks} ticks");
        answer.unwrap()
    }

    /// Proposes through the leader and waits.
    pub fn write(&mut self, region: RegionId, key: &str, value: u64) -> Result<Position> {
        let leader = self.wait_leader(region);
        let groups = self.cluster.groups(leader).unwrap();
        let term = groups.status(region).unwrap().term;
        let pending = groups.propose(region, term, put(key, value));
        self.answer(pending, 300)
    }
}

pub fn put(key: &str, value: u64) -> Vec<u8> {
    EchoCommand::Put { key: key.as_bytes().to_vec(), value }.encode().unwrap()
}

/// A region over all keys, with voters on the nodes.
pub fn region(id: RegionId, nodes: &[NodeId]) -> Region {
    let voter = |node: &NodeId| Peer { id: id * 1000 + node, node: *node, role: PeerRole::Voter };
    Region {
        id,
        epoch: Epoch { version: 1, conf: 1 },
        kind: RegionKind::Records(1),
        start: vec![],
        end: vec![0xff],
        peers: nodes.iter().map(voter).collect(),
    }
}
