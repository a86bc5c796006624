//! How many request units a second a cluster carries, by what its processors have done so far or by what they are: what
//! CALIBRATE RESOURCE answers. Kept by placement's leader for its term.
//!
//! The method is TiDB's: units that were used divided by the part of the processors that was busy, of SQL nodes or of row
//! nodes, whichever was busier. What others use on the same machine counts as busy, too, where all of it is ours to use: a
//! load's clients may be among them. Processors alone count: a disk or a network that is full first is not seen.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use env::Instant;
use serde::{Deserialize, Serialize};
use types::calibration::{Calibration, KnownLoad};
use types::{Error, NodeId, Result};

use crate::units::Units;

/// After this long without a word a process is gone.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// How often use is noted.
const NOTED_EVERY: Duration = Duration::from_secs(5);
/// For how long that is kept, in milliseconds.
const KEPT_MS: u64 = 24 * 3_600_000;
/// Where less of the processors is busy, what else a node does would be taken for a part of the load.
const LEAST_BUSY: f64 = 0.2;
/// The shortest time that is judged by, in milliseconds.
const SHORTEST_MS: u64 = 20_000;
/// Of a load on a processor of [`Processors::speed`] 1,000: units a second where one process answers clients and holds rows,
/// the same where these are processes of their own, and the part of the latter that SQL nodes do.
const KNOWN: [(KnownLoad, f64, f64, f64); 4] = [
    (KnownLoad::Tpcc, 3_900.0, 2_600.0, 0.67),
    (KnownLoad::ReadWrite, 5_300.0, 4_000.0, 0.49),
    (KnownLoad::ReadOnly, 4_000.0, 3_100.0, 0.54),
    (KnownLoad::WriteOnly, 8_000.0, 6_600.0, 0.43),
];

/// What a process says of the processors that it has, with others of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// How many.
    pub count: u32,
    /// How fast one of them is, in thousandths of the one that [`KNOWN`] was measured on.
    pub speed: u32,
    /// Microseconds of them that this process has used since it began.
    pub used_micros: u64,
    /// All processors of the machine, and the microseconds for which they were busy since it began; none where that is not
    /// known.
    pub machine: Option<(u32, u64)>,
}

impl Processors {
    /// Microseconds for which the machine was busy, if its processors are the process's.
    fn machine_micros(&self) -> Option<u64> {
        self.machine.filter(|(count, _)| *count == self.count).map(|(_, busy)| busy)
    }
}

/// What a process is for, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its machine.
    pub host: String,
    /// Whether it answers MySQL clients.
    pub sql: bool,
    /// Whether it holds rows.
    pub rows: bool,
}

