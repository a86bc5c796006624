//! MySQL evaluates assignments from left to right: a column assigned earlier has its new value.
//!
//! Only names that mean the row that is changed are rewritten: within a subquery those that none of
//! its tables has. What cannot be resolved is refused, never guessed.

use std::ops::ControlFlow;

use placement::api::Catalog;
use sqlparser::ast::{Expr, Ident, Query, SetExpr, TableFactor, VisitorMut};
use syntax::names::table_name;
use syntax::tree::call;
use syntax::walk::walk_mut;
use types::{ColumnType, Table, Timestamp};
use values::error::{SqlError, SqlResult, unsupported};

use super::row_values::has_subquery;
use crate::session::Session;
use crate::session::query::tables::readable;
use crate::session::transaction::locking::factors;

/// A table that a subquery reads: what it goes by there, and whether it has a column.
struct Inner {
    name: String,
    /// The table, unless its columns are not known here (a derived table, a CTE, a view).
    table: Option<std::sync::Arc<Table>>,
}

/// Writes earlier assignments into a later one.
pub(super) struct PriorAssignments<'a> {
    table: &'a Table,
    /// What the table goes by in the statement.
    own: &'a str,
    set: &'a [(usize, Expr)],
    catalog: (&'a Catalog, Timestamp),
    database: &'a str,
    /// Tables of the subqueries around, from the outermost inwards.
    around: Vec<Vec<Inner>>,
}

impl<'a> PriorAssignments<'a> {
    /// Earlier assignments of an UPDATE of a table, which goes by a name there.
    pub(in crate::session) fn new(
        (table, own): (&'a Table, &'a str),
        set: &'a [(usize, Expr)],
        catalog: (&'a Catalog, Timestamp),
        session: &'a Session,
    ) -> Self {
        PriorAssignments {
            table,
            own,
            set,
            catalog,
            database: session.variables.database(),
            around: Vec::new(),
        }
    }

    /// An expression with the new values of columns that were assigned.
    pub(super) fn written_into(mut self, mut expr: Expr) -> SqlResult<Expr> {
        if !self.set.is_empty() {
            walk_mut(&mut expr, &mut self)?;
        }
        Ok(expr)
    }

    /// What a name means if it is a column of the row that was assigned earlier.
    fn meaning(&self, path: &[Ident]) -> SqlResult<Option<Expr>> {
        let Some((column, qualifiers)) = path.split_last() else { return Ok(None) };
        let at = self.table.column_named(&column.value).map(|(at, _)| at);
        let Some((set, earlier)) = self.set.iter().rev().find(|(set, _)| Some(*set) == at) else {
            return Ok(None);
        };
        // What was assigned may be a number, and the column has its label.
        if let Some(column) = self.table.columns.get(*set).filter(|c| c.ty.labels().is_some()) {
            return Err(unsupported(format!(
                "column '{}' of ENUM or SET in the same UPDATE behind its own assignment (read it first)",
                column.name
            )));
        }
        // A text that was assigned to a JSON column is a document there.
        let json = self.table.columns.get(*set).is_some_and(|c| c.ty == ColumnType::Json);
        let of_json = json.then(|| call("cast_json", vec![earlier.clone()]));
        let earlier = of_json.as_ref().unwrap_or(earlier);
        let nested = |expr: Expr| Ok(Some(Expr::Nested(Box::new(expr))));
        if self.around.is_empty() {
            return nested(earlier.clone());
        }
        let hidden = |one: &Inner| one.name.eq_ignore_ascii_case(self.own);
        let hidden = self.around.iter().flatten().any(hidden);
        match qualifiers.last() {
            Some(qualifier) if hidden || !qualifier.value.eq_ignore_ascii_case(self.own) => {
                return Ok(None);
            }
            Some(_) => {}
            None => {
                let tables = || self.around.iter().flatten().map(|one| one.table.as_ref());
                let has = |table: &std::sync::Arc<Table>| {
                    table.column_named(&column.value).is_some_and(|(_, column)| !column.hidden)
                };
                if tables().flatten().any(has) {
                    return Ok(None);
                }
                if hidden || tables().any(|table| table.is_none()) {
                    return Err(self.refused(&column.value));
                }
            }
        }
        if has_subquery(earlier) {
            return Err(self.refused(&column.value));
        }
        // In the subquery, names of the row need its own.
        let mut earlier = earlier.clone();
        _ = walk_mut(&mut earlier, &mut Qualified(self.own));
        nested(earlier)
    }

    fn refused(&self, column: &str) -> SqlError {
        unsupported(format!(
            "column '{column}', assigned earlier in the UPDATE, in a subquery of a later assignment \
             (write the new value out, or qualify the name if it is the subquery's)"
        ))
    }

    fn tables_of(&self, body: &SetExpr, into: &mut Vec<Inner>) {
        match body {
            SetExpr::Select(select) => {
                into.extend(factors(&select.from).into_iter().map(|factor| self.inner(factor)));
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.tables_of(left, into);
                self.tables_of(right, into);
            }
            // A query within has tables of its own.
            _ => {}
        }
    }

    fn inner(&self, factor: &TableFactor) -> Inner {
        let unknown = |name: String| Inner { name, table: None };
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let alias = alias.as_ref().map(|alias| alias.name.value.clone());
                let Ok(name) = table_name(name, self.database) else {
                    return unknown(alias.unwrap_or_default());
                };
                let (catalog, ts) = self.catalog;
                let table = readable(catalog, &name.database, &name.table, ts).ok();
                Inner { name: alias.unwrap_or(name.table), table }
            }
            TableFactor::Derived { alias: Some(alias), .. } => unknown(alias.name.value.clone()),
            _ => unknown(String::new()),
        }
    }
}

impl VisitorMut for PriorAssignments<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let mut tables = Vec::new();
        self.tables_of(&query.body, &mut tables);
        if let Some(with) = &query.with {
            // A CTE may go by the name of a stored table.
            for one in &mut tables {
                if with
                    .cte_tables
                    .iter()
                    .any(|cte| cte.alias.name.value.eq_ignore_ascii_case(&one.name))
                {
                    one.table = None;
                }
            }
        }
        self.around.push(tables);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.around.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let meant = match &*expr {
            Expr::Identifier(ident) => self.meaning(std::slice::from_ref(ident)),
            Expr::CompoundIdentifier(path) => self.meaning(path),
            _ => return ControlFlow::Continue(()),
        };
        match meant {
            Ok(Some(meant)) => *expr = meant,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// Gives bare names a qualifier.
struct Qualified<'a>(&'a str);

impl VisitorMut for Qualified<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(ident) = expr {
            let own = Ident::with_quote('`', self.0);
            *expr = Expr::CompoundIdentifier(vec![own, ident.clone()]);
        }
        ControlFlow::Continue(())
    }
}
