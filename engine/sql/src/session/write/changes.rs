//! Changes of a table's rows that a statement has worked out. It makes none of them.

use std::collections::BTreeSet;

use storage::rows;
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

    /// Keys that rows give up, perhaps to others of the statement.
    pub(super) fn leaving(&self, table: &Table) -> types::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        if let Changes::Update { pairs } = self {
            for (old, _) in pairs {
                keys.extend(rows::unique_keys(table, old)?);
            }
        }
        Ok(keys)
    }
}
