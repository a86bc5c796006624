//! How the rate of each group is shared out among processes: by placement's leader, for its term.
//!
//! A process tells what it has used and whether work waited, and is granted a share of the rate until it asks again; what
//! all of them have been granted is never more than the group's rate. Shares are max-min fair by demand, and what nobody
//! asks for is shared out, too, so that whoever begins has something. A process that hears nothing goes on with what it was
//! granted last. A new leader learns from those who ask what they hold, and grants nobody more for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use env::Instant;
use serde::{Deserialize, Serialize};
use types::NodeId;

use crate::units::Units;

/// After this long without a word a process has lost its share.
const LOST: Duration = Duration::from_secs(10);
/// After this long it is not known any more what it had used.
const FORGOTTEN: Duration = Duration::from_secs(86_400);
/// For how long a new leader grants nobody more than it holds. Every process asks within this time.
const LEARNS: Duration = Duration::from_secs(3);
/// Pause between two requests of a process that has its share.
pub const PERIOD: Duration = Duration::from_secs(1);
/// The same of one whose share others hold still.
const SOON: Duration = Duration::from_millis(200);

/// What a process says of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The group's name.
    pub group: String,
    /// Millionths of units that it has used in this process since that started.
    pub used: u64,
    /// Whether work has waited for units since it last asked.
    pub waited: bool,
    /// What it was granted last, in millionths of units a second.
    pub held: u64,
}

/// What a process may use of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The group's name.
    pub group: String,
    /// Millionths of units a second; none where the group has no limit.
    pub rate: Option<u64>,
    /// Milliseconds after which it should ask again.
    pub again_ms: u64,
}

/// What a term's leader has granted.
#[derive(Debug)]
pub struct Shares {
    since: Instant,
    /// Millionths of units that all groups have used, those that are gone as well.
    used: u64,
    groups: BTreeMap<String, Group>,
}

#[derive(Debug, Default)]
struct Group {
    /// Millionths of units that it has used as far as this leader knows.
    used: u64,
    nodes: BTreeMap<NodeId, Share>,
}

#[derive(Debug)]
struct Share {
    granted: u64,
    /// Millionths of units a second that it could use.
    wants: u64,
    used: u64,
    heard: Instant,
}

impl Shares {
    /// Those of a leader whose term begins.
    pub fn new(now: Instant) -> Self {
        Shares { since: now, used: 0, groups: BTreeMap::new() }
    }

    /// Takes note of what a process has used of a group with this rate, and grants it its share; without a rate, it takes
    /// note alone.
    pub fn ask(&mut self, node: NodeId, of: Use, rate: Option<Units>, now: Instant) -> Grant {
        let term = now.since(self.since);
        let group = self.groups.entry(of.group.clone()).or_default();
        group.nodes.retain(|_, share| now.since(share.heard) < FORGOTTEN);
        let limit = rate.map_or(u64::MAX, |rate| rate.0);
        let known = group.nodes.remove(&node);
        let counted = match &known {
            Some(share) => share.used,
            // What it had used before this term is not known.
            None if term < LOST => of.used,
            // By now, whoever has not been heard of is new.
            None => 0,
        };
        // One that has started anew counts from nothing.
        let used = of.used.checked_sub(counted).unwrap_or(of.used);
        group.used = group.used.saturating_add(used);
        self.used = self.used.saturating_add(used);
        let known = known.filter(|share| share.holds(now));
        let wants = match &known {
            Some(share) if !of.waited => {
                let micros = u64::try_from(now.since(share.heard).as_micros()).unwrap_or(u64::MAX);
                let in_a_second = u128::from(used) * 1_000_000 / u128::from(micros.max(1));
                let in_a_second = u64::try_from(in_a_second).unwrap_or(u64::MAX);
                // Room to grow until it asks again.
                (in_a_second.saturating_add(in_a_second / 4)).saturating_add(limit / 20)
            }
            _ => limit,
        };
        let held = match rate {
            Some(_) => known.map_or(of.held.min(limit), |share| share.granted),
            None => 0,
        };
        let share = Share { granted: held, wants, used: of.used, heard: now };
        group.nodes.insert(node, share);
        let again_ms = PERIOD.as_millis() as u64;
        if rate.is_none() {
            return Grant { group: of.group, rate: None, again_ms };
        }
        let due = group.due(node, limit, now);
        let others =
            group.nodes.iter().filter(|(other, share)| **other != node && share.holds(now));
        let others = others.fold(0_u64, |sum, (_, share)| sum.saturating_add(share.granted));
        let mut granted = due.min(limit.saturating_sub(others));
        if term < LEARNS && held > 0 {
            granted = granted.min(held);
        }
        if let Some(share) = group.nodes.get_mut(&node) {
            share.granted = granted;
        }
        let again = if granted < due { SOON } else { PERIOD };
        Grant { group: of.group, rate: Some(granted), again_ms: again.as_millis() as u64 }
    }

