//! AUTO_INCREMENT = n, of tables that are made and of those that are there.
//!
//! The counter is placement's and only rises; it is no part of a table's description.

use placement::api::CatalogChange;
use sqlparser::ast::ObjectName;
use syntax::statement::Alter;
use tokio_util::sync::CancellationToken;
use types::Table;
use values::error::{SqlResult, nothing_to_number, number_given};

use crate::session::Session;
use crate::session::write::derived::Pair;
use crate::session::write::insert::whole;
use definitions::{has_numbers, number_of};
use execution::reply::Reply;

impl Session {
    /// Makes a table by a change of the catalog, with its first number.
    pub(super) async fn make_as(
        &self,
        change: CatalogChange,
        first_number: u64,
    ) -> types::Result<Option<Table>> {
        let storage = &self.engine.storage;
        let Some(table) = storage.change(change).await? else {
            return Ok(None);
        };
        // Before any region knows the table: no row has a number yet.
        if first_number > 1 {
            storage.raise_auto_increment(table.id, first_number - 1).await?;
        }
        storage.publish_schema(&table).await?;
        Ok(Some(table))
    }

    /// ALTER TABLE, with AUTO_INCREMENT = n if it is among the actions.
    pub(super) async fn alter_numbered(
        &mut self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let mut numbers = actions.iter().filter_map(|action| match action {
            Alter::Number(number) => Some(*number),
            _ => None,
        });
        let Some(number) = numbers.next_back() else {
            return self.alter_table(name, actions, cancel).await;
        };
        // It may have another name afterwards.
        let table = self.current(name).await?;
        let reply = self.alter_table(name, actions, cancel).await?;
        if !has_numbers(&table) {
            self.diagnostics.warn(nothing_to_number());
            return Ok(reply);
        }
        let storage = self.engine.storage.clone();
        if number > 1 {
            storage.raise_auto_increment(table.id, number - 1).await?;
        }
        let next = storage.next_auto_increment(table.id).await?;
        if next > number.max(1) {
            self.diagnostics.warn(number_given(number, next));
        }
        Ok(reply)
    }

    /// Raises the counter to numbers that rows are changed to: those that are given later must not
    /// meet them.
    pub(in crate::session) async fn count_changed(
        &self,
        table: &Table,
        pairs: &[Pair],
    ) -> SqlResult<()> {
        let Some(at) = number_of(table) else { return Ok(()) };
        let changed = pairs.iter().filter(|(old, new)| old.get(at) != new.get(at));
        // Behind the very last number none is left to be given.
        let number = |new: &Vec<types::Value>| whole(new.get(at)).min(u64::MAX - 1);
        let highest = changed.map(|(_, new)| number(new)).max().unwrap_or(0);
        if highest > 0 {
            self.engine.storage.raise_auto_increment(table.id, highest).await?;
        }
        Ok(())
    }
}
