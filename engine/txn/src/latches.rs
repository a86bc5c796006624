//! Per-key latches: a leader holds them from its decision until the proposal is applied or
//! provably dropped, so that no two decisions about a key overlap; but those that only share it may.
//!
//! Keys are taken in ascending order, each first come first served, hence no deadlock. Latches
//! never span nodes or survive a restart: they order decisions, they protect no data.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::api::Mode;

type Slots = Mutex<HashMap<Vec<u8>, Arc<RwLock<()>>>>;

/// The latches of one node.
#[derive(Clone, Default)]
pub struct Latches {
    slots: Arc<Slots>,
}

/// Latches that are held until this is dropped.
#[must_use = "dropping it releases the latches"]
pub struct Latched {
    _held: Vec<Held>,
}

struct Held {
    slots: Arc<Slots>,
    key: Vec<u8>,
    slot: Option<Arc<RwLock<()>>>,
    guard: Option<Guard>,
}

/// Held for its end.
enum Guard {
    Shared { _guard: OwnedRwLockReadGuard<()> },
    Exclusive { _guard: OwnedRwLockWriteGuard<()> },
}

impl Latches {
    /// Takes the latches of all keys, waiting for each in ascending order. Dropping the future
    /// gives back what it holds.
    pub async fn acquire(&self, mut keys: Vec<(Vec<u8>, Mode)>) -> Latched {
        // Of a key that is named twice, the greater mode comes first and stays.
        keys.sort_unstable_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
        keys.dedup_by(|later, first| later.0 == first.0);
        let mut held = Vec::with_capacity(keys.len());
        for (key, mode) in keys {
            let slot = self.slots.lock().entry(key.clone()).or_default().clone();
            let mut one =
                Held { slots: self.slots.clone(), key, slot: Some(slot.clone()), guard: None };
            one.guard = Some(match mode {
                Mode::Shared => Guard::Shared { _guard: slot.read_owned().await },
                Mode::Exclusive => Guard::Exclusive { _guard: slot.write_owned().await },
            });
            held.push(one);
        }
        Latched { _held: held }
    }

    /// Number of keys that are latched or waited for.
    pub fn len(&self) -> usize {
        self.slots.lock().len()
    }

    /// Whether no key is latched or waited for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.guard = None;
        self.slot = None;
        let mut slots = self.slots.lock();
        // Others count themselves under this lock only, so nobody can slip in between.
        if slots.get(&self.key).is_some_and(|slot| Arc::strong_count(slot) == 1) {
            slots.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<(Vec<u8>, Mode)> {
        names.iter().map(|name| (name.as_bytes().to_vec(), Mode::Exclusive)).collect()
    }

    #[tokio::test]
    async fn who_shares_a_key_waits_for_who_has_it_alone_and_nobody_else() {
        let latches = Latches::default();
        let share = || latches.acquire(vec![(b"a".to_vec(), Mode::Shared)]);
        let both = (share().await, share().await);
        let alone = latches.acquire([keys(&["a"]), vec![(b"a".to_vec(), Mode::Shared)]].concat());
        let mut alone = std::pin::pin!(alone);
        let wait = std::time::Duration::from_millis(5);
        assert!(tokio::time::timeout(wait, &mut alone).await.is_err());
        drop(both);
        let alone = alone.await;
        assert!(tokio::time::timeout(wait, share()).await.is_err());
        drop(alone);
        drop(share().await);
        assert!(latches.is_empty());
    }

    #[tokio::test]
    async fn the_same_key_waits_first_come_first_served_and_others_do_not() {
        let latches = Latches::default();
        let first = latches.acquire(keys(&["b", "a", "a"])).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..4 {
            let (latches, order) = (latches.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                let _held = latches.acquire(keys(&["a"])).await;
                order.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(latches.acquire(keys(&["c"])).await);
        assert!(order.lock().is_empty());
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
        assert!(latches.is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_nothing_behind() {
        let latches = Latches::default();
        let first = latches.acquire(keys(&["b"])).await;
        let wait = std::time::Duration::from_millis(5);
        assert!(tokio::time::timeout(wait, latches.acquire(keys(&["a", "b"]))).await.is_err());
        drop(latches.acquire(keys(&["a"])).await);
        drop(first);
        assert!(latches.is_empty());
    }
}
