//! Committed entries on their way into the machine.
//!
//! What was applied is reported to those who wait only after its batch has ended and readers can see it. It must never keep
//! Raft's thread waiting for the disk: where the machine would, it is given away for a job.

use std::sync::Arc;

use raft_rs::eraftpb::ConfChangeV2;
use types::{Error, Region, Result};

use crate::batch::Batch;
use crate::log::LogWrite;
use crate::machine::{Machine, Position, Room};
use crate::peer::{Peer, RESTORE_AGAIN_TICKS, Slot, Work};
use crate::reply::Answers;
use crate::snapshot::SpoolDir;
use crate::storage::{KEY_SPOOL, PendingSpool, conf_state};
use crate::work::{Job, JobKind, MachineJob, Task};

impl Peer {
    /// Applies what is queued, up to the end of a batch, a split or a snapshot: here if there is room for that without
    /// waiting for the disk, else by a job, which is returned. Returns the children of a split, too.
    pub fn apply(
        &mut self,
        now: u64,
        room: Option<Room>,
        spools: &Arc<SpoolDir>,
        answers: &mut Answers,
    ) -> (Option<Job>, Vec<Box<dyn Machine>>) {
        let nothing = (None, Vec::new());
        if !self.can_apply() {
            return nothing;
        }
        let entries = match self.work.take(self.raw.store()) {
            Ok(None) => return nothing,
            Ok(Some(Work::Restore(spool))) => {
                return (self.lend(Task::Restore(spool), Slot::Restoring, spools), Vec::new());
            }
            Ok(Some(Work::Entries(entries))) => entries,
            Err(error) => {
                self.fail_by(&error, "entries cannot be read: ");
                return nothing;
            }
        };
        let mut batch = Batch::new(entries);
        if let (Some(_room), Slot::Here(machine)) = (room, &mut self.slot) {
            let applied = batch.apply(machine.as_mut());
            if applied.is_err() || !batch.must_persist() {
                return (None, self.applied(applied, batch, answers));
            }
        }
        self.applying_since = Some(now);
        (self.lend(Task::Apply(batch), Slot::Applying, spools), Vec::new())
    }

    /// Gives the machine away for a job.
    pub fn lend(&mut self, task: Task, until: Slot, spools: &Arc<SpoolDir>) -> Option<Job> {
        match std::mem::replace(&mut self.slot, until) {
            Slot::Here(machine) => {
                let job = MachineJob { machine, task, spools: spools.clone() };
                Some(Job { region: self.region.id, kind: JobKind::Machine(job) })
            }
            other => {
                self.slot = other;
                None
            }
        }
    }

    /// Takes the machine back. Adds what must be written now that the job is done, and returns the children of a split.
    pub fn take_back(
        &mut self,
        job: MachineJob,
        result: Result<()>,
        spools: &SpoolDir,
        write: &mut LogWrite,
        answers: &mut Answers,
    ) -> Vec<Box<dyn Machine>> {
        let MachineJob { machine, task, .. } = job;
        let region = machine.region().clone();
        let at = machine.applied();
        self.slot = Slot::Here(machine);
        self.applying_since = None;
        match (result, task) {
            (result, Task::Apply(batch)) => return self.applied(result, batch, answers),
            (Ok(()), Task::Persist) => {}
            (Ok(()), Task::Restore(spool)) => {
                self.restored(&spool, region, at, (spools, write), answers)
            }
            (Err(error @ (Error::Io(_) | Error::Unavailable(_))), Task::Restore(spool)) => {
                self.restore_later(spool, &error);
            }
            (Err(error), Task::Restore(_)) => {
                self.fail_by(&error, "snapshot cannot be taken over: ");
            }
            (Err(error), Task::Persist) => self.fail_by(&error, "state cannot be made durable: "),
        }
        Vec::new()
    }

    fn restored(
        &mut self,
        spool: &PendingSpool,
        region: Region,
        at: Position,
        (spools, write): (&SpoolDir, &mut LogWrite),
        answers: &mut Answers,
    ) {
        write.delete(self.region.id, KEY_SPOOL);
        // Until that is on disk a restart looks for the file, and finds the machine ahead.
        if let Err(error) = spools.remove(&spool.file) {
            tracing::warn!(%error, "a used snapshot spool stays until the next start");
        }
        self.applied = at;
        self.region_changed(region);
        let conf = conf_state(&self.region);
        self.raw.mut_store().set_machine(at, conf);
        self.reads.applied(at.index, answers);
    }

    /// A full disk may have room again, a neighbour be split: the snapshot is kept and tried again, unless
    /// a later one has come. A restore begins from nothing, as it does after a crash.
    fn restore_later(&mut self, spool: PendingSpool, error: &Error) {
        let region = self.region.id;
        tracing::warn!(region, %error, "a snapshot cannot be taken over yet");
        if !self.work.begins_with_restore() {
            self.work.put_back_restore(spool);
        }
        let why = format!("snapshot cannot be taken over yet: {error}");
        self.delayed = Some((RESTORE_AGAIN_TICKS, why));
    }

    /// Raft's part in a batch that the machine, which is here again, has applied. Returns the children of a split.
    fn applied(
        &mut self,
        result: Result<()>,
        batch: Batch,
        answers: &mut Answers,
    ) -> Vec<Box<dyn Machine>> {
        if let Err(error) = result {
            self.fail_by(&error, "entry cannot be applied: ");
            return Vec::new();
        }
        let Slot::Here(machine) = &self.slot else { return Vec::new() };
        let (at, region) = (machine.applied(), machine.region());
        if *region != *self.region {
            let region = region.clone();
            self.region_changed(region);
        }
        // A snapshot came meanwhile, and the log begins after it: what was applied is part of it.
        if self.restoring() {
            return batch.children;
        }
        for (at, took_effect) in batch.outcomes {
            self.proposals.applied(at, took_effect);
        }
        self.work.put_back(batch.entries);
        if let Err(error) = self.change_members(at, batch.steps) {
            self.fail_by(&error, "entry cannot be applied: ");
        }
        self.applied = at;
        let conf = conf_state(&self.region);
        self.raw.mut_store().set_machine(at, conf);
        self.guarded(|raw| raw.advance_apply_to(at.index));
        self.proposals.batch_ended(answers);
        self.reads.applied(at.index, answers);
        batch.children
    }

    /// Raft takes over who is a member.
    fn change_members(&mut self, at: Position, steps: Vec<ConfChangeV2>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        for step in steps {
            if let Some(Err(error)) = self.guarded(|raw| raw.apply_conf_change(&step)) {
                let index = at.index;
                return Err(Error::Corrupt(format!("membership entry at {index}: {error}")));
            }
        }
        self.removed |= self.region.peer(self.me.id).is_none();
        Ok(())
    }
}
