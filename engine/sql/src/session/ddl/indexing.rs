//! What ALTER TABLE does with indexes beside its other actions: new ones, other names, visibility.
//!
//! Of a change with new indexes, the first version has these in their first state, and columns that
//! come hidden, so that the indexes may be of them; all else is as it was. When every row has its
//! entries, the last version shows all of it, and drops what goes. What fails before leaves the
//! table as it was. Columns that go are hidden by a version of their own, right before the last one:
//! a node that dies between these two has dropped them, and done nothing else.

use parking_lot::Mutex;
use placement::api::next_index_id;
use placement::catalog::check_description;
use syntax::names::parts;
use syntax::statement::Alter;
use tokio_util::sync::CancellationToken;
use types::{ColumnId, Index, IndexState, Table};
use values::error::{
    SqlError, SqlResult, TABLE_CHANGED, duplicate_index_name, invisible_primary, no_key,
    wrong_index_name,
};

use super::define::enter;
use super::filling::others_first;
use super::plan::Plan;
use super::publish::{check_at_rest, is_as, restless};
use crate::session::{Session, impossible};
use definitions::keys::{self, Key};

impl Session {
    /// Publishes a change that adds indexes; error 1412 as a value if others were first.
    pub(super) async fn with_indexes(
        &self,
        table: Table,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Option<SqlError>> {
        let catalog = self.engine.storage.catalog().await?;
        // The first version may have to be made anew, over what somebody else has published.
        let made = Mutex::new(None);
        let first = self.publish(table, |table| {
            check_at_rest(table)?;
            let plan = self.changed(table, actions)?;
            if plan.added.is_empty() {
                return Err(restless(table));
            }
            // What takes long begins only if it can end.
            check_description(&catalog, &plan.after)?;
            *table = plan.making()?;
            *made.lock() = Some((plan, table.clone()));
            Ok(())
        });
        let first = match first.await {
            Err(error) if error.code == TABLE_CHANGED => return Ok(Some(error)),
            first => first,
        };
        let Some((mut plan, half)) = made.into_inner() else {
            return Err(first.err().unwrap_or_else(|| impossible("a change that was not made")));
        };
        let mut halves = vec![half];
        let shown = match first {
            Ok(table) => {
                let id = table.id;
                let work = self.fill_and_finish(table, &mut plan, &mut halves, cancel);
                self.showing_life(id, work).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = shown else { return Ok(None) };
        // Whether or not anybody could be informed of them, these versions may be there.
        for half in &halves {
            if let Err(also) = self.withdraw(half, &plan).await {
                tracing::warn!(
                    error = also.message,
                    "a failed ALTER TABLE is left to the next one"
                );
            }
        }
        Err(plan.by_real_names(error))
    }

    /// Fills the new indexes and publishes the rest. Each version that a failure may leave behind is
    /// noted before it is published.
    async fn fill_and_finish(
        &self,
        table: Table,
        plan: &mut Plan,
        halves: &mut Vec<Table>,
        cancel: &CancellationToken,
    ) -> SqlResult<()> {
        plan.take_numbers(&table)?;
        let plan = &*plan;
        let added = plan.after.indexes.iter().filter(|index| plan.adds(index));
        let ids: Vec<_> = added.map(|index| index.id).collect();
        let first = table.clone();
        let mut table = self.fill_indexes(table, &ids, cancel).await?;
        let mut hiding = first.clone();
        if plan.leaving().next().is_some() {
            plan.hide_leaving(self, &mut hiding)?;
            halves.push(hiding.clone());
            table = self
                .publish(table, |table| {
                    if !is_as(table, &first) {
                        return Err(others_first(table));
                    }
                    table.columns.clone_from(&hiding.columns);
                    let kept = |index: &Index| index.columns.iter().all(|id| !plan.leaves(*id));
                    table.indexes.retain(kept);
                    Ok(())
                })
                .await?;
        }
        let since = self.engine.storage.timestamp().await?;
        self.publish(table, |table| {
            enter(&ids, IndexState::Public { since })(table)?;
            plan.finish(&hiding, table)
        })
        .await?;
        Ok(())
    }

    /// Takes back what a version of a failed change has added, if that is there.
    async fn withdraw(&self, half: &Table, plan: &Plan) -> SqlResult<()> {
        let goes = |index: &Index| {
            !index.is_public() && plan.added.iter().any(|(made, _)| *made == index.name)
        };
        if half.is_changing() {
            return self.end(half, goes).await;
        }
        // Others may change the columns meanwhile, or be at them.
        self.alter(half.clone(), |table| table.indexes.retain(|index| !goes(index))).await?;
        Ok(())
    }
}

impl Plan {
    /// Adds new indexes to the table after all other actions: they may name columns that come.
    pub(super) fn add_indexes(&mut self, actions: &[Alter]) -> SqlResult<()> {
        for column in std::mem::take(&mut self.unique) {
            self.add_index(None, Key::unique(column))?;
        }
        for action in actions {
            let Alter::AddIndex(create) = action else { continue };
            let (form, warnings) = keys::index_form(create)?;
            self.warnings.extend(warnings);
            let key = keys::key(&create.columns, form, &self.after)?;
            let name = create.name.as_ref().map(|name| parts(name).pop().unwrap_or_default());
            self.add_index(name, key)?;
        }
        Ok(())
    }

    fn add_index(&mut self, name: Option<String>, key: Key) -> SqlResult<()> {
        let first = keys::first_name(&key, &self.after);
        let mut index = keys::new_index(&self.after, name, &first, key)?;
        index.id = index.id.max(next_index_id(&self.before));
        index.state = IndexState::DeleteOnly;
        // Until the end, the name may be that of an index that goes.
        let made = match self.before.index_named(&index.name) {
            Some(_) => format!("_isobar_new_index_{}_{}", self.before.id, index.id),
            None => index.name.clone(),
        };
        self.added.push((made, index.name.clone()));
        self.after.indexes.push(index);
        Ok(())
    }

    /// The first version: as before, with the columns that come hidden, and the new indexes.
    fn making(&self) -> SqlResult<Table> {
        let mut table = self.before.clone();
        self.hide_arriving(&mut table);
        for (made, name) in &self.added {
            let index = self.after.index_named(name).cloned();
            let index = index.ok_or_else(|| impossible("an index that was not added"))?;
            table.indexes.push(Index { name: made.clone(), ..index });
        }
        Ok(table)
    }

    /// Whether an index of the table as it becomes is a new one.
    fn adds(&self, index: &Index) -> bool {
        self.added.iter().any(|(_, name)| *name == index.name)
    }

    /// Whether a column goes.
    fn leaves(&self, id: ColumnId) -> bool {
        self.leaving().any(|column| column.id == id)
    }

    /// Gives the new indexes the numbers that they were published with, which need not be those that
    /// were asked for.
    fn take_numbers(&mut self, published: &Table) -> SqlResult<()> {
        for (made, name) in &self.added {
            let given = published.index_named(made).map(|index| index.id);
            let given = given.ok_or_else(|| impossible("an index that was not added"))?;
            for index in self.after.indexes.iter_mut().filter(|index| index.name == *name) {
                index.id = given;
            }
        }
        Ok(())
    }

    /// An error about entries, with the indexes called what they were to be called.
    fn by_real_names(&self, error: SqlError) -> SqlError {
        let real = |text: String, (made, name): &(String, String)| {
            text.replace(&format!(".{made}'"), &format!(".{name}'"))
        };
        error.reworded(|text| self.added.iter().fold(text, real))
    }
}

/// ALTER INDEX … VISIBLE or INVISIBLE.
pub(in crate::session) fn show_index(
    table: &mut Table,
    name: &str,
    visible: bool,
) -> SqlResult<()> {
    if name.eq_ignore_ascii_case("PRIMARY") {
        return if visible { Ok(()) } else { Err(invisible_primary()) };
    }
    let mut indexes = table.indexes.iter_mut();
    match indexes.find(|index| index.name.eq_ignore_ascii_case(name)) {
        Some(index) => index.visible = visible,
        None => return Err(no_key(name, &table.name)),
    }
    Ok(())
}

/// RENAME INDEX.
pub(super) fn rename_index(table: &mut Table, old: &str, new: &str) -> SqlResult<()> {
    let Some(id) = table.index_named(old).map(|index| index.id) else {
        return Err(no_key(old, &table.name));
    };
    if new.eq_ignore_ascii_case("PRIMARY") {
        return Err(wrong_index_name(new));
    }
    if table.index_named(new).is_some_and(|other| other.id != id) {
        return Err(duplicate_index_name(new));
    }
    for index in table.indexes.iter_mut().filter(|index| index.id == id) {
        new.clone_into(&mut index.name);
    }
    Ok(())
}
