//! Where a session's transactions begin and end, and which of them a statement belongs to.
//!
//! A commit that has begun is not broken off, and what became of it is reported as it is: nothing
//! hides an unknown outcome.

use std::sync::Arc;

use syntax::statement::{Mode, Step};
use tokio::sync::Mutex;
use types::Error;
use values::error::{SqlError, SqlResult, no_savepoint};

use super::state::Open;
use crate::session::{Session, done};
use execution::reply::Reply;
use storage::rows;

impl Session {
    /// Begins a transaction.
    pub(in crate::session) async fn begin(&mut self, mode: Mode) -> SqlResult<Open> {
        let mut transaction = self.engine.storage.begin().await?;
        transaction.commits_async(self.variables.commits_async());
        let ts = transaction.ts();
        let shared = Arc::new(Mutex::new(Some(transaction)));
        let pessimistic = mode == Mode::Pessimistic;
        let committed = self.variables.reads_committed();
        // Without locks, what was read must be older than what others commit: one snapshot it is.
        let fresh = pessimistic && self.transaction.take_next_fresh().unwrap_or(committed);
        let usual = || self.variables.reads_only();
        let read_only = self.transaction.begins_read_only(usual);
        let past = self.transaction.take_next_past();
        let read_only = read_only || past.is_some();
        let (locking, reads_at) = (Arc::default(), Arc::default());
        let open = Open { shared, ts, pessimistic, fresh, read_only, locking, reads_at, past };
        self.transaction.opened(open.clone());
        Ok(open)
    }

    /// The transaction that a statement belongs to; none if it is its own.
    pub(in crate::session) async fn enclosing(&mut self) -> SqlResult<Option<Open>> {
        match self.transaction.open() {
            Some(open) => Ok(Some(open.clone())),
            None if self.variables.autocommit() => Ok(None),
            None => self.begin(self.variables.transaction_mode()).await.map(Some),
        }
    }

    /// Commits what is open.
    pub(in crate::session) async fn commit(&mut self) -> SqlResult<()> {
        let Some(open) = self.transaction.take() else { return Ok(()) };
        let Some(transaction) = open.shared.lock().await.take() else { return Ok(()) };
        let _held = self.interrupts.hold();
        match transaction.commit().await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.commit_error(error).await),
        }
    }

    /// The error that a client gets for a failed commit. Only the message of a duplicate needs the catalog:
    /// one that cannot be had must hide nothing else, an unknown outcome least of all.
    pub(in crate::session) async fn commit_error(&self, error: Error) -> SqlError {
        match error {
            Error::Duplicate { .. } => match self.engine.storage.catalog().await {
                Ok(catalog) => rows::error(error, &catalog.tables),
                Err(_) => error.into(),
            },
            error => error.into(),
        }
    }

    /// SAVEPOINT, ROLLBACK TO and RELEASE.
    pub(in crate::session) async fn savepoint(
        &mut self,
        step: Step,
        name: &str,
    ) -> SqlResult<Reply> {
        if self.enclosing().await?.is_none() {
            return match step {
                // Alone, the statement is a transaction of its own, which ends here.
                Step::Set => Ok(done()),
                _ => Err(no_savepoint(name)),
            };
        }
        self.transaction.savepoint(step, name).await?;
        Ok(done())
    }
}
