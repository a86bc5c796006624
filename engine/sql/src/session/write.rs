//! INSERT, UPDATE and DELETE: rows are found and computed first, then written into the
//! transaction, statement by statement all or nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::{DFSchema, TableReference};
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::{
    AssignmentTarget, Delete, Expr, FromTable, Ident, Insert, Query, SelectItem, SetExpr,
    TableObject, TableWithJoins, Update, VisitMut, VisitorMut,
};
use types::columns::ColumnsBuilder;
use types::{Column, Default, Table, Value};

use super::point::{find, lookup, single};
use super::tables::{Tables, stored};
use super::{ATTEMPTS, Open, Session, impossible, pause};
use crate::coerce::{self, Place, value_at};
use crate::error::{SqlResult, no_column, unsupported};
use crate::planner::{self, planning_schema, table_name};
use crate::reader::Reader;
use crate::result::{Done, Reply, SqlError};
use crate::session::settings::evaluate;
use crate::temporal::Zone;
use crate::{parser, rows};

/// A statement that writes.
#[derive(Clone)]
pub enum Write {
    /// INSERT.
    Insert(Insert),
    /// UPDATE.
    Update(Update),
    /// DELETE.
    Delete(Delete),
}

/// Rows in their columns' types.
pub(super) struct Typed {
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Which of them still need a number.
    missing: Vec<usize>,
    /// Highest number given by hand.
    highest: u64,
}

/// Changes of one statement, computed and not yet written.
enum Changes {
    Insert { rows: Vec<Vec<Value>>, first_id: u64 },
    Update { pairs: Vec<(Vec<Value>, Vec<Value>)> },
    Delete { rows: Vec<Vec<Value>> },
}

impl Session {
    /// Runs a statement that writes, within the open transaction or as one of its own.
    pub(super) async fn write(
        &mut self,
        mut write: Write,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        if self.snapshot.is_some() {
            return Err(SqlError::new(
                1792,
                b"25006",
                "Cannot execute statement in a READ ONLY transaction: SET isobar_snapshot = '' first",
            ));
        }
        match &mut write {
            Write::Insert(insert) => self.inline(insert, parameters).await?,
            Write::Update(update) => self.inline(update, parameters).await?,
            Write::Delete(delete) => self.inline(delete, parameters).await?,
        }
        if let Some(open) = self.enclosing().await? {
            return self.write_within(&write, &open, true).await;
        }
        for attempt in 1.. {
            let open = self.begin().await?;
            let written = self.write_within(&write, &open, false).await;
            self.open = None;
            let reply = written?;
            let Some(transaction) = open.shared.lock().await.take() else { break };
            match transaction.commit().await {
                Ok(_) => return Ok(reply),
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => pause(attempt).await,
                Err(error) => {
                    let catalog = self.engine.storage.catalog().await?;
                    return Err(rows::error(error, &catalog.tables));
                }
            }
        }
        Err(impossible("a transaction ended on its own"))
    }

    async fn write_within(
        &mut self,
        write: &Write,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let reader = Reader::Transaction(open.shared.clone(), open.ts);
        let (table, changes) = match write {
            Write::Insert(insert) => self.insert_rows(insert, &catalog, &reader).await?,
            Write::Update(update) => self.update_pairs(update, &catalog, &reader).await?,
            Write::Delete(delete) => self.delete_rows(delete, &catalog, &reader).await?,
        };
        self.apply(&table, changes, open, explicit).await
    }

