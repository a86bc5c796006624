//! INSERT: whole rows out of what a statement gives, with defaults and numbers.

use std::sync::Arc;

use arrow::array::ArrayRef;
use functions::value::value_at;
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::{Expr, Ident, Insert, Query, SelectItem, SetExpr, TableObject};
use syntax::names::{self, table_name};
use types::{Column, ColumnType, Default, Error, Table, Value};
use values::coerce::{self, Place};
use values::error::{
    SqlResult, column_named_twice, no_column, no_default, no_number_left, unsupported,
    value_for_generated, wrong_value_count,
};
use values::temporal::Zone;

use super::changes::Changes;
use super::clauses::assigned;
use super::fitting::Fitting;
use crate::session::Session;
use crate::session::query::tables::{Tables, writable};
use crate::session::transaction::finding::Finding;

/// Rows in their columns' types.
pub(super) struct Typed {
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Which of them still need a number.
    pub missing: Vec<usize>,
    /// Highest number given by hand.
    pub highest: u64,
    /// Which of them break a check, and are to be left out.
    pub broken: Vec<usize>,
}

/// Rows with their numbers.
pub(super) struct Numbered {
    /// The rows.
    pub rows: Vec<Vec<Value>>,
    /// Which of them were given a number, ascending.
    pub missing: Vec<usize>,
    /// The first number given.
    pub first_id: u64,
    /// Which of them break a check, and are to be left out, ascending.
    pub broken: Vec<usize>,
}

/// What an INSERT gives.
pub(in crate::session) struct Source {
    /// A value per column of each row; DEFAULT is `None`.
    pub given: Vec<Vec<Option<Value>>>,
    /// What was asked for beside each row, one value an array; empty if nothing was.
    pub beside: Vec<Vec<ArrayRef>>,
}

