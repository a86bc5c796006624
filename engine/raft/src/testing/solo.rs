//! One node without Raft: proposals are applied at once. For tests of what stands above.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use types::{Error, NodeId, Peer, PeerId, PeerRole, Region, RegionId, Result};

use crate::groups::{Groups, PeerStatus, Pending};
use crate::machine::{Command, Effect, INITIAL_POSITION, Machine, Machines, Position};
use crate::reply::at_once;

struct Solo {
    machine: Box<dyn Machine>,
    term: u64,
}

struct State {
    node: NodeId,
    machines: Box<dyn Machines>,
    peers: BTreeMap<RegionId, Solo>,
}

/// A one-node stand-in for a store: every region is led here, in a term that changes only by
/// [`SoloGroups::next_term`].
pub struct SoloGroups {
    state: Mutex<State>,
}

impl SoloGroups {
    /// A node with the machines that it recovers.
    pub fn open(node: NodeId, machines: Box<dyn Machines>) -> Result<Self> {
        let recovered = machines.recover()?;
        let mut state = State { node, machines, peers: BTreeMap::new() };
        for machine in recovered {
            state.lead(machine)?;
        }
        Ok(SoloGroups { state: Mutex::new(state) })
    }

    /// Leadership changes hands and comes back: what was decided before must be refused.
    pub fn next_term(&self, region: RegionId) -> Result<u64> {
        let mut state = self.state.lock();
        let solo = state.peer(region)?;
        solo.term += 1;
        solo.apply(Command::Empty)?;
        Ok(solo.term)
    }

    /// Calls into a region's machine.
    pub fn with_machine<R>(
        &self,
        region: RegionId,
        call: impl FnOnce(&mut dyn Machine) -> R,
    ) -> Result<R> {
        let mut state = self.state.lock();
        Ok(call(state.peer(region)?.machine.as_mut()))
    }
}

impl Solo {
    fn apply(&mut self, command: Command<'_>) -> Result<(Position, Effect)> {
        let at = Position { index: self.machine.applied().index + 1, term: self.term };
        let effect = self.machine.apply(at, command)?;
        self.machine.finish_batch()?;
        Ok((at, effect))
    }
}

impl State {
    fn peer(&mut self, region: RegionId) -> Result<&mut Solo> {
        self.peers.get_mut(&region).ok_or(Error::RegionNotFound(region))
    }

    fn lead(&mut self, machine: Box<dyn Machine>) -> Result<()> {
        let region = machine.region().id;
        let term = machine.applied().term.max(INITIAL_POSITION.term) + 1;
        let mut solo = Solo { machine, term };
        solo.apply(Command::Empty)?;
        self.peers.insert(region, solo);
        Ok(())
    }

    fn propose(&mut self, region: RegionId, term: u64, data: &[u8]) -> Result<Position> {
        let node = self.node;
        let solo = self.peer(region)?;
        if solo.term != term {
            return Err(Error::NotLeader { region, leader: Some(node) });
        }
        let (at, effect) = solo.apply(Command::Data(data))?;
        match effect {
            Effect::Applied => Ok(at),
            Effect::Dropped => {
                Err(Error::Dropped("decided under another term or epoch".to_owned()))
            }
            Effect::Split(children) => {
                for child in children {
                    self.lead(child)?;
                }
                Ok(at)
            }
        }
    }

    fn create(&mut self, region: &Region) -> Result<()> {
        if self.peers.contains_key(&region.id) {
            return Ok(());
        }
        let machine = self.machines.create(region, true)?;
        self.lead(machine)
    }

    fn change(&mut self, id: RegionId, peers: Vec<Peer>) -> Result<Region> {
        let solo = self.peer(id)?;
        let mut region = solo.machine.region().clone();
        region.peers = peers;
        region.epoch.conf += 1;
        solo.apply(Command::Membership(&region))?;
        Ok(region)
    }

    fn status(&self, solo: &Solo) -> PeerStatus {
        let region = solo.machine.region().clone();
        let role = PeerRole::Voter;
        let peer = region.peer_on(self.node).copied().unwrap_or(Peer {
            id: self.node,
            node: self.node,
            role,
        });
        let applied = solo.machine.applied();
        PeerStatus {
            region: Arc::new(region),
            peer,
            leader: Some(peer),
            term: solo.term,
            decides: true,
            alone: true,
            applied,
            committed: applied.index,
            ready: true,
            fault: None,
            stopped: false,
            lost: false,
        }
    }
}

impl Groups for SoloGroups {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        let state = self.state.lock();
        state.peers.get(&region).map(|solo| state.status(solo))
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        let state = self.state.lock();
        state.peers.values().map(|solo| state.status(solo)).collect()
    }

    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        at_once(self.state.lock().propose(region, term, &data))
    }

    fn read_index(&self, region: RegionId) -> Pending<u64> {
        at_once(self.state.lock().peer(region).map(|solo| solo.machine.applied().index))
    }

    fn reached(&self, region: RegionId, index: u64) -> Pending<()> {
        let mut state = self.state.lock();
        let applied = state.peer(region).map(|solo| solo.machine.applied().index);
        at_once(applied.and_then(|applied| match applied >= index {
            true => Ok(()),
            false => Err(Error::Unavailable(format!("region {region} has applied {applied}"))),
        }))
    }

    fn change_membership(&self, region: RegionId, peers: Vec<Peer>) -> Pending<Region> {
        at_once(self.state.lock().change(region, peers))
    }

    fn transfer(&self, _region: RegionId, _to: PeerId) {}

    fn create(&self, region: Region) -> Pending<()> {
        at_once(self.state.lock().create(&region))
    }

    fn destroy(&self, region: RegionId) -> Pending<()> {
        let mut state = self.state.lock();
        let result = match state.peers.remove(&region) {
            Some(solo) => {
                let region = solo.machine.region().clone();
                drop(solo);
                state.machines.destroy(&region)
            }
            None => Ok(()),
        };
        at_once(result)
    }
}
