//! What an ALTER TABLE makes of a table, and what is left to do for it. It changes nothing.

use types::{Column, ColumnId, ColumnType, Default, Index, Table, TableId, Value};
use values::coerce::{self, Place};
use values::error::{SqlError, SqlResult, no_zero, table_changed};
use values::temporal::Zone;

use super::publish::is_as;
use crate::session::Session;

/// What a changed table comes to, and what is to be said of it.
pub(in crate::session) struct Plan {
    /// The description that the actions were applied to.
    pub before: Table,
    /// As it becomes.
    pub after: Table,
    /// Columns that others come in the place of, with the same values under another type.
    pub converted: Vec<(ColumnId, ColumnId)>,
    /// Columns that are added as UNIQUE, before they have their indexes.
    pub unique: Vec<ColumnId>,
    /// New indexes: what each is called while it is made, and what afterwards.
    pub added: Vec<(String, String)>,
    /// Warnings and notes.
    pub warnings: Vec<SqlError>,
}

impl Plan {
    /// Whether columns come or go, and so are hidden in a version between.
    pub(super) fn hides(&self) -> bool {
        self.arriving().next().is_some() || self.leaving().next().is_some()
    }

    /// A number for a new column.
    pub(super) fn next_id(&self) -> ColumnId {
        let Plan { before, after, .. } = self;
        let known = before.columns.iter().chain(&after.columns).chain(&after.dropped);
        known.map(|known| known.id).max().unwrap_or(0) + 1
    }

    pub(super) fn arriving(&self) -> impl Iterator<Item = &Column> {
        self.after.columns.iter().filter(|column| self.before.column(column.id).is_none())
    }

    pub(in crate::session) fn leaving(&self) -> impl Iterator<Item = &Column> {
        self.before.columns.iter().filter(|column| self.after.column(column.id).is_none())
    }

    /// The version between: as before, with the columns that come and those that go hidden, and
    /// without the indexes that go with them.
    pub(super) fn hiding(&self, session: &Session) -> SqlResult<Table> {
        let mut table = self.before.clone();
        self.hide_leaving(session, &mut table)?;
        self.hide_arriving(&mut table);
        Ok(table)
    }

    /// Hides the columns that go, and drops their indexes.
    pub(super) fn hide_leaving(&self, session: &Session, table: &mut Table) -> SqlResult<()> {
        let leaving: Vec<ColumnId> = self.leaving().map(|column| column.id).collect();
        for column in table.columns.iter_mut().filter(|column| leaving.contains(&column.id)) {
            // Whoever knows it still, and locks a row that was added meanwhile, finds a value.
            let value = match &column.default {
                Some(_) => session.default_value(column, Zone::UTC)?,
                None => zero(column)
                    .or_else(|error| column.original.clone().ok_or(error))
                    .unwrap_or(Value::Null),
            };
            column.default = Some(Default::Constant(value));
            // Rows of the next version do not hold it.
            column.nullable = true;
            (column.auto_increment, column.on_update_now) = (false, false);
            hide(self.before.id, column);
        }
        table.indexes.retain(|index| !index.columns.iter().any(|id| leaving.contains(id)));
        Ok(())
    }

    /// Adds the columns that come, hidden.
    pub(super) fn hide_arriving(&self, table: &mut Table) {
        for column in self.arriving() {
            let mut column = column.clone();
            column.default = column.original.clone().map(Default::Constant);
            column.on_update_now = false;
            hide(table.id, &mut column);
            table.columns.push(column);
        }
    }

    /// The last version, over what stands in the catalog by now: the table with its columns as the
    /// first version has left them, and with whatever others have changed besides.
    pub(in crate::session) fn finish(&self, hiding: &Table, table: &mut Table) -> SqlResult<()> {
        let (before, after) = (&self.before, &self.after);
        let name = |table: &Table| (table.database.clone(), table.name.clone());
        let renamed = name(before) != name(after);
        let reshaped = before.columns != after.columns;
        if reshaped && !is_as(table, hiding) || renamed && name(table) != name(before) {
            let why = match self.leaving().next() {
                Some(_) => {
                    "was changed by others before this statement had ended: nothing was added, and \
                     columns that it drops may be dropped"
                }
                None => {
                    "was changed by others before this statement had ended: nothing of it was done"
                }
            };
            return Err(table_changed(&table.database, &table.name, why));
        }
        if reshaped {
            table.columns.clone_from(&after.columns);
        }
        if renamed {
            table.database.clone_from(&after.database);
            table.rename(after.name.clone());
        }
        if before.comment != after.comment {
            table.comment.clone_from(&after.comment);
        }
        table.indexes.retain(|index| same(index, before).is_none() || same(index, after).is_some());
        for index in &mut table.indexes {
            let Some(becomes) = same(index, after) else { continue };
            // Others may have changed what this statement says nothing of.
            let was = same(index, before);
            if was.is_none_or(|was| was.name != becomes.name) {
                index.name.clone_from(&becomes.name);
            }
            if was.is_none_or(|was| was.visible != becomes.visible) {
                index.visible = becomes.visible;
            }
        }
        Ok(())
    }
}

/// An index in another description of its table.
fn same<'a>(index: &Index, of: &'a Table) -> Option<&'a Index> {
    of.indexes.iter().find(|other| other.id == index.id)
}

/// Hides a column under a name that nobody gives, and that no other table's column has.
pub(in crate::session) fn hide(table: TableId, column: &mut Column) {
    column.hidden = true;
    column.name = format!("_isobar_column_{table}_{}", column.id);
}

/// What rows get for a column that must have a value and has no default: MySQL's implicit default.
pub(super) fn zero(column: &Column) -> SqlResult<Value> {
    let value = match column.ty {
        ColumnType::Int { .. } | ColumnType::Double | ColumnType::Decimal { .. } => Value::Int(0),
        ColumnType::Char(_) | ColumnType::Varchar(_) | ColumnType::Text(_) => {
            Value::String(String::new())
        }
        ColumnType::Json => Value::String("null".into()),
        ColumnType::Enum(_) => Value::UInt(1),
        ColumnType::Set(_) => Value::UInt(0),
        _ => {
            return Err(no_zero(&column.name));
        }
    };
    coerce::to_column(value, Place { column, row: 1, zone: Zone::UTC })
}
