//! Foreign keys: added with their tables or to them, proven, dropped.
//!
//! Whether a key can be, by the types and keys of its tables, is `sql`'s business, which sends what it has looked at. Rows are never
//! looked at here.

use std::sync::Arc;

use types::{Error, ForeignKey, RegionId, Result, SchemaVersion, Table, TableId, Timestamp};

use super::descriptions::{MAX_NAME, check_name, check_table};
use super::tables::{EligibleNodes, create_table, drop_table};
use crate::api::{Catalog, Found, KeyChange};
use crate::state::State;

/// Most foreign keys of a table: every node fetches the catalog as one message.
const MAX_KEYS: usize = 256;
/// By so much a version grows that shuts out writers of the one before: regions take rows of the newest two.
const SHUT_OUT: SchemaVersion = 2;

/// CREATE TABLE with foreign keys.
pub(crate) fn create_referring(
    state: &mut State,
    table: Table,
    keys: Vec<ForeignKey>,
    parents: &[Found],
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    check_found(state, parents)?;
    check_keys(&state.catalog, &table, &[], &keys)?;
    let (table, created) = create_table(state, table, eligible, now)?;
    if let Some(table) = &table {
        shut_out(&mut state.catalog, parents);
        state.catalog.foreign_keys.0.insert(table.id, keys);
    }
    Ok((table, created))
}

/// Carries out a change of the keys of tables that are there; the child as changed, where its description was.
pub(crate) fn change_keys(
    state: &mut State,
    change: KeyChange,
    now: Timestamp,
) -> Result<Option<Table>> {
    match change {
        KeyChange::Add { child, keys, parents } => {
            check_found(state, &parents)?;
            check_found(state, &[child])?;
            state.catalog.check_not_importing(child.0)?;
            let table = check_table(state, child.0)?;
            check_keys(&state.catalog, table, state.catalog.foreign_keys.of(child.0), &keys)?;
            shut_out(&mut state.catalog, &parents);
            shut_out(&mut state.catalog, &[child]);
            state.catalog.foreign_keys.0.entry(child.0).or_default().extend(keys);
            Ok(state.catalog.table(child.0).cloned())
        }
        KeyChange::Prove { child, keys } => {
            let known = state.catalog.foreign_keys.0.get_mut(&child);
            let known = known.into_iter().flatten().filter(|key| keys.contains(&key.name));
            known.for_each(|key| key.proven = true);
            Ok(None)
        }
        KeyChange::Drop { child, keys } => {
            let known = state.catalog.foreign_keys.of(child);
            if let Some(missing) = keys.iter().find(|name| !known.iter().any(|k| k.name == **name))
            {
                return Err(Error::not_found("foreign key", missing));
            }
            retain(&mut state.catalog, child, |key| !keys.contains(&key.name));
            Ok(None)
        }
        KeyChange::DropTable(id) => {
            check_table(state, id)?;
            drop_table(state, id, now);
            Ok(None)
        }
    }
}

fn retain(catalog: &mut Catalog, child: TableId, keep: impl FnMut(&ForeignKey) -> bool) {
    if let Some(keys) = catalog.foreign_keys.0.get_mut(&child) {
        keys.retain(keep);
        if keys.is_empty() {
            catalog.foreign_keys.0.remove(&child);
        }
    }
}

fn check_found(state: &State, found: &[Found]) -> Result<()> {
    for (id, version) in found {
        let table = check_table(state, *id)?;
        if table.version != *version {
            return Err(Error::Invalid(format!(
                "table {}.{} was changed by somebody else meanwhile (from version {version} to {}): repeat the change",
                table.database, table.name, table.version
            )));
        }
    }
    Ok(())
}

fn shut_out(catalog: &mut Catalog, found: &[Found]) {
    for table in &mut catalog.tables {
        if found.iter().any(|(id, _)| *id == table.id) {
            Arc::make_mut(table).version += SHUT_OUT;
        }
    }
}

