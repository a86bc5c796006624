//! The service and the client together, in one process, over the model.

use std::sync::Arc;
use std::time::Duration;

use types::{Error, Peer, PeerRole, Region, RegionKind, Timestamp};

use super::model::{Flaw, Model, Node as Member, group};
use super::state_scripts::table;
use crate::api::{
    CatalogChange, Grants, Node, NodeReport, NodeRole, Order, PeerReport, Request, Response,
    Session, User,
};
use crate::client::PlacementClient;
use crate::state::DEFAULT_LIFE_MS;
use crate::testing::InProcess;

struct Cluster {
    model: Arc<Model>,
    members: Vec<Member>,
    network: Arc<InProcess>,
    client: PlacementClient,
}

fn address(node: u64) -> String {
    format!("127.0.0.1:{node}")
}

impl Cluster {
    fn start(rows: u64) -> Self {
        let (model, members) = group(rows, 1, Flaw::None, true);
        let network = InProcess::new();
        for member in &members {
            network.attach(address(member.id), member.service.clone());
        }
        model.elect(1).unwrap();
        members.iter().for_each(|member| member.report_clock(&members));
        let client = PlacementClient::new(network.clone(), (1..=rows).map(|n| (n, address(n))));
        Cluster { model, members, network, client }
    }

    async fn register(&self, id: u64, role: NodeRole) {
        let node = Node { id, role, rpc_address: address(id), client_address: String::new() };
        self.client.register(node, Session::default()).await.unwrap();
    }

    /// Peers that are given no number are those that the region lists.
    async fn heartbeat(&self, node: u64, mut peers: Vec<PeerReport>) -> Vec<Order> {
        for peer in peers.iter_mut().filter(|peer| peer.peer == 0) {
            peer.peer = peer.region.peer_on(node).map_or(0, |listed| listed.id);
        }
        let report = NodeReport::default();
        let heartbeat = self.client.heartbeat(node, report, peers);
        tokio::time::timeout(Duration::from_secs(5), heartbeat).await.unwrap().unwrap()
    }

    /// Creates `d.t`, which wants one columnar replica, on row node 1: the table and its region.
    async fn replicated_table(&self) -> (types::Table, Region) {
        let client = self.client.clone();
        client.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
        let wanted = types::Table { columnar_replicas: 1, ..table("d", "t", &[]) };
        let change = CatalogChange::CreateTable(Box::new(wanted));
        let creating = tokio::spawn(async move { client.change(change).await });
        let orders = self.heartbeat_until(1, vec![], |orders| !orders.is_empty()).await;
        let Some(Order::Create(region)) = orders.first() else { panic!("{orders:?}") };
        self.heartbeat(1, vec![peer(region, true)]).await;
        (creating.await.unwrap().unwrap().unwrap(), region.clone())
    }

    /// Sends heartbeats until the orders are as wanted.
    async fn heartbeat_until(
        &self,
        node: u64,
        peers: Vec<PeerReport>,
        wanted: impl Fn(&[Order]) -> bool,
    ) -> Vec<Order> {
        for _ in 0..40 {
            let orders = self.heartbeat(node, peers.clone()).await;
            if wanted(&orders) {
                return orders;
            }
        }
        panic!("node {node} was never given the orders waited for");
    }

