//! The rows that an UPDATE makes of those that it found: what is set, from left to right, each value as its column holds it.
//!
//! Literals, and whole numbers added to a column, are set as they are written; everything else is bound and compiled before.
//! It writes nothing, and finds nothing.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use binder::{Assigned, ColumnId, NewValue, Node, Scalar, Target, planning_schema, written_value};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use functions::value::value_at;
use sqlparser::ast::{Assignment, AssignmentTarget, BinaryOperator, Expr, ObjectName};
use syntax::constant::literal;
use types::columns::ColumnsBuilder;
use types::{Column, ColumnType, Table, Value};
use values::coerce::Place;
use values::error::SqlResult;
use values::temporal::Zone;

use super::column_values::time_of_type;
use super::fitting::Fitting;
use crate::session::query::point::column_of;
use crate::session::{Session, impossible};

/// A row, and what is found with it.
pub(super) type Found = (Vec<Value>, Vec<Value>);
/// A row before and after.
pub(super) type Pair = (Vec<Value>, Vec<Value>);

/// Rows whose new values are computed together.
const TOGETHER: usize = 8_192;

/// Where a column's new value comes from.
enum Source {
    Literal(Value),
    /// From what is found with the row.
    Found(usize),
    /// From the row.
    Row(Arc<dyn PhysicalExpr>),
    /// What a column of whole numbers had, and so much more.
    Sum(usize, i64),
}

/// What an UPDATE sets in rows of one table.
pub(super) struct NewValues<'a> {
    session: &'a Session,
    table: &'a Table,
    zone: Zone,
    /// Which column, from where, and of which type the value is there.
    set: Vec<(usize, Source, Option<ColumnType>)>,
    /// Whether a value is computed from one that is set before.
    in_turn: bool,
}

