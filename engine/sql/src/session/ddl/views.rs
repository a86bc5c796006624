//! Views: defined and dropped.
//!
//! A view means what its query meant where it was defined: its tables carry their databases, and
//! `*` is written out. How it is read is `unfolding`'s.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use placement::api::{Catalog, CatalogChange, StoredView};
use sqlparser::ast::{
    Expr, FromTable, GroupByExpr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableObject, TableWithJoins, VisitorMut,
};
use syntax::canonical::canonical;
use syntax::names::{self, is_cte, parts, remember_ctes, table_name};
use syntax::parser;
use syntax::statement::DefineView;
use syntax::walk::walk_mut;
use types::wide::WIDE_MAX_PRECISION;
use types::{Column, ColumnType, Error, SchemaVersion, TableId};
use values::column::ResultColumn;
use values::error::{
    SqlError, SqlResult, duplicate_column, no_database, no_table, no_tables_used, not_insertable,
    not_of_kind, not_updatable, table_exists, unsupported, view_recursion, view_variable,
    wrong_name_count,
};

use crate::session::query::unfolding::MOST_READ;
use crate::session::write::statement::Write;
use crate::session::{Session, done, impossible};
use execution::reply::Reply;
use syntax::from::factors;

/// Longest name that a column of a view takes from its expression, in characters.
const MAX_NAME: usize = 64;

