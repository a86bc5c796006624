//! ON DUPLICATE KEY UPDATE: what the row that was met becomes, assignment by assignment from left
//! to right, each seeing what the ones before have made of it.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::{Field, SchemaRef};
use arrow::record_batch::RecordBatch;
use binder::{ColumnId, NewValueOfMet, Node, OnDuplicate, Scalar, planning_schema};
use datafusion::common::{DFSchema, TableReference};
use datafusion::physical_expr::PhysicalExpr;
use functions::value::value_at;
use types::columns::ColumnsBuilder;
use types::{ColumnType, Table, Value};
use values::coerce::Place;
use values::error::SqlResult;

use super::column_values::time_of_type;
use super::fitting::Fitting;
use crate::session::Session;

/// What a column is assigned.
enum New {
    /// Its default.
    Default,
    /// A literal.
    Literal(Value),
    /// What the new row has in a column.
    Given(usize),
    /// Computed from both rows and what is beside.
    Computed(Arc<dyn PhysicalExpr>),
}

/// The assignments of an ON DUPLICATE KEY UPDATE, ready.
pub(super) struct Assigning {
    table: Arc<Table>,
    /// Which column, to what, and of which type that is.
    set: Vec<(usize, New, Option<ColumnType>)>,
    /// Both rows, the one that was met first, and what is beside.
    schema: SchemaRef,
}

impl Assigning {
    /// Those of a statement. `columns` are those of a row that is met; `beside` shows the types of what a query gives
    /// beside its rows.
    pub(super) fn new(
        session: &Session,
        table: &Arc<Table>,
        (on, columns): (&OnDuplicate, &[ColumnId]),
        beside: &[ArrayRef],
    ) -> SqlResult<Self> {
        let frame = frame(table, beside)?;
        let ids: Vec<ColumnId> = columns.iter().chain(&on.new).chain(&on.beside).copied().collect();
        let mut set = Vec::with_capacity(on.set.len());
        for (at, value) in &on.set {
            let (new, ty) = match value {
                NewValueOfMet::Default => (New::Default, None),
                NewValueOfMet::Computed(scalar) => {
                    let new = match of_new_row(scalar, on) {
                        Some(new) => new,
                        None => New::Computed(session.compiled_scalar(scalar, &ids, &frame)?),
                    };
                    (new, scalar.ty.column)
                }
            };
            set.push((*at, new, ty));
        }
        Ok(Assigning { table: table.clone(), set, schema: frame.inner().clone() })
    }

    /// The row that `old` becomes when it is met by `new`.
    pub(super) fn assigned(
        &self,
        session: &Session,
        old: &[Value],
        new: &[Value],
        beside: &[ArrayRef],
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<Value>> {
        let zone = session.context().zone()?;
        let mut row = old.to_vec();
        for (at, value, from) in &self.set {
            let Some(column) = self.table.columns.get(*at) else { continue };
            let value = match value {
                New::Default => session.default_value(column, zone)?,
                New::Literal(value) => value.clone(),
                New::Given(from) => new.get(*from).cloned().unwrap_or(Value::Null),
                New::Computed(expr) => {
                    let batch = self.batch(&row, new, beside)?;
                    value_at(&expr.evaluate(&batch)?.into_array(1)?, 0)?
                }
            };
            let value = time_of_type(value, *from, column.ty, zone);
            let value = fitting.column(value, Place { column, row: 1, zone })?;
            if let Some(slot) = row.get_mut(*at) {
                *slot = value;
            }
        }
        if row != old {
            for (at, column) in self.table.columns.iter().enumerate() {
                let set = self.set.iter().any(|(set, ..)| *set == at);
                if let (true, false, Some(slot)) = (column.on_update_now, set, row.get_mut(at)) {
                    *slot = session.now_for(column, zone)?;
                }
            }
        }
        Ok(row)
    }

    fn batch(&self, old: &[Value], new: &[Value], beside: &[ArrayRef]) -> SqlResult<RecordBatch> {
        let all: Vec<usize> = (0..self.table.columns.len()).collect();
        let mut arrays = Vec::with_capacity(self.schema.fields().len());
        for row in [old, new] {
            let mut builder = ColumnsBuilder::new(&self.table, &all)?;
            builder.push(row)?;
            arrays.extend_from_slice(builder.finish()?.columns());
        }
        arrays.extend_from_slice(beside);
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?)
    }
}

/// What takes no computing: a literal, or a column of the new row.
fn of_new_row(scalar: &Scalar, on: &OnDuplicate) -> Option<New> {
    match &scalar.node {
        Node::Literal(value) => Some(New::Literal(value.clone())),
        Node::Column(id) => on.new.iter().position(|new| new == id).map(New::Given),
        _ => None,
    }
}

/// The columns of both rows, and of what is beside.
fn frame(table: &Table, beside: &[ArrayRef]) -> SqlResult<DFSchema> {
    let columns = planning_schema(table);
    let own = TableReference::bare(table.name.to_lowercase());
    // What was met may hold NULL where the new row may not, and the other way round.
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    let old = columns.fields().iter().map(|field| (Some(own.clone()), nullable(field)));
    let new = columns.fields().iter().enumerate();
    let new = new.map(|(at, field)| (None, nullable(field).with_name(format!("__values_{at}"))));
    let beside = beside.iter().enumerate().map(|(at, array)| {
        (None, Field::new(format!("__beside_{at}"), array.data_type().clone(), true))
    });
    let fields = old.chain(new).chain(beside).map(|(of, field)| (of, Arc::new(field)));
    Ok(DFSchema::new_with_metadata(fields.collect(), Default::default())?)
}
