//! What making and removing a peer takes of the disk: jobs, and what the store knows of a region meanwhile.
//!
//! A machine is durable before its group is in the log, and a removal is noted in the log before the machine goes: recovery
//! rests on that order. It must never touch a region that has a peer.

use std::sync::Arc;

use types::{Error, Peer, PeerId, Region, RegionId, Result};

use crate::log::{LogWrite, NODE_GROUP, RaftLog};
use crate::machine::{INITIAL_POSITION, Machine, Machines, Position};
use crate::reply::Reply;
use crate::snapshot::{SpoolDir, Spooled};
use crate::storage::{GroupStorage, LocalPeer, dead_key};

/// A region without a peer, for one is being made or removed.
pub(crate) struct Change {
    /// What is or may be stored; none if that is nothing.
    pub region: Option<Region>,
    /// Who waits for it.
    pub replies: Vec<Reply<()>>,
    pub kind: ChangeKind,
}

pub(crate) enum ChangeKind {
    Making {
        me: Peer,
        /// Whether it is to lead.
        campaign: bool,
        /// A snapshot that has come for it.
        spooled: Option<Box<Spooled>>,
    },
    /// With what is to be tried again, unless that is under way.
    Removal(Option<Removal>),
}

/// A peer that is to be made.
pub(crate) struct Making {
    pub me: Peer,
    pub region: Region,
    /// Where its log begins.
    pub cut: Position,
    /// A split's child has one. One that was made here is left here where its group cannot be written.
    pub machine: Option<Box<dyn Machine>>,
    pub is_child: bool,
    pub machines: Arc<dyn Machines>,
    pub log: Arc<RaftLog>,
}

impl Making {
    /// Makes the machine, unless it is there, and then the group.
    pub fn run(&mut self) -> Result<()> {
        if self.machine.is_none() {
            let made = self.machines.create(&self.region, self.cut == INITIAL_POSITION)?;
            if made.applied() != self.cut {
                return Err(Error::Corrupt(format!("region {} is not empty", self.region.id)));
            }
            self.machine.insert(made).persist()?;
        }
        let mut write = LogWrite::default();
        let local = LocalPeer { peer: self.me, region: self.region.clone() };
        GroupStorage::write_new(&mut write, &local, self.cut)?;
        self.log.write(&write)
    }
}

/// What is to be removed of a peer, or of one that was never made.
pub(crate) struct Removal {
    /// The peer to note as destroyed, until it is.
    pub to_note: Option<PeerId>,
    /// The peer that is noted.
    pub noted: Option<PeerId>,
    /// File of a snapshot that it waits for.
    pub spool: Option<String>,
    /// Dropped before what it stores is removed.
    pub machine: Option<Box<dyn Machine>>,
    /// None if the machine was lost.
    pub region: Option<Region>,
    /// Whether it was reported that it fails.
    pub reported: bool,
    pub machines: Arc<dyn Machines>,
    pub log: Arc<RaftLog>,
    pub spools: Arc<SpoolDir>,
}

impl Removal {
    /// Removes what has not been removed yet. `of` is the region's number.
    pub fn run(&mut self, of: RegionId) -> Result<()> {
        if let Some(peer) = self.to_note {
            let mut write = LogWrite::default();
            write.put(NODE_GROUP, &dead_key(peer), Vec::new());
            write.forget(of);
            write.sync();
            self.log.write(&write)?;
            self.noted = self.to_note.take();
        }
        if let Some(file) = &self.spool {
            self.spools.remove(file)?;
            self.spool = None;
        }
        self.machine = None;
        match &self.region {
            Some(region) => self.machines.destroy(region),
            None => Ok(()),
        }
    }
}
