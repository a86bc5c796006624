//! Rows that are there, written anew with the values of columns that are being added, hidden.
//!
//! It begins when no writer is left who leaves such a column out, and takes a bounded number of rows
//! at a time, each as it is then: what writers do meanwhile is never undone. Leases show others that
//! it goes on, however long it takes.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use types::{LeaseId, Table, TableId, Value, key, row};
use values::error::{DEADLOCK, SqlError, SqlResult, columns_changed, interrupted};

use super::publish::is_as;
use crate::session::{ATTEMPTS, Session, pause};
use storage::rows;
use storage::{Expect, Taking, Transaction, Waiting};

/// Most rows that are written anew by one transaction.
const ROWS: usize = 2_000;
/// How long is waited for rows that transactions hold, in milliseconds.
const ROW_WAIT_MS: u64 = 50_000;
/// How long a sign of life is good for.
const SIGN: Duration = Duration::from_secs(60);
/// How often another one is given.
const RENEWED: Duration = Duration::from_secs(10);

impl Session {
    /// Gives every row the values of the hidden columns of a description that writers know.
    pub(super) async fn fill(&self, half: Table, cancel: &CancellationToken) -> SqlResult<Table> {
        // One version more: now nobody is left who writes rows without the columns.
        let table = self.publish(half.clone(), |_| Ok(())).await?;
        if !is_as(&table, &half) {
            return Err(others_first(&table));
        }
        let described = Arc::new(table.clone());
        let filling = async {
            self.settle(&described).await?;
            self.fill_rows(&described).await
        };
        cancel.run_until_cancelled(filling).await.ok_or_else(interrupted)??;
        Ok(table)
    }

    /// Does what takes long with a table, and gives signs of life meanwhile.
    pub(super) async fn showing_life<T>(
        &self,
        table: TableId,
        work: impl Future<Output = SqlResult<T>>,
    ) -> SqlResult<T> {
        let storage = &self.engine.storage;
        let lease = Mutex::new(storage.take_lease(None, SIGN, &filler(table)).await?.id);
        let done = tokio::select! {
            done = work => done,
            never = self.renew(table, &lease) => Err(never),
        };
        let last = *lease.lock();
        if let Err(error) = storage.release_lease(last).await {
            tracing::warn!(%error, "the lease of a change of a table stays until it ends by itself");
        }
        done
    }

    /// Takes one lease after the other, until it is dropped: an old one would hold garbage
    /// collection back.
    async fn renew(&self, table: TableId, lease: &Mutex<LeaseId>) -> SqlError {
        let storage = &self.engine.storage;
        loop {
            sleep(RENEWED).await;
            match storage.take_lease(None, SIGN, &filler(table)).await {
                Ok(next) => {
                    let former = std::mem::replace(&mut *lease.lock(), next.id);
                    _ = storage.release_lease(former).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a change of a table could not renew its lease")
                }
            }
        }
    }

    /// The newest sign of life of a session that is at the rows of a table.
    pub(in crate::session) async fn sign_of_life(
        &self,
        table: TableId,
    ) -> SqlResult<Option<LeaseId>> {
        let owner = filler(table);
        let leases = self.engine.storage.leases().await?;
        Ok(leases.iter().filter(|lease| lease.owner == owner).map(|lease| lease.id).max())
    }

    async fn fill_rows(&self, table: &Arc<Table>) -> SqlResult<()> {
        let mut start = key::records_start(table.id);
        let end = key::records_end(table.id);
        let (mut attempt, mut most, mut filled) = (0, ROWS, 0);
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
            let count = keys.len();
            let written = match self.fill_some(transaction.as_mut(), table, keys, filled + 1).await
            {
                Ok(()) => transaction.commit().await.map(|_| ()).map_err(SqlError::from),
                Err(error) => Err(error),
            };
            match written {
                Ok(()) => {
                    (attempt, most, filled) = (0, ROWS.min(most * 2), filled + count);
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

    /// Rows as they are now, under locks, with what their hidden columns are to be.
    async fn fill_some(
        &self,
        transaction: &mut dyn Transaction,
        table: &Arc<Table>,
        keys: Vec<Vec<u8>>,
        first_row: usize,
    ) -> SqlResult<()> {
        let taking = Taking::alone(Waiting::For(ROW_WAIT_MS), Expect::Nothing);
        let found = transaction.acquire(table, keys, taking, None).await?.rows;
        let mut olds: Vec<Vec<Value>> = Vec::with_capacity(found.len());
        for stored in found.iter().filter_map(|one| one.row.as_ref()) {
            olds.push(row::decode(table, stored)?);
        }
        let news = self.derive_hidden(table, &olds, first_row)?;
        let owned = rows::Owned::default();
        for (old, new) in olds.iter().zip(&news).filter(|(old, new)| old != new) {
            rows::update(transaction, table, old, new, &owned)?;
        }
        Ok(())
    }
}

/// Who owns the lease of a session that is at a table's rows.
fn filler(table: TableId) -> String {
    format!("ALTER TABLE, writing rows of table {table} anew")
}

/// Another ALTER TABLE was at the same table's columns.
pub(super) fn others_first(table: &Table) -> SqlError {
    columns_changed(&table.database, &table.name)
}
