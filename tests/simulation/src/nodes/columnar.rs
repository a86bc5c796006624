//! A columnar node: learners of data regions, and the reader that answers from their columns.

use std::path::Path;
use std::sync::Arc;

use ::columnar::{ColumnarMachines, ColumnarStore, Config};
use placement::api::{Node, NodeRole};
use raft::Groups;
use tokio::task::JoinSet;
use txn::TxnClient;
use types::{NodeId, Result};

use super::beat::{Beat, Holds};
use super::orders::Orders;
use super::upkeep;
use super::{Life, Machine};
use crate::columns::ColumnReader;
use crate::process::{Handlers, Process};

/// File that keeps a node's number, and its format.
const IDENTITY_FILE: &str = "/node-id";
const IDENTITY_FORMAT: env::Format = env::Format::new(*b"ISBRNODE", 1);

/// A life of a columnar node, and its columns for whoever compares replicas.
pub(crate) struct Started {
    pub life: Life,
    pub columns: ColumnarStore,
}

/// Budgets under which deltas are flushed and segments merged all the time.
fn small() -> Config {
    Config {
        column_cache_bytes: 64 << 10,
        key_cache_bytes: 16 << 10,
        open_segments: 4,
        delta_rows: 16,
        delta_bytes: 64 << 10,
        deltas_bytes: 256 << 10,
        log_entries: 40,
    }
}

/// The number of the node whose data a disk holds, if it holds any.
pub(crate) fn identity(machine: &Machine) -> Result<Option<NodeId>> {
    let path = Path::new(IDENTITY_FILE);
    let bytes = env::read_whole(&machine.disk, path, IDENTITY_FORMAT)?;
    Ok(bytes.and_then(|bytes| bytes.as_slice().try_into().ok()).map(NodeId::from_le_bytes))
}

/// Keeps the number of a new node.
pub(crate) fn identify(machine: &Machine, node: NodeId) -> Result<()> {
    env::atomic_write(&machine.disk, Path::new(IDENTITY_FILE), IDENTITY_FORMAT, &node.to_le_bytes())
}

pub(crate) fn start(machine: &Machine, node: NodeId) -> Result<Started> {
    let process = Process::new(machine.host);
    let clock = machine.steady();
    let disk = Arc::new(machine.disk.clone());
    let columns = ColumnarStore::open(disk, clock.clone(), Path::new("/columns"), small())?;
    let raft = machine.raft_node(&process, node, Box::new(ColumnarMachines::new(&columns)))?;
    let groups: Arc<dyn Groups> = Arc::new(raft.clone());
    let placement = machine.placement_client(&process);
    let caller = machine.caller(&process);
    let client = TxnClient::new(caller.clone(), Arc::new(placement.clone()));
    let reader = Arc::new(ColumnReader::new(columns.clone(), groups.clone(), client));
    process.serve(Handlers {
        raft: Some(raft.clone()),
        columns: Some(reader),
        ..Handlers::default()
    });
    machine.network.attach(process.clone(), node);
    let mut tasks = JoinSet::new();
    let (disk, pace) = (machine.disk.clone(), machine.pace.clone());
    tasks.spawn(raft.clone().drive(process.clone(), disk, pace, machine.random.fork()));
    tasks.spawn(upkeep::maintain(columns.clone(), placement.clone(), process.clone()));
    let orders = Orders {
        groups: groups.clone(),
        txn: None,
        placement: placement.clone(),
        rows: caller,
        busy: Arc::default(),
    };
    let address = machine.host.to_string();
    let me = Node {
        id: node,
        role: NodeRole::Columnar,
        rpc_address: address.clone(),
        client_address: address,
    };
    let holds = Holds::Columns(columns.clone());
    let disk = machine.disk.clone();
    let beat = Beat { me, placement: placement.clone(), groups, holds, disk, clock, orders };
    tasks.spawn(beat.run());
    Ok(Started { life: Life { process, raft: Some(raft), placement, tasks }, columns })
}
