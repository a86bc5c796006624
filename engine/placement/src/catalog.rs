//! The catalog: look-ups by name, and what each change of it does.
//!
//! A change also creates and drops regions. Nothing is moved here: new regions are descriptors that
//! heartbeats turn into peers, dropped ones are tombstones until their last peer is gone. Rows are never
//! looked at: whether a new unique index holds is `sql`'s business.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use types::{
    Column, Epoch, Error, Index, NodeId, Peer, PeerRole, Region, RegionId, RegionKind, Result,
    SchemaVersion, Table, TableId, Timestamp,
};

use crate::api::{Catalog, CatalogChange, Import, User};
use crate::command::Outcome;
use crate::state::{BUILT_IN_DATABASES, RegionRecord, State, Tombstone, range_of};
use crate::{privileges, renewal, replicas, views};

/// Voters of a region, where there are as many row nodes.
pub const VOTERS: usize = 3;

/// A new region's epoch.
pub const INITIAL_EPOCH: Epoch = Epoch { version: 1, conf: 1 };

/// Most columnar replicas of a table.
pub const MAX_COLUMNAR_REPLICAS: u8 = 16;

/// Longest name of a database, table, column or index, in characters (MySQL's limit).
pub(crate) const MAX_NAME: usize = 64;
/// Longest user name, in characters (MySQL's limit).
const MAX_USER: usize = 32;
/// Longest host pattern, in characters (MySQL's limit).
const MAX_HOST: usize = 255;
/// Longest value of a global variable, in bytes, and most of them.
const MAX_GLOBAL: usize = 1_024;
const MAX_GLOBALS: usize = 256;
/// Most columns of a table (MySQL's limit for InnoDB).
const MAX_COLUMNS: usize = 1_017;
/// Most secondary indexes of a table (MySQL's limit for InnoDB).
const MAX_INDEXES: usize = 64;
/// Bytes of the expressions of a table's CHECKs and generated columns: they go with its every
/// description.
const MAX_EXPRESSIONS: usize = 64 << 10;

/// Row nodes that may hold voters of new regions, as the leader chose them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EligibleNodes(pub Vec<NodeId>);

impl Catalog {
    /// The database of a name, as it was spelled on creation; case does not matter.
    pub fn database_named(&self, name: &str) -> Option<&str> {
        self.databases.iter().find(|listed| listed.eq_ignore_ascii_case(name)).map(String::as_str)
    }

    /// The table of a name; case does not matter, as in TiDB.
    pub fn table_named(&self, database: &str, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| {
            table.database.eq_ignore_ascii_case(database) && table.name.eq_ignore_ascii_case(name)
        })
    }

    /// The table of a number.
    pub fn table(&self, id: TableId) -> Option<&Table> {
        self.tables.iter().find(|table| table.id == id)
    }

    /// Whether a table's import was begun anew to become visible at `ts`: a part of its rows may
    /// have been written for an earlier timestamp.
    pub fn imported_anew(&self, table: TableId, ts: Timestamp) -> bool {
        self.created.get(&table) == Some(&ts)
    }

    /// Whether a table was there at `ts`, by its name of now and with columns that older rows have a
    /// value for. Read at an earlier one, a recreated table would show no rows where its name stood
    /// for many, a renamed one another's, and a column of a new type none of its values.
    pub fn existed_at(&self, table: TableId, ts: Timestamp) -> bool {
        self.created.get(&table).is_none_or(|created| *created <= ts)
    }

    /// Fails while an import fills the table: a part of its rows must not be taken for all.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what can be done.
    pub fn check_not_importing(&self, table: TableId) -> Result<()> {
        if !self.importing.contains_key(&table) {
            return Ok(());
        }
        let table = self.table(table);
        let name = table.map(|table| format!("{}.{}", table.database, table.name));
        Err(Error::Invalid(format!(
            "table {} is being filled by `isobar import`: wait for its end, run the same import \
             again if it was interrupted, or drop the table",
            name.unwrap_or_default()
        )))
    }

    /// Whether circles of waiting transactions are looked for.
    pub fn detects_deadlocks(&self) -> bool {
        self.globals.get("innodb_deadlock_detect").is_none_or(|value| value != "OFF")
    }

    /// Tables of a database, in order of creation.
    pub fn tables_of<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Table> {
        self.tables.iter().filter(move |table| table.database.eq_ignore_ascii_case(database))
    }

    /// The user of a name and host pattern.
    pub fn user(&self, name: &str, host: &str) -> Option<&User> {
        self.users.iter().find(|user| user.is(name, host))
    }
}

