//! A row node: voters of data regions and, on the first ones, of placement.

use std::path::Path;
use std::sync::Arc;

use env::Disk;
use kv::{KvEngine, MemoryKv};
use placement::api::NodeRole;
use placement::entry::Me;
use placement::{PlacementClient, PlacementMachines, PlacementService, View, placement_region};
use raft::Groups;
use tokio::task::JoinSet;
use txn::{RowMachines, RowStore, TxnClient, TxnService};
use types::{NodeId, Result};

use super::heartbeat::{Heartbeat, Holds};
use super::orders::Orders;
use super::upkeep::{self, Collector};
use super::{DATA, Machine, ROWS};
use crate::process::{Handlers, Process};

pub(crate) async fn run(
    machine: Machine,
    kv: MemoryKv,
    process: Arc<Process>,
    placement: PlacementClient,
) -> Result<()> {
    let member = machine.establish(NodeRole::Row, &process, &placement).await?;
    let node = member.me.node;
    // Stands for the engine, whose own disk this one is not.
    machine.disk.create_dir_all(&Path::new(DATA).join(ROWS))?;
    let engine: Arc<dyn KvEngine> = Arc::new(kv);
    let rows = RowStore::open(engine.clone())?;
    let view = Arc::new(View::default());
    let row_machines = Box::new(RowMachines::new(rows.clone()));
    let machines = PlacementMachines::new(engine, view.clone(), Some(row_machines));
    let raft = machine.raft_node(&process, &member.me, Box::new(machines))?;
    let groups: Arc<dyn Groups> = Arc::new(raft.clone());
    let txn = TxnService::new(groups.clone(), rows.clone());
    let oracle = Arc::new(placement.clone());
    let txn = Arc::new(txn.with_wait_graph(oracle.clone()).with_leases(oracle, || true));
    let mut tasks = JoinSet::new();
    let disk = machine.disk.clone();
    tasks.spawn(raft.clone().drive(process.clone(), disk, machine.random.fork()));
    let held = Handlers {
        participant: Some(member.participant.clone()),
        rows: Some(rows.clone()),
        raft: Some(raft.clone()),
        ..Handlers::default()
    };
    process.serve(held.clone());
    let bootstrapped = bootstrap_placement(&member.me, groups.as_ref()).await?;
    let (clock, random) = (machine.steady(), machine.random.fork());
    let service = PlacementService::start(node, groups.clone(), view, clock.clone(), random);
    process.serve(Handlers { txn: Some(txn.clone()), placement: Some(service), ..held });
    let caller = machine.caller(&process);
    let client = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
    let client =
        client.with_one_entry(|| true).with_async_commits(|| true).with_shared_locks(|| true);
    let collector = Collector {
        placement: placement.clone(),
        groups: groups.clone(),
        service: txn.clone(),
        client,
    };
    tasks.spawn(collector.run());
    tasks.spawn(upkeep::sweep(rows.clone(), process.clone()));
    let orders = Orders {
        groups: groups.clone(),
        txn: Some(txn),
        placement: placement.clone(),
        rows: caller,
        busy: Arc::default(),
    };
    let heartbeat = Heartbeat {
        node,
        identity: member.me.identity.clone(),
        placement,
        groups,
        holds: Holds::Rows(rows),
        disk: machine.disk.clone(),
        clock,
        orders,
    };
    let participate = |participation| raft.participate(participation);
    let described = member.described(machine.host);
    member.entry.take_part(&member.me, described, participate, bootstrapped).await?;
    heartbeat.run().await
}

/// Creates this node's peer of placement's group if the cluster was just formed; whether it was.
async fn bootstrap_placement(me: &Me, groups: &dyn Groups) -> Result<bool> {
    let Some(plan) = me.identity.committed_plan() else { return Ok(false) };
    let members: Vec<NodeId> = plan.members.iter().map(|member| member.node).collect();
    groups.create(placement_region(&members)?).await?;
    me.identity.bootstrapped()?;
    Ok(true)
}
