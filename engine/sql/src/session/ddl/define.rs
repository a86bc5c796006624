//! Statements that change what things are called: databases, tables, indexes, replicas, regions.
//!
//! A new description reaches every region of its table before rows of its version are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use placement::api::CatalogChange;
use sqlparser::ast::{CreateIndex, ObjectName};
use syntax::names::{parts, table_name};
use syntax::statement::{Alter, Stmt};
use tokio_util::sync::CancellationToken;
use types::{Error, Index, IndexId, IndexState, Table, key, row};
use values::error::{
    SqlError, SqlResult, TABLE_EXISTS, cannot_drop, cannot_drop_database, fewer_regions,
    index_dropped_meanwhile, interrupted, no_database, no_event, no_event_there, no_routine,
    no_trigger, too_many_replicas, unknown_tables, unsupported, wrong_region_count,
};

use super::checks;
use super::generating;
use super::referring;
use crate::session::query::tables::stored;
use crate::session::{ATTEMPTS, Session, done, impossible, pause};
use definitions::Described;
use definitions::keys::{self, Form};
use execution::reply::{Done, Reply};
use storage::{Expect, Taking, Waiting};

/// Most rows of an index that are filled in by one transaction.
const BACKFILL: usize = 4_000;
/// How long the filling in of an index waits for rows that transactions hold, in milliseconds.
const ROW_WAIT_MS: u64 = 50_000;
/// Most regions that SPLIT TABLE makes.
const MAX_SPLIT: u32 = 1_000;
/// Most columnar replicas.
const MAX_REPLICAS: u8 = 16;

