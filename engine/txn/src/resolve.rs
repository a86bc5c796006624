//! What to do about locks of other transactions: learn their fate at their primaries, then finish
//! what they left behind. A lock of a living transaction is waited for, never broken.

use std::collections::BTreeMap;
use std::time::Duration;

use types::error::LockInfo;
use types::{Error, Result, Timestamp};

use crate::api::{Request, Response};
use crate::client::TxnClient;
use crate::retry::Retry;

/// Longest pause between two looks at a living lock.
const MAX_PAUSE_MS: u64 = 100;

/// What came of locks that were in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Locks whose transactions had ended: they are gone.
    pub resolved: usize,
    /// A lock of a transaction that still lives, and for how many more milliseconds unless it is
    /// prolonged, if there was one.
    pub alive: Option<(LockInfo, u64)>,
}

/// How a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It committed then, or was rolled back.
    Ended(Option<Timestamp>),
    /// It lives for so many more milliseconds.
    Alive(u64),
}

/// A transaction that commits asynchronously, whose primary is locked.
pub(crate) struct Unfinished<'a> {
    pub(crate) primary: &'a [u8],
    pub(crate) start_ts: Timestamp,
    pub(crate) secondaries: Vec<Vec<u8>>,
    pub(crate) min_commit_ts: Timestamp,
    /// Milliseconds for which its other keys may be on their way.
    pub(crate) left: u64,
}

impl TxnClient {
    /// Finishes locks of ended transactions that are in the way of a read at `ts`; later ones are
    /// left alone. Does not wait for living ones.
    pub async fn resolve(&self, locks: &[LockInfo], ts: Timestamp) -> Result<Resolution> {
        let mut retry = self.retry("locks to be resolved");
        let mut transactions: BTreeMap<Timestamp, Vec<&LockInfo>> = BTreeMap::new();
        for lock in locks.iter().filter(|lock| lock.start_ts <= ts) {
            transactions.entry(lock.start_ts).or_default().push(lock);
        }
        let mut resolution = Resolution::default();
        for (start_ts, mut locks) in transactions {
            let Some(first) = locks.first() else { continue };
            let ttl = locks.iter().map(|lock| lock.ttl).max().unwrap_or_default();
            match self.standing(&first.primary, (start_ts, ttl), &mut retry).await? {
                Standing::Alive(left) => {
                    resolution.alive.get_or_insert(((*first).clone(), left));
                }
                Standing::Ended(commit_ts) => {
                    locks.sort_by(|a, b| a.key.cmp(&b.key));
                    let keys = locks.iter().map(|lock| lock.key.clone()).collect();
                    resolution.resolved += locks.len();
                    self.finish(start_ts, commit_ts, keys, &mut retry).await?;
                }
            }
        }
        Ok(resolution)
    }

    /// Gets a lock out of the way, or pauses because its transaction lives.
    pub(crate) async fn get_past(&self, lock: &LockInfo, waiting: &mut Retry) -> Result<()> {
        let resolution = self.resolve(std::slice::from_ref(lock), Timestamp::MAX).await?;
        let Some((lock, left)) = resolution.alive else { return Ok(()) };
        let pause = Duration::from_millis(left.clamp(1, MAX_PAUSE_MS));
        let short = waiting.next_pause().min(pause);
        waiting.pause_for(short, Error::Locked(Box::new(lock))).await
    }

    /// Asks for a transaction's fate at its primary, which rolls it back if its time is over.
    pub(crate) async fn standing(
        &self,
        of_primary: &[u8],
        (start_ts, ttl): (Timestamp, u64),
        retry: &mut Retry,
    ) -> Result<Standing> {
        if let Some(fate) = self.known_fate(start_ts) {
            return Ok(Standing::Ended(fate));
        }
        loop {
            let target = self.locate(of_primary, retry).await?;
            let now = self.timestamp().await?;
            let region = target.reference();
            let primary = of_primary.to_vec();
            let request = Request::CheckStatus { region, primary, start_ts, now, ttl };
            match self.send(&target, request).await {
                Ok(Response::Fate(fate)) => {
                    self.remember_fate(start_ts, fate);
                    return Ok(Standing::Ended(fate));
                }
                Ok(Response::Alive(left)) => return Ok(Standing::Alive(left)),
                Ok(Response::Pending { secondaries, min_commit_ts, left }) => {
                    let of = Unfinished {
                        primary: of_primary,
                        start_ts,
                        secondaries,
                        min_commit_ts,
                        left,
                    };
                    let standing = self.finish_async(of, retry).await?;
                    if let Standing::Ended(fate) = standing {
                        self.remember_fate(start_ts, fate);
                    }
                    return Ok(standing);
                }
                Ok(_) => return Err(unexpected("a transaction's status")),
                Err(error) if error.is_retryable() => retry.pause(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Commits or rolls back every lock of an ended transaction in the regions of these keys.
    async fn finish(
        &self,
        start_ts: Timestamp,
        commit_ts: Option<Timestamp>,
        keys: Vec<Vec<u8>>,
        retry: &mut Retry,
    ) -> Result<()> {
        let mut left = keys;
        while !left.is_empty() {
            let groups = self.group(std::mem::take(&mut left), Vec::as_slice, retry).await?;
            for (target, keys) in groups {
                let region = target.reference();
                let request = Request::Resolve { region, start_ts, commit_ts, keys: vec![] };
                match self.send(&target, request).await {
                    Ok(Response::Done) => {}
                    Ok(_) => return Err(unexpected("resolved locks")),
                    Err(error) if error.is_retryable() => {
                        left.extend(keys);
                        retry.pause(error).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// A leader's answer that does not fit its request.
pub(crate) fn unexpected(what: &str) -> Error {
    Error::Corrupt(format!("the answer to a request for {what} is of another kind"))
}
