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
use storage::Savepoint;
use storage::reader::Shared;

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
