//! Rows by their whole key, without a plan: SELECT, and what UPDATE and DELETE look up first.
//!
//! Only conditions that are exactly "key columns equal literals" come this way, one key or a list
//! of them; all else is planned.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Ident, Query, SelectItem, TableFactor, TableWithJoins,
    Value as SqlValue, ValueWithSpan,
};
use syntax::constant::literal;
use syntax::names::table_name;
use types::columns::ColumnsBuilder;
use types::{ColumnType, Index, Table, Timestamp, Value, key, row};
use values::column::ResultColumn;
use values::error::SqlResult;

use super::last_query::AnsweredBy;
use super::plain::plain_select;
use super::tables;
use crate::session::Session;
use crate::session::transaction::finding::Finding;
use execution::reply::{Reply, WarningCount};
use storage::reader::Reader;

/// A table named alone in a FROM, and the name it goes by.
pub(in crate::session) fn single(
    from: &[TableWithJoins],
) -> Option<(&sqlparser::ast::ObjectName, Option<String>)> {
    let [only] = from else { return None };
    match &only.relation {
        TableFactor::Table { name, alias, args: None, version: None, partitions, .. }
            if only.joins.is_empty()
                && partitions.is_empty()
                && syntax::names::parts(name) != ["dual"] =>
        {
            let alias = alias.as_ref().map(|alias| alias.name.value.to_lowercase());
            Some((name, alias))
        }
        _ => None,
    }
}

/// What a condition asks for, if it is nothing but a whole key: record keys, or entries of a
/// unique index.
pub(in crate::session) enum Lookup {
    /// Records.
    Records(Vec<Vec<u8>>),
    /// Entries.
    Entries(Box<Index>, Vec<Vec<u8>>),
}

/// Reads a condition as a look-up by key at a timestamp.
pub(in crate::session) fn lookup(
    table: &Table,
    alias: Option<&str>,
    condition: &Expr,
    ts: Timestamp,
) -> Option<Lookup> {
    Reading { table, alias, parameters: &[] }.lookup(condition, ts)
}

/// What a condition is read over.
#[derive(Clone, Copy)]
struct Reading<'a> {
    table: &'a Table,
    alias: Option<&'a str>,
    /// What stands for the placeholders of a prepared statement.
    parameters: &'a [Value],
}

impl Reading<'_> {
    fn lookup(self, condition: &Expr, ts: Timestamp) -> Option<Lookup> {
        let table = self.table;
        let fixed = match self.listed(condition) {
            Some(listed) => listed,
            None => {
                let mut fixed = Vec::new();
                self.collect(condition, &mut fixed)?;
                Fixed::Columns(fixed)
            }
        };
        if let Some(points) = fixed.points(&table.primary_key) {
            return Some(Lookup::Records(keys(&points, |point| key::record(table.id, point))));
        }
        // An entry of a prefix may be another value's: who looks it up has to look at the row again.
        let whole = |index: &&Index| index.unique && index.serves(ts) && !index.has_prefix();
        for index in table.indexes.iter().filter(whole) {
            if let Some(points) = fixed.points(&index.columns) {
                let keys = keys(&points, |point| key::index_prefix(table.id, index.id, point));
                return Some(Lookup::Entries(Box::new(index.clone()), keys));
            }
        }
        None
    }

    /// `(column, …) IN ((literal, …), …)`, and `(column, …) = (literal, …)`.
    fn listed(self, condition: &Expr) -> Option<Fixed> {
        let table = self.table;
        let (columns, rows) = match condition {
            Expr::Nested(inner) => return self.listed(inner),
            Expr::InList { expr, list, negated: false } => (&**expr, &list[..]),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                (&**left, std::slice::from_ref(&**right))
            }
            _ => return None,
        };
        let Expr::Tuple(columns) = columns else { return None };
        let mut ids = Vec::with_capacity(columns.len());
        let mut types = Vec::with_capacity(columns.len());
        for column in columns {
            let (at, ty) = column_of(table, self.alias, column)?;
            let id = table.columns.get(at)?.id;
            if ids.contains(&id) {
                return None;
            }
            ids.push(id);
            types.push(ty);
        }
        let row = |row: &Expr| {
            let Expr::Tuple(values) = row else { return None };
            let exact = |(value, ty): (&Expr, &ColumnType)| exact(self.value(value)?, *ty);
            (values.len() == types.len()).then_some(())?;
            values.iter().zip(&types).map(exact).collect::<Option<Vec<_>>>()
        };
        Some(Fixed::Rows(ids, rows.iter().map(row).collect::<Option<_>>()?))
    }

    /// `column = literal` and `column IN (literals)` joined by AND; anything else is `None`.
    fn collect(self, condition: &Expr, fixed: &mut Vec<(u32, Vec<Value>)>) -> Option<()> {
        let Reading { table, alias, .. } = self;
        let mut push = |column: &Expr, values: Vec<Value>| {
            let (at, _) = column_of(table, alias, column)?;
            let column = table.columns.get(at)?;
            if fixed.iter().any(|(id, _)| *id == column.id) {
                return None;
            }
            fixed.push((column.id, values));
            Some(())
        };
        match condition {
            Expr::Nested(inner) => self.collect(inner, fixed),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.collect(left, fixed)?;
                self.collect(right, fixed)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let (column, other) = match self.value(right) {
                    Some(value) => (left, value),
                    None => (right, self.value(left)?),
                };
                let (_, ty) = column_of(table, alias, column)?;
                push(column, vec![exact(other, ty)?])
            }
            Expr::InList { expr, list, negated: false } => {
                let (_, ty) = column_of(table, alias, expr)?;
                let values =
                    list.iter().map(|item| exact(self.value(item)?, ty)).collect::<Option<_>>()?;
                push(expr, values)
            }
            _ => None,
        }
    }

    /// The value of a literal, or of what stands for a placeholder.
    fn value(self, expr: &Expr) -> Option<Value> {
        match expr {
            Expr::Value(ValueWithSpan { value: SqlValue::Placeholder(mark), .. }) => {
                let place: usize = mark.trim_start_matches('?').parse().ok()?;
                self.parameters.get(place.checked_sub(1)?).cloned()
            }
            other => literal(other),
        }
    }
}

