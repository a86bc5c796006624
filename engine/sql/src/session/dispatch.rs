//! One statement of a session: begun, handed to what runs its kind, bounded in time, answered.
//!
//! What a statement leaves behind when it fails is decided here alone: its transaction, its
//! diagnostics, its counts. What it does is not.

use std::sync::Arc;

use execution::{BatchStream, panics};
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use information_schema::{Listing, int};
use syntax::statement::{ShowKind, Stmt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::Value;
use values::column::ResultColumn;
use values::error::{DEADLOCK, SqlError, SqlResult, interrupted, is_fault, too_slow};

use super::query::limits;
use super::write::statement::Write;
use super::{Session, done, impossible};
use execution::reply::{Done, Reply};

impl Session {
    /// Runs a statement and answers it.
    ///
    /// Boxed, as what is awaited in another crate is wherever it is large: the code of a future is compiled where its
    /// type is known, in every crate that awaits it.
    pub(super) fn answer<'a>(
        &'a mut self,
        statement: SqlResult<Arc<Stmt>>,
        parameters: &'a [Value],
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, SqlResult<Reply>> {
        self.answered(statement, parameters, cancel).boxed()
    }

    async fn answered(
        &mut self,
        statement: SqlResult<Arc<Stmt>>,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.take_time();
        self.diagnostics.begin(statement.as_deref().is_ok_and(shows_warnings));
        // Of a statement that is a transaction of its own, nothing may stay open.
        let alone = !self.in_transaction() && self.autocommit();
        let (interrupts, before) = (self.interrupts.clone(), self.diagnostics.last_insert_id());
        let deadline = statement.as_ref().ok().and_then(|statement| self.deadline(statement));
        let scheduled = self.group.scheduled();
        let run = async {
            let statement = statement?;
            self.begin_variables().await;
            self.run(statement, parameters, cancel).await
        };
        let answer = tokio::select! {
            biased;
            () = interrupts.interruption(cancel) => Err(interrupted()),
            () = limits::passed(deadline) => Err(too_slow()),
            answer = scheduled.run(panics::guarded(run)) => answer,
        };
        self.variables.run_in(None);
        self.running = None;
        self.end_group();
        // Rows that are still to be pulled hold what they are read from themselves.
        self.transaction.read_statement_at(None);
        match answer {
            Ok(Reply::Rows { columns, batches, .. }) => {
                Ok(self.answer_rows(columns, batches, deadline, cancel))
            }
            Ok(Reply::Done(done)) => Ok(Reply::Done(self.answer_done(done, before))),
            Ok(other) => Ok(other),
            Err(error) => Err(self.fail(error, alone).await),
        }
    }

    /// Rows, pulled by their reader until the statement is cancelled or has taken too long.
    fn answer_rows(
        &mut self,
        columns: Vec<ResultColumn>,
        batches: BatchStream,
        deadline: Option<Instant>,
        cancel: &CancellationToken,
    ) -> Reply {
        let by = self.group.scheduled();
        let batches = panics::guarded_stream(limits::until(batches, deadline)).boxed();
        let batches = futures::stream::unfold((batches, by), |(mut batches, by)| async move {
            let next = by.run(batches.next()).await;
            next.map(|batch| (batch, (batches, by)))
        });
        let token = cancel.clone();
        let batches = batches.take_until(token.clone().cancelled_owned());
        let ended = futures::stream::once(async move {
            if token.is_cancelled() { Err(interrupted()) } else { Ok(None) }
        });
        let batches = batches.map(|batch| batch.map(Some)).chain(ended);
        let batches = batches.filter_map(|batch| async { batch.transpose() });
        let batches = self.diagnostics.count_rows(batches);
        self.diagnostics.bound(self.variables.most_warnings());
        Reply::Rows { columns, batches, warnings: self.diagnostics.warning_count() }
    }

    /// An answer without rows; `before` is what LAST_INSERT_ID() gave before the statement.
    fn answer_done(&mut self, mut done: Done, before: u64) -> Done {
        let generated = self.diagnostics.last_insert_id();
        if let Some(kept) = self.diagnostics.adopt_assigned_id() {
            // A number given to a new row counts more than one that was assigned.
            match generated != before && done.last_insert_id == generated {
                true => self.diagnostics.set_last_insert_id(generated),
                false => done.last_insert_id = kept,
            }
        }
        self.sum_up(done)
    }

    /// An answer without rows, with its rows and warnings counted.
    pub(super) fn sum_up(&mut self, mut done: Done) -> Done {
        self.diagnostics.set_row_count(done.affected_rows);
        self.diagnostics.bound(self.variables.most_warnings());
        done.warnings = self.diagnostics.warning_count().now();
        done
    }

    /// Ends a statement that has failed; `alone` says that it was a transaction of its own.
    async fn fail(&mut self, error: SqlError, alone: bool) -> SqlError {
        self.diagnostics.no_row_count();
        // As in MySQL: who gives way loses the whole transaction, not only the statement. Of a
        // statement that panicked, nobody knows how far it came.
        if alone || error.code == DEADLOCK || is_fault(&error) {
            self.transaction.rollback().await;
        }
        self.diagnostics.error(&error);
        error
    }

    /// Runs a statement that its session's user may run.
    pub(super) async fn run(
        &mut self,
        statement: Arc<Stmt>,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        self.check_read_only(&statement)?;
        self.check_privileges(&statement).await?;
        self.wait_for_units(&statement).await?;
        let Some(guard) = self.guard(&statement).await? else {
            return self.run_allowed(statement, parameters, cancel).await;
        };
        let reply = guard.over(self.run_allowed(statement, parameters, cancel).boxed()).await?;
        Ok(guard.over_rows(reply))
    }

    async fn run_allowed(
        &mut self,
        statement: Arc<Stmt>,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        // A look-up runs as it stands; what else was prepared is run as a copy.
        if let Stmt::Query(query) = &*statement
            && let Some(reply) = self.looked_up(query, parameters).await?
        {
            return Ok(reply);
        }
        // Boxed: what a look-up is awaited in is moved as a whole, and all of this would be in it.
        self.run_copy(Arc::unwrap_or_clone(statement), parameters, cancel).boxed().await
    }

    async fn run_copy(
        &mut self,
        statement: Stmt,
        parameters: &[Value],
        cancel: &CancellationToken,
    ) -> SqlResult<Reply> {
        match statement {
            Stmt::Query(query) => self.limited_select(*query, parameters).await,
            Stmt::SelectInto(query, names) => self.select_into(*query, &names, parameters).await,
            Stmt::Explain { analyze, statement } => {
                self.explain(*statement, analyze, parameters).await
            }
            Stmt::Prepare { name, source } => self.prepare_text(&name, *source, parameters).await,
            Stmt::Execute { name, using } => self.execute_text(&name, &using, cancel).await,
            Stmt::Deallocate(name) => self.deallocate(&name),
            Stmt::Insert(insert) => self.write(Write::Insert(insert), parameters).await,
            Stmt::Update(update) => self.write(Write::Update(update), parameters).await,
            Stmt::Delete(delete, ignore) => {
                self.write(Write::Delete(delete, ignore), parameters).await
            }
            Stmt::LoadData(load) => self.ask_for_file(load).await,
            step @ (Stmt::Begin { .. }
            | Stmt::Commit
            | Stmt::Rollback
            | Stmt::Savepoint(..)
            | Stmt::SetTransaction { .. }) => self.run_boundary(step, parameters).await,
            task @ (Stmt::Use(_)
            | Stmt::Set(_)
            | Stmt::SetNames(_)
            | Stmt::SetPassword { .. }
            | Stmt::PutUser { .. }
            | Stmt::DropUser { .. }
            | Stmt::PutResourceGroup { .. }
            | Stmt::DropResourceGroup { .. }
            | Stmt::SetResourceGroup(_)
            | Stmt::QueryWatch(_)
            | Stmt::QueryUnwatch(_)
            | Stmt::Calibrate(_)
            | Stmt::SetConfig { .. }
            | Stmt::Grant(_)
            | Stmt::Show(_)
            | Stmt::Describe { .. }
            | Stmt::Kill { .. }
            | Stmt::Do(_)
            | Stmt::Flush
            | Stmt::Nothing
            | Stmt::Maintain { .. }
            | Stmt::LockTables(_)) => self.administer(task, parameters).await,
            Stmt::CreateTable(create) if create.query.is_some() => {
                self.create_filled(*create, parameters, cancel).await
            }
            definition => {
                self.commit().await?;
                self.give_way();
                // What a definition has begun, it ends: regions must not know less than the catalog.
                let _held = self.interrupts.hold();
                self.define(definition, cancel).await
            }
        }
    }

    /// Begins, ends or describes transactions.
    async fn run_boundary(&mut self, step: Stmt, parameters: &[Value]) -> SqlResult<Reply> {
        match step {
            Stmt::Begin { mode, read_only, as_of } => {
                let past = match as_of {
                    Some(time) => Some(self.past_of(*time, parameters).await?),
                    None => None,
                };
                self.commit().await?;
                if past.is_some() {
                    self.transaction.set_next_past(past);
                }
                if let Some(read_only) = read_only {
                    self.transaction.set_next_read_only(read_only);
                }
                let usual = self.variables.transaction_mode();
                self.begin(mode.unwrap_or(usual)).await?;
            }
            Stmt::Commit => self.commit().await?,
            Stmt::Rollback => self.transaction.rollback().await,
            Stmt::Savepoint(step, name) => return self.savepoint(step, &name).await,
            Stmt::SetTransaction { scope, level, read_only, as_of } => {
                let past = match as_of {
                    Some(time) if !self.in_transaction() => {
                        Some(self.past_of(*time, parameters).await?)
                    }
                    _ => None,
                };
                let reply = self.set_transaction(scope, level.as_deref(), read_only).await?;
                if past.is_some() {
                    self.transaction.set_next_past(past);
                }
                return Ok(reply);
            }
            _ => return Err(impossible("a statement of no transaction")),
        }
        Ok(done())
    }

    /// Sets, shows, or looks after something.
    async fn administer(&mut self, task: Stmt, parameters: &[Value]) -> SqlResult<Reply> {
        match task {
            Stmt::Use(name) => {
                self.use_database(&name).await?;
                Ok(done())
            }
            Stmt::Set(assignments) => self.set(assignments, parameters).await,
            Stmt::SetNames(charset) => self.set_names(&charset),
            Stmt::SetPassword { user, password } => self.set_password(user, &password).await,
            Stmt::PutUser { users, group, lenient, create } => {
                self.put_users(users, group, lenient, create).await
            }
            Stmt::PutResourceGroup { name, options, lenient, create } => {
                self.commit().await?;
                self.put_resource_group(name, *options, lenient, create).await
            }
            Stmt::DropResourceGroup { name, if_exists } => {
                self.commit().await?;
                self.drop_resource_group(name, if_exists).await
            }
            Stmt::SetResourceGroup(name) => self.set_resource_group(name).await,
            Stmt::QueryWatch(order) => {
                let mut listing = Listing::of(&["#WATCH_ID"]);
                listing.rows.push(vec![int(self.add_watch(*order).await?)]);
                listing.reply()
            }
            Stmt::QueryUnwatch(id) => {
                self.engine.storage.unwatch(id).await?;
                Ok(done())
            }
            Stmt::Calibrate(by) => self.calibrate(*by).await,
            Stmt::SetConfig { whose, name, value } => self.set_config(&whose, &name, value).await,
            Stmt::DropUser { users, if_exists } => self.drop_users(users, if_exists).await,
            Stmt::Grant(grant) => {
                self.commit().await?;
                self.grant(*grant).await
            }
            Stmt::Show(show) => self.show(show).await,
            Stmt::Describe { table, column } => self.describe(&table, column).await,
            Stmt::Kill { id, query } => self.kill(id, query),
            Stmt::Do(exprs) => {
                for expr in exprs {
                    self.assign(expr, parameters).await?;
                }
                Ok(done())
            }
            Stmt::Maintain { task, tables } => self.maintain(task, &tables).await,
            Stmt::LockTables(tables) => self.lock_tables(&tables).await,
            Stmt::Flush | Stmt::Nothing => Ok(done()),
            _ => Err(impossible("a statement of no kind")),
        }
    }
}

/// Whether a statement shows the warnings of the one before, which it must leave as they are.
fn shows_warnings(statement: &Stmt) -> bool {
    let Stmt::Show(show) = statement else { return false };
    matches!(show.kind, ShowKind::Warnings { .. } | ShowKind::WarningCount { .. })
}
