//! The catalog: what each change of it does.
//!
//! A change also creates and drops regions. Nothing is moved here: new regions are descriptors that
//! heartbeats turn into peers, dropped ones are tombstones until their last peer is gone. Rows are never
//! looked at: whether a new unique index holds is `sql`'s business.

use std::sync::Arc;

use types::{ClusterVersion, Error, RegionId, Result, SchemaVersion, Table, TableId, Timestamp};

use crate::api::{CatalogChange, Import, User};
use crate::state::State;

mod descriptions;
mod foreign_keys;
mod privileges;
mod referred;
mod renewal;
mod resource_groups;
mod tables;
mod views;

pub use descriptions::{MAX_COLUMNAR_REPLICAS, check_description};
pub use tables::EligibleNodes;
pub(crate) use tables::kinds_of;

use descriptions::{MAX_NAME, check_name, check_successor, check_table, check_user_database};
use tables::{alter_table, create_table, drop_table};

/// Longest user name, in characters (MySQL's limit).
const MAX_USER: usize = 32;
/// Longest host pattern, in characters (MySQL's limit).
const MAX_HOST: usize = 255;
/// Longest value of a global variable, in bytes, and most of them.
const MAX_GLOBAL: usize = 1_024;
const MAX_GLOBALS: usize = 256;

/// What a change gives: the table as changed, where one was, and regions that were created.
pub type Changed = (Option<Table>, Vec<RegionId>);

/// Carries out a change of the catalog, or changes nothing and says why.
pub fn apply(
    state: &mut State,
    change: CatalogChange,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<Changed> {
    check_known(&change, state.version)?;
    let changed = match change {
        CatalogChange::CreateDatabase(name) => (create_database(state, name)?, Vec::new()),
        CatalogChange::DropDatabase(name) => (drop_database(state, &name, now)?, Vec::new()),
        CatalogChange::CreateTable(table) => create_table(state, *table, eligible, now)?,
        CatalogChange::DropTable(id) => {
            check_table(state, id)?;
            referred::check_not_referred_to(&state.catalog, id)?;
            drop_table(state, id, now);
            (None, Vec::new())
        }
        CatalogChange::AlterTable(table) => alter_table(state, *table, eligible, now)?,
        CatalogChange::Import { table, version, import } => {
            (Some(import_table(state, table, version, import)?), Vec::new())
        }
        CatalogChange::PutUser(user) => (put_user(state, user)?, Vec::new()),
        CatalogChange::SetGlobal { name, value } => {
            set_global(state, name, value)?;
            (None, Vec::new())
        }
        CatalogChange::DropUser { name, host } => (drop_user(state, &name, &host)?, Vec::new()),
        CatalogChange::TruncateTable(id) => renewal::truncate_table(state, id, eligible, now)?,
        CatalogChange::RenameTables(renamed) => {
            renewal::rename_tables(state, renamed, now)?;
            (None, Vec::new())
        }
        CatalogChange::PutView { view, replace } => {
            views::put_view(state, *view, replace)?;
            (None, Vec::new())
        }
        CatalogChange::DropView { database, name } => {
            views::drop_view(state, &database, &name)?;
            (None, Vec::new())
        }
        CatalogChange::Grant { accounts, change } => {
            privileges::change_grants(state, &accounts, &change)?;
            (None, Vec::new())
        }
        CatalogChange::Groups(change) => {
            resource_groups::change_groups(state, change)?;
            (None, Vec::new())
        }
        CatalogChange::CreateReferring { table, keys, parents } => {
            foreign_keys::create_referring(state, *table, keys, &parents, eligible, now)?
        }
        CatalogChange::ForeignKeys(change) => {
            (foreign_keys::change_keys(state, change, now)?, Vec::new())
        }
    };
    state.catalog.version += 1;
    Ok(changed)
}

/// Fails where a cluster has nodes that know nothing of such a change.
///
/// # Errors
///
/// `Invalid`, with both versions.
pub fn check_known(change: &CatalogChange, cluster: ClusterVersion) -> Result<()> {
    let since = change.since();
    if cluster >= since {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the cluster is at version {cluster}, and this is there from version {since} on: upgrade all nodes first"
    )))
}

