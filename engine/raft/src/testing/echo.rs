//! The simplest machine worth testing with: it remembers what was applied, in order, and nothing
//! else; like the real ones it forgets in a crash what it did not persist.

use std::collections::BTreeMap;
use std::sync::Arc;

use env::Random;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use types::{Epoch, Error, Peer, Region, RegionId, Result};

use crate::machine::{
    Command, Effect, INITIAL_POSITION, Machine, Machines, Position, Room, SnapshotChunks,
    SnapshotSource,
};

/// What the machine understands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EchoCommand {
    /// Remember a value under a key.
    Put {
        /// Key; one outside the region is dropped.
        key: Vec<u8>,
        /// Value.
        value: u64,
    },
    /// Give the keys from `at` on to a new region.
    Split {
        /// First key of the child.
        at: Vec<u8>,
        /// The child's number.
        child: RegionId,
        /// The child's members.
        peers: Vec<Peer>,
        /// The parent's epoch when it was decided; under another one it is dropped.
        epoch: Epoch,
    },
}

impl EchoCommand {
    /// As bytes for a proposal.
    pub fn encode(&self) -> Result<Vec<u8>> {
        Ok(postcard::to_stdvec(self)?)
    }
}

/// What a machine remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EchoState {
    /// The region.
    pub region: Region,
    /// Index of the last entry.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Every put that took effect, in order: where, key, value.
    pub history: Vec<(u64, Vec<u8>, u64)>,
}

impl EchoState {
    /// The last value of a key.
    pub fn get(&self, key: &[u8]) -> Option<u64> {
        self.history.iter().rev().find(|(_, known, _)| known == key).map(|(_, _, value)| *value)
    }
}

#[derive(Default)]
struct Disk {
    visible: BTreeMap<RegionId, EchoState>,
    durable: BTreeMap<RegionId, EchoState>,
    full: bool,
    busy: Option<(Random, f64)>,
}

/// The machines of one node. Clones share what survives a crash.
#[derive(Clone, Default)]
pub struct EchoMachines {
    disk: Arc<Mutex<Disk>>,
    answers: Arc<RwLock<()>>,
}

impl EchoMachines {
    /// A node that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was not persisted; `all_survives` if it happened to reach the disk anyway.
    pub fn crash(&self, all_survives: bool) {
        let mut disk = self.disk.lock();
        if all_survives {
            disk.durable = disk.visible.clone();
        } else {
            disk.visible = disk.durable.clone();
        }
    }

    /// From now on there is no [`Room`] as often as `chance` says.
    pub fn be_busy(&self, random: Random, chance: f64) {
        self.disk.lock().busy = Some((random, chance));
    }

    /// Until what is returned goes, who makes or removes a machine waits as for a disk that does not answer.
    pub fn stop_answering(&self) -> impl Drop + '_ {
        self.answers.write()
    }

    /// Whether snapshots find no room, and what is to be removed stays.
    pub fn set_full(&self, full: bool) {
        self.disk.lock().full = full;
    }

    /// What readers see of a region.
    pub fn state(&self, region: RegionId) -> Option<EchoState> {
        self.disk.lock().visible.get(&region).cloned()
    }

    /// Every region.
    pub fn states(&self) -> Vec<EchoState> {
        self.disk.lock().visible.values().cloned().collect()
    }

    fn machine(&self, state: EchoState) -> Box<dyn Machine> {
        let durable = self.disk.lock().durable.get(&state.region.id).map_or(0, |kept| kept.index);
        Box::new(Echo { disk: self.disk.clone(), state, durable })
    }
}

impl Machines for EchoMachines {
    fn room(&self) -> Option<Room> {
        let disk = self.disk.lock();
        let busy = disk.busy.as_ref().is_some_and(|(random, chance)| random.chance(*chance));
        (!busy).then(|| Box::new(()) as Room)
    }

    fn recover(&self) -> Result<Vec<Box<dyn Machine>>> {
        let states: Vec<EchoState> = self.disk.lock().visible.values().cloned().collect();
        Ok(states.into_iter().map(|state| self.machine(state)).collect())
    }

    fn create(&self, region: &Region, initial: bool) -> Result<Box<dyn Machine>> {
        let _answers = self.answers.read();
        let at = if initial { INITIAL_POSITION } else { Position::default() };
        let state = EchoState {
            region: region.clone(),
            index: at.index,
            term: at.term,
            history: Vec::new(),
        };
        if self.disk.lock().visible.insert(region.id, state.clone()).is_some() {
            return Err(Error::exists("region", region.id.to_string()));
        }
        Ok(self.machine(state))
    }