impl<'a> NewValues<'a> {
    /// What is set in a target's rows.
    pub(super) fn new(
        session: &'a Session,
        table: &'a Table,
        target: &Target,
        set: impl Iterator<Item = &'a Assigned>,
    ) -> SqlResult<NewValues<'a>> {
        let zone = session.context().zone()?;
        let schema = DFSchema::try_from(planning_schema(table))?;
        let mut values = NewValues { session, table, zone, set: Vec::new(), in_turn: false };
        let mut before: Vec<ColumnId> = Vec::new();
        for Assigned { column, value, ty, .. } in set {
            let source = match value {
                NewValue::Found(at) => Source::Found(*at),
                NewValue::Computed(Scalar { node: Node::Literal(value), .. }) => {
                    Source::Literal(value.clone())
                }
                NewValue::Computed(scalar) => {
                    let read = scalar.columns();
                    values.in_turn |= before.iter().any(|set| read.contains(set));
                    Source::Row(session.compiled_scalar(scalar, &target.columns, &schema)?)
                }
            };
            before.extend(target.columns.get(*column));
            values.set.push((*column, source, ty.column));
        }
        Ok(values)
    }

    /// What is set in a table's rows that go by a name, if all of it is set as it is written.
    pub(super) fn written(
        session: &'a Session,
        table: &'a Table,
        called: Option<&str>,
        assignments: &[Assignment],
    ) -> SqlResult<Option<NewValues<'a>>> {
        let zone = session.context().zone()?;
        let mut set: Vec<(usize, Source, Option<ColumnType>)> =
            Vec::with_capacity(assignments.len());
        for Assignment { target, value } in assignments {
            let AssignmentTarget::ColumnName(name) = target else { return Ok(None) };
            let Some((position, column)) = set_column(table, called, name) else { return Ok(None) };
            let (source, ty) = match written_value(value, column.ty) {
                Some(Scalar { node: Node::Literal(value), ty }) => {
                    (Source::Literal(value), ty.column)
                }
                Some(_) => return Ok(None),
                None => match sum(table, called, value) {
                    // What was set before is what it would have to add to.
                    Some((of, more)) if !set.iter().any(|(before, ..)| *before == of) => {
                        (Source::Sum(of, more), None)
                    }
                    _ => return Ok(None),
                },
            };
            set.push((position, source, ty));
        }
        Ok(Some(NewValues { session, table, zone, set, in_turn: false }))
    }

    /// Whether every sum over these rows is a number of its column's sign within 64 bits. One that is not is MySQL's error, in
    /// words that take the expression.
    pub(super) fn can_add(&self, found: &[Found]) -> bool {
        let fits = |row: &[Value], source: &Source| match source {
            Source::Sum(of, more) => added(row.get(*of), *more).is_some(),
            _ => true,
        };
        found.iter().all(|(row, _)| self.set.iter().all(|(_, source, _)| fits(row, source)))
    }

    /// Rows before and after. What a generated column becomes is still to come.
    pub(super) fn of(&self, found: Vec<Found>, fitting: &mut Fitting) -> SqlResult<Vec<Pair>> {
        let mut pairs = Vec::with_capacity(found.len());
        let mut found = found.into_iter().peekable();
        while found.peek().is_some() {
            let some: Vec<Found> = found.by_ref().take(TOGETHER).collect();
            let computed = match self.in_turn {
                // Each row's values are computed one after the other.
                true => Vec::new(),
                false => self.computed(some.iter().map(|(row, _)| row))?,
            };
            for (at, (old, beside)) in some.into_iter().enumerate() {
                let new = self.new_row(&old, &beside, (&computed, at), pairs.len() + 1, fitting)?;
                pairs.push((old, new));
            }
        }
        Ok(pairs)
    }

    /// What is computed from rows as they were, by what is set.
    fn computed<'r>(
        &self,
        rows: impl ExactSizeIterator<Item = &'r Vec<Value>>,
    ) -> SqlResult<Vec<Option<ArrayRef>>> {
        let mut arrays = Vec::with_capacity(self.set.len());
        if !self.set.iter().any(|(_, source, _)| matches!(source, Source::Row(_))) {
            return Ok(arrays);
        }
        let count = rows.len();
        let batch = self.batch(rows)?;
        for (_, source, _) in &self.set {
            arrays.push(match source {
                Source::Row(expr) => Some(expr.evaluate(&batch)?.into_array(count)?),
                Source::Literal(_) | Source::Found(_) | Source::Sum(..) => None,
            });
        }
        Ok(arrays)
    }

    fn batch<'r>(&self, rows: impl Iterator<Item = &'r Vec<Value>>) -> SqlResult<RecordBatch> {
        let all: Vec<usize> = (0..self.table.columns.len()).collect();
        let mut builder = ColumnsBuilder::new(self.table, &all)?;
        for row in rows {
            builder.push(row)?;
        }
        Ok(RecordBatch::try_new(planning_schema(self.table), builder.finish()?.columns().to_vec())?)
    }

    fn new_row(
        &self,
        old: &[Value],
        beside: &[Value],
        (computed, at): (&[Option<ArrayRef>], usize),
        row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<Value>> {
        let (table, zone) = (self.table, self.zone);
        let mut new = old.to_vec();
        for (nth, (position, source, from)) in self.set.iter().enumerate() {
            let Some(column) = table.columns.get(*position) else { continue };
            let value = match source {
                Source::Literal(value) => value.clone(),
                Source::Sum(of, more) => {
                    let sum = added(old.get(*of), *more);
                    sum.ok_or_else(|| impossible("a sum beyond its type"))?
                }
                Source::Found(place) => beside.get(*place).cloned().unwrap_or(Value::Null),
                Source::Row(expr) => match computed.get(nth) {
                    Some(Some(array)) => value_at(array, at)?,
                    _ => {
                        let batch = self.batch(std::iter::once(&new))?;
                        value_at(&expr.evaluate(&batch)?.into_array(1)?, 0)?
                    }
                },
            };
            let value = time_of_type(value, *from, column.ty, zone);
            let value = fitting.column(value, Place { column, row, zone })?;
            if let Some(slot) = new.get_mut(*position) {
                *slot = value;
            }
        }
        if new == old {
            return Ok(new);
        }
        for (position, column) in table.columns.iter().enumerate() {
            let is_set = self.set.iter().any(|(set, ..)| *set == position);
            if let (true, false, Some(slot)) = (column.on_update_now, is_set, new.get_mut(position))
            {
                *slot = self.session.now_for(column, zone)?;
            }
        }
        Ok(new)
    }
}

/// The column that an assignment names, unless it is one that takes a look: a generated one, or none of this table.
fn set_column<'t>(
    table: &'t Table,
    called: Option<&str>,
    name: &ObjectName,
) -> Option<(usize, &'t Column)> {
    let idents = name.0.iter().map(|part| part.as_ident().cloned()).collect::<Option<Vec<_>>>()?;
    let (position, _) = column_of(table, called, &Expr::CompoundIdentifier(idents))?;
    let column = table.columns.get(position)?;
    column.generated().is_none().then_some((position, column))
}

/// `column + 1` and `column - 1`, over a column of whole numbers.
fn sum(table: &Table, called: Option<&str>, expr: &Expr) -> Option<(usize, i64)> {
    let Expr::BinaryOp { left, op, right } = expr else { return None };
    let Some(Value::Int(number)) = literal(right) else { return None };
    let more = match op {
        BinaryOperator::Plus => number,
        BinaryOperator::Minus => number.checked_neg()?,
        _ => return None,
    };
    let (of, ty) = column_of(table, called, left)?;
    matches!(ty, ColumnType::Int { .. }).then_some((of, more))
}

/// A sum with a number of a column; `None` if it is none of the column's sign within 64 bits.
fn added(value: Option<&Value>, more: i64) -> Option<Value> {
    match value? {
        Value::Null => Some(Value::Null),
        Value::Int(number) => number.checked_add(more).map(Value::Int),
        Value::UInt(number) => number.checked_add_signed(more).map(Value::UInt),
        _ => None,
    }
}
