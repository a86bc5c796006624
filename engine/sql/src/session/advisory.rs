//! Advisory locks that a session holds: asked for at placement, kept while the session lives, and given
//! back when it ends, however that comes about.
//!
//! Placement knows who holds what; here is counted how often. A session that was out of placement's
//! reach for nearly as long as placement would keep its locks is ended: it must not go on as if it
//! held them. No transaction has a part in this.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use placement::advisory::KEPT_FOR;
use placement::api::{Hold, LockAnswer, LockRequest};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use values::error::{SqlResult, advisory_deadlock};

use super::{Session, impossible};
use crate::engine::Engine;

/// How often a session that holds locks sends placement a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// When its last heartbeat is this old, a session counts its locks as lost. Placement, which counts
/// from later, keeps them for longer.
const LOST_AFTER: Duration = Duration::from_secs(12);
const _: () = assert!(LOST_AFTER.as_secs() < KEPT_FOR.as_secs());

/// What a session holds.
pub(super) struct Advisory {
    engine: Engine,
    connection: u64,
    /// The session's number: a timestamp, so that no other one ever has it.
    owner: u64,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    held: BTreeMap<String, Held>,
    /// The last call that asked for a name and has ended.
    ended: u64,
    heartbeat: Option<JoinHandle<()>>,
}

struct Held {
    call: u64,
    count: u64,
}

impl Session {
    /// Takes a lock, or takes it once more; false if it could not be had in time.
    pub(super) async fn get_lock(&mut self, name: &str, wait: Duration) -> SqlResult<bool> {
        let advisory = match &self.advisory {
            Some(advisory) => advisory.clone(),
            None => {
                let owner = self.engine.storage.timestamp().await?.0;
                let (engine, connection) = (self.engine.clone(), self.identity.connection());
                let names = Mutex::default();
                let advisory = Arc::new(Advisory { engine, connection, owner, names });
                self.advisory.insert(advisory).clone()
            }
        };
        advisory.take(name, wait).await
    }

    /// Gives a lock back once: whether it was the session's, or nothing if it is nobody's.
    pub(super) async fn release_lock(&mut self, name: &str) -> SqlResult<Option<bool>> {
        let _held = self.interrupts.hold();
        if let Some(advisory) = &self.advisory
            && advisory.release(name).await?
        {
            return Ok(Some(true));
        }
        Ok(self.lock_holder(name).await?.map(|_| false))
    }

    /// Gives all locks back; how often they had been taken.
    pub(super) async fn release_all_locks(&mut self) -> SqlResult<u64> {
        let _held = self.interrupts.hold();
        match &self.advisory {
            Some(advisory) => advisory.release_all().await,
            None => Ok(0),
        }
    }

    /// Who holds a lock, as a connection's number. Those of other nodes have the node's number in
    /// their upper half: no two sessions of the cluster look alike.
    pub(super) async fn lock_holder(&self, name: &str) -> SqlResult<Option<i64>> {
        let request = LockRequest::Look { name: name.to_owned() };
        let hold = match self.engine.storage.advisory_lock(request).await? {
            LockAnswer::Held(hold) => hold,
            LockAnswer::Free => return Ok(None),
            _ => return Err(impossible("placement did not say who holds a lock")),
        };
        let own = self.advisory.as_ref().is_some_and(|advisory| advisory.owner == hold.owner);
        // Before this process there may have been another one of the node, whose locks still last.
        let here = hold.node == self.engine.node && hold.connection != self.identity.connection();
        let number = match own || here {
            true => hold.connection,
            false => hold.node << 32 | hold.connection,
        };
        Ok(Some(number.cast_signed()))
    }

    /// Gives back what is held, for the session ends or begins anew.
    pub(super) async fn end_locks(&mut self) {
        let Some(advisory) = self.advisory.take() else { return };
        if let Err(error) = advisory.release_all().await {
            tracing::debug!(%error, "advisory locks are left to run out");
        }
    }
}

impl Advisory {
    async fn take(self: &Arc<Self>, name: &str, wait: Duration) -> SqlResult<bool> {
        let call = {
            let mut names = self.names.lock();
            if let Some(held) = names.held.get_mut(name) {
                held.count += 1;
                return Ok(true);
            }
            names.ended + 1
        };
        let mut open_call = OpenCall { session: self, name, call, open: true };
        let began = Instant::now();
        loop {
            let sent = Instant::now();
            let left = wait.saturating_sub(began.elapsed()).as_micros().div_ceil(1_000);
            let by = Hold {
                owner: self.owner,
                call,
                node: self.engine.node,
                connection: self.connection,
            };
            let wait_ms = u64::try_from(left).unwrap_or(u64::MAX);
            let request = LockRequest::Take { name: name.to_owned(), by, wait_ms };
            match self.engine.storage.advisory_lock(request).await? {
                LockAnswer::Taken => {
                    self.taken(name, call, sent);
                    open_call.open = false;
                    return Ok(true);
                }
                LockAnswer::Busy if began.elapsed() < wait => {}
                LockAnswer::Busy => {
                    open_call.open = false;
                    return Ok(false);
                }
                LockAnswer::Deadlock => {
                    open_call.open = false;
                    return Err(advisory_deadlock());
                }
                _ => return Err(impossible("placement did not say whose a lock is")),
            }
        }
    }

