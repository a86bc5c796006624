//! A peer's part in the store's rounds: what Raft wants to be written and sent, and what follows once it is written.
//!
//! Writing is done apart, and Raft goes on meanwhile: its storage holds what is being written as if it were. What tells others
//! that something is on disk leaves after it is, in Raft's order; a leader's messages do not wait.

use std::collections::VecDeque;

use raft_rs::eraftpb::{Message, MessageType};
use raft_rs::{RawNode, Ready, StateRole};
use types::{Error, Result};

use super::{LONELY_TICKS, Outbox, Peer};
use crate::log::LogWrite;
use crate::machine::Position;
use crate::reply::Answers;
use crate::storage::{
    KEY_PEER, KEY_SPOOL, LocalPeer, PendingSpool, conf_state, write_cut, write_hard,
};

/// Raft's work of several rounds that is not on disk, in its order.
#[derive(Default)]
pub(crate) struct Unwritten(VecDeque<Part>);

/// Raft's work of one round.
struct Part {
    /// Raft's number of it.
    number: u64,
    /// Whether nothing of it waits for the disk.
    written: bool,
    /// Whether a term or a vote is in it: until that is on disk nothing at all may be said.
    votes: bool,
    /// A snapshot, which the machine takes over once the log holds it.
    snapshot: Option<PendingSpool>,
    /// To be sent once this and all before it is written.
    messages: Vec<Message>,
}

impl Unwritten {
    /// Whether a snapshot is in it.
    pub fn has_snapshot(&self) -> bool {
        self.0.iter().any(|part| part.snapshot.is_some())
    }
}

impl Peer {
    /// Whether everything that Raft has asked for is on disk.
    pub fn all_written(&self) -> bool {
        self.unwritten.0.is_empty()
    }

    /// Takes Raft's work: sends and answers what need not wait for the disk, queues what is committed, and adds what must be
    /// written. Returns the number by which [`Peer::written`] is to be called once that is on disk, if there is anything.
    pub fn begin_round(
        &mut self,
        now: u64,
        out: &mut Outbox,
        write: &mut LogWrite,
        answers: &mut Answers,
    ) -> Result<Option<u64>> {
        if let Some(context) = self.reads.begin(now) {
            self.guarded(|raw| raw.read_index(context));
        }
        if self.lonely >= LONELY_TICKS {
            self.lonely = 0;
            self.query_membership(out);
        }
        self.ask_to_sleep(out);
        if !self.runs() || !self.raw.has_ready() {
            return Ok(None);
        }
        let Some(mut ready) = self.guarded(RawNode::ready) else { return Ok(None) };
        for state in ready.take_read_states() {
            self.reads.confirmed(&state.request_ctx, state.index);
        }
        self.reads.applied(self.applied.index, answers);
        let must_write = ready.must_sync();
        let number = ready.number();
        let part = self.add_to_write(&mut ready, write, answers)?;
        let committed = ready.take_committed_entries();
        self.work.add(committed);
        let mut messages = ready.take_messages();
        messages.extend(ready.take_persisted_messages());
        self.guarded(|raw| raw.advance_append_async(ready));
        self.send_in_order(part, messages, out);
        Ok(must_write.then_some(number))
    }

    /// Sends what rests on nothing that is being written, and keeps the rest. A quorum's word does not, nor does a heartbeat's
    /// answer, and a follower who has nothing to write has nothing to wait for: other regions of the round have, and their sync
    /// takes long.
    fn send_in_order(&mut self, mut part: Part, messages: Vec<Message>, out: &mut Outbox) {
        let silent = part.votes || self.unwritten.0.iter().any(|part| part.votes);
        let leads = self.raw.raft.state == StateRole::Leader;
        let waits = !part.written || !self.all_written();
        let at_once = |message: &Message| {
            !silent && (leads || message.get_msg_type() == MessageType::MsgHeartbeatResponse)
        };
        let (early, late) = messages.into_iter().partition(|message| !waits || at_once(message));
        self.send(early, out);
        if waits {
            part.messages = late;
            self.unwritten.0.push_back(part);
        } else {
            let number = part.number;
            self.guarded(|raw| raw.on_persist_ready(number));
        }
    }

    /// Adds to a write what Raft wants on disk, and lets Raft read it from now on.
    fn add_to_write(
        &mut self,
        ready: &mut Ready,
        write: &mut LogWrite,
        answers: &mut Answers,
    ) -> Result<Part> {
        let region = self.region.id;
        let stored = self.raw.store().hard();
        let votes =
            ready.hs().is_some_and(|hard| (hard.term, hard.vote) != (stored.term, stored.vote));
        let hard = ready.hs().unwrap_or(stored).clone();
        let snapshot = match ready.snapshot().is_empty() {
            true => None,
            false => Some(self.take_snapshot(write, answers)?),
        };
        if ready.must_sync() {
            write_hard(write, region, &hard)?;
            write.sync();
        }
        let entries = ready.take_entries();
        write.entries(region, entries.clone());
        let storage = self.raw.mut_store();
        storage.set_hard(hard);
        storage.appended(entries);
        let (number, written) = (ready.number(), !ready.must_sync());
        Ok(Part { number, written, votes, snapshot, messages: Vec::new() })
    }

    /// Replaces the log by an offered snapshot, which Raft has accepted.
    fn take_snapshot(
        &mut self,
        write: &mut LogWrite,
        answers: &mut Answers,
    ) -> Result<PendingSpool> {
        let region = self.region.id;
        let Some(spool) = self.offered.take() else {
            return Err(Error::Corrupt(format!("region {region}: a snapshot without its data")));
        };
        let (index, term) = spool.at;
        let at = Position { index, term };
        write.forget(region);
        let local = LocalPeer { peer: self.me, region: spool.region.clone() };
        write.put(region, KEY_PEER, postcard::to_stdvec(&local)?);
        write.put(region, KEY_SPOOL, postcard::to_stdvec(&spool)?);
        write_cut(write, region, at)?;
        let conf = conf_state(&spool.region);
        let storage = self.raw.mut_store();
        storage.replaced(at, conf.clone());
        // Nothing to send to others before the machine holds it.
        storage.set_machine(Position::default(), conf);
        self.proposals.jumped(region, index, answers);
        self.work.clear();
        self.delayed = None;
        Ok(spool)
    }

    /// What Raft wanted by a number is on disk, and all before it. What is committed by that comes with the next round.
    pub fn written(&mut self, number: u64, out: &mut Outbox) {
        if !self.runs() {
            return;
        }
        for part in self.unwritten.0.iter_mut().take_while(|part| part.number <= number) {
            part.written = true;
        }
        let mut last = None;
        while let Some(part) = self.unwritten.0.pop_front_if(|part| part.written) {
            last = Some(part.number);
            self.send(part.messages, out);
            if let Some(spool) = part.snapshot {
                let index = spool.at.0;
                self.guarded(|raw| raw.on_persist_ready(part.number));
                // Raft may go on from there; the machine takes its time.
                self.guarded(|raw| raw.advance_apply_to(index));
                self.work.add_restore(spool);
            }
        }
        if let Some(last) = last {
            self.guarded(|raw| raw.on_persist_ready(last));
        }
        let persisted = self.raw.raft.raft_log.persisted;
        self.raw.mut_store().written_to(persisted);
    }
}
