//! A row node: voters of data regions and, on the first ones, of placement.

use std::sync::Arc;

use kv::{KvEngine, MemoryKv};
use placement::api::{Node, NodeRole};
use placement::{PlacementMachines, PlacementService, View, placement_region};
use raft::Groups;
use tokio::task::JoinSet;
use txn::{RowMachines, RowStore, TxnClient, TxnService};
use types::Result;

use super::beat::{Beat, Holds};
use super::orders::Orders;
use super::upkeep::{self, Collector};
use super::{FIRST_ROWS, Life, Machine};
use crate::process::{Handlers, Process};

/// A life of a row node, and its rows for whoever compares replicas.
pub(crate) struct Started {
    pub life: Life,
    pub rows: Arc<RowStore>,
}

pub(crate) fn start(machine: &Machine, kv: MemoryKv) -> Result<Started> {
    let node = machine.host;
    let process = Process::new(machine.host);
    let engine: Arc<dyn KvEngine> = Arc::new(kv);
    let rows = RowStore::open(engine.clone())?;
    let view = Arc::new(View::default());
    let row_machines = Box::new(RowMachines::new(rows.clone()));
    let machines = PlacementMachines::new(engine, view.clone(), Some(row_machines));
    let raft = machine.raft_node(&process, node, Box::new(machines))?;
    let groups: Arc<dyn Groups> = Arc::new(raft.clone());
    let placement = machine.placement_client(&process);
    let txn = TxnService::new(groups.clone(), rows.clone());
    let txn = Arc::new(txn.with_wait_graph(Arc::new(placement.clone())));
    let members: Vec<u64> = (1..=FIRST_ROWS).collect();
    let clock = machine.steady();
    let service = match members.contains(&node) {
        true => {
            let region = placement_region(&members)?;
            if groups.status(region.id).is_none() {
                // Done by the driver's first round.
                drop(groups.create(region));
            }
            let random = machine.random.fork();
            Some(PlacementService::start(node, groups.clone(), view, clock.clone(), random))
        }
        false => None,
    };
    process.serve(Handlers {
        raft: Some(raft.clone()),
        txn: Some(txn.clone()),
        placement: service,
        columns: None,
    });
    machine.network.attach(process.clone(), node);
    let mut tasks = JoinSet::new();
    let (disk, pace) = (machine.disk.clone(), machine.pace.clone());
    tasks.spawn(raft.clone().drive(process.clone(), disk, pace, machine.random.fork()));
    let caller = machine.caller(&process);
    let client = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
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
    let address = machine.host.to_string();
    let me =
        Node { id: node, role: NodeRole::Row, rpc_address: address, client_address: String::new() };
    let holds = Holds::Rows(rows.clone());
    let (disk, placement) = (machine.disk.clone(), placement);
    let beat = Beat { me, placement: placement.clone(), groups, holds, disk, clock, orders };
    tasks.spawn(beat.run());
    Ok(Started { life: Life { process, raft: Some(raft), placement, tasks }, rows })
}