    fn destroy(&self, region: &Region) -> Result<()> {
        let _answers = self.answers.read();
        let mut disk = self.disk.lock();
        if disk.full {
            return Err(Error::Io("no storage space".to_owned()));
        }
        disk.visible.remove(&region.id);
        disk.durable.remove(&region.id);
        Ok(())
    }
}

struct Echo {
    disk: Arc<Mutex<Disk>>,
    state: EchoState,
    durable: u64,
}

impl Echo {
    fn command(&mut self, at: Position, bytes: &[u8]) -> Result<Effect> {
        match postcard::from_bytes(bytes)? {
            EchoCommand::Put { key, .. } if !self.state.region.contains(&key) => {
                Ok(Effect::Dropped)
            }
            EchoCommand::Put { key, value } => {
                self.state.history.push((at.index, key, value));
                Ok(Effect::Applied)
            }
            EchoCommand::Split { epoch, .. } if epoch != self.state.region.epoch => {
                Ok(Effect::Dropped)
            }
            EchoCommand::Split { at: key, child, peers, .. } => {
                Ok(Effect::Split(vec![self.split(key, child, peers)]))
            }
        }
    }

    fn split(&mut self, at: Vec<u8>, child: RegionId, peers: Vec<Peer>) -> Box<dyn Machine> {
        let parent = &mut self.state.region;
        let epoch = Epoch { version: parent.epoch.version + 1, conf: parent.epoch.conf };
        let end = std::mem::replace(&mut parent.end, at.clone());
        parent.epoch = epoch;
        let region = Region { id: child, epoch, kind: parent.kind, start: at, end, peers };
        let (stays, goes) = std::mem::take(&mut self.state.history)
            .into_iter()
            .partition(|(_, key, _)| parent.contains(key));
        self.state.history = stays;
        let Position { index, term } = INITIAL_POSITION;
        let state = EchoState { region, index, term, history: goes };
        // Part of the parent's batch: written by its `finish_batch`.
        self.disk.lock().visible.insert(child, state.clone());
        Box::new(Echo { disk: self.disk.clone(), state, durable: 0 })
    }
}

impl Machine for Echo {
    fn region(&self) -> &Region {
        &self.state.region
    }

    fn applied(&self) -> Position {
        Position { index: self.state.index, term: self.state.term }
    }

    fn apply(&mut self, at: Position, command: Command<'_>) -> Result<Effect> {
        if at.index != self.state.index + 1 {
            let last = self.state.index;
            return Err(Error::Corrupt(format!("entry {} comes after {last}", at.index)));
        }
        let effect = match command {
            Command::Empty => Effect::Applied,
            Command::Data(bytes) => self.command(at, bytes)?,
            Command::Membership(region) => {
                self.state.region = region.clone();
                Effect::Applied
            }
        };
        self.state.index = at.index;
        self.state.term = at.term;
        Ok(effect)
    }

    fn finish_batch(&mut self) -> Result<()> {
        self.disk.lock().visible.insert(self.state.region.id, self.state.clone());
        Ok(())
    }

    fn durable_index(&self) -> u64 {
        self.durable
    }

    fn persist(&mut self) -> Result<()> {
        self.finish_batch()?;
        let mut disk = self.disk.lock();
        // One store, one sync: what is visible of every region becomes durable together.
        disk.durable = disk.visible.clone();
        self.durable = self.state.index;
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>> {
        let bytes = postcard::to_stdvec(&self.state)?;
        let chunks = bytes.chunks(64).map(<[u8]>::to_vec).collect();
        Ok(Box::new(Chunks(chunks)))
    }

    fn restore(
        &mut self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next_chunk()? {
            bytes.extend(chunk);
        }
        if self.disk.lock().full {
            return Err(Error::Io("no storage space".to_owned()));
        }
        let state: EchoState = postcard::from_bytes(&bytes)?;
        if (state.index, state.term) != (at.index, at.term) || &state.region != region {
            return Err(Error::Corrupt("the snapshot is not what its header says".to_owned()));
        }
        self.state = state;
        Ok(())
    }
}

struct Chunks(std::collections::VecDeque<Vec<u8>>);

impl SnapshotSource for Chunks {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(self.0.pop_front())
    }
}
