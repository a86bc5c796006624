//! Foreign keys by the tables that have them, as stored and sent.
//!
//! They stand behind the catalog where that is stored or sent, for programs that knew of none. Nothing is enforced here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use types::{ForeignKey, SchemaVersion, Table, TableId};

/// The foreign keys of all tables that have some, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKeys(pub(crate) BTreeMap<TableId, Vec<ForeignKey>>);

impl ForeignKeys {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that a table has.
    pub fn of(&self, child: TableId) -> &[ForeignKey] {
        self.0.get(&child).map(Vec::as_slice).unwrap_or_default()
    }

    /// Those that refer to a table, each with the table that has it.
    pub fn to<'a>(
        &'a self,
        parent: &'a Table,
    ) -> impl Iterator<Item = (TableId, &'a ForeignKey)> + 'a {
        let all = self.0.iter().flat_map(|(child, keys)| keys.iter().map(|key| (*child, key)));
        all.filter(|(_, key)| key.refers_to(parent))
    }

    /// Whether a table has one or is referred to.
    pub fn concern(&self, table: &Table) -> bool {
        self.0.contains_key(&table.id) || self.to(table).next().is_some()
    }
}

/// A table as a change of foreign keys found it: others must not have changed it since.
pub type Found = (TableId, SchemaVersion);

/// A change of the foreign keys of tables that are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyChange {
    /// ADD FOREIGN KEY. Neither transactions that write to the child nor those that write to a parent, and knew nothing of it, can commit
    /// any more: all of these tables get a version that is no successor of the one before.
    Add {
        /// The child.
        child: Found,
        /// The keys.
        keys: Vec<ForeignKey>,
        /// Other tables that they refer to, as far as they are there.
        parents: Vec<Found>,
    },
    /// Rows that were there before these keys are known to keep them.
    Prove {
        /// The child.
        child: TableId,
        /// Names of the keys.
        keys: Vec<String>,
    },
    /// DROP FOREIGN KEY.
    Drop {
        /// The child.
        child: TableId,
        /// Names of the keys.
        keys: Vec<String>,
    },
    /// DROP TABLE, whoever refers to it.
    DropTable(TableId),
}