/// Keys in ascending order, each once: a list may name a row twice.
fn keys(points: &[Vec<Value>], key: impl Fn(&[Value]) -> Vec<u8>) -> Vec<Vec<u8>> {
    let unique: BTreeSet<Vec<u8>> = points.iter().map(|point| key(point)).collect();
    unique.into_iter().collect()
}

/// What a condition fixes: values of columns one by one, or rows of several columns together.
enum Fixed {
    /// Each column with the values that it may have.
    Columns(Vec<(u32, Vec<Value>)>),
    /// `(a, b) IN ((1, 2), …)`: the columns, and the rows that they may be.
    Rows(Vec<u32>, Vec<Vec<Value>>),
}

impl Fixed {
    /// All values of a key of these columns; `None` unless exactly they are fixed.
    fn points(&self, columns: &[u32]) -> Option<Vec<Vec<Value>>> {
        match self {
            Fixed::Columns(fixed) => {
                if fixed.len() != columns.len() {
                    return None;
                }
                let mut points = vec![Vec::new()];
                for id in columns {
                    let (_, values) = fixed.iter().find(|(fixed, _)| fixed == id)?;
                    let longer = |point: &Vec<Value>, value: &Value| {
                        let mut longer = point.clone();
                        longer.push(value.clone());
                        longer
                    };
                    let each = |p| values.iter().map(move |v| longer(p, v));
                    points = points.iter().flat_map(each).collect();
                }
                Some(points)
            }
            Fixed::Rows(fixed, rows) => {
                if fixed.len() != columns.len() {
                    return None;
                }
                let place = |id: &u32| fixed.iter().position(|fixed| fixed == id);
                let places = columns.iter().map(place).collect::<Option<Vec<_>>>()?;
                let ordered = |row: &Vec<Value>| {
                    places.iter().map(|at| row.get(*at).cloned()).collect::<Option<Vec<_>>>()
                };
                rows.iter().map(ordered).collect()
            }
        }
    }
}

/// Whether a name is no column's: a variable, or a word for who asks.
fn is_the_sessions(name: &Ident) -> bool {
    let bare = name.quote_style.is_none();
    bare && (name.value.starts_with('@') || name.value.eq_ignore_ascii_case("current_user"))
}

