//! What becomes of foreign keys where their tables and columns get other names and numbers, or go.
//!
//! No key comes or goes here but with its table.

use std::collections::HashSet;

use types::{Error, ForeignKey, Result, Table, TableId};

use super::descriptions::MAX_NAME;
use crate::api::Catalog;

/// Fails where others refer to a table that is to go.
pub(crate) fn check_not_referred_to(catalog: &Catalog, id: TableId) -> Result<()> {
    let Some(table) = catalog.table(id) else { return Ok(()) };
    let mut others = catalog.foreign_keys.to(table).filter(|(child, _)| *child != id);
    match others.next() {
        None => Ok(()),
        Some((_, key)) => Err(Error::Invalid(format!(
            "table {}.{} is referred to by foreign key {}: drop that first",
            table.database, table.name, key.name
        ))),
    }
}

/// Takes the keys of a table along to its new number.
pub(crate) fn renumber(catalog: &mut Catalog, keys: Option<Vec<ForeignKey>>, to: Option<TableId>) {
    if let (Some(keys), Some(to)) = (keys, to) {
        catalog.foreign_keys.0.insert(to, keys);
    }
}

/// Takes note of new names, of tables and of their columns: each was described so before, and is so from now on.
pub(crate) fn follow_names(catalog: &mut Catalog, described: &[(&Table, &Table)]) {
    let keys = &mut catalog.foreign_keys.0;
    let mut taken: HashSet<String> =
        keys.values().flatten().map(|key| key.name.to_lowercase()).collect();
    for (child, keys) in keys {
        for key in keys {
            if let Some((before, after)) = described.iter().find(|(known, _)| known.id == *child) {
                key.columns.iter_mut().for_each(|name| rename_column(name, before, after));
                let named = named_after(key, before, after).unwrap_or_else(|| key.name.clone());
                if taken.insert(named.to_lowercase()) {
                    taken.remove(&key.name.to_lowercase());
                    key.name = named;
                }
            }
            if let Some((before, after)) = described.iter().find(|(known, _)| key.refers_to(known))
            {
                key.referenced.iter_mut().for_each(|name| rename_column(name, before, after));
                key.parent = (after.database.clone(), after.name.clone());
            }
        }
    }
}

fn rename_column(name: &mut String, before: &Table, after: &Table) {
    let column = before.column_named(name).and_then(|(_, column)| after.column(column.id));
    if let Some(column) = column.filter(|column| !column.hidden) {
        name.clone_from(&column.name);
    }
}

/// What a name that was made of the table's becomes with the table's new one.
fn named_after(key: &ForeignKey, before: &Table, after: &Table) -> Option<String> {
    let number = key.name.strip_prefix(before.name.as_str())?.strip_prefix("_ibfk_")?;
    let name = format!("{}_ibfk_{number}", after.name);
    let made = number.bytes().all(|digit| digit.is_ascii_digit());
    (made && name.chars().count() <= MAX_NAME).then_some(name)
}
