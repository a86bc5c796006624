//! How peers come and go: created with their group, created for a message, split off, removed, destroyed.
//!
//! No two peers on a node ever overlap in range, and a peer that was destroyed never comes back:
//! it might have forgotten what it acknowledged.

use protobuf::Message as _;
use raft_rs::eraftpb::Message;
use types::{Error, Region, RegionId, RegionKind, Result};

use crate::groups::PeerStatus;
use crate::log::NODE_GROUP;
use crate::machine::{INITIAL_POSITION, Position};
use crate::peer::{Slot, is_vote_request};
use crate::provision::{Change, ChangeKind};
use crate::reply::Reply;
use crate::storage::{conf_state, snapshot_at};
use crate::store::Store;
use crate::transport::{Envelope, SnapshotReport, SnapshotStream};

impl Store {
    /// Whether a message may go to a peer here; creates the peer where it should exist, and informs
    /// a sender that was removed.
    pub(crate) fn admit(&mut self, envelope: &Envelope) -> bool {
        let elsewhere = envelope.to.node != self.config.node;
        if elsewhere
            || self.dead.contains(&envelope.to.id)
            || self.changing.contains_key(&envelope.region)
        {
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
        let made_by_a_split =
            self.new_children.iter().any(|(machine, _)| machine.region().id == region.id);
        if !made_by_a_split {
            self.make((envelope.to, region.clone(), Position::default()), None, false, Vec::new());
        }
        self.peers.contains_key(&region.id)
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
        let changing = self.changing.values().filter_map(|change| change.region.as_ref());
        peers.chain(broken).chain(children).chain(changing).any(clash)
    }

    /// Creates an initial voter.
    pub(crate) fn create(&mut self, region: Region, reply: Reply<()>) {
        match self.changing.get_mut(&region.id) {
            Some(Change { kind: ChangeKind::Making { .. }, replies, .. }) => replies.push(reply),
            _ => match self.initial_voter(&region) {
                Ok(Some(me)) => {
                    let first = region.voters().next().is_some_and(|voter| voter.id == me.id);
                    self.make((me, region, INITIAL_POSITION), None, first, vec![reply]);
                }
                Ok(None) => self.answers.push(reply, Ok(())),
                Err(error) => self.answers.push(reply, Err(error)),
            },
        }
    }

    /// Which peer is to be created for a new region; none if it is or was here.
    fn initial_voter(&self, region: &Region) -> Result<Option<types::Peer>> {
        self.check_writable()?;
        if self.peers.contains_key(&region.id) || self.broken.contains_key(&region.id) {
            return Ok(None);
        }
        let me = region.peer_on(self.config.node).copied().ok_or_else(|| {
            Error::Invalid(format!("region {} has no peer on this node", region.id))
        })?;
        if self.dead.contains(&me.id) {
            return Ok(None);
        }
        if me.role != types::PeerRole::Voter || region.id == NODE_GROUP {
            return Err(Error::Invalid(format!(
                "peer {} cannot be an initial voter of region {}",
                me.id, region.id
            )));
        }
        if self.changing.contains_key(&region.id) || self.overlaps(region) {
            let why = format!("region {} overlaps another one on this node", region.id);
            return Err(Error::Unavailable(why));
        }
        Ok(Some(me))
    }

    /// Asks for a peer to be removed from this node.
    pub(crate) fn destroy(&mut self, region: RegionId, reply: Reply<()>) {
        if let Some(peer) = self.peers.get_mut(&region) {
            peer.removed = true;
        } else if !self.broken.contains_key(&region) && !self.changing.contains_key(&region) {
            return self.answers.push(reply, Ok(()));
        }
        self.removals.entry(region).or_default().push(reply);
        self.dirty.insert(region);
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
