//! Which table a name before a column means.
//!
//! The planner below takes `a.id` in a subquery for a part of the subquery's own column `a`, should
//! it have one. Behind its database a table's name can be taken for nothing else: `d.a.id`. Names
//! given by AS, WITH and to derived tables have no database and stay as they are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::Expr as PlanExpr;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use sqlparser::ast::{Ident, ObjectName, Select, SetExpr, TableFactor, TableWithJoins};
use syntax::names::{TableName, parts, table_name};
use syntax::tree::plain;
use values::error::{SqlResult, not_unique_alias};

/// The columns of stored tables. The planner below takes `d.a.id` for a part of a column `d`, should the
/// subquery have one; no column of MySQL has parts, so it is a column of a query around.
#[derive(Debug)]
pub struct Around(pub HashMap<TableName, SchemaRef>);

impl ExprPlanner for Around {
    fn plan_compound_identifier(
        &self,
        field: &Field,
        qualifier: Option<&TableReference>,
        rest: &[String],
    ) -> Result<PlannerResult<Vec<PlanExpr>>> {
        let (database, table, column) = match (qualifier, rest) {
            (_, [table, column]) => (field.name().as_str(), table.as_str(), column),
            (Some(alias), [column]) => (alias.table(), field.name().as_str(), column),
            _ => return Ok(PlannerResult::Original(Vec::new())),
        };
        let name = TableName { database: database.to_owned(), table: table.to_owned() };
        let known = self.0.get(&name).and_then(|schema| schema.column_with_name(column));
        let Some((_, field)) = known else { return Ok(PlannerResult::Original(Vec::new())) };
        let column = Column::new(Some(TableReference::partial(database, table)), column);
        let field = Arc::new(field.clone());
        Ok(PlannerResult::Planned(PlanExpr::OuterReferenceColumn(field, column)))
    }
}

/// The tables of one FROM: for each name the database, if the name is a stored table's own.
type Scope = HashMap<String, Option<String>>;

/// The FROMs around the place that is looked at, the innermost last.
#[derive(Default)]
pub struct Scopes {
    stack: Vec<Scope>,
}

impl Scopes {
    /// Enters a SELECT, whose tables are sought before those of what is around it.
    pub fn enter(&mut self, select: &Select, database: &str, is_with: impl Fn(&str) -> bool) {
        let mut scope = Scope::new();
        for from in &select.from {
            add(&mut scope, from, database, &is_with);
        }
        self.stack.push(scope);
    }

    /// Enters a whole query: its ORDER BY sees the tables of its one SELECT.
    pub fn enter_body(&mut self, body: &SetExpr, database: &str, is_with: impl Fn(&str) -> bool) {
        match body {
            SetExpr::Select(select) => self.enter(select, database, is_with),
            _ => self.stack.push(Scope::new()),
        }
    }

    /// Leaves what was entered last.
    pub fn leave(&mut self) {
        self.stack.pop();
    }

    /// Whether the SELECT that was entered last is within another one.
    pub fn is_nested(&self) -> bool {
        // A query enters the tables of its SELECT for its ORDER BY, too.
        self.stack.len() > 2
    }

    fn database_of(&self, table: &str) -> Option<&str> {
        self.stack.iter().rev().find_map(|scope| scope.get(table))?.as_deref()
    }

    /// A column's full name, in lower case.
    pub fn column(&self, names: Vec<Ident>) -> Vec<Ident> {
        let names: Vec<String> = names.into_iter().map(|name| name.value.to_lowercase()).collect();
        let database = match &names[..] {
            [table, _] => self.database_of(table).map(str::to_owned),
            _ => None,
        };
        database.into_iter().chain(names).map(plain).collect()
    }

    /// The full name of the table before `.*`, in lower case.
    pub fn table(&self, name: &ObjectName) -> ObjectName {
        let names = parts(name);
        let database = match &names[..] {
            [table] => self.database_of(table).map(str::to_owned),
            _ => None,
        };
        database.into_iter().chain(names).map(plain).collect::<Vec<_>>().into()
    }
}

/// Error 1066 for two tables of one FROM that have the same name.
pub fn unique(select: &Select, database: &str) -> SqlResult<()> {
    let mut seen = HashSet::new();
    let mut froms: Vec<&TableWithJoins> = select.from.iter().collect();
    while let Some(from) = froms.pop() {
        let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
        for factor in factors {
            let name = match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    froms.push(table_with_joins);
                    continue;
                }
                TableFactor::Table { name, alias: None, .. } => match table_name(name, database) {
                    Ok(found) => (found.database, found.table),
                    Err(_) => continue,
                },
                TableFactor::Table { name, alias: Some(alias), .. } => {
                    let of = table_name(name, database).map(|found| found.database);
                    (of.unwrap_or_default(), alias.name.value.to_lowercase())
                }
                TableFactor::Derived { alias: Some(alias), .. } => {
                    (String::new(), alias.name.value.to_lowercase())
                }
                _ => continue,
            };
            if let Some((_, name)) = seen.replace(name) {
                return Err(not_unique_alias(name));
            }
        }
    }
    Ok(())
}

fn add(scope: &mut Scope, from: &TableWithJoins, database: &str, is_with: &impl Fn(&str) -> bool) {
    let factors = std::iter::once(&from.relation).chain(from.joins.iter().map(|j| &j.relation));
    for factor in factors {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                add(scope, table_with_joins, database, is_with);
            }
            TableFactor::Table { name, alias: None, .. } => {
                let with = matches!(&parts(name)[..], [one] if is_with(one));
                let Ok(found) = table_name(name, database) else { continue };
                let database = (!with).then_some(found.database);
                // Two tables of one name: neither can be identified by it.
                let twice = scope.contains_key(&found.table);
                scope.insert(found.table, if twice { None } else { database });
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => {
                scope.insert(alias.name.value.to_lowercase(), None);
            }
            _ => {}
        }
    }
}
