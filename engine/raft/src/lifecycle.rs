//! How peers come and go: created with their group, created for a message, split off, removed, destroyed.
//!
//! No two peers on a node ever overlap in range, and a peer that was destroyed never comes back:
//! it might have forgotten what it acknowledged.

use protobuf::Message as _;
use raft_rs::eraftpb::Message;
use types::{Error, Region, RegionId, RegionKind, Result};

use crate::groups::PeerStatus;
use crate::log::{LogWrite, NODE_GROUP};
use crate::machine::{INITIAL_POSITION, Machine, Position};
use crate::peer::{Peer, Slot, is_vote_request};
use crate::reply::Reply;
use crate::storage::{GroupStorage, KEY_SPOOL, LocalPeer, PendingSpool, conf_state, snapshot_at};
use crate::store::Store;
use crate::store::recovery::dead_key;
use crate::transport::{Envelope, SnapshotReport, SnapshotStream};

impl Store {
    /// Whether a message may go to a peer here; creates the peer where it should exist, and informs
    /// a sender that was removed.
    pub(crate) fn admit(&mut self, envelope: &Envelope) -> bool {
        if envelope.to.node != self.config.node || self.dead.contains(&envelope.to.id) {
            return false;
        }
        let sent: Option<Region> =
            envelope.region_bytes.as_ref().and_then(|bytes| postcard::from_bytes(bytes).ok());
        let sent = sent.filter(|region| region.id == envelope.region);
        if let Some(broken) = self.broken.get(&envelope.region) {
            // One that cannot go on makes way for its successor.
            let PeerStatus { region: known, peer, .. } = &broken.status;
            let newer = |sent: &Region| sent.epoch.conf > known.epoch.conf;
            if sent.is_some_and(|sent| newer(&sent) && sent.peer(peer.id).is_none()) {
                self.removals.entry(envelope.region).or_default();
                self.dirty.insert(envelope.region);
            }
            return false;
        }
        if let Some(peer) = self.peers.get_mut(&envelope.region) {
            if peer.removed {
                return false;
            }
            if let Some(sent) = &sent
                && sent.epoch.conf > peer.region.epoch.conf
                && sent.peer(peer.me.id).is_none()
            {
                peer.removed = true;
                self.removals.entry(envelope.region).or_default();
                self.dirty.insert(envelope.region);
                return false;
            }
            if peer.me.id != envelope.to.id {
                return false;
            }
            let stale = peer.region.peer(envelope.from.id).is_none()
                && envelope.epoch.conf < peer.region.epoch.conf
                && peer.applied.index > 0;
            if stale {
                let answer = peer.region_envelope(envelope.from);
                // An answer to an answer would go on for ever.
                if sent.is_none() {
                    self.transport.send(vec![answer]);
                }
                return false;
            }
            return true;
        }
        sent.is_some_and(|region| {
            region.peer(envelope.to.id) == Some(&envelope.to)
                && self.create_member(&region, envelope)
        })
    }

    /// Creates an empty peer that waits for a snapshot. Returns whether it is there.
    fn create_member(&mut self, region: &Region, envelope: &Envelope) -> bool {
        if envelope.message.is_empty() {
            return false;
        }
        let is_vote =
            Message::parse_from_bytes(&envelope.message).is_ok_and(|m| is_vote_request(&m));
        if self.overlaps(region) || (is_vote && !self.held.overdue(self.now, region.id)) {
            if is_vote {
                self.held.keep(self.now, envelope.clone());
            }
            return false;
        }
        self.make_peer(region, envelope.to, Position::default())
            .inspect_err(|error| {
                tracing::error!(region = region.id, %error, "peer cannot be created");
            })
            .is_ok()
    }

    /// Whether another region's peer here holds part of the range.
    pub(crate) fn overlaps(&self, region: &Region) -> bool {
        let clash = |other: &Region| {
            other.id != region.id
                && region.kind != RegionKind::Placement
                && other.kind != RegionKind::Placement
                && other.start < region.end
                && region.start < other.end
        };
        let broken = self.broken.values().map(|broken| &*broken.status.region);
        let children = self.new_children.iter().map(|(machine, _)| machine.region());
        let peers = self.peers.values().map(|peer| &*peer.region);
        // What is left of a region is removed by its range, too.
        peers.chain(broken).chain(children).chain(self.leftovers.values()).any(clash)
    }