/// Carries out a change of the catalog, or changes nothing and says why.
pub fn apply(
    state: &mut State,
    change: CatalogChange,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<Outcome> {
    let (table, created) = match change {
        CatalogChange::CreateDatabase(name) => (create_database(state, name)?, Vec::new()),
        CatalogChange::DropDatabase(name) => (drop_database(state, &name, now)?, Vec::new()),
        CatalogChange::CreateTable(table) => create_table(state, *table, eligible, now)?,
        CatalogChange::DropTable(id) => {
            check_table(state, id)?;
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
    };
    state.catalog.version += 1;
    Ok(Outcome::Changed { catalog: state.catalog.version, table: table.map(Box::new), created })
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

pub(crate) fn create_table(
    state: &mut State,
    mut table: Table,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    table.database = check_user_database(state, &table.database)?;
    check_shape(&table)?;
    views::check_no_view(&state.catalog, &table)?;
    if state.catalog.table_named(&table.database, &table.name).is_some() {
        return Err(Error::exists("table", format!("{}.{}", table.database, table.name)));
    }
    check_eligible(eligible)?;
    table.id = state.next_table;
    table.version = 1;
    let mut kinds = vec![RegionKind::Records(table.id)];
    kinds.extend(table.indexes.iter().map(|index| RegionKind::Index(table.id, index.id)));
    let created = create_regions(state, &kinds, eligible)?;
    state.next_table += 1;
    remember_numbers(state, &table);
    state.catalog.tables.push(table.clone());
    state.catalog.created.insert(table.id, now);
    Ok((Some(table), created))
}

fn alter_table(
    state: &mut State,
    mut table: Table,
    eligible: &EligibleNodes,
    now: Timestamp,
) -> Result<(Option<Table>, Vec<RegionId>)> {
    let stored = check_table(state, table.id)?.clone();
    check_successor(&stored, table.version)?;
    state.catalog.check_not_importing(table.id)?;
    check_description(&state.catalog, &table)?;
    table.database = check_user_database(state, &table.database)?;
    check_columns_kept(state, &stored, &table)?;
    remember_dropped(&stored, &mut table);
    check_width(&table)?;
    renumber_indexes(state, &stored, &mut table)?;
    let has = |table: &Table, id| table.indexes.iter().any(|index: &Index| index.id == id);
    let new: Vec<RegionKind> = table
        .indexes
        .iter()
        .filter(|index| !has(&stored, index.id))
        .map(|index| RegionKind::Index(table.id, index.id))
        .collect();
    if !new.is_empty() {
        check_eligible(eligible)?;
    }
    let created = create_regions(state, &new, eligible)?;
    for index in stored.indexes.iter().filter(|index| !has(&table, index.id)) {
        drop_regions(state, now, |kind| kind == RegionKind::Index(table.id, index.id));
    }
    remember_numbers(state, &table);
    renewal::note_name(&mut state.catalog, &table, now);
    let gone = |column: &Column| table.column(column.id).is_none();
    if stored.columns.iter().any(|column| gone(column) && stored.is_replaced(column.id)) {
        // Of rows from before, the column that has come in its place knows nothing.
        state.catalog.created.insert(table.id, now);
    }
    if let Some(slot) = state.catalog.tables.iter_mut().find(|listed| listed.id == table.id) {
        slot.clone_from(&table);
    }
    replicas::note_replicas(state, table.id, table.columnar_replicas);
    Ok((Some(table), created))
}

/// Fails where a known table cannot be described so, whatever it was before: who changes it in
/// several versions asks this of the last one, before the first.
///
/// # Errors
///
/// `NotFound` or `Invalid` for its database, `Exists` for its name, `Invalid` for its parts.
pub fn check_description(catalog: &Catalog, table: &Table) -> Result<()> {
    user_database(catalog, &table.database)?;
    check_shape(table)?;
    views::check_no_view(catalog, table)?;
    match catalog.table_named(&table.database, &table.name) {
        Some(other) if other.id != table.id => {
            Err(Error::exists("table", format!("{}.{}", table.database, table.name)))
        }
        _ => Ok(()),
    }
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
        slot.clone_from(&table);
    }
    Ok(table)
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

pub(crate) fn drop_table(state: &mut State, id: TableId, now: Timestamp) {
    drop_regions(
        state,
        now,
        |kind| matches!(kind, RegionKind::Records(table) | RegionKind::Index(table, _) if table == id),
    );
    state.catalog.tables.retain(|table| table.id != id);
    state.catalog.created.remove(&id);
    state.catalog.importing.remove(&id);
    replicas::note_replicas(state, id, 0);
    state.auto_increment.remove(&id);
    state.used_numbers.remove(&id);
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
    Ok(None)
}

/// Creates one region for each kind, over its whole range, on the least loaded of the eligible nodes.
fn create_regions(
    state: &mut State,
    kinds: &[RegionKind],
    eligible: &EligibleNodes,
) -> Result<Vec<RegionId>> {
    let mut loads = state.voter_loads();
    let mut created = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let Some((start, end)) = range_of(*kind) else { continue };
        let mut nodes = eligible.0.clone();
        nodes.sort_by_key(|node| (loads.get(node).copied().unwrap_or(0), *node));
        nodes.dedup();
        nodes.truncate(VOTERS);
        nodes.sort_unstable();
        let id = state.take_ids(1 + nodes.len() as u64)?;
        let peers: Vec<Peer> = nodes
            .iter()
            .zip(id + 1..)
            .map(|(node, id)| Peer { id, node: *node, role: PeerRole::Voter })
            .collect();
        nodes.iter().for_each(|node| *loads.entry(*node).or_default() += 1);
        let region = Region { id, epoch: INITIAL_EPOCH, kind: *kind, start, end, peers };
        let uncreated: BTreeSet<NodeId> = nodes.into_iter().collect();
        state.regions.insert(id, RegionRecord { region, uncreated });
        created.push(id);
    }
    Ok(created)
}

fn drop_regions(state: &mut State, dropped: Timestamp, gone: impl Fn(RegionKind) -> bool) {
    let ids: Vec<RegionId> = state
        .regions
        .values()
        .filter(|record| gone(record.region.kind))
        .map(|record| record.region.id)
        .collect();
    for id in ids {
        if let Some(record) = state.regions.remove(&id) {
            state.tombstones.insert(id, Tombstone { region: record.region, dropped });
        }
    }
}

/// Gives fresh numbers to new indexes whose number was in use before: regions of the dropped index
/// may still exist, and its keys would be taken for the new one's.
fn renumber_indexes(state: &State, stored: &Table, table: &mut Table) -> Result<()> {
    let mut used = state.used_numbers.get(&table.id).map_or(0, |(_, index)| *index);
    for index in &mut table.indexes {
        if stored.indexes.iter().any(|known| known.id == index.id) {
            continue;
        }
        if index.id <= used {
            let next = used.checked_add(1).filter(|next| *next < u32::MAX);
            index.id = next.ok_or_else(|| {
                Error::Invalid(format!("table {} has run out of index numbers", table.name))
            })?;
        }
        used = index.id;
    }
    Ok(())
}

/// Refuses what would make stored rows mean something else.
fn check_columns_kept(state: &State, stored: &Table, table: &Table) -> Result<()> {
    let name = format!("{}.{}", stored.database, stored.name);
    if table.primary_key != stored.primary_key {
        return Err(Error::Invalid(format!("the primary key of table {name} cannot be changed")));
    }
    let used = state.used_numbers.get(&table.id).map_or(0, |(column, _)| *column);
    for column in &table.columns {
        match stored.column(column.id) {
            Some(known) if !column.ty.holds_all(known.ty) => {
                return Err(Error::Invalid(format!(
                    "column {} of table {name} is stored as {}: another type needs another column",
                    column.name, known.ty
                )));
            }
            Some(known) if known.nullable && !column.nullable => {
                return Err(Error::Invalid(format!(
                    "column {} of table {name} may hold NULL: NOT NULL needs another column",
                    column.name
                )));
            }
            None if column.id <= used => {
                return Err(Error::Invalid(format!(
                    "column number {} of table {name} was in use before: give column {} a number \
                     above {used}",
                    column.id, column.name
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Rows from before hold the columns that go, so what they are stays known.
fn remember_dropped(stored: &Table, table: &mut Table) {
    let mut dropped = stored.dropped.clone();
    dropped.extend(stored.columns.iter().filter(|known| table.column(known.id).is_none()).cloned());
    table.dropped = dropped;
}

/// Dropped columns count, for every description carries them.
fn check_width(table: &Table) -> Result<()> {
    if table.columns.len() + table.dropped.len() <= MAX_COLUMNS {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "table {} has had {MAX_COLUMNS} columns, with those it has dropped: copy it into a new table \
         to change it further",
        table.name
    )))
}

fn remember_numbers(state: &mut State, table: &Table) {
    let used = state.used_numbers.entry(table.id).or_default();
    used.0 = table.columns.iter().map(|column| column.id).fold(used.0, u32::max);
    used.1 = table.indexes.iter().map(|index| index.id).fold(used.1, u32::max);
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

pub(crate) fn check_eligible(eligible: &EligibleNodes) -> Result<()> {
    if eligible.0.is_empty() {
        return Err(Error::Unavailable(
            "no row node can hold a new table: start one, then repeat the statement".into(),
        ));
    }
    Ok(())
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
