//! Rows with foreign keys: each has its parent, which stays until the transaction has ended.
//!
//! A parent's key is locked beside others that do the same, and looked at then: who ends that row or gives it another key
//! waits, and finds the child afterwards. A key with NULL in one of its columns has no parent (MATCH SIMPLE).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use placement::api::Catalog;
use types::foreign_key::Way;
use types::{ForeignKey, Table, Value};
use values::error::{SqlError, SqlResult, no_parent_row};

use super::net::NetChange;
use crate::session::Session;
use crate::session::transaction::state::Open;
use definitions::{key_clause, qualified};
use storage::reader::Reader;
use storage::{Expect, Mode, Taking};

/// A foreign key of a table, with the table that it refers to.
pub(in crate::session) struct Referring<'c> {
    key: &'c ForeignKey,
    child: &'c Arc<Table>,
    positions: Vec<usize>,
    /// The parent and how its rows are found; none while it is not there, or not as the key needs it.
    to: Option<(Arc<Table>, Way)>,
}

impl<'c> Referring<'c> {
    /// A key of a table.
    pub(in crate::session) fn new(
        key: &'c ForeignKey,
        child: &'c Arc<Table>,
        catalog: &Catalog,
    ) -> SqlResult<Self> {
        let positions = key.positions(child).unwrap_or_default();
        let parent = match key.refers_to(child) {
            true => Some(child),
            false => catalog.table_named(&key.parent.0, &key.parent.1),
        };
        let to = parent.and_then(|parent| {
            let referenced = key.referenced_positions(parent)?;
            let id = |at: usize| parent.columns.get(at).map(|column| column.id);
            let ids = referenced.into_iter().map(id).collect::<Option<Vec<_>>>()?;
            Some((parent.clone(), Way::to_parent(parent, &ids)?))
        });
        Ok(Referring { key, child, positions, to })
    }

    /// The parent, if it is there.
    pub(in crate::session) fn parent(&self) -> Option<&Arc<Table>> {
        self.to.as_ref().map(|(parent, _)| parent)
    }

    /// A row's values of the key; none if one of them is NULL.
    fn values(&self, row: &[Value]) -> Option<Vec<Value>> {
        let value = |at: &usize| row.get(*at).filter(|value| !value.is_null()).cloned();
        self.positions.iter().map(value).collect()
    }

    /// Whether a change gives a row a parent that it had not before, or the row another key: as in InnoDB, it counts as a new
    /// one then.
    fn is_new(&self, change: &NetChange) -> bool {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { return true };
        let mut deciding = self.positions.iter().copied().chain(self.child.key_positions());
        deciding.any(|at| before.get(at) != after.get(at))
    }

    /// The key of the parent's that a row refers to.
    fn wanted(&self, row: &[Value]) -> Option<Vec<u8>> {
        let (parent, way) = self.to.as_ref()?;
        Some(way.prefix(parent, &self.values(row)?))
    }

    /// Error 1452.
    fn fails(&self) -> SqlError {
        no_parent_row(qualified(self.child), key_clause(self.key, &self.child.database))
    }

    /// Checks that rows have their parents where a reader looks.
    pub(in crate::session) async fn hold(
        &self,
        reader: &Reader,
        rows: &[Vec<Value>],
    ) -> SqlResult<()> {
        let mut wanted = BTreeSet::new();
        for row in rows.iter().filter(|row| self.values(row).is_some()) {
            wanted.insert(self.wanted(row).ok_or_else(|| self.fails())?);
        }
        let count = wanted.len();
        match reader.get(wanted.into_iter().collect()).await?.len() == count {
            true => Ok(()),
            false => Err(self.fails()),
        }
    }
}

impl Session {
    /// Locks the parents of rows that a statement adds or gives another parent; the changes whose row has none, by their
    /// places, with the error of each. `kept` is a key whose rows have their parents by what is being done.
    pub(super) async fn orphans(
        &self,
        catalog: &Catalog,
        child: &Arc<Table>,
        changes: &[NetChange],
        kept: Option<&ForeignKey>,
        open: &Open,
    ) -> SqlResult<BTreeMap<usize, SqlError>> {
        let mut orphans = BTreeMap::new();
        for key in catalog.foreign_keys.of(child.id).iter().filter(|key| Some(*key) != kept) {
            let key = Referring::new(key, child, catalog)?;
            let mut wanted: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
            // Of a key to the table itself: the rows of the statement so far.
            let mut own = BTreeSet::new();
            for (at, change) in changes.iter().enumerate() {
                let Some(row) = &change.after else { continue };
                if let Some((parent, way)) = key.to.as_ref().filter(|(to, _)| to.id == child.id)
                    && let Some(referenced) = key.key.referenced_positions(parent)
                {
                    let values: Vec<Value> =
                        referenced.iter().filter_map(|at| row.get(*at).cloned()).collect();
                    own.insert(way.prefix(parent, &values));
                }
                if !key.is_new(change) || key.values(row).is_none() {
                    continue;
                }
                match key.wanted(row) {
                    Some(wanted) if own.contains(&wanted) => {}
                    Some(parent) => wanted.entry(parent).or_default().push(at),
                    None => _ = orphans.entry(at).or_insert_with(|| key.fails()),
                }
            }
            let Some(parent) = key.parent().filter(|_| !wanted.is_empty()) else { continue };
            let taking =
                Taking { mode: Mode::Shared, waiting: self.row_wait(), expect: Expect::Rows };
            let keys = wanted.keys().cloned().collect();
            for found in self.acquire((open, taking), parent, keys, None).await?.rows {
                let rows = wanted.get(&found.key).filter(|_| !found.live);
                for at in rows.into_iter().flatten() {
                    orphans.entry(*at).or_insert_with(|| key.fails());
                }
            }
        }
        Ok(orphans)
    }
}
