//! The thread that drives a store, and the handle by which everyone else reaches it.
//!
//! The thread does nothing but rounds, and applies what can be applied without waiting for the disk. The log is written by
//! another one; applying what may wait, taking over snapshots, persisting and purging happen on more beside it, so that
//! neither the disk nor a region's bulk work delays another region's heartbeats.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use env::{Clock, Instant};
use parking_lot::Mutex;
use types::{Error, Peer, PeerId, Region, RegionId, Result};

use crate::board::Board;
use crate::config::{Participation, TICK};
use crate::groups::{Groups, PeerStatus, Pending};
use crate::log::RaftLog;
use crate::machine::Position;
use crate::mail::{Mail, Proposal, full, stopped};
use crate::peer::describe_panic;
use crate::reply::{Reply, at_once, reply_channel};
use crate::snapshot::{SpoolDir, SpoolWriter};
use crate::store::Store;
use crate::together;
use crate::transport::Envelope;
use crate::work::{Job, Returned, Worker, Writing, purge};

/// Requests and batches of messages that wait for the thread at most.
const MAILBOX: usize = 16_384;
/// Requests taken between two rounds at most.
const ROUND_MAIL: usize = 1024;
/// Threads for work beside the loop.
const HELPERS: usize = 2;

/// Reaches a store that runs on its own thread. Clones reach the same store.
#[derive(Clone)]
pub struct StoreHandle {
    mail: Sender<Mail>,
    board: Arc<Board>,
    spools: Arc<SpoolDir>,
    /// A handle outlives the store, and the log's directory is locked for as long as the log is open.
    log: Weak<RaftLog>,
    begun_anew: bool,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl StoreHandle {
    /// Opens a store by `open`, which is given the worker to pass on, and starts its thread.
    pub fn start(
        clock: Arc<dyn Clock>,
        open: impl FnOnce(Box<dyn Worker>) -> Result<Store>,
    ) -> Result<Self> {
        let (mail, inbox) = crossbeam_channel::bounded(MAILBOX);
        let (worker, mut threads) = Helpers::start(&mail)?;
        let store = open(Box::new(worker))?;
        let board = store.board();
        let (spools, log) = (store.spool_dir(), Arc::downgrade(&store.log));
        let begun_anew = store.log.begun_anew();
        let driver = Driver { store, inbox, clock };
        let loop_thread =
            std::thread::Builder::new().name("raft".to_owned()).spawn(move || driver.run())?;
        threads.insert(0, loop_thread);
        let threads = Arc::new(Mutex::new(threads));
        Ok(StoreHandle { mail, board, spools, log, begun_anew, threads })
    }

    /// Takes messages from other nodes; drops them when the store cannot keep up, as a network
    /// may.
    pub fn receive(&self, messages: Vec<Envelope>) {
        let messages = self.board.take_confirmations(messages);
        if !messages.is_empty() {
            // Raft repeats what was lost.
            let _ = self.mail.try_send(Mail::Messages(messages));
        }
    }

    /// Takes part in these groups from now on.
    pub fn participate(&self, participation: Participation) {
        // A store that has stopped takes part in none.
        let _ = self.mail.send(Mail::Participate(participation));
    }

    /// Reads the whole log of each peer that is sound as far as is known; one that has lost an entry
    /// goes on no more. Reads from disk and takes its time: `pause` is called after each group, and ends
    /// the walk by `false`.
    pub fn scrub(&self, mut pause: impl FnMut() -> bool) {
        for status in self.statuses().into_iter().filter(|status| status.fault.is_none()) {
            let region = status.region.id;
            // A store that has stopped is found to be so by everyone else.
            let Some(read) = self.log.upgrade().map(|log| log.verify(region)) else { return };
            if let Err(error @ Error::Corrupt(_)) = read {
                let _ = self.mail.send(Mail::Lose(region, error.to_string()));
            }
            if !pause() {
                return;
            }
        }
    }

    /// Begins to receive a snapshot: push its chunks, then [`StoreHandle::spooled`]. Both write to
    /// disk and may block.
    pub fn spool(&self, header: Envelope) -> Result<SpoolWriter> {
        self.spools.begin(header)
    }

    /// Ends a snapshot's spool and offers it to the region's peer. Once this returns the snapshot
    /// is safe on disk, and may be acknowledged to the sender.
    pub fn spooled(&self, spool: SpoolWriter) -> Result<()> {
        let spooled = Box::new(spool.finish()?);
        self.mail.send(Mail::Snapshot(spooled)).map_err(|_| stopped())
    }

    /// Stops the threads and waits for them; unless a scrub still reads it, the log is closed by then.
    /// What was proposed and not answered stays unknown.
    pub fn shutdown(&self) {
        // A store that stopped already has closed its mailbox.
        let _ = self.mail.send(Mail::Stop);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            if thread.join().is_err() {
                tracing::error!("a thread of the Raft store panicked");
            }
        }
    }

