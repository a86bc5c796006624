//! Peers that are being made and removed: begun here, done by jobs (see [`crate::provision`]), ended here.
//!
//! While such a job is under way the region has no peer, and no other region's peer gets any of its range.

use types::{Peer as Member, Region, RegionId, Result};

use super::Store;
use crate::machine::{Machine, Position};
use crate::peer::{Peer, Slot};
use crate::provision::{Change, ChangeKind, Making, Removal};
use crate::reply::Reply;
use crate::snapshot::Spooled;
use crate::storage::{KEY_SPOOL, PendingSpool};
use crate::transport::Envelope;
use crate::work::{Job, JobKind};

impl Store {
    /// Begins to make a peer whose log begins at `cut`.
    pub(crate) fn make(
        &mut self,
        (me, region, cut): (Member, Region, Position),
        machine: Option<Box<dyn Machine>>,
        campaign: bool,
        replies: Vec<Reply<()>>,
    ) {
        let id = region.id;
        let kind = ChangeKind::Making { me, campaign, spooled: None };
        self.changing.insert(id, Change { region: Some(region.clone()), replies, kind });
        let is_child = machine.is_some();
        let (machines, log) = (self.machines.clone(), self.log.clone());
        let making = Making { me, region, cut, machine, is_child, machines, log };
        self.begin(Job { region: id, kind: JobKind::Making(making) });
    }

    /// A peer was made: it takes part from now on. Of one that could not be made nothing stays, but a split's child, which is
    /// made at a later tick.
    pub(crate) fn made(&mut self, making: Making, result: Result<()>) {
        let Making { me, region, machine, is_child, .. } = making;
        let Some(Change { replies, kind, .. }) = self.changing.remove(&region.id) else { return };
        let ChangeKind::Making { campaign, spooled, .. } = kind else { return };
        let result = match (result, machine) {
            (Ok(()), Some(machine)) => self.open_peer(me, machine, campaign),
            (Err(error), Some(machine)) if is_child => {
                self.new_children.push((machine, campaign));
                Err(error)
            }
            (result, Some(machine)) => {
                self.discard(region.clone(), Some(machine));
                result
            }
            (result, None) => result,
        };
        match (&result, spooled) {
            (Ok(()), Some(spooled)) => self.receive_snapshot(*spooled),
            (Err(_), Some(spooled)) => self.remove_spool(&spooled.spool.file),
            (_, None) => {}
        }
        if let Err(error) = &result {
            tracing::error!(region = region.id, %error, "peer cannot be created");
        }
        for reply in replies {
            self.answers.push(reply, result.clone());
        }
    }

    fn open_peer(&mut self, me: Member, machine: Box<dyn Machine>, campaign: bool) -> Result<()> {
        let region = machine.region().clone();
        match Peer::open(&self.config, self.log.clone(), me, machine, self.boot) {
            Ok(mut peer) => {
                // It may have been asked for its removal since.
                peer.removed = self.removals.contains_key(&region.id);
                self.peers.insert(region.id, peer);
                self.dirty.insert(region.id);
                self.touched.insert(region.id);
                self.group_created(region.id, campaign);
                Ok(())
            }
            Err(error) => {
                self.discard(region, None);
                Err(error)
            }
        }
    }

    /// A group begins: the one that should lead does not wait for a timeout, and messages that
    /// came before it are handled.
    fn group_created(&mut self, region: RegionId, campaign: bool) {
        if let Some(peer) = self.peers.get_mut(&region)
            && campaign
            && !peer.removed
        {
            peer.guarded(|raw| raw.campaign().ok());
        }
        let held = self.held.take(region);
        self.receive(held);
    }

    /// Keeps a message for a peer that is being made.
    pub(super) fn hold_for_new(&mut self, envelope: Envelope) {
        if let Some(Change { kind: ChangeKind::Making { me, .. }, .. }) =
            self.changing.get(&envelope.region)
            && me.id == envelope.to.id
        {
            self.held.keep(self.now, envelope);
        }
    }

    /// Keeps a snapshot for a peer that is being made. Returns the file that nobody wants.
    pub(super) fn keep_for_new(&mut self, new: Spooled) -> Option<String> {
        match self.changing.get_mut(&new.header.region).map(|change| &mut change.kind) {
            Some(ChangeKind::Making { me, spooled, .. }) if me.id == new.header.to.id => {
                spooled.replace(Box::new(new)).map(|earlier| earlier.spool.file)
            }
            _ => Some(new.spool.file),
        }
    }

