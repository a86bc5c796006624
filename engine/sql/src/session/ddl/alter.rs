//! ALTER TABLE: a table's description becomes another one under the eyes of its writers.
//!
//! Writers of two versions that follow each other may be at work at once (after F1), so a column
//! that comes or goes has a version between in which it is hidden: writers carry it along, nobody
//! sets it, and a row that says of it only what a row without it reads as does not hold it. With
//! the next version those who do not know it are shut out by the regions.

use parking_lot::Mutex;
use placement::catalog::check_description;
use sqlparser::ast::{ColumnDef, ObjectName};
use syntax::statement::{Alter, Position};
use tokio_util::sync::CancellationToken;
use types::{Column, Default, Table, Value};
use values::coerce::converted;
use values::error::{
    CANNOT_DROP, DUPLICATE_COLUMN, SqlError, SqlResult, TABLE_CHANGED, cannot_drop,
    duplicate_column, last_column, no_column, not_for_generated, unsupported, wrong_auto_increment,
    wrong_usage,
};

use super::indexing::{rename_index, show_index};
use super::plan::{Plan, zero};
use super::publish::{check_at_rest, restless};
use crate::session::{ATTEMPTS, Session, done, impossible};
use definitions::{expressions, keys};
use execution::reply::Reply;

impl Session {
    /// ALTER TABLE.
    pub(super) async fn alter_table(
        &mut self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        for warning in self.change_table(name, actions, cancel).await? {
            match warning.code {
                DUPLICATE_COLUMN | CANNOT_DROP => self.note(warning),
                _ => self.diagnostics.warn(warning),
            }
        }
        Ok(done())
    }