    /// Sends heartbeats while time passes, until the node is ordered to destroy so many regions.
    async fn heartbeat_until_destroyed(
        &self,
        node: u64,
        peers: Vec<PeerReport>,
        count: usize,
    ) -> Vec<Order> {
        for _ in 0..400 {
            let orders = self.heartbeat(node, peers.clone()).await;
            if orders.len() == count {
                return orders;
            }
            // The floor passes the drop first; that all is settled is seen a round later.
            self.members[0].clock.advance(Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("node {node} was never ordered to destroy what was dropped");
    }
}

fn destroy(as_reported: &Region) -> Order {
    Order::Destroy { region: as_reported.id, conf: as_reported.epoch.conf }
}

fn peer(region: &Region, leader: bool) -> PeerReport {
    PeerReport {
        region: region.clone(),
        peer: 0,
        leader,
        term: 6,
        applied: 9,
        committed: 9,
        bytes: 10,
        rows: 2,
        ready: true,
        damaged: false,
        lag: None,
        floor: Timestamp::ZERO,
        history_bytes: 0,
    }
}

#[tokio::test]
async fn client_follows_the_leader_and_survives_its_crash() {
    let cluster = Cluster::start(3);
    let (first, _) = cluster.client.timestamp().await.unwrap();
    cluster.model.elect(3).unwrap();
    let (second, _) = cluster.client.timestamp().await.unwrap();
    assert!(second > first);
    cluster.model.set_dead(3, true);
    cluster.network.detach(&address(3));
    let waiting = tokio::spawn({
        let client = cluster.client.clone();
        async move { client.timestamp().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished(), "nobody leads");
    cluster.model.elect(2).unwrap();
    let (third, _) = waiting.await.unwrap().unwrap();
    assert!(third > second);
}

#[tokio::test]
async fn concurrent_callers_share_requests_and_get_their_own_timestamps() {
    let cluster = Cluster::start(1);
    cluster.client.timestamp().await.unwrap();
    let before = cluster.model.committed();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..1_000 {
        let client = cluster.client.clone();
        tasks.spawn(async move { client.timestamp().await.unwrap().0 });
    }
    let mut got: Vec<Timestamp> = tasks.join_all().await;
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), 1_000);
    // Consecutive ones can only come of few allocations.
    let gaps = got.windows(2).filter(|pair| pair[0].next() != pair[1]).count();
    assert!(gaps < 50, "{gaps} gaps: requests were not batched");
    assert!(cluster.model.committed() - before < 3, "timestamps were written to the log");
}

#[tokio::test]
async fn catalog_is_fetched_once_for_each_version() {
    let cluster = Cluster::start(1);
    let other = PlacementClient::new(cluster.network.clone(), [(1, address(1))]);
    let first = cluster.client.catalog().await.unwrap();
    assert!(Arc::ptr_eq(&first, &cluster.client.catalog().await.unwrap()));
    other.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
    assert!(other.catalog().await.unwrap().database_named("D").is_some());
    // The first client does not know of it until it gets a timestamp.
    assert!(Arc::ptr_eq(&first, &cluster.client.catalog().await.unwrap()));
    cluster.client.timestamp().await.unwrap();
    assert!(cluster.client.catalog().await.unwrap().database_named("d").is_some());
}

#[tokio::test]
async fn refusals_reach_the_caller_at_once() {
    let cluster = Cluster::start(1);
    let change = CatalogChange::CreateDatabase("d".into());
    cluster.client.change(change.clone()).await.unwrap();
    assert_eq!(cluster.client.change(change).await, Err(Error::exists("database", "d")));
    let grants = Grants::default();
    let user = User { name: String::new(), host: "%".into(), credentials: vec![], grants };
    let refused = cluster.client.change(CatalogChange::PutUser(user)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))));
    assert!(matches!(cluster.client.timestamps(0).await, Err(Error::Invalid(_))));
    let unknown = cluster.client.heartbeat(77, NodeReport::default(), vec![]).await;
    assert_eq!(unknown, Err(Error::not_found("node", "77")));
}

