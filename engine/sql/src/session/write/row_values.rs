//! The values of a row of VALUES or SET: literals, expressions, subqueries, and columns of the row that
//! were set before or have a default.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use binder::{BoundInsert, BoundQuery, GivenValue, ResolvedTables, Scalar, planning_schema};
use datafusion::common::{DFSchema, TableReference};
use functions::value::value_at;
use futures::TryStreamExt;
use types::columns::ColumnsBuilder;
use types::{Table, Value};
use values::coerce::Place;
use values::error::{SqlResult, too_many_rows};

use super::column_values::time_of_type;
use super::fitting::Fitting;
use crate::session::Session;
use crate::session::query::constants::value_of;

impl Session {
    /// The values of one row, by its number from 1, from left to right; DEFAULT is `None`.
    pub(super) async fn given_row(
        &self,
        row: Vec<GivenValue>,
        into: (&Arc<Table>, &BoundInsert),
        tables: &ResolvedTables,
        (number, ignore): (usize, bool),
    ) -> SqlResult<Vec<Option<Value>>> {
        let zone = self.context().zone()?;
        let mut given: Vec<Option<Value>> = Vec::with_capacity(row.len());
        for (value, at) in row.into_iter().zip(&into.1.positions) {
            let (value, from) = match value {
                GivenValue::Default => (None, None),
                GivenValue::Literal(value) => (Some(value), None),
                GivenValue::Found(query) => {
                    let from = query.output.first().and_then(|column| column.ty.column);
                    (Some(self.value_found(&query, tables).await?), from)
                }
                GivenValue::Computed(scalar) if scalar.columns().is_empty() => {
                    let compiled = self.compiled_scalar(&scalar, &[], &DFSchema::empty())?;
                    (Some(value_of(&*compiled)?), scalar.ty.column)
                }
                GivenValue::Computed(scalar) => {
                    let value = self.over_earlier(&scalar, into, &given, (number, ignore))?;
                    (Some(value), scalar.ty.column)
                }
            };
            let to = into.0.columns.get(*at).map(|column| column.ty);
            given.push(value.map(|value| match to {
                Some(to) => time_of_type(value, from, to, zone),
                None => value,
            }));
        }
        Ok(given)
    }

    /// The one value that a query finds; NULL if it finds none.
    async fn value_found(&self, query: &BoundQuery, tables: &ResolvedTables) -> SqlResult<Value> {
        let (_, mut batches) = self.batches_of(query, tables, self.diagnostics.listening()).await?;
        let mut found = None;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                if found.is_some() {
                    return Err(too_many_rows());
                }
                found = batch.columns().first().map(|column| value_at(column, at)).transpose()?;
            }
        }
        Ok(found.unwrap_or(Value::Null))
    }

    /// The value of an expression over the row as it is so far: given columns have their values,
    /// others their defaults.
    fn over_earlier(
        &self,
        scalar: &Scalar,
        (table, bound): (&Arc<Table>, &BoundInsert),
        given: &[Option<Value>],
        (number, ignore): (usize, bool),
    ) -> SqlResult<Value> {
        let zone = self.context().zone()?;
        let mut row = Vec::with_capacity(table.columns.len());
        for (at, column) in table.columns.iter().enumerate() {
            let place = Place { column, row: number, zone };
            let place_of = bound.positions.iter().position(|position| *position == at);
            let value = place_of.and_then(|at| given.get(at)).cloned().flatten();
            row.push(match value {
                // Its number comes later.
                Some(Value::Null) if column.auto_increment => implicit(place)?,
                // What does not fit is reported when the row is completed.
                Some(value) => Fitting::ignoring(ignore).column(value, place)?,
                None if column.auto_increment || column.generated().is_some() => implicit(place)?,
                None => match self.default_value(column, zone) {
                    Ok(value) => value,
                    Err(_) => implicit(place)?,
                },
            });
        }
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(table, &all)?;
        builder.push(&row)?;
        let planned = planning_schema(table);
        let fields =
            planned.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let batch = RecordBatch::try_new(schema.clone(), builder.finish()?.columns().to_vec())?;
        let own = TableReference::bare(table.name.to_lowercase());
        let frame = DFSchema::try_from_qualified_schema(own, &schema)?;
        let compiled = self.compiled_scalar(scalar, &bound.columns, &frame)?;
        value_at(&compiled.evaluate(&batch)?.into_array(1)?, 0)
    }
}

/// What a column without a value and without a default has until it gets one.
fn implicit(place: Place<'_>) -> SqlResult<Value> {
    Ok(super::fitting::implicit(place).unwrap_or(Value::Null))
}
