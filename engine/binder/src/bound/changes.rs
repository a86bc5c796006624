//! The rows that a statement changes or locks, and what it sets their columns to: UPDATE, DELETE and locking reads bound.
//!
//! It says which rows and which values; it never finds, locks or writes one.

use std::cell::Cell;
use std::collections::HashMap;

use functions::labels::AS_NUMBER;
use serde::{Deserialize, Serialize};
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, LimitClause, ObjectName, OrderByExpr,
    TableWithJoins, Update,
};
use syntax::constant::{literal, number_of_bytes};
use syntax::names::{TableName, parts, tables_of};
use syntax::tree::is_default;
use syntax::walk::Part;
use types::{Column, ColumnType, Value};
use values::error::{
    SqlError, SqlResult, no_table, not_updatable, unknown, unsupported, value_for_generated,
};
use values::mysql_type::MysqlType;

use super::query::{Binder, limited};
use super::scope::{Clause, ScopeColumn, ScopeTable};
use super::select_list::{Item, Order, OrderedBy, Rows, ordered_by_name};
use super::tree::{BoundQuery, ColumnId, Node, Scalar};
use super::{arguments, literal as literals};
use crate::{QueryContext, ResolvedTables};

/// A statement that changes or locks rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundChange {
    /// Its rows: of each target all columns, hidden ones too, in the order of the targets; behind them the values that are
    /// found with them.
    pub query: BoundQuery,
    /// The tables whose rows it changes or locks, in the order of the FROM.
    pub targets: Vec<Target>,
    /// What it sets, in the order of the text.
    pub set: Vec<Assigned>,
}

/// A table whose rows are changed or locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Which.
    pub table: TableName,
    /// What the statement calls it, in lower case.
    pub called: String,
    /// Its columns, in order, hidden ones too.
    pub columns: Vec<ColumnId>,
}

/// A column that is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assigned {
    /// Whose column, by its place among the targets.
    pub target: usize,
    /// Which of the table's columns, hidden ones counted.
    pub column: usize,
    /// To what.
    pub value: NewValue,
    /// What that is before the column holds it.
    pub ty: MysqlType,
}

/// What a column is set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NewValue {
    /// A value that is found with the row: its place among those.
    Found(usize),
    /// An expression over the row's columns as the assignments before have left them.
    Computed(Scalar),
}

/// What a statement says of the rows that it changes or locks.
pub struct RowsOf<'q> {
    /// Their tables.
    pub from: &'q [TableWithJoins],
    /// Which rows; all without.
    pub condition: Option<&'q Expr>,
    /// In which order.
    pub order_by: &'q [OrderByExpr],
    /// How many.
    pub limit: Option<LimitClause>,
}

impl<'q> RowsOf<'q> {
    /// Those of an UPDATE.
    pub fn of_update(update: &'q Update) -> RowsOf<'q> {
        RowsOf {
            from: std::slice::from_ref(&update.table),
            condition: update.selection.as_ref(),
            order_by: &update.order_by,
            limit: limit_of(update.limit.as_ref()),
        }
    }

    /// Those of a DELETE. One that joins tables behind USING names those whose rows go before it.
    pub fn of_delete(delete: &'q Delete) -> RowsOf<'q> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        RowsOf {
            from: delete.using.as_ref().unwrap_or(from),
            condition: delete.selection.as_ref(),
            order_by: &delete.order_by,
            limit: limit_of(delete.limit.as_ref()),
        }
    }

    /// The tables that the statement names, with what it sets.
    ///
    /// # Errors
    ///
    /// 1046 for a name without a database where none is chosen.
    pub fn tables(&self, set: &[Assignment], database: &str) -> SqlResult<Vec<TableName>> {
        let RowsOf { from, condition, order_by, limit: _ } = self;
        let values = set.iter().map(|assignment| &assignment.value as &dyn Part);
        let clauses = from.iter().map(|from| from as &dyn Part);
        let clauses = clauses.chain(condition.map(|condition| condition as &dyn Part));
        let clauses = clauses.chain(order_by.iter().map(|by| by as &dyn Part));
        let parts: Vec<&dyn Part> = clauses.chain(values).collect();
        tables_of(&parts, database)
    }
}

fn limit_of(limit: Option<&Expr>) -> Option<LimitClause> {
    let limit = limit.cloned()?;
    Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by: Vec::new() })
}