impl Session {
    /// CREATE VIEW, ALTER VIEW.
    pub(super) async fn put_view(&mut self, view: DefineView) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let (database, name) = definitions::spelled(&view.name, self.variables.database())?;
        if catalog.database_named(&database).is_none() {
            return Err(no_database(&database));
        }
        let known = catalog.view_named(&database, &name).is_some();
        if catalog.table_named(&database, &name).is_some() {
            return Err(match view.alter || view.replace {
                true => not_of_kind(&database, &name, "VIEW"),
                false => table_exists(&name),
            });
        }
        match known {
            false if view.alter => return Err(no_table(&database, &name)),
            true if !view.alter && !view.replace => return Err(table_exists(&name)),
            _ => {}
        }
        let mut query = view.query;
        self.made_whole(&mut query, &view.columns, &catalog)?;
        let mut tables = BTreeSet::new();
        if reaches(&query, &catalog, (&database, &name), &mut tables, &mut BTreeSet::new())? {
            return Err(view_recursion(&database, &name));
        }
        let text = canonical(&*query);
        let described = self.columns_of(read_back(&text)?, &[]).await?;
        let columns =
            described.into_iter().enumerate().map(|(at, column)| described_as(at, column));
        let columns: Vec<Column> = columns.collect();
        let definer = match view.definer {
            Some(user) => format!("{}@{}", user.name, user.host),
            None => self.identity.user_and_host(),
        };
        let view = StoredView {
            database,
            name: name.clone(),
            columns,
            query: text,
            tables: tables.into_iter().collect(),
            definer,
            invoker: view.invoker,
        };
        let change = CatalogChange::PutView { view: Box::new(view), replace: known };
        match self.engine.storage.change(change).await {
            Ok(_) => Ok(done()),
            Err(Error::Exists { .. }) => Err(table_exists(&name)),
            Err(error) => Err(error.into()),
        }
    }

    /// DROP VIEW.
    pub(super) async fn drop_views(
        &mut self,
        names: &[ObjectName],
        if_exists: bool,
    ) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let mut unknown = Vec::new();
        for name in names {
            let (database, table) = definitions::spelled(name, self.variables.database())?;
            if catalog.table_named(&database, &table).is_some() {
                return Err(not_of_kind(&database, &table, "VIEW"));
            }
            let change =
                CatalogChange::DropView { database: database.clone(), name: table.clone() };
            match self.engine.storage.change(change).await {
                Ok(_) => {}
                Err(Error::NotFound { .. }) => unknown.push(format!("{database}.{table}")),
                Err(error) => return Err(error.into()),
            }
        }
        self.dropped(&unknown, if_exists)
    }

    /// A view's query as it is kept: tables with their databases, `*` written out, a name for each
    /// column.
    fn made_whole(&self, query: &mut Query, names: &[String], catalog: &Catalog) -> SqlResult<()> {
        let mut qualifier = Qualifier { database: self.variables.database(), ctes: Vec::new() };
        walk_mut(query, &mut qualifier)?;
        write_out(&mut query.body, catalog)?;
        let displayed = names::displayed(query);
        let own = |(at, shown): (usize, &names::Displayed)| match shown {
            names::Displayed::Named(name) if name.chars().count() > MAX_NAME => {
                Ok(format!("Name_exp_{}", at + 1))
            }
            names::Displayed::Named(name) => Ok(name.clone()),
            names::Displayed::Wildcard => Err(unsupported("* in this view")),
        };
        if !names.is_empty() && names.len() != displayed.len() {
            return Err(wrong_name_count());
        }
        let own = displayed.iter().enumerate().map(own).collect::<SqlResult<Vec<String>>>()?;
        if names.is_empty() {
            return call(query, &own);
        }
        distinct(names)?;
        if !refers_to_names(query) {
            return call(query, names);
        }
        call(query, &own)?;
        *query = renamed(query, &own, names)?;
        Ok(())
    }

    /// Error 1288 or 1471: nothing is written through a view.
    pub(in crate::session) async fn check_targets(&self, write: &Write) -> SqlResult<()> {
        let catalog = self.engine.storage.catalog().await?;
        if catalog.views.is_empty() {
            return Ok(());
        }
        let view = |name: &ObjectName| {
            let name = table_name(name, self.variables.database()).ok()?;
            catalog.view_named(&name.database, &name.table).map(|view| view.name.clone())
        };
        let of = |from: &[TableWithJoins]| match from {
            [only] if only.joins.is_empty() => match &only.relation {
                TableFactor::Table { name, .. } => view(name),
                _ => None,
            },
            _ => None,
        };
        let (target, verb) = match write {
            Write::Insert(insert) => {
                let TableObject::TableName(name) = &insert.table else { return Ok(()) };
                let Some(target) = view(name) else { return Ok(()) };
                let verb = if insert.replace_into { "REPLACE" } else { "INSERT" };
                return Err(not_insertable(target, verb));
            }
            Write::Update(update) => (of(std::slice::from_ref(&update.table)), "UPDATE"),
            Write::Delete(delete, _) => {
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) =
                    &delete.from;
                (of(from).or_else(|| delete.tables.iter().find_map(&view)), "DELETE")
            }
        };
        match target {
            Some(target) => Err(not_updatable(target, verb)),
            None => Ok(()),
        }
    }
}

/// A column of a view as it is listed.
fn described_as(at: usize, column: ResultColumn) -> Column {
    Column {
        id: u32::try_from(at + 1).unwrap_or(u32::MAX),
        name: column.name,
        ty: match column.ty {
            // What is computed may have more digits than a column.
            Some(ColumnType::Decimal { precision, scale }) => {
                ColumnType::Decimal { precision: precision.min(WIDE_MAX_PRECISION), scale }
            }
            ty => ty.unwrap_or(ColumnType::Varbinary(0)),
        },
        nullable: column.nullable,
        default: None,
        original: None,
        auto_increment: false,
        on_update_now: false,
        hidden: false,
        comment: String::new(),
    }
}

/// The outermost SELECT of a query: of a UNION, the first.
fn outermost(body: &mut SetExpr) -> Option<&mut Select> {
    match body {
        SetExpr::Select(select) => Some(&mut **select),
        SetExpr::Query(query) => outermost(&mut query.body),
        SetExpr::SetOperation { left, .. } => outermost(left),
        _ => None,
    }
}

/// Error 1060 where two columns have one name.
fn distinct(names: &[String]) -> SqlResult<()> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.to_lowercase())) {
        Some(twice) => Err(duplicate_column(twice)),
        None => Ok(()),
    }
}