    /// Units that a group has used since this leader's term began.
    pub fn used(&self, group: &str) -> Units {
        Units(self.groups.get(group).map_or(0, |group| group.used))
    }

    /// Units that all groups have used since this leader's term began.
    pub fn used_by_all(&self) -> Units {
        Units(self.used)
    }

    /// Forgets groups that are not there any more.
    pub fn retain(&mut self, there: impl Fn(&str) -> bool) {
        self.groups.retain(|name, _| there(name));
    }
}

impl Share {
    /// Whether the process was heard of lately, so that it has its share.
    fn holds(&self, now: Instant) -> bool {
        now.since(self.heard) < LOST
    }
}

impl Group {
    /// The share of a node that is max-min fair: nobody gets more than it wants while another wants more than it gets, and
    /// what nobody wants is shared out alike.
    fn due(&self, node: NodeId, limit: u64, now: Instant) -> u64 {
        let holders = self.nodes.iter().filter(|(_, share)| share.holds(now));
        let mut wants: Vec<(u64, NodeId)> =
            holders.map(|(node, share)| (share.wants.min(limit), *node)).collect();
        wants.sort_unstable();
        let (mut left, mut due) = (limit, 0);
        let count = wants.len() as u64;
        for (at, (wanted, of)) in wants.into_iter().enumerate() {
            let given = wanted.min(left / (count - at as u64));
            left -= given;
            if of == node {
                due = given;
            }
        }
        due + left.checked_div(count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Units = Units::whole(1_000);

    fn at(millis: u64) -> Instant {
        Instant::from_micros(millis * 1_000)
    }

    /// Processes that would use this much in a second each, and their leader; by steps of 10 ms.
    struct Cluster {
        shares: Shares,
        nodes: Vec<Process>,
        now: u64,
        used: u64,
    }

    struct Process {
        demand: u64,
        held: u64,
        used: u64,
        waited: bool,
        asks_at: u64,
        hears: bool,
    }

    impl Cluster {
        fn new(demands: &[u64]) -> Self {
            let process = |demand: &u64| Process {
                demand: Units::whole(*demand).0,
                held: 0,
                used: 0,
                waited: false,
                asks_at: 0,
                hears: true,
            };
            let nodes = demands.iter().map(process).collect();
            Cluster { shares: Shares::new(at(0)), nodes, now: 0, used: 0 }
        }

        fn run(&mut self, millis: u64) {
            for _ in 0..millis / 10 {
                self.now += 10;
                for (node, process) in self.nodes.iter_mut().enumerate() {
                    let used = process.demand.min(process.held) / 100;
                    process.waited |= process.demand > process.held;
                    process.used += used;
                    self.used += used;
                    if process.hears && self.now >= process.asks_at {
                        let of = Use {
                            group: "g".into(),
                            used: process.used,
                            waited: std::mem::take(&mut process.waited),
                            held: process.held,
                        };
                        let grant = self.shares.ask(node as NodeId, of, Some(LIMIT), at(self.now));
                        process.held = grant.rate.unwrap();
                        process.asks_at = self.now + grant.again_ms;
                    }
                }
                let held: u64 = self.nodes.iter().map(|process| process.held).sum();
                let heard = self.nodes.iter().all(|process| process.hears);
                assert!(!heard || held <= LIMIT.0, "{held} are granted at {}", self.now);
            }
        }

        fn held(&self) -> Vec<u64> {
            self.nodes.iter().map(|process| process.held / 1_000_000).collect()
        }
    }

    #[test]
    fn shares_follow_demand_and_add_up() {
        let mut cluster = Cluster::new(&[5_000, 5_000]);
        cluster.run(5_000);
        assert_eq!(cluster.held(), [500, 500]);
        let before = cluster.used;
        cluster.run(60_000);
        let rate = (cluster.used - before) as f64 / 60.0 / LIMIT.0 as f64;
        assert!((rate - 1.0).abs() < 0.01, "{rate}");
        // One has less to do than its half, then nothing.
        cluster.nodes[0].demand = Units::whole(100).0;
        cluster.run(5_000);
        let held = cluster.held();
        assert!(held[0] < 200 && held[0] + held[1] >= 999, "{held:?}");
        cluster.nodes[0].demand = 0;
        cluster.run(5_000);
        assert!(cluster.held()[1] >= 940, "{:?}", cluster.held());
        // It comes back.
        cluster.nodes[0].demand = Units::whole(5_000).0;
        cluster.run(5_000);
        assert_eq!(cluster.held(), [500, 500]);
    }

    #[test]
    fn a_process_that_is_alone_has_it_all_at_once() {
        let mut cluster = Cluster::new(&[5_000]);
        cluster.run(10);
        assert_eq!(cluster.held(), [1_000]);
    }

    #[test]
    fn one_that_is_silent_keeps_its_share_for_a_while() {
        let mut cluster = Cluster::new(&[5_000, 5_000]);
        cluster.run(5_000);
        cluster.nodes[0].hears = false;
        cluster.run(9_000);
        assert_eq!(cluster.held(), [500, 500]);
        cluster.run(3_000);
        assert_eq!(cluster.held(), [500, 1_000]);
    }

    #[test]
    fn a_new_leader_grants_nobody_more_than_it_holds_until_it_has_heard_all() {
        let mut cluster = Cluster::new(&[5_000, 5_000, 50]);
        cluster.run(10_000);
        let before = cluster.held();
        cluster.shares = Shares::new(at(cluster.now));
        cluster.run(10);
        assert!(cluster.held().iter().zip(&before).all(|(now, then)| now <= then));
        cluster.run(6_000);
        let after = cluster.held();
        assert!(after.iter().zip(&before).all(|(now, then)| now.abs_diff(*then) < 30), "{after:?}");
    }

    #[test]
    fn what_a_process_used_before_the_term_does_not_count_and_all_of_a_later_one_does() {
        let mut shares = Shares::new(at(0));
        for (node, millis, counts) in [(1, 500, 0), (2, 20_000, 40)] {
            let of = Use { group: "g".into(), used: 40, waited: false, held: 0 };
            shares.ask(node, of, None, at(millis));
            assert_eq!(shares.used("g"), Units(counts));
        }
    }

    #[test]
    fn what_is_used_is_counted_once_and_over_restarts() {
        let mut shares = Shares::new(at(0));
        let mut ask = |used: u64, millis: u64| {
            let of = Use { group: "g".into(), used, waited: false, held: 0 };
            let grant = shares.ask(1, of, None, at(millis));
            (grant.rate, shares.used("g"))
        };
        assert_eq!(ask(0, 0), (None, Units(0)));
        assert_eq!(ask(70, 1_000), (None, Units(70)));
        assert_eq!(ask(70, 2_000), (None, Units(70)));
        assert_eq!(ask(20, 3_000), (None, Units(90)), "it has started anew");
        // It was silent for so long that it would have lost a share.
        assert_eq!(ask(25, 60_000), (None, Units(95)));
        shares.retain(|name| name != "g");
        assert_eq!(shares.used("g"), Units::ZERO);
    }
}
