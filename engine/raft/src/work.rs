//! Work that may take long, done apart from the loop that keeps the groups alive: on machines, and on the log's disk.
//!
//! A job owns its machine while it runs, so nothing else can touch it; the store has no peer of a region that a job makes or
//! removes. Of the log one write at a time is under way, and what
//! comes meanwhile goes into the next one, with one sync for all of it.

use std::sync::Arc;

use types::{PeerId, Region, RegionId, Result};

use crate::batch::Batch;
use crate::log::{LogWrite, RaftLog};
use crate::machine::{Machine, Position};
use crate::provision::{Making, Removal};
use crate::snapshot::SpoolDir;
use crate::storage::PendingSpool;

/// What is to be done with a machine.
pub(crate) enum Task {
    /// Apply entries, and make what comes of it durable if it must be.
    Apply(Batch),
    /// Replace its state by a spooled snapshot's, durably.
    Restore(PendingSpool),
    /// Make its state durable.
    Persist,
}

/// A task with its machine.
pub(crate) struct MachineJob {
    pub machine: Box<dyn Machine>,
    pub task: Task,
    pub spools: Arc<SpoolDir>,
}

impl MachineJob {
    fn run(&mut self) -> Result<()> {
        match &mut self.task {
            Task::Apply(batch) => batch.finish(self.machine.as_mut()),
            Task::Restore(spool) => restore(self.machine.as_mut(), &self.spools, spool),
            Task::Persist => self.machine.persist(),
        }
    }
}

/// What is to be done for a region.
pub struct Job {
    pub(crate) region: RegionId,
    pub(crate) kind: JobKind,
}

pub(crate) enum JobKind {
    /// On the machine of its peer.
    Machine(MachineJob),
    /// Its peer is to be made.
    Making(Making),
    /// What is stored of a peer is to be removed.
    Removal(Removal),
}

/// A job that comes back.
pub struct Returned {
    pub(crate) region: RegionId,
    pub(crate) kind: JobKind,
    pub(crate) result: Result<()>,
}

impl Job {
    /// Whether somebody may wait for it, so that it must not wait behind snapshots.
    pub(crate) fn is_urgent(&self) -> bool {
        match &self.kind {
            JobKind::Machine(job) => matches!(job.task, Task::Apply(_)),
            JobKind::Making(_) => true,
            JobKind::Removal(_) => false,
        }
    }

    /// Does the work; may block for as long as writing or removing the region's data takes.
    pub fn run(mut self) -> Returned {
        let result = match &mut self.kind {
            JobKind::Machine(job) => job.run(),
            JobKind::Making(making) => making.run(),
            JobKind::Removal(removal) => removal.run(self.region),
        };
        Returned { region: self.region, kind: self.kind, result }
    }
}

/// Restores a machine from a spool and makes it durable, so that the spool may go.
pub(crate) fn restore(
    machine: &mut dyn Machine,
    spools: &SpoolDir,
    spool: &PendingSpool,
) -> Result<()> {
    let (index, term) = spool.at;
    let region: &Region = &spool.region;
    let mut chunks = spools.open_chunks(spool)?;
    machine.restore(region, Position { index, term }, &mut chunks)?;
    machine.persist()
}

/// Changes to the log of any number of groups that become durable together.
pub struct Writing {
    pub(crate) log: Arc<RaftLog>,
    pub(crate) write: LogWrite,
    /// By which number each peer is informed.
    pub(crate) parts: Vec<(RegionId, PeerId, u64)>,
    /// Whether it is on disk.
    pub(crate) result: Result<()>,
}

impl Writing {
    /// Writes and syncs; blocks for as long as the disk takes.
    pub fn run(mut self) -> Self {
        self.result = self.log.write(&self.write);
        self
    }
}

/// Who does the jobs.
pub trait Worker: Send {
    /// Does the job now and returns the machine, or takes it to return it later through
    /// [`crate::Store::returned`].
    fn run(&mut self, job: Job) -> Option<Returned>;

    /// Writes the log now, or arranges for [`crate::Store::written`] to be called once it is.
    fn write(&mut self, writing: Writing) -> Option<Writing>;

    /// Purges the log now and returns the regions whose old entries stand in the way, or arranges
    /// for [`crate::Store::purged`] to be called with them.
    fn purge(&mut self, log: &Arc<RaftLog>) -> Option<Vec<RegionId>>;
}

/// Purges the log; a failure is only reported, as the next round tries again.
pub(crate) fn purge(log: &RaftLog) -> Vec<RegionId> {
    log.purge().unwrap_or_else(|error| {
        tracing::warn!(%error, "old Raft log files stay for now");
        Vec::new()
    })
}

/// Does every job at once, on the caller's thread.
pub struct Inline;

impl Worker for Inline {
    fn run(&mut self, job: Job) -> Option<Returned> {
        Some(job.run())
    }

    fn write(&mut self, writing: Writing) -> Option<Writing> {
        Some(writing.run())
    }

    fn purge(&mut self, log: &Arc<RaftLog>) -> Option<Vec<RegionId>> {
        Some(purge(log))
    }
}