#[tokio::test]
async fn table_is_created_by_heartbeats_split_and_found_again() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let client = cluster.client.clone();
    client.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
    let change = CatalogChange::CreateTable(Box::new(table("d", "t", &["x".into()])));
    let creating = tokio::spawn(async move { client.change(change).await });

    let orders = cluster.heartbeat_until(1, vec![], |orders| orders.len() == 2).await;
    assert!(!creating.is_finished(), "its regions have no leader yet");
    let regions: Vec<Region> = orders
        .into_iter()
        .map(|order| match order {
            Order::Create(region) => region,
            other => panic!("{other:?}"),
        })
        .collect();
    let all = || regions.iter().map(|region| peer(region, true)).collect::<Vec<_>>();
    assert_eq!(cluster.heartbeat(1, all()).await, vec![]);
    let created = creating.await.unwrap().unwrap().unwrap();
    assert_eq!((created.id, created.version), (100, 1));

    let key = types::key::record(created.id, &[types::Value::Int(5)]);
    let route = cluster.client.locate(&key).await.unwrap();
    assert_eq!(route.leader, Some(1));
    assert_eq!(route.rows, 2);
    let index = cluster.client.regions(RegionKind::Index(created.id, 1)).await.unwrap();
    assert_eq!(index.len(), 1);

    // Split at 5: the child reports first.
    let mut parent = route.region.clone();
    let mut child = route.region.clone();
    (parent.epoch.version, child.epoch.version) = (2, 2);
    (parent.end, child.start) = (key.clone(), key.clone());
    child.id = 5_000;
    child.peers[0].id = 5_001;
    let index = index[0].region.clone();
    cluster
        .heartbeat(1, vec![peer(&child, true), peer(&route.region, true), peer(&index, true)])
        .await;
    cluster.client.invalidate(route.region.id);
    assert_eq!(cluster.client.locate(&key).await.unwrap().region.id, 5_000);
    let client = cluster.client.clone();
    let kind = RegionKind::Records(created.id);
    let listing = tokio::spawn(async move { client.fresh_regions(kind).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!listing.is_finished(), "the parent still claims the child's range");
    cluster.heartbeat(1, vec![peer(&child, true), peer(&parent, true), peer(&index, true)]).await;
    let listed = listing.await.unwrap().unwrap();
    assert_eq!(listed.iter().map(|route| route.region.id).collect::<Vec<_>>(), [parent.id, 5_000]);

    // Dropped: rows stay for a while, then they are to be destroyed, then forgotten.
    cluster.client.change(CatalogChange::DropTable(created.id)).await.unwrap();
    let reports = || vec![peer(&child, true), peer(&parent, true), peer(&index, true)];
    assert_eq!(cluster.heartbeat(1, reports()).await, vec![]);
    // Locks elsewhere may hang on what became of their transactions there.
    cluster.client.invalidate(5_000);
    assert_eq!(cluster.client.locate(&key).await.unwrap().region.id, 5_000);
    cluster.members[0].clock.advance(Duration::from_millis(DEFAULT_LIFE_MS + 1_000));
    let orders = cluster.heartbeat_until_destroyed(1, reports(), 3).await;
    assert!(orders.contains(&destroy(&child)));
    for _ in 0..40 {
        assert_eq!(cluster.heartbeat(1, vec![]).await, vec![]);
        cluster.client.invalidate(5_000);
        match cluster.client.locate(&key).await {
            Err(Error::NotFound { .. }) => return,
            found => assert_eq!(found.unwrap().region.id, 5_000),
        }
    }
    panic!("a region that nobody holds is still found");
}

