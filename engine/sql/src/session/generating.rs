//! ALTER TABLE … ADD of a generated column.
//!
//! Writers compute it, hidden, before the rows that are there are written anew with their values;
//! it is shown when every row has its own. A snapshot from before shows NULL, or zero where NULL is
//! not allowed.

use std::sync::Arc;

use sqlparser::ast::{ColumnOption, ObjectName};
use tokio_util::sync::CancellationToken;
use types::{ColumnId, Table, Value, key, row};

use super::fitting::Fitting;
use super::publish::check_at_rest;
use super::{ATTEMPTS, DEADLOCK, Session, done, pause};
use crate::error::{SqlResult, interrupted, unsupported};
use crate::result::{Reply, SqlError};
use crate::rows;
use crate::statement::Alter;
use crate::storage::{Expect, Transaction, Waiting};

/// Most rows that are written anew by one transaction.
const ROWS: usize = 2_000;
/// How long is waited for rows that transactions hold, in milliseconds.
const ROW_WAIT_MS: u64 = 50_000;

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
        let filled = self.fill(table.clone(), id, cancel).await;
        let shown = match filled {
            Ok(table) => self.publish(table, |table| self.show_column(table, actions, id)).await,
            Err(error) => Err(error),
        };
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

    /// Computes the column of every row that was written by who does not know it.
    async fn fill(
        &self,
        table: Table,
        id: ColumnId,
        cancel: &CancellationToken,
    ) -> SqlResult<Table> {
        // One version more: now nobody is left who writes rows without the column.
        let table = self.publish(table, |_| Ok(())).await?;
        if table.column(id).is_none() {
            return Err(others_first(&table));
        }
        let described = Arc::new(table.clone());
        let filling = async {
            self.settle(&described).await?;
            self.fill_rows(&described, id).await
        };
        cancel.run_until_cancelled(filling).await.ok_or_else(interrupted)??;
        Ok(table)
    }

    async fn fill_rows(&self, table: &Arc<Table>, id: ColumnId) -> SqlResult<()> {
        let mut start = key::records_start(table.id);
        let end = key::records_end(table.id);
        let (mut attempt, mut most) = (0, ROWS);
        loop {
            let mut transaction = self.engine.storage.begin().await?;
            let mut scan = transaction.scan(start.clone(), end.clone(), false, Some(most as u32));
            let mut keys = Vec::new();
            while keys.len() < most {
                let Some(page) = scan.next_page().await? else { break };
                keys.extend(page.into_iter().map(|(key, _)| key).take(most - keys.len()));
            }
            drop(scan);
            let Some(last) = keys.last().cloned() else { return Ok(()) };
            let written = match self.fill_some(transaction.as_mut(), (table, id), keys).await {
                Ok(()) => transaction.commit().await.map(|_| ()).map_err(SqlError::from),
                Err(error) => Err(error),
            };
            match written {
                Ok(()) => {
                    (attempt, most) = (0, ROWS.min(most * 2));
                    start = last;
                    start.push(0);
                }
                // A deadlock with a writer: rare, and rarer with fewer rows.
                Err(error) if error.code == DEADLOCK && attempt < ATTEMPTS => {
                    (attempt, most) = (attempt + 1, (most / 4).max(1));
                    pause(attempt).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Rows as they are now, under locks, with what one of their columns is to be.
    async fn fill_some(
        &self,
        transaction: &mut dyn Transaction,
        (table, id): (&Arc<Table>, ColumnId),
        keys: Vec<Vec<u8>>,
    ) -> SqlResult<()> {
        let (waiting, expect) = (Waiting::For(ROW_WAIT_MS), Expect::Nothing);
        let found = transaction.acquire(table, keys, waiting, None, expect).await?.rows;
        let mut olds: Vec<Vec<Value>> = Vec::with_capacity(found.len());
        for stored in found.iter().filter_map(|one| one.row.as_ref()) {
            olds.push(row::decode(table, stored)?);
        }
        let mut news = olds.clone();
        self.derive_generated(table, &mut news, &mut Fitting::Strict)?;
        // What the other columns were computed to be stays, whatever they would be today.
        let at = table.columns.iter().position(|column| column.id == id);
        for (old, new) in olds.iter().zip(&mut news) {
            let value = at.and_then(|at| new.get(at)).cloned();
            new.clone_from(old);
            if let (Some(slot), Some(value)) = (at.and_then(|at| new.get_mut(at)), value) {
                *slot = value;
            }
        }
        let owned = rows::Owned::default();
        for (old, new) in olds.iter().zip(&news).filter(|(old, new)| old != new) {
            rows::update(transaction, table, old, new, &owned)?;
        }
        Ok(())
    }
}

/// The number of the column that a description has and the one before has not.
fn arriving(before: &Table, after: &Table) -> Option<ColumnId> {
    let new = |column: &&types::Column| before.column(column.id).is_none();
    after.columns.iter().find(new).map(|column| column.id)
}

/// Another ALTER TABLE was at the same table's columns.
fn others_first(table: &Table) -> SqlError {
    let text = format!(
        "Table definition has changed, please retry transaction: columns of table '{}.{}' were \
         changed by another statement meanwhile",
        table.database, table.name
    );
    SqlError::new(1412, b"HY000", text)
}
