//! The columns that a name may mean, at one place of a query.
//!
//! Every column of a table is one of its scope's, hidden ones only for a statement that changes rows; no name and no
//! wildcard ever means one.

use arrow::datatypes::Field;
use datafusion::common::TableReference;
use syntax::names::TableName;
use types::Table;
use values::error::{SqlResult, ambiguous_column, no_column};
use values::mysql_type::{MysqlType, NOT_FIXED};

use super::call_types::of_arrow;
use super::tree::{ColumnId, Node, Origin, OutputColumn, Scalar};
use crate::labels::type_of_field;

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
    /// USING.
    From,
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
            Clause::From => "from clause",
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
    /// Whether no name means it.
    pub hidden: bool,
    /// Its type.
    pub ty: MysqlType,
    /// Where it comes from.
    pub origin: Option<Origin>,
}

impl ScopeColumn {
    /// The column as an expression.
    pub fn value(&self) -> Scalar {
        Scalar { node: Node::Column(self.id), ty: self.ty }
    }
}

/// A table in scope.
#[derive(Clone, Debug)]
pub struct ScopeTable {
    /// Which stored table it is; `None` of a query in the place of one.
    pub stored: Option<TableName>,
    /// Its database, if it has no alias.
    database: Option<String>,
    /// Its alias or its name, in lower case.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<ScopeColumn>,
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
    /// The columns that names without a table and `*` mean, in order: one of those that USING takes together.
    plain: Vec<ColumnId>,
}

/// How far a scope was filled.
#[derive(Clone, Copy)]
pub struct Mark {
    tables: usize,
    plain: usize,
}

