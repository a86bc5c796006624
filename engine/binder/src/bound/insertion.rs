//! The rows that an INSERT or REPLACE gives, and what becomes of a row that one of them meets, bound.
//!
//! It says which values; it never completes, numbers or writes a row.

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Insert, OnInsert, Query, Select, SelectItem, SetExpr,
};
use syntax::constant::{literal, number_of_bytes};
use syntax::names::{TableName, parts, tables_of};
use syntax::scalar_query::{has_query, select_of};
use syntax::tree::{is_default, plain};
use syntax::walk::{Part, replace_exprs};
use types::{Column, ColumnType, Table, Value};
use values::error::{
    NO_COLUMN, SqlResult, column_named_twice, no_column, syntax, unsupported, value_for_generated,
    wrong_name_count, wrong_value_count, wrong_width,
};
use values::mysql_type::MysqlType;

use super::query::{Binder, bind};
use super::scope::{Clause, Scope, ScopeColumn};
use super::tree::{BoundQuery, ColumnId, OutputColumn, Scalar};
use crate::{QueryContext, ResolvedTables};

/// Qualifier of the new row's columns, by their places, for VALUES(c). No name of a text has a NUL.
const NEW: &str = "\0new";
/// Qualifier of what a query gives beside the new row, by its place.
const BESIDE: &str = "\0beside";

/// An INSERT or REPLACE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundInsert {
    /// Which of the table's columns it gives, hidden ones counted.
    pub positions: Vec<usize>,
    /// The rows that it gives.
    pub rows: GivenRows,
    /// The table's columns, in order, hidden ones too: of a row of VALUES as far as it was given, and of a row that is met.
    pub columns: Vec<ColumnId>,
    /// ON DUPLICATE KEY UPDATE.
    pub on_duplicate: Option<OnDuplicate>,
}

/// The rows that an INSERT gives: for each a value of every column that it names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GivenRows {
    /// VALUES, or SET.
    Values(Vec<Vec<GivenValue>>),
    /// The rows of a query: behind them stands what ON DUPLICATE KEY UPDATE reads of its tables.
    Query(Box<BoundQuery>),
}

/// A value of a row of VALUES.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GivenValue {
    /// DEFAULT.
    Default,
    /// A literal.
    Literal(Value),
    /// Computed from the row as far as it was given.
    Computed(Box<Scalar>),
    /// The one value of a query; NULL if it finds none.
    Found(Box<BoundQuery>),
}

/// What becomes of a row that a new one meets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnDuplicate {
    /// The columns of the new row, in order, hidden ones too.
    pub new: Vec<ColumnId>,
    /// What a query gives beside the new row.
    pub beside: Vec<ColumnId>,
    /// Which columns are set to what, in the order of the text.
    pub set: Vec<(usize, NewValueOfMet)>,
}

/// What a column of a row that is met is set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NewValueOfMet {
    /// Its default.
    Default,
    /// Computed from the row as the assignments before have left it, the new row, and what a query gives beside it.
    Computed(Scalar),
}

/// The tables that an INSERT reads.
///
/// # Errors
///
/// 1046 for a name without a database where none is chosen.
pub fn tables_of_insert(insert: &Insert, database: &str) -> SqlResult<Vec<TableName>> {
    let values = insert.assignments.iter().map(|assignment| &assignment.value as &dyn Part);
    let source = insert.source.as_deref().map(|query| query as &dyn Part);
    tables_of(&source.into_iter().chain(values).collect::<Vec<_>>(), database)
}