    /// Writes computed changes; a failure takes back what the statement wrote.
    async fn apply(
        &mut self,
        table: &Arc<Table>,
        changes: Changes,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        transaction.set_savepoint();
        // Within an explicit transaction a duplicate is told at once; alone, at commit.
        let taken = match &changes {
            Changes::Insert { rows, .. } => {
                let mut keys = Vec::new();
                for row in rows {
                    keys.extend(rows::unique_keys(table, row)?);
                }
                keys
            }
            Changes::Update { pairs } => {
                let mut keys = Vec::new();
                for (old, new) in pairs {
                    keys.extend(rows::newly_taken(table, old, new)?);
                }
                keys
            }
            Changes::Delete { .. } => Vec::new(),
        };
        if explicit && !taken.is_empty() {
            let present = transaction.get(taken).await?;
            let leaving: Vec<Vec<u8>> = match &changes {
                Changes::Update { pairs } => {
                    let mut keys = Vec::new();
                    for (old, _) in pairs {
                        keys.extend(rows::unique_keys(table, old)?);
                    }
                    keys
                }
                _ => Vec::new(),
            };
            if let Some((key, _)) = present.iter().find(|(key, _)| !leaving.contains(key)) {
                return Err(rows::duplicate(table, key));
            }
        }
        let written = (|| match &changes {
            Changes::Insert { rows, .. } => {
                rows.iter().try_for_each(|row| rows::insert(transaction.as_mut(), table, row))
            }
            Changes::Delete { rows } => {
                rows.iter().try_for_each(|row| rows::delete(transaction.as_mut(), table, row))
            }
            Changes::Update { pairs } => pairs
                .iter()
                .filter(|(old, new)| old != new)
                .try_for_each(|(old, new)| rows::update(transaction.as_mut(), table, old, new)),
        })();
        if let Err(error) = written {
            transaction.rollback_to_savepoint();
            return Err(rows::error(error, std::slice::from_ref(table)));
        }
        drop(guard);
        Ok(Reply::Done(self.summary(&changes)))
    }

    fn summary(&mut self, changes: &Changes) -> Done {
        match changes {
            Changes::Insert { rows, first_id } => {
                if *first_id > 0 {
                    self.last_insert_id = *first_id;
                }
                let count = rows.len();
                let info = match count {
                    0 | 1 => String::new(),
                    _ => format!("Records: {count}  Duplicates: 0  Warnings: 0"),
                };
                Done { affected_rows: count as u64, last_insert_id: *first_id, warnings: 0, info }
            }
            Changes::Update { pairs } => {
                let found = pairs.len();
                let changed = pairs.iter().filter(|(old, new)| old != new).count();
                let info = format!("Rows matched: {found}  Changed: {changed}  Warnings: 0");
                let affected = if self.info.found_rows { found } else { changed };
                Done { affected_rows: affected as u64, last_insert_id: 0, warnings: 0, info }
            }
            Changes::Delete { rows } => {
                Done { affected_rows: rows.len() as u64, ..Done::default() }
            }
        }
    }

    // ---- INSERT -----------------------------------------------------------------------------

    async fn insert_rows(
        &mut self,
        insert: &Insert,
        catalog: &Arc<Catalog>,
        reader: &Reader,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        refuse_insert(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(unsupported("INSERT into a table function"));
        };
        let name = table_name(name, &self.database)?;
        let table = stored(catalog, &name.database, &name.table)?;
        let mut positions = Vec::new();
        let mut given: Vec<Vec<Option<Value>>> = Vec::new();
        if insert.assignments.is_empty() {
            for column in &insert.columns {
                let written = planner::parts(column).pop().unwrap_or_default();
                positions.push(position(&table, &written, &positions)?);
            }
            if insert.columns.is_empty() {
                positions = visible(&table);
            }
            let Some(source) = &insert.source else {
                return Err(unsupported("INSERT without rows"));
            };
            given = self.source_rows(source, &positions, catalog, reader).await?;
        } else {
            let mut row = Vec::new();
            for assignment in &insert.assignments {
                let written = assigned(&assignment.target)?;
                positions.push(position(&table, &written, &positions)?);
                row.push(self.insert_value(&assignment.value)?);
            }
            given.push(row);
        }
        let (rows, first_id) = self.complete_rows(&table, &positions, given, 1).await?;
        Ok((table, Changes::Insert { rows, first_id }))
    }