/// What an UPDATE sets.
#[derive(Clone, Copy)]
pub struct Set<'q> {
    /// In the order of the text.
    pub assignments: &'q [Assignment],
    /// What DEFAULT is for a column.
    pub default: &'q dyn Fn(&Column) -> SqlResult<Value>,
}

/// Which tables of a FROM are those whose rows are changed or locked.
#[derive(Clone, Copy)]
pub enum Targets<'q> {
    /// All that are stored.
    Stored,
    /// Those that go by one of these names.
    Named(&'q [ObjectName]),
    /// Those whose columns are set.
    Set(Set<'q>),
}

impl<'q> Targets<'q> {
    /// What is set.
    fn set(self) -> Set<'q> {
        match self {
            Targets::Set(set) => set,
            Targets::Stored | Targets::Named(_) => {
                Set { assignments: &[], default: &|_| Ok(Value::Null) }
            }
        }
    }
}

/// Binds a statement that changes or locks rows, over tables that are known.
///
/// # Errors
///
/// MySQL's where it is wrong.
pub fn bind_change(
    rows: &RowsOf,
    targets: Targets,
    context: &QueryContext,
    tables: &ResolvedTables,
) -> SqlResult<BoundChange> {
    let columns = Cell::new(0);
    let mut binder = Binder { hidden: true, ..Binder::new(context, tables, &columns) };
    let relation = binder.rows(rows.from, rows.condition)?;
    let single = binder.scope.tables().len() == 1;
    let assigned = binder.assigned(targets.set())?;
    let meant = binder.targets(targets, single, &assigned);
    let mut items = Vec::new();
    for table in &meant {
        items.extend(table.columns.iter().map(Item::of_column));
    }
    let (mut set, mut found) = (Vec::with_capacity(assigned.len()), Vec::new());
    for (at, one) in assigned.iter().enumerate() {
        let is_its = |table: &&ScopeTable| table.columns.iter().any(|own| own.id == one.column.id);
        let target =
            meant.iter().position(is_its).ok_or_else(|| unknown("a column of no table"))?;
        let computed = match &one.scalar.node {
            Node::Literal(_) => true,
            _ => single && !one.scalar.has_query(),
        };
        let value = match computed {
            true => NewValue::Computed(one.scalar.clone()),
            false => {
                let earlier = if single { assigned.get(..at).unwrap_or_default() } else { &[] };
                found.push(over_found(&one.scalar, earlier)?);
                NewValue::Found(found.len() - 1)
            }
        };
        set.push(Assigned { target, column: one.position, value, ty: one.scalar.ty });
    }
    items.extend(found.into_iter().map(Item::unnamed));
    let by = binder.sorted_by(rows.order_by)?;
    let targets = meant.into_iter().map(target).collect::<SqlResult<_>>()?;
    let query = binder.query_of(Rows { relation, items, by }, rows.limit.as_ref())?;
    Ok(BoundChange { query, targets, set })
}

fn target(table: &ScopeTable) -> SqlResult<Target> {
    let name = table.stored.clone().ok_or_else(|| unknown("rows of a query are changed"))?;
    let columns = table.columns.iter().map(|column| column.id).collect();
    Ok(Target { table: name, called: table.name.clone(), columns })
}

/// An assignment over the columns of the FROM.
struct Setting {
    column: ScopeColumn,
    position: usize,
    scalar: Scalar,
}

