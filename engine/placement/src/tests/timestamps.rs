//! Random histories of leader changes: timestamps strictly increase, numbers are unique, and no
//! acknowledged change is lost, while deposed leaders go on and clocks jump.

use std::sync::Arc;
use std::time::Duration;

use env::{Clock, Random};
use parking_lot::Mutex;

use super::model::{Flaw, Model, Node, group};
use crate::api::{Catalog, CatalogChange, Request, Response};
use crate::service::PlacementService;

/// What clients received, in order.
#[derive(Default)]
pub struct Received {
    highest: u64,
    ranges: Vec<(u64, u64)>,
    ids: Vec<(u64, u64)>,
    databases: Vec<String>,
    catalog: u64,
    pub broken: Option<String>,
}

impl Received {
    fn fail(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Checks what was received against the catalog at the end; how many timestamps there were.
    pub fn check(&mut self, catalog: &Catalog) -> usize {
        for name in std::mem::take(&mut self.databases) {
            if !catalog.databases.contains(&name) {
                self.fail(format!("database {name} was acknowledged and is gone"));
            }
        }
        let count = self.ranges.len();
        for mut ranges in [std::mem::take(&mut self.ranges), std::mem::take(&mut self.ids)] {
            ranges.sort_unstable();
            if let Some(pair) = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0) {
                self.fail(format!("given twice: {pair:?}"));
            }
        }
        count
    }
}

/// A client that asks whom it likes, deposed leaders included.
pub async fn client(
    services: Vec<Arc<PlacementService>>,
    rounds: u64,
    random: Random,
    received: Arc<Mutex<Received>>,
) {
    for round in 0..rounds {
        for _ in 0..random.below(5) {
            tokio::task::yield_now().await;
        }
        let service = &services[random.below(services.len() as u64) as usize];
        let (before, catalog) = {
            let received = received.lock();
            (received.highest, received.catalog)
        };
        match random.below(8) {
            0 => {
                let count = 1 + random.below(5) as u32;
                if let Response::Ids(first) = service.handle(Request::Ids { count }).await {
                    received.lock().ids.push((first, first + u64::from(count)));
                }
            }
            1 => {
                let name = format!("d{}_{round}", random.u64());
                let change = CatalogChange::CreateDatabase(name.clone());
                if let Response::Changed { catalog, .. } =
                    service.handle(Request::Change(change)).await
                {
                    let mut received = received.lock();
                    received.databases.push(name);
                    received.catalog = received.catalog.max(catalog);
                }
            }
            _ => {
                let count = 1 + random.below(50) as u32;
                // As a client of the same process asks, or any other.
                let here = random.below(2) == 0;
                let given = if here { service.timestamps_at_once(count).await } else { None };
                let answer = match given {
                    Some((first, catalog, term)) => Response::Timestamps { first, catalog, term },
                    None => service.handle(Request::Timestamps { count }).await,
                };
                if let Response::Timestamps { first, catalog: version, .. } = answer {
                    let mut received = received.lock();
                    if first.0 <= before {
                        received.fail(format!("{} was received after {before}", first.0));
                    }
                    if version < catalog {
                        received.fail(format!("catalog {version} was received after {catalog}"));
                    }
                    received.highest = received.highest.max(first.0 + u64::from(count) - 1);
                    received.ranges.push((first.0, first.0 + u64::from(count)));
                }
            }
        }
    }
}

/// Elections, and clocks that go, leap ahead and jump back.
async fn nemesis(nodes: Arc<Vec<Node>>, model: Arc<Model>, random: Random) {
    for _ in 0..60 {
        model.pause(60).await;
        let node = &nodes[random.below(nodes.len() as u64) as usize];
        match random.below(6) {
            0 | 1 => {
                model.elect(node.id).unwrap();
                // Mostly it gets the others' heartbeats soon.
                if random.below(3) > 0 {
                    nodes.iter().for_each(|node| node.report_clock(&nodes));
                }
            }
            4 => node.report_clock(&nodes),
            2 => {
                let to = node.clock.unix_micros() + random.below(20_000_000);
                node.clock.set_unix_micros(to);
            }
            3 => {
                let to = node.clock.unix_micros() - random.below(20_000_000);
                node.clock.set_unix_micros(to);
            }
            _ => nodes.iter().for_each(|node| node.clock.advance(Duration::from_millis(1))),
        }
    }
}

/// Runs one history; the first broken promise, if any, and how many timestamps were received.
fn history(seed: u64, flaw: Flaw) -> (Option<String>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (model, nodes) = group(3, seed, flaw, false);
        let random = Random::seeded(seed.wrapping_mul(31) + 1);
        model.elect(1).unwrap();
        nodes.iter().for_each(|node| node.report_clock(&nodes));
        let nodes = Arc::new(nodes);
        let received = Arc::new(Mutex::new(Received::default()));
        let mut tasks = tokio::task::JoinSet::new();
        let services: Vec<_> = nodes.iter().map(|node| node.service.clone()).collect();
        for _ in 0..6 {
            tasks.spawn(client(services.clone(), 25, random.fork(), received.clone()));
        }
        tasks.spawn(nemesis(nodes.clone(), model.clone(), random.fork()));
        let ended = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the history hangs");

        model.elect(2).unwrap();
        let catalog = loop {
            match services[1].handle(Request::Catalog { known: 0 }).await {
                Response::CatalogWithKeys(catalog, _) => break catalog,
                Response::Failed(_) => model.elect(2).unwrap(),
                other => panic!("{other:?}"),
            };
        };
        let mut received = received.lock();
        let count = received.check(&catalog);
        (received.broken.take(), count)
    })
}

#[test]
fn timestamps_increase_across_leader_changes_and_clock_jumps() {
    let mut answered = 0;
    for seed in 0..300 {
        let (broken, timestamps) = history(seed, Flaw::None);
        assert_eq!(broken, None, "seed {seed}");
        answered += timestamps;
    }
    // The histories must be worth something: not everything may be refused.
    assert!(answered > 300 * 20, "only {answered} requests for timestamps were answered");
}

/// The test above is worth nothing if it cannot fail.
#[test]
fn histories_notice_a_missing_confirmation() {
    let broken = (0..300).filter_map(|seed| history(seed, Flaw::Unconfirmed).0);
    assert!(broken.count() > 0, "unconfirmed timestamps went unnoticed");
}

#[test]
fn histories_notice_a_confirmation_by_somebody_else() {
    let broken = (0..300).filter_map(|seed| history(seed, Flaw::StaleStatus).0);
    assert!(broken.count() > 0, "timestamps confirmed by the successor went unnoticed");
}
