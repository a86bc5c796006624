//! A store's groups while its node is down: what it holds of each, and how it goes on with those that
//! have lost their quorum.
//!
//! [`Offline::finish`] gives up what Raft promises, for people who have nothing better left: entries
//! that no majority may have had count as committed, and the other members as gone. It informs nobody,
//! so members that come back with their old logs would go on, too.
//!
//! Everything goes through the group's log: an entry by which the peer becomes the only voter, and
//! whatever its machine has to know of that. One write makes all groups go on, or none.

use std::collections::BTreeSet;
use std::sync::Arc;

use protobuf::Message as _;
use raft_rs::eraftpb::{ConfChangeV2, Entry, EntryType, HardState};
use raft_rs::{GetEntriesContext, Storage as _};
use serde::{Deserialize, Serialize};
use types::{Error, NodeId, Peer as Member, Region, RegionId, Result};

use crate::config::{Participation, StoreConfig};
use crate::log::{LogWrite, NODE_GROUP, RaftLog};
use crate::machine::{Machines, Position};
use crate::membership::MemberChange;
use crate::peer::Peer;
use crate::storage::{dead_key, write_hard};
use crate::store::recovery::KEY_BEGUN;
use crate::store::{Store, StoreDisk};
use crate::transport::{Envelope, SnapshotStream, Transport};
use crate::work::Inline;

/// Rounds in which a store that gets no messages comes to rest; each applies megabytes.
const MAX_ROUNDS: usize = 1 << 20;

/// What a node holds of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// The region as applied; of a peer that holds nothing, as it was sent.
    pub region: Region,
    /// The node's member.
    pub peer: Member,
    /// The highest term that it knows of.
    pub term: u64,
    /// Its last entry.
    pub last: Position,
    /// The last entry that it knows to be committed.
    pub committed: Position,
    /// The last entry that it has applied; of index 0 while it waits for a snapshot.
    pub applied: Position,
    /// Above the committed entry, the first of each term.
    pub tail: Vec<Position>,
    /// Why it cannot go on, if so.
    pub fault: Option<String>,
}

impl Replica {
    /// Whether a group can go on from it.
    pub fn holds_data(&self) -> bool {
        self.fault.is_none() && self.applied.index > 0
    }

    /// The region as this peer goes on with it alone.
    pub fn alone(&self, conf: u64) -> Region {
        let change = MemberChange::Alone { peer: self.peer, conf };
        change.apply(&self.region).unwrap_or_else(|| self.region.clone())
    }

    /// Term of an entry above the committed one.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        let there = index > self.committed.index && index <= self.last.index;
        let begun = self.tail.iter().rev().find(|first| first.index <= index).filter(|_| there)?;
        Some(begun.term)
    }
}

/// How a group goes on here.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Which.
    pub region: RegionId,
    /// In this term.
    pub term: u64,
    /// With this count of its membership.
    pub conf: u64,
    /// What its machine gets right after that.
    pub command: Option<Vec<u8>>,
}

/// A node's groups while it is down.
pub struct Offline {
    store: Store,
}

impl Offline {
    /// Opens a store and lets it apply what it knows to be committed, as at any start. It takes part
    /// in nothing.
    pub fn open(node: NodeId, disk: StoreDisk, machines: Box<dyn Machines>) -> Result<Self> {
        let config = StoreConfig { participation: Participation::None, ..StoreConfig::new(node) };
        let (files, shadow) = (disk.disk.clone(), disk.shadow.as_deref());
        let log = Arc::new(RaftLog::open_whole(files, &disk.log_dir, shadow, disk.sizes)?);
        let nobody = Arc::new(Nobody);
        let store = Store::open_over(log, config, disk, machines, nobody, Box::new(Inline))?;
        let mut offline = Offline { store };
        offline.settle()?;
        Ok(offline)
    }

    /// What it holds.
    pub fn replicas(&self) -> Result<Vec<Replica>> {
        let broken = self.store.broken.values().map(|broken| {
            let status = &broken.status;
            Ok(Replica {
                region: Region::clone(&status.region),
                peer: status.peer,
                term: status.term,
                last: status.applied,
                committed: status.applied,
                applied: status.applied,
                tail: Vec::new(),
                fault: status.fault.clone(),
            })
        });
        let peers = self.store.peers.values().filter(|peer| !peer.removed);
        peers.map(replica).chain(broken).collect()
    }

    /// First step, for groups that are to go on alone: takes every entry for committed, and applies it.
    /// Regions that are split by that are there afterwards. From now on the node does not start before
    /// [`Offline::finish`].
    pub fn take_all(&mut self, regions: &BTreeSet<RegionId>) -> Result<()> {
        let mut write = LogWrite::default();
        write.put(NODE_GROUP, KEY_BEGUN, Vec::new());
        write.sync();
        self.store.log.write(&write)?;
        for region in regions {
            let peer = self.store.peers.get_mut(region).ok_or(Error::RegionNotFound(*region))?;
            let end = end_of_use(peer)?;
            peer.guarded(|raw| raw.raft.raft_log.commit_to(end));
            self.store.dirty.insert(*region);
        }
        self.settle()?;
        for region in regions {
            let peer = self.store.peers.get(region).ok_or(Error::RegionNotFound(*region))?;
            peer.check_running()?;
            let committed = peer.raw.raft.raft_log.committed;
            if peer.applied.index != committed {
                return Err(Error::Corrupt(format!(
                    "region {region} has applied {} of {committed} entries and does not go on",
                    peer.applied.index
                )));
            }
        }
        Ok(())
    }

