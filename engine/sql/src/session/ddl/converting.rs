//! ALTER TABLE … MODIFY and CHANGE of columns whose rows have to be written anew: another type, or
//! no NULL any more.
//!
//! Another column comes in the old one's place. Hidden, it gets the old one's values from every
//! writer, converted, and then in the rows that are there; indexes are made of it like those of the
//! old one; one version puts all into their places and drops the old ones. A value that does not fit ends the statement and leaves the table as it was;
//! so do writers' own, meanwhile, as if the column were changed already. What is read at an older
//! timestamp than the change is error 1412, as in MySQL.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use placement::api::next_index_id;
use placement::catalog::check_description;
use syntax::statement::Alter;
use tokio_util::sync::CancellationToken;
use types::{Column, ColumnId, Default, Index, IndexState, Table};
use values::coerce::converted;
use values::error::{
    DUPLICATE_ENTRY, NOT_NULL, SqlError, SqlResult, TABLE_CHANGED, null_stored, unsupported,
};

use super::filling::others_first;
use super::plan::{Plan, hide};
use super::publish::{check_at_rest, is_as, restless};
use crate::session::{Session, impossible};
use definitions::expressions;

impl Session {
    /// Publishes a change that puts columns in the place of others; error 1412 as a value if others
    /// were first.
    pub(super) async fn convert(
        &self,
        table: Table,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Option<SqlError>> {
        let catalog = self.engine.storage.catalog().await?;
        let time_zone = self.context().time_zone;
        // The first version may have to be made anew, over what somebody else has published.
        let made = Mutex::new(None);
        let first = self.publish(table, |table| {
            check_at_rest(table)?;
            let plan = self.changed(table, actions)?;
            if !plan.converts() {
                return Err(restless(table));
            }
            if plan.rebuilt_indexes().any(|index| !index.is_public()) {
                return Err(restless(table));
            }
            // What takes long begins only if it can end.
            check_description(&catalog, &plan.after)?;
            table.columns.extend(plan.converting(&time_zone));
            *made.lock() = Some(table.clone());
            Ok(())
        });
        let first = match first.await {
            Err(error) if error.code == TABLE_CHANGED => return Ok(Some(error)),
            first => first,
        };
        let Some(half) = made.into_inner() else { return first.map(|_| None) };
        let shown = match first {
            Ok(table) => {
                let id = table.id;
                self.showing_life(id, self.fill_and_show(table, &half, actions, cancel)).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = shown else { return Ok(None) };
        // Whether or not anybody could be informed of it, the first version may be there.
        if let Err(also) = self.end(&half, |_| false).await {
            tracing::warn!(error = also.message, "a failed ALTER TABLE is left to the next one");
        }
        Err(match error.code {
            NOT_NULL => null_stored(),
            DUPLICATE_ENTRY => {
                let real = |text: String, index: &Index| {
                    let (made, real) = (rebuilt_index_name(&half, index), &index.name);
                    text.replace(&format!(".{made}'"), &format!(".{real}'"))
                };
                error.reworded(|text| half.indexes.iter().fold(text, real))
            }
            _ => error,
        })
    }

    async fn fill_and_show(
        &self,
        table: Table,
        half: &Table,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Table> {
        let mut table = self.fill(table, cancel).await?;
        let plan = self.changed_but_for_hidden(&table, actions)?;
        for index in plan.rebuilt_indexes() {
            let name = rebuilt_index_name(half, index);
            table = self
                .publish(table, |table| {
                    let (id, state) = (next_index_id(table), IndexState::DeleteOnly);
                    table.indexes.push(Index { id, name: name.clone(), state, ..index.clone() });
                    Ok(())
                })
                .await?;
            let made = table.index_named(&name).map(|index| index.id);
            let made = made.ok_or_else(|| impossible("an index that was not added"))?;
            table = self.fill_indexes(table, &[made], cancel).await?;
        }
        let since = self.engine.storage.timestamp().await?;
        self.publish(table, |table| {
            if !is_as(table, half) {
                return Err(others_first(table));
            }
            // Anew, over what others have changed besides; the columns must be the very ones.
            let mut plan = self.changed_but_for_hidden(table, actions)?;
            let converted = half.columns.iter();
            let converted = converted.filter_map(|column| Some((column.converted()?.0, column.id)));
            if !plan.converted.iter().copied().eq(converted) {
                return Err(others_first(table));
            }
            for index in &mut plan.after.indexes {
                if index.columns.iter().any(|id| plan.converted.iter().any(|(_, to)| to == id)) {
                    let made = table.index_named(&rebuilt_index_name(half, index));
                    let made = made.ok_or_else(|| others_first(table))?;
                    (index.id, index.state) = (made.id, IndexState::Public { since });
                }
            }
            *table = plan.after;
            Ok(())
        })
        .await
    }

    /// What actions come to, without what is made for them.
    fn changed_but_for_hidden(&self, table: &Table, actions: &[Alter]) -> SqlResult<Plan> {
        let mut before = table.clone();
        before.columns.retain(|column| !table.is_passing(column));
        let left: Vec<ColumnId> = before.columns.iter().map(|column| column.id).collect();
        before.indexes.retain(|index| index.columns.iter().all(|id| left.contains(id)));
        self.changed(&before, actions)
    }
}

/// The name of a rebuilt index until it takes the place of the old one.
fn rebuilt_index_name(table: &Table, index: &Index) -> String {
    format!("_isobar_index_{}_{}", table.id, index.id)
}

impl Plan {
    /// Whether columns come in the place of others.
    pub(super) fn converts(&self) -> bool {
        !self.converted.is_empty()
    }

    /// Refuses a column that no other can come in the place of.
    pub(super) fn check_convertible(&self, known: &Column, wanted: &Column) -> SqlResult<()> {
        let Column { name, ty, .. } = known;
        let cannot = |why: &str| {
            Err(unsupported(format!("changing column {name} from {ty} to {}: {why}", wanted.ty)))
        };
        if self.after.primary_key.contains(&known.id) {
            return cannot("it is a part of the primary key, by which rows are stored");
        }
        if known.auto_increment || known.is_derived() || wanted.is_derived() {
            return cannot("its values are not a client's");
        }
        if self.before.column(known.id).is_none() {
            return cannot("the same statement adds or changes it");
        }
        let checks = self.after.checks.iter().map(|check| check.expression.as_str());
        let generated = self.after.columns.iter().filter_map(Column::generated);
        for text in checks.chain(generated.map(|(text, _)| text)) {
            if expressions::names(text)?.iter().any(|named| named.eq_ignore_ascii_case(name)) {
                return cannot("a CHECK or a generated column names it (drop that first)");
            }
        }
        converted::check(*ty, wanted.ty, name)
    }

    /// Refuses such columns beside others that come or go, and beside new indexes.
    pub(super) fn check_converted(&self) -> SqlResult<()> {
        if self.converts() && !self.added.is_empty() {
            return Err(unsupported(
                "another type of a column beside ADD INDEX (rows are written anew; give it a \
                 statement of its own)",
            ));
        }
        let (from, to): (BTreeSet<ColumnId>, BTreeSet<ColumnId>) =
            self.converted.iter().copied().unzip();
        let leaving: BTreeSet<ColumnId> = self.leaving().map(|column| column.id).collect();
        let arriving: BTreeSet<ColumnId> = self.arriving().map(|column| column.id).collect();
        match self.converts() && (from != leaving || to != arriving) {
            false => Ok(()),
            true => Err(unsupported(
                "another type of a column beside ADD or DROP of columns (rows are written anew; \
                 give it a statement of its own)",
            )),
        }
    }

    /// Indexes over converted columns, which are rebuilt.
    fn rebuilt_indexes(&self) -> impl Iterator<Item = &Index> {
        let comes = |id: &ColumnId| self.converted.iter().any(|(_, to)| to == id);
        self.after.indexes.iter().filter(move |index| index.columns.iter().any(comes))
    }

    /// The columns that come, hidden.
    fn converting(&self, time_zone: &str) -> Vec<Column> {
        let hidden = |(from, to): &(ColumnId, ColumnId)| {
            let mut column = self.after.column(*to)?.clone();
            let time_zone = time_zone.to_owned();
            column.default = Some(Default::Converted { from: *from, time_zone });
            (column.on_update_now, column.auto_increment) = (false, false);
            hide(self.after.id, &mut column);
            Some(column)
        };
        self.converted.iter().filter_map(hidden).collect()
    }
}
