//! Faults of the network.

use std::time::Duration;

use tokio::time::sleep;

use super::Nemesis;
use crate::network::{Host, Weather};
use crate::world::Kind;

/// Longest time that links are cut, in milliseconds.
const CUT_MS: u64 = 8_000;
/// Longest time that the network is bad.
const BAD_MS: u64 = 5_000;

impl Nemesis {
    fn everybody(&self) -> Vec<Host> {
        let kinds = [Kind::Rows, Kind::Columns, Kind::Client];
        kinds.into_iter().flat_map(|kind| self.world.hosts(kind)).collect()
    }

    pub(super) fn meet_links(&self, name: &str) -> bool {
        let fair = Weather::FAIR;
        let some = |most: u64| (1 + self.random.below(most)) as f64 / 100.0;
        let weather = match name {
            "loss" => Weather { loss: some(30), ..fair },
            "delay" => Weather {
                delay_ms: 5 + self.random.below(300),
                straggle: some(5),
                straggle_ms: 12_000,
                ..fair
            },
            "repeat" => Weather { repeat: some(40), delay_ms: 60, ..fair },
            _ => return self.cut(name),
        };
        self.world.network.set_weather(weather);
        let (world, bad) = (self.world.clone(), self.up_to(BAD_MS));
        tokio::spawn(async move {
            sleep(bad).await;
            world.network.set_weather(Weather::FAIR);
        });
        true
    }

    fn cut(&self, name: &str) -> bool {
        let hosts = self.everybody();
        let mut links: Vec<(Host, Host)> = Vec::new();
        match name {
            "isolate" => {
                let Some(alone) = self.pick(&hosts) else { return false };
                let others = hosts.iter().filter(|other| **other != alone);
                links.extend(others.flat_map(|other| [(alone, *other), (*other, alone)]));
            }
            "rows-apart" => {
                // Row nodes lose one of them, and everybody else still reaches all.
                let rows = self.world.hosts(Kind::Rows);
                let Some(alone) = self.pick(&rows) else { return false };
                let others = rows.iter().filter(|other| **other != alone);
                links.extend(others.flat_map(|other| [(alone, *other), (*other, alone)]));
            }
            "one-way" => {
                let Some(to) = self.pick(&hosts) else { return false };
                let from = hosts.iter().filter(|from| **from != to && self.random.chance(0.6));
                links.extend(from.map(|from| (*from, to)));
                if self.random.chance(0.5) {
                    links.iter_mut().for_each(|link| *link = (link.1, link.0));
                }
            }
            _ => {
                let (left, right): (Vec<Host>, Vec<Host>) =
                    hosts.iter().partition(|_| self.random.chance(0.5));
                let across = left.iter().flat_map(|one| right.iter().map(|other| (*one, *other)));
                links.extend(across.flat_map(|(one, other)| [(one, other), (other, one)]));
            }
        }
        links.iter().for_each(|(from, to)| self.world.network.cut(*from, *to, true));
        let (world, time) = (self.world.clone(), self.up_to(CUT_MS));
        tokio::spawn(async move {
            sleep(time.max(Duration::from_millis(100))).await;
            links.iter().for_each(|(from, to)| world.network.cut(*from, *to, false));
        });
        !hosts.is_empty()
    }
}
