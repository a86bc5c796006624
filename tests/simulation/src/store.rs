//! Drives a node's Raft store as its thread does: takes what has come, ticks, goes round by round.
//!
//! One store, one driver; what takes long on helpers' threads in production takes simulated time here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use env::{Random, SimDisk};
use parking_lot::Mutex;
use raft::testing::SimGroups;
use raft::{
    Envelope, Groups, Inline, Job, Participation, PeerStatus, Pending, Position, RaftLog, Returned,
    SpoolWriter, Spooled, Store, TICK, Worker, Writing,
};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval_at, sleep};
use types::{Error, Peer, PeerId, Region, RegionId, Result};

use crate::process::Process;

/// Rounds that a store may have work for at one time.
const MAX_ROUNDS: u64 = 100_000;

type Slot = Arc<Mutex<Option<Store>>>;

/// How long a sync of a host's disk takes.
#[derive(Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Every sync takes up to so many milliseconds more.
    pub(crate) fn slow_down(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    fn most(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A node's Raft store, reached from its other parts and from the network.
#[derive(Clone)]
pub(crate) struct RaftNode {
    store: Slot,
    groups: SimGroups,
    wake: Arc<Notify>,
    /// Writes of the log that have ended and are not in the store's hands.
    written: Written,
}

impl RaftNode {
    /// A node whose store is opened by `open`, with the worker to pass on.
    pub(crate) fn open(
        random: Random,
        pace: Arc<Pace>,
        open: impl FnOnce(Box<dyn Worker>) -> Result<Store>,
    ) -> Result<Self> {
        let store = Slot::default();
        let wake = Arc::new(Notify::new());
        let written = Written::default();
        let (helped, woken) = (store.clone(), wake.clone());
        let helper = Helper { random, pace, store: helped, wake: woken, written: written.clone() };
        let opened = open(Box::new(helper))?;
        *store.lock() = Some(opened);
        Ok(RaftNode { groups: SimGroups::over(store.clone()), store, wake, written })
    }

    /// The process is gone, and its memory with it.
    pub(crate) fn close(&self) {
        // Dropped outside of the lock: who waits for answers gets them as the store goes.
        let gone = self.store.lock().take();
        drop(gone);
    }

    pub(crate) fn receive(&self, envelope: Envelope) {
        if let Some(store) = self.store.lock().as_mut() {
            store.receive(vec![envelope]);
        }
        self.wake.notify_one();
    }

    pub(crate) fn spool(&self, header: Envelope) -> Result<SpoolWriter> {
        let gone = || Error::Unavailable("the node is down".into());
        self.store.lock().as_ref().ok_or_else(gone)?.spool(header)
    }

    pub(crate) fn receive_snapshot(&self, spooled: Spooled) {
        if let Some(store) = self.store.lock().as_mut() {
            store.receive_snapshot(spooled);
        }
        self.wake.notify_one();
    }

    /// Takes part in these groups from now on.
    pub(crate) fn participate(&self, participation: Participation) {
        if let Some(store) = self.store.lock().as_mut() {
            store.participate(participation);
        }
        self.wake.notify_one();
    }

    /// Drives the store until the process dies or its disk goes down.
    pub(crate) async fn drive(self, process: Arc<Process>, disk: SimDisk, random: Random) {
        // Nodes' clocks are not in step.
        let first = Duration::from_millis(random.below(TICK.as_millis() as u64));
        let mut ticks = interval_at(tokio::time::Instant::now() + first, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let tick = tokio::select! {
                biased;
                _ = ticks.tick() => true,
                () = self.wake.notified() => false,
            };
            if !process.running().await {
                return;
            }
            if tick && let Some(store) = self.store.lock().as_mut() {
                store.tick();
            }
            let written = std::mem::take(&mut *self.written.lock());
            for writing in written {
                if let Some(store) = self.store.lock().as_mut() {
                    store.written(writing);
                }
            }
            let mut rounds = 0;
            loop {
                let more = match self.store.lock().as_mut() {
                    Some(store) => store.drive(),
                    None => return,
                };
                if disk.is_down() {
                    return;
                }
                if !more {
                    break;
                }
                rounds += 1;
                // Time stands still meanwhile: nothing could come that it waits for.
                assert!(rounds < MAX_ROUNDS, "a store goes round without end");
            }
        }
    }

    fn woken<T>(&self, answer: T) -> T {
        self.wake.notify_one();
        answer
    }
}

type Written = Arc<Mutex<Vec<Writing>>>;

/// Does long jobs beside the rounds, in simulated time.
struct Helper {
    random: Random,
    pace: Arc<Pace>,
    store: Slot,
    wake: Arc<Notify>,
    written: Written,
}

impl Worker for Helper {
    fn run(&mut self, job: Job) -> Option<Returned> {
        let takes = self.random.below(40);
        // At opening nobody drives the store yet, who could take it back.
        if takes < 10 || self.store.try_lock().is_some() {
            return Some(job.run());
        }
        let (store, wake) = (self.store.clone(), self.wake.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(takes)).await;
            if store.lock().is_none() {
                return;
            }
            let returned = job.run();
            if let Some(store) = store.lock().as_mut() {
                store.returned(returned);
            }
            wake.notify_one();
        });
        None
    }

    /// A disk takes its time in one of three writes, and a slow one in all of them.
    fn write(&mut self, writing: Writing) -> Option<Writing> {
        let usual = if self.random.chance(0.33) { self.random.below(20) } else { 0 };
        let takes = usual + self.random.below(self.pace.most() + 1);
        if takes == 0 || self.store.try_lock().is_some() {
            return Some(writing.run());
        }
        let (store, wake, written) = (self.store.clone(), self.wake.clone(), self.written.clone());
        tokio::spawn(async move {
            sleep(Duration::from_millis(takes)).await;
            // A process that is gone writes no more.
            if store.lock().is_some() {
                written.lock().push(writing.run());
                wake.notify_one();
            }
        });
        None
    }

    fn purge(&mut self, log: &Arc<RaftLog>) -> Option<Vec<RegionId>> {
        Inline.purge(log)
    }
}

impl Groups for RaftNode {
    fn status(&self, region: RegionId) -> Option<PeerStatus> {
        self.groups.status(region)
    }

    fn statuses(&self) -> Vec<PeerStatus> {
        self.groups.statuses()
    }

    fn has_slow_disk(&self) -> bool {
        self.groups.has_slow_disk()
    }

    fn propose(&self, region: RegionId, term: u64, data: Vec<u8>) -> Pending<Position> {
        self.woken(self.groups.propose(region, term, data))
    }

    fn read_index(&self, region: RegionId) -> Pending<u64> {
        self.woken(self.groups.read_index(region))
    }

    fn confirm(&self, region: RegionId, term: u64) -> Option<Pending<()>> {
        self.groups.confirm(region, term)
    }

    fn confirm_all(&self, groups: &[(RegionId, u64)]) -> Vec<Option<Pending<()>>> {
        self.groups.confirm_all(groups)
    }

    fn reached(&self, region: RegionId, index: u64) -> Pending<()> {
        self.woken(self.groups.reached(region, index))
    }

    fn change_membership(&self, region: RegionId, peers: Vec<Peer>) -> Pending<Region> {
        self.woken(self.groups.change_membership(region, peers))
    }

    fn transfer(&self, region: RegionId, to: PeerId) {
        self.groups.transfer(region, to);
        self.wake.notify_one();
    }

    fn create(&self, region: Region) -> Pending<()> {
        self.woken(self.groups.create(region))
    }

    fn destroy(&self, region: RegionId) -> Pending<()> {
        self.woken(self.groups.destroy(region))
    }
}
