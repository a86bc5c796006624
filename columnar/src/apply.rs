//! Facts into a tablet, in the order of the log: locks wait, commits begin versions and end the ones they replace,
//! schemas and splits change its shape.
//!
//! Of a region that holds entries of indexes beside its records, columns take the records alone.
//!
//! An entry that was applied in part stops the tablet: nothing is written from such a state.

use std::sync::Arc;

use raft::{Command, Position};
use txn::{Fact, Facts, WriteKind};
use types::{ColumnId, Result, Table, Timestamp, key};

use crate::deletions::Deletion;
use crate::record::PendingRow;
use crate::tablet::{Ending, State, Tablet, lock_info};
use crate::tablets::Tablets;

/// What applying an entry did.
pub(crate) enum Outcome {
    Applied,
    Dropped,
    Split(Vec<Arc<Tablet>>),
}

impl Tablet {
    /// Applies the next entry; entries that are in already change nothing.
    pub(crate) fn apply(
        &self,
        at: Position,
        command: Command<'_>,
        tablets: &Tablets,
    ) -> Result<Outcome> {
        self.usable()?;
        let mut state = self.lock();
        state.sound()?;
        if state.applied.index == 0 {
            return Err(state.corrupt("an entry came before the snapshot"));
        }
        if at.index <= state.applied.index {
            return Ok(Outcome::Applied);
        }
        state.applied = at;
        let applied = match command {
            Command::Empty => Ok(Outcome::Applied),
            Command::Membership(region) => {
                state.region = region.clone();
                Ok(Outcome::Applied)
            }
            Command::Data(bytes) => Facts::decode(bytes).and_then(|facts| {
                if facts.stands(at, state.region.epoch) {
                    self.apply_facts(&mut state, facts.facts, tablets)
                } else {
                    Ok(Outcome::Dropped)
                }
            }),
        };
        applied.inspect_err(|error| {
            state.failed = true;
            self.quarantine(error);
        })
    }

    fn apply_facts(
        &self,
        state: &mut State,
        facts: Vec<Fact>,
        tablets: &Tablets,
    ) -> Result<Outcome> {
        let mut applied = Outcome::Applied;
        let mut cut = false;
        for fact in facts {
            if matches!(applied, Outcome::Split(_)) {
                return Err(state.corrupt("a fact follows a split in its entry"));
            }
            match fact {
                Fact::Split { children } => {
                    applied = Outcome::Split(self.split(state, &children, tablets)?);
                }
                Fact::Schema(table) => cut |= self.adopt_schema(state, *table)?,
                fact => state.apply_fact(fact, self.shared.opened_ms)?,
            }
        }
        if cut && !matches!(applied, Outcome::Split(_)) {
            self.rewrite(state)?;
        }
        Ok(applied)
    }

    /// Takes in a schema version; whether the whole tablet must be written at the end of the entry.
    /// Rows in memory are laid out with the columns that go, apart from rows that never have them.
    fn adopt_schema(&self, state: &mut State, table: Table) -> Result<bool> {
        if state.region.table() != Some(table.id) {
            return Err(state.corrupt("a schema of another table"));
        }
        let before = state.schemas.newest().filter(|known| known.version < table.version);
        let before = before.map_or(&[][..], |known| known.columns.as_slice());
        let gone: Vec<ColumnId> = before
            .iter()
            .map(|column| column.id)
            .filter(|id| table.column(*id).is_none())
            .collect();
        if !gone.is_empty() {
            let parts = state.fold(&self.shared)?;
            state.adopt(parts);
            let now_ms = self.shared.clock.unix_millis();
            state.dropped_ms.extend(gone.iter().map(|column| (*column, now_ms)));
        }
        Arc::make_mut(&mut state.schemas).add(table);
        Ok(!gone.is_empty())
    }
}