    /// Changes a table, and gives what is to be said of it. Who is at its columns comes first.
    async fn change_table(
        &self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Vec<SqlError>> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let table = self.at_rest(name, cancel).await?;
            let plan = self.changed(&table, actions)?;
            if plan.after == table {
                return Ok(plan.warnings);
            }
            let changed = match (plan.converts(), plan.hides()) {
                _ if !plan.added.is_empty() => self.with_indexes(table, actions, cancel).await,
                (true, _) => self.convert(table, actions, cancel).await,
                (false, false) => self.in_one_step(table, actions).await,
                (false, true) => self.by_way_of_hidden(table, actions).await,
            };
            match changed {
                Ok(Some(others)) => last = Some(others),
                Ok(None) => return Ok(plan.warnings),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| impossible("a change that was never made")))
    }

    /// Publishes a change that needs no hidden columns; error 1412 as a value if others were first.
    async fn in_one_step(&self, table: Table, actions: &[Alter]) -> SqlResult<Option<SqlError>> {
        let published = self.publish(table, |table| {
            check_at_rest(table)?;
            let plan = self.changed(table, actions)?;
            if plan.hides() {
                return Err(restless(table));
            }
            *table = plan.after;
            Ok(())
        });
        match published.await {
            Ok(_) => Ok(None),
            Err(error) if error.code == TABLE_CHANGED => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Publishes a change of the columns in two versions; error 1412 as a value if others were
    /// first. Once the first version is there, columns that are dropped stay dropped, and nothing
    /// else of the change is there before the second.
    async fn by_way_of_hidden(
        &self,
        table: Table,
        actions: &[Alter],
    ) -> SqlResult<Option<SqlError>> {
        let catalog = self.engine.storage.catalog().await?;
        // The first version may have to be made anew, over what somebody else has published.
        let made = Mutex::new(None);
        let first = self.publish(table, |table| {
            check_at_rest(table)?;
            let plan = self.changed(table, actions)?;
            if plan.converts() {
                return Err(restless(table));
            }
            // What cannot be undone, say an index that goes, begins only if it can end.
            check_description(&catalog, &plan.after)?;
            *table = plan.hiding(self)?;
            *made.lock() = Some((plan, table.clone()));
            Ok(())
        });
        let first = match first.await {
            Err(error) if error.code == TABLE_CHANGED => return Ok(Some(error)),
            first => first,
        };
        let Some((plan, hiding)) = made.into_inner() else {
            return Err(first.err().unwrap_or_else(|| impossible("a change that was not made")));
        };
        let error = match first {
            Err(error) => error,
            Ok(table) => match self.publish(table, |table| plan.finish(&hiding, table)).await {
                Ok(_) => return Ok(None),
                Err(error) => error,
            },
        };
        // Whether or not anybody could be informed of it, the first version may be there.
        if let Err(also) = self.end(&hiding, |_| false).await {
            tracing::warn!(error = also.message, "a failed ALTER TABLE is left to the next one");
        }
        Err(error)
    }

    /// The table after all actions, one after the other.
    pub(in crate::session) fn changed(&self, table: &Table, actions: &[Alter]) -> SqlResult<Plan> {
        let mut plan = Plan {
            before: table.clone(),
            after: table.clone(),
            converted: Vec::new(),
            unique: Vec::new(),
            added: Vec::new(),
            warnings: Vec::new(),
        };
        for action in actions {
            self.act(&mut plan, action)?;
        }
        plan.add_indexes(actions)?;
        plan.check_converted()?;
        check_numbered(&plan.after)?;
        definitions::check_replica(&plan.after)?;
        expressions::check_dependents(&plan.before, &plan.after)?;
        Ok(plan)
    }

    fn act(&self, plan: &mut Plan, action: &Alter) -> SqlResult<()> {
        match action {
            Alter::Add { column, at, lenient } => self.add_column(plan, column, at, *lenient),
            Alter::Drop { name, lenient } => drop_column(plan, name, *lenient),
            Alter::Change { old, column, at } => change_column(plan, old, column, at),
            Alter::Rename { old, new } => {
                let at = shown(&plan.after, old)?;
                free_name(&plan.after, at, new)?;
                plan.after.columns[at].name.clone_from(new);
                Ok(())
            }
            Alter::SetDefault { column, value } => {
                let at = shown(&plan.after, column)?;
                let column = &mut plan.after.columns[at];
                if column.generated().is_some() {
                    return Err(wrong_usage("DEFAULT", "generated column"));
                }
                column.default = match value {
                    // Without one, a statement must name the column.
                    None => None,
                    Some(value) => definitions::default_of(column, Some(value.as_ref()))?,
                };
                Ok(())
            }
            Alter::RenameTable(name) => {
                let (database, name) = definitions::spelled(name, &plan.after.database)?;
                plan.after.database = database;
                plan.after.rename(name);
                Ok(())
            }
            Alter::RenameIndex { old, new } => rename_index(&mut plan.after, old, new),
            Alter::ShowIndex { name, visible } => show_index(&mut plan.after, name, *visible),
            Alter::DropIndex(name) => {
                if plan.after.index_named(name).is_none() {
                    return Err(cannot_drop(name));
                }
                plan.after.indexes.retain(|index| !index.name.eq_ignore_ascii_case(name));
                Ok(())
            }
            // Behind all others: it may name columns that they add, and have a name that they free.
            Alter::AddIndex(_) => Ok(()),
            Alter::Comment(text) => {
                plan.after.comment.clone_from(text);
                Ok(())
            }
            // The counter is no part of the description.
            Alter::Number(_) => Ok(()),
            Alter::Warning(warning) => {
                plan.warnings.push(warning.clone());
                Ok(())
            }
            Alter::AddForeignKey(_) | Alter::DropForeignKey(_) => {
                Err(impossible("a foreign key among other actions"))
            }
            Alter::AddCheck { .. } | Alter::DropCheck { .. } | Alter::Enforce { .. } => {
                Err(unsupported("CHECK beside other actions of ALTER TABLE"))
            }
        }
    }

    fn add_column(
        &self,
        plan: &mut Plan,
        definition: &ColumnDef,
        at: &Position,
        lenient: bool,
    ) -> SqlResult<()> {
        let name = &definition.name.value;
        if plan.after.column_named(name).is_some() {
            if lenient {
                plan.warnings.push(duplicate_column(name));
                return Ok(());
            }
            return Err(duplicate_column(name));
        }
        let (mut column, unique) = defined(plan, definition)?;
        if column.auto_increment {
            return Err(unsupported("ADD COLUMN … AUTO_INCREMENT"));
        }
        if unique && column.generated().is_some() {
            return Err(unsupported(
                "UNIQUE at a generated column of ALTER TABLE (use ADD UNIQUE INDEX)",
            ));
        }
        column.id = plan.next_id();
        plan.unique.extend(unique.then_some(column.id));
        column.original = Some(match &column.default {
            // What older snapshots show; rows that are there are written anew.
            Some(Default::Generated { .. }) if column.nullable => Value::Null,
            Some(Default::Generated { .. }) => zero(&column)?,
            Some(_) => self.default_value(&column, self.context().zone()?)?,
            None => zero(&column)?,
        });
        let at = index_of(&plan.after, at)?.unwrap_or(plan.after.columns.len());
        plan.after.columns.insert(at, column);
        expressions::settle_column(&mut plan.after, at)
    }

    /// The table after all actions.
    pub(super) fn described_after(&self, table: &Table, actions: &[Alter]) -> SqlResult<Table> {
        self.changed(table, actions).map(|plan| plan.after)
    }
}

/// A column as a definition describes it, apart from its table, and whether it is UNIQUE.
fn defined(plan: &mut Plan, definition: &ColumnDef) -> SqlResult<(Column, bool)> {
    let mut alone = Table {
        columns: Vec::new(),
        primary_key: Vec::new(),
        indexes: Vec::new(),
        dropped: Vec::new(),
        checks: Vec::new(),
        ..plan.after.clone()
    };
    definitions::column(definition, &mut alone, &mut plan.warnings)?;
    if !alone.checks.is_empty() {
        return Err(unsupported("CHECK at a column of ALTER TABLE (use ADD CONSTRAINT … CHECK)"));
    }
    if !alone.primary_key.is_empty() {
        return Err(unsupported("ALTER TABLE … PRIMARY KEY (rows are stored by it)"));
    }
    let column = alone.columns.pop();
    let column = column.ok_or_else(|| impossible("a definition without a column"))?;
    Ok((column, !alone.indexes.is_empty()))
}

fn drop_column(plan: &mut Plan, name: &str, lenient: bool) -> SqlResult<()> {
    let table = &mut plan.after;
    let Some((at, column)) = table.column_named(name).filter(|(_, column)| !column.hidden) else {
        if lenient {
            plan.warnings.push(cannot_drop(name));
            return Ok(());
        }
        return Err(cannot_drop(name));
    };
    let id = column.id;
    if table.columns.iter().filter(|column| !column.hidden).count() == 1 {
        return Err(last_column());
    }
    if table.primary_key.contains(&id) {
        return Err(unsupported(format!(
            "DROP COLUMN {name}, a part of the primary key (rows are stored by it)"
        )));
    }
    if let Some(index) =
        table.indexes.iter().find(|index| index.columns.contains(&id) && index.columns.len() > 1)
    {
        return Err(unsupported(format!(
            "DROP COLUMN {name}, one of several columns of index {} (drop the index first)",
            index.name
        )));
    }
    table.indexes.retain(|index| !index.columns.contains(&id));
    table.columns.remove(at);
    Ok(())
}

fn change_column(
    plan: &mut Plan,
    old: &str,
    definition: &ColumnDef,
    at: &Position,
) -> SqlResult<()> {
    let from = shown(&plan.after, old)?;
    free_name(&plan.after, from, &definition.name.value)?;
    let (mut wanted, unique) = defined(plan, definition)?;
    if unique {
        return Err(unsupported(
            "UNIQUE at a changed column of ALTER TABLE (use ADD UNIQUE INDEX)",
        ));
    }
    let known = &plan.after.columns[from];
    (wanted.id, wanted.original) = (known.id, known.original.clone());
    let dependent = wanted.generated().is_some() || known.generated().is_some();
    if plan.after.primary_key.contains(&known.id) {
        wanted.nullable = false;
        if wanted.default == Some(Default::Constant(Value::Null)) {
            wanted.default = None;
        }
    }
    if wanted.auto_increment && !known.auto_increment {
        return Err(unsupported(format!(
            "changing column {old} to AUTO_INCREMENT, where rows have their numbers"
        )));
    }
    if wanted.ty != known.ty {
        if plan.after.primary_key.contains(&known.id) && wanted.ty.holds_all(known.ty) {
            keys::check_whole(&wanted)?;
        }
        let mut indexes = plan.after.indexes.iter_mut();
        indexes.try_for_each(|index| keys::refit(index, &wanted))?;
    }
    if !wanted.ty.holds_all(known.ty) || known.nullable && !wanted.nullable {
        plan.check_convertible(known, &wanted)?;
        (wanted.id, wanted.original) = (plan.next_id(), Some(converted::stand_in(&wanted)?));
        let (gone, come) = (known.id, wanted.id);
        plan.after.indexes.iter_mut().for_each(|index| index.replace_column(gone, come));
        plan.converted.push((gone, come));
    }
    let known = std::mem::replace(&mut plan.after.columns[from], wanted);
    if dependent {
        expressions::settle_column(&mut plan.after, from)?;
        if plan.after.columns[from].default != known.default {
            let what = "Changing the expression or the STORED status";
            return Err(not_for_generated(what));
        }
    }
    if let Some(to) = index_of(&plan.after, at)? {
        let column = plan.after.columns.remove(from);
        let to = if from < to { to - 1 } else { to };
        plan.after.columns.insert(to, column);
    }
    Ok(())
}

/// Where a column is that an action names.
fn shown(table: &Table, name: &str) -> SqlResult<usize> {
    match table.column_named(name) {
        Some((at, column)) if !column.hidden => Ok(at),
        _ => Err(no_column(name, &table.name)),
    }
}

/// Refuses a new name that another column has.
fn free_name(table: &Table, of: usize, new: &str) -> SqlResult<()> {
    match table.column_named(new) {
        Some((at, _)) if at != of => Err(duplicate_column(new)),
        _ => Ok(()),
    }
}

/// The position that a place stands for, if one is named.
fn index_of(table: &Table, at: &Position) -> SqlResult<Option<usize>> {
    Ok(match at {
        Position::First => Some(0),
        Position::After(name) => Some(shown(table, name)? + 1),
        Position::Last => None,
    })
}

/// An AUTO_INCREMENT column stays the first one of a key.
fn check_numbered(table: &Table) -> SqlResult<()> {
    let keyed = |column: &Column| {
        table.primary_key.first() == Some(&column.id)
            || table.indexes.iter().any(|index| index.columns.first() == Some(&column.id))
    };
    if table.columns.iter().any(|column| column.auto_increment && !keyed(column)) {
        return Err(wrong_auto_increment());
    }
    Ok(())
}
