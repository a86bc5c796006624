//! The state machine of placement's Raft group: commands in, one small state out.
//!
//! It decides nothing, reads no clock and contacts nobody. The whole state is one value in the
//! key-value store, written together with its applied position; between two such writes the Raft
//! log is what survives.

use std::sync::Arc;

use kv::{Keyspace, KvEngine, WriteBatch};
use raft::{Command as Entry, Effect, Machine, Position, SnapshotChunks, SnapshotSource};
use serde::{Deserialize, Serialize};
use types::{ClusterVersion, Error, Region, Result, version};

use crate::api::{Catalog, ForeignKeys, ResourceGroups, Runaways};
use crate::command::{Command, Proposal};
use crate::state::State;
use crate::view::View;

/// Where the state lies in [`Keyspace::Meta`].
const STATE_KEY: &[u8] = b"placement/state";

/// First byte of the stored value and of a snapshot: the format of what follows.
const FORMAT: u8 = 10;

/// The same up to cluster version 9: without foreign keys at the end.
const FORMAT_OF_VERSION_9: u8 = 9;

/// The same up to cluster version 7: without watched queries and runaways at the end.
const FORMAT_OF_VERSION_7: u8 = 8;

/// The same up to cluster version 6: without resource groups at the end.
const FORMAT_OF_VERSION_6: u8 = 7;

/// The same up to cluster version 1, whose programs read no other: without the cluster's version at the end.
const FORMAT_OF_VERSION_1: u8 = 6;

/// Bytes of a snapshot's chunk.
const CHUNK: usize = 1 << 20;

/// What is stored before the state.
type Place = (Region, u64, u64);

/// What is stored behind the state and the cluster's version.
type Behind = (ResourceGroups, Runaways, ForeignKeys);

/// The same up to cluster version 9.
type BehindVersion9 = (ResourceGroups, Runaways);

/// Placement's machine on one node.
pub struct PlacementMachine {
    store: Arc<dyn KvEngine>,
    view: Arc<View>,
    region: Region,
    applied: Position,
    durable: u64,
    announce: bool,
}

impl PlacementMachine {
    /// The machine that this node's store holds, if any, with its state shown in `view`.
    pub fn recover(store: Arc<dyn KvEngine>, view: Arc<View>) -> Result<Option<Self>> {
        let Some(bytes) = store.get(Keyspace::Meta, STATE_KEY)? else { return Ok(None) };
        let ((region, index, term), state): (Place, State) = decode(&bytes)?;
        let applied = Position { index, term };
        view.replace(state);
        let durable = applied.index;
        Ok(Some(Self { store, view, region, applied, durable, announce: false }))
    }

    /// A new machine at `at`, recorded durably so that a restart finds it.
    pub fn create(
        store: Arc<dyn KvEngine>,
        view: Arc<View>,
        region: &Region,
        at: Position,
    ) -> Result<Self> {
        view.replace(State::new());
        let region = region.clone();
        let mut machine = Self { store, view, region, applied: at, durable: 0, announce: false };
        machine.persist()?;
        Ok(machine)
    }

    /// Removes what is stored.
    pub fn destroy(self) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.delete(Keyspace::Meta, STATE_KEY);
        self.store.write(batch)?;
        self.store.sync()?;
        self.view.replace(State::new());
        Ok(())
    }

    fn apply_proposal(&mut self, bytes: &[u8]) -> Result<()> {
        let Proposal { ticket, command } = postcard::from_bytes(bytes)?;
        // Timestamps and numbers come often and interest no waiter.
        self.announce |= matches!(
            command,
            Command::Register { .. }
                | Command::Report { .. }
                | Command::Purge(_)
                | Command::Change { .. }
                | Command::SetSigningKey(_)
                | Command::GoOn(_)
        );
        let outcome = self.view.change(|state| state.apply(command));
        self.view.settle(ticket, outcome);
        Ok(())
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let state = self.view.read();
        let Position { index, term } = self.applied;
        encode(&(&self.region, index, term), &state)
    }

    fn write(&self, bytes: Vec<u8>) -> Result<()> {
        let mut batch = WriteBatch::default();
        batch.put(Keyspace::Meta, STATE_KEY, bytes);
        self.store.write(batch)?;
        self.store.sync()
    }
}

impl Machine for PlacementMachine {
    fn region(&self) -> &Region {
        &self.region
    }

    fn applied(&self) -> Position {
        self.applied
    }

