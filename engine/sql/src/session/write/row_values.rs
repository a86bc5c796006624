//! The values of a row of VALUES or SET: literals, expressions, subqueries, and columns of the row that
//! were set before or have a default.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use binder::planning_schema;
use datafusion::common::{DFSchema, TableReference};
use functions::value::value_at;
use futures::TryStreamExt;
use placement::api::Catalog;
use sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Visitor};
use syntax::parser;
use syntax::tree::is_default;
use syntax::walk::finds;
use types::columns::ColumnsBuilder;
use types::{Table, Value};
use values::coerce::Place;
use values::error::{SqlError, SqlResult, too_many_rows, wrong_width};

use super::fitting::Fitting;
use crate::session::query::constants::value_of;
use crate::session::query::tables::Tables;
use crate::session::transaction::finding::Finding;
use crate::session::{Session, impossible};
use storage::reader::Reader;

impl Session {
    /// The values of one row, from left to right; DEFAULT is `None`. All subqueries of a statement
    /// read by one reader: whoever comes first makes it.
    pub(super) async fn given_row(
        &mut self,
        exprs: impl Iterator<Item = &Expr>,
        (table, positions): (&Arc<Table>, &[usize]),
        catalog: &Arc<Catalog>,
        (finding, reader): (&Finding, &mut Option<Reader>),
    ) -> SqlResult<Vec<Option<Value>>> {
        let mut row: Vec<Option<Value>> = Vec::with_capacity(positions.len());
        for expr in exprs {
            if is_default(expr) {
                row.push(None);
                continue;
            }
            let column = positions.get(row.len()).and_then(|at| table.columns.get(*at));
            let bytes = column.and_then(|c| syntax::constant::number_of_bytes(expr, c.ty));
            if let Some(value) = bytes.or_else(|| syntax::constant::literal(expr)) {
                row.push(Some(value));
                continue;
            }
            let value = if has_subquery(expr) {
                let reading = match reader.take() {
                    Some(reading) => reading,
                    None => self.beside(finding).await?,
                };
                *reader = Some(reading.clone());
                let tables = Tables {
                    engine: self.engine.clone(),
                    catalog: catalog.clone(),
                    reader: reading,
                    rights: self.identity.known_rights(),
                };
                self.scalar(expr.clone(), &tables).await?
            } else if names_column(expr) {
                let expr = match column {
                    Some(column) => super::column_values::number_of_column(expr.clone(), column.ty),
                    None => expr.clone(),
                };
                self.over_earlier(expr, table, positions, &row)?
            } else {
                value_of(&*self.compiled(expr.clone(), &DFSchema::empty())?)?
            };
            row.push(Some(value));
        }
        Ok(row)
    }

    /// The value of an expression with subqueries and without columns of its own.
    async fn scalar(&self, expr: Expr, tables: &Tables) -> SqlResult<Value> {
        let (columns, mut batches) =
            self.batches_from_rows(select_of(expr)?, tables, self.diagnostics.listening()).await?;
        one_column(columns.len())?;
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
        expr: Expr,
        table: &Arc<Table>,
        positions: &[usize],
        given: &[Option<Value>],
    ) -> SqlResult<Value> {
        let zone = self.context().zone()?;
        let mut row = Vec::with_capacity(table.columns.len());
        for (at, column) in table.columns.iter().enumerate() {
            let place = Place { column, row: 1, zone };
            let place_of = positions.iter().position(|position| *position == at);
            let value = place_of.and_then(|at| given.get(at)).cloned().flatten();
            row.push(match value {
                Some(value) => Fitting::Strict.column(value, place)?,
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
        let columns = planning_schema(table);
        let fields =
            columns.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
        let batch = RecordBatch::try_new(schema.clone(), builder.finish()?.columns().to_vec())?;
        let own = TableReference::bare(table.name.to_lowercase());
        let frame = DFSchema::try_from_qualified_schema(own, &schema)?;
        let compiled = self.compiled(expr, &frame)?;
        value_at(&compiled.evaluate(&batch)?.into_array(1)?, 0)
    }

    /// The one row of a query, if it has one; error 1242 or 1172 if it has more.
    pub(in crate::session) async fn one_row(
        &mut self,
        query: Query,
        parameters: &[Value],
        several: fn() -> SqlError,
    ) -> SqlResult<(usize, Option<Vec<Value>>)> {
        let reply = self.select(query, parameters).await?;
        let execution::reply::Reply::Rows { columns, mut batches, .. } = reply else {
            return Err(impossible("a SELECT answered no rows"));
        };
        let mut found = None;
        while let Some(batch) = batches.try_next().await? {
            for at in 0..batch.num_rows() {
                if found.is_some() {
                    return Err(several());
                }
                let row: SqlResult<Vec<Value>> =
                    batch.columns().iter().map(|column| value_at(column, at)).collect();
                found = Some(row?);
            }
        }
        Ok((columns.len(), found))
    }
}

/// What a column without a value and without a default has until it gets one.
fn implicit(place: Place<'_>) -> SqlResult<Value> {
    Ok(super::fitting::implicit(place).unwrap_or(Value::Null))
}

/// Error 1241 unless a subquery in the place of a value has one column.
pub(in crate::session) fn one_column(width: usize) -> SqlResult<()> {
    match width {
        1 => Ok(()),
        _ => Err(wrong_width(1)),
    }
}

/// `SELECT expr`; of an expression that is one subquery, that one.
pub(in crate::session) fn select_of(expr: Expr) -> SqlResult<Query> {
    let expr = match expr {
        Expr::Subquery(query) => return Ok(*query),
        Expr::Nested(inner) if matches!(*inner, Expr::Subquery(_)) => return select_of(*inner),
        expr => expr,
    };
    let sqlparser::ast::Statement::Query(mut query) = parser::parse_sql("SELECT 1")? else {
        return Err(impossible("SELECT 1 is no query"));
    };
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = vec![SelectItem::UnnamedExpr(expr)];
    }
    Ok(*query)
}

/// Whether an expression has a query within.
pub(in crate::session) fn has_subquery(expr: &Expr) -> bool {
    struct Found;
    impl Visitor for Found {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    finds(expr, &mut Found)
}

/// Whether an expression names a column.
fn names_column(expr: &Expr) -> bool {
    struct Found;
    impl Visitor for Found {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    finds(expr, &mut Found)
}
