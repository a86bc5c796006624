//! Memory that readers share, within budgets: decoded columns, key index blocks, open segments.
//!
//! Only what passed its checksum is ever put in; what is not here can be read again from disk.

use std::hash::Hash;

use lru::LruCache;
use parking_lot::Mutex;

/// A least-recently-used cache with a budget in units of the caller's choice, bytes as a rule.
pub struct Cache<K: Hash + Eq, V: Clone> {
    inner: Mutex<Inner<K, V>>,
    budget: usize,
}

struct Inner<K: Hash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    used: usize,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// An empty cache.
    pub fn new(budget: usize) -> Self {
        Cache { inner: Mutex::new(Inner { entries: LruCache::unbounded(), used: 0 }), budget }
    }

    /// What is kept under a key, now the most recently used.
    pub fn get(&self, key: &K) -> Option<V> {
        self.inner.lock().entries.get(key).map(|(value, _)| value.clone())
    }

    /// Keeps a value, evicting the least recently used ones. One larger than the budget is not
    /// kept.
    pub fn put(&self, key: K, value: V, size: usize) {
        if size > self.budget {
            return;
        }
        let mut inner = self.inner.lock();
        if let Some((_, old)) = inner.entries.put(key, (value, size)) {
            inner.used = inner.used.saturating_sub(old);
        }
        inner.used += size;
        while inner.used > self.budget {
            let Some((_, (_, old))) = inner.entries.pop_lru() else { break };
            inner.used = inner.used.saturating_sub(old);
        }
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        let mut inner = self.inner.lock();
        if let Some((_, old)) = inner.entries.pop(key) {
            inner.used = inner.used.saturating_sub(old);
        }
    }

    /// Units in use.
    pub fn used(&self) -> usize {
        self.inner.lock().used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_holds_and_the_oldest_goes_first() {
        let cache = Cache::new(10);
        cache.put("a", 1, 4);
        cache.put("b", 2, 4);
        assert_eq!(cache.get(&"a"), Some(1));
        cache.put("c", 3, 4);
        assert_eq!((cache.get(&"b"), cache.get(&"a"), cache.get(&"c")), (None, Some(1), Some(3)));
        cache.put("d", 4, 11);
        assert_eq!(cache.get(&"d"), None);
        cache.put("a", 5, 1);
        assert_eq!(cache.used(), 5);
        cache.remove(&"a");
        assert_eq!(cache.used(), 4);
    }
}
