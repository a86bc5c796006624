//! The store's part in writing the log: one write under way, and what waits for the next.
//!
//! The store goes on while the disk is at work: leaders send, heartbeats are answered, what is committed is applied. It must
//! never have two writes under way, or take for written what is not.

use std::sync::atomic::Ordering;

use types::{Error, PeerId, RegionId, Result};

use super::Store;
use crate::peer::{BUSY_TICKS, Outbox};
use crate::work::Writing;

/// Ticks for which a disk counts as slow after a write that took longer than an election.
const SLOW_TICKS: u64 = 1_200;
/// Election timeouts for which a write may take before nothing more is begun here.
const HANGS_AFTER: u64 = 4;

/// How far the log's writes are.
#[derive(Default)]
pub(crate) struct Writer {
    /// When the write began that is under way, in ticks.
    since: Option<u64>,
    /// Until when the disk counts as slow, in ticks.
    slow_until: u64,
    /// By which number each peer is informed of what is to be written next.
    pub parts: Vec<(RegionId, PeerId, u64)>,
    stalled: Option<Stalled>,
}

/// Nothing can be written.
struct Stalled {
    /// What is to be tried again; none while that is under way.
    failed: Option<Writing>,
    why: String,
    /// Tick of the first failure.
    since: u64,
}

impl Writer {
    /// Whether a write is under way.
    pub fn is_busy(&self) -> bool {
        self.since.is_some()
    }

    /// Why nothing can be written, if so.
    pub fn stalled(&self) -> Option<&str> {
        self.stalled.as_ref().map(|stalled| stalled.why.as_str())
    }

    pub fn check(&self) -> Result<()> {
        self.stalled().map_or(Ok(()), |why| Err(Error::Unavailable(why.to_owned())))
    }
}

impl Store {
    /// Begins to write what there is, unless a write is under way.
    pub(super) fn write(&mut self) {
        if self.writer.is_busy() || self.later.is_empty() {
            return;
        }
        let write = std::mem::take(&mut self.later);
        let parts = std::mem::take(&mut self.writer.parts);
        self.hand_to_worker(Writing { log: self.log.clone(), write, parts, result: Ok(()) });
    }

    fn hand_to_worker(&mut self, writing: Writing) {
        self.writer.since = Some(self.now);
        if let Some(done) = self.worker.write(writing) {
            self.written(done);
        }
    }

    /// A write has ended. Informs those who waited for it; one that failed is tried again, and nothing is acknowledged until
    /// then.
    pub fn written(&mut self, mut writing: Writing) {
        self.writer.since = None;
        let known = self.writer.stalled.take();
        if known.is_some() || writing.result.is_err() {
            self.touched.extend(self.peers.keys().copied());
        }
        if let Err(error) = std::mem::replace(&mut writing.result, Ok(())) {
            let why = error.to_string();
            // Said once, for a full disk is tried often.
            if known.as_ref().is_none_or(|known| known.why != why) {
                tracing::error!(
                    why,
                    "nothing is acknowledged while the Raft log cannot be written"
                );
            }
            let since = known.map_or(self.now, |known| known.since);
            self.writer.stalled = Some(Stalled { failed: Some(writing), why, since });
            return;
        }
        if known.is_some() {
            tracing::info!("the Raft log can be written again");
        }
        let mut out = Outbox::default();
        for (region, id, number) in writing.parts {
            let Some(peer) = self.peers.get_mut(&region).filter(|peer| peer.me.id == id) else {
                continue;
            };
            peer.written(number, &mut out);
            // Before a learner hears what is committed.
            self.board.withdraw(peer);
            if peer.has_work() {
                self.dirty.insert(region);
            }
        }
        self.send(out);
    }

    /// Time passes while nothing can be written. Returns whether that is so.
    pub(super) fn tick_stalled(&mut self) -> bool {
        let Some(stalled) = &mut self.writer.stalled else { return false };
        // By now another node may lead, and those who wait here had better ask there.
        if self.now == stalled.since + 2 * self.config.election_ticks as u64 {
            let peers = self.peers.values_mut();
            peers.for_each(|peer| peer.abandon(&stalled.why, &mut self.answers));
        }
        if let Some(failed) = stalled.failed.take() {
            self.hand_to_worker(failed);
        }
        true
    }

    /// Shows whether the disk counts as slow.
    pub(super) fn show_pace(&self) {
        let slow = self.now < self.writer.slow_until;
        match (self.board.slow_disk.swap(slow, Ordering::Relaxed), slow) {
            (false, true) => {
                tracing::warn!("this node's disk is slow: others had better lead")
            }
            (true, false) => tracing::info!("this node's disk is not slow any more"),
            _ => {}
        }
    }

    /// Gives leadership away while the disk does not answer, and in the end does what a node without a disk can: nothing.
    /// Other voters need no answer of this disk, but what they commit is answered here only once it is written here, too.
    pub(super) fn tick_writing(&mut self) {
        let (now, election) = (self.now, self.config.election_ticks as u64);
        let applying = self.peers.values().filter_map(|peer| peer.applying_since);
        if applying.min().is_some_and(|since| now - since >= BUSY_TICKS) {
            self.writer.slow_until = now + SLOW_TICKS;
        }
        let Some(since) = self.writer.since else { return };
        let taken = now - since;
        if taken >= election {
            self.writer.slow_until = self.now + SLOW_TICKS;
        }
        if taken == election {
            for (region, peer) in &mut self.peers {
                peer.hand_over_to_any();
                self.dirty.insert(*region);
            }
        }
        if taken == HANGS_AFTER * election {
            let why = "the disk of the Raft log does not answer".to_owned();
            tracing::error!(why, "this node's regions stop until it does");
            self.touched.extend(self.peers.keys().copied());
            self.writer.stalled = Some(Stalled { failed: None, why, since: self.now });
        }
    }
}