fn create_database(state: &mut State, name: String) -> Result<Option<Table>> {
    check_name("database", &name, MAX_NAME)?;
    if state.catalog.database_named(&name).is_some() {
        return Err(Error::exists("database", name));
    }
    state.catalog.databases.push(name);
    state.catalog.databases.sort();
    Ok(None)
}

fn drop_database(state: &mut State, name: &str, now: Timestamp) -> Result<Option<Table>> {
    let stored = check_user_database(state, name)?;
    let tables: Vec<TableId> = state.catalog.tables_of(&stored).map(|table| table.id).collect();
    tables.into_iter().for_each(|table| drop_table(state, table, now));
    state.catalog.views.retain(|view| view.database != stored);
    state.catalog.databases.retain(|listed| *listed != stored);
    Ok(None)
}

/// Each step is a version of its own, so that the regions shut out writers who do not know of it.
/// With a second timestamp, the table is there from that one on only.
fn import_table(
    state: &mut State,
    id: TableId,
    version: SchemaVersion,
    import: Option<Import>,
) -> Result<Table> {
    let stored = check_table(state, id)?;
    check_successor(stored, version)?;
    let table = Table { version, ..stored.clone() };
    match (state.catalog.importing.get(&id), import) {
        (Some(known), Some(import)) if known.digest != import.digest => {
            return Err(Error::Invalid(format!(
                "table {}.{} holds a part of another import: run that one again, or drop the table",
                table.database, table.name
            )));
        }
        (None, Some(_)) if table.is_changing() => {
            return Err(Error::Invalid(format!(
                "columns of table {}.{} are being added or dropped: import when the ALTER TABLE has \
                 ended; what one left half done, the next one ends",
                table.database, table.name
            )));
        }
        (known, Some(import)) => {
            // Begun anew: from the first timestamp on a part of the rows may be seen.
            let former = known.and_then(|known| known.commit_ts);
            if let (Some(former), Some(at)) = (former, import.commit_ts)
                && former != at
            {
                state.catalog.created.insert(id, at);
            }
            state.catalog.importing.insert(id, import);
        }
        (_, None) => _ = state.catalog.importing.remove(&id),
    }
    if let Some(slot) = state.catalog.tables.iter_mut().find(|listed| listed.id == id) {
        *slot = Arc::new(table.clone());
    }
    Ok(table)
}

fn set_global(state: &mut State, name: String, value: Option<String>) -> Result<()> {
    check_name("variable", &name, MAX_NAME)?;
    let globals = &mut state.catalog.globals;
    let Some(value) = value else {
        globals.remove(&name);
        return Ok(());
    };
    if value.len() > MAX_GLOBAL || globals.len() >= MAX_GLOBALS && !globals.contains_key(&name) {
        return Err(Error::Invalid(format!(
            "a global variable holds at most {MAX_GLOBAL} bytes, and there are at most \
             {MAX_GLOBALS} of them: {name} was not set"
        )));
    }
    globals.insert(name, value);
    Ok(())
}

fn put_user(state: &mut State, mut user: User) -> Result<Option<Table>> {
    check_name("user", &user.name, MAX_USER)?;
    check_name("host", &user.host, MAX_HOST)?;
    if let Some(known) = state.catalog.user(&user.name, &user.host) {
        user.grants.clone_from(&known.grants);
    }
    state.catalog.users.retain(|known| !known.is(&user.name, &user.host));
    state.catalog.users.push(user);
    state.catalog.users.sort_by(|a, b| (&a.name, &a.host).cmp(&(&b.name, &b.host)));
    Ok(None)
}

fn drop_user(state: &mut State, name: &str, host: &str) -> Result<Option<Table>> {
    if state.catalog.user(name, host).is_none() {
        return Err(Error::not_found("user", format!("{name}@{host}")));
    }
    state.catalog.users.retain(|user| !user.is(name, host));
    state.catalog.resources.users.remove(&(name.to_owned(), host.to_lowercase()));
    Ok(None)
}