    fn submit<T: Send + 'static>(
        &self,
        what: &'static str,
        mail: impl FnOnce(Reply<T>) -> Mail,
    ) -> Pending<T> {
        let (reply, pending) = reply_channel(what);
        match self.mail.try_send(mail(reply)) {
            Ok(()) => pending,
            Err(TrySendError::Full(_)) => at_once(Err(full())),
            Err(TrySendError::Disconnected(_)) => at_once(Err(stopped())),
        }
    }
}

impl Groups for StoreHandle {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        self.board.status(region)
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.board.statuses()
    }

    fn begun_anew(&self) -> bool {
        self.begun_anew
    }

    fn has_slow_disk(&self) -> bool {
        self.board.slow_disk.load(Ordering::Relaxed)
    }

    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        let (reply, pending) = reply_channel("a proposal");
        together::propose(&self.mail, Proposal { region, term, data, reply });
        pending
    }

    fn read_index(&self, region: RegionId) -> Pending<u64> {
        match self.board.applied_alone(region) {
            Some(applied) => at_once(Ok(applied)),
            None => self.submit("a read index", |reply| Mail::ReadIndex(region, reply)),
        }
    }

    fn confirm(&self, region: RegionId, term: u64) -> Option<Pending<()>> {
        self.board.confirm(region, term)
    }

    fn confirm_all(&self, groups: &[(RegionId, u64)]) -> Vec<Option<Pending<()>>> {
        self.board.confirm_all(groups)
    }

    fn hurry(&self) {
        self.board.transport.hurry();
    }

    fn reached(&self, region: RegionId, index: u64) -> Pending<()> {
        if self.board.peers.read().get(&region).is_some_and(|peer| peer.applied.index >= index) {
            return at_once(Ok(()));
        }
        self.submit("a log entry to be applied", |reply| Mail::Reached(region, index, reply))
    }

    fn change_membership(&self, region: RegionId, peers: Vec<Peer>) -> Pending<Region> {
        self.submit("a membership change", |reply| Mail::Membership(region, peers, reply))
    }

    fn transfer(&self, region: RegionId, to: PeerId) {
        // Best effort, by contract.
        let _ = self.mail.try_send(Mail::Transfer(region, to));
    }

    fn create(&self, region: Region) -> Pending<()> {
        self.submit("a region's creation", |reply| Mail::Create(Box::new(region), reply))
    }

    fn destroy(&self, region: RegionId) -> Pending<()> {
        self.submit("a peer's removal", |reply| Mail::Destroy(region, reply))
    }
}

struct Driver {
    store: Store,
    inbox: Receiver<Mail>,
    clock: Arc<dyn Clock>,
}

impl Driver {
    fn run(self) {
        let Driver { mut store, inbox, clock } = self;
        let board = store.board();
        let ran = catch_unwind(AssertUnwindSafe(|| drive(&mut store, &inbox, clock.as_ref())));
        if let Err(panic) = ran {
            let why = format!("the Raft store stopped: {}", describe_panic(&panic));
            tracing::error!(why, "restart the node");
            for status in board.peers.write().values_mut() {
                status.fault = Some(why.clone());
                status.stopped = true;
                status.leader = None;
                status.decides = false;
                status.ready = false;
            }
        }
        // A store that has stopped answers nobody.
        board.peers.write().values_mut().for_each(|status| {
            status.alone = false;
            status.decides = false;
            status.leader = None;
        });
    }
}

