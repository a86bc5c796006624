//! The transaction that a session has open, and what is said of its next one.
//!
//! Savepoints are those of the open transaction and go with it. Nothing here begins or commits, and
//! nothing reads a variable.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use syntax::statement::Step;
use types::{SnapshotToken, Timestamp};
use values::error::{SqlResult, no_savepoint};

use crate::session::impossible;
use storage::reader::Shared;
use storage::{Savepoint, Snapshot};

/// An open transaction.
#[derive(Clone)]
pub(in crate::session) struct Open {
    pub(in crate::session) shared: Shared,
    pub(in crate::session) ts: Timestamp,
    /// Whether it locks rows before it writes them.
    pub(in crate::session) pessimistic: bool,
    /// Whether each of its statements reads the present (READ COMMITTED).
    pub(super) fresh: bool,
    /// READ ONLY: what writes is refused.
    pub(super) read_only: bool,
    /// Whether it has asked for row locks.
    pub(super) locking: Arc<AtomicBool>,
    /// When its plain reads read, once one has.
    pub(super) reads_at: Arc<OnceLock<Timestamp>>,
    /// What all of its statements read, if that is a time of the past.
    pub(super) past: Option<Arc<dyn Snapshot>>,
}

/// Who has said that a statement reads the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum Origin {
    /// The SELECT itself.
    Select,
    /// SET TRANSACTION before it.
    SetTransaction,
    /// `tidb_read_staleness`.
    Staleness,
}

/// The transaction that a session has open, and what is said of its next one.
#[derive(Default)]
pub(in crate::session) struct TransactionState {
    open: Option<Open>,
    savepoints: Vec<(String, Savepoint)>,
    /// Isolation of the next transaction alone: whether its statements read the present.
    next_fresh: Option<bool>,
    /// Whether the next transaction alone is READ ONLY.
    next_read_only: Option<bool>,
    /// The snapshot that the session reads at, if it does.
    snapshot: Option<SnapshotToken>,
    /// What the next transaction, or the next SELECT outside of one, reads.
    next_past: Option<Arc<dyn Snapshot>>,
    /// What the statement that runs reads.
    statement_past: Option<(Arc<dyn Snapshot>, Origin)>,
}

impl TransactionState {
    /// The open transaction.
    pub(in crate::session) fn open(&self) -> Option<&Open> {
        self.open.as_ref()
    }

    /// Opens a transaction; what was said of the next one has been about this.
    pub(super) fn opened(&mut self, open: Open) {
        self.next_read_only = None;
        self.savepoints.clear();
        self.open = Some(open);
    }

    /// Takes the open transaction away, for whoever ends it.
    pub(in crate::session) fn take(&mut self) -> Option<Open> {
        self.savepoints.clear();
        self.open.take()
    }

    /// Rolls back what is open.
    pub(in crate::session) async fn rollback(&mut self) {
        let Some(open) = self.take() else { return };
        let transaction = open.shared.lock().await.take();
        if let Some(transaction) = transaction {
            transaction.rollback().await;
        }
    }

    /// A place in the open transaction to which a part of it can be taken back.
    pub(in crate::session) async fn place(&self) -> Option<Savepoint> {
        let open = self.open.as_ref()?;
        open.shared.lock().await.as_mut().map(|transaction| transaction.savepoint())
    }

    /// Takes back what a statement has written since a place in the open transaction; all of it if
    /// there was no such place, for then the statement has begun it.
    pub(in crate::session) async fn take_back(&mut self, place: Option<Savepoint>) {
        let Some(place) = place else { return self.rollback().await };
        if let Some(open) = &self.open
            && let Some(transaction) = open.shared.lock().await.as_mut()
        {
            transaction.rollback_to(place);
        }
    }

    // ---- savepoints -------------------------------------------------------------------------