    /// Second step, at once and durably: `alone` go on without their other members, and the peers of
    /// `dropped` are gone for good, so that they come back as new ones.
    pub fn finish(self, alone: Vec<Alone>, dropped: &BTreeSet<RegionId>) -> Result<()> {
        let mut write = LogWrite::default();
        for group in alone {
            let region = group.region;
            let peer = self.store.peers.get(&region).ok_or(Error::RegionNotFound(region))?;
            write_alone(&mut write, peer, group)?;
        }
        for region in dropped {
            let broken = self.store.broken.get(region).map(|broken| broken.status.peer.id);
            let Some(peer) = self.store.peers.get(region).map(|peer| peer.me.id).or(broken) else {
                continue;
            };
            write.put(NODE_GROUP, &dead_key(peer), Vec::new());
            write.forget(*region);
        }
        write.delete(NODE_GROUP, KEY_BEGUN);
        write.sync();
        self.store.log.write(&write)
    }

    fn settle(&mut self) -> Result<()> {
        for _ in 0..MAX_ROUNDS {
            if !self.store.drive() {
                return self.store.check_writable();
            }
        }
        Err(Error::Corrupt("the groups of this node do not come to rest".to_owned()))
    }
}

fn replica(peer: &Peer) -> Result<Replica> {
    let storage = peer.raw.store();
    let region = peer.region.id;
    let index = peer.raw.raft.raft_log.committed;
    let term = |index| match index {
        0 => Ok(0),
        _ => storage.term(index).map_err(|error| unreadable(region, &error)),
    };
    let mut tail: Vec<Position> = Vec::new();
    for entry in entries_above(peer, index)? {
        if tail.last().is_none_or(|begun| begun.term != entry.term) {
            tail.push(Position { index: entry.index, term: entry.term });
        }
    }
    Ok(Replica {
        region: Region::clone(&peer.region),
        peer: peer.me,
        term: peer.raw.raft.term,
        last: storage.last(),
        committed: Position { index, term: term(index)? },
        applied: peer.applied,
        tail,
        fault: peer.fault.clone(),
    })
}

fn entries_above(peer: &Peer, index: u64) -> Result<Vec<Entry>> {
    let storage = peer.raw.store();
    let (low, high) = (index + 1, storage.last().index + 1);
    if low >= high {
        return Ok(Vec::new());
    }
    let context = GetEntriesContext::empty(false);
    storage.entries(low, high, None, context).map_err(|error| unreadable(peer.region.id, &error))
}

fn unreadable(region: RegionId, error: &raft_rs::Error) -> Error {
    Error::Corrupt(format!("region {region}: its Raft log cannot be read: {error}"))
}

/// Where the entries end that a peer can go on from: one that is not committed may remove it, and then
/// the last data would go.
fn end_of_use(peer: &Peer) -> Result<u64> {
    let committed = peer.raw.raft.raft_log.committed;
    for entry in entries_above(peer, committed)? {
        if removes(&entry, peer.me.id) {
            return Ok(entry.index - 1);
        }
    }
    Ok(peer.raw.store().last().index)
}

fn removes(entry: &Entry, id: types::PeerId) -> bool {
    if entry.get_entry_type() == EntryType::EntryNormal {
        return false;
    }
    ConfChangeV2::parse_from_bytes(&entry.data)
        .ok()
        .and_then(|change| postcard::from_bytes::<MemberChange>(&change.context).ok())
        .is_some_and(|change| change == MemberChange::Remove(id))
}

/// Adds the entries by which a group goes on alone, and Raft's state in which they are committed.
fn write_alone(write: &mut LogWrite, peer: &Peer, group: Alone) -> Result<()> {
    let Alone { region, term, conf, command } = group;
    let member = MemberChange::Alone { peer: peer.me, conf };
    let mut change = member.conf_change();
    change.context = postcard::to_stdvec(&member)?.into();
    let data = change
        .write_to_bytes()
        .map_err(|error| Error::Invalid(format!("members of region {region}: {error}")))?;
    let mut entries = vec![entry(EntryType::EntryConfChangeV2, data)];
    entries.extend(command.map(|command| entry(EntryType::EntryNormal, command)));
    let mut index = peer.applied.index;
    for entry in &mut entries {
        index += 1;
        (entry.index, entry.term) = (index, term);
    }
    // An entry that was not to be used may have stood there; what followed it goes with it.
    write.entries(region, entries);
    let mut hard = HardState::default();
    (hard.term, hard.vote, hard.commit) = (term, peer.me.id, index);
    write_hard(write, region, &hard)
}

fn entry(kind: EntryType, data: Vec<u8>) -> Entry {
    let mut entry = Entry::default();
    entry.set_entry_type(kind);
    entry.data = data.into();
    entry
}

/// The network of a node that is down.
struct Nobody;

impl Transport for Nobody {
    fn send(&self, _messages: Vec<Envelope>) {}

    fn send_snapshot(&self, stream: SnapshotStream) {
        drop(stream);
    }
}