/// Binds an INSERT into a table, over the tables that it reads.
///
/// # Errors
///
/// MySQL's where it is wrong.
pub fn bind_insert(
    insert: &Insert,
    (name, table): (&TableName, &Table),
    context: &QueryContext,
    tables: &ResolvedTables,
) -> SqlResult<BoundInsert> {
    let count = Cell::new(0);
    let mut binder = Binder::new(context, tables, &count);
    let columns = binder.own(name, table);
    let positions = positions_of(insert, table)?;
    let into = Destination { table, positions: &positions };
    let values = binder.values_of_insert(insert, &into)?;
    let mut read = Vec::new();
    let met = match &insert.on {
        None => None,
        Some(OnInsert::DuplicateKeyUpdate(assignments)) => {
            let new = binder.new_row(insert, &into)?;
            let selects = insert.source.as_deref().and_then(select_of_rows).is_some();
            let mut names = Names { table, scope: &binder.scope, selects, beside: &mut read };
            Some((new, names.resolved(assignments)?))
        }
        Some(_) => return Err(unsupported("ON CONFLICT (write ON DUPLICATE KEY UPDATE)")),
    };
    let rows = match (values, &insert.source) {
        (Some(rows), _) => GivenRows::Values(rows),
        (None, Some(source)) => {
            GivenRows::Query(Box::new(binder.source(source, &read, positions.len())?))
        }
        (None, None) => return Err(unsupported("INSERT without rows")),
    };
    let on_duplicate = match met {
        None => None,
        Some((new, written)) => {
            let beside = binder.beside(&rows, read.len());
            Some(OnDuplicate { new, beside, set: binder.set_of_met(&written, table)? })
        }
    };
    Ok(BoundInsert { positions, rows, columns, on_duplicate })
}

/// The columns that an INSERT gives.
struct Destination<'t> {
    table: &'t Table,
    positions: &'t [usize],
}

/// Positions of the columns that an INSERT gives.
fn positions_of(insert: &Insert, table: &Table) -> SqlResult<Vec<usize>> {
    let mut positions = Vec::new();
    for assignment in &insert.assignments {
        positions.push(given_column(table, &set_column(assignment)?, &positions)?);
    }
    for column in &insert.columns {
        let name = parts(column).pop().unwrap_or_default();
        positions.push(given_column(table, &name, &positions)?);
    }
    Ok(if insert.assignments.is_empty() && insert.columns.is_empty() {
        shown_columns(table)
    } else {
        positions
    })
}

/// The column that an assignment names.
fn set_column(assignment: &Assignment) -> SqlResult<String> {
    match &assignment.target {
        AssignmentTarget::ColumnName(name) => Ok(parts(name).pop().unwrap_or_default()),
        AssignmentTarget::Tuple(_) => Err(unsupported("assignment of several columns at once")),
    }
}

/// Positions of the columns that are given where none are named.
pub fn shown_columns(table: &Table) -> Vec<usize> {
    let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    shown.map(|(at, _)| at).collect()
}

/// Position of a column that is named among those that are given, behind others.
///
/// # Errors
///
/// 1110 where it was named before, 1054 where there is none of the name.
pub fn given_column(table: &Table, name: &str, before: &[usize]) -> SqlResult<usize> {
    match table.column_named(name) {
        Some((at, _)) if before.contains(&at) => Err(column_named_twice(name)),
        Some((at, column)) if !column.hidden => Ok(at),
        _ => Err(no_column(name, "field list")),
    }
}

/// A column that is set, and to what; `None` is its default.
type Written = (usize, Option<Expr>);

