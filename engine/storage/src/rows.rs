//! One row into, over and out of a table, with its index entries.
//!
//! The only place that knows which keys a row has; statements above work with values.

use std::collections::BTreeSet;
use std::sync::Arc;

use types::{Error, Index, RegionKind, Result, Table, Value, key, row};
use values::error::{SqlError, duplicate_entry};

use crate::Transaction;

/// The key of a row's record.
pub fn record_key(table: &Table, values: &[Value]) -> Vec<u8> {
    let key: Vec<Value> =
        table.key_positions().into_iter().filter_map(|at| values.get(at).cloned()).collect();
    key::record(table.id, &key)
}

/// Keys that must be free before a row can be inserted: its record and its unique entries.
pub fn unique_keys(table: &Table, values: &[Value]) -> Result<Vec<Vec<u8>>> {
    let mut keys = vec![record_key(table, values)];
    for index in table.indexes.iter().filter(|index| index.unique && index.is_kept()) {
        let (key, tail) = key::index_entry(table, index, values)?;
        if !tail.is_empty() {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Whether a key is the last of the table's unique ones, also of those in which a row has NULL.
pub fn is_last_unique(table: &Table, key: &[u8]) -> bool {
    let mut unique = table.indexes.iter().filter(|index| index.unique && index.is_kept());
    match key::region_kind(key) {
        Some(RegionKind::Index(_, id)) => unique.next_back().is_some_and(|last| last.id == id),
        _ => unique.next().is_none(),
    }
}

/// Adds a new row. A stored row with the same key shows at commit, unless it was looked for.
pub fn insert(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    values: &[Value],
) -> Result<()> {
    transaction.insert(table, record_key(table, values), row::encode(table, values))?;
    for index in table.indexes.iter().filter(|index| index.is_kept()) {
        let (key, tail) = key::index_entry(table, index, values)?;
        if tail.is_empty() {
            transaction.put(table, key, tail)?;
        } else {
            transaction.insert(table, key, tail)?;
        }
    }
    Ok(())
}

/// Which entries of unique indexes belong to which rows. While such an index is filled in, two rows
/// may still have the same values: then the entry is one row's, and the other must not take it away.
#[derive(Default)]
pub struct Owned(BTreeSet<(Vec<u8>, Vec<u8>)>);

impl Owned {
    /// Looks up the entries of rows that are about to go or to change.
    pub async fn find<'a>(
        transaction: &dyn Transaction,
        table: &Table,
        rows: impl Iterator<Item = &'a Vec<Value>>,
    ) -> Result<Self> {
        let filling: Vec<&Index> =
            table.indexes.iter().filter(|index| index.unique && !index.is_public()).collect();
        let mut keys = BTreeSet::new();
        if !filling.is_empty() {
            for row in rows {
                for index in &filling {
                    keys.insert(key::index_entry(table, index, row)?.0);
                }
            }
        }
        if keys.is_empty() {
            return Ok(Self::default());
        }
        let found = transaction.get(keys.into_iter().collect()).await?;
        Ok(Owned(found.into_iter().collect()))
    }

    /// The same, of entries that are at hand.
    pub fn of(entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        Owned(entries.collect())
    }

    fn holds(&self, index: &Index, entry: &(Vec<u8>, Vec<u8>)) -> bool {
        index.is_public() || entry.1.is_empty() || self.0.contains(entry)
    }
}

/// Ends a row.
pub fn delete(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    values: &[Value],
    owned: &Owned,
) -> Result<()> {
    transaction.delete(table, record_key(table, values))?;
    for index in &table.indexes {
        let entry = key::index_entry(table, index, values)?;
        if owned.holds(index, &entry) {
            transaction.delete(table, entry.0)?;
        }
    }
    Ok(())
}

/// Replaces a row by another, which may have another key.
pub fn update(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    old: &[Value],
    new: &[Value],
    owned: &Owned,
) -> Result<()> {
    let (old_key, new_key) = (record_key(table, old), record_key(table, new));
    if old_key == new_key {
        transaction.put(table, new_key, row::encode(table, new))?;
    } else {
        transaction.delete(table, old_key)?;
        transaction.insert(table, new_key, row::encode(table, new))?;
    }
    for index in &table.indexes {
        let before = key::index_entry(table, index, old)?;
        let after = key::index_entry(table, index, new)?;
        if before == after {
            continue;
        }
        let own = owned.holds(index, &before);
        if own && (before.0 != after.0 || !index.is_kept()) {
            transaction.delete(table, before.0.clone())?;
        }
        if !index.is_kept() {
            continue;
        }
        if after.1.is_empty() || (own && before.0 == after.0) {
            transaction.put(table, after.0, after.1)?;
        } else {
            transaction.insert(table, after.0, after.1)?;
        }
    }
    Ok(())
}

/// Keys that a changed row newly takes.
pub fn newly_taken(table: &Table, old: &[Value], new: &[Value]) -> Result<Vec<Vec<u8>>> {
    // Most rows keep theirs, and are spared the making of keys.
    let unique = table.indexes.iter().filter(|index| index.unique && index.is_kept());
    let unique = unique.flat_map(|index| &index.columns).filter_map(|id| table.position(*id));
    if table.key_positions().into_iter().chain(unique).all(|at| old.get(at) == new.get(at)) {
        return Ok(Vec::new());
    }
    let before = unique_keys(table, old)?;
    Ok(unique_keys(table, new)?.into_iter().filter(|key| !before.contains(key)).collect())
}

/// Keys besides its record that a row shares with rows to come: its entries in unique indexes.
pub fn unique_entries(table: &Table, values: &[Value]) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    for index in table.indexes.iter().filter(|index| index.unique) {
        let (key, tail) = key::index_entry(table, index, values)?;
        if !tail.is_empty() {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Keys besides the old record that a changed row takes or leaves to others.
pub fn contested(table: &Table, old: &[Value], new: &[Value]) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let record = record_key(table, new);
    if record != record_key(table, old) {
        keys.push(record);
    }
    for index in table.indexes.iter().filter(|index| index.unique) {
        let before = key::index_entry(table, index, old)?;
        let after = key::index_entry(table, index, new)?;
        if before != after {
            let both = [before, after].into_iter();
            keys.extend(both.filter(|(_, tail)| !tail.is_empty()).map(|(key, _)| key));
        }
    }
    Ok(keys)
}

/// A duplicate as MySQL words it: `Duplicate entry 'v' for key 't.PRIMARY'`.
pub fn duplicate(table: &Table, key: &[u8]) -> SqlError {
    let (index, values) = match key::decode_record(table, key) {
        Ok(values) => ("PRIMARY".to_owned(), values),
        Err(_) => index_values(table, key).unwrap_or_else(|| ("?".into(), Vec::new())),
    };
    let entry = values.into_iter().map(values::coerce::text).collect::<Vec<_>>().join("-");
    duplicate_entry(entry, format_args!("{}.{index}", table.name))
}

fn index_values(table: &Table, key: &[u8]) -> Option<(String, Vec<Value>)> {
    let index =
        table.indexes.iter().find(|i| key.starts_with(&key::index_start(table.id, i.id)))?;
    let mut rest = key.strip_prefix(key::index_start(table.id, index.id).as_slice())?;
    let mut values = Vec::new();
    for id in &index.columns {
        values.push(key::decode(&mut rest, table.column(*id)?.ty).ok()?);
    }
    Some((index.name.clone(), values))
}

/// An error of a write in MySQL's words.
pub fn error(error: Error, tables: &[Arc<Table>]) -> SqlError {
    if let Error::Duplicate { key, .. } = &error
        && let Some(id) = key::table(key)
        && let Some(table) = tables.iter().find(|table| table.id == id)
    {
        return duplicate(table, key);
    }
    error.into()
}
