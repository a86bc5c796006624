//! Commits that are under way in one entry, and first phases of asynchronous ones, in the memory of the leader that
//! decides them.
//!
//! A reader cannot meet a lock of such a one yet, or ever. Its keys are announced here **before** its commit timestamp is
//! asked for, and until its entry is applied or provably dropped. Who reads at `ts` got `ts` before looking here: a commit
//! that is not announced yet takes a later timestamp, and one that is gone has left its versions. (CockroachDB's lock
//! table and TiKV's memory locks of asynchronous commits do the same; that the timestamp is the oracle's, and no read has
//! to be remembered, is ours.)
//!
//! It decides nothing, and nothing in it survives a leader: the next one has applied the entry before it reads, or the
//! entry is never applied.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use types::Timestamp;

/// The commits of one node's leaders.
#[derive(Default)]
pub(crate) struct InFlight {
    keys: Mutex<BTreeMap<Vec<u8>, Arc<Commit>>>,
    /// Number of keys, for readers that need not look.
    count: AtomicUsize,
}

struct Commit {
    start_ts: Timestamp,
    /// Zero until it is chosen.
    commit_ts: AtomicU64,
    ended: CancellationToken,
}

impl Commit {
    /// Whether it may become visible at `ts`.
    fn concerns(&self, ts: Timestamp) -> bool {
        match self.commit_ts.load(Ordering::Acquire) {
            0 => self.start_ts <= ts,
            chosen => chosen <= ts.0,
        }
    }
}

/// A commit under way. Dropping it says that it has ended.
#[must_use = "dropping it says that the commit has ended"]
pub(crate) struct Announced {
    table: Arc<InFlight>,
    keys: Vec<Vec<u8>>,
    commit: Arc<Commit>,
}

impl InFlight {
    /// Announces a commit. The caller holds the latches of its keys.
    pub(crate) fn announce(self: &Arc<Self>, keys: Vec<Vec<u8>>, start_ts: Timestamp) -> Announced {
        let ended = CancellationToken::new();
        let commit = Arc::new(Commit { start_ts, commit_ts: AtomicU64::new(0), ended });
        let mut table = self.keys.lock();
        for key in &keys {
            table.insert(key.clone(), commit.clone());
        }
        self.count.store(table.len(), Ordering::Release);
        drop(table);
        Announced { table: self.clone(), keys, commit }
    }

    /// Returns once no commit that was under way can become visible at `ts` on one of the keys.
    pub(crate) async fn pass_keys(&self, keys: &[Vec<u8>], ts: Timestamp) {
        self.pass(|table| {
            let mut commits = keys.iter().filter_map(|key| table.get(key));
            commits.find(|commit| commit.concerns(ts))
        })
        .await;
    }

    /// As [`InFlight::pass_keys`], for `start ≤ key < end`.
    pub(crate) async fn pass_range(&self, start: &[u8], end: &[u8], ts: Timestamp) {
        let bounds = (Bound::Included(start), Bound::Excluded(end.max(start)));
        self.pass(|table| {
            let mut commits = table.range::<[u8], _>(bounds).map(|(_, commit)| commit);
            commits.find(|commit| commit.concerns(ts))
        })
        .await;
    }

    async fn pass(
        &self,
        mut blocking: impl FnMut(&BTreeMap<Vec<u8>, Arc<Commit>>) -> Option<&Arc<Commit>>,
    ) {
        while self.count.load(Ordering::Acquire) > 0 {
            let Some(ended) = blocking(&self.keys.lock()).map(|commit| commit.ended.clone()) else {
                return;
            };
            ended.cancelled().await;
        }
    }
}

impl Announced {
    /// The oracle has given its commit timestamp.
    pub(crate) fn commits_at(&self, commit_ts: Timestamp) {
        self.commit.commit_ts.store(commit_ts.0, Ordering::Release);
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let mut table = self.table.keys.lock();
        for key in &self.keys {
            // The next one of the same key may be announced already.
            if table.get(key).is_some_and(|commit| Arc::ptr_eq(commit, &self.commit)) {
                table.remove(key);
            }
        }
        self.table.count.store(table.len(), Ordering::Release);
        drop(table);
        self.commit.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn passes(table: &InFlight, key: &[u8], ts: u64) -> bool {
        let by_key = table.pass_keys(&[key.to_vec()], Timestamp(ts)).now_or_never().is_some();
        let end = [key, b"\0"].concat();
        let by_range = table.pass_range(key, &end, Timestamp(ts)).now_or_never().is_some();
        assert_eq!(by_key, by_range);
        by_key
    }

    #[test]
    fn readers_pass_commits_that_they_cannot_see() {
        let table = Arc::new(InFlight::default());
        assert!(passes(&table, b"a", 100));
        let keys = vec![b"a".to_vec(), b"c".to_vec()];
        let announced = table.announce(keys, Timestamp(10));
        // No timestamp yet: it may become visible to whoever reads after its start.
        assert!(passes(&table, b"a", 9) && !passes(&table, b"a", 10) && !passes(&table, b"c", 90));
        assert!(passes(&table, b"b", 90), "another key");
        assert!(table.pass_range(b"a", b"z", Timestamp(90)).now_or_never().is_none());
        assert!(table.pass_range(b"z", b"a", Timestamp(90)).now_or_never().is_some());
        announced.commits_at(Timestamp(20));
        assert!(passes(&table, b"a", 19) && !passes(&table, b"a", 20));
        drop(announced);
        assert!(passes(&table, b"a", 100) && passes(&table, b"c", 100));
    }

    #[test]
    fn a_commit_that_ends_leaves_the_next_one_of_its_key_announced() {
        let table = Arc::new(InFlight::default());
        let first = table.announce(vec![b"a".to_vec()], Timestamp(10));
        let second = table.announce(vec![b"a".to_vec()], Timestamp(20));
        drop(first);
        assert!(!passes(&table, b"a", 30));
        drop(second);
        assert!(passes(&table, b"a", 30));
    }

    #[test]
    fn who_waits_goes_on_when_the_commit_ends() {
        let table = Arc::new(InFlight::default());
        let announced = table.announce(vec![b"a".to_vec()], Timestamp(10));
        let keys = [b"a".to_vec()];
        let mut waiting = table.pass_keys(&keys, Timestamp(30)).boxed();
        assert!((&mut waiting).now_or_never().is_none());
        drop(announced);
        assert!(waiting.now_or_never().is_some());
    }
}
