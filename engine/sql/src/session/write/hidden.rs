//! Names of hidden columns in statements that change rows. The queries that find those rows have the hidden columns in
//! scope; the statement has not.
//!
//! It looks at the statement's own expressions, never at its subqueries, whose tables have names of their own.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Query, Visitor};
use syntax::walk::{Part, walk};
use types::Table;
use values::error::{SqlError, SqlResult, no_column};

/// Error 1054 for a name that only hidden columns of the tables have. Each table comes with the name that it goes by.
pub(super) fn refuse_hidden(tables: &[(&str, &Table)], part: &impl Part) -> SqlResult<()> {
    walk(part, &mut Names { tables, queries: 0 })
}

struct Names<'a> {
    tables: &'a [(&'a str, &'a Table)],
    queries: usize,
}

impl Names<'_> {
    fn is_hidden(&self, qualifier: Option<&str>, name: &str) -> bool {
        let meant = self.tables.iter().filter(|(called, _)| {
            qualifier.is_none_or(|qualifier| qualifier.eq_ignore_ascii_case(called))
        });
        let mut columns = meant.filter_map(|(_, table)| table.column_named(name)).peekable();
        columns.peek().is_some() && columns.all(|(_, column)| column.hidden)
    }
}

impl Visitor for Names<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<SqlError> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        let (qualifier, name) = match expr {
            Expr::Identifier(name) => (None, name),
            Expr::CompoundIdentifier(names) => match &names[..] {
                [.., table, name] => (Some(table.value.as_str()), name),
                _ => return ControlFlow::Continue(()),
            },
            _ => return ControlFlow::Continue(()),
        };
        match self.queries == 0 && self.is_hidden(qualifier, &name.value) {
            true => ControlFlow::Break(no_column(&name.value, "field list")),
            false => ControlFlow::Continue(()),
        }
    }
}