#[tokio::test]
async fn leases_protect_the_rows_of_dropped_tables() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let client = cluster.client.clone();
    client.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
    let creating = tokio::spawn(async move {
        client.change(CatalogChange::CreateTable(Box::new(table("d", "t", &[])))).await
    });
    let orders = cluster.heartbeat_until(1, vec![], |orders| !orders.is_empty()).await;
    let Some(Order::Create(region)) = orders.first() else { panic!("{orders:?}") };
    let reports = || vec![peer(region, true)];
    cluster.heartbeat(1, reports()).await;
    let id = creating.await.unwrap().unwrap().unwrap().id;

    let lease = cluster.client.take_lease(None, Duration::from_secs(600), "a job").await.unwrap();
    assert_eq!(cluster.client.leases().await.unwrap(), std::slice::from_ref(&lease));
    cluster.client.change(CatalogChange::DropTable(id)).await.unwrap();
    let clock = &cluster.members[0].clock;
    clock.advance(Duration::from_secs(300));
    assert_eq!(cluster.heartbeat(1, reports()).await, vec![]);
    cluster.client.renew_lease(lease.id, Duration::from_secs(600)).await.unwrap();
    clock.advance(Duration::from_secs(500));
    assert_eq!(cluster.heartbeat(1, reports()).await, vec![]);
    clock.advance(Duration::from_secs(101));
    let orders = cluster.heartbeat_until_destroyed(1, reports(), 1).await;
    assert_eq!(orders, [destroy(region)]);
    let lost = cluster.client.renew_lease(lease.id, Duration::from_secs(1)).await;
    assert_eq!(lost, Err(Error::LeaseLost(lease.id)));
    cluster.client.release_lease(lease.id).await.unwrap();
    let future = Timestamp(lease.ts.0 << 1);
    let refused = cluster.client.take_lease(Some(future), Duration::from_secs(1), "x").await;
    assert!(matches!(refused, Err(Error::Invalid(_))));
}

#[tokio::test]
async fn columns_of_a_dropped_table_stay_while_a_lease_may_read_them() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let node = cluster.client.ids(1).await.unwrap();
    cluster.register(node, NodeRole::Columnar).await;
    let (table, mut region) = cluster.replicated_table().await;
    cluster.heartbeat(node, vec![]).await;
    let orders =
        cluster.heartbeat_until(1, vec![peer(&region, true)], |orders| !orders.is_empty()).await;
    let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
    region.peers.clone_from(peers);
    region.epoch.conf += 1;
    cluster.heartbeat(1, vec![peer(&region, true)]).await;
    cluster.heartbeat(node, vec![peer(&region, false)]).await;

    let lease = cluster.client.take_lease(None, Duration::from_secs(600), "a job").await.unwrap();
    cluster.client.change(CatalogChange::DropTable(table.id)).await.unwrap();
    let live = cluster.client.fresh_regions(region.kind).await;
    assert!(matches!(live, Err(Error::NotFound { .. })), "{live:?}");
    cluster.members[0].clock.advance(Duration::from_millis(DEFAULT_LIFE_MS / 2));
    for _ in 0..3 {
        cluster.heartbeat(1, vec![peer(&region, true)]).await;
        assert_eq!(cluster.heartbeat(node, vec![peer(&region, false)]).await, vec![]);
    }
    let dropped = cluster.client.dropped_regions(region.kind).await.unwrap();
    let found: Vec<_> =
        dropped.iter().map(|route| (route.region.id, &route.ready_learners)).collect();
    assert_eq!(found, [(region.id, &vec![node])]);

    cluster.client.release_lease(lease.id).await.unwrap();
    cluster.members[0].clock.advance(Duration::from_millis(DEFAULT_LIFE_MS + 1_000));
    let orders = cluster.heartbeat_until_destroyed(node, vec![peer(&region, false)], 1).await;
    assert_eq!(orders, [destroy(&region)]);
    let dropped = cluster.client.dropped_regions(region.kind).await;
    assert!(matches!(dropped, Err(Error::NotFound { .. })), "{dropped:?}");
}

