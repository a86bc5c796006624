//! Statements that write: their changes are computed first, then written into the transaction,
//! statement by statement all or nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sqlparser::ast::{Delete, Insert, Update};
use types::{Table, Value};

use super::locking::Finding;
use super::{ATTEMPTS, DEADLOCK, Open, Session, impossible, pause};
use crate::error::SqlResult;
use crate::result::{Done, Reply, SqlError};
use crate::rows;
use crate::statement::Mode;
use crate::storage::{Expect, Waiting};

/// A statement that writes.
#[derive(Clone)]
pub enum Write {
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE.
    Delete(Box<Delete>),
}

/// Changes of one statement, computed and not yet written.
pub(super) enum Changes {
    /// New rows, and the first number given to one.
    Insert { rows: Vec<Vec<Value>>, first_id: u64 },
    /// Rows before and after.
    Update { pairs: Vec<(Vec<Value>, Vec<Value>)> },
    /// Rows that go.
    Delete { rows: Vec<Vec<Value>> },
}

impl Changes {
    /// Keys that must be free before.
    fn taken(&self, table: &Table) -> types::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        match self {
            Changes::Insert { rows, .. } => {
                for row in rows {
                    keys.extend(rows::unique_keys(table, row)?);
                }
            }
            Changes::Update { pairs } => {
                for (old, new) in pairs {
                    keys.extend(rows::newly_taken(table, old, new)?);
                }
            }
            Changes::Delete { .. } => {}
        }
        Ok(keys)
    }

    /// Keys that rows give up, perhaps to others of the statement.
    fn leaving(&self, table: &Table) -> types::Result<BTreeSet<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        if let Changes::Update { pairs } = self {
            for (old, _) in pairs {
                keys.extend(rows::unique_keys(table, old)?);
            }
        }
        Ok(keys)
    }
}

