//! Statements that write: their changes are computed first, then written into the transaction,
//! statement by statement all or nothing.

use std::sync::Arc;

use sqlparser::ast::{Delete, Insert, Update};
use types::{Table, Value};

use super::{ATTEMPTS, Open, Session, impossible, pause};
use crate::error::SqlResult;
use crate::reader::Reader;
use crate::result::{Done, Reply, SqlError};
use crate::rows;

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
            let open = self.begin().await?;
            let written = self.write_within(&write, &open, false).await;
            self.open = None;
            let reply = written?;
            let Some(transaction) = open.shared.lock().await.take() else { break };
            match transaction.commit().await {
                Ok(_) => return Ok(reply),
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => pause(attempt).await,
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
        let reader = Reader::Transaction(open.shared.clone(), open.ts);
        let (table, changes) = match write {
            Write::Insert(insert) => self.insert_rows(insert, &catalog, &reader).await?,
            Write::Update(update) => self.update_pairs(update, &catalog, &reader).await?,
            Write::Delete(delete) => self.delete_rows(delete, &catalog, &reader).await?,
        };
        self.apply(&table, changes, open, explicit).await
    }

    /// Writes computed changes; a failure takes back what the statement wrote.
    async fn apply(
        &mut self,
        table: &Arc<Table>,
        changes: Changes,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let before = transaction.savepoint();
        // Within an explicit transaction a duplicate is told at once; alone, at commit.
        let taken = match &changes {
            Changes::Insert { rows, .. } => {
                let mut keys = Vec::new();
                for row in rows {
                    keys.extend(rows::unique_keys(table, row)?);
                }
                keys
            }
            Changes::Update { pairs } => {
                let mut keys = Vec::new();
                for (old, new) in pairs {
                    keys.extend(rows::newly_taken(table, old, new)?);
                }
                keys
            }
            Changes::Delete { .. } => Vec::new(),
        };
        if explicit && !taken.is_empty() {
            let present = transaction.get(taken).await?;
            let leaving: Vec<Vec<u8>> = match &changes {
                Changes::Update { pairs } => {
                    let mut keys = Vec::new();
                    for (old, _) in pairs {
                        keys.extend(rows::unique_keys(table, old)?);
                    }
                    keys
                }
                _ => Vec::new(),
            };
            if let Some((key, _)) = present.iter().find(|(key, _)| !leaving.contains(key)) {
                return Err(rows::duplicate(table, key));
            }
        }
        let owned = match &changes {
            Changes::Insert { .. } => rows::Owned::default(),
            Changes::Update { pairs } => {
                let olds = pairs.iter().map(|(old, _)| old);
                rows::Owned::find(transaction.as_ref(), table, olds).await?
            }
            Changes::Delete { rows } => {
                rows::Owned::find(transaction.as_ref(), table, rows.iter()).await?
            }
        };
        let into = transaction.as_mut();
        let written = match &changes {
            Changes::Insert { rows, .. } => {
                rows.iter().try_for_each(|row| rows::insert(into, table, row))
            }
            Changes::Delete { rows } => {
                rows.iter().try_for_each(|row| rows::delete(into, table, row, &owned))
            }
            Changes::Update { pairs } => pairs
                .iter()
                .filter(|(old, new)| old != new)
                .try_for_each(|(old, new)| rows::update(into, table, old, new, &owned)),
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