#[tokio::test]
async fn learner_is_ordered_until_reported_and_destroyed_once_removed() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let node = cluster.client.ids(1).await.unwrap();
    cluster.register(node, NodeRole::Columnar).await;
    let (table, mut region) = cluster.replicated_table().await;
    cluster.heartbeat(node, vec![]).await;

    let orders =
        cluster.heartbeat_until(1, vec![peer(&region, true)], |orders| !orders.is_empty()).await;
    let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
    let [_, Peer { node: on, role: PeerRole::Learner, id }] = peers.as_slice() else {
        panic!("{peers:?}")
    };
    assert_eq!(*on, node);
    assert!(*id > node, "peer numbers are never reused");
    assert_eq!(cluster.heartbeat(1, vec![peer(&region, true)]).await, orders, "repeated as it was");
    let before = region.clone();
    region.peers.clone_from(peers);
    region.epoch.conf += 1;
    assert_eq!(cluster.heartbeat(1, vec![peer(&region, true)]).await, vec![]);
    let waiting = PeerReport { ready: false, ..peer(&region, false) };
    assert_eq!(cluster.heartbeat(node, vec![waiting]).await, vec![]);
    let route = cluster.client.fresh_regions(region.kind).await.unwrap();
    assert!(route[0].ready_learners.is_empty());
    assert_eq!(cluster.heartbeat(node, vec![peer(&region, false)]).await, vec![]);
    let route = cluster.client.fresh_regions(region.kind).await.unwrap();
    assert_eq!(route[0].ready_learners, [node]);

    let fewer = types::Table { version: 2, columnar_replicas: 0, ..table };
    cluster.client.change(CatalogChange::AlterTable(Box::new(fewer))).await.unwrap();
    let orders =
        cluster.heartbeat_until(1, vec![peer(&region, true)], |orders| !orders.is_empty()).await;
    let (conf, peers) = (region.epoch.conf, before.peers.clone());
    assert_eq!(orders, [Order::Membership { region: region.id, conf, peers }]);
    let learner = region.clone();
    region.peers = before.peers;
    region.epoch.conf += 1;
    assert_eq!(cluster.heartbeat(1, vec![peer(&region, true)]).await, vec![]);
    let orders = cluster.heartbeat(node, vec![peer(&learner, false)]).await;
    assert_eq!(orders, [destroy(&learner)]);
    assert_eq!(cluster.client.node(node).await.unwrap().role, NodeRole::Columnar);
    let status = cluster.client.status().await.unwrap();
    assert_eq!((status.nodes.len(), status.routes.len(), status.leader), (2, 1, 1));
}

#[tokio::test]
async fn a_damaged_learner_is_not_held_against_its_successor_on_the_same_node() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let node = cluster.client.ids(1).await.unwrap();
    cluster.register(node, NodeRole::Columnar).await;
    let (_, mut region) = cluster.replicated_table().await;
    cluster.heartbeat(node, vec![]).await;
    let grow = async |region: &mut Region| {
        let orders =
            cluster.heartbeat_until(1, vec![peer(region, true)], |orders| !orders.is_empty()).await;
        let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
        region.peers.clone_from(peers);
        region.epoch.conf += 1;
    };
    grow(&mut region).await;
    let first = region.clone();
    let id = first.peer_on(node).unwrap().id;
    let destroy = [Order::Destroy { region: region.id, conf: first.epoch.conf }];
    let damaged = PeerReport { peer: id, damaged: true, ready: false, ..peer(&first, false) };
    cluster.heartbeat(1, vec![peer(&region, true)]).await;
    assert_eq!(cluster.heartbeat(node, vec![damaged.clone()]).await, vec![]);
    grow(&mut region).await;
    assert_eq!(region.peers.len(), 1, "the damaged one makes way");
    let orders =
        cluster.heartbeat_until(1, vec![peer(&region, true)], |orders| !orders.is_empty()).await;
    // While the next one is being added, the damaged one is to go: it is in the way.
    assert_eq!(cluster.heartbeat(node, vec![damaged.clone()]).await, destroy);
    let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
    region.peers.clone_from(peers);
    region.epoch.conf += 1;
    assert_ne!(region.peer_on(node).unwrap().id, id);
    for _ in 0..5 {
        assert_eq!(cluster.heartbeat(node, vec![damaged.clone()]).await, destroy);
        assert_eq!(cluster.heartbeat(1, vec![peer(&region, true)]).await, vec![]);
    }
    let route = cluster.client.fresh_regions(region.kind).await.unwrap();
    assert!(route[0].ready_learners.is_empty());
    assert_eq!(cluster.heartbeat(node, vec![peer(&region, false)]).await, vec![]);
}