    /// Begins to create the groups of a split's children. Their machines are durable already, so a crash
    /// before this leaves machines whose groups are created at the next start.
    pub(super) fn create_children(&mut self) {
        if self.writer.stalled().is_some() {
            return;
        }
        for (machine, campaign) in std::mem::take(&mut self.new_children) {
            let region = machine.region().clone();
            let me = region.peer_on(self.config.node).copied();
            if self.peers.contains_key(&region.id) {
                tracing::error!(region = region.id, "a split's child exists already and wins");
            } else if self.changing.contains_key(&region.id) {
                // What was here before has to go first.
                self.new_children.push((machine, campaign));
            } else if let Some(me) = me.filter(|me| !self.dead.contains(&me.id)) {
                let cut = machine.applied();
                self.make((me, region, cut), Some(machine), campaign, Vec::new());
            } else {
                // The child left this node before the split came here.
                self.discard(region, Some(machine));
            }
        }
    }

    /// Begins to destroy the removed peers whose machines are at hand. Not while the log is being written, or what is written
    /// of them could come after their end.
    pub(super) fn destroy_removed(&mut self) {
        if self.writer.is_busy() {
            return;
        }
        for (region, replies) in std::mem::take(&mut self.removals) {
            let away = |peer: &Peer| !matches!(peer.slot, Slot::Here(_));
            let waits =
                self.changing.contains_key(&region) || self.peers.get(&region).is_some_and(away);
            if waits {
                self.removals.insert(region, replies);
            } else {
                self.destroy_peer(region, replies);
            }
        }
    }

    fn destroy_peer(&mut self, region: RegionId, replies: Vec<Reply<()>>) {
        let (id, machine) = if let Some(mut peer) = self.peers.remove(&region) {
            peer.abandon("the peer was removed", &mut self.answers);
            let machine = match peer.slot {
                Slot::Here(machine) => Some(machine),
                _ => None,
            };
            (peer.me.id, machine)
        } else if let Some(broken) = self.broken.remove(&region) {
            (broken.status.peer.id, broken.machine)
        } else {
            replies.into_iter().for_each(|reply| self.answers.push(reply, Ok(())));
            return;
        };
        let spool: Option<PendingSpool> =
            self.log.get(region, KEY_SPOOL).and_then(|bytes| postcard::from_bytes(&bytes).ok());
        self.later.leave_out(region);
        self.touched.insert(region);
        let described = machine.as_ref().map(|machine| machine.region().clone());
        let removal = Removal {
            to_note: Some(id),
            spool: spool.map(|spool| spool.file),
            ..self.removal(described, machine)
        };
        self.remove(region, removal, replies);
    }

    /// Removes the state of a region that has no peer here.
    fn discard(&mut self, region: Region, machine: Option<Box<dyn Machine>>) {
        let removal = self.removal(Some(region.clone()), machine);
        self.remove(region.id, removal, Vec::new());
    }

    fn removal(&self, region: Option<Region>, machine: Option<Box<dyn Machine>>) -> Removal {
        let (machines, log) = (self.machines.clone(), self.log.clone());
        Removal {
            to_note: None,
            noted: None,
            spool: None,
            machine,
            region,
            reported: false,
            machines,
            log,
            spools: self.spools.clone(),
        }
    }

    fn remove(&mut self, id: RegionId, removal: Removal, replies: Vec<Reply<()>>) {
        let kind = ChangeKind::Removal(None);
        self.changing.insert(id, Change { region: removal.region.clone(), replies, kind });
        self.begin(Job { region: id, kind: JobKind::Removal(removal) });
    }

    /// What was stored of a region is gone; if the disk refused, then it is tried again.
    pub(crate) fn removed(&mut self, region: RegionId, mut removal: Removal, result: Result<()>) {
        self.dead.extend(removal.noted);
        self.dirty.insert(region);
        let Some(change) = self.changing.get_mut(&region) else { return };
        for reply in std::mem::take(&mut change.replies) {
            self.answers.push(reply, result.clone());
        }
        let Err(error) = result else {
            self.changing.remove(&region);
            return;
        };
        // Said once, for a full disk is tried often.
        if !std::mem::replace(&mut removal.reported, true) {
            tracing::error!(region, %error, "a peer's state cannot be removed yet");
        }
        change.kind = ChangeKind::Removal(Some(removal));
    }

    /// Removes what could not be removed before.
    pub(super) fn remove_again(&mut self) {
        let mut again = Vec::new();
        for (region, change) in &mut self.changing {
            if let ChangeKind::Removal(removal) = &mut change.kind {
                again.extend(removal.take().map(|removal| (*region, removal)));
            }
        }
        for (region, removal) in again {
            self.begin(Job { region, kind: JobKind::Removal(removal) });
        }
    }
}
