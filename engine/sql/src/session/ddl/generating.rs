//! ALTER TABLE … ADD of a generated column.
//!
//! Writers compute it, hidden, before the rows that are there are written anew with their values;
//! it is shown when every row has its own. A snapshot from before shows NULL, or zero where NULL is
//! not allowed.

use sqlparser::ast::{ColumnOption, ObjectName};
use syntax::statement::Alter;
use tokio_util::sync::CancellationToken;
use types::{ColumnId, Table};
use values::error::{SqlResult, unsupported};

use super::filling::others_first;
use super::publish::check_at_rest;
use crate::session::{Session, done};
use execution::reply::Reply;

/// Whether an action adds a generated column.
pub(super) fn is_generated(action: &Alter) -> bool {
    let Alter::Add { column, .. } = action else { return false };
    column.options.iter().any(|option| matches!(option.option, ColumnOption::Generated { .. }))
}

impl Session {
    /// ALTER TABLE … ADD of one generated column.
    pub(super) async fn add_generated(
        &mut self,
        name: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        if actions.len() > 1 {
            return Err(unsupported(
                "ADD of a generated column beside other actions (rows are written anew; give it a \
                 statement of its own)",
            ));
        }
        let before = self.at_rest(name, cancel).await?;
        let after = self.described_after(&before, actions)?;
        self.check_expressions(&after)?;
        let Some(id) = arriving(&before, &after) else { return Ok(done()) };
        let table = self
            .publish(before, |table| {
                check_at_rest(table)?;
                let after = self.described_after(table, actions)?;
                let column = after.columns.into_iter().find(|column| column.id == id);
                // Its number was taken meanwhile by a column of somebody else's.
                let mut column = column.ok_or_else(|| others_first(table))?;
                column.name = format!("_isobar_column_{}_{id}", table.id);
                column.hidden = true;
                table.columns.push(column);
                Ok(())
            })
            .await?;
        let filling = async {
            let filled = self.fill(table.clone(), cancel).await?;
            self.publish(filled, |table| self.show_column(table, actions, id)).await
        };
        let shown = self.showing_life(table.id, filling).await;
        let Err(error) = shown else { return Ok(done()) };
        let back = self.publish(table, |table| {
            table.columns.retain(|column| column.id != id || !column.hidden);
            Ok(())
        });
        if let Err(also) = back.await {
            tracing::warn!(error = also.message, "a column of a failed ALTER TABLE stays hidden");
        }
        Err(error)
    }

    /// The last version: the column under its name and at its place.
    fn show_column(&self, table: &mut Table, actions: &[Alter], id: ColumnId) -> SqlResult<()> {
        let hidden = table.columns.iter().position(|column| column.id == id && column.hidden);
        let hidden = hidden.ok_or_else(|| others_first(table))?;
        let filled = table.columns.remove(hidden);
        let mut after = self.described_after(table, actions)?;
        // The number that it is given there is a new one: this column keeps its own.
        let new = arriving(table, &after).ok_or_else(|| others_first(table))?;
        for column in after.columns.iter_mut().filter(|column| column.id == new) {
            column.id = id;
            if column.default != filled.default {
                return Err(others_first(table));
            }
        }
        table.columns = after.columns;
        Ok(())
    }
}

/// The number of the column that a description has and the one before has not.
fn arriving(before: &Table, after: &Table) -> Option<ColumnId> {
    let new = |column: &&types::Column| before.column(column.id).is_none();
    after.columns.iter().find(new).map(|column| column.id)
}
