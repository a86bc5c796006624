//! Views in the statements that read them: their queries take their places.
//!
//! This is done before anything is planned, so that rows and columns read the same, and nobody
//! behind the session knows of views. A view is never written or locked through.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use futures::future::BoxFuture;
use placement::api::{Catalog, StoredView};
use sqlparser::ast::{Expr, Ident, ObjectName, Query, SetExpr, TableFactor, Visitor, VisitorMut};
use syntax::names::table_name;
use syntax::parser;
use syntax::walk::{Part, walk, walk_mut};
use types::{SchemaVersion, TableId};
use values::error::{
    NO_COLUMN, NO_DATABASE, NO_FUNCTION, NO_TABLE, SqlError, SqlResult, invalid_view, syntax,
    unsupported, view_recursion,
};

use crate::session::{Session, impossible};
use information_schema::is_virtual;
use syntax::names::{is_cte, remember_ctes};

/// Errors of a view's query that say that it does not fit its tables any more.
const UNFITTING: [u16; 4] = [NO_COLUMN, NO_TABLE, NO_DATABASE, NO_FUNCTION];
/// Deepest nesting of views in views.
const DEPTH: usize = 32;
/// Most views that a statement reads, those within views included.
pub(in crate::session) const MOST_READ: usize = 256;

impl Session {
    /// Writes the queries of views into a statement that names them.
    pub(super) async fn expand_views<T: Part>(&mut self, statement: &mut T) -> SqlResult<()> {
        let mut catalog = self.engine.storage.catalog().await?;
        let mut named =
            Named { database: self.variables.database(), ctes: Vec::new(), found: Vec::new() };
        _ = walk(&*statement, &mut named);
        let unknown = |catalog: &Catalog| {
            named.found.iter().any(|(database, name)| {
                !is_virtual(database) && catalog.table_named(database, name).is_none()
            })
        };
        if !unknown(&catalog) {
            return Ok(());
        }
        // It may have been made by another node a moment ago.
        self.engine.storage.timestamp().await?;
        catalog = self.engine.storage.catalog().await?;
        if catalog.views.is_empty() {
            return Ok(());
        }
        let mut expander = Expander {
            catalog: &catalog,
            database: self.variables.database(),
            ctes: Vec::new(),
            within: Vec::new(),
            read: BTreeSet::new(),
            expanded: 0,
        };
        walk_mut(statement, &mut expander)?;
        let read = expander.read;
        for (database, name) in read {
            if let Some(view) = catalog.view_named(&database, &name) {
                self.check_view(view, &catalog).await?;
            }
        }
        Ok(())
    }

    /// Error 1356 for a view whose query no longer means anything. Boxed, for the query may read
    /// views in turn.
    fn check_view<'a>(
        &'a mut self,
        view: &'a StoredView,
        catalog: &'a Catalog,
    ) -> BoxFuture<'a, SqlResult<()>> {
        Box::pin(async move {
            let same = |(id, version): &(TableId, SchemaVersion)| {
                catalog.table(*id).is_some_and(|table| table.version == *version)
            };
            if view.tables.iter().all(same) {
                return Ok(());
            }
            let sqlparser::ast::Statement::Query(query) = parser::parse_sql(&view.query)? else {
                return Err(impossible("a view that is no query"));
            };
            match self.columns_of(*query, &[]).await {
                Err(error) if UNFITTING.contains(&error.code) => {
                    Err(invalid_view(&view.database, &view.name))
                }
                _ => Ok(()),
            }
        })
    }

    /// Refuses to lock the rows of a view: a table's are locked under its own name.
    pub(super) async fn check_no_view_is_locked(&self, query: &Query) -> SqlResult<()> {
        let catalog = self.engine.storage.catalog().await?;
        let mut named =
            Named { database: self.variables.database(), ctes: Vec::new(), found: Vec::new() };
        _ = walk(query, &mut named);
        let is_view = |(database, name): &(String, String)| {
            catalog.table_named(database, name).is_none()
                && catalog.view_named(database, name).is_some()
        };
        match named.found.iter().any(is_view) {
            true => Err(unsupported("FOR UPDATE or FOR SHARE of a view (read its tables)")),
            false => Ok(()),
        }
    }
}

