//! Committed entries on their way into the machine.
//!
//! Entries are applied in order, once each, in batches; what was applied is reported to those who
//! wait only after the batch has ended and readers can see it.

use std::collections::VecDeque;
use std::sync::Arc;

use protobuf::Message as _;
use raft_rs::eraftpb::{ConfChangeV2, Entry, EntryType};
use types::{Error, Region, Result};

use crate::log::LogWrite;
use crate::machine::{Command, Effect, Machine, Position};
use crate::membership::MemberChange;
use crate::peer::{Peer, RESTORE_AGAIN_TICKS, Slot, Work};
use crate::reply::Answers;
use crate::snapshot::SpoolDir;
use crate::storage::{KEY_SPOOL, PendingSpool, conf_state};
use crate::work::{Job, Returned, Task};

/// What applying asks of the store.
#[derive(Default)]
pub(crate) struct Applied {
    /// Children of a split, to be given groups of their own.
    pub children: Vec<Box<dyn Machine>>,
    /// Work to be done apart.
    pub job: Option<Job>,
}

/// What one entry did.
enum Outcome {
    Effect(bool),
    Split(Vec<Box<dyn Machine>>),
}

impl Peer {
    /// Applies what is queued, up to the end of a batch, a split or a snapshot.
    pub fn apply(&mut self, spools: &Arc<SpoolDir>, answers: &mut Answers) -> Applied {
        let mut applied = Applied::default();
        if !self.can_apply() {
            return applied;
        }
        match self.work.pop_front() {
            None => {}
            Some(Work::Restore(spool)) => {
                applied.job = self.lend(Task::Restore(spool), Slot::Restoring, spools);
            }
            Some(Work::Entries(entries)) => match self.apply_entries(entries, answers) {
                Ok(children) => applied.children = children,
                Err(error) => self.fail_by(&error, "entry cannot be applied: "),
            },
        }
        applied
    }

    /// Gives the machine away for a job.
    pub fn lend(&mut self, task: Task, until: Slot, spools: &Arc<SpoolDir>) -> Option<Job> {
        match std::mem::replace(&mut self.slot, until) {
            Slot::Here(machine) => {
                Some(Job { region: self.region.id, machine, task, spools: spools.clone() })
            }
            other => {
                self.slot = other;
                None
            }
        }
    }

    /// Takes the machine back. Adds what must be written now that the job is done.
    pub fn take_back(
        &mut self,
        returned: Returned,
        spools: &SpoolDir,
        write: &mut LogWrite,
        answers: &mut Answers,
    ) {
        let Returned { machine, task, result, .. } = returned;
        let region = machine.region().clone();
        let at = machine.applied();
        self.slot = Slot::Here(machine);
        match (result, task) {
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
        if !matches!(self.work.front(), Some(Work::Restore(_))) {
            self.work.push_front(Work::Restore(spool));
        }
        let why = format!("snapshot cannot be taken over yet: {error}");
        self.delayed = Some((RESTORE_AGAIN_TICKS, why));
    }

    fn apply_entries(
        &mut self,
        mut entries: VecDeque<Entry>,
        answers: &mut Answers,
    ) -> Result<Vec<Box<dyn Machine>>> {
        let mut children = Vec::new();
        while let Some(entry) = entries.pop_front() {
            let at = Position { index: entry.index, term: entry.term };
            match self.apply_entry(at, &entry)? {
                Outcome::Effect(took_effect) => self.proposals.applied(at, took_effect),
                Outcome::Split(split) => {
                    self.proposals.applied(at, true);
                    children = split;
                }
            }
            if self.removed || !children.is_empty() {
                break;
            }
        }
        if !entries.is_empty() {
            self.work.push_front(Work::Entries(entries));
        }
        self.end_batch(!children.is_empty(), answers)?;
        Ok(children)
    }

    /// Makes the batch visible, and durable if groups are about to be created on it.
    fn end_batch(&mut self, durable: bool, answers: &mut Answers) -> Result<()> {
        let Slot::Here(machine) = &mut self.slot else { return Ok(()) };
        machine.finish_batch()?;
        if durable {
            machine.persist()?;
        }
        let at = machine.applied();
        let changed = machine.region() != &*self.region;
        let region = changed.then(|| machine.region().clone());
        if let Some(region) = region {
            self.region_changed(region);
        }
        self.applied = at;
        let conf = conf_state(&self.region);
        self.raw.mut_store().set_machine(at, conf);
        self.guarded(|raw| raw.advance_apply_to(at.index));
        self.proposals.batch_ended(answers);
        self.reads.applied(at.index, answers);
        Ok(())
    }

    fn apply_entry(&mut self, at: Position, entry: &Entry) -> Result<Outcome> {
        match entry.get_entry_type() {
            EntryType::EntryNormal => {
                let command =
                    if entry.data.is_empty() { Command::Empty } else { Command::Data(&entry.data) };
                self.apply_command(at, command)
            }
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                self.apply_membership(at, entry)
            }
        }
    }

    fn apply_command(&mut self, at: Position, command: Command<'_>) -> Result<Outcome> {
        let Slot::Here(machine) = &mut self.slot else {
            return Err(Error::Unavailable("the machine is away".to_owned()));
        };
        let effect = machine.apply(at, command)?;
        if machine.applied() != at {
            return Err(Error::Corrupt(format!(
                "the machine says it is at {:?} after entry {at:?}",
                machine.applied()
            )));
        }
        Ok(match effect {
            Effect::Applied => Outcome::Effect(true),
            Effect::Dropped => Outcome::Effect(false),
            Effect::Split(children) => Outcome::Split(children),
        })
    }

    /// Membership is computed from the region as applied, so a split in between does not matter.
    fn apply_membership(&mut self, at: Position, entry: &Entry) -> Result<Outcome> {
        let corrupt =
            |what: &str| Error::Corrupt(format!("membership entry at {}: {what}", at.index));
        let change = ConfChangeV2::parse_from_bytes(&entry.data)
            .map_err(|_| corrupt("not a membership change"))?;
        if change.get_changes().is_empty() {
            return self.apply_command(at, Command::Empty);
        }
        let member: MemberChange = postcard::from_bytes(&change.context)?;
        let Slot::Here(machine) = &self.slot else { return Err(corrupt("the machine is away")) };
        let Some(region) = member.apply(machine.region()) else {
            self.apply_command(at, Command::Empty)?;
            return Ok(Outcome::Effect(false));
        };
        let steps = member.steps(machine.region());
        let outcome = self.apply_command(at, Command::Membership(&region))?;
        if let Slot::Here(machine) = &self.slot
            && machine.region() != &region
        {
            return Err(corrupt("the machine did not take it over"));
        }
        for step in steps {
            match self.guarded(|raw| raw.apply_conf_change(&step)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(corrupt(&error.to_string())),
                None => return Err(corrupt("Raft stopped")),
            }
        }
        if region.peer(self.me.id).is_none() {
            self.removed = true;
        }
        self.region_changed(region);
        Ok(outcome)
    }
}
