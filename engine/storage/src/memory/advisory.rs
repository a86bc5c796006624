//! Advisory locks of the store in memory: placement's own rules, and no leader to lose.
//!
//! Nobody falls silent here: a session keeps its locks until it gives them back.

use std::time::Duration;

use env::Instant;
use parking_lot::Mutex;
use placement::advisory::{self, Step, Waits};
use placement::api::{Freed, Hold, LockAnswer, LockRequest};
use placement::command::{Command, Outcome};
use tokio::sync::Notify;
use tokio::time::timeout_at;
use types::Result;

use super::MemoryStorage;

/// A time before all others: no place in a queue is too old.
const NOW: Instant = Instant::from_micros(0);

/// Sessions that wait for locks, and how they are woken.
#[derive(Default)]
pub(super) struct LockQueue {
    waits: Mutex<Waits>,
    changed: Notify,
}

impl MemoryStorage {
    pub(super) async fn answer_lock(&self, request: LockRequest) -> Result<LockAnswer> {
        match request {
            LockRequest::Take { name, by, wait_ms } => {
                self.take_lock(name, by, Duration::from_millis(wait_ms)).await
            }
            LockRequest::Release { names, owner, call } => {
                self.advisory.waits.lock().give_up(owner, call, NOW);
                let freed = names.into_iter().map(|name| Freed { name, owner, call });
                self.free_locks(freed.collect())?;
                Ok(LockAnswer::Free)
            }
            LockRequest::Keep { owner, held, ended } => {
                let (lost, unknown) = self
                    .with_state(|state| Ok(advisory::compare(&state.locks, owner, held, ended)))?;
                self.free_locks(unknown)?;
                Ok(LockAnswer::Lost(lost))
            }
            LockRequest::Look { name } => {
                let held = self.with_state(|state| Ok(state.locks.get(&name).copied()))?;
                Ok(held.map_or(LockAnswer::Free, LockAnswer::Held))
            }
        }
    }

    async fn take_lock(&self, name: String, by: Hold, wait: Duration) -> Result<LockAnswer> {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let changed = self.advisory.changed.notified();
            let step = self.with_state(|state| {
                let waits = &mut *self.advisory.waits.lock();
                Ok(waits.step(&state.locks, (&name, &by), !wait.is_zero(), NOW))
            })?;
            match step {
                Step::Take => {
                    let command = Command::TakeLock { name: name.clone(), by };
                    if self.command(command)? == Outcome::Lock(None) {
                        self.advisory.waits.lock().leave(by.owner);
                        return Ok(LockAnswer::Taken);
                    }
                    continue;
                }
                Step::Deadlock => {
                    self.advisory.changed.notify_waiters();
                    return Ok(LockAnswer::Deadlock);
                }
                Step::Over => return Ok(LockAnswer::Busy),
                Step::Wait => {}
            }
            if timeout_at(until, changed).await.is_err() {
                self.advisory.waits.lock().leave(by.owner);
                self.advisory.changed.notify_waiters();
                return Ok(LockAnswer::Busy);
            }
        }
    }

    fn free_locks(&self, freed: Vec<Freed>) -> Result<()> {
        self.command(Command::FreeLocks(freed))?;
        self.advisory.changed.notify_waiters();
        Ok(())
    }
}
