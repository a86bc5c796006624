//! Who waits for whom: finds the wait that closes a circle of transactions.
//!
//! Pure, and in the memory of placement's leader only: leaders of regions repeat what they say
//! while a wait lasts, so that a new leader of placement knows of it within a second or so. What is
//! not repeated is forgotten. It ends no transaction: it reports whose wait would never end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use env::Instant;
use types::Timestamp;

/// How long a wait is believed in without being repeated.
pub const BELIEVED_FOR: Duration = Duration::from_secs(4);

struct Edge {
    key: Vec<u8>,
    holder: Timestamp,
    until: Instant,
}

/// Waits that are going on.
#[derive(Default)]
pub struct WaitGraph {
    edges: BTreeMap<Timestamp, Vec<Edge>>,
    /// Transactions that were chosen as victims. None of them may be part of a second circle.
    victims: BTreeMap<Timestamp, Instant>,
}

impl WaitGraph {
    /// `waiter` waits for `holder` to give up a key. Gives the circle that this closes, beginning
    /// with the waiter, who then has to give way and is taken out of the graph.
    pub fn wait(
        &mut self,
        now: Instant,
        waiter: Timestamp,
        holder: Timestamp,
        key: &[u8],
    ) -> Option<Vec<Timestamp>> {
        self.expire(now);
        self.ended(waiter, key);
        if self.victims.contains_key(&waiter) {
            return Some(vec![waiter]);
        }
        if self.victims.contains_key(&holder) {
            return None;
        }
        let mut path = vec![waiter];
        if waiter == holder || self.reaches(holder, waiter, &mut path, &mut BTreeSet::new()) {
            self.edges.remove(&waiter);
            self.victims.insert(waiter, now + BELIEVED_FOR);
            return Some(path);
        }
        let edge = Edge { key: key.to_vec(), holder, until: now + BELIEVED_FOR };
        self.edges.entry(waiter).or_default().push(edge);
        None
    }

    /// `waiter` no longer waits for a key.
    pub fn ended(&mut self, waiter: Timestamp, key: &[u8]) {
        if let Some(edges) = self.edges.get_mut(&waiter) {
            edges.retain(|edge| edge.key != key);
            if edges.is_empty() {
                self.edges.remove(&waiter);
            }
        }
    }

    /// Number of transactions that wait.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Whether there is a way from one transaction to another; appends those on it to `path`.
    fn reaches(
        &self,
        from: Timestamp,
        to: Timestamp,
        path: &mut Vec<Timestamp>,
        seen: &mut BTreeSet<Timestamp>,
    ) -> bool {
        // A stack of its own: circles may be as long as there are transactions.
        let mut stack = vec![(from, 1)];
        while let Some((at, depth)) = stack.pop() {
            if !seen.insert(at) {
                continue;
            }
            path.truncate(depth);
            path.push(at);
            for edge in self.edges.get(&at).into_iter().flatten() {
                if edge.holder == to {
                    return true;
                }
                stack.push((edge.holder, depth + 1));
            }
        }
        false
    }

    fn expire(&mut self, now: Instant) {
        self.victims.retain(|_, until| *until > now);
        self.edges.retain(|_, edges| {
            edges.retain(|edge| edge.until > now);
            !edges.is_empty()
        });
    }
}