#[tokio::test]
async fn auto_increment_stocks_respect_numbers_given_by_hand() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let client = &cluster.client;
    client.change(CatalogChange::CreateDatabase("d".into())).await.unwrap();
    let creating = {
        let client = client.clone();
        let change = CatalogChange::CreateTable(Box::new(table("d", "t", &[])));
        tokio::spawn(async move { client.change(change).await })
    };
    let orders = cluster.heartbeat_until(1, vec![], |orders| !orders.is_empty()).await;
    let Some(Order::Create(region)) = orders.first() else { panic!("{orders:?}") };
    cluster.heartbeat(1, vec![peer(region, true)]).await;
    let id = creating.await.unwrap().unwrap().unwrap().id;

    assert_eq!(client.auto_increment(id, 1).await.unwrap(), 1);
    assert_eq!(client.auto_increment(id, 3).await.unwrap(), 2);
    assert_eq!(client.next_auto_increment(id).await.unwrap(), 5);
    client.raise_auto_increment(id, 3).await.unwrap();
    assert_eq!(client.auto_increment(id, 1).await.unwrap(), 5);
    client.raise_auto_increment(id, 9).await.unwrap();
    assert_eq!(client.auto_increment(id, 1).await.unwrap(), 10);
    client.raise_auto_increment(id, 5_000).await.unwrap();
    assert_eq!(client.auto_increment(id, 1).await.unwrap(), 5_001);
    // Another SQL node has a stock of its own.
    let other = PlacementClient::new(cluster.network.clone(), [(1, address(1))]);
    assert_eq!(other.next_auto_increment(id).await.unwrap(), 6_001);
    assert_eq!(other.auto_increment(id, 1).await.unwrap(), 6_001);
    assert_eq!(client.auto_increment(id, 5_000).await.unwrap(), 7_001);
    assert_eq!(client.auto_increment(999, 1).await, Err(Error::not_found("table", "999")));
    // What is taken is known without asking; a client that keeps setting numbers has a range.
    let third = PlacementClient::new(cluster.network.clone(), [(1, address(1))]);
    third.raise_auto_increment(id, 20_000).await.unwrap();
    third.raise_auto_increment(id, 20_001).await.unwrap();
    cluster.network.detach(&address(1));
    third.raise_auto_increment(id, 15_000).await.unwrap();
    third.raise_auto_increment(id, 20_500).await.unwrap();
    assert_eq!(third.auto_increment(id, 1).await.unwrap(), 20_501);
}

#[tokio::test]
async fn signing_key_is_made_once_for_the_cluster() {
    let cluster = Cluster::start(3);
    let key = cluster.client.signing_key().await.unwrap();
    assert_eq!(key.len(), 32);
    assert!(key.iter().any(|byte| *byte != 0));
    cluster.model.elect(2).unwrap();
    let other = PlacementClient::new(cluster.network.clone(), (1..=3).map(|n| (n, address(n))));
    assert_eq!(other.signing_key().await.unwrap(), key);
}

