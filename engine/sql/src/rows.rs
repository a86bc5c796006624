//! One row into, over and out of a table, with its index entries.
//!
//! The only place that knows which keys a row has; statements above work with values.

use std::sync::Arc;

use types::{Error, Result, Table, TableId, Value, key, row};

use crate::result::SqlError;
use crate::storage::Transaction;

/// The key of a row's record.
pub fn record_key(table: &Table, values: &[Value]) -> Vec<u8> {
    let key: Vec<Value> =
        table.key_positions().into_iter().filter_map(|at| values.get(at).cloned()).collect();
    key::record(table.id, &key)
}

/// Keys that must be free before a row can be inserted: its record and its unique entries.
pub fn unique_keys(table: &Table, values: &[Value]) -> Result<Vec<Vec<u8>>> {
    let mut keys = vec![record_key(table, values)];
    for index in table.indexes.iter().filter(|index| index.unique) {
        let (key, tail) = key::index_entry(table, index, values)?;
        if !tail.is_empty() {
            keys.push(key);
        }
    }
    Ok(keys)
}

/// Adds a new row. A stored row with the same key shows at commit, unless it was looked for.
pub fn insert(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    values: &[Value],
) -> Result<()> {
    transaction.insert(table, record_key(table, values), row::encode(table, values))?;
    for index in &table.indexes {
        let (key, tail) = key::index_entry(table, index, values)?;
        if tail.is_empty() {
            transaction.put(table, key, tail)?;
        } else {
            transaction.insert(table, key, tail)?;
        }
    }
    Ok(())
}

/// Ends a row.
pub fn delete(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    values: &[Value],
) -> Result<()> {
    transaction.delete(table, record_key(table, values))?;
    for index in &table.indexes {
        transaction.delete(table, key::index_entry(table, index, values)?.0)?;
    }
    Ok(())
}

/// Replaces a row by another, which may have another key.
pub fn update(
    transaction: &mut dyn Transaction,
    table: &Arc<Table>,
    old: &[Value],
    new: &[Value],
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
        if before.0 != after.0 {
            transaction.delete(table, before.0.clone())?;
        }
        if after.1.is_empty() || before.0 == after.0 {
            transaction.put(table, after.0, after.1)?;
        } else {
            transaction.insert(table, after.0, after.1)?;
        }
    }
    Ok(())
}

/// Keys that a changed row newly takes.
pub fn newly_taken(table: &Table, old: &[Value], new: &[Value]) -> Result<Vec<Vec<u8>>> {
    let before = unique_keys(table, old)?;
    Ok(unique_keys(table, new)?.into_iter().filter(|key| !before.contains(key)).collect())
}

/// A duplicate as MySQL words it: `Duplicate entry 'v' for key 't.PRIMARY'`.
pub fn duplicate(table: &Table, key: &[u8]) -> SqlError {
    let (index, values) = match key::decode_record(table, key) {
        Ok(values) => ("PRIMARY".to_owned(), values),
        Err(_) => index_values(table, key).unwrap_or_else(|| ("?".into(), Vec::new())),
    };
    let entry = values.into_iter().map(crate::coerce::text).collect::<Vec<_>>().join("-");
    SqlError::new(
        1062,
        b"23000",
        format!("Duplicate entry '{entry}' for key '{}.{index}'", table.name),
    )
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

/// The table that a key belongs to.
pub fn table_of(key: &[u8]) -> Option<TableId> {
    let (kind, rest) = key.split_first()?;
    let (id, _) = rest.split_first_chunk::<8>()?;
    (*kind == b't').then(|| u64::from_be_bytes(*id))
}

/// An error of a write in MySQL's words.
pub fn error(error: Error, tables: &[Table]) -> SqlError {
    if let Error::Duplicate { key, .. } = &error
        && let Some(id) = table_of(key)
        && let Some(table) = tables.iter().find(|table| table.id == id)
    {
        return duplicate(table, key);
    }
    error.into()
}
