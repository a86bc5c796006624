//! Which node asks a region most, so that its leader can be where it is asked.
//!
//! A node counts that runs sessions beside regions of its own: what it asks of a leader of its own is a function call. A
//! node is *near* a region while two of three requests to it are that node's. Pure: times are passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use env::Instant;
use types::{NodeId, RegionId};

/// A report that is older says nothing about now.
const RECENT: Duration = Duration::from_secs(5);
/// Requests to a region in the recent reports, below which nothing is concluded.
const LEAST: u64 = 20;
/// How long a node stays near a region that nobody asks any more: a pause moves no leader.
const KEPT: Duration = Duration::from_secs(600);

/// What nodes have asked.
#[derive(Default)]
pub(crate) struct Affinity {
    reports: BTreeMap<NodeId, (Instant, BTreeMap<RegionId, u64>)>,
    near: BTreeMap<RegionId, (NodeId, Instant)>,
}

impl Affinity {
    /// Takes in what a node has asked since it last said so.
    pub fn note(&mut self, node: NodeId, asked: Vec<(RegionId, u64)>, now: Instant) {
        let asked: BTreeMap<RegionId, u64> = asked.into_iter().collect();
        let regions: Vec<RegionId> = asked.keys().copied().collect();
        self.reports.insert(node, (now, asked));
        self.reports.retain(|_, (at, _)| now.since(*at) <= RECENT);
        for region in regions {
            let counts = || {
                let of =
                    |(_, asked): &(Instant, BTreeMap<RegionId, u64>)| asked.get(&region).copied();
                self.reports.iter().filter_map(move |(node, report)| Some((of(report)?, *node)))
            };
            let total: u64 = counts().map(|(count, _)| count).sum();
            let Some((most, by)) = counts().max().filter(|_| total >= LEAST) else { continue };
            if most * 3 >= total * 2 {
                self.near.insert(region, (by, now));
            } else {
                self.near.remove(&region);
            }
        }
        self.near.retain(|_, (_, at)| now.since(*at) <= KEPT);
    }

    /// The node that sends two of three requests to all regions, if one does.
    pub fn busiest(&self) -> Option<NodeId> {
        let sums =
            self.reports.iter().map(|(node, (_, asked))| (asked.values().sum::<u64>(), *node));
        let total: u64 = sums.clone().map(|(sum, _)| sum).sum();
        let (most, node) = sums.max()?;
        (total >= LEAST && most * 3 >= total * 2).then_some(node)
    }

    /// The node that is near a region, if one is.
    pub fn near(&self, region: RegionId) -> Option<NodeId> {
        self.near.get(&region).map(|(node, _)| *node)
    }
}

#[cfg(test)]
mod tests {
    use env::{Clock, SimClock};

    use super::*;

    const REGION: RegionId = 7;

    #[test]
    fn who_sends_two_of_three_requests_is_near() {
        let mut affinity = Affinity::default();
        let clock = SimClock::default();
        affinity.note(1, vec![(REGION, LEAST - 1)], clock.now());
        assert_eq!(affinity.near(REGION), None, "too few to tell");
        affinity.note(1, vec![(REGION, 200)], clock.now());
        assert_eq!(affinity.near(REGION), Some(1));
        affinity.note(2, vec![(REGION, 100)], clock.now());
        assert_eq!(affinity.near(REGION), Some(1), "two of three");
        affinity.note(2, vec![(REGION, 101)], clock.now());
        assert_eq!(affinity.near(REGION), None, "nobody is");
        affinity.note(2, vec![(REGION, 400)], clock.now());
        assert_eq!((affinity.near(REGION), affinity.busiest()), (Some(2), Some(2)));
        affinity.note(1, vec![(REGION, 100), (REGION + 1, 200)], clock.now());
        assert_eq!((affinity.near(REGION), affinity.busiest()), (Some(2), None));
        assert_eq!(affinity.near(REGION + 1), Some(1));
    }

    #[test]
    fn old_reports_do_not_count_and_a_pause_moves_nothing() {
        let mut affinity = Affinity::default();
        let clock = SimClock::default();
        affinity.note(1, vec![(REGION, 1_000)], clock.now());
        clock.advance(RECENT + Duration::from_millis(1));
        affinity.note(1, vec![], clock.now());
        assert_eq!(affinity.near(REGION), Some(1), "nobody asks any more");
        affinity.note(2, vec![(REGION, 200)], clock.now());
        assert_eq!(affinity.near(REGION), Some(2));
        clock.advance(KEPT + Duration::from_millis(1));
        affinity.note(1, vec![], clock.now());
        assert_eq!(affinity.near(REGION), None);
    }
}