impl Session {
    /// Runs a definition. Its future is large, and so no part of every statement's.
    pub(in crate::session) fn define<'a>(
        &'a mut self,
        statement: Stmt,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        Box::pin(self.define_as(statement, cancel))
    }

    async fn define_as(&mut self, statement: Stmt, cancel: &CancellationToken) -> SqlResult<Reply> {
        self.engine.storage.timestamp().await?;
        match statement {
            Stmt::CreateDatabase { name, if_not_exists } => {
                self.create_database(name, if_not_exists).await
            }
            Stmt::DropDatabase { name, if_exists } => self.drop_database(name, if_exists).await,
            Stmt::AlterDatabase(name) => self.alter_database(name).await,
            Stmt::CreateTable(create) => self.create_table(&create).await,
            Stmt::DropTable { names, if_exists } => self.drop_tables(&names, if_exists).await,
            Stmt::CreateIndex(create) => {
                let (form, warnings) = keys::index_form(&create)?;
                let reply = self.create_index(&create, form, cancel).await?;
                warnings.into_iter().for_each(|warning| self.diagnostics.warn(warning));
                Ok(reply)
            }
            Stmt::DropIndex { name, table } => self.drop_index(&name, &table).await,
            Stmt::AlterTable { table, actions } => {
                let actions = self.by_kind(&table, actions).await?;
                self.alter_as(&table, &actions, cancel).await
            }
            Stmt::DropAbsent { kind, name, if_exists } => self.drop_absent(&kind, &name, if_exists),
            Stmt::PutView(view) => self.put_view(*view).await,
            Stmt::DropViews { names, if_exists } => self.drop_views(&names, if_exists).await,
            Stmt::Truncate(table) => self.truncate(&table).await,
            Stmt::RenameTables(names) => self.rename_tables(&names).await,
            Stmt::SetReplica { table, count } => self.set_replicas(&table, count).await,
            Stmt::SplitTable { table, regions } => self.split_table(&table, regions).await,
            other => Err(unsupported(format!("{other:?}").chars().take(40).collect::<String>())),
        }
    }

    /// ALTER TABLE, by what is among its actions.
    async fn alter_as(
        &mut self,
        table: &ObjectName,
        actions: &[Alter],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        if actions.iter().any(referring::is_foreign_key) {
            self.alter_keys(table, actions, cancel).await
        } else if actions.iter().any(checks::is_check) {
            self.alter_checks(table, actions, cancel).await
        } else if actions.iter().any(generating::is_generated) {
            self.add_generated(table, actions, cancel).await
        } else {
            self.alter_numbered(table, actions, cancel).await
        }
    }

    /// A stored table, as of now.
    pub(in crate::session) async fn current(&self, name: &ObjectName) -> SqlResult<Table> {
        let name = table_name(name, self.variables.database())?;
        let catalog = self.engine.storage.catalog().await?;
        Ok((*stored(&catalog, &name.database, &name.table)?).clone())
    }

    async fn create_database(&mut self, name: String, if_not_exists: bool) -> SqlResult<Reply> {
        match self.engine.storage.change(CatalogChange::CreateDatabase(name)).await {
            Err(error @ Error::Exists { .. }) if if_not_exists => {
                self.note(error.into());
                Ok(done())
            }
            other => other
                .map(|_| Reply::Done(Done { affected_rows: 1, ..Done::default() }))
                .map_err(Into::into),
        }
    }

    async fn drop_index(&mut self, name: &str, table: &ObjectName) -> SqlResult<Reply> {
        let table = self.current(table).await?;
        if table.index_named(name).is_none() {
            return Err(cannot_drop(name));
        }
        self.alter(table, |t| t.indexes.retain(|i| !i.name.eq_ignore_ascii_case(name))).await?;
        Ok(done())
    }

    /// SET COLUMNAR REPLICA n.
    async fn set_replicas(&mut self, table: &ObjectName, wanted: u64) -> SqlResult<Reply> {
        let Some(count) = u8::try_from(wanted).ok().filter(|count| *count <= MAX_REPLICAS) else {
            return Err(too_many_replicas(wanted, MAX_REPLICAS));
        };
        let table = self.current(table).await?;
        self.alter(table, |table| table.columnar_replicas = count).await?;
        Ok(done())
    }

    /// SPLIT TABLE … REGIONS n.
    async fn split_table(&mut self, table: &ObjectName, wanted: u64) -> SqlResult<Reply> {
        let regions = u32::try_from(wanted).ok().filter(|n| (1..=MAX_SPLIT).contains(n));
        let Some(regions) = regions else {
            return Err(wrong_region_count(MAX_SPLIT));
        };
        let table = self.current(table).await?;
        let now = self.engine.storage.split_table(&table, regions).await?;
        if (now as u64) < wanted {
            self.diagnostics.warn(fewer_regions(now));
        }
        Ok(done())
    }

    async fn drop_database(&mut self, name: String, if_exists: bool) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let tables = catalog.tables_of(&name).count() as u64;
        if self.checks_foreign_keys()? {
            let going = catalog.tables_of(&name).map(|table| table.id).collect();
            let mut all = catalog.tables_of(&name);
            all.try_for_each(|table| self.check_unreferred(&catalog, table, &going))?;
        }
        match self.engine.storage.change(CatalogChange::DropDatabase(name.clone())).await {
            Ok(_) => {
                if self.variables.database().eq_ignore_ascii_case(&name) {
                    self.variables.set_database(String::new());
                }
                Ok(Reply::Done(Done { affected_rows: tables, ..Done::default() }))
            }
            Err(Error::NotFound { .. }) => {
                if if_exists {
                    self.note(cannot_drop_database(name));
                    return Ok(done());
                }
                Err(cannot_drop_database(name))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn create_table(&mut self, create: &sqlparser::ast::CreateTable) -> SqlResult<Reply> {
        let described = match &create.like {
            // As in MySQL, without the other table's foreign keys.
            Some(like) => Described::of(self.like(&create.name, like).await?),
            None => definitions::describe(create, self.variables.database())?,
        };
        let Described { table, foreign_keys, first_number, warnings } = described;
        let catalog = self.engine.storage.catalog().await?;
        if catalog.database_named(&table.database).is_none() {
            return Err(no_database(&table.database));
        }
        self.check_expressions(&table)?;
        let name = table.name.clone();
        if catalog.table_named(&table.database, &name).is_some()
            || catalog.view_named(&table.database, &name).is_some()
        {
            return self.is_there(create, &name);
        }
        match self.make_referring(table, foreign_keys, first_number).await {
            Ok(_) => {}
            Err(error) if error.code == TABLE_EXISTS => return self.is_there(create, &name),
            Err(error) => return Err(error),
        }
        warnings.into_iter().for_each(|warning| self.diagnostics.warn(warning));
        Ok(done())
    }

    async fn drop_tables(&mut self, names: &[ObjectName], if_exists: bool) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for name in names {
            let name = table_name(name, self.variables.database())?;
            match stored(&catalog, &name.database, &name.table) {
                Ok(table) => known.push(table),
                Err(_) => unknown.push(format!("{}.{}", name.database, name.table)),
            }
        }
        self.drop_all(known).await?;
        self.dropped(&unknown, if_exists)
    }

    /// DROP of what there is none of: an error, or a note.
    fn drop_absent(&mut self, kind: &str, name: &ObjectName, if_exists: bool) -> SqlResult<Reply> {
        let (database, name) = definitions::spelled(name, self.variables.database())?;
        let error = match kind {
            "TRIGGER" => no_trigger(),
            "EVENT" if if_exists => no_event_there(name),
            "EVENT" => no_event(name),
            _ => no_routine(kind, database, name),
        };
        if if_exists {
            self.note(error);
            return Ok(done());
        }
        Err(error)
    }

    /// The end of a DROP of several names, of which these were not there: error 1051, or a note.
    pub(in crate::session) fn dropped(
        &mut self,
        unknown: &[String],
        if_exists: bool,
    ) -> SqlResult<Reply> {
        if unknown.is_empty() {
            return Ok(done());
        }
        let unknown = unknown_tables(unknown.join(","));
        if if_exists {
            self.note(unknown);
            return Ok(done());
        }
        Err(unknown)
    }

    /// CREATE INDEX: adds it in its first state and leads it to its last; takes it back where that
    /// fails or is interrupted.
    async fn create_index(
        &mut self,
        create: &CreateIndex,
        form: Form,
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        let table = self.current(&create.table_name).await?;
        let name = create.name.as_ref().map(|name| parts(name).pop().unwrap_or_default());
        let table = self
            .publish(table, |table| {
                // By name each time: others may have renamed or dropped columns meanwhile.
                let key = keys::key(&create.columns, form, table)?;
                let first = keys::first_name(&key, table);
                let mut index = keys::new_index(table, name.clone(), &first, key)?;
                index.state = IndexState::DeleteOnly;
                table.indexes.push(index);
                Ok(())
            })
            .await?;
        let Some(id) = table.indexes.last().map(|index| index.id) else {
            return Err(impossible("an index that was not added"));
        };
        let completed = self.complete_index(table.clone(), id, cancel);
        match self.showing_life(table.id, completed).await {
            Ok(()) => Ok(done()),
            Err(error) => {
                self.alter(table, |table| table.indexes.retain(|index| index.id != id)).await?;
                Err(error)
            }
        }
    }

    /// Leads an index from its first state to its last.
    async fn complete_index(
        &self,
        table: Table,
        id: IndexId,
        cancel: &CancellationToken,
    ) -> SqlResult<()> {
        let table = self.fill_indexes(table, &[id], cancel).await?;
        let since = self.engine.storage.timestamp().await?;
        self.publish(table, enter(&[id], IndexState::Public { since })).await?;
        Ok(())
    }

    /// Leads indexes from their first state to the one before their last: all rows have their
    /// entries. Regions take rows of the newest two versions only, so with each version the writers
    /// of the last but one are shut out.
    pub(super) async fn fill_indexes(
        &self,
        table: Table,
        ids: &[IndexId],
        cancel: &CancellationToken,
    ) -> SqlResult<Table> {
        let table = self.publish(table, enter(ids, IndexState::WriteOnly)).await?;
        // Once more: now nobody is left who would add a row without its entries.
        let table = self.publish(table, enter(ids, IndexState::WriteOnly)).await?;
        let filled = Arc::new(table.clone());
        let fill = async {
            self.settle(&filled).await?;
            for index in &filled.indexes {
                if ids.contains(&index.id) {
                    self.backfill(&filled, index).await?;
                }
            }
            Ok::<(), SqlError>(())
        };
        cancel.run_until_cancelled(fill).await.ok_or_else(interrupted)??;
        Ok(table)
    }

    /// Waits until every transaction has ended that had locked rows before now: one of them may
    /// commit after the back-fill has read its keys, and know nothing of the index. A read does not
    /// pass locks older than itself.
    pub(super) async fn settle(&self, table: &Table) -> SqlResult<()> {
        let now = self.engine.storage.present().await?;
        let (start, end) = (key::records_start(table.id), key::records_end(table.id));
        let mut scan = now.scan(start, end, false, None);
        while scan.next_page().await?.is_some() {}
        Ok(())
    }

    /// Entries of an index for rows that were there before it.
    async fn backfill(&self, table: &Arc<Table>, index: &Index) -> SqlResult<()> {
        let mut start = key::records_start(table.id);
        let end = key::records_end(table.id);
        let (mut attempt, mut most) = (0, BACKFILL);
        loop {
            let mut transaction = self.engine.storage.begin().await?;
            let mut scan = transaction.scan(start.clone(), end.clone(), false, Some(most as u32));
            let (mut last, mut lost) = (None, None);
            let mut count = 0;
            while count < most && lost.is_none() {
                let Some(page) = scan.next_page().await? else { break };
                let page: Vec<_> = page.into_iter().take(most - count).collect();
                count += page.len();
                last = page.last().map(|(key, _)| key.clone()).or(last);
                lost = add_entries(transaction.as_mut(), table, index, &page).await.err();
            }
            let Some(last) = last else { return Ok(()) };
            let committed = match lost {
                Some(error) => Err(error),
                None => transaction.commit().await,
            };
            match committed {
                Ok(_) => {
                    (attempt, most) = (0, BACKFILL.min(most * 2));
                    start = last;
                    start.push(0);
                }
                // A deadlock with a writer, or locks that a leader lost: rare, and rarer with fewer
                // rows.
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    (attempt, most) = (attempt + 1, (most / 4).max(1));
                    pause(attempt).await;
                }
                Err(error) => return Err(storage::rows::error(error, std::slice::from_ref(table))),
            }
        }
    }
}

