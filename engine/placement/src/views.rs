//! Views: names in the catalog that stand for the text of a query.
//!
//! Tables and views share their names. What a text means is `sql`'s business.

use serde::{Deserialize, Serialize};
use types::{Column, Error, Result, SchemaVersion, Table, TableId};

use crate::api::Catalog;
use crate::catalog::{MAX_NAME, check_name, check_user_database};
use crate::state::State;

/// Longest text of a view, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Most views.
const MAX_VIEWS: usize = 4_096;
/// Longest texts of all views together, in bytes: every node fetches the catalog as one message.
const MAX_TEXTS: usize = 8 << 20;

/// A view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredView {
    /// Database.
    pub database: String,
    /// Name.
    pub name: String,
    /// Its columns, as they were when it was defined.
    pub columns: Vec<Column>,
    /// The query, with the database of every table in it.
    pub query: String,
    /// Tables that the query reads, and the versions it was defined by.
    pub tables: Vec<(TableId, SchemaVersion)>,
    /// Who has defined it, as `name@host`.
    pub definer: String,
    /// SQL SECURITY INVOKER.
    pub invoker: bool,
}

impl StoredView {
    /// Its columns as those of a table without keys and rows, for whoever lists them.
    pub fn described(&self) -> Table {
        Table {
            id: 0,
            version: 1,
            database: self.database.clone(),
            name: self.name.clone(),
            columns: self.columns.clone(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            columnar_replicas: 0,
            comment: "VIEW".into(),
            dropped: Vec::new(),
            checks: Vec::new(),
        }
    }
}

impl Catalog {
    /// The view of a name; case does not matter.
    pub fn view_named(&self, database: &str, name: &str) -> Option<&StoredView> {
        self.views.iter().find(|view| {
            view.database.eq_ignore_ascii_case(database) && view.name.eq_ignore_ascii_case(name)
        })
    }

    /// Views of a database.
    pub fn views_of<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a StoredView> {
        self.views.iter().filter(move |view| view.database.eq_ignore_ascii_case(database))
    }
}

/// Makes a view, or puts it in the place of the one of its name.
pub fn put_view(state: &mut State, mut view: StoredView, replace: bool) -> Result<()> {
    view.database = check_user_database(state, &view.database)?;
    check_name("view", &view.name, MAX_NAME)?;
    let name = format!("{}.{}", view.database, view.name);
    if state.catalog.table_named(&view.database, &view.name).is_some() {
        return Err(Error::exists("table", name));
    }
    if view.query.len() > MAX_TEXT {
        return Err(Error::Invalid(format!(
            "the query of view {name} is longer than {MAX_TEXT} bytes"
        )));
    }
    let views = &mut state.catalog.views;
    let known = views.iter().position(|known| {
        known.database.eq_ignore_ascii_case(&view.database)
            && known.name.eq_ignore_ascii_case(&view.name)
    });
    let full = views.len() >= MAX_VIEWS;
    if views.iter().map(|view| view.query.len()).sum::<usize>() + view.query.len() > MAX_TEXTS {
        return Err(Error::Invalid(format!(
            "the queries of all views are longer than {MAX_TEXTS} bytes with {name}"
        )));
    }
    match known.and_then(|at| views.get_mut(at)) {
        Some(_) if !replace => return Err(Error::exists("table", name)),
        Some(known) => *known = view,
        None if full => {
            return Err(Error::Invalid(format!(
                "there are {MAX_VIEWS} views: {name} is one too many"
            )));
        }
        None => views.push(view),
    }
    Ok(())
}

/// Forgets a view.
pub fn drop_view(state: &mut State, database: &str, name: &str) -> Result<()> {
    let found = state.catalog.view_named(database, name);
    let found = found.map(|view| (view.database.clone(), view.name.clone()));
    let (database, name) =
        found.ok_or_else(|| Error::not_found("view", format!("{database}.{name}")))?;
    state.catalog.views.retain(|view| view.database != database || view.name != name);
    Ok(())
}

/// Fails where a view has the name that a table is to have.
pub fn check_no_view(catalog: &Catalog, table: &Table) -> Result<()> {
    match catalog.view_named(&table.database, &table.name) {
        Some(view) => Err(Error::exists("table", format!("{}.{}", view.database, view.name))),
        None => Ok(()),
    }
}