    /// Values as the source gives them; DEFAULT is `None`.
    async fn source_rows(
        &mut self,
        source: &Query,
        positions: &[usize],
        catalog: &Arc<Catalog>,
        reader: &Reader,
    ) -> SqlResult<Vec<Vec<Option<Value>>>> {
        let mut given = Vec::new();
        let count = |row: usize, width: usize| {
            if width == positions.len() {
                return Ok(());
            }
            let text = format!("Column count doesn't match value count at row {row}");
            Err(SqlError::new(1136, b"21S01", text))
        };
        if let SetExpr::Values(values) = &*source.body {
            for (at, row) in values.rows.iter().enumerate() {
                // INSERT INTO t VALUES () takes every default.
                if row.content.is_empty() {
                    given.push(vec![None; positions.len()]);
                    continue;
                }
                count(at + 1, row.content.len())?;
                let row: SqlResult<Vec<_>> =
                    row.content.iter().map(|e| self.insert_value(e)).collect();
                given.push(row?);
            }
            return Ok(given);
        }
        let tables = Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: reader.clone(),
        };
        let (columns, mut batches) = self.batches_from_rows(source.clone(), &tables).await?;
        count(1, columns.len())?;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                let row: SqlResult<Vec<_>> =
                    batch.columns().iter().map(|column| value_at(column, at).map(Some)).collect();
                given.push(row?);
            }
        }
        Ok(given)
    }

    fn insert_value(&self, expr: &Expr) -> SqlResult<Option<Value>> {
        if is_default(expr) {
            return Ok(None);
        }
        evaluate(expr.clone(), &self.context(), &self.engine.state).map(Some)
    }

    /// Whole rows: values in their columns' types, defaults, numbers. Also the first number given.
    pub(super) async fn complete_rows(
        &self,
        table: &Arc<Table>,
        positions: &[usize],
        given: Vec<Vec<Option<Value>>>,
        first_row: usize,
    ) -> SqlResult<(Vec<Vec<Value>>, u64)> {
        let Typed { mut rows, missing, highest } =
            self.typed_rows(table, positions, given, first_row)?;
        let Some(position) = table.columns.iter().position(|column| column.auto_increment) else {
            return Ok((rows, 0));
        };
        if highest > 0 {
            self.engine.storage.raise_auto_increment(table.id, highest).await?;
        }
        if missing.is_empty() {
            return Ok((rows, 0));
        }
        let first = self.engine.storage.auto_increment(table.id, missing.len() as u64).await?;
        let zone = self.context().zone()?;
        let Some(column) = table.columns.get(position) else { return Ok((rows, 0)) };
        for (number, at) in (first..).zip(missing) {
            let place = Place { column, row: first_row + at, zone };
            let value = coerce::to_column(Value::UInt(number), place)?;
            if let Some(slot) = rows.get_mut(at).and_then(|row| row.get_mut(position)) {
                *slot = value;
            }
        }
        Ok((rows, if column.hidden { 0 } else { first }))
    }

    /// Values in their columns' types; rows without a number have NULL for it.
    pub(super) fn typed_rows(
        &self,
        table: &Arc<Table>,
        positions: &[usize],
        given: Vec<Vec<Option<Value>>>,
        first_row: usize,
    ) -> SqlResult<Typed> {
        let zone = self.context().zone()?;
        let mut typed =
            Typed { rows: Vec::with_capacity(given.len()), missing: Vec::new(), highest: 0 };
        for (at, values) in given.into_iter().enumerate() {
            let mut row: Vec<Option<Value>> = vec![None; table.columns.len()];
            for (position, value) in positions.iter().zip(values) {
                if let Some(slot) = row.get_mut(*position) {
                    *slot = value;
                }
            }
            let mut complete = Vec::with_capacity(row.len());
            for (column, value) in table.columns.iter().zip(row) {
                let place = Place { column, row: first_row + at, zone };
                if !column.auto_increment {
                    complete.push(match value {
                        Some(value) => coerce::to_column(value, place)?,
                        None => self.default_value(column, zone)?,
                    });
                    continue;
                }
                let number = value.filter(|value| !value.is_null());
                let number = number.map(|value| coerce::to_column(value, place)).transpose()?;
                match number {
                    Some(Value::Int(0) | Value::UInt(0)) | None => typed.missing.push(at),
                    Some(Value::Int(n)) => {
                        typed.highest = typed.highest.max(u64::try_from(n).unwrap_or(0));
                    }
                    Some(Value::UInt(n)) => typed.highest = typed.highest.max(n),
                    Some(_) => {}
                }
                complete.push(number.unwrap_or(Value::Null));
            }
            typed.rows.push(complete);
        }
        Ok(typed)
    }

    fn default_value(&self, column: &Column, zone: Zone) -> SqlResult<Value> {
        match &column.default {
            Some(Default::Constant(value)) => Ok(value.clone()),
            Some(Default::CurrentTimestamp) => self.now_for(column, zone),
            None => Err(SqlError::new(
                1364,
                b"HY000",
                format!("Field '{}' doesn't have a default value", column.name),
            )),
        }
    }

    fn now_for(&self, column: &Column, zone: Zone) -> SqlResult<Value> {
        // CURRENT_TIMESTAMP cuts the fraction that the column has no room for.
        let digits = match column.ty {
            types::ColumnType::DateTime(digits) | types::ColumnType::Timestamp(digits) => digits,
            _ => 0,
        };
        let unit = 10i64.pow(6 - u32::from(digits.min(6)));
        let us = self.now_us.div_euclid(unit) * unit;
        coerce::to_column(Value::Timestamp(us), Place { column, row: 1, zone })
    }

    // ---- UPDATE and DELETE ------------------------------------------------------------------

    async fn update_pairs(
        &mut self,
        update: &Update,
        catalog: &Arc<Catalog>,
        reader: &Reader,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        if update.from.is_some() || update.returning.is_some() || update.or.is_some() {
            return Err(unsupported("UPDATE of this form"));
        }
        let target = self.target(std::slice::from_ref(&update.table), catalog, "UPDATE")?;
        let table = target.table.clone();
        let mut set: Vec<(usize, Expr)> = Vec::new();
        for assignment in &update.assignments {
            let written = assigned(&assignment.target)?;
            let Some((at, column)) = table.column_named(&written) else {
                return Err(no_column(&written, "field list"));
            };
            let value = if is_default(&assignment.value) {
                let zone = self.context().zone()?;
                crate::constant::expression(&self.default_value(column, zone)?)
            } else {
                with_earlier(assignment.value.clone(), &table, &set)
            };
            set.push((at, value));
        }
        let found = match target.point(
            update.selection.as_ref(),
            &update.order_by,
            update.limit.as_ref(),
        ) {
            Some(lookup) => {
                let rows = find(&table, reader, lookup).await?;
                let olds = rows.into_iter().map(|(_, row)| row).collect();
                self.compute(&target, olds, &set)?
            }
            None => {
                let query = target.query(
                    &update.table,
                    update.selection.clone(),
                    &update.order_by,
                    update.limit.clone(),
                    &set,
                )?;
                self.computed_by_plan(query, catalog, reader, table.columns.len()).await?
            }
        };
        let zone = self.context().zone()?;
        let mut pairs = Vec::with_capacity(found.len());
        for (row, (old, computed)) in found.into_iter().enumerate() {
            let mut new = old.clone();
            for ((at, _), value) in set.iter().zip(computed) {
                let Some(column) = table.columns.get(*at) else { continue };
                let value = coerce::to_column(value, Place { column, row: row + 1, zone })?;
                if let Some(slot) = new.get_mut(*at) {
                    *slot = value;
                }
            }
            if new != old {
                for (at, column) in table.columns.iter().enumerate() {
                    if column.on_update_now && !set.iter().any(|(set, _)| *set == at) {
                        new[at] = self.now_for(column, zone)?;
                    }
                }
            }
            pairs.push((old, new));
        }
        Ok((table, Changes::Update { pairs }))
    }

    async fn delete_rows(
        &mut self,
        delete: &Delete,
        catalog: &Arc<Catalog>,
        reader: &Reader,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        if !delete.tables.is_empty() || delete.using.is_some() || delete.returning.is_some() {
            return Err(unsupported("DELETE from several tables"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let target = self.target(from, catalog, "DELETE")?;
        let table = target.table.clone();
        let rows = match target.point(
            delete.selection.as_ref(),
            &delete.order_by,
            delete.limit.as_ref(),
        ) {
            Some(lookup) => {
                find(&table, reader, lookup).await?.into_iter().map(|(_, row)| row).collect()
            }
            None => {
                let Some(first) = from.first() else {
                    return Err(unsupported("DELETE without a table"));
                };
                let query = target.query(
                    first,
                    delete.selection.clone(),
                    &delete.order_by,
                    delete.limit.clone(),
                    &[],
                )?;
                let found =
                    self.computed_by_plan(query, catalog, reader, table.columns.len()).await?;
                found.into_iter().map(|(row, _)| row).collect()
            }
        };
        Ok((table, Changes::Delete { rows }))
    }

    fn target(&self, from: &[TableWithJoins], catalog: &Catalog, verb: &str) -> SqlResult<Target> {
        let Some((name, alias)) = single(from) else {
            return Err(unsupported(format!("{verb} of several tables")));
        };
        let name = table_name(name, &self.database)?;
        Ok(Target { table: stored(catalog, &name.database, &name.table)?, alias })
    }

    /// New values of rows that are at hand, without a plan.
    fn compute(
        &self,
        target: &Target,
        rows: Vec<Vec<Value>>,
        set: &[(usize, Expr)],
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let table = &target.table;
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(table, &all)?;
        for row in &rows {
            builder.push(row)?;
        }
        let arrays = builder.finish()?.columns().to_vec();
        let schema = planning_schema(table);
        let batch = RecordBatch::try_new(schema.clone(), arrays)
            .map_err(|error| crate::error::unknown(error.to_string()))?;
        let qualifier = TableReference::bare(target.own_name());
        let schema = DFSchema::try_from_qualified_schema(qualifier, &schema)?;
        let mut computed: Vec<Vec<Value>> = vec![Vec::with_capacity(set.len()); rows.len()];
        for (_, expr) in set {
            if let Some(value) = crate::constant::literal(expr) {
                computed.iter_mut().for_each(|values| values.push(value.clone()));
                continue;
            }
            if has_subquery(expr) {
                return Err(unsupported("a subquery in SET"));
            }
            let compiled =
                planner::compile(expr.clone(), &schema, &self.context(), &self.engine.state)?;
            let array = compiled.evaluate(&batch)?.into_array(rows.len())?;
            for (at, values) in computed.iter_mut().enumerate() {
                values.push(value_at(&array, at)?);
            }
        }
        Ok(rows.into_iter().zip(computed).collect())
    }

    /// Rows found by a plan, and the values computed beside them.
    async fn computed_by_plan(
        &self,
        query: Query,
        catalog: &Arc<Catalog>,
        reader: &Reader,
        width: usize,
    ) -> SqlResult<Vec<(Vec<Value>, Vec<Value>)>> {
        let tables = Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: reader.clone(),
        };
        let (_, mut batches) = self.batches_from_rows(query, &tables).await?;
        let mut found = Vec::new();
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                let values: SqlResult<Vec<Value>> =
                    batch.columns().iter().map(|column| value_at(column, at)).collect();
                let mut old = values?;
                let computed = old.split_off(width.min(old.len()));
                found.push((old, computed));
            }
        }
        Ok(found)
    }
}

