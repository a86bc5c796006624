//! What a row's own values decide: its generated columns, and whether it keeps the table's checks.
//!
//! Every row on its way into a table passes here, whatever statement it comes from. Expressions are
//! planned as those of queries are, once for each version of a table in a session, so that CHECK
//! means what WHERE means; UNKNOWN passes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use binder::{Compiler, QueryContext, planning_schema};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use functions::value::value_at;
use parking_lot::Mutex;
use types::columns::ColumnsBuilder;
use types::{Check, Column, ColumnType, Table, TableId, Value};
use values::coerce::{Place, converted};
use values::error::{DATA_TOO_LONG, SqlResult, check_violated};
use values::sql_mode;
use values::temporal::Zone;

use super::fitting::Fitting;
use crate::session::Session;
use definitions::expressions;

/// Most tables whose expressions a session keeps planned.
const MOST_KEPT: usize = 64;

/// Planned expressions of tables.
pub(in crate::session) type Derivations = Mutex<HashMap<TableId, Arc<Derivation>>>;

/// A row and what it becomes.
pub(in crate::session) type Pair = (Vec<Value>, Vec<Value>);

/// An expression over some columns of a table.
struct Planned {
    positions: Vec<usize>,
    schema: SchemaRef,
    expr: Arc<dyn PhysicalExpr>,
}

impl Planned {
    /// The value of a column, or the truth of a condition.
    fn new(text: &str, of: Option<&Column>, table: &Table, session: &Session) -> SqlResult<Self> {
        let names = expressions::names(text)?;
        let named =
            |column: &types::Column| names.iter().any(|n| n.eq_ignore_ascii_case(&column.name));
        let columns = table.columns.iter().enumerate();
        let positions: Vec<usize> =
            columns.filter(|(_, column)| named(column)).map(|(at, _)| at).collect();
        let all = planning_schema(table);
        // A column that must have a value may still be on its way to one.
        let field = |at: &usize| all.field(*at).clone().with_nullable(true);
        let schema = Arc::new(Schema::new(positions.iter().map(field).collect::<Vec<Field>>()));
        let frame = DFSchema::try_from(schema.clone())?;
        let expr = expressions::parsed(text)?;
        let expr = match of {
            Some(column) => super::column_values::number_of_column(expr, column.ty),
            None => binder::truth(expr),
        };
        let (context, state) = (context(session), &session.engine.state);
        let compiler = Compiler { schema: &frame, context: &context, state, expr_warnings: None };
        let expr = compiler.text(&expr)?;
        Ok(Planned { positions, schema, expr })
    }

    fn evaluate<'a>(
        &self,
        table: &Table,
        rows: impl Iterator<Item = &'a Vec<Value>>,
    ) -> SqlResult<ArrayRef> {
        let mut builder = ColumnsBuilder::new(table, &self.positions)?;
        let mut count = 0;
        for row in rows {
            builder.push(row)?;
            count += 1;
        }
        let arrays = builder.finish()?.columns().to_vec();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        Ok(self.expr.evaluate(&batch)?.into_array(count)?)
    }

    /// Which rows have no value of this column yet: of a row that changes, the value stays while
    /// what it was computed of does. A column that is being added may be nowhere yet.
    fn without_value(&self, column: &Column, (rows, olds): Rows<'_, '_>) -> Vec<usize> {
        let same = |old: &[Value], new: &Vec<Value>| {
            self.positions.iter().all(|position| old.get(*position) == new.get(*position))
        };
        let kept = |at: &usize| match (olds.get(*at), rows.get(*at)) {
            (Some(old), Some(new)) => !column.hidden && same(old, new),
            _ => false,
        };
        (0..rows.len()).filter(|at| !kept(at)).collect()
    }
}