impl Scope {
    /// Adds a stored table, whose columns get the numbers that `next` gives; with `hidden`, hidden ones, too. The columns
    /// come back as places and numbers.
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
        let stored = Some(name.clone());
        let database = alias.is_none().then(|| name.database.clone());
        let name = alias.unwrap_or(&name.table).to_lowercase();
        self.plain.extend(columns.iter().map(|column| column.id));
        self.tables.push(ScopeTable { stored, database, name, columns });
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
        self.add_named(alias, output.iter().map(column).collect(), true);
    }

    /// Adds columns that names with this qualifier mean, and with `plain` those without one, too.
    pub fn add_named(&mut self, qualifier: &str, columns: Vec<ScopeColumn>, plain: bool) {
        if plain {
            self.plain.extend(columns.iter().map(|column| column.id));
        }
        let name = qualifier.to_lowercase();
        self.tables.push(ScopeTable { stored: None, database: None, name, columns });
    }

    /// Adds a column of a schema, which gets this number.
    pub fn add_field(
        &mut self,
        qualifier: Option<&TableReference>,
        field: &Field,
        number: u32,
    ) -> ColumnId {
        let id = ColumnId(number);
        let ty = match type_of_field(field) {
            Some(labelled) => MysqlType::of_column(labelled),
            None => of_arrow(field.data_type(), 0, NOT_FIXED),
        };
        let (name, hidden, origin) = (field.name().clone(), false, None);
        let column = ScopeColumn { id, name, hidden, ty, origin };
        let database = qualifier.and_then(TableReference::schema).map(str::to_owned);
        let name = qualifier.map_or("", TableReference::table).to_owned();
        self.plain.push(id);
        match self.tables.last_mut() {
            Some(last) if last.name == name && last.database == database => {
                last.columns.push(column);
            }
            _ => {
                let columns = vec![column];
                self.tables.push(ScopeTable { stored: None, database, name, columns });
            }
        }
        id
    }

    /// What a column is called: its full name, and its own.
    pub fn name_of(&self, column: ColumnId) -> Option<(String, &str)> {
        self.tables.iter().find_map(|table| {
            let own = table.columns.iter().find(|own| own.id == column)?;
            let of_table = table.database.iter().map(String::as_str).chain([table.name.as_str()]);
            let full: Vec<&str> = of_table.chain([own.name.as_str()]).collect();
            Some((full.join("."), own.name.as_str()))
        })
    }

    /// How far it is filled.
    pub fn mark(&self) -> Mark {
        Mark { tables: self.tables.len(), plain: self.plain.len() }
    }

    /// The scope of the tables that were added since.
    pub fn since(&self, mark: Mark) -> Scope {
        let tables = self.tables.iter().skip(mark.tables).cloned().collect();
        Scope { tables, plain: self.plain.iter().skip(mark.plain).copied().collect() }
    }

    /// Its tables, in the order of the text.
    pub fn tables(&self) -> &[ScopeTable] {
        &self.tables
    }

    /// Its columns.
    pub fn columns(&self) -> impl Iterator<Item = &ScopeColumn> {
        self.tables.iter().flat_map(|table| &table.columns)
    }

    fn between(&self, from: Mark, to: Mark) -> Scope {
        let mut scope = self.since(from);
        scope.tables.truncate(to.tables.saturating_sub(from.tables));
        scope.plain.truncate(to.plain.saturating_sub(from.plain));
        scope
    }

    /// A column of its tables as an expression; `None` for any other.
    pub fn value(&self, id: ColumnId) -> Option<Scalar> {
        self.by_id(id).map(ScopeColumn::value)
    }

    /// Takes the columns of these names of two sides of a join together: those added since `left`, and since `right`. Each
    /// is the left one's, or the right one's with `of_right`; they come first in `*`. Both columns of each come back.
    ///
    /// # Errors
    ///
    /// 1054 where a side has no column of a name, 1052 where it has several.
    pub fn take_together(
        &mut self,
        names: &[String],
        (left, right): (Mark, Mark),
        of_right: bool,
    ) -> SqlResult<Vec<(ScopeColumn, ScopeColumn)>> {
        let left_side = self.between(left, right);
        let right_side = self.since(right);
        let mut pairs = Vec::with_capacity(names.len());
        for name in names {
            let path = std::slice::from_ref(name);
            let one = left_side.column(path, Clause::From)?.clone();
            pairs.push((one, right_side.column(path, Clause::From)?.clone()));
        }
        let kept =
            |(one, other): &(ScopeColumn, ScopeColumn)| if of_right { other.id } else { one.id };
        let mut plain: Vec<ColumnId> = pairs.iter().map(kept).collect();
        let taken =
            |id: &ColumnId| pairs.iter().any(|(one, other)| *id == one.id || *id == other.id);
        let (one, other) = match of_right {
            true => (&right_side.plain, &left_side.plain),
            false => (&left_side.plain, &right_side.plain),
        };
        plain.extend(one.iter().chain(other).filter(|id| !taken(id)));
        self.plain.truncate(left.plain);
        self.plain.extend(plain);
        Ok(pairs)
    }

    /// The names that both sides of a join have, in the order of the first; of the right one with `of_right`.
    pub fn common(&self, (left, right): (Mark, Mark), of_right: bool) -> Vec<String> {
        let names = |ids: &[ColumnId]| -> Vec<String> {
            let columns = ids.iter().filter_map(|id| self.by_id(*id));
            columns
                .filter(|column| !column.hidden)
                .map(|column| column.name.to_lowercase())
                .collect()
        };
        let left = names(&self.between(left, right).plain);
        let right = names(&self.since(right).plain);
        let (first, second) = if of_right { (right, left) } else { (left, right) };
        first.into_iter().filter(|name| second.contains(name)).collect()
    }

    fn by_id(&self, id: ColumnId) -> Option<&ScopeColumn> {
        self.columns().find(|column| column.id == id)
    }

    /// The column that a name means.
    ///
    /// # Errors
    ///
    /// 1054 where no column has the name, 1052 where several have.
    pub fn column(&self, path: &[String], clause: Clause) -> SqlResult<&ScopeColumn> {
        let unknown = || no_column(path.join("."), clause.name());
        let (name, qualifier) = path.split_last().ok_or_else(unknown)?;
        let name = name.to_lowercase();
        let tables = self.tables.iter().filter(|table| table.is_meant(qualifier));
        let meant = |column: &&ScopeColumn| {
            !column.hidden
                && column.name.to_lowercase() == name
                && (!qualifier.is_empty() || self.plain.contains(&column.id))
        };
        let mut named = tables.flat_map(|table| &table.columns).filter(meant);
        let column = named.next().ok_or_else(unknown)?;
        match named.next() {
            None => Ok(column),
            Some(_) => Err(ambiguous_column(path.join("."), clause.name())),
        }
    }

    /// The columns that `*` means, or `t.*`; `None` if there is no such table.
    pub fn wildcard(&self, qualifier: &[String]) -> Option<Vec<&ScopeColumn>> {
        let columns: Vec<&ScopeColumn> = match qualifier {
            [] => self.plain.iter().filter_map(|id| self.by_id(*id)).collect(),
            _ => {
                let mut tables = self.tables.iter().filter(|table| table.is_meant(qualifier));
                let first = tables.next()?;
                std::iter::once(first).chain(tables).flat_map(|table| &table.columns).collect()
            }
        };
        Some(columns.into_iter().filter(|column| !column.hidden).collect())
    }
}