impl Binder<'_> {
    /// The columns of the table, which names mean from now on.
    fn own(&mut self, name: &TableName, table: &Table) -> Vec<ColumnId> {
        let columns = self.columns;
        let next = || {
            columns.set(columns.get() + 1);
            ColumnId(columns.get())
        };
        let own = self.scope.add(name, None, table, true, next);
        own.into_iter().map(|(_, id)| id).collect()
    }

    /// The rows of VALUES or SET; `None` of a query.
    fn values_of_insert(
        &self,
        insert: &Insert,
        into: &Destination,
    ) -> SqlResult<Option<Vec<Vec<GivenValue>>>> {
        if !insert.assignments.is_empty() {
            let values = insert.assignments.iter().map(|one| &one.value);
            return Ok(Some(vec![self.given_row(values, into)?]));
        }
        let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|source| &*source.body)
        else {
            return Ok(None);
        };
        let width = into.positions.len();
        let mut rows = Vec::with_capacity(values.rows.len());
        for (at, row) in values.rows.iter().enumerate() {
            rows.push(match row.content.len() {
                // INSERT INTO t VALUES () takes every default.
                0 => vec![GivenValue::Default; width],
                given if given == width => self.given_row(row.content.iter(), into)?,
                _ => return Err(wrong_value_count(at + 1)),
            });
        }
        Ok(Some(rows))
    }

    fn given_row<'e>(
        &self,
        exprs: impl Iterator<Item = &'e Expr>,
        into: &Destination,
    ) -> SqlResult<Vec<GivenValue>> {
        let columns = into.positions.iter().filter_map(|at| into.table.columns.get(*at));
        exprs.zip(columns).map(|(expr, column)| self.given(expr, column.ty)).collect()
    }

    fn given(&self, expr: &Expr, ty: ColumnType) -> SqlResult<GivenValue> {
        if is_default(expr) {
            return Ok(GivenValue::Default);
        }
        if let Some(value) = number_of_bytes(expr, ty).or_else(|| literal(expr)) {
            return Ok(GivenValue::Literal(value));
        }
        if has_query(expr) {
            let query = bind(&select_of(expr.clone())?, self.context, self.tables, &[])?;
            return match query.output.len() {
                1 => Ok(GivenValue::Found(Box::new(query))),
                _ => Err(wrong_width(1)),
            };
        }
        Ok(GivenValue::Computed(Box::new(self.new_value(expr, ty)?)))
    }

    /// The columns of the new row, which VALUES(c) and the names of its alias mean from now on.
    fn new_row(&mut self, insert: &Insert, into: &Destination) -> SqlResult<Vec<ColumnId>> {
        let column = |column: &Column| ScopeColumn {
            id: self.next(),
            name: column.name.clone(),
            hidden: column.hidden,
            ty: MysqlType::of_column(column.ty),
            origin: None,
        };
        let all: Vec<ScopeColumn> = into.table.columns.iter().map(column).collect();
        let ids = all.iter().map(|column| column.id).collect();
        if let Some(aliases) = &insert.insert_alias {
            let called: Vec<&str> =
                aliases.col_aliases.iter().flatten().map(|name| name.value.as_str()).collect();
            let columns = match called.len() {
                0 => all.clone(),
                count if count == into.positions.len() => {
                    let given = into.positions.iter().filter_map(|at| all.get(*at));
                    let renamed = |(column, name): (&ScopeColumn, &str)| ScopeColumn {
                        name: name.to_owned(),
                        ..column.clone()
                    };
                    given.zip(called).map(renamed).collect()
                }
                _ => return Err(wrong_name_count()),
            };
            let alias = parts(&aliases.row_alias).pop().unwrap_or_default();
            self.scope.add_named(&alias, columns, true);
        }
        let by_place =
            |(at, column): (usize, ScopeColumn)| ScopeColumn { name: place(at), ..column };
        self.scope.add_named(NEW, all.into_iter().enumerate().map(by_place).collect(), false);
        Ok(ids)
    }

    /// The query of an INSERT … SELECT, with what is read of its tables behind its columns.
    fn source(&self, source: &Query, read: &[Expr], width: usize) -> SqlResult<BoundQuery> {
        let mut query = source.clone();
        if let SetExpr::Select(select) = &mut *query.body {
            let item = |(at, expr): (usize, &Expr)| SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: plain(format!("__beside_{at}")),
            };
            select.projection.extend(read.iter().enumerate().map(item));
        }
        let bound = bind(&query, self.context, self.tables, &[])?;
        match bound.output.len() == width + read.len() {
            true => Ok(bound),
            false => Err(wrong_value_count(1)),
        }
    }

    /// The last columns of a query, which names mean from now on.
    fn beside(&mut self, rows: &GivenRows, count: usize) -> Vec<ColumnId> {
        let GivenRows::Query(query) = rows else { return Vec::new() };
        let output = query.output.iter().skip(query.output.len().saturating_sub(count));
        let column = |(at, column): (usize, &OutputColumn)| ScopeColumn {
            id: self.next(),
            name: place(at),
            hidden: false,
            ty: column.ty,
            origin: None,
        };
        let columns: Vec<ScopeColumn> = output.enumerate().map(column).collect();
        let ids = columns.iter().map(|column| column.id).collect();
        self.scope.add_named(BESIDE, columns, false);
        ids
    }

    fn set_of_met(
        &self,
        written: &[Written],
        table: &Table,
    ) -> SqlResult<Vec<(usize, NewValueOfMet)>> {
        let mut set = Vec::with_capacity(written.len());
        for (at, expr) in written {
            let Some(column) = table.columns.get(*at) else { continue };
            set.push((
                *at,
                match expr {
                    None => NewValueOfMet::Default,
                    Some(expr) => NewValueOfMet::Computed(self.new_value(expr, column.ty)?),
                },
            ));
        }
        Ok(set)
    }
}