    /// Creates the machine of a new peer and adds it, at the position that such a peer begins at. Nothing stays of one that
    /// cannot be made, or it could not be made later.
    fn make_peer(&mut self, region: &Region, me: types::Peer, cut: Position) -> Result<()> {
        if let Some(left) = self.leftovers.remove(&region.id) {
            self.discard(left)?;
        }
        let machine = self.machines.create(region, cut == INITIAL_POSITION)?;
        if machine.applied() != cut {
            return Err(Error::Corrupt(format!("region {} is not empty", region.id)));
        }
        let added = self.add_peer(machine, me, cut, region);
        if added.is_err() {
            // The caller is sent what came first; what cannot be removed is shown by its own message.
            _ = self.discard(region.clone());
        }
        added
    }

    fn add_peer(
        &mut self,
        mut machine: Box<dyn Machine>,
        me: types::Peer,
        cut: Position,
        region: &Region,
    ) -> Result<()> {
        machine.persist()?;
        self.write_new(me, cut, region)?;
        let peer = Peer::open(&self.config, self.log.clone(), me, machine, self.boot)?;
        self.peers.insert(region.id, peer);
        self.dirty.insert(region.id);
        self.touched.insert(region.id);
        Ok(())
    }

    /// Removes the state of a region that has no peer here; if the disk refuses, then at a later tick.
    fn discard(&mut self, region: Region) -> Result<()> {
        let removed = self.machines.destroy(&region);
        if let Err(error) = &removed {
            tracing::error!(region = region.id, %error, "a peer's state cannot be removed yet");
            self.leftovers.insert(region.id, region);
        }
        removed
    }

    /// Removes what could not be removed before.
    pub(crate) fn discard_leftovers(&mut self) {
        for region in std::mem::take(&mut self.leftovers).into_values() {
            // What is refused again stays a leftover.
            _ = self.discard(region);
        }
    }

    /// Creates an initial voter.
    pub(crate) fn create(&mut self, region: Region, reply: Reply<()>) {
        let result = self.try_create(&region);
        self.answers.push(reply, result);
    }

    fn try_create(&mut self, region: &Region) -> Result<()> {
        self.check_writable()?;
        if self.peers.contains_key(&region.id) || self.broken.contains_key(&region.id) {
            return Ok(());
        }
        let me = region.peer_on(self.config.node).copied().ok_or_else(|| {
            Error::Invalid(format!("region {} has no peer on this node", region.id))
        })?;
        if self.dead.contains(&me.id) {
            return Ok(());
        }
        if me.role != types::PeerRole::Voter || region.id == NODE_GROUP {
            return Err(Error::Invalid(format!(
                "peer {} cannot be an initial voter of region {}",
                me.id, region.id
            )));
        }
        if self.overlaps(region) {
            let why = format!("region {} overlaps another one on this node", region.id);
            return Err(Error::Unavailable(why));
        }
        self.make_peer(region, me, INITIAL_POSITION)?;
        let first = region.voters().next().is_some_and(|voter| voter.id == me.id);
        self.group_created(region.id, first);
        Ok(())
    }

    /// A group begins: the one that should lead does not wait for a timeout, and messages that
    /// came before it are handled.
    pub(crate) fn group_created(&mut self, region: RegionId, campaign: bool) {
        if let Some(peer) = self.peers.get_mut(&region)
            && campaign
        {
            peer.guarded(|raw| raw.campaign().ok());
        }
        let held = self.held.take(region);
        self.receive(held);
    }

    /// Creates the groups of a split's children. Their machines are durable already, so a crash
    /// before this leaves machines whose groups are created at the next start.
    pub(crate) fn create_children(&mut self) {
        for (machine, campaign) in std::mem::take(&mut self.new_children) {
            let region = machine.region().clone();
            let me = region.peer_on(self.config.node).copied();
            let Some(me) = me.filter(|me| !self.dead.contains(&me.id)) else {
                // The child left this node before the split came here.
                drop(machine);
                // What cannot be removed is shown by its own message.
                _ = self.discard(region);
                continue;
            };
            if self.peers.contains_key(&region.id) {
                tracing::error!(region = region.id, "a split's child exists already and wins");
                continue;
            }
            let cut = machine.applied();
            match self.add_child(machine, me, cut, &region) {
                Ok(()) => self.group_created(region.id, campaign),
                Err(error) => {
                    tracing::error!(region = region.id, %error, "a split's child waits");
                }
            }
        }
    }

    fn add_child(
        &mut self,
        machine: Box<dyn Machine>,
        me: types::Peer,
        cut: Position,
        region: &Region,
    ) -> Result<()> {
        if let Err(error) = self.write_new(me, cut, region) {
            self.new_children.push((machine, false));
            return Err(error);
        }
        let peer = Peer::open(&self.config, self.log.clone(), me, machine, self.boot)?;
        self.peers.insert(region.id, peer);
        self.dirty.insert(region.id);
        self.touched.insert(region.id);
        Ok(())
    }

