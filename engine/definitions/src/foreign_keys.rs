//! FOREIGN KEY as CREATE TABLE and ALTER TABLE write it, what it has to be like for its two tables, and how it is shown.
//!
//! No table is looked up here: whoever has a parent hands it over.

use sqlparser::ast::{ForeignKeyConstraint, Ident, ReferentialAction, TableConstraint};
use types::foreign_key::{Way, may_refer};
use types::{Column, ColumnId, ForeignKey, OnParent, Table};
use values::error::{
    SqlResult, cannot_add_key, column_fits_child, column_fits_key, column_of_key,
    column_referred_to, duplicate_foreign_key, incompatible_columns, index_of_key,
    key_of_generated, key_parts_differ, no_key_column, no_parent_column, no_parent_key,
    no_unique_parent_key, set_null_of_not_null,
};

use crate::keys::{self, Form, Key};

/// The foreign keys of a CREATE TABLE. The table, all else of which is described, gets an index for each that has none.
pub fn of_create(constraints: &[TableConstraint], table: &mut Table) -> SqlResult<Vec<ForeignKey>> {
    let mut all: Vec<ForeignKey> = Vec::new();
    for constraint in constraints {
        let TableConstraint::ForeignKey(constraint) = constraint else { continue };
        let key = described(constraint, table, &all)?;
        if !is_indexed(&key, table) {
            let name = index_name(constraint);
            let columns = ids(&key, table)?;
            let whole = Key {
                columns,
                parts: Default::default(),
                form: Form { unique: false, visible: true },
            };
            let first = keys::first_name(&whole, table);
            for column in whole.columns.iter().filter_map(|id| table.column(*id)) {
                keys::check_whole(column)?;
            }
            let index = keys::new_index(table, name, &first, whole)?;
            table.indexes.push(index);
        }
        all.push(key);
    }
    keys::sort(table);
    Ok(all)
}

/// A foreign key as it is written, of a table with these ones.
pub fn described(
    constraint: &ForeignKeyConstraint,
    table: &Table,
    known: &[ForeignKey],
) -> SqlResult<ForeignKey> {
    let name = match &constraint.name {
        Some(name) => name.value.clone(),
        None => made_name(table, known),
    };
    if known.iter().any(|known| known.name.eq_ignore_ascii_case(&name)) {
        return Err(duplicate_foreign_key(name));
    }
    let names = |idents: &[Ident]| idents.iter().map(|ident| ident.value.clone()).collect();
    let (database, parent) = crate::spelled(&constraint.foreign_table, &table.database)?;
    let key = ForeignKey {
        columns: names(&constraint.columns),
        parent: (database, parent),
        referenced: names(&constraint.referred_columns),
        on_delete: action(constraint.on_delete)?,
        on_update: action(constraint.on_update)?,
        proven: true,
        name,
    };
    if key.columns.len() != key.referenced.len() || key.columns.is_empty() {
        let named = constraint.name.as_ref().map(|name| name.value.as_str());
        return Err(key_parts_differ(named.unwrap_or("foreign key without name")));
    }
    check_own(&key, table)?;
    Ok(key)
}

fn action(action: Option<ReferentialAction>) -> SqlResult<OnParent> {
    Ok(match action {
        None | Some(ReferentialAction::NoAction) => OnParent::NoAction,
        Some(ReferentialAction::Restrict) => OnParent::Restrict,
        Some(ReferentialAction::Cascade) => OnParent::Cascade,
        Some(ReferentialAction::SetNull) => OnParent::SetNull,
        Some(ReferentialAction::SetDefault) => return Err(cannot_add_key()),
    })
}

/// As MySQL makes one up: one more than the greatest number of those it has made up.
fn made_name(table: &Table, known: &[ForeignKey]) -> String {
    let number = |key: &ForeignKey| -> Option<u32> {
        key.name.strip_prefix(table.name.as_str())?.strip_prefix("_ibfk_")?.parse().ok()
    };
    let last = known.iter().filter_map(number).max().unwrap_or(0);
    format!("{}_ibfk_{}", table.name, last.saturating_add(1))
}

/// What an index is called that is made for a foreign key; its first column names it otherwise.
pub fn index_name(constraint: &ForeignKeyConstraint) -> Option<String> {
    constraint.name.as_ref().or(constraint.index_name.as_ref()).map(|name| name.value.clone())
}

/// Columns of the table that has a key, by number.
fn ids(key: &ForeignKey, table: &Table) -> SqlResult<Vec<ColumnId>> {
    let id = |name: &String| {
        let found = table.column_named(name).filter(|(_, column)| !column.hidden);
        found.map(|(_, column)| column.id).ok_or_else(|| no_key_column(name))
    };
    key.columns.iter().map(id).collect()
}

/// Whether rows of the table that has a key are found by its columns.
pub fn is_indexed(key: &ForeignKey, table: &Table) -> bool {
    ids(key, table).is_ok_and(|ids| Way::to_children(table, &ids).is_some())
}

