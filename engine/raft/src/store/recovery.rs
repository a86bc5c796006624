//! What a store finds at start: peers to go on with, work that a crash interrupted, and peers that
//! cannot go on.
//!
//! A machine is made durable before its group is written to the log, and a destroyed peer is
//! noted in the log before its machine goes. So a machine without a group was being created or
//! destroyed, and a group without a machine has lost it. Where an earlier log was set aside, a machine
//! without a group has lost its log, whatever it holds.

use std::sync::Arc;

use types::{Error, Peer as Member, PeerId, Result};

use crate::groups::PeerStatus;
use crate::log::{LogWrite, NODE_GROUP, RaftLog};
use crate::machine::{INITIAL_POSITION, Machine, Position};
use crate::peer::Peer;
use crate::storage::{GroupStorage, KEY_PEER, KEY_SPOOL, LocalPeer, PREFIX_DEAD, PendingSpool};
use crate::work::restore;

use super::participation::is_alone;
use super::{Broken, Store};

const KEY_BOOT: &[u8] = b"boot";
/// Record: groups are being made to go on alone, and not all of that is written.
pub(crate) const KEY_BEGUN: &[u8] = b"recovery";

/// Refuses a log whose groups were left halfway.
pub(crate) fn check_whole(log: &RaftLog) -> Result<()> {
    match log.get(NODE_GROUP, KEY_BEGUN) {
        None => Ok(()),
        Some(_) => Err(Error::Unavailable(
            "`isobar ctl recover-unsafe --yes` has begun on this node and did not end: run it again, \
             with the same files"
                .to_owned(),
        )),
    }
}

/// Counts this start, durably: numbers derived from it are never used twice. `session` is the node's own
/// count of its starts, which outlives a log that was set aside.
pub(crate) fn next_boot(log: &RaftLog, session: u64) -> Result<u64> {
    let last: u64 = match log.get(NODE_GROUP, KEY_BOOT) {
        Some(bytes) => postcard::from_bytes(&bytes)?,
        None => 0,
    };
    let boot = session.max(last + 1);
    let mut write = LogWrite::default();
    write.put(NODE_GROUP, KEY_BOOT, postcard::to_stdvec(&boot)?);
    write.sync();
    log.write(&write)?;
    Ok(boot)
}

/// Peers that were destroyed on this node.
pub(crate) fn dead_peers(log: &RaftLog) -> Result<std::collections::BTreeSet<PeerId>> {
    let id =
        |key: Vec<u8>| key.strip_prefix(PREFIX_DEAD)?.try_into().ok().map(PeerId::from_be_bytes);
    Ok(log.keys(NODE_GROUP)?.into_iter().filter_map(id).collect())
}

/// Spool files that peers still wait for.
pub(crate) fn pending_spools(log: &RaftLog) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for region in log.groups() {
        if let Some(bytes) = log.get(region, KEY_SPOOL) {
            files.push(postcard::from_bytes::<PendingSpool>(&bytes)?.file);
        }
    }
    Ok(files)
}

impl Store {
    /// Brings every peer of this node back.
    pub(crate) fn recover(&mut self) -> Result<()> {
        for machine in self.machines.recover()? {
            self.recover_machine(machine)?;
        }
        for region in self.log.groups() {
            let known = self.peers.contains_key(&region) || self.broken.contains_key(&region);
            if region == NODE_GROUP || known {
                continue;
            }
            if let Some(bytes) = self.log.get(region, KEY_PEER) {
                self.recover_group(postcard::from_bytes(&bytes)?)?;
            }
        }
        if self.broken.is_empty() {
            self.log.forget_lost()?;
        }
        Ok(())
    }

    fn recover_machine(&mut self, machine: Box<dyn Machine>) -> Result<()> {
        let region = machine.region().clone();
        if let Some(bytes) = self.log.get(region.id, KEY_PEER) {
            let local: LocalPeer = postcard::from_bytes(&bytes)?;
            let me = region.peer(local.peer.id).copied().unwrap_or(local.peer);
            return self.revive(me, machine);
        }
        let me = region.peer_on(self.config.node).copied();
        match me.filter(|me| !self.dead.contains(&me.id)) {
            Some(me) if machine.applied() == INITIAL_POSITION && self.log.lost().is_none() => {
                // It was created, and the crash came before its group was written.
                let mut write = LogWrite::default();
                let local = LocalPeer { peer: me, region };
                GroupStorage::write_new(&mut write, &local, INITIAL_POSITION)?;
                self.log.write(&write)?;
                self.revive(me, machine)
            }
            Some(me) if machine.applied().index > 0 => {
                let how = self.log.lost().unwrap_or("its Raft log is gone");
                let why = format!("{how}: replace this replica");
                self.break_peer(me, region, Some(machine), why);
                Ok(())
            }
            // It holds nothing, or was being destroyed.
            _ => {
                drop(machine);
                self.machines.destroy(&region)
            }
        }
    }