    fn write_new(&self, me: types::Peer, cut: Position, region: &Region) -> Result<()> {
        let mut write = LogWrite::default();
        let local = LocalPeer { peer: me, region: region.clone() };
        GroupStorage::write_new(&mut write, &local, cut)?;
        self.log.write(&write)
    }

    /// Asks for a peer to be removed from this node.
    pub(crate) fn destroy(&mut self, region: RegionId, reply: Reply<()>) {
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.removed = true;
        } else if !self.broken.contains_key(&region) {
            return self.answers.push(reply, Ok(()));
        }
        self.removals.entry(region).or_default().push(reply);
        self.dirty.insert(region);
    }

    /// Destroys the removed peers whose machines are at hand. Not while the log is being written, or what is written of them
    /// could come after their end.
    pub(crate) fn destroy_removed(&mut self) {
        if self.writer.is_busy() {
            return;
        }
        for (region, replies) in std::mem::take(&mut self.removals) {
            let away = |peer: &Peer| !matches!(peer.slot, Slot::Here(_));
            if self.peers.get(&region).is_some_and(away) {
                self.removals.insert(region, replies);
                continue;
            }
            let result = self.destroy_peer(region);
            if let Err(error) = &result {
                tracing::error!(region, %error, "peer cannot be destroyed yet");
                // Until then it stays silent; the next tick's round tries again.
                self.removals.entry(region).or_default();
            }
            for reply in replies {
                self.answers.push(reply, result.clone());
            }
        }
    }

    fn destroy_peer(&mut self, region: RegionId) -> Result<()> {
        let id = match (self.peers.get(&region), self.broken.get(&region)) {
            (Some(peer), _) => peer.me.id,
            (None, Some(broken)) => broken.status.peer.id,
            (None, None) => return Ok(()),
        };
        let spool: Option<PendingSpool> =
            self.log.get(region, KEY_SPOOL).and_then(|bytes| postcard::from_bytes(&bytes).ok());
        let mut write = LogWrite::default();
        write.put(NODE_GROUP, &dead_key(id), Vec::new());
        write.forget(region);
        write.sync();
        self.log.write(&write)?;
        self.later.leave_out(region);
        self.dead.insert(id);
        self.touched.insert(region);
        if let Some(spool) = spool {
            self.spools.remove(&spool.file)?;
        }
        if let Some(mut peer) = self.peers.remove(&region) {
            peer.abandon("the peer was removed", &mut self.answers);
            if let Slot::Here(machine) = peer.slot {
                let described = machine.region().clone();
                drop(machine);
                self.discard(described)?;
            }
        }
        if let Some(machine) = self.broken.remove(&region).and_then(|broken| broken.machine) {
            let described = machine.region().clone();
            drop(machine);
            self.discard(described)?;
        }
        Ok(())
    }

    /// Starts to send a snapshot of what the machine holds now, which may be later than what Raft
    /// asked for.
    pub(crate) fn send_snapshot(&mut self, region: RegionId, mut message: Message) {
        let under_way: usize = self.peers.values().map(|peer| peer.sending.len()).sum();
        let to = message.to;
        let Some(peer) = self.peers.get_mut(&region) else { return };
        if peer.sending.contains(&to) {
            return;
        }
        // Dropped on every way out below, which makes Raft ask again.
        let report = SnapshotReport::new(region, to, self.outcomes.0.clone());
        let Slot::Here(machine) = &peer.slot else { return };
        if under_way >= self.config.max_snapshots || peer.applied.index == 0 {
            return;
        }
        let mut snapshot = snapshot_at(peer.applied, conf_state(&peer.region));
        let described = postcard::to_stdvec(&*peer.region);
        match (machine.snapshot(), described) {
            (Ok(source), Ok(described)) => {
                snapshot.data = described.into();
                message.set_snapshot(snapshot);
                if let Some(mut header) = peer.envelope(&message) {
                    header.region_bytes = postcard::to_stdvec(&*peer.region).ok();
                    peer.sending.insert(to);
                    self.transport.send_snapshot(SnapshotStream { header, source, report });
                }
            }
            (Err(error), _) => {
                tracing::warn!(region, %error, "no snapshot can be taken now");
            }
            (_, Err(error)) => tracing::warn!(region, %error, "region cannot be encoded"),
        }
    }
}