/// A column of the table that an expression names.
pub(in crate::session) fn column_of(
    table: &Table,
    alias: Option<&str>,
    expr: &Expr,
) -> Option<(usize, ColumnType)> {
    let (qualifier, name) = match expr {
        Expr::Identifier(ident) if !is_the_sessions(ident) => (None, ident),
        Expr::CompoundIdentifier(idents) => match &idents[..] {
            [table, name] => (Some(table.value.to_lowercase()), name),
            [name] => (None, name),
            _ => return None,
        },
        _ => return None,
    };
    let is_own = |qualifier: String| match alias {
        Some(alias) => qualifier == alias,
        None => qualifier == table.name.to_lowercase(),
    };
    if qualifier.is_some_and(|qualifier| !is_own(qualifier)) {
        return None;
    }
    let named = table.column_named(&name.value).filter(|(_, column)| !column.hidden);
    named.map(|(at, column)| (at, column.ty))
}

/// A literal that compares with the column as itself; conversions are left to the planner.
fn exact(value: Value, ty: ColumnType) -> Option<Value> {
    let (low, high) = ty.int_range().unwrap_or((0, 0));
    let within = |n: i128| (low..=high).contains(&n);
    match (ty, value) {
        (ColumnType::Int { unsigned: false, .. }, Value::Int(n)) if within(n.into()) => {
            Some(Value::Int(n))
        }
        (ColumnType::Int { unsigned: true, .. }, Value::Int(n)) if within(n.into()) => {
            u64::try_from(n).ok().map(Value::UInt)
        }
        (ColumnType::Int { unsigned: true, .. }, Value::UInt(n)) if within(n.into()) => {
            Some(Value::UInt(n))
        }
        (ty, Value::String(text)) if ty.is_text() => Some(Value::String(text)),
        (
            ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_),
            Value::Bytes(bytes),
        ) => Some(Value::Bytes(bytes)),
        (
            ColumnType::Binary(_) | ColumnType::Varbinary(_) | ColumnType::Blob(_),
            Value::String(text),
        ) => Some(Value::Bytes(text.into_bytes())),
        (ColumnType::Date, Value::String(text)) => {
            let us = values::temporal::parse_datetime(&text)?;
            let days = us.div_euclid(values::temporal::DAY_US);
            (us.rem_euclid(values::temporal::DAY_US) == 0).then_some(())?;
            i32::try_from(days).ok().map(Value::Date)
        }
        (ColumnType::DateTime(_), Value::String(text)) => {
            values::temporal::parse_datetime(&text).map(Value::DateTime)
        }
        (ColumnType::Date, Value::Date(days)) => Some(Value::Date(days)),
        (ColumnType::DateTime(_), Value::DateTime(us)) => Some(Value::DateTime(us)),
        _ => None,
    }
}

/// The rows that a look-up finds, each with its record key.
pub(in crate::session) async fn find(
    table: &Table,
    reader: &Reader,
    lookup: Lookup,
) -> SqlResult<Vec<(Vec<u8>, Vec<Value>)>> {
    let keys = match lookup {
        Lookup::Records(keys) => keys,
        Lookup::Entries(index, keys) => reader
            .get(keys)
            .await?
            .iter()
            .map(|(key, value)| key::record_of_index_entry(table, &index, key, value))
            .collect::<types::Result<Vec<_>>>()?,
    };
    let mut rows = Vec::with_capacity(keys.len());
    for (key, stored) in reader.get(keys).await? {
        let row = row::decode(table, &stored)?;
        rows.push((key, row));
    }
    Ok(rows)
}

