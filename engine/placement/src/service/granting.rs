//! Placement's leader at work on advisory locks: gives them in the order in which they were asked for,
//! and frees those of sessions that have fallen silent.
//!
//! A wait is a request that is held back for a short time, and repeated by who waits. It never gives a lock
//! but through the log.

use std::time::Duration;

use env::{Clock, Instant};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout_at;
use types::Result;

use crate::advisory::{self, Step, Waits};
use crate::api::{Freed, Hold, LockAnswer, LockRequest};
use crate::command::{Command, Outcome};
use crate::service::PlacementService;

/// How long a request is held back; clients ask another node after two seconds.
const HELD_BACK: Duration = Duration::from_secs(1);

/// A wait that is over within this time is not repeated.
const LAST: Duration = Duration::from_millis(1_500);

/// Sessions that wait for locks, as known to the leader of one term, and how they are woken.
#[derive(Default)]
pub(crate) struct LockQueue {
    waits: Mutex<(u64, Waits)>,
    changed: Notify,
}

impl PlacementService {
    /// Answers a request about locks, within a bound.
    pub(crate) async fn lock_request(&self, request: LockRequest) -> Result<LockAnswer> {
        let term = self.lead()?;
        // A leader that was deposed must not say that a lock is kept, held or free.
        self.confirm(term).await?;
        match request {
            LockRequest::Take { name, by, wait_ms } => {
                self.take_lock(term, name, by, Duration::from_millis(wait_ms)).await
            }
            LockRequest::Release { names, owner, call } => {
                self.with_lock_waits(term, |waits, now| waits.give_up(owner, call, now));
                let freed = names.into_iter().map(|name| Freed { name, owner, call });
                self.free_locks(term, freed.collect()).await?;
                Ok(LockAnswer::Free)
            }
            LockRequest::Keep { owner, held, ended } => {
                self.with_lock_waits(term, |waits, now| waits.touch(owner, now));
                let (lost, unknown) =
                    advisory::compare(&self.view.read().locks, owner, held, ended);
                self.free_locks(term, unknown).await?;
                Ok(LockAnswer::Lost(lost))
            }
            LockRequest::Look { name } => {
                let held = self.view.read().locks.get(&name).copied();
                Ok(held.map_or(LockAnswer::Free, LockAnswer::Held))
            }
        }
    }

    /// Frees locks of sessions that have sent no heartbeat for a while.
    pub(crate) async fn free_silent(&self, term: u64) -> Result<()> {
        let silent = {
            let state = self.view.read();
            self.with_lock_waits(term, |waits, now| waits.silent(&state.locks, now))
        };
        if !silent.is_empty() {
            tracing::info!(count = silent.len(), "advisory locks of silent sessions are freed");
        }
        self.free_locks(term, silent).await
    }

    async fn take_lock(
        &self,
        term: u64,
        name: String,
        by: Hold,
        wait: Duration,
    ) -> Result<LockAnswer> {
        let last = wait <= LAST;
        let held_back = if last { wait } else { HELD_BACK };
        let until = tokio::time::Instant::now() + held_back;
        loop {
            // From here on no change is missed.
            let changed = self.lock_queue.changed.notified();
            match self.lock_step(term, &name, &by, !wait.is_zero()) {
                Step::Take => {
                    let command = Command::TakeLock { name: name.clone(), by };
                    if let Outcome::Lock(None) = self.propose_in(term, command).await? {
                        self.with_lock_waits(term, |waits, _| waits.leave(by.owner));
                        return Ok(LockAnswer::Taken);
                    }
                    // Another one was quicker.
                    continue;
                }
                Step::Deadlock => {
                    self.lock_queue.changed.notify_waiters();
                    return Ok(LockAnswer::Deadlock);
                }
                Step::Over => return Ok(LockAnswer::Busy),
                Step::Wait => {}
            }
            if timeout_at(until, changed).await.is_err() {
                if last {
                    self.with_lock_waits(term, |waits, _| waits.leave(by.owner));
                    self.lock_queue.changed.notify_waiters();
                }
                return Ok(LockAnswer::Busy);
            }
        }
    }

    fn lock_step(&self, term: u64, name: &str, by: &Hold, waits: bool) -> Step {
        let state = self.view.read();
        self.with_lock_waits(term, |known, now| known.step(&state.locks, (name, by), waits, now))
    }

    async fn free_locks(&self, term: u64, freed: Vec<Freed>) -> Result<()> {
        if !freed.is_empty() {
            self.propose_in(term, Command::FreeLocks(freed)).await?;
            self.lock_queue.changed.notify_waiters();
        }
        Ok(())
    }

    fn with_lock_waits<R>(&self, term: u64, look: impl FnOnce(&mut Waits, Instant) -> R) -> R {
        let mut waits = self.lock_queue.waits.lock();
        if waits.0 < term {
            *waits = (term, Waits::default());
        }
        look(&mut waits.1, self.clock.now())
    }
}
