//! Statements that write: their changes are computed first, then written into the transaction,
//! statement by statement all or nothing.

use std::sync::Arc;
use std::time::Duration;

use sqlparser::ast::{
    Delete, FromTable, Insert, MysqlInsertPriority, TableFactor, TableWithJoins, Update,
};
use syntax::from;
use syntax::hints;
use syntax::names::table_name;
use syntax::statement::Mode;
use types::{Table, Value};
use values::error::{DEADLOCK, SqlResult, TABLE_CHANGED, delayed, hint_syntax, write_in_the_past};

use super::cascades::{self, Consequence};
use super::changes::Changes;
use super::clauses;
use super::net::NetChange;
use super::upsert;
use crate::session::query::select::hints_of;
use crate::session::transaction::finding::Finding;
use crate::session::transaction::state::Open;
use crate::session::{ATTEMPTS, Session, impossible, pause};
use execution::reply::{Done, Reply};
use storage::rows;
use storage::{Expect, Taking};

/// A statement that writes.
#[derive(Clone)]
pub(in crate::session) enum Write {
    /// INSERT.
    Insert(Box<Insert>),
    /// UPDATE.
    Update(Box<Update>),
    /// DELETE, and whether with IGNORE.
    Delete(Box<Delete>, bool),
}

impl Write {
    /// Whether rows of the same key decide what is written, not only whether it can be.
    fn decides(&self) -> bool {
        match self {
            Write::Insert(insert) => upsert::meets(insert),
            Write::Update(update) => update.or.is_some(),
            Write::Delete(..) => false,
        }
    }

    /// What is no hint in its hint comments and in those of the queries in it.
    fn unknown_hints(&self) -> Vec<String> {
        let (own, within) = match self {
            Write::Insert(insert) => (&insert.optimizer_hints, hints_of(insert)),
            Write::Update(update) => (&update.optimizer_hints, hints_of(update)),
            Write::Delete(delete, _) => (&delete.optimizer_hints, hints_of(delete)),
        };
        let own = own.iter().map(|comment| hints::parse(&comment.text));
        own.chain(within).filter_map(|comment| comment.unknown).collect()
    }

    /// Whether it goes on with what it can, and warns of the rest.
    fn ignores(&self) -> bool {
        match self {
            Write::Insert(insert) => insert.ignore,
            Write::Update(update) => clauses::ignores(update),
            Write::Delete(_, ignore) => *ignore,
        }
    }
}

impl Session {
    /// Runs a statement that writes, within the open transaction or as one of its own.
    pub(in crate::session) async fn write(
        &mut self,
        mut write: Write,
        parameters: &[Value],
    ) -> SqlResult<Reply> {
        if self.transaction.snapshot().is_some() {
            return Err(write_in_the_past());
        }
        self.check_targets(&write).await?;
        match &mut write {
            Write::Insert(insert) => self.inline_for_rows(insert, parameters).await?,
            Write::Update(update) => self.inline_for_rows(update, parameters).await?,
            Write::Delete(delete, _) => self.inline_for_rows(delete, parameters).await?,
        }
        self.check_safe(&write, &self.engine.storage.catalog().await?)?;
        // In strict mode and without IGNORE, warnings of expressions are errors of the statement.
        let strict = !write.ignores() && self.variables.is_strict();
        let expr_warnings = self.variables.expr_warnings();
        self.diagnostics.listen_anew(if strict { expr_warnings.strict() } else { expr_warnings });
        for unknown in write.unknown_hints() {
            self.diagnostics.warn(hint_syntax(unknown));
        }
        if let Some(open) = self.enclosing().await? {
            return self.write_within(&write, &open, true).await;
        }
        if let Write::Insert(insert) = &write
            && insert.priority == Some(MysqlInsertPriority::Delayed)
        {
            let statement = if insert.replace_into { "REPLACE" } else { "INSERT" };
            self.diagnostics.warn(delayed(statement));
        }
        self.write_alone(&write).await
    }

