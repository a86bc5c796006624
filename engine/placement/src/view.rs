//! A node's view of placement's replicated state, and the outcomes that its proposers wait for.
//!
//! The machine writes here, the service reads here. Nothing is decided here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::Notify;
use types::Result;

use crate::command::{Outcome, Ticket};
use crate::state::State;

/// Shared between a node's placement machine and its service; it outlives both.
pub struct View {
    state: RwLock<State>,
    outcomes: Mutex<HashMap<Ticket, Option<Result<Outcome>>>>,
    changed: Arc<Changed>,
}

/// How often something changed, and who waits for the next time. They are woken in the order in which they began to wait,
/// so that one seed replays one history.
#[derive(Default)]
struct Changed {
    count: AtomicU64,
    next: Notify,
}

/// Waits for changes of a view.
pub struct Changes {
    changed: Arc<Changed>,
    seen: u64,
}

impl Changes {
    /// What has changed up to now is known.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.changed.count.load(Ordering::Acquire);
    }

    /// Resolves when there is a change that is not known, and marks it as known.
    pub async fn changed(&mut self) -> std::result::Result<(), Infallible> {
        loop {
            let next = self.changed.next.notified();
            tokio::pin!(next);
            // Waits from here on: a change between the look and the wait is not missed.
            next.as_mut().enable();
            let count = self.changed.count.load(Ordering::Acquire);
            if std::mem::replace(&mut self.seen, count) != count {
                return Ok(());
            }
            next.await;
        }
    }
}

impl View {
    /// A view of nothing yet.
    pub fn new() -> Self {
        View {
            state: RwLock::new(State::new()),
            outcomes: Mutex::new(HashMap::new()),
            changed: Arc::default(),
        }
    }

    /// The state as applied on this node. Hold it briefly: the machine waits.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Notifies when the catalog or the regions changed.
    pub fn subscribe(&self) -> Changes {
        let changed = self.changed.clone();
        let seen = changed.count.load(Ordering::Acquire);
        Changes { changed, seen }
    }

    pub(crate) fn replace(&self, state: State) {
        *self.state.write() = state;
        self.announce();
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write())
    }

    pub(crate) fn announce(&self) {
        self.changed.count.fetch_add(1, Ordering::AcqRel);
        self.changed.next.notify_waiters();
    }

    /// Registers a proposer before its proposal can be applied.
    pub(crate) fn expect(&self, ticket: Ticket) {
        self.outcomes.lock().insert(ticket, None);
    }

    /// Keeps an outcome if its proposer waits on this node.
    pub(crate) fn settle(&self, ticket: Ticket, outcome: Result<Outcome>) {
        if let Some(slot) = self.outcomes.lock().get_mut(&ticket) {
            *slot = Some(outcome);
        }
    }

    /// Ends a proposer's wait; the outcome, if its proposal was applied.
    pub(crate) fn collect(&self, ticket: Ticket) -> Option<Result<Outcome>> {
        self.outcomes.lock().remove(&ticket).flatten()
    }
}

impl Default for View {
    fn default() -> Self {
        Self::new()
    }
}