/// The table that a statement changes, and the name it goes by there.
struct Target {
    table: Arc<Table>,
    alias: Option<String>,
}

impl Target {
    fn own_name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| self.table.name.to_lowercase())
    }

    /// The condition as a look-up by key, if it is no more.
    fn point(
        &self,
        selection: Option<&Expr>,
        order_by: &[sqlparser::ast::OrderByExpr],
        limit: Option<&Expr>,
    ) -> Option<super::point::Lookup> {
        if limit.is_some() || !order_by.is_empty() {
            return None;
        }
        lookup(&self.table, self.alias.as_deref(), selection?)
    }

    /// SELECT of every column and of the new values, over the rows to change.
    fn query(
        &self,
        from: &TableWithJoins,
        selection: Option<Expr>,
        order_by: &[sqlparser::ast::OrderByExpr],
        limit: Option<Expr>,
        set: &[(usize, Expr)],
    ) -> SqlResult<Query> {
        let sqlparser::ast::Statement::Query(mut query) = parser::parse_sql("SELECT 1")? else {
            return Err(impossible("SELECT 1 is no query"));
        };
        if let SetExpr::Select(select) = &mut *query.body {
            select.from = vec![from.clone()];
            select.selection = selection;
            let own = self.own_name();
            let column = |column: &Column| {
                let path = vec![Ident::with_quote('`', &own), Ident::with_quote('`', &column.name)];
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path))
            };
            let computed = |(at, (_, expr)): (usize, &(usize, Expr))| SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::new(format!("__set_{at}")),
            };
            select.projection = self.table.columns.iter().map(column).collect();
            select.projection.extend(set.iter().enumerate().map(computed));
        }
        if !order_by.is_empty() {
            query.order_by = Some(sqlparser::ast::OrderBy {
                kind: sqlparser::ast::OrderByKind::Expressions(order_by.to_vec()),
                interpolate: None,
            });
        }
        if limit.is_some() {
            query.limit_clause = Some(sqlparser::ast::LimitClause::LimitOffset {
                limit,
                offset: None,
                limit_by: Vec::new(),
            });
        }
        Ok(*query)
    }
}