impl Binder<'_> {
    fn query_of(&self, rows: Rows, limit: Option<&LimitClause>) -> SqlResult<BoundQuery> {
        let (relation, output) = self.shown(rows, false)?;
        Ok(BoundQuery { relation: limited(limit, relation)?, output })
    }

    fn sorted_by(&self, order_by: &[OrderByExpr]) -> SqlResult<Vec<Order>> {
        let by = |by: &OrderByExpr| {
            // No place in a select list is meant.
            ordered_by_name::<Scalar>(by, &[])?;
            let plain = self.plain(&by.expr)?;
            let scalar = self.scalars(Clause::OrderBy, &plain).bind(&plain.expr)?;
            let by_this = OrderedBy::Computed(self.values(scalar, true)?);
            Ok(Order { by: by_this, descending: by.options.asc == Some(false) })
        };
        order_by.iter().map(by).collect()
    }

    /// The tables of the FROM whose rows are changed or locked.
    fn targets(&self, which: Targets, single: bool, assigned: &[Setting]) -> Vec<&ScopeTable> {
        let stored = |table: &&ScopeTable| table.stored.as_ref().is_some_and(|n| self.is_stored(n));
        let stored: Vec<&ScopeTable> = self.scope.tables().iter().filter(stored).collect();
        let meant = |table: &&ScopeTable| match which {
            Targets::Stored => true,
            Targets::Named(names) => {
                let stored = table.stored.as_ref();
                stored.is_some_and(|of| names.iter().any(|name| goes_by(of, &table.name, name)))
            }
            Targets::Set(_) if single => true,
            Targets::Set(_) => {
                let its = |one: &Setting| table.columns.iter().any(|own| own.id == one.column.id);
                assigned.iter().any(its)
            }
        };
        stored.into_iter().filter(meant).collect()
    }

    /// Whether a table has rows that can be changed: what the cluster says of itself has no number.
    fn is_stored(&self, name: &TableName) -> bool {
        let table = self.tables.get(name).and_then(|resolved| resolved.table.as_ref());
        table.is_some_and(|table| table.id != 0)
    }

    /// What is set, but generated columns to DEFAULT, which they have anyhow.
    fn assigned(&self, set: Set) -> SqlResult<Vec<Setting>> {
        let mut assigned = Vec::with_capacity(set.assignments.len());
        for Assignment { target, value } in set.assignments {
            let (table, column) = self.set_column(target)?;
            let known = self.tables.get(table).and_then(|resolved| resolved.table.as_ref());
            let known = known.ok_or_else(|| no_table(&table.database, &table.table))?;
            let position = column.origin.as_ref().map(|origin| origin.position);
            let described = position.and_then(|at| Some((at, known.columns.get(at)?)));
            let (position, described) =
                described.ok_or_else(|| unknown("a column without a place in its table"))?;
            let is_default = is_default(value);
            if described.generated().is_some() {
                match is_default {
                    true => continue,
                    false => return Err(value_for_generated(&described.name, &known.name)),
                }
            }
            let scalar = match is_default {
                true => literals::of((set.default)(described)?),
                false => self.new_value(value, described.ty)?,
            };
            assigned.push(Setting { column: column.clone(), position, scalar });
        }
        Ok(assigned)
    }

    /// The column that an assignment sets, and its table.
    fn set_column(&self, target: &AssignmentTarget) -> SqlResult<(&TableName, &ScopeColumn)> {
        let AssignmentTarget::ColumnName(name) = target else {
            return Err(unsupported("assignment of several columns at once"));
        };
        let column = self.scope.column(&parts(name), Clause::FieldList)?;
        let its = |table: &&ScopeTable| table.columns.iter().any(|own| own.id == column.id);
        let table = self.scope.tables().iter().find(its);
        let table = table.ok_or_else(|| unknown("a column of no table"))?;
        match &table.stored {
            Some(stored) if self.is_stored(stored) => Ok((stored, column)),
            _ => Err(not_updatable(&table.name, "UPDATE")),
        }
    }

    /// What a column of a type is set to: a hexadecimal or bit literal is a number for a column of numbers, and so is a column
    /// of ENUM or SET.
    pub(super) fn new_value(&self, expr: &Expr, ty: ColumnType) -> SqlResult<Scalar> {
        if let Some(scalar) = written_value(expr, ty) {
            return Ok(scalar);
        }
        let plain = self.plain(expr)?;
        let scalar = self.scalars(Clause::FieldList, &plain).bind(&plain.expr)?;
        let scalar = self.values(scalar, true)?;
        let labelled = scalar.ty.column.is_some_and(|column| column.labels().is_some());
        match &scalar.node {
            Node::Column(_) if labelled && ty.is_number() => {
                arguments::call(AS_NUMBER, arguments::taken_by(AS_NUMBER, vec![scalar])?)
            }
            _ => Ok(scalar),
        }
    }
}