/// Puts indexes into a state.
pub(super) fn enter(ids: &[IndexId], state: IndexState) -> impl Fn(&mut Table) -> SqlResult<()> {
    move |table| {
        for id in ids {
            let Some(index) = table.indexes.iter_mut().find(|index| index.id == *id) else {
                return Err(index_dropped_meanwhile());
            };
            index.state = state;
        }
        Ok(())
    }
}

/// Adds the entries of a page of rows; those that writers have added already stay.
///
/// The rows are locked and taken as they are then, so that writers cannot keep the back-fill from
/// ending by changing rows faster than it reads them.
async fn add_entries(
    transaction: &mut dyn storage::Transaction,
    table: &Arc<Table>,
    index: &Index,
    page: &[storage::Pair],
) -> types::Result<()> {
    let start = transaction.ts();
    let taking = Taking::alone(Waiting::For(ROW_WAIT_MS), Expect::Nothing);
    let records = page.iter().map(|(record, _)| record.clone()).collect();
    let rows = transaction.acquire(table, records, taking, None).await?.rows;
    let mut entries = BTreeMap::new();
    let mut locked = Vec::new();
    for current in rows {
        let Some(stored) = &current.row else { continue };
        let (entry, tail) = key::index_entry(table, index, &row::decode(table, stored)?)?;
        // Others may have written the entry too: another row of a unique index, or the writer that
        // changed the row since the transaction began. What they left is seen under a lock only.
        if !tail.is_empty() || current.newest > start {
            locked.push(entry.clone());
        }
        // The row must not change between this reading and the commit of its entry.
        transaction.lock(table, current.key)?;
        if entries.insert(entry.clone(), tail).is_some() {
            return Err(Error::Duplicate { index: index.name.clone(), key: entry });
        }
    }
    if !locked.is_empty() {
        for present in transaction.acquire(table, locked, taking, None).await?.rows {
            let Some(there) = present.row else { continue };
            if entries.remove(&present.key).is_some_and(|tail| tail != there) {
                return Err(Error::Duplicate { index: index.name.clone(), key: present.key });
            }
        }
    }
    for (entry, tail) in entries {
        transaction.put(table, entry, tail)?;
    }
    Ok(())
}
