//! Memory that readers share, within budgets: decoded columns, key index blocks, open segments.
//!
//! Only what passed its checksum is ever put in; what is not here can be read again from disk.

use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{Weighter, sync};

/// The same entries go in each run of a program, so that one seed replays one history.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// A cache with a budget in units of the caller's choice, bytes as a rule. It resists scans: a
/// table larger than the budget, read again and again, is found in it as far as the budget goes,
/// where the least recently used would never be (S3-FIFO, Yang et al., SOSP 2023).
pub struct Cache<K, V> {
    inner: sync::Cache<K, Weighed<V>, Weight, Hasher>,
}

#[derive(Clone)]
struct Weighed<V> {
    value: V,
    size: u64,
}

#[derive(Clone)]
struct Weight;

impl<K, V> Weighter<K, Weighed<V>> for Weight {
    fn weight(&self, _: &K, entry: &Weighed<V>) -> u64 {
        entry.size
    }
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// An empty cache for entries of a typical size. An entry larger than a good part of the
    /// budget may not be kept.
    pub fn new(budget: usize, typical: usize) -> Self {
        let (hasher, lifecycle) = (Hasher::default(), DefaultLifecycle::default());
        let entries = budget / typical.max(1);
        let inner = sync::Cache::with(entries, budget as u64, Weight, hasher, lifecycle);
        Cache { inner }
    }

    /// Has another budget from now on, evicting what is too much for it.
    pub fn resize(&self, budget: usize) {
        self.inner.set_capacity(budget as u64);
    }

    /// What is kept under a key, now recently used.
    pub fn get(&self, key: &K) -> Option<V> {
        self.inner.get(key).map(|entry| entry.value)
    }

    /// Keeps a value, evicting others if the budget demands it.
    pub fn put(&self, key: K, value: V, size: usize) {
        // Nothing is free: an entry of no weight would never be evicted.
        self.inner.insert(key, Weighed { value, size: size.max(1) as u64 });
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        self.inner.remove(key);
    }

    /// Forgets what does not meet a condition.
    pub fn retain(&self, keep: impl Fn(&K) -> bool) {
        self.inner.retain(|key, _| keep(key));
    }

    /// Units in use.
    pub fn used(&self) -> usize {
        self.inner.weight() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds() {
        let cache = Cache::new(1_000, 10);
        for n in 0..500 {
            cache.put(n, n, 7 + n % 7);
            assert!(cache.used() <= 1_000);
        }
        assert!(cache.used() > 900, "{}", cache.used());
        cache.put(0, 0, 1_001);
        assert_eq!(cache.get(&0), None);
    }

    #[test]
    fn a_budget_that_shrinks_holds_at_once() {
        let cache = Cache::new(1_000, 10);
        (0..90).for_each(|n| cache.put(n, n, 10));
        cache.resize(300);
        assert!((200..=300).contains(&cache.used()), "{}", cache.used());
        cache.resize(2_000);
        (100..300).for_each(|n| cache.put(n, n, 10));
        assert!(cache.used() > 1_500, "{}", cache.used());
    }

    #[test]
    fn what_is_put_again_or_removed_gives_its_room_back() {
        let cache = Cache::new(100, 10);
        cache.put("a", 1, 30);
        cache.put("b", 2, 20);
        cache.put("a", 3, 10);
        assert_eq!((cache.get(&"a"), cache.get(&"b"), cache.used()), (Some(3), Some(2), 30));
        cache.remove(&"a");
        assert_eq!((cache.get(&"a"), cache.used()), (None, 20));
        cache.put("c", 4, 5);
        cache.retain(|key| *key == "c");
        assert_eq!((cache.get(&"b"), cache.get(&"c"), cache.used()), (None, Some(4), 5));
    }

    #[test]
    fn what_is_scanned_again_and_again_is_found_as_far_as_the_budget_goes() {
        let (cache, entries) = (Cache::new(1_000, 10), 150);
        let mut found = 0;
        for _ in 0..10 {
            for n in 0..entries {
                match cache.get(&n) {
                    Some(()) => found += 1,
                    None => cache.put(n, (), 10),
                }
            }
        }
        // The least recently used would have left before it is asked for, each time.
        assert!(found > 9 * entries / 2, "{found} of {}", 9 * entries);
    }
}
