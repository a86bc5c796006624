//! Changes of a table's rows that a statement has worked out. It makes none of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use storage::{Transaction, rows};
use types::{Table, Value};

/// Changes of one statement, computed and not yet written.
pub(in crate::session) enum Changes {
    /// New rows, and the first number given to one.
    Insert { rows: Vec<Vec<Value>>, first_id: u64 },
    /// Rows before and after.
    Update { pairs: Vec<(Vec<Value>, Vec<Value>)> },
    /// Rows that go.
    Delete { rows: Vec<Vec<Value>> },
}

impl Changes {
    /// Whether nothing changes.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Changes::Insert { rows, .. } | Changes::Delete { rows } => rows.is_empty(),
            Changes::Update { pairs } => pairs.is_empty(),
        }
    }

    /// Writes them into a transaction, in order.
    pub(super) fn write(
        &self,
        into: &mut dyn Transaction,
        table: &Arc<Table>,
        owned: &rows::Owned,
    ) -> types::Result<()> {
        match self {
            Changes::Insert { rows, .. } => {
                rows.iter().try_for_each(|row| rows::insert(into, table, row))
            }
            Changes::Delete { rows } => {
                rows.iter().try_for_each(|row| rows::delete(into, table, row, owned))
            }
            Changes::Update { pairs } => pairs
                .iter()
                .filter(|(old, new)| old != new)
                .try_for_each(|(old, new)| rows::update(into, table, old, new, owned)),
        }
    }

    /// Keys that must be free before.
    pub(super) fn taken(&self, table: &Table) -> types::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        match self {
            Changes::Insert { rows, .. } => {
                for row in rows {
                    keys.extend(rows::unique_keys(table, row)?);
                }
            }
            Changes::Update { pairs } => {
                for (old, new) in pairs {
                    keys.extend(rows::newly_taken(table, old, new)?);
                }
            }
            Changes::Delete { .. } => {}
        }
        Ok(keys)
    }

    /// Keys that changed rows have before, which may go from one to another.
    pub(super) fn held(&self, table: &Table) -> types::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        if let Changes::Update { pairs } = self {
            for (old, _) in pairs {
                keys.extend(rows::unique_keys(table, old)?);
            }
        }
        Ok(keys)
    }

    /// A key that a row takes while another row of the statement has it: rows change one after the other, as in MySQL, so
    /// that `SET id = id + 1` meets the next row. Without this the next row's leaving would take the new row away.
    pub(super) fn collision(&self, table: &Table) -> types::Result<Option<Vec<u8>>> {
        let Changes::Update { pairs } = self else { return Ok(None) };
        if pairs.len() < 2 || self.taken(table)?.is_empty() {
            return Ok(None);
        }
        let mut held = self.held(table)?;
        for (old, new) in pairs {
            for key in rows::newly_taken(table, old, new)? {
                if held.contains(&key) {
                    return Ok(Some(key));
                }
                held.insert(key);
            }
            for key in rows::newly_taken(table, new, old)? {
                held.remove(&key);
            }
        }
        Ok(None)
    }
}

/// Puts rows that change one after the other in the order of their keys, where that order matters: where one takes a key.
pub(super) fn in_key_order(
    table: &Table,
    pairs: &mut [(Vec<Value>, Vec<Value>)],
) -> types::Result<()> {
    for (old, new) in pairs.iter() {
        if !rows::newly_taken(table, old, new)?.is_empty() {
            pairs.sort_by_cached_key(|(old, _)| rows::record_key(table, old));
            break;
        }
    }
    Ok(())
}