impl Session {
    /// Runs a statement that writes, within the open transaction or as one of its own.
    pub(super) async fn write(
        &mut self,
        mut write: Write,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        if self.snapshot.is_some() {
            return Err(SqlError::new(
                1792,
                b"25006",
                "Cannot execute statement in a READ ONLY transaction: SET isobar_snapshot = '' first",
            ));
        }
        match &mut write {
            Write::Insert(insert) => self.inline(insert, parameters).await?,
            Write::Update(update) => self.inline(update, parameters).await?,
            Write::Delete(delete) => self.inline(delete, parameters).await?,
        }
        if let Some(open) = self.enclosing().await? {
            return self.write_within(&write, &open, true).await;
        }
        for attempt in 1.. {
            // Who has lost once waits for rows in line with others from then on.
            let mode = if attempt == 1 { Mode::Optimistic } else { Mode::Pessimistic };
            let open = self.begin(mode).await?;
            if let Some(transaction) = open.shared.lock().await.as_mut() {
                transaction.wait_for_rows(Duration::ZERO);
            }
            let written = self.write_within(&write, &open, false).await;
            self.open = None;
            let reply = match written {
                Err(error) if error.code == DEADLOCK && attempt < ATTEMPTS => {
                    drop(open);
                    pause(attempt).await;
                    continue;
                }
                written => written?,
            };
            let Some(transaction) = open.shared.lock().await.take() else { break };
            let held = self.shield.hold();
            let committed = transaction.commit().await;
            drop(held);
            match committed {
                Ok(_) => return Ok(reply),
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    if attempt > 1 {
                        pause(attempt).await;
                    }
                }
                Err(error) => {
                    let catalog = self.engine.storage.catalog().await?;
                    return Err(rows::error(error, &catalog.tables));
                }
            }
        }
        Err(impossible("a transaction ended on its own"))
    }

    async fn write_within(
        &mut self,
        write: &Write,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let finding = self.finding(open);
        let (table, changes) = match write {
            Write::Insert(insert) => self.insert_rows(insert, &catalog, &finding).await?,
            Write::Update(update) => self.update_pairs(update, &catalog, &finding).await?,
            Write::Delete(delete) => self.delete_rows(delete, &catalog, &finding).await?,
        };
        let owned = match &finding {
            Finding::Lock(open, waiting, _) => {
                self.contend(&table, &changes, (open, *waiting)).await?
            }
            Finding::Read(_) => self.foresee(&table, &changes, open, explicit).await?,
        };
        self.apply(&table, changes, open, &owned).await
    }

    /// Locks what changes take or leave besides the rows themselves; a duplicate is told at once.
    async fn contend(
        &self,
        table: &Arc<Table>,
        changes: &Changes,
        (open, waiting): (&Open, Waiting),
    ) -> SqlResult<rows::Owned> {
        let mut keys = Vec::new();
        let expect = match changes {
            Changes::Insert { rows, .. } => {
                for row in rows {
                    keys.extend(rows::unique_keys(table, row)?);
                }
                Expect::NoRows
            }
            Changes::Update { pairs } => {
                for (old, new) in pairs {
                    keys.extend(rows::contested(table, old, new)?);
                }
                // Some are left, others taken.
                Expect::Nothing
            }
            Changes::Delete { rows } => {
                for row in rows {
                    keys.extend(rows::unique_entries(table, row)?);
                }
                Expect::Rows
            }
        };
        let acquired = self.acquire((open, waiting, expect), table, keys, None).await?.rows;
        let taken = changes.taken(table)?;
        let leaving = changes.leaving(table)?;
        let live = acquired.iter().filter(|one| one.live && taken.contains(&one.key));
        if let Some(one) = live.into_iter().find(|one| !leaving.contains(&one.key)) {
            return Err(rows::duplicate(table, &one.key));
        }
        Ok(rows::Owned::of(acquired.into_iter().filter_map(|one| Some((one.key, one.row?)))))
    }

    /// Looks for what would stand in the way of changes. Within an explicit transaction a duplicate
    /// is told at once; alone, at commit.
    async fn foresee(
        &self,
        table: &Arc<Table>,
        changes: &Changes,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<rows::Owned> {
        let guard = open.shared.lock().await;
        let transaction = guard.as_ref().ok_or_else(|| impossible("the transaction has ended"))?;
        let taken = changes.taken(table)?;
        if explicit && !taken.is_empty() {
            let present = transaction.get(taken.into_iter().collect()).await?;
            let leaving = changes.leaving(table)?;
            if let Some((key, _)) = present.iter().find(|(key, _)| !leaving.contains(key)) {
                return Err(rows::duplicate(table, key));
            }
        }
        Ok(match changes {
            Changes::Insert { .. } => rows::Owned::default(),
            Changes::Update { pairs } => {
                let olds = pairs.iter().map(|(old, _)| old);
                rows::Owned::find(transaction.as_ref(), table, olds).await?
            }
            Changes::Delete { rows } => {
                rows::Owned::find(transaction.as_ref(), table, rows.iter()).await?
            }
        })
    }

    /// Writes computed changes; a failure takes back what the statement wrote.
    async fn apply(
        &mut self,
        table: &Arc<Table>,
        changes: Changes,
        open: &Open,
        owned: &rows::Owned,
    ) -> SqlResult<Reply> {
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let before = transaction.savepoint();
        let into = transaction.as_mut();
        let written = match &changes {
            Changes::Insert { rows, .. } => {
                rows.iter().try_for_each(|row| rows::insert(into, table, row))
            }
            Changes::Delete { rows } => {
                rows.iter().try_for_each(|row| rows::delete(into, table, row, owned))
            }
            Changes::Update { pairs } => pairs
                .iter()
                .filter(|(old, new)| old != new)
                .try_for_each(|(old, new)| rows::update(into, table, old, new, owned)),
        };
        if let Err(error) = written {
            transaction.rollback_to(before);
            return Err(rows::error(error, std::slice::from_ref(table)));
        }
        drop(guard);
        Ok(Reply::Done(self.summary(&changes)))
    }

    fn summary(&mut self, changes: &Changes) -> Done {
        match changes {
            Changes::Insert { rows, first_id } => {
                if *first_id > 0 {
                    self.last_insert_id = *first_id;
                }
                let count = rows.len();
                let info = match count {
                    0 | 1 => String::new(),
                    _ => format!("Records: {count}  Duplicates: 0  Warnings: 0"),
                };
                Done { affected_rows: count as u64, last_insert_id: *first_id, warnings: 0, info }
            }
            Changes::Update { pairs } => {
                let found = pairs.len();
                let changed = pairs.iter().filter(|(old, new)| old != new).count();
                let info = format!("Rows matched: {found}  Changed: {changed}  Warnings: 0");
                let affected = if self.info.found_rows { found } else { changed };
                Done { affected_rows: affected as u64, last_insert_id: 0, warnings: 0, info }
            }
            Changes::Delete { rows } => {
                Done { affected_rows: rows.len() as u64, ..Done::default() }
            }
        }
    }
}