impl State {
    fn apply_fact(&mut self, fact: Fact, opened_ms: u64) -> Result<()> {
        if let Some(key) = fact.key() {
            self.check_key(key)?;
            if !key::is_record(key) {
                return Ok(());
            }
        }
        match fact {
            Fact::Lock { key, start_ts, primary, kind, row, replaces, ttl, .. } => {
                if self.pending.get(&key).is_some_and(|held| held.start_ts != start_ts) {
                    return Err(self.corrupt("a lock meets another transaction's lock"));
                }
                if (kind == WriteKind::Put) != row.is_some() {
                    return Err(self.corrupt("a lock's row does not fit its kind"));
                }
                let row = PendingRow { start_ts, primary, kind, row, replaces, ttl };
                self.dirty.insert(key.clone());
                self.pending.insert(key, row);
            }
            Fact::Commit { key, start_ts, commit_ts } => {
                self.commit(key, start_ts, commit_ts, opened_ms)?;
            }
            Fact::Rollback { key, start_ts } => {
                if self.pending.get(&key).is_some_and(|row| row.start_ts == start_ts) {
                    self.unpark(&key);
                }
            }
            Fact::Write { key, commit_ts, kind: _, row, replaces } => {
                if row.is_none() || !self.has_version(&key, commit_ts)? {
                    self.version(key, commit_ts, row, replaces, opened_ms)?;
                }
            }
            // What columns drop follows the safe point and their own deletions; a snapshot's floor says
            // what its sender has dropped.
            Fact::Collect(_) | Fact::Async(_) => {}
            Fact::Reserved => return Err(self.corrupt("an unknown fact")),
            Fact::Schema(_) | Fact::Split { .. } => {
                return Err(self.corrupt("a change of shape out of place"));
            }
        }
        Ok(())
    }

    fn commit(
        &mut self,
        key: Vec<u8>,
        start_ts: Timestamp,
        commit_ts: Timestamp,
        opened_ms: u64,
    ) -> Result<()> {
        if self.pending.get(&key).is_none_or(|row| row.start_ts != start_ts) {
            return if self.has_version(&key, commit_ts)? {
                Ok(())
            } else {
                Err(self.corrupt("a commit finds neither its lock nor its version"))
            };
        }
        match self.unpark(&key) {
            Some(row) if row.kind.changes() => {
                self.version(key, commit_ts, row.row, row.replaces, opened_ms)
            }
            _ => Ok(()),
        }
    }

    /// Begins a version, if there is a row, and ends the one it replaces.
    fn version(
        &mut self,
        key: Vec<u8>,
        commit_ts: Timestamp,
        row: Option<Vec<u8>>,
        replaces: Option<Timestamp>,
        opened_ms: u64,
    ) -> Result<()> {
        if let Some(bytes) = row {
            let values = self.schemas.decode(&bytes)?;
            let Some(table) = self.schemas.newest() else {
                return Err(self.corrupt("a row came before any schema"));
            };
            self.delta.push(table, &key, commit_ts, &values, bytes.len())?;
        }
        if let Some(begin) = replaces {
            self.endings.push(Ending { key, begin, end: commit_ts });
        }
        // A commit from before this process ran was late by the downtime, not by replication.
        if commit_ts.physical_ms() >= opened_ms {
            let oldest = self.oldest_commit.get_or_insert(commit_ts);
            *oldest = commit_ts.min(*oldest);
        }
        Ok(())
    }

    /// Looks up the versions that ended, together and in key order.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.endings.sort_by(|a, b| b.key.cmp(&a.key));
        while let Some(ending) = self.endings.last() {
            self.end(ending)?;
            self.endings.pop();
        }
        Ok(())
    }

    fn end(&self, ending: &Ending) -> Result<()> {
        let Ending { key, begin, end } = ending;
        let sealed = self.sealed.iter().map(|sealed| &sealed.delta);
        for delta in [&self.delta].into_iter().chain(sealed) {
            if let Some(row) = delta.find(key, *begin) {
                delta.delete(row, *end);
                return Ok(());
            }
        }
        for part in self.parts.iter().rev() {
            if let Some(row) = part.find(key, *begin)? {
                part.deletions.push(Deletion { row, end_ts: *end });
                return Ok(());
            }
        }
        Err(self.corrupt(&format!("the version of {begin} that one of {end} replaces is missing")))
    }

    fn has_version(&self, key: &[u8], begin: Timestamp) -> Result<bool> {
        let sealed = self.sealed.as_ref().and_then(|sealed| sealed.delta.find(key, begin));
        if self.delta.find(key, begin).or(sealed).is_some() {
            return Ok(true);
        }
        for part in &self.parts {
            if part.find(key, begin)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unpark(&mut self, key: &[u8]) -> Option<PendingRow> {
        let (key, row) = self.pending.remove_entry(key)?;
        if row.kind.changes() {
            self.departed.push(lock_info(&key, &row));
        }
        self.dirty.insert(key);
        Some(row)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if self.region.contains(key) {
            return Ok(());
        }
        Err(self.corrupt("a fact names a key outside of its region"))
    }
}
