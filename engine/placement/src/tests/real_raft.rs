//! The promises of `timestamps` again, over the real Raft store: its elections, its read indexes,
//! its crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use env::{Clock, Random, SimClock};
use kv::MemoryKv;
use parking_lot::Mutex;
use raft::testing::{SimCluster, SimOptions};
use types::NodeId;
use types::region::PLACEMENT_REGION;

use super::timestamps::{Received, client};
use crate::api::{NodeReport, Request, Response};
use crate::bootstrap::placement_region;
use crate::machines::PlacementMachines;
use crate::service::PlacementService;
use crate::view::View;

/// What survives on a node's disk beside the log, and what its processes share.
struct Member {
    store: Mutex<MemoryKv>,
    view: Arc<View>,
    clock: SimClock,
}

fn cluster(seed: u64, root: &std::path::Path) -> (SimCluster, BTreeMap<NodeId, Arc<Member>>) {
    let member = |_| {
        let store = Mutex::new(MemoryKv::new());
        Arc::new(Member { store, view: Arc::default(), clock: SimClock::default() })
    };
    let members: BTreeMap<NodeId, Arc<Member>> = (1..=3).map(|id| (id, member(id))).collect();
    let made = members.clone();
    let maker = move |node: NodeId| {
        let member = &made[&node];
        let store = Arc::new(member.store.lock().clone());
        let machines = PlacementMachines::new(store, member.view.clone(), None);
        Box::new(machines) as Box<dyn raft::Machines>
    };
    let options = SimOptions { seed, max_delay: 8, ..SimOptions::default() };
    let mut cluster = SimCluster::start(options, root, Box::new(maker)).unwrap();
    cluster.create(&placement_region(&[1, 2, 3]).unwrap()).unwrap();
    assert!(cluster.run_until(200, |cluster| cluster.leader(PLACEMENT_REGION).is_some()));
    (cluster, members)
}

/// Time passes for the cluster, and others run.
async fn step(cluster: &mut SimCluster) {
    cluster.step();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Cuts leaders off, kills nodes, sets clocks.
fn harm(cluster: &mut SimCluster, members: &BTreeMap<NodeId, Arc<Member>>, random: &Random) {
    let node = 1 + random.below(3);
    let clock = &members[&node].clock;
    match random.below(8) {
        0 | 1 => {
            let leader = cluster.leader(PLACEMENT_REGION);
            cluster.partition(&leader.into_iter().collect::<Vec<_>>());
        }
        2 => cluster.partition(&[]),
        3 if cluster.is_up(node) => {
            cluster.crash(node).unwrap();
            let mut store = members[&node].store.lock();
            let survived = store.crash(random.u64());
            *store = survived;
        }
        3 => cluster.restart(node).unwrap(),
        4 => clock.set_unix_micros(clock.unix_micros() + random.below(20_000_000)),
        5 => clock.set_unix_micros(clock.unix_micros() - random.below(20_000_000)),
        _ => members.values().for_each(|member| member.clock.advance(Duration::from_millis(40))),
    }
}

/// Every clock reaches who believes to lead, as with heartbeats.
fn report_clocks(services: &[Arc<PlacementService>], members: &BTreeMap<NodeId, Arc<Member>>) {
    for service in services {
        let Ok(term) = service.lead() else { continue };
        let Ok(mut leader) = service.leader_state(term) else { continue };
        for (id, member) in members {
            let clock_ms = Some(member.clock.unix_millis());
            let report = NodeReport { clock_ms, ..NodeReport::default() };
            leader.record_heartbeat(*id, report, Vec::new(), service.clock.now());
        }
    }
}

async fn history(seed: u64) -> usize {
    let root = tempfile::tempdir().unwrap();
    let (mut cluster, members) = cluster(seed, root.path());
    let random = Random::seeded(seed + 77);
    let services: Vec<_> = members
        .iter()
        .map(|(id, member)| {
            let groups = Arc::new(cluster.groups(*id).unwrap());
            let clock = Arc::new(member.clock.clone());
            PlacementService::new(*id, groups, member.view.clone(), clock, random.fork())
        })
        .collect();
    let received = Arc::new(Mutex::new(Received::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        tasks.spawn(client(services.clone(), 60, random.fork(), received.clone()));
    }
    let mut steps = 0;
    while !tasks.is_empty() {
        steps += 1;
        assert!(steps < 200_000, "seed {seed}: the history hangs");
        if random.below(120) == 0 {
            harm(&mut cluster, &members, &random);
        }
        if random.below(5) == 0 {
            report_clocks(&services, &members);
        }
        // Nobody waits for ever for a majority.
        if steps % 1_500 == 0 {
            cluster.partition(&[]);
            for node in 1..=3 {
                if !cluster.is_up(node) {
                    cluster.restart(node).unwrap();
                }
            }
        }
        step(&mut cluster).await;
        while let Some(ended) = tasks.try_join_next() {
            ended.unwrap();
        }
    }
    cluster.partition(&[]);
    (1..=3).filter(|node| !cluster.is_up(*node)).collect::<Vec<_>>().into_iter().for_each(|node| {
        cluster.restart(node).unwrap();
    });
    let catalog = loop {
        steps += 1;
        assert!(steps < 400_000, "seed {seed}: nobody leads in the end");
        let Some(leader) = cluster.leader(PLACEMENT_REGION) else {
            step(&mut cluster).await;
            continue;
        };
        let service = services[leader as usize - 1].clone();
        let answer =
            tokio::spawn(async move { service.handle(Request::Catalog { known: 0 }).await });
        while !answer.is_finished() {
            step(&mut cluster).await;
        }
        if let Response::CatalogWithKeys(catalog, _) = answer.await.unwrap() {
            break catalog;
        }
    };
    let mut received = received.lock();
    let count = received.check(&catalog);
    assert_eq!(received.broken, None, "seed {seed}");
    count
}

#[test]
fn timestamps_increase_over_real_elections_partitions_and_crashes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let answered: usize = (0..100).map(|seed| runtime.block_on(history(seed))).sum();
    assert!(answered > 100 * 60, "only {answered} requests for timestamps were answered");
}