/// Gives the columns of a query their names.
fn call(query: &mut Query, names: &[String]) -> SqlResult<()> {
    distinct(names)?;
    let Some(select) = outermost(&mut query.body) else {
        return Err(unsupported("a view of VALUES or TABLE"));
    };
    for (item, name) in select.projection.iter_mut().zip(names) {
        let alias = Ident::with_quote('`', name);
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
        }
    }
    Ok(())
}

/// Whether a query has clauses that may mean its columns by their names.
fn refers_to_names(query: &mut Query) -> bool {
    query.order_by.is_some()
        || outermost(&mut query.body).is_some_and(|select| {
            let groups = !matches!(
                &select.group_by,
                GroupByExpr::Expressions(by, with) if by.is_empty() && with.is_empty()
            );
            groups || select.having.is_some()
        })
}

/// A query under other names than its own.
fn renamed(query: &Query, own: &[String], names: &[String]) -> SqlResult<Query> {
    let quoted = |name: &String| Ident::with_quote('`', name).to_string();
    let columns = own.iter().zip(names);
    let columns = columns.map(|(own, name)| format!("{} AS {}", quoted(own), quoted(name)));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let text = format!("SELECT {columns} FROM ({}) AS `own`", canonical(query));
    match parser::parse_sql(&text)? {
        sqlparser::ast::Statement::Query(query) => Ok(*query),
        _ => Err(impossible("a view that is no query")),
    }
}