    /// Takes note of a lock that was given, requested at `sent`, which counts as a heartbeat.
    fn taken(self: &Arc<Self>, name: &str, call: u64, sent: Instant) {
        let mut names = self.names.lock();
        names.held.insert(name.to_owned(), Held { call, count: 1 });
        names.ended = names.ended.max(call);
        if names.heartbeat.is_none() {
            names.heartbeat = Some(tokio::spawn(keep(Arc::downgrade(self), sent)));
        }
    }

    /// Gives a lock back once; false if the session does not hold it.
    async fn release(&self, name: &str) -> SqlResult<bool> {
        let call = {
            let mut names = self.names.lock();
            let Some(held) = names.held.get_mut(name) else { return Ok(false) };
            held.count -= 1;
            if held.count > 0 {
                return Ok(true);
            }
            // From here on it is not kept: should placement not get this, it runs out.
            names.held.remove(name).map_or(0, |held| held.call)
        };
        self.give_back(vec![name.to_owned()], call).await?;
        Ok(true)
    }

    async fn release_all(&self) -> SqlResult<u64> {
        let (held, ended) = {
            let mut names = self.names.lock();
            (std::mem::take(&mut names.held), names.ended)
        };
        let count: u64 = held.values().map(|held| held.count).sum();
        if !held.is_empty() {
            self.give_back(held.into_keys().collect(), ended).await?;
        }
        Ok(count)
    }

    async fn give_back(&self, names: Vec<String>, call: u64) -> SqlResult<()> {
        let request = LockRequest::Release { names, owner: self.owner, call };
        self.engine.storage.advisory_lock(request).await?;
        Ok(())
    }

    /// Gives back without anybody who waits for it.
    fn give_back_later(&self, names: Vec<String>, call: u64) {
        // Without a runtime the process is ending, and what it held runs out.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (storage, owner) = (self.engine.storage.clone(), self.owner);
        runtime.spawn(async move {
            let request = LockRequest::Release { names, owner, call };
            if let Err(error) = storage.advisory_lock(request).await {
                tracing::debug!(%error, "advisory locks are left to run out");
            }
        });
    }

    /// What to report to placement, and the last call that it is about; nothing once nothing is held.
    fn sign_of_life(&self) -> Option<(LockRequest, u64)> {
        let mut names = self.names.lock();
        if names.held.is_empty() {
            names.heartbeat = None;
            return None;
        }
        let (held, ended) = (names.held.keys().cloned().collect(), names.ended);
        Some((LockRequest::Keep { owner: self.owner, held, ended }, ended))
    }

    /// Whether the session still believes to hold one of these, by a call up to `ended`.
    fn believes(&self, lost: &[String], ended: u64) -> bool {
        let names = self.names.lock();
        lost.iter().any(|name| names.held.get(name).is_some_and(|held| held.call <= ended))
    }

    /// Ends the connection: its client must not go on as if it held what it has lost.
    fn lose(&self) {
        {
            let mut names = self.names.lock();
            names.held.clear();
            names.heartbeat = None;
        }
        let connection = self.connection;
        tracing::warn!(connection, "a session has lost its advisory locks, and is ended");
        if let Some(host) = &self.engine.host {
            host.kill(connection, false);
        }
    }
}

impl Drop for Advisory {
    fn drop(&mut self) {
        let Names { held, ended, heartbeat } = std::mem::take(self.names.get_mut());
        if let Some(heartbeat) = heartbeat {
            heartbeat.abort();
        }
        if !held.is_empty() {
            self.give_back_later(held.into_keys().collect(), ended);
        }
    }
}

/// A call that requests a lock. Broken off while it is open, by KILL or an error, it may have been given
/// the lock all the same: that is given back.
struct OpenCall<'a> {
    session: &'a Advisory,
    name: &'a str,
    call: u64,
    open: bool,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        {
            let mut names = self.session.names.lock();
            names.ended = names.ended.max(self.call);
        }
        if self.open {
            self.session.give_back_later(vec![self.name.to_owned()], self.call);
        }
    }
}

/// Reports to placement now and then that a session which holds locks is alive; its last heartbeat was at `last`.
async fn keep(session: Weak<Advisory>, mut last: Instant) {
    loop {
        sleep(HEARTBEAT.min(LOST_AFTER.saturating_sub(last.elapsed()))).await;
        let Some(alive) = session.upgrade() else { return };
        let Some((request, ended)) = alive.sign_of_life() else { return };
        let storage = alive.engine.storage.clone();
        // Not kept alive by its own heartbeat.
        drop(alive);
        let sent = Instant::now();
        let answer = timeout_at(last + LOST_AFTER, storage.advisory_lock(request)).await;
        let Some(alive) = session.upgrade() else { return };
        match answer {
            Ok(Ok(LockAnswer::Lost(lost))) if !alive.believes(&lost, ended) => last = sent,
            Ok(Err(error)) if last.elapsed() < LOST_AFTER => {
                tracing::debug!(%error, "advisory locks could not be prolonged");
            }
            _ => return alive.lose(),
        }
    }
}