    /// A group without a machine can go on only if it never held anything.
    fn recover_group(&mut self, local: LocalPeer) -> Result<()> {
        let region = local.region.clone();
        if self.dead.contains(&local.peer.id) {
            return Ok(());
        }
        let empty = GroupStorage::open(self.log.clone(), &region, Position::default()).is_ok();
        if empty || self.log.get(region.id, KEY_SPOOL).is_some() {
            let mut machine = self.machines.create(&region, false)?;
            machine.persist()?;
            return self.revive(local.peer, machine);
        }
        let why = "its data is gone: replace this replica".to_owned();
        self.break_peer(local.peer, region, None, why);
        Ok(())
    }

    fn revive(&mut self, me: Member, mut machine: Box<dyn Machine>) -> Result<()> {
        let region = machine.region().clone();
        if self.dead.contains(&me.id) {
            drop(machine);
            return self.machines.destroy(&region);
        }
        if let Err(error) = self.resume_restore(machine.as_mut()) {
            self.break_peer(me, region, Some(machine), format!("snapshot: {error}"));
            return Ok(());
        }
        let applied = machine.applied();
        let gone = applied.index > 0 && machine.region().peer(me.id).is_none();
        let region = machine.region().clone();
        // Opening takes the machine, so what could fail is tried first. A damaged entry that nobody asks
        // for would be found when it is needed most: when this peer leads.
        let whole = self.log.verify(region.id);
        let opened = whole.and_then(|()| GroupStorage::open(self.log.clone(), &region, applied));
        if let Err(error) = opened {
            self.break_peer(me, region, Some(machine), error.to_string());
            return Ok(());
        }
        let mut peer = match Peer::open(&self.config, self.log.clone(), me, machine, self.boot) {
            Ok(peer) => peer,
            Err(error) => {
                self.break_peer(me, region, None, error.to_string());
                return Ok(());
            }
        };
        peer.removed = gone;
        if gone {
            self.removals.entry(region.id).or_default();
        } else if is_alone(&peer) && self.participates(region.id) {
            // Nobody else could lead, so there is nothing to wait for.
            peer.guarded(|raw| raw.campaign().ok());
        }
        self.peers.insert(region.id, peer);
        self.dirty.insert(region.id);
        self.touched.insert(region.id);
        Ok(())
    }

    /// Redoes a snapshot's take-over that a crash interrupted.
    fn resume_restore(&mut self, machine: &mut dyn Machine) -> Result<()> {
        let id = machine.region().id;
        let Some(bytes) = self.log.get(id, KEY_SPOOL) else { return Ok(()) };
        let spool: PendingSpool = postcard::from_bytes(&bytes)?;
        if machine.applied().index < spool.at.0 {
            restore(machine, &self.spools, &spool)?;
        }
        let mut write = LogWrite::default();
        write.delete(id, KEY_SPOOL);
        write.sync();
        self.log.write(&write)?;
        self.spools.remove(&spool.file)
    }

    /// Keeps a peer that cannot go on in sight, so that it is replaced.
    fn break_peer(
        &mut self,
        peer: Member,
        region: types::Region,
        machine: Option<Box<dyn Machine>>,
        why: String,
    ) {
        let id = region.id;
        let fault = Error::Corrupt(format!("region {id} on this node: {why}")).to_string();
        tracing::error!(region = id, fault, "peer cannot go on");
        let applied = machine.as_ref().map(|machine| machine.applied()).unwrap_or_default();
        let status = PeerStatus {
            region: Arc::new(region),
            peer,
            leader: None,
            term: 0,
            decides: false,
            alone: false,
            applied,
            committed: 0,
            ready: false,
            fault: Some(fault),
            stopped: true,
            lost: true,
        };
        self.broken.insert(id, Broken { status, machine });
        self.touched.insert(id);
    }
}