/// Rows as they become, and as they were; nothing of the latter where they are new.
type Rows<'a, 'b> = (&'a [Vec<Value>], &'a [&'b [Value]]);

/// A hidden column with another one's values under its own type.
struct Conversion {
    from: usize,
    to: usize,
    /// As errors name it: by the name that it will have.
    column: Column,
    /// The other one's type.
    known: ColumnType,
    zone: Zone,
}

impl Conversion {
    fn all(table: &Table) -> SqlResult<Vec<Self>> {
        let mut all = Vec::new();
        for (to, column) in table.columns.iter().enumerate() {
            let Some((id, zone)) = column.converted() else { continue };
            let Some(from) = table.position(id) else { continue };
            let Some(other) = table.columns.get(from) else { continue };
            let column = Column { name: other.name.clone(), ..column.clone() };
            all.push(Conversion { from, to, column, known: other.ty, zone: Zone::parse(zone)? });
        }
        Ok(all)
    }

    fn of(&self, row: &[Value], number: usize, fitting: &mut Fitting) -> SqlResult<Value> {
        let place = Place { column: &self.column, row: number, zone: self.zone };
        let (from, to) = (self.known, self.column.ty);
        let value = row.get(self.from).cloned().unwrap_or(Value::Null);
        if let Some(value) = converted::of_no_label(&value, from, to) {
            return Ok(value);
        }
        let value = converted::assigned(value, from, to, self.zone);
        fitting.column(value, place).map_err(|error| match error.code {
            DATA_TOO_LONG if converted::cuts(from, to) => place.truncated(),
            _ => error,
        })
    }
}

/// The planned expressions of a table, under what may change their meaning.
pub(in crate::session) struct Derivation {
    version: types::SchemaVersion,
    time_zone: String,
    today: i64,
    generated: Vec<(usize, Planned)>,
    converted: Vec<Conversion>,
    checks: Vec<(String, Planned)>,
}

impl Derivation {
    fn new(table: &Table, session: &Session) -> SqlResult<Self> {
        let context = context(session);
        let today = context.today()?;
        let mut generated = Vec::new();
        for (at, column) in table.columns.iter().enumerate() {
            if let Some((text, _)) = column.generated() {
                generated.push((at, Planned::new(text, Some(column), table, session)?));
            }
        }
        let enforced = table.checks.iter().filter(|check| check.enforced);
        let checks = enforced.map(|check| planned_check(check, table, session));
        let checks = checks.collect::<SqlResult<_>>()?;
        let converted = Conversion::all(table)?;
        let (version, time_zone) = (table.version, context.time_zone);
        Ok(Derivation { version, time_zone, today, generated, converted, checks })
    }

    /// A TIME among datetimes is one of the day on which it was planned.
    fn serves(&self, table: &Table, context: &QueryContext) -> bool {
        self.version == table.version
            && self.time_zone == context.time_zone
            && context.today().is_ok_and(|today| self.today == today)
    }
}

/// What gives an expression its meaning: the session, but for its sql_mode, which is its own affair.
fn context(session: &Session) -> QueryContext {
    QueryContext { sql_mode: sql_mode::DEFAULT.into(), ..session.context() }
}

fn planned_check(check: &Check, table: &Table, session: &Session) -> SqlResult<(String, Planned)> {
    Ok((check.name.clone(), Planned::new(&check.expression, None, table, session)?))
}

impl Session {
    /// Plans every expression of a table that is about to be described so: an error in one shows
    /// before there is such a table.
    pub(in crate::session) fn check_expressions(&self, table: &Table) -> SqlResult<()> {
        let mut table = table.clone();
        table.checks.iter_mut().for_each(|check| check.enforced = true);
        Derivation::new(&table, self).map(|_| ())
    }

    fn derivation(&self, table: &Table) -> SqlResult<Option<Arc<Derivation>>> {
        let checked = table.checks.iter().any(|check| check.enforced);
        if !checked && !table.columns.iter().any(Column::is_derived) {
            return Ok(None);
        }
        let context = self.context();
        let known = self.derivations.lock().get(&table.id).cloned();
        if let Some(known) = known.filter(|known| known.serves(table, &context)) {
            return Ok(Some(known));
        }
        let made = Arc::new(Derivation::new(table, self)?);
        let mut kept = self.derivations.lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(table.id, made.clone());
        Ok(Some(made))
    }

    /// Gives rows the values of their generated columns and holds them against the table's checks.
    /// Positions of those that break one, ascending: with IGNORE they are to be left out.
    ///
    /// # Errors
    ///
    /// 3819 for a row that breaks a check, without IGNORE; a value that its column does not take.
    pub(super) fn derive(
        &self,
        table: &Table,
        rows: &mut [Vec<Value>],
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<usize>> {
        self.derive_over(table, (rows, &[]), first_row, fitting)
    }

    /// The same of rows that were others before, or of new ones.
    fn derive_over(
        &self,
        table: &Table,
        (rows, olds): (&mut [Vec<Value>], &[&[Value]]),
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<Vec<usize>> {
        let Some(derivation) = self.derivation(table)? else { return Ok(Vec::new()) };
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.generate(&derivation, table, (&mut *rows, olds), first_row, fitting)?;
        let mut broken: Vec<(usize, &str)> = Vec::new();
        for (name, planned) in &derivation.checks {
            let kept = planned.evaluate(table, rows.iter())?;
            for at in 0..rows.len() {
                if value_at(&kept, at)? == Value::Int(0) {
                    broken.push((at, name.as_str()));
                }
            }
        }
        // A row is reported once, by the first of the checks that it breaks.
        broken.sort_by_key(|(at, _)| *at);
        broken.dedup_by_key(|(at, _)| *at);
        for (_, name) in &broken {
            fitting.leave_out(check_violated(name))?;
        }
        Ok(broken.into_iter().map(|(at, _)| at).collect())
    }

    /// Rows that are there, with the values of columns that are being added to them; what the other
    /// columns were computed to be stays, whatever they would be today. Errors count from
    /// `first_row`.
    pub(in crate::session) fn derive_hidden(
        &self,
        table: &Table,
        olds: &[Vec<Value>],
        first_row: usize,
    ) -> SqlResult<Vec<Vec<Value>>> {
        let mut rows = olds.to_vec();
        if let (Some(derivation), false) = (self.derivation(table)?, rows.is_empty()) {
            let olds: Vec<&[Value]> = olds.iter().map(Vec::as_slice).collect();
            let both = (rows.as_mut_slice(), olds.as_slice());
            self.generate(&derivation, table, both, first_row, &mut Fitting::Strict)?;
        }
        Ok(rows)
    }

    fn generate(
        &self,
        derivation: &Derivation,
        table: &Table,
        (rows, olds): (&mut [Vec<Value>], &[&[Value]]),
        first_row: usize,
        fitting: &mut Fitting,
    ) -> SqlResult<()> {
        let zone = self.context().zone()?;
        for (position, planned) in &derivation.generated {
            let Some(column) = table.columns.get(*position) else { continue };
            let wanting = planned.without_value(column, (&*rows, olds));
            if wanting.is_empty() {
                continue;
            }
            let values = planned.evaluate(table, wanting.iter().filter_map(|at| rows.get(*at)))?;
            for (nth, at) in wanting.into_iter().enumerate() {
                let place = Place { column, row: first_row + at, zone };
                let value = fitting.column(value_at(&values, nth)?, place)?;
                if let Some(slot) = rows.get_mut(at).and_then(|row| row.get_mut(*position)) {
                    *slot = value;
                }
            }
        }
        for conversion in &derivation.converted {
            for (at, row) in rows.iter_mut().enumerate() {
                let value = conversion.of(row, first_row + at, fitting)?;
                if let Some(slot) = row.get_mut(conversion.to) {
                    *slot = value;
                }
            }
        }
        Ok(())
    }

    /// The same of rows that change; those that break a check stay as they were.
    pub(super) fn derive_pairs(
        &self,
        table: &Table,
        pairs: &mut [Pair],
        fitting: &mut Fitting,
    ) -> SqlResult<()> {
        if self.derivation(table)?.is_none() {
            return Ok(());
        }
        // A row that stays as it is, is not held against anything.
        let changed: Vec<usize> =
            (0..pairs.len()).filter(|at| pairs.get(*at).is_some_and(|(o, n)| o != n)).collect();
        let (mut rows, mut olds) = (Vec::new(), Vec::new());
        for (old, new) in changed.iter().filter_map(|at| pairs.get(*at)) {
            rows.push(new.clone());
            olds.push(old.as_slice());
        }
        let broken = self.derive_over(table, (rows.as_mut_slice(), &olds), 1, fitting)?;
        for (row, at) in changed.iter().enumerate() {
            let Some((old, new)) = pairs.get_mut(*at) else { continue };
            match (broken.binary_search(&row), rows.get_mut(row)) {
                (Err(_), Some(row)) => *new = std::mem::take(row),
                _ => new.clone_from(old),
            }
        }
        Ok(())
    }
}

/// Some checks of a table, for rows that are there.
pub(in crate::session) struct Proof(Vec<(String, Planned)>);

impl Proof {
    /// Plans them.
    pub(in crate::session) fn new(
        table: &Table,
        checks: &[Check],
        session: &Session,
    ) -> SqlResult<Self> {
        let planned = checks.iter().map(|check| planned_check(check, table, session));
        Ok(Proof(planned.collect::<SqlResult<_>>()?))
    }

    /// Fails with the first check that a row breaks.
    pub(in crate::session) fn hold(&self, table: &Table, rows: &[Vec<Value>]) -> SqlResult<()> {
        for (name, planned) in &self.0 {
            let kept = planned.evaluate(table, rows.iter())?;
            for at in 0..rows.len() {
                if value_at(&kept, at)? == Value::Int(0) {
                    return Err(check_violated(name));
                }
            }
        }
        Ok(())
    }
}