impl Session {
    /// The rows that an INSERT adds.
    pub(super) async fn insert_rows(
        &mut self,
        insert: &Insert,
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<(Arc<Table>, Changes)> {
        let (table, positions) = self.insert_target(insert, catalog)?;
        let into = (&table, positions.as_slice());
        let Source { given, .. } =
            self.insert_source(insert, into, Vec::new(), catalog, finding).await?;
        let (rows, first_id) = self.complete_rows(&table, &positions, given, 1).await?;
        Ok((table, Changes::Insert { rows, first_id }))
    }

    /// The table that an INSERT adds to, and the positions of the columns that it gives.
    pub(super) fn insert_target(
        &self,
        insert: &Insert,
        catalog: &Catalog,
    ) -> SqlResult<(Arc<Table>, Vec<usize>)> {
        refuse_insert(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(unsupported("INSERT into a table function"));
        };
        let name = table_name(name, self.variables.database())?;
        let table = writable(catalog, &name.database, &name.table)?;
        let positions = targets(insert, &table)?;
        Ok((table, positions))
    }

    /// What an INSERT gives for its columns, and beside them.
    pub(super) async fn insert_source(
        &mut self,
        insert: &Insert,
        into: (&Arc<Table>, &[usize]),
        beside: Vec<Expr>,
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<Source> {
        if insert.assignments.is_empty() {
            let Some(source) = &insert.source else {
                return Err(unsupported("INSERT without rows"));
            };
            return self.source_rows(source, into, beside, catalog, finding).await;
        }
        let values = insert.assignments.iter().map(|one| &one.value);
        let given = vec![self.given_row(values, into, catalog, (finding, &mut None)).await?];
        Ok(Source { given, beside: Vec::new() })
    }

    /// Values as the source gives them; DEFAULT is `None`.
    async fn source_rows(
        &mut self,
        source: &Query,
        into: (&Arc<Table>, &[usize]),
        beside: Vec<Expr>,
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<Source> {
        let (mut given, positions) = (Vec::new(), into.1);
        let count = |row: usize, width: usize| {
            if width == positions.len() {
                return Ok(());
            }
            Err(wrong_value_count(row))
        };
        if let SetExpr::Values(values) = &*source.body {
            let mut reader = None;
            for (at, row) in values.rows.iter().enumerate() {
                // INSERT INTO t VALUES () takes every default.
                if row.content.is_empty() {
                    given.push(vec![None; positions.len()]);
                    continue;
                }
                count(at + 1, row.content.len())?;
                let by = (finding, &mut reader);
                given.push(self.given_row(row.content.iter(), into, catalog, by).await?);
            }
            return Ok(Source { given, beside: Vec::new() });
        }
        let tables = Tables {
            engine: self.engine.clone(),
            catalog: catalog.clone(),
            reader: self.beside(finding).await?,
            rights: self.identity.known_rights(),
        };
        let (mut query, extra) = (source.clone(), beside.len());
        if let (SetExpr::Select(select), false) = (&mut *query.body, beside.is_empty()) {
            let named = |(at, expr)| SelectItem::ExprWithAlias {
                expr,
                alias: Ident::new(format!("__beside_{at}")),
            };
            select.projection.extend(beside.into_iter().enumerate().map(named));
        }
        let (columns, mut batches) =
            self.batches_from_rows(query, &tables, self.diagnostics.listening()).await?;
        count(1, columns.len().saturating_sub(extra))?;
        let of = |at: &usize| into.0.columns.get(*at).map(|column| column.ty);
        let kinds: Vec<_> =
            columns.iter().map(|c| c.ty).zip(positions.iter().filter_map(of)).collect();
        let mut besides = Vec::new();
        while let Some(batch) = batches.try_next().await? {
            let (own, others) = batch.columns().split_at(positions.len().min(batch.num_columns()));
            for at in 0..batch.num_rows() {
                let values = own.iter().zip(&kinds).map(|(array, (from, to))| {
                    let value = value_at(array, at)?;
                    Ok(Some(super::column_values::number_of_label(value, *from, *to)))
                });
                given.push(values.collect::<SqlResult<Vec<_>>>()?);
                if extra > 0 {
                    besides.push(others.iter().map(|column| column.slice(at, 1)).collect());
                }
            }
        }
        Ok(Source { given, beside: besides })
    }

    /// Whole rows: values in their columns' types, defaults, numbers. Also the first number given.
    pub(super) async fn complete_rows(
        &self,
        table: &Arc<Table>,
        positions: &[usize],
        given: Vec<Vec<Option<Value>>>,
        first_row: usize,
    ) -> SqlResult<(Vec<Vec<Value>>, u64)> {
        let mut fitting = Fitting::Strict;
        let numbered =
            self.complete_numbered(table, positions, given, first_row, &mut fitting).await?;
        Ok((numbered.rows, numbered.first_id))
    }

    /// As [`Session::complete_rows`], and which rows were given a number.
    pub(super) async fn complete_numbered(
        &self,
        table: &Arc<Table>,
        positions: &[usize],
        given: Vec<Vec<Option<Value>>>,
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Numbered> {
        let Typed { rows, missing, broken, .. } =
            self.typed_rows(table, positions, given, first_row, fitting)?;
        let mut numbered = Numbered { rows, missing, first_id: 0, broken };
        if let Some(position) = table.columns.iter().position(|column| column.auto_increment) {
            self.number(table, position, &mut numbered, first_row).await?;
        }
        Ok(numbered)
    }

    /// Gives rows their numbers from the first to the last: one that was given by hand counts for
    /// the rows behind it.
    async fn number(
        &self,
        table: &Table,
        position: usize,
        numbered: &mut Numbered,
        first_row: usize,
    ) -> SqlResult<()> {
        let Some(column) = table.columns.get(position) else { return Ok(()) };
        let (storage, zone) = (&self.engine.storage, self.context().zone()?);
        // The very last number stands behind all others: none is left to be given after it.
        let number_of = |row: &Vec<Value>| whole(row.get(position)).min(u64::MAX - 1);
        let (mut highest, mut raised) = (0, 0);
        let mut missing = numbered.missing.iter().copied().peekable();
        let mut at = 0;
        while at < numbered.rows.len() {
            if missing.peek() != Some(&at) {
                highest = numbered.rows.get(at).map_or(0, number_of).max(highest);
                at += 1;
                continue;
            }
            let mut count = 0;
            while missing.next_if_eq(&(at + count)).is_some() {
                count += 1;
            }
            if highest > raised {
                storage.raise_auto_increment(table.id, highest).await?;
                raised = highest;
            }
            let first =
                storage.auto_increment(table.id, count as u64).await.map_err(
                    |error| match error {
                        Error::Invalid(_) => no_number_left(),
                        error => error.into(),
                    },
                )?;
            if numbered.first_id == 0 && !column.hidden {
                numbered.first_id = first;
            }
            for (number, row) in (first..).zip(numbered.rows.iter_mut().skip(at).take(count)) {
                let place = Place { column, row: first_row + at, zone };
                let value =
                    coerce::to_column(Value::UInt(number), place).map_err(|_| no_number_left())?;
                if let Some(slot) = row.get_mut(position) {
                    *slot = value;
                }
            }
            at += count;
        }
        if highest > raised {
            storage.raise_auto_increment(table.id, highest).await?;
        }
        Ok(())
    }

    /// Values in their columns' types; rows without a number have NULL for it.
    pub(super) fn typed_rows(
        &self,
        table: &Arc<Table>,
        positions: &[usize],
        given: Vec<Vec<Option<Value>>>,
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Typed> {
        let zone = self.context().zone()?;
        // mysqldump sets NO_AUTO_VALUE_ON_ZERO: 0 is a number like others then.
        let zero_is_given = self.variables.get("sql_mode")?.contains("NO_AUTO_VALUE_ON_ZERO");
        let mut typed = Typed {
            rows: Vec::with_capacity(given.len()),
            missing: Vec::new(),
            highest: 0,
            broken: Vec::new(),
        };
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
                if column.generated().is_some() {
                    if value.is_some() {
                        return Err(value_for_generated(&column.name, &table.name));
                    }
                    complete.push(Value::Null);
                    continue;
                }
                if !column.auto_increment {
                    complete.push(match value {
                        Some(value) => fitting.column(value, place)?,
                        None => match self.default_value(column, zone) {
                            Err(error) => fitting.missing(place, error)?,
                            value => value?,
                        },
                    });
                    continue;
                }
                let number = value.filter(|value| !value.is_null());
                let number = number.map(|value| fitting.column(value, place)).transpose()?;
                match number {
                    Some(Value::Int(0) | Value::UInt(0)) if !zero_is_given => {
                        typed.missing.push(at);
                    }
                    None => typed.missing.push(at),
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
        typed.broken = self.derive(table, &mut typed.rows, first_row, fitting)?;
        Ok(typed)
    }

    /// What a column gets when it is not named.
    pub(in crate::session) fn default_value(
        &self,
        column: &Column,
        zone: Zone,
    ) -> SqlResult<Value> {
        match &column.default {
            Some(Default::Constant(value)) => Ok(value.clone()),
            Some(Default::CurrentTimestamp) => self.now_for(column, zone),
            // Known when the rest of the row is.
            Some(Default::Generated { .. } | Default::Converted { .. }) => Ok(Value::Null),
            None => first_label(column).ok_or_else(|| no_default(&column.name)),
        }
    }

    /// CURRENT_TIMESTAMP for a column.
    pub(super) fn now_for(&self, column: &Column, zone: Zone) -> SqlResult<Value> {
        // CURRENT_TIMESTAMP cuts the fraction that the column has no room for.
        let digits = match column.ty {
            ColumnType::DateTime(digits) | ColumnType::Timestamp(digits) => digits,
            _ => 0,
        };
        let unit = 10i64.pow(6 - u32::from(digits.min(6)));
        let us = self.now_us.div_euclid(unit) * unit;
        coerce::to_column(Value::Timestamp(us), Place { column, row: 1, zone })
    }
}

/// An ENUM that must have a value has its first label.
fn first_label(column: &Column) -> Option<Value> {
    match column.ty {
        ColumnType::Enum(labels) => labels.label(1).map(|label| Value::String(label.to_owned())),
        _ => None,
    }
}

/// A number that is not negative; 0 for anything else.
pub(in crate::session) fn whole(value: Option<&Value>) -> u64 {
    match value {
        Some(Value::Int(n)) => u64::try_from(*n).unwrap_or(0),
        Some(Value::UInt(n)) => *n,
        _ => 0,
    }
}

fn refuse_insert(insert: &Insert) -> SqlResult<()> {
    let refused = [
        (insert.partitioned.is_some(), "INSERT … PARTITION"),
        (insert.returning.is_some(), "RETURNING"),
    ];
    match refused.iter().find(|(there, _)| *there) {
        Some((_, what)) => Err(unsupported(what)),
        None => Ok(()),
    }
}

/// Positions of the columns that an INSERT gives.
pub(in crate::session) fn targets(insert: &Insert, table: &Table) -> SqlResult<Vec<usize>> {
    let mut positions = Vec::new();
    for assignment in &insert.assignments {
        let written = assigned(&assignment.target)?;
        positions.push(position(table, &written, &positions)?);
    }
    for column in &insert.columns {
        let written = names::parts(column).pop().unwrap_or_default();
        positions.push(position(table, &written, &positions)?);
    }
    Ok(if insert.assignments.is_empty() && insert.columns.is_empty() {
        visible(table)
    } else {
        positions
    })
}

/// Positions of the columns that an INSERT without a list means.
pub(in crate::session) fn visible(table: &Table) -> Vec<usize> {
    let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.hidden);
    shown.map(|(at, _)| at).collect()
}

/// Position of a column that an INSERT names, once.
pub(in crate::session) fn position(
    table: &Table,
    written: &str,
    taken: &[usize],
) -> SqlResult<usize> {
    match table.column_named(written) {
        Some((at, _)) if taken.contains(&at) => Err(column_named_twice(written)),
        Some((at, column)) if !column.hidden => Ok(at),
        _ => Err(no_column(written, "field list")),
    }
}