/// Rounds and ticks until it is stopped.
fn drive(store: &mut Store, inbox: &Receiver<Mail>, clock: &dyn Clock) {
    let mut next_tick = clock.now() + TICK;
    let mut busy = true;
    loop {
        if !busy {
            match inbox.recv_timeout(next_tick.since(clock.now())) {
                Ok(mail) => {
                    if !deliver(store, mail) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        for mail in inbox.try_iter().take(ROUND_MAIL) {
            if !deliver(store, mail) {
                return;
            }
        }
        next_tick = tick_if_due(store, clock.now(), next_tick);
        busy = store.drive();
    }
}

/// A thread that was held up ticks once, not for all the time it missed: others kept time for it.
fn tick_if_due(store: &mut Store, now: Instant, next: Instant) -> Instant {
    if now < next {
        return next;
    }
    store.tick();
    let following = next + TICK;
    if following <= now { now + TICK } else { following }
}

/// Hands one piece of mail over; false to stop.
fn deliver(store: &mut Store, mail: Mail) -> bool {
    match mail {
        Mail::Messages(messages) => store.step(messages),
        Mail::Snapshot(spooled) => store.receive_snapshot(*spooled),
        Mail::Propose(proposals) => {
            for Proposal { region, term, data, reply } in proposals {
                store.propose(region, term, data, reply);
            }
        }
        Mail::ReadIndex(region, reply) => store.read_index(region, reply),
        Mail::Reached(region, index, reply) => store.reached(region, index, reply),
        Mail::Membership(region, peers, reply) => store.change_membership(region, peers, reply),
        Mail::Transfer(region, to) => store.transfer(region, to),
        Mail::Create(region, reply) => store.create(*region, reply),
        Mail::Destroy(region, reply) => store.destroy(region, reply),
        Mail::Returned(returned) => store.returned(*returned),
        Mail::Written(writing) => store.written(*writing),
        Mail::Purged(behind) => store.purged(behind),
        Mail::Participate(participation) => store.participate(participation),
        Mail::Lose(region, why) => store.lose_peer(region, &why),
        Mail::Stop => return false,
    }
    true
}

enum Chore {
    Job(Box<Job>),
    Purge(Arc<RaftLog>),
}

/// Threads beside the loop.
struct Helpers {
    chores: Sender<Chore>,
    /// A thread of its own: it must not wait behind snapshots.
    applies: Sender<Chore>,
    writer: Sender<Box<Writing>>,
}

impl Helpers {
    fn start(mail: &Sender<Mail>) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let (chores, queue) = crossbeam_channel::unbounded();
        let mut threads = Vec::new();
        let (applies, batches) = crossbeam_channel::unbounded();
        let helpers = (0..HELPERS).map(|number| (format!("raft-helper-{number}"), queue.clone()));
        for (name, queue) in helpers.chain([("raft-apply".to_owned(), batches)]) {
            let mail = mail.clone();
            let thread = std::thread::Builder::new().name(name);
            threads.push(thread.spawn(move || help(&queue, &mail))?);
        }
        let (writer, writings) = crossbeam_channel::bounded(1);
        let mail = mail.clone();
        let thread = std::thread::Builder::new()
            .name("raft-log".to_owned())
            .spawn(move || write_log(&writings, &mail))?;
        threads.push(thread);
        Ok((Helpers { chores, applies, writer }, threads))
    }
}

impl Worker for Helpers {
    fn run(&mut self, job: Job) -> Option<Returned> {
        let queue = if job.is_urgent() { &self.applies } else { &self.chores };
        match queue.send(Chore::Job(Box::new(job))) {
            Ok(()) => None,
            // No helper is left: do it here rather than not at all.
            Err(unsent) => match unsent.0 {
                Chore::Job(job) => Some(job.run()),
                Chore::Purge(_) => None,
            },
        }
    }

    fn write(&mut self, writing: Writing) -> Option<Writing> {
        // Without its thread it is written here rather than not at all.
        self.writer.send(Box::new(writing)).err().map(|unsent| unsent.0.run())
    }

    fn purge(&mut self, log: &Arc<RaftLog>) -> Option<Vec<RegionId>> {
        self.chores.send(Chore::Purge(log.clone())).is_err().then(|| purge(log))
    }
}

/// Writes the log until the store is gone.
fn write_log(writings: &Receiver<Box<Writing>>, mail: &Sender<Mail>) {
    for writing in writings {
        if mail.send(Mail::Written(Box::new(writing.run()))).is_err() {
            return;
        }
    }
}

/// Does chores until the store is gone.
fn help(queue: &Receiver<Chore>, mail: &Sender<Mail>) {
    for chore in queue {
        let done = match chore {
            Chore::Job(job) => Mail::Returned(Box::new(job.run())),
            Chore::Purge(log) => Mail::Purged(purge(&log)),
        };
        if mail.send(done).is_err() {
            return;
        }
    }
}
