//! Requests for votes that come before the peer they are for.
//!
//! A split, or the creation of a region, reaches some nodes before others. Whoever is first asks
//! for votes at once; the request waits here until the peer exists, instead of being repeated an
//! election timeout later. A request that keeps coming means that the peer will not come by
//! itself, since its node took over a snapshot from after the split.

use std::collections::{BTreeMap, VecDeque};

use types::RegionId;

use crate::transport::Envelope;

/// Requests kept at most.
const HELD: usize = 1024;
/// Ticks for which a request is kept.
const HELD_TICKS: u64 = 20;
/// Ticks of requests after which the peer is to be created.
const OVERDUE_TICKS: u64 = 20;
/// Ticks without a request after which the count starts again.
const FORGET_TICKS: u64 = 200;

/// Requests for peers that do not exist.
#[derive(Default)]
pub(crate) struct Held {
    requests: VecDeque<(u64, Envelope)>,
    /// When a request for each region first and last came.
    seen: BTreeMap<RegionId, (u64, u64)>,
}

impl Held {
    /// Keeps a request for a while.
    pub fn keep(&mut self, now: u64, envelope: Envelope) {
        if self.requests.len() >= HELD {
            self.requests.pop_front();
        }
        self.requests.push_back((now + HELD_TICKS, envelope));
    }

    /// Notes a request for a region, and returns whether that has gone on for too long.
    pub fn overdue(&mut self, now: u64, region: RegionId) -> bool {
        let (first, last) = self.seen.entry(region).or_insert((now, now));
        *last = now;
        now >= *first + OVERDUE_TICKS
    }

    /// The region's peer exists: the requests for it.
    pub fn take(&mut self, region: RegionId) -> Vec<Envelope> {
        self.seen.remove(&region);
        let (ours, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.requests).into_iter().partition(|(_, e)| e.region == region);
        self.requests = others;
        ours.into_iter().map(|(_, envelope)| envelope).collect()
    }

    /// Time passes.
    pub fn expire(&mut self, now: u64) {
        self.requests.retain(|(until, _)| *until > now);
        self.seen.retain(|_, (_, last)| *last + FORGET_TICKS > now);
    }
}