impl Session {
    /// Answers a SELECT that is a look-up by key of plain columns; `None` if it is more. Rows are
    /// locked if a way to find them is given that does.
    pub(in crate::session) async fn point_select(
        &mut self,
        query: &Query,
        parameters: &[Value],
        locking: Option<&Finding>,
    ) -> SqlResult<Option<Reply>> {
        let Some(select) = plain_select(query) else { return Ok(None) };
        let simple = select.distinct.is_none()
            && select.having.is_none()
            && select.named_window.is_empty()
            && select.into.is_none()
            && select.optimizer_hints.is_empty()
            && !select.select_modifiers.as_ref().is_some_and(|with| with.sql_calc_found_rows)
            && matches!(&select.group_by, GroupByExpr::Expressions(e, m) if e.is_empty() && m.is_empty());
        let (Some(condition), Some((name, alias)), true) =
            (&select.selection, single(&select.from), simple)
        else {
            return Ok(None);
        };
        let Ok(name) = table_name(name, self.variables.database()) else { return Ok(None) };
        if !self.variables.read_engines().0 || information_schema::is_virtual(&name.database) {
            return Ok(None);
        }
        // By the catalog that is known here, for whom a timestamp need not be asked for.
        let known = self.engine.storage.catalog().await?;
        let Some(table) = known.table_named(&name.database, &name.table) else { return Ok(None) };
        let reading = Reading { table, alias: alias.as_deref(), parameters };
        let Some(looked_up) = reading.lookup(condition, Timestamp::MAX) else { return Ok(None) };
        let (finding, catalog) = match locking {
            Some(finding) => (finding.clone(), self.engine.storage.catalog().await?),
            None => {
                let (reader, catalog) = self.reader().await?;
                (Finding::Read(reader), catalog)
            }
        };
        let known = Arc::clone(table);
        let table = tables::readable(&catalog, &name.database, &name.table, finding.ts())?;
        self.check_columns_then(&catalog, &table)?;
        let Some(wanted) = wanted(&table, alias.as_deref(), &select.projection) else {
            return Ok(None);
        };
        let lookup = match looked_up {
            Lookup::Records(keys) if Arc::ptr_eq(&known, &table) => Lookup::Records(keys),
            _ => {
                let reading = Reading { table: &table, alias: alias.as_deref(), parameters };
                let Some(lookup) = reading.lookup(condition, finding.ts()) else { return Ok(None) };
                lookup
            }
        };
        let rows = self.look_up(&table, &finding, lookup).await?;
        let positions: Vec<usize> = wanted.iter().map(|(at, _)| *at).collect();
        let mut builder = ColumnsBuilder::new(&table, &positions)?;
        for (_, row) in &rows {
            builder.push(row)?;
        }
        let columns = wanted
            .into_iter()
            .filter_map(|(at, name)| described(&table, alias.as_deref(), at, name))
            .collect();
        let batch = builder.finish()?;
        self.note_query(AnsweredBy::Key(table), finding.ts());
        let batches = Box::pin(futures::stream::iter([Ok(batch)]));
        Ok(Some(Reply::Rows { columns, batches, warnings: WarningCount::default() }))
    }
}

/// Positions and displayed names of a select list of plain columns; `None` if it is more.
fn wanted(
    table: &Arc<Table>,
    alias: Option<&str>,
    projection: &[SelectItem],
) -> Option<Vec<(usize, String)>> {
    let mut wanted = Vec::new();
    for item in projection {
        let (expr, shown) = match item {
            SelectItem::Wildcard(options) if options.opt_exclude.is_none() => {
                let visible = table.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
                wanted.extend(visible.map(|(at, column)| (at, column.name.clone())));
                continue;
            }
            SelectItem::UnnamedExpr(expr) => (expr, None),
            SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.value.clone())),
            _ => return None,
        };
        let written = match expr {
            Expr::Identifier(ident) => &ident.value,
            Expr::CompoundIdentifier(idents) => match idents.last() {
                Some(ident) => &ident.value,
                None => return None,
            },
            _ => return None,
        };
        match column_of(table, alias, expr) {
            Some((at, _)) => wanted.push((at, shown.unwrap_or_else(|| written.clone()))),
            None => return None,
        }
    }
    Some(wanted)
}

fn described(table: &Table, alias: Option<&str>, at: usize, name: String) -> Option<ResultColumn> {
    let column = table.columns.get(at)?;
    let leads = |index: &&Index| index.columns.first() == Some(&column.id);
    let (unique, multiple): (Vec<&Index>, Vec<&Index>) = table
        .indexes
        .iter()
        .filter(leads)
        .partition(|index| index.unique && index.columns.len() == 1);
    Some(ResultColumn {
        name,
        org_name: column.name.clone(),
        table: alias.map_or_else(|| table.name.clone(), str::to_owned),
        org_table: table.name.clone(),
        database: table.database.clone(),
        ty: Some(column.ty),
        decimals: None,
        nullable: column.nullable,
        primary_key: table.primary_key.contains(&column.id),
        unique_key: !unique.is_empty(),
        multiple_key: !multiple.is_empty(),
        auto_increment: column.auto_increment,
    })
}