fn refuse_insert(insert: &Insert) -> SqlResult<()> {
    let refused = [
        (insert.ignore, "INSERT IGNORE"),
        (insert.replace_into, "REPLACE"),
        (insert.on.is_some(), "ON DUPLICATE KEY UPDATE"),
        (insert.partitioned.is_some(), "INSERT … PARTITION"),
        (insert.returning.is_some(), "RETURNING"),
        (insert.insert_alias.is_some(), "INSERT … AS alias"),
    ];
    match refused.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

fn assigned(target: &AssignmentTarget) -> SqlResult<String> {
    match target {
        AssignmentTarget::ColumnName(name) => Ok(planner::parts(name).pop().unwrap_or_default()),
        AssignmentTarget::Tuple(_) => Err(unsupported("assignment of several columns at once")),
    }
}

pub(super) fn visible(table: &Table) -> Vec<usize> {
    let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    shown.map(|(at, _)| at).collect()
}

/// Position of a column that an INSERT names, once.
pub(super) fn position(table: &Table, written: &str, taken: &[usize]) -> SqlResult<usize> {
    match table.column_named(written) {
        Some((at, _)) if taken.contains(&at) => {
            let text = format!("Column '{written}' specified twice");
            Err(SqlError::new(1110, b"42000", text))
        }
        Some((at, column)) if !column.hidden => Ok(at),
        _ => Err(no_column(written, "field list")),
    }
}

/// MySQL evaluates assignments from left to right: a column assigned earlier has its new value.
fn with_earlier(mut expr: Expr, table: &Table, set: &[(usize, Expr)]) -> Expr {
    struct Earlier<'a>(&'a Table, &'a [(usize, Expr)]);
    impl VisitorMut for Earlier<'_> {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(ident) => ident.value.clone(),
                Expr::CompoundIdentifier(idents) => {
                    idents.last().map(|ident| ident.value.clone()).unwrap_or_default()
                }
                _ => return ControlFlow::Continue(()),
            };
            let at = self.0.column_named(&name).map(|(at, _)| at);
            if let Some((_, earlier)) = self.1.iter().rev().find(|(set, _)| Some(*set) == at) {
                *expr = Expr::Nested(Box::new(earlier.clone()));
            }
            ControlFlow::Continue(())
        }
    }
    if !set.is_empty() {
        _ = expr.visit(&mut Earlier(table, set));
    }
    expr
}

fn has_subquery(expr: &Expr) -> bool {
    struct Found(bool);
    impl sqlparser::ast::Visitor for Found {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 = true;
            ControlFlow::Break(())
        }
    }
    let mut found = Found(false);
    _ = sqlparser::ast::Visit::visit(expr, &mut found);
    found.0
}