    /// SAVEPOINT, ROLLBACK TO and RELEASE in the open transaction. They undo writes that are still
    /// buffered, and never touch what was committed.
    pub(super) async fn savepoint(&mut self, step: Step, name: &str) -> SqlResult<()> {
        let name = name.to_lowercase();
        let known = self.savepoints.iter().position(|(other, _)| *other == name);
        let open = self.open.as_ref().ok_or_else(|| no_savepoint(&name))?;
        let mut guard = open.shared.lock().await;
        let transaction = guard.as_mut().ok_or_else(|| impossible("the transaction has ended"))?;
        match (step, known) {
            (Step::Set, known) => {
                if let Some(at) = known {
                    self.savepoints.remove(at);
                }
                self.savepoints.push((name, transaction.savepoint()));
            }
            (_, None) => return Err(no_savepoint(&name)),
            (Step::RollBack, Some(at)) => {
                let place = self.savepoints.get(at).map(|(_, place)| *place);
                transaction.rollback_to(place.ok_or_else(|| no_savepoint(&name))?);
                self.savepoints.truncate(at + 1);
            }
            (Step::Release, Some(at)) => self.savepoints.truncate(at),
        }
        Ok(())
    }

    // ---- the next transaction ---------------------------------------------------------------

    /// Whether the statements of the next transaction alone read the present.
    pub(in crate::session) fn set_next_fresh(&mut self, fresh: bool) {
        self.next_fresh = Some(fresh);
    }

    /// What was said of the isolation of the transaction that begins now: said once, it counts once.
    pub(super) fn take_next_fresh(&mut self) -> Option<bool> {
        self.next_fresh.take()
    }

    /// Whether the next transaction alone is READ ONLY.
    pub(in crate::session) fn set_next_read_only(&mut self, read_only: bool) {
        self.next_read_only = Some(read_only);
    }

    /// Whether the next transaction is READ ONLY, where the session's are unless they say so
    /// themselves as `usual` says.
    pub(super) fn begins_read_only(&self, usual: impl FnOnce() -> bool) -> bool {
        self.next_read_only.unwrap_or_else(usual)
    }

    /// Whether the transaction that a statement belongs to is READ ONLY.
    pub(in crate::session) fn is_read_only(&self, usual: impl FnOnce() -> bool) -> bool {
        match &self.open {
            Some(open) => open.read_only,
            None => self.begins_read_only(usual),
        }
    }

    // ---- the past ---------------------------------------------------------------------------

    /// What the statement reads, if that is a time of the past.
    pub(in crate::session) fn past(&self) -> Option<&Arc<dyn Snapshot>> {
        let of_statement = self.statement_past.as_ref().map(|(past, _)| past);
        of_statement.or_else(|| self.open.as_ref()?.past.as_ref())
    }

    /// What the statement that runs reads in the place of the present, and who has said so.
    pub(in crate::session) fn read_statement_at(
        &mut self,
        past: Option<(Arc<dyn Snapshot>, Origin)>,
    ) {
        self.statement_past = past;
    }

    /// Whether this is why the statement reads the past.
    pub(super) fn reads_by(&self, origin: Origin) -> bool {
        self.statement_past.as_ref().is_some_and(|(_, by)| *by == origin)
    }

    /// What the next transaction, or the next SELECT outside of one, reads.
    pub(in crate::session) fn set_next_past(&mut self, past: Option<Arc<dyn Snapshot>>) {
        self.next_past = past;
    }

    /// Whether that was said.
    pub(super) fn has_next_past(&self) -> bool {
        self.next_past.is_some()
    }

    /// Takes what was said for whoever begins now; what goes with it, that nothing is written, is over, too.
    pub(super) fn take_next_past(&mut self) -> Option<Arc<dyn Snapshot>> {
        let past = self.next_past.take();
        if past.is_some() {
            self.next_read_only = None;
        }
        past
    }

    // ---- the snapshot of a token ------------------------------------------------------------

    /// The snapshot that the session reads at, if it does.
    pub(in crate::session) fn snapshot(&self) -> Option<SnapshotToken> {
        self.snapshot
    }

    /// Reads at a snapshot from now on, or no longer at one.
    pub(in crate::session) fn set_snapshot(&mut self, snapshot: Option<SnapshotToken>) {
        self.snapshot = snapshot;
    }
}
