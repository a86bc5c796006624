//! Entries that a machine applies together: the part that needs no Raft, and is done wherever the machine is.
//!
//! They are applied in order, once each, and become visible together. A batch ends early where Raft has a part in what comes
//! next: after a split, and after a change of members.

use std::collections::VecDeque;

use protobuf::Message as _;
use raft_rs::eraftpb::{ConfChangeV2, Entry, EntryType};
use types::{Error, Result};

use crate::machine::{Command, Effect, Machine, Position};
use crate::membership::MemberChange;

/// Entries that a machine applies together, and what came of it. The part that needs no Raft: it is done where the machine is.
pub(crate) struct Batch {
    /// Not applied yet. Some are left where a batch ends early: after a split, and after a change of members.
    pub entries: VecDeque<Entry>,
    /// Applied, and whether each took effect.
    pub outcomes: Vec<(Position, bool)>,
    /// What Raft is to do about the members.
    pub steps: Vec<ConfChangeV2>,
    /// Children of a split, to be given groups of their own once they are durable.
    pub children: Vec<Box<dyn Machine>>,
}

impl Batch {
    pub fn new(entries: VecDeque<Entry>) -> Self {
        Batch { entries, outcomes: Vec::new(), steps: Vec::new(), children: Vec::new() }
    }

    /// Does what has not been done yet; may wait for the disk.
    pub fn finish(&mut self, machine: &mut dyn Machine) -> Result<()> {
        if self.outcomes.is_empty() {
            self.apply(machine)?;
        }
        if self.must_persist() { machine.persist() } else { Ok(()) }
    }

    /// Whether groups are about to be created on what was applied.
    pub fn must_persist(&self) -> bool {
        !self.children.is_empty()
    }

    /// Applies the entries and makes them visible.
    pub fn apply(&mut self, machine: &mut dyn Machine) -> Result<()> {
        while self.children.is_empty()
            && self.steps.is_empty()
            && let Some(entry) = self.entries.pop_front()
        {
            let at = Position { index: entry.index, term: entry.term };
            let took_effect = self.apply_entry(machine, at, &entry)?;
            self.outcomes.push((at, took_effect));
        }
        machine.finish_batch()
    }

    fn apply_entry(
        &mut self,
        machine: &mut dyn Machine,
        at: Position,
        entry: &Entry,
    ) -> Result<bool> {
        match entry.get_entry_type() {
            EntryType::EntryNormal if entry.data.is_empty() => {
                self.apply_command(machine, at, Command::Empty)
            }
            EntryType::EntryNormal => self.apply_command(machine, at, Command::Data(&entry.data)),
            EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                self.apply_membership(machine, at, entry)
            }
        }
    }

    fn apply_command(
        &mut self,
        machine: &mut dyn Machine,
        at: Position,
        command: Command<'_>,
    ) -> Result<bool> {
        let effect = machine.apply(at, command)?;
        if machine.applied() != at {
            return Err(Error::Corrupt(format!(
                "the machine says it is at {:?} after entry {at:?}",
                machine.applied()
            )));
        }
        match effect {
            Effect::Dropped => return Ok(false),
            Effect::Applied => {}
            Effect::Split(children) => self.children = children,
        }
        Ok(true)
    }

    /// Membership is computed from the region as applied, so a split in between does not matter.
    fn apply_membership(
        &mut self,
        machine: &mut dyn Machine,
        at: Position,
        entry: &Entry,
    ) -> Result<bool> {
        let corrupt =
            |what: &str| Error::Corrupt(format!("membership entry at {}: {what}", at.index));
        let change = ConfChangeV2::parse_from_bytes(&entry.data)
            .map_err(|_| corrupt("not a membership change"))?;
        if change.get_changes().is_empty() {
            return self.apply_command(machine, at, Command::Empty);
        }
        let member: MemberChange = postcard::from_bytes(&change.context)?;
        let Some(region) = member.apply(machine.region()) else {
            self.apply_command(machine, at, Command::Empty)?;
            return Ok(false);
        };
        let steps = member.steps(machine.region());
        let took_effect = self.apply_command(machine, at, Command::Membership(&region))?;
        if machine.region() != &region {
            return Err(corrupt("the machine did not take it over"));
        }
        self.steps = steps;
        Ok(took_effect)
    }
}
