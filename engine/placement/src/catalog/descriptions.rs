//! What descriptions of tables and names must be like.
//!
//! Nothing is changed here.

use std::collections::HashSet;

use types::{Column, Error, Result, SchemaVersion, Table, TableId};

use crate::api::Catalog;
use crate::state::{BUILT_IN_DATABASES, State};

/// Most columnar replicas of a table.
pub const MAX_COLUMNAR_REPLICAS: u8 = 16;

/// Longest name of a database, table, column or index, in characters (MySQL's limit).
pub(crate) const MAX_NAME: usize = 64;
/// Most columns of a table (MySQL's limit for InnoDB).
const MAX_COLUMNS: usize = 1_017;
/// Most secondary indexes of a table (MySQL's limit for InnoDB).
const MAX_INDEXES: usize = 64;
/// Bytes of the expressions of a table's CHECKs and generated columns: they go with its every
/// description.
const MAX_EXPRESSIONS: usize = 64 << 10;

/// Fails where a known table cannot be described so, whatever it was before: who changes it in
/// several versions asks this of the last one, before the first.
///
/// # Errors
///
/// `NotFound` or `Invalid` for its database, `Exists` for its name, `Invalid` for its parts.
pub fn check_description(catalog: &Catalog, table: &Table) -> Result<()> {
    user_database(catalog, &table.database)?;
    check_shape(table)?;
    check_no_view(catalog, table)?;
    match catalog.table_named(&table.database, &table.name) {
        Some(other) if other.id != table.id => {
            Err(Error::exists("table", format!("{}.{}", table.database, table.name)))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_successor(stored: &Table, version: SchemaVersion) -> Result<()> {
    if Some(version) == stored.version.checked_add(1) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "table {}.{} was changed by somebody else meanwhile (it is at version {}, the change would \
         make version {version}): read the catalog again and repeat the change",
        stored.database, stored.name, stored.version
    )))
}

/// Dropped columns count, for every description carries them.
pub(crate) fn check_width(table: &Table) -> Result<()> {
    if table.columns.len() + table.dropped.len() <= MAX_COLUMNS {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "table {} has had {MAX_COLUMNS} columns, with those it has dropped: copy it into a new table \
         to change it further",
        table.name
    )))
}

/// Fails where a view has the name that a table is to have.
pub fn check_no_view(catalog: &Catalog, table: &Table) -> Result<()> {
    match catalog.view_named(&table.database, &table.name) {
        Some(view) => Err(Error::exists("table", format!("{}.{}", view.database, view.name))),
        None => Ok(()),
    }
}

pub(crate) fn check_table(state: &State, id: TableId) -> Result<&Table> {
    state.catalog.table(id).ok_or_else(|| Error::not_found("table", format!("number {id}")))
}

/// The database's own spelling of its name, if tables may be made and dropped in it.
pub(crate) fn check_user_database(state: &State, name: &str) -> Result<String> {
    user_database(&state.catalog, name)
}

fn user_database(catalog: &Catalog, name: &str) -> Result<String> {
    let Some(stored) = catalog.database_named(name) else {
        return Err(Error::not_found("database", name));
    };
    if BUILT_IN_DATABASES.contains(&stored) {
        return Err(Error::Invalid(format!("database '{stored}' belongs to the system")));
    }
    Ok(stored.to_owned())
}

pub(crate) fn check_name(kind: &str, name: &str, longest: usize) -> Result<()> {
    let length = name.chars().count();
    if length == 0 || length > longest || name.ends_with(' ') || name.contains(char::is_control) {
        return Err(Error::Invalid(format!(
            "'{}' is not a {kind} name: 1 to {longest} characters, no control characters, no \
             space at the end",
            name.escape_debug()
        )));
    }
    Ok(())
}

/// Checks a description on its own.
pub(crate) fn check_shape(table: &Table) -> Result<()> {
    check_name("table", &table.name, MAX_NAME)?;
    let invalid = |why: String| Err(Error::Invalid(format!("table {}: {why}", table.name)));
    if table.columns.is_empty() || table.columns.len() > MAX_COLUMNS {
        return invalid(format!("a table has 1 to {MAX_COLUMNS} columns"));
    }
    if table.indexes.len() > MAX_INDEXES {
        return invalid(format!("a table has at most {MAX_INDEXES} secondary indexes"));
    }
    if table.columnar_replicas > MAX_COLUMNAR_REPLICAS {
        return invalid(format!("a table has at most {MAX_COLUMNAR_REPLICAS} columnar replicas"));
    }
    let wide = table.columns.iter().find(|column| column.ty.is_wide());
    if let Some(column) = wide.filter(|_| table.columnar_replicas > 0) {
        return invalid(format!(
            "column {} is {}, which columnar replicas do not hold (38 digits at most)",
            column.name, column.ty
        ));
    }
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    for column in &table.columns {
        check_name("column", &column.name, MAX_NAME)?;
        if !names.insert(column.name.to_ascii_lowercase()) {
            return Err(Error::exists("column", &column.name));
        }
        if !ids.insert(column.id) {
            return invalid(format!("two columns have number {}", column.id));
        }
    }
    if table.columns.iter().filter(|column| column.auto_increment).count() > 1 {
        return invalid("only one column can be AUTO_INCREMENT".into());
    }
    check_key(table, "PRIMARY", &table.primary_key)?;
    let mut names = HashSet::new();
    let written = table.columns.iter().filter_map(Column::generated).map(|(text, _)| text.len());
    let checked = table.checks.iter().map(|check| check.expression.len());
    if written.chain(checked).sum::<usize>() > MAX_EXPRESSIONS {
        return invalid(format!(
            "the texts of its CHECKs and generated columns are longer than {MAX_EXPRESSIONS} bytes"
        ));
    }
    for check in &table.checks {
        check_name("check constraint", &check.name, MAX_NAME)?;
        if !names.insert(check.name.to_ascii_lowercase()) {
            return Err(Error::exists("check constraint", &check.name));
        }
    }
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    for index in &table.indexes {
        check_name("index", &index.name, MAX_NAME)?;
        if index.name.eq_ignore_ascii_case("PRIMARY")
            || !names.insert(index.name.to_ascii_lowercase())
        {
            return Err(Error::exists("index", &index.name));
        }
        if index.id == u32::MAX || !ids.insert(index.id) {
            return invalid(format!("index number {} cannot be used (again)", index.id));
        }
        check_key(table, &index.name, &index.columns)?;
        if index.parts.keys().any(|id| !index.columns.contains(id)) {
            return invalid(format!("index {} has a prefix of a column it lacks", index.name));
        }
    }
    Ok(())
}

fn check_key(table: &Table, name: &str, columns: &[u32]) -> Result<()> {
    let invalid =
        |why: &str| Err(Error::Invalid(format!("key {name} of table {} {why}", table.name)));
    if columns.is_empty() {
        return invalid("has no columns");
    }
    if columns.iter().any(|id| table.column(*id).is_none()) {
        return invalid("names a column that the table does not have");
    }
    if columns.iter().collect::<HashSet<_>>().len() < columns.len() {
        return invalid("names a column twice");
    }
    Ok(())
}
