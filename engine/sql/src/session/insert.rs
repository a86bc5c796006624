//! INSERT: whole rows out of what a statement gives, with defaults and numbers.

use std::sync::Arc;

use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::{Expr, Insert, Query, SetExpr, TableObject};
use types::{Column, Default, Table, Value};

use super::Session;
use super::change::assigned;
use super::locking::Finding;
use super::tables::{Tables, writable};
use super::write::Changes;
use crate::coerce::{self, Place, value_at};
use crate::error::{SqlResult, no_column, unsupported};
use crate::planner::{self, table_name};
use crate::result::SqlError;
use crate::session::settings::evaluate;
use crate::temporal::Zone;

/// Rows in their columns' types.
pub(super) struct Typed {
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Which of them still need a number.
    pub missing: Vec<usize>,
    /// Highest number given by hand.
    pub highest: u64,
}

impl Session {
    /// The rows that an INSERT adds.
    pub(super) async fn insert_rows(
        &mut self,
        insert: &Insert,
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        refuse_insert(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(unsupported("INSERT into a table function"));
        };
        let name = table_name(name, &self.database)?;
        let table = writable(catalog, &name.database, &name.table)?;
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
            given = self.source_rows(source, &positions, catalog, finding).await?;
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
        finding: &Finding,
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
            reader: self.beside(finding).await?,
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

    /// What a column gets when it is not named.
    pub(super) fn default_value(&self, column: &Column, zone: Zone) -> SqlResult<Value> {
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

    /// CURRENT_TIMESTAMP for a column.
    pub(super) fn now_for(&self, column: &Column, zone: Zone) -> SqlResult<Value> {
        // CURRENT_TIMESTAMP cuts the fraction that the column has no room for.
        let digits = match column.ty {
            types::ColumnType::DateTime(digits) | types::ColumnType::Timestamp(digits) => digits,
            _ => 0,
        };
        let unit = 10i64.pow(6 - u32::from(digits.min(6)));
        let us = self.now_us.div_euclid(unit) * unit;
        coerce::to_column(Value::Timestamp(us), Place { column, row: 1, zone })
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

/// Whether an expression is the word DEFAULT.
pub(super) fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

/// Positions of the columns that an INSERT without a list means.
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