    fn apply(&mut self, at: Position, command: Entry<'_>) -> Result<Effect> {
        match command {
            Entry::Empty => {}
            Entry::Data(bytes) => self.apply_proposal(bytes)?,
            Entry::Membership(region) => {
                self.region = region.clone();
                self.announce = true;
            }
        }
        self.applied = at;
        Ok(Effect::Applied)
    }

    fn finish_batch(&mut self) -> Result<()> {
        if std::mem::take(&mut self.announce) {
            self.view.announce();
        }
        Ok(())
    }

    fn durable_index(&self) -> u64 {
        self.durable
    }

    fn persist(&mut self) -> Result<()> {
        self.write(self.encode()?)?;
        self.durable = self.applied.index;
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>> {
        let state = self.view.read();
        let bytes = encode(&(), &state)?;
        Ok(Box::new(Chunks { bytes, at: 0 }))
    }

    fn restore(
        &mut self,
        region: &Region,
        at: Position,
        chunks: &mut dyn SnapshotChunks,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next_chunk()? {
            bytes.extend_from_slice(&chunk);
        }
        let ((), state) = decode(&bytes)?;
        self.region = region.clone();
        self.applied = at;
        self.view.replace(state);
        // One batch: a crash leaves the old state at its old position or the new one at its own.
        self.persist()
    }
}

/// A snapshot being sent.
struct Chunks {
    bytes: Vec<u8>,
    at: usize,
}

impl SnapshotSource for Chunks {
    fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let chunk = rest.chunks(CHUNK).next().map(<[u8]>::to_vec);
        self.at += chunk.as_ref().map_or(0, Vec::len);
        Ok(chunk)
    }
}

/// The state behind its place. Serialised from borrows: it is not copied for that.
fn encode<T: Serialize>(place: &T, state: &State) -> Result<Vec<u8>> {
    match state.version {
        ..=1 => Ok(postcard::to_extend(&(place, state), vec![FORMAT_OF_VERSION_1])?),
        version @ ..version::RESOURCE_GROUPS => {
            Ok(postcard::to_extend(&(place, state, version), vec![FORMAT_OF_VERSION_6])?)
        }
        version @ ..version::QUERY_WATCHES => {
            let groups = &state.catalog.resources;
            Ok(postcard::to_extend(&(place, state, version, groups), vec![FORMAT_OF_VERSION_7])?)
        }
        version @ ..version::FOREIGN_KEYS => {
            let behind = (&state.catalog.resources, &state.runaways);
            Ok(postcard::to_extend(&(place, state, version, behind), vec![FORMAT_OF_VERSION_9])?)
        }
        version => {
            let Catalog { resources, foreign_keys, .. } = &state.catalog;
            let behind = (resources, &state.runaways, foreign_keys);
            Ok(postcard::to_extend(&(place, state, version, behind), vec![FORMAT])?)
        }
    }
}

fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<(T, State)> {
    match bytes.split_first() {
        Some((&FORMAT_OF_VERSION_1, rest)) => Ok(postcard::from_bytes(rest)?),
        Some((&FORMAT_OF_VERSION_6, rest)) => {
            let (place, mut state, version): (T, State, ClusterVersion) =
                postcard::from_bytes(rest)?;
            state.version = version;
            Ok((place, state))
        }
        Some((&FORMAT_OF_VERSION_7, rest)) => {
            let (place, mut state, version, groups): (T, State, ClusterVersion, ResourceGroups) =
                postcard::from_bytes(rest)?;
            (state.version, state.catalog.resources) = (version, groups);
            Ok((place, state))
        }
        Some((&FORMAT_OF_VERSION_9, rest)) => {
            let (place, mut state, version, behind): (T, State, ClusterVersion, BehindVersion9) =
                postcard::from_bytes(rest)?;
            (state.version, (state.catalog.resources, state.runaways)) = (version, behind);
            Ok((place, state))
        }
        Some((&FORMAT, rest)) => {
            let (place, mut state, version, behind): (T, State, ClusterVersion, Behind) =
                postcard::from_bytes(rest)?;
            let (resources, runaways, foreign_keys) = behind;
            (state.version, state.runaways) = (version, runaways);
            (state.catalog.resources, state.catalog.foreign_keys) = (resources, foreign_keys);
            Ok((place, state))
        }
        Some((format, _)) => Err(version::unknown_format("placement's state", *format, FORMAT)),
        None => Err(Error::Corrupt("placement's state is empty".into())),
    }
}