/// Checks new keys of a table on their own, and their names among those of its database.
fn check_keys(
    catalog: &Catalog,
    child: &Table,
    known: &[ForeignKey],
    keys: &[ForeignKey],
) -> Result<()> {
    if known.len() + keys.len() > MAX_KEYS {
        return Err(Error::Invalid(format!("a table has at most {MAX_KEYS} foreign keys")));
    }
    let same_database = |id: &TableId| {
        let table = catalog.table(*id);
        table.is_some_and(|table| table.database.eq_ignore_ascii_case(&child.database))
    };
    for (at, key) in keys.iter().enumerate() {
        check_name("foreign key", &key.name, MAX_NAME)?;
        if key.columns.is_empty() || key.columns.len() != key.referenced.len() {
            return Err(Error::Invalid(format!(
                "foreign key {} has {} columns and refers to {}",
                key.name,
                key.columns.len(),
                key.referenced.len()
            )));
        }
        if key.positions(child).is_none() {
            return Err(Error::Invalid(format!(
                "foreign key {} names a column that table {} does not have",
                key.name, child.name
            )));
        }
        let there = catalog.foreign_keys.0.iter().filter(|(id, _)| same_database(id));
        let mut others = there.flat_map(|(_, keys)| keys).chain(keys.iter().take(at));
        if others.any(|other| other.name.eq_ignore_ascii_case(&key.name)) {
            return Err(Error::exists("foreign key", &key.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use types::OnParent;

    use super::*;
    use crate::api::{CatalogChange, Renamed};
    use crate::catalog::apply;
    use crate::tests::state_scripts::table;

    const NOW: Timestamp = Timestamp(7);

    fn change(state: &mut State, change: CatalogChange) -> Result<Option<Table>> {
        apply(state, change, &EligibleNodes(vec![1]), NOW).map(|(table, _)| table)
    }

    fn key(name: &str, child: &Table, parent: &Table) -> ForeignKey {
        ForeignKey {
            name: name.into(),
            columns: vec![child.columns[0].name.clone()],
            parent: (parent.database.clone(), parent.name.clone()),
            referenced: vec![parent.columns[0].name.clone()],
            on_delete: OnParent::NoAction,
            on_update: OnParent::NoAction,
            proven: true,
        }
    }

    /// A parent and a child with a key named after it.
    fn family() -> (State, Table, Table) {
        let mut state = State { version: types::version::FOREIGN_KEYS, ..State::new() };
        change(&mut state, CatalogChange::CreateDatabase("d".into())).unwrap();
        let parent = CatalogChange::CreateTable(Box::new(table("d", "p", &[])));
        let parent = change(&mut state, parent).unwrap().unwrap();
        let child = table("d", "c", &[]);
        let keys = vec![key("c_ibfk_1", &child, &parent)];
        let parents = vec![(parent.id, parent.version)];
        let child = CatalogChange::CreateReferring { table: Box::new(child), keys, parents };
        let child = change(&mut state, child).unwrap().unwrap();
        (state, parent, child)
    }

    #[test]
    fn a_new_key_shuts_out_writers_of_the_version_before_on_both_sides() {
        let (mut state, parent, child) = family();
        let version = |state: &State, id| state.catalog.table(id).unwrap().version;
        assert_eq!(version(&state, parent.id), parent.version + 2);
        let found = |state: &State, id| (id, version(state, id));
        let add = |child, parents| {
            let keys = vec![key("another", &table("d", "c", &[]), &parent)];
            CatalogChange::ForeignKeys(KeyChange::Add { child, keys, parents })
        };
        // Somebody else was first.
        let stale = add(found(&state, child.id), vec![(parent.id, parent.version)]);
        assert!(matches!(change(&mut state, stale), Err(Error::Invalid(_))));
        let added = add(found(&state, child.id), vec![found(&state, parent.id)]);
        change(&mut state, added.clone()).unwrap();
        assert_eq!(version(&state, child.id), child.version + 2);
        assert_eq!(version(&state, parent.id), parent.version + 4);
        let again = add(found(&state, child.id), vec![found(&state, parent.id)]);
        assert!(matches!(change(&mut state, again), Err(Error::Exists { .. })));
    }

    #[test]
    fn keys_follow_names_and_numbers() {
        let (mut state, parent, child) = family();
        let renamed = |state: &State, id, name: &str| Renamed {
            table: id,
            version: state.catalog.table(id).unwrap().version + 1,
            database: "d".into(),
            name: name.into(),
        };
        // Both at once, one by the other's name.
        let both = vec![renamed(&state, parent.id, "c"), renamed(&state, child.id, "p")];
        change(&mut state, CatalogChange::RenameTables(both)).unwrap();
        let known = state.catalog.foreign_keys.of(child.id)[0].clone();
        assert_eq!((known.name.as_str(), known.parent.1.as_str()), ("p_ibfk_1", "c"));
        let mut altered = state.catalog.table(parent.id).unwrap().clone();
        altered.version += 1;
        altered.columns[0].name = "other".into();
        change(&mut state, CatalogChange::AlterTable(Box::new(altered))).unwrap();
        assert_eq!(state.catalog.foreign_keys.of(child.id)[0].referenced, ["other"]);
        let emptied = change(&mut state, CatalogChange::TruncateTable(child.id)).unwrap().unwrap();
        assert_eq!(state.catalog.foreign_keys.of(emptied.id).len(), 1);
        assert!(state.catalog.foreign_keys.of(child.id).is_empty());
    }

    #[test]
    fn a_table_that_is_referred_to_goes_only_if_that_is_meant() {
        let (mut state, parent, child) = family();
        let refused = change(&mut state, CatalogChange::DropTable(parent.id));
        assert!(refused.unwrap_err().to_string().contains("c_ibfk_1"));
        let meant = CatalogChange::ForeignKeys(KeyChange::DropTable(parent.id));
        change(&mut state, meant).unwrap();
        assert_eq!(state.catalog.foreign_keys.of(child.id).len(), 1, "it may come again");
        change(&mut state, CatalogChange::DropTable(child.id)).unwrap();
        assert!(state.catalog.foreign_keys.is_empty());
    }

    #[test]
    fn a_cluster_with_older_programs_has_no_keys() {
        let (mut state, parent, _) = family();
        state.version = types::version::FOREIGN_KEYS - 1;
        let dropped = CatalogChange::ForeignKeys(KeyChange::DropTable(parent.id));
        assert!(change(&mut state, dropped).unwrap_err().to_string().contains("upgrade"));
    }
}
