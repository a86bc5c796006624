//! The columns that a name may mean, at one place of a query.
//!
//! Every column of a table is one of its scope's, but hidden ones only where a statement of ours asks for them; no
//! wildcard ever means one.

use syntax::names::TableName;
use types::Table;
use values::error::{SqlResult, ambiguous_column, no_column};
use values::mysql_type::MysqlType;

use super::tree::{ColumnId, Origin, OutputColumn};

/// Where a name stands, in MySQL's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clause {
    /// The select list.
    FieldList,
    /// WHERE.
    Where,
    /// ON.
    On,
    /// GROUP BY.
    GroupBy,
    /// HAVING.
    Having,
    /// ORDER BY.
    OrderBy,
}

impl Clause {
    /// What error messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Clause::FieldList => "field list",
            Clause::Where => "where clause",
            Clause::On => "on clause",
            Clause::GroupBy => "group statement",
            Clause::Having => "having clause",
            Clause::OrderBy => "order clause",
        }
    }
}

/// A column in scope.
#[derive(Clone, Debug)]
pub struct ScopeColumn {
    /// Which it is.
    pub id: ColumnId,
    /// Its name as it was declared.
    pub name: String,
    /// Whether `*` leaves it out.
    pub hidden: bool,
    /// Its type.
    pub ty: MysqlType,
    /// Where it comes from.
    pub origin: Option<Origin>,
}

/// A table in scope.
#[derive(Clone, Debug)]
struct ScopeTable {
    /// Its database, if it has no alias.
    database: Option<String>,
    /// Its alias or its name, in lower case.
    name: String,
    columns: Vec<ScopeColumn>,
    /// The columns of its primary key; none if it has none in scope.
    key: Vec<ColumnId>,
}

impl ScopeTable {
    /// Whether a qualifier of a column or of `*` means it.
    fn is_meant(&self, qualifier: &[String]) -> bool {
        let called = |table: &String| table.to_lowercase() == self.name;
        match qualifier {
            [] => true,
            [table] => called(table),
            [database, table] => {
                let database = database.to_lowercase();
                called(table) && self.database.as_ref().is_none_or(|own| *own == database)
            }
            _ => false,
        }
    }
}

/// The tables of a FROM.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    tables: Vec<ScopeTable>,
}

impl Scope {
    /// Adds a stored table, whose columns get the numbers that `next` gives. With `hidden`, names may mean its hidden
    /// columns. The columns come back as places and numbers.
    pub fn add(
        &mut self,
        name: &TableName,
        alias: Option<&str>,
        table: &Table,
        hidden: bool,
        mut next: impl FnMut() -> ColumnId,
    ) -> Vec<(usize, ColumnId)> {
        let called = alias.unwrap_or(&table.name);
        let mut columns = Vec::with_capacity(table.columns.len());
        for (position, column) in table.columns.iter().enumerate() {
            if column.hidden && !hidden {
                continue;
            }
            let alias = called.to_owned();
            columns.push(ScopeColumn {
                id: next(),
                name: column.name.clone(),
                hidden: column.hidden,
                ty: MysqlType::of_column(column.ty),
                origin: Some(Origin { table: name.clone(), alias, position }),
            });
        }
        let scanned = columns.iter().filter_map(|column| {
            Some((column.origin.as_ref().map(|origin| origin.position)?, column.id))
        });
        let scanned: Vec<(usize, ColumnId)> = scanned.collect();
        let database = alias.is_none().then(|| name.database.clone());
        let name = alias.unwrap_or(&name.table).to_lowercase();
        let column_of = |id: &types::ColumnId| {
            let position = table.columns.iter().position(|column| column.id == *id)?;
            scanned.iter().find(|(place, _)| *place == position).map(|(_, id)| *id)
        };
        let key: Option<Vec<ColumnId>> = table.primary_key.iter().map(column_of).collect();
        let key = key.unwrap_or_default();
        self.tables.push(ScopeTable { database, name, columns, key });
        scanned
    }

    /// Adds the columns of a query in the place of a table.
    pub fn add_derived(&mut self, alias: &str, output: &[OutputColumn]) {
        let column = |column: &OutputColumn| {
            let origin = column.origin.clone();
            let origin = origin.map(|origin| Origin { alias: alias.to_owned(), ..origin });
            ScopeColumn {
                id: column.id,
                name: column.name.clone(),
                hidden: false,
                ty: column.ty,
                origin,
            }
        };
        let columns = output.iter().map(column).collect();
        let name = alias.to_lowercase();
        self.tables.push(ScopeTable { database: None, name, columns, key: Vec::new() });
    }

    /// Whether a column is determined by others: whether the primary key of its table is among them.
    pub fn is_determined(&self, column: ColumnId, is_known: impl Fn(ColumnId) -> bool) -> bool {
        let has = |table: &&ScopeTable| table.columns.iter().any(|own| own.id == column);
        let table = self.tables.iter().find(has);
        table.is_some_and(|table| {
            !table.key.is_empty() && table.key.iter().all(|part| is_known(*part))
        })
    }

    /// Tables so far.
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// The scope of the tables that were added after so many.
    pub fn from(&self, before: usize) -> Scope {
        Scope { tables: self.tables.iter().skip(before).cloned().collect() }
    }

    /// The column that a name means.
    ///
    /// # Errors
    ///
    /// 1054 where no column has the name, 1052 where several have.
    pub fn column(&self, path: &[String], clause: Clause) -> SqlResult<&ScopeColumn> {
        let unknown = || no_column(path.join("."), clause.name());
        let (name, qualifier) = path.split_last().ok_or_else(unknown)?;
        let tables = self.tables.iter().filter(|table| table.is_meant(qualifier));
        let (columns, name) = (tables.flat_map(|table| &table.columns), name.to_lowercase());
        let mut named = columns.filter(|column| column.name.to_lowercase() == name);
        let column = named.next().ok_or_else(unknown)?;
        match named.next() {
            None => Ok(column),
            Some(_) => Err(ambiguous_column(path.join("."), clause.name())),
        }
    }

    /// The columns that `*` means, or `t.*`; `None` if there is no such table.
    pub fn wildcard(&self, qualifier: &[String]) -> Option<Vec<&ScopeColumn>> {
        let tables = self.tables.iter().filter(|table| table.is_meant(qualifier));
        let tables: Vec<_> = tables.collect();
        let columns = tables.iter().flat_map(|table| &table.columns);
        let shown = columns.filter(|column| !column.hidden).collect();
        (!tables.is_empty() || qualifier.is_empty()).then_some(shown)
    }
}
