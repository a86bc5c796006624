//! Views: names in the catalog that stand for the text of a query.
//!
//! Tables and views share their names. What a text means is `sql`'s business.

use types::{Error, Result};

use super::descriptions::{MAX_NAME, check_name, check_user_database};
use crate::api::StoredView;
use crate::state::State;

/// Longest text of a view, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Most views.
const MAX_VIEWS: usize = 4_096;
/// Longest texts of all views together, in bytes: every node fetches the catalog as one message.
const MAX_TEXTS: usize = 8 << 20;

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
