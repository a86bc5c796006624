//! The unique keys that a statement has looked at, as they are after the rows it has dealt with so
//! far: what INSERT … ON DUPLICATE KEY UPDATE, REPLACE and IGNORE decide by, row after row.
//!
//! No I/O: keys are read by the session and passed to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::{Result, Table, Value};

use super::net::{NetChange, Step};
use storage::Transaction;
use storage::rows;

/// A key that a row shares with one that is there.
pub(super) struct Clash {
    /// The key.
    pub key: Vec<u8>,
    /// Record key of the row that has it.
    pub record: Vec<u8>,
    /// That row.
    pub row: Vec<Value>,
    /// Whether it is the last of the table's unique keys.
    pub last: bool,
}

/// Unique keys and rows of one table, and the changes so far.
pub(super) struct PendingChanges {
    table: Arc<Table>,
    /// Unique key → record key of its row.
    holders: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Record key → row, of those that are there.
    rows: BTreeMap<Vec<u8>, Vec<Value>>,
    steps: Vec<Step>,
}

impl PendingChanges {
    /// Nothing known yet.
    pub(in crate::session) fn new(table: Arc<Table>) -> Self {
        PendingChanges { table, holders: BTreeMap::new(), rows: BTreeMap::new(), steps: Vec::new() }
    }

    /// Keys of these that are not known yet, each once.
    pub(in crate::session) fn unknown(
        &self,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let unknown = keys.into_iter().filter(|key| !self.holders.contains_key(key));
        unknown.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// A key's row by its record key, as found.
    pub(in crate::session) fn learn(&mut self, key: Vec<u8>, record: Option<Vec<u8>>) {
        self.holders.entry(key).or_insert(record);
    }

    /// A row as found.
    pub(super) fn learn_row(&mut self, record: Vec<u8>, row: Vec<Value>) {
        self.rows.entry(record).or_insert(row);
    }

    /// The first of a row's keys that another row has; `but` is a record that does not count.
    pub(super) fn clash(&self, row: &[Value], but: Option<&[u8]>) -> Result<Option<Clash>> {
        let keys = rows::unique_keys(&self.table, row)?;
        for key in keys {
            let Some(Some(record)) = self.holders.get(&key) else { continue };
            if but == Some(record.as_slice()) {
                continue;
            }
            let Some(row) = self.rows.get(record) else { continue };
            let (record, row) = (record.clone(), row.clone());
            let last = rows::is_last_unique(&self.table, &key);
            return Ok(Some(Clash { key, record, row, last }));
        }
        Ok(None)
    }

    /// Adds a row that clashes with none.
    pub(in crate::session) fn insert(&mut self, row: Vec<Value>) -> Result<()> {
        self.take(&row)?;
        self.steps.push(Step::Insert(row));
        Ok(())
    }

    /// Changes a row.
    pub(in crate::session) fn update(&mut self, old: Vec<Value>, new: Vec<Value>) -> Result<()> {
        self.leave(&old)?;
        self.take(&new)?;
        self.steps.push(Step::Update(old, new));
        Ok(())
    }

    /// Ends a row.
    pub(in crate::session) fn delete(&mut self, row: Vec<Value>) -> Result<()> {
        self.leave(&row)?;
        self.steps.push(Step::Delete(row));
        Ok(())
    }

    fn take(&mut self, row: &[Value]) -> Result<()> {
        let record = rows::record_key(&self.table, row);
        for key in rows::unique_keys(&self.table, row)? {
            self.holders.insert(key, Some(record.clone()));
        }
        self.rows.insert(record, row.to_vec());
        Ok(())
    }

    fn leave(&mut self, row: &[Value]) -> Result<()> {
        self.rows.remove(&rows::record_key(&self.table, row));
        for key in rows::unique_keys(&self.table, row)? {
            self.holders.insert(key, None);
        }
        Ok(())
    }

    /// Keys besides those known that the changes take or leave: they have to be held as well.
    pub(super) fn contested(&self) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for step in &self.steps {
            match step {
                Step::Insert(_) => {}
                Step::Update(old, new) => keys.extend(rows::contested(&self.table, old, new)?),
                Step::Delete(old) => keys.extend(rows::unique_entries(&self.table, old)?),
            }
        }
        Ok(keys)
    }

    /// Writes the changes into a transaction, in order.
    pub(in crate::session) fn write(
        &self,
        transaction: &mut dyn Transaction,
        owned: &rows::Owned,
    ) -> Result<()> {
        let table = &self.table;
        self.steps.iter().try_for_each(|step| match step {
            Step::Insert(row) => rows::insert(transaction, table, row),
            Step::Update(old, new) => rows::update(transaction, table, old, new, owned),
            Step::Delete(row) => rows::delete(transaction, table, row, owned),
        })
    }

    /// What the changes come to for each row.
    pub(super) fn net(&self) -> Vec<NetChange> {
        NetChange::of_steps(&self.table, &self.steps)
    }

    /// Whether nothing changes.
    pub(in crate::session) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