/// What a column of a type is set to by a literal; `None` for what has to be bound.
pub fn written_value(expr: &Expr, ty: ColumnType) -> Option<Scalar> {
    let plain = || literal(expr).filter(|_| !matches!(expr, Expr::TypedString(_)));
    number_of_bytes(expr, ty).or_else(plain).map(literals::of)
}

impl Target {
    /// Whether the statement means it by a name.
    pub fn goes_by(&self, name: &ObjectName) -> bool {
        goes_by(&self.table, &self.called, name)
    }
}

fn goes_by(table: &TableName, called: &str, name: &ObjectName) -> bool {
    let path = parts(name);
    let database = path.len().checked_sub(2).and_then(|at| path.get(at));
    path.last().is_some_and(|name| name == called)
        && database.is_none_or(|database| table.database.eq_ignore_ascii_case(database))
}

/// A value that is found with the rows as they were: in the place of columns that were set before stands what they were
/// set to. What a column would make another value of is refused, never guessed.
fn over_found(scalar: &Scalar, earlier: &[Setting]) -> SqlResult<Scalar> {
    let read = scalar.columns();
    if !earlier.iter().any(|one| read.contains(&one.column.id)) {
        return Ok(scalar.clone());
    }
    let mut new: HashMap<ColumnId, Scalar> = HashMap::new();
    let mut unknown: Vec<(ColumnId, &str)> = Vec::new();
    let of = |read: &[ColumnId], unknown: &[(ColumnId, &str)]| {
        unknown.iter().find(|(id, _)| read.contains(id)).map(|(_, name)| refused(name))
    };
    for one in earlier {
        let (id, name) = (one.column.id, one.column.name.as_str());
        unknown.retain(|(other, _)| *other != id);
        if of(&one.scalar.columns(), &unknown).is_some() {
            unknown.push((id, name));
            continue;
        }
        let value = one.scalar.clone().with_columns(&new);
        match (one.column.ty.column, value.ty.column) {
            // A text that was assigned to a JSON column is a document there.
            (Some(ColumnType::Json), _) => {
                new.insert(id, arguments::call("cast_json", vec![value])?);
            }
            (Some(to), from) if stays(from, to) => _ = new.insert(id, value),
            _ => unknown.push((id, name)),
        }
    }
    match of(&read, &unknown) {
        Some(error) => Err(error),
        None => Ok(scalar.clone().with_columns(&new)),
    }
}

/// Whether a column holds a value as it is, or not at all.
fn stays(from: Option<ColumnType>, to: ColumnType) -> bool {
    let Some(from) = from else { return true };
    match (from, to) {
        (from, to) if from.labels().is_some() || to.labels().is_some() => false,
        (ColumnType::Int { .. }, ColumnType::Int { .. }) => true,
        (ColumnType::Decimal { scale, .. }, ColumnType::Decimal { scale: to, .. }) => scale <= to,
        (ColumnType::Int { .. }, ColumnType::Decimal { .. } | ColumnType::Double) => true,
        (from, to) if from.is_text() && to.is_text() => true,
        (from, to) => MysqlType::of_column(from) == MysqlType::of_column(to),
    }
}

fn refused(column: &str) -> SqlError {
    unsupported(format!(
        "column '{column}', assigned earlier in the UPDATE, in a later assignment with a subquery (write the new \
         value out)"
    ))
}