/// The SELECT of a query whose tables' columns can be read beside its rows: one without groups.
fn select_of_rows(query: &Query) -> Option<&Select> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let plain = !grouped && select.distinct.is_none() && select.having.is_none();
    plain.then_some(select)
}

/// What names mean in ON DUPLICATE KEY UPDATE: columns of the row that is met, of the new one, or else of the query's tables.
struct Names<'a> {
    table: &'a Table,
    /// The row that is met, and the new one.
    scope: &'a Scope,
    /// Whether names may mean columns of a query's tables.
    selects: bool,
    /// What is read of those.
    beside: &'a mut Vec<Expr>,
}

impl Names<'_> {
    /// What is set, but generated columns to DEFAULT, which they have anyhow.
    fn resolved(&mut self, assignments: &[Assignment]) -> SqlResult<Vec<Written>> {
        let mut set = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let (name, value) = (set_column(assignment)?, &assignment.value);
            let known = self.table.column_named(&name).filter(|(_, column)| !column.hidden);
            let (at, column) = known.ok_or_else(|| no_column(&name, "field list"))?;
            match (is_default(value), column.generated().is_some()) {
                (true, true) => {}
                (false, true) => {
                    return Err(value_for_generated(&column.name, &self.table.name));
                }
                (true, false) => set.push((at, None)),
                (false, false) => {
                    let mut value = value.clone();
                    replace_exprs(&mut value, &mut |expr| self.meaning(expr))?;
                    set.push((at, Some(value)));
                }
            }
        }
        Ok(set)
    }

    /// What stands for an expression that is not what the scope makes of it.
    fn meaning(&mut self, expr: &Expr) -> SqlResult<Option<Expr>> {
        let path = match expr {
            Expr::Function(function)
                if parts(&function.name).last().is_some_and(|name| name == "values") =>
            {
                let name = column_of_values(function)?;
                let column = self.table.column_named(name).filter(|(_, column)| !column.hidden);
                let (at, _) = column.ok_or_else(|| no_column(name, "field list"))?;
                return Ok(Some(named(NEW, at)));
            }
            Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. } => {
                return Err(unsupported("a subquery in ON DUPLICATE KEY UPDATE"));
            }
            Expr::Identifier(name) => vec![name.value.clone()],
            Expr::CompoundIdentifier(names) => {
                names.iter().map(|name| name.value.clone()).collect()
            }
            _ => return Ok(None),
        };
        match self.scope.column(&path, Clause::FieldList) {
            Err(error) if error.code == NO_COLUMN && self.selects => {
                self.beside.push(expr.clone());
                Ok(Some(named(BESIDE, self.beside.len() - 1)))
            }
            _ => Ok(None),
        }
    }
}

/// The column that VALUES(c) names.
fn column_of_values(function: &Function) -> SqlResult<&str> {
    let odd = || syntax("VALUES() takes the name of a column");
    let FunctionArguments::List(list) = &function.args else { return Err(odd()) };
    let name = match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name)))] => Some(name),
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::CompoundIdentifier(names)))] => {
            names.last()
        }
        _ => None,
    };
    name.map(|name| name.value.as_str()).ok_or_else(odd)
}

/// The name of a column that only its place names: no text has it.
fn place(at: usize) -> String {
    format!("\0{at}")
}

fn named(qualifier: &str, at: usize) -> Expr {
    Expr::CompoundIdentifier(vec![plain(qualifier.to_owned()), plain(place(at))])
}
