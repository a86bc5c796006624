//! A node's view of placement's replicated state, and the outcomes that its proposers wait for.
//!
//! The machine writes here, the service reads here. Nothing is decided here.

use std::collections::HashMap;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use types::Result;

use crate::command::{Outcome, Ticket};
use crate::state::State;

/// Shared between a node's placement machine and its service; it outlives both.
pub struct View {
    state: RwLock<State>,
    outcomes: Mutex<HashMap<Ticket, Option<Result<Outcome>>>>,
    changed: watch::Sender<u64>,
}

impl View {
    /// A view of nothing yet.
    pub fn new() -> Self {
        View {
            state: RwLock::new(State::new()),
            outcomes: Mutex::new(HashMap::new()),
            changed: watch::Sender::new(0),
        }
    }

    /// The state as applied on this node. Hold it briefly: the machine waits.
    pub fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Tells when the catalog or the regions changed.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn replace(&self, state: State) {
        *self.state.write() = state;
        self.announce();
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write())
    }

    pub(crate) fn announce(&self) {
        self.changed.send_modify(|changes| *changes += 1);
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
