//! INSERT: whole rows out of what a statement gives, with defaults and numbers.

use std::sync::Arc;

use arrow::array::ArrayRef;
use binder::{BoundInsert, BoundQuery, GivenRows, ResolvedTables};
use functions::value::value_at;
use functions::warnings;
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::{Insert, TableObject};
use syntax::names::table_name;
use types::{Column, ColumnType, Default, Error, Table, Value};
use values::coerce::{self, Place};
use values::error::{SqlResult, no_default, no_number_left, unsupported, value_for_generated};
use values::temporal::Zone;

use super::changes::Changes;
use super::column_values::{number_of_label, time_of_type};
use super::fitting::Fitting;
use crate::session::Session;
use crate::session::query::tables::writable;
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

/// An INSERT, bound, and its table.
pub(super) struct Insertion {
    pub(super) table: Arc<Table>,
    pub(super) bound: BoundInsert,
    /// The tables that it reads.
    tables: ResolvedTables,
    /// Whether a value that does not fit is made to fit.
    ignore: bool,
}

/// What an INSERT gives.
pub(super) struct Source {
    /// A value per column of each row; DEFAULT is `None`.
    pub given: Vec<Vec<Option<Value>>>,
    /// What is read beside each row, one value an array; empty if nothing is.
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
        let mut insertion = self.bound_insert(insert, catalog, finding).await?;
        let Source { given, .. } = self.given(&mut insertion).await?;
        let Insertion { table, bound, .. } = insertion;
        let (rows, first_id) = self.complete_rows(&table, &bound.positions, given, 1).await?;
        Ok((table, Changes::Insert { rows, first_id }))
    }

    /// Binds an INSERT.
    pub(super) async fn bound_insert(
        &self,
        insert: &Insert,
        catalog: &Arc<Catalog>,
        finding: &Finding,
    ) -> SqlResult<Insertion> {
        refuse_insert(insert)?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(unsupported("INSERT into a table function"));
        };
        let database = self.variables.database();
        let name = table_name(name, database)?;
        let table = writable(catalog, &name.database, &name.table)?;
        let names = binder::tables_of_insert(insert, database)?;
        let tables = match names.is_empty() {
            true => ResolvedTables::new(),
            false => {
                let reader = self.beside(finding).await?;
                binder::resolve_tables(names, &self.tables(catalog, &reader)).await?
            }
        };
        let context = self.context();
        let binding = || binder::bind_insert(insert, (&name, &table), &context, &tables);
        let bound = match self.diagnostics.listening() {
            Some(expr_warnings) => warnings::listen(expr_warnings, binding)?,
            None => binding()?,
        };
        Ok(Insertion { table, bound, tables, ignore: insert.ignore })
    }

    /// The rows that an INSERT gives, once: they are taken out of it.
    pub(super) async fn given(&self, insertion: &mut Insertion) -> SqlResult<Source> {
        let rows = std::mem::replace(&mut insertion.bound.rows, GivenRows::Values(Vec::new()));
        let Insertion { table, bound, tables, ignore } = insertion;
        match rows {
            GivenRows::Values(rows) => {
                let into = (&*table, &*bound);
                let mut given = Vec::with_capacity(rows.len());
                for (at, row) in rows.into_iter().enumerate() {
                    let row = self.given_row(row, into, tables, (at + 1, *ignore)).await?;
                    given.push(row);
                }
                Ok(Source { given, beside: Vec::new() })
            }
            GivenRows::Query(query) => {
                self.given_by_query(&query, (table, &bound.positions), tables).await
            }
        }
    }

    /// Rows as a query gives them.
    async fn given_by_query(
        &self,
        query: &BoundQuery,
        (table, positions): (&Arc<Table>, &[usize]),
        tables: &ResolvedTables,
    ) -> SqlResult<Source> {
        let (columns, mut batches) =
            self.batches_of(query, tables, self.diagnostics.listening()).await?;
        let of = |at: &usize| table.columns.get(*at).map(|column| column.ty);
        let kinds: Vec<_> =
            columns.iter().map(|c| c.ty).zip(positions.iter().filter_map(of)).collect();
        let zone = self.context().zone()?;
        let mut source = Source { given: Vec::new(), beside: Vec::new() };
        while let Some(batch) = batches.try_next().await? {
            let (own, beside) = batch.columns().split_at(positions.len().min(batch.num_columns()));
            for at in 0..batch.num_rows() {
                let values = own.iter().zip(&kinds).map(|(array, (from, to))| {
                    let value = number_of_label(value_at(array, at)?, *from, *to);
                    Ok(Some(time_of_type(value, *from, *to, zone)))
                });
                source.given.push(values.collect::<SqlResult<Vec<_>>>()?);
                if !beside.is_empty() {
                    source.beside.push(beside.iter().map(|column| column.slice(at, 1)).collect());
                }
            }
        }
        Ok(source)
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
