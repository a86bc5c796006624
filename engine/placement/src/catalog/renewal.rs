//! Tables that are emptied, and tables that exchange names: changes of the catalog that leave every
//! description as it is.
//!
//! All is checked before anything changes.

use std::collections::HashSet;
use std::sync::Arc;

use types::{Error, RegionId, Result, Table, TableId, Timestamp};

use super::descriptions::{
    MAX_NAME, check_name, check_no_view, check_shape, check_successor, check_table,
    check_user_database,
};
use super::referred;
use super::tables::{EligibleNodes, check_eligible, create_table, drop_table, note_name};
use crate::api::Renamed;
use crate::state::State;

/// The same table under a new number and without rows.
pub fn truncate_table(
    state: &mut State,
    id: TableId,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    let empty = check_table(state, id)?.without_rows();
    state.catalog.check_not_importing(id)?;
    check_eligible(eligible)?;
    // Whatever may fail stands before the drop: nothing here is taken back.
    check_shape(&empty)?;
    let keys = state.catalog.foreign_keys.0.get(&id).cloned();
    drop_table(state, id, now);
    let created = create_table(state, empty, eligible, now)?;
    referred::renumber(&mut state.catalog, keys, created.0.as_ref().map(|table| table.id));
    Ok(created)
}

/// Gives tables new names, none of which may belong to another table afterwards. From now on each
/// is there by its new name: an older snapshot under that name would show another table's rows.
pub fn rename_tables(state: &mut State, renamed: Vec<Renamed>, now: Timestamp) -> Result<()> {
    let mut tables = state.catalog.tables.clone();
    let ids: Vec<TableId> = renamed.iter().map(|renamed| renamed.table).collect();
    for Renamed { table: id, version, database, name } in renamed {
        check_successor(check_table(state, id)?, version)?;
        state.catalog.check_not_importing(id)?;
        check_name("table", &name, MAX_NAME)?;
        let database = check_user_database(state, &database)?;
        for table in tables.iter_mut().filter(|table| table.id == id).map(Arc::make_mut) {
            (table.version, table.database) = (version, database.clone());
            table.rename(name.clone());
            check_shape(table)?;
        }
    }
    let mut names = HashSet::new();
    for table in &tables {
        check_no_view(&state.catalog, table)?;
        let name = format!("{}.{}", table.database, table.name);
        if !names.insert(name.to_lowercase()) {
            return Err(Error::exists("table", name));
        }
    }
    for table in tables.iter().filter(|table| ids.contains(&table.id)) {
        note_name(&mut state.catalog, table, now);
    }
    let before = std::mem::replace(&mut state.catalog.tables, tables.clone());
    let changed = before.iter().zip(&tables).filter(|(before, _)| ids.contains(&before.id));
    let changed: Vec<_> = changed.map(|(before, after)| (&**before, &**after)).collect();
    referred::follow_names(&mut state.catalog, &changed);
    Ok(())
}