/// Checks a key by the table that has it.
fn check_own(key: &ForeignKey, table: &Table) -> SqlResult<()> {
    let writes = [("ON DELETE", key.on_delete), ("ON UPDATE", key.on_update)];
    for id in ids(key, table)? {
        let Some(column) = table.column(id) else { continue };
        if let Some((on, action)) = writes.iter().find(|(_, action)| !action.forbids())
            && column.generated().is_some()
            && (*on, *action) != ("ON DELETE", OnParent::Cascade)
        {
            return Err(key_of_generated(format_args!("{on} {action}")));
        }
        if !column.nullable && writes.iter().any(|(_, action)| *action == OnParent::SetNull) {
            return Err(set_null_of_not_null(&column.name, &key.name));
        }
    }
    Ok(())
}

/// Checks a new key by the table that it refers to.
pub fn check_parent(key: &ForeignKey, child: &Table, parent: &Table) -> SqlResult<()> {
    let mut referenced = Vec::with_capacity(key.referenced.len());
    for (own, name) in key.columns.iter().zip(&key.referenced) {
        let found = parent.column_named(name).filter(|(_, column)| !column.hidden);
        let Some((_, column)) = found else {
            return Err(no_parent_column(name, &key.name, &parent.name));
        };
        if let Some((_, own)) = child.column_named(own)
            && !may_refer(own.ty, column.ty)
        {
            return Err(incompatible_columns(&own.name, &column.name, &key.name));
        }
        referenced.push(column.id);
    }
    if Way::to_parent(parent, &referenced).is_some() {
        return Ok(());
    }
    Err(match Way::to_children(parent, &referenced) {
        Some(_) => no_unique_parent_key(&key.name, &parent.name),
        None => no_parent_key(&key.name, &parent.name),
    })
}

/// Checks that a table with keys is still as they need it after a change; `parent` finds tables by their names.
pub fn check_child_change<'t>(
    keys: &[ForeignKey],
    (before, after): (&Table, &Table),
    parent: impl Fn(&ForeignKey) -> Option<&'t Table>,
) -> SqlResult<()> {
    for key in keys {
        let mut ids = Vec::with_capacity(key.columns.len());
        for (at, name) in key.columns.iter().enumerate() {
            let Some(column) = followed(name, before, after) else {
                return Err(column_of_key(name, &key.name));
            };
            let parent = parent(key);
            let other = key.referenced.get(at).and_then(|name| parent?.column_named(name));
            // Of a key to its own table, both columns may change at once.
            let other = other.map(|(_, other)| match key.refers_to(before) {
                true => followed(&other.name, before, after).unwrap_or(other),
                false => other,
            });
            if other.is_some_and(|other| !may_refer(column.ty, other.ty)) {
                return Err(column_fits_key(&column.name, &key.name));
            }
            if !column.nullable && [key.on_delete, key.on_update].contains(&OnParent::SetNull) {
                return Err(set_null_of_not_null(&column.name, &key.name));
            }
            ids.push(column.id);
        }
        if Way::to_children(after, &ids).is_none() {
            return Err(index_of_key(gone_index(before, after)));
        }
    }
    Ok(())
}

/// Checks that a table is still as a key of a child needs it after a change.
pub fn check_parent_change(
    key: &ForeignKey,
    child: &Table,
    (before, after): (&Table, &Table),
) -> SqlResult<()> {
    let mut ids = Vec::with_capacity(key.referenced.len());
    for (own, name) in key.columns.iter().zip(&key.referenced) {
        let Some(column) = followed(name, before, after) else {
            return Err(column_referred_to(name, &key.name, &child.name));
        };
        let own = child.column_named(own).map(|(_, own)| own);
        if child.id != before.id && own.is_some_and(|own| !may_refer(own.ty, column.ty)) {
            return Err(column_fits_child(&column.name, &key.name, &child.name));
        }
        ids.push(column.id);
    }
    match Way::to_parent(after, &ids) {
        Some(_) => Ok(()),
        None => Err(index_of_key(gone_index(before, after))),
    }
}

/// A column after a change: the same one, maybe under another name, or one that has come in its place.
fn followed<'t>(name: &str, before: &Table, after: &'t Table) -> Option<&'t Column> {
    let same = before.column_named(name).and_then(|(_, column)| after.column(column.id));
    let shown = same.filter(|column| !column.hidden);
    shown.or_else(|| {
        let (_, named) = after.column_named(name).filter(|(_, column)| !column.hidden)?;
        before.column(named.id).is_none_or(|known| known.hidden).then_some(named)
    })
}

/// An index that goes with a change.
fn gone_index(before: &Table, after: &Table) -> String {
    let goes = |index: &&types::Index| !after.indexes.iter().any(|kept| kept.id == index.id);
    before.indexes.iter().find(goes).map(|index| index.name.clone()).unwrap_or_default()
}