/// The tables and views that a statement names.
struct Named<'a> {
    database: &'a str,
    ctes: Vec<String>,
    found: Vec<(String, String)>,
}

impl Visitor for Named<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        remember_ctes(query, &mut self.ctes);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        if !is_cte(name, &self.ctes)
            && let Ok(name) = table_name(name, self.database)
        {
            self.found.push((name.database, name.table));
        }
        ControlFlow::Continue(())
    }
}

/// Replaces views by their queries, and the views in them.
struct Expander<'a> {
    catalog: &'a Catalog,
    database: &'a str,
    ctes: Vec<String>,
    /// For each FROM item around, the view that it was, if it was one.
    within: Vec<Option<(String, String)>>,
    /// All views that were replaced.
    read: BTreeSet<(String, String)>,
    /// How often one was.
    expanded: usize,
}

impl Expander<'_> {
    /// What stands for a view in a FROM, and the view's name.
    fn derived(
        &mut self,
        factor: &TableFactor,
    ) -> SqlResult<Option<(TableFactor, (String, String))>> {
        let TableFactor::Table { name, alias, args: None, version, partitions, sample, .. } =
            factor
        else {
            return Ok(None);
        };
        if is_cte(name, &self.ctes) {
            return Ok(None);
        }
        let Ok(named) = table_name(name, self.database) else { return Ok(None) };
        if self.catalog.table_named(&named.database, &named.table).is_some() {
            return Ok(None);
        }
        let Some(view) = self.catalog.view_named(&named.database, &named.table) else {
            // Within a view, what is not there makes the view invalid.
            return match self.within.iter().flatten().next() {
                Some((database, name)) if !is_virtual(&named.database) => {
                    Err(invalid_view(database, name))
                }
                _ => Ok(None),
            };
        };
        let renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
        if version.is_some() || !partitions.is_empty() || sample.is_some() || renamed {
            return Err(unsupported("AS OF, PARTITION, TABLESAMPLE or names of columns at a view"));
        }
        self.expanded += 1;
        if self.expanded > MOST_READ {
            return Err(unsupported(format!("reading more than {MOST_READ} views at once")));
        }
        let own = (view.database.clone(), view.name.clone());
        if self.within.iter().flatten().any(|around| *around == own)
            || self.within.iter().flatten().count() >= DEPTH
        {
            return Err(view_recursion(&own.0, &own.1));
        }
        let called = alias.as_ref().map_or(view.name.as_str(), |alias| alias.name.value.as_str());
        let called = Ident::with_quote('`', called);
        let text = format!("SELECT 1 FROM ({}) AS {called}", view.query);
        let sqlparser::ast::Statement::Query(query) = parser::parse_sql(&text)? else {
            return Err(impossible("a view that is no query"));
        };
        let SetExpr::Select(select) = *query.body else {
            return Err(impossible("a view that is no SELECT"));
        };
        let factor = select.from.into_iter().next().map(|from| from.relation);
        let factor = factor.ok_or_else(|| syntax("a view without a query"))?;
        Ok(Some((factor, own)))
    }
}

impl VisitorMut for Expander<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        remember_ctes(query, &mut self.ctes);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match self.derived(factor) {
            Ok(Some((derived, view))) => {
                *factor = derived;
                self.read.insert(view.clone());
                self.within.push(Some(view));
            }
            Ok(None) => self.within.push(None),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, _: &mut TableFactor) -> ControlFlow<SqlError> {
        self.within.pop();
        ControlFlow::Continue(())
    }

    /// `d.v.column` of a view that is a derived table now.
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::CompoundIdentifier(path) = expr
            && let [database, view, _] = &path[..]
            && self.catalog.view_named(&database.value, &view.value).is_some()
        {
            path.remove(0);
        }
        ControlFlow::Continue(())
    }
}