impl Place {
    fn does(&self, kind: Kind) -> bool {
        match kind {
            Kind::Sql => self.sql,
            Kind::Rows => self.rows,
            Kind::Any => true,
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Sql,
    Rows,
    Any,
}

struct Process {
    place: Place,
    processors: Processors,
    /// What it had reported when use was noted last; none if it has begun since.
    noted: Option<Processors>,
    heard: Instant,
}

/// Use over some seconds.
struct Noted {
    at_ms: u64,
    units_per_second: f32,
    /// Part of the processors that was busy.
    busy: f32,
}

/// What is known of a cluster's processors.
pub struct Capacity {
    processes: BTreeMap<NodeId, Process>,
    noted: VecDeque<Noted>,
    /// When use was noted last, and the units that had been used then.
    last: (Instant, Units),
}

impl Capacity {
    /// Nothing is known yet.
    pub fn new(now: Instant) -> Self {
        let (processes, noted) = (BTreeMap::new(), VecDeque::new());
        Capacity { processes, noted, last: (now, Units::ZERO) }
    }

    /// Takes in what a process reports, and what all groups have used by now.
    pub fn note(
        &mut self,
        node: NodeId,
        place: Place,
        processors: Processors,
        used: Units,
        now: Instant,
        now_ms: u64,
    ) {
        let known = self.processes.get(&node);
        // One that has started anew counts from nothing.
        let noted = known.and_then(|known| known.noted).map(|noted| {
            let has_begun_anew = processors.used_micros < noted.used_micros;
            if has_begun_anew { Processors { used_micros: 0, ..noted } } else { noted }
        });
        self.processes.insert(node, Process { place, processors, noted, heard: now });
        self.processes.retain(|_, process| now.since(process.heard) < FORGOTTEN);
        let passed = now.since(self.last.0);
        if passed >= NOTED_EVERY {
            let units = used.0.saturating_sub(self.last.1.0);
            let busy = self.busy(Kind::Sql, passed).max(self.busy(Kind::Rows, passed));
            self.noted.push_back(Noted {
                at_ms: now_ms,
                units_per_second: (Units(units).as_f64() / passed.as_secs_f64()) as f32,
                busy: busy as f32,
            });
            self.noted.retain(|noted| noted.at_ms.saturating_add(KEPT_MS) > now_ms);
            self.last = (now, used);
            for process in self.processes.values_mut() {
                process.noted = Some(process.processors);
            }
        }
    }

    /// Units a second that the cluster carries.
    ///
    /// # Errors
    ///
    /// `Invalid` with what keeps it from being known.
    pub fn quota(&self, by: Calibration) -> Result<u64> {
        let quota = match by {
            Calibration::Hardware(load) => self.by_hardware(load),
            Calibration::Used { from_ms, to_ms } => self.by_use(from_ms, to_ms),
        };
        quota.map(|quota| quota as u64)
    }

    fn by_use(&self, from_ms: u64, to_ms: u64) -> Result<f64> {
        let unknown = |why: String| Err(Error::Invalid(why));
        if to_ms.saturating_sub(from_ms) < SHORTEST_MS {
            return unknown(format!(
                "CALIBRATE RESOURCE needs at least {} seconds to judge by",
                SHORTEST_MS / 1_000
            ));
        }
        // Each is of the time before it.
        let within = |noted: &&Noted| (from_ms + 1..=to_ms).contains(&noted.at_ms);
        let all: Vec<&Noted> = self.noted.iter().filter(within).collect();
        if all.is_empty() {
            return unknown(
                "nothing was noted in that time: placement's leader knows of 24 hours at most, and of none before it \
                 began to lead"
                    .into(),
            );
        }
        let loaded = all.iter().filter(|noted| f64::from(noted.busy) >= LEAST_BUSY);
        let (mut count, mut units, mut busy) = (0, 0.0, 0.0);
        for noted in loaded {
            count += 1;
            units += f64::from(noted.units_per_second);
            busy += f64::from(noted.busy);
        }
        // As TiDB: where it idled for long, the rest may be something else than the load.
        if 2 * count < all.len() {
            return unknown(format!(
                "the load in that time is too low to judge by: less than {:.0} % of the processors was busy for most of \
                 it; choose another time, or calibrate by a WORKLOAD",
                100.0 * LEAST_BUSY
            ));
        }
        Ok(units / busy)
    }

    fn by_hardware(&self, load: KnownLoad) -> Result<f64> {
        let known = KNOWN.into_iter().find(|(known, ..)| *known == load);
        let (_, merged, apart, sql) =
            known.ok_or_else(|| Error::Invalid("an unknown load".into()))?;
        let [sqls, rows, all] = [Kind::Sql, Kind::Rows, Kind::Any].map(|kind| self.power(kind));
        if sqls == 0.0 || rows == 0.0 {
            let what =
                "nodes have not said yet what processors they have: try again in a few seconds";
            return Err(Error::Invalid(what.into()));
        }
        let mut places = self.processes.values().map(|process| &process.place);
        Ok(match places.any(|place| place.sql && !place.rows) {
            true => apart * all.min(sqls / sql).min(rows / (1.0 - sql)),
            false => merged * all,
        })
    }

    /// Machines that have a process of a kind: their processors, and how fast each of them is.
    fn machines(&self, kind: Kind) -> BTreeMap<&str, (u32, u32)> {
        let mut machines = BTreeMap::new();
        for Process { place, processors, .. } in self.processes.values() {
            if place.does(kind) {
                let machine = machines.entry(place.host.as_str()).or_insert((0, 0));
                machine.0 = processors.count.max(machine.0);
                machine.1 = processors.speed.max(machine.1);
            }
        }
        machines
    }

    /// Processors of machines that have a process of a kind, each counted by its speed.
    fn power(&self, kind: Kind) -> f64 {
        let machines = self.machines(kind);
        machines
            .values()
            .map(|(count, speed)| f64::from(*count) * f64::from(*speed) / 1_000.0)
            .sum()
    }

    /// Part of the processors of such machines that was busy in this time, since use was noted last.
    fn busy(&self, kind: Kind, passed: Duration) -> f64 {
        let machines = self.machines(kind);
        let (mut busy, mut all) = (0.0, 0.0);
        for (host, (count, _)) in &machines {
            let here = self.processes.values().filter(|process| process.place.host == *host);
            let (mut by_processes, mut by_all) = (0, 0);
            for Process { processors, noted, .. } in here {
                let Some(noted) = noted else { continue };
                by_processes += processors.used_micros.saturating_sub(noted.used_micros);
                let times = processors.machine_micros().zip(noted.machine_micros());
                by_all = times.map_or(0, |(now, then)| now.saturating_sub(then)).max(by_all);
            }
            let seconds = by_processes.max(by_all) as f64 / 1e6;
            busy += seconds.min(f64::from(*count) * passed.as_secs_f64());
            all += f64::from(*count);
        }
        if all > 0.0 { busy / all / passed.as_secs_f64() } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports each second for some seconds: of each node where it is, and the part of a processor that it uses.
    struct Cluster {
        capacity: Capacity,
        nodes: Vec<(Place, f64, u64)>,
        used: u64,
        second: u64,
        /// Processors of a machine, and how many of them are busy.
        others: Option<(u32, f64)>,
    }

    fn place(host: &str, sql: bool, rows: bool) -> Place {
        Place { host: host.into(), sql, rows }
    }

    impl Cluster {
        fn new(nodes: Vec<Place>) -> Self {
            let nodes = nodes.into_iter().map(|place| (place, 0.0, 0)).collect();
            Cluster {
                capacity: Capacity::new(Instant::default()),
                nodes,
                used: 0,
                second: 0,
                others: None,
            }
        }

        fn run(&mut self, seconds: u64, units_per_second: u64, busy: &[f64]) {
            for _ in 0..seconds {
                self.second += 1;
                self.used += units_per_second;
                for (id, ((place, _, micros), busy)) in self.nodes.iter_mut().zip(busy).enumerate()
                {
                    *micros += (busy * 1e6) as u64;
                    let machine =
                        self.others.map(|(count, busy)| (count, (busy * 1e6) as u64 * self.second));
                    let processors =
                        Processors { count: 4, speed: 1_000, used_micros: *micros, machine };
                    let now = Instant::from_micros(self.second * 1_000_000);
                    let used = Units::whole(self.used);
                    self.capacity.note(
                        id as NodeId,
                        place.clone(),
                        processors,
                        used,
                        now,
                        self.second * 1_000,
                    );
                }
            }
        }

        fn used(&self, from: u64, to: u64) -> Result<u64> {
            self.capacity.quota(Calibration::Used { from_ms: from * 1_000, to_ms: to * 1_000 })
        }
    }

    fn is_about(found: Result<u64>, wanted: u64) {
        let found = found.unwrap();
        assert!(found.abs_diff(wanted) <= wanted / 50, "{found} is not about {wanted}");
    }

    #[test]
    fn the_busier_kind_of_node_says_how_much_more_there_could_be() {
        let mut apart = Cluster::new(vec![place("a", true, false), place("b", false, true)]);
        apart.run(60, 1_000, &[1.0, 2.0]);
        is_about(apart.used(10, 60), 2_000);
        apart.run(60, 1_000, &[3.2, 2.0]);
        is_about(apart.used(70, 120), 1_250);
    }

    #[test]
    fn processes_of_one_machine_share_its_processors() {
        let mut one = Cluster::new(vec![place("a", true, false), place("a", false, true)]);
        one.run(60, 1_000, &[1.0, 1.0]);
        is_about(one.used(10, 60), 2_000);
        let mut merged = Cluster::new(vec![place("a", true, true)]);
        merged.run(60, 1_000, &[1.0]);
        is_about(merged.used(10, 60), 4_000);
    }

    #[test]
    fn what_others_use_of_the_same_processors_counts() {
        let used_beside = |others| {
            let mut cluster = Cluster::new(vec![place("a", true, true)]);
            cluster.others = others;
            cluster.run(60, 1_000, &[1.0]);
            cluster.used(10, 60)
        };
        is_about(used_beside(Some((4, 2.0))), 2_000);
        is_about(used_beside(Some((64, 60.0))), 4_000);
    }

    #[test]
    fn what_cannot_be_judged_by_is_refused_with_a_reason() {
        let mut cluster = Cluster::new(vec![place("a", true, true)]);
        cluster.run(60, 1_000, &[0.2]);
        let refused = |found: Result<u64>, why: &str| {
            let found = found.unwrap_err().to_string();
            assert!(found.contains(why), "{found}");
        };
        refused(cluster.used(10, 60), "too low");
        refused(cluster.used(10, 20), "at least 20 seconds");
        refused(cluster.used(1_000, 2_000), "nothing was noted");
        let nobody = Capacity::new(Instant::default());
        refused(nobody.quota(Calibration::Hardware(KnownLoad::Tpcc)), "have not said yet");
    }

    #[test]
    fn a_process_that_starts_anew_and_one_that_is_gone_do_not_count_twice() {
        let mut cluster = Cluster::new(vec![place("a", true, true), place("b", true, true)]);
        cluster.run(30, 1_000, &[1.0, 1.0]);
        cluster.nodes[0].2 = 0;
        cluster.run(30, 1_000, &[1.0, 1.0]);
        is_about(cluster.used(10, 60), 4_000);
        cluster.nodes.pop();
        cluster.run(60, 1_000, &[1.0]);
        is_about(cluster.used(80, 120), 4_000);
    }

    #[test]
    fn hardware_counts_by_what_a_load_needs_of_each_kind() {
        let quota = |places: Vec<Place>| {
            let mut cluster = Cluster::new(places);
            cluster.run(1, 0, &[0.0, 0.0]);
            cluster.capacity.quota(Calibration::Hardware(KnownLoad::Tpcc)).unwrap() as f64
        };
        let (_, merged, apart, sql) = KNOWN[0];
        let one = quota(vec![place("a", true, false), place("a", false, true)]);
        assert_eq!(one, (4.0 * apart).floor());
        let two = quota(vec![place("a", true, false), place("b", false, true)]);
        assert_eq!(two, (4.0 * apart / sql.max(1.0 - sql)).floor());
        assert_eq!(quota(vec![place("a", true, true)]), 4.0 * merged);
    }
}