#[tokio::test]
async fn columnar_node_that_lost_its_disk_is_replaced_at_once() {
    let cluster = Cluster::start(1);
    cluster.register(1, NodeRole::Row).await;
    let (old, new) = {
        let first = cluster.client.ids(2).await.unwrap();
        (first, first + 1)
    };
    cluster.register(old, NodeRole::Columnar).await;
    let (table, mut region) = cluster.replicated_table().await;
    cluster.heartbeat(old, vec![]).await;
    let orders =
        cluster.heartbeat_until(1, vec![peer(&region, true)], |orders| !orders.is_empty()).await;
    let Some(Order::Membership { peers, .. }) = orders.first() else { panic!("{orders:?}") };
    region.peers.clone_from(peers);
    region.epoch.conf += 1;
    cluster.heartbeat(1, vec![peer(&region, true)]).await;
    cluster.heartbeat(old, vec![peer(&region, false)]).await;
    assert_eq!(cluster.client.regions(region.kind).await.unwrap()[0].ready_learners, [old]);
    let complete = || async { cluster.client.catalog().await.unwrap().complete_columns.clone() };
    for _ in 0..100 {
        cluster.client.timestamp().await.unwrap();
        if complete().await.contains(&table.id) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(complete().await.contains(&table.id), "columns are complete, and nobody notes it");

    // The same address under another number, and no time passes.
    let node = Node {
        id: new,
        role: NodeRole::Columnar,
        rpc_address: address(old),
        client_address: String::new(),
    };
    cluster.client.register(node, Session::default()).await.unwrap();
    let refused = cluster.client.heartbeat(old, NodeReport::default(), vec![]).await;
    assert!(matches!(refused, Err(Error::Revoked(_))), "{refused:?}");
    cluster.heartbeat(new, vec![]).await;
    // What was remembered names the old number, and is looked up anew.
    let route = cluster.client.regions(region.kind).await.unwrap();
    assert!(route[0].ready_learners.is_empty(), "{route:?}");
    let status = cluster.client.status().await.unwrap();
    let nodes: Vec<u64> = status.nodes.iter().map(|status| status.node.id).collect();
    assert_eq!(nodes, [1, new]);
    assert!(status.peers.iter().all(|(node, _)| *node != old));

    // Added on the new number first, then the old peer goes.
    let leads = |region: &types::Region| vec![peer(region, true)];
    let orders = cluster.heartbeat_until(1, leads(&region), |orders| !orders.is_empty()).await;
    let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
    assert!(peers.iter().any(|peer| peer.node == new && peer.role == PeerRole::Learner));
    region.peers.clone_from(peers);
    region.epoch.conf += 1;
    let orders = cluster.heartbeat_until(1, leads(&region), |orders| !orders.is_empty()).await;
    let [Order::Membership { peers, .. }] = orders.as_slice() else { panic!("{orders:?}") };
    assert!(peers.iter().all(|peer| peer.node != old) && peers.iter().any(|peer| peer.node == new));
    // Columns were there before: that they are away for now is known to be a failure.
    assert!(complete().await.contains(&table.id));
    let fewer = types::Table { version: 2, columnar_replicas: 0, ..table.clone() };
    cluster.client.change(CatalogChange::AlterTable(Box::new(fewer))).await.unwrap();
    assert!(!complete().await.contains(&table.id));
}

#[tokio::test]
async fn a_deposed_leader_ends_no_process_that_registered_with_its_successor() {
    let cluster = Cluster::start(3);
    let node = Node {
        id: 1_000,
        role: NodeRole::Columnar,
        rpc_address: address(1_000),
        client_address: String::new(),
    };
    let earlier = Session { boot: 1, id: 7, ..Session::default() };
    cluster.client.register(node.clone(), earlier.clone()).await.unwrap();
    // Until the first leader does not know that it was deposed.
    let [first, second, _] = &cluster.members[..] else { panic!("three members") };
    while {
        cluster.model.elect(1).unwrap();
        cluster.model.elect(2).unwrap();
        first.service.lead().is_err()
    } {}
    let later = Session { boot: 2, id: 8, known: earlier.begun(), attempts: vec![] };
    let registered = second.service.handle(Request::Register { node, session: later.clone() });
    assert!(matches!(registered.await, Response::Done));
    let report = NodeReport { session: Some(later.id), ..NodeReport::default() };
    let heartbeat = Request::Heartbeat { node: 1_000, report, peers: vec![] };
    let answer = first.service.handle(heartbeat).await;
    let Response::Failed(error) = answer else { panic!("{answer:?}") };
    assert!(!matches!(error, Error::Revoked(_)), "{error}");
}