    /// Runs a statement that writes as a transaction of its own, again and again while others are
    /// in its way.
    async fn write_alone(&mut self, write: &Write) -> SqlResult<Reply> {
        // What a row meets decides what is done with it: it is locked before it is looked at.
        let deciding = write.decides() || self.changes_parents(write).await?;
        let (said, generated) = (self.diagnostics.mark(), self.diagnostics.last_insert_id());
        for attempt in 1.. {
            // Of an attempt that was thrown away nothing stays.
            self.diagnostics.back_to(said);
            if attempt > 1 {
                _ = self.diagnostics.adopt_assigned_id();
                self.diagnostics.set_last_insert_id(generated);
            }
            // Who has lost once waits for rows in line with others from then on.
            let optimistic = attempt == 1 && !deciding;
            let mode = if optimistic { Mode::Optimistic } else { Mode::Pessimistic };
            let open = self.begin(mode).await?;
            if let Some(transaction) = open.shared.lock().await.as_mut() {
                transaction.wait_for_rows(Duration::ZERO);
            }
            let written = self.write_within(write, &open, false).await;
            _ = self.transaction.take();
            let reply = match written {
                Err(error)
                    if matches!(error.code, DEADLOCK | TABLE_CHANGED) && attempt < ATTEMPTS =>
                {
                    drop(open);
                    pause(attempt).await;
                    continue;
                }
                written => written?,
            };
            let Some(transaction) = open.shared.lock().await.take() else { break };
            let held = self.interrupts.hold();
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
                    self.diagnostics.set_last_insert_id(generated);
                    return Err(self.commit_error(error).await);
                }
            }
        }
        Err(impossible("a transaction ended on its own"))
    }

    /// Whether a statement changes or ends rows of a table that others refer to: what becomes of these is decided by rows that are
    /// locked.
    async fn changes_parents(&self, write: &Write) -> SqlResult<bool> {
        let catalog = self.engine.storage.catalog().await?;
        if catalog.foreign_keys.is_empty() {
            return Ok(false);
        }
        let from: &[TableWithJoins] = match write {
            Write::Insert(_) => &[],
            Write::Update(update) => std::slice::from_ref(&update.table),
            Write::Delete(delete, _) => {
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) =
                    &delete.from;
                from
            }
        };
        Ok(from::factors(from).into_iter().any(|factor| {
            let TableFactor::Table { name, .. } = factor else { return false };
            let name = table_name(name, self.variables.database()).ok();
            let table = name.and_then(|name| catalog.table_named(&name.database, &name.table));
            table.is_some_and(|table| catalog.foreign_keys.to(table).next().is_some())
        }))
    }

    async fn write_within(
        &mut self,
        write: &Write,
        open: &Open,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let catalog = self.engine.storage.catalog().await?;
        let finding = self.finding(open);
        let weight = self.weight();
        let (table, changes) = match write {
            Write::Insert(insert) if upsert::meets(insert) => {
                return self.insert_meeting(insert, &catalog, open, &finding).await;
            }
            Write::Insert(insert) => self.insert_rows(insert, &catalog, &finding).await?,
            Write::Update(update) if from::updates_joined(update) => {
                return self.update_joined(update, &catalog, (open, &finding, explicit)).await;
            }
            Write::Delete(delete, _) if from::deletes_joined(delete) => {
                return self.delete_joined(delete, &catalog, (open, &finding, explicit)).await;
            }
            Write::Update(update) => self.update_pairs(update, &catalog, &finding, &weight).await?,
            Write::Delete(delete, ignore) => {
                let (table, mut changes) =
                    self.delete_rows(delete, &catalog, &finding, &weight).await?;
                if *ignore {
                    self.keep_referred_to(&table, &mut changes, open, &finding).await?;
                }
                (table, changes)
            }
        };
        if let (Write::Update(update), Changes::Update { .. }) = (write, &changes)
            && clauses::ignores(update)
            && let Changes::Update { pairs } = changes
        {
            return self.update_ignoring(&table, pairs, open, &finding).await;
        }
        let explicit_id = match &changes {
            Changes::Insert { rows, first_id: 0 } => given_number(&table, rows),
            _ => 0,
        };
        let mut reply = self.write_changes(&table, changes, open, &finding, explicit).await?;
        if let (Reply::Done(done), true) = (&mut reply, explicit_id > 0) {
            done.last_insert_id = explicit_id;
        }
        Ok(reply)
    }

    /// Locks or looks up what stands in the way of changes, and writes them.
    pub(super) async fn write_changes(
        &mut self,
        table: &Arc<Table>,
        changes: Changes,
        open: &Open,
        finding: &Finding,
        explicit: bool,
    ) -> SqlResult<Reply> {
        let owned = self.make_way(table, &changes, open, finding, explicit).await?;
        let consequences = self.consequences_of(table, &changes, open, finding).await?;
        self.apply(table, changes, (&owned, &consequences), open).await
    }

    /// What else is to be done because of changes, if they may be made at all.
    async fn consequences_of(
        &self,
        table: &Arc<Table>,
        changes: &Changes,
        open: &Open,
        finding: &Finding,
    ) -> SqlResult<Vec<Consequence>> {
        if !self.is_referring(table).await? {
            return Ok(Vec::new());
        }
        self.enforce(&[(table, &NetChange::of_changes(changes))], open, finding).await
    }

    /// Locks or looks up what stands in the way of changes; here other sessions are waited for.
    pub(super) async fn make_way(
        &self,
        table: &Arc<Table>,
        changes: &Changes,
        open: &Open,
        finding: &Finding,
        explicit: bool,
    ) -> SqlResult<rows::Owned> {
        if let Some(key) = changes.collision(table)? {
            return Err(rows::duplicate(table, &key));
        }
        match finding {
            Finding::Lock(open, taking) => self.contend(table, changes, (open, *taking)).await,
            Finding::Read(_) => self.foresee(table, changes, open, explicit).await,
        }
    }

    /// Locks what changes take or leave besides the rows themselves; a duplicate is reported at once.
    async fn contend(
        &self,
        table: &Arc<Table>,
        changes: &Changes,
        (open, taking): (&Open, Taking),
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
        let acquired =
            self.acquire((open, Taking { expect, ..taking }), table, keys, None).await?.rows;
        let taken = changes.taken(table)?;
        let held = changes.held(table)?;
        let live = acquired.iter().filter(|one| one.live && taken.contains(&one.key));
        if let Some(one) = live.into_iter().find(|one| !held.contains(&one.key)) {
            return Err(rows::duplicate(table, &one.key));
        }
        Ok(rows::Owned::of(acquired.into_iter().filter_map(|one| Some((one.key, one.row?)))))
    }

    /// Looks for what would stand in the way of changes. Within an explicit transaction a duplicate
    /// is reported at once; alone, at commit.
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
            let held = changes.held(table)?;
            if let Some((key, _)) = present.iter().find(|(key, _)| !held.contains(key)) {
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

    /// Writes computed changes and their consequences, without waiting for other sessions; a failure takes back what was
    /// written of them.
    pub(super) async fn apply(
        &mut self,
        table: &Arc<Table>,
        changes: Changes,
        (owned, consequences): (&rows::Owned, &[Consequence]),
        open: &Open,
    ) -> SqlResult<Reply> {
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        let before = transaction.savepoint();
        let written = changes
            .write(transaction.as_mut(), table, owned)
            .map_err(|error| rows::error(error, std::slice::from_ref(table)))
            .and_then(|()| cascades::carry_out(transaction.as_mut(), consequences));
        if let Err(error) = written {
            transaction.rollback_to(before);
            return Err(error);
        }
        drop(guard);
        Ok(Reply::Done(self.summary(&changes)))
    }

    fn summary(&mut self, changes: &Changes) -> Done {
        let warnings = self.diagnostics.count();
        match changes {
            Changes::Insert { rows, first_id } => {
                if *first_id > 0 {
                    self.diagnostics.set_last_insert_id(*first_id);
                }
                let count = rows.len();
                let info = match count {
                    0 | 1 => String::new(),
                    _ => format!("Records: {count}  Duplicates: 0  Warnings: {warnings}"),
                };
                Done { affected_rows: count as u64, last_insert_id: *first_id, warnings: 0, info }
            }
            Changes::Update { pairs } => {
                let found = pairs.len();
                let changed = pairs.iter().filter(|(old, new)| old != new).count();
                let info =
                    format!("Rows matched: {found}  Changed: {changed}  Warnings: {warnings}");
                let affected = self.identity.counted(found, changed);
                Done { affected_rows: affected as u64, last_insert_id: 0, warnings: 0, info }
            }
            Changes::Delete { rows } => {
                Done { affected_rows: rows.len() as u64, ..Done::default() }
            }
        }
    }
}

/// The number that the last row was given by hand: the client gets it, LAST_INSERT_ID() does not.
fn given_number(table: &Table, rows: &[Vec<Value>]) -> u64 {
    let number = table.columns.iter().position(|c| c.auto_increment && !c.hidden);
    match number.and_then(|number| rows.last()?.get(number)) {
        Some(Value::Int(n)) => u64::try_from(*n).unwrap_or(0),
        Some(Value::UInt(n)) => *n,
        _ => 0,
    }
}