/// Writes `*` out as the columns that it stands for.
fn write_out(body: &mut SetExpr, catalog: &Catalog) -> SqlResult<()> {
    match body {
        SetExpr::Query(query) => write_out(&mut query.body, catalog),
        SetExpr::SetOperation { left, right, .. } => {
            write_out(left, catalog)?;
            write_out(right, catalog)
        }
        SetExpr::Select(select) => {
            let mut items = Vec::with_capacity(select.projection.len());
            for item in std::mem::take(&mut select.projection) {
                let only = match &item {
                    SelectItem::Wildcard(_) => None,
                    SelectItem::QualifiedWildcard(
                        SelectItemQualifiedWildcardKind::ObjectName(name),
                        _,
                    ) => parts(name).pop(),
                    _ => {
                        items.push(item);
                        continue;
                    }
                };
                items.extend(all_columns(&select.from, only.as_deref(), catalog)?);
            }
            select.projection = items;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The columns of the tables of a FROM, or of one of them.
fn all_columns(
    from: &[TableWithJoins],
    only: Option<&str>,
    catalog: &Catalog,
) -> SqlResult<Vec<SelectItem>> {
    let merged = |text: String| text.contains(" USING(") || text.contains("NATURAL ");
    if from.iter().any(|from| merged(from.to_string())) {
        return Err(unsupported("SELECT * over USING or NATURAL in a view (name the columns)"));
    }
    let mut items = Vec::new();
    for from in from {
        for factor in factors(std::slice::from_ref(from)) {
            let TableFactor::Table { name, alias, args: None, .. } = factor else {
                return Err(unsupported(
                    "SELECT * over a derived table in a view (name the columns)",
                ));
            };
            let found = table_name(name, "")?;
            let called = alias.as_ref().map_or(found.table.clone(), |a| a.name.value.clone());
            if only.is_some_and(|only| !called.eq_ignore_ascii_case(only)) {
                continue;
            }
            let table = catalog.table_named(&found.database, &found.table).cloned();
            let table = table
                .or_else(|| {
                    let view = catalog.view_named(&found.database, &found.table)?;
                    Some(Arc::new(view.described()))
                })
                .ok_or_else(|| no_table(&found.database, &found.table))?;
            for column in table.columns.iter().filter(|column| !column.hidden) {
                let path = [&called, &column.name].map(|part| Ident::with_quote('`', part));
                items.push(SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path.to_vec())));
            }
        }
    }
    match items.is_empty() {
        true => Err(no_tables_used()),
        false => Ok(items),
    }
}

/// Whether a query reads a view, itself or through others; and the tables that it reads.
fn reaches(
    query: &Query,
    catalog: &Catalog,
    view: (&str, &str),
    tables: &mut BTreeSet<(TableId, SchemaVersion)>,
    seen: &mut BTreeSet<(String, String)>,
) -> SqlResult<bool> {
    if seen.len() > MOST_READ {
        return Err(unsupported(format!("views over more than {MOST_READ} others")));
    }
    for name in names::tables_of(&[query], "")? {
        let (database, table) = (name.database.as_str(), name.table.as_str());
        if database.eq_ignore_ascii_case(view.0) && table.eq_ignore_ascii_case(view.1) {
            return Ok(true);
        }
        if let Some(table) = catalog.table_named(database, table) {
            tables.insert((table.id, table.version));
        } else if let Some(other) = catalog.view_named(database, table)
            && seen.insert((other.database.clone(), other.name.clone()))
            && let sqlparser::ast::Statement::Query(query) = parser::parse_sql(&other.query)?
            && reaches(&query, catalog, view, tables, seen)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The query that a view's text will be read as. What cannot be read is refused where it is defined,
/// not where it is used.
fn read_back(text: &str) -> SqlResult<Query> {
    match parser::parse_sql(text) {
        Ok(sqlparser::ast::Statement::Query(query)) => Ok(*query),
        Ok(_) => Err(impossible("a view that is no query")),
        Err(error) => Err(unsupported(format!(
            "this query in a view, for its text could not be read again: {}",
            error.message
        ))),
    }
}

/// A view's query for who is in a database: its tables go without their database's name, so that a
/// dump can be read into another one.
pub(in crate::session) fn text_within(view: &StoredView, database: &str) -> SqlResult<String> {
    struct Bare<'a> {
        database: &'a str,
        /// Tables of other databases: a column of one that has such a name needs its database.
        others: BTreeSet<String>,
    }
    impl VisitorMut for Bare<'_> {
        type Break = ();
        fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
            if name.0.len() == 2
                && parts(name).first().is_some_and(|d| d.eq_ignore_ascii_case(self.database))
            {
                name.0.remove(0);
            }
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(path) = expr
                && let [database, table, _] = path.as_slice()
                && database.value.eq_ignore_ascii_case(self.database)
                && !self.others.contains(&table.value.to_lowercase())
            {
                path.remove(0);
            }
            ControlFlow::Continue(())
        }
    }
    let mut query = read_back(&view.query)?;
    let others = names::tables_of(&[&query], "")?.into_iter();
    let others = others.filter(|name| !name.database.eq_ignore_ascii_case(database));
    let others = others.map(|name| name.table.to_lowercase()).collect();
    _ = walk_mut(&mut query, &mut Bare { database, others });
    Ok(canonical(&query))
}

/// Gives every table of a view's query its database, and refuses what is a session's own.
struct Qualifier<'a> {
    database: &'a str,
    ctes: Vec<String>,
}

impl VisitorMut for Qualifier<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        remember_ctes(query, &mut self.ctes);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<SqlError> {
        if name.0.len() > 1 || is_cte(name, &self.ctes) {
            return ControlFlow::Continue(());
        }
        if self.database.is_empty() {
            return ControlFlow::Break(values::error::no_database_selected());
        }
        let database = ObjectNamePart::Identifier(Ident::with_quote('`', self.database));
        name.0.insert(0, database);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let own = match expr {
            Expr::Identifier(ident) => ident.quote_style.is_none() && ident.value.starts_with('@'),
            Expr::CompoundIdentifier(path) => path
                .first()
                .is_some_and(|first| first.quote_style.is_none() && first.value.starts_with('@')),
            Expr::Value(value) => matches!(value.value, sqlparser::ast::Value::Placeholder(_)),
            _ => false,
        };
        match own {
            true => ControlFlow::Break(view_variable()),
            false => ControlFlow::Continue(()),
        }
    }
}
